//! What all connections of a lane share: [`Core`], put together from pieces with fields of their own. Steps take it beside their
//! connection.

mod budget;
mod early;
pub(crate) mod flow_records;
pub(crate) mod half_open;
pub(crate) mod listeners;
pub(crate) mod memory;
pub(crate) mod paced;
pub(crate) mod peers;
pub(crate) mod replies;
pub(crate) mod scarce_ports;
pub(crate) mod time_wait;
pub(crate) mod waits;

use crate::packet::IpOutput;
use crate::rng::Keyed;
use crate::stats::Histogram;
use crate::stats::tcp::TcpStats;
use crate::tcp::Seq;
use crate::tcp::config::{FastOpenKeys, TcpConfig};
use crate::tcp::connection::deadlines::NEVER;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::flight::Flight;
use crate::tcp::connection::recv_buffer::{Holds, Inflow};
use crate::tcp::connection::rtt::Timeouts;
use crate::tcp::connection::send_buffer::Blocks;
use crate::tcp::connection::{Connection, Flags, Lists, State, StateCounts};
use crate::tcp::lane::budget::ChallengeBudget;
use crate::tcp::lane::flow_records::{FlowEnd, FlowWatch};
use crate::tcp::lane::half_open::HalfOpen;
use crate::tcp::lane::listeners::Listeners;
use crate::tcp::lane::memory::{Levels, Spare};
use crate::tcp::lane::paced::Paced;
use crate::tcp::lane::peers::Peers;
use crate::tcp::lane::scarce_ports::ScarcePorts;
use crate::tcp::lane::time_wait::TimeWaits;
use crate::tcp::table::{ConnId, Tuple};
use crate::tcp::tuple_table::{Found, TupleTable};
use crate::time::Time;
use crate::timer::Wheel;
use std::collections::VecDeque;

/// The lane's state beside its connections.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: TcpConfig,
    pub(crate) stats: TcpStats,
    pub(crate) keyed: Keyed,
    pub(crate) table: TupleTable,
    pub(crate) listeners: Listeners,
    pub(crate) time_wait: TimeWaits,
    pub(crate) wheel: Wheel<u32>,
    /// When timers last fired, milliseconds.
    pub(crate) timers_ms: u64,
    /// Connections that are paced, for which a tick of the wheel is too long.
    pub(crate) paced: Paced,
    /// Slots of connections that may have something to send, in turn.
    ready: VecDeque<u32>,
    /// Segments that belong to no connection.
    replies: VecDeque<IpOutput>,
    /// Bytes of all buffers, and of the boxes and lists that keep them in order.
    memory: usize,
    /// Bytes of connections and TIME-WAIT records themselves.
    fixed: usize,
    /// How far `memory` may go.
    levels: Levels,
    /// Those of the configuration.
    pub(crate) timeouts: Timeouts,
    /// Connections, those being closed included.
    connections: usize,
    /// The most memory of late: see `trim`.
    peak: usize,
    /// What it was when `trim` last looked.
    looked: usize,
    /// Bytes of frames in which received data waits.
    held: usize,
    pub(crate) challenge: ChallengeBudget,
    /// Of resets to strangers.
    pub(crate) resets: ChallengeBudget,
    #[allow(clippy::vec_box, reason = "the boxes themselves are what is handed out and taken back")]
    flights: Vec<Box<Flight>>,
    /// Memory of send buffers that none has now.
    blocks: Blocks,
    #[allow(clippy::vec_box, reason = "as above")]
    inflows: Vec<Box<Inflow>>,
    established: usize,
    /// Connections by state.
    pub(crate) states: StateCounts,
    /// No new connections are taken.
    ending: bool,
    /// Connections whose writers wait for memory, in turn.
    starved: VecDeque<ConnId>,
    /// Connections whose windows could not be opened for lack of memory, and when to look again.
    narrowed: VecDeque<ConnId>,
    narrowed_at: Time,
    /// What is taken when there is no memory left.
    spare: Spare,
    /// Destinations that have hardly a local port left.
    pub(crate) scarce_ports: ScarcePorts,
    /// SYNs without connections are sent, and answers to them kept.
    half_open: Option<Box<HalfOpen>>,
    /// Of cookies, if neither the listener nor the configuration has any.
    pub(crate) fast_open_keys: FastOpenKeys,
    pub(crate) fast_peers: Peers,
    /// Records of ended flows, if enabled.
    pub(crate) flows: FlowWatch,
    /// Samples of round-trip times of all connections.
    pub(crate) rtts: Histogram,
}

/// Spare boxes a lane keeps.
const SPARES: usize = 256;

/// Connections from which on it pays: fewer stay in the caches by themselves.
pub(crate) const CROWDED: usize = 4096;

