//! Addresses that a host on a link of ours asks others for: `--addr dhcp`, `--addr slaac`, beside fixed ones.
//!
//! A run that asks waits for an address of each kind before it begins, for so long at most as `--address-wait` says. A failure is said in
//! one line that names what did not answer.

use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use flowlane::dhcp::{DhcpConfig, HostAddress, Origin};
use flowlane::link::LinkSpec;
use flowlane::{Handle, Host, OpenLink, Slaac, StartError};

use crate::address::Address;
use crate::say::say;
use crate::units;

/// Between two looks at whether an address has come.
const LOOK: Duration = Duration::from_millis(20);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Longest identifier of a client, bytes.
const LONGEST_CLIENT: usize = 200;

/// A value of `--addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addr {
    Fixed(Address),
    Dhcp,
    Slaac,
}

impl FromStr for Addr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dhcp" => Ok(Self::Dhcp),
            "slaac" => Ok(Self::Slaac),
            "dhcp6" | "dhcpv6" => Err("DHCPv6 is not supported: give slaac, or an address".to_owned()),
            _ => text.parse().map(Self::Fixed),
        }
    }
}

/// A value of `--addr` where it means something on a link of ours only: an address needs its prefix length.
pub(crate) fn on_link(text: &str) -> Result<Addr, String> {
    let addr = text.parse()?;
    if let Addr::Fixed(address) = addr {
        address.with_network()?;
    }
    Ok(addr)
}

/// The fixed ones.
pub(crate) fn fixed(addr: &[Addr]) -> Vec<Address> {
    let fixed = |addr: &Addr| if let Addr::Fixed(address) = addr { Some(*address) } else { None };
    addr.iter().filter_map(fixed).collect()
}

/// Options of addresses that others give.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Asking {
    /// With --addr dhcp or slaac, wait this long for an address of each [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    address_wait: Option<Duration>,
    /// With --addr dhcp, the client's identifier, up to 200 letters [default: one of the Ethernet address and the command].
    #[arg(long, value_name = "TEXT")]
    client_id: Option<String>,
    /// With --addr dhcp, the name of this host that the server is told [default: none].
    #[arg(long, value_name = "NAME")]
    client_name: Option<String>,
    /// With --addr slaac, the interface identifier: stable, one for each network and machine that tells of neither; eui64, of the Ethernet
    /// address, which the kernel may use, too [default: stable].
    #[arg(long, value_name = "KIND", value_enum)]
    interface_id: Option<InterfaceId>,
}

/// Kinds of interface identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum InterfaceId {
    Stable,
    Eui64,
}

/// What a host asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) dhcp: Option<DhcpConfig>,
    pub(crate) slaac: Slaac,
    wait: Duration,
}

impl Asking {
    /// What is asked for by `--addr` and these options. `kernel`: there is no link of ours.
    ///
    /// # Errors
    /// Options that have no effect, and values that cannot be.
    pub(crate) fn of(&self, addr: &[Addr], kernel: bool) -> anyhow::Result<Asked> {
        let count = |which| addr.iter().filter(|a| **a == which).count();
        let (dhcp, slaac) = (count(Addr::Dhcp), count(Addr::Slaac));
        for (name, n) in [("dhcp", dhcp), ("slaac", slaac)] {
            ensure!(
                n == 0 || !kernel,
                "--addr {name}: kernel sockets have the kernel's addresses; name a --link"
            );
            ensure!(n < 2, "--addr {name}: once is enough");
        }
        let any = dhcp + slaac > 0;
        for (option, given, means, needs) in [
            ("--address-wait", self.address_wait.is_some(), any, "dhcp or slaac"),
            ("--client-id", self.client_id.is_some(), dhcp > 0, "dhcp"),
            ("--client-name", self.client_name.is_some(), dhcp > 0, "dhcp"),
            ("--interface-id", self.interface_id.is_some(), slaac > 0, "slaac"),
        ] {
            ensure!(!given || means, "{option}: goes with --addr {needs}");
        }
        let wait = self.address_wait.unwrap_or(Duration::from_secs(30));
        let some = Duration::from_secs(1)..=LONGEST;
        ensure!(some.contains(&wait), "--address-wait: must be from 1s to 24h");
        let client = self.client_id.as_ref().map(|text| {
            // Type 0: not the number of a hardware type (RFC 2132 section 9.14).
            [&[0], text.as_bytes()].concat()
        });
        let fits = |text: &Option<String>, most| text.as_ref().is_none_or(|t| (1..=most).contains(&t.len()));
        ensure!(
            fits(&self.client_id, LONGEST_CLIENT),
            "--client-id: must have 1 to {LONGEST_CLIENT} letters"
        );
        ensure!(fits(&self.client_name, 63), "--client-name: must have 1 to 63 letters");
        let dhcp = (dhcp > 0).then(|| {
            let mut config = DhcpConfig::default();
            (config.client, config.name) = (client, self.client_name.clone());
            config
        });
        let slaac = match self.interface_id {
            _ if slaac == 0 => Slaac::Off,
            Some(InterfaceId::Eui64) => Slaac::Eui64,
            _ => Slaac::Stable(secret(Path::new("/etc/machine-id"))?),
        };
        Ok(Asked { dhcp, slaac, wait })
    }
}

