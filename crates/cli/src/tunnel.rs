//! `--tunnel`: the syntax of a tunnel.
//!
//! ```text
//!   vxlan,vni=7,local=10.0.0.1,remote=10.0.0.2,addr=192.168.9.1/24
//! ```
//!
//! The kind comes first, then settings in any order; `addr` may be repeated. Errors within one tunnel are found here; conflicts with
//! the host's other addresses and tunnels are found when the runtime starts.

use std::net::IpAddr;
use std::str::FromStr;

use flowlane::{Prefix, TunnelConfig, TunnelKind};

/// A tunnel of `serve` or `load`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TunnelSpec(pub(crate) TunnelConfig);

/// What is wrong with a tunnel, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadTunnel(String);

impl std::fmt::Display for BadTunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTunnel {}

const KINDS: &str = "ipip, 6in4, 4in6, 6in6, gre, gretap, vxlan or geneve";
const SETTINGS: &str = "local, remote, addr, mtu, ttl, vni, key, port, checksum, no-checksum, ip";

/// Settings parsed so far.
#[derive(Debug, Default)]
struct Settings {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    addresses: Vec<Prefix>,
    mtu: Option<u16>,
    ttl: Option<u8>,
    vni: Option<u32>,
    key: Option<u32>,
    port: Option<u16>,
    checksum: Option<bool>,
    /// Geneve with IP inside.
    ip: bool,
}

impl Settings {
    fn parse(settings: &str) -> Result<Self, BadTunnel> {
        let mut all = Self::default();
        for setting in settings.split(',').filter(|s| !s.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let twice = match name {
                "local" => all.local.replace(number(name, value)?).is_some(),
                "remote" => all.remote.replace(number(name, value)?).is_some(),
                "mtu" => all.mtu.replace(number(name, value)?).is_some(),
                "ttl" => all.ttl.replace(number(name, value)?).is_some(),
                "vni" => all.vni.replace(number(name, value)?).is_some(),
                "key" => all.key.replace(number(name, value)?).is_some(),
                "port" => all.port.replace(number(name, value)?).is_some(),
                "checksum" if value.is_empty() => all.checksum.replace(true).is_some(),
                "no-checksum" if value.is_empty() => all.checksum.replace(false).is_some(),
                "ip" if value.is_empty() => std::mem::replace(&mut all.ip, true),
                "addr" => {
                    all.addresses.push(number(name, value)?);
                    false
                }
                _ => return Err(BadTunnel(format!("'{setting}': a setting is one of {SETTINGS}"))),
            };
            if twice {
                return Err(BadTunnel(format!("{name} is given twice")));
            }
        }
        Ok(all)
    }

