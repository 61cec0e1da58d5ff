//! TCP of a lane, for tasks.
//!
//! A listener accepts the connections that the flow hash assigns to its lane: listen in every lane to accept all, or in some lanes to
//! accept the connections of their buckets ([`TcpListener::bind_in`]). A connection belongs to the lane that accepted or opened it and
//! works only there; it moves with its lane. Used on another lane it returns [`SocketError::WrongLane`](crate::SocketError::WrongLane).
//! Dropping it closes it, on any lane or thread.
//!
//! In the lanes of a host made by [`Host::kernel`](crate::Host::kernel) the same types are kernel sockets.

mod ends;
mod half_open;
mod io;
mod listener;
mod stream;

pub use half_open::TcpHalfOpen;
pub use io::{OwnedReadHalf, OwnedWriteHalf};
pub use listener::TcpListener;
pub use stream::{Departed, SendZcError, Sending, TcpStream};

use crate::kernel::SocketId;

/// A socket of the stack's, or one of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id<S> {
    Stack(S),
    Kernel(SocketId),
}
