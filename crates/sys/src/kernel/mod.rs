//! The kernel's own sockets, as the backend `kernel` uses them: never blocking, one system call for each operation,
//! readiness by edge-triggered [`epoll`].
//!
//! * [`socket`]: making, binding, connecting, accepting, sending, receiving.
//! * [`datagrams`]: the same for many datagrams at once.
//! * [`options`]: socket options and `TCP_INFO`.
//! * [`limits`]: descriptors and the precision of timers.
//!
//! Errors are the kernel's, by number; what they mean to a user is decided above.

mod address;
pub mod datagrams;
pub mod epoll;
pub mod limits;
pub mod options;
pub mod socket;
#[cfg(test)]
mod tests;
