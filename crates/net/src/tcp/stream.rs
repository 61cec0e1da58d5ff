//! Connections.

use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane_rss::{Bucket, HashType};
use flowlane_stack::tcp::{ConnId, Failure, Interest, RecvError, SendError, SocketOptions, TcpInfo};
use flowlane_stack::{Connect, Lane};
use flowlane_sys::frame::Pool;

use super::io::{OwnedReadHalf, OwnedWriteHalf};
use super::{Id, close};
use crate::Time;
use crate::context;
use crate::kernel::{KernelLane, SocketId};
use crate::runtime::lane_slot::LaneId;
use crate::runtime::message::SocketHandle;
use crate::runtime::shared::Shared;
use crate::socket::SocketError;
use crate::task::sleep;

/// A connection of one lane.
///
/// Reading and writing need no exclusive access, so two tasks of the lane may share a stream; one task at a time waits
/// to read and one to write.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) lane: LaneId,
    pub(super) id: Id<ConnId>,
    pub(super) shared: Arc<Shared>,
    /// The kernel is asked when somebody wants to know.
    pub(super) local: OnceLock<SocketAddr>,
    pub(super) remote: SocketAddr,
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
        let stream = Self::begin(connect)?;
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

    /// Begins to connect: nothing can be read or written before [`TcpStream::poll_connected`] is ready. For programs that
    /// make very many connections and want no future for each.
    ///
    /// # Errors
    /// [`SocketError::Connect`] when it cannot begin.
    pub fn begin(connect: Connect) -> Result<Self, SocketError> {
        let (lane, shared) = context::with_current(|slot, _, shared| (slot.id, shared.clone()))?;
        context::with_lane(lane, |slot, now, frames| {
            if let Some(kernel) = &mut slot.kernel {
                let (id, remote) = (Id::Kernel(kernel.connect(&connect)?), connect.remote.into());
                return Ok::<_, SocketError>(Self { lane, id, shared, local: OnceLock::new(), remote });
            }
            let id = slot.lane.tcp_connect(now, frames, connect)?;
            let info = slot.lane.tcp_info(id)?;
            let local = OnceLock::from(info.local);
            Ok(Self { lane, id: Id::Stack(id), shared, local, remote: info.remote })
        })?
    }

    /// Whether the connection stands, or why it never will.
    ///
    /// # Errors
    /// [`SocketError::Connection`] when it failed.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        let polled = self.with(
            |lane, id, _, _| {
                let ready = lane.tcp_readiness(id)?;
                if let Some(failure) = ready.failure {
                    return Err(failure.into());
                }
                if ready.writable {
                    return Ok(Poll::Ready(Ok(())));
                }
                lane.tcp_wake_on(id, Interest::Write, cx.waker())?;
                Ok(Poll::Pending)
            },
            |kernel, id| Ok(kernel.poll_connected(id, cx.waker())),
        );
        polled.unwrap_or_else(|e| Poll::Ready(Err(e)))
    }

    /// Does something with the connection, be it the stack's or the kernel's.
    #[inline]
    fn with<R>(
        &self,
        stack: impl FnOnce(&mut Lane, ConnId, Time, &Pool) -> Result<R, SocketError>,
        kernel: impl FnOnce(&mut KernelLane, SocketId) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        context::with_lane(self.lane, |slot, now, frames| match self.id {
            Id::Stack(id) => stack(&mut slot.lane, id, now, frames),
            Id::Kernel(id) => kernel(slot.sockets()?, id),
        })?
    }

    /// Our end. Of a kernel socket that is asked on another lane before it was asked on its own: unspecified.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        if let Some(known) = self.local.get() {
            return *known;
        }
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.with(|_, _, _, _| Ok(unknown), |kernel, id| kernel.local_address(id))
            .map_or(unknown, |address| *self.local.get_or_init(|| address))
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
        context::with_lane(self.lane, |slot, now, frames| match self.id {
            Id::Stack(id) => received(slot.lane.tcp_recv(now, frames, id, into)),
            Id::Kernel(id) => slot.sockets()?.recv(id, into),
        })?
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
        self.wake_on(Interest::Read, cx)?;
        Poll::Pending
    }

    #[inline]
    fn wake_on(&self, interest: Interest, cx: &Context<'_>) -> Result<(), SocketError> {
        self.with(
            |lane, id, _, _| Ok(lane.tcp_wake_on(id, interest, cx.waker())?),
            |kernel, id| kernel.wake_on(id, interest, cx.waker()),
        )
    }

    /// Waits until there is something to read, the end of the stream or an error, without a buffer to read it into. On
    /// a kernel socket this is a good guess: after a read that filled its buffer there may be no more.
    ///
    /// # Errors
    /// On another lane.
    pub async fn readable(&self) -> Result<(), SocketError> {
        poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// As [`TcpStream::readable`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpStream::readable`].
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        let polled = self.with(
            |lane, id, _, _| {
                if lane.tcp_readiness(id)?.readable {
                    return Ok(Poll::Ready(Ok(())));
                }
                lane.tcp_wake_on(id, Interest::Read, cx.waker())?;
                Ok(Poll::Pending)
            },
            |kernel, id| {
                if kernel.is_readable(id)? {
                    return Ok(Poll::Ready(Ok(())));
                }
                kernel.wake_on(id, Interest::Read, cx.waker())?;
                Ok(Poll::Pending)
            },
        );
        polled.unwrap_or_else(|e| Poll::Ready(Err(e)))
    }

    /// Takes as much of `bytes` as there is room for; `None` if there is none.
    ///
    /// # Errors
    /// On another lane, after [`TcpStream::shutdown`], or when the connection ended badly.
    #[inline]
    pub fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, SocketError> {
        context::with_lane(self.lane, |slot, now, frames| match self.id {
            Id::Stack(id) => match slot.lane.tcp_send(now, frames, id, bytes) {
                Ok(n) => Ok(Some(n)),
                Err(SendError::WouldBlock) => Ok(None),
                Err(SendError::Failed(failure)) => Err(failure.into()),
                Err(SendError::Closed) => Err(SocketError::ShutDown),
                Err(_) => Err(SocketError::Closed),
            },
            Id::Kernel(id) => slot.sockets()?.send(id, bytes),
        })?
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
        self.wake_on(Interest::Write, cx)?;
        Poll::Pending
    }

    /// Ends one direction or both. What was written is still sent.
    ///
    /// # Errors
    /// On another lane.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| Ok(lane.tcp_shutdown(now, frames, id, how)?),
            |kernel, id| kernel.shutdown(id, how),
        )
    }

    /// Waits until the connection is over, both ways.
    ///
    /// # Errors
    /// On another lane, or how the connection ended, if badly.
    pub async fn closed(&self) -> Result<(), SocketError> {
        poll_fn(|cx| {
            let over = self.with(
                |lane, id, _, _| {
                    let ready = lane.tcp_readiness(id)?;
                    ready.failure.map_or(Ok(ready.closed), |failure| Err(failure.into()))
                },
                KernelLane::is_over,
            )?;
            if over {
                return Poll::Ready(Ok(()));
            }
            self.wake_on(Interest::Closed, cx)?;
            Poll::Pending
        })
        .await
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// On another lane.
    pub fn abort(&self) -> Result<(), SocketError> {
        self.with(|lane, id, now, frames| Ok(lane.tcp_abort(now, frames, id)?), KernelLane::abort)
    }

    /// The socket's options; of a kernel socket those that the kernel chose, too.
    ///
    /// # Errors
    /// On another lane.
    pub fn options(&self) -> Result<SocketOptions, SocketError> {
        self.with(|lane, id, _, _| Ok(lane.tcp_options(id)?), |kernel, id| kernel.options(id))
    }

    /// Changes the socket's options. Of `linger`, kernel sockets know only zero and nothing else; what they do not know is
    /// left as it is.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_options(&self, options: &SocketOptions) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| Ok(lane.tcp_set_options(now, frames, id, options)?),
            |kernel, id| kernel.set_options(id, options),
        )
    }

    /// Sends small segments at once, or lets them wait for company.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| {
                let options = SocketOptions { nodelay, ..lane.tcp_options(id)? };
                Ok(lane.tcp_set_options(now, frames, id, &options)?)
            },
            |kernel, id| kernel.set_nodelay(id, nodelay),
        )
    }

    /// A look at the connection: state, round-trip time, windows, retransmissions.
    ///
    /// # Errors
    /// On another lane.
    pub fn info(&self) -> Result<TcpInfo, SocketError> {
        self.with(|lane, id, _, _| Ok(lane.tcp_info(id)?), |kernel, id| kernel.info(id, self.remote))
    }

    /// Flow hash of what the connection receives, its type, and its bucket. For a kernel socket the hash is what the
    /// host's steering makes of the addresses and ports, and the bucket is that of the lane that has the connection:
    /// which it is, the kernel chose.
    ///
    /// # Errors
    /// On another lane.
    pub fn flow(&self) -> Result<(u32, HashType, Bucket), SocketError> {
        context::with_lane(self.lane, |slot, _, _| {
            let (hash, kind) = match self.id {
                Id::Stack(id) => {
                    let info = slot.lane.tcp_info(id)?;
                    (info.hash, HashType::from_u8(info.hash_type).unwrap_or(HashType::None))
                }
                Id::Kernel(id) => {
                    let local = slot.sockets()?.local_address(id)?;
                    slot.lane.tcp_hash(local.into(), self.remote.into())
                }
            };
            Ok((hash, kind, slot.lane.bucket()))
        })?
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
        let socket = match self.id {
            Id::Stack(id) => SocketHandle::Connection(id),
            Id::Kernel(id) => SocketHandle::Kernel(id),
        };
        close(self.lane, &self.shared, socket);
    }
}

impl TcpStream {
    /// Takes as much of the slices, in order, as fits.
    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, SocketError>> {
        if let Id::Kernel(id) = self.id {
            let taken = context::with_lane(self.lane, |slot, _, _| slot.sockets()?.send_slices(id, slices))??;
            return match taken {
                Some(n) => Poll::Ready(Ok(n)),
                None => {
                    self.wake_on(Interest::Write, cx).map_or_else(|e| Poll::Ready(Err(e)), |()| Poll::Pending)
                }
            };
        }
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

/// What the stack says of a read, `None` for nothing there.
#[inline]
fn received(result: Result<usize, RecvError>) -> Result<Option<usize>, SocketError> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(RecvError::WouldBlock) => Ok(None),
        Err(RecvError::Failed(failure)) => Err(failure.into()),
        Err(_) => Err(SocketError::Closed),
    }
}
