//! The headers between IPv6 and its payload.
//!
//! RFC 8200 §4 (the headers and the order of their processing), RFC 6946 and RFC 8021 (atomic fragments), RFC 5095 (no
//! source routing any more), RFC 2711 (router alert), RFC 4443 §3.4 (telling the sender what was wrong), RFC 8504 §5.3
//! (a host may limit what it walks).
//!
//! A host goes through the chain once, in order, and stops at the payload, at a fragment that has to be put together
//! first, or at something that makes it give up. What giving up means depends on the offending option or header: drop
//! silently, or drop and tell the sender the exact byte. That is why [`walk`] has its own kind of failure.
//!
//! The walk is bounded: at most [`MAX_HEADERS`] headers and never past the payload. Offsets count from the first byte of
//! the IPv6 header, which is what a Parameter Problem message wants as its pointer.

use super::{IpProtocol, Malformed, array_at, be16, be32, room};

/// The most extension headers that are walked.
pub const MAX_HEADERS: usize = 8;
/// Length of the fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// Length of a hop-by-hop header with nothing but a router alert.
pub const ROUTER_ALERT_LEN: usize = 8;

/// Parameter Problem: a header field has an erroneous value.
pub const ERRONEOUS_FIELD: u8 = 0;
/// Parameter Problem: the next header is not known.
pub const UNKNOWN_NEXT_HEADER: u8 = 1;
/// Parameter Problem: an option is not known.
pub const UNKNOWN_OPTION: u8 = 2;

const OPTION_PAD1: u8 = 0;
const OPTION_PADN: u8 = 1;
const OPTION_ROUTER_ALERT: u8 = 5;

/// A fragment header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Fragment {
    /// What the fragmented part starts with.
    pub next_header: IpProtocol,
    /// Where this fragment's payload lies in the fragmented part, in bytes: a multiple of eight.
    pub offset: u16,
    /// This is not the last fragment.
    pub more: bool,
    /// Names the datagram that the fragment belongs to.
    pub identification: u32,
}

impl Ipv6Fragment {
    #[inline]
    fn read(h: &[u8; FRAGMENT_HEADER_LEN]) -> Ipv6Fragment {
        let field = be16(h, 2);
        Ipv6Fragment {
            next_header: IpProtocol(h[0]),
            offset: field & 0xfff8,
            more: field & 1 != 0,
            identification: be32(h, 4),
        }
    }

    /// Whether the "fragment" is a whole datagram.
    #[inline]
    #[must_use]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Writes the header to the front of `bytes` and returns its length. The lower three bits of the offset are ignored.
    ///
    /// # Panics
    /// If `bytes` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let h = room::<FRAGMENT_HEADER_LEN>(bytes);
        h[0] = self.next_header.0;
        h[1] = 0;
        h[2..4].copy_from_slice(&(self.offset & 0xfff8 | u16::from(self.more)).to_be_bytes());
        h[4..8].copy_from_slice(&self.identification.to_be_bytes());
        FRAGMENT_HEADER_LEN
    }
}

/// Where the walk through the extension headers ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv6Upper {
    /// The payload's protocol; behind a fragment header, what the fragmented part starts with.
    pub protocol: IpProtocol,
    /// Where the payload starts, from the first byte of the IPv6 header.
    pub offset: usize,
    /// Where the byte stands that names the protocol: the pointer of a Parameter Problem if the protocol is not known.
    pub next_header_at: usize,
    /// The fragment header that ended the walk. The payload is then a piece and has to be put together first.
    pub fragment: Option<Ipv6Fragment>,
    /// Where the fragment header starts, whether it ended the walk or was looked through.
    pub fragment_at: Option<usize>,
    /// A fragment header was there but the datagram was whole (RFC 6946).
    pub atomic_fragment: bool,
    /// Router alert is present.
    pub router_alert: bool,
}

/// Why the walk was given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExtensionProblem {
    /// The headers do not make sense; drop the packet.
    Malformed(Malformed),
    /// An option that is not known demands that the packet be dropped silently (action 01).
    Discard,
    /// Drop the packet and send an ICMPv6 Parameter Problem.
    Report {
        /// The message's code: [`ERRONEOUS_FIELD`], [`UNKNOWN_NEXT_HEADER`] or [`UNKNOWN_OPTION`].
        code: u8,
        /// The offending byte, from the first byte of the IPv6 header.
        pointer: u32,
        /// Send it although the packet was for a multicast group (action 10).
        even_if_multicast: bool,
    },
}

