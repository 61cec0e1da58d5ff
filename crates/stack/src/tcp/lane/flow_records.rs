//! One record for each connection that leaves the lane's table: its flow, how it ended, and its totals.
//!
//! For an exporter of flows (RFC 7011). Off unless somebody asks (`Tcp::watch_flows`): then each segment costs a look at a
//! pointer. While it is on, totals stand in a list of their own beside the connections, by slot, so that these stay as small as they
//! are. A record is made where a connection leaves the table, and waits in a ring of fixed size until it is taken: nothing is
//! allocated, nobody is called, and what does not fit is counted (`flow_records_lost`).
//!
//! **Counting.** Bytes are those of the stream: sent for the first time, and received in order. Segments are those on the wire as far as the lane
//! knows: one that the link segmented or merged counts as the number it was split into or merged from. Segments of a connection in
//! TIME-WAIT, received and sent, belong to no record.
//!
//! **Flows that stand.** With an active timeout (RFC 7011 §5.1.1) a connection also has a record each time this has passed, of what was
//! counted since its last one ([`FlowEnd::ActiveTimeout`]), unless nothing was. So the sum of a connection's records is what passed.
//! Since all have the same timeout, the one that was looked at longest ago is due first: connections are in a list in that order, and what
//! is done costs a step for each that is due. A record that finds no room is made later, and loses nothing.
//!
//! UDP has records of the same kind, made elsewhere: the module `datagram_flows`.

use crate::packet::IpOutput;
use crate::tcp::Seq;
use crate::tcp::connection::{Connection, Flags, Lists, State};
use crate::tcp::segment::Segment;
use crate::tcp::table::Slab;
use crate::time::Time;
use crate::wire::IpProtocol;
use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

/// How a flow ended, or why else a record of it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowEnd {
    /// Both sides closed, and each knows of the other.
    Closed,
    /// The peer reset it.
    ResetByPeer,
    /// This side reset it: aborted by the application, or data arrived after it had closed.
    ResetByUs,
    /// The peer refused our connection attempt.
    Refused,
    /// No answer for too long.
    TimedOut,
    /// The network said that the peer cannot be reached.
    Unreachable,
    /// The peer's connection attempt was never finished, or found no listener any more.
    HalfOpen,
    /// This side gave its connection attempt up.
    GivenUp,
    /// This side lost its address: the lease ended, or somebody else has it.
    AddressLost,
    /// The lane ended before the connection.
    LaneEnded,
    /// It goes on: the active timeout has passed since its last record.
    ActiveTimeout,
    /// No datagram for the idle timeout. UDP only.
    Idle,
    /// Another flow needed its place in the lane's table. UDP only.
    NoRoom,
}

impl FlowEnd {
    /// All of them.
    pub const ALL: [FlowEnd; 13] = [
        FlowEnd::Closed,
        FlowEnd::ResetByPeer,
        FlowEnd::ResetByUs,
        FlowEnd::Refused,
        FlowEnd::TimedOut,
        FlowEnd::Unreachable,
        FlowEnd::HalfOpen,
        FlowEnd::GivenUp,
        FlowEnd::AddressLost,
        FlowEnd::LaneEnded,
        FlowEnd::ActiveTimeout,
        FlowEnd::Idle,
        FlowEnd::NoRoom,
    ];

    /// Its name for machines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowEnd::Closed => "closed",
            FlowEnd::ResetByPeer => "reset-by-peer",
            FlowEnd::ResetByUs => "reset-by-us",
            FlowEnd::Refused => "refused",
            FlowEnd::TimedOut => "timed-out",
            FlowEnd::Unreachable => "unreachable",
            FlowEnd::HalfOpen => "half-open",
            FlowEnd::GivenUp => "given-up",
            FlowEnd::AddressLost => "address-lost",
            FlowEnd::LaneEnded => "lane-ended",
            FlowEnd::ActiveTimeout => "active-timeout",
            FlowEnd::Idle => "idle-timeout",
            FlowEnd::NoRoom => "no-room",
        }
    }
}

/// Totals of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowTotals {
    /// Bytes of the stream, each once; of UDP those of all datagrams, or fragments, behind their headers, IP options and extension headers included.
    pub bytes: u64,
    /// Segments, or datagrams, on the wire, those without data and those sent again included.
    pub segments: u64,
    /// Bytes of these segments' packets from the IP header on, options and extension headers of IP not counted.
    pub octets: u64,
}

