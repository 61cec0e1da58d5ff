//! VXLAN: Ethernet frames inside UDP.
//!
//! RFC 7348 §5.
//!
//! ```text
//!   |R R R R I R R R| reserved                                      |
//!   | network identifier                            | reserved      |
//! ```
//!
//! The I flag must be set. Everything reserved is ignored, as the RFC asks, and sent as zero.

use core::ops::Range;

use super::{Malformed, be32, room};

/// Length of the header.
pub const HEADER_LEN: usize = 8;
/// The UDP port it is found on.
pub const PORT: u16 = 4789;

const FLAG_VNI: u8 = 0x08;

/// The header of a VXLAN packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct VxlanHeader {
    /// The network the frame belongs to: 24 bits.
    pub vni: u32,
}

impl VxlanHeader {
    /// Reads a header from a UDP payload. The range is that of the frame.
    ///
    /// # Errors
    /// [`Malformed::TunnelShort`], [`Malformed::TunnelUnsupported`].
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<(VxlanHeader, Range<usize>), Malformed> {
        let h = packet.first_chunk::<HEADER_LEN>().ok_or(Malformed::TunnelShort)?;
        if h[0] & FLAG_VNI == 0 {
            return Err(Malformed::TunnelUnsupported);
        }
        Ok((VxlanHeader { vni: be32(h, 4) >> 8 }, HEADER_LEN..packet.len()))
    }

    /// Writes the header to the front of `packet` and returns its length. Bits of the identifier above the 24th are lost.
    ///
    /// # Panics
    /// If `packet` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, packet: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(packet);
        h[..4].copy_from_slice(&[FLAG_VNI, 0, 0, 0]);
        h[4..].copy_from_slice(&(self.vni << 8).to_be_bytes());
        HEADER_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_truncated_length_is_refused() {
        let mut packet = [0xa5; 9];
        VxlanHeader { vni: 0x12_3456 }.emit(&mut packet);
        assert_eq!(packet, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xa5]);
        for cut in 0..8 {
            assert_eq!(VxlanHeader::parse(&packet[..cut]), Err(Malformed::TunnelShort));
        }
        packet[0] = 0xf7;
        assert_eq!(VxlanHeader::parse(&packet), Err(Malformed::TunnelUnsupported));
    }

    proptest! {
        #[test]
        fn round_trip(vni in 0u32..1 << 24, reserved in any::<[u8; 4]>()) {
            let header = VxlanHeader { vni };
            let mut packet = [0; 20];
            header.emit(&mut packet);
            packet[1..4].copy_from_slice(&reserved[..3]);
            packet[7] = reserved[3];
            prop_assert_eq!(VxlanHeader::parse(&packet), Ok((header, 8..20)));
        }
    }
}
