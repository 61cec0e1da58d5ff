//! The options of how connections get to their targets, and of what they present there.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{anyhow, ensure};
use clap::Args;
use flowlane::written;
use flowlane_http::tls::{ClientIdentity, Trust, Version, Versions};
use flowlane_load::http::{ConnectTo, Directions, Follow, Plan, Proxy, Resolve, Via};

use crate::units::show_count;

/// Options of the way to the targets.
#[derive(Debug, Args)]
pub(super) struct ViaOptions {
    /// Connections for HOST1:PORT1 go to HOST2:PORT2, while the Host field and the certificate stay those of the URL; an empty host or port
    /// of the first stands for all, of the second for the same. May be repeated.
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", conflicts_with = "scenario")]
    connect_to: Vec<ConnectTo>,
    /// Addresses of a host and port, in the place of the resolver's: a.example:443:10.0.0.1,10.0.0.2; the host * stands for all. May be
    /// repeated.
    #[arg(long, value_name = "HOST:PORT:ADDR", conflicts_with = "scenario")]
    resolve: Vec<Resolve>,
    /// Connect to this Unix socket in the place of the URL's host. Kernel sockets only.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["scenario", "resolve", "connect_to"])]
    unix_socket: Option<PathBuf>,
    /// Proxy: http://[USER:PASSWORD@]HOST:PORT, socks5://... (names are resolved here) or socks5h://... (by the proxy). The variables of the
    /// environment (http_proxy) are not followed.
    #[arg(long, value_name = "URL", conflicts_with_all = ["scenario", "unix_socket"])]
    proxy: Option<String>,
    /// Accept any certificate.
    #[arg(long, short = 'k', conflicts_with = "scenario")]
    insecure: bool,
    /// Trust the certificates in this PEM file, and those they have signed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["insecure", "scenario"])]
    ca: Option<PathBuf>,
    /// Client certificate, for servers that ask for one: this PEM file, which may have the key as well.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    cert: Option<PathBuf>,
    /// PEM file with the private key of --cert [default: that of --cert].
    #[arg(long, value_name = "FILE", requires = "cert", conflicts_with = "scenario")]
    cert_key: Option<PathBuf>,
    /// Lowest version of TLS: 1.2 or 1.3.
    #[arg(long, value_name = "VERSION", default_value = "1.2", conflicts_with = "scenario")]
    tls_min: Version,
    /// Highest version of TLS: 1.2 or 1.3.
    #[arg(long, value_name = "VERSION", default_value = "1.3", conflicts_with = "scenario")]
    tls_max: Version,
    /// Take up sessions of TLS again: every connection after the first of a target may do with a shorter handshake [default: all are full ones].
    #[arg(long, conflicts_with = "scenario")]
    pub(super) tls_resume: bool,
    /// Over HTTP/3 send requests that do nothing but ask (GET, HEAD, OPTIONS, TRACE) before the handshake is complete (0-RTT), where a session allows
    /// it.
    #[arg(long, requires = "tls_resume", conflicts_with = "scenario")]
    pub(super) early_data: bool,
}

impl ViaOptions {
    /// The way to the targets.
    pub(super) fn via(&self) -> anyhow::Result<Via> {
        let directions = Directions { connect_to: self.connect_to.clone(), resolve: self.resolve.clone() };
        // Not by the parser of arguments, whose errors would repeat the password.
        let proxy = self.proxy.as_deref().map(str::parse::<Proxy>).transpose();
        let proxy = proxy.map_err(|why| anyhow!("--proxy: {why}"))?;
        Ok(Via { directions, proxy, unix_socket: self.unix_socket.clone() })
    }

    /// Which servers are believed.
    pub(super) fn trust(&self) -> Trust {
        match &self.ca {
            _ if self.insecure => Trust::Anybody,
            Some(file) => Trust::File(file.clone()),
            None => Trust::Native,
        }
    }

    /// The clients' own certificate.
    pub(super) fn identity(&self) -> Option<ClientIdentity> {
        let certificates = self.cert.clone()?;
        let key = self.cert_key.clone().unwrap_or_else(|| certificates.clone());
        for file in [&certificates, &key] {
            // So that no output is written over it. What cannot be opened is said by whoever reads it.
            if let Ok(read) = File::open(file) {
                written::note_read(&read).keep();
            }
        }
        Some(ClientIdentity { certificates, key })
    }

    /// The versions of TLS.
    pub(super) fn versions(&self) -> anyhow::Result<Versions> {
        ensure!(self.tls_min <= self.tls_max, "--tls-min: above --tls-max");
        Ok(Versions { min: self.tls_min, max: self.tls_max })
    }
}

/// What differs from requests straight to the targets, for the report.
pub(super) fn shown(plan: &Plan) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for pool in &plan.pools {
        let own = pool.identity.as_ref();
        let own = own.map(|own| ("client-certificate".to_owned(), own.certificates.display().to_string()));
        let follow = pool.follow.map(|Follow { most, anywhere }| {
            let whither = if anywhere { "to any host" } else { "to hosts of the targets" };
            ("redirects".to_owned(), format!("followed {whither}, at most {most} for a request"))
        });
        let rows = pool.data.as_ref().map(|data| {
            let (rows, order, columns) =
                (show_count(data.rows()), data.order.name(), data.columns().join(", "));
            ("rows".to_owned(), format!("{rows} of {columns}, {order}"))
        });
        for entry in pool.via.shown().into_iter().chain(own).chain(follow).chain(rows) {
            if !all.contains(&entry) {
                all.push(entry);
            }
        }
    }
    all
}
