//! How many datagrams were sent within the timeout: those without an answer among them may still have one.
//!
//! A mark is made each sixteenth of the timeout, so the number is exact to one: it is never less than it was.

use std::collections::VecDeque;

use crate::run::TICK;

/// Marks within the timeout.
const MARKS: u64 = 16;

/// What was sent up to some moments of the last time.
#[derive(Debug, Default)]
pub(super) struct Young {
    marks: VecDeque<(u64, u64)>,
}

impl Young {
    /// So much had been sent at `now`.
    pub(super) fn note(&mut self, now: u64, sent: u64, timeout: u64) {
        let every = (timeout / MARKS).max(TICK);
        if self.marks.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= every) {
            self.marks.push_back((now, sent));
        }
        // The first is the last that is old enough.
        while self.marks.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= timeout) {
            self.marks.pop_front();
        }
    }

    /// Of what has been `sent`, how much was not before the timeout.
    pub(super) fn count(&self, now: u64, sent: u64, timeout: u64) -> u64 {
        let old = self.marks.iter().rev().find(|(at, _)| now.saturating_sub(*at) >= timeout);
        sent - old.map_or(0, |(_, sent)| *sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_within_the_timeout_is_young() {
        let (mut young, timeout) = (Young::default(), 1_600_000_000);
        for tick in 0..200 {
            young.note(tick * TICK, tick * 10, timeout);
            assert!(young.marks.len() <= 18, "{}", young.marks.len());
        }
        // A hundred ticks are five seconds, and 32 of them the timeout; a mark is made at every second.
        let count = young.count(200 * TICK, 2000, timeout);
        assert!((320..=340).contains(&count), "{count}");
        assert_eq!(young.count(1000 * TICK, 2000, timeout), 20, "since the last mark");
        assert_eq!(Young::default().count(5, 7, timeout), 7);
    }
}
