//! Records of the lane's flows ([`Lane::watch_flows`]), and its flows with most packets and bytes ([`Lane::watch_top`]).

use core::time::Duration;
use flowlane_sys::frame::Frame;

use crate::datagram_flows::{DatagramFlows, Wish};
use crate::lane::{Class, Lane};
use crate::tcp::FlowRecord;
use crate::time::Time;
use crate::top::{Top, TopConfig, TopReport};

impl Lane {
    /// From now on a record is made of each TCP connection that leaves the lane's table, and of each UDP flow that was silent for `idle_timeout`
    /// (noticed up to a second later). At most `most` records of each protocol wait to be taken ([`poll_flow`](Self::poll_flow)), further ones
    /// of TCP are lost and counted (`flow-records-lost`), those of UDP wait; 0 turns records off. Totals of existing connections start now. The
    /// records move with the lane.
    ///
    /// With `active_timeout`, flows that stand also have a record each time it has passed, of what was counted since the one before
    /// ([`FlowEnd::ActiveTimeout`]). Such a record waits for room and is not lost.
    ///
    /// A lane knows 4096 UDP flows. If there are more, the one that was silent for longest ends ([`FlowEnd::NoRoom`]).
    ///
    /// [`FlowEnd::ActiveTimeout`]: crate::tcp::FlowEnd::ActiveTimeout
    /// [`FlowEnd::NoRoom`]: crate::tcp::FlowEnd::NoRoom
    pub fn watch_flows(
        &mut self,
        now: Time,
        most: usize,
        active_timeout: Option<Duration>,
        idle_timeout: Duration,
    ) {
        self.tcp.watch_flows(now, most, active_timeout);
        let seed = [self.rng.next_u64(), self.rng.next_u64()];
        let wish = Wish { most, active: active_timeout, idle: idle_timeout, seed };
        self.datagram_flows = DatagramFlows::new(wish);
        self.looks_at_frames();
    }

    /// The next record of a flow.
    #[inline]
    pub fn poll_flow(&mut self) -> Option<FlowRecord> {
        let record = self.tcp.poll_flow().or_else(|| self.datagram_flows.poll())?;
        Some(self.placed(record))
    }

    /// Ends the records with the lane: passes the waiting records and one of each existing flow to `take`. No record is made after
    /// that.
    pub fn end_flows(&mut self, now: Time, mut take: impl FnMut(FlowRecord)) {
        let mut last = Vec::new();
        self.tcp.end_flows(now, |record| last.push(record));
        self.datagram_flows.end_all(now, |record| last.push(record));
        self.looks_at_frames();
        for record in last {
            take(self.placed(record));
        }
    }

    /// Whether frames are to be counted.
    fn looks_at_frames(&mut self) {
        self.counts_frames = self.top.is_on() || self.datagram_flows.is_on();
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

    /// From now on the lane keeps the flows with most packets and bytes, in tables of fixed size that are allocated now; `None`: no more.
    /// They move with the lane. What was counted before is forgotten.
    pub fn watch_top(&mut self, config: Option<&TopConfig>) {
        self.top = config.map_or_else(Top::default, Top::new);
        self.looks_at_frames();
    }

    /// Whether the lane keeps them.
    #[must_use]
    pub fn watches_top(&self) -> bool {
        self.top.is_on()
    }

    /// The flows with most packets and bytes; `None` if they are not watched.
    pub fn top(&mut self, now: Time) -> Option<TopReport> {
        self.top.report(now)
    }

    /// Counts a frame that comes in, once: what comes out of reassembly or from another lane was counted before.
    pub(super) fn count_received(&mut self, now: Time, frame: &Frame, class: Class) {
        let ethernet = match class {
            Class::Ethernet | Class::InnerEthernet => true,
            Class::InnerIp => false,
            Class::IpDirect => return,
        };
        self.top.received(now, frame, ethernet);
        self.datagram_flows.count(now, frame, ethernet, true);
    }

    /// Counts a frame that goes out, or into a tunnel.
    pub(super) fn count_sent(&mut self, now: Time, frame: &Frame) {
        let ethernet = self.ip.carries_ethernet(frame);
        self.top.sent(now, frame, ethernet);
        self.datagram_flows.count(now, frame, ethernet, false);
    }
}
