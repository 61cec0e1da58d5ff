//! RACK-TLP (RFC 8985): loss by time, and probes for losses at the tail.
//!
//! RACK deems a segment lost when one sent sufficiently later has arrived. TLP sends something when acknowledgements stop
//! coming, so that a loss of the last segments is found by RACK and not by the much longer timeout.

use super::DUP_THRESH;
use super::Phase;
use crate::tcp::congestion::Hystart;
use crate::tcp::connection::{Connection, Flags};
use crate::tcp::input::AckReport;
use crate::tcp::lane::Core;
use crate::tcp::scoreboard::{EVER_RETRANS, LOST, RETRANS, SACKED};
use crate::tcp::timers::RtxTimer;
use crate::time::Time;
use core::time::Duration;

impl Connection {
    /// RFC 8985 §6.2, steps 1 to 5, on an acknowledgement.
    pub(crate) fn rack_update(&mut self, core: &mut Core, now: Time, report: &AckReport) {
        let (una, nxt, mss) = (self.snd.una(), self.snd.nxt(), self.effective_mss());
        let Some(tx) = self.tx.get_mut() else { return };
        // Steps 1 and 2: the most recently sent segment that has been delivered. Which measurements are to be believed was
        // decided when it was taken off the scoreboard.
        if let Some((at, end)) = report.delivered.newest {
            let newer = tx
                .recovery
                .rack
                .xmit
                .is_none_or(|xmit| at > xmit || at == xmit && end > tx.recovery.rack.end);
            if newer {
                tx.recovery.rack.xmit = Some(at);
                tx.recovery.rack.end = end;
            }
        }
        // RACK.rtt is that of the segment delivered last, which need not be the one sent last.
        if let Some(at) = report.delivered.latest {
            tx.recovery.rack.rtt_ns = now.saturating_duration_since(at).as_nanos() as u64;
        }
        // Step 3: reordering.
        if report.delivered.reordered {
            self.reordering.seen = true;
            let segments = report.delivered.reach.div_ceil(mss.max(1)).min(255);
            self.reordering.degree = self.reordering.degree.max(segments as u8);
        }
        // Step 4: the reordering window follows D-SACKs, once a round.
        if tx.recovery.rack.dsack_round.is_some_and(|round| una >= round) {
            tx.recovery.rack.dsack_round = None;
        }
        if report.dsack && tx.recovery.rack.dsack_round.is_none() {
            tx.recovery.rack.dsack_round = Some(nxt);
            self.reordering.more = self.reordering.more.saturating_add(1);
            self.reordering.persist = REO_WND_PERSIST;
        }
        core.stats.unnecessary_retransmits += u64::from(report.dsack);
        self.check_tail_probe(core, report);
        self.rack_detect(now);
    }

    /// RFC 8985 §6.2, step 4: how much later is "sufficiently later".
    fn reordering_window(&self) -> Duration {
        let Some(tx) = self.tx.get() else { return Duration::ZERO };
        if !self.reordering.seen {
            let mss = self.effective_mss().max(1);
            let sacked = (tx.board.sacked() / mss).max(tx.board.sacked_records());
            if matches!(tx.recovery.phase, Phase::Recovery | Phase::Loss) || sacked >= DUP_THRESH {
                return Duration::ZERO;
            }
        }
        let min = if self.rtt.min() == u32::MAX { 0 } else { self.rtt.min() };
        let window = u64::from(min) * (u64::from(self.reordering.more) + 1) / 4;
        Duration::from_micros(window.min(u64::from(self.rtt.srtt())))
    }

