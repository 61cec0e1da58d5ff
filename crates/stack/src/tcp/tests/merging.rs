//! A link that merges segments which came together (LRO): one header, and congestion experienced if one of them has experienced it.

use super::*;
use flowlane_sys::frame::{Checksum, Frame, Segmentation};

/// What a card has taken, in order.
#[derive(Default)]
pub(super) struct Merged {
    pub(super) packets: Vec<IpInput>,
    /// Segments that were put behind another.
    pub(super) joined: u64,
}

/// Where payload begins, the first number, the acknowledgement and the flags.
fn header(frame: &Frame) -> (usize, u32, u32, u8) {
    let data = frame.data();
    let word = |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().unwrap());
    (usize::from(data[12] >> 4) * 4, word(4), word(8), data[13])
}

impl Merged {
    /// Segments in packets that say they were marked.
    pub(super) fn as_marked(&self) -> u64 {
        let segments = |input: &IpInput| match usize::from(input.frame.meta().segment_size) {
            0 => 1,
            size => (input.frame.chain_len() - header(&input.frame).0).div_ceil(size) as u64,
        };
        self.packets.iter().filter(|input| input.ip.traffic_class & 3 == 3).map(segments).sum()
    }

    /// One more packet.
    pub(super) fn take(&mut self, mut input: IpInput) {
        let (begins, seq, ack, flags) = header(&input.frame);
        let len = input.frame.chain_len() - begins;
        // Nothing but an acknowledgement, with or without a push; the counter of accurate ECN (RFC 9768) is what it is.
        let plain = flags & 0x3f & !8 == 16 && len > 0;
        if let Some(last) = self.packets.last_mut().filter(|_| plain) {
            let (at, first, last_ack, last_flags) = header(&last.frame);
            let before = last.frame.chain_len() - at;
            let follows = last.frame.data()[..4] == input.frame.data()[..4]
                && (first.wrapping_add(before as u32), last_ack, last_flags) == (seq, ack, flags & !8)
                && before > 0
                && before + len < 64_000;
            if follows {
                let ce = last.ip.traffic_class & 3 == 3 || input.ip.traffic_class & 3 == 3;
                last.ip.traffic_class |= if ce { 3 } else { 0 };
                let meta = last.frame.meta_mut();
                if meta.segmentation == Segmentation::None {
                    (meta.segmentation, meta.segment_size) = (Segmentation::TcpV4, before as u16);
                }
                meta.checksum = Checksum::Verified;
                last.frame.data_mut()[13] |= flags & 8;
                assert!(input.frame.trim_front(begins));
                last.frame.append(input.frame);
                self.joined += 1;
                return;
            }
        }
        self.packets.push(input);
    }
}
