//! A segment in SYN-SENT (RFC 9293 §3.10.7.3).

use core::time::Duration;

use crate::packet::Cx;
use crate::stats::tcp::DropReason;
use crate::tcp::connection::fast_open::Marks;
use crate::tcp::connection::{Connection, Flags, State};
use crate::tcp::input::{Step, Stop};
use crate::tcp::lane::Core;
use crate::tcp::segment::Segment;
use crate::time::Time;
use crate::wire::TcpFlags;

/// After the reset that ends what the peer remembers of an earlier connection, the SYN comes again. Linux waits for two ticks of its clock.
const AGAIN: Duration = Duration::from_millis(5);

impl Connection {
    pub(super) fn input_syn_sent(&mut self, core: &mut Core, cx: &mut Cx<'_>, seg: &mut Segment) -> Step {
        // First: the ACK bit. Only our SYN can have been acknowledged.
        let ack = seg.is(TcpFlags::ACK);
        let ours = seg.ack > self.snd.una() && seg.ack <= self.snd.nxt();
        // Guard: `ack && !(ours && self.echoes_us(cx.now, seg))` as `false` fails
        // handshake::an_old_connection
        // Guard: `ours` as `true` fails tcp::tests::handshake tcp::tests::attacks
        // Guard: `self.echoes_us(cx.now, seg)` as `true` fails fast_open_active::a_foreign_echo_is_refused
        if ack && !(ours && self.echoes_us(cx.now, seg)) {
            core.stats.acks_for_unsent += u64::from(!ours);
            if !seg.is(TcpFlags::RST) {
                // The reset ends what the peer remembers of an earlier connection. The SYN comes again when its time is over (RFC 6298 §5),
                // since nobody knows who says so; but once, the first one, a moment later if it was refused for its timestamp.
                // Guard: `self.was_refused_for_its_timestamp(cx.now, seg)` as `true` fails
                // handshake::an_old_connection handshake::a_syn_refused_for_its_timestamp
                let again = self.was_refused_for_its_timestamp(cx.now, seg) && self.timers.backoff() == 0;
                // Guard: `again && self.timers.hasten_rto(cx.now + AGAIN)` as `false` fails
                // handshake::a_syn_refused_for_its_timestamp handshake::connections_that_begin
                if again && self.timers.hasten_rto(cx.now + AGAIN) {
                    core.refuse(cx, &self.tuple(), seg, self.reply_meta());
                } else {
                    core.refuse_stranger(cx, &self.tuple(), seg, self.reply_meta());
                }
            }
            return Err(Stop::Drop(DropReason::BadSynAck));
        }
        // Second: RST.
        if seg.is(TcpFlags::RST) {
            // Guard: no `if ack { core.stats.bad_attempts += 1; self.was_reset(core, cx.now); return
            // Err(Stop::Done); }` fails handshake::refused
            if ack {
                core.stats.bad_attempts += 1;
                self.was_reset(core, cx.now);
                return Err(Stop::Done);
            }
            return Err(Stop::Drop(DropReason::ResetNotExact));
        }
        // Fourth: SYN.
        if !seg.is(TcpFlags::SYN) {
            return Err(Stop::Drop(DropReason::NotSyn));
        }
        self.take_peer_syn(core, cx, seg);
        core.flows.peer_begins(self);
        if !ack {
            // Simultaneous open: SYN-ACK with the same sequence number (RFC 9293 §3.5, figure 7).
            self.enter(&mut core.states, State::SynReceived);
            // Guard: no `self.ecn_asked_by_both(&core.config, seg);` fails ecn::both_ask
            self.ecn_asked_by_both(&core.config, seg);
            if let Some(tx) = self.tx.get_mut() {
                if !tx.board.is_empty() {
                    tx.board.mark_lost(0);
                }
            }
            self.keep_for_later(core, cx, seg)?;
            return Err(Stop::Done);
        }
        self.ecn_answered(&core.config, seg);
        self.syn_acknowledged(core, cx);
        self.snd.first_window(u32::from(seg.window), seg.seq, seg.ack);
        self.establish(core, cx);
        self.fast_open_answered(core, cx, seg);
        if self.has(Flags::FIN_QUEUED) {
            self.enter(&mut core.states, State::FinWait1);
        }
        if self.tells_of_syn_ack() {
            // Before data that waits: only a bare acknowledgement tells how the SYN-ACK arrived (RFC 9768 §3.2.2.1).
            // Guard: no `self.set_answers_alone(true);` fails accurate::a_bare_acknowledgement_before_data
            self.set_answers_alone(true);
            self.ack_at_once();
        } else if self.fast.has(Marks::REST) {
            // Whoever waits to write goes on with the conversation.
            self.ack_with_data();
            self.timers.delay_ack(cx.now + core.config.delayed_ack);
        } else {
            self.ack_at_once();
        }
        // Payload behind the SYN-ACK's SYN, and a FIN, go on as if they had come alone.
        seg.seq += 1;
        seg.flags = seg.flags.without(TcpFlags::SYN);
        if seg.len == 0 && !seg.is(TcpFlags::FIN) {
            return Err(Stop::Done);
        }
        let data = self.take_data(core, cx, seg);
        self.check_fin(core, cx, seg);
        data
    }

    /// Whether this is what a peer in TIME-WAIT answers, to which our timestamp is older than its earlier connection's (RFC 7323 §5.3, R1): an
    /// acknowledgement alone, which echoes a timestamp that we did not send.
    fn was_refused_for_its_timestamp(&self, now: Time, seg: &Segment) -> bool {
        // Guard: `!seg.is(TcpFlags::SYN | TcpFlags::FIN)` as `true` fails
        // handshake::a_syn_refused_for_its_timestamp
        !seg.is(TcpFlags::SYN | TcpFlags::FIN) && seg.len == 0 && !self.echoes_us(now, seg)
    }

    /// Whether a timestamp that is echoed to our SYN is one that we sent.
    fn echoes_us(&self, now: Time, seg: &Segment) -> bool {
        let (Some(ts), Some(since)) = (seg.options.timestamps, self.waits_since()) else {
            return true;
        };
        let first = self.stamps.clock(since);
        let span = self.stamps.clock(now).wrapping_sub(first);
        !self.has(Flags::TIMESTAMPS) || ts.echo == 0 || ts.echo.wrapping_sub(first) <= span
    }
}
