//! `--so_flags`: `LOCAL_IP/PREFIX|GATEWAY|REMOTE_NET/PREFIX`.
//!
//! packetdrill does not tell the library which addresses it was started with, so they are given once more here. Without flags
//! the addresses are packetdrill's own defaults, of both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_stack::address::Prefix;

/// The network around the lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Our addresses, each with its network.
    pub local: Vec<Prefix>,
    /// Routers: everything that is not on our network goes to the one of its family.
    pub gateways: Vec<IpAddr>,
    /// MTU, bytes of IP packet.
    pub mtu: u16,
    /// `net.ipv4.tcp_ecn` in place of the namespace's: not every kernel has the numbers of accurate ECN.
    pub ecn: Option<u64>,
}

/// packetdrill's defaults.
const LOCAL_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0));
const LOCAL_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0, 0, 0, 0, 0));
const GATEWAY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1));
const GATEWAY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd3d, 0xfa7b, 0xd17d, 0x8888, 0, 0, 0, 0));
/// Narrower paths are of no use to TCP, and IPv4 must carry 68 (RFC 791).
const LEAST_MTU: u16 = 68;

impl Default for Network {
    fn default() -> Self {
        let local = [Prefix::new(LOCAL_V4, 16), Prefix::new(LOCAL_V6, 48)];
        Self {
            local: local.into_iter().flatten().collect(),
            gateways: vec![GATEWAY_V4, GATEWAY_V6],
            mtu: 1500,
            ecn: None,
        }
    }
}

impl Network {
    /// Reads the flags. After the three parts, `mtu=N` and `ecn=N` may follow. An address of the other family stays what packetdrill's
    /// default is.
    ///
    /// # Errors
    /// One line that says what is wrong and what was expected.
    pub fn parse(flags: Option<&str>) -> Result<Self, String> {
        let mut network = Self::default();
        let Some(text) = flags.filter(|text| !text.trim().is_empty()) else { return Ok(network) };
        let mut parts = text.split('|').map(str::trim);
        let wrong = |what: &str, why: String| {
            format!(
                "--so_flags={text}: {what}: {why}; expected LOCAL_IP/PREFIX|GATEWAY|REMOTE_NET/PREFIX, \
                 as in 192.168.0.1/16|192.168.0.2|192.0.2.0/24"
            )
        };
        let local: Prefix = parts
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(|e: flowlane_stack::address::PrefixError| wrong("local address", e.to_string()))?;
        let gateway: IpAddr = match parts.next() {
            Some(part) => part.parse().map_err(|_| wrong("gateway", format!("'{part}' is no address")))?,
            None => return Err(wrong("gateway", "missing".into())),
        };
        if gateway.is_ipv4() != local.address().is_ipv4() {
            return Err(wrong("gateway", "not of the local address's family".into()));
        }
        for part in parts {
            if let Some(mtu) = part.strip_prefix("mtu=") {
                network.mtu = mtu.parse().ok().filter(|mtu| *mtu >= LEAST_MTU).ok_or_else(|| {
                    wrong("mtu", format!("'{mtu}' is not a number from {LEAST_MTU} to 65535"))
                })?;
            } else if let Some(ecn) = part.strip_prefix("ecn=") {
                let number = ecn.parse().ok().filter(|number| *number <= 5);
                network.ecn =
                    Some(number.ok_or_else(|| wrong("ecn", format!("'{ecn}' is not a number from 0 to 5")))?);
            } else {
                // Where the peers are: all of them are behind the gateway, so it is only checked.
                let remote: Prefix = part.parse().map_err(|e: flowlane_stack::address::PrefixError| {
                    wrong("remote network", e.to_string())
                })?;
                if remote.address().is_ipv4() != gateway.is_ipv4() {
                    return Err(wrong("remote network", "not of the local address's family".into()));
                }
            }
        }
        network.local.retain(|p| p.address().is_ipv4() != gateway.is_ipv4());
        network.local.insert(0, local);
        network.gateways.retain(|g| g.is_ipv4() != gateway.is_ipv4());
        // packetdrill's own runner names our address as the gateway, or one that is not on our network. Any neighbour will do.
        let neighbour = gateway != local.address() && local.contains(gateway);
        let gateway = if neighbour { gateway } else { beside(local.address()) };
        network.gateways.insert(0, gateway);
        Ok(network)
    }
}

/// The address next to one.
fn beside(address: IpAddr) -> IpAddr {
    let next = |last: u8| if last < 254 { last + 1 } else { last - 1 };
    match address {
        IpAddr::V4(a) => {
            let [a, b, c, d] = a.octets();
            [a, b, c, next(d)].into()
        }
        IpAddr::V6(a) => {
            let mut octets = a.octets();
            octets[15] = next(octets[15]);
            octets.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_and_the_mtu() {
        let n = Network::parse(Some("192.168.5.1/16|192.168.0.2|192.0.2.0/24|mtu=1400|ecn=3")).unwrap();
        assert_eq!(n.local[0], "192.168.5.1/16".parse().unwrap());
        assert_eq!(n.gateways[0], "192.168.0.2".parse::<IpAddr>().unwrap());
        assert_eq!((n.mtu, n.ecn, n.local.len(), n.gateways.len()), (1400, Some(3), 2, 2));
        let n = Network::parse(Some("fd00::1/64|fd00::2|2001:db8::/32")).unwrap();
        assert_eq!(n.local[0], "fd00::1/64".parse().unwrap());
        assert_eq!(n.mtu, 1500);
        let n = Network::parse(Some("192.168.0.1/16|192.168.0.1|192.0.2.0/24")).unwrap();
        assert_eq!(n.gateways[0], "192.168.0.2".parse::<IpAddr>().unwrap(), "not ourselves");
        let n = Network::parse(Some("fd00::1/64|fd00:0:0:8888::1|2001:db8::/32")).unwrap();
        assert_eq!(n.gateways[0], "fd00::2".parse::<IpAddr>().unwrap(), "on our network");
        assert_eq!(Network::parse(None).unwrap(), Network::default());
        assert_eq!(Network::parse(Some(" ")).unwrap(), Network::default());
    }

    #[test]
    fn what_is_wrong_is_said_on_one_line() {
        for (text, word) in [
            ("x/24|192.168.0.2", "local address"),
            ("192.168.0.1/99|192.168.0.2", "local address"),
            ("192.168.0.1/16", "gateway"),
            ("192.168.0.1/16|fd00::1", "gateway"),
            ("192.168.0.1/16|192.168.0.2|nowhere", "remote network"),
            ("192.168.0.1/16|192.168.0.2|fd00::/8", "remote network"),
            ("192.168.0.1/16|192.168.0.2|192.0.2.0/24|mtu=40", "mtu"),
            ("192.168.0.1/16|192.168.0.2|192.0.2.0/24|ecn=6", "ecn"),
        ] {
            let error = Network::parse(Some(text)).unwrap_err();
            assert!(error.contains(word) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
