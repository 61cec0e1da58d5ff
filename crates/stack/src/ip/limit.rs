//! A limit on events per second, by a token bucket.

use core::time::Duration;

use crate::time::Time;

/// Lets `rate` events pass in each `per`, and up to `rate` at once.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: u32,
    /// Between two tokens.
    interval: Duration,
    tokens: u32,
    /// When the last token was added.
    since: Time,
}

impl Limit {
    pub(crate) fn new(rate: u32, per: Duration) -> Self {
        Self { rate, interval: per / rate.max(1), tokens: rate, since: Time::ZERO }
    }

    /// Takes a token; `false` when there is none.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let passed = now.saturating_duration_since(self.since);
        let new = (passed.as_nanos() / self.interval.as_nanos().max(1)).min(u128::from(self.rate)) as u32;
        if new > 0 {
            // Guard: `.min(self.rate)` as `.min(u32::MAX)` fails ip::limit
            self.tokens = self.tokens.saturating_add(new).min(self.rate);
            self.since = if self.tokens == self.rate { now } else { self.since + self.interval * new };
        }
        // Guard: `self.tokens > 0` as `true` fails ip::limit
        let some = self.tokens > 0;
        self.tokens -= u32::from(some);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate that is none at all, as one who wants no limit would say.
    #[test]
    fn the_greatest_rate_lets_everything_pass() {
        let mut limit = Limit::new(u32::MAX, Duration::from_secs(1));
        for second in 0..10 {
            assert_eq!((0..1000).filter(|_| limit.take(Time::from_secs(second))).count(), 1000);
        }
    }

    #[test]
    fn the_rate_holds_over_any_second_after_the_burst() {
        let mut limit = Limit::new(100, Duration::from_secs(1));
        let passed = |limit: &mut Limit, from_ms: u64, to_ms: u64| {
            (from_ms..to_ms).filter(|ms| limit.take(Time::from_millis(*ms))).count()
        };
        assert_eq!((0..500).filter(|_| limit.take(Time::from_millis(1))).count(), 100, "the burst");
        assert_eq!(passed(&mut limit, 1, 1001), 99 + 1);
        assert_eq!(passed(&mut limit, 1001, 2001), 100);
        assert_eq!((0..500).filter(|_| limit.take(Time::from_secs(90))).count(), 100);
        // What was not used does not add up.
        assert!(limit.take(Time::from_secs(180)));
        assert_eq!((0..500).filter(|_| limit.take(Time::from_secs(270))).count(), 100);
    }
}
