//! Steps seven and eight: payload and FIN.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::connection::recv_buffer::Inflow;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::input::{Step, Stop};
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::segment::Segment;
use crate::wire::TcpFlags;
use flowlane_sys::frame::Frame;

impl Connection {
    /// Seventh: the segment text (RFC 9293 §3.10.7.4).
    pub(crate) fn take_data(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) -> Step {
        let receiving = matches!(self.state(), State::Established | State::FinWait1 | State::FinWait2)
            || self.state() == State::SynReceived && self.is_early();
        if !receiving {
            // "This should not occur, since a FIN has been received from the remote side. Ignore the segment text": but what
            // lies before the FIN is sent again because our acknowledgement was lost.
            if seg.seq < self.rcv.nxt() && seg.sequence_len() > 0 {
                self.answer_alone(core);
                self.note_duplicate(core, seg);
                return Err(Stop::Drop(DropReason::Duplicate));
            }
            return if seg.len > 0 { Err(Stop::Drop(DropReason::AfterFin)) } else { Ok(()) };
        }
        if seg.len == 0 && !seg.is(TcpFlags::FIN) {
            return Ok(());
        }
        // RFC 5681 §4.2: out of order, received before in part or whole, or filling a hole.
        let ahead = seg.seq > self.rcv.nxt();
        if seg.seq == self.rcv.nxt() && self.rx.get().is_none_or(|rx| rx.early.is_empty()) {
            self.end_answer(core);
        } else {
            self.answer_alone(core);
        }
        if seg.seq != self.rcv.nxt() || seg.seq + seg.len > self.rcv.right() {
            self.trim_to_window(core, seg);
        }
        if seg.len == 0 && !seg.is(TcpFlags::FIN) {
            // Nothing of it was new or allowed: the answer says what is (RFC 9293 §3.8.6.1, MUST-36's other side).
            self.ack_at_once();
            return Err(Stop::Drop(DropReason::Duplicate));
        }
        let nobody_reads = self.has(Flags::DETACHED)
            || self.has(Flags::READ_SHUT) && matches!(self.state(), State::FinWait1 | State::FinWait2);
        // Guard: `nobody_reads` as `false` fails close::data_after_close_resets
        if nobody_reads && seg.len > 0 {
            // RFC 9293 §3.6.1: data that nobody will read is answered with a reset (RFC 1122 §4.2.2.13).
            // At the number that the peer expects, so that it is believed at once even if our FIN was lost.
            core.stats.after_close_packets += 1;
            let sent = core.refuse(cx, &self.tuple(), seg, self.reply_meta());
            core.count_answer(self, sent);
            core.kill(self, cx.now, FlowEnd::ResetByUs, None);
            return Err(Stop::Drop(DropReason::AfterClose));
        }
        self.acks.saw(seg.largest.min(u32::from(self.mss.rcv())) as u16);
        if self.is_last_word(seg) {
            core.stats.in_sequence_packets += u64::from(seg.merged);
            self.schedule_ack(core, cx, seg);
            return Ok(());
        }
        let mut rx = self.rx.take_or(|| core.inflow());
        let before = rx.holds();
        if seg.is(TcpFlags::FIN) {
            rx.note_fin(Some(seg.seq + seg.len));
        }
        let result = if seg.seq == self.rcv.nxt() {
            self.take_in_order(core, cx, &mut rx, seg)
        } else {
            self.take_early(core, cx, &mut rx, seg)
        };
        core.account(before, rx.holds());
        let has_data = rx.queued() > 0;
        self.rx.put_back(rx);
        if ahead {
            self.answer_merged(core, seg);
        }
        self.schedule_ack(core, cx, seg);
        if has_data {
            self.wake_read();
        }
        result
    }

