//! Splitting a packet that carries several UDP datagrams (UDP segmentation offload).
//!
//! A sender may pass many datagrams of one size to the kernel at once (`UDP_SEGMENT`, used by QUIC), and the card splits them. Without a
//! card on the way, as on a veth, or if the receiving kernel merges datagrams (GRO), they arrive here as one packet. Unlike bytes of TCP,
//! datagrams must stay separate, so they are split here as a card would.

use super::long::{Frames, Missed};
use crate::frame::{Checksum, Chunks, Frame, Meta, Pool, Segmentation};
use crate::vnet;

/// Datagrams of one packet at most: the kernel sends no more than 128.
const MOST: usize = 256;
const UDP_HEADER: usize = 8;

/// Cuts a packet of datagrams and appends them to `into`, the last first. An error tells why there are fewer than there should be.
pub(super) fn cut(packet: &Frame, pool: &Pool, into: &mut Vec<Frame>) -> Result<(), Missed> {
    let meta = *packet.meta();
    let (start, protocol) = vnet::transport(packet.data()).ok_or(Missed::Bad)?;
    let (head, size) = (start + UDP_HEADER, usize::from(meta.segment_size));
    let payload = packet.chain_len().checked_sub(head).ok_or(Missed::Bad)?;
    if protocol != vnet::UDP || head > packet.len() || size == 0 || payload.div_ceil(size) > MOST {
        return Err(Missed::Bad);
    }
    let first = into.len();
    let mut chunks = packet.chunks();
    let here = chunks.next().and_then(|first| first.get(head..)).ok_or(Missed::Bad)?;
    let mut rest = Rest { here, chunks };
    let mut left = payload;
    let mut result = Ok(());
    for number in 0..payload.div_ceil(size).max(1) {
        let here = size.min(left);
        left -= here;
        match one(&packet.data()[..head], start, here, number, &mut rest, pool) {
            Ok(mut frame) => {
                let asunder = Meta {
                    segmentation: Segmentation::None,
                    segment_size: 0,
                    checksum: Checksum::Verified,
                    ..meta
                };
                *frame.meta_mut() = asunder;
                into.push(frame);
            }
            Err(why) => {
                result = Err(why);
                break;
            }
        }
    }
    into[first..].reverse();
    result
}

/// The rest of the packet's bytes.
struct Rest<'a> {
    here: &'a [u8],
    chunks: Chunks<'a>,
}

impl Rest<'_> {
    fn fill(&mut self, mut to: &mut [u8]) -> Option<()> {
        while !to.is_empty() {
            if self.here.is_empty() {
                self.here = self.chunks.next()?;
            }
            let n = self.here.len().min(to.len());
            let (now, later) = self.here.split_at(n);
            let (filled, more) = to.split_at_mut(n);
            filled.copy_from_slice(now);
            (self.here, to) = (later, more);
        }
        Some(())
    }
}

