//! RACK-TLP (RFC 8985): loss by time, and probes for losses at the tail.
//!
//! RACK deems a segment lost when one sent sufficiently later has arrived. TLP sends something when acknowledgements stop
//! coming, so that a loss of the last segments is found by RACK and not by the much longer timeout.

use crate::tcp::connection::congestion::Hystart;
use crate::tcp::connection::deadlines::RtxTimer;
use crate::tcp::connection::recovery::{AckReport, DUP_THRESH, Phase, Reordering};
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::lane::Core;
use crate::time::Time;
use core::time::Duration;

impl Connection {
    /// RFC 8985 §6.2, steps 1 to 5, on an acknowledgement.
    pub(crate) fn rack_update(&mut self, core: &mut Core, now: Time, report: &AckReport) {
        let (una, nxt, mss) = (self.snd.una(), self.snd.nxt(), self.effective_mss());
        let Some(tx) = self.tx.get_mut() else { return };
        // Steps 1 and 2.
        tx.recovery.delivered(&report.delivered, now);
        let begins = tx.recovery.begins_dsack_round(una, nxt, report.dsack);
        // Step 3: reordering.
        if report.delivered.reordered {
            let segments = report.delivered.reach.div_ceil(mss.max(1));
            self.learn_reordering(|reordering| reordering.saw(segments));
        }
        // Step 4: the reordering window follows D-SACKs, once a round.
        if begins {
            self.learn_reordering(Reordering::widen);
        }
        core.stats.unnecessary_retransmits += u64::from(report.dsack);
        self.check_tail_probe(core, report);
        self.rack_detect(now);
    }

    /// RFC 8985 §6.2, step 4: how much later is "sufficiently later".
    fn reordering_window(&self) -> Duration {
        let Some(tx) = self.tx.get() else { return Duration::ZERO };
        let reordering = self.reordering();
        if !reordering.is_seen() {
            let mss = self.effective_mss().max(1);
            let sacked = (tx.board.sacked() / mss).max(tx.board.sacked_records());
            if matches!(tx.recovery.phase(), Phase::Recovery | Phase::Loss) || sacked >= DUP_THRESH {
                return Duration::ZERO;
            }
        }
        let min = if self.rtt.min() == u32::MAX { 0 } else { self.rtt.min() };
        Duration::from_micros(reordering.window(min).min(u64::from(self.rtt.srtt())))
    }

    /// RFC 8985 §6.2, step 5 (`RACK_detect_loss`): marks losses; arms the timer for those still within the window.
    fn rack_detect(&mut self, now: Time) {
        let window = self.reordering_window();
        let Some(tx) = self.tx.get_mut() else { return };
        let Some(wait) = tx.recovery.detect_losses(&mut tx.board, window, now) else { return };
        if !wait.is_zero() {
            self.timers.start_rtx(RtxTimer::Reorder, now + wait);
        } else {
            self.timers.stop_reordering();
        }
    }

    /// Whether the timer now runs for RACK.
    pub(crate) fn rack_timer_pending(&self) -> bool {
        self.timers.rtx_kind() == RtxTimer::Reorder && self.timers.rtx_runs()
    }

    /// RFC 8985 §6.3: the reordering window of some segment is over.
    pub(crate) fn reorder_timer(&mut self, core: &mut Core, now: Time) {
        self.timers.stop_rtx();
        self.rack_detect(now);
        self.recover_after_timer(core);
        if self.has_model() {
            self.model_lost(core, now);
        }
        self.rearm_rtx(core, now, false);
    }

    /// RFC 8985 §7.2: arms the probe timer if the state of the connection allows.
    pub(crate) fn arm_tail_probe(&mut self, core: &Core, now: Time) {
        let mss = self.effective_mss();
        let outstanding = self.snd.outstanding();
        let Some(tx) = self.tx.get() else { return };
        let allowed = self.has(Flags::SACK)
            && tx.recovery.phase() == Phase::Open
            && !tx.recovery.probe_is_out()
            && tx.board.sacked() == 0
            && self.rtt.srtt() > 0
            // Until a round trip is measured its length is in doubt: a probe after two of the old ones would hide the next, too.
            // Guard: `self.timers.doublings() == 0` as `true` fails loss::a_probe_of_the_tail_does_not_hide
            && self.timers.doublings() == 0
            && self.state().is_synchronized()
            && matches!(self.timers.rtx_kind(), RtxTimer::Rto | RtxTimer::Tlp)
            && outstanding > 0;
        if !allowed {
            return;
        }
        // RFC 8985 §7.2, TLP_calc_PTO: two round-trip times, and the peer's delayed acknowledgement for a lone segment.
        let delay = if outstanding <= mss { MAX_ACK_DELAY } else { 0 };
        let at = now.plus_micros((u64::from(self.rtt.srtt()) * 2 + delay).max(MIN_PTO));
        // New data pushes the probe back; the timeout it replaces bounds it.
        let bound = if self.timers.rtx_kind() == RtxTimer::Tlp {
            now.plus_micros(self.rtt.timeout(0, core.timeouts))
        } else {
            self.timers.rtx_at()
        };
        // "If the RTO would fire first, the probe goes out in its place" (RFC 8985 §7.2).
        // Guard: `at.min(bound)` as `at` fails loss::a_probe_in_place
        self.timers.start_rtx(RtxTimer::Tlp, at.min(bound));
        self.heed_user_timeout();
    }

    /// RFC 8985 §7.3: the probe timer fired.
    pub(crate) fn tail_probe_timer(&mut self, core: &mut Core, now: Time) {
        let new_data = self.unsent() > 0 && self.snd.wnd() > self.snd.outstanding();
        let nxt = self.snd.nxt();
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.probe_tail(nxt);
        }
        self.want_tail_probe();
        core.stats.tail_loss_probes += u64::from(new_data);
        self.arm_rto(core, now);
    }

    /// RFC 8985 §7.4: did the probe repair a loss? If so, it counts as congestion.
    fn check_tail_probe(&mut self, core: &mut Core, report: &AckReport) {
        let una = self.snd.una();
        let mss = self.effective_mss();
        let Some(tx) = self.tx.get_mut() else { return };
        if tx.recovery.probe_repaired(una, report) {
            core.stats.tail_loss_recoveries += 1;
            let flight_size = report.prior_in_flight.max(report.acked);
            tx.hystart = Hystart::default();
            self.congestion.on_congestion(flight_size, mss);
            self.congestion.end_round();
            self.tell_of_reduction();
        }
    }
}

/// What a peer may delay an acknowledgement by (RFC 8985 §7.2, WCDelAckT), microseconds.
const MAX_ACK_DELAY: u64 = 200_000;
/// Two ticks of the timer wheel, microseconds.
const MIN_PTO: u64 = 2_000;
