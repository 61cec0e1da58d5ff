//! Step five: the acknowledgement.

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::Seq;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::recovery::AckReport;
use crate::tcp::connection::scoreboard::{AckClock, Delivered};
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::input::{Step, Stop};
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::TcpFlags;

impl Connection {
    /// Fifth: the ACK field (RFC 9293 §3.10.7.4).
    pub(super) fn check_ack(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.is(TcpFlags::ACK) {
            return Err(Stop::Drop(DropReason::NoAck));
        }
        if self.state() == State::SynReceived {
            self.ack_in_syn_received(core, cx, seg)?;
        // Guard: `seg.ack > self.snd.nxt()` as `false` fails guards::an_acknowledgement_of_the_future
        // Guard: `seg.ack < self.snd.una() - self.snd.max_wnd()` as `false` fails
        // attacks::acknowledgements_must_be_near
        } else if seg.ack > self.snd.nxt() || seg.ack < self.snd.una() - self.snd.max_wnd() {
            // RFC 5961 §5.2: the range that may be acknowledged; RFC 9293, "if the ACK acks something not yet sent".
            core.stats.acks_for_unsent += u64::from(seg.ack > self.snd.nxt());
            self.challenge(core, cx);
            return Err(Stop::Drop(DropReason::AckOutOfRange));
        }
        // Guard: `seg.ack < self.snd.una()` as `false` fails tcp::tests::loss tcp::tests::data
        // tcp::tests::window
        if seg.ack < self.snd.una() {
            // Old, but its payload may be new, and so may what it says was received: it was overtaken on its way.
            if self.has(Flags::SACK) && !seg.options.sack.is_empty() {
                if self.snd.outstanding() > 0 {
                    self.acknowledge(core, cx, seg, 0, self.snd.wnd());
                } else {
                    self.late_report(core, seg);
                }
            }
            return Ok(());
        }
        let old_window = self.snd.wnd();
        self.update_window(core, seg);
        let acked = seg.ack.since(self.snd.una());
        if self.snd.outstanding() > 0 {
            if !self.acknowledge_whole(core, cx, seg) {
                self.acknowledge(core, cx, seg, acked, old_window);
            }
        } else if !seg.options.sack.is_empty() && self.has(Flags::SACK) {
            self.late_report(core, seg);
        }
        if self.snd.wnd() > old_window || acked > 0 {
            self.window_moved();
            if old_window == 0 && self.snd.wnd() > 0 && self.snd.outstanding() > 0 {
                self.window_reopened(core, cx.now);
            }
        }
        self.our_fin_acknowledged(core, cx)
    }

    /// SYN-RECEIVED: the acknowledgement that completes the handshake.
    fn ack_in_syn_received(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        let range = seg.ack > self.snd.una() && seg.ack <= self.snd.nxt();
        // Guard: `!range` as `false` fails tcp::tests::handshake tcp::tests::fast_open tcp::tests::attacks
        if !range {
            core.refuse_stranger(cx, &self.tuple(), seg, self.reply_meta());
            return Err(Stop::Drop(DropReason::AckOutOfRange));
        }
        if self.is_early() {
            core.listeners.fast_open_over(self);
            self.fast.put(Marks::EARLY, false);
            core.stats.syncache_completed += 1;
        } else if !self.has(Flags::ACTIVE) {
            core.hand_over(cx, self, seg)?;
        }
        if self.uses_ecn() {
            self.syn_ack_acknowledged(core, seg);
        }
        self.syn_acknowledged(core, cx);
        self.snd.first_window(u32::from(seg.window) << self.scale.snd(), seg.seq, seg.ack);
        self.establish(core, cx);
        if self.snd.outstanding() > 0 {
            self.arm_rto(core, cx.now);
        }
        if self.has(Flags::ACTIVE) {
            self.fast_open_answered(core, cx, seg);
            self.take_kept(core);
        }
        if self.has(Flags::FIN_QUEUED) {
            self.enter(&mut core.states, State::FinWait1);
        }
        Ok(())
    }