/// The datagram of this number, with `len` bytes of payload. Its sum need not be verified: the kernel merges only what it has
/// verified, and what was sent as one was never out of the machine.
fn one(
    headers: &[u8],
    start: usize,
    len: usize,
    number: usize,
    rest: &mut Rest<'_>,
    pool: &Pool,
) -> Result<Frame, Missed> {
    let mut frames = Frames::new(pool, headers.len() + len)?;
    let mut before = headers;
    for frame in frames.each() {
        let (ours, room) = {
            let n = before.len().min(frame.len());
            frame.data_mut().split_at_mut(n)
        };
        let (now, later) = before.split_at(ours.len());
        ours.copy_from_slice(now);
        before = later;
        rest.fill(room).ok_or(Missed::Bad)?;
    }
    let mut frame = frames.chain().ok_or(Missed::Bad)?;
    let datagram = (UDP_HEADER + len) as u16;
    let bytes = frame.data_mut();
    if bytes.len() < start + UDP_HEADER {
        return Err(Missed::Bad);
    }
    bytes[start + 4..start + 6].copy_from_slice(&datagram.to_be_bytes());
    // Where the IP header starts: it ends at `start`, and the byte behind the EtherType tells the version.
    let ip = vnet::network(bytes).ok_or(Missed::Bad)?;
    if bytes[ip] >> 4 == 6 {
        let fixed = ip + 40;
        let payload = (start - fixed) as u16 + datagram;
        bytes[ip + 4..ip + 6].copy_from_slice(&payload.to_be_bytes());
    } else {
        let total = (start - ip) as u16 + datagram;
        bytes[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
        let identification = u16::from_be_bytes([bytes[ip + 4], bytes[ip + 5]]).wrapping_add(number as u16);
        bytes[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
        bytes[ip + 10..ip + 12].fill(0);
        let sum = !vnet::fold(vnet::sum_of(&bytes[ip..start]));
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_ne_bytes());
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameMemory, MemoryConfig};

    #[test]
    fn a_packet_of_datagrams_becomes_datagrams() {
        let config =
            MemoryConfig { frames_per_home: 64, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let memory = FrameMemory::new(&config).unwrap();
        let pool = memory.attach(0).unwrap();
        for (v6, tagged) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut head = vec![2; 12];
            if tagged {
                head.extend([0x81, 0, 0, 5]);
            }
            if v6 {
                head.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
                head.extend([0xfd; 32]);
            } else {
                head.extend([
                    8, 0, 0x45, 0, 0, 0, 0xff, 0xff, 0x40, 0, 64, 17, 1, 2, 10, 0, 0, 1, 10, 0, 0, 2,
                ]);
            }
            let ip = if tagged { 18 } else { 14 };
            head.extend([0, 9, 0, 7, 0, 0, 3, 4]);
            let payload: Vec<u8> = (0..4_700).map(|i| (i % 251) as u8).collect();
            let bytes = [&head[..], &payload].concat();
            let mut frames = Frames::new(&pool, bytes.len()).unwrap();
            let mut at = 0;
            for frame in frames.each() {
                let n = frame.len();
                frame.data_mut().copy_from_slice(&bytes[at..at + n]);
                at += n;
            }
            let mut packet = frames.chain().unwrap();
            for size in [1000u16, 2300, 4700, 9000] {
                packet.meta_mut().segmentation = Segmentation::Udp;
                packet.meta_mut().segment_size = size;
                packet.meta_mut().vlan = Some(9);
                let mut got = Vec::new();
                cut(&packet, &pool, &mut got).unwrap();
                got.reverse();
                assert_eq!(got.len(), 4_700_usize.div_ceil(usize::from(size)));
                for (i, (frame, want)) in got.iter().zip(payload.chunks(usize::from(size))).enumerate() {
                    let all = frame.chunks().collect::<Vec<_>>().concat();
                    assert_eq!(all[head.len()..], *want);
                    let number = |at: usize| usize::from(u16::from_be_bytes([all[at], all[at + 1]]));
                    assert_eq!(number(head.len() - 4), want.len() + 8);
                    if v6 {
                        assert_eq!(number(ip + 4), want.len() + 8);
                    } else {
                        assert_eq!(number(ip + 2), want.len() + 28);
                        assert_eq!(number(ip + 4), (0xffff + i) & 0xffff);
                        assert_eq!(vnet::fold(vnet::sum_of(&all[ip..ip + 20])), 0xffff);
                    }
                    let meta = frame.meta();
                    assert_eq!((meta.vlan, meta.segmentation), (Some(9), Segmentation::None));
                    assert_eq!(meta.checksum, Checksum::Verified);
                }
            }
            for (size, why) in [(0, Missed::Bad), (1, Missed::Bad), (20, Missed::NoFrame)] {
                packet.meta_mut().segment_size = size;
                let mut got = Vec::new();
                assert_eq!(cut(&packet, &pool, &mut got), Err(why), "{size}");
                assert_eq!(got.is_empty(), why == Missed::Bad);
            }
        }
        assert_eq!(pool.free(), 64);
    }
}
