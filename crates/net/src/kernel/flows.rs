//! Records of flows on kernel sockets: of each connection, and of each connected socket of datagrams.
//!
//! The kernel counts: bytes, segments, those sent again and the round-trip time (`TCP_INFO`). It is asked once, when the program closes the
//! socket, and once for each active timeout that has passed. Nothing is done for a packet, a read or a write. A connection costs a system
//! call more when it begins (its address of ours), and up to four when it is closed.
//!
//! What a socket cannot tell:
//!
//! * the length of the headers. So octets of IP are left out ([`FlowRecord::by_kernel`]);
//! * what passes after the program has closed it: the kernel sends the rest and the FIN by itself. Bytes that were written count, for they
//!   will be sent; segments are those until then;
//! * of a connection that was accepted, segments before the one that completed its handshake.
//!
//! Sockets of datagrams without a peer serve everybody, and the kernel counts for the socket as a whole: they have no records.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flowlane_stack::tcp::{Failure, FlowEnd, FlowRecord, State};
use flowlane_stack::time::Time;
use flowlane_stack::wire::IpProtocol;
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket;

use super::counted::Counted;
use super::slab::{Flags, Socket, SocketId};
use super::standing::{Standing, Table};
use super::{KernelLane, errors, options as state_of};
use crate::flow_records::FlowRecords;

/// Flows that are looked at in a turn, for others not to wait: each costs a system call.
const AT_ONCE: usize = 64;
/// When it is tried again, if there is no room for records.
const AGAIN: Duration = Duration::from_millis(20);

/// The records of a lane.
#[derive(Debug)]
pub(super) struct Flows {
    records: FlowRecords,
    /// When the runtime's clock was zero.
    epoch: Instant,
    bucket: u16,
    table: Table,
    /// There was no room: nothing is looked at before.
    not_before: Time,
}

impl Flows {
    fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1)
    }

    /// The record of a flow since the one before.
    fn record(
        &mut self,
        slot: u32,
        now: Time,
        end: FlowEnd,
        state: State,
        (counted, rtt): (Counted, u32),
    ) -> Option<FlowRecord> {
        let standing = self.table.get_mut(slot)?;
        let since = counted.since(&standing.counted, standing.protocol);
        let began = std::mem::replace(&mut standing.began, now);
        standing.counted = counted;
        let (local, remote) = (standing.local, standing.remote);
        let mut record = FlowRecord::new(standing.protocol, local, remote, began, now);
        record.active = standing.active;
        (record.end, record.state) = (end, state);
        (record.sent, record.received, record.retransmitted) =
            (since.sent, since.received, since.retransmitted);
        record.rtt = (rtt > 0).then(|| Duration::from_micros(rtt.into()));
        (record.bucket, record.by_kernel) = (self.bucket, true);
        Some(record)
    }
}

impl KernelLane {
    /// From now on the lane makes records, on the clock that was zero at `epoch`.
    pub(crate) fn record_flows(&mut self, records: FlowRecords, epoch: Instant, bucket: u16) {
        let table = Table::default();
        self.flows = Some(Box::new(Flows { records, epoch, bucket, table, not_before: Time::ZERO }));
    }

    /// A connection, or a connected socket of datagrams, begins. `active`: by us.
    #[inline]
    pub(super) fn flow_begins(&mut self, id: SocketId, remote: SocketAddr, active: bool) {
        if self.flows.is_some() {
            self.note_flow(id, remote, active);
        }
    }

    #[cold]
    fn note_flow(&mut self, id: SocketId, remote: SocketAddr, active: bool) {
        let (Some(flows), Some(socket)) = (&mut self.flows, self.sockets.get(id)) else { return };
        let Ok(local) = socket::local_address(socket.fd()) else { return };
        let protocol = if socket.flags.has(Flags::STREAM) { IpProtocol::TCP } else { IpProtocol::UDP };
        let standing = Standing::new(protocol, local, remote, active, flows.now());
        flows.table.insert(id.slot, standing, flows.records.active().is_some());
    }

    /// A socket is about to be closed.
    #[inline]
    pub(super) fn flow_ends(&mut self, id: SocketId) {
        if self.flows.is_some() {
            self.end_flow(id, None);
        }
    }

    /// A socket leaves for another lane, and its flow with it.
    pub(super) fn flow_departs(&mut self, id: SocketId) -> Option<Standing> {
        let table = &mut self.flows.as_mut()?.table;
        let flow = table.get_mut(id.slot).copied();
        table.remove(id.slot);
        flow
    }

