//! Timers. A connection has three deadlines and one entry on the lane's wheel, armed for the earliest of them. A deadline that becomes
//! later leaves the entry unchanged: it fires early, finds nothing due, and is armed again. So the retransmission timer costs one store
//! per acknowledgement.
//!
//! RFC 6298 (retransmission), RFC 9293 §3.8.3 (giving up), §3.8.4 (keep-alive), §3.8.6.1 (closed window), RFC 5482 (user
//! timeout).

use crate::packet::Cx;
use crate::tcp::connection::deadlines::RtxTimer;
use crate::tcp::connection::{Connection, Flags, State, scoreboard};
use crate::tcp::error::Failure;
use crate::tcp::lane::Core;
use crate::tcp::lane::flow_records::FlowEnd;
use crate::time::Time;

impl Connection {
    /// Whether unacknowledged data has waited longer than the application allows.
    fn user_timeout_over(&self, now: Time) -> bool {
        match (self.user_timeout(), self.waits_since()) {
            (Some(limit), Some(since)) => now >= since + limit,
            _ => false,
        }
    }

    /// The wheel's entry fired: something may be due.
    pub(crate) fn on_timer(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        let now = cx.now;
        if self.timers.take_ack(now) {
            self.ack_timer();
        }
        if let Some(kind) = self.timers.rtx_due(now) {
            match kind {
                RtxTimer::Rto => self.retransmission_timeout(core, cx),
                RtxTimer::Tlp => self.tail_probe_timer(core, now),
                RtxTimer::Reorder => self.reorder_timer(core, now),
                RtxTimer::Persist => self.persist_timeout(core, cx),
                RtxTimer::Cork => {
                    self.timers.stop_rtx();
                    self.set_force(true);
                    let end = self.data_seq() + self.buffered();
                    if let Some(tx) = self.tx.get_mut() {
                        tx.writes.end_at(Some(end));
                    }
                }
            }
        }
        if self.undo_until() <= now {
            self.forget_undo();
        }
        if self.timers.life_is_over(now) && self.state() != State::Closed {
            self.life_timer(core, cx);
        }
    }

    /// RFC 6298 §5.4 to §5.7.
    fn retransmission_timeout(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        self.timers.stop_rtx();
        let Some(front) = self.tx.get().and_then(|tx| tx.board.front().copied()) else { return };
        let limit = match self.state() {
            State::SynSent => self.options().and_then(|o| o.syn_retries).unwrap_or(core.config.syn_retries),
            State::SynReceived => core.config.synack_retries,
            _ => core.config.retries,
        };
        // RFC 9293 §3.8.6.1, MUST-37: a peer that keeps its window closed but answers is not given up.
        let answered = self.state().is_synchronized()
            && self.snd.wnd() == 0
            && cx.now < self.heard_at() + core.config.max_rto * 2;
        // Guard: `self.timers.backoff() >= limit && !answered` as `false` fails loss::given_up_after_r2
        // handshake::syn_is_repeated
        // Guard: `!answered` as `true` fails window::a_window_shut_on_data_in_flight
        // Guard: `self.user_timeout_over(cx.now)` as `false` fails loss::user_timeout
        if self.timers.backoff() >= limit && !answered || self.user_timeout_over(cx.now) {
            self.give_up(core, cx.now);
            return;
        }
        if self.drop_orphan(core, cx) {
            return;
        }
        core.stats.retransmit_timeouts += 1;
        if matches!(self.state(), State::SynSent | State::SynReceived) {
            // RFC 3168 §6.1.1.1: a lost ECN-setup SYN may have been lost for that.
            self.withdraw_ecn();
            if let Some(tx) = self.tx.get_mut() {
                tx.board.mark_lost(0);
            }
        } else {
            self.suspect_black_hole(core, cx.now, front.len - u32::from(front.is(scoreboard::FIN)));
            self.timeout_recovery(core, cx.now);
        }
        // Guard: no `self.timers.back_off();` fails loss::retransmission_timeout_backs_off
        self.timers.back_off();
        self.arm_rto(core, cx.now);
    }

    /// What nobody waits for is not kept while the lane has no memory for others: whether it was reset.
    fn drop_orphan(&mut self, core: &mut Core, cx: &mut Cx<'_>) -> bool {
        let drop = core.is_tight() && self.has(Flags::DETACHED) && self.buffered() > 0;
        if drop {
            core.stats.orphan_drops += 1;
            self.send_reset(core, cx);
            core.kill(self, cx.now, FlowEnd::ResetByUs, None);
        }
        drop
    }

