//! Figures during a run: snapshots of the lanes, merged for display.
//!
//! Each lane sends a [`Snapshot`] at most four times a second; [`Live::take`] keeps the newest of each lane, and [`Live::frame`] merges
//! them into what a line or a display shows. The displaying thread does this work; lanes do not wait for it.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use flowlane_stack::stats::Histogram;

use super::model::Point;
use super::recorder::Passed;
use super::recorder::Snapshot;
use super::series::{Slot, points, small};
use super::times::Times;

/// Capacity of the channel, snapshots.
const WAITING: usize = 4096;
/// Seconds of history that are kept.
const PAST: u64 = 120;

/// A channel for the snapshots of a run.
#[must_use]
pub fn channel() -> (SyncSender<Snapshot>, Receiver<Snapshot>) {
    sync_channel(WAITING)
}

/// Counts at a time. Rates are per second, between the last two snapshots of each lane.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Now {
    /// Requests sent so far.
    pub sent: u64,
    /// Answers so far.
    pub answered: u64,
    /// Errors so far.
    pub failed: u64,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// Connections, or requests in flight.
    pub concurrency: u64,
    /// Requests sent per second.
    pub sent_rate: f64,
    /// Answers per second.
    pub answered_rate: f64,
    /// Errors per second.
    pub failed_rate: f64,
    /// Bytes received per second.
    pub bytes_rate: f64,
}

impl Now {
    fn add(&mut self, s: &Snapshot) {
        self.sent += s.sent;
        self.answered += s.answered;
        self.failed += s.failed;
        self.bytes_received += s.bytes_received;
        self.concurrency += s.concurrency;
    }

    /// Adds the rates of a lane, from its snapshot before.
    fn add_rates(&mut self, now: &Snapshot, before: &Before) {
        let seconds = now.nanos.saturating_sub(before.nanos) as f64 / 1e9;
        let rate =
            |now: u64, then: u64| if seconds > 0.0 { now.saturating_sub(then) as f64 / seconds } else { 0.0 };
        self.sent_rate += rate(now.sent, before.sent);
        self.answered_rate += rate(now.answered, before.answered);
        self.failed_rate += rate(now.failed, before.failed);
        self.bytes_rate += rate(now.bytes_received, before.bytes_received);
    }
}

/// The figures to show at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    /// Time since the start.
    pub elapsed: Duration,
    /// All together.
    pub total: Now,
    /// By pool.
    pub pools: Vec<Now>,
    /// By bucket.
    pub buckets: Vec<(u16, Now)>,
    /// The last whole seconds, oldest first, at most two minutes of them.
    pub seconds: Vec<Point>,
    /// The newest whole second of each pool.
    pub pool_seconds: Vec<Point>,
}

impl Frame {
    /// The newest whole second.
    #[must_use]
    pub fn last(&self) -> Option<&Point> {
        self.seconds.last()
    }
}

/// Counts of the snapshot before the newest.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    nanos: u64,
    sent: u64,
    answered: u64,
    failed: u64,
    bytes_received: u64,
}

/// A lane without a snapshot for this time, nanoseconds, counts as idle.
const SILENT: u64 = 1_500_000_000;

/// The newest snapshots of the lanes.
#[derive(Debug, Default)]
pub struct Live {
    /// The newest snapshot of each lane and pool, and the counts before it.
    lanes: BTreeMap<(u16, usize), (Snapshot, Before)>,
    slots: BTreeMap<(u16, usize), Vec<Slot>>,
    /// All latencies of the whole seconds so far, if they are wanted.
    latencies: Option<Histogram>,
    /// Latencies and slips of the whole seconds so far in each pool, if they are wanted.
    sums: Option<BTreeMap<usize, Sums>>,
}

/// Times of the whole seconds of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Sums {
    /// Latencies of the answers.
    pub(crate) latency: Times,
    /// Slips of the requests.
    pub(crate) slip: Times,
}

impl Default for Sums {
    fn default() -> Self {
        Self { latency: Times(small()), slip: Times(small()) }
    }
}

impl Live {
    /// Without snapshots.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has latencies counted from now on: see [`latencies`](Self::latencies).
    pub fn count_latencies(&mut self) {
        self.latencies.get_or_insert_default();
    }

    /// The latencies of the whole seconds so far, if they are counted.
    #[must_use]
    pub fn latencies(&self) -> Option<&Histogram> {
        self.latencies.as_ref()
    }

    /// Has latencies and slips of each pool added up from now on: see [`sums`](Self::sums).
    pub(crate) fn add_up(&mut self) {
        self.sums.get_or_insert_default();
    }

