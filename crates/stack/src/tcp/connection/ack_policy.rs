//! What decides when a connection acknowledges, and the acknowledgements that it owes. The steps are in `acks`.

use crate::tcp::Seq;
use crate::wire::SackBlocks;

/// Acknowledgements sent at once at the start of a connection, while the peer's window is small.
const QUICK_ACKS: u8 = 16;

/// What decides when a connection acknowledges.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AckPolicy {
    /// Largest segment seen from the peer, bytes.
    seen: u16,
    /// Acknowledgements that may still go out at once.
    quick: u8,
    /// Data has come since data was last sent.
    unanswered: bool,
}

impl AckPolicy {
    /// Until the peer's SYN its segments are taken to have `seen` bytes.
    pub(crate) const fn new(seen: u16) -> Self {
        Self { seen, quick: 0, unanswered: false }
    }

    /// Largest segment seen from the peer, bytes.
    #[inline]
    pub(crate) const fn seen(self) -> u16 {
        self.seen
    }

    /// The peer's segments have `seen` bytes, until larger ones come.
    pub(crate) fn expect(&mut self, seen: u16) {
        self.seen = seen;
    }

    /// A segment of so many bytes came.
    #[inline]
    pub(crate) fn saw(&mut self, bytes: u16) {
        self.seen = self.seen.max(bytes);
    }

    /// The handshake is over: the peer's window is small.
    pub(crate) fn begin(&mut self) {
        self.quick = QUICK_ACKS;
    }

    /// So many bytes came.
    #[inline]
    pub(crate) fn received(&mut self, bytes: u32) {
        self.unanswered |= bytes > 0;
    }

    /// Whether the next acknowledgement is one of the first, which go out at once.
    #[inline]
    pub(crate) const fn is_quick(self) -> bool {
        self.quick > 0
    }

    /// Whether one of these has gone out.
    #[inline]
    pub(crate) const fn was_quick(self) -> bool {
        self.quick < QUICK_ACKS
    }

    /// An acknowledgement goes out at once.
    #[inline]
    pub(crate) fn acked_at_once(&mut self) {
        self.quick = self.quick.saturating_sub(1);
    }

    /// Data goes out; whether it is the first since data came.
    #[inline]
    pub(crate) fn answers_data(&mut self) -> bool {
        core::mem::replace(&mut self.unanswered, false)
    }
}

/// An acknowledgement that is still to go out, as it stood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// RCV.NXT.
    pub(crate) ack: Seq,
    pub(crate) blocks: SackBlocks,
}

/// Answers that a connection owes at most, beside the last one.
pub(crate) const MOST: usize = 64;