    /// Refuses settings that this kind does not have.
    fn only(&self, kind: &str, may: &[&str]) -> Result<(), BadTunnel> {
        let given = [
            ("vni", self.vni.is_some()),
            ("key", self.key.is_some()),
            ("port", self.port.is_some()),
            ("checksum", self.checksum.is_some()),
            ("ip", self.ip),
        ];
        match given.iter().find(|(name, given)| *given && !may.contains(name)) {
            Some((name, _)) => Err(BadTunnel(format!("{name}: {kind} has none"))),
            None => Ok(()),
        }
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, BadTunnel> {
    let what = match name {
        "local" | "remote" => "an address",
        "addr" => "an address with the length of its network, as 192.168.9.1/24",
        _ => "a number that fits",
    };
    value.parse().map_err(|_| BadTunnel(format!("{name}={value}: must be {what}")))
}

impl FromStr for TunnelSpec {
    type Err = BadTunnel;

    fn from_str(text: &str) -> Result<Self, BadTunnel> {
        let (name, settings) = text.split_once(',').unwrap_or((text, ""));
        let s = Settings::parse(settings)?;
        let need = |what: &str| BadTunnel(format!("{what}= is missing"));
        let vni = || s.vni.ok_or_else(|| need("vni"));
        let kind = match name {
            "ipip" | "6in4" | "4in6" | "6in6" => {
                s.only(name, &[])?;
                TunnelKind::IpInIp
            }
            "gre" | "gretap" => {
                s.only(name, &["key", "checksum"])?;
                TunnelKind::Gre { key: s.key, ethernet: name == "gretap" }
            }
            "vxlan" => {
                s.only(name, &["vni", "port", "checksum"])?;
                TunnelKind::Vxlan { vni: vni()?, port: s.port.unwrap_or(4789) }
            }
            "geneve" => {
                s.only(name, &["vni", "port", "checksum", "ip"])?;
                TunnelKind::Geneve { vni: vni()?, port: s.port.unwrap_or(6081), ethernet: !s.ip }
            }
            _ => return Err(BadTunnel(format!("'{name}': a tunnel is {KINDS}"))),
        };
        let local = s.local.ok_or_else(|| need("local"))?;
        let remote = s.remote.ok_or_else(|| need("remote"))?;
        if s.addresses.is_empty() {
            return Err(need("addr"));
        }
        let families = match name {
            "ipip" => Some((true, true)),
            "6in4" => Some((false, true)),
            "4in6" => Some((true, false)),
            "6in6" => Some((false, false)),
            _ => None,
        };
        if let Some((inside_v4, outside_v4)) = families {
            let v = |v4: bool| if v4 { "IPv4" } else { "IPv6" };
            if local.is_ipv4() != outside_v4 || remote.is_ipv4() != outside_v4 {
                return Err(BadTunnel(format!("{name}: local and remote must be {}", v(outside_v4))));
            }
            if let Some(other) = s.addresses.iter().find(|a| a.address().is_ipv4() != inside_v4) {
                return Err(BadTunnel(format!("{name}: addr={other} must be {}", v(inside_v4))));
            }
        }
        if s.ttl == Some(0) {
            return Err(BadTunnel("ttl=0: must be from 1 to 255".into()));
        }
        let mut config = TunnelConfig::new(kind, local, remote);
        config.checksum = s.checksum;
        config.mtu = s.mtu;
        config.hop_limit = s.ttl.unwrap_or(config.hop_limit);
        config.addresses = s.addresses;
        Ok(Self(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TunnelConfig, String> {
        text.parse::<TunnelSpec>().map(|t| t.0).map_err(|e| e.to_string())
    }

    #[test]
    fn tunnels_are_understood() {
        let t =
            parse("vxlan,vni=7,local=10.0.0.1,remote=10.0.0.2,addr=192.168.9.1/24,addr=fd09::1/64").unwrap();
        assert_eq!((t.kind, t.addresses.len(), t.hop_limit), (TunnelKind::vxlan(7), 2, 64));
        let t =
            parse("gre,key=9,checksum,ttl=3,mtu=1400,local=fd00::1,remote=fd00::2,addr=10.9.0.1/24").unwrap();
        assert_eq!(t.kind, TunnelKind::Gre { key: Some(9), ethernet: false });
        assert_eq!((t.checksum, t.hop_limit, t.mtu), (Some(true), 3, Some(1400)));
        let t = parse("geneve,ip,vni=1,port=7000,no-checksum,local=::1,remote=::2,addr=fd09::1/64").unwrap();
        assert_eq!(t.kind, TunnelKind::Geneve { vni: 1, port: 7000, ethernet: false });
        assert!(parse("6in4,local=10.0.0.1,remote=10.0.0.2,addr=fd09::1/64").is_ok());
    }

    #[test]
    fn mistakes_are_named_in_one_line() {
        let ends = "local=10.0.0.1,remote=10.0.0.2";
        for (text, says) in [
            ("", "a tunnel is"),
            ("wireguard,local=10.0.0.1", "a tunnel is"),
            (&format!("vxlan,{ends},addr=10.9.0.1/24"), "vni= is missing"),
            (&format!("vxlan,vni=x,{ends},addr=10.9.0.1/24"), "vni=x"),
            (&format!("ipip,vni=7,{ends},addr=10.9.0.1/24"), "vni: ipip has none"),
            (&format!("gre,ip,{ends},addr=10.9.0.1/24"), "ip: gre has none"),
            (&format!("gre,{ends}"), "addr= is missing"),
            (&format!("gre,{ends},addr=10.9.0.1/33"), "addr=10.9.0.1/33"),
            ("gre,local=10.0.0.1,addr=10.9.0.1/24", "remote= is missing"),
            (&format!("gre,{ends},{ends},addr=10.9.0.1/24"), "local is given twice"),
            (&format!("gre,{ends},fast,addr=10.9.0.1/24"), "'fast'"),
            (&format!("gre,{ends},ttl=0,addr=10.9.0.1/24"), "ttl=0"),
            (&format!("4in6,{ends},addr=10.9.0.1/24"), "local and remote must be IPv6"),
            (&format!("6in4,{ends},addr=10.9.0.1/24"), "must be IPv6"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
