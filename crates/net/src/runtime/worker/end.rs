//! The end of a worker: closing the connections of its lanes.
//!
//! With a grace period, lanes accept no new connections and close those they have: written data is sent, then FIN. Tasks continue, so
//! that they can read. Connections that have not ended after the grace period are reset, and the worker ends when the resets are sent.
//! Without a grace period it ends at once, and peers notice with their next segment.

use std::sync::mpsc::Sender;
use std::time::Duration;

use flowlane_stack::time::Time;

use super::Worker;
use crate::stats::WorkerReport;

/// Turns in which the last output may leave.
const LAST_TURNS: usize = 64;

/// An end that has begun.
#[derive(Debug)]
pub(crate) struct Ending {
    to: Sender<WorkerReport>,
    pub(crate) until: Time,
}

impl Worker {
    /// Told to stop.
    pub(super) fn begin_to_end(&mut self, to: Sender<WorkerReport>, grace: Duration) {
        if grace.is_zero() {
            self.stopping = true;
            self.end_flows();
            drop(to.send(self.report(true)));
            return;
        }
        self.end_connections(false);
        self.ending = Some(Ending { to, until: self.now + grace });
    }

    /// After each turn of an end: whether it is over, and then the rest of it.
    #[cold]
    pub(super) fn end_if_over(&mut self) {
        let Some(ending) = &self.ending else { return };
        let left =
            self.lanes.iter().flatten().any(|slot| slot.lane.tcp_unfinished() > 0 || slot.lane.has_output());
        if (left || self.moves.has_one_under_way()) && self.now < ending.until {
            return;
        }
        self.end_connections(true);
        for _ in 0..LAST_TURNS {
            self.now = self.shared.now();
            let busy = self.look_after_lanes() | self.send();
            let _ = self.netisr.flush(&self.shared);
            if !busy && self.waiting.is_empty() {
                break;
            }
        }
        self.stopping = true;
        self.end_flows();
        if let Some(ending) = self.ending.take() {
            // A receiver that is gone has lost interest.
            drop(ending.to.send(self.report(true)));
        }
    }

    /// Flows that stand end with their lanes.
    fn end_flows(&mut self) {
        for slot in self.lanes.iter_mut().flatten() {
            slot.end_flows(self.now);
        }
    }

    /// Whether it was told to stop. From then on it sends no lane away.
    pub(super) fn is_ending(&self) -> bool {
        self.stopping || self.ending.is_some()
    }

    /// A lane has come: if the end has begun, its connections are closed like the others.
    pub(super) fn end_connections_of_late(&mut self, lane: u32) {
        if let Some(slot) = self.lanes[lane as usize].as_mut().filter(|_| self.ending.is_some()) {
            slot.ending = true;
            slot.lane.tcp_end_all(self.now, &self.frames, false);
        }
    }

    fn end_connections(&mut self, at_once: bool) {
        for lane in 0..self.lanes.len() {
            if let Some(slot) = &mut self.lanes[lane] {
                slot.ending = true;
                slot.lane.tcp_end_all(self.now, &self.frames, at_once);
                self.touch(lane as u32);
            }
        }
    }
}
