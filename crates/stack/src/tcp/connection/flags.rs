//! What is true of a connection, a bit each.

use super::Connection;

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
    /// There is something in [`Connection::rare`].
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
}
