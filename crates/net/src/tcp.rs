//! TCP of a lane, as tasks use it.
//!
//! A listener hears what the flow hash sends to its lane: listen in every lane to hear all, or in chosen ones to hear
//! the connections of chosen buckets ([`TcpListener::bind_in`]). A connection lives in the
//! lane that accepted or began it and works only there; it moves with its lane. Used on another lane it returns
//! [`SocketError::WrongLane`]. Dropping closes, wherever that happens.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flowlane_rss::{Bucket, HashType};
use flowlane_stack::tcp::{
    ConnId, Failure, Interest, ListenOptions, ListenerId, RecvError, SendError, SocketOptions, TcpInfo,
};
use flowlane_stack::{Connect, Lane};
use flowlane_sys::frame::Pool;
use tokio::io::ReadBuf;

use crate::Time;
use crate::context;
use crate::runtime::lane_slot::LaneId;
use crate::runtime::message::{Message, SocketHandle};
use crate::runtime::shared::Shared;
use crate::socket::SocketError;
use crate::task::sleep;

/// A listening socket of one lane.
#[derive(Debug)]
pub struct TcpListener {
    lane: LaneId,
    id: ListenerId,
    shared: Arc<Shared>,
}

impl TcpListener {
    /// Listens in the lane of the calling task on a port, of one address of ours or of all.
    ///
    /// # Errors
    /// [`SocketError::Listen`], or [`SocketError::WrongLane`] outside a lane.
    pub fn bind(local: Option<IpAddr>, port: u16, options: ListenOptions) -> Result<Self, SocketError> {
        let (lane, id, shared) = context::with_current(|slot, _, shared| {
            slot.lane.tcp_listen(local, port, options).map(|id| (slot.id, id, shared.clone()))
        })??;
        Ok(Self { lane, id, shared })
    }

    /// Listens in the lane of the calling task if its bucket is one of `buckets`; `None` if it is not. Called in every
    /// lane of a host, this is a listener bound to chosen buckets.
    ///
    /// A connection belongs to the bucket that its flow hash names, whoever listens: a SYN whose hash names another
    /// bucket meets a lane in which nobody listens and is answered with a reset, like one to a closed port, and counted
    /// as `no-connection`. It is not handed to a lane that does listen; peers are to be chosen, or the table steered, so
    /// that they come to the right ones.
    ///
    /// # Errors
    /// As [`TcpListener::bind`]; [`SocketError::NoSuchBucket`] if the host has no such bucket.
    pub fn bind_in(
        buckets: &[Bucket],
        local: Option<IpAddr>,
        port: u16,
        options: ListenOptions,
    ) -> Result<Option<Self>, SocketError> {
        let (here, count) =
            context::with_current(|slot, _, _| (slot.lane.bucket(), slot.lane.rss().buckets.len()))?;
        if let Some(beyond) = buckets.iter().find(|b| usize::from(b.0) >= count) {
            return Err(SocketError::NoSuchBucket(*beyond));
        }
        if buckets.contains(&here) { Self::bind(local, port, options).map(Some) } else { Ok(None) }
    }

    /// Listens on `port` of all our addresses, with the usual options.
    ///
    /// # Errors
    /// As [`TcpListener::bind`].
    pub fn on_port(port: u16) -> Result<Self, SocketError> {
        Self::bind(None, port, ListenOptions::default())
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// On another lane.
    pub fn try_accept(&self) -> Result<Option<TcpStream>, SocketError> {
        let accepted = context::with_lane(self.lane, |slot, _, _| slot.lane.tcp_accept(self.id))??;
        Ok(accepted.map(|a| TcpStream {
            lane: self.lane,
            id: a.id,
            shared: self.shared.clone(),
            local: a.local,
            remote: a.remote,
        }))
    }

    /// Waits for a connection. One task at a time waits on a listener.
    ///
    /// # Errors
    /// On another lane.
    pub async fn accept(&self) -> Result<TcpStream, SocketError> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`TcpListener::accept`], for futures written by hand.
    ///
    /// # Errors
    /// On another lane.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<TcpStream, SocketError>> {
        if let Some(stream) = self.try_accept()? {
            return Poll::Ready(Ok(stream));
        }
        context::with_lane(self.lane, |slot, _, _| slot.lane.tcp_wake_on_accept(self.id, cx.waker()))??;
        Poll::Pending
    }

    /// How many connections wait to be accepted, and how many handshakes are under way.
    ///
    /// # Errors
    /// On another lane.
    pub fn backlog(&self) -> Result<(usize, usize), SocketError> {
        Ok(context::with_lane(self.lane, |slot, _, _| slot.lane.tcp_backlog(self.id))??)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        close(self.lane, &self.shared, SocketHandle::Listener(self.id));
    }
}

