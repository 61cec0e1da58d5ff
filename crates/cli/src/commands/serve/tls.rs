//! TLS of a service: the arguments, and what is made of them.

use anyhow::{Context, bail};
use flowlane::{Prefix, written};
use flowlane_http::tls::{Alpn, Identity, ServerTls};
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Arguments of the services that may be encrypted.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct TlsArguments {
    /// Serve TLS with a self-signed certificate made at start.
    #[arg(long, help_heading = "TLS", conflicts_with = "cert")]
    pub(super) tls: bool,
    /// Serve TLS with the certificate chain in this PEM file, the server's own first.
    #[arg(long, value_name = "FILE", help_heading = "TLS", requires = "key_file")]
    pub(super) cert: Option<PathBuf>,
    /// PEM file with the private key of --cert.
    #[arg(long = "cert-key", value_name = "FILE", help_heading = "TLS", requires = "cert")]
    pub(super) key_file: Option<PathBuf>,
    /// Demand a certificate of clients: one in this PEM file, or signed by one of those; others are refused.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    client_ca: Option<PathBuf>,
    /// Write the certificate to this PEM file, for clients to trust.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    write_cert: Option<PathBuf>,
}

impl TlsArguments {
    /// What they ask for, on these addresses and those of the loopback; `None` if nothing is encrypted.
    pub(super) fn build(self, addresses: &[Prefix], alpn: Alpn) -> anyhow::Result<Option<ServerTls>> {
        for file in [&self.cert, &self.key_file, &self.client_ca].into_iter().flatten() {
            // What cannot be opened is said by whoever reads it.
            if let Ok(read) = File::open(file) {
                written::note_read(&read).keep();
            }
        }
        let identity = match (self.cert, self.key_file) {
            (Some(certificates), Some(key)) => Some(Identity::Files { certificates, key }),
            _ if self.tls => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let addresses: Vec<IpAddr> = addresses.iter().map(Prefix::address).chain(loopback).collect();
                Some(Identity::for_addresses(&addresses))
            }
            _ => None,
        };
        if self.client_ca.is_some() && identity.is_none() {
            bail!("--client-ca: clients present certificates in TLS only: --tls or --cert is needed");
        }
        let client_ca = self.client_ca.as_deref();
        let tls = identity.map(|identity| ServerTls::with_clients(&identity, alpn, client_ca)).transpose()?;
        match (&self.write_cert, &tls) {
            (Some(path), Some(tls)) => {
                write_certificate(path, &tls.certificate_pem())
                    .with_context(|| format!("--write-cert {}", path.display()))?;
            }
            (Some(_), None) => bail!("--write-cert: there is no certificate without --tls or --cert"),
            (None, _) => {}
        }
        Ok(tls)
    }
}

/// Writes the certificate for clients, never over a file that is read here, such as its key.
fn write_certificate(path: &Path, pem: &str) -> io::Result<()> {
    let mut file = written::open_for_writing(path, 0o644)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(pem.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_not_written_over_the_key_that_is_read() {
        let dir = std::env::temp_dir().join(format!("flowlane-cert-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (key, other) = (dir.join("key.pem"), dir.join("cert.pem"));
        std::fs::write(&key, "precious").unwrap();
        std::fs::write(&other, "something older and longer").unwrap();
        let noted = written::note_read(&File::open(&key).unwrap());
        let refused = write_certificate(&key, "PEM").unwrap_err();
        assert!(refused.to_string().contains("reads"), "{refused}");
        assert_eq!(std::fs::read_to_string(&key).unwrap(), "precious");
        write_certificate(&other, "PEM").unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "PEM");
        drop(noted);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