    /// The peer's window, unless the segment is an old one.
    #[inline]
    fn update_window(&mut self, core: &mut Core, seg: &Segment) {
        if self.snd.is_newer(seg.seq, seg.ack) {
            let window = u32::from(seg.window) << self.scale.snd();
            if window > self.snd.wnd() && seg.ack == self.snd.una() && seg.len == 0 {
                core.stats.window_updates_received += 1;
            }
            self.snd.take_window(window, seg.seq, seg.ack);
        }
    }

    /// All that is outstanding has arrived, and is one segment that was sent once, with nothing behind it: what requests and answers end with.
    /// Does what [`acknowledge`](Self::acknowledge) would, or nothing if it is not that; whether it is.
    #[inline]
    fn acknowledge_whole(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &Segment) -> bool {
        // Guard: `seg.ack == self.snd.nxt()` as `true` fails tcp::tests::loss tcp::tests::data
        // Guard: `!self.echoes_congestion(seg)` as `true` fails
        // tcp::tests::ecn::an_echo_on_the_last_acknowledgement
        let plain = seg.ack == self.snd.nxt()
            && seg.options.sack.is_empty()
            && !self.echoes_congestion(seg)
            && !self.has_model();
        let Some(tx) = self.tx.get_mut().filter(|_| plain) else { return false };
        let Some(sent) = tx.only_segment() else { return false };
        let bytes = tx.data.len() as u32;
        // Whoever lent bytes is told that they have arrived.
        // Guard: no `core.consume(tx, bytes);` fails sockets/zero_copy::several_buffers
        core.consume(tx, bytes);
        core.stats.bytes_acked += u64::from(bytes);
        core.stats.acks_received += 1;
        self.snd.acknowledged(seg.ack);
        self.timers.progress();
        let sample = cx.now.micros_since(sent.at);
        if core.config.hystart {
            let exits = self.congestion.on_rtt(&mut tx.hystart, sample, seg.ack, seg.ack);
            core.stats.hystart_exits += u64::from(exits);
        }
        self.sample_rtt(core, sample, cx.now);
        self.end_plain_flight(cx.now, sent.len);
        if let Some(tx) = self.tx.take() {
            core.give_flight(tx);
        }
        self.room_was_made(core, cx);
        true
    }

    /// Something is outstanding: what of it has arrived?
    pub(crate) fn acknowledge(
        &mut self,
        core: &mut Core,
        cx: &mut Cx<'_>,
        seg: &Segment,
        acked: u32,
        old_window: u32,
    ) {
        let Some(mut tx) = self.tx.take() else { return };
        let outstanding = self.snd.outstanding();
        tx.set_burst(0);
        let clock = AckClock {
            now: cx.now,
            min_rtt_us: if self.rtt.min() == u32::MAX { 0 } else { self.rtt.min() },
            echo: seg.options.timestamps.filter(|_| self.has(Flags::TIMESTAMPS)).map(|ts| ts.echo),
            ts_offset: self.stamps.offset(),
        };
        let mut report = AckReport {
            delivered: Delivered::default(),
            acked,
            prior_in_flight: tx.in_flight(outstanding),
            duplicate: acked == 0
                && seg.len == 0
                && self.snd.wnd() == old_window
                && !seg.is(TcpFlags::SYN | TcpFlags::FIN),
            dsack: false,
            twice: None,
            echo: clock.echo,
            ece: false,
        };
        let records = tx.board.unsacked_records();
        if acked > 0 {
            tx.board.acknowledge(seg.ack, &clock, &mut report.delivered);
            // Our FIN takes a number but no byte.
            let bytes = acked.min(tx.data.len() as u32);
            core.consume(&mut tx, bytes);
            self.snd.acknowledged(seg.ack);
            // Guard: no `self.timers.progress();` fails loss::progress_begins
            self.timers.progress();
            if tx.board.is_empty() {
                tx.waits_no_more();
            } else {
                tx.waits_from(cx.now);
            }
            core.stats.acks_received += 1;
            core.stats.bytes_acked += u64::from(bytes);
        } else if report.duplicate {
            core.stats.duplicate_acks += 1;
        }
        if !seg.options.sack.is_empty() && self.has(Flags::SACK) {
            core.stats.sack_options_received += 1;
            let (blocks, n, dsack) = self.valid_blocks(seg);
            report.dsack = dsack;
            report.twice = seg.options.sack.as_slice().first().filter(|_| dsack).map(|b| (b.left, b.right));
            core.stats.dsacks_received += u64::from(dsack);
            tx.board.selective(&blocks[..n], self.effective_mss(), &clock, &mut report.delivered);
            core.recount(&mut tx);
        }
        if self.uses_ecn() {
            let packets = records.saturating_sub(tx.board.unsacked_records());
            report.ece = self.heed_echo(core, seg, packets, report.delivered.bytes);
        }
        self.tx.put_back(tx);
        self.measure(core, seg, &report, &clock);
        // What duplicates have told of before, without SACK.
        let told = self.tx.get().map_or(0, |tx| tx.recovery.reno_sacked());
        self.recover(core, cx.now, &report);
        if self.has_model() {
            self.model_acknowledged(core, cx.now, &report, told);
        }
        if self.tx.get().is_some_and(|tx| tx.board.is_empty() && tx.data.is_empty()) {
            if let Some(tx) = self.tx.take() {
                if let Some(undo) = tx.recovery.undo() {
                    self.keep_undo(core, cx.now, undo);
                }
                core.give_flight(tx);
            }
        }
        if acked > 0 {
            self.room_was_made(core, cx);
        }
    }

