//! State of a connection while it has data in flight: send buffer, scoreboard, recovery.
//!
//! Boxed; a lane keeps some spare ones, so that short exchanges do not allocate.

use crate::tcp::Seq;
use crate::tcp::connection::congestion::Hystart;
use crate::tcp::connection::departures::Departures;
use crate::tcp::connection::recovery::Recovery;
use crate::tcp::connection::scoreboard::{FIN, PUSH, SYN, Scoreboard, Sent};
use crate::tcp::connection::send_buffer::{Blocks, SendBuffer};
use crate::tcp::connection::writes::Writes;
use crate::time::Time;
use core::task::Waker;

/// State of data on its way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) data: SendBuffer,
    pub(crate) board: Scoreboard,
    pub(crate) recovery: Recovery,
    pub(crate) used: Used,
    /// `HyStart++`; begins anew when data does.
    pub(crate) hystart: Hystart,
    pub(crate) writes: Writes,
    /// What BBR's samples are made from.
    pub(crate) departures: Departures,
    /// Segments of new data sent in a row, without a pause.
    burst: u32,
    /// End of the last small segment sent (Minshall's form of Nagle's algorithm).
    small: Option<Seq>,
    /// Who waits to write or for the handshake.
    write_waker: Option<Waker>,
    /// Since when the oldest byte waits for an acknowledgement, or the window is closed.
    since: Option<Time>,
    /// Bytes of memory beside the buffer's as the lane has counted them.
    counted: usize,
}

/// How much of the congestion window is used.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// Most bytes that were outstanding in the round that ends at `end`.
    peak: u32,
    end: Seq,
}

impl Used {
    /// So many bytes up to `end` are outstanding, since data was sent; those before `una` are acknowledged.
    #[inline]
    pub(crate) fn note(&mut self, una: Seq, end: Seq, outstanding: u32) {
        if una >= self.end || outstanding > self.peak {
            (self.peak, self.end) = (outstanding, end);
        }
    }

    /// Most bytes that were outstanding in this round.
    #[inline]
    pub(crate) const fn peak(&self) -> u32 {
        self.peak
    }
}

impl Flight {
    /// Bytes in the network, as far as is known.
    #[inline]
    pub(crate) fn in_flight(&self, outstanding: u32) -> u32 {
        self.board.in_flight(outstanding).saturating_sub(self.recovery.reno_sacked())
    }

    /// What is out, if it is one segment that was sent once, there was never a doubt about it, and it has all there is to be sent.
    #[inline]
    pub(crate) fn only_segment(&self) -> Option<Sent> {
        let sent = *self.board.only()?;
        // Guard: `sent.flags & !(FIN | PUSH) == 0` as `true` fails
        // tcp::tests::guards::what_was_told_before
        // Guard: `self.data.len() as u32 + u32::from(sent.is(FIN)) == sent.len` as `true` fails
        // tcp::tests::nagle::small_writes
        let whole = sent.flags & !(FIN | PUSH) == 0
            && self.data.len() as u32 + u32::from(sent.is(FIN)) == sent.len
            && self.recovery.is_plain()
            && self.recovery.undo().is_none();
        whole.then_some(sent)
    }

    /// The SYN that is out, if it was sent once and there is nothing behind it.
    #[inline]
    pub(crate) fn only_syn(&self) -> Option<Sent> {
        // Guard: `sent.flags == SYN` as `true` fails handshake::a_syn_that_was_sent_again
        self.board.only().copied().filter(|sent| sent.flags == SYN && self.data.is_empty())
    }

    /// Segments of new data sent in a row, without a pause.
    #[inline]
    pub(crate) const fn burst(&self) -> u32 {
        self.burst
    }

    /// So many were sent in a row; 0 if what follows begins anew.
    #[inline]
    pub(crate) fn set_burst(&mut self, segments: u32) {
        self.burst = segments;
    }

    /// Whether a small segment is on its way, where everything before `una` has arrived.
    #[inline]
    pub(crate) fn is_small_out(&self, una: Seq) -> bool {
        self.small.is_some_and(|end| end > una)
    }

    /// A small segment was sent, which ends at `end`.
    #[inline]
    pub(crate) fn sent_small(&mut self, end: Seq) {
        self.small = Some(end);
    }

    /// Who waits to write or for the handshake, to be woken.
    #[inline]
    pub(crate) fn take_writer(&mut self) -> Option<Waker> {
        self.write_waker.take()
    }

    /// Whether somebody waits to write or for the handshake.
    #[inline]
    pub(crate) const fn has_writer(&self) -> bool {
        self.write_waker.is_some()
    }

    /// Where the waker stands of who waits to write or for the handshake.
    pub(crate) fn writer_mut(&mut self) -> &mut Option<Waker> {
        &mut self.write_waker
    }

    /// Since when the oldest byte waits for an acknowledgement, or the window is closed.
    #[inline]
    pub(crate) const fn waits_since(&self) -> Option<Time> {
        self.since
    }

    /// Something was sent, or acknowledged, or the window closed at `now`.
    #[inline]
    pub(crate) fn waits_from(&mut self, now: Time) {
        self.since = Some(now);
    }

    /// Something waits since `now`, unless it has waited for longer.
    pub(crate) fn waits_at_least_from(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// Nothing waits.
    #[inline]
    pub(crate) fn waits_no_more(&mut self) {
        self.since = None;
    }

    /// Bytes of memory beside the buffer's, as the lane has counted them.
    pub(crate) const fn memory(&self) -> usize {
        self.counted
    }

    /// Counts them; how many they are.
    pub(crate) fn count(&mut self) -> usize {
        self.counted = FLIGHT + self.board.memory() + self.departures.memory();
        self.counted
    }

    /// The scoreboard has changed: the lane's `memory` follows.
    #[inline]
    pub(crate) fn recount(&mut self, memory: &mut usize) {
        let before = self.counted;
        *memory = *memory + self.count() - before;
    }

    /// Ready for another connection. Its buffer's memory goes back; how many bytes of it are free now.
    pub(crate) fn reset(&mut self, blocks: &mut Blocks) -> usize {
        let Flight {
            data,
            board,
            recovery,
            used,
            hystart,
            writes,
            departures,
            burst,
            small,
            write_waker,
            since,
            counted: _,
        } = self;
        departures.reset();
        board.reset();
        recovery.reset();
        writes.reset();
        (*used, *hystart, *burst, *small, *since, *write_waker) = Default::default();
        data.reset(blocks)
    }
}

/// Bytes of a send side beside what is counted as it grows.
const FLIGHT: usize = size_of::<Flight>() + 192;
