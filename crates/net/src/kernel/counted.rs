//! What the kernel has counted of a flow, as records of flows count it.

use flowlane_stack::tcp::{FlowTotals, State};
use flowlane_stack::wire::IpProtocol;
use flowlane_sys::kernel::options::TcpInfo;

use super::datagrams::Ends;
use super::options as state_of;

/// What was counted of a flow since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) sent: FlowTotals,
    pub(super) received: FlowTotals,
    pub(super) retransmitted: u32,
}

impl Counted {
    /// What the kernel has counted of a connection. `rest`: bytes that it has not sent yet count, too, since it will.
    pub(super) fn of_connection(info: &TcpInfo, orderly: bool, rest: bool) -> Self {
        let state = state_of::state(info.state);
        // A FIN is counted like a byte: the peer's with what came in order, ours with what is not sent.
        let peer_is_done = match state {
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait => true,
            State::Closed => orderly,
            _ => false,
        };
        let fin_waits = matches!(state, State::FinWait1 | State::LastAck | State::Closing);
        let waiting = u64::from(info.not_sent).saturating_sub(u64::from(fin_waits));
        let sent = info.bytes_sent.saturating_sub(info.bytes_retrans) + if rest { waiting } else { 0 };
        let received = info.bytes_received.saturating_sub(u64::from(peer_is_done));
        let totals = |bytes, segments: u32| FlowTotals { bytes, segments: segments.into(), octets: 0 };
        Self {
            sent: totals(sent, info.segments_sent),
            received: totals(received, info.segments_received),
            retransmitted: info.total_retrans,
        }
    }

    pub(super) fn of_datagrams(ends: &Ends) -> Self {
        let totals = |bytes, segments| FlowTotals { bytes, segments, octets: 0 };
        Self {
            sent: totals(ends.sent_bytes, ends.sent),
            received: totals(ends.received_bytes, ends.received),
            retransmitted: 0,
        }
    }

    /// What was counted since. The kernel counts segments modulo 2^32.
    pub(super) fn since(&self, before: &Self, protocol: IpProtocol) -> Self {
        let segments = |now: u64, before: u64| match protocol {
            IpProtocol::TCP => u64::from((now as u32).wrapping_sub(before as u32)),
            _ => now.saturating_sub(before),
        };
        let totals = |now: &FlowTotals, before: &FlowTotals| FlowTotals {
            bytes: now.bytes.saturating_sub(before.bytes),
            segments: segments(now.segments, before.segments),
            octets: 0,
        };
        Self {
            sent: totals(&self.sent, &before.sent),
            received: totals(&self.received, &before.received),
            retransmitted: self.retransmitted.wrapping_sub(before.retransmitted),
        }
    }
}
