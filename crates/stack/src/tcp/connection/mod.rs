//! One connection: RFC 9293's Transmission Control Block.
//!
//! It is put together from pieces (`SendSpace`, `RecvSpace`, `AckPolicy`, `Deadlines`, ...), each of which owns its fields and knows
//! nothing of the connection or the lane. Only `flags`, `identity`, `rare`, `state` and what `fast_open` says of the state are
//! methods of the connection itself. Everything that takes the lane, too, is a step and stands outside of this directory.
//!
//! Fields are in three groups by use. Those that every segment needs come first and are small. Those that only a connection with data in
//! flight needs (`Flight`, `Inflow`) are boxed and returned to the lane when it is idle. Those that few connections need (`SocketOptions`
//! other than the listener's defaults) are boxed too. So an idle connection takes four cache lines.

use crate::tcp::Seq;
use crate::tcp::config::{Keepalive, SocketOptions};
use crate::tcp::connection::ack_policy::AckPolicy;
use crate::tcp::connection::congestion::Congestion;
use crate::tcp::connection::deadlines::Deadlines;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::flight::Flight;
use crate::tcp::connection::invalid_answers::InvalidAnswers;
use crate::tcp::connection::lent::Lent;
use crate::tcp::connection::rare::Rare;
use crate::tcp::connection::recovery::Phase;
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::rtt::Rtt;
use crate::tcp::connection::sequence::{RecvSpace, SendSpace, Stamps, WindowScale};
use crate::tcp::connection::sizes::{KnownPath, SegmentSizes};
use crate::tcp::error::Failure;
use crate::tcp::table::{Addresses, ConnId, Named, Tuple};
use core::task::Waker;
use core::time::Duration;

pub(crate) mod accecn;
pub(crate) mod ack_policy;
pub(crate) mod congestion;
pub(crate) mod deadlines;
pub(crate) mod departures;
pub(crate) mod fast_open;
mod flags;
pub(crate) mod flight;
mod identity;
pub(crate) mod invalid_answers;
mod lent;
pub(crate) mod rare;
mod reassembly_queue;
pub(crate) mod recovery;
pub(crate) mod recv_buffer;
pub(crate) mod rtt;
pub(crate) mod scoreboard;
pub(crate) mod send_buffer;
pub(crate) mod sequence;
pub(crate) mod sizes;
mod spill;
mod state;
mod writes;

pub(crate) use flags::{Flags, Lists};
pub use state::{State, StateCounts};

use crate::time::Time;

/// RFC 9293 §3.3.1.
///
/// In the order of use: among very many connections each cache line of one is waited for. Requests and answers, their timers
/// and acknowledgements touch [`PLAIN`] bytes from the front and nothing behind them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Connection {
    addresses: Addresses,
    local_port: u16,
    remote_port: u16,
    state: State,
    lists: Lists,
    failure: Option<Failure>,
    /// An ICMP error that may be the reason if the connection times out.
    soft_failure: Option<Failure>,
    tos: u8,
    hash_type: u8,
    pub(crate) scale: WindowScale,
    pub(crate) fast: Marks,
    flags: Flags,
    id: ConnId,
    // With what is above, all that a timer which fires for nothing looks at: two cache lines.
    pub(crate) timers: Deadlines,
    pub(crate) acks: AckPolicy,
    pub(crate) mss: SegmentSizes,
    pub(crate) tx: Lent<Flight>,
    pub(crate) rx: Lent<Inflow>,
    /// When something last came in.
    heard_at: Time,

    read_waker: Option<Waker>,
    pub(crate) rcv: RecvSpace,
    pub(crate) snd: SendSpace,
    pub(crate) stamps: Stamps,
    /// Flow hash of received packets of this flow.
    hash: u32,
    /// Key in the connection table.
    table_hash: u32,
    pub(crate) congestion: Congestion,
    pub(crate) rtt: Rtt,
    /// See `rare.rs`.
    rare: Option<Box<Rare>>,
    pub(crate) path: KnownPath,
    pub(crate) invalid: InvalidAnswers,
    /// The listener it came from.
    listener: u32,
    retransmits: u32,
}

/// Bytes at the front of a connection that plain exchanges touch: all, four cache lines.
pub(crate) const PLAIN: usize = size_of::<Connection>();
/// Bytes at the front that a timer touches which fires for nothing: two.
pub(crate) const TIMED: usize = 128;
const _: () = assert!(PLAIN == 256, "four cache lines");
const _: () = assert!(core::mem::offset_of!(Connection, rx) + size_of::<usize>() <= TIMED);

impl Named for Connection {
    #[inline]
    fn id(&self) -> ConnId {
        self.id
    }
}

/// Keep-alive does not probe more often than this: without any pause its timer would be due again at once, for ever.
const SHORTEST_SILENCE: Duration = Duration::from_millis(10);

/// What a new connection is put together from.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) timers: Deadlines,
    pub(crate) acks: AckPolicy,
    pub(crate) rcv: RecvSpace,
    pub(crate) snd: SendSpace,
    pub(crate) stamps: Stamps,
    pub(crate) scale: WindowScale,
    pub(crate) mss: SegmentSizes,
    pub(crate) path: KnownPath,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) tx: Box<Flight>,
}