/// What makes interface identifiers of this machine its own: the machine's identity, which programs are to keep to themselves, and so a
/// hash of it; without one, a random number, and then they are others in the next run.
fn secret(identity: &Path) -> anyhow::Result<[u64; 2]> {
    let Some(text) = std::fs::read_to_string(identity).ok().filter(|text| text.trim().len() >= 32) else {
        return Ok([flowlane::entropy::random_u64()?, flowlane::entropy::random_u64()?]);
    };
    let digits = |at: usize| u64::from_str_radix(text.get(at..at + 16).unwrap_or_default(), 16).unwrap_or(0);
    let keyed = flowlane_stack::rng::Keyed::new(digits(0), digits(16));
    Ok([b"flowlane slaac 0", b"flowlane slaac 1"].map(|name| keyed.hash(name)))
}

impl Asked {
    /// Whether anything is asked for.
    pub(crate) fn any(&self) -> bool {
        self.dhcp.is_some() || self.slaac != Slaac::Off
    }

    /// Refuses a link on which nobody answers.
    pub(crate) fn check(&self, link: &LinkSpec) -> anyhow::Result<()> {
        let silent = self.any() && matches!(link, LinkSpec::Pcap(..));
        ensure!(!silent, "--addr dhcp, slaac: nobody answers on {link}: give addresses, as 10.11.2.1/24");
        Ok(())
    }

    /// Whether an address of a family is asked for.
    pub(crate) fn family(&self, v4: bool) -> bool {
        if v4 { self.dhcp.is_some() } else { self.slaac != Slaac::Off }
    }

    /// A host that asks.
    pub(crate) fn apply(&self, host: Host) -> Host {
        let host = match &self.dhcp {
            Some(config) => host.dhcp(config.clone()),
            None => host,
        };
        if self.slaac == Slaac::Off { host } else { host.slaac(self.slaac) }
    }

    /// Makes a link let the answers through.
    pub(crate) fn on(&self, open: OpenLink) -> OpenLink {
        let (dhcp, slaac) = (self.dhcp.is_some(), self.slaac != Slaac::Off);
        if !dhcp && !slaac {
            return open;
        }
        Box::new(move |memory, workers| {
            let opened = open(memory, workers)?;
            if dhcp {
                opened.0.hear_servers().map_err(StartError::Link)?;
            }
            if slaac {
                opened.0.hear_routers().map_err(StartError::Link)?;
            }
            Ok(opened)
        })
    }

    /// Says what is waited for.
    pub(crate) fn announce(&self) {
        if self.any() {
            say!("flowlane: waiting for {}, {} at most", self.words(), shown(self.wait));
        }
    }

    fn words(&self) -> String {
        let dhcp = self.dhcp.is_some().then_some("an address by DHCP");
        let slaac = (self.slaac != Slaac::Off).then_some("a router that advertises a prefix");
        dhcp.into_iter().chain(slaac).collect::<Vec<_>>().join(" and ")
    }

    /// Whether all that was asked for is there. A router may advertise several prefixes: none of their addresses is then still being probed, so that
    /// which of them is used does not depend on which was faster.
    fn have(&self, addresses: &[HostAddress]) -> [bool; 2] {
        let has = |v4: bool| {
            let of_family = || addresses.iter().filter(|a| a.prefix.address().is_ipv4() == v4);
            // Guard: `of_family().all(|a| a.ready)` as `of_family().any(|a| a.ready)` fails
            // asking::tests::all_addresses_are_waited_for
            of_family().next().is_some() && of_family().all(|a| a.ready)
        };
        [self.dhcp.is_none() || has(true), self.slaac == Slaac::Off || has(false)]
    }