    /// RFC 8985 §6.2, step 5 (`RACK_detect_loss`): marks losses; arms the timer for those still within the window.
    fn rack_detect(&mut self, now: Time) {
        let window = self.reordering_window();
        let Some(tx) = self.tx.get_mut() else { return };
        let Some(xmit) = tx.recovery.rack.xmit else { return };
        let (end, rtt) = (tx.recovery.rack.end, Duration::from_nanos(tx.recovery.rack.rtt_ns));
        let mut wait = Duration::ZERO;
        for index in 0..tx.board.len() {
            let Some(&sent) = tx.board.get(index) else { break };
            let before = sent.at < xmit || sent.at == xmit && sent.end() < end;
            if !before {
                // Records never sent again are in order of time; behind the last that was, nothing can be older.
                if !sent.is(EVER_RETRANS) && sent.seq >= tx.board.rexmit_high() {
                    break;
                }
                continue;
            }
            if sent.is(SACKED) || sent.flags & (LOST | RETRANS) == LOST {
                continue;
            }
            let left = (sent.at + rtt + window).saturating_duration_since(now);
            if left.is_zero() {
                tx.board.mark_lost(index);
            } else {
                wait = wait.max(left);
            }
        }
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
        self.rearm_rtx(core, now, false);
    }

    /// RFC 8985 §7.2: arms the probe timer if the state of the connection allows.
    pub(crate) fn arm_tail_probe(&mut self, core: &Core, now: Time) {
        let mss = self.effective_mss();
        let outstanding = self.snd.outstanding();
        let Some(tx) = self.tx.get() else { return };
        let allowed = self.has(Flags::SACK)
            && tx.recovery.phase == Phase::Open
            && tx.recovery.tlp_end.is_none()
            && tx.board.sacked() == 0
            && self.rtt.srtt() > 0
            && self.state().is_synchronized()
            && matches!(self.timers.rtx_kind(), RtxTimer::Rto | RtxTimer::Tlp)
            && outstanding > 0;
        if !allowed {
            return;
        }
        // RFC 8985 §7.2, TLP_calc_PTO: two round-trip times, and the peer's delayed acknowledgement for a lone segment.
        let mut pto = Duration::from_micros(u64::from(self.rtt.srtt()) * 2);
        if outstanding <= mss {
            pto += MAX_ACK_DELAY;
        }
        let at = now + pto.max(MIN_PTO);
        // New data pushes the probe back; the timeout it replaces bounds it.
        let bound = if self.timers.rtx_kind() == RtxTimer::Tlp {
            now + self.rtt.timeout(0, &core.config)
        } else {
            self.timers.rtx_at()
        };
        // "If the RTO would fire first, the probe goes out in its place" (RFC 8985 §7.2).
        self.timers.start_rtx(RtxTimer::Tlp, at.min(bound));
        self.heed_user_timeout();
    }

    /// RFC 8985 §7.3: the probe timer fired.
    pub(crate) fn tail_probe_timer(&mut self, core: &mut Core, now: Time) {
        let new_data = self.unsent() > 0 && self.snd.wnd() > self.snd.outstanding();
        let nxt = self.snd.nxt();
        if let Some(tx) = self.tx.get_mut() {
            tx.recovery.tlp_end = Some(nxt);
            tx.recovery.tlp_is_retrans = false;
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
        let Some(end) = tx.recovery.tlp_end else { return };
        if una < end {
            return;
        }
        let plain_duplicate = report.acked == 0 && report.delivered.bytes == 0;
        if !tx.recovery.tlp_is_retrans || report.dsack || plain_duplicate {
            tx.recovery.tlp_end = None;
            return;
        }
        if una > end {
            // The original and the probe cannot both have arrived without a D-SACK: one was lost.
            tx.recovery.tlp_end = None;
            if tx.recovery.phase == Phase::Open {
                core.stats.tail_loss_recoveries += 1;
                let flight_size = report.prior_in_flight.max(report.acked);
                tx.hystart = Hystart::default();
                self.congestion.on_congestion(flight_size, mss);
                self.congestion.end_round();
                self.tell_of_reduction();
            }
        }
    }
}

/// Rounds for which a widened reordering window lasts (RFC 8985 §6.2).
const REO_WND_PERSIST: u8 = 16;
/// What a peer may delay an acknowledgement by (RFC 8985 §7.2, WCDelAckT).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Two ticks of the timer wheel.
const MIN_PTO: Duration = Duration::from_millis(2);