/// Closes where the socket's lane is.
fn close(lane: LaneId, shared: &Shared, socket: SocketHandle) {
    if context::with_lane(lane, |slot, now, frames| slot.close(now, frames, socket)).is_err() {
        shared.send(shared.owner_of(lane.index), Message::Close { lane: lane.index, socket });
    }
}

/// A connection of one lane.
///
/// Reading and writing need no exclusive access, so two tasks of the lane may share a stream; one task at a time waits
/// to read and one to write.
#[derive(Debug)]
pub struct TcpStream {
    lane: LaneId,
    id: ConnId,
    shared: Arc<Shared>,
    local: SocketAddr,
    remote: SocketAddr,
}

impl TcpStream {
    /// Connects to a peer from a port whose replies come to the lane of the calling task.
    ///
    /// # Errors
    /// [`SocketError::Connect`] when it cannot begin, [`SocketError::Connection`] when it fails.
    pub async fn connect(remote: SocketAddr) -> Result<Self, SocketError> {
        Self::connect_with(Connect::to(remote.into()), None).await
    }

    /// Connects as told, and gives up after `timeout`, if given, with [`Failure::TimedOut`].
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect_with(connect: Connect, timeout: Option<Duration>) -> Result<Self, SocketError> {
        let (lane, shared) = context::with_current(|slot, _, shared| (slot.id, shared.clone()))?;
        let (id, info) = context::with_lane(lane, |slot, now, frames| {
            let id = slot.lane.tcp_connect(now, frames, connect)?;
            Ok::<_, SocketError>((id, slot.lane.tcp_info(id)?))
        })??;
        let stream = Self { lane, id, shared, local: info.local, remote: info.remote };
        let connected = poll_fn(|cx| stream.poll_connected(cx));
        match timeout {
            None => connected.await?,
            Some(timeout) => {
                let (mut connected, mut over) = (pin!(connected), pin!(sleep(timeout)));
                poll_fn(|cx| match connected.as_mut().poll(cx) {
                    Poll::Pending => over.as_mut().poll(cx).map(|_| Err(Failure::TimedOut.into())),
                    done => done,
                })
                .await?;
            }
        }
        Ok(stream)
    }

    fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        self.with(|lane, _, _| {
            let ready = lane.tcp_readiness(self.id)?;
            if let Some(failure) = ready.failure {
                return Err(failure.into());
            }
            if ready.writable {
                return Ok(Poll::Ready(()));
            }
            lane.tcp_wake_on(self.id, Interest::Write, cx.waker())?;
            Ok(Poll::Pending)
        })
        .map_or_else(|e| Poll::Ready(Err(e)), |ready| ready.map(Ok))
    }

    #[inline]
    fn with<R>(
        &self,
        f: impl FnOnce(&mut Lane, Time, &Pool) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        context::with_lane(self.lane, |slot, now, frames| f(&mut slot.lane, now, frames))?
    }

    /// Our end.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The peer's end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.remote
    }

    /// Reads what is there, at most as much as `into` holds; 0 is the end of the stream, `None` that nothing is there.
    ///
    /// # Errors
    /// On another lane, or when the connection ended badly.
    #[inline]
    pub fn try_read(&self, into: &mut [u8]) -> Result<Option<usize>, SocketError> {
        self.with(|lane, now, frames| match lane.tcp_recv(now, frames, self.id, into) {
            Ok(n) => Ok(Some(n)),
            Err(RecvError::WouldBlock) => Ok(None),
            Err(RecvError::Failed(failure)) => Err(failure.into()),
            Err(_) => Err(SocketError::Closed),
        })
    }

    /// Waits for something to read; 0 is the end of the stream.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub async fn read(&self, into: &mut [u8]) -> Result<usize, SocketError> {
        poll_fn(|cx| self.poll_read(cx, into)).await
    }

    /// As [`TcpStream::read`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::try_read`].
    pub fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize, SocketError>> {
        if let Some(n) = self.try_read(into)? {
            return Poll::Ready(Ok(n));
        }
        self.with(|lane, _, _| Ok(lane.tcp_wake_on(self.id, Interest::Read, cx.waker())?))?;
        Poll::Pending
    }

    /// Waits until there is something to read, the end of the stream or an error, without a buffer to read it into.
    ///
    /// # Errors
    /// On another lane.
    pub async fn readable(&self) -> Result<(), SocketError> {
        poll_fn(|cx| {
            let ready = self.with(|lane, _, _| {
                let ready = lane.tcp_readiness(self.id)?.readable;
                if !ready {
                    lane.tcp_wake_on(self.id, Interest::Read, cx.waker())?;
                }
                Ok(ready)
            })?;
            if ready { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Takes as much of `bytes` as there is room for; `None` if there is none.
    ///
    /// # Errors
    /// On another lane, after [`TcpStream::shutdown`], or when the connection ended badly.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, SocketError> {
        self.with(|lane, now, frames| match lane.tcp_send(now, frames, self.id, bytes) {
            Ok(n) => Ok(Some(n)),
            Err(SendError::WouldBlock) => Ok(None),
            Err(SendError::Failed(failure)) => Err(failure.into()),
            Err(SendError::Closed) => Err(SocketError::ShutDown),
            Err(_) => Err(SocketError::Closed),
        })
    }

    /// Waits for room and takes as much of `bytes` as fits.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub async fn write(&self, bytes: &[u8]) -> Result<usize, SocketError> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub async fn write_all(&self, bytes: &[u8]) -> Result<(), SocketError> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(&bytes[done..]).await?;
        }
        Ok(())
    }

    /// As [`TcpStream::write`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::try_write`].
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SocketError>> {
        if let Some(n) = self.try_write(bytes)? {
            return Poll::Ready(Ok(n));
        }
        self.with(|lane, _, _| Ok(lane.tcp_wake_on(self.id, Interest::Write, cx.waker())?))?;
        Poll::Pending
    }

    /// Ends one direction or both. What was written is still sent.
    ///
    /// # Errors
    /// On another lane.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), SocketError> {
        self.with(|lane, now, frames| Ok(lane.tcp_shutdown(now, frames, self.id, how)?))
    }

    /// Waits until the connection is over, both ways.
    ///
    /// # Errors
    /// On another lane, or how the connection ended, if badly.
    pub async fn closed(&self) -> Result<(), SocketError> {
        poll_fn(|cx| {
            let ready = self.with(|lane, _, _| {
                let ready = lane.tcp_readiness(self.id)?;
                if !ready.closed {
                    lane.tcp_wake_on(self.id, Interest::Closed, cx.waker())?;
                }
                Ok(ready)
            })?;
            match (ready.closed, ready.failure) {
                (_, Some(failure)) => Poll::Ready(Err(failure.into())),
                (true, None) => Poll::Ready(Ok(())),
                (false, None) => Poll::Pending,
            }
        })
        .await
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// On another lane.
    pub fn abort(&self) -> Result<(), SocketError> {
        self.with(|lane, now, frames| Ok(lane.tcp_abort(now, frames, self.id)?))
    }

    /// The socket's options.
    ///
    /// # Errors
    /// On another lane.
    pub fn options(&self) -> Result<SocketOptions, SocketError> {
        self.with(|lane, _, _| Ok(lane.tcp_options(self.id)?))
    }

    /// Changes the socket's options.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_options(&self, options: &SocketOptions) -> Result<(), SocketError> {
        self.with(|lane, now, frames| Ok(lane.tcp_set_options(now, frames, self.id, options)?))
    }

    /// Sends small segments at once, or lets them wait for company.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<(), SocketError> {
        self.set_options(&SocketOptions { nodelay, ..self.options()? })
    }

    /// A look at the connection: state, round-trip time, windows, retransmissions.
    ///
    /// # Errors
    /// On another lane.
    pub fn info(&self) -> Result<TcpInfo, SocketError> {
        self.with(|lane, _, _| Ok(lane.tcp_info(self.id)?))
    }

    /// Flow hash of what the connection receives, its type, and its bucket.
    ///
    /// # Errors
    /// On another lane.
    pub fn flow(&self) -> Result<(u32, HashType, Bucket), SocketError> {
        self.with(|lane, _, _| {
            let info = lane.tcp_info(self.id)?;
            Ok((info.hash, HashType::from_u8(info.hash_type).unwrap_or(HashType::None), lane.bucket()))
        })
    }

    /// Two halves that can be dropped one by one; dropping the writing half ends the stream towards the peer.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (OwnedReadHalf(stream.clone()), OwnedWriteHalf(stream))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        close(self.lane, &self.shared, SocketHandle::Connection(self.id));
    }
}

