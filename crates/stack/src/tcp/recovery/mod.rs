//! Loss recovery and its effect on the congestion window.
//!
//! With SACK, RACK decides what is lost (RFC 8985, `rack_tlp`); it contains the three-duplicates rule of RFC 6675. Without
//! SACK, duplicate acknowledgements are counted (RFC 5681 §3.2, RFC 6582). Either way the losses are marked on the
//! scoreboard, the number of bytes in flight follows from it, and proportional rate reduction (RFC 9937) sets the window
//! during the episode, unless a model of the path does (`model`).

mod rack_tlp;
mod undo;

use crate::tcp::connection::congestion::{Acked, Hystart};
use crate::tcp::connection::deadlines::RtxTimer;
use crate::tcp::connection::recovery::{AckReport, Phase};
use crate::tcp::connection::scoreboard::Delivered;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::time::Time;

impl Connection {
    /// An acknowledgement while data was outstanding.
    pub(crate) fn recover(&mut self, core: &mut Core, now: Time, report: &AckReport) {
        if self.is_end_of_plain_flight(report) {
            let mss = self.effective_mss();
            return self.end_plain_flight(now, report.delivered.bytes.max(mss.min(report.acked)));
        }
        let lost_before = self.tx.get().map_or(0, |tx| tx.board.lost());
        // Without SACK, duplicates have told of some of it before.
        let told = self.tx.get().map_or(0, |tx| tx.recovery.reno_sacked());
        if self.has(Flags::SACK) {
            self.rack_update(core, now, report);
        } else {
            self.count_duplicates(report);
        }
        let undone = self.perhaps_undo(report);
        if undone && self.has_model() {
            self.model_undone(core, now);
        }
        // What is echoed in the acknowledgement that ends an episode was marked before it (RFC 3168 §6.1.2).
        let left = self.leave_recovery(report);
        let marked = report.ece && !left;
        self.enter_recovery(core, report, marked);
        let mss = self.effective_mss();
        let outstanding = self.snd.outstanding();
        let una_advanced = report.acked > 0;
        let ssthresh = self.congestion.ssthresh();
        let partial = una_advanced && !self.has(Flags::SACK) && report.delivered.bytes > 0;
        let Some(tx) = self.tx.get_mut() else { return };
        match tx.recovery.phase() {
            Phase::Recovery | Phase::Cwr => {
                let in_flight = tx.in_flight(outstanding);
                let safe = una_advanced && tx.board.lost() <= lost_before;
                let delivered = report.delivered.bytes;
                let more = tx.recovery.allowance(in_flight, ssthresh, delivered, mss, safe);
                // RFC 6582 §3.2, step 3: a partial acknowledgement sends the next hole, whatever the window.
                let more =
                    if partial && tx.recovery.phase() == Phase::Recovery { more.max(mss) } else { more };
                self.congestion.set_window((in_flight + more).max(mss));
            }
            Phase::Open | Phase::Loss => {
                if una_advanced && !undone && !marked {
                    let bytes = report.delivered.bytes.saturating_sub(told).max(mss.min(report.acked));
                    self.grow_window(now, bytes);
                }
            }
        }
        // Whatever else happened, data in flight always has a timer.
        if una_advanced || report.delivered.sacked > 0 || !self.timers.rtx_runs() {
            self.rearm_rtx(core, now, una_advanced);
        }
    }

    /// So many bytes have arrived outside recovery: the window grows if it was used.
    #[inline]
    fn grow_window(&mut self, now: Time, bytes: u32) {
        let mss = self.effective_mss();
        let Some(tx) = self.tx.get() else { return };
        // In slow start a window used by half still counts as used: it doubles in one round.
        let half =
            self.congestion.in_slow_start() && tx.used.peak().saturating_mul(2) > self.congestion.cwnd();
        if half || self.has(Flags::CWND_LIMITED) {
            let acked = Acked { bytes, mss, srtt_us: self.rtt.srtt(), now };
            self.congestion.on_ack(&acked, &tx.hystart);
        }
    }

    /// Whether all that was out has arrived and nothing more is to be sent, without any doubt on the way: what requests and
    /// answers end with. The flight and all it knew goes back to the lane.
    #[inline]
    fn is_end_of_plain_flight(&self, report: &AckReport) -> bool {
        let delivered = &report.delivered;
        let plain = !report.ece && !report.dsack && !delivered.reordered && !delivered.retransmitted;
        plain
            && report.acked > 0
            && self.snd.outstanding() == 0
            && self.tx.get().is_some_and(|tx| tx.data.is_empty() && tx.recovery.is_plain())
    }

    /// So many bytes ended it.
    pub(crate) fn end_plain_flight(&mut self, now: Time, bytes: u32) {
        self.grow_window(now, bytes);
        self.timers.stop_reordering();
        if !self.timers.is_probe() {
            self.timers.stop_rtx();
        }
    }

