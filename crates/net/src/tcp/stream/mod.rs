//! Connections: their endpoints, options and closing; [`connect`], [`depart`], [`files`], [`read`], [`write`] and [`zero_copy`] are separate files.

mod connect;
mod depart;
mod files;
mod read;
mod splice;
mod write;
mod zero_copy;

pub use depart::Departed;
pub use zero_copy::{SendZcError, Sending};

use std::future::poll_fn;
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use flowlane_rss::{Bucket, HashType};
use flowlane_stack::Lane;
use flowlane_stack::tcp::{ConnId, Interest, SocketOptions, TcpInfo};
use flowlane_sys::frame::Pool;

use super::Id;
use super::ends::Ends;
use crate::Time;
use crate::context::LaneRef;
use crate::error::SocketError;
use crate::kernel::{Arrival, KernelLane, SocketId};
use crate::lane::SocketHandle;

/// A connection of one lane.
///
/// Reading and writing need no exclusive access, so two tasks of the lane may share a stream; one task at a time waits
/// to read and one to write.
#[derive(Debug)]
pub struct TcpStream {
    pub(super) lane: LaneRef,
    pub(super) id: Id<ConnId>,
    /// Our end; of a kernel socket it is queried on demand.
    pub(super) ends: Ends,
}

const NO_MARK: SocketError = SocketError::Unsupported("tell where urgent data ends");

