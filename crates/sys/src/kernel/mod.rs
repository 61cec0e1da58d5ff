//! Kernel sockets for the link `kernel`: non-blocking, one system call for each operation, readiness by edge-triggered [`epoll`].
//!
//! * [`socket`]: creating, binding, connecting, accepting, sending, receiving.
//! * [`datagrams`]: the same for many datagrams at once.
//! * [`options`]: socket options and `TCP_INFO`.
//! * [`select`]: programs that pick one of the sockets that share a port.
//! * [`uring`]: accepts and receives by `io_uring(7)`, many by one system call.
//! * [`zerocopy`]: sends that the kernel does not copy, and their completions.
//! * [`pipe`]: bytes from one socket to another, uncopied.
//! * [`limits`]: descriptors and the precision of timers.
//!
//! Errors are the kernel's error numbers; callers translate them for users.

mod address;
mod control;
pub mod datagrams;
pub mod epoll;
pub mod limits;
pub mod options;
pub mod pipe;
pub mod select;
pub mod socket;
#[cfg(test)]
mod tests;
pub mod uring;
pub mod zerocopy;
