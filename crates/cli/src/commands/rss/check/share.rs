//! The share of packets that is sampled: about as many samples a second as wanted, and on average no more, at any rate of packets.
//!
//! There are two sources for the rate of packets. The driver's counter is exact, but some drivers update it only once in a second or two. The
//! number of samples divided by the share gives the rate, too. The higher of both is used. Before either is known, the share is small
//! enough for the fastest interface and grows step by step. If all packets were sampled at first, a fast interface would give thousands of
//! samples at once.
//!
//! A share that fits the time between two bursts of packets is too large for a burst. Two bounds limit this. At most [`waiting`] samples
//! fit into the ring buffer. And after more samples than wanted, sampling pauses until their number is the wanted one again.

use std::time::Duration;

/// Packets a second that are assumed before the rate is known.
const FASTEST: f64 = 20e6;
/// The share grows at most by this factor in a turn while the driver's counter stands still.
const STEP: f64 = 4.0;
/// Samples over which past turns are averaged.
const MEMORY: f64 = 16.0;
/// Samples of one turn that are enough to compute the rate from this turn alone.
const ENOUGH: f64 = 16.0;
/// Samples in excess of the wanted ones after which sampling pauses, in seconds of the wanted rate.
const EARLY: f64 = 0.1;
/// Longest pause, seconds.
const LONGEST: f64 = 0.5;
/// Size of the ring buffer, in seconds of the wanted rate.
const WAITING: f64 = 0.25;

/// Samples that the ring buffer must have room for, if so many are wanted a second.
pub(super) fn waiting(wanted: f64) -> usize {
    (wanted * WAITING).max(ENOUGH) as usize
}

/// Computes the share turn by turn.
#[derive(Debug)]
pub(super) struct Share {
    /// Wanted samples a second.
    wanted: f64,
    /// The share that fits the rate, and the one of the last turn: the same, or 0 in a pause.
    share: f64,
    taken: f64,
    /// Samples of recent turns, and the sum of share times seconds over them. Their quotient is the rate of packets.
    got: f64,
    looked: f64,
    /// Samples in excess of the wanted ones.
    early: f64,
}

impl Share {
    /// For so many samples a second. Nothing is sampled in the first turn.
    pub(super) fn new(wanted: f64) -> Self {
        Self { wanted, share: 0.0, taken: 0.0, got: 0.0, looked: 0.0, early: 0.0 }
    }

