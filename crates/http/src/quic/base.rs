//! The lane's clock for whom wants times of the standard library.

use std::time::{Duration, Instant};

/// Turns the lane's time, nanoseconds, into an [`Instant`] and back. No clock is read but when it is made.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    zero: Instant,
    at: u64,
}

impl Base {
    /// `now`: the lane's time.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self { zero: Instant::now(), at: now }
    }

    /// The lane's time as an instant.
    #[must_use]
    pub fn instant(&self, now: u64) -> Instant {
        self.zero + Duration::from_nanos(now.saturating_sub(self.at))
    }

    /// An instant in the lane's time, nanoseconds.
    #[must_use]
    pub fn nanos(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.zero).as_nanos();
        self.at.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        let base = Base::new(1_000);
        for now in [1_000, 1_001, 5_000_000_000] {
            assert_eq!(base.nanos(base.instant(now)), now);
        }
        // Nothing is before the beginning.
        assert_eq!(base.nanos(base.instant(7)), 1_000);
    }
}
