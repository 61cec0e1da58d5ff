//! The stream of a connection, and what an attempt to open one comes to.

use std::future::Future;
use std::pin::Pin;

use flowlane::TcpStream;

use crate::report::ErrorKind;

/// A stream encrypted by TLS.
pub(super) type TlsStream = tokio_rustls::TlsStream<TcpStream>;

/// A connection attempt.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Opened, Unopened>> + Send>>;

/// The stream of a connection.
pub(super) enum Stream {
    None,
    /// An attempt with TLS; an attempt without TLS needs no future.
    Opening(Opening),
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// An established connection.
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// When the TCP handshake and, with TLS, the TLS handshake were complete.
    pub(super) connected: u64,
    pub(super) secured: u64,
    /// Whether the session of TLS was taken up again, if that may be.
    pub(super) resumed: Option<bool>,
}

/// A failed connection attempt.
#[derive(Debug)]
pub(super) struct Unopened {
    pub(super) kind: ErrorKind,
    pub(super) why: String,
    /// Whether another of our addresses may work.
    pub(super) other_address: bool,
}
