//! The packet that an ICMP error is about.
//!
//! RFC 792 and RFC 1122 §3.2.2 (IPv4: the header and at least eight bytes), RFC 4443 §2.4 (IPv6: as much as fits), RFC 5927
//! (what to check before believing any of it).
//!
//! An error quotes the start of a packet that we are said to have sent, so source and destination are those of our
//! own packet. The quote is cut off anywhere, and a router may have changed its checksum, length or lifetime; only
//! the addresses, the protocol and the eight bytes behind the header are taken from it. These hold the ports of UDP and
//! TCP, TCP's sequence number, and an echo's identifier.

use core::net::IpAddr;

use super::{IpProtocol, Malformed, SeqNum, array_at, be16, be32, four, ipv4, ipv6, sixteen};

/// What is taken from a quoted packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quote {
    /// The packet's source: an address of ours, if the error is honest.
    pub src: IpAddr,
    /// The packet's destination.
    pub dst: IpAddr,
    /// The packet's transport protocol.
    pub protocol: IpProtocol,
    /// The first eight bytes of the transport header; `None` if the quoted packet was a later fragment.
    pub start: Option<[u8; 8]>,
}

impl Quote {
    /// Reads the IPv4 packet quoted in the payload of an ICMP error.
    ///
    /// # Errors
    /// [`Malformed::IcmpQuote`].
    pub fn parse_v4(payload: &[u8]) -> Result<Quote, Malformed> {
        let Some(h) = payload.first_chunk::<{ ipv4::HEADER_LEN }>() else {
            return Err(Malformed::IcmpQuote);
        };
        let header_len = usize::from(h[0] & 0x0f) * 4;
        if h[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN {
            return Err(Malformed::IcmpQuote);
        }
        let later_fragment = be16(h, 6) & 0x1fff != 0;
        let start = *array_at::<8>(payload, header_len).ok_or(Malformed::IcmpQuote)?;
        Ok(Quote {
            src: four(h, 12).into(),
            dst: four(h, 16).into(),
            protocol: IpProtocol(h[9]),
            start: if later_fragment { None } else { Some(start) },
        })
    }

    /// Reads the IPv6 packet quoted in the payload of an ICMPv6 error, through extension headers that we might have
    /// sent ourselves.
    ///
    /// # Errors
    /// [`Malformed::IcmpQuote`].
    pub fn parse_v6(payload: &[u8]) -> Result<Quote, Malformed> {
        let Some(h) = payload.first_chunk::<{ ipv6::HEADER_LEN }>() else {
            return Err(Malformed::IcmpQuote);
        };
        if h[0] >> 4 != 6 {
            return Err(Malformed::IcmpQuote);
        }
        let mut protocol = IpProtocol(h[6]);
        let mut at = ipv6::HEADER_LEN;
        let mut later_fragment = false;
        for _ in 0..super::ipv6_ext::MAX_HEADERS {
            let (next, len) = match protocol {
                IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS | IpProtocol::ROUTING => {
                    let start = array_at::<2>(payload, at).ok_or(Malformed::IcmpQuote)?;
                    (start[0], 8 + usize::from(start[1]) * 8)
                }
                IpProtocol::FRAGMENT => {
                    let start = array_at::<8>(payload, at).ok_or(Malformed::IcmpQuote)?;
                    later_fragment = be16(start, 2) & 0xfff8 != 0;
                    (start[0], 8)
                }
                _ => break,
            };
            protocol = IpProtocol(next);
            at += len;
            if later_fragment {
                break;
            }
        }
        let start = *array_at::<8>(payload, at).ok_or(Malformed::IcmpQuote)?;
        Ok(Quote {
            src: sixteen(h, 8).into(),
            dst: sixteen(h, 24).into(),
            protocol,
            start: if later_fragment { None } else { Some(start) },
        })
    }

    /// Source and destination port of the quoted packet, if it was TCP or UDP.
    #[inline]
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        match (self.protocol, &self.start) {
            (IpProtocol::TCP | IpProtocol::UDP, Some(start)) => Some((be16(start, 0), be16(start, 2))),
            _ => None,
        }
    }

    /// The sequence number of the quoted packet, if it was TCP.
    #[inline]
    #[must_use]
    pub fn tcp_seq(&self) -> Option<SeqNum> {
        match (self.protocol, &self.start) {
            (IpProtocol::TCP, Some(start)) => Some(SeqNum(be32(start, 4))),
            _ => None,
        }
    }

