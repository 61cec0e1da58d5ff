//! The arguments of the cache, and what is wrong with them. Names and letters are memcached's where memcached has the option.

use super::super::plan::TcpArguments;
use super::super::tls::TlsArguments;
use super::super::unix_socket::UnixSocketArguments;
use crate::units;
use anyhow::{anyhow, bail, ensure};
use clap::ValueEnum;
use flowlane_memcached::server::Placement;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of the cache.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("port", |arg| arg.short('p').default_value("11211")),
    mut_arg("workers", |arg| arg.short('t')),
    mut_arg("addr", |arg| arg.short('l')),
    mut_arg("unix_socket", |arg| arg.short('s')),
    mut_arg("unix_mask", |arg| arg.short('a'))
)]
pub(crate) struct MemcachedArguments {
    #[command(flatten)]
    pub(super) tcp: TcpArguments,
    /// Memory for items and all that is kept about them, in MiB, or with a unit: 1Gi. Lanes have equal shares of it.
    #[arg(long, short = 'm', value_name = "MIB", default_value = "64", value_parser = megabytes, help_heading = "Memcached")]
    pub(super) memory: usize,
    /// Most connections; further ones are told so and closed.
    #[arg(long, short = 'c', value_name = "N", default_value = "1024", value_parser = units::count, help_heading = "Memcached")]
    pub(super) max_connections: u64,
    /// Largest item in bytes, or with a unit: 2m. At most half of a lane's memory.
    #[arg(long, short = 'I', value_name = "SIZE", default_value = "1m", value_parser = item_size, help_heading = "Memcached")]
    pub(super) max_item_size: usize,
    /// Most memory for requests on their way and answers that peers do not read, in bytes over all lanes.
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = units::size, help_heading = "Memcached")]
    pub(super) max_buffers: usize,
    /// Close connections on which nothing came or went for so long [default: never].
    #[arg(long, value_name = "TIME", value_parser = idle_time, help_heading = "Memcached")]
    pub(super) idle_timeout: Option<Duration>,
    /// Serve datagrams on this UDP port as well; 0 for none. Whoever can reach it can have answers sent to others: see the page on serve memcached.
    #[arg(long, short = 'U', value_name = "PORT", default_value_t = 0, help_heading = "Memcached")]
    pub(super) udp_port: u16,
    /// What happens to a client whose keys are in another lane than its connection.
    #[arg(long, value_name = "HOW", default_value = "route", value_enum, help_heading = "Memcached")]
    pub(super) placement: PlacementOption,
    #[command(flatten, next_help_heading = "Memcached")]
    pub(super) unix: UnixSocketArguments,
    #[command(flatten)]
    pub(super) tls: TlsArguments,
    /// Serve TLS with a certificate from files, as memcached: --cert and --cert-key, or -o ssl_chain_cert=FILE,ssl_key=FILE.
    #[arg(long, short = 'Z', help_heading = "TLS")]
    enable_ssl: bool,
    /// Options of memcached's -o: idle_timeout=SECONDS, ssl_chain_cert=FILE, ssl_key=FILE.
    #[arg(long, short = 'o', value_name = "NAME=VALUE", value_delimiter = ',', help_heading = "Memcached")]
    extended: Vec<String>,
}

/// Values of `--placement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PlacementOption {
    /// Its requests go to their lanes by message, and the answers back.
    Route,
    /// The connection moves to the lane that more than three of four of its requests are for; others are routed. With kernel sockets and epoll alone:
    /// on a link RSS says where a connection is.
    Move,
}

impl PlacementOption {
    pub(super) fn is_move(self) -> bool {
        self == Self::Move
    }
}

impl From<PlacementOption> for Placement {
    fn from(option: PlacementOption) -> Self {
        match option {
            PlacementOption::Route => Self::Route,
            PlacementOption::Move => Self::Move,
        }
    }
}

