//! Why a socket of any kind could not do what it was asked to.

use std::io;

use flowlane_rss::Bucket;
use flowlane_stack::SendError;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::tcp::{ConnectError, Failure, ListenError, StaleError};
use flowlane_stack::udp::BindError;

/// Why an operation of a socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The socket belongs to another lane than the one whose task used it.
    #[error("the socket belongs to another lane")]
    WrongLane,
    /// The socket is closed.
    #[error("the socket is closed")]
    Closed,
    /// It could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The datagram could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The network reported this about a datagram sent earlier.
    #[error("the network reports: {0:?}")]
    Network(IcmpErrorKind),
    /// It could not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It could not begin to connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended badly.
    #[error(transparent)]
    Connection(#[from] Failure),
    /// The host has no such bucket.
    #[error("the host has no bucket {}", .0.0)]
    NoSuchBucket(Bucket),
    /// This side of the connection was shut down, and cannot be written to.
    #[error("the connection was shut down for writing")]
    ShutDown,
    /// The process has as many descriptors open as it may (kernel sockets).
    #[error("no file descriptor is free: raise the limit with 'ulimit -n'")]
    NoDescriptor,
    /// The kernel refused for another reason; the number is the kernel's `errno`.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Kernel(i32),
    /// Sockets of the kernel cannot do this.
    #[error("kernel sockets cannot {0}")]
    Unsupported(&'static str),
}

impl From<StaleError> for SocketError {
    fn from(_: StaleError) -> Self {
        Self::Closed
    }
}

impl From<SocketError> for io::Error {
    fn from(e: SocketError) -> Self {
        let kind = match e {
            SocketError::Bind(BindError::InUse) => io::ErrorKind::AddrInUse,
            SocketError::Bind(BindError::NotOurAddress) => io::ErrorKind::AddrNotAvailable,
            SocketError::Closed => io::ErrorKind::NotConnected,
            SocketError::Network(IcmpErrorKind::PortUnreachable) => io::ErrorKind::ConnectionRefused,
            SocketError::Network(IcmpErrorKind::HostUnreachable) => io::ErrorKind::HostUnreachable,
            SocketError::Send(SendError::NoRoute) => io::ErrorKind::NetworkUnreachable,
            SocketError::Listen(e) => io::Error::from(e).kind(),
            SocketError::Connect(e) => io::Error::from(e).kind(),
            SocketError::Connection(e) => io::Error::from(e).kind(),
            SocketError::ShutDown => io::ErrorKind::BrokenPipe,
            SocketError::Kernel(number) => return io::Error::from_raw_os_error(number),
            SocketError::Unsupported(_) => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, e)
    }
}
