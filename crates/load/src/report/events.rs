//! Figures of server-sent events: of each stream, when its first event and its last came, how many it had, and how long after each event
//! the next came. Nothing is allocated before the first event of a run.

use serde::{Deserialize, Serialize};

use super::counted::Counted;
use super::times::Times;

/// The events of one pool in one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    streams: u64,
    events: u64,
    first: Counted,
    gap: Counted,
    last: Counted,
    each: Counted,
}

impl Seen {
    /// `count` events of a stream intended at `intended` came at `now`, the one before them at `since`.
    #[inline]
    pub(super) fn events(&mut self, intended: u64, now: u64, count: u64, since: Option<u64>) {
        self.events += count;
        match since {
            None => self.first.record(now.saturating_sub(intended)),
            Some(since) => self.gap.record(now.saturating_sub(since)),
        }
        // Those that came together have nothing between them.
        if count > 1 {
            self.gap.record_n(0, count - 1);
        }
    }

    pub(super) fn stream(&mut self, intended: u64, last: u64, events: u64) {
        self.streams += 1;
        self.last.record(last.saturating_sub(intended));
        self.each.record(events);
    }

    pub(super) fn settle(&mut self) {
        [&mut self.first, &mut self.gap, &mut self.last, &mut self.each]
            .into_iter()
            .for_each(Counted::settle);
    }
}

/// Figures of streams of events.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Events {
    /// Streams that came whole.
    pub streams: u64,
    /// Events of all streams.
    pub events: u64,
    /// Events a second.
    #[cfg_attr(feature = "schema", schemars(range(min = 0.0)))]
    pub rate: f64,
    /// From the intended send time to the first event. A stream that timed out before it counts with the time waited.
    pub first_event: Times,
    /// From one event of a stream to the next.
    pub event_gap: Times,
    /// From the intended send time to the last event, of whole streams.
    pub last_event: Times,
    /// Events of a stream, of whole streams: numbers, not nanoseconds.
    pub per_stream: Times,
}

impl Events {
    /// Adds those of a lane.
    pub(super) fn add_lane(&mut self, lane: &Seen) {
        self.streams += lane.streams;
        self.events += lane.events;
        lane.first.add_to(&mut self.first_event);
        lane.gap.add_to(&mut self.event_gap);
        lane.last.add_to(&mut self.last_event);
        lane.each.add_to(&mut self.per_stream);
    }

    /// Adds others.
    pub(super) fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.events += other.events;
        self.first_event.add(&other.first_event.0);
        self.event_gap.add(&other.event_gap.0);
        self.last_event.add(&other.last_event.0);
        self.per_stream.add(&other.per_stream.0);
    }

    /// Its times with their names, in the order in which they come.
    #[must_use]
    pub fn spectra(&self) -> [(&'static str, &Times); 3] {
        [("1st event", &self.first_event), ("event gap", &self.event_gap), ("last event", &self.last_event)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_add_up() {
        let (mut one, mut other) = (Seen::default(), Seen::default());
        one.events(100, 600, 3, None);
        one.events(100, 900, 1, Some(600));
        one.stream(100, 900, 4);
        other.events(0, 50, 1, None);
        other.stream(0, 50, 1);
        let mut lanes = Events::default();
        lanes.add_lane(&one);
        let mut sum = Events::default();
        sum.add_lane(&other);
        sum.add(&lanes);
        assert_eq!((sum.streams, sum.events), (2, 5));
        assert_eq!((sum.first_event.count(), sum.first_event.max()), (2, 500));
        assert_eq!((sum.event_gap.count(), sum.event_gap.max(), sum.event_gap.at(0.5)), (3, 300, 1));
        assert_eq!((sum.last_event.max(), sum.per_stream.max()), (800, 4));
    }
}
