//! Geneve: anything inside UDP, with options.
//!
//! RFC 8926 §3.4 and §3.5.
//!
//! ```text
//!   |ver| option length |O|C| reserved  | EtherType                     |
//!   | network identifier                            | reserved      |
//!   | options                                                       |
//! ```
//!
//! No option is known here. They are walked, so that an impossible one is found, and skipped, unless the header or an
//! option says that it is critical: then the packet must be dropped (§3.4, §3.5), and is refused. Control messages (O)
//! are reported; they are not for the payload's protocol.

use core::ops::Range;

use super::{EtherType, Malformed, array_at, be16, be32, room};

/// Length of the header without options.
pub const HEADER_LEN: usize = 8;
/// The UDP port it is found on.
pub const PORT: u16 = 6081;

const FLAG_CONTROL: u8 = 0x80;
const FLAG_CRITICAL: u8 = 0x40;
const OPTION_CRITICAL: u8 = 0x80;

/// The header of a Geneve packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GeneveHeader {
    /// What is inside: with [`EtherType::TRANSPARENT_ETHERNET`] a frame.
    pub protocol: EtherType,
    /// The network it belongs to: 24 bits.
    pub vni: u32,
    /// A control message.
    pub control: bool,
}

impl GeneveHeader {
    /// Reads a header from a UDP payload.
    ///
    /// # Errors
    /// [`Malformed::TunnelShort`], [`Malformed::TunnelUnsupported`].
    pub fn parse(packet: &[u8]) -> Result<(GeneveHeader, Range<usize>), Malformed> {
        let h = packet.first_chunk::<HEADER_LEN>().ok_or(Malformed::TunnelShort)?;
        let header_len = HEADER_LEN + usize::from(h[0] & 0x3f) * 4;
        if h[0] >> 6 != 0 || h[1] & FLAG_CRITICAL != 0 {
            return Err(Malformed::TunnelUnsupported);
        }
        let mut rest = packet.get(HEADER_LEN..header_len).ok_or(Malformed::TunnelShort)?;
        while !rest.is_empty() {
            let option = array_at::<4>(rest, 0).ok_or(Malformed::TunnelShort)?;
            if option[2] & OPTION_CRITICAL != 0 {
                return Err(Malformed::TunnelUnsupported);
            }
            let len = 4 + usize::from(option[3] & 0x1f) * 4;
            rest = rest.get(len..).ok_or(Malformed::TunnelShort)?;
        }
        let header = GeneveHeader {
            protocol: EtherType(be16(h, 2)),
            vni: be32(h, 4) >> 8,
            control: h[1] & FLAG_CONTROL != 0,
        };
        Ok((header, header_len..packet.len()))
    }

    /// Writes the header, without options, to the front of `packet` and returns its length. Bits of the identifier above the
    /// 24th are lost.
    ///
    /// # Panics
    /// If `packet` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(packet);
        h[0] = 0;
        h[1] = if self.control { FLAG_CONTROL } else { 0 };
        h[2..4].copy_from_slice(&self.protocol.0.to_be_bytes());
        h[4..].copy_from_slice(&(self.vni << 8).to_be_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: GeneveHeader =
        GeneveHeader { protocol: EtherType::TRANSPARENT_ETHERNET, vni: 0x12_3456, control: false };

    fn with_options(options: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 8];
        HEADER.emit(&mut packet);
        packet[0] = (options.len() / 4) as u8;
        packet.extend(options);
        packet
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let packet = with_options(&[0, 1, 2, 1, 9, 9, 9, 9, 0, 1, 3, 0]);
        for cut in 0..packet.len() {
            assert_eq!(GeneveHeader::parse(&packet[..cut]), Err(Malformed::TunnelShort), "{cut}");
        }
        assert_eq!(GeneveHeader::parse(&packet), Ok((HEADER, 20..20)));
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        assert_eq!(GeneveHeader::parse(&with_options(&[0, 1, 0x80, 0])), Err(Malformed::TunnelUnsupported));
        assert_eq!(GeneveHeader::parse(&with_options(&[0, 1, 0, 1])), Err(Malformed::TunnelShort));
        for (at, value) in [(0, 0x40), (1, 0x40)] {
            let mut packet = with_options(&[]);
            packet[at] = value;
            assert_eq!(GeneveHeader::parse(&packet), Err(Malformed::TunnelUnsupported));
        }
    }

    proptest! {
        #[test]
        fn round_trip(protocol in any::<u16>(), vni in 0u32..1 << 24, control in any::<bool>()) {
            let header = GeneveHeader { protocol: EtherType(protocol), vni, control };
            let mut packet = [0xa5; 20];
            header.emit(&mut packet);
            prop_assert_eq!(GeneveHeader::parse(&packet), Ok((header, 8..20)));
        }

        #[test]
        fn any_bytes(mut packet in proptest::collection::vec(any::<u8>(), 0..80), words in 0u8..20) {
            if packet.len() > 2 {
                packet[0] = words;
                packet[1] &= 0xbf;
            }
            if let Ok((_, payload)) = GeneveHeader::parse(&packet) {
                prop_assert!(payload.start <= payload.end && payload.end == packet.len());
            }
        }
    }
}
