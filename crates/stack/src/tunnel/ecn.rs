//! Congestion marks across a tunnel (RFC 6040), and the header fields that hold them.

use flowlane_sys::frame::Frame;

use crate::wire::checksum::update_u16;
use crate::wire::{EtherType, ethernet};

/// The bits of ECN in a traffic class.
pub(crate) const MASK: u8 = 3;
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// What the inner packet's field becomes when the tunnel ends (RFC 6040 section 4.2); `None`: the packet must go, since
/// its sender would not understand that there is congestion.
pub(crate) fn leave(inner: u8, outer: u8) -> Option<u8> {
    match (inner & MASK, outer & MASK) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (CE, _) | (_, CE) => Some(CE),
        (ECT_0, ECT_1) => Some(ECT_1),
        (inner, _) => Some(inner),
    }
}

/// Where the IP header of an inner packet begins, if there is one.
pub(crate) fn ip_at(data: &[u8], ethernet: bool) -> Option<usize> {
    if !ethernet {
        return Some(0);
    }
    let kind = data.get(12..ethernet::HEADER_LEN)?;
    let kind = EtherType(u16::from_be_bytes([kind[0], kind[1]]));
    matches!(kind, EtherType::IPV4 | EtherType::IPV6).then_some(ethernet::HEADER_LEN)
}

/// The traffic class of the IP packet at `at`; 0 if there is none.
pub(crate) fn traffic_class(data: &[u8], at: usize) -> u8 {
    match data.get(at..).and_then(<[u8]>::first_chunk::<2>) {
        Some([a, b]) if a >> 4 == 4 => *b,
        Some([a, b]) if a >> 4 == 6 => a << 4 | b >> 4,
        _ => 0,
    }
}

/// Writes the field of the IP packet at `at`, with the header's checksum.
pub(crate) fn set(frame: &mut Frame, at: usize, ecn: u8) {
    let Some(h) = frame.data_mut().get_mut(at..) else { return };
    if let Some(h) = h.first_chunk_mut::<20>().filter(|h| h[0] >> 4 == 4) {
        let old = u16::from_be_bytes([h[0], h[1]]);
        let new = old & !u16::from(MASK) | u16::from(ecn);
        let checksum = update_u16(u16::from_be_bytes([h[10], h[11]]), old, new);
        h[1] = new as u8;
        h[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else if let Some(h) = h.first_chunk_mut::<2>().filter(|h| h[0] >> 4 == 6) {
        h[1] = h[1] & !(MASK << 4) | ecn << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6040 figure 4.
    #[test]
    fn the_table_of_the_rfc() {
        let table = [
            (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
            (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
            (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
            (CE, [Some(CE); 4]),
        ];
        for (inner, row) in table {
            for (outer, want) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                assert_eq!(leave(inner | 0xb8, outer | 0x48), want, "inner {inner} outer {outer}");
            }
        }
    }
}