    /// Cuts off what is old and what lies beyond the window.
    fn trim_to_window(&mut self, core: &mut Core, seg: &mut Segment) {
        if seg.seq < self.rcv.nxt() {
            let old = self.rcv.nxt().since(seg.seq).min(seg.len);
            self.note_duplicate(core, seg);
            if old == seg.len && old > 0 {
                core.stats.duplicate_packets += 1;
                core.stats.duplicate_bytes += u64::from(old);
            } else if old > 0 {
                core.stats.partly_duplicate_packets += 1;
                core.stats.partly_duplicate_bytes += u64::from(old);
            }
            seg.trim_front(old);
            if seg.seq != self.rcv.nxt() {
                // An old FIN.
                // Guard: no `seg.flags = seg.flags.without(TcpFlags::FIN);` fails
                // close::a_fin_before_the_data
                seg.flags = seg.flags.without(TcpFlags::FIN);
            }
        }
        let right = self.rcv.right();
        // Guard: `seg.seq + seg.len > right` as `false` fails window::data_beyond_the_window
        if seg.seq + seg.len > right {
            let over = (seg.seq + seg.len).since(right).min(seg.len);
            core.stats.after_window_packets += 1;
            core.stats.after_window_bytes += u64::from(over);
            core.stats.window_probes_received += u64::from(right == self.rcv.nxt());
            seg.len -= over;
            // Guard: no `seg.flags = seg.flags.without(TcpFlags::FIN);` fails guards::a_fin_beyond_the_window
            seg.flags = seg.flags.without(TcpFlags::FIN);
        }
    }

    fn take_in_order(&mut self, core: &mut Core, cx: &Cx<'_>, rx: &mut Inflow, seg: &mut Segment) -> Step {
        // Frames of tiny payload are merged as long as they fit; a peer that defeats that runs into this bound.
        // Guard: `rx.held() > 4 * self.rcv.limit() as usize + (64 << 10)` as `false` fails
        // guards::single_bytes_at_the_end_of_frames
        if rx.held() > 4 * self.rcv.limit() as usize + (64 << 10) {
            self.ack_at_once();
            return Err(Stop::Drop(DropReason::BufferFull));
        }
        let filled_hole = !rx.early.is_empty();
        let discard = self.has(Flags::READ_SHUT);
        let pressed = core.is_pressed();
        // Guard: `pressed && !discard` as `false` fails bounds/receive::merged_packets
        // bounds/receive::two_thousand
        if pressed && !discard {
            self.make_room(core, cx, rx, seg)?;
        }
        core.stats.in_sequence_packets += u64::from(seg.merged);
        core.stats.in_sequence_bytes += u64::from(seg.len);
        // Without pressure data waits where it came in, which costs nothing but room in the frame that stays empty.
        let copy = pressed || core.holds_most_frames();
        for_each_frame(seg, |frame| {
            if !discard {
                rx.push(frame, copy);
            }
        });
        let from = self.rcv.nxt();
        self.rcv.received(seg.len);
        if filled_hole && rx.twice().is_none() && self.has(Flags::SACK) {
            // RFC 2883 §4.2: of what came in order a part was here already.
            rx.note_twice(rx.early.known(from, self.rcv.nxt()));
        }
        self.take_next(rx, copy);
        Ok(())
    }

    /// RFC 9293 §3.10.7.4: "segments with higher beginning sequence numbers SHOULD be held for later processing",
    /// SHLD-31; the bounds are counted.
    fn take_early(&mut self, core: &mut Core, cx: &Cx<'_>, rx: &mut Inflow, seg: &mut Segment) -> Step {
        core.stats.out_of_order_packets += u64::from(seg.merged);
        core.stats.out_of_order_bytes += u64::from(seg.len);
        // Guard: `rx.early.len() >= usize::from(core.config.max_out_of_order)` as `false` fails
        // tcp::tests::data tcp::tests::attacks tcp::tests::scarcity
        let full = rx.early.len() >= usize::from(core.config.max_out_of_order)
            || rx.memory() > 4 * self.rcv.limit() as usize + (64 << 10);
        if full {
            return Err(Stop::Drop(DropReason::ReassemblyFull));
        }
        // Guard: `core.is_full(cx) || core.is_pressed() && !core.may_hold_early(rx, seg)` as `false` fails
        // tcp::tests::data tcp::tests::scarcity tcp::tests::attacks tcp::tests::memory
        if core.is_full(cx) || core.is_pressed() && !core.may_hold_early(rx, seg) {
            return Err(Stop::Drop(DropReason::LaneMemory));
        }
        if core.holds_most_frames() {
            return Err(Stop::Drop(DropReason::FewFrames));
        }
        let mut seq = seg.seq;
        let (mut new, len) = (0, seg.len);
        let known = rx.early.known(seq, seq + len);
        for_each_frame(seg, |frame| {
            let n = frame.len() as u32;
            new += rx.early.insert(seq, frame);
            seq += n;
        });
        if new < len {
            core.stats.partly_duplicate_packets += 1;
            core.stats.partly_duplicate_bytes += u64::from(len - new);
            // RFC 2883 §4.2.1, §4.2.2: the whole of it, or the part that was here already.
            if self.has(Flags::SACK) {
                rx.note_twice(known);
            }
        }
        Ok(())
    }