    /// A socket has come from another lane: its flow goes on here.
    pub(super) fn flow_arrives(&mut self, id: SocketId, flow: Standing) {
        if let Some(flows) = &mut self.flows {
            flows.table.insert(id.slot, flow.afresh(flows.now()), flows.records.active().is_some());
        }
    }

    /// `end`: how, if it is known.
    #[cold]
    fn end_flow(&mut self, id: SocketId, end: Option<FlowEnd>) {
        let Some(mut flows) = self.flows.take() else { return };
        if flows.table.get_mut(id.slot).is_some() {
            let (end, state, counted) = self.look_at(id, end);
            if let Some(record) = flows.record(id.slot, flows.now(), end, state, counted) {
                flows.records.put(record);
            }
            flows.table.remove(id.slot);
        }
        self.flows = Some(flows);
    }

    /// The lane ends, and with it the flows that stand. No record is made after that.
    pub(crate) fn end_flows(&mut self) {
        if self.flows.is_some() {
            let all: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
            all.into_iter().for_each(|id| self.end_flow(id, Some(FlowEnd::LaneEnded)));
        }
        self.flows = None;
    }

    /// How a socket's flow ends, its state, what was counted and the round-trip time, microseconds.
    fn look_at(&self, id: SocketId, end: Option<FlowEnd>) -> (FlowEnd, State, (Counted, u32)) {
        let closed = (end.unwrap_or(FlowEnd::Closed), State::Closed);
        let Some(socket) = self.sockets.get(id) else { return (closed.0, closed.1, Default::default()) };
        if !socket.flags.has(Flags::STREAM) {
            let counted = self.udp.ends(id.slot).map(Counted::of_datagrams).unwrap_or_default();
            return (closed.0, closed.1, (counted, 0));
        }
        let info = options::tcp_info(socket.fd()).unwrap_or_default();
        let state = state_of::state(info.state);
        let end = end.unwrap_or_else(|| self.how(id, socket, state));
        let (orderly, rest) = (end == FlowEnd::Closed, end == FlowEnd::Closed);
        (end, state, (Counted::of_connection(&info, orderly, rest), info.rtt))
    }

    /// How a connection ends that is closed now.
    fn how(&self, id: SocketId, socket: &Socket, state: State) -> FlowEnd {
        let told = || options::get(socket.fd(), Number::ERROR).ok().and_then(errors::failure);
        match socket.failure.or_else(|| if state == State::Closed { told() } else { None }) {
            Some(Failure::Refused) => return FlowEnd::Refused,
            Some(Failure::TimedOut) => return FlowEnd::TimedOut,
            Some(Failure::Unreachable) => return FlowEnd::Unreachable,
            Some(_) => return FlowEnd::ResetByPeer,
            None if socket.flags.has(Flags::CONNECTING) => return FlowEnd::GivenUp,
            None if state == State::Closed => return FlowEnd::Closed,
            None => {}
        }
        // The kernel resets a connection whose bytes nobody has read.
        let unread = || rustix::io::ioctl_fionread(socket.fd()).unwrap_or(0) + self.unread(id.slot) as u64;
        let resets = options::reset_on_close(socket.fd()).unwrap_or(false) || unread() > 0;
        if resets { FlowEnd::ResetByUs } else { FlowEnd::Closed }
    }

    /// When the active timeout of a flow passes next.
    #[inline]
    pub(crate) fn flows_due(&self) -> Option<Time> {
        let flows = self.flows.as_ref()?;
        Some((flows.table.first()?.looked + flows.records.active()?).max(flows.not_before))
    }

    /// Makes records of flows whose active timeout has passed: of some, if many have.
    #[inline]
    pub(crate) fn look_at_flows(&mut self, now: Time) {
        if self.flows_due().is_some_and(|at| at <= now) {
            self.look_at_due(now);
        }
    }

    #[cold]
    fn look_at_due(&mut self, now: Time) {
        let Some(mut flows) = self.flows.take() else { return };
        let every = flows.records.active().unwrap_or_default();
        for _ in 0..AT_ONCE {
            if flows.table.first().is_none_or(|first| first.looked + every > now) {
                break;
            }
            if !flows.records.has_room() {
                flows.not_before = now + AGAIN;
                break;
            }
            let Some(slot) = flows.table.pass_by_first(now) else { break };
            let Some(id) = self.sockets.id_in(slot) else { continue };
            let (end, state, counted) = self.look_at(id, Some(FlowEnd::ActiveTimeout));
            let Some(record) = flows.record(slot, now, end, state, counted) else { continue };
            if record.sent.segments + record.received.segments > 0 {
                flows.records.put(record);
            }
        }
        self.flows = Some(flows);
    }
}

#[cfg(test)]
mod tests;
