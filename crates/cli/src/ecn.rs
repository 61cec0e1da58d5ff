//! `--ecn`: which explicit congestion notification connections of our own stack negotiate.

use anyhow::{bail, ensure};
use flowlane::{Algorithm, Ecn, Host};

/// The option.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct EcnOption {
    /// Explicit congestion notification of connections of our own stack: off, accept (classic, if asked for), request, accurate (RFC 9768,
    /// asked for and accepted), accurate-request (accepted, but classic is asked for), accurate-accept (accepted, nothing is asked for), or
    /// the kernel's numbers of these, 0, 2, 1, 3, 4, 5 [default: accept].
    #[arg(long, value_name = "WHICH", value_parser = named)]
    ecn: Option<Ecn>,
}

/// By name, or by the kernel's number.
fn named(text: &str) -> Result<Ecn, String> {
    let number = text.parse().ok().and_then(|number: usize| Ecn::ALL.get(number));
    let found = Ecn::ALL.iter().find(|ecn| ecn.name() == text).or(number);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Ecn::ALL.iter().map(|ecn| ecn.name()).collect();
        format!("not one of {}, nor a number from 0 to 5", names.join(", "))
    })
}

impl EcnOption {
    /// Whether it was given.
    pub(crate) fn is_given(self) -> bool {
        self.ecn.is_some()
    }

    /// What was asked for, if anything was. `kernel`: the sockets are the kernel's, which has one setting for all. `congestion`: what was asked
    /// for beside it.
    pub(crate) fn of(self, kernel: bool, congestion: Option<Algorithm>) -> anyhow::Result<Option<Ecn>> {
        if let (true, Some(ecn)) = (kernel, self.ecn) {
            let number = Ecn::ALL.iter().position(|other| *other == ecn).unwrap_or_default();
            bail!(
                "--ecn {}: kernel sockets have the kernel's; as root: sysctl -w net.ipv4.tcp_ecn={number}, or name a --link",
                ecn.name()
            );
        }
        if let (Some(Algorithm::Prague), Some(ecn @ (Ecn::Off | Ecn::Accept | Ecn::Request))) =
            (congestion, self.ecn)
        {
            bail!(
                "--ecn {}: --congestion prague needs accurate ECN and asks for it; leave --ecn out",
                ecn.name()
            );
        }
        Ok(self.ecn)
    }

    /// Refuses it for datagrams.
    pub(crate) fn check_absent(self, why: &str) -> anyhow::Result<()> {
        ensure!(!self.is_given(), "--ecn: {why}");
        Ok(())
    }
}

/// The host with the congestion control and the ECN that were named.
pub(crate) fn chosen(host: Host, congestion: Option<Algorithm>, ecn: Option<Ecn>) -> Host {
    let host = match congestion {
        Some(algorithm) => host.congestion(algorithm),
        None => host,
    };
    match ecn {
        Some(ecn) => host.ecn(ecn),
        None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, ecn) in
            [("accurate", Ecn::Accurate), ("3", Ecn::Accurate), ("2", Ecn::Accept), ("off", Ecn::Off)]
        {
            assert_eq!(named(text), Ok(ecn));
        }
        for text in ["", "6", "-1", "Accurate", "l4s"] {
            assert!(named(text).unwrap_err().contains("accurate-accept"), "{text}");
        }
    }

    /// The kernel's setting is its own.
    #[test]
    fn kernel_sockets_have_the_kernels() {
        let given = EcnOption { ecn: Some(Ecn::AccurateAccept) };
        assert!(given.of(true, None).unwrap_err().to_string().contains("net.ipv4.tcp_ecn=5"));
        let nothing = EcnOption::default().of(true, None).unwrap();
        assert_eq!((given.of(false, None).unwrap(), nothing), (given.ecn, None));
    }

    /// Prague without accurate ECN is none.
    #[test]
    fn prague_needs_accurate_ecn() {
        for ecn in Ecn::ALL {
            let of = |congestion| EcnOption { ecn: Some(ecn) }.of(false, Some(congestion)).is_ok();
            assert!(of(Algorithm::Bbr));
            assert_eq!(of(Algorithm::Prague), ecn.name().starts_with("accurate"), "{ecn:?}");
        }
    }
}
