//! TLS of clients: trusted certificates, a certificate of their own, versions, server names, session resumption.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion, version,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::full::Counted;
use super::pem::{chain, private_key};
use super::sessions::Sessions;
use super::verify;
use super::{Alpn, HandshakeError, Stream, TlsError, provider};

/// Trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// The certificate authorities of this machine.
    #[default]
    Native,
    /// The certificates of a PEM file, and those they have signed.
    File(PathBuf),
    /// Any certificate: the server is not checked.
    Anybody,
}

/// A client's own certificate and key, for servers that ask for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// PEM file with the certificate chain, the client's own first.
    pub certificates: PathBuf,
    /// PEM file with the key; it may be the same.
    pub key: PathBuf,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// RFC 5246
    Tls12,
    /// RFC 8446
    Tls13,
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1.2" => Ok(Self::Tls12),
            "1.3" => Ok(Self::Tls13),
            "1.0" | "1.1" => Err(format!("TLS {text} is not spoken (RFC 8996): 1.2 or 1.3")),
            _ => Err(format!("'{text}': a version of TLS is 1.2 or 1.3")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "1.2",
            Self::Tls13 => "1.3",
        })
    }
}

/// The versions of TLS to offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub min: Version,
    /// The highest.
    pub max: Version,
}

impl Default for Versions {
    fn default() -> Self {
        Self { min: Version::Tls12, max: Version::Tls13 }
    }
}

impl Versions {
    /// None if the lowest is above the highest.
    fn offered(self) -> Vec<&'static SupportedProtocolVersion> {
        let all = [(Version::Tls13, &version::TLS13), (Version::Tls12, &version::TLS12)];
        all.into_iter().filter(|(v, _)| (self.min..=self.max).contains(v)).map(|(_, known)| known).collect()
    }
}

/// Options of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// Trusted certificates.
    pub trust: Trust,
    /// The client's own certificate. It is presented to servers that ask for one.
    pub identity: Option<ClientIdentity>,
    /// Versions of TLS to offer.
    pub versions: Versions,
    /// Versions of HTTP to offer.
    pub alpn: Alpn,
    /// Never resume sessions: every handshake is a full one.
    pub no_resumption: bool,
    /// Over QUIC, send early data (0-RTT, RFC 8446 §2.3) where a session allows it.
    pub early_data: bool,
}

/// A client's TLS, shared by its lanes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    versions: Versions,
    early_data: bool,
}

impl ClientTls {
    /// Loads the trusted certificates, and the client's own.
    ///
    /// # Errors
    /// A file cannot be read, certificate and key do not match, the machine has no certificate authorities, or no version is left.
    pub fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        let provider = provider();
        let versions = options.versions.offered();
        if versions.is_empty() {
            return Err(TlsError::NoVersion);
        }
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions)?;
        let verifier: Arc<dyn ServerCertVerifier> = match &options.trust {
            Trust::Anybody => Arc::new(Unchecked(provider)),
            Trust::Native => verify::servers(native_roots()?, provider)?,
            Trust::File(path) => verify::servers_of(path, provider)?,
        };
        let verifier = if options.no_resumption { verifier } else { Arc::new(Counted(verifier)) };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &options.identity {
            Some(own) => builder
                .with_client_auth_cert(chain(&own.certificates)?, private_key(&own.key)?)
                .map_err(TlsError::Identity)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = options.alpn.names();
        config.resumption = match options.no_resumption {
            true => Resumption::disabled(),
            false => Resumption::store(Arc::new(Sessions::default())),
        };
        let early_data = options.early_data && !options.no_resumption;
        Ok(Self { config: Arc::new(config), versions: options.versions, early_data })
    }

    /// The same for QUIC.
    ///
    /// # Errors
    /// [`TlsError::Quic`]
    pub fn quic(&self) -> Result<Arc<QuicClientConfig>, TlsError> {
        let offers = self.versions.max == Version::Tls13;
        let mut config = ClientConfig::clone(&self.config);
        config.enable_early_data = self.early_data;
        let config = QuicClientConfig::try_from(config).ok().filter(|_| offers);
        config.map(Arc::new).ok_or(TlsError::Quic)
    }

    /// A name or address in the form of TLS, for all connections to it.
    ///
    /// # Errors
    /// The name cannot be in a certificate.
    pub fn name(host: &str) -> Result<ServerName<'static>, HandshakeError> {
        // A URL has IPv6 addresses in brackets.
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(bare.to_owned()).map_err(|_| HandshakeError::Name(host.to_owned()))
    }

    /// Makes the TLS handshake with the server of this name over an established connection.
    ///
    /// # Errors
    /// The server violated the protocol, is not trusted, or closed the connection.
    pub async fn connect<S>(&self, stream: S, name: ServerName<'static>) -> Result<Stream<S>, HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsConnector::from(self.config.clone()).connect(name, stream).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

fn native_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some machines have certificates that cannot be parsed; these are skipped.
    let _ = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none installed".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots(why));
    }
    Ok(roots)
}

/// Accepts any certificate; the peer must still prove that it has the key.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
