//! The series of a run: one slot per second, each with counts and two small histograms.
//!
//! During a second, latencies and slips go to histograms of two digits; at its end these are packed (V2, some hundred bytes) and cleared,
//! which takes some ten microseconds. **Memory is bounded**: beyond [`MOST`] slots each new one merges two neighbours into one of twice the
//! length, oldest first. So an hour is kept in intervals of four seconds and a day in intervals of two minutes. Slots begin at multiples of
//! their length, so that slots of lanes that merged at different times still align.

use std::io::Cursor;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use super::model::{Point, rounded};
use super::times::Times;

/// Most slots kept.
pub const MOST: usize = 1200;
/// Initial length of a slot, nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// Largest value of a histogram, nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Counts of one lane and pool in an interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slot {
    /// Start, seconds from the start of the run: a multiple of `length`.
    pub from: u64,
    /// Length in seconds: a power of two.
    pub length: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections made.
    pub opened: u64,
    /// Connections, or requests in flight, at the end.
    pub concurrency: u64,
    /// Packed latencies; empty if there were none.
    pub(super) latency: Vec<u8>,
    pub(super) slip: Vec<u8>,
}

impl Slot {
    /// The latencies.
    #[must_use]
    pub fn latency(&self) -> Times {
        unpack(&[&self.latency])
    }

    /// The slips.
    #[must_use]
    pub fn slip(&self) -> Times {
        unpack(&[&self.slip])
    }

    /// Takes these latencies and slips.
    pub(super) fn pack(&mut self, latency: Option<&Histogram<u64>>, slip: Option<&Histogram<u64>>) {
        let mut packer = Packer { serializer: V2Serializer::new(), room: Vec::new() };
        let mut pack = |histogram: Option<&Histogram<u64>>| histogram.map_or(Vec::new(), |h| packer.pack(h));
        (self.latency, self.slip) = (pack(latency), pack(slip));
    }

    /// Joins the interval right after this one, of the same lane and pool.
    fn join(&mut self, next: &Self, packer: &mut Packer) {
        self.length += next.length;
        self.add(next);
        self.concurrency = next.concurrency;
        self.latency = packer.join(&self.latency, &next.latency);
        self.slip = packer.join(&self.slip, &next.slip);
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.opened += other.opened;
    }
}

/// A histogram of two digits.
pub(crate) fn small() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// The sum of packed histograms.
fn unpack(packed: &[&[u8]]) -> Times {
    let mut sum = small();
    for bytes in packed.iter().filter(|b| !b.is_empty()) {
        let read: Result<Histogram<u64>, _> = Deserializer::new().deserialize(&mut Cursor::new(bytes));
        if let Ok(histogram) = read {
            // Same bounds: it fits.
            let _ = sum.add(&histogram);
        }
    }
    Times(sum)
}

/// Packs histograms, and reuses its memory.
struct Packer {
    serializer: V2Serializer,
    room: Vec<u8>,
}

impl Packer {
    fn pack(&mut self, histogram: &Histogram<u64>) -> Vec<u8> {
        if histogram.is_empty() {
            return Vec::new();
        }
        self.room.clear();
        // Writing to memory cannot fail, and our bounds can be encoded.
        let _ = self.serializer.serialize(histogram, &mut self.room);
        self.room.as_slice().to_vec()
    }

    fn join(&mut self, one: &[u8], other: &[u8]) -> Vec<u8> {
        if one.is_empty() || other.is_empty() {
            return if one.is_empty() { other.to_vec() } else { one.to_vec() };
        }
        let sum = unpack(&[one, other]).0;
        self.pack(&sum)
    }
}

/// The series of one lane and pool while it runs.
pub struct Series {
    start: u64,
    /// When the open slot ends.
    ends: u64,
    open: Slot,
    latency: Histogram<u64>,
    slip: Histogram<u64>,
    closed: Vec<Slot>,
    /// Index at which the next two slots are merged.
    merge_at: usize,
    packer: Packer,
}

impl std::fmt::Debug for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Series")
            .field("open", &self.open)
            .field("closed", &self.closed.len())
            .finish_non_exhaustive()
    }
}

impl Series {
    /// A series that starts at `start`, nanoseconds.
    #[must_use]
    pub fn new(start: u64) -> Self {
        Self {
            start,
            ends: start.saturating_add(SECOND),
            open: Slot { length: 1, ..Slot::default() },
            latency: small(),
            slip: small(),
            closed: Vec::new(),
            merge_at: 0,
            packer: Packer { serializer: V2Serializer::new(), room: Vec::new() },
        }
    }

    /// The slot of this time. Times before the start belong to the first slot.
    #[inline]
    pub fn slot(&mut self, now: u64) -> &mut Slot {
        if now >= self.ends {
            self.roll(now);
        }
        &mut self.open
    }

    /// Notes a latency in the open slot: call [`Series::slot`] before.
    #[inline]
    pub fn latency(&mut self, nanos: u64) {
        self.latency.saturating_record(nanos.max(1));
    }