impl Connection {
    /// A connection in its first state, which will stand in the table.
    #[inline(always)]
    pub(super) fn new(
        id: ConnId,
        tuple: Tuple,
        table_hash: u32,
        state: State,
        flags: Flags,
        pieces: Pieces,
    ) -> Self {
        let Pieces { timers, acks, rcv, snd, stamps, scale, mss, path, rtt, congestion, tx } = pieces;
        Self {
            addresses: Addresses::of(&tuple),
            local_port: tuple.local_port,
            remote_port: tuple.remote_port,
            state,
            lists: Lists::LINKED,
            failure: None,
            tos: 0,
            hash_type: 0,
            scale,
            id,
            flags,
            timers,
            acks,
            tx: Lent::of(tx),
            rx: Lent::none(),
            heard_at: Time::ZERO,
            read_waker: None,
            rcv,
            snd,
            stamps,
            hash: 0,
            table_hash,
            mss,
            rtt,
            congestion,
            rare: None,
            invalid: InvalidAnswers::default(),
            listener: u32::MAX,
            retransmits: 0,
            path,
            fast: Marks::default(),
            soft_failure: None,
        }
    }

    /// Sequence number of the first byte in the send buffer.
    #[inline]
    pub(crate) fn data_seq(&self) -> Seq {
        self.snd.una() + u32::from(self.has(Flags::SYN_OUT))
    }

    /// Bytes in the send buffer.
    #[inline]
    pub(crate) fn buffered(&self) -> u32 {
        self.tx.get().map_or(0, |tx| tx.data.len() as u32)
    }

    /// Bytes in the send buffer that were never sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        if self.has(Flags::FIN_SENT) {
            return 0;
        }
        (self.data_seq() + self.buffered()).since(self.snd.nxt().max(self.data_seq()))
    }

    /// Whether output may have something to send. True too often is harmless.
    #[inline]
    pub(crate) fn wants_output(&self) -> bool {
        if self.has(Flags::ACK_NOW | Flags::PROBE_WINDOW | Flags::PROBE_ALIVE | Flags::PROBE_TAIL)
            || self.is_in(Lists::OWES)
        {
            return true;
        }
        let Some(tx) = self.tx.get() else {
            return self.has(Flags::FIN_QUEUED)
                && !self.has(Flags::FIN_SENT)
                && self.state().is_synchronized();
        };
        let open = self.state().is_synchronized() || self.is_early();
        tx.board.lost() > tx.board.retrans()
            || tx.board.is_empty() && matches!(self.state(), State::SynSent | State::SynReceived)
            || open && (self.unsent() > 0 || self.has(Flags::FIN_QUEUED) && !self.has(Flags::FIN_SENT))
    }

    /// Since when the oldest byte waits for an acknowledgement, or the window is closed.
    #[inline]
    pub(crate) fn waits_since(&self) -> Option<Time> {
        self.tx.get().and_then(Flight::waits_since)
    }

    /// State of loss recovery.
    pub(crate) fn phase(&self) -> Phase {
        self.tx.get().map_or(Phase::Open, |tx| tx.recovery.phase())
    }

    /// Bytes waiting for the application.
    #[inline]
    pub(crate) fn readable(&self) -> u32 {
        self.rx.get().map_or(0, Inflow::queued)
    }

    /// Bytes of data in a full segment with the options every data segment has (RFC 6691).
    #[inline]
    pub(crate) fn effective_mss(&self) -> u32 {
        u32::from(self.mss.snd()) - if self.has(Flags::TIMESTAMPS) { 12 } else { 0 }
    }

    pub(crate) fn keepalive(&self) -> Keepalive {
        let told = self.options().and_then(|o| o.keepalive).unwrap_or_default();
        let at_least = |time: Duration| time.max(SHORTEST_SILENCE);
        Keepalive { idle: at_least(told.idle), interval: at_least(told.interval), ..told }
    }

    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        self.options().and_then(|o| o.user_timeout)
    }

    /// Takes over what a socket was told.
    pub(crate) fn apply(&mut self, options: &SocketOptions) {
        self.put(Flags::NODELAY, options.nodelay);
        self.put(Flags::CORK, options.cork);
        self.put(Flags::KEEPALIVE, options.keepalive.is_some());
        self.tos = options.tos & !3;
        if let Some(bytes) = options.recv_buffer {
            self.rcv.set_limit(bytes.clamp(2048, 1 << 30));
        }
        if let Some(bytes) = options.send_buffer {
            self.snd.set_limit(bytes.clamp(2048, 1 << 30));
        }
        // What was asked for before may have become another, which stays.
        let before = self.options().and_then(|options| options.congestion);
        if let Some(algorithm) = options.congestion.filter(|_| options.congestion != before) {
            if algorithm != self.congestion.algorithm() {
                self.congestion.set_algorithm(algorithm);
            }
        }
        let plain = SocketOptions {
            nodelay: options.nodelay,
            cork: options.cork,
            tos: options.tos,
            ..Default::default()
        };
        self.keep_options((*options != plain).then_some(*options));
    }

    /// Wakes the task that waits to read.
    #[inline]
    pub(crate) fn wake_read(&mut self) {
        if let Some(waker) = self.read_waker.take() {
            waker.wake();
        }
    }

    /// Whether a task may wait to write. True too often is harmless.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.tx.get().is_some_and(Flight::has_writer) || self.is_in(Lists::RARE)
    }

    /// Wakes the task that waits to write or for the handshake.
    #[inline]
    pub(crate) fn wake_write(&mut self) {
        if let Some(waker) = self.tx.get_mut().and_then(Flight::take_writer) {
            waker.wake();
        }
        if let Some(waker) = self.rare_if_any().and_then(Rare::take_writer) {
            waker.wake();
        }
    }

    /// Where the waker stands of who waits to write or for the handshake.
    pub(crate) fn write_waker_mut(&mut self) -> &mut Option<Waker> {
        if self.tx.is_none() {
            return self.rare_mut().writer_mut();
        }
        self.tx.get_mut().expect("there is one").writer_mut()
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&mut self) {
        self.wake_read();
        self.wake_write();
        let Some(rare) = self.rare_if_any() else { return };
        for waker in rare.take_watchers().into_iter().flatten() {
            waker.wake();
        }
    }
}