/// Domains of the keyed hash.
const TAG_CONNECTION: u64 = 1;

impl Core {
    pub(crate) fn new(config: TcpConfig, secret: [u64; 3]) -> Self {
        let keyed = Keyed::new(secret[0], secret[1]);
        let mut key = [0; 16];
        for (n, half) in key.chunks_exact_mut(8).enumerate() {
            half.copy_from_slice(&keyed.hash(&[b'F', n as u8]).to_le_bytes());
        }
        let mut core = Self {
            stats: TcpStats::default(),
            keyed,
            fast_open_keys: FastOpenKeys::new(key),
            fast_peers: Peers::new(secret[2].rotate_left(16)),
            table: TupleTable::new(secret[2]),
            listeners: Listeners::new(secret[2].rotate_left(32)),
            time_wait: TimeWaits::new(),
            wheel: Wheel::new(Time::ZERO),
            timers_ms: 0,
            paced: Paced::default(),
            ready: VecDeque::new(),
            replies: VecDeque::new(),
            memory: 0,
            fixed: 0,
            levels: Levels::default(),
            timeouts: Timeouts::of(&config),
            connections: 0,
            peak: 0,
            looked: 0,
            held: 0,
            challenge: ChallengeBudget::default(),
            resets: ChallengeBudget::default(),
            flights: Vec::new(),
            blocks: Blocks::default(),
            inflows: Vec::new(),
            established: 0,
            states: StateCounts::default(),
            ending: false,
            starved: VecDeque::new(),
            narrowed: VecDeque::new(),
            narrowed_at: NEVER,
            spare: Spare::default(),
            scarce_ports: ScarcePorts::default(),
            half_open: None,
            flows: FlowWatch::default(),
            rtts: Histogram::default(),
            config,
        };
        core.set_levels();
        core
    }

    /// The secrets of a four-tuple: for its initial sequence number and for its timestamp clock (RFC 7323 §5.4, §7.1: each
    /// pair of addresses and ports sees another clock).
    pub(crate) fn secrets(&self, tuple: &Tuple) -> Secrets {
        let hash = tuple.keyed(&self.keyed, TAG_CONNECTION, 1);
        Secrets { isn: hash as u32, ts_offset: (hash >> 32) as u32 }
    }

    pub(crate) fn flight(&mut self) -> Box<Flight> {
        let mut flight: Box<Flight> = self.flights.pop().unwrap_or_default();
        self.memory += flight.count();
        flight
    }

    pub(crate) fn inflow(&mut self) -> Box<Inflow> {
        let inflow: Box<Inflow> = self.inflows.pop().unwrap_or_default();
        self.memory += inflow.memory();
        inflow
    }

    /// Takes a connection's send side back.
    pub(crate) fn give_flight(&mut self, mut flight: Box<Flight>) {
        // Whoever waits to write has nothing to wait for any more.
        if let Some(waker) = flight.take_writer() {
            waker.wake();
        }
        self.memory -= flight.memory();
        self.memory -= flight.reset(&mut self.blocks);
        if self.flights.len() < SPARES {
            self.flights.push(flight);
        }
    }

    /// A receive side held this before, and holds that now.
    #[inline]
    pub(crate) fn account(&mut self, before: Holds, now: Holds) {
        self.memory = self.memory + now.memory - before.memory;
        self.held = self.held + now.frames - before.frames;
    }

    /// Takes a connection's receive side back.
    pub(crate) fn give_inflow(&mut self, mut inflow: Box<Inflow>) {
        self.account(inflow.holds(), Holds::default());
        self.give_spare(&mut inflow);
        inflow.reset();
        if self.inflows.len() < SPARES {
            self.inflows.push(inflow);
        }
    }

    /// A connection is established.
    pub(crate) fn count_established(&mut self) {
        self.established += 1;
        self.stats.established += 1;
    }

    /// No new connections are taken from now on.
    pub(crate) fn take_no_more(&mut self) {
        self.ending = true;
    }

    /// Whether new connections are taken.
    #[inline]
    pub(crate) fn takes_connections(&self) -> bool {
        !self.ending
    }

    /// Answers to SYNs without connections are kept from now on.
    pub(crate) fn keep_syn_answers(&mut self, half_open: HalfOpen) {
        self.half_open = Some(Box::new(half_open));
    }

    /// What keeps answers to SYNs without connections, if they are kept.
    #[inline]
    pub(crate) fn half_open(&mut self) -> Option<&mut HalfOpen> {
        self.half_open.as_deref_mut()
    }

