//! TCP of a lane, as tasks use it.
//!
//! A listener hears what the flow hash sends to its lane: listen in every lane to hear all, or in chosen ones to hear
//! the connections of chosen buckets ([`TcpListener::bind_in`]). A connection lives in the lane that accepted or began it and works only there; it moves with its lane. Used on another lane it returns
//! [`SocketError::WrongLane`](crate::SocketError::WrongLane). Dropping closes, wherever that happens.
//!
//! In the lanes of a host made by [`Host::kernel`](crate::Host::kernel) the same types stand for sockets of the kernel.

mod ends;
mod half_open;
mod io;
mod listener;
mod stream;

pub use half_open::TcpHalfOpen;
pub use io::{OwnedReadHalf, OwnedWriteHalf};
pub use listener::TcpListener;
pub use stream::TcpStream;

use crate::kernel::SocketId;

/// A socket of the stack's, or one of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id<S> {
    Stack(S),
    Kernel(SocketId),
}
