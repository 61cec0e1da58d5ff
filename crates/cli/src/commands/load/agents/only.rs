//! Where an agent sends at most: whoever may ask it to send may not make it send anywhere.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::ensure;
use flowlane::Prefix;
use flowlane_load::resolve::resolve;

/// Targets that an agent admits: a network, or the addresses of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Only {
    Network(Prefix),
    Host(String),
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match !text.is_empty() && text.chars().all(name) && text.parse::<f64>().is_err() {
            true => Ok(Self::Host(text.to_owned())),
            false => Err(format!("'{text}': a host, an address, or a network as 10.0.0.0/8")),
        }
    }
}

impl Only {
    /// Whether an address is one of them, as the resolver sees it now.
    fn admits(&self, address: IpAddr) -> bool {
        match self {
            Self::Network(network) => network.contains(address),
            Self::Host(name) => resolve(name, 0).is_ok_and(|all| all.iter().any(|a| a.ip() == address)),
        }
    }
}

/// Refuses targets that are not among those admitted; without any of these all are. `follows`: redirects are followed, and where these lead, who
/// answers says.
pub(super) fn check(only: &[Only], targets: &[SocketAddr], follows: bool) -> anyhow::Result<()> {
    // Guard: `!follows` as `true` fails only::tests::only_what_is_admitted
    ensure!(only.is_empty() || !follows, "follows no redirect (its --only)");
    for target in targets.iter().map(SocketAddr::ip) {
        ensure!(
            // Guard: `only.iter().any(|only| only.admits(target))` as `true` fails
            // only::tests::only_what_is_admitted
            only.is_empty() || only.iter().any(|only| only.admits(target)),
            "sends to {target} for nobody (its --only)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_admitted_is_a_target() {
        let only: Vec<Only> = ["10.0.0.0/8", "192.0.2.7", "fd00::/64"].map(|o| o.parse().unwrap()).to_vec();
        let ok = |target: &str| check(&only, &[target.parse().unwrap()], false).is_ok();
        assert!(ok("10.9.9.9:80") && ok("192.0.2.7:1") && ok("[fd00::9]:80"));
        assert!(!ok("192.0.2.8:1") && !ok("[fd01::9]:80") && !ok("127.0.0.1:80"));
        assert!(check(&[], &["127.0.0.1:80".parse().unwrap()], true).is_ok());
        // Who answers would say where it goes on.
        assert!(check(&only, &["10.9.9.9:80".parse().unwrap()], true).is_err());
        let both = ["10.9.9.9:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()];
        assert!(check(&only, &both, false).is_err(), "each of them");
        let host: Only = "localhost".parse().unwrap();
        assert!(check(&[host], &["127.0.0.1:80".parse().unwrap()], false).is_ok());
        for bad in ["", "a b", "10.0.0.0/40", "10", "*"] {
            assert!(bad.parse::<Only>().is_err(), "{bad}");
        }
    }
}
