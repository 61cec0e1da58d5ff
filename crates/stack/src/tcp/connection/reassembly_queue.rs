//! Segments received out of order.
//!
//! Frames in order of sequence number, without overlaps, and the list of contiguous ranges with the time of their last change, from which
//! SACK options are made (RFC 2018 §4: the range just received first, then the most recently reported ones). Bytes received first are
//! kept, except that a range inside a new frame is replaced by it, so that no frame needs to be split.

use crate::tcp::Seq;
use flowlane_sys::frame::Frame;
use std::collections::VecDeque;

#[derive(Debug)]
struct Early {
    seq: Seq,
    len: u32,
    frame: Frame,
}

impl Early {
    fn end(&self) -> Seq {
        self.seq + self.len
    }
}

#[derive(Debug, Clone, Copy)]
struct Range {
    start: Seq,
    end: Seq,
}

/// Ranges of which it is known in which order they changed: twice what an option can say.
const RECENT: usize = 8;

/// Frames for which an empty queue keeps room in its list.
const LEAST_LIST: usize = 16;

/// Out-of-order frames of one connection.
#[derive(Debug, Default)]
pub(crate) struct ReassemblyQueue {
    frames: VecDeque<Early>,
    ranges: Vec<Range>,
    /// The last ones that changed, newest first.
    recent: [Seq; RECENT],
    known: u8,
    /// Payload bytes held.
    pub(crate) bytes: u32,
    /// Buffer memory held.
    pub(crate) held: usize,
    /// Bytes of memory of the lists.
    pub(crate) lists: usize,
}

