//! `--congestion`: the congestion control of connections, of our own stack or of the kernel.

use anyhow::bail;
use flowlane::Algorithm;
use flowlane_sys::kernel::{options, socket};
use std::io;
use std::os::fd::AsFd;

/// The option.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct CongestionOption {
    /// Congestion control of connections: cubic, newreno, bbr or prague (L4S; asks for accurate ECN, without which a connection has cubic) [default:
    /// cubic; on kernel sockets the kernel's].
    #[arg(long, value_name = "NAME", value_enum)]
    congestion: Option<Name>,
}

/// Values of `--congestion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Cubic,
    Newreno,
    Bbr,
    Prague,
}

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

impl CongestionOption {
    /// Whether it was given.
    pub(crate) fn is_given(self) -> bool {
        self.congestion.is_some()
    }

    /// What was asked for, if anything was. `kernel`: there are kernel sockets, whose kernel must have it.
    pub(crate) fn of(self, kernel: bool) -> anyhow::Result<Option<Algorithm>> {
        let Some(name) = self.congestion else { return Ok(None) };
        let algorithm = match name {
            Name::Cubic => Algorithm::Cubic,
            Name::Newreno => Algorithm::NewReno,
            Name::Bbr => Algorithm::Bbr,
            Name::Prague => Algorithm::Prague,
        };
        if kernel {
            check_kernel(algorithm)?;
        }
        Ok(Some(algorithm))
    }
}

/// Refuses what the kernel does not have, or does not let everybody have: privileges are given up before sockets are opened.
fn check_kernel(algorithm: Algorithm) -> anyhow::Result<()> {
    // With privileges the kernel loads its module for that.
    let tried = socket::tcp(true).and_then(|fd| options::set_congestion(fd.as_fd(), kernel_name(algorithm)));
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    refuse(algorithm, &tried, &read(AVAILABLE), &read(ALLOWED))
}

/// What `sysctl net.ipv4.tcp_available_congestion_control` calls it.
fn kernel_name(algorithm: Algorithm) -> &'static str {
    if algorithm == Algorithm::NewReno { "reno" } else { algorithm.name() }
}

fn refuse(
    algorithm: Algorithm,
    tried: &io::Result<()>,
    available: &str,
    allowed: &str,
) -> anyhow::Result<()> {
    let (name, kernel) = (algorithm.name(), kernel_name(algorithm));
    let has = |list: &str| list.split_whitespace().any(|word| word == kernel);
    match tried {
        // Guard: `has(allowed) || allowed.is_empty()` as `true` fails congestion::tests::what_the_kernel
        Ok(()) if has(allowed) || allowed.is_empty() => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => bail!(
            "--congestion {name}: the kernel does not have it, but {}; as root: modprobe tcp_{kernel}",
            available.split_whitespace().collect::<Vec<_>>().join(", ")
        ),
        Err(e) if e.kind() != io::ErrorKind::PermissionDenied => bail!("--congestion {name}: {e}"),
        _ => bail!(
            "--congestion {name}: the kernel allows it to root alone; as root: sysctl -w \
             net.ipv4.tcp_allowed_congestion_control='{} {kernel}'",
            allowed.trim()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_have_or_allow() {
        let (available, allowed) = ("reno cubic\n", "reno cubic\n");
        let not_found = || Err(io::Error::from(io::ErrorKind::NotFound));
        let denied = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(refuse(Algorithm::NewReno, &Ok(()), available, allowed).is_ok());
        let why = refuse(Algorithm::Bbr, &not_found(), available, allowed).unwrap_err().to_string();
        assert_eq!(
            why,
            "--congestion bbr: the kernel does not have it, but reno, cubic; as root: modprobe tcp_bbr"
        );
        // Also where root may have it now, and nobody may later.
        for tried in [denied(), Ok(())] {
            let why = refuse(Algorithm::Bbr, &tried, "reno cubic bbr\n", allowed).unwrap_err().to_string();
            assert!(why.ends_with("tcp_allowed_congestion_control='reno cubic bbr'"), "{why}");
        }
    }
}