    /// Something was acknowledged: more may be written and sent.
    #[inline]
    fn room_was_made(&mut self, core: &mut Core, cx: &Cx<'_>) {
        if self.has(Flags::MSS_LOWERED) {
            self.perhaps_raise_mss(core, cx.now);
        }
        self.grow_send_buffer(core, cx);
        // What more was to come has not: without Nagle nothing waits longer than a round trip.
        if self.has(Flags::NODELAY) {
            self.set_more(false);
        }
        self.set_starved(false);
        self.wake_writer_with_room(core);
    }

    /// Nothing is outstanding: SACK blocks can only tell of something that was received twice.
    #[cold]
    fn late_report(&mut self, core: &mut Core, seg: &Segment) {
        core.stats.sack_options_received += 1;
        let (_, _, dsack) = self.valid_blocks(seg);
        if let Some(block) = seg.options.sack.as_slice().first().filter(|_| dsack) {
            core.stats.dsacks_received += 1;
            core.stats.unnecessary_retransmits += 1;
            self.undo_late((block.left, block.right));
        }
    }

    /// The blocks of the option that can be true (RFC 2018 §3, RFC 2883 §4), without the one that reports a duplicate.
    fn valid_blocks(&self, seg: &Segment) -> ([(Seq, Seq); 4], usize, bool) {
        let mut blocks = [(Seq(0), Seq(0)); 4];
        let (mut n, mut dsack) = (0, false);
        let all = seg.options.sack.as_slice();
        for (at, block) in all.iter().enumerate() {
            let (left, right) = (block.left, block.right);
            if at == 0 {
                let inside = all.get(1).is_some_and(|b| b.left <= left && right <= b.right);
                dsack = left < right && (right <= seg.ack || inside) && right <= self.snd.nxt();
                if dsack {
                    continue;
                }
            }
            // Guard: `left >= self.snd.una()` as `true` fails guards::blocks_that_cannot_be
            // Guard: `right <= self.snd.nxt()` as `true` fails guards::blocks_that_cannot_be
            if left < right && left >= self.snd.una() && right <= self.snd.nxt() {
                blocks[n] = (left, right);
                n += 1;
            }
        }
        (blocks, n, dsack)
    }