impl ReassemblyQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    fn count_lists(&mut self) {
        self.lists =
            self.frames.capacity() * size_of::<Early>() + self.ranges.capacity() * size_of::<Range>();
    }

    /// Drops the frame furthest ahead, which the peer has to send again (RFC 2018 §8 allows it); bytes of its payload.
    pub(crate) fn drop_last(&mut self) -> Option<u32> {
        let last = self.frames.pop_back()?;
        self.bytes -= last.len;
        self.held -= last.frame.capacity();
        if let Some(range) = self.ranges.last_mut() {
            range.end = last.seq;
            if range.start >= range.end {
                let start = range.start;
                self.ranges.pop();
                self.forget_changes(start, start + 1);
            }
        }
        Some(last.len)
    }

    /// Puts in a frame whose data is the payload at `seq`. Returns how many bytes were new.
    pub(crate) fn insert(&mut self, mut seq: Seq, mut frame: Frame) -> u32 {
        let (from, to) = (seq, seq + frame.len() as u32);
        let mut end = to;
        let mut at = self.frames.partition_point(|early| early.end() <= seq);
        if let Some(before) = self.frames.get(at) {
            if before.seq <= seq {
                // Guard: `before.end() >= end` as `false` fails reassembly_queue::tests
                if before.end() >= end {
                    self.cover(from, to);
                    return 0;
                }
                let known = before.end().since(seq);
                let fits = frame.trim_front(known as usize);
                debug_assert!(fits);
                seq = before.end();
                at += 1;
            }
        }
        let mut old = 0;
        while let Some(next) = self.frames.get(at) {
            if next.seq >= end {
                break;
            }
            if next.end() > end {
                end = next.seq;
                frame.truncate(end.since(seq) as usize);
                break;
            }
            old += next.len;
            self.held -= next.frame.capacity();
            self.frames.remove(at);
        }
        let len = end.since(seq);
        if len > 0 {
            self.held += frame.capacity();
            self.frames.insert(at, Early { seq, len, frame });
        }
        self.cover(from, to);
        self.count_lists();
        self.bytes += len;
        self.bytes -= old;
        len - old
    }

    /// Adds a range to the list, joined with those that touch it.
    fn cover(&mut self, mut start: Seq, mut end: Seq) {
        let first = self.ranges.partition_point(|range| range.end < start);
        let last = self.ranges.partition_point(|range| range.start <= end);
        if first < last {
            start = start.min(self.ranges[first].start);
            end = end.max(self.ranges[last - 1].end);
            self.ranges[first] = Range { start, end };
            self.ranges.drain(first + 1..last);
        } else {
            self.ranges.insert(first, Range { start, end });
        }
        self.forget_changes(start, end);
        let known = usize::from(self.known).min(RECENT - 1);
        // Guard: no `self.recent.copy_within(..known, 1);` fails data::reassembly_and_selective
        // reassembly_queue::tests
        self.recent.copy_within(..known, 1);
        self.recent[0] = start;
        self.known = known as u8 + 1;
    }

    /// Ranges that begin in `start..end` are no longer among those that changed last.
    fn forget_changes(&mut self, start: Seq, end: Seq) {
        let mut kept = 0;
        for at in 0..usize::from(self.known) {
            let range = self.recent[at];
            if range < start || range >= end {
                self.recent[kept] = range;
                kept += 1;
            }
        }
        self.known = kept as u8;
    }

    /// Takes the next frame that starts at or before `nxt`, with what is new of it.
    pub(crate) fn pop(&mut self, nxt: Seq) -> Option<Frame> {
        while self.frames.front().is_some_and(|early| early.seq <= nxt) {
            let mut early = self.frames.pop_front()?;
            self.bytes -= early.len;
            self.held -= early.frame.capacity();
            if let Some(range) = self.ranges.first().copied().filter(|range| range.end <= early.end()) {
                self.ranges.remove(0);
                self.forget_changes(range.start, range.end);
            }
            if self.frames.is_empty() && self.frames.capacity() > LEAST_LIST {
                (self.frames, self.ranges) = (VecDeque::new(), Vec::new());
                self.lists = 0;
            }
            let known = nxt.since(early.seq) as usize;
            if known < early.frame.len() && early.frame.trim_front(known) {
                return Some(early.frame);
            }
        }
        None
    }

    /// Where the last range ends.
    pub(crate) fn last_end(&self) -> Option<Seq> {
        self.ranges.last().map(|range| range.end)
    }

    /// What is here already of `from..to`: the first contiguous part of it.
    pub(crate) fn known(&self, from: Seq, to: Seq) -> Option<(Seq, Seq)> {
        let range = self.ranges.get(self.ranges.partition_point(|range| range.end <= from))?;
        (range.start < to && from < to).then(|| (range.start.max(from), range.end.min(to)))
    }

    /// The ranges a SACK option should name, most recently changed first, at most `blocks.len()`; how many. Where so many were
    /// joined that the order of the others is not known, the highest of them follow. The cost does not grow with the ranges.
    pub(crate) fn blocks(&self, blocks: &mut [(Seq, Seq)]) -> usize {
        let recent = self.recent[..usize::from(self.known)].iter().filter_map(|start| {
            let at = self.ranges.partition_point(|range| range.start < *start);
            self.ranges.get(at)
        });
        let mut n = 0;
        for range in recent.chain(self.ranges.iter().rev()) {
            let block = (range.start, range.end);
            if n == blocks.len() {
                break;
            }
            if !blocks[..n].contains(&block) {
                blocks[n] = block;
                n += 1;
            }
        }
        n
    }

    /// The range that holds `seq`, for a D-SACK's second block (RFC 2883 §4).
    #[cfg(test)]
    fn range_list(&self) -> Vec<(Seq, Seq)> {
        self.ranges.iter().map(|r| (r.start, r.end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use flowlane_sys::frame::Pool;

    fn pool() -> Pool {
        crate::testing::pool(4096)
    }

    /// Byte n of the stream.
    fn byte(n: u32) -> u8 {
        (n.wrapping_mul(2_654_435_761) >> 24) as u8
    }

    /// Random ranges against one flag a byte: bytes, ranges and what comes out.
    #[test]
    fn agrees_with_a_model_that_keeps_every_byte() {
        let pool = pool();
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let base = Seq(u32::MAX - 500);
            let mut queue = ReassemblyQueue::default();
            let mut have = vec![false; 12_000];
            let mut nxt = 0u32;
            for _ in 0..60 {
                if rng.below(30) == 0 {
                    let last = queue
                        .frames
                        .back()
                        .map(|last| last.seq.since(base) as usize..last.end().since(base) as usize);
                    assert_eq!(queue.drop_last(), last.clone().map(|range| range.len() as u32));
                    if let Some(range) = last {
                        have[range].fill(false);
                    }
                } else if rng.below(4) > 0 {
                    let start = nxt + 1 + rng.below(800);
                    let len = 1 + rng.below(200);
                    let mut frame = pool.alloc().unwrap();
                    let bytes: Vec<u8> = (start..start + len).map(byte).collect();
                    assert!(frame.extend_from_slice(&bytes));
                    let new = queue.insert(base + start, frame);
                    let range = &mut have[start as usize..(start + len) as usize];
                    assert_eq!(new as usize, range.iter().filter(|h| !**h).count(), "seed {seed}");
                    range.fill(true);
                } else {
                    nxt += rng.below(150);
                    while let Some(frame) = queue.pop(base + nxt) {
                        for &b in frame.data() {
                            assert!(have[nxt as usize] && b == byte(nxt), "seed {seed}");
                            nxt += 1;
                        }
                    }
                    have[..nxt as usize].fill(false);
                }
                let held = have.iter().filter(|h| **h).count();
                assert_eq!(queue.bytes as usize, held, "seed {seed}");
                let mut ranges = Vec::new();
                let mut n = 0;
                while n < have.len() {
                    let len = have[n..].iter().take_while(|h| **h).count();
                    if len > 0 {
                        ranges.push((base + n as u32, base + (n + len) as u32));
                    }
                    n += len.max(1);
                }
                let mut got = queue.range_list();
                // A range popped in part keeps its old start until it is popped whole.
                if let (Some(first), Some(want)) = (got.first_mut(), ranges.first()) {
                    first.0 = first.0.max(want.0);
                }
                assert_eq!(got, ranges, "seed {seed}");
            }
        }
        assert_eq!(pool.free(), 4096);
    }

    #[test]
    fn the_newest_range_is_named_first() {
        let pool = pool();
        let mut queue = ReassemblyQueue::default();
        for start in [10, 30, 50, 70, 30] {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&[0; 5]));
            queue.insert(Seq(start), frame);
        }
        let mut blocks = [(Seq(0), Seq(0)); 3];
        assert_eq!(queue.blocks(&mut blocks), 3);
        assert_eq!(blocks.map(|b| b.0.0), [30, 70, 50]);
    }
}
