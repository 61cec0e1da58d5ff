//! UDP: eight bytes in front of a datagram.
//!
//! RFC 768 (the header), RFC 1122 §4.1 (what a host must do), RFC 8200 §8.1 (no zero checksum over IPv6), RFC 6935 and
//! RFC 6936 (except for tunnels).
//!
//! The length field rules: it may be shorter than the IP payload (the rest is not part of the datagram), never longer
//! and never below eight. A checksum of zero means the sender did not compute one; whether that is acceptable depends
//! on the IP version, so it is reported and not judged. A computed checksum of zero is sent as all ones, which is
//! the same number in ones-complement.

use core::ops::Range;

use super::{Malformed, Sum, be16, room};

/// Length of the header.
pub const HEADER_LEN: usize = 8;

/// The header of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Length of header and data.
    pub len: u16,
    /// The checksum field as it stands; zero means there is none.
    pub checksum: u16,
}

impl UdpHeader {
    /// Reads a header from an IP payload. The checksum is not verified: see [`intact`].
    ///
    /// # Errors
    /// [`Malformed::UdpShort`], [`Malformed::UdpLength`].
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<(UdpHeader, Range<usize>), Malformed> {
        UdpHeader::parse_first(datagram, datagram.len())
    }

    /// As [`parse`](UdpHeader::parse), for an IP payload of `whole` bytes of which `datagram` is only the beginning:
    /// the range of the data may end beyond it.
    ///
    /// # Errors
    /// As [`parse`](UdpHeader::parse).
    #[inline]
    pub fn parse_first(datagram: &[u8], whole: usize) -> Result<(UdpHeader, Range<usize>), Malformed> {
        let Some(h) = datagram.first_chunk::<HEADER_LEN>() else {
            return Err(Malformed::UdpShort);
        };
        let header =
            UdpHeader { src_port: be16(h, 0), dst_port: be16(h, 2), len: be16(h, 4), checksum: be16(h, 6) };
        let len = usize::from(header.len);
        if len < HEADER_LEN || len > whole {
            return Err(Malformed::UdpLength);
        }
        Ok((header, HEADER_LEN..len))
    }

    /// Whether the sender left the checksum out.
    #[inline]
    #[must_use]
    pub const fn has_no_checksum(&self) -> bool {
        self.checksum == 0
    }

