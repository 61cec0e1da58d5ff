//! TCP for one lane.
//!
//! It is a plain value: its caller passes in segments, time and calls of applications, and polls it for segments to send. It has no
//! sockets, clock, threads or randomness of its own; see [`Cx`] for what it borrows.
//!
//! ```text
//!   input ──▶ coalesce ─▶ segment ─▶ table ─┬▶ connection: input/{sequence, ack, data} ─▶ recovery/, acks/
//!                                           ├▶ listen, syn_cookies, fast_open/ ─▶ handshake
//!                                           └▶ time_wait
//!   poll_output ◀── output/{build ◀ payload, segmenter} ◀── write
//!   on_timer ──▶ timers ─▶ (retransmission, tail probe, reordering, persist, keep-alive)
//! ```
//!
//! # Layers
//!
//! Each layer uses those above it in this list, and none below.
//!
//! | layer | modules | what it is |
//! |---|---|---|
//! | values | `config`, `error`, `segment`, `table`, `tuple_table` | what TCP is told, what comes in, how things are named and found |
//! | pieces | the files of `connection/` | receive and send buffer, scoreboard, recovery, congestion window, round-trip time, deadlines, ...: each owns its fields and knows neither the connection nor the lane |
//! | connection | `connection/{mod, flags, identity, rare, state}` | RFC 9293's Transmission Control Block: the pieces put together |
//! | lane | `lane/` | `Core`, what all connections share: memory, listeners, TIME-WAIT records, replies, records of flows. It takes connections |
//! | small steps | `arm`, `acks`, `challenge`, `ecn`, `model`, `time_wait`, `urgent`, `window`, `write`, `fast_open` | one matter each, of a connection and the lane |
//! | larger steps | `recovery`, then `path`, `handshake`, `close`, `syn_cookies`, `listen` | put together from small steps |
//! | events | `input`, `output`, `timers` | what a segment, a look for output and a deadline set off |
//! | `Tcp` | this file, `api/`, `coalesce`, `half_open`, `info`, `prefetch`, `shortage`, `snapshot`, `trim`, `waiting` | all connections of the lane, and what applications may do with them |
//!
//! A step is a method of `Connection` or of `Core` in the module of its matter. It reads and changes the pieces by their methods,
//! since their fields are private. Steps of one row call one another in one direction only. A step that would have to call one of a
//! later row returns what is to be done instead, as `time_wait` does by its `Verdict`. A test (`circles` in the crate `mutants`)
//! keeps modules that stand side by side from importing one another in a circle.
//!
//! RFC 9293 is the base; `docs/conformance/tcp.md` lists each requirement with its place here and its test.
//!
//! Invariants: the cost of a segment does not depend on the number of connections; every drop has a name; an idle connection holds no
//! buffers; a handle whose connection has ended is an error.

mod acks;
mod api;
mod arm;
mod challenge;
mod close;
mod coalesce;
mod config;
mod connection;
mod ecn;
mod error;
mod fast_open;
mod half_open;
mod handshake;
mod info;
mod input;
mod lane;
mod listen;
mod model;
mod output;
mod path;
mod prefetch;
mod recovery;
mod segment;
mod shortage;
mod snapshot;
mod syn_cookies;
mod table;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;
mod trim;
mod tuple_table;
mod urgent;
mod waiting;
mod window;
mod write;

pub use api::{Accepted, ConnectOptions, FirstData, Interest, Readiness};
pub use config::{
    Algorithm, BufferSize, Ecn, FastOpen, FastOpenKeys, FastOpenListen, Keepalive, ListenOptions,
    SocketOptions, SynCookies, TcpConfig,
};
pub use connection::{State, StateCounts};
pub use error::{ConnectError, Failure, RecvError, SendError, StaleError};
pub use info::{AccurateEcn, EcnCounts, LossState, SegmentCounts, TcpInfo};
pub use lane::flow_records::{FlowEnd, FlowRecord, FlowTotals};
pub use lane::half_open::SynAnswer;
pub use lane::listeners::{ListenError, ListenerId};
pub(crate) use lane::scarce_ports::Scarcity;
pub use prefetch::{AHEAD, Prefetched};
pub use snapshot::{Agreed, TcpRow, TcpSnapshot};
pub use table::ConnId;

pub use crate::stats::tcp::{DropReason, TcpStats};
pub(crate) use crate::wire::SeqNum as Seq;

