//! Steps one to four: PAWS, sequence number, RST, SYN.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::Seq;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::input::{Step, Stop};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::wire::TcpFlags;
use core::time::Duration;

/// TS.Recent is not believed after 24 days of silence (RFC 7323 §5.5).
const TS_RECENT_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// RFC 7323 §5.3, R1: protection against wrapped sequence numbers.
    ///
    /// A segment without timestamps is accepted although §3.2 says that it should be dropped: some middleboxes strip
    /// the option, and dropping would hang the connection.
    pub(super) fn check_paws(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !self.has(Flags::TIMESTAMPS) || seg.is(TcpFlags::RST) {
            return Ok(());
        }
        let Some(ts) = seg.options.timestamps else { return Ok(()) };
        // Guard: `self.stamps.is_recent(ts.value)` as `true` fails data::timestamps_echo_and_protect
        if self.stamps.is_recent(ts.value) {
            return Ok(());
        }
        // Guard: `cx.now.saturating_duration_since(self.heard_at()) > TS_RECENT_LIFE` as `false` fails
        // tcp::tests::data tcp::tests::attacks tcp::tests::keepalive
        if cx.now.saturating_duration_since(self.heard_at()) > TS_RECENT_LIFE {
            return Ok(());
        }
        if seg.sequence_len() > 0 {
            self.answer_alone(core);
        } else if self.may_answer_invalid(core, cx) {
            self.ack_at_once();
        }
        self.note_duplicate(core, seg);
        Err(Stop::Drop(DropReason::Paws))
    }

    /// First: the sequence number (RFC 9293 §3.10.7.4, table 6), MUST-56 order.
    ///
    /// Acceptance is a little wider than the table: a segment that ends at or after the last acknowledgement sent, and
    /// begins no later than the right edge, goes on, so that its acknowledgement counts; its payload is trimmed later. That
    /// makes valid acknowledgements, URGs and RSTs work while the window is zero.
    ///
    /// A window that was open may have been taken back for lack of memory, behind data that the peer has sent. Its plain
    /// acknowledgements then stand beyond the window ("special allowance should be made to accept valid ACKs"): they count up
    /// to the furthest edge that a whole window can have had. Were they dropped, two ends whose windows are both closed would
    /// never hear that one is open again.
    pub(super) fn check_sequence(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        let mut right = self.rcv.right();
        if seg.sequence_len() == 0 && !seg.is(TcpFlags::RST) {
            // Guard: `self.rcv.nxt() + self.rcv.limit()` as `self.rcv.nxt()` fails
            // scarcity::acknowledgements_from_beyond
            right = right.max(self.rcv.nxt() + self.rcv.limit());
        }
        // Guard: `seg.end() >= self.rcv.last_ack_sent().min(self.rcv.nxt()) && seg.seq <= right` as `true`
        // fails tcp::tests::attacks tcp::tests::data tcp::tests::window
        if seg.end() >= self.rcv.last_ack_sent().min(self.rcv.nxt()) && seg.seq <= right {
            return Ok(());
        }
        if seg.is(TcpFlags::RST) {
            return Err(Stop::Drop(DropReason::OutOfWindow));
        }
        if seg.is(TcpFlags::SYN) {
            // RFC 5961 §4.2: irrespective of the sequence number.
            if self.uses_ecn() {
                self.syn_ack_came_again(seg);
            }
            // Guard: no `self.challenge(core, cx);` fails tcp::tests::attacks
            self.challenge(core, cx);
            return Err(Stop::Drop(DropReason::SynInWindow));
        }
        if seg.seq > right {
            core.stats.after_window_packets += 1;
            core.stats.after_window_bytes += u64::from(seg.len);
        } else if seg.len > 0 {
            core.stats.duplicate_packets += 1;
            core.stats.duplicate_bytes += u64::from(seg.len);
        } else {
            core.stats.window_probes_received += u64::from(seg.seq + 1 == self.rcv.nxt());
        }
        // "If an incoming segment is not acceptable, an acknowledgment should be sent in reply."
        if seg.len > 0 || seg.is(TcpFlags::FIN) {
            self.answer_alone(core);
        } else if self.may_answer_invalid(core, cx) {
            self.ack_at_once();
        }
        self.note_duplicate(core, seg);
        let old = seg.len > 0 && seg.end() <= self.rcv.nxt();
        Err(Stop::Drop(if old { DropReason::Duplicate } else { DropReason::OutOfWindow }))
    }

    /// RFC 7323 §4.3: which timestamp is echoed. After the acknowledgement has been checked, so that a forger must know our
    /// sequence numbers too before PAWS can be turned against the peer.
    pub(super) fn update_ts_recent(&mut self, seg: &Segment) {
        if let (true, Some(ts)) = (self.has(Flags::TIMESTAMPS), seg.options.timestamps) {
            // Guard: `seg.seq <= self.rcv.last_ack_sent()` as `true` fails
            // guards::an_early_segment_does_not_move
            // Guard: `self.stamps.is_recent(ts.value)` as `false` fails data::timestamps_echo_and_protect
            if seg.seq <= self.rcv.last_ack_sent() && self.stamps.is_recent(ts.value) {
                self.stamps.take(ts.value);
            }
        }
    }

    /// Remembers a block received twice, for a D-SACK (RFC 2883 §4). A FIN counts, as it does in sequence space.
    pub(super) fn note_duplicate(&mut self, core: &mut Core, seg: &Segment) {
        let end = seg.end().min(self.rcv.nxt());
        if self.has(Flags::SACK) && seg.seq < end && !seg.is(TcpFlags::SYN) {
            self.dsack(core, seg.seq, end);
        }
    }

    pub(super) fn dsack(&mut self, core: &mut Core, from: Seq, to: Seq) {
        // Without data around, the report costs memory that an idle connection does not have, until it is told.
        self.rx.get_or(|| core.inflow()).note_twice(Some((from, to)));
    }

    /// Second: RST (RFC 9293 §3.10.7.4; RFC 5961 §3.2): only exactly at RCV.NXT it ends the connection.
    pub(super) fn check_rst(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.is(TcpFlags::RST) {
            return Ok(());
        }
        // Guard: `seg.seq == self.rcv.nxt()` as `true` fails attacks::resets_must_be_exact
        if seg.seq == self.rcv.nxt() {
            core.fast_open_reset(self, cx.now);
            self.was_reset(core, cx.now);
            return Err(Stop::Done);
        }
        // Only within the window; at its right edge it is outside, where `check_sequence` is generous.
        // Guard: `seg.seq < self.rcv.adv()` as `true` fails attacks::a_reset_at_the_right_edge
        if seg.seq > self.rcv.nxt() && seg.seq < self.rcv.adv() {
            self.challenge(core, cx);
        }
        Err(Stop::Drop(DropReason::ResetNotExact))
    }

    /// Fourth: SYN (RFC 9293 §3.10.7.4; RFC 5961 §4.2): answered with a challenge, never obeyed.
    pub(super) fn check_syn(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.is(TcpFlags::SYN) {
            return Ok(());
        }
        if self.state() == State::SynReceived && !self.has(Flags::ACTIVE) && !seg.is(TcpFlags::ACK) {
            // A passive opener's handshake starts over when the peer does: the SYN-ACK in answer to the challenge tells
            // the peer, and its reset clears the way.
            core.stats.syncache_dupsyn += 1;
        }
        if self.uses_ecn() {
            self.syn_ack_came_again(seg);
        }
        // Guard: no `self.challenge(core, cx);` fails attacks::syns_are_challenged
        self.challenge(core, cx);
        Err(Stop::Drop(DropReason::SynInWindow))
    }
}
