//! What acknowledgements and losses say of the path: rounds, the greatest rate, aggregation, and bounds
//! (draft-ietf-ccwg-bbr §5.5).

use super::sampler::{Departure, RateSample};
use super::{At, Bbr, INFINITY, PACING_MARGIN_PERCENT, State, bdp, percent};

/// BBR.LossThresh, percent.
const LOSS_THRESH: u64 = 2;
/// BBR.Beta, percent.
const BETA: u64 = 70;
/// BBRStartupFullLossCnt.
const STARTUP_FULL_LOSS_CNT: u8 = 6;
/// Half of BBR.ExtraAckedFilterLen, rounds: the filter has two halves.
const EXTRA_ACKED_ROUNDS: u8 = 5;

/// BBR.ack_phase (§2.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// BBR.max_bw_filter: the greatest rate of this cycle of ProbeBW and the last (BBR.MaxBwFilterLen).
#[derive(Debug, Default)]
pub(super) struct MaxBw {
    last: u64,
    this: u64,
}

impl MaxBw {
    pub(super) fn get(&self) -> u64 {
        self.last.max(self.this)
    }

    fn update(&mut self, rate: u64) {
        self.this = self.this.max(rate);
    }

    /// AdvanceMaxBwFilter. A cycle without a sample forgets nothing.
    pub(super) fn advance(&mut self) {
        if self.this > 0 {
            (self.last, self.this) = (self.this, 0);
        }
    }
}

/// BBR.extra_acked_filter: the most that came in at once beyond the rate, of the last five to ten rounds.
#[derive(Debug, Default)]
pub(super) struct MaxExtra {
    last: u64,
    this: u64,
    rounds: u8,
}

impl MaxExtra {
    pub(super) fn most(&self) -> u64 {
        self.last.max(self.this)
    }

    fn update(&mut self, extra: u64, round_start: bool, rounds: u8) {
        if round_start {
            self.rounds += 1;
            if self.rounds >= rounds {
                (self.last, self.this, self.rounds) = (self.this, 0, 0);
            }
        }
        self.this = self.this.max(extra);
    }
}

/// What was before a loss that may turn out to be none (§5.5.11).
#[derive(Debug, Default)]
pub(super) struct Undo {
    state: Option<State>,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

impl RateSample {
    /// IsInflightTooHigh (§5.5.10.2). One segment tells no share: where fewer than fifty are in flight, each loss would be more than the threshold.
    pub(super) fn is_inflight_too_high(&self, at: &At) -> bool {
        // Guard: `.max(at.smss.into())` as `.max(0)` fails bbr::tests::one_segment_is_no_share
        let most = percent(self.tx_in_flight, LOSS_THRESH).max(at.smss.into());
        self.lost > most || self.lost > 0 && !at.has_selective_acks
    }
}

impl Bbr {
    // Rounds and rates.

    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.sampler.delivered();
    }