    /// Writes the header, checksum field as it stands, to the front of `datagram` and returns its length.
    ///
    /// # Panics
    /// If `datagram` is shorter than 8 bytes.
    #[inline]
    pub fn emit(&self, datagram: &mut [u8]) -> usize {
        let h = room::<HEADER_LEN>(datagram);
        h[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        h[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        h[4..6].copy_from_slice(&self.len.to_be_bytes());
        h[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        HEADER_LEN
    }

    /// Writes the header to the front of `datagram`, behind which the data already stand, with the checksum over all of
    /// `datagram` and the pseudo-header. The header's own checksum field is ignored. Returns the length of the header.
    ///
    /// The same as [`emit`](UdpHeader::emit) and [`fill_checksum`], and faster.
    ///
    /// # Panics
    /// If `datagram` is shorter than 8 bytes.
    #[inline]
    pub fn emit_with_checksum(&self, pseudo: Sum, datagram: &mut [u8]) -> usize {
        let ports = u32::from(self.src_port) << 16 | u32::from(self.dst_port);
        let data = datagram.get(HEADER_LEN..).unwrap_or_default();
        let checksum = pseudo.add_u32(ports).add_u16(self.len).add_bytes(data).finish();
        UdpHeader { checksum: nonzero(checksum), ..*self }.emit(datagram)
    }
}

/// Whether a datagram that has a checksum is intact. `datagram` is header and data and nothing behind them, `pseudo` the
/// sum over the pseudo-header with the datagram's length.
#[inline]
#[must_use]
pub fn intact(pseudo: Sum, datagram: &[u8]) -> bool {
    pseudo.add_bytes(datagram).is_intact()
}

/// Computes the checksum of a datagram whose header stands at its front, and writes it there. Whatever the field held
/// is ignored.
///
/// # Panics
/// If `datagram` is shorter than 8 bytes.
#[inline]
pub fn fill_checksum(pseudo: Sum, datagram: &mut [u8]) {
    room::<HEADER_LEN>(datagram)[6..8].fill(0);
    let checksum = nonzero(pseudo.add_bytes(datagram).finish());
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
}

/// The form in which a computed checksum is sent: all ones instead of zero.
#[inline]
#[must_use]
pub const fn nonzero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::super::IpProtocol;
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const HEADER: UdpHeader = UdpHeader { src_port: 40_000, dst_port: 8080, len: 12, checksum: 0 };

    fn pseudo(len: u16) -> Sum {
        Sum::pseudo_v4(Ipv4Addr::new(10, 11, 2, 1), Ipv4Addr::new(10, 11, 2, 2), IpProtocol::UDP, len)
    }

    #[test]
    fn every_truncated_length_is_refused() {
        let mut datagram = [0; 12];
        HEADER.emit(&mut datagram);
        for cut in 0..12 {
            let want = if cut < 8 { Malformed::UdpShort } else { Malformed::UdpLength };
            assert_eq!(UdpHeader::parse(&datagram[..cut]), Err(want), "{cut}");
        }
        assert_eq!(UdpHeader::parse(&datagram), Ok((HEADER, 8..12)));
    }

    #[test]
    fn the_length_field_rules() {
        let mut datagram = [0; 20];
        for (len, want) in [
            (0, Err(Malformed::UdpLength)),
            (7, Err(Malformed::UdpLength)),
            (8, Ok(8..8)),
            (13, Ok(8..13)),
            (20, Ok(8..20)),
            (21, Err(Malformed::UdpLength)),
            (65535, Err(Malformed::UdpLength)),
        ] {
            UdpHeader { len, ..HEADER }.emit(&mut datagram);
            assert_eq!(UdpHeader::parse(&datagram).map(|(_, payload)| payload), want, "{len}");
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        // The two data bytes are chosen so that everything sums to all ones.
        let mut datagram = [0; 10];
        UdpHeader { len: 10, ..HEADER }.emit(&mut datagram);
        let rest = pseudo(10).add_bytes(&datagram).finish();
        datagram[8..].copy_from_slice(&rest.to_be_bytes());
        fill_checksum(pseudo(10), &mut datagram);
        let (header, _) = UdpHeader::parse(&datagram).unwrap();
        assert_eq!(header.checksum, 0xffff);
        assert!(!header.has_no_checksum());
        assert!(intact(pseudo(10), &datagram));
    }

    proptest! {
        #[test]
        fn round_trip(ports in any::<(u16, u16)>(), data in proptest::collection::vec(any::<u8>(), 0..100), junk in any::<u16>()) {
            let len = 8 + data.len() as u16;
            let header = UdpHeader { src_port: ports.0, dst_port: ports.1, len, checksum: junk };
            let mut datagram = vec![0; 8];
            header.emit(&mut datagram);
            datagram.extend(&data);
            prop_assert_eq!(UdpHeader::parse(&datagram), Ok((header, 8..usize::from(len))));
            fill_checksum(pseudo(len), &mut datagram);
            prop_assert!(intact(pseudo(len), &datagram));
            let mut at_once = [&[0xa5; 8][..], &data].concat();
            header.emit_with_checksum(pseudo(len), &mut at_once);
            prop_assert_eq!(&at_once, &datagram);
            let (header, payload) = UdpHeader::parse(&datagram).unwrap();
            prop_assert!(!header.has_no_checksum());
            prop_assert_eq!(&datagram[payload], &data[..]);
            datagram[0] ^= 0x40;
            prop_assert!(!intact(pseudo(len), &datagram));
        }

        #[test]
        fn any_bytes(datagram in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((header, payload)) = UdpHeader::parse(&datagram) {
                prop_assert_eq!(payload.end, usize::from(header.len));
                prop_assert!(payload.end <= datagram.len());
            }
        }
    }
}
