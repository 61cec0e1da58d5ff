//! Certificates and keys in files of PEM.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Certificates of a PEM file.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let fault = |why: String| TlsError::File { path: path.to_owned(), wanted: "a certificate", why };
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|e| fault(pem_error(&e)))?;
    if chain.is_empty() {
        return Err(fault("no certificate in it".to_owned()));
    }
    Ok(chain)
}

/// The private key of a PEM file, which may have other things as well.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let fault =
        |why: String| TlsError::File { path: path.to_owned(), wanted: "an unencrypted private key", why };
    PrivateKeyDer::from_pem_file(path).map_err(|e| fault(pem_error(&e)))
}

fn pem_error(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(e) => e.to_string(),
        rustls::pki_types::pem::Error::NoItemsFound => "nothing of the kind in it".to_owned(),
        other => other.to_string(),
    }
}
