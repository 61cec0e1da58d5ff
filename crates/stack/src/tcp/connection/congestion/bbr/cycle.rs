//! ProbeBW: what the sender does nearly all of the time (draft-ietf-ccwg-bbr §5.3.3). It goes down to let a queue drain, cruises below what
//! the path takes, fills the pipe again and goes up until there is loss or no more rate; some seconds later again.

use super::sampler::RateSample;
use super::signals::AckPhase;
use super::{At, Bbr, DEFAULT_CWND_GAIN, INFINITY, State, UP_CWND_GAIN, percent};
use crate::time::Time;
use core::time::Duration;

const DOWN_PACING_GAIN: u64 = 90;
const CRUISE_PACING_GAIN: u64 = 100;
const UP_PACING_GAIN: u64 = 125;
/// BBR.Headroom, percent.
const HEADROOM: u64 = 15;
/// Rounds after which a flow of Reno would have regained what it gave up for a loss, at most (§5.3.3.5).
const RENO_ROUNDS: u64 = 63;

impl Bbr {
    pub(super) fn is_in_a_probe_bw_state(&self) -> bool {
        matches!(self.state, State::Down | State::Cruise | State::Refill | State::Up)
    }

    pub(super) fn is_probing_bw(&self) -> bool {
        matches!(self.state, State::Startup | State::Refill | State::Up)
    }

    pub(super) fn start_probe_bw_down(&mut self, now: Time) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITY;
        // PickProbeWait (§5.3.3.5).
        self.rounds_since_probe_up = u64::from(self.random_below(2));
        self.bw_probe_wait = Duration::from_millis(2000 + u64::from(self.random_below(1000)));
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.go(State::Down, DOWN_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    pub(super) fn start_probe_bw_cruise(&mut self) {
        self.go(State::Cruise, CRUISE_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    pub(super) fn start_probe_bw_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.go(State::Refill, CRUISE_PACING_GAIN, DEFAULT_CWND_GAIN);
    }

    fn start_probe_bw_up(&mut self, at: &At, rs: &RateSample) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.reset_full_bw();
        self.full_bw = rs.delivery_rate;
        self.go(State::Up, UP_PACING_GAIN, UP_CWND_GAIN);
        self.raise_inflight_longterm_slope(at);
    }

    fn go(&mut self, state: State, pacing_gain: u64, cwnd_gain: u64) {
        (self.state, self.pacing_gain, self.cwnd_gain) = (state, pacing_gain, cwnd_gain);
    }

    pub(super) fn update_probe_bw_cycle_phase(&mut self, at: &At, rs: &RateSample) {
        if !self.full_bw_reached || self.adapt_long_term_model(at, rs) {
            return;
        }
        match self.state {
            State::Down => {
                if !self.is_time_to_probe_bw(at) && self.is_time_to_cruise(at) {
                    self.start_probe_bw_cruise();
                }
            }
            State::Cruise => {
                self.is_time_to_probe_bw(at);
            }
            State::Refill => {
                // A round of it fills the pipe.
                if self.round_start {
                    self.is_bw_probe_sample = true;
                    self.start_probe_bw_up(at, rs);
                }
            }
            State::Up => {
                if self.is_time_to_go_down(at, rs) {
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(at.now);
                }
            }
            State::Startup | State::Drain | State::ProbeRtt => {}
        }
    }

    /// From Down or Cruise to Refill; whether it was.
    fn is_time_to_probe_bw(&mut self, at: &At) -> bool {
        let reno_rounds = (self.target_inflight(at) / u64::from(at.smss.max(1))).min(RENO_ROUNDS);
        let due = at.now > self.cycle_stamp + self.bw_probe_wait || self.rounds_since_probe_up >= reno_rounds;
        if due {
            self.start_probe_bw_refill();
        }
        due
    }

    fn is_time_to_cruise(&self, at: &At) -> bool {
        let inflight = u64::from(at.inflight);
        inflight <= self.inflight_with_headroom(at) && inflight <= self.inflight(at, self.max_bw.get(), 100)
    }

    fn is_time_to_go_down(&mut self, at: &At, rs: &RateSample) -> bool {
        // The last probe went too high: this one stops short of that.
        if self.prev_probe_too_high && u64::from(at.inflight) >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && u64::from(at.cwnd) >= self.inflight_longterm {
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return false;
        }
        self.full_bw_now
    }

    /// InflightWithHeadroom: what leaves some of the path to others.
    pub(super) fn inflight_with_headroom(&self, at: &At) -> u64 {
        if self.inflight_longterm == INFINITY {
            return INFINITY;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM).max(u64::from(at.smss));
        self.inflight_longterm.saturating_sub(headroom).max(at.min_pipe_cwnd())
    }

    fn raise_inflight_longterm_slope(&mut self, at: &At) {
        let growth_this_round = 1u64 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (u64::from(at.cwnd) / growth_this_round).max(u64::from(at.smss)).max(1);
    }

    fn probe_inflight_longterm_upward(&mut self, at: &At, rs: &RateSample) {
        if !self.is_cwnd_limited() || u64::from(at.cwnd) < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked += rs.newly_acked;
        if self.bw_probe_up_acked >= self.probe_up_acked_per_inc {
            let delta = self.bw_probe_up_acked / self.probe_up_acked_per_inc;
            self.bw_probe_up_acked -= delta * self.probe_up_acked_per_inc;
            self.inflight_longterm = self.inflight_longterm.saturating_add(delta * u64::from(at.smss));
        }
        if self.round_start {
            self.raise_inflight_longterm_slope(at);
        }
    }

    /// AdaptLongTermModel (§5.3.3.6): what the answers to a probe say; whether the state changed for it.
    fn adapt_long_term_model(&mut self, at: &At, rs: &RateSample) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_a_probe_bw_state() {
                if !rs.is_app_limited {
                    self.max_bw.advance();
                }
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    self.start_probe_bw_refill();
                    return true;
                }
            }
        }
        if rs.has_data && !rs.is_inflight_too_high(at) && self.inflight_longterm != INFINITY {
            self.inflight_longterm = self.inflight_longterm.max(rs.tx_in_flight);
            if self.state == State::Up {
                self.probe_inflight_longterm_upward(at, rs);
            }
        }
        false
    }
}