    /// Notes a slip in the open slot: call [`Series::slot`] before.
    #[inline]
    pub fn slip(&mut self, nanos: u64) {
        self.slip.saturating_record(nanos.max(1));
    }

    /// Notes `count` equal ones.
    pub fn slip_n(&mut self, nanos: u64, count: u64) {
        self.slip.saturating_record_n(nanos.max(1), count);
    }

    /// Slots that have ended.
    #[must_use]
    pub fn closed(&self) -> &[Slot] {
        &self.closed
    }

    /// Ends slots until the one of this time is open.
    #[cold]
    fn roll(&mut self, now: u64) {
        let second = now.saturating_sub(self.start) / SECOND;
        self.close();
        // A lane that slept long adds empty slots, but at most as many as are kept.
        let first = (self.open.from + 1).max(second.saturating_sub(MOST as u64));
        for from in first..second {
            self.push(Slot { from, length: 1, concurrency: self.open.concurrency, ..Slot::default() });
        }
        let concurrency = self.open.concurrency;
        self.open = Slot { from: second, length: 1, concurrency, ..Slot::default() };
        self.ends = self.start.saturating_add((second + 1).saturating_mul(SECOND));
    }

    fn close(&mut self) {
        let mut slot = self.open.clone();
        slot.latency = self.packer.pack(&self.latency);
        slot.slip = self.packer.pack(&self.slip);
        self.latency.reset();
        self.slip.reset();
        self.push(slot);
    }

    fn push(&mut self, slot: Slot) {
        self.closed.push(slot);
        if self.closed.len() > MOST {
            self.merge_two();
        }
    }

    /// Merges two neighbours: the next pair of equal length that aligns with a slot of twice the length.
    fn merge_two(&mut self) {
        for _ in 0..=self.closed.len() {
            if self.merge_at + 1 >= self.closed.len() {
                self.merge_at = 0;
            }
            let [one, next] = &self.closed[self.merge_at..self.merge_at + 2] else { return };
            let fits = one.length == next.length
                && one.from + one.length == next.from
                && one.from.is_multiple_of(2 * one.length);
            self.merge_at += 1;
            if fits {
                let next = self.closed.remove(self.merge_at);
                self.closed[self.merge_at - 1].join(&next, &mut self.packer);
                return;
            }
        }
        // No pair aligns, after a sleep of years: the oldest slot is dropped.
        self.closed.remove(0);
    }

    /// Ends the series, and the open slot if it has any length.
    #[must_use]
    pub fn finish(mut self) -> Vec<Slot> {
        self.close();
        self.closed
    }
}

/// Points from the slots of many lanes, their latencies, and the slips of all. All points have the length of the longest slot. The last ends at `until`
/// seconds, the end of the run, and includes later events.
#[must_use]
pub fn points(lanes: &[&[Slot]], until: f64) -> (Vec<Point>, Vec<Times>, Times) {
    let all = || lanes.iter().flat_map(|slots| slots.iter());
    let Some(length) = all().map(|s| s.length).max() else { return Default::default() };
    let first = all().map(|s| s.from / length).min().unwrap_or(0);
    let end = (until.max(0.0) / length as f64).ceil() as u64;
    let last = all().map(|s| s.from / length).max().unwrap_or(0).min(end.saturating_sub(1)).max(first);
    let mut points = Vec::new();
    let mut latencies = Vec::new();
    let mut slips = Times(small());
    for index in first..=last {
        let from = index * length;
        let to = if index == last { u64::MAX } else { from + length };
        let mut sum = Slot { from, length, ..Slot::default() };
        let (mut latency, mut slip) = (Vec::new(), Vec::new());
        for lane in lanes {
            let begin = lane.partition_point(|s| s.from < from);
            let mut at_end = 0;
            for slot in lane[begin..].iter().take_while(|s| s.from < to) {
                sum.add(slot);
                at_end = slot.concurrency;
                latency.push(slot.latency.as_slice());
                slip.push(slot.slip.as_slice());
            }
            sum.concurrency += at_end;
        }
        let (latency, slip) = (unpack(&latency), unpack(&slip));
        points.push(point(&sum, until, &latency, &slip));
        latencies.push(latency);
        slips.add(&slip.0);
    }
    (points, latencies, slips)
}

fn point(slot: &Slot, until: f64, latency: &Times, slip: &Times) -> Point {
    let at_seconds = slot.from as f64;
    Point {
        at_seconds,
        seconds: rounded((slot.length as f64).min((until - at_seconds).max(0.0))),
        sent: slot.sent,
        answered: slot.answered,
        failed: slot.failed,
        bytes_sent: slot.bytes_sent,
        bytes_received: slot.bytes_received,
        connections_opened: slot.opened,
        concurrency: slot.concurrency,
        p50_ns: latency.at(0.5),
        p90_ns: latency.at(0.9),
        p99_ns: latency.at(0.99),
        p99_9_ns: latency.at(0.999),
        max_ns: latency.max(),
        slip_p99_ns: slip.at(0.99),
        slip_max_ns: slip.max(),
    }
}
