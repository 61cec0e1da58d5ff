//! Errors: one enum for each operation.

use flowlane_rss::Bucket;
use std::io;

/// Why a connection ended badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The peer reset it.
    Reset,
    /// The peer refused it.
    Refused,
    /// No answer for too long.
    TimedOut,
    /// The network says the peer cannot be reached.
    Unreachable,
    /// This side gave it up before it was established.
    GivenUp,
    /// This side's address is not its own any more: its lease has ended, or somebody else has it.
    AddressLost,
}

impl Failure {
    const fn kind(self) -> io::ErrorKind {
        match self {
            Failure::Reset => io::ErrorKind::ConnectionReset,
            Failure::Refused => io::ErrorKind::ConnectionRefused,
            Failure::TimedOut => io::ErrorKind::TimedOut,
            Failure::Unreachable => io::ErrorKind::HostUnreachable,
            Failure::GivenUp | Failure::AddressLost => io::ErrorKind::ConnectionAborted,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Failure::Reset => "connection reset by the peer",
            Failure::Refused => "connection refused by the peer",
            Failure::TimedOut => "connection timed out",
            Failure::Unreachable => "peer unreachable",
            Failure::GivenUp => "connection given up before it was established",
            Failure::AddressLost => "this side's address was lost",
        }
    }
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// No such connection (any more).
    Stale,
    /// The buffer is full, or the handshake is not over.
    WouldBlock,
    /// This side has been shut down, or the connection is over.
    Closed,
    /// The connection ended badly.
    Failed(Failure),
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecvError {
    /// No such connection (any more).
    Stale,
    /// There is nothing to read now.
    WouldBlock,
    /// The connection ended badly.
    Failed(Failure),
}

/// Why no connection attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// These addresses and ports are in use by a connection, or were a moment ago.
    InUse,
    /// An invalid address or port, or addresses of different families.
    BadAddress,
    /// The lane has as many connections as it may.
    TooMany,
    /// There is no route to the peer.
    NoRoute,
    /// The source address is not ours.
    NotOurAddress,
    /// Every port whose replies arrive in this lane is in use.
    NoPort,
    /// The replies to these addresses and ports arrive in the lane of this bucket.
    OtherLane(Bucket),
}

/// No such connection (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleError;

macro_rules! shows {
    ($($name:ident { $($variant:pat => $kind:expr, $text:expr;)+ })+) => {
        $(
            impl core::fmt::Display for $name {
                fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                    f.write_str(match self { $($variant => $text,)+ })
                }
            }
            impl core::error::Error for $name {}
            impl From<$name> for io::Error {
                fn from(error: $name) -> Self {
                    let kind = match error { $($variant => $kind,)+ };
                    Self::new(kind, error)
                }
            }
        )+
    };
}

shows! {
    SendError {
        SendError::Stale => io::ErrorKind::NotConnected, "no such connection";
        SendError::WouldBlock => io::ErrorKind::WouldBlock, "the send buffer is full";
        SendError::Closed => io::ErrorKind::BrokenPipe, "the connection is closed for sending";
        SendError::Failed(failure) => failure.kind(), failure.text();
    }
    RecvError {
        RecvError::Stale => io::ErrorKind::NotConnected, "no such connection";
        RecvError::WouldBlock => io::ErrorKind::WouldBlock, "nothing to read";
        RecvError::Failed(failure) => failure.kind(), failure.text();
    }
    ConnectError {
        ConnectError::InUse => io::ErrorKind::AddrInUse, "addresses and ports are in use";
        ConnectError::BadAddress => io::ErrorKind::InvalidInput, "not an address to connect to or from";
        ConnectError::TooMany => io::ErrorKind::OutOfMemory, "too many connections in this lane";
        ConnectError::NoRoute => io::ErrorKind::NetworkUnreachable, "no route to the peer";
        ConnectError::NotOurAddress => io::ErrorKind::AddrNotAvailable, "the source address is not ours";
        ConnectError::NoPort => io::ErrorKind::AddrInUse, "every port whose replies come to this lane is in use";
        ConnectError::OtherLane(_) => io::ErrorKind::InvalidInput, "the replies would come to another lane";
    }
    StaleError {
        StaleError => io::ErrorKind::NotConnected, "no such connection";
    }
    Failure {
        failure => failure.kind(), failure.text();
    }
}
