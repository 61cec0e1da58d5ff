//! The scoreboard: sent segments with their time and state.
//!
//! It has one record for each transmitted segment (or batch of segments for segmentation offload), in order of sequence number. It
//! provides the number of bytes in flight (RFC 6675's pipe, kept by addition and subtraction), round-trip samples (Karn), and the state
//! that RACK (RFC 8985) needs. A record is split when the peer reports a part of it.
//!
//! Invariants: records are adjacent and span `SND.UNA..SND.NXT`; `sacked`, `lost` and `retrans` are the sums over the records so marked;
//! a record is never both sacked and lost.

use crate::tcp::Seq;
use crate::tcp::connection::sequence::ts_clock;
use crate::time::Time;
use std::collections::VecDeque;

/// One transmitted range of sequence numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    /// Sequence numbers, those of SYN and FIN included.
    pub(crate) len: u32,
    /// When it was last sent.
    pub(crate) at: Time,
    pub(crate) flags: u8,
}

/// The record begins with a SYN.
pub(crate) const SYN: u8 = 1;
/// The record ends with a FIN.
pub(crate) const FIN: u8 = 2;
/// Selectively acknowledged.
pub(crate) const SACKED: u8 = 4;
/// Deemed lost.
pub(crate) const LOST: u8 = 8;
/// Sent again since it was deemed lost.
pub(crate) const RETRANS: u8 = 16;
/// Ever sent again.
pub(crate) const EVER_RETRANS: u8 = 32;
/// The application's write ended here.
pub(crate) const PUSH: u8 = 64;

impl Sent {
    /// The first number after it.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len
    }

    #[inline]
    pub(crate) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// What one acknowledgement delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub(crate) bytes: u32,
    /// Bytes newly acknowledged selectively.
    pub(crate) sacked: u32,
    /// Of the most recently sent segment delivered that RACK may trust: send time and end.
    pub(crate) newest: Option<(Time, Seq)>,
    /// Send time of the segment delivered last that RACK may trust; the one at the acknowledgement counts as the last.
    pub(crate) latest: Option<Time>,
    /// Send time of the newest delivered segment that was sent once only.
    pub(crate) rtt_from: Option<Time>,
    /// A segment sent once was delivered after later ones.
    pub(crate) reordered: bool,
    /// How far before the highest delivered byte such a segment began.
    pub(crate) reach: u32,
    /// Something delivered had been retransmitted.
    pub(crate) retransmitted: bool,
    /// When the first of what was delivered and had been retransmitted was last sent.
    pub(crate) again: Option<Time>,
}

/// What RACK needs to tell a retransmission's acknowledgement from the original's (RFC 8985 §6.2, step 2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckClock {
    pub(crate) now: Time,
    pub(crate) min_rtt_us: u32,
    /// The echoed timestamp, and what to add to milliseconds to get our timestamps.
    pub(crate) echo: Option<u32>,
    pub(crate) ts_offset: u32,
}

impl Delivered {
    /// Whether the time since the echoed timestamp was that of a way there and back. If it is older than the last transmission, the
    /// acknowledgement may be a second one: the first was lost, and a duplicate of what had arrived long before brought this one, which
    /// echoes what the peer then heard. Such times are those of our own waits; taken for round trips they would double the timeout
    /// with each loss. What comes sooner than any answer to the last transmission could answers an earlier one.
    pub(crate) fn is_answered_by(&self, echo: u32, clock: &AckClock) -> bool {
        self.again.is_none_or(|at| {
            let age = clock.now.saturating_duration_since(at).as_micros() as u64;
            (echo.wrapping_sub(ts_clock(at, clock.ts_offset)) as i32) >= 0
                || age < u64::from(clock.min_rtt_us)
        })
    }

    fn note(&mut self, sent: &Sent, clock: &AckClock, fack: Seq) {
        if sent.is(EVER_RETRANS) {
            self.retransmitted = true;
            self.again.get_or_insert(sent.at);
            let age = clock.now.saturating_duration_since(sent.at).as_micros() as u64;
            let echoes_older =
                clock.echo.is_some_and(|e| (e.wrapping_sub(ts_clock(sent.at, clock.ts_offset)) as i32) < 0);
            if echoes_older || age < u64::from(clock.min_rtt_us) {
                return;
            }
        } else {
            self.rtt_from = Some(self.rtt_from.map_or(sent.at, |at| at.max(sent.at)));
            if sent.end() < fack {
                self.reordered = true;
                self.reach = self.reach.max(fack.since(sent.seq));
            }
        }
        self.latest = Some(sent.at);
        let newer = self.newest.is_none_or(|(at, end)| sent.at > at || sent.at == at && sent.end() > end);
        if newer {
            self.newest = Some((sent.at, sent.end()));
        }
    }
}