/// What passed of a flow since its record before, or since it began. It has ended, unless `end` is [`FlowEnd::ActiveTimeout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowRecord {
    /// TCP or UDP.
    pub protocol: IpProtocol,
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Interface of the host by which packets to the peer leave; `None` without a route, and from a TCP without a lane.
    pub interface: Option<u8>,
    /// VLAN of that interface.
    pub vlan: Option<u16>,
    /// Opened by us; of UDP: the first datagram was ours.
    pub active: bool,
    /// How it ended.
    pub end: FlowEnd,
    /// The state that it was in then; [`State::TimeWait`] if it left a record in TIME-WAIT. Of UDP [`State::Closed`].
    pub state: State,
    /// When it began, on the lane's clock: with its first segment, or with the watch if that was later. Behind an active timeout: the time up
    /// to which its flow was counted before.
    pub began: Time,
    /// When it ended, or the active timeout passed. Of a UDP flow that ended: when its last datagram passed.
    pub ended: Time,
    /// Sent.
    pub sent: FlowTotals,
    /// What came.
    pub received: FlowTotals,
    /// Segments of ours that were sent again.
    pub retransmitted: u32,
    /// The smoothed round-trip time of a TCP connection then; `None` if none was measured.
    pub rtt: Option<Duration>,
    /// Bucket of its lane; 0 from a TCP without a lane.
    pub bucket: u16,
    /// Counted by a socket of the kernel, which does not tell the headers: [`FlowTotals::octets`] of both directions are 0 and say nothing.
    pub by_kernel: bool,
}

impl FlowRecord {
    /// A record in which nothing was counted, of a flow that was closed.
    #[must_use]
    pub fn new(
        protocol: IpProtocol,
        local: SocketAddr,
        remote: SocketAddr,
        began: Time,
        ended: Time,
    ) -> Self {
        Self {
            protocol,
            local,
            remote,
            interface: None,
            vlan: None,
            active: false,
            end: FlowEnd::Closed,
            state: State::Closed,
            began,
            ended,
            sent: FlowTotals::default(),
            received: FlowTotals::default(),
            retransmitted: 0,
            rtt: None,
            bucket: 0,
            by_kernel: false,
        }
    }
}

/// What passed of a connection that stands.
#[derive(Debug, Clone, Copy)]
struct Totals {
    began: Time,
    sent: FlowTotals,
    received: FlowTotals,
    /// Up to where bytes are counted.
    snd: Seq,
    rcv: Seq,
    /// Segments sent again that earlier records have.
    retransmitted: u32,
    /// Whether it is in the list of those that stand, and its neighbours there.
    listed: bool,
    before: u32,
    after: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;
/// Connections that are looked at in a turn, for the others not to wait.
const AT_ONCE: usize = 64;
/// When it is tried again, if there is no room for records.
const AGAIN: Duration = Duration::from_millis(20);

/// Bytes that a connection costs more while flows are watched.
pub(crate) const PER_FLOW: usize = size_of::<Totals>();

#[derive(Debug)]
struct Watch {
    /// By slot of the connection.
    totals: Vec<Totals>,
    ended: VecDeque<FlowRecord>,
    /// Records that may wait.
    most: usize,
    /// Active timeout: then those that stand are in a list, the one that was looked at longest ago first.
    every: Option<Duration>,
    first: u32,
    last: u32,
    /// There was no room: nothing is looked at before.
    not_before: Time,
}

/// The records of flows, if enabled.
#[derive(Debug, Default)]
pub(crate) struct FlowWatch(Option<Box<Watch>>);

impl FlowWatch {
    /// At most `most` records wait to be taken. Totals of connections that stand begin now. `every`: the active timeout.
    pub(crate) fn of_all(
        connections: &Slab<Connection>,
        now: Time,
        most: usize,
        every: Option<Duration>,
    ) -> Self {
        let slots = connections.slots() as usize;
        let mut watch = Watch {
            totals: Vec::with_capacity(slots),
            ended: VecDeque::with_capacity(most),
            most,
            every,
            first: NONE,
            last: NONE,
            not_before: Time::ZERO,
        };
        for c in connections.iter() {
            watch.begin(c, now);
        }
        Self(Some(Box::new(watch)))
    }

    /// When the active timeout of a connection passes next.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let watch = self.0.as_ref()?;
        let (every, first) = (watch.every?, watch.totals.get(watch.first as usize)?);
        Some((first.began + every).max(watch.not_before))
    }

    /// Makes records of connections whose active timeout has passed: of some, if many have. How many records.
    #[inline]
    pub(crate) fn look(&mut self, connections: &Slab<Connection>, now: Time) -> u64 {
        if self.next_deadline().is_none_or(|at| at > now) {
            return 0;
        }
        self.0.as_mut().map_or(0, |watch| watch.look(connections, now))
    }

