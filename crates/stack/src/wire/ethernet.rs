//! Ethernet II frames and the 802.1Q tag.
//!
//! IEEE 802.3 (the frame), IEEE 802.1Q (the tag), RFC 1112 §6.4 and RFC 2464 §7 (addresses of IP multicast).
//!
//! ```text
//!   0        6        12      14            without tag
//!   | dst    | src    | type  | payload
//!   | dst    | src    | TPID  | TCI | type | payload        one tag: four bytes more
//! ```
//!
//! At most one tag is taken off. In a double-tagged frame (802.1ad) the outer tag is reported with its TPID, and the
//! EtherType that remains is the inner tag's TPID: a stack without a use for it drops the frame by that name, a
//! switch can go on from there. The frame check sequence never reaches us. Frames of IEEE 802.3 length type are
//! recognised ([`EtherType::is_length`]) and nothing more.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use core::str::FromStr;

use super::{Malformed, array_at, be16, room, six};

/// Length of the header without a tag.
pub const HEADER_LEN: usize = 14;
/// Length of one 802.1Q tag.
pub const TAG_LEN: usize = 4;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Everybody on the link.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// No address.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Whether the group bit is set; the broadcast address counts.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// Whether this is the broadcast address.
    #[inline]
    #[must_use]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether a station may own it: neither a group nor zero.
    #[inline]
    #[must_use]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The group address for an IPv4 multicast group: the low 23 bits of it under `01:00:5e` (RFC 1112 §6.4).
    #[inline]
    #[must_use]
    pub const fn for_ipv4_multicast(group: Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address for an IPv6 multicast group: its last four bytes under `33:33` (RFC 2464 §7).
    #[inline]
    #[must_use]
    pub const fn for_ipv6_multicast(group: Ipv6Addr) -> MacAddr {
        let o = group.octets();
        MacAddr([0x33, 0x33, o[12], o[13], o[14], o[15]])
    }

    /// The link-local IPv6 address of an interface with this address (modified EUI-64, RFC 4291 appendix A).
    #[inline]
    #[must_use]
    pub const fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        let (first, last) = (u16::from_be_bytes([a ^ 2, b]), u16::from_be_bytes([e, f]));
        Ipv6Addr::new(0xfe80, 0, 0, 0, first, (c as u16) << 8 | 0xff, 0xfe00 | d as u16, last)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not an Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an Ethernet address is six pairs of hexadecimal digits, such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    /// Six groups of one or two hexadecimal digits, separated by colons or all by hyphens.
    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut groups = text.split(separator);
        let mut mac = [0; 6];
        for byte in &mut mac {
            let group = groups.next().ok_or(MacAddrError)?;
            if group.is_empty() || group.len() > 2 || !group.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *byte = u8::from_str_radix(group, 16).map_err(|_| MacAddrError)?;
        }
        if groups.next().is_some() { Err(MacAddrError) } else { Ok(MacAddr(mac)) }
    }
}

/// Protocol of a frame's payload (IANA "IEEE 802 Numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP (RFC 826).
    pub const ARP: EtherType = EtherType(0x0806);
    /// An Ethernet frame inside a tunnel (RFC 1701).
    pub const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);
    /// An 802.1Q tag follows.
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// An 802.1ad service tag follows.
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);

    /// Whether a VLAN tag follows.
    #[inline]
    #[must_use]
    pub const fn is_tag(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::SERVICE_VLAN)
    }

    /// Whether this is a length of IEEE 802.3 instead of a type.
    #[inline]
    #[must_use]
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            EtherType::IPV4 => "ipv4",
            EtherType::ARP => "arp",
            EtherType::TRANSPARENT_ETHERNET => "ethernet",
            EtherType::VLAN => "802.1q",
            EtherType::IPV6 => "ipv6",
            EtherType::SERVICE_VLAN => "802.1ad",
            EtherType(other) => return write!(f, "ethertype-{other:#06x}"),
        };
        f.write_str(name)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VlanTag {
    /// Which kind of tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub tpid: EtherType,
    /// Priority (3 bits), drop eligibility (1), VLAN identifier (12).
    pub tci: u16,
}

impl VlanTag {
    /// An 802.1Q tag with priority 0; bits of `vid` above the twelfth are ignored.
    #[inline]
    #[must_use]
    pub const fn new(vid: u16) -> VlanTag {
        VlanTag { tpid: EtherType::VLAN, tci: vid & 0x0fff }
    }

    /// The VLAN's number; 0 means the tag carries only a priority.
    #[inline]
    #[must_use]
    pub const fn vid(self) -> u16 {
        self.tci & 0x0fff
    }

    /// The priority code point.
    #[inline]
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EthernetHeader {
    /// Whom the frame is for.
    pub dst: MacAddr,
    /// Who sent it.
    pub src: MacAddr,
    /// What follows the header and its tag.
    pub ethertype: EtherType,
    /// The outermost VLAN tag.
    pub vlan: Option<VlanTag>,
}

impl EthernetHeader {
    /// Length on the wire: 14, or 18 with a tag.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        if self.vlan.is_some() { HEADER_LEN + TAG_LEN } else { HEADER_LEN }
    }

