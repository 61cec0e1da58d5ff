//! Which flow does this frame belong to?
//!
//! This file extracts the fields that Receive Side Scaling uses: the two addresses, the protocol, the ports if the packet has them, and
//! whether the packet is a fragment. It runs on the worker that received the frame, for every frame without a hash from the card, so it
//! is written for speed: a plain IPv4 packet with UDP or TCP behind a plain Ethernet header needs one bounds check.
//!
//! Only what keeps reads inside the frame is verified: a packet with a wrong checksum or length still has a flow, goes to that flow's
//! lane, and is dropped there with the right reason. The rules follow FreeBSD's software hash:
//!
//! * An IPv4 packet is a fragment if more fragments follow or its offset is not zero. The ports of a fragment are not
//!   looked at, even in the first one, because the others do not have them.
//! * Over IPv6, extension headers are walked up to [`MAX_EXTENSIONS`]. An atomic fragment (RFC 6946) is looked through;
//!   a real one ends the walk as a fragment. The addresses are those of the fixed header: neither a routing header nor
//!   a home-address option changes them.
//! * Ports exist for TCP and UDP whose whole fixed header is in the frame. Where it is cut short FreeBSD has no hash
//!   at all; here the flow is known by its addresses.
//!
//! Up to two VLAN tags are skipped.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{EtherType, IpProtocol, array_at, be16, ethernet, four, sixteen, tcp, udp};

/// How many extension headers are walked before the flow is known by its addresses only.
pub const MAX_EXTENSIONS: usize = 8;

const AUTHENTICATION: IpProtocol = IpProtocol(51);

/// The two addresses of a packet, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source address.
        src: [u8; 4],
        /// Destination address.
        dst: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// Source address.
        src: [u8; 16],
        /// Destination address.
        dst: [u8; 16],
    },
}

impl Addresses {
    /// The source address.
    #[inline]
    #[must_use]
    pub const fn src(&self) -> IpAddr {
        match *self {
            Addresses::V4 { src: [a, b, c, d], .. } => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            Addresses::V6 { src, .. } => IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(src))),
        }
    }

    /// The destination address.
    #[inline]
    #[must_use]
    pub const fn dst(&self) -> IpAddr {
        match *self {
            Addresses::V4 { dst: [a, b, c, d], .. } => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            Addresses::V6 { dst, .. } => IpAddr::V6(Ipv6Addr::from_bits(u128::from_be_bytes(dst))),
        }
    }

    /// Whether these are IPv6 addresses.
    #[inline]
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        matches!(self, Addresses::V6 { .. })
    }
}

/// The fields of a packet that Receive Side Scaling uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Flow {
    /// Source and destination address.
    pub addresses: Addresses,
    /// Source and destination port: only of TCP and UDP, never of a fragment.
    pub ports: Option<(u16, u16)>,
    /// The transport protocol; for an IPv6 packet whose headers were not walked to the end, the one where the walk
    /// stopped.
    pub protocol: IpProtocol,
    /// A piece of a datagram; its flow is known by its addresses only.
    pub fragment: bool,
    /// Where the IP header starts in the bytes that were classified.
    pub l3_offset: u8,
}

impl Flow {
    /// Whether the packet is IPv6.
    #[inline]
    #[must_use]
    pub const fn is_ipv6(&self) -> bool {
        self.addresses.is_ipv6()
    }
}

/// Kind of a frame for steering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Classified {
    /// An IP packet of this flow.
    Ip(Flow),
    /// Something else, or an IP packet without a whole header: no flow, any lane may have it.
    Other(EtherType),
    /// Not even a whole Ethernet header.
    Short,
}

impl Classified {
    /// The flow, if there is one.
    #[inline]
    #[must_use]
    pub const fn flow(self) -> Option<Flow> {
        match self {
            Classified::Ip(flow) => Some(flow),
            Classified::Other(_) | Classified::Short => None,
        }
    }
}

/// Classifies an Ethernet frame.
#[inline]
#[must_use]
pub fn classify(frame: &[u8]) -> Classified {
    // Ethernet, IPv4 without options, UDP: 14 + 20 + 8 bytes. The type and the first byte of IPv4 say so.
    if let Some(h) = frame.first_chunk::<42>() {
        let plain = be16(h, 12) == EtherType::IPV4.0 && h[14] == 0x45;
        if plain {
            let fragment = is_v4_fragment(be16(h, 20));
            let protocol = IpProtocol(h[23]);
            let ported = protocol == IpProtocol::UDP
                || (protocol == IpProtocol::TCP && frame.len() >= 34 + tcp::HEADER_LEN);
            return Classified::Ip(Flow {
                addresses: Addresses::V4 { src: four(h, 26), dst: four(h, 30) },
                ports: if ported && !fragment { Some((be16(h, 34), be16(h, 36))) } else { None },
                protocol,
                fragment,
                l3_offset: ethernet::HEADER_LEN as u8,
            });
        }
    }
    classify_unusual(frame)
}

