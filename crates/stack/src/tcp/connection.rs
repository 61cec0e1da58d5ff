//! One connection: RFC 9293's Transmission Control Block.
//!
//! The fields are in three groups by temperature. What every segment touches comes first and is small. What only a
//! connection with data on its way needs (`Flight`, `Inflow`) is boxed and handed back to the lane when it is idle, and
//! what few connections ever need (`SocketOptions` other than the listener's defaults) is boxed too. So an idle
//! connection costs less than half a kilobyte.

use core::task::Waker;
use core::time::Duration;

use super::config::{Keepalive, SocketOptions};
use super::congestion::Congestion;
use super::fast_open::Marks;
use super::flight::{Flight, Reordering};
use super::lane::Timer;
use super::recv_buffer::Inflow;
use super::rtt::Rtt;
use super::table::{ConnId, Named, Tuple};
use super::undo::Undo;
use super::{Failure, Seq};
use crate::time::Time;
use crate::wire::FastOpenOption;

/// The states of RFC 9293 §3.3.2. LISTEN is a listener's, not a connection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Over, but the application still holds it.
    Closed,
    /// Our SYN is out.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data both ways.
    Established,
    /// We have closed, the peer has not even acknowledged that.
    FinWait1,
    /// We have closed and the peer knows.
    FinWait2,
    /// The peer has closed.
    CloseWait,
    /// Both closed at once.
    Closing,
    /// Both closed, our FIN not yet acknowledged.
    LastAck,
    /// Over; old duplicates may still be around.
    TimeWait,
}

impl State {
    /// Both sides know each other's sequence numbers.
    #[inline]
    pub(crate) const fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// The application may still send.
    #[inline]
    pub(crate) const fn may_send(self) -> bool {
        matches!(self, State::SynSent | State::SynReceived | State::Established | State::CloseWait)
    }

    /// The peer may still send.
    #[inline]
    pub(crate) const fn may_receive(self) -> bool {
        matches!(
            self,
            State::SynSent | State::SynReceived | State::Established | State::FinWait1 | State::FinWait2
        )
    }
}

/// Bits of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u32);