use crate::packet::{Cx, IcmpError, IpInput, IpOutput, Room};
use crate::path_mtu::PathMtus;
use crate::time::Time;
use crate::wire::{IpProtocol, TcpHeader};
use connection::deadlines::NEVER;
use connection::rtt::Timeouts;
use connection::{Connection, PLAIN, TIMED};
use core::net::IpAddr;
use lane::peers::Path;
use lane::{CROWDED, Core};
use segment::Segment;
use table::{Slab, Tuple};
use time_wait::Verdict;
use tuple_table::Found;

const TCP: IpProtocol = IpProtocol::TCP;
/// Timers taken off the wheel before the first of their connections is looked at.
const TIMERS_AT_ONCE: usize = 16;

/// The TCP of one lane: all its connections and everything that belongs to them. It may move to another thread whole.
#[derive(Debug)]
pub struct Tcp {
    connections: Slab<Connection>,
    core: Core,
    /// What is held of the burst that is being given in.
    runs: coalesce::Runs,
    /// Answers to strangers were asked first the last time.
    replies_turn: bool,
    /// Connections that have something to send on a link without room.
    waiting: waiting::Waiting,
    /// When memory is given back.
    trim_at: Time,
    /// Where the search for a local port begins.
    port_turns: api::PortTurns,
}

impl Tcp {
    /// An empty TCP. `secret` keys sequence numbers, cookies and tables; it must be unpredictable to others.
    #[must_use]
    pub fn new(config: TcpConfig, secret: [u64; 3]) -> Self {
        Self {
            connections: Slab::new(),
            core: Core::new(config, secret),
            runs: coalesce::Runs::default(),
            replies_turn: false,
            trim_at: NEVER,
            waiting: waiting::Waiting::default(),
            port_turns: api::PortTurns::default(),
        }
    }

    /// Changes the configuration; connections keep negotiated values.
    pub fn configure(&mut self, config: TcpConfig) {
        self.core.timeouts = Timeouts::of(&config);
        self.core.config = config;
        self.core.set_levels();
    }

    /// Takes a received packet, behind all that was given in before.
    pub fn input(&mut self, cx: &mut Cx<'_>, packet: IpInput) {
        self.end_burst(cx);
        let Some((header, data)) = self.check(&packet) else { return };
        let tuple = Tuple::of_input(&packet.ip, &header);
        let mut seg = Segment::new(packet, &header, data);
        self.core.stats.merged_received += u64::from(seg.merged - 1);
        let hash = self.core.table.hash(&tuple);
        self.segment_input(cx, hash, &tuple, &mut seg);
    }

    /// Checks a packet, and counts it.
    #[inline(always)]
    fn check(&mut self, packet: &IpInput) -> Option<(TcpHeader, usize)> {
        self.core.stats.packets_received += 1;
        let checked = Segment::check(packet);
        if let Err(reason) = checked {
            self.core.stats.drop(reason);
        }
        checked.ok()
    }

    /// A segment whose tuple has this hash.
    fn segment_input(&mut self, cx: &mut Cx<'_>, hash: u32, tuple: &Tuple, seg: &mut Segment) {
        let (connections, time_wait) = (&self.connections, &self.core.time_wait);
        let found = self.core.table.find(hash, |found| match found {
            Found::Connection(slot) => {
                // While its tuple is compared.
                connections.get_slot_ahead(slot, PLAIN).is_some_and(|c| c.is_of(tuple))
            }
            Found::TimeWait(slot) => time_wait.get(slot).is_some_and(|r| r.tuple == *tuple),
        });
        match found {
            Some(Found::Connection(slot)) => self.connection_input(cx, slot, seg),
            Some(Found::TimeWait(slot)) => {
                if let Verdict::Reuse(old) = self.core.time_wait_input(cx, slot, seg) {
                    self.stranger_input(cx, (tuple, hash), seg, Some(old));
                }
            }
            None => self.stranger_input(cx, (tuple, hash), seg, None),
        }
    }

    #[inline(always)]
    fn connection_input(&mut self, cx: &mut Cx<'_>, slot: u32, seg: &mut Segment) {
        let Some(c) = self.connections.get_slot_mut(slot) else { return };
        if self.core.flows.is_on() {
            self.core.flows.received(c, seg);
            c.input(&mut self.core, cx, seg);
            self.core.flows.advanced(c);
        } else {
            c.input(&mut self.core, cx, seg);
        }
        if let Some(over) = self.core.settled(c) {
            self.forget(over);
        }
        self.feed_starved();
    }