impl TcpStream {
    /// Our end. Of a kernel socket that is asked on another lane than its own: unspecified.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
        self.ends.local().unwrap_or_else(|| {
            self.with(|_, _, _, _| Ok(unknown), |kernel, id| kernel.local_address(id)).unwrap_or(unknown)
        })
    }

    /// The peer's end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.ends.remote()
    }

    /// Closes one direction or both. Written data is still sent.
    ///
    /// # Errors
    /// On another lane.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| Ok(lane.with_tcp(now, frames, |tcp, cx| tcp.shutdown(cx, id, how))?),
            |kernel, id| kernel.shutdown(id, how),
        )
    }

    /// Waits until the connection is over, both ways.
    ///
    /// # Errors
    /// On another lane, or how the connection ended, if badly.
    pub async fn closed(&self) -> Result<(), SocketError> {
        poll_fn(|cx| {
            if self.is_over()? {
                return Poll::Ready(Ok(()));
            }
            self.wake_on(Interest::Closed, cx)?;
            Poll::Pending
        })
        .await
    }

    /// Whether the connection is over, both ways; how it ended, if badly.
    pub(crate) fn is_over(&self) -> Result<bool, SocketError> {
        self.with(
            |lane, id, _, _| {
                let ready = lane.tcp().readiness(id)?;
                ready.failure.map_or(Ok(ready.closed), |failure| Err(failure.into()))
            },
            KernelLane::is_over,
        )
    }

    /// Number of bytes to read before the peer's urgent mark (RFC 9293 §3.8.5): 0 if the next byte is the first behind urgent data,
    /// `None` if there is no unread urgent data. Urgent data itself is in the stream.
    ///
    /// # Errors
    /// On another lane; [`SocketError::Unsupported`] on kernel sockets.
    pub fn urgent_mark(&self) -> Result<Option<u32>, SocketError> {
        self.with(|lane, id, _, _| Ok(lane.tcp().urgent_mark(id)?), |_, _| Err(NO_MARK))
    }

    /// Waits until the peer announces urgent data while none is pending, or more of it, from now on, or until the stream ends.
    /// [`TcpStream::urgent_mark`] has what was announced before. If polled without a wake-up, the future may be ready early.
    ///
    /// # Errors
    /// As [`TcpStream::urgent_mark`].
    pub async fn urgent_moved(&self) -> Result<(), SocketError> {
        let mut waits = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut waits, true) {
                return Poll::Ready(Ok(()));
            }
            self.urgent_mark()?;
            self.wake_on(Interest::Urgent, cx)?;
            Poll::Pending
        })
        .await
    }

    /// Resets the connection.
    ///
    /// # Errors
    /// On another lane.
    pub fn abort(&self) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| Ok(lane.with_tcp(now, frames, |tcp, cx| tcp.abort(cx, id))?),
            KernelLane::abort,
        )
    }

    /// The socket's options; of a kernel socket those that the kernel chose, too.
    ///
    /// # Errors
    /// On another lane.
    pub fn options(&self) -> Result<SocketOptions, SocketError> {
        self.with(|lane, id, _, _| Ok(lane.tcp().options(id)?), |kernel, id| kernel.options(id))
    }

    /// Changes the socket's options. Of `linger`, kernel sockets know only zero and nothing else; what they do not know is
    /// left as it is.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_options(&self, options: &SocketOptions) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| {
                Ok(lane.with_tcp(now, frames, |tcp, cx| tcp.set_options(cx, id, options))?)
            },
            |kernel, id| kernel.set_options(id, options),
        )
    }

    /// Switches Nagle's algorithm off (`true`: small segments are sent at once) or on.
    ///
    /// # Errors
    /// On another lane.
    pub fn set_nodelay(&self, nodelay: bool) -> Result<(), SocketError> {
        self.with(
            |lane, id, now, frames| {
                let options = SocketOptions { nodelay, ..lane.tcp().options(id)? };
                Ok(lane.with_tcp(now, frames, |tcp, cx| tcp.set_options(cx, id, &options))?)
            },
            |kernel, id| kernel.set_nodelay(id, nodelay),
        )
    }

    /// A look at the connection: state, round-trip time, windows, retransmissions.
    ///
    /// # Errors
    /// On another lane.
    pub fn info(&self) -> Result<TcpInfo, SocketError> {
        self.with(|lane, id, _, _| Ok(lane.tcp().info(id)?), |kernel, id| kernel.info(id, self.peer_addr()))
    }

    /// Flow hash of what the connection receives, its type, and its bucket. For a kernel socket the hash is what the
    /// host's steering makes of the addresses and ports, and the bucket is that of the lane that has the connection:
    /// which it is, the kernel chose.
    ///
    /// # Errors
    /// On another lane.
    pub fn flow(&self) -> Result<(u32, HashType, Bucket), SocketError> {
        self.lane.with(|slot, _, _| {
            let (hash, kind) = match self.id {
                Id::Stack(id) => {
                    let info = slot.lane.tcp().info(id)?;
                    (info.hash, HashType::from_u8(info.hash_type).unwrap_or(HashType::None))
                }
                Id::Kernel(id) => {
                    let local = slot.sockets()?.local_address(id)?;
                    slot.lane.tcp_hash(local.into(), self.peer_addr().into())
                }
            };
            Ok((hash, kind, slot.lane.bucket()))
        })?
    }

    /// Where the last packet of the connection arrived, and why that is not its worker's processor, if it is not. `None` on our own
    /// stack, whose lanes count that for each frame, and where workers are not bound to processors.
    ///
    /// # Errors
    /// On another lane.
    pub fn arrival(&self) -> Result<Option<Arrival>, SocketError> {
        self.with(|_, _, _, _| Ok(None), |kernel, id| kernel.arrival(id))
    }

    /// Does something with the connection, be it the stack's or the kernel's.
    #[inline]
    fn with<R>(
        &self,
        stack: impl FnOnce(&mut Lane, ConnId, Time, &Pool) -> Result<R, SocketError>,
        kernel: impl FnOnce(&mut KernelLane, SocketId) -> Result<R, SocketError>,
    ) -> Result<R, SocketError> {
        self.lane.with(|slot, now, frames| match self.id {
            Id::Stack(id) => stack(&mut slot.lane, id, now, frames),
            Id::Kernel(id) => kernel(slot.sockets()?, id),
        })?
    }

    /// Wakes the task when what is waited for may have come; at once if it has.
    #[inline]
    pub(crate) fn wake_on(&self, interest: Interest, cx: &Context<'_>) -> Result<(), SocketError> {
        self.with(
            |lane, id, _, _| Ok(lane.tcp_mut().register(id, interest, cx.waker())?),
            |kernel, id| kernel.wake_on(id, interest, cx.waker()),
        )
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let socket = match self.id {
            Id::Stack(id) => SocketHandle::Connection(id),
            Id::Kernel(id) => SocketHandle::Kernel(id),
        };
        self.lane.close(socket);
    }
}
