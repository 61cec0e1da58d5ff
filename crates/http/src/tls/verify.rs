//! Certificates that a file names: those, and what they have signed. The same for the server that a client asks and for clients of a server.
//!
//! Self-signed certificates usually declare themselves an authority, which is refused for peers (RFC 5280 §4.2.1.9), but a certificate given
//! explicitly is meant. The names of a server's are checked if it has any, and the peer must prove that it has the key.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::TlsError;
use super::pem::chain;

/// Believes servers with a certificate of this PEM file, or one signed by those.
pub(super) fn servers_of(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let (named, roots) = named(path)?;
    Ok(Arc::new(Named { named, vouched: servers(roots, provider)? }))
}

/// Believes servers with a certificate signed by one of these.
pub(super) fn servers(
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| TlsError::NoRoots(e.to_string()))?;
    Ok(verifier)
}

/// Demands a certificate of clients: one of this PEM file, or one signed by those.
pub(super) fn clients_of(
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let (named, roots) = named(path)?;
    let vouched = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| TlsError::NoRoots(e.to_string()))?;
    Ok(Arc::new(Named { named, vouched }))
}

fn named(path: &Path) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), TlsError> {
    let named = chain(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &named {
        roots.add(certificate.clone())?;
    }
    Ok((named, roots))
}

/// Accepts what `vouched` does, and the certificates themselves.
#[derive(Debug)]
struct Named<V: ?Sized> {
    named: Vec<CertificateDer<'static>>,
    vouched: Arc<V>,
}

impl ServerCertVerifier for Named<dyn ServerCertVerifier> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Guard: `!self.named.contains(certificate)` as `false` fails tls::tests
        if !self.named.contains(certificate) {
            return self.vouched.verify_server_cert(certificate, others, name, ocsp, now);
        }
        match verify_server_name(&ParsedCertificate::try_from(certificate)?, name) {
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented,
                ..
            // Guard: `presented.is_empty()` as `true` fails tls::tests
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

impl ClientCertVerifier for Named<dyn ClientCertVerifier> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.vouched.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Guard: `self.named.contains(certificate)` as `true` fails tls::tests
        if self.named.contains(certificate) {
            return Ok(ClientCertVerified::assertion());
        }
        self.vouched.verify_client_cert(certificate, others, now)
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
