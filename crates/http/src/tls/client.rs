//! The client's side: whom to trust, the name to ask for, sessions that are taken up again.

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

/// Whose word is enough.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// The authorities that this machine trusts.
    #[default]
    Native,
    /// The certificates of a PEM file: what they vouch for, and each of them itself.
    File(PathBuf),
    /// Anybody's: the server is not checked.
    Anybody,
}

/// How a client is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// Whom to trust.
    pub trust: Trust,
    /// What to speak.
    pub alpn: Alpn,
    /// Make every handshake a full one, as of a client that was never here.
    pub no_resumption: bool,
}

/// A client's TLS, shared by its lanes.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

impl ClientTls {
    /// Reads what is to be trusted.
    ///
    /// # Errors
    /// A file that cannot be read, a machine without authorities.
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

    /// A name or address as TLS wants it, to be kept for all connections to it.
    ///
    /// # Errors
    /// When it cannot stand in a certificate.
    pub fn name(host: &str) -> Result<ServerName<'static>, HandshakeError> {
        // A URL has IPv6 addresses in brackets.
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        ServerName::try_from(bare.to_owned()).map_err(|_| HandshakeError::Name(host.to_owned()))
    }

    /// Does the handshake of a connection that was made, with the server of this name.
    ///
    /// # Errors
    /// What the server did wrong, that it is not trusted, or that it went away.
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
    // Some machines carry certificates that nothing can read; the others are enough.
    let _ = roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(|| "none installed".to_owned(), ToString::to_string);
        return Err(TlsError::NoRoots(why));
    }
    Ok(roots)
}

/// Lets pass what is vouched for, and a server that has one of the named certificates itself. What people make for
/// themselves says of itself that it is an authority, and authorities are refused as servers (RFC 5280 §4.2.1.9); but who
/// names just this certificate means it. Its names are looked at, if it has any; that the peer has its key is seen to.
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

/// Lets any certificate pass; that the peer has its key is still seen to.
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
