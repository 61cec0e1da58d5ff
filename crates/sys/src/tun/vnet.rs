//! The virtio-net header in front of every packet of a TAP queue: what is left to do about checksum and segmentation.
//!
//! ```text
//!    0       1          2          4          6            8              10
//!    ├───────┼──────────┼──────────┼──────────┼────────────┼──────────────┤
//!    │ flags │ gso type │ hdr_len  │ gso_size │ csum_start │ csum_offset  │   numbers in machine order
//! ```

use crate::frame::{Checksum, Frame, Meta, Segmentation};

/// Bytes of the header.
pub(super) const LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Puts what the header says into `meta`. `false` for a kind of segmentation that was not agreed upon.
pub(super) fn read(header: [u8; LEN], meta: &mut Meta) -> bool {
    meta.checksum = if header[0] & NEEDS_CHECKSUM != 0 {
        Checksum::Partial
    } else if header[0] & DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::InPacket
    };
    meta.segmentation = match header[1] & !GSO_ECN {
        0 => return true,
        GSO_TCP_V4 => Segmentation::TcpV4,
        GSO_TCP_V6 => Segmentation::TcpV6,
        GSO_UDP => Segmentation::Udp,
        _ => return false,
    };
    meta.segment_size = u16::from_ne_bytes([header[4], header[5]]);
    true
}

/// The header for `frame`; `None` if it asks for what its headers do not allow.
pub(super) fn write(frame: &Frame) -> Option<[u8; LEN]> {
    let mut header = [0; LEN];
    let meta = frame.meta();
    if meta.checksum != Checksum::Partial && meta.segmentation == Segmentation::None {
        if meta.checksum == Checksum::Verified {
            header[0] = DATA_VALID;
        }
        return Some(header);
    }
    let (start, protocol) = transport(frame.data())?;
    let offset: u16 = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    header[0] = NEEDS_CHECKSUM;
    header[6..8].copy_from_slice(&(start as u16).to_ne_bytes());
    header[8..10].copy_from_slice(&offset.to_ne_bytes());
    let (kind, transport_len) = match (meta.segmentation, protocol) {
        (Segmentation::None, _) => return Some(header),
        (Segmentation::TcpV4, TCP) => (GSO_TCP_V4, tcp_len(frame.data(), start)?),
        (Segmentation::TcpV6, TCP) => (GSO_TCP_V6, tcp_len(frame.data(), start)?),
        (Segmentation::Udp, UDP) => (GSO_UDP, 8),
        _ => return None,
    };
    header[1] = kind;
    header[2..4].copy_from_slice(&((start + transport_len) as u16).to_ne_bytes());
    header[4..6].copy_from_slice(&meta.segment_size.to_ne_bytes());
    Some(header)
}

const TCP: u8 = 6;
const UDP: u8 = 17;

fn tcp_len(frame: &[u8], start: usize) -> Option<usize> {
    Some(usize::from(frame.get(start + 12)? >> 4) * 4)
}

/// Where the transport header starts, and its protocol. Through VLAN tags; not through IPv6 extension headers, which
/// the stack does not send.
fn transport(frame: &[u8]) -> Option<(usize, u8)> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2)?, [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
    }
    let kind = [frame[at], frame[at + 1]];
    let ip = frame.get(at + 2..)?;
    match kind {
        [0x08, 0x00] => Some((at + 2 + usize::from(ip.first()? & 15) * 4, *ip.get(9)?)),
        [0x86, 0xdd] => Some((at + 42, *ip.get(6)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameMemory, MemoryConfig};

    #[test]
    fn headers_say_where_the_sum_belongs() {
        let config =
            MemoryConfig { frames_per_home: 2, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let mut frame = pool.alloc().unwrap();
        let mut bytes = [0u8; 74];
        bytes[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
        (bytes[18], bytes[27], bytes[38 + 12]) = (0x45, TCP, 0x80);
        assert!(frame.extend_from_slice(&bytes));
        assert_eq!(write(&frame), Some([0; LEN]));
        frame.meta_mut().checksum = Checksum::Partial;
        let plain = write(&frame).unwrap();
        assert_eq!(
            (plain[0], plain[6..8].to_vec(), plain[8..].to_vec()),
            (1, 38u16.to_ne_bytes().to_vec(), 16u16.to_ne_bytes().to_vec())
        );
        frame.meta_mut().segmentation = Segmentation::TcpV4;
        frame.meta_mut().segment_size = 1400;
        let mut back = Meta::default();
        let header = write(&frame).unwrap();
        assert_eq!(header[2..4], 70u16.to_ne_bytes());
        assert!(read(header, &mut back));
        assert_eq!(
            (back.checksum, back.segmentation, back.segment_size),
            (Checksum::Partial, Segmentation::TcpV4, 1400)
        );
        frame.meta_mut().segmentation = Segmentation::Udp;
        assert_eq!(write(&frame), None, "a TCP packet is not cut as UDP");
        for cut in 0..74 {
            frame.truncate(73 - cut);
            let _ = write(&frame); // must not panic
        }
        assert!(!read([0, 3, 0, 0, 0, 0, 0, 0, 0, 0], &mut back));
    }
}
