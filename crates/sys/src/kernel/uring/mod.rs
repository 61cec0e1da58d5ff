//! Connections and their bytes by `io_uring(7)`: accepts and receives that stay until they are cancelled (multishot), and receive into buffers
//! that the kernel picks.
//!
//! What is asked for waits in the ring's queue until the next [`Ring::enter`], the one system call for all of it. Work that the kernel has for
//! the ring waits, too, until then (`IORING_SETUP_DEFER_TASKRUN`): nothing interrupts the thread. So a ring belongs to one thread, the first
//! that enters it.
//!
//! A descriptor that was asked about must stay open until the next [`Ring::enter`]; [`Ring::close`] sees to it. The kernel keeps the socket
//! itself open until what was asked about it is cancelled.
//!
//! On processors that the library for it does not know there is no ring, as if the kernel had none.

#[cfg(flowlane_uring)]
mod buffers;
mod forgo;
#[cfg(not(flowlane_uring))]
mod none;
#[cfg(flowlane_uring)]
mod ring;
#[cfg(flowlane_uring)]
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

pub use forgo::forgo;
#[cfg(not(flowlane_uring))]
pub use none::Ring;
#[cfg(flowlane_uring)]
pub use ring::Ring;

/// Rings for so many others, as [`Ring::new`] makes them. The end of a ring interrupts a system call of the thread that made it, so none is made on
/// the calling thread.
///
/// # Errors
/// As [`Ring::new`].
pub fn rings(count: usize, buffers: u16, size: usize) -> io::Result<Vec<Ring>> {
    let make = move || (0..count).map(|_| Ring::new(buffers, size)).collect();
    let thread = std::thread::Builder::new().name("flowlane-rings".into()).spawn(make)?;
    thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Whether there can be rings here.
///
/// # Errors
/// As [`Ring::new`].
pub fn probe() -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(|| Ring::new(1, 4096).map(drop))?;
    thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// What the kernel says of a request. `more`: the request stays, and says more.
#[derive(Debug)]
pub enum Completion {
    /// A listener has a connection, or an error (its number).
    Accepted {
        /// As it was asked for.
        name: u64,
        /// The connection, non-blocking.
        result: Result<OwnedFd, i32>,
        /// Whether the request stays.
        more: bool,
    },
    /// A connection has bytes, its end, or an error (its number).
    Received {
        /// As it was asked for.
        name: u64,
        /// The buffer, to be given back ([`Ring::give_back`]); `None` at the end of the stream.
        result: Result<Option<u16>, i32>,
        /// Whether the request stays.
        more: bool,
    },
    /// A descriptor that is watched is readable, or was.
    Readable {
        /// As it was asked for.
        name: u64,
        /// Whether the request stays.
        more: bool,
    },
}
