//! ARP: who has this IPv4 address on this Ethernet?
//!
//! RFC 826 (the packet and the algorithm), RFC 5227 (probes and announcements).
//!
//! Only IPv4 over Ethernet, only request and reply. Whether a packet is used is decided elsewhere.

use core::net::Ipv4Addr;
use core::ops::Range;

use super::{EtherType, MacAddr, Malformed, be16, four, room, six};

/// Length of the packet for IPv4 over Ethernet.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

/// What the sender of an ARP packet wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArpOperation {
    /// "Who has the target address?"
    Request,
    /// "The sender address is mine."
    Reply,
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ArpPacket {
    /// Request or reply.
    pub operation: ArpOperation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddr,
    /// The sender's IPv4 address; unspecified in a probe.
    pub sender_ip: Ipv4Addr,
    /// The target's Ethernet address; zero in a request.
    pub target_mac: MacAddr,
    /// The target's IPv4 address.
    pub target_ip: Ipv4Addr,
}

impl ArpPacket {
    /// Reads a packet. Ethernet padding after it is ignored; the range covers the packet itself.
    ///
    /// # Errors
    /// [`Malformed::ArpShort`], [`Malformed::ArpUnsupported`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(ArpPacket, Range<usize>), Malformed> {
        let Some(p) = packet.first_chunk::<PACKET_LEN>() else {
            return Err(Malformed::ArpShort);
        };
        if be16(p, 0) != HARDWARE_ETHERNET || be16(p, 2) != EtherType::IPV4.0 || p[4] != 6 || p[5] != 4 {
            return Err(Malformed::ArpUnsupported);
        }
        let operation = match be16(p, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Malformed::ArpUnsupported),
        };
        let arp = ArpPacket {
            operation,
            sender_mac: MacAddr(six(p, 8)),
            sender_ip: four(p, 14).into(),
            target_mac: MacAddr(six(p, 18)),
            target_ip: four(p, 24).into(),
        };
        Ok((arp, 0..PACKET_LEN))
    }

    /// Writes the packet to the front of `packet` and returns its length.
    ///
    /// # Panics
    /// If `packet` is shorter than [`PACKET_LEN`].
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        let p = room::<PACKET_LEN>(packet);
        p[0..2].copy_from_slice(&HARDWARE_ETHERNET.to_be_bytes());
        p[2..4].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        p[4] = 6;
        p[5] = 4;
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        p[6..8].copy_from_slice(&operation.to_be_bytes());
        p[8..14].copy_from_slice(&self.sender_mac.0);
        p[14..18].copy_from_slice(&self.sender_ip.octets());
        p[18..24].copy_from_slice(&self.target_mac.0);
        p[24..28].copy_from_slice(&self.target_ip.octets());
        PACKET_LEN
    }

    /// Whether the sender only asks if the address is free (RFC 5227 §1.1).
    #[inline]
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.operation == ArpOperation::Request && self.sender_ip.is_unspecified()
    }

    /// Whether the sender announces its own address (RFC 5227 §3).
    #[inline]
    #[must_use]
    pub fn is_announcement(&self) -> bool {
        self.sender_ip == self.target_ip
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 11, 2, 1, 0, 0, 0, 0, 0, 0, 10, 11, 2, 2];

    #[test]
    fn a_request_reads_and_writes() {
        let (arp, _) = ArpPacket::parse(&REQUEST).unwrap();
        assert_eq!(arp.operation, ArpOperation::Request);
        assert_eq!(arp.sender_ip, Ipv4Addr::new(10, 11, 2, 1));
        assert_eq!(arp.target_ip, Ipv4Addr::new(10, 11, 2, 2));
        assert!(!arp.is_probe() && !arp.is_announcement());
        let mut out = [0xaa; 28];
        arp.emit(&mut out);
        assert_eq!(out, REQUEST);
    }

    #[test]
    fn every_truncated_length_is_refused() {
        for cut in 0..REQUEST.len() {
            assert_eq!(ArpPacket::parse(&REQUEST[..cut]), Err(Malformed::ArpShort));
        }
    }

    #[test]
    fn other_kinds_are_refused() {
        for (at, value) in [(0, 1), (1, 6), (2, 9), (3, 1), (4, 8), (5, 16), (6, 1), (7, 0), (7, 3)] {
            let mut packet = REQUEST;
            packet[at] = value;
            assert_eq!(ArpPacket::parse(&packet), Err(Malformed::ArpUnsupported), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_behind_a_good_start(body in any::<[u8; 20]>(), reply in any::<bool>(), padding in 0usize..20) {
            let mut packet = REQUEST;
            packet[7] = if reply { 2 } else { 1 };
            packet[8..].copy_from_slice(&body);
            let mut frame = packet.to_vec();
            frame.resize(28 + padding, 0);
            let (arp, range) = ArpPacket::parse(&frame).unwrap();
            let mut out = [0; 28];
            arp.emit(&mut out);
            prop_assert_eq!(out, packet);
            prop_assert_eq!(range, 0..28);
        }
    }
}
