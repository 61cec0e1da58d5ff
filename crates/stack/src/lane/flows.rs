//! Records of the lane's flows that have ended: see [`Lane::watch_flows`].

use crate::lane::Lane;
use crate::tcp::FlowRecord;
use crate::time::Time;

impl Lane {
    /// From now on a record is made of each TCP connection that leaves the lane's table. At most `most` records wait to be taken
    /// ([`poll_flow`](Self::poll_flow)), further ones are lost and counted (`flow-records-lost`); 0 turns records off. Totals of existing
    /// connections start now. The records move with the lane.
    ///
    /// There are none for UDP: a socket has no state for each peer.
    pub fn watch_flows(&mut self, now: Time, most: usize) {
        self.tcp.watch_flows(now, most);
    }

    /// The next record of a flow that has ended.
    #[inline]
    pub fn poll_flow(&mut self) -> Option<FlowRecord> {
        let record = self.tcp.poll_flow()?;
        Some(self.placed(record))
    }

    /// Ends the records with the lane: passes the waiting records and one of each existing connection to `take`. No record is made after
    /// that.
    pub fn end_flows(&mut self, now: Time, mut take: impl FnMut(FlowRecord)) {
        let mut last = Vec::new();
        self.tcp.end_flows(now, |record| last.push(record));
        for record in last {
            take(self.placed(record));
        }
    }

    /// With the interface by which packets to the peer leave.
    fn placed(&self, record: FlowRecord) -> FlowRecord {
        let hop = self.ip.hop(record.remote.ip());
        let interface = hop.and_then(|hop| self.ip.interfaces.get(usize::from(hop.interface)));
        FlowRecord {
            interface: interface.and(hop).map(|hop| hop.interface),
            vlan: interface.and_then(|interface| interface.config.vlan),
            ..record
        }
    }
}
