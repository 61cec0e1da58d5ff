//! Which handshakes were full ones, for QUIC: `quinn-proto` does not say.
//!
//! In a full handshake the server signs with its certificate's key and the client verifies that certificate; where a session is taken up again
//! neither is done (RFC 8446 §2.2). Both happen within the call that handles a datagram, so that a count for each thread tells whose it was.

use std::cell::Cell;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{DigitallySignedStruct, Error, SignatureAlgorithm, SignatureScheme};

thread_local! {
    static FULL: Cell<u64> = const { Cell::new(0) };
}

/// Certificates verified, and signatures made, by this thread.
#[must_use]
pub fn full_handshakes() -> u64 {
    FULL.get()
}

fn count() {
    FULL.set(FULL.get().wrapping_add(1));
}

/// The same certificate, whose signatures are counted.
pub(super) fn counted(own: &CertifiedKey) -> CertifiedKey {
    CertifiedKey::new(own.cert.clone(), Arc::new(CountedKey(own.key.clone())))
}

#[derive(Debug)]
struct CountedKey(Arc<dyn SigningKey>);

impl SigningKey for CountedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(CountedSigner(self.0.choose_scheme(offered)?)))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct CountedSigner(Box<dyn Signer>);

impl Signer for CountedSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        count();
        self.0.sign(message)
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// Believes whom the other does, and counts how often it is asked.
#[derive(Debug)]
pub(super) struct Counted(pub(super) Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for Counted {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        count();
        self.0.verify_server_cert(certificate, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