    /// Without SACK.
    fn count_duplicates(&mut self, report: &AckReport) {
        let (una, outstanding, mss) = (self.snd.una(), self.snd.outstanding(), self.effective_mss());
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.count_duplicates(&mut tx.board, report, una, outstanding, mss);
        }
    }

    /// Everything that was out when the episode began has arrived.
    fn leave_recovery(&mut self, report: &AckReport) -> bool {
        let una = self.snd.una();
        let ssthresh = self.congestion.ssthresh();
        let Some(tx) = self.tx.get_mut() else { return false };
        if report.acked == 0 {
            return false;
        }
        let Some(phase) = tx.recovery.leave(una) else { return false };
        if matches!(phase, Phase::Recovery | Phase::Cwr) {
            // RFC 9937 §6, end of recovery; RFC 6582 §3.2, step 3, full acknowledgement.
            self.congestion.set_window(ssthresh);
        }
        self.end_recovery_of_reordering();
        true
    }

    /// Losses found by a timer: begins an episode as an acknowledgement would have.
    pub(crate) fn recover_after_timer(&mut self, core: &mut Core) {
        let (outstanding, mss) = (self.snd.outstanding(), self.effective_mss());
        let Some(tx) = self.tx.get() else { return };
        let report = AckReport {
            delivered: Delivered::default(),
            acked: 0,
            prior_in_flight: tx.in_flight(outstanding) + (tx.board.lost() - tx.board.retrans()),
            duplicate: false,
            dsack: false,
            twice: None,
            echo: None,
            ece: false,
        };
        self.enter_recovery(core, &report, false);
        let ssthresh = self.congestion.ssthresh();
        let Some(tx) = self.tx.get_mut() else { return };
        if tx.recovery.phase() == Phase::Recovery {
            let in_flight = tx.in_flight(outstanding);
            let more = tx.recovery.allowance(in_flight, ssthresh, 0, mss, false);
            self.congestion.set_window((in_flight + more).max(mss));
        }
    }

    /// Begins an episode if something is newly lost, or if the peer echoes congestion (RFC 3168 §6.1.2).
    fn enter_recovery(&mut self, core: &mut Core, report: &AckReport, marked: bool) {
        let (una, nxt, mss) = (self.snd.una(), self.snd.nxt(), self.effective_mss());
        let Some(tx) = self.tx.get_mut() else { return };
        if una == nxt {
            if marked {
                self.reduce_at_once(core, report.acked);
            }
            return;
        }
        let Some((loss, reduce)) = tx.recovery.enter(tx.board.lost() > 0, marked, nxt) else { return };
        if loss {
            core.stats.sack_recovery_episodes += 1;
        } else {
            core.stats.ecn_reductions += 1;
        }
        self.tell_of_reduction();
        if reduce {
            if loss {
                self.remember_window();
            }
            let flight_size = nxt.since(una) + report.acked;
            self.congestion.on_congestion(flight_size, mss);
            if let Some(tx) = self.tx.get_mut() {
                tx.hystart = Hystart::default();
                // RFC 9937 §6: what had been selectively acknowledged before will not be delivered again.
                let before = tx.board.sacked().saturating_sub(report.delivered.sacked);
                // Guard: `flight_size.saturating_sub(before)` as `flight_size` fails
                // loss::the_reduction_is_proportional
                tx.recovery.reduce_from(flight_size.saturating_sub(before));
            }
        }
    }

    /// The peer echoes congestion where it acknowledges all that was out (RFC 3168 §6.1.2), so many bytes: the round over which the window
    /// would be reduced is over, and nothing is left that could be marked again before the peer hears of it.
    #[cold]
    fn reduce_at_once(&mut self, core: &mut Core, flight_size: u32) {
        let mss = self.effective_mss();
        core.stats.ecn_reductions += 1;
        self.tell_of_reduction();
        self.congestion.on_congestion(flight_size, mss);
        // Guard: no `self.congestion.end_round();` fails ecn::an_echo_on_the_last_acknowledgement
        self.congestion.end_round();
        if let Some(tx) = self.tx.get_mut() {
            tx.hystart = Hystart::default();
        }
    }

    /// A retransmission timeout (RFC 6298 §5.4, RFC 5681 §3.1, RFC 6675 §5.1): everything not selectively acknowledged is
    /// deemed lost, and the window is one segment.
    pub(crate) fn timeout_recovery(&mut self, core: &mut Core, now: Time) {
        let (una, nxt, mss) = (self.snd.una(), self.snd.nxt(), self.effective_mss());
        let Some(tx) = self.tx.get_mut() else { return };
        // One reduction for one window of data: not again for the same data, nor when recovery has just reduced.
        let first = self.timers.backoff() == 0 && tx.recovery.is_new(una);
        let reneged = tx.board.mark_all_lost();
        core.stats.sack_reneges += u64::from(reneged);
        let fresh = first || tx.recovery.phase() == Phase::Open;
        if fresh {
            self.remember_window();
        }
        let sack = self.has(Flags::SACK) && !reneged;
        let Some(tx) = self.tx.get_mut() else { return };
        tx.recovery.timed_out(nxt, sack.then_some(now));
        if fresh {
            tx.hystart = Hystart::default();
        }
        self.congestion.on_timeout(nxt.since(una), mss, fresh);
        if self.has_model() {
            self.model_timed_out(core, now);
        }
        self.tail_was_probed();
    }

    /// Sets the one retransmission timer for what is outstanding now (RFC 6298 §5.2, §5.3; RFC 8985 §7.2).
    pub(crate) fn rearm_rtx(&mut self, core: &Core, now: Time, restart: bool) {
        if self.snd.outstanding() == 0 {
            if !self.timers.is_probe() {
                self.timers.stop_rtx();
            }
            return;
        }
        if self.rack_timer_pending() {
            return;
        }
        // A tail loss probe is for a connection without known losses.
        let troubled =
            self.tx.get().is_some_and(|tx| tx.recovery.phase() != Phase::Open || tx.board.sacked() > 0);
        let no_probe = troubled && self.timers.rtx_kind() == RtxTimer::Tlp;
        if restart || no_probe || !self.timers.rtx_runs() || self.timers.is_probe() {
            self.arm_rto(core, now);
        }
        self.arm_tail_probe(core, now);
    }
}
