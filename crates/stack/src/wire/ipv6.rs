//! The fixed IPv6 header.
//!
//! RFC 8200 §3 (the header), RFC 6437 (the flow label), RFC 2474 and RFC 3168 (the traffic class).
//!
//! ```text
//!    0       4               12                                     31
//!   |version| traffic class | flow label                            |
//!   | payload length                | next header   | hop limit     |
//!   | source address, 16 bytes                                      |
//!   | destination address, 16 bytes                                 |
//! ```
//!
//! Extension headers are part of the payload here and walked in [`ipv6_ext`](super::ipv6_ext). Jumbograms (RFC 2675)
//! are not supported: their payload length of zero reads as an empty payload.

use core::net::Ipv6Addr;
use core::ops::Range;

use super::{IpProtocol, Malformed, Sum, be16, be32, room, sixteen};

/// Length of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Every link must carry packets of this length (RFC 8200 §5).
pub const MIN_MTU: usize = 1280;

/// The fixed header of an IPv6 packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Header {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// What follows the fixed header: an extension header or the payload's protocol.
    pub next_header: IpProtocol,
    /// Called time to live in IPv4.
    pub hop_limit: u8,
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Twenty bits.
    pub flow_label: u32,
    /// Length of everything after the fixed header.
    pub payload_len: u16,
}

impl Ipv6Header {
    /// Reads a header. The payload ends where the header says, so padding is cut off.
    ///
    /// # Errors
    /// [`Malformed::Ipv6Short`], [`Malformed::Ipv6Version`], [`Malformed::Ipv6PayloadLength`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Ipv6Header, Range<usize>), Malformed> {
        Ipv6Header::parse_first(packet, packet.len())
    }

    /// As [`parse`](Ipv6Header::parse), for a packet of `whole` bytes of which `packet` is only the beginning: the
    /// range of the payload may end beyond it.
    ///
    /// # Errors
    /// As [`parse`](Ipv6Header::parse).
    #[inline]
    pub fn parse_first(packet: &[u8], whole: usize) -> Result<(Ipv6Header, Range<usize>), Malformed> {
        let Some(h) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::Ipv6Short);
        };
        let first = be32(h, 0);
        if first >> 28 != 6 {
            return Err(Malformed::Ipv6Version);
        }
        let header = Ipv6Header {
            src: sixteen(h, 8).into(),
            dst: sixteen(h, 24).into(),
            next_header: IpProtocol(h[6]),
            hop_limit: h[7],
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_len: be16(h, 4),
        };
        let end = HEADER_LEN + usize::from(header.payload_len);
        if end > whole {
            return Err(Malformed::Ipv6PayloadLength);
        }
        Ok((header, HEADER_LEN..end))
    }

    /// The sum over the pseudo-header of a transport protocol whose header and data are `len` bytes. The protocol is a
    /// parameter because extension headers may stand between it and this header.
    #[inline]
    #[must_use]
    pub fn pseudo_sum(&self, protocol: IpProtocol, len: u32) -> Sum {
        Sum::pseudo_v6(self.src, self.dst, protocol, len)
    }

    /// Writes the header to the front of `packet` and returns its length. Bits of the flow label above the twentieth
    /// are ignored.
    ///
    /// # Panics
    /// If `packet` is shorter than 40 bytes.
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(packet);
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        h[0..4].copy_from_slice(&first.to_be_bytes());
        h[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        h[6] = self.next_header.0;
        h[7] = self.hop_limit;
        h[8..24].copy_from_slice(&self.src.octets());
        h[24..40].copy_from_slice(&self.dst.octets());
        HEADER_LEN
    }
}

/// The multicast group that the owner of `address` listens to for neighbour solicitations (RFC 4291 §2.7.1).
#[inline]
#[must_use]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let o = address.octets();
    let low = u16::from_be_bytes([o[14], o[15]]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | o[13] as u16, low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Ipv6Header {
        Ipv6Header {
            src: "2001:db8::1".parse().unwrap(),
            dst: "2001:db8::2".parse().unwrap(),
            next_header: IpProtocol::UDP,
            hop_limit: 64,
            traffic_class: 0xb9,
            flow_label: 0xfedcb,
            payload_len: 8,
        }
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let mut packet = [0; 48];
        header().emit(&mut packet);
        assert_eq!(packet[..4], [0x6b, 0x9f, 0xed, 0xcb]);
        for cut in 0..48 {
            let want = if cut < 40 { Malformed::Ipv6Short } else { Malformed::Ipv6PayloadLength };
            assert_eq!(Ipv6Header::parse(&packet[..cut]), Err(want), "{cut}");
        }
        assert_eq!(Ipv6Header::parse(&packet), Ok((header(), 40..48)));
        packet[0] = 0x4b;
        assert_eq!(Ipv6Header::parse(&packet), Err(Malformed::Ipv6Version));
    }

    #[test]
    fn solicited_node_groups() {
        let group = solicited_node("2001:db8::1:12ab:3456".parse().unwrap());
        assert_eq!(group, "ff02::1:ffab:3456".parse::<Ipv6Addr>().unwrap());
    }

    proptest! {
        #[test]
        fn round_trip(src in any::<u128>(), dst in any::<u128>(), rest in any::<(u8, u8, u8)>(), label in 0u32..1 << 20, len in 0u16..100) {
            let header = Ipv6Header {
                src: Ipv6Addr::from_bits(src),
                dst: Ipv6Addr::from_bits(dst),
                next_header: IpProtocol(rest.0),
                hop_limit: rest.1,
                traffic_class: rest.2,
                flow_label: label,
                payload_len: len,
            };
            let mut packet = [0xa5; 150];
            header.emit(&mut packet);
            prop_assert_eq!(Ipv6Header::parse(&packet), Ok((header, 40..40 + usize::from(len))));
        }

        #[test]
        fn any_bytes(mut packet in proptest::collection::vec(any::<u8>(), 0..80), good in any::<bool>()) {
            if good && packet.len() > 5 {
                packet[0] = 0x60;
                packet[4] = 0;
            }
            if let Ok((header, payload)) = Ipv6Header::parse(&packet) {
                let mut again = [0; 40];
                header.emit(&mut again);
                prop_assert_eq!(&again[..], &packet[..40]);
                prop_assert!(payload.end <= packet.len());
            }
        }
    }
}