    /// The next record, in the order of their ends.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<FlowRecord> {
        self.0.as_mut()?.ended.pop_front()
    }

    /// What waits, and a record of each connection that stands. No record is made after that.
    pub(crate) fn end_all(
        &mut self,
        connections: &Slab<Connection>,
        now: Time,
        mut take: impl FnMut(FlowRecord),
    ) {
        let Some(mut watch) = self.0.take() else { return };
        watch.ended.iter().copied().for_each(&mut take);
        for c in connections.iter().filter(|c| c.is_in(Lists::LINKED)) {
            if let Some(totals) = watch.totals.get_mut(c.id().slot as usize) {
                take(totals.record(c, now, FlowEnd::LaneEnded));
            }
        }
    }

    /// Of the flows that stand: how many, the bytes sent, and the segments sent again.
    #[cfg(test)]
    pub(crate) fn standing_for_test(&self, connections: &Slab<Connection>) -> (u64, u64, u64) {
        let Some(watch) = &self.0 else { return (0, 0, 0) };
        let mut sums = (0, 0, 0);
        for c in connections.iter().filter(|c| c.is_in(Lists::LINKED)) {
            let mut totals = watch.totals[c.id().slot as usize];
            let record = totals.record(c, Time::ZERO, FlowEnd::LaneEnded);
            sums = (sums.0 + 1, sums.1 + record.sent.bytes, sums.2 + u64::from(record.retransmitted));
        }
        sums
    }

    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A connection stands in its slot.
    #[inline]
    pub(crate) fn begin(&mut self, c: &Connection, now: Time) {
        if let Some(watch) = &mut self.0 {
            watch.begin(c, now);
        }
    }

    /// The peer's first number is known now.
    pub(crate) fn peer_begins(&mut self, c: &Connection) {
        if let Some(totals) = self.of(c) {
            totals.rcv = c.rcv.nxt();
        }
    }

    /// A segment has come for a connection, as it was before anything was trimmed off.
    pub(crate) fn received(&mut self, c: &Connection, seg: &Segment) {
        if let Some(totals) = self.of(c) {
            totals.received.count(c, seg.merged, usize::from(seg.header), seg.len);
        }
    }

    /// A segment of a connection goes out, perhaps to be cut by the link.
    #[cold]
    pub(crate) fn sent(&mut self, c: &Connection, out: &IpOutput) {
        let Some(totals) = self.of(c) else { return };
        let cut = u32::from(out.frame.meta().segment_size);
        let header = out.frame.data().get(12).map_or(0, |offset| usize::from(offset >> 4) * 4);
        let data = out.frame.chain_len().saturating_sub(header) as u32;
        let segments = if cut > 0 { data.div_ceil(cut).max(1) } else { 1 };
        totals.sent.count(c, segments, header, data);
        totals.advance(c);
    }

    /// A segment of a connection without data, of so many bytes, was put among the lane's answers.
    pub(crate) fn answered(&mut self, c: &Connection, header: usize) {
        if let Some(totals) = self.of(c) {
            totals.sent.count(c, 1, header, 0);
        }
    }

    /// Something came for a connection, and was handled.
    pub(crate) fn advanced(&mut self, c: &Connection) {
        if let Some(totals) = self.of(c) {
            totals.advance(c);
        }
    }

    /// A connection leaves the table; `false` if its record is lost.
    #[inline]
    pub(crate) fn end(&mut self, c: &Connection, now: Time, end: FlowEnd) -> bool {
        match &mut self.0 {
            Some(watch) => watch.end(c, now, end),
            None => true,
        }
    }

    /// As many totals as there are slots of connections.
    pub(crate) fn trim(&mut self, slots: u32) {
        if let Some(watch) = &mut self.0 {
            watch.totals.truncate(slots as usize);
            watch.totals.shrink_to(slots as usize);
        }
    }

    #[inline]
    fn of(&mut self, c: &Connection) -> Option<&mut Totals> {
        self.0.as_mut()?.totals.get_mut(c.id().slot as usize)
    }
}

impl FlowTotals {
    /// Counts segments with TCP headers of so many bytes, and together so many bytes of data.
    fn count(&mut self, c: &Connection, segments: u32, header: usize, data: u32) {
        let ip = if c.is_ipv4() { 20 } else { 40 };
        self.segments += u64::from(segments);
        // Guard: `u64::from(segments) * (ip + header as u64)` as `ip + header as u64` fails
        // flow_records::segments_of_the_wire
        self.octets += u64::from(segments) * (ip + header as u64) + u64::from(data);
    }
}

impl Totals {
    fn of(c: &Connection, began: Time) -> Self {
        let none = FlowTotals::default();
        let (snd, rcv, retransmitted) = (c.snd.nxt(), c.rcv.nxt(), c.retransmits());
        Self {
            began,
            sent: none,
            received: none,
            snd,
            rcv,
            retransmitted,
            listed: false,
            before: NONE,
            after: NONE,
        }
    }