    /// R2 is reached (RFC 9293 §3.8.3, MUST-20, MUST-23).
    fn give_up(&mut self, core: &mut Core, now: Time) {
        match self.state() {
            State::SynReceived => core.stats.syncache_stale += 1,
            State::SynSent => {
                core.stats.bad_attempts += 1;
                self.fast_open_unanswered(core, now);
            }
            _ => core.stats.retransmit_drops += 1,
        }
        let failure = self.soft_failure().unwrap_or(Failure::TimedOut);
        let end = match (self.state(), failure) {
            (State::SynReceived, _) if !self.has(Flags::ACTIVE) => FlowEnd::HalfOpen,
            (_, Failure::TimedOut) => FlowEnd::TimedOut,
            (_, Failure::Refused) => FlowEnd::Refused,
            _ => FlowEnd::Unreachable,
        };
        core.kill(self, now, end, Some(failure));
    }

    /// RFC 9293 §3.8.6.1, MUST-35, MUST-36, MUST-37: probe a closed window at growing intervals, as long as it is answered.
    fn persist_timeout(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        self.timers.stop_rtx();
        let fin = self.has(Flags::FIN_QUEUED) && !self.has(Flags::FIN_SENT);
        if self.snd.outstanding() > 0 || self.unsent() == 0 && !fin {
            return;
        }
        // Guard: `self.has(Flags::DETACHED)` as `false` fails guards::a_shut_window_is_probed_longer
        // Guard: `self.timers.probes() >= core.config.retries / 2` as `true` fails
        // guards::a_shut_window_is_probed_longer
        let orphan = self.has(Flags::DETACHED) && self.timers.probes() >= core.config.retries / 2;
        // Guard: `self.timers.probes() >= core.config.retries` as `false` fails
        // window::unanswered_probes_end_it
        if self.timers.probes() >= core.config.retries || self.user_timeout_over(cx.now) || orphan {
            core.stats.persist_drops += 1;
            self.send_reset(core, cx);
            core.kill(self, cx.now, FlowEnd::TimedOut, Some(Failure::TimedOut));
            return;
        }
        if self.drop_orphan(core, cx) {
            return;
        }
        core.stats.persist_timeouts += 1;
        self.timers.count_probe();
        self.timers.back_off();
        if self.snd.wnd() > 0 {
            // RFC 9293 §3.8.6.2.1 (4): the window is open but small; what fits goes out now.
            self.set_force(true);
        } else {
            self.probe_window();
        }
        let timeout = self.rtt.timeout(self.timers.doublings(), core.timeouts);
        self.timers.start_rtx(RtxTimer::Persist, cx.now.plus_micros(timeout));
        self.heed_user_timeout();
    }

    /// Keep-alive, FIN-WAIT-2 or linger.
    fn life_timer(&mut self, core: &mut Core, cx: &mut Cx<'_>) {
        self.timers.stop_life();
        if self.has(Flags::DETACHED) {
            // Guard: `self.state() == State::FinWait2` as `false` fails tcp::tests::close
            if self.state() == State::FinWait2 {
                core.stats.fin_wait_2_drops += 1;
                core.kill(self, cx.now, FlowEnd::TimedOut, None);
            } else {
                // The application did not want to linger any longer (RFC 9293 §3.9.1.5 with SO_LINGER).
                self.send_reset(core, cx);
                core.kill(self, cx.now, FlowEnd::ResetByUs, None);
            }
            return;
        }
        if !self.has(Flags::KEEPALIVE) || !self.state().is_synchronized() {
            return;
        }
        let keepalive = self.keepalive();
        let due = self.heard_at() + keepalive.idle;
        // Guard: `due > cx.now` as `false` fails tcp::tests::keepalive
        if due > cx.now {
            self.timers.limit_life(cx.now, due.saturating_duration_since(cx.now));
            return;
        }
        // MUST-24: only while nothing of ours is on its way; then the other timers watch.
        // Guard: `self.snd.outstanding() > 0 || self.unsent() > 0` as `false` fails
        // keepalive::no_probe_while_data
        if self.snd.outstanding() > 0 || self.unsent() > 0 {
            self.timers.limit_life(cx.now, keepalive.idle);
            return;
        }
        core.stats.keepalive_timeouts += 1;
        let limit = match self.user_timeout() {
            Some(limit) => cx.now >= self.heard_at() + limit && self.timers.probes() > 0,
            // Guard: `self.timers.probes() >= keepalive.probes` as `true` fails tcp::tests::keepalive
            None => self.timers.probes() >= keepalive.probes,
        };
        if limit {
            core.stats.keepalive_drops += 1;
            self.send_reset(core, cx);
            core.kill(self, cx.now, FlowEnd::TimedOut, Some(Failure::TimedOut));
            return;
        }
        self.timers.count_probe();
        self.probe_alive();
        self.timers.limit_life(cx.now, keepalive.interval);
    }
}