    /// Identifier and sequence number of the quoted packet, if it was an echo request.
    #[inline]
    #[must_use]
    pub fn echo(&self) -> Option<(u16, u16)> {
        match (self.protocol, &self.start) {
            (IpProtocol::ICMP, Some(start)) if start[0] == 8 => Some((be16(start, 4), be16(start, 6))),
            (IpProtocol::ICMPV6, Some(start)) if start[0] == 128 => Some((be16(start, 4), be16(start, 6))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ipv4Header, Ipv4Options, Ipv6Header};
    use super::*;
    use proptest::prelude::*;

    const START: [u8; 8] = [0x9c, 0x40, 0, 80, 1, 2, 3, 4];

    fn v4(fragment_offset: u16) -> Vec<u8> {
        let mut quote = vec![0; 28];
        let header = Ipv4Header {
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            protocol: IpProtocol::TCP,
            ttl: 1,
            tos: 0,
            identification: 1,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset,
            payload_len: 1460,
            options: Ipv4Options::default(),
        };
        header.emit(&mut quote);
        quote[20..].copy_from_slice(&START);
        quote
    }

    fn v6(next_header: IpProtocol, middle: &[u8]) -> Vec<u8> {
        let mut quote = vec![0; 40];
        let header = Ipv6Header {
            src: core::net::Ipv6Addr::LOCALHOST,
            dst: core::net::Ipv6Addr::UNSPECIFIED,
            next_header,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
            payload_len: 1460,
        };
        header.emit(&mut quote);
        quote.extend(middle);
        quote.extend(START);
        quote
    }

    #[test]
    fn ports_and_sequence_number_are_found() {
        for quote in [
            Quote::parse_v4(&v4(0)).unwrap(),
            Quote::parse_v6(&v6(IpProtocol::TCP, &[])).unwrap(),
            Quote::parse_v6(&v6(IpProtocol::DESTINATION_OPTIONS, &[6, 0, 1, 4, 0, 0, 0, 0])).unwrap(),
            Quote::parse_v6(&v6(IpProtocol::FRAGMENT, &[6, 0, 0, 1, 0, 0, 0, 9])).unwrap(),
        ] {
            assert_eq!(quote.ports(), Some((40_000, 80)));
            assert_eq!(quote.tcp_seq(), Some(SeqNum(0x0102_0304)));
            assert_eq!(quote.echo(), None);
        }
    }

    #[test]
    fn later_fragments_have_no_ports() {
        assert_eq!(Quote::parse_v4(&v4(8)).unwrap().ports(), None);
        let quote = Quote::parse_v6(&v6(IpProtocol::FRAGMENT, &[6, 0, 0, 8, 0, 0, 0, 9])).unwrap();
        assert_eq!((quote.protocol, quote.ports()), (IpProtocol::TCP, None));
    }

    #[test]
    fn echoes_are_known_by_identifier() {
        let quote = |protocol, kind| Quote {
            src: [0; 4].into(),
            dst: [0; 4].into(),
            protocol,
            start: Some([kind, 0, 0, 0, 1, 2, 3, 4]),
        };
        assert_eq!(quote(IpProtocol::ICMP, 8).echo(), Some((0x0102, 0x0304)));
        assert_eq!(quote(IpProtocol::ICMPV6, 128).echo(), Some((0x0102, 0x0304)));
        assert_eq!(quote(IpProtocol::ICMP, 0).echo(), None);
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let quote = v4(0);
        for cut in 0..quote.len() {
            assert_eq!(Quote::parse_v4(&quote[..cut]), Err(Malformed::IcmpQuote));
        }
        let quote = v6(IpProtocol::FRAGMENT, &[6, 0, 0, 1, 0, 0, 0, 9]);
        for cut in 0..quote.len() {
            assert_eq!(Quote::parse_v6(&quote[..cut]), Err(Malformed::IcmpQuote));
        }
        assert_eq!(Quote::parse_v4(&v6(IpProtocol::TCP, &[])), Err(Malformed::IcmpQuote));
        assert_eq!(Quote::parse_v6(&[v4(0), v4(0)].concat()), Err(Malformed::IcmpQuote));
    }

    proptest! {
        #[test]
        fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = (Quote::parse_v4(&bytes), Quote::parse_v6(&bytes));
            if bytes.len() > 6 {
                bytes[0] = 0x60;
                bytes[6] %= 64;
            }
            let _ = Quote::parse_v6(&bytes);
        }
    }
}