    /// Takes the slot of the next connection off the ready list.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// The slot that is taken off the ready list next.
    #[inline]
    pub(crate) fn ready_next(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// Puts a slot in front of the ready list.
    pub(crate) fn ready_first(&mut self, slot: u32) {
        self.ready.push_front(slot);
    }

    /// Whether a connection is on the ready list, or a segment of none waits.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// Puts a connection on the ready list.
    #[inline]
    pub(crate) fn queue(&mut self, c: &mut Connection) {
        if !c.has(Flags::QUEUED) {
            self.queue_anew(c);
        }
    }

    #[inline(never)]
    fn queue_anew(&mut self, c: &mut Connection) {
        c.wait_for_output();
        self.ready.push_back(c.id().slot);
    }

    /// Brings the wheel and the ready list up to date after anything happened to a connection.
    // Mostly there is nothing to do, which is found out where it is called.
    #[inline(always)]
    pub(crate) fn settle(&mut self, c: &mut Connection) {
        self.settle_timer(c);
        if c.wants_output() {
            self.queue(c);
        }
    }

    /// As [`Core::settle`], for a connection that may be over; its name if there is nothing left to keep it for.
    #[inline]
    pub(crate) fn settled(&mut self, c: &mut Connection) -> Option<ConnId> {
        let over = match c.state() {
            State::Closed => {
                // Nobody holds a handle of a connection that was never accepted or connected.
                let embryo = !c.has(Flags::ACTIVE | Flags::IN_ACCEPT_QUEUE)
                    && !c.is_in(Lists::ESTABLISHED)
                    && !c.fast.has(Marks::EARLY);
                c.has(Flags::DETACHED) || embryo
            }
            State::TimeWait => c.has(Flags::DETACHED),
            _ => {
                self.settle(c);
                return None;
            }
        };
        over.then_some(c.id())
    }

    /// Brings the wheel up to date, and the count of memory.
    #[inline(always)]
    pub(crate) fn settle_timer(&mut self, c: &mut Connection) {
        let (undo, crowded) = (c.undo_until(), self.established >= CROWDED);
        c.timers.settle((&mut self.wheel, self.timers_ms), c.id().slot, undo, crowded);
        // Guard: no `self.count_rare(c);` fails memory::what_is_rare_counts
        self.count_rare(c);
    }

    /// Gives back all of a connection that costs memory, except what is still to be read. It is in the table no longer.
    pub(crate) fn unlink(&mut self, c: &mut Connection) {
        debug_assert!(!c.is_in(Lists::LINKED), "it was ended before");
        c.timers.disarm(&mut self.wheel);
        if c.has(Flags::IN_SYN_BACKLOG) {
            c.set_in_syn_backlog(false);
            self.listeners.syn_done(c);
        }
        self.listeners.fast_open_over(c);
        self.drop_model(c);
        c.fast_open_is_sent();
        self.count_rare(c);
        if let Some(flight) = c.tx.take() {
            self.give_flight(flight);
        }
        if c.has(Flags::DETACHED) || c.readable() == 0 {
            if let Some(inflow) = c.rx.take() {
                self.give_inflow(inflow);
            }
        }
    }

    /// A connection is in the table no longer: its flow has ended.
    pub(crate) fn unlinked(&mut self, c: &mut Connection, now: Time, end: FlowEnd) {
        c.set_linked(false);
        if self.flows.is_on() {
            let kept = self.flows.end(c, now, end);
            self.stats.flow_records += 1;
            // Guard: `u64::from(!kept)` as `0` fails flow_records::what_nobody_takes
            self.stats.flow_records_lost += u64::from(!kept);
        }
        if self.scarce_ports.any() {
            self.scarce_ports.given_up(&c.tuple());
        }
        self.stats.closed += 1;
        if c.is_in(Lists::ESTABLISHED) {
            self.established -= 1;
        }
    }

    /// Ends a connection. The application, if there is one, keeps a closed handle.
    pub(crate) fn kill(
        &mut self,
        c: &mut Connection,
        now: Time,
        end: FlowEnd,
        failure: Option<super::Failure>,
    ) {
        if c.is_in(Lists::LINKED) {
            self.table.remove(c.table_hash(), Found::Connection(c.id().slot));
            self.unlinked(c, now, end);
        }
        c.fail_with(failure);
        c.enter(&mut self.states, State::Closed);
        self.unlink(c);
        c.wake_all();
    }
}

/// What only this lane knows of a four-tuple.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secrets {
    isn: u32,
    pub(crate) ts_offset: u32,
}

impl Secrets {
    /// RFC 9293 §3.4.1, MUST-8, and RFC 6528 §3: `ISN = M + F(localip, localport, remoteip, remoteport, secretkey)`, M a
    /// timer of 4 microseconds.
    pub(crate) fn isn(self, now: Time) -> Seq {
        // Guard: `(now.as_micros() / 4) as u32` as `0` fails guards::initial_numbers_follow_the_clock
        Seq(self.isn.wrapping_add((now.as_micros() / 4) as u32))
    }
}