    /// Latencies and slips of the whole seconds so far in a pool, if they are added up.
    pub(crate) fn sums(&self, pool: usize) -> Option<&Sums> {
        self.sums.as_ref()?.get(&pool)
    }

    /// The newest snapshot of each lane in a pool.
    pub(crate) fn newest(&self, pool: usize) -> impl Iterator<Item = &Snapshot> {
        self.lanes.iter().filter(move |((_, of), _)| *of == pool).map(|(_, (snapshot, _))| snapshot)
    }

    /// Takes all snapshots in the channel.
    pub fn take(&mut self, from: &Receiver<Snapshot>) {
        for snapshot in from.try_iter() {
            self.note(snapshot);
        }
    }

    /// Takes one snapshot.
    pub fn note(&mut self, mut snapshot: Snapshot) {
        if let Some(latencies) = &mut self.latencies {
            for time in snapshot.closed.iter().flat_map(|slot| slot.latency().counts()) {
                latencies.count_all(time.0, time.1);
            }
        }
        if let Some(sums) = &mut self.sums {
            let sums = sums.entry(snapshot.pool).or_default();
            for slot in &snapshot.closed {
                sums.latency.add(&slot.latency().0);
                sums.slip.add(&slot.slip().0);
            }
        }
        let key = (snapshot.bucket, snapshot.pool);
        let slots = self.slots.entry(key).or_default();
        slots.append(&mut snapshot.closed);
        slots.sort_by_key(|s| s.from);
        let newest = slots.last().map_or(0, |s| s.from);
        slots.retain(|s| s.from + PAST > newest);
        let said = self.lanes.get(&key).map_or(Before::default(), |(s, _)| Before {
            nanos: s.nanos,
            sent: s.sent,
            answered: s.answered,
            failed: s.failed,
            bytes_received: s.bytes_received,
        });
        self.lanes.insert(key, (snapshot, said));
    }

    /// The counts of all lanes and pools so far, and when they were counted: the mean of the lanes' times, nanoseconds on their clock. The rates are 0:
    /// see [`frame`](Self::frame).
    #[must_use]
    pub fn total(&self) -> (Now, u64) {
        let mut total = Now::default();
        self.lanes.values().for_each(|(snapshot, _)| total.add(snapshot));
        let times = self.lanes.values().map(|(snapshot, _)| u128::from(snapshot.nanos)).sum::<u128>();
        (total, (times / self.lanes.len().max(1) as u128) as u64)
    }

    /// What has passed in each lane and pool, of which the number is given, if snapshots have it.
    pub(super) fn passed(&self) -> impl Iterator<Item = (usize, &Passed)> {
        self.lanes.iter().filter_map(|((_, pool), (snapshot, _))| Some((*pool, snapshot.passed.as_deref()?)))
    }

    /// The figures to show now.
    pub fn frame(&self, elapsed: Duration) -> Frame {
        let mut frame = Frame { elapsed, ..Frame::default() };
        let pool_count = self.lanes.keys().map(|(_, pool)| pool + 1).max().unwrap_or(0);
        frame.pools = vec![Now::default(); pool_count];
        let mut buckets: BTreeMap<u16, Now> = BTreeMap::new();
        let newest = self.lanes.values().map(|(s, _)| s.nanos).max().unwrap_or(0);
        for ((bucket, pool), (snapshot, said)) in &self.lanes {
            for now in [&mut frame.total, &mut frame.pools[*pool], buckets.entry(*bucket).or_default()] {
                now.add(snapshot);
                if snapshot.nanos + SILENT > newest {
                    now.add_rates(snapshot, said);
                }
            }
        }
        frame.buckets = buckets.into_iter().collect();
        frame.seconds = self.seconds(|_| true);
        frame.pool_seconds =
            (0..pool_count).map(|pool| self.seconds(|p| p == pool).pop().unwrap_or_default()).collect();
        frame
    }

    /// The whole seconds of some pools, up to the last that every lane has reported.
    fn seconds(&self, wanted: impl Fn(usize) -> bool) -> Vec<Point> {
        let lanes: Vec<&[Slot]> = self
            .slots
            .iter()
            .filter(|((_, pool), _)| wanted(*pool))
            .map(|(_, slots)| slots.as_slice())
            .collect();
        let told = lanes.iter().map(|l| l.last().map_or(0, |s| s.from + s.length)).min().unwrap_or(0);
        let whole: Vec<&[Slot]> =
            lanes.iter().map(|l| &l[..l.partition_point(|s| s.from + s.length <= told)]).collect();
        points(&whole, told as f64).0
    }
}
