//! A token bucket: so many events a second, with a burst.

use flowlane_stack::time::Time;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// So many events a second on average, and a tenth of a second's worth at once (one at least).
///
/// It counts time instead of tokens (the virtual scheduling of ITU-T I.371): `due` is when the bucket will be full again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// Nanoseconds of an event; 0: no limit.
    each: u64,
    /// How far `due` may be ahead, nanoseconds.
    burst: u64,
    due: u64,
}

impl Rate {
    /// `limit` events a second; `None`: any number.
    pub(crate) fn new(limit: Option<u32>) -> Rate {
        match limit {
            None => Rate::default(),
            Some(0) => Rate { each: u64::MAX, burst: 0, due: 0 },
            Some(limit) => {
                let each = (SECOND / u64::from(limit)).max(1);
                Rate { each, burst: (SECOND / 10).max(each), due: 0 }
            }
        }
    }

    /// Whether one more may happen now; if so it counts.
    #[inline]
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        if self.each == 0 {
            return true;
        }
        let now = now.as_nanos();
        let due = self.due.max(now).saturating_add(self.each);
        if due - now > self.burst {
            return false;
        }
        self.due = due;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_run_is_as_configured_and_a_burst_is_short() {
        let mut rate = Rate::new(Some(1000));
        let start = Time::from_secs(5);
        assert_eq!((0..1000).filter(|_| rate.allows(start)).count(), 100, "a tenth of a second's worth");
        let all = (0..100_000u64)
            .filter(|n| rate.allows(start + core::time::Duration::from_micros(n * 100)))
            .count();
        assert_eq!(all, 9_999, "ten seconds, less the one that was owed");
        let mut none = Rate::new(Some(0));
        assert!(!none.allows(Time::ZERO) && !none.allows(Time::from_secs(10_000)));
        let mut any = Rate::new(None);
        assert!((0..1000).all(|_| any.allows(Time::ZERO)));
        let mut one = Rate::new(Some(1));
        assert!(
            one.allows(start) && !one.allows(start) && one.allows(start + core::time::Duration::from_secs(1))
        );
    }
}
