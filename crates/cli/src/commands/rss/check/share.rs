//! The share of all packets that is sampled, so that about so many samples come a second, and on average no more, whatever the rate of packets is.
//!
//! The rate of packets is known from two sources. The driver's counter is exact, but some drivers add to it once in a second or two. The
//! samples themselves tell it as well: so many of a known share. The higher of both counts. Where neither has told anything yet, the share
//! begins small enough for the fastest interface and grows step by step, because a first look at everything would take thousands of samples
//! at once from a fast one.
//!
//! Packets come in bursts, and the share that fits the time between them is too large for the next one. Two bounds hold then. At most
//! [`waiting`] samples can come in a turn, because the kernel keeps no more. After more samples than wanted none are taken until that is made
//! up for.

use std::time::Duration;

/// Packets a second that are assumed of an interface of which nothing is known yet.
const FASTEST: f64 = 20e6;
/// Times by which the share grows at most, a turn, while the driver's counter stands still.
const STEP: f64 = 4.0;
/// Samples that the memory of the share's past reaches back for.
const MEMORY: f64 = 16.0;
/// So many samples in one turn tell the rate by themselves.
const ENOUGH: f64 = 16.0;
/// Seconds of samples that may come too early before none are taken; that are waited for at most; that can wait in the kernel.
const EARLY: f64 = 0.1;
const LONGEST: f64 = 0.5;
const WAITING: f64 = 0.25;

/// Samples that can wait in the kernel, where so many are wanted a second.
pub(super) fn waiting(wanted: f64) -> usize {
    (wanted * WAITING).max(ENOUGH) as usize
}

/// The share of packets that is taken, so that about so many come a second.
#[derive(Debug)]
pub(super) struct Share {
    /// Samples a second.
    wanted: f64,
    /// What fits the rate, and what was taken in the last turn: the same, or nothing.
    share: f64,
    taken: f64,
    /// Samples, and the packets a second times seconds that one sample of them stands for, of late.
    got: f64,
    looked: f64,
    /// Samples that came and were not wanted yet.
    early: f64,
}

impl Share {
    /// For so many samples a second.
    pub(super) fn new(wanted: f64) -> Self {
        Self { wanted, share: 0.0, taken: 0.0, got: 0.0, looked: 0.0, early: 0.0 }
    }

    /// The share from now on, where `got` samples were taken in this time, and the driver counted so many packets.
    pub(super) fn next(&mut self, got: u32, came: Option<u64>, time: Duration) -> f64 {
        let seconds = time.as_secs_f64().max(1e-3);
        let (got, counted) = (f64::from(got), came.unwrap_or(0) as f64 / seconds);
        let keep = (-seconds * self.wanted / MEMORY).exp();
        self.got = self.got * keep + got;
        self.looked = self.looked * keep + self.taken * seconds;
        let over = |samples: f64, looked: f64| if looked > 0.0 { samples / looked } else { 0.0 };
        // A rate that rises is seen in one turn, a low one over several.
        let sudden = if got >= ENOUGH { over(got, self.taken * seconds) } else { 0.0 };
        let rate = over(self.got, self.looked).max(sudden).max(counted);
        let fits = if rate > 0.0 { (self.wanted / rate).min(1.0) } else { 1.0 };
        let careful = if self.share > 0.0 { self.share * STEP } else { (self.wanted / FASTEST).min(1.0) };
        self.share = if counted > 0.0 { fits } else { fits.min(careful) };
        self.early = (self.early + got - self.wanted * seconds).clamp(0.0, self.wanted * LONGEST);
        self.taken = if self.early > (self.wanted * EARLY).max(ENOUGH) { 0.0 } else { self.share };
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples in each turn of an interface with so many packets a second, whose driver adds to its counter every so many turns; and the
    /// last share.
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
                // A driver that counts at once, one that counts each second, one that never does.
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
        // Where packets are counted: from the second turn on; where they are not: within a fifth of a second.
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
        // One turn at the old share, as many as the kernel keeps, and then none for as long as these would have taken.
        assert_eq!((taken[50], taken[51]), (waiting(1000.0) as u32, 0));
        assert!(sum(&taken[50..]) <= 1100.0 && (last - 0.001).abs() < 1e-4, "{last} {taken:?}");
        let (taken, last) = samples(1000.0, |turn| if turn < 50 { 1e6 } else { 500.0 }, 1, 100);
        assert!(last == 1.0 && sum(&taken[60..]) >= 390.0, "{last} {taken:?}");
    }
}