    /// RFC 9293 §3.10.7.3, fourth step: "If there are other controls or text in the segment, then queue these for processing
    /// after the ESTABLISHED state has been reached". Kept as if it had come early, so under the same bounds; what finds no
    /// room the peer sends again, since nothing of it is acknowledged.
    pub(super) fn keep_for_later(&mut self, core: &mut Core, cx: &Cx<'_>, seg: &mut Segment) -> Step {
        seg.seq += 1;
        seg.flags = seg.flags.without(TcpFlags::SYN);
        self.trim_to_window(core, seg);
        let fin = seg.is(TcpFlags::FIN).then_some(seg.seq + seg.len);
        if seg.len == 0 && fin.is_none() {
            return Ok(());
        }
        let mut rx = self.rx.take_or(|| core.inflow());
        let before = rx.holds();
        let kept = if seg.len > 0 { self.take_early(core, cx, &mut rx, seg) } else { Ok(()) };
        if kept.is_ok() {
            rx.note_fin(fin);
        }
        core.account(before, rx.holds());
        self.rx.put_back(rx);
        kept
    }

    /// ESTABLISHED is reached: what came with the peer's SYN is received now.
    pub(super) fn take_kept(&mut self, core: &mut Core) {
        let Some(mut rx) = self.rx.take() else { return };
        let before = rx.holds();
        let copy = core.holds_most_frames();
        self.take_next(&mut rx, copy);
        core.account(before, rx.holds());
        if rx.queued() > 0 {
            self.ack_at_once();
            self.wake_read();
        }
        self.rx.put_back(rx);
    }

    /// What was early is next.
    fn take_next(&mut self, rx: &mut Inflow, copy: bool) {
        let discard = self.has(Flags::READ_SHUT);
        while let Some(early) = rx.early.pop(self.rcv.nxt()) {
            self.rcv.received(early.len() as u32);
            if !discard {
                rx.push(early, copy);
            }
        }
    }

    /// Whether a segment is a FIN and nothing else, and next, while nothing waits for the reader: it need not be kept anywhere.
    #[inline]
    fn is_last_word(&self, seg: &Segment) -> bool {
        // Guard: `seg.seq == self.rcv.nxt()` as `true` fails close::an_early_last_word
        seg.is(TcpFlags::FIN) && seg.len == 0 && self.rx.is_none() && seg.seq == self.rcv.nxt()
    }

    /// Eighth: the FIN bit (RFC 9293 §3.10.7.4), once everything before it is here.
    #[inline]
    pub(super) fn check_fin(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) {
        let due = match self.rx.get() {
            Some(rx) => rx.fin() == Some(self.rcv.nxt()),
            None => self.is_last_word(seg) && !self.has(Flags::FIN_RECEIVED),
        };
        if due && self.state() != State::Closed {
            self.take_fin(core, cx);
        }
    }

    #[inline(never)]
    fn take_fin(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        if let Some(rx) = self.rx.get_mut() {
            rx.is_whole();
        }
        self.rcv.received(1);
        self.received_fin();
        // The last word is answered at once, whatever `schedule_ack` made of the segment that made it due.
        if self.state() != State::Established || !self.has(Flags::ACK_DELAYED) {
            self.ack_at_once();
        }
        self.wake_read();
        match self.state() {
            State::SynReceived | State::Established => self.enter(&mut core.states, State::CloseWait),
            // Our FIN was not acknowledged by this segment, or the fifth step had moved on.
            State::FinWait1 => self.enter(&mut core.states, State::Closing),
            State::FinWait2 => self.enter_time_wait(core, cx),
            _ => {}
        }
    }
}

/// Hands out the segment's payload, `seg.len` bytes, frame by frame.
fn for_each_frame(seg: &mut Segment, mut take: impl FnMut(Frame)) {
    let mut left = seg.len as usize;
    let mut next = seg.frame.take();
    while let Some(mut frame) = next {
        next = frame.take_next();
        frame.truncate(left);
        left -= frame.len();
        if !frame.is_empty() {
            take(frame);
        }
    }
}