    /// A segment of no connection.
    fn stranger_input(
        &mut self,
        cx: &mut Cx<'_>,
        (tuple, hash): (&Tuple, u32),
        seg: &mut Segment,
        after: Option<Seq>,
    ) {
        if self.core.half_open().is_some_and(|half_open| half_open.hear(tuple, seg)) {
            return;
        }
        let slot = self.core.listen_input(cx, (tuple, hash), seg, after, &mut self.connections);
        let Some(slot) = slot else { return };
        self.link(slot, cx.now);
        let Some(c) = self.connections.get_slot_mut(slot) else { return };
        if self.core.flows.is_on() {
            self.core.flows.received(c, seg);
        }
        if c.is_early() {
            c.open_early(&mut self.core, cx, seg);
        } else if c.snd.una() != c.snd.nxt() && seg.is(crate::wire::TcpFlags::ACK) {
            // Of a cookie.
            c.input(&mut self.core, cx, seg);
            if c.state() == State::SynReceived {
                self.core.kill(c, cx.now, FlowEnd::HalfOpen, None);
                c.detach();
            }
        }
        self.finish(slot);
    }

    /// A connection that was made is found from now on.
    fn link(&mut self, slot: u32, now: Time) {
        let Some(c) = self.connections.get_slot(slot) else { return };
        self.core.table.insert(c.table_hash(), Found::Connection(slot));
        if self.core.flows.is_on() {
            self.core.flows.begin(c, now);
        }
        self.core.count_connections(self.connections.len());
    }

    /// After anything happened to a connection: timers, output, and whether it is still there.
    fn finish(&mut self, slot: u32) {
        self.settle_one(slot);
        self.feed_starved();
    }

    fn settle_one(&mut self, slot: u32) {
        let Some(c) = self.connections.get_slot_mut(slot) else { return };
        if let Some(over) = self.core.settled(c) {
            self.forget(over);
        }
    }

    /// A connection has ended, and its handle was released.
    #[inline(never)]
    fn forget(&mut self, id: ConnId) {
        let core = &mut self.core;
        self.connections.discard(id, |c| {
            core.unlink(c);
            core.forget_rare(c);
            core.states.over(c.state());
        });
        self.core.count_connections(self.connections.len());
    }

    /// The next packet to send, if any. Connections are served in turn, and alternate with answers to unknown peers, so a flood of these
    /// does not block connections.
    pub fn poll_output(&mut self, cx: &mut Cx<'_>) -> Option<IpOutput> {
        self.next_output(cx)
    }

    /// The same, as part of its caller, where the packet goes on: a move for each would cost as much as the rest of this.
    // Nearly every connection that is asked has something to send: without a loop, whose preparations each would pay for.
    #[inline(always)]
    pub(crate) fn next_output(&mut self, cx: &mut Cx<'_>) -> Option<IpOutput> {
        self.replies_turn = !self.replies_turn;
        if self.replies_turn && self.core.has_replies() {
            return self.core.next_reply();
        }
        let Some(slot) = self.core.next_ready() else { return self.core.next_reply() };
        match self.poll_connection(cx, slot) {
            Ok(Some(out)) => Some(out),
            Ok(None) => self.poll_others(cx, None),
            Err(output::NoFrame) => self.core.next_reply(),
        }
    }

    /// As [`Tcp::poll_output`], of the connections whose link has room; the others wait for it. Answers to strangers come
    /// whatever link they are for.
    pub(crate) fn poll_output_to(&mut self, cx: &mut Cx<'_>, room: Option<&Room<'_>>) -> Option<IpOutput> {
        self.replies_turn = !self.replies_turn;
        if self.replies_turn && self.core.has_replies() {
            return self.core.next_reply();
        }
        self.poll_others(cx, room)
    }

    /// Asks connections until one has something, then for an answer to a stranger.
    #[inline(never)]
    fn poll_others(&mut self, cx: &mut Cx<'_>, room: Option<&Room<'_>>) -> Option<IpOutput> {
        while let Some(slot) = match room {
            None => self.core.next_ready(),
            Some(room) => self.next_ready(room),
        } {
            match self.poll_connection(cx, slot) {
                Ok(Some(out)) => return Some(out),
                Ok(None) => {}
                Err(output::NoFrame) => break,
            }
        }
        self.core.next_reply()
    }