macro_rules! flags {
    ($($(#[doc = $doc:literal])+ $name:ident = $bit:literal,)+) => {
        impl Flags {
            $($(#[doc = $doc])+ pub(crate) const $name: Flags = Flags(1 << $bit);)+
        }
    };
}

flags! {
    /// On the ready list.
    QUEUED = 0,
    /// An acknowledgement must go out.
    ACK_NOW = 1,
    /// An acknowledgement may wait for the timer.
    ACK_DELAYED = 2,
    /// Nagle is off.
    NODELAY = 3,
    /// Only full segments.
    CORK = 4,
    /// The last write said that more is coming.
    MORE = 5,
    /// Our FIN is wanted.
    FIN_QUEUED = 6,
    /// Our FIN has been sent.
    FIN_SENT = 7,
    /// The peer's FIN has been received.
    FIN_RECEIVED = 8,
    /// Timestamps are on.
    TIMESTAMPS = 9,
    /// SACK is on.
    SACK = 10,
    /// ECN is on.
    ECN = 11,
    /// We saw CE and echo it until the peer has reacted.
    ECE = 12,
    /// Our next data segment says that the window was reduced.
    CWR = 13,
    /// The application has given up its handle.
    DETACHED = 14,
    /// In a listener's SYN backlog.
    IN_SYN_BACKLOG = 15,
    /// The application will not read any more.
    READ_SHUT = 16,
    /// The last look at the output was stopped by the congestion window.
    CWND_LIMITED = 17,
    /// A window probe is due.
    PROBE_WINDOW = 18,
    /// A keep-alive probe is due.
    PROBE_ALIVE = 19,
    /// A tail loss probe is due.
    PROBE_TAIL = 20,
    /// Send what there is, whatever Nagle says.
    FORCE = 21,
    /// Opened by us.
    ACTIVE = 22,
    /// A SYN was sent again.
    SYN_LOST = 23,
    /// The peer and we talk back and forth: acknowledgements wait for data.
    INTERACTIVE = 24,
    /// Keep-alive is on.
    KEEPALIVE = 25,
    /// An acknowledgement that the timer released.
    ACK_WAS_DELAYED = 26,
    /// The segment size was lowered for the path.
    MSS_LOWERED = 27,
    /// SYN or SYN-ACK not yet acknowledged: a sequence number before the first byte is outstanding.
    SYN_OUT = 28,
    /// The peer scales windows.
    SCALING = 29,
    /// In a listener's accept queue.
    IN_ACCEPT_QUEUE = 30,
    /// Our SYN offered ECN and is not to be retried without it.
    ECN_OFFERED = 31,
}

/// In which of the lane's lists and counts a connection is, and whether anything of it stands aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lists(u8);

impl Lists {
    /// In the connection table.
    pub(crate) const LINKED: Lists = Lists(1);
    /// Counted as established.
    pub(crate) const ESTABLISHED: Lists = Lists(2);
    /// The last write found no memory in the lane.
    pub(crate) const STARVED: Lists = Lists(4);
    /// In the lane's list of those.
    pub(crate) const IN_STARVED: Lists = Lists(8);
    /// In the lane's list of those whose window is looked at again.
    pub(crate) const IN_NARROWED: Lists = Lists(16);
    /// There is something in [`Connection::rare`].
    const RARE: Lists = Lists(32);
    /// The acknowledgement that is due answers one segment alone (see `answers`).
    pub(crate) const ALONE: Lists = Lists(64);
    /// There are such acknowledgements before it.
    pub(crate) const OWES: Lists = Lists(128);
    /// Either.
    pub(crate) const ANSWERS: Lists = Lists(64 | 128);
}

impl core::ops::BitOr for Lists {
    type Output = Lists;
    fn bitor(self, other: Lists) -> Lists {
        Lists(self.0 | other.0)
    }
}

impl core::ops::BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// What the retransmission timer is running for; one at a time (RFC 8985 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RtxTimer {
    /// Retransmission timeout.
    Rto,
    /// Probe timeout of TLP.
    Tlp,
    /// RACK's reordering timer.
    Reorder,
    /// Zero-window probe.
    Persist,
    /// Corked data has waited long enough.
    Cork,
}

/// RFC 9293 §3.3.1.
///
/// In the order of use: among very many connections each cache line of one is waited for. Requests and answers, their timers
/// and acknowledgements touch [`PLAIN`] bytes from the front and nothing behind them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Connection {
    pub(crate) tuple: Tuple,
    pub(crate) state: State,
    pub(crate) rtx_kind: RtxTimer,
    pub(crate) id: ConnId,
    pub(crate) flags: Flags,
    pub(crate) lists: Lists,
    pub(crate) failure: Option<Failure>,
    /// Retransmission timeouts in a row.
    pub(crate) backoff: u8,
    /// Keep-alive probes unanswered.
    pub(crate) probes: u8,

    // With what is above, all that a timer which fires for nothing looks at: two cache lines.
    pub(crate) rtx_at: Time,
    pub(crate) ack_at: Time,
    /// Keep-alive, FIN-WAIT-2 or linger: whatever ends a silent connection.
    pub(crate) life_at: Time,
    /// When the wheel will look at this connection; later deadlines need no change to the wheel.
    pub(crate) armed_at: Time,
    pub(crate) timer: Timer,
    pub(crate) tx: Option<Box<Flight>>,
    pub(crate) rx: Option<Box<Inflow>>,

    /// When something last came in.
    pub(crate) heard_at: Time,
    pub(crate) read_waker: Option<Waker>,

    // Receive sequence space (RFC 9293 §3.3.1, figure 4).
    /// RCV.NXT.
    pub(crate) rcv_nxt: Seq,
    /// RCV.NXT + RCV.WND as last advertised; never goes back.
    pub(crate) rcv_adv: Seq,
    /// ACK field of the last segment sent (RFC 7323 §4.3, Last.ACK.sent).
    pub(crate) last_ack_sent: Seq,

    // Send sequence space (figure 3).
    /// SND.UNA.
    pub(crate) snd_una: Seq,
    /// SND.NXT.
    pub(crate) snd_nxt: Seq,
    /// SND.WND.
    pub(crate) snd_wnd: u32,
    /// SND.WL1.
    pub(crate) snd_wl1: Seq,
    /// SND.WL2.
    pub(crate) snd_wl2: Seq,
    /// MAX.SND.WND (RFC 5961 §5).
    pub(crate) max_snd_wnd: u32,
    /// End of the last small segment sent (Minshall's form of Nagle).
    pub(crate) snd_sml: Seq,
    /// End of the last write.
    pub(crate) push_seq: Seq,

    /// TS.Recent.
    pub(crate) ts_recent: u32,
    /// Added to the millisecond clock for our timestamps.
    pub(crate) ts_offset: u32,

    pub(crate) snd_scale: u8,
    pub(crate) rcv_scale: u8,
    /// Acknowledgements that may still go out at once (slow start of the peer).
    pub(crate) quick_acks: u8,
    /// Data has come since data was last sent.
    pub(crate) unanswered: bool,
    pub(crate) tos: u8,
    pub(crate) hash_type: u8,

    /// Largest segment the peer takes and the path carries, TCP options included in neither (RFC 6691).
    pub(crate) snd_mss: u16,
    /// Largest segment seen from the peer.
    pub(crate) seen_mss: u16,
    /// What we told the peer.
    pub(crate) rcv_mss: u16,

    /// Flow hash of received packets of this flow.
    pub(crate) hash: u32,

    /// Sockets' buffer limits now.
    pub(crate) recv_limit: u32,
    pub(crate) send_limit: u32,
    /// When data was last sent (RFC 5681 §4.1), milliseconds.
    pub(crate) sent_ms: u32,
    /// Bytes read by the application since `recv_round_us`, which tunes the receive buffer.
    pub(crate) recv_copied: u32,
    /// The low bits of microseconds.
    pub(crate) recv_round_us: u32,
    /// Key in the connection table.
    pub(crate) table_hash: u32,

    pub(crate) rtt: Rtt,
    /// The window and the threshold, which plain exchanges only look at, come first in it.
    pub(crate) congestion: Congestion,

    // Few segments touch what follows.
    /// See [`Connection::rare`] and [`Connection::rare_mut`].
    pub(super) rare: Option<Box<Rare>>,
    pub(crate) reordering: Reordering,
    /// When an unacceptable segment was last answered, milliseconds.
    pub(crate) invalid_ack_ms: u32,
    /// The listener it came from.
    pub(crate) listener: u32,
    pub(crate) retransmits: u32,
    /// `snd_mss` as agreed in the handshake.
    pub(crate) base_mss: u16,
    /// Path MTU as known.
    pub(crate) pmtu: u16,
    pub(crate) fast: Marks,
    /// An ICMP error that may be the reason if the connection times out.
    pub(crate) soft_failure: Option<Failure>,
}

/// Bytes at the front of a connection that plain exchanges touch: four cache lines.
pub(crate) const PLAIN: usize = 256;
/// Bytes at the front that a timer touches which fires for nothing: two.
pub(crate) const TIMED: usize = 128;
const _: () = assert!(
    core::mem::offset_of!(Connection, congestion) + Congestion::WINDOW_LEN == PLAIN,
    "what plain exchanges touch fills four cache lines"
);
const _: () = assert!(core::mem::offset_of!(Connection, rx) + size_of::<usize>() <= TIMED);

impl Named for Connection {
    #[inline]
    fn id(&self) -> ConnId {
        self.id
    }
}

/// What few connections ever need.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// If they are not the lane's.
    pub(crate) options: Option<SocketOptions>,
    pub(crate) closed_waker: Option<Waker>,
    /// RCV.UP: where the peer's urgent data ends, until the application has read so far.
    pub(crate) urgent: Option<Seq>,
    /// Who waits for urgent data.
    pub(crate) urgent_waker: Option<Waker>,
    /// Who waits for memory before it can write: data on its way has room for this itself.
    pub(crate) write_waker: Option<Waker>,
    /// Goes with our SYN or SYN-ACK.
    pub(crate) fast_open: Option<FastOpenOption>,
    /// When the segment size was lowered for the path.
    pub(crate) mss_lowered_secs: u32,
    /// Everything has arrived, and until then the last reduction may still turn out to have been needless.
    pub(crate) undo: Option<(Undo, Time)>,
}

/// Keep-alive does not probe more often than this: without any pause its timer would be due again at once, for ever.
const SHORTEST_SILENCE: Duration = Duration::from_millis(10);

/// No timer.
pub(crate) const NEVER: Time = Time::MAX;

impl Connection {
    #[inline]
    pub(crate) const fn has(&self, flags: Flags) -> bool {
        self.flags.0 & flags.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: Flags) {
        self.flags.0 |= flags.0;
    }

    #[inline]
    pub(crate) fn clear(&mut self, flags: Flags) {
        self.flags.0 &= !flags.0;
    }

    #[inline]
    pub(crate) fn put(&mut self, flags: Flags, on: bool) {
        if on { self.set(flags) } else { self.clear(flags) }
    }

    #[inline]
    pub(crate) const fn is_in(&self, lists: Lists) -> bool {
        self.lists.0 & lists.0 != 0
    }

    #[inline]
    pub(crate) fn put_in(&mut self, lists: Lists) {
        self.lists.0 |= lists.0;
    }

    #[inline]
    pub(crate) fn take_out(&mut self, lists: Lists) {
        self.lists.0 &= !lists.0;
    }

    /// SND.NXT - SND.UNA.
    #[inline]
    pub(crate) fn outstanding(&self) -> u32 {
        self.snd_nxt.since(self.snd_una)
    }

    /// Sequence number of the first byte in the send buffer.
    #[inline]
    pub(crate) fn data_seq(&self) -> Seq {
        self.snd_una + u32::from(self.has(Flags::SYN_OUT))
    }

    /// Bytes in the send buffer.
    #[inline]
    pub(crate) fn buffered(&self) -> u32 {
        self.tx.as_ref().map_or(0, |tx| tx.data.len() as u32)
    }

    /// Bytes in the send buffer that were never sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        if self.has(Flags::FIN_SENT) {
            return 0;
        }
        (self.data_seq() + self.buffered()).since(self.snd_nxt.max(self.data_seq()))
    }

    /// RCV.WND: what the peer has been allowed to send beyond what came.
    #[inline]
    pub(crate) fn rcv_wnd(&self) -> u32 {
        if self.rcv_adv > self.rcv_nxt { self.rcv_adv.since(self.rcv_nxt) } else { 0 }
    }

    /// Bytes waiting for the application.
    #[inline]
    pub(crate) fn readable(&self) -> u32 {
        self.rx.as_ref().map_or(0, |rx| rx.queued)
    }

    /// Bytes of data in a full segment with the options every data segment has (RFC 6691).
    #[inline]
    pub(crate) fn effective_mss(&self) -> u32 {
        u32::from(self.snd_mss) - if self.has(Flags::TIMESTAMPS) { 12 } else { 0 }
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
            self.recv_limit = bytes.clamp(2048, 1 << 30);
        }
        if let Some(bytes) = options.send_buffer {
            self.send_limit = bytes.clamp(2048, 1 << 30);
        }
        if let Some(algorithm) = options.congestion {
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
        if *options != plain {
            self.rare_mut().options = Some(*options);
        } else if let Some(rare) = self.rare_if_any() {
            rare.options = None;
        }
    }

    /// What the socket was told beyond the ordinary.
    #[inline]
    pub(crate) fn options(&self) -> Option<&SocketOptions> {
        self.rare()?.options.as_ref()
    }

    /// The option of a SYN is not needed any more.
    pub(crate) fn fast_open_is_sent(&mut self) {
        let Some(rare) = self.rare_if_any() else { return };
        rare.fast_open = None;
        self.drop_empty_rare();
    }

    /// The last reduction stands, whatever is reported from now on.
    pub(crate) fn forget_undo(&mut self) {
        let Some(rare) = self.rare_if_any() else { return };
        if rare.undo.take().is_some() {
            self.drop_empty_rare();
        }
    }

    /// Until when a report is awaited that undoes the last reduction; [`NEVER`] if none is.
    #[inline]
    pub(crate) fn undo_until(&self) -> Time {
        self.rare().and_then(|rare| rare.undo).map_or(NEVER, |(_, until)| until)
    }

    pub(super) fn drop_empty_rare(&mut self) {
        let Some(rare) = self.rare() else { return };
        let Rare {
            options,
            closed_waker,
            urgent,
            urgent_waker,
            write_waker,
            fast_open,
            mss_lowered_secs,
            undo,
        } = rare;
        let waits = closed_waker.is_some() || write_waker.is_some() || undo.is_some();
        let waits = waits || urgent.is_some() || urgent_waker.is_some();
        if options.is_none() && fast_open.is_none() && !waits && *mss_lowered_secs == 0 {
            self.rare = None;
            self.take_out(Lists::RARE);
        }
    }

    /// What few connections have, if this one does.
    #[inline]
    pub(crate) fn rare(&self) -> Option<&Rare> {
        if self.is_in(Lists::RARE) { self.rare.as_deref() } else { None }
    }

    #[inline]
    pub(crate) fn rare_if_any(&mut self) -> Option<&mut Rare> {
        if self.is_in(Lists::RARE) { self.rare.as_deref_mut() } else { None }
    }

    /// Makes room for it.
    pub(crate) fn rare_mut(&mut self) -> &mut Rare {
        self.put_in(Lists::RARE);
        self.rare.get_or_insert_default()
    }

    /// Wakes whoever waits to read.
    #[inline]
    pub(crate) fn wake_read(&mut self) {
        if let Some(waker) = self.read_waker.take() {
            waker.wake();
        }
    }

    /// Wakes whoever waits to write or for the handshake.
    #[inline]
    pub(crate) fn wake_write(&mut self) {
        if let Some(waker) = self.tx.as_mut().and_then(|tx| tx.write_waker.take()) {
            waker.wake();
        }
        if let Some(waker) = self.rare_if_any().and_then(|rare| rare.write_waker.take()) {
            waker.wake();
        }
    }

    /// Where the waker stands of who waits to write or for the handshake.
    pub(crate) fn write_waker_mut(&mut self) -> &mut Option<Waker> {
        if self.tx.is_none() {
            self.put_in(Lists::RARE);
        }
        match &mut self.tx {
            Some(tx) => &mut tx.write_waker,
            None => &mut self.rare.get_or_insert_default().write_waker,
        }
    }

    /// Wakes everybody.
    pub(crate) fn wake_all(&mut self) {
        self.wake_read();
        self.wake_write();
        let Some(rare) = self.rare_if_any() else { return };
        for waker in [rare.closed_waker.take(), rare.urgent_waker.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}