    /// Reads a header. The payload reaches to the end of the frame and may include padding.
    ///
    /// # Errors
    /// [`Malformed::EthernetShort`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(EthernetHeader, Range<usize>), Malformed> {
        let Some(h) = frame.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::EthernetShort);
        };
        let mut header = EthernetHeader {
            dst: MacAddr(six(h, 0)),
            src: MacAddr(six(h, 6)),
            ethertype: EtherType(be16(h, 12)),
            vlan: None,
        };
        if !header.ethertype.is_tag() {
            return Ok((header, HEADER_LEN..frame.len()));
        }
        let Some(tag) = array_at::<TAG_LEN>(frame, HEADER_LEN) else {
            return Err(Malformed::EthernetShort);
        };
        header.vlan = Some(VlanTag { tpid: header.ethertype, tci: be16(tag, 0) });
        header.ethertype = EtherType(be16(tag, 2));
        Ok((header, HEADER_LEN + TAG_LEN..frame.len()))
    }

    /// Writes the header to the front of `frame` and returns its length.
    ///
    /// # Panics
    /// If `frame` is shorter than [`header_len`](EthernetHeader::header_len).
    #[inline]
    pub fn emit(&self, frame: &mut [u8]) -> usize {
        if let Some(tag) = self.vlan {
            let h = room::<{ HEADER_LEN + TAG_LEN }>(frame);
            h[0..6].copy_from_slice(&self.dst.0);
            h[6..12].copy_from_slice(&self.src.0);
            h[12..14].copy_from_slice(&tag.tpid.0.to_be_bytes());
            h[14..16].copy_from_slice(&tag.tci.to_be_bytes());
            h[16..18].copy_from_slice(&self.ethertype.0.to_be_bytes());
            HEADER_LEN + TAG_LEN
        } else {
            let h = room::<HEADER_LEN>(frame);
            h[0..6].copy_from_slice(&self.dst.0);
            h[6..12].copy_from_slice(&self.src.0);
            h[12..14].copy_from_slice(&self.ethertype.0.to_be_bytes());
            HEADER_LEN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(vlan: Option<VlanTag>) -> EthernetHeader {
        EthernetHeader {
            dst: MacAddr([2, 0, 0, 0, 0, 1]),
            src: MacAddr([2, 0, 0, 0, 0, 2]),
            ethertype: EtherType::IPV4,
            vlan,
        }
    }

    #[test]
    fn addresses_print_and_read() {
        let mac = MacAddr([0x02, 0xab, 0, 1, 0xfe, 0xff]);
        assert_eq!(mac.to_string(), "02:ab:00:01:fe:ff");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("2-AB-0-1-fe-ff".parse(), Ok(mac));
        for bad in
            ["", "02", "02:ab:00:01:fe", "02:ab:00:01:fe:ff:00", "02:ab:00:01:fe:fff", "02:ab:00:01:fe:+f"]
        {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrError), "{bad:?}");
        }
    }

    #[test]
    fn kinds_of_address() {
        assert!(MacAddr::BROADCAST.is_multicast() && MacAddr::BROADCAST.is_broadcast());
        assert!(!MacAddr::ZERO.is_unicast() && !MacAddr::ZERO.is_multicast());
        let v4 = MacAddr::for_ipv4_multicast(Ipv4Addr::new(239, 255, 1, 2));
        assert_eq!(v4, MacAddr([0x01, 0x00, 0x5e, 0x7f, 1, 2]));
        let v6 = MacAddr::for_ipv6_multicast("ff02::1:ff12:3456".parse().unwrap());
        assert_eq!(v6, MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
        assert!(v4.is_multicast() && v6.is_multicast() && !v4.is_broadcast());
        let own = MacAddr([0x02, 0x1c, 0x2d, 0x3e, 0x4f, 0x50]).link_local();
        assert_eq!(own, "fe80::1c:2dff:fe3e:4f50".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn every_truncated_length_is_refused() {
        for vlan in [None, Some(VlanTag::new(5))] {
            let header = header(vlan);
            let mut frame = [0; 18];
            let len = header.emit(&mut frame);
            assert_eq!(len, header.header_len());
            for cut in 0..len {
                assert_eq!(EthernetHeader::parse(&frame[..cut]), Err(Malformed::EthernetShort), "{cut}");
            }
            assert_eq!(EthernetHeader::parse(&frame[..len]), Ok((header, len..len)));
        }
    }

    #[test]
    fn a_second_tag_shows_as_the_type() {
        let outer = VlanTag { tpid: EtherType::SERVICE_VLAN, tci: 0xe123 };
        let frame_header = EthernetHeader { ethertype: EtherType::VLAN, ..header(Some(outer)) };
        let mut frame = [0; 64];
        frame_header.emit(&mut frame);
        let (seen, payload) = EthernetHeader::parse(&frame).unwrap();
        assert_eq!(seen, frame_header);
        assert_eq!(seen.vlan.map(|tag| (tag.vid(), tag.priority())), Some((0x123, 7)));
        assert_eq!(payload, 18..64);
    }

    #[test]
    #[should_panic(expected = "a header of 14 bytes does not fit into a buffer of 13")]
    fn a_buffer_too_small_is_our_bug() {
        header(None).emit(&mut [0; 13]);
    }

    proptest! {
        #[test]
        fn round_trip(dst in any::<[u8; 6]>(), src in any::<[u8; 6]>(), ethertype in any::<u16>(), tag in any::<Option<u16>>()) {
            prop_assume!(!EtherType(ethertype).is_tag());
            let vlan = tag.map(|tci| VlanTag { tpid: EtherType::VLAN, tci });
            let header = EthernetHeader { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType(ethertype), vlan };
            let mut frame = [0; 60];
            let len = header.emit(&mut frame);
            prop_assert_eq!(EthernetHeader::parse(&frame), Ok((header, len..60)));
        }

        #[test]
        fn any_bytes(frame in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((header, payload)) = EthernetHeader::parse(&frame) {
                let mut again = vec![0; payload.start];
                header.emit(&mut again);
                prop_assert_eq!(&again[..], &frame[..payload.start]);
            }
        }
    }
}
