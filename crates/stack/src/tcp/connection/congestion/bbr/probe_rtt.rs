//! The shortest round trip, and the state that looks for it again: for 200 ms hardly anything is in flight, so that no queue of ours
//! hides it (draft-ietf-ccwg-bbr §5.3.4).

use super::sampler::RateSample;
use super::signals::AckPhase;
use super::{At, Bbr, PROBE_RTT_CWND_GAIN, State};
use core::time::Duration;

/// BBR.MinRTTFilterLen.
const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
/// BBR.ProbeRTTInterval.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    pub(super) fn update_min_rtt(&mut self, at: &At, rs: &RateSample) {
        self.probe_rtt_expired = at.now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rs.rtt.filter(|rtt| *rtt < self.probe_rtt_min_delay || self.probe_rtt_expired) {
            self.probe_rtt_min_delay = rtt.max(1);
            self.probe_rtt_min_stamp = at.now;
        }
        let min_rtt_expired = at.now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        if self.probe_rtt_min_delay < self.min_rtt || min_rtt_expired {
            self.min_rtt = self.probe_rtt_min_delay;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    pub(super) fn check_probe_rtt(&mut self, at: &At, rs: &RateSample, cwnd: &mut u64) {
        if self.state != State::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd(at);
            self.state = State::ProbeRtt;
            self.pacing_gain = 100;
            self.cwnd_gain = PROBE_RTT_CWND_GAIN;
            self.probe_rtt_done_stamp = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state == State::ProbeRtt {
            self.handle_probe_rtt(at, cwnd);
        }
        if rs.delivered > 0 {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, at: &At, cwnd: &mut u64) {
        // Rates of so little in flight say nothing.
        self.sampler.mark_app_limited(at.inflight);
        if self.probe_rtt_done_stamp.is_some() {
            self.probe_rtt_round_done |= self.round_start;
            if self.probe_rtt_round_done {
                self.check_probe_rtt_done(at, cwnd);
            }
        } else if u64::from(at.inflight) <= self.probe_rtt_cwnd(at) {
            self.probe_rtt_done_stamp = Some(at.now + PROBE_RTT_DURATION);
            self.probe_rtt_round_done = false;
            self.start_round();
        }
    }

    fn check_probe_rtt_done(&mut self, at: &At, cwnd: &mut u64) {
        if self.probe_rtt_done_stamp.is_some_and(|done| at.now > done) {
            self.probe_rtt_min_stamp = at.now;
            *cwnd = self.restored_cwnd(*cwnd);
            // ExitProbeRTT.
            self.reset_short_term_model();
            if self.full_bw_reached {
                self.start_probe_bw_down(at.now);
                self.start_probe_bw_cruise();
            } else {
                self.enter_startup();
            }
        }
    }

    /// ProbeRTTCwnd (§5.6.4.5).
    pub(super) fn probe_rtt_cwnd(&self, at: &At) -> u64 {
        self.bdp_multiple(at, self.bw, PROBE_RTT_CWND_GAIN).max(at.min_pipe_cwnd())
    }

    /// HandleRestartFromIdle (§5.4.1): the first data after a pause of the application goes at the rate of the model.
    pub(super) fn handle_restart_from_idle(&mut self, at: &At) {
        if !self.sampler.is_app_limited() {
            return;
        }
        self.idle_restart = true;
        self.extra_acked_interval_start = at.now;
        if self.is_in_a_probe_bw_state() {
            self.set_pacing_rate_with_gain(100);
        } else if self.state == State::ProbeRtt {
            // The window follows with the next acknowledgement.
            let mut cwnd = u64::from(at.cwnd);
            self.check_probe_rtt_done(at, &mut cwnd);
        }
    }
}