    /// What the connection in a slot that was on the ready list has to send.
    #[inline(always)]
    fn poll_connection(&mut self, cx: &mut Cx<'_>, slot: u32) -> Result<Option<IpOutput>, output::NoFrame> {
        let crowded = self.core.table.len() >= CROWDED;
        if crowded {
            if let Some(next) = self.core.ready_next() {
                self.connections.prefetch(next, PLAIN);
            }
        }
        let Some(c) = self.connections.get_slot_mut(slot) else { return Ok(None) };
        c.leave_ready_list();
        match c.next_segment(&mut self.core, cx) {
            Ok(Some(out)) => {
                // The answer will need it.
                if crowded && c.tx.is_some() {
                    self.core.table.prefetch(c.table_hash());
                }
                if self.core.flows.is_on() {
                    self.core.flows.sent(c, &out);
                }
                self.core.settle(c);
                Ok(Some(out))
            }
            Ok(None) => {
                self.core.settle_timer(c);
                Ok(None)
            }
            Err(output::NoFrame) => {
                self.core.stats.no_frame += 1;
                c.wait_for_output();
                self.core.ready_first(slot);
                Err(output::NoFrame)
            }
        }
    }

    /// Whether `poll_output` may have something.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.core.has_output() || self.waiting.any()
    }

    /// When `on_timer` wants to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let next = match (self.core.wheel.next_deadline(), self.core.time_wait.next_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let flows = self.core.flows.next_deadline().unwrap_or(NEVER);
        let more = self.core.looks_again_at().min(self.trim_at).min(flows).min(self.core.paced.next());
        if more == NEVER { next } else { Some(next.map_or(more, |next| next.min(more))) }
    }

    /// Does what time demands.
    pub fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.core.timers_ms = cx.now.as_millis();
        self.core.expire_time_wait(cx.now);
        self.core.stats.flow_records_active += self.core.flows.look(&self.connections, cx.now);
        // What frames alone held is told by nobody when they go.
        self.core.regain_blocks();
        self.perhaps_trim(cx.now);
        if self.core.looks_again_at() <= cx.now {
            self.open_windows(cx);
        }
        while let Some(id) = self.core.paced.due(cx.now) {
            let Some(c) = self.connections.get_mut(id) else { continue };
            c.pace_is_over();
            self.core.settle(c);
        }
        // Several at a time, so that their connections' memory is waited for together. What is done to one connection
        // neither ends nor replaces another.
        let mut due = [0; TIMERS_AT_ONCE];
        loop {
            let mut n = 0;
            while n < TIMERS_AT_ONCE {
                let Some(slot) = self.core.wheel.pop_due(cx.now) else { break };
                self.connections.prefetch(slot, TIMED);
                due[n] = slot;
                n += 1;
            }
            if n == 0 {
                return;
            }
            // Before anything is done to one of them, which may arm another in its place on the wheel.
            for &slot in &due[..n] {
                if let Some(c) = self.connections.get_slot_mut(slot) {
                    c.timers.fired();
                }
            }
            for &slot in &due[..n] {
                let Some(c) = self.connections.get_slot_mut(slot) else { continue };
                c.on_timer(&mut self.core, cx);
                self.finish(slot);
            }
        }
    }

    /// Takes an ICMP error about a segment of ours (RFC 5927). `false` if it is about no connection.
    pub fn icmp_error(&mut self, cx: &mut Cx<'_>, error: &IcmpError) -> bool {
        self.end_burst(cx);
        let q = &error.quoted;
        let tuple = Tuple {
            local: error.local,
            remote: error.remote,
            local_port: u16::from_be_bytes([q[0], q[1]]),
            remote_port: u16::from_be_bytes([q[2], q[3]]),
        };
        let seq = crate::wire::SeqNum(u32::from_be_bytes([q[4], q[5], q[6], q[7]]));
        let Some(slot) = self.find(&tuple) else {
            self.core.stats.icmp_ignored += 1;
            return false;
        };
        if let Some(c) = self.connections.get_slot_mut(slot) {
            c.icmp_error(&mut self.core, cx, seq, error.kind);
        }
        self.finish(slot);
        true
    }

    /// A link has become narrower: connections with longer packets than `mtu` allows towards their peers send shorter ones. This goes
    /// over all connections, which a change that a person makes to a link is worth.
    pub(crate) fn narrow(&mut self, cx: &mut Cx<'_>, mtu: impl Fn(&PathMtus, IpAddr) -> Option<u16>) {
        self.end_burst(cx);
        for slot in 0..self.connections.slots() {
            let Some(c) = self.connections.get_slot_mut(slot) else { continue };
            let Some(mtu) = mtu(cx.paths, c.remote()).filter(|mtu| *mtu < c.path.mtu()) else {
                continue;
            };
            // Room for the headers and something behind them, whatever somebody set.
            c.narrow(&mut self.core, cx.now, mtu.max(128));
            self.finish(slot);
        }
    }

    fn find(&self, tuple: &Tuple) -> Option<u32> {
        self.find_hashed(self.core.table.hash(tuple), tuple)
    }

    fn find_hashed(&self, hash: u32, tuple: &Tuple) -> Option<u32> {
        let found = self.core.table.find(hash, |found| match found {
            Found::Connection(slot) => self.connections.get_slot(slot).is_some_and(|c| c.is_of(tuple)),
            Found::TimeWait(_) => false,
        });
        match found {
            Some(Found::Connection(slot)) => Some(slot),
            _ => None,
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &TcpStats {
        &self.core.stats
    }

    /// Connections, those being closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// How many of them are in each state. TIME-WAIT records are beside them: see [`time_waits`](Self::time_waits).
    #[must_use]
    pub fn states(&self) -> StateCounts {
        self.core.states
    }

    /// Whether memory is short, so that no connection gets more than a fair share, given that it `was` so before: a shortage ends when a
    /// quarter of what was held at its beginning is free again.
    #[inline]
    #[must_use]
    pub fn is_in_shortage(&self, was: bool) -> bool {
        self.core.is_in_shortage(was)
    }

    /// Bytes that buffers, connections and records hold, and the bound for all of it.
    #[must_use]
    pub fn memory_and_bound(&self) -> (usize, usize) {
        (self.core.buffer_memory() + self.core.fixed_memory(), self.core.config.max_memory)
    }

    /// TIME-WAIT records.
    #[must_use]
    pub fn time_waits(&self) -> usize {
        self.core.time_wait.len()
    }

    /// How many connections there are, and how many four-tuples wait in TIME-WAIT.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.connections(), self.time_waits())
    }

    /// Pairs of our address and a peer's of which a Fast Open cookie or segment size is remembered.
    #[must_use]
    pub fn fast_open_peers(&self) -> usize {
        self.core.fast_peers.len()
    }

    /// Whether an attempt to connect from this address of ours to this peer could carry data now.
    #[must_use]
    pub fn fast_open_ready(&self, now: Time, local: IpAddr, remote: IpAddr, how: FastOpen) -> bool {
        self.core.fast_open_ready(now, Path { local, remote }, how)
    }

    /// Forgets all that is known of peers for Fast Open.
    pub fn forget_fast_open_peers(&mut self) {
        self.core.fast_peers.clear();
    }

    /// Bytes of all send and receive buffers, and of what keeps them in order.
    #[must_use]
    pub fn buffer_memory(&self) -> usize {
        self.core.buffer_memory()
    }

    /// Bytes of connections and TIME-WAIT records, beside their buffers.
    #[must_use]
    pub fn fixed_memory(&self) -> usize {
        self.core.fixed_memory()
    }

    /// Every connection; for showing, not for packets.
    pub fn list(&self) -> impl Iterator<Item = (ConnId, TcpInfo)> + '_ {
        self.connections.iter().map(|c| (c.id(), c.info(self.core.timeouts)))
    }
}

