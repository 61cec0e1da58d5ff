//! What BBR remembers of each segment in flight: how much had been delivered when it left. Empty for all others.

use crate::tcp::Seq;
use crate::tcp::connection::congestion::bbr::Departure;
use crate::time::Time;
use std::collections::VecDeque;

/// In the order in which they left.
#[derive(Debug, Default)]
pub(crate) struct Departures(VecDeque<Departure>);

/// Those that are kept beyond one for each record of the scoreboard: what was sent twice has two.
const SPARE: usize = 16;

impl Departures {
    /// Bytes of memory.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Departure>()
    }

    /// One more; at most twice as many as the scoreboard has `records` are kept, and all that left before `oldest`, if nothing older can
    /// be in flight, are forgotten.
    pub(crate) fn push(&mut self, departure: Departure, records: usize, oldest: Option<Time>) {
        let old = |first: &Departure| oldest.is_some_and(|oldest| first.send_time < oldest);
        while self.0.front().is_some_and(old) || self.0.len() >= 2 * records + SPARE {
            self.0.pop_front();
        }
        self.0.push_back(departure);
    }

    /// The one that left at that time and ended there, or behind that: batches are cut.
    pub(crate) fn find(&self, at: Time, end: Seq) -> Option<Departure> {
        let first = self.0.partition_point(|d| d.send_time < at);
        let mut same = self.0.range(first..).take_while(|d| d.send_time == at);
        same.find(|d| d.end >= end).copied()
    }

    /// Nothing is in flight any more. A little memory is kept for the next flight.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if !self.0.is_empty() {
            self.0.clear();
            self.0.shrink_to(64);
        }
    }
}
