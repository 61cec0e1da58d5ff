//! The IPv4 header.
//!
//! RFC 791 (the header), RFC 1122 §3.2 (what a host must do with it), RFC 2474 and RFC 3168 (the byte once called type
//! of service), RFC 2113 (router alert), RFC 6274 and RFC 7126 (which options to distrust).
//!
//! ```text
//!    0       4       8               16    19                      31
//!   |version| ihl   | dscp      |ecn| total length                  |
//!   | identification                | 0 DF MF | fragment offset / 8 |
//!   | ttl           | protocol      | header checksum               |
//!   | source address                                                |
//!   | destination address                                           |
//!   | options, padded to four bytes                                 |
//! ```
//!
//! Options are walked, so that an impossible one is found, and otherwise skipped; two of them matter to a host and are
//! reported as flags. A header without options, which is nearly every one, takes the fast path.
//!
//! What a fragment means as part of a datagram (an offset past the end, a middle that is not a multiple of eight) is
//! for reassembly to judge.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::{IpProtocol, Malformed, Sum, be16, four, room};

/// Length of the header without options.
pub const HEADER_LEN: usize = 20;
/// Length of the longest possible header.
pub const MAX_HEADER_LEN: usize = 60;
/// The longest possible packet.
pub const MAX_PACKET_LEN: usize = 65_535;

const FLAG_DF: u16 = 0x4000;
const FLAG_MF: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;
const OPTION_ROUTER_ALERT: u8 = 148;
/// RFC 2113: "routers shall examine this packet".
const ROUTER_ALERT: [u8; 4] = [OPTION_ROUTER_ALERT, 4, 0, 0];

/// The options that matter to a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ipv4Options {
    /// A loose or strict source route is present. Read only.
    pub source_route: bool,
    /// Router alert is present; the only option that is ever emitted (IGMP needs it, RFC 3376 §4).
    pub router_alert: bool,
}

/// The header of an IPv4 packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ipv4Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Time to live.
    pub ttl: u8,
    /// DSCP (upper six bits) and ECN (lower two).
    pub tos: u8,
    /// Names the datagram that a fragment belongs to.
    pub identification: u16,
    /// Routers may not fragment this packet.
    pub dont_fragment: bool,
    /// This is not the last fragment.
    pub more_fragments: bool,
    /// Where this fragment's payload lies in the datagram, in bytes: a multiple of eight up to 65528.
    pub fragment_offset: u16,
    /// Length of what follows the header.
    pub payload_len: u16,
    /// The options seen, or to be written.
    pub options: Ipv4Options,
}