impl From<Malformed> for ExtensionProblem {
    #[inline]
    fn from(reason: Malformed) -> ExtensionProblem {
        ExtensionProblem::Malformed(reason)
    }
}

/// Walks the extension headers of a packet whose fixed header named `first` as the next.
///
/// `packet` starts with the IPv6 header and ends with its payload, without padding.
///
/// # Errors
/// What to do with the packet instead; see [`ExtensionProblem`].
#[inline]
pub fn walk(packet: &[u8], first: IpProtocol) -> Result<Ipv6Upper, ExtensionProblem> {
    let start = Ipv6Upper {
        protocol: first,
        offset: super::ipv6::HEADER_LEN,
        next_header_at: 6,
        fragment: None,
        fragment_at: None,
        atomic_fragment: false,
        router_alert: false,
    };
    if matches!(first, IpProtocol::UDP | IpProtocol::TCP | IpProtocol::ICMPV6) {
        return Ok(start);
    }
    // Fragments of plain packets: one look, without going round the loop.
    if first == IpProtocol::FRAGMENT {
        if let Some(h) = array_at::<FRAGMENT_HEADER_LEN>(packet, super::ipv6::HEADER_LEN) {
            let fragment = Ipv6Fragment::read(h);
            if !fragment.is_atomic() {
                return Ok(Ipv6Upper {
                    protocol: fragment.next_header,
                    offset: super::ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN,
                    next_header_at: super::ipv6::HEADER_LEN,
                    fragment: Some(fragment),
                    fragment_at: Some(super::ipv6::HEADER_LEN),
                    atomic_fragment: false,
                    router_alert: false,
                });
            }
        }
    }
    resume(packet, start)
}

/// Continues a walk from where `from` stands: after reassembly, with the fragment taken away.
///
/// # Errors
/// As [`walk`].
pub fn resume(packet: &[u8], from: Ipv6Upper) -> Result<Ipv6Upper, ExtensionProblem> {
    let mut at = from;
    for _ in 0..=MAX_HEADERS {
        let len = match at.protocol {
            IpProtocol::HOP_BY_HOP => {
                if at.next_header_at != 6 {
                    // It may only come first (§4.1); elsewhere it is not a next header that we know.
                    return Err(report(UNKNOWN_NEXT_HEADER, at.next_header_at));
                }
                options(packet, &mut at)?
            }
            IpProtocol::DESTINATION_OPTIONS => options(packet, &mut at)?,
            IpProtocol::ROUTING => routing(packet, at.offset)?,
            IpProtocol::FRAGMENT => {
                let h = array_at::<FRAGMENT_HEADER_LEN>(packet, at.offset)
                    .ok_or(Malformed::Ipv6ExtensionHeader)?;
                let fragment = Ipv6Fragment::read(h);
                at.fragment_at = Some(at.offset);
                if !fragment.is_atomic() {
                    at.next_header_at = at.offset;
                    at.offset += FRAGMENT_HEADER_LEN;
                    at.protocol = fragment.next_header;
                    at.fragment = Some(fragment);
                    return Ok(at);
                }
                at.atomic_fragment = true;
                FRAGMENT_HEADER_LEN
            }
            _ => return Ok(at),
        };
        let Some(&next) = packet.get(at.offset) else {
            return Err(Malformed::Ipv6ExtensionHeader.into());
        };
        at.next_header_at = at.offset;
        at.offset += len;
        at.protocol = IpProtocol(next);
    }
    Err(Malformed::Ipv6TooManyHeaders.into())
}

/// A hop-by-hop header with a router alert for multicast listener discovery, as those messages must carry
/// (RFC 2711 §2.1, RFC 3810 §5).
#[inline]
#[must_use]
pub const fn router_alert(next: IpProtocol) -> [u8; ROUTER_ALERT_LEN] {
    [next.0, 0, OPTION_ROUTER_ALERT, 2, 0, 0, OPTION_PADN, 0]
}

const fn report(code: u8, pointer: usize) -> ExtensionProblem {
    ExtensionProblem::Report { code, pointer: pointer as u32, even_if_multicast: false }
}

/// A routing header that is used up is skipped; one that is not would need a router (§4.4, RFC 5095).
fn routing(packet: &[u8], offset: usize) -> Result<usize, ExtensionProblem> {
    let h = array_at::<8>(packet, offset).ok_or(Malformed::Ipv6ExtensionHeader)?;
    let len = 8 + usize::from(h[1]) * 8;
    if packet.len() < offset + len {
        return Err(Malformed::Ipv6ExtensionHeader.into());
    }
    if h[3] == 0 { Ok(len) } else { Err(report(ERRONEOUS_FIELD, offset + 2)) }
}

