//! The header of a reassembled datagram, made from that of its first fragment.
//!
//! The header stands in the headroom of the first frame, as it came. IPv4 loses its offset and gets its length (RFC 791
//! section 3.2). IPv6 loses its fragment header: what stood before it moves up, and the field that named it names what
//! followed it (RFC 8200 section 4.5). The result is an ordinary packet, so that its flow can be told and a later error
//! about it can quote it.

use flowlane_sys::frame::{Checksum, Frame, Segmentation};

use crate::wire::checksum::update_u16;
use crate::wire::ipv6_ext::FRAGMENT_HEADER_LEN;
use crate::wire::{IpProtocol, ipv4, ipv6};

/// The longest an IPv6 payload can be.
const MAX_V6_PAYLOAD: usize = 65_535;
/// Every ECN codepoint a fragment carried, as a set (RFC 3168 section 5.3).
const NOT_ECT: u8 = 1 << 0;
const CE: u8 = 1 << 3;

/// What the datagram's ECN field is to be, given those of its fragments; `None` if the datagram must not be delivered
/// (RFC 3168 section 5.3): somebody marked it who could not know that its sender would understand.
pub(super) fn merge_ecn(seen: u8, first: u8) -> Option<u8> {
    match (seen & CE != 0, seen & NOT_ECT != 0) {
        (true, true) => None,
        (true, false) => Some(3),
        (false, true) => Some(0),
        (false, false) => Some(first & 3),
    }
}

/// Why there is no header for the datagram.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// Header and payload together are longer than a packet can be.
    TooLong,
    /// The fragments' ECN fields contradict each other.
    Ecn,
    /// The bytes in the headroom are not what they were said to be.
    Header,
}

/// Puts the header in front of the datagram `frame`, which has `payload` bytes and whose first frame was preceded by
/// `header_len` bytes of headers.
#[inline]
pub(super) fn restore(
    frame: &mut Frame,
    v6: bool,
    header_len: usize,
    payload: usize,
    ecn_seen: u8,
) -> Result<(), Unfit> {
    let meta = frame.meta_mut();
    // Whatever the link said was about a fragment.
    meta.checksum = Checksum::InPacket;
    meta.segmentation = Segmentation::None;
    meta.hash_type = 0;
    if v6 {
        restore_v6(frame, header_len, payload, ecn_seen)
    } else {
        restore_v4(frame, header_len, payload, ecn_seen)
    }
}

fn restore_v4(frame: &mut Frame, header_len: usize, payload: usize, ecn_seen: u8) -> Result<(), Unfit> {
    if header_len + payload > ipv4::MAX_PACKET_LEN {
        return Err(Unfit::TooLong);
    }
    let bytes = frame.push_front(header_len).ok_or(Unfit::Header)?;
    let h = bytes.first_chunk_mut::<{ ipv4::HEADER_LEN }>().ok_or(Unfit::Header)?;
    let ecn = merge_ecn(ecn_seen, h[1]).ok_or(Unfit::Ecn)?;
    let mut checksum = u16::from_be_bytes([h[10], h[11]]);
    let mut set = |at: usize, new: [u8; 2]| {
        let old = u16::from_be_bytes([h[at], h[at + 1]]);
        checksum = update_u16(checksum, old, u16::from_be_bytes(new));
        h[at..at + 2].copy_from_slice(&new);
    };
    set(2, ((header_len + payload) as u16).to_be_bytes());
    set(6, [0, 0]);
    if ecn != h[1] & 3 {
        let tos = [h[0], h[1] & !3 | ecn];
        let old = u16::from_be_bytes([h[0], h[1]]);
        checksum = update_u16(checksum, old, u16::from_be_bytes(tos));
        h[..2].copy_from_slice(&tos);
    }
    h[10..12].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

fn restore_v6(frame: &mut Frame, header_len: usize, payload: usize, ecn_seen: u8) -> Result<(), Unfit> {
    let kept = header_len.checked_sub(FRAGMENT_HEADER_LEN).ok_or(Unfit::Header)?;
    let len = kept.checked_sub(ipv6::HEADER_LEN).ok_or(Unfit::Header)? + payload;
    if len > MAX_V6_PAYLOAD {
        return Err(Unfit::TooLong);
    }
    let bytes = frame.push_front(header_len).ok_or(Unfit::Header)?;
    let ecn = merge_ecn(ecn_seen, bytes[1] >> 4).ok_or(Unfit::Ecn)?;
    let next = bytes[kept];
    let named_at = names_fragment(&bytes[..kept]).ok_or(Unfit::Header)?;
    bytes[named_at] = next;
    bytes[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    // The traffic class straddles the first two bytes; its low two bits are bits 5 and 4 of the second.
    bytes[1] = bytes[1] & !0x30 | ecn << 4;
    bytes.copy_within(..kept, FRAGMENT_HEADER_LEN);
    if frame.trim_front(FRAGMENT_HEADER_LEN) { Ok(()) } else { Err(Unfit::Header) }
}

/// Which byte of the headers before the fragment header names it.
fn names_fragment(headers: &[u8]) -> Option<usize> {
    let mut named_at = 6;
    let mut at = ipv6::HEADER_LEN;
    while at < headers.len() {
        named_at = at;
        at += 8 + usize::from(*headers.get(at + 1)?) * 8;
    }
    (at == headers.len() && headers.get(named_at) == Some(&IpProtocol::FRAGMENT.0)).then_some(named_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_of_the_whole() {
        let set = |codes: &[u8]| codes.iter().fold(0, |s, c| s | 1 << c);
        for (codes, first, want) in [
            (&[0u8, 0][..], 0, Some(0)),
            (&[1, 1], 1, Some(1)),
            (&[2, 1], 2, Some(2)),
            (&[2, 3], 2, Some(3)),
            (&[3, 1], 3, Some(3)),
            (&[0, 2], 0, Some(0)),
            (&[2, 0], 2, Some(0)),
            (&[0, 3], 0, None),
            (&[3, 0, 2], 3, None),
        ] {
            assert_eq!(merge_ecn(set(codes), first), want, "{codes:?}");
        }
    }

    #[test]
    fn the_field_that_names_the_fragment_header() {
        let mut headers = vec![0; 40];
        headers[6] = 44;
        assert_eq!(names_fragment(&headers), Some(6));
        headers[6] = 0;
        headers.extend([60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(names_fragment(&headers), Some(56));
        assert_eq!(names_fragment(&headers[..60]), None);
    }
}
