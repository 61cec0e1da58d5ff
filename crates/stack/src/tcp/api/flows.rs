//! Records of flows, for exporters.

use crate::tcp::Tcp;
use crate::tcp::lane::flow_records::{FlowRecord, FlowWatch};
use crate::time::Time;
use core::time::Duration;

impl Tcp {
    /// From now on a record is made of each connection that leaves the table. At most `most` records wait to be taken; 0 turns records off.
    /// Totals of existing connections start now. With an active timeout there is also one each time this has passed
    /// ([`FlowEnd::ActiveTimeout`](crate::tcp::FlowEnd::ActiveTimeout)).
    pub fn watch_flows(&mut self, now: Time, most: usize, active_timeout: Option<Duration>) {
        self.core.flows = match most {
            0 => FlowWatch::default(),
            most => FlowWatch::of_all(&self.connections, now, most, active_timeout),
        };
    }

    /// The next record of a flow that has ended, in the order of their ends.
    #[inline]
    pub fn poll_flow(&mut self) -> Option<FlowRecord> {
        self.core.flows.poll()
    }

    /// Ends the records with the lane: passes the waiting records and one of each existing connection ([`FlowEnd::LaneEnded`]) to `take`,
    /// without limit. No record is made after that.
    ///
    /// [`FlowEnd::LaneEnded`]: crate::tcp::FlowEnd::LaneEnded
    pub fn end_flows(&mut self, now: Time, take: impl FnMut(FlowRecord)) {
        self.core.flows.end_all(&self.connections, now, take);
    }

    /// Of the flows that stand: how many, the bytes sent, and the segments sent again.
    #[cfg(test)]
    pub(crate) fn flows_that_stand_for_test(&self) -> (u64, u64, u64) {
        self.core.flows.standing_for_test(&self.connections)
    }
}