/// Mebibytes without a unit, else a size.
fn megabytes(text: &str) -> Result<usize, String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = text.parse::<usize>().ok().and_then(|n| n.checked_mul(1 << 20));
        return number.ok_or_else(|| "more than any machine has".to_owned());
    }
    units::size(text).map_err(|e| e.to_string())
}

/// A size, of which the units may also be memcached's `k` and `m`, which are 1024 and 1024 times 1024.
fn item_size(text: &str) -> Result<usize, String> {
    let binary = text.strip_suffix(['k', 'K']).map(|n| format!("{n}Ki"));
    let binary = binary.or_else(|| text.strip_suffix(['m', 'M']).map(|n| format!("{n}Mi")));
    units::size(binary.as_deref().unwrap_or(text)).map_err(|e| e.to_string())
}

/// Seconds without a unit, as memcached has it, else a time.
fn idle_time(text: &str) -> Result<Duration, String> {
    let seconds = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = if seconds { format!("{text}s") } else { text.to_owned() };
    units::duration(&text).map_err(|e| e.to_string())
}

impl MemcachedArguments {
    /// Takes what `-o` says into the options that are ours.
    fn apply_one(&mut self, option: &str) -> anyhow::Result<()> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let file = || {
            ensure!(!value.is_empty(), "-o {name}: a file is needed, as {name}=/etc/ssl/cache.pem");
            Ok(Some(PathBuf::from(value)))
        };
        match name {
            "idle_timeout" => {
                let time = idle_time(value).map_err(|why| anyhow!("-o idle_timeout={value}: {why}"))?;
                self.idle_timeout = Some(time);
            }
            "ssl_chain_cert" => self.tls.cert = file()?,
            "ssl_key" => self.tls.key_file = file()?,
            "ssl_ca_cert" | "ssl_verify_mode" => {
                bail!("-o {name}: clients' certificates are demanded by --client-ca FILE")
            }
            _ => bail!("-o {name}: not here; there are idle_timeout, ssl_chain_cert and ssl_key"),
        }
        Ok(())
    }

    /// Takes what `-o` says, and sees that `-Z` has what it needs.
    pub(super) fn apply_extended(&mut self) -> anyhow::Result<()> {
        for option in std::mem::take(&mut self.extended) {
            self.apply_one(&option)?;
        }
        let given = (self.tls.cert.is_some(), self.tls.key_file.is_some());
        if let (true, false) | (false, true) = given {
            bail!(
                "certificate and key go together: --cert and --cert-key, or -o ssl_chain_cert=FILE,ssl_key=FILE"
            );
        }
        ensure!(
            !(self.tls.tls && given.0),
            "--tls: not with --cert or -o ssl_chain_cert, since it makes a certificate of its own"
        );
        ensure!(
            !self.enable_ssl || given.0 || self.tls.tls,
            "--enable-ssl: a certificate is needed: --cert and --cert-key (-o ssl_chain_cert=FILE,ssl_key=FILE), or --tls, which makes one"
        );
        Ok(())
    }

    /// What is wrong with single values.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(self.max_connections > 0, "--max-connections 0: must be at least 1");
        ensure!(
            self.udp_port == 0 || !self.unix.is_given(),
            "--udp-port {}: not with --unix-socket, which is instead of ports",
            self.udp_port
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_memcacheds_options() {
        assert_eq!(megabytes("64"), Ok(64 << 20));
        assert_eq!(megabytes("1Gi"), Ok(1 << 30));
        assert_eq!(item_size("2m"), Ok(2 << 20));
        assert_eq!(item_size("512k"), Ok(512 << 10));
        assert_eq!(item_size("4096"), Ok(4096));
        assert_eq!(idle_time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(idle_time("200ms"), Ok(Duration::from_millis(200)));
        for bad in ["", "x", "-1", "99999999999999999999"] {
            assert!(megabytes(bad).is_err() && item_size(bad).is_err() && idle_time(bad).is_err(), "{bad}");
        }
    }
}
