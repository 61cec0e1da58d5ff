//! Packets as general hashes see them: a kind, and the bits of the addresses and ports in a row.
//!
//! A card may follow another rule for each kind of packet: TCP with ports, UDP without, IPv6 by other fields than IPv4. So
//! a general hash is a rule for each of six kinds. All of them get the same bytes, source address, destination address,
//! source port, destination port in network order; a rule that uses no ports gives their bits no weight.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Flow, Protocol};

/// Kinds of packets that a card may hash differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketKind {
    /// IPv4 without ports: fragments, and protocols other than TCP and UDP.
    Ipv4,
    /// TCP over IPv4, whole.
    TcpIpv4,
    /// UDP over IPv4, whole.
    UdpIpv4,
    /// IPv6 without ports.
    Ipv6,
    /// TCP over IPv6, whole.
    TcpIpv6,
    /// UDP over IPv6, whole.
    UdpIpv6,
}

impl PacketKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Ipv4, Self::TcpIpv4, Self::UdpIpv4, Self::Ipv6, Self::TcpIpv6, Self::UdpIpv6];

    /// The kind of a packet; `None` if its addresses are of two families.
    #[must_use]
    #[inline]
    pub fn of(flow: &Flow) -> Option<Self> {
        let ported = (!flow.fragment).then_some(flow.protocol);
        Some(match (flow.src, flow.dst, ported) {
            (IpAddr::V4(_), IpAddr::V4(_), Some(Protocol::TCP)) => Self::TcpIpv4,
            (IpAddr::V4(_), IpAddr::V4(_), Some(Protocol::UDP)) => Self::UdpIpv4,
            (IpAddr::V4(_), IpAddr::V4(_), _) => Self::Ipv4,
            (IpAddr::V6(_), IpAddr::V6(_), Some(Protocol::TCP)) => Self::TcpIpv6,
            (IpAddr::V6(_), IpAddr::V6(_), Some(Protocol::UDP)) => Self::UdpIpv6,
            (IpAddr::V6(_), IpAddr::V6(_), _) => Self::Ipv6,
            _ => return None,
        })
    }

    /// The name, as in `tcp-ipv4`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::TcpIpv4 => "tcp-ipv4",
            Self::UdpIpv4 => "udp-ipv4",
            Self::Ipv6 => "ipv6",
            Self::TcpIpv6 => "tcp-ipv6",
            Self::UdpIpv6 => "udp-ipv6",
        }
    }

    /// Whether it is IPv4.
    #[must_use]
    pub const fn is_ipv4(self) -> bool {
        matches!(self, Self::Ipv4 | Self::TcpIpv4 | Self::UdpIpv4)
    }

    /// Whether such packets have ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        !matches!(self, Self::Ipv4 | Self::Ipv6)
    }

    /// Bytes of an address.
    pub(crate) const fn address(self) -> usize {
        if self.is_ipv4() { 4 } else { 16 }
    }

    /// Bits of addresses and ports: 96 or 288.
    #[must_use]
    pub const fn bits(self) -> usize {
        8 * (2 * self.address() + 4)
    }
}

impl fmt::Display for PacketKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Addresses and ports of one packet, in network order, with zeros behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) kind: PacketKind,
    pub(crate) bytes: [u8; 36],
}

impl Tuple {
    /// Of a packet; ports that the kind does not have count as zero.
    #[inline]
    pub(crate) fn of(flow: &Flow) -> Option<Self> {
        let kind = PacketKind::of(flow)?;
        let mut bytes = [0; 36];
        let n = kind.address();
        for (place, address) in [(0, flow.src), (n, flow.dst)] {
            match address {
                IpAddr::V4(a) => bytes[place..place + 4].copy_from_slice(&a.octets()),
                IpAddr::V6(a) => bytes[place..place + 16].copy_from_slice(&a.octets()),
            }
        }
        if kind.has_ports() {
            bytes[2 * n..2 * n + 2].copy_from_slice(&flow.src_port.to_be_bytes());
            bytes[2 * n + 2..2 * n + 4].copy_from_slice(&flow.dst_port.to_be_bytes());
        }
        Some(Self { kind, bytes })
    }

    /// The bytes that mean something.
    #[inline]
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[..2 * self.kind.address() + 4]
    }

    /// A packet with this tuple. Without ports it is one of the protocol for experiments (253, RFC 3692).
    pub(crate) fn flow(&self) -> Flow {
        let n = self.kind.address();
        let address = |at: usize| -> IpAddr {
            if self.kind.is_ipv4() {
                let four: [u8; 4] = core::array::from_fn(|i| self.bytes[at + i]);
                Ipv4Addr::from(four).into()
            } else {
                let sixteen: [u8; 16] = core::array::from_fn(|i| self.bytes[at + i]);
                Ipv6Addr::from(sixteen).into()
            }
        };
        let port = |at: usize| u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]);
        let protocol = match self.kind {
            PacketKind::TcpIpv4 | PacketKind::TcpIpv6 => Protocol::TCP,
            PacketKind::UdpIpv4 | PacketKind::UdpIpv6 => Protocol::UDP,
            PacketKind::Ipv4 | PacketKind::Ipv6 => Protocol(253),
        };
        Flow {
            src: address(0),
            dst: address(n),
            src_port: port(2 * n),
            dst_port: port(2 * n + 2),
            protocol,
            fragment: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn flows_there_and_back() {
        let mut random = Random::new(1);
        for kind in PacketKind::ALL {
            let mut bytes = random.bytes::<36>();
            bytes[kind.bits() / 8..].fill(0);
            if !kind.has_ports() {
                bytes[2 * kind.address()..].fill(0);
            }
            let tuple = Tuple { kind, bytes };
            assert_eq!(Tuple::of(&tuple.flow()), Some(tuple));
        }
    }

    #[test]
    fn fragments_have_no_ports() {
        let flow = Flow::new("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap(), Protocol::TCP);
        assert_eq!(PacketKind::of(&flow), Some(PacketKind::TcpIpv4));
        let piece = Flow { fragment: true, ..flow };
        assert_eq!(PacketKind::of(&piece), Some(PacketKind::Ipv4));
        assert_eq!(Tuple::of(&piece).unwrap().bytes[8..], [0; 28]);
        assert_eq!(PacketKind::of(&Flow { dst: "::1".parse().unwrap(), ..flow }), None);
    }
}
