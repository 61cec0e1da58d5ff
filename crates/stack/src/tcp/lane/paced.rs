//! Connections that are paced and wait for their next burst: the timer wheel's finer sibling.
//!
//! The wheel's tick is a millisecond, and a burst is at most a millisecond's worth of a connection's rate. So these deadlines are exact, in
//! a heap with one entry for each connection that waits. Who is not paced costs it nothing.

use crate::tcp::connection::deadlines::NEVER;
use crate::tcp::table::ConnId;
use crate::time::Time;
use core::cmp::Ordering;
use std::collections::BinaryHeap;

/// Who waits, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Paced(BinaryHeap<Waits>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waits {
    until: Time,
    id: ConnId,
}

impl Ord for Waits {
    fn cmp(&self, other: &Self) -> Ordering {
        // The earliest is the greatest.
        other.until.cmp(&self.until).then_with(|| other.id.as_u64().cmp(&self.id.as_u64()))
    }
}

impl PartialOrd for Waits {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Paced {
    /// A connection waits until then. It has no other entry.
    pub(crate) fn wait(&mut self, id: ConnId, until: Time) {
        self.0.push(Waits { until, id });
    }

    /// When the first is due.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.0.peek().map_or(NEVER, |first| first.until)
    }

    /// The next that is due, which may have ended meanwhile.
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> Option<ConnId> {
        if self.next() > now {
            return None;
        }
        self.0.pop().map(|first| first.id)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_none_before_its_time() {
        let mut paced = Paced::default();
        assert_eq!((paced.next(), paced.due(Time::MAX)), (NEVER, None));
        for (slot, us) in [(0, 300), (1, 100), (2, 200)] {
            paced.wait(ConnId { slot, generation: 7 }, Time::from_micros(us));
        }
        assert_eq!(paced.next(), Time::from_micros(100));
        assert_eq!(paced.due(Time::from_micros(99)), None);
        let mut slots = Vec::new();
        while let Some(id) = paced.due(Time::from_micros(250)) {
            slots.push(id.slot);
        }
        assert_eq!(slots, [1, 2]);
        assert_eq!(paced.next(), Time::from_micros(300));
    }
}
