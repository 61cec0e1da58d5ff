//! The kernel's errors, translated to those of the sockets.

use std::io;

use flowlane_stack::SendError;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::tcp::{ConnectError, Failure, ListenError};
use flowlane_stack::udp::BindError;
use flowlane_sys::kernel::socket::errno;

use crate::error::SocketError;

/// How a connection ended, if this is such an error.
pub(super) fn failure(number: i32) -> Option<Failure> {
    Some(match number {
        errno::ECONNREFUSED => Failure::Refused,
        errno::ETIMEDOUT => Failure::TimedOut,
        errno::EHOSTUNREACH | errno::ENETUNREACH | errno::EHOSTDOWN | errno::ENETDOWN => Failure::Unreachable,
        errno::ECONNRESET | errno::ECONNABORTED | errno::EPIPE => Failure::Reset,
        _ => return None,
    })
}

/// An error that has no better name.
pub(super) fn other(e: &io::Error) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::EMFILE | errno::ENFILE => SocketError::NoDescriptor,
        number => SocketError::Kernel(number),
    }
}

/// Of a connection that stands, or nearly.
pub(super) fn connection(e: &io::Error) -> SocketError {
    match failure(e.raw_os_error().unwrap_or(0)) {
        Some(failure) => SocketError::Connection(failure),
        None => other(e),
    }
}

/// Of `bind` for a connection.
pub(super) fn source(e: &io::Error) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::EADDRNOTAVAIL => ConnectError::NotOurAddress.into(),
        errno::EADDRINUSE => ConnectError::InUse.into(),
        _ => other(e),
    }
}

/// Of `connect`, at once. `chosen`: the caller chose the port.
pub(super) fn connect(e: &io::Error, chosen: bool) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::ENETUNREACH | errno::EHOSTUNREACH => ConnectError::NoRoute.into(),
        errno::EADDRNOTAVAIL | errno::EADDRINUSE if chosen => ConnectError::InUse.into(),
        errno::EADDRNOTAVAIL | errno::EADDRINUSE => ConnectError::NoPort.into(),
        errno::EAFNOSUPPORT | errno::EINVAL => ConnectError::BadAddress.into(),
        _ => connection(e),
    }
}

/// Of `connect` to a Unix socket.
pub(super) fn path(e: &io::Error) -> SocketError {
    match e.raw_os_error() {
        Some(_) => connection(e),
        // Found before the kernel was asked: the path is too long.
        None => ConnectError::BadAddress.into(),
    }
}

/// Of `bind` and `listen` of a listener.
pub(super) fn listen(e: &io::Error) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::EADDRINUSE => ListenError::InUse.into(),
        errno::EADDRNOTAVAIL => ListenError::NotOurAddress.into(),
        _ => other(e),
    }
}

/// Of `bind` and `connect` of a UDP socket.
pub(super) fn bind(e: &io::Error) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::EADDRINUSE => BindError::InUse.into(),
        errno::EADDRNOTAVAIL => BindError::NotOurAddress.into(),
        errno::ENETUNREACH | errno::EHOSTUNREACH => BindError::NoRoute.into(),
        errno::EAGAIN => BindError::NoPort.into(),
        _ => other(e),
    }
}

/// Of a datagram that was to be sent or received; the kernel also tells here what the network said about an earlier one.
pub(super) fn datagram(e: &io::Error) -> SocketError {
    match e.raw_os_error().unwrap_or(0) {
        errno::ECONNREFUSED => SocketError::Network(IcmpErrorKind::PortUnreachable),
        errno::EHOSTUNREACH | errno::EHOSTDOWN => SocketError::Network(IcmpErrorKind::HostUnreachable),
        errno::ENETUNREACH | errno::ENETDOWN => SendError::NoRoute.into(),
        errno::EADDRNOTAVAIL | errno::EINVAL => SendError::NoSource.into(),
        errno::EMSGSIZE => SendError::TooLong.into(),
        errno::EDESTADDRREQ | errno::ENOTCONN => SendError::NoDestination.into(),
        _ => other(e),
    }
}
