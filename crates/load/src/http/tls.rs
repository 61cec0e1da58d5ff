//! TLS towards targets: which certificates are believed, and what is offered.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::open::Secure;
use super::plan::BadPlan;
use super::url::Url;

/// What a target needs: sessions are not resumed, so that every handshake costs what it costs.
pub(super) fn secure(url: &Url, insecure: bool, http2: bool) -> Result<Secure, BadPlan> {
    let name = ServerName::try_from(url.host.clone())
        .map_err(|_| BadPlan(format!("'{}' is no name for TLS", url.host)))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| BadPlan(format!("TLS: {e}")))?;
    let mut config = if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))).with_no_client_auth()
    } else {
        builder.with_root_certificates(roots()?).with_no_client_auth()
    };
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Secure { config: Arc::new(config), name })
}

/// The system's certificates.
fn roots() -> Result<RootCertStore, BadPlan> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map_or(String::new(), |e| format!(": {e}"));
        return Err(BadPlan(format!(
            "no certificates of the system were found{why}: give --insecure to believe anybody"
        )));
    }
    Ok(roots)
}

/// Believes anybody: for test servers with certificates of their own making.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