/// All records of a connection.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    queue: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    retrans: u32,
    /// Records selectively acknowledged.
    sacked_records: u32,
    /// End of the highest record ever sent again.
    rexmit_high: Seq,
    /// No record before this index waits for retransmission.
    hint: usize,
    /// Highest sequence number known to have arrived.
    fack: Seq,
    /// What was deemed lost since somebody asked: bytes, and the record that was the last.
    newly_lost: (u32, Option<Sent>),
    /// Blocks of the last SACK option: what did not change need not be looked at again.
    seen: [(Seq, Seq); 4],
    seen_len: usize,
}

impl Scoreboard {
    /// Bytes selectively acknowledged.
    #[inline]
    pub(crate) const fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes deemed lost.
    #[inline]
    pub(crate) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes of them that were sent again.
    #[inline]
    pub(crate) const fn retrans(&self) -> u32 {
        self.retrans
    }

    /// Records selectively acknowledged.
    pub(crate) const fn sacked_records(&self) -> u32 {
        self.sacked_records
    }

    /// Records not selectively acknowledged.
    #[inline]
    pub(crate) fn unsacked_records(&self) -> u32 {
        self.queue.len() as u32 - self.sacked_records
    }

    /// End of the highest record ever sent again.
    pub(crate) const fn rexmit_high(&self) -> Seq {
        self.rexmit_high
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of memory.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Sent>()
    }

    pub(crate) fn front(&self) -> Option<&Sent> {
        self.queue.front()
    }

