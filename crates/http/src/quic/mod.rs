//! QUIC (RFC 9000) on the UDP sockets of a lane: `quinn-proto`, which has neither sockets nor a clock, is given both here.
//!
//! ```text
//! UdpSocket ▸ a batch of datagrams ▸ Endpoint ▸ Connection ▸ streams      timers: one, the earliest of all
//!           ◂ trains of one length ◂────────────┘
//! ```
//!
//! * [`Wire`]: a socket with the buffers of what comes and goes. Datagrams come in batches, and go in trains that kernel sockets send with
//!   one system call (`UDP_SEGMENT`).
//! * [`Client`]: one connection on a socket of its own.
//! * [`LaneIds`]: connection IDs of a server, which name its lane.
//! * [`Peer`]: the streams that the other side opens for the connection itself: control, and QPACK's two.
//!
//! Not supported: datagrams of the application (RFC 9221), marks of congestion (ECN), versions other than 1.

mod base;
mod cid;
mod client;
mod peer;
mod wire;

use flowlane::SocketError;
use quinn_proto::{ConnectError, ConnectionError};

pub use base::Base;
pub(crate) use cid::LENGTH as ID_LENGTH;
pub use cid::{LaneIds, lane_of};
pub use client::{Client, Event, transport};
pub use peer::{News, Peer};
pub use wire::Wire;

use crate::h3::Fault;

/// Why there is no connection, or no longer one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// It could not be begun.
    #[error("{0}")]
    Begin(#[from] ConnectError),
    /// The socket failed, or the network reported something about it.
    #[error("{0}")]
    Socket(#[from] SocketError),
    /// It has ended: by the peer, by time, by an error of QUIC or TLS.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// Nothing comes from the peer any longer, though there is something to answer.
    #[error("the peer says nothing any longer")]
    Silent,
    /// The peer does not speak HTTP/3 as it should.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The peer lets us open no stream for the settings (RFC 9114 §6.2).
    #[error("the peer allows no control stream")]
    NoControl,
}

impl Lost {
    /// Whether the peer's certificate was refused.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        let Self::Connection(ConnectionError::TransportError(e)) = self else { return false };
        e.reason.contains("invalid peer certificate")
    }

    /// Whether the handshake of TLS failed: the codes of its alerts (RFC 9001 §4.8).
    #[must_use]
    pub fn is_tls(&self) -> bool {
        let code = match self {
            Self::Connection(ConnectionError::TransportError(e)) => u64::from(e.code),
            Self::Connection(ConnectionError::ConnectionClosed(close)) => u64::from(close.error_code),
            _ => return false,
        };
        (0x100..0x200).contains(&code)
    }
}