    fn update_round(&mut self, rs: &RateSample) {
        self.round_start = rs.has_data && rs.prior_delivered >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.used_up = [false, self.used_up[0]];
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
        }
    }

    pub(super) fn update_latest_delivery_signals(&mut self, rs: &RateSample) {
        self.bw_latest = self.bw_latest.max(rs.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        self.loss_round_start = rs.has_data && rs.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = self.sampler.delivered();
        }
    }

    pub(super) fn advance_latest_delivery_signals(&mut self, rs: &RateSample) {
        if self.loss_round_start {
            (self.bw_latest, self.inflight_latest) = (rs.delivery_rate, rs.delivered);
        }
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        (self.is_loss_in_round, self.bw_latest, self.inflight_latest) = (false, 0, 0);
    }

    pub(super) fn update_congestion_signals(&mut self, at: &At, rs: &RateSample) {
        self.update_round(rs);
        // UpdateMaxBw (§5.5.5): a sample of a sender that had nothing to send is a lower bound.
        // Guard: `rs.delivery_rate >= self.max_bw.get() || !rs.is_app_limited` as `true` fails
        // bbr::tests::low_samples_with_nothing_to_send
        if rs.delivery_rate > 0 && (rs.delivery_rate >= self.max_bw.get() || !rs.is_app_limited) {
            self.max_bw.update(rs.delivery_rate);
        }
        if !self.loss_round_start {
            return;
        }
        if self.is_loss_in_round && !self.is_probing_bw() {
            self.lower_bounds(at);
        }
        self.is_loss_in_round = false;
    }

    /// InitLowerBounds and LossLowerBounds (§5.5.10.3).
    pub(super) fn lower_bounds(&mut self, at: &At) {
        if self.bw_shortterm == INFINITY {
            self.bw_shortterm = self.max_bw.get();
        }
        if self.inflight_shortterm == INFINITY {
            self.inflight_shortterm = u64::from(at.cwnd);
        }
        // What is paced below `bw` by the margin comes in slower by the margin, whatever is lost. The draft's words are that a round which loses
        // X % slows down by X % (§5.3.3.5.3); its pseudo-code takes the margin as well, once for each such round.
        // Guard: `self.bw_latest.saturating_mul(100) / (100 - PACING_MARGIN_PERCENT)` as `self.bw_latest` fails
        // bbr::tests::a_round_that_loses
        let without_margin = self.bw_latest.saturating_mul(100) / (100 - PACING_MARGIN_PERCENT);
        let latest = self.bw_latest.max(without_margin.min(self.bw_shortterm));
        self.bw_shortterm = latest.max(percent(self.bw_shortterm, BETA));
        self.inflight_shortterm = self.inflight_latest.max(percent(self.inflight_shortterm, BETA));
    }

    pub(super) fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (INFINITY, INFINITY);
    }

    pub(super) fn bound_bw_for_model(&mut self) {
        self.bw = self.max_bw.get().min(self.bw_shortterm);
    }

    /// UpdateACKAggregation (§5.5.9).
    pub(super) fn update_ack_aggregation(&mut self, at: &At, rs: &RateSample) {
        let interval = at.now.saturating_duration_since(self.extra_acked_interval_start).as_micros() as u64;
        let mut expected = bdp(self.bw, interval);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_interval_start = at.now;
            expected = 0;
        }
        self.extra_acked_delivered += rs.newly_acked;
        let extra = self.extra_acked_delivered.saturating_sub(expected).min(u64::from(at.cwnd));
        let rounds = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked.update(extra, self.round_start, rounds);
    }

    /// TargetInflight (§5.3.3.5).
    pub(super) fn target_inflight(&self, at: &At) -> u64 {
        self.bdp_multiple(at, self.bw, 100).min(u64::from(at.cwnd))
    }

    // Losses.

    /// HandleLostPacket (§5.5.10.2): so many bytes are newly deemed lost, `packet` the last of them.
    pub(crate) fn on_lost(&mut self, at: &At, bytes: u32, packet: Option<Departure>) {
        self.sampler.note_lost(bytes);
        // NoteLoss.
        if !self.is_loss_in_round {
            self.loss_round_delivered = self.sampler.delivered();
            self.save_state_upon_loss(at);
        }
        self.is_loss_in_round = true;
        self.was_in_loss_recovery |= at.in_loss_recovery;
        let Some(p) = packet.filter(|_| self.is_bw_probe_sample) else { return };
        let mut rs = RateSample {
            tx_in_flight: u64::from(p.tx_in_flight),
            lost: self.sampler.lost().saturating_sub(p.lost),
            is_app_limited: p.is_app_limited,
            ..RateSample::default()
        };
        // Guard: `rs.is_inflight_too_high(at)` as `false` fails bbr::tests::a_probe_that_loses_much
        if rs.is_inflight_too_high(at) {
            rs.tx_in_flight = inflight_at_loss(&rs, u64::from(p.size));
            self.handle_inflight_too_high(at, &rs);
        }
    }

    fn handle_inflight_too_high(&mut self, at: &At, rs: &RateSample) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !rs.is_app_limited {
            self.inflight_longterm = rs.tx_in_flight.max(percent(self.target_inflight(at), BETA));
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.start_probe_bw_down(at.now);
        }
    }

    /// CheckStartupHighLoss (§5.3.1.3).
    pub(super) fn check_startup_high_loss(&mut self, at: &At, rs: &RateSample) {
        if self.full_bw_reached {
            return;
        }
        if rs.newly_lost > 0 {
            self.loss_events_in_round = self.loss_events_in_round.saturating_add(1);
        }
        let many = self.loss_events_in_round >= STARTUP_FULL_LOSS_CNT || !at.has_selective_acks;
        if self.loss_round_start && at.in_loss_recovery && many && rs.is_inflight_too_high(at) {
            self.undo.state = Some(State::Startup);
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp_multiple(at, self.bw, 100).max(self.inflight_latest);
        }
        if self.loss_round_start {
            self.loss_events_in_round = 0;
        }
    }

    // The window before losses.

    pub(super) fn save_cwnd(&mut self, at: &At) {
        let cwnd = u64::from(at.cwnd);
        let anew = !self.was_in_loss_recovery && self.state != State::ProbeRtt;
        self.prior_cwnd = if anew { cwnd } else { self.prior_cwnd.max(cwnd) };
    }

    /// C.is_cwnd_limited (§2.2): whether the window was used up at any point of the last round.
    pub(super) fn is_cwnd_limited(&self) -> bool {
        // Guard: `self.used_up[1]` as `false` fails bbr::tests::the_window_counts
        self.used_up[0] || self.used_up[1]
    }

    /// The window; where this acknowledgement ends loss recovery, what it was before (§5.6.4.4).
    pub(super) fn left_recovery(&mut self, at: &At) -> u64 {
        let left = self.was_in_loss_recovery && !at.in_loss_recovery;
        self.was_in_loss_recovery = at.in_loss_recovery;
        let cwnd = u64::from(at.cwnd);
        // Guard: `left` as `false` fails bbr::tests::a_timeout_that_is_over
        if left { self.restored_cwnd(cwnd) } else { cwnd }
    }

    /// RestoreCwnd.
    pub(super) fn restored_cwnd(&self, cwnd: u64) -> u64 {
        cwnd.max(self.prior_cwnd)
    }

    fn save_state_upon_loss(&mut self, at: &At) {
        self.save_cwnd(at);
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// OnEnterRTO (§5.6.4.4). Returns the window: what is in flight and one segment.
    pub(crate) fn on_timeout(&mut self, at: &At) -> u32 {
        self.save_state_upon_loss(at);
        at.inflight + at.smss
    }

    /// HandleSpuriousLossDetection (§5.5.11): nothing was lost. Returns the window.
    pub(crate) fn on_undo(&mut self, at: &At) -> u32 {
        self.is_loss_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm = self.bw_shortterm.max(self.undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(self.undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(self.undo.inflight_longterm);
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            Some(State::Up) if !matches!(self.state, State::Up | State::ProbeRtt) => {
                self.start_probe_bw_refill();
            }
            _ => {}
        }
        u32::try_from(self.restored_cwnd(u64::from(at.cwnd))).unwrap_or(u32::MAX)
    }
}

/// InflightAtLoss (§5.5.10.2): how much was in flight when losses exceeded the threshold, within a batch of segments.
fn inflight_at_loss(rs: &RateSample, size: u64) -> u64 {
    let inflight_prev = rs.tx_in_flight.saturating_sub(size);
    let lost_prev = rs.lost.saturating_sub(size);
    let lost_prefix =
        percent(inflight_prev, LOSS_THRESH).saturating_sub(lost_prev) * 100 / (100 - LOSS_THRESH);
    inflight_prev + lost_prefix
}
