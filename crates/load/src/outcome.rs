//! What a run came to: counts, histograms, and whether the generator itself kept its time.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::report::Times;
use crate::report::model::{ErrorCount, Part, Rates};

/// Longest time a histogram tells apart; what is longer counts as this long.
const LONGEST: u64 = 60_000_000_000;

/// Counts of a lane, or of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams answered; an answer counts once.
    pub received: u64,
    /// Datagrams never answered.
    pub lost: u64,
    /// Answers, of those received, that came after the timeout.
    pub late: u64,
    /// Answers that a later one of their flow overtook.
    pub reordered: u64,
    /// Answers that came again.
    pub duplicates: u64,
    /// Answers that were ours once.
    pub corrupt: u64,
    /// Datagrams that were never ours.
    pub strays: u64,
    /// Times a datagram waited because there was no room or no free frame.
    pub held_up: u64,
    /// Datagrams that were due and not sent, because the generator did not keep up or was stopped.
    pub unsent: u64,
    /// Questions whether anybody answers, sent before the run.
    pub probes: u64,
    /// Of them, those answered.
    pub probes_answered: u64,
}

impl Counts {
    /// Adds another lane's.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.late += other.late;
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
        self.corrupt += other.corrupt;
        self.strays += other.strays;
        self.held_up += other.held_up;
        self.unsent += other.unsent;
        self.probes += other.probes;
        self.probes_answered += other.probes_answered;
    }
}

/// An empty histogram of nanoseconds, three digits exact.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// What a lane came to.
#[derive(Debug, Clone)]
pub struct LaneOutcome {
    /// The lane's bucket.
    pub bucket: u16,
    /// Its flows.
    pub flows: usize,
    /// Its counts.
    pub counts: Counts,
    /// Its latencies, nanoseconds from the intended moment of sending.
    pub latency: Histogram<u64>,
    /// Its lateness, nanoseconds from the intended to the real moment of sending.
    pub slip: Histogram<u64>,
    /// First moment of its schedule and last answer, nanoseconds on the runtime's clock.
    pub span: (u64, u64),
    /// What ended it before its time.
    pub failure: Option<String>,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Counts of all lanes.
    pub counts: Counts,
    /// Latencies of all lanes, nanoseconds.
    pub latency: Histogram<u64>,
    /// The generator's own lateness, nanoseconds.
    pub slip: Histogram<u64>,
    /// How long datagrams were sent.
    pub elapsed: Duration,
    /// The lanes, by bucket.
    pub lanes: Vec<LaneOutcome>,
    /// What ended it before its time.
    pub failure: Option<String>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self {
            counts: Counts::default(),
            latency: histogram(),
            slip: histogram(),
            elapsed: Duration::ZERO,
            lanes: Vec::new(),
            failure: None,
        }
    }
}

impl Outcome {
    /// Joins what the lanes came to.
    #[must_use]
    pub fn merge(mut lanes: Vec<LaneOutcome>) -> Self {
        lanes.sort_by_key(|l| l.bucket);
        let mut outcome = Self::default();
        let (mut first, mut last) = (u64::MAX, 0);
        for lane in &lanes {
            outcome.counts.add(&lane.counts);
            // Same bounds everywhere: they always fit.
            let _ = outcome.latency.add(&lane.latency);
            let _ = outcome.slip.add(&lane.slip);
            first = first.min(lane.span.0);
            last = last.max(lane.span.1);
            if outcome.failure.is_none() {
                outcome.failure.clone_from(&lane.failure);
            }
        }
        outcome.elapsed = Duration::from_nanos(last.saturating_sub(first));
        outcome.lanes = lanes;
        outcome
    }

    /// Datagrams sent a second.
    #[must_use]
    pub fn sent_rate(&self) -> f64 {
        per_second(self.counts.sent, self.elapsed)
    }

    /// Answers a second.
    #[must_use]
    pub fn received_rate(&self) -> f64 {
        per_second(self.counts.received, self.elapsed)
    }

    /// The same as reports of other protocols have it.
    #[must_use]
    pub fn part(&self) -> Part {
        let c = &self.counts;
        let errors = [("lost", c.lost), ("corrupt", c.corrupt)].into_iter().filter(|(_, count)| *count > 0);
        let error =
            |(kind, count): (&str, u64)| (kind.to_owned(), ErrorCount { count, example: String::new() });
        let more = [
            ("late", c.late),
            ("reordered", c.reordered),
            ("duplicates", c.duplicates),
            ("strays", c.strays),
        ];
        let counts = crate::report::Counts {
            sent: c.sent,
            answered: c.received,
            failed: c.lost + c.corrupt,
            unsent: c.unsent,
            held_up: c.held_up,
            errors: errors.map(error).collect(),
            more: more.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            ..crate::report::Counts::default()
        };
        let seconds = self.elapsed.as_secs_f64();
        Part {
            name: "total".to_owned(),
            seconds,
            rates: Rates::of(&counts, seconds),
            counts,
            latency: Times(self.latency.clone()),
            slip: Times(self.slip.clone()),
            ..Part::default()
        }
    }

    /// The slip that p99.9 may reach: a millisecond, or 1 % of the median latency if that is more.
    #[must_use]
    pub fn slip_budget(&self) -> u64 {
        slip_budget(&self.latency)
    }

    /// Whether the generator was late itself more than its budget allows.
    #[must_use]
    pub fn slipped(&self) -> bool {
        slipped(&self.slip, self.slip_budget())
    }
}

/// The slip that p99.9 may reach beside such latencies: a millisecond, or 1 % of their median if that is more.
pub(crate) fn slip_budget(latency: &Histogram<u64>) -> u64 {
    let median = if latency.is_empty() { 0 } else { latency.value_at_quantile(0.5) };
    (median / 100).max(1_000_000)
}

/// Whether the generator was late itself more than its budget allows.
pub(crate) fn slipped(slip: &Histogram<u64>, budget: u64) -> bool {
    !slip.is_empty() && slip.value_at_quantile(0.999) > budget
}

pub(crate) fn per_second(n: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { n as f64 / elapsed.as_secs_f64() }
}

/// Percentiles of a histogram, nanoseconds, as they are shown everywhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Percentiles {
    /// Values measured.
    pub count: u64,
    /// Mean.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    #[serde(rename = "p99.9")]
    pub p99_9: u64,
    /// Largest.
    pub max: u64,
}

impl From<&Histogram<u64>> for Percentiles {
    fn from(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        let at = |q| h.value_at_quantile(q);
        Self {
            count: h.len(),
            mean: h.mean() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: h.max(),
        }
    }
}