/// The half of a connection that reads.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The half of a connection that writes. Dropping it ends the stream towards the peer.
#[derive(Debug)]
pub struct OwnedWriteHalf(Arc<TcpStream>);

impl AsRef<TcpStream> for OwnedReadHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsRef<TcpStream> for OwnedWriteHalf {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsRef<TcpStream> for TcpStream {
    fn as_ref(&self) -> &TcpStream {
        self
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // On another lane the whole connection is closed once both halves are gone.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

macro_rules! reads {
    ($($name:ident)+) => {
        $(
            impl tokio::io::AsyncRead for $name {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    into: &mut ReadBuf<'_>,
                ) -> Poll<io::Result<()>> {
                    let n = ready!(self.as_ref().get_ref().as_ref().poll_read(cx, into.initialize_unfilled()))?;
                    into.advance(n);
                    Poll::Ready(Ok(()))
                }
            }

            impl futures_io::AsyncRead for $name {
                fn poll_read(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    into: &mut [u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_read(cx, into))?))
                }
            }
        )+
    };
}

macro_rules! writes {
    ($($name:ident)+) => {
        $(
            impl tokio::io::AsyncWrite for $name {
                fn poll_write(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write(cx, bytes))?))
                }

                fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(()))
                }

                fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(self.as_ref().get_ref().as_ref().shutdown(Shutdown::Write)?))
                }

                fn poll_write_vectored(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[io::IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write_vectored(cx, bytes))?))
                }

                fn is_write_vectored(&self) -> bool {
                    true
                }
            }

            impl futures_io::AsyncWrite for $name {
                fn poll_write(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[u8],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write(cx, bytes))?))
                }

                fn poll_write_vectored(
                    self: Pin<&mut Self>,
                    cx: &mut Context<'_>,
                    bytes: &[io::IoSlice<'_>],
                ) -> Poll<io::Result<usize>> {
                    Poll::Ready(Ok(ready!(self.as_ref().get_ref().as_ref().poll_write_vectored(cx, bytes))?))
                }

                fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(()))
                }

                fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                    Poll::Ready(Ok(self.as_ref().get_ref().as_ref().shutdown(Shutdown::Write)?))
                }
            }
        )+
    };
}

reads! { TcpStream OwnedReadHalf }
writes! { TcpStream OwnedWriteHalf }

impl TcpStream {
    /// Takes as much of the slices, in order, as fits.
    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<Result<usize, SocketError>> {
        let mut taken = 0;
        for slice in slices.iter().filter(|s| !s.is_empty()) {
            match self.try_write(slice) {
                Ok(Some(n)) => {
                    taken += n;
                    if n < slice.len() {
                        break;
                    }
                }
                Ok(None) if taken == 0 => return self.poll_write(cx, slice),
                Err(e) if taken == 0 => return Poll::Ready(Err(e)),
                Ok(None) | Err(_) => break,
            }
        }
        Poll::Ready(Ok(taken))
    }
}