    /// Waits until the addresses are there. `stop`, which is asked again and again, ends the wait; then the result is `false`.
    ///
    /// # Errors
    /// They are not there in time.
    pub(crate) fn wait(
        &self,
        handle: &Handle,
        mut stop: impl FnMut(Duration) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        if !self.any() {
            return Ok(true);
        }
        let end = Instant::now() + self.wait;
        loop {
            let [v4, v6] = self.have(&handle.addresses());
            if v4 && v6 {
                return Ok(true);
            }
            if Instant::now() >= end {
                let time = shown(self.wait);
                match (v4, v6) {
                    (false, true) => bail!("--addr dhcp: no server gave an address within {time}"),
                    (true, false) => {
                        bail!("--addr slaac: no router advertised a prefix for addresses within {time}")
                    }
                    _ => bail!(
                        "--addr dhcp,slaac: no server gave an address, and no router advertised a prefix, within {time}"
                    ),
                }
            }
            if stop(LOOK)? {
                return Ok(false);
            }
        }
    }
}

fn shown(time: Duration) -> String {
    units::show_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// An address with where it comes from, for people.
pub(crate) fn show(address: &HostAddress) -> String {
    let ip = address.prefix.address();
    match address.origin {
        Origin::Dhcp { .. } => format!("{ip} (by DHCP)"),
        _ => format!("{ip} (by SLAAC)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addr: &[&str], kernel: bool, asking: &Asking) -> Result<Asked, String> {
        let addr: Vec<Addr> = addr.iter().map(|a| a.parse().unwrap()).collect();
        asking.of(&addr, kernel).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_asked_for() {
        let usual = Asking::default();
        let both = of(&["dhcp", "10.0.0.1/24", "slaac"], false, &usual).unwrap();
        assert!(both.family(true) && both.family(false) && both.any());
        assert!(!of(&["10.0.0.1/24"], false, &usual).unwrap().any());
        let eui = Asking { interface_id: Some(InterfaceId::Eui64), ..usual.clone() };
        assert_eq!(of(&["slaac"], false, &eui).unwrap().slaac, Slaac::Eui64);
        assert!("dhcpv6".parse::<Addr>().unwrap_err().contains("not supported"));
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        let usual = Asking::default();
        let id = |id: &str| Asking { client_id: Some(id.to_owned()), ..Asking::default() };
        for (said, word) in [
            (of(&["dhcp"], true, &usual), "name a --link"),
            (of(&["slaac"], true, &usual), "name a --link"),
            (of(&["dhcp", "dhcp"], false, &usual), "once"),
            (of(&["slaac"], false, &id("a")), "--addr dhcp"),
            (of(&["dhcp"], false, &id("")), "--client-id"),
            (of(&["dhcp"], false, &Asking { address_wait: Some(Duration::ZERO), ..usual.clone() }), "1s"),
            (of(&[], false, &Asking { address_wait: Some(LONGEST), ..usual.clone() }), "dhcp or slaac"),
        ] {
            let said = said.err().unwrap_or_default();
            assert!(said.contains(word) && !said.contains('\n'), "{word}: {said}");
        }
    }

    #[test]
    fn all_addresses_are_waited_for() {
        let address = |text: &str, ready| HostAddress {
            host: 0,
            interface: 0,
            prefix: text.parse().unwrap(),
            origin: Origin::Slaac,
            until: None,
            ready,
            deprecated: false,
        };
        let both = of(&["dhcp", "slaac"], false, &Asking::default()).unwrap();
        let (v4, v6) = (address("10.0.0.9/24", true), address("fd00::9/64", true));
        assert_eq!(both.have(&[]), [false, false]);
        assert_eq!(both.have(&[v4]), [true, false]);
        assert_eq!(both.have(&[v4, v6]), [true, true]);
        assert_eq!(both.have(&[v4, v6, address("fd01::9/64", false)]), [true, false]);
        assert_eq!(both.have(&[address("10.0.0.9/24", false), v6]), [false, true]);
        assert_eq!(of(&["slaac"], false, &Asking::default()).unwrap().have(&[v6]), [true, true]);
    }

    #[test]
    fn a_machine_has_one_secret() {
        let directory = std::env::temp_dir().join(format!("flowlane-identity-{}", std::process::id()));
        std::fs::write(&directory, "0123456789abcdef0123456789abcdef\n").unwrap();
        let (one, again) = (secret(&directory).unwrap(), secret(&directory).unwrap());
        std::fs::write(&directory, "0123456789abcdef0123456789abcdee\n").unwrap();
        let other = secret(&directory).unwrap();
        std::fs::remove_file(&directory).unwrap();
        assert_eq!(one, again);
        assert_ne!(one, other);
        assert_ne!(secret(&directory).unwrap(), secret(&directory).unwrap(), "without one: a random one");
    }
}