impl Ipv4Header {
    /// Reads a header and verifies its checksum. The payload ends where the header says, so padding is cut off.
    ///
    /// # Errors
    /// Any of the reasons that start with `Ipv4`.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(Ipv4Header, Range<usize>), Malformed> {
        Ipv4Header::read::<true>(packet, packet.len())
    }

    /// Reads a header whose checksum the link has already verified, or that has none yet.
    ///
    /// # Errors
    /// As [`parse`](Ipv4Header::parse), without the checksum.
    #[inline]
    pub fn parse_trusted(packet: &[u8]) -> Result<(Ipv4Header, Range<usize>), Malformed> {
        Ipv4Header::read::<false>(packet, packet.len())
    }

    /// As [`parse`](Ipv4Header::parse), for a packet of `whole` bytes of which `first` is only the beginning: the
    /// range of the payload may end beyond it.
    ///
    /// # Errors
    /// As [`parse`](Ipv4Header::parse).
    #[inline]
    pub fn parse_first(first: &[u8], whole: usize) -> Result<(Ipv4Header, Range<usize>), Malformed> {
        Ipv4Header::read::<true>(first, whole)
    }

    /// As [`parse_trusted`](Ipv4Header::parse_trusted), for a packet of `whole` bytes of which `first` is only the
    /// beginning.
    ///
    /// # Errors
    /// As [`parse_trusted`](Ipv4Header::parse_trusted).
    #[inline]
    pub fn parse_first_trusted(first: &[u8], whole: usize) -> Result<(Ipv4Header, Range<usize>), Malformed> {
        Ipv4Header::read::<false>(first, whole)
    }

    #[inline(always)]
    fn read<const VERIFY: bool>(
        packet: &[u8],
        whole: usize,
    ) -> Result<(Ipv4Header, Range<usize>), Malformed> {
        let Some(h) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::Ipv4Short);
        };
        let mut options = Ipv4Options::default();
        let mut header_len = HEADER_LEN;
        if h[0] == 0x45 {
            if VERIFY && !Sum::EMPTY.add_header(h).is_intact() {
                return Err(Malformed::Ipv4Checksum);
            }
        } else {
            (header_len, options) = read_unusual(packet, h[0], VERIFY)?;
        }
        let total = usize::from(be16(h, 2));
        if total < header_len || total > whole {
            return Err(Malformed::Ipv4TotalLength);
        }
        let fragment = be16(h, 6);
        let header = Ipv4Header {
            src: four(h, 12).into(),
            dst: four(h, 16).into(),
            protocol: IpProtocol(h[9]),
            ttl: h[8],
            tos: h[1],
            identification: be16(h, 4),
            dont_fragment: fragment & FLAG_DF != 0,
            more_fragments: fragment & FLAG_MF != 0,
            fragment_offset: (fragment & OFFSET_MASK) << 3,
            payload_len: (total - header_len) as u16,
            options,
        };
        Ok((header, header_len..total))
    }

    /// Length on the wire when emitted: 20, or 24 with router alert.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.options.router_alert { HEADER_LEN + ROUTER_ALERT.len() } else { HEADER_LEN }
    }

    /// Whether this is a piece of a datagram and not a whole one.
    #[inline]
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The sum over the pseudo-header of a transport protocol whose header and data are `len` bytes.
    #[inline]
    #[must_use]
    pub fn pseudo_sum(&self, len: u16) -> Sum {
        Sum::pseudo_v4(self.src, self.dst, self.protocol, len)
    }

    /// Writes the header with its checksum to the front of `packet` and returns its length. A fragment offset that is
    /// not a multiple of eight is rounded down; a payload beyond the longest packet is the caller's mistake and wraps.
    ///
    /// # Panics
    /// If `packet` is shorter than [`header_len`](Ipv4Header::header_len).
    #[inline(always)]
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        if self.options.router_alert {
            return self.emit_with_alert(packet);
        }
        self.write(room::<HEADER_LEN>(packet), 0x45, HEADER_LEN as u16, 0);
        HEADER_LEN
    }

    #[cold]
    fn emit_with_alert(&self, packet: &mut [u8]) -> usize {
        const LEN: usize = HEADER_LEN + ROUTER_ALERT.len();
        let h = room::<LEN>(packet);
        self.write(h, 0x46, LEN as u16, u32::from_be_bytes(ROUTER_ALERT));
        h[HEADER_LEN..].copy_from_slice(&ROUTER_ALERT);
        LEN
    }

    /// The fixed part. The checksum, which also covers `options`, is computed from the numbers on their way out: reading
    /// back what was written a moment ago in pieces of another size would stall the processor.
    #[inline(always)]
    fn write<const N: usize>(&self, h: &mut [u8; N], version_ihl: u8, header_len: u16, options: u32) {
        let mut fragment = self.fragment_offset >> 3;
        if self.dont_fragment {
            fragment |= FLAG_DF;
        }
        if self.more_fragments {
            fragment |= FLAG_MF;
        }
        let total = self.payload_len.wrapping_add(header_len);
        let first = u32::from(version_ihl) << 24 | u32::from(self.tos) << 16 | u32::from(total);
        let second = u32::from(self.identification) << 16 | u32::from(fragment);
        let third = u32::from(self.ttl) << 24 | u32::from(self.protocol.0) << 16;
        let (src, dst) = (u32::from(self.src), u32::from(self.dst));
        let sum = [first, second, third, src, dst, options].iter().map(|word| u64::from(*word)).sum::<u64>();
        let third = third | u32::from(finish_host_order(sum));
        h[0..4].copy_from_slice(&first.to_be_bytes());
        h[4..8].copy_from_slice(&second.to_be_bytes());
        h[8..12].copy_from_slice(&third.to_be_bytes());
        h[12..16].copy_from_slice(&src.to_be_bytes());
        h[16..20].copy_from_slice(&dst.to_be_bytes());
    }
}

