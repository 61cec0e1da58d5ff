//! Output: which segment a connection sends next.
//!
//! Transmit is pulled. Each call builds one segment (or one batch for segmentation offload): first retransmissions, then a probe, then
//! new data, then our FIN, then a pure acknowledgement. `segmenter` decides whether new data may be sent, and `build` builds the segment.

mod build;
mod payload;
mod segmenter;

use crate::packet::{Cx, IpOutput};
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::recovery::Phase;
use crate::tcp::connection::scoreboard::Sent;
use crate::tcp::connection::{Connection, Flags, Lists, State, scoreboard};
use crate::tcp::lane::Core;
use crate::tcp::output::build::Plan;
use crate::wire::TcpFlags;

/// There is no free frame; try again later.
#[derive(Debug)]
pub(crate) struct NoFrame;

impl Connection {
    /// The next segment to send now, if any.
    #[inline(always)]
    pub(crate) fn next_segment(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
    ) -> Result<Option<IpOutput>, NoFrame> {
        if self.state() == State::Closed {
            return Ok(None);
        }
        if matches!(self.state(), State::SynSent | State::SynReceived) {
            let out = self.next_handshake(core, cx)?;
            if out.is_some() || !self.is_early() {
                return Ok(out);
            }
        }
        // Data that carries an acknowledgement is no duplicate of one (RFC 5681 §2).
        // Guard: `self.is_in(Lists::ANSWERS)` as `self.is_in(Lists::ANSWERS) && self.plan_new(core,
        // cx).is_none()` fails answers::they_are_bare
        if self.is_in(Lists::ANSWERS) {
            return self.send_answer(core, cx).map(Some);
        }
        // Guard: `!self.is_held_by_pace(core, cx.now)` as `true` fails bbr::data_is_spread
        if !self.is_held_by_pace(core, cx.now) {
            if let Some(out) = self.next_data(core, cx)? {
                return Ok(Some(out));
            }
        }
        if self.has(Flags::PROBE_WINDOW) || self.has(Flags::PROBE_ALIVE) {
            return self.send_probe(core, cx).map(Some);
        }
        if self.has(Flags::ACK_NOW) {
            return self.send_ack(core, cx).map(Some);
        }
        Ok(None)
    }

    /// What is lost, what is new, or a probe for what may be lost.
    #[inline]
    fn next_data(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        if let Some(out) = self.next_retransmission(core, cx)? {
            return Ok(Some(out));
        }
        if let Some(plan) = self.plan_new(core, cx) {
            return self.send_new(core, cx, plan).map(Some);
        }
        if self.has(Flags::PROBE_TAIL) {
            return self.probe_tail(core, cx);
        }
        Ok(None)
    }

    /// SYN, SYN-ACK, or the acknowledgement of a duplicate.
    fn next_handshake(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let Some(tx) = self.tx.get_mut() else { return Ok(None) };
        let first = tx.board.is_empty();
        // What was sent behind the SYN is no business of the handshake's.
        if !first && tx.board.next_lost() != Some(0) {
            if self.is_early() {
                return Ok(None);
            }
            if self.has(Flags::ACK_NOW) && self.state() == State::SynReceived {
                return self.send_ack(core, cx).map(Some);
            }
            self.ack_went_out();
            return Ok(None);
        }
        // Guard: `first && self.state() == State::SynSent` as `self.state() == State::SynSent` fails
        // fast_open::only_the_syn_ack fast_open_active::a_repeated
        let data = if first && self.state() == State::SynSent { self.buffered() } else { 0 };
        let out = self.send_syn(core, cx, first, data)?;
        let now = cx.now;
        if let Some(tx) = self.tx.get_mut() {
            if first {
                tx.board.push(Sent { seq: self.snd.una(), len: 1, at: now, flags: scoreboard::SYN });
                tx.waits_from(now);
                if data > 0 {
                    let seq = self.snd.una() + 1;
                    tx.board.push(Sent { seq, len: data, at: now, flags: scoreboard::PUSH });
                }
            } else {
                tx.board.retransmitted(0, now);
            }
        }
        if first {
            if data > 0 {
                self.fast.put(Marks::DATA, true);
                self.snd.sent(self.snd.nxt() + data);
                self.snd.sent_at(now.as_millis() as u32);
                core.stats.data_packets_sent += 1;
                core.stats.data_bytes_sent += u64::from(data);
            }
            self.arm_rto(core, now);
        } else {
            self.count_retransmit();
            self.syn_was_lost();
            core.stats.packets_retransmitted += 1;
            core.stats.syncache_retransmitted += u64::from(self.state() == State::SynReceived);
        }
        Ok(Some(out))
    }

    /// Something deemed lost, if the window lets it out (RFC 6675 §5, rule C.1; RFC 9937).
    fn next_retransmission(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let outstanding = self.snd.outstanding();
        let cwnd = self.congestion.cwnd();
        let Some(tx) = self.tx.get_mut() else { return Ok(None) };
        let Some(index) = tx.board.next_lost() else { return Ok(None) };
        if tx.recovery.holds_back() {
            return Ok(None);
        }
        let in_flight = tx.in_flight(outstanding);
        if in_flight >= cwnd && in_flight > 0 {
            return Ok(None);
        }
        let out = self.retransmit(core, cx, index)?;
        if let Some(tx) = self.tx.get() {
            if tx.recovery.phase() == Phase::Recovery {
                core.stats.sack_rexmits += 1;
                core.stats.sack_rexmit_bytes += out.frame.chain_len() as u64;
            }
        }
        Ok(Some(out))
    }

