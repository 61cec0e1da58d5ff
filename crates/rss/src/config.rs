//! Which fields go into the hash, and when a card's hash may be used.
//!
//! Card and stack must agree on the fields, or flows are split. By default UDP is hashed over addresses alone, because fragments have no
//! ports and must reach the lane of the other fragments and of the flow's whole datagrams. TCP, which avoids fragments, is hashed with
//! ports. FreeBSD and most drivers have the same default.

use core::net::IpAddr;

use crate::{Flow, HashType, Protocol};

/// How many fields of a UDP packet are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UdpFields {
    /// The two addresses.
    #[default]
    Two,
    /// Addresses and ports, except for fragments.
    Four,
}

/// The hash types that are switched on.
///
/// A packet gets the type with the most fields that is on and applies to it. With none, it is not hashed and its type
/// is [`HashType::None`]. The `Ex` types are never computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashConfig {
    /// Addresses of any IPv4 packet.
    pub ipv4: bool,
    /// Addresses and ports of TCP over IPv4.
    pub tcp_ipv4: bool,
    /// Addresses and ports of UDP over IPv4.
    pub udp_ipv4: bool,
    /// Addresses of any IPv6 packet.
    pub ipv6: bool,
    /// Addresses and ports of TCP over IPv6.
    pub tcp_ipv6: bool,
    /// Addresses and ports of UDP over IPv6.
    pub udp_ipv6: bool,
}

impl Default for HashConfig {
    /// Everything on but ports of UDP.
    fn default() -> Self {
        Self::with_udp(UdpFields::Two)
    }
}

impl HashConfig {
    /// Everything on, with UDP as given.
    #[must_use]
    pub const fn with_udp(udp: UdpFields) -> Self {
        let four = matches!(udp, UdpFields::Four);
        Self { ipv4: true, tcp_ipv4: true, udp_ipv4: four, ipv6: true, tcp_ipv6: true, udp_ipv6: four }
    }

    /// The type of the hash that this configuration computes for a packet.
    #[must_use]
    #[inline]
    pub fn type_of(&self, flow: &Flow) -> HashType {
        let whole = !flow.fragment;
        match (flow.src, flow.dst) {
            (IpAddr::V4(_), IpAddr::V4(_)) => match flow.protocol {
                Protocol::TCP if whole && self.tcp_ipv4 => HashType::TcpIpv4,
                Protocol::UDP if whole && self.udp_ipv4 => HashType::UdpIpv4,
                _ if self.ipv4 => HashType::Ipv4,
                _ => HashType::None,
            },
            (IpAddr::V6(_), IpAddr::V6(_)) => match flow.protocol {
                Protocol::TCP if whole && self.tcp_ipv6 => HashType::TcpIpv6,
                Protocol::UDP if whole && self.udp_ipv6 => HashType::UdpIpv6,
                _ if self.ipv6 => HashType::Ipv6,
                _ => HashType::None,
            },
            _ => HashType::None,
        }
    }

    /// Whether a delivered hash may be used: only if its type is exactly the one that this configuration computes for the packet.
    /// Otherwise compute the hash in software.
    #[must_use]
    #[inline]
    pub fn accepts(&self, delivered: HashType, flow: &Flow) -> bool {
        delivered.has_affinity() && delivered == self.type_of(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(family: u8, protocol: Protocol, fragment: bool) -> Flow {
        let (a, b) = if family == 4 { ("10.0.0.1", "10.0.0.2") } else { ("fd00::1", "fd00::2") };
        let (src, dst) = (a.parse().unwrap(), b.parse().unwrap());
        Flow { src, dst, src_port: 1, dst_port: 2, protocol, fragment }
    }

    /// The one accepted type for each row; every other type must be refused.
    #[test]
    fn reuse_or_recompute() {
        use HashType::*;
        use UdpFields::{Four, Two};
        let icmp = Protocol(1);
        let rows = [
            (4, Protocol::TCP, false, Two, TcpIpv4),
            (4, Protocol::TCP, true, Two, Ipv4),
            (4, Protocol::UDP, false, Two, Ipv4),
            (4, Protocol::UDP, true, Two, Ipv4),
            (4, Protocol::UDP, false, Four, UdpIpv4),
            (4, Protocol::UDP, true, Four, Ipv4),
            (4, icmp, false, Four, Ipv4),
            (6, Protocol::TCP, false, Two, TcpIpv6),
            (6, Protocol::TCP, true, Two, Ipv6),
            (6, Protocol::UDP, false, Two, Ipv6),
            (6, Protocol::UDP, false, Four, UdpIpv6),
            (6, Protocol::UDP, true, Four, Ipv6),
            (6, icmp, false, Two, Ipv6),
        ];
        for (family, protocol, fragment, udp, expected) in rows {
            let config = HashConfig::with_udp(udp);
            for delivered in HashType::ALL {
                let accepted = config.accepts(delivered, &flow(family, protocol, fragment));
                assert_eq!(accepted, delivered == expected, "{family} {protocol} {fragment} {delivered}");
            }
        }
    }

    #[test]
    fn types_switched_off() {
        let mut config = HashConfig { tcp_ipv4: false, ..HashConfig::default() };
        assert_eq!(config.type_of(&flow(4, Protocol::TCP, false)), HashType::Ipv4);
        config.ipv4 = false;
        assert_eq!(config.type_of(&flow(4, Protocol::TCP, false)), HashType::None);
        assert!(!config.accepts(HashType::None, &flow(4, Protocol::TCP, false)));
        let mixed = Flow { dst: "::1".parse().unwrap(), ..flow(4, Protocol::TCP, false) };
        assert_eq!(HashConfig::default().type_of(&mixed), HashType::None);
    }
}
