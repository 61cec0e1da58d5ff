//! Taking apart what the kernel merged: each datagram gets a frame of its own.
//!
//! They are copied out of the frame and the batch's memory, which are warm from the kernel's own copy: a kilobyte costs tens of
//! nanoseconds, where a way through the kernel of its own costs a microsecond. What is one datagram stays in its frame.

use std::collections::VecDeque;

use flowlane_rss::HashType;
use flowlane_stack::address::Endpoint;
use flowlane_stack::udp::Datagram;
use flowlane_sys::frame::{Frame, Meta, Pool};
use flowlane_sys::kernel::datagrams::Received;

/// Where received datagrams go.
pub(super) struct Came<'a> {
    /// What was asked for.
    pub(super) into: &'a mut Vec<Datagram>,
    /// What is more than that.
    pub(super) waiting: &'a mut VecDeque<Datagram>,
    /// Datagrams that are asked for.
    pub(super) room: usize,
    /// Datagrams so far.
    pub(super) kept: usize,
    /// Datagrams for which there was no frame.
    pub(super) cut: usize,
}

impl Came<'_> {
    /// Takes a message, of which `frame` has the beginning and `rest` the rest; how many datagrams it was. `ends` are the sender's and
    /// ours.
    pub(super) fn take(
        &mut self,
        frames: &Pool,
        mut frame: Frame,
        rest: &[u8],
        received: &Received,
        ends: (Endpoint, Endpoint),
        (hash, kind): (u32, HashType),
    ) -> usize {
        let meta = frame.meta_mut();
        (meta.hash, meta.hash_type, meta.timestamp) = (hash, kind.as_u8(), received.timestamp);
        meta.queue = u16::try_from(received.interface).unwrap_or(0);
        let meta = *meta;
        let (long, segment) = (frame.len() + rest.len(), received.segment);
        let mut keep = |whole: Option<Frame>| match whole {
            Some(frame) => {
                let mut datagram = Datagram::new(frame, ends.0, ends.1);
                datagram.traffic_class = received.traffic_class;
                if self.kept < self.room {
                    self.into.push(datagram);
                } else {
                    self.waiting.push_back(datagram);
                }
                self.kept += 1;
            }
            // Guard: `self.cut += 1` as `()` fails kernel::datagrams::split
            None => self.cut += 1,
        };
        if segment == 0 || segment >= long {
            keep(fill(frames, frame, rest));
            return 1;
        }
        let there = frame.len();
        let in_rest = |at: usize| at.saturating_sub(there).min(rest.len());
        let pieces = long.div_ceil(segment);
        for at in (0..long).step_by(segment) {
            let end = (at + segment).min(long);
            let piece = another(frames, &meta, &frame.data()[at.min(there)..end.min(there)]);
            keep(piece.and_then(|piece| fill(frames, piece, &rest[in_rest(at)..in_rest(end)])));
        }
        pieces
    }
}

/// A frame with the beginning of a datagram.
fn another(frames: &Pool, meta: &Meta, bytes: &[u8]) -> Option<Frame> {
    let mut frame = frames.alloc()?;
    *frame.meta_mut() = *meta;
    frame.extend_from_slice(bytes).then_some(frame)
}

/// Puts the rest of a datagram behind its beginning: into the frame as far as there is room, and into others chained to it. `None` if
/// there are not enough.
fn fill(frames: &Pool, mut head: Frame, mut rest: &[u8]) -> Option<Frame> {
    let here = rest.len().min(head.tailroom());
    if here > 0 && !head.is_chained() {
        if !head.extend_from_slice(&rest[..here]) {
            return None;
        }
        rest = &rest[here..];
    }
    while !rest.is_empty() {
        let mut frame = frames.alloc()?;
        let n = rest.len().min(frame.tailroom());
        if n == 0 || !frame.extend_from_slice(&rest[..n]) {
            return None;
        }
        head.append(frame);
        rest = &rest[n..];
    }
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    /// Every message comes out as the datagrams it was made of, whatever their length and wherever the frame ends; what is more than was
    /// asked for waits.
    #[test]
    fn a_message_is_taken_apart() {
        let config =
            MemoryConfig { frames_per_home: 256, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let memory = FrameMemory::new(&config).unwrap();
        let pool = memory.attach(0).unwrap();
        let end = |port| Endpoint::new([10, 0, 0, 1].into(), port);
        for segment in [0, 1, 2, 100, 599, 600, 700, 1791, 1792, 1793, 4000] {
            for long in [1, 599, 600, 601, 1200, 1791, 1792, 1793, 3000, 3583, 3585, 5000]
                .map(|n: usize| n.min(segment.max(1) * 60))
            {
                let bytes: Vec<u8> = (0..long).map(|n| (n % 251) as u8).collect();
                let mut frame = pool.alloc().unwrap();
                let (head, rest) = bytes.split_at(long.min(frame.tailroom()));
                assert!(frame.extend_from_slice(head));
                let received = Received {
                    source: "10.0.0.1:1".parse().unwrap(),
                    destination: None,
                    interface: 3,
                    traffic_class: 2,
                    timestamp: 77,
                    segment,
                    lost: None,
                    spilled: rest.len(),
                };
                let (mut into, mut waiting) = (Vec::new(), VecDeque::new());
                let mut came = Came { into: &mut into, waiting: &mut waiting, room: 4, kept: 0, cut: 0 };
                let ends = (end(1), end(2));
                let pieces = came.take(&pool, frame, rest, &received, ends, (9, HashType::UdpIpv4));
                let (kept, cut) = (came.kept, came.cut);
                let wanted: Vec<&[u8]> = bytes.chunks(if segment == 0 { long } else { segment }).collect();
                assert_eq!((pieces, kept, cut), (wanted.len(), wanted.len(), 0), "{long} bytes by {segment}");
                assert_eq!(into.len(), wanted.len().min(4), "{long} bytes by {segment}");
                for (datagram, wanted) in into.iter().chain(&waiting).zip(wanted) {
                    let mut whole = vec![0; datagram.len()];
                    assert_eq!(datagram.read(&mut whole), whole.len());
                    assert_eq!(whole, wanted, "{long} bytes by {segment}");
                    let meta = datagram.frame().meta();
                    assert_eq!((meta.hash, meta.timestamp, meta.queue), (9, 77, 3));
                    assert_eq!((datagram.traffic_class, datagram.source.port), (2, 1));
                }
            }
        }
        // Without frames what is lost is counted.
        let mut frame = pool.alloc().unwrap();
        let held: Vec<Frame> = std::iter::from_fn(|| pool.alloc()).collect();
        assert!(frame.extend_from_slice(&[1; 1000]));
        let (mut into, mut waiting) = (Vec::new(), VecDeque::new());
        let mut came = Came { into: &mut into, waiting: &mut waiting, room: 64, kept: 0, cut: 0 };
        let received = Received {
            source: "10.0.0.1:1".parse().unwrap(),
            destination: None,
            interface: 0,
            traffic_class: 0,
            timestamp: 0,
            segment: 100,
            lost: None,
            spilled: 1000,
        };
        let pieces = came.take(&pool, frame, &[2; 1000], &received, (end(1), end(2)), (0, HashType::UdpIpv4));
        assert_eq!((pieces, came.kept, came.cut), (20, 0, 20));
        drop(held);
    }
}