#[cfg(test)]
impl Tcp {
    fn close_listener_for_test(&mut self) {
        self.core.listeners = lane::listeners::Listeners::new(1);
    }

    fn table_memory_for_test(&self) -> usize {
        self.core.table.allocated()
    }

    /// Bytes of send and receive buffers alone.
    fn buffers_for_test(&self) -> usize {
        let boxes = |c: &Connection| {
            let rx = c.rx.get().map_or(0, |rx| rx.memory() - rx.holds().frames - rx.copied_memory());
            rx + c.tx.get().map_or(0, connection::flight::Flight::memory)
        };
        self.core.buffer_memory() - self.connections.iter().map(boxes).sum::<usize>()
    }

    /// The number of connections in each state, counted one by one.
    fn counted_states_for_test(&self) -> StateCounts {
        let mut counts = StateCounts::default();
        self.connections.iter().for_each(|c| counts.begun(c.state()));
        counts
    }

    fn paced_for_test(&self) -> usize {
        self.core.paced.len()
    }

    fn starved_for_test(&self) -> usize {
        self.core.starved()
    }

    /// No connection holds a box.
    fn all_idle_for_test(&self) -> bool {
        self.connections.iter().all(|c| c.tx.is_none() && c.rx.is_none() && !c.has_rare())
    }
}
