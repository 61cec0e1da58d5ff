//! Opening a connection, with or without waiting, and with data in the SYN.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane_stack::Connect;
use flowlane_stack::tcp::{Failure, FirstData, Interest};

use super::TcpStream;
use crate::context::LaneRef;
use crate::error::SocketError;
use crate::task::sleep;
use crate::tcp::Id;
use crate::tcp::ends::Ends;

impl TcpStream {
    /// Connects to a peer from a port whose replies arrive in the lane of the calling task.
    ///
    /// # Errors
    /// [`SocketError::Connect`] if it cannot start, [`SocketError::Connection`] if it fails.
    pub async fn connect(remote: SocketAddr) -> Result<Self, SocketError> {
        Self::connect_with(Connect::to(remote.into()), None).await
    }

    /// Connects with these options, and fails after `timeout`, if given, with [`Failure::TimedOut`].
    ///
    /// # Errors
    /// As [`TcpStream::connect`].
    pub async fn connect_with(connect: Connect, timeout: Option<Duration>) -> Result<Self, SocketError> {
        Self::connect_with_data(connect, &[], timeout).await
    }

    /// Connects and writes `data`; the timeout is for the handshake. With [`fast_open`](crate::SocketOptions::fast_open), as
    /// much of it as fits goes with the SYN to peers that are known to take it, so that the answer comes a round trip earlier
    /// (RFC 7413). Such data may be delivered to the peer twice: for requests that may be repeated. Kernel sockets do so if
    /// `net.ipv4.tcp_fastopen` has bit 0, as it has by default, and write it with the last segment of the handshake otherwise.
    ///
    /// # Errors
    /// As [`TcpStream::connect`] and [`TcpStream::try_write`].
    pub async fn connect_with_data(
        connect: Connect,
        data: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Self, SocketError> {
        let (stream, taken) = Self::begin_with_data(connect, data)?;
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
        stream.write_all(&data[taken..]).await?;
        Ok(stream)
    }

    /// Begins to connect: nothing can be read or written before [`TcpStream::poll_connected`] is ready. For programs that
    /// make very many connections and want no future for each.
    ///
    /// # Errors
    /// [`SocketError::Connect`] when it cannot begin.
    pub fn begin(connect: Connect) -> Result<Self, SocketError> {
        Self::begin_with_data(connect, &[]).map(|(stream, _)| stream)
    }

    /// As [`TcpStream::begin`], with data as in [`TcpStream::connect_with_data`]. Returns the number of bytes sent with the SYN; the caller
    /// writes the rest when the connection is established. Then [`info`](TcpStream::info) shows whether the peer accepted the SYN's data
    /// (`syn_data`); if not, it is retransmitted automatically.
    ///
    /// # Errors
    /// As [`TcpStream::begin`].
    pub fn begin_with_data(connect: Connect, data: &[u8]) -> Result<(Self, usize), SocketError> {
        let rest_follows = !data.is_empty();
        Self::begin_with(connect, FirstData { bytes: data, rest_follows }, false)
    }

    /// As [`TcpStream::connect_with`]. `by_kernel`: on a socket of the kernel also in a host that has those only beside its own. `writes`:
    /// the caller writes as soon as the connection stands.
    pub(crate) async fn connect_for_relay(
        connect: Connect,
        by_kernel: bool,
        writes: bool,
        timeout: Duration,
    ) -> Result<Self, SocketError> {
        let data = FirstData { bytes: &[], rest_follows: writes };
        let (stream, _) = Self::begin_with(connect, data, by_kernel)?;
        match crate::task::timeout(timeout, poll_fn(|cx| stream.poll_connected(cx))).await {
            Ok(connected) => connected.map(|()| stream),
            Err(_) => Err(Failure::TimedOut.into()),
        }
    }

    /// Begins to connect; how many bytes of the data go with the SYN. `by_kernel`: on a socket of the kernel, if there are any.
    fn begin_with(
        connect: Connect,
        data: FirstData<'_>,
        by_kernel: bool,
    ) -> Result<(Self, usize), SocketError> {
        let lane = LaneRef::current()?;
        let (id, ends, taken) = lane.with(|slot, now, frames| {
            let kernel = if by_kernel { slot.kernel.as_deref_mut() } else { slot.own_kernel() };
            if let Some(kernel) = kernel {
                let (id, taken) = kernel.connect(&connect, data)?;
                return Ok::<_, SocketError>((Id::Kernel(id), Ends::new(None, connect.remote.into()), taken));
            }
            let (id, taken) = slot.lane.tcp_connect_with(now, frames, connect, data)?;
            let (local, remote) = slot.lane.tcp().ends(id)?;
            Ok((Id::Stack(id), Ends::new(Some(local), remote), taken))
        })??;
        Ok((Self { lane, id, ends }, taken))
    }

    /// Connects to the Unix socket at `path`, in a host of kernel sockets. The stream is as any other, but has no addresses: both ends are
    /// unspecified.
    ///
    /// # Errors
    /// [`SocketError::Connection`] if nobody listens there; [`SocketError::Kernel`] with the kernel's number, as `EAGAIN` while the
    /// listener's queue is full: then try again, nobody tells when it no longer is. [`SocketError::Connect`] if the path is too long for an
    /// address (107 bytes); [`SocketError::Unsupported`] on our own stack, which has no Unix sockets.
    pub fn connect_path(path: &Path) -> Result<Self, SocketError> {
        let lane = LaneRef::current()?;
        let id = lane.with(|slot, _, _| match slot.own_kernel() {
            Some(kernel) => kernel.connect_path(path),
            None => Err(SocketError::Unsupported("connect to a Unix socket")),
        })??;
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(Self { lane, id: Id::Kernel(id), ends: Ends::new(None, nowhere) })
    }

    /// Ready when the connection is established.
    ///
    /// # Errors
    /// [`SocketError::Connection`] if it has failed.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        let polled = self.with(
            |lane, id, _, _| {
                let ready = lane.tcp().readiness(id)?;
                if let Some(failure) = ready.failure {
                    return Err(failure.into());
                }
                if ready.writable {
                    return Ok(Poll::Ready(Ok(())));
                }
                lane.tcp_mut().register(id, Interest::Write, cx.waker())?;
                Ok(Poll::Pending)
            },
            |kernel, id| Ok(kernel.poll_connected(id, cx.waker())),
        );
        polled.unwrap_or_else(|e| Poll::Ready(Err(e)))
    }
}