/// The checksum of 32-bit words that were added up in host order.
#[inline(always)]
fn finish_host_order(sum: u64) -> u16 {
    // Both halves added to each other, in both places, as in `Sum`.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    !((sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16)
}

/// Everything but a plain 20-byte header: other versions, impossible lengths, options.
#[cold]
fn read_unusual(packet: &[u8], version_ihl: u8, verify: bool) -> Result<(usize, Ipv4Options), Malformed> {
    if version_ihl >> 4 != 4 {
        return Err(Malformed::Ipv4Version);
    }
    let header_len = usize::from(version_ihl & 0x0f) * 4;
    if header_len < HEADER_LEN {
        return Err(Malformed::Ipv4HeaderLength);
    }
    let Some(header) = packet.get(..header_len) else {
        return Err(Malformed::Ipv4HeaderLength);
    };
    if verify && !Sum::EMPTY.add_bytes(header).is_intact() {
        return Err(Malformed::Ipv4Checksum);
    }
    Ok((header_len, read_options(&header[HEADER_LEN..])?))
}

fn read_options(bytes: &[u8]) -> Result<Ipv4Options, Malformed> {
    let mut seen = Ipv4Options::default();
    let mut rest = bytes;
    while let Some((&kind, after)) = rest.split_first() {
        match kind {
            OPTION_END => break,
            OPTION_NOP => {
                rest = after;
                continue;
            }
            OPTION_LOOSE_SOURCE_ROUTE | OPTION_STRICT_SOURCE_ROUTE => seen.source_route = true,
            OPTION_ROUTER_ALERT => seen.router_alert = true,
            _ => {}
        }
        let len = usize::from(*after.first().ok_or(Malformed::Ipv4BadOption)?);
        if len < 2 {
            return Err(Malformed::Ipv4BadOption);
        }
        rest = rest.get(len..).ok_or(Malformed::Ipv4BadOption)?;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Ipv4Header {
        Ipv4Header {
            src: Ipv4Addr::new(10, 11, 2, 1),
            dst: Ipv4Addr::new(10, 11, 2, 2),
            protocol: IpProtocol::UDP,
            ttl: 64,
            tos: 0,
            identification: 0x1234,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            payload_len: 30,
            options: Ipv4Options::default(),
        }
    }

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 50];
        header().emit(&mut packet);
        packet
    }

    /// A packet with the given option bytes and a right checksum.
    fn with_options(options: &[u8]) -> Vec<u8> {
        let header_len = HEADER_LEN + options.len();
        let mut packet = packet();
        packet.splice(20..20, options.iter().copied());
        packet[0] = 0x40 | (header_len / 4) as u8;
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[10..12].fill(0);
        let sum = super::super::checksum::checksum(&packet[..header_len]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let packet = packet();
        for cut in 0..packet.len() {
            let want = if cut < 20 { Malformed::Ipv4Short } else { Malformed::Ipv4TotalLength };
            assert_eq!(Ipv4Header::parse(&packet[..cut]), Err(want), "{cut}");
        }
        assert_eq!(Ipv4Header::parse(&packet), Ok((header(), 20..50)));
    }

    #[test]
    fn padding_is_cut_off() {
        let mut packet = packet();
        packet.resize(64, 0);
        assert_eq!(Ipv4Header::parse(&packet), Ok((header(), 20..50)));
    }

    #[test]
    fn wrong_fields_have_their_own_reasons() {
        for (at, value, want) in [
            (0, 0x65, Malformed::Ipv4Version),
            (0, 0x44, Malformed::Ipv4HeaderLength),
            (0, 0x4f, Malformed::Ipv4HeaderLength),
            (3, 19, Malformed::Ipv4Checksum),
            (8, 63, Malformed::Ipv4Checksum),
        ] {
            let mut packet = packet();
            packet[at] = value;
            assert_eq!(Ipv4Header::parse(&packet), Err(want), "byte {at}");
        }
        let mut packet = packet();
        packet[2..4].copy_from_slice(&19u16.to_be_bytes());
        assert_eq!(Ipv4Header::parse_trusted(&packet), Err(Malformed::Ipv4TotalLength));
        packet[2..4].copy_from_slice(&20u16.to_be_bytes());
        assert_eq!(Ipv4Header::parse_trusted(&packet).map(|(_, payload)| payload), Ok(20..20));
    }

    #[test]
    fn options_are_walked_and_reported() {
        for (options, seen) in [
            (&[1, 1, 1, 0][..], Ipv4Options::default()),
            (&[148, 4, 0, 0], Ipv4Options { router_alert: true, source_route: false }),
            (&[131, 7, 4, 1, 2, 3, 4, 0], Ipv4Options { router_alert: false, source_route: true }),
            (&[1, 137, 3, 4], Ipv4Options { router_alert: false, source_route: true }),
            (&[200, 2, 0, 99], Ipv4Options::default()),
        ] {
            let packet = with_options(options);
            let (header, payload) = Ipv4Header::parse(&packet).unwrap();
            assert_eq!(header.options, seen, "{options:?}");
            assert_eq!(payload, 20 + options.len()..packet.len());
        }
        for bad in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7], [148, 255, 0, 0]] {
            assert_eq!(Ipv4Header::parse(&with_options(&bad)), Err(Malformed::Ipv4BadOption), "{bad:?}");
        }
        let mut packet = with_options(&[1, 1, 1, 0]);
        packet[20] = 2;
        assert_eq!(Ipv4Header::parse(&packet), Err(Malformed::Ipv4Checksum));
    }

    #[test]
    fn router_alert_goes_out_and_comes_back() {
        let header = Ipv4Header {
            options: Ipv4Options { router_alert: true, source_route: false },
            protocol: IpProtocol::IGMP,
            ..header()
        };
        let mut packet = [0; 54];
        assert_eq!(header.emit(&mut packet), 24);
        assert_eq!(Ipv4Header::parse(&packet), Ok((header, 24..54)));
    }

    fn any_header() -> impl Strategy<Value = Ipv4Header> {
        (any::<([u8; 4], [u8; 4], u8, u8, u8, u16)>(), any::<(bool, bool, bool)>(), 0u16..8192, 0u16..200)
            .prop_map(
                |((src, dst, protocol, ttl, tos, identification), (df, mf, alert), offset, payload_len)| {
                    Ipv4Header {
                        src: src.into(),
                        dst: dst.into(),
                        protocol: IpProtocol(protocol),
                        ttl,
                        tos,
                        identification,
                        dont_fragment: df,
                        more_fragments: mf,
                        fragment_offset: offset * 8,
                        payload_len,
                        options: Ipv4Options { router_alert: alert, source_route: false },
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn round_trip(header in any_header()) {
            let mut packet = vec![0xa5; 300];
            let len = header.emit(&mut packet);
            prop_assert_eq!(len, header.header_len());
            let payload = len..len + usize::from(header.payload_len);
            prop_assert_eq!(Ipv4Header::parse(&packet), Ok((header, payload)));
            prop_assert_eq!(header.is_fragment(), header.more_fragments || header.fragment_offset > 0);
        }

        #[test]
        fn any_bytes(mut packet in proptest::collection::vec(any::<u8>(), 0..80), ihl in 0u8..16) {
            if let Some(first) = packet.first_mut() {
                *first = 0x40 | ihl;
            }
            let _ = Ipv4Header::parse(&packet);
            if let Ok((header, payload)) = Ipv4Header::parse_trusted(&packet) {
                prop_assert!(payload.start >= 20 && payload.end <= packet.len());
                prop_assert_eq!(payload.len(), usize::from(header.payload_len));
            }
        }

        #[test]
        fn a_flipped_bit_is_noticed(header in any_header(), bit in 0usize..160) {
            let mut packet = vec![0; 300];
            header.emit(&mut packet);
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Ipv4Header::parse(&packet).is_err());
        }
    }
}