/// A header made of options (§4.2). Returns its length.
fn options(packet: &[u8], at: &mut Ipv6Upper) -> Result<usize, ExtensionProblem> {
    let h = array_at::<2>(packet, at.offset).ok_or(Malformed::Ipv6ExtensionHeader)?;
    let len = 8 + usize::from(h[1]) * 8;
    let header = packet.get(at.offset..at.offset + len).ok_or(Malformed::Ipv6ExtensionHeader)?;
    let hop_by_hop = at.protocol == IpProtocol::HOP_BY_HOP;
    let mut here = 2;
    while let Some(&kind) = header.get(here) {
        if kind == OPTION_PAD1 {
            here += 1;
            continue;
        }
        let data_len = usize::from(*header.get(here + 1).ok_or(Malformed::Ipv6ExtensionHeader)?);
        if here + 2 + data_len > header.len() {
            return Err(Malformed::Ipv6ExtensionHeader.into());
        }
        match kind {
            OPTION_PADN => {}
            OPTION_ROUTER_ALERT if hop_by_hop => at.router_alert = true,
            // The upper two bits of a kind say what to do if it is not known.
            _ => match kind >> 6 {
                0b00 => {}
                0b01 => return Err(ExtensionProblem::Discard),
                action => {
                    return Err(ExtensionProblem::Report {
                        code: UNKNOWN_OPTION,
                        pointer: (at.offset + here) as u32,
                        even_if_multicast: action == 0b10,
                    });
                }
            },
        }
        here += 2 + data_len;
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UDP: u8 = 17;

    /// A fixed header's worth of zeros with the first next-header field, then the given bytes.
    fn packet(first: IpProtocol, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[6] = first.0;
        packet.extend(rest);
        packet
    }

    fn walked(first: IpProtocol, rest: &[u8]) -> Result<Ipv6Upper, ExtensionProblem> {
        walk(&packet(first, rest), first)
    }

    fn malformed() -> Result<Ipv6Upper, ExtensionProblem> {
        Err(ExtensionProblem::Malformed(Malformed::Ipv6ExtensionHeader))
    }

    #[test]
    fn without_extensions_the_payload_follows() {
        for first in [IpProtocol::UDP, IpProtocol::NO_NEXT, IpProtocol(200)] {
            let upper = walked(first, &[]).unwrap();
            assert_eq!((upper.protocol, upper.offset, upper.next_header_at), (first, 40, 6));
            assert_eq!((upper.fragment, upper.atomic_fragment, upper.router_alert), (None, false, false));
        }
    }

    #[test]
    fn a_long_chain_is_followed_to_its_end() {
        let chain = [
            &[60, 0, 5, 2, 0, 0, 1, 0][..],
            &[43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[60, 0, 0, 0, 0, 0, 0, 0],
            &[UDP, 0, 0x1e, 4, 1, 2, 3, 4],
        ]
        .concat();
        let mut good = walked(IpProtocol::HOP_BY_HOP, &chain);
        assert!(good.is_ok_and(|upper| upper.router_alert));
        good = good.map(|upper| Ipv6Upper { router_alert: false, ..upper });
        assert_eq!(
            good,
            Ok(Ipv6Upper {
                protocol: IpProtocol::UDP,
                offset: 40 + chain.len(),
                next_header_at: 40 + chain.len() - 8,
                fragment: None,
                fragment_at: None,
                atomic_fragment: false,
                router_alert: false
            })
        );
        for cut in 0..chain.len() {
            assert_eq!(walked(IpProtocol::HOP_BY_HOP, &chain[..cut]), malformed(), "{cut}");
        }
    }

    #[test]
    fn fragments_end_the_walk_and_atomic_ones_do_not() {
        let fragment = Ipv6Fragment {
            next_header: IpProtocol::UDP,
            offset: 1448,
            more: true,
            identification: 0xdead_beef,
        };
        let mut bytes = [0; 8];
        fragment.emit(&mut bytes);
        let upper = walked(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!(upper.fragment, Some(fragment));
        assert_eq!((upper.offset, upper.fragment_at, upper.next_header_at), (48, Some(40), 40));
        assert!(!upper.atomic_fragment);
        for cut in 0..8 {
            assert_eq!(walked(IpProtocol::FRAGMENT, &bytes[..cut]), malformed());
        }
        Ipv6Fragment { offset: 0, more: false, ..fragment }.emit(&mut bytes);
        let upper = walked(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!((upper.protocol, upper.offset, upper.fragment), (IpProtocol::UDP, 48, None));
        assert!(upper.atomic_fragment);
    }

    #[test]
    fn after_reassembly_the_walk_goes_on() {
        let bytes = [60, 0, 0, 1, 0, 0, 0, 1, UDP, 0, 1, 4, 0, 0, 0, 0];
        let first = walked(IpProtocol::FRAGMENT, &bytes).unwrap();
        assert_eq!(first.protocol, IpProtocol::DESTINATION_OPTIONS);
        let whole =
            resume(&packet(IpProtocol::FRAGMENT, &bytes), Ipv6Upper { fragment: None, ..first }).unwrap();
        assert_eq!((whole.protocol, whole.offset), (IpProtocol::UDP, 56));
    }

    #[test]
    fn unknown_options_act_as_their_upper_bits_say() {
        let with = |kind| walked(IpProtocol::DESTINATION_OPTIONS, &[UDP, 0, 0, kind, 3, 0, 0, 0]);
        assert!(with(0x3e).is_ok());
        assert_eq!(with(0x7e), Err(ExtensionProblem::Discard));
        for (kind, even_if_multicast) in [(0xbe, true), (0xfe, false)] {
            let want = ExtensionProblem::Report { code: UNKNOWN_OPTION, pointer: 43, even_if_multicast };
            assert_eq!(with(kind), Err(want));
        }
        // Router alert belongs into the hop-by-hop header; elsewhere it is merely skipped.
        let upper = walked(IpProtocol::DESTINATION_OPTIONS, &[UDP, 0, 5, 2, 0, 0, 1, 0]).unwrap();
        assert!(!upper.router_alert);
    }

    #[test]
    fn options_past_their_header_are_refused() {
        for bad in [[UDP, 0, 1, 5, 0, 0, 0, 0], [UDP, 0, 0, 0, 0, 0, 0, 1], [UDP, 1, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(walked(IpProtocol::DESTINATION_OPTIONS, &bad), malformed(), "{bad:?}");
        }
    }

    #[test]
    fn a_source_route_that_is_not_used_up_is_reported() {
        let want = ExtensionProblem::Report { code: ERRONEOUS_FIELD, pointer: 42, even_if_multicast: false };
        assert_eq!(walked(IpProtocol::ROUTING, &[UDP, 0, 0, 1, 0, 0, 0, 0]), Err(want));
    }

    #[test]
    fn hop_by_hop_anywhere_but_first_is_reported() {
        let chain = [0, 0, 0, 0, 0, 0, 0, 0, UDP, 0, 0, 0, 0, 0, 0, 0];
        let want =
            ExtensionProblem::Report { code: UNKNOWN_NEXT_HEADER, pointer: 40, even_if_multicast: false };
        assert_eq!(walked(IpProtocol::DESTINATION_OPTIONS, &chain), Err(want));
        assert_eq!(walked(IpProtocol::HOP_BY_HOP, &chain), Err(want));
    }

    #[test]
    fn the_number_of_headers_is_bounded() {
        let chain = |n: usize| {
            let mut chain = [60, 0, 0, 0, 0, 0, 0, 0].repeat(n);
            chain[(n - 1) * 8] = UDP;
            chain
        };
        assert!(walked(IpProtocol::DESTINATION_OPTIONS, &chain(MAX_HEADERS)).is_ok());
        let want = ExtensionProblem::Malformed(Malformed::Ipv6TooManyHeaders);
        assert_eq!(walked(IpProtocol::DESTINATION_OPTIONS, &chain(MAX_HEADERS + 1)), Err(want));
    }

    #[test]
    fn the_router_alert_we_send_is_seen() {
        let upper = walked(IpProtocol::HOP_BY_HOP, &router_alert(IpProtocol::ICMPV6)).unwrap();
        assert!(upper.router_alert);
        assert_eq!((upper.protocol, upper.offset), (IpProtocol::ICMPV6, 48));
    }

    proptest! {
        #[test]
        fn any_bytes(rest in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..3, Just(60), Just(44), Just(43)], 0..120),
                     first in prop_oneof![Just(0u8), Just(43), Just(44), Just(60), any::<u8>()]) {
            let first = IpProtocol(first);
            let packet = packet(first, &rest);
            match walk(&packet, first) {
                Ok(upper) => {
                    prop_assert!(upper.offset <= packet.len());
                    prop_assert_eq!(packet[upper.next_header_at], upper.protocol.0);
                }
                Err(ExtensionProblem::Report { pointer, .. }) => prop_assert!((pointer as usize) < packet.len()),
                Err(_) => {}
            }
        }
    }
}