/// Classifies an IP packet: after reassembly, out of a tunnel, or from a link without Ethernet.
#[inline]
#[must_use]
pub fn classify_ip(packet: &[u8]) -> Option<Flow> {
    ip_flow(packet, 0)
}

#[inline(never)]
fn classify_unusual(frame: &[u8]) -> Classified {
    let Some(h) = frame.first_chunk::<{ ethernet::HEADER_LEN }>() else {
        return Classified::Short;
    };
    let mut ethertype = EtherType(be16(h, 12));
    let mut offset = ethernet::HEADER_LEN;
    for _ in 0..2 {
        if !ethertype.is_tag() {
            break;
        }
        let Some(tag) = array_at::<{ ethernet::TAG_LEN }>(frame, offset) else {
            return Classified::Short;
        };
        ethertype = EtherType(be16(tag, 2));
        offset += ethernet::TAG_LEN;
    }
    let wanted = match ethertype {
        EtherType::IPV4 => 4,
        EtherType::IPV6 => 6,
        _ => return Classified::Other(ethertype),
    };
    match frame.get(offset) {
        Some(first) if first >> 4 == wanted => {}
        _ => return Classified::Other(ethertype),
    }
    match ip_flow(frame, offset) {
        Some(flow) => Classified::Ip(flow),
        None => Classified::Other(ethertype),
    }
}

/// The flow of the IP packet at `offset`, by the version in its first byte.
fn ip_flow(bytes: &[u8], offset: usize) -> Option<Flow> {
    match bytes.get(offset)? >> 4 {
        4 => v4_flow(bytes, offset),
        6 => v6_flow(bytes, offset),
        _ => None,
    }
}

fn v4_flow(bytes: &[u8], offset: usize) -> Option<Flow> {
    let h = array_at::<20>(bytes, offset)?;
    let header_len = usize::from(h[0] & 0x0f) * 4;
    if header_len < 20 {
        return None;
    }
    let fragment = is_v4_fragment(be16(h, 6));
    let protocol = IpProtocol(h[9]);
    Some(Flow {
        addresses: Addresses::V4 { src: four(h, 12), dst: four(h, 16) },
        ports: if fragment { None } else { ports(bytes, offset + header_len, protocol) },
        protocol,
        fragment,
        l3_offset: offset as u8,
    })
}

fn v6_flow(bytes: &[u8], offset: usize) -> Option<Flow> {
    let h = array_at::<40>(bytes, offset)?;
    let addresses = Addresses::V6 { src: sixteen(h, 8), dst: sixteen(h, 24) };
    let mut protocol = IpProtocol(h[6]);
    let mut at = offset + 40;
    let mut fragment = false;
    for _ in 0..=MAX_EXTENSIONS {
        let len = match protocol {
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION_OPTIONS => {
                let Some(start) = array_at::<2>(bytes, at) else { break };
                8 + usize::from(start[1]) * 8
            }
            AUTHENTICATION => {
                let Some(start) = array_at::<2>(bytes, at) else { break };
                8 + usize::from(start[1]) * 4
            }
            IpProtocol::FRAGMENT => {
                // Offset in the upper 13 bits, "more" in the lowest; both zero is an atomic fragment.
                let Some(start) = array_at::<8>(bytes, at) else { break };
                fragment = be16(start, 2) & 0xfff9 != 0;
                if fragment {
                    break;
                }
                8
            }
            _ => {
                let ports = ports(bytes, at, protocol);
                return Some(Flow { addresses, ports, protocol, fragment: false, l3_offset: offset as u8 });
            }
        };
        let Some(&next) = bytes.get(at) else { break };
        protocol = IpProtocol(next);
        at += len;
    }
    Some(Flow { addresses, ports: None, protocol, fragment, l3_offset: offset as u8 })
}

#[inline(always)]
const fn is_v4_fragment(flags_and_offset: u16) -> bool {
    flags_and_offset & 0x3fff != 0
}

/// The ports of a TCP or UDP header that is whole.
#[inline]
fn ports(bytes: &[u8], at: usize, protocol: IpProtocol) -> Option<(u16, u16)> {
    let need = match protocol {
        IpProtocol::UDP => udp::HEADER_LEN,
        IpProtocol::TCP => tcp::HEADER_LEN,
        _ => return None,
    };
    if bytes.len() < at + need {
        return None;
    }
    let four = array_at::<4>(bytes, at)?;
    Some((be16(four, 0), be16(four, 2)))
}

#[cfg(test)]
mod tests;
