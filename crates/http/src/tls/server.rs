//! TLS of servers: a certificate from files, or a self-signed one made at start.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use quinn_proto::crypto::HmacKey;
use quinn_proto::crypto::rustls::QuicServerConfig;
use ring::hmac;
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::{ProducesTickets, ServerSessionMemoryCache};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::full::counted;
use super::pem::{chain, private_key};
use super::verify;
use super::{Alpn, HandshakeError, Stream, TlsError, provider};
use crate::ending::{finish, within};

/// Most sessions that a server remembers which takes early data.
const SESSIONS: usize = 16 << 10;
/// Most bytes that a connection holds for a peer that does not read: two records (RFC 8446 §5.1).
const BUFFER: usize = 32 << 10;

/// The certificate and key of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// PEM files with the certificate chain and the key.
    Files {
        /// The chain, the server's own first.
        certificates: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// A new self-signed certificate for these names and addresses.
    SelfSigned(Vec<String>),
}

/// A server's TLS, shared by its lanes.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    own: Arc<CertifiedKey>,
    reset: Arc<hmac::Key>,
}

impl ServerTls {
    /// Reads or makes the certificate.
    ///
    /// # Errors
    /// Files cannot be read, or certificate and key do not match.
    pub fn new(identity: &Identity, alpn: Alpn) -> Result<Self, TlsError> {
        Self::with_clients(identity, alpn, None)
    }

    /// As [`ServerTls::new`]. With `client_ca` clients have to present a certificate: one of that PEM file, or one signed by those; others are
    /// refused in the handshake (RFC 8446 §4.4.2.4).
    ///
    /// # Errors
    /// As [`ServerTls::new`].
    pub fn with_clients(identity: &Identity, alpn: Alpn, client_ca: Option<&Path>) -> Result<Self, TlsError> {
        let (chain, key) = match identity {
            Identity::Files { certificates, key } => (chain(certificates)?, private_key(key)?),
            Identity::SelfSigned(names) => {
                let made = rcgen::generate_simple_self_signed(names.clone())?;
                let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
                (vec![made.cert.der().clone()], key.into())
            }
        };
        let reset = Arc::new(reset_key(key.secret_der()));
        let certificate = chain.first().cloned().unwrap_or_else(|| CertificateDer::from(Vec::new()));
        let builder =
            ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = match client_ca {
            // Guard: `builder.with_client_cert_verifier(verify::clients_of(path, provider())?)` as
            // `builder.with_no_client_auth()` fails tls::tests
            Some(path) => builder.with_client_cert_verifier(verify::clients_of(path, provider())?),
            None => builder.with_no_client_auth(),
        };
        let own = CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Identity)?;
        let own = Arc::new(own);
        let mut config =
            builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::clone(&own))));
        config.alpn_protocols = alpn.names();
        config.ticketer = rustls::crypto::ring::Ticketer::new()?;
        Ok(Self { config: Arc::new(config), certificate, own, reset })
    }

    /// The same certificate, and the same demands on clients, for QUIC. `early_data`: whether early data (0-RTT) is taken. Sessions are then
    /// remembered here, and each is taken up once, so that nobody sends recorded packets a second time (RFC 8446 §8.1).
    ///
    /// # Errors
    /// [`TlsError::Quic`]
    pub fn quic(&self, early_data: bool) -> Result<QuicServerConfig, TlsError> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = Alpn::Http3.names();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(counted(&self.own)));
        if early_data {
            // Either 0 or this (RFC 9001 §4.6.1).
            config.max_early_data_size = u32::MAX;
            config.ticketer = Arc::new(NoTickets);
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        }
        QuicServerConfig::try_from(config).map_err(|_| TlsError::Quic)
    }

    /// The key of stateless resets (RFC 9000 §10.3.2), made of the certificate's: whoever restarts a server tells the clients of the one before that
    /// their connections are no more.
    #[must_use]
    pub fn reset_key(&self) -> Arc<dyn HmacKey> {
        self.reset.clone()
    }

    /// The server's certificate in PEM, for clients to trust.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        let base64 = base64::engine::general_purpose::STANDARD.encode(&self.certificate);
        let lines: Vec<&str> =
            base64.as_bytes().chunks(64).map(|l| std::str::from_utf8(l).unwrap_or_default()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// Makes the TLS handshake on an accepted connection.
    ///
    /// # Errors
    /// The peer violated the protocol or closed the connection.
    pub async fn accept<S>(&self, stream: S) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.accept_or_return(stream).await.map_err(|(error, _)| error)
    }

    /// As [`ServerTls::accept`], within a time. A peer whose handshake fails is told why, and has `linger` to read that.
    ///
    /// # Errors
    /// As [`ServerTls::accept`]; [`HandshakeError::TooLate`].
    pub async fn accept_within<S>(
        &self,
        stream: S,
        limit: Duration,
        linger: Duration,
    ) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        match within(limit, self.accept_or_return(stream)).await {
            None => Err(HandshakeError::TooLate),
            Some(Ok(stream)) => Ok(stream),
            Some(Err((error, stream))) => {
                finish(stream, linger).await;
                Err(error)
            }
        }
    }

    /// As [`ServerTls::accept`], but returns the stream on an error, so that the alert can be sent before it is closed.
    pub(crate) async fn accept_or_return<S>(&self, stream: S) -> Result<Stream<S>, (HandshakeError, S)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.config.clone());
        let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(BUFFER)));
        match accept.into_fallible().await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream.into()))),
            Err((error, stream)) => Err((error.into(), stream)),
        }
    }
}

/// Sessions are remembered, and not given away.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A key that says nothing of the one that it is made of.
fn reset_key(secret: &[u8]) -> hmac::Key {
    let own = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&own, b"stateless resets").as_ref())
}

/// Names of a certificate for a server on these addresses.
pub(crate) fn names(addresses: &[IpAddr]) -> Vec<String> {
    std::iter::once("localhost".to_owned()).chain(addresses.iter().map(ToString::to_string)).collect()
}

impl Identity {
    /// A self-signed certificate for a server on these addresses, and for `localhost`.
    #[must_use]
    pub fn for_addresses(addresses: &[IpAddr]) -> Self {
        Self::SelfSigned(names(addresses))
    }
}