    /// Sends the record at `index` again, at most one segment of it.
    pub(crate) fn retransmit(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        index: usize,
    ) -> Result<IpOutput, NoFrame> {
        let mss = self.effective_mss();
        let data_seq = self.data_seq();
        let Some(tx) = self.tx.get_mut() else { return Err(NoFrame) };
        let Some(&record) = tx.board.get(index) else { return Err(NoFrame) };
        let data = record.len - u32::from(record.is(scoreboard::FIN));
        if data > mss {
            tx.board.split(index, mss);
        }
        let record = tx.board.get(index).copied().unwrap_or(record);
        let fin = record.is(scoreboard::FIN);
        let len = record.len - u32::from(fin);
        let mut flags = TcpFlags::ACK;
        if fin {
            flags |= TcpFlags::FIN;
        }
        if record.is(scoreboard::PUSH) && len > 0 {
            flags |= TcpFlags::PSH;
        }
        let plan = Plan {
            seq: record.seq,
            offset: record.seq.since(data_seq),
            len,
            flags,
            segment_size: 0,
            last: false,
            push: false,
        };
        let out = self.build(core, cx, &plan)?;
        let stamp = self.stamps.clock(cx.now);
        if let Some(tx) = self.tx.get_mut() {
            tx.board.retransmitted(index, cx.now);
            tx.recovery.sent_again(record.len, stamp);
        }
        self.departed(core, cx.now, record.end(), record.len);
        self.count_retransmit();
        core.stats.packets_retransmitted += 1;
        core.stats.bytes_retransmitted += u64::from(len);
        Ok(out)
    }

    /// Sends what was planned and notes it.
    #[inline(always)]
    fn send_new(&mut self, core: &mut Core, cx: &mut Cx<'_>, mut plan: Plan) -> Result<IpOutput, NoFrame> {
        let (fin, now) = (plan.flags.contains(TcpFlags::FIN), cx.now);
        let planned = plan.flags;
        if plan.push {
            plan.flags |= TcpFlags::PSH;
        }
        let out = self.build(core, cx, &plan)?;
        let mut tx = self.tx.take_or(|| core.flight());
        let first = tx.board.is_empty();
        let len = plan.len + u32::from(fin);
        let mut flags = 0;
        if fin {
            flags |= scoreboard::FIN;
            self.sent_fin();
            core.stats.control_sent += 1;
        }
        if planned.contains(TcpFlags::PSH) {
            flags |= scoreboard::PUSH;
        }
        tx.board.push(Sent { seq: plan.seq, len, at: now, flags });
        core.recount(&mut tx);
        tx.recovery.sent(len);
        if first {
            tx.waits_from(now);
        }
        let end = plan.seq + len;
        tx.writes.sent(end);
        tx.used.note(self.snd.una(), end, end.since(self.snd.una()));
        if 0 < plan.len && plan.len < plan.segment_size {
            tx.sent_small(end);
        }
        self.tx.put_back(tx);
        self.snd.sent(end);
        self.departed(core, now, end, len);
        if plan.len > 0 {
            self.wake_writer_with_room(core);
            core.stats.data_packets_sent += u64::from(plan.segments(plan.segment_size));
            core.stats.data_bytes_sent += u64::from(plan.len);
            self.note_answer_to_data(core, now);
            self.snd.sent_at(now.as_millis() as u32);
        }
        self.sent_what_was_due();
        if first || self.timers.is_probe() {
            self.arm_rto(core, now);
        }
        self.arm_tail_probe(core, now);
        Ok(out)
    }

    /// RFC 8985 §7.3: new data if the windows let it out, else the last segment again.
    fn probe_tail(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<Option<IpOutput>, NoFrame> {
        let Some(last) = self.tx.get().map(|tx| tx.board.len()).filter(|len| *len > 0) else {
            self.tail_was_probed();
            return Ok(None);
        };
        let mss = self.effective_mss();
        let mut index = last - 1;
        if let Some(tx) = self.tx.get_mut() {
            let Some(&record) = tx.board.get(index) else { return Ok(None) };
            let data = record.len - u32::from(record.is(scoreboard::FIN));
            if data > mss {
                // The last segment of a batch.
                let tail = match data % mss {
                    0 => mss,
                    rest => rest,
                };
                tx.board.split(index, data - tail);
                index += 1;
            }
        }
        let out = self.retransmit(core, cx, index)?;
        self.tail_was_probed();
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.probe_was_sent_again();
        }
        core.stats.tail_loss_probes += 1;
        Ok(Some(out))
    }

    /// A probe with an old sequence number and no data: whatever the peer's window, it must answer. Used for a closed
    /// window (RFC 9293 §3.8.6.1, MUST-35) and for keep-alive (§3.8.4).
    fn send_probe(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let out = self.build(core, cx, &Plan::bare(self.snd.una() - 1))?;
        if self.has(Flags::PROBE_WINDOW) {
            core.stats.window_probes_sent += 1;
        } else {
            core.stats.keepalive_probes_sent += 1;
        }
        self.probed();
        Ok(out)
    }

    /// A bare acknowledgement.
    fn send_ack(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Result<IpOutput, NoFrame> {
        let old_adv = self.rcv.adv();
        let nothing_new = self.rcv.nxt() == self.rcv.last_ack_sent();
        let delayed = self.has(Flags::ACK_WAS_DELAYED);
        let out = self.build(core, cx, &Plan::bare(self.snd.nxt()))?;
        core.stats.ack_only_sent += 1;
        core.stats.delayed_acks_sent += u64::from(delayed);
        core.stats.window_updates_sent += u64::from(nothing_new && self.rcv.adv() != old_adv);
        Ok(out)
    }
}
