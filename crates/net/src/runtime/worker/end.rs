//! The end of a worker: closing the connections of its lanes.
//!
//! With a grace period, lanes accept no new connections and close those they have: written data is sent, then FIN. Tasks continue, so
//! that they can read. Connections that have not ended after the grace period are reset, and the worker ends when the resets are sent.
//! Without a grace period it ends at once, and peers notice with their next segment.

use std::sync::mpsc::Sender;
use std::time::Duration;

use super::Worker;
use crate::stats::WorkerReport;

/// Turns in which the last output may leave.
const LAST_TURNS: usize = 64;

impl Worker {
    /// Told to stop.
    pub(super) fn begin_to_end(&mut self, to: Sender<WorkerReport>, grace: Duration) {
        if grace.is_zero() {
            if self.give_addresses_back() {
                let _ = self.look_after_lanes() | self.ports.send(self.now);
            }
            self.cycle.stop();
            self.end_flows();
            drop(to.send(self.report(true)));
            return;
        }
        self.end_connections(false);
        self.cycle.begin_to_end(to, self.now + grace);
    }

    /// After each turn of an end: whether it is over, and then the rest of it.
    #[cold]
    pub(super) fn end_if_over(&mut self) {
        let Some(until) = self.cycle.ends_at() else { return };
        let left = self.lanes.iter().any(|slot| slot.lane.tcp().unfinished() > 0 || slot.lane.has_output());
        // Guard: `self.moves.has_one_under_way()` as `false` fails moving::tests::the_end_waits
        if (left || self.moves.has_one_under_way()) && self.now < until {
            return;
        }
        self.end_connections(true);
        self.give_addresses_back();
        for _ in 0..LAST_TURNS {
            self.now = self.shared.now();
            let busy = self.look_after_lanes() | self.ports.send(self.now);
            let _ = self.netisr.flush(&self.shared);
            if !busy && !self.lanes.are_waiting() {
                break;
            }
        }
        let to = self.cycle.stop();
        self.end_flows();
        if let Some(to) = to {
            // A receiver that is gone has lost interest.
            drop(to.send(self.report(true)));
        }
    }

    /// Gives back what servers of DHCP gave; whether there was any.
    fn give_addresses_back(&mut self) -> bool {
        let mut any = false;
        for slot in self.lanes.touch_all(|slot| slot.dhcp.is_some()) {
            slot.release_address(self.now, &self.frames, &self.shared);
            any = true;
        }
        any
    }

    /// Flows that stand end with their lanes.
    fn end_flows(&mut self) {
        self.lanes.iter_mut().for_each(|slot| slot.end_flows(self.now));
    }

    /// A lane has come: if the end has begun, its connections are closed like the others.
    pub(super) fn end_connections_of_late(&mut self, lane: u32) {
        if let Some(slot) = self.lanes.get_mut(lane).filter(|_| self.cycle.ends_at().is_some()) {
            slot.ending = true;
            slot.lane.with_tcp(self.now, &self.frames, |tcp, cx| tcp.end_all(cx, false));
        }
    }

    fn end_connections(&mut self, at_once: bool) {
        for slot in self.lanes.touch_all(|_| true) {
            slot.ending = true;
            slot.lane.with_tcp(self.now, &self.frames, |tcp, cx| tcp.end_all(cx, at_once));
        }
    }
}
