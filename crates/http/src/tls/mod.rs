//! TLS for servers and clients: rustls with ring, set up once, and a stream that is plain or encrypted.
//!
//! A [`ServerTls`] and a [`ClientTls`] are cheap to clone and shared by all lanes; their shared state is used in handshakes only, never for
//! data. The rest of the code uses [`Stream`], so the same code serves `http` and `https` without virtual calls.
//!
//! The protocol is agreed in the handshake (ALPN, RFC 7301), and sessions are resumed with tickets (RFC 8446 §2.2,
//! RFC 5077). Early data (0-RTT) is for QUIC alone.

mod client;
mod full;
mod pem;
mod server;
mod sessions;
mod stream;
mod verify;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use client::{ClientIdentity, ClientOptions, ClientTls, Trust, Version, Versions};
pub use full::full_handshakes;
pub use rustls::pki_types::ServerName;
pub use server::{Identity, ServerTls};
pub use stream::{Handshake, Stream};

/// Protocols to offer by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Alpn {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only.
    Http2,
    /// HTTP/2 if the peer can, else HTTP/1.1.
    #[default]
    Both,
    /// HTTP/3 only, over QUIC.
    Http3,
    /// None: for protocols without a name of their own.
    Nothing,
}

impl Alpn {
    fn names(self) -> Vec<Vec<u8>> {
        let names: &[&[u8]] = match self {
            Self::Http1 => &[HTTP1],
            Self::Http2 => &[HTTP2],
            Self::Both => &[HTTP2, HTTP1],
            Self::Http3 => &[crate::h3::ALPN],
            Self::Nothing => &[],
        };
        names.iter().map(|name| name.to_vec()).collect()
    }
}

const HTTP1: &[u8] = b"http/1.1";
const HTTP2: &[u8] = b"h2";

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file could not be read, or holds no certificate or key.
    #[error("{}: {why}; a PEM file with {wanted} is needed", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        wanted: &'static str,
        /// What went wrong.
        why: String,
    },
    /// The certificate does not match the key, or cannot be used.
    #[error("the certificate cannot be used with this key: {0}")]
    Identity(rustls::Error),
    /// The lowest version of TLS is above the highest.
    #[error("no version of TLS is left: the lowest is above the highest")]
    NoVersion,
    /// TLS 1.3 is not offered, and QUIC has no other.
    #[error("QUIC is with TLS 1.3 (RFC 9001 §4.2), which is not offered")]
    Quic,
    /// This machine has no list of certificate authorities.
    #[error(
        "no certificate authorities found on this machine ({0}); name a file of them, or do without checking"
    )]
    NoRoots(String),
    /// A self-signed certificate could not be made.
    #[error("making a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// Set-up of the library failed.
    #[error("TLS: {0}")]
    Library(#[from] rustls::Error),
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The name cannot be in a certificate.
    #[error("'{0}' is no name that TLS can check")]
    Name(String),
    /// The handshake failed: no common version or cipher, an untrusted peer, or a closed connection.
    #[error("TLS handshake: {0}")]
    Failed(#[from] std::io::Error),
    /// The peer took too long.
    #[error("TLS handshake: it took too long")]
    TooLate,
}

impl HandshakeError {
    /// Whether it is the peer's certificate that was refused.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        let Self::Failed(e) = self else { return false };
        let cause = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
    }

    /// The error, in words where rustls has a name only. `plain` is the scheme of a URL that has no TLS, such as `http`.
    #[must_use]
    pub fn in_words(&self, plain: &str) -> String {
        let Self::Failed(e) = self else { return self.to_string() };
        let cause = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
                format!("the server does not speak TLS on this port: is {plain}:// meant?")
            }
            _ => self.to_string(),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests;