    /// The share for the next turn. In the last one, of this length, there were `got` samples, and the driver counted `came` packets.
    pub(super) fn next(&mut self, got: u32, came: Option<u64>, time: Duration) -> f64 {
        let seconds = time.as_secs_f64().max(1e-3);
        let (got, counted) = (f64::from(got), came.unwrap_or(0) as f64 / seconds);
        let keep = (-seconds * self.wanted / MEMORY).exp();
        self.got = self.got * keep + got;
        self.looked = self.looked * keep + self.taken * seconds;
        let over = |samples: f64, looked: f64| if looked > 0.0 { samples / looked } else { 0.0 };
        // One turn shows a rate that rises; a low rate is averaged over several.
        let sudden = if got >= ENOUGH { over(got, self.taken * seconds) } else { 0.0 };
        let rate = over(self.got, self.looked).max(sudden).max(counted);
        let fits = if rate > 0.0 { (self.wanted / rate).min(1.0) } else { 1.0 };
        let careful = if self.share > 0.0 { self.share * STEP } else { (self.wanted / FASTEST).min(1.0) };
        // Guard: `fits.min(careful)` as `fits` fails check::share
        self.share = if counted > 0.0 { fits } else { fits.min(careful) };
        self.early = (self.early + got - self.wanted * seconds).clamp(0.0, self.wanted * LONGEST);
        // Guard: `self.early > (self.wanted * EARLY).max(ENOUGH)` as `false` fails check::share
        self.taken = if self.early > (self.wanted * EARLY).max(ENOUGH) { 0.0 } else { self.share };
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of each turn on an interface with this rate of packets, whose driver updates its counter every so many turns; and the last
    /// share.
    fn samples(
        wanted: f64,
        rate: impl Fn(usize) -> f64,
        counts_every: usize,
        turns: usize,
    ) -> (Vec<u32>, f64) {
        samples_by(Duration::from_millis(20), wanted, rate, counts_every, turns)
    }

    fn samples_by(
        turn: Duration,
        wanted: f64,
        rate: impl Fn(usize) -> f64,
        counts_every: usize,
        turns: usize,
    ) -> (Vec<u32>, f64) {
        let mut share = Share::new(wanted);
        let (mut taken, mut last, mut uncounted, mut rest) = (Vec::new(), 0.0, 0.0, 0.0);
        for number in 0..turns {
            let packets = rate(number) * turn.as_secs_f64();
            uncounted += packets;
            let sampled: f64 = (packets * last + rest).min(waiting(wanted) as f64);
            rest = sampled.fract();
            taken.push(sampled as u32);
            let counts = number % counts_every == counts_every - 1;
            let came = if counts { std::mem::take(&mut uncounted) as u64 } else { 0 };
            last = share.next(sampled as u32, Some(came), turn);
        }
        (taken, last)
    }

    fn sum(taken: &[u32]) -> f64 {
        f64::from(taken.iter().sum::<u32>())
    }

    #[test]
    fn as_many_as_wanted_from_the_start() {
        for wanted in [10.0, 1000.0, 10_000.0] {
            for rate in [2e4, 1e6, 2e7] {
                // The driver updates its counter at once, each second, or never.
                for every in [1, 50, usize::MAX] {
                    let (taken, _) = samples(wanted, |_| rate, every, 100);
                    let first = sum(&taken[..50]);
                    let what = format!("{wanted} of {rate}, counted every {every}: {taken:?}");
                    assert!(first <= 1.25 * wanted + ENOUGH, "{what}");
                    assert!(sum(&taken) >= 0.6 * wanted, "{what}");
                    let most = f64::from(*taken.iter().max().unwrap());
                    assert!(most <= (0.02 * wanted * STEP).max(ENOUGH), "{what}");
                }
            }
        }
    }

    /// Bursts of every kind: on average no more samples than wanted, and some.
    #[test]
    fn bursts_cost_no_more_than_a_steady_rate() {
        for turn in [20, 100].map(Duration::from_millis) {
            for (on, off) in [(1, 1), (1, 4), (2, 20), (10, 90), (50, 50)] {
                for rate in [5e3, 1e5, 1e6, 2e7] {
                    for every in [1, 50, usize::MAX] {
                        let bursts = |number: usize| if number % (on + off) < on { rate } else { 20.0 };
                        let (taken, _) = samples_by(turn, 1000.0, bursts, every, 500);
                        let (most, seconds) = (sum(&taken), 500.0 * turn.as_secs_f64());
                        let what =
                            format!("{on} of {} turns, {rate}/s, counted every {every}: {most}", on + off);
                        assert!(most <= 1000.0 * seconds * 1.05 + 400.0 && most >= 5.0 * seconds, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn everything_of_a_quiet_interface() {
        // With a counter from the second turn on; without one within a fifth of a second.
        let (taken, last) = samples(1000.0, |_| 400.0, 1, 50);
        assert_eq!((last, sum(&taken)), (1.0, 49.0 * 8.0));
        let (taken, last) = samples(1000.0, |_| 400.0, usize::MAX, 50);
        assert!(last == 1.0 && sum(&taken[10..]) >= 40.0 * 8.0 - 1.0, "{last} {taken:?}");
        let (_, last) = samples(1000.0, |_| 0.0, 1, 10);
        assert_eq!(last, 1.0);
    }

    #[test]
    fn the_share_follows_a_rate_that_changes() {
        let (taken, last) = samples(1000.0, |turn| if turn < 50 { 500.0 } else { 1e6 }, 1, 100);
        // In one turn at the old share the ring buffer fills; then sampling pauses.
        assert_eq!((taken[50], taken[51]), (waiting(1000.0) as u32, 0));
        assert!(sum(&taken[50..]) <= 1100.0 && (last - 0.001).abs() < 1e-4, "{last} {taken:?}");
        let (taken, last) = samples(1000.0, |turn| if turn < 50 { 1e6 } else { 500.0 }, 1, 100);
        assert!(last == 1.0 && sum(&taken[60..]) >= 390.0, "{last} {taken:?}");
    }
}
