//! TLS of clients: trusted certificates, server names, session resumption.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::server::chain;
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

/// Options of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// Trusted certificates.
    pub trust: Trust,
    /// Versions of HTTP to offer.
    pub alpn: Alpn,
    /// Never resume sessions: every handshake is a full one.
    pub no_resumption: bool,
}

/// A client's TLS, shared by its lanes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Loads the trusted certificates.
    ///
    /// # Errors
    /// A file cannot be read, or the machine has no certificate authorities.
    pub fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        let provider = provider();
        let builder =
            ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let verifier: Arc<dyn ServerCertVerifier> = match &options.trust {
            Trust::Anybody => Arc::new(Unchecked(provider)),
            Trust::Native => checked(native_roots()?, provider)?,
            Trust::File(path) => {
                let mut roots = RootCertStore::empty();
                let named = chain(path)?;
                for certificate in &named {
                    roots.add(certificate.clone())?;
                }
                Arc::new(Named { named, vouched: checked(roots, provider)? })
            }
        };
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = options.alpn.names();
        if options.no_resumption {
            config.resumption = Resumption::disabled();
        }
        Ok(Self { config: Arc::new(config) })
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

fn checked(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| TlsError::NoRoots(e.to_string()))?;
    Ok(verifier)
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

/// Accepts certificates signed by the given ones, and a server that presents one of the given certificates itself. Self-signed certificates
/// usually declare themselves an authority, which is refused for servers (RFC 5280 §4.2.1.9), but a certificate given explicitly is meant.
/// Its names are checked if it has any, and the peer must prove that it has the key.
#[derive(Debug)]
struct Named {
    named: Vec<CertificateDer<'static>>,
    vouched: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.named.contains(certificate) {
            return self.vouched.verify_server_cert(certificate, others, name, ocsp, now);
        }
        match verify_server_name(&ParsedCertificate::try_from(certificate)?, name) {
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented,
                ..
            })) if presented.is_empty() => {}
            fits => fits?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.vouched.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.vouched.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.vouched.supported_verify_schemes()
    }
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
