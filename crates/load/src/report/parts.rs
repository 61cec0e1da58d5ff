//! Counts of each phase of a run and of each request of a pool, beside those of the whole run.
//!
//! A phase counts the requests *intended* in it, measured or not; a request counts its measured ones. Latencies are exact to 1 %, in
//! histograms that are allocated with the first latency, so that unused parts cost nothing. The search for a time's phase begins at the
//! last phase found, which is usually the right one.

use hdrhistogram::Histogram;

use super::model::{Figures, rounded};
use super::series::small;
use super::times::Times;

/// A phase: when it ends, on the clock of the lanes, and whether it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The end; the next begins there.
    pub end: u64,
    /// Whether requests intended in it count for totals and percentiles.
    pub measured: bool,
}

/// Counts of one part in one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct Share {
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) unsent: u64,
    pub(super) latency: Option<Box<Histogram<u64>>>,
}

impl Share {
    /// Notes a latency.
    #[inline]
    pub(super) fn latency(&mut self, nanos: u64) {
        self.latency.get_or_insert_with(|| Box::new(small())).saturating_record(nanos.max(1));
    }

    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        self.unsent += other.unsent;
        match (&mut self.latency, &other.latency) {
            // Both have the same bounds.
            (Some(mine), Some(other)) => drop(mine.add(&**other)),
            (mine, other) => *mine = mine.take().or_else(|| other.clone()),
        }
    }

    fn figures(&self, seconds: f64) -> Figures {
        let mut latency = Times::default();
        if let Some(mine) = &self.latency {
            latency.add(mine);
        }
        let per_second = |n: u64| if seconds > 0.0 { rounded(n as f64 / seconds) } else { 0.0 };
        Figures {
            seconds: rounded(seconds),
            sent: self.sent,
            answered: self.answered,
            failed: self.failed,
            unsent: self.unsent,
            sent_rate: per_second(self.sent),
            answered_rate: per_second(self.answered),
            latency,
        }
    }
}

/// The parts of one pool in one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    pub(super) spans: Vec<PhaseSpan>,
    /// The phase found last.
    pub(super) at: usize,
    pub(super) phases: Vec<Share>,
    pub(super) requests: Vec<Share>,
}

impl Parts {
    pub(super) fn new(spans: Vec<PhaseSpan>, requests: usize) -> Self {
        Self {
            phases: vec![Share::default(); spans.len()],
            requests: vec![Share::default(); requests],
            spans,
            at: 0,
        }
    }

    /// The phase of a time; times after the end belong to the last. `None` without phases.
    #[inline]
    pub(super) fn phase(&mut self, moment: u64) -> Option<&mut Share> {
        while self.at > 0 && moment < self.spans[self.at - 1].end {
            self.at -= 1;
        }
        while self.at + 1 < self.spans.len() && moment >= self.spans[self.at].end {
            self.at += 1;
        }
        self.phases.get_mut(self.at)
    }
}

/// The figures of one part over all lanes, from the lanes' shares.
pub(super) fn figures<'a>(shares: impl Iterator<Item = Option<&'a Share>>, seconds: f64) -> Figures {
    let mut sum = Share::default();
    shares.flatten().for_each(|share| sum.add(share));
    sum.figures(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_find_their_phase_in_any_order() {
        let span = |end| PhaseSpan { end, measured: true };
        let mut parts = Parts::new(vec![span(10), span(10), span(20), span(30)], 0);
        for (moment, phase) in
            [(0, 0), (9, 0), (10, 2), (29, 3), (3, 0), (19, 2), (20, 3), (99, 3), (15, 2), (10, 2)]
        {
            parts.phase(moment).unwrap().sent += 1;
            assert_eq!(parts.at, phase, "{moment}");
        }
        let counts: Vec<u64> = parts.phases.iter().map(|p| p.sent).collect();
        assert_eq!(counts, [3, 0, 4, 3]);
        assert!(Parts::default().phase(5).is_none());
    }

    #[test]
    fn shares_of_lanes_add_up() {
        let mut one = Share { sent: 3, answered: 2, failed: 1, ..Share::default() };
        one.latency(1_000_000);
        let mut other = Share { sent: 1, unsent: 4, ..Share::default() };
        other.latency(9_000_000);
        let sum = figures([Some(&one), None, Some(&Share::default()), Some(&other)].into_iter(), 2.0);
        assert_eq!((sum.sent, sum.answered, sum.failed, sum.unsent), (4, 2, 1, 4));
        assert_eq!((sum.sent_rate, sum.answered_rate, sum.latency.count()), (2.0, 1.0, 2));
        assert!(sum.latency.max().abs_diff(9_000_000) < 90_000, "{:?}", sum.latency);
        assert!(figures([None].into_iter(), 0.0).latency.is_empty());
    }
}
