//! Boolean state of a connection, one bit each.

use crate::tcp::connection::Connection;

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

impl Flags {
    /// None of them.
    pub(crate) const NONE: Flags = Flags(0);
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
    /// There is something in `rare.rs`.
    pub(super) const RARE: Lists = Lists(32);
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

macro_rules! changes {
    ($($(#[doc = $doc:literal])+ $name:ident: $what:ident $bits:expr;)+) => {
        impl Connection {
            $($(#[doc = $doc])+ #[inline] pub(crate) fn $name(&mut self) { self.$what($bits); })+
        }
    };
}

// Every change of a flag has a name: no other module sets one by its bit.
changes! {
    /// It stands on the ready list.
    wait_for_output: set Flags::QUEUED;
    /// It was taken off the ready list.
    leave_ready_list: clear Flags::QUEUED;
    /// An acknowledgement goes out with the next output.
    ack_at_once: set Flags::ACK_NOW;
    /// That acknowledgement has gone out, or goes out as an answer of its own.
    ack_went_out: clear Flags::ACK_NOW;
    /// An acknowledgement may wait for the timer.
    ack_later: set Flags::ACK_DELAYED;
    /// The timer released an acknowledgement.
    ack_after_delay: set Flags::ACK_NOW | Flags::ACK_WAS_DELAYED;
    /// The acknowledgement of the handshake waits for data that takes it along.
    ack_with_data: set Flags::ACK_DELAYED | Flags::INTERACTIVE;
    /// No data took an acknowledgement along: the next one does not wait.
    answer_kept_waiting: clear Flags::ACK_DELAYED | Flags::INTERACTIVE;
    /// All that came is acknowledged.
    acked_everything: clear Flags::ACK_NOW | Flags::ACK_DELAYED | Flags::ACK_WAS_DELAYED;
    /// A reset acknowledges nothing.
    drop_acks: clear Flags::ACK_NOW | Flags::ACK_DELAYED;
    /// The application has given up its handle.
    detach: set Flags::DETACHED;
    /// The application will not read any more.
    shut_reading: set Flags::READ_SHUT;
    /// A window probe is due.
    probe_window: set Flags::PROBE_WINDOW;
    /// A keep-alive probe is due.
    probe_alive: set Flags::PROBE_ALIVE;
    /// Window and keep-alive probes are no longer due.
    probed: clear Flags::PROBE_WINDOW | Flags::PROBE_ALIVE;
    /// A tail loss probe is due.
    want_tail_probe: set Flags::PROBE_TAIL;
    /// A tail loss probe is no longer due.
    tail_was_probed: clear Flags::PROBE_TAIL;
    /// New data went out: nothing has to be forced or probed any more.
    sent_what_was_due: clear Flags::FORCE | Flags::PROBE_TAIL;
    /// Our FIN is wanted.
    queue_fin: set Flags::FIN_QUEUED;
    /// Our FIN has been sent.
    sent_fin: set Flags::FIN_SENT;
    /// The peer's FIN is next and was received.
    received_fin: set Flags::FIN_RECEIVED;
    /// Nothing more will be written: what there is may go in small segments.
    uncork: clear Flags::CORK | Flags::MORE;
    /// It was opened by us.
    opened_by_us: set Flags::ACTIVE;
    /// The peer does not scale windows.
    without_scaling: clear Flags::SCALING;
    /// The peer does not know SACK.
    without_sack: clear Flags::SACK;
    /// The peer does not know timestamps.
    without_timestamps: clear Flags::TIMESTAMPS;
    /// Our SYN has been acknowledged.
    syn_was_acknowledged: clear Flags::SYN_OUT;
    /// Our SYN was sent again.
    syn_was_lost: set Flags::SYN_LOST;
    /// Our SYN is not to be retried without ECN.
    offers_no_ecn: clear Flags::ECN_OFFERED;
    /// It is one of the lane's established connections.
    count_as_established: put_in Lists::ESTABLISHED;
    /// It stands in the list of those whose writers wait for memory.
    set_in_starved: put_in Lists::IN_STARVED;
    /// It was taken off that list.
    leave_starved: take_out Lists::IN_STARVED | Lists::STARVED;
}

macro_rules! switches {
    ($($(#[doc = $doc:literal])+ $name:ident: $what:ident $bit:expr;)+) => {
        impl Connection {
            $($(#[doc = $doc])+ #[inline] pub(crate) fn $name(&mut self, on: bool) { self.$what($bit, on); })+
        }
    };
}

switches! {
    /// The peer and we talk back and forth: acknowledgements wait for data.
    set_interactive: put Flags::INTERACTIVE;
    /// It counts in its listener's SYN backlog.
    set_in_syn_backlog: put Flags::IN_SYN_BACKLOG;
    /// It waits in its listener's accept queue.
    set_in_accept_queue: put Flags::IN_ACCEPT_QUEUE;
    /// What there is goes out, whatever Nagle says.
    set_force: put Flags::FORCE;
    /// The last write said that more is coming.
    set_more: put Flags::MORE;
    /// The last look at the output was stopped by the congestion window.
    set_cwnd_limited: put Flags::CWND_LIMITED;
    /// The segment size is lowered for the path.
    set_mss_lowered: put Flags::MSS_LOWERED;
    /// ECN is on.
    set_ecn: put Flags::ECN;
    /// CE came and is echoed until the peer has reacted.
    set_ece: put Flags::ECE;
    /// The next data segment says that the window was reduced.
    set_cwr: put Flags::CWR;
    /// It stands in the connection table.
    set_linked: put_list Lists::LINKED;
    /// The last write found no memory in the lane.
    set_starved: put_list Lists::STARVED;
    /// It stands in the list of those whose window is looked at again.
    set_in_narrowed: put_list Lists::IN_NARROWED;
    /// The acknowledgement that is due answers one segment alone (see `answers`).
    set_answers_alone: put_list Lists::ALONE;
    /// There are such acknowledgements before it.
    set_owes_answers: put_list Lists::OWES;
}

impl Connection {
    #[inline]
    pub(crate) const fn has(&self, flags: Flags) -> bool {
        self.flags.0 & flags.0 != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flags: Flags) {
        self.flags.0 |= flags.0;
    }

    #[inline]
    pub(super) fn clear(&mut self, flags: Flags) {
        self.flags.0 &= !flags.0;
    }

    #[inline]
    pub(super) fn put(&mut self, flags: Flags, on: bool) {
        if on { self.set(flags) } else { self.clear(flags) }
    }

    #[inline]
    pub(crate) const fn is_in(&self, lists: Lists) -> bool {
        self.lists.0 & lists.0 != 0
    }

    #[inline]
    pub(super) fn put_in(&mut self, lists: Lists) {
        self.lists.0 |= lists.0;
    }

    #[inline]
    pub(super) fn take_out(&mut self, lists: Lists) {
        self.lists.0 &= !lists.0;
    }

    #[inline]
    fn put_list(&mut self, lists: Lists, on: bool) {
        if on { self.put_in(lists) } else { self.take_out(lists) }
    }
}