    /// The record, if there is one and no more.
    #[inline]
    pub(crate) fn only(&self) -> Option<&Sent> {
        self.queue.front().filter(|_| self.queue.len() == 1)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Sent> {
        self.queue.get(index)
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        if self.queue.is_empty() {
            self.rexmit_high = sent.seq;
            self.fack = sent.seq;
        }
        self.queue.push_back(sent);
    }

    /// Bytes in the network (RFC 6675 §4, pipe), of `outstanding` = SND.NXT - SND.UNA.
    #[inline]
    pub(crate) fn in_flight(&self, outstanding: u32) -> u32 {
        // Guard: `self.sacked + self.lost` as `self.lost` fails loss::limited_transmit loss::fast_recovery
        (outstanding + self.retrans).saturating_sub(self.sacked + self.lost)
    }

    /// Empties it; keeps a little memory for the next flight.
    pub(crate) fn reset(&mut self) {
        self.queue.clear();
        if self.queue.capacity() > 64 {
            self.queue.shrink_to(64);
        }
        (self.sacked, self.lost, self.retrans, self.sacked_records) = (0, 0, 0, 0);
        (self.hint, self.seen_len) = (0, 0);
        self.newly_lost = (0, None);
    }

    /// What was deemed lost, or lost again, since this was last called: bytes, and the record that was the last.
    pub(crate) fn take_newly_lost(&mut self) -> (u32, Option<Sent>) {
        core::mem::take(&mut self.newly_lost)
    }

    fn forget(&mut self, flags: u8, len: u32) {
        if flags & SACKED != 0 {
            self.sacked -= len;
        }
        if flags & LOST != 0 {
            self.lost -= len;
        }
        if flags & RETRANS != 0 {
            self.retrans -= len;
        }
    }

    /// Takes off everything before `una`.
    pub(crate) fn acknowledge(&mut self, una: Seq, clock: &AckClock, delivered: &mut Delivered) {
        while let Some(front) = self.queue.front_mut() {
            let sent = *front;
            if sent.seq >= una {
                break;
            }
            if sent.end() > una {
                let part = una.since(sent.seq);
                front.seq = una;
                front.len -= part;
                front.flags &= !SYN;
                self.forget(sent.flags, part);
                if !sent.is(SACKED) {
                    delivered.bytes += part;
                }
                break;
            }
            self.queue.pop_front();
            self.hint = self.hint.saturating_sub(1);
            if sent.flags & (SACKED | LOST | RETRANS) != 0 {
                self.sacked_records -= u32::from(sent.is(SACKED));
                self.forget(sent.flags, sent.len);
            }
            if !sent.is(SACKED) {
                delivered.bytes += sent.len;
                delivered.note(&sent, clock, self.fack);
            }
        }
        self.fack = self.fack.max(una);
        self.rexmit_high = self.rexmit_high.max(una);
    }

    /// Marks what the blocks of a SACK option cover. `blocks` lie within `SND.UNA..SND.NXT`.
    pub(crate) fn selective(
        &mut self,
        blocks: &[(Seq, Seq)],
        mss: u32,
        clock: &AckClock,
        delivered: &mut Delivered,
    ) {
        let (fack, cumulative) = (self.fack, delivered.latest);
        for &block in blocks {
            let (mut start, mut end) = block;
            for &(s, e) in &self.seen[..self.seen_len] {
                if s <= start && start < e {
                    start = e.min(end);
                }
                if s < end && end <= e {
                    end = s.max(start);
                }
            }
            if start < end {
                self.mark((start, end), block, mss, clock, fack, delivered);
            }
        }
        delivered.latest = cumulative.or(delivered.latest);
        self.seen_len = blocks.len().min(4);
        self.seen[..self.seen_len].copy_from_slice(&blocks[..self.seen_len]);
    }

    /// Marks the records in `(from, to)`, the news in the block `(start, end)`.
    fn mark(
        &mut self,
        (from, to): (Seq, Seq),
        (start, end): (Seq, Seq),
        mss: u32,
        clock: &AckClock,
        fack: Seq,
        delivered: &mut Delivered,
    ) {
        let mut at = self.queue.partition_point(|sent| sent.end() <= from);
        while let Some(&sent) = self.queue.get(at) {
            if sent.seq >= to {
                break;
            }
            if sent.is(SACKED) {
                at += 1;
                continue;
            }
            // Only whole segments are split off a batch, or a hostile peer could grind it to single bytes.
            if sent.seq < start {
                let before = start.since(sent.seq).next_multiple_of(mss.max(1));
                if before >= sent.len || sent.seq + before >= end {
                    at += 1;
                    continue;
                }
                self.split(at, before);
                at += 1;
                continue;
            }
            if sent.end() > end {
                let covered = end.since(sent.seq) / mss.max(1) * mss;
                if covered == 0 {
                    break;
                }
                self.split(at, covered);
            }
            let record = &mut self.queue[at];
            let (flags, len) = (record.flags, record.len);
            record.flags = flags & !(LOST | RETRANS) | SACKED;
            let record = *record;
            self.forget(flags, len);
            self.sacked += len;
            self.sacked_records += 1;
            delivered.bytes += len;
            delivered.sacked += len;
            self.fack = self.fack.max(record.end());
            delivered.note(&Sent { flags, ..record }, clock, fack);
            at += 1;
        }
    }

    /// Splits the record at `index` after `len` sequence numbers.
    pub(crate) fn split(&mut self, index: usize, len: u32) {
        let first = &mut self.queue[index];
        debug_assert!(0 < len && len < first.len);
        let mut second = *first;
        first.len = len;
        first.flags &= !(FIN | PUSH);
        second.seq += len;
        second.len -= len;
        second.flags &= !SYN;
        self.queue.insert(index + 1, second);
        if self.hint > index {
            self.hint = index;
        }
    }

    /// Deems the record at `index` lost, or its retransmission if it was sent again.
    pub(crate) fn mark_lost(&mut self, index: usize) {
        let sent = &mut self.queue[index];
        if sent.is(SACKED) {
            return;
        }
        if sent.flags & (LOST | RETRANS) != LOST {
            self.newly_lost = (self.newly_lost.0.wrapping_add(sent.len), Some(*sent));
        }
        if sent.is(RETRANS) {
            self.retrans -= sent.len;
        }
        if !sent.is(LOST) {
            self.lost += sent.len;
        }
        sent.flags = sent.flags & !RETRANS | LOST;
        self.hint = self.hint.min(index);
    }

    /// Deems everything lost that was not selectively acknowledged; all of it if the peer took that back
    /// (RFC 2018 §8). Returns whether it had.
    pub(crate) fn mark_all_lost(&mut self) -> bool {
        // Guard: `self.front().is_some_and(|front| front.is(SACKED))` as `false` fails loss::reneging
        let reneged = self.front().is_some_and(|front| front.is(SACKED));
        if reneged {
            for sent in &mut self.queue {
                sent.flags &= !SACKED;
            }
            self.sacked = 0;
            self.sacked_records = 0;
            self.seen_len = 0;
        }
        for index in 0..self.queue.len() {
            self.mark_lost(index);
        }
        reneged
    }

    /// Nothing is deemed lost any more, and nothing counts as sent twice.
    pub(crate) fn none_is_lost(&mut self) {
        for sent in &mut self.queue {
            sent.flags &= !(LOST | RETRANS);
        }
        (self.lost, self.retrans) = (0, 0);
    }

    /// The first record that waits to be sent again.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        if self.lost == self.retrans {
            return None;
        }
        while let Some(sent) = self.queue.get(self.hint) {
            if sent.flags & (LOST | RETRANS | SACKED) == LOST {
                return Some(self.hint);
            }
            self.hint += 1;
        }
        None
    }

    /// Notes that the record at `index` was sent again.
    pub(crate) fn retransmitted(&mut self, index: usize, now: Time) {
        let sent = &mut self.queue[index];
        sent.at = now;
        if !sent.is(RETRANS) && sent.is(LOST) {
            self.retrans += sent.len;
            sent.flags |= RETRANS;
        }
        sent.flags |= EVER_RETRANS;
        self.rexmit_high = self.rexmit_high.max(sent.end());
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        let sum = |flag| self.queue.iter().filter(|s| s.is(flag)).map(|s| s.len).sum::<u32>();
        assert_eq!(self.sacked_records as usize, self.queue.iter().filter(|s| s.is(SACKED)).count());
        assert_eq!((self.sacked, self.lost, self.retrans), (sum(SACKED), sum(LOST), sum(RETRANS)));
        for (a, b) in self.queue.iter().zip(self.queue.iter().skip(1)) {
            assert_eq!(a.end(), b.seq);
        }
        assert!(self.queue.iter().all(|s| s.len > 0 && !(s.is(SACKED) && s.is(LOST))));
        let waiting = self.queue.iter().position(|s| s.flags & (LOST | RETRANS | SACKED) == LOST);
        assert!(waiting.is_none_or(|index| self.hint <= index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const CLOCK: AckClock = AckClock { now: Time::from_secs(9), min_rtt_us: 0, echo: None, ts_offset: 0 };

    /// Random sends, acknowledgements and losses against one byte of state for each sequence number.
    #[test]
    fn agrees_with_a_model_that_keeps_every_number() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let base = Seq(u32::MAX - 3000);
            let (mut una, mut nxt) = (0u32, 0u32);
            let mut queue = Scoreboard::default();
            let mut sacked = vec![false; 200_000];
            for _ in 0..200 {
                match rng.below(6) {
                    0 | 1 => {
                        let len = [100, 100, 100, 700, 37][rng.below(5) as usize];
                        queue.push(Sent { seq: base + nxt, len, at: Time::from_secs(1), flags: 0 });
                        nxt += len;
                    }
                    2 if nxt > una => {
                        let to = una + rng.below(nxt - una + 1);
                        let mut delivered = Delivered::default();
                        queue.acknowledge(base + to, &CLOCK, &mut delivered);
                        let want = (una..to).filter(|&n| !sacked[n as usize]).count();
                        assert_eq!(delivered.bytes as usize, want, "seed {seed}");
                        una = to;
                    }
                    3 if nxt > una + 1 => {
                        // A block never starts at the acknowledgement.
                        let a = una + 1 + rng.below(nxt - una - 1);
                        let b = a + 1 + rng.below(nxt - a);
                        let before = queue.sacked;
                        let mut delivered = Delivered::default();
                        queue.selective(&[(base + a, base + b)], 100, &CLOCK, &mut delivered);
                        assert_eq!(queue.sacked, before + delivered.sacked);
                        for sent in &queue.queue {
                            if sent.is(SACKED) {
                                let from = sent.seq.since(base) as usize;
                                sacked[from..from + sent.len as usize].fill(true);
                            }
                        }
                        let inside = |n: u32| (a..b).contains(&n);
                        // A marked number lies in the block or was marked before; a whole record in the block is marked.
                        for sent in &queue.queue {
                            let from = sent.seq.since(base);
                            if inside(from) && inside(from + sent.len - 1) {
                                assert!(sent.is(SACKED), "seed {seed}");
                            }
                        }
                    }
                    4 if !queue.is_empty() => {
                        let index = rng.below(queue.len() as u32) as usize;
                        queue.mark_lost(index);
                    }
                    5 => {
                        if let Some(index) = queue.next_lost() {
                            queue.retransmitted(index, Time::from_secs(2));
                        }
                    }
                    _ => {}
                }
                queue.check();
            }
        }
    }

    #[test]
    fn everything_is_lost_when_the_peer_reneges() {
        let mut queue = Scoreboard::default();
        for n in 0..3 {
            queue.push(Sent { seq: Seq(n * 10), len: 10, at: Time::ZERO, flags: 0 });
        }
        queue.selective(&[(Seq(0), Seq(20))], 10, &CLOCK, &mut Delivered::default());
        assert_eq!((queue.sacked, queue.in_flight(30)), (20, 10));
        assert!(queue.mark_all_lost());
        assert_eq!((queue.sacked, queue.lost, queue.in_flight(30)), (0, 30, 0));
        queue.check();
    }
}
