//! Limit of new datagrams from unproven networks while there is no room.
//!
//! Each of them evicts another unproven one, so in a flood all of that work is wasted; but among them may be the first datagram of a
//! legitimate sender. So a fixed number is accepted in each millisecond.

use crate::time::Time;

/// The rest of this millisecond's budget.
#[derive(Debug)]
pub(super) struct Budget {
    each: u32,
    left: u32,
    millisecond: u64,
}

impl Budget {
    pub(super) fn new(per_second: u32) -> Self {
        Self { each: per_second.div_ceil(1000), left: 0, millisecond: u64::MAX }
    }

    /// Takes one; `false` if there is none left.
    #[inline]
    pub(super) fn take(&mut self, now: Time) -> bool {
        let millisecond = now.as_millis();
        if millisecond != self.millisecond {
            self.millisecond = millisecond;
            self.left = self.each;
        }
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_each_millisecond() {
        let mut budget = Budget::new(5_000);
        for ms in [0, 1, 7, 8] {
            let taken = (0..100).filter(|_| budget.take(Time::from_millis(ms))).count();
            assert_eq!(taken, 5, "at {ms} ms");
        }
        assert!(!Budget::new(0).take(Time::ZERO));
    }
}
