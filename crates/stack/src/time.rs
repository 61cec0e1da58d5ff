//! Time in a lane: nanoseconds on a monotonic clock that the caller reads.
//!
//! Nothing in this crate reads a clock. Every call of the lane has a [`Time`] argument, so a test can simulate a day in a millisecond,
//! and repeat it exactly. The zero of the clock is arbitrary; 64 bits of nanoseconds last 584 years, and arithmetic saturates.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A moment: nanoseconds since the arbitrary start of the caller's monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Time = Time(0);
    /// Later than any moment that can happen.
    pub const MAX: Time = Time(u64::MAX);

    /// The moment `nanos` nanoseconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// The moment `micros` microseconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_micros(micros: u64) -> Time {
        Time(micros.saturating_mul(1_000))
    }

    /// The moment `millis` milliseconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// The moment `secs` seconds after the start.
    #[inline]
    #[must_use]
    pub const fn from_secs(secs: u64) -> Time {
        Time(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the start.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the start.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the start.
    #[inline]
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[inline]
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long after `earlier` this is, whole microseconds; zero if it is not after it, and at most what 32 bits hold.
    #[inline]
    #[must_use]
    pub(crate) fn micros_since(self, earlier: Time) -> u32 {
        u32::try_from(self.0.saturating_sub(earlier.0) / 1_000).unwrap_or(u32::MAX)
    }

    /// This moment plus `micros` microseconds. Stops at [`Time::MAX`].
    #[inline]
    #[must_use]
    pub(crate) const fn plus_micros(self, micros: u64) -> Time {
        Time(self.0.saturating_add(micros.saturating_mul(1_000)))
    }

    /// This moment plus `duration`, or `None` past the end of the clock.
    #[inline]
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Time> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        self.0.checked_add(nanos).map(Time)
    }
}

/// Durations longer than the clock count as the whole clock.
#[inline]
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

impl Add<Duration> for Time {
    type Output = Time;

    /// Stops at [`Time::MAX`].
    #[inline]
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    /// Stops at [`Time::ZERO`].
    #[inline]
    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Display for Time {
    /// Seconds with as many of nine decimals as are needed, in groups of three: `1.5s` is written `1.500s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest % 1_000_000 == 0 {
            write!(f, "{secs}.{:03}s", rest / 1_000_000)
        } else if rest % 1_000 == 0 {
            write!(f, "{secs}.{:06}s", rest / 1_000)
        } else {
            write!(f, "{secs}.{rest:09}s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Time::MAX + Duration::MAX, Time::MAX);
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_secs(u64::MAX), Time::MAX);
        assert_eq!(Time::MAX.checked_add(Duration::from_nanos(1)), None);
        assert_eq!(Time::ZERO.checked_add(Duration::from_nanos(7)), Some(Time::from_nanos(7)));
    }

    #[test]
    fn differences_are_never_negative() {
        let (a, b) = (Time::from_millis(3), Time::from_micros(4_500));
        assert_eq!(b.saturating_duration_since(a), Duration::from_micros(1_500));
        assert_eq!(a.saturating_duration_since(b), Duration::ZERO);
        assert!(a < b);
    }

    #[test]
    fn display_shows_only_the_digits_that_matter() {
        assert_eq!(Time::from_millis(1_500).to_string(), "1.500s");
        assert_eq!(Time::from_micros(1).to_string(), "0.000001s");
        assert_eq!(Time::from_nanos(2_000_000_001).to_string(), "2.000000001s");
    }
}
