//! Clocks, and how far one is from another.
//!
//! A [`Clock`] begins with the machine's time of day and then goes with its monotonic clock, so that nobody sets it while it is in use. Clocks are
//! compared as NTP does (RFC 5905 §8): the four times of a question and its answer give an offset, which is wrong by at most half of the round
//! trip that remains when the time at the other end is taken off. Of many samples the one with the least round trip says most.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Samples among which the best is sought: enough for one that nothing delayed, and few enough that clocks have not moved apart.
const KEPT: usize = 64;
/// More than any clock shows, nanoseconds: the year 2262.
const END: u64 = i64::MAX as u64;

/// A clock: nanoseconds since 1970 when it was made, and monotonic from then on.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    begun: Instant,
    wall: u64,
    /// Nanoseconds that it is ahead, and millionths by which it is fast: clocks for tests.
    ahead: i64,
    fast: f64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::apart(0, 0.0)
    }
}

impl Clock {
    /// One that is wrong on purpose: `ahead` nanoseconds ahead, and `fast` millionths too fast.
    #[must_use]
    pub fn apart(ahead: i64, fast: f64) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
        Self { begun: Instant::now(), wall, ahead, fast }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// The time at a moment.
    #[must_use]
    pub fn at(&self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.begun).as_nanos() as f64 * (1.0 + self.fast / 1e6);
        self.wall.saturating_add(passed as u64).saturating_add_signed(self.ahead).min(END)
    }

    /// The moment at which it shows a time; `None` if that is before it was made, or further away than moments can be.
    #[must_use]
    pub fn moment(&self, time: u64) -> Option<Instant> {
        let passed = time.checked_sub(self.wall.saturating_add_signed(self.ahead))?;
        self.begun.checked_add(Duration::from_nanos((passed as f64 / (1.0 + self.fast / 1e6)) as u64))
    }
}

/// The four times of a question and its answer, nanoseconds: the first and the last on the clock of who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When the question left.
    pub asked: u64,
    /// When it arrived.
    pub received: u64,
    /// When the answer left.
    pub answered: u64,
    /// When it arrived.
    pub heard: u64,
}

/// How far another clock is ahead, and by how much that may be wrong, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offset {
    /// How far it is ahead.
    pub ahead: i64,
    /// Half of the round trip.
    pub uncertainty: u64,
}

impl Sample {
    /// What it says; `None` if its times cannot be.
    #[must_use]
    pub fn offset(&self) -> Option<Offset> {
        let Self { asked, received, answered, heard } = *self;
        if asked > heard || received > answered || [asked, received, answered, heard].iter().any(|t| *t > END)
        {
            return None;
        }
        let trip = (heard - asked).checked_sub(answered - received)?;
        let there = i128::from(received) - i128::from(asked);
        let back = i128::from(answered) - i128::from(heard);
        let ahead = i64::try_from((there + back) / 2).ok()?;
        Some(Offset { ahead, uncertainty: trip.div_ceil(2).max(1) })
    }
}

/// The comparison of another clock with ours.
#[derive(Debug, Clone, Default)]
pub struct Comparison {
    recent: VecDeque<Offset>,
    /// The best at the agreed start.
    first: Option<Offset>,
    count: usize,
}

impl Comparison {
    /// Adds a sample; one that cannot be is left out.
    pub fn add(&mut self, sample: Sample) {
        let Some(offset) = sample.offset() else { return };
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(offset);
        self.count += 1;
    }

    /// Samples so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The best of the last samples.
    #[must_use]
    pub fn best(&self) -> Option<Offset> {
        self.recent.iter().copied().min_by_key(|offset| offset.uncertainty)
    }

    /// Keeps the best so far as that of the start, and begins anew.
    pub fn settle(&mut self) -> Option<Offset> {
        self.first = self.best();
        self.recent.clear();
        self.first
    }

    /// The offset at the start, if it was settled; else the best.
    #[must_use]
    pub fn at_start(&self) -> Option<Offset> {
        self.first.or_else(|| self.best())
    }

    /// How far the clock has moved since the start, nanoseconds; `None` if that cannot be told from the uncertainty.
    #[must_use]
    pub fn drift(&self) -> Option<i64> {
        let (first, last) = (self.first?, self.best()?);
        let drift = last.ahead.checked_sub(first.ahead)?;
        (drift.unsigned_abs() > first.uncertainty + last.uncertainty).then_some(drift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question that takes `there` to arrive and `back` to be answered, at a clock that is `ahead`.
    fn sample(at: u64, ahead: i64, there: u64, back: u64) -> Sample {
        let received = (at + there).saturating_add_signed(ahead);
        Sample { asked: at, received, answered: received + 30, heard: at + there + 30 + back }
    }

    #[test]
    fn an_offset_is_wrong_by_half_of_the_round_trip_at_most() {
        for ahead in [0, 1_500_000_000, -3_000_000_000] {
            for (there, back) in [(100, 100), (1000, 0), (0, 1000), (250, 7000)] {
                let offset = sample(1 << 60, ahead, there, back).offset().unwrap();
                let wrong = (offset.ahead - ahead).unsigned_abs();
                assert!(wrong <= offset.uncertainty, "{offset:?}");
                assert_eq!(offset.uncertainty, (there + back).div_ceil(2));
            }
        }
    }

    #[test]
    fn times_that_cannot_be_are_left_out() {
        let good = sample(1000, 5, 10, 10);
        for bad in [
            Sample { heard: 0, ..good },
            Sample { answered: 0, ..good },
            Sample { answered: u64::MAX, ..good },
            Sample { received: u64::MAX, answered: u64::MAX, ..good },
            // More time there than the whole took here.
            Sample { answered: good.received + 100_000, ..good },
        ] {
            assert_eq!(bad.offset(), None, "{bad:?}");
        }
        let mut comparison = Comparison::default();
        comparison.add(Sample { heard: 0, ..good });
        assert_eq!((comparison.count(), comparison.best(), comparison.drift()), (0, None, None));
    }

    #[test]
    fn the_quickest_sample_counts_and_a_drift_is_seen_beyond_the_uncertainty() {
        let mut comparison = Comparison::default();
        for trip in [90_000, 400, 70_000] {
            comparison.add(sample(1000, 7_000, trip, 0));
        }
        assert_eq!(comparison.settle().unwrap().uncertainty, 200);
        comparison.add(sample(9000, 7_300, 200, 0));
        assert_eq!(comparison.drift(), None, "200 and 100 may be wrong");
        comparison.add(sample(9000, 57_000, 200, 0));
        (0..KEPT).for_each(|_| comparison.add(sample(9000, 57_000, 100, 100)));
        assert!(comparison.drift().is_some_and(|d| d.abs_diff(50_000) <= 300), "{comparison:?}");
        assert_eq!(comparison.at_start().unwrap().uncertainty, 200);
    }

    #[test]
    fn a_time_is_a_moment_and_back() {
        for clock in [Clock::default(), Clock::apart(-5_000_000_000, 300.0), Clock::apart(1 << 50, -200.0)] {
            let moment = clock.begun + Duration::from_secs(3600);
            let back = clock.moment(clock.at(moment)).unwrap();
            let wrong = back.max(moment).duration_since(back.min(moment));
            assert!(wrong < Duration::from_micros(2), "{wrong:?}");
            assert_eq!(clock.moment(0), None);
            assert!(clock.at(moment) > clock.at(clock.begun));
        }
    }
}
