//! GRE: a small header that says what is inside an IP packet.
//!
//! RFC 2784 (the header and its checksum), RFC 2890 (key and sequence number), RFC 7676 (over IPv6).
//!
//! ```text
//!   |C| |K|S| reserved        | ver | EtherType                     |
//!   | checksum (if C)               | reserved                      |
//!   | key (if K)                                                    |
//!   | sequence number (if S)                                        |
//! ```
//!
//! Version 0 only. The routing fields of RFC 1701 are not supported: a packet that has them, or any other reserved bit
//! that a receiver must not ignore, is refused. The last eight reserved bits are ignored, as the RFC asks.

use core::ops::Range;

use super::checksum::checksum;
use super::{EtherType, Malformed, Sum, array_at, be16, be32};

/// Length of the shortest header.
pub const MIN_HEADER_LEN: usize = 4;

const FLAG_CHECKSUM: u16 = 0x8000;
const FLAG_KEY: u16 = 0x2000;
const FLAG_SEQUENCE: u16 = 0x1000;
/// Routing, strict source route, recursion control and version: all of them must be zero.
const MUST_BE_ZERO: u16 = 0x4f07;

/// The header of a GRE packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GreHeader {
    /// What is inside: an IP packet, or with [`EtherType::TRANSPARENT_ETHERNET`] a frame.
    pub protocol: EtherType,
    /// There is a checksum over header and payload.
    pub checksum: bool,
    /// Tells the tunnels between two hosts apart.
    pub key: Option<u32>,
    /// Counts packets.
    pub sequence: Option<u32>,
}

impl GreHeader {
    /// Reads a header from an IP payload and verifies the checksum if there is one.
    ///
    /// # Errors
    /// [`Malformed::TunnelShort`], [`Malformed::TunnelUnsupported`], [`Malformed::TunnelChecksum`].
    pub fn parse(packet: &[u8]) -> Result<(GreHeader, Range<usize>), Malformed> {
        let h = packet.first_chunk::<MIN_HEADER_LEN>().ok_or(Malformed::TunnelShort)?;
        let flags = be16(h, 0);
        if flags & MUST_BE_ZERO != 0 {
            return Err(Malformed::TunnelUnsupported);
        }
        let mut at = MIN_HEADER_LEN;
        let mut word = || {
            let word = array_at::<4>(packet, at).ok_or(Malformed::TunnelShort)?;
            at += 4;
            Ok(be32(word, 0))
        };
        let has_checksum = flags & FLAG_CHECKSUM != 0;
        if has_checksum {
            word()?;
        }
        let key = if flags & FLAG_KEY != 0 { Some(word()?) } else { None };
        let sequence = if flags & FLAG_SEQUENCE != 0 { Some(word()?) } else { None };
        if has_checksum && !Sum::EMPTY.add_bytes(packet).is_intact() {
            return Err(Malformed::TunnelChecksum);
        }
        let header = GreHeader { protocol: EtherType(be16(h, 2)), checksum: has_checksum, key, sequence };
        Ok((header, at..packet.len()))
    }

    /// Length on the wire.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        MIN_HEADER_LEN
            + 4 * (self.checksum as usize + self.key.is_some() as usize + self.sequence.is_some() as usize)
    }

    /// Writes the header to the front of `packet`, behind which the payload already stands, with a checksum over all of
    /// `packet` if it has one. Returns the length of the header.
    ///
    /// # Panics
    /// If `packet` is too short.
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        let mut flags = 0;
        let mut at = MIN_HEADER_LEN;
        let words = [
            (FLAG_CHECKSUM, self.checksum.then_some(0)),
            (FLAG_KEY, self.key),
            (FLAG_SEQUENCE, self.sequence),
        ];
        for (flag, word) in words {
            if let Some(word) = word {
                flags |= flag;
                packet[at..at + 4].copy_from_slice(&word.to_be_bytes());
                at += 4;
            }
        }
        packet[0..2].copy_from_slice(&flags.to_be_bytes());
        packet[2..4].copy_from_slice(&self.protocol.0.to_be_bytes());
        if self.checksum {
            let checksum = checksum(packet);
            packet[4..6].copy_from_slice(&checksum.to_be_bytes());
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_truncated_length_is_refused() {
        let header =
            GreHeader { protocol: EtherType::IPV4, checksum: false, key: Some(7), sequence: Some(8) };
        let mut packet = [0; 12];
        assert_eq!(header.emit(&mut packet), 12);
        assert_eq!(packet, [0x30, 0, 8, 0, 0, 0, 0, 7, 0, 0, 0, 8]);
        for cut in 0..12 {
            assert_eq!(GreHeader::parse(&packet[..cut]), Err(Malformed::TunnelShort));
        }
        assert_eq!(GreHeader::parse(&packet), Ok((header, 12..12)));
    }

    #[test]
    fn reserved_bits() {
        for (byte, bit, refused) in
            [(0, 0x40, true), (0, 0x08, true), (0, 0x01, true), (1, 0x01, true), (1, 0xf8, false)]
        {
            let mut packet = [0, 0, 8, 0];
            packet[byte] |= bit;
            assert_eq!(GreHeader::parse(&packet).is_err(), refused, "byte {byte} bit {bit:x}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(protocol in any::<u16>(), checksum in any::<bool>(), key in any::<Option<u32>>(), sequence in any::<Option<u32>>(),
                      data in proptest::collection::vec(any::<u8>(), 1..40)) {
            let header = GreHeader { protocol: EtherType(protocol), checksum, key, sequence };
            let len = header.header_len();
            let mut packet = [&vec![0xa5; len], &data[..]].concat();
            prop_assert_eq!(header.emit(&mut packet), len);
            prop_assert_eq!(GreHeader::parse(&packet), Ok((header, len..packet.len())));
            packet[len] ^= 1;
            prop_assert_eq!(GreHeader::parse(&packet).is_err(), checksum);
        }

        #[test]
        fn any_bytes(packet in proptest::collection::vec(any::<u8>(), 0..30)) {
            if let Ok((header, payload)) = GreHeader::parse(&packet) {
                prop_assert_eq!(payload.start, header.header_len());
            }
        }
    }
}