    /// RFC 6298 §3 (Karn's rule) and RFC 7323 §4.
    fn measure(&mut self, core: &mut Core, seg: &Segment, report: &AckReport, clock: &AckClock) {
        let delivered = &report.delivered;
        // Guard: `delivered.bytes == 0` as `false` fails guards::what_was_told_before
        if delivered.bytes == 0 {
            return;
        }
        let sample = match delivered.rtt_from {
            // Guard: `!delivered.retransmitted` as `true` fails guards::what_waited_behind_a_retransmission
            Some(at) if !delivered.retransmitted => Some(clock.now.micros_since(at)),
            // A retransmission: only the echo tells which transmission it answers (RFC 7323 §4.1).
            _ => clock.echo.filter(|_| report.acked > 0 && seg.ack == self.snd.una()).and_then(|echo| {
                // Guard: `!delivered.is_answered_by(echo, clock)` as `false` fails lossy::timeouts_stay
                if !delivered.is_answered_by(echo, clock) {
                    return None;
                }
                let ms = self.stamps.clock(clock.now).wrapping_sub(echo);
                // Guard: `ms < 1 << 20` as `true` fails guards::an_echo_of_the_future
                (echo != 0 && ms < 1 << 20).then(|| ms * 1000)
            }),
        };
        if let Some(sample) = sample {
            self.sample_rtt(core, sample, clock.now);
            if core.config.hystart && self.congestion.in_slow_start() && delivered.rtt_from.is_some() {
                let (una, nxt) = (self.snd.una(), self.snd.nxt());
                if let Some(tx) = self.tx.get_mut() {
                    core.stats.hystart_exits +=
                        u64::from(self.congestion.on_rtt(&mut tx.hystart, sample, una, nxt));
                }
            }
        // Guard: `report.acked > 0 && self.tx.get().is_some_and(|tx| tx.recovery.probe_is_sent_again())` as
        // `false` fails loss::a_probe_of_the_tail_does_not_hide
        } else if report.acked > 0 && self.tx.get().is_some_and(|tx| tx.recovery.probe_is_sent_again()) {
            self.timers.probed_for_nothing();
        }
    }

    /// The window opened or moved: what was stuck may go on.
    fn window_moved(&mut self) {
        if self.timers.is_probe() && self.timers.rtx_runs() && self.snd.wnd() > 0 {
            self.timers.stop_rtx();
            self.timers.forget_last_timeouts();
            if self.snd.outstanding() == 0 {
                if let Some(tx) = self.tx.get_mut() {
                    tx.waits_no_more();
                }
            }
        }
        if self.snd.outstanding() == 0 && !self.timers.is_probe() {
            // RFC 6298 §5.2: everything is acknowledged.
            self.timers.stop_rtx();
        }
    }

    /// Data that a closed window kept out may go in now: not only after the timeout that has grown meanwhile.
    fn window_reopened(&mut self, core: &Core, now: Time) {
        if let Some(tx) = self.tx.get_mut() {
            if !tx.board.is_empty() {
                tx.board.mark_lost(0);
            }
        }
        self.timers.forget_last_timeouts();
        self.arm_rto(core, now);
    }

    /// A send buffer of twice the congestion window keeps the pipe full.
    fn grow_send_buffer(&mut self, core: &Core, cx: &Cx<'_>) {
        let want = self.congestion.cwnd().saturating_mul(2).min(core.config.send_buffer.max);
        if want > self.snd.limit() && !self.has_send_buffer_set() && !core.is_scarce(cx) {
            self.snd.set_limit(want);
        }
    }

    /// What the acknowledgement of our FIN leads to (RFC 9293 §3.10.7.4, fifth step, the states after ESTABLISHED).
    fn our_fin_acknowledged(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> Step {
        if !self.has(Flags::FIN_SENT) || self.snd.una() != self.snd.nxt() {
            return Ok(());
        }
        match self.state() {
            State::FinWait1 => {
                self.enter(&mut core.states, State::FinWait2);
                self.timers.stop_rtx();
                if self.has(Flags::DETACHED) {
                    self.arm_fin_wait_2(core, cx.now);
                }
                self.wake_write();
            }
            State::Closing => {
                self.enter_time_wait(core, cx);
                return Err(Stop::Done);
            }
            State::LastAck => {
                core.kill(self, cx.now, FlowEnd::Closed, None);
                return Err(Stop::Done);
            }
            _ => {}
        }
        Ok(())
    }
}