    /// Counts the numbers that were used since: fewer than there are, since each segment is followed by this.
    fn advance(&mut self, c: &Connection) {
        self.sent.bytes += u64::from(c.snd.nxt().since(self.snd));
        self.received.bytes += u64::from(c.rcv.nxt().since(self.rcv));
        (self.snd, self.rcv) = (c.snd.nxt(), c.rcv.nxt());
    }

    /// What was counted since the record before. The next begins here.
    fn record(&mut self, c: &Connection, now: Time, end: FlowEnd) -> FlowRecord {
        self.advance(c);
        // A FIN takes a number but is no byte. No byte is behind it, so in later records there is nothing to be taken away.
        // Guard: `u64::from(c.has(Flags::FIN_SENT))` as `0_u64` fails flow_records::both_sides_close
        self.sent.bytes -= u64::from(c.has(Flags::FIN_SENT)).min(self.sent.bytes);
        // Guard: `u64::from(c.has(Flags::FIN_RECEIVED))` as `0_u64` fails flow_records::both_sides_close
        self.received.bytes -= u64::from(c.has(Flags::FIN_RECEIVED)).min(self.received.bytes);
        let began = core::mem::replace(&mut self.began, now);
        FlowRecord {
            active: c.has(Flags::ACTIVE),
            end,
            state: c.state(),
            rtt: Some(c.rtt.srtt()).filter(|us| *us > 0).map(|us| Duration::from_micros(us.into())),
            sent: core::mem::take(&mut self.sent),
            received: core::mem::take(&mut self.received),
            retransmitted: c
                .retransmits()
                .wrapping_sub(core::mem::replace(&mut self.retransmitted, c.retransmits())),
            ..FlowRecord::new(IpProtocol::TCP, c.local_end(), c.remote_end(), began, now)
        }
    }
}

impl Watch {
    fn begin(&mut self, c: &Connection, now: Time) {
        let (slot, totals) = (c.id().slot, Totals::of(c, now));
        self.unlist(slot);
        match self.totals.get_mut(slot as usize) {
            Some(place) => *place = totals,
            // Slots are taken in order; those between are nobody's.
            None => self.totals.resize(slot as usize + 1, totals),
        }
        if self.every.is_some() {
            self.list(slot);
        }
    }

    #[cold]
    fn end(&mut self, c: &Connection, now: Time, end: FlowEnd) -> bool {
        let slot = c.id().slot;
        self.unlist(slot);
        let Some(totals) = self.totals.get_mut(slot as usize) else { return true };
        // Guard: `self.ended.len() < self.most` as `true` fails flow_records::what_nobody_takes
        let room = self.ended.len() < self.most;
        if room {
            self.ended.push_back(totals.record(c, now, end));
        }
        room
    }

    #[cold]
    fn look(&mut self, connections: &Slab<Connection>, now: Time) -> u64 {
        let Some(every) = self.every else { return 0 };
        let mut made = 0;
        // Guard: `AT_ONCE` as `1000` fails tcp::tests::flow_records::many_active_timeouts
        for _ in 0..AT_ONCE {
            let slot = self.first;
            if self.totals.get(slot as usize).is_none_or(|totals| totals.began + every > now) {
                break;
            }
            // Guard: `self.ended.len() >= self.most` as `false` fails
            // tcp::tests::flow_records::many_active_timeouts
            if self.ended.len() >= self.most {
                self.not_before = now + AGAIN;
                break;
            }
            self.unlist(slot);
            let Some(c) = connections.get_slot(slot) else { continue };
            self.list(slot);
            let totals = &mut self.totals[slot as usize];
            // Guard: `totals.sent.segments + totals.received.segments == 0` as `false` fails
            // tcp::tests::flow_records::the_active_timeout
            if totals.sent.segments + totals.received.segments == 0 {
                totals.began = now;
            } else {
                self.ended.push_back(totals.record(c, now, FlowEnd::ActiveTimeout));
                made += 1;
            }
        }
        made
    }

    /// Puts a slot at the end of the list of those that stand.
    fn list(&mut self, slot: u32) {
        let last = core::mem::replace(&mut self.last, slot);
        match self.totals.get_mut(last as usize) {
            Some(totals) => totals.after = slot,
            None => self.first = slot,
        }
        if let Some(totals) = self.totals.get_mut(slot as usize) {
            (totals.listed, totals.before, totals.after) = (true, last, NONE);
        }
    }

    /// Takes a slot out of it, if it is there.
    fn unlist(&mut self, slot: u32) {
        let Some(totals) = self.totals.get_mut(slot as usize).filter(|totals| totals.listed) else { return };
        totals.listed = false;
        let (before, after) = (totals.before, totals.after);
        match self.totals.get_mut(before as usize) {
            Some(totals) => totals.after = after,
            None => self.first = after,
        }
        match self.totals.get_mut(after as usize) {
            Some(totals) => totals.before = before,
            None => self.last = before,
        }
    }
}
