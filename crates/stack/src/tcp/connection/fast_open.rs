//! What Fast Open (RFC 7413) has to do with a connection. The steps are in `fast_open`.

use crate::tcp::connection::{Connection, State};

/// What Fast Open has to do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks(u8);

impl Marks {
    /// A passive connection that was used, or could be, before its handshake was over; until it is over.
    pub(crate) const EARLY: u8 = 1;
    /// It counts as pending at its listener.
    pub(crate) const PENDING: u8 = 2;
    /// Data in a SYN has been taken by the other side, or by us.
    pub(crate) const SYN_DATA: u8 = 4;
    /// Our SYN has the option.
    pub(crate) const ASKED: u8 = 8;
    /// In the form of the draft.
    pub(crate) const EXPERIMENTAL: u8 = 16;
    /// Our SYN has data.
    pub(crate) const DATA: u8 = 32;
    /// More is written as soon as the handshake is over.
    pub(crate) const REST: u8 = 64;
    /// What is rare of the connection came or went since it was counted.
    pub(crate) const RARE_CHANGED: u8 = 128;

    #[inline]
    pub(crate) const fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    pub(crate) fn put(&mut self, mark: u8, on: bool) {
        self.0 = if on { self.0 | mark } else { self.0 & !mark };
    }
}

impl Connection {
    /// A passive connection that may be used although its handshake is not over.
    #[inline]
    pub(crate) fn is_early(&self) -> bool {
        self.state() == State::SynReceived && self.fast.has(Marks::EARLY)
    }
}
