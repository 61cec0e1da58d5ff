//! BBR (draft-ietf-ccwg-bbr, version 3): a model of the path decides how fast and how much is sent.
//!
//! The model is the rate at which the path delivers (`bw`) and its shortest round trip (`min_rtt`). Their product is what fits on the
//! path without a queue. The sender paces at about `bw`, looks in turn for more and leaves room for others:
//!
//! ```text
//!   Startup ─▶ Drain ─▶ ProbeBW: Down ─▶ Cruise ─▶ Refill ─▶ Up ─▶ Down ...       every five seconds: ProbeRTT
//! ```
//!
//! Losses bound the model: `bw_shortterm` and `inflight_shortterm` until the next probe, `inflight_longterm` where a probe lost more than
//! 2 %. Names are those of the draft. Volumes are bytes, rates bytes a second, gains percent. Integers throughout.
//!
//! | file | what of the draft |
//! |---|---|
//! | this one | the state machine's beginning (§5.3.1, §5.3.2), what an acknowledgement sets off (§5.2.3), the control parameters (§5.6) |
//! | `sampler` | delivery-rate samples (§4.1) |
//! | `signals` | rounds, max_bw, aggregation (§5.5.1 to §5.5.9), losses and the bounds they set (§5.5.10), needless ones |
//! | `cycle` | ProbeBW (§5.3.3) |
//! | `probe_rtt` | min_rtt and ProbeRTT (§5.3.4) |
//!
//! When the next burst may go (§5.6.2) is `pace`, beside this directory.
//!
//! Two things are not as in the pseudo-code: what a round with losses takes off the rate (`lower_bounds`), and that one segment that is lost is no share
//! (`is_inflight_too_high`).
//!
//! Not done: a response to ECN, which the draft leaves open. So data of connections with a model does not say that it may be marked.

mod cycle;
mod probe_rtt;
mod sampler;
mod signals;
#[cfg(test)]
mod tests;

use crate::tcp::connection::congestion::pace::Pace;
use crate::time::Time;
use core::time::Duration;
pub(crate) use sampler::Departure;
use sampler::{RateSample, Sampler};
use signals::{AckPhase, MaxBw, MaxExtra, Undo};

/// No bound, and no value yet.
const INFINITY: u64 = u64::MAX;

// Gains, percent (§5.6.1).
const STARTUP_PACING_GAIN: u64 = 277;
const DRAIN_PACING_GAIN: u64 = 50;
const DEFAULT_CWND_GAIN: u64 = 200;
const UP_CWND_GAIN: u64 = 225;
const PROBE_RTT_CWND_GAIN: u64 = 50;
/// How much of the rate goes at once (§5.6.3), microseconds of it.
const QUANTUM_MICROS: u64 = 1000;
/// BBR.PacingMarginPercent.
const PACING_MARGIN_PERCENT: u64 = 1;

/// Where the model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// The connection (`C.*`) at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now: Time,
    /// C.SMSS.
    pub(crate) smss: u32,
    /// C.cwnd.
    pub(crate) cwnd: u32,
    /// C.inflight.
    pub(crate) inflight: u32,
    /// C.InitialCwnd.
    pub(crate) initial_cwnd: u32,
    /// InLossRecovery().
    pub(crate) in_loss_recovery: bool,
    /// C.has_selective_acks.
    pub(crate) has_selective_acks: bool,
}

impl At {
    /// BBR.MinPipeCwnd.
    fn min_pipe_cwnd(&self) -> u64 {
        4 * u64::from(self.smss)
    }
}

/// What an acknowledgement said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    /// RS.newly_acked: bytes acknowledged or selectively acknowledged by it.
    pub(crate) newly_acked: u32,
    /// RS.newly_lost.
    pub(crate) newly_lost: u32,
    /// RS.rtt, microseconds.
    pub(crate) rtt_us: Option<u32>,
    /// The newest segment that it delivered.
    pub(crate) newest: Option<Departure>,
    /// C.min_rtt, microseconds.
    pub(crate) min_rtt_us: u32,
}

/// The model of one connection's path, and what follows from it.
#[derive(Debug)]
pub(crate) struct Bbr {
    sampler: Sampler,
    pace: Pace,
    state: State,
    pacing_gain: u64,
    cwnd_gain: u64,
    /// Randomness for the times between probes; no secret.
    random: u32,

    // Rounds (§5.5.1).
    next_round_delivered: u64,
    round_count: u64,
    round_start: bool,
    /// Whether the window was used up in this round, and in the last one: C.is_cwnd_limited (§2.2).
    used_up: [bool; 2],

    // The model (§5.5).
    bw: u64,
    max_bw: MaxBw,
    bw_shortterm: u64,
    /// Microseconds.
    min_rtt: u64,
    min_rtt_stamp: Time,
    inflight_longterm: u64,
    inflight_shortterm: u64,
    extra_acked: MaxExtra,
    extra_acked_interval_start: Time,
    extra_acked_delivered: u64,

    // Full pipe (§5.3.1.2).
    full_bw: u64,
    full_bw_count: u8,
    full_bw_now: bool,
    full_bw_reached: bool,
    drain_start_round: u64,

    // Congestion signals (§5.5.10).
    bw_latest: u64,
    inflight_latest: u64,
    loss_round_delivered: u64,
    loss_round_start: bool,
    is_loss_in_round: bool,
    loss_events_in_round: u8,
    undo: Undo,
    prior_cwnd: u64,
    /// InLossRecovery() when the model heard of it last.
    was_in_loss_recovery: bool,

    // ProbeBW (§5.3.3).
    ack_phase: AckPhase,
    cycle_stamp: Time,
    bw_probe_wait: Duration,
    rounds_since_probe_up: u64,
    bw_probe_up_rounds: u8,
    bw_probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,

    // ProbeRTT (§5.3.4).
    idle_restart: bool,
    probe_rtt_expired: bool,
    probe_rtt_min_delay: u64,
    probe_rtt_min_stamp: Time,
    probe_rtt_done_stamp: Option<Time>,
    probe_rtt_round_done: bool,
}

impl Bbr {
    /// OnInit (§5.2.1). `srtt_us`: 0 before the first measurement.
    pub(crate) fn new(at: &At, srtt_us: u32, random: u32) -> Self {
        let now = at.now;
        let min_rtt = if srtt_us > 0 { u64::from(srtt_us) } else { INFINITY };
        // InitPacingRate (§5.6.2).
        let nominal =
            rate(u64::from(at.initial_cwnd), u64::from(if srtt_us > 0 { srtt_us } else { 1000 }) * 1000);
        Self {
            sampler: Sampler::new(now),
            pace: Pace::new(now, percent(nominal, STARTUP_PACING_GAIN), QUANTUM_MICROS, 2 * at.smss),
            state: State::Startup,
            pacing_gain: STARTUP_PACING_GAIN,
            cwnd_gain: DEFAULT_CWND_GAIN,
            random: random | 1,
            next_round_delivered: 0,
            round_count: 0,
            round_start: false,
            used_up: [false; 2],
            bw: 0,
            max_bw: MaxBw::default(),
            bw_shortterm: INFINITY,
            min_rtt,
            min_rtt_stamp: now,
            inflight_longterm: INFINITY,
            inflight_shortterm: INFINITY,
            extra_acked: MaxExtra::default(),
            extra_acked_interval_start: now,
            extra_acked_delivered: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            bw_latest: 0,
            inflight_latest: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            is_loss_in_round: false,
            loss_events_in_round: 0,
            undo: Undo::default(),
            prior_cwnd: 0,
            was_in_loss_recovery: false,
            ack_phase: AckPhase::Init,
            cycle_stamp: now,
            bw_probe_wait: Duration::ZERO,
            rounds_since_probe_up: 0,
            bw_probe_up_rounds: 0,
            bw_probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITY,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            idle_restart: false,
            probe_rtt_expired: false,
            probe_rtt_min_delay: min_rtt,
            probe_rtt_min_stamp: now,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
        }
    }

    /// When the next burst may go.
    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// The same, to be changed.
    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.pace
    }

    /// `bytes` that end at `end` go out now; `at.inflight` has them already (OnPacketSent of §4.1.2.2, OnTransmit of §5.2.2).
    pub(crate) fn on_sent(&mut self, at: &At, end: crate::tcp::Seq, bytes: u32) -> Departure {
        if at.inflight <= bytes {
            self.handle_restart_from_idle(at);
        }
        self.used_up[0] |= at.inflight + at.smss > at.cwnd;
        self.pace.sent(bytes);
        self.sampler.on_sent(at.now, end, bytes, at.inflight)
    }

    /// CheckIfApplicationLimited (§4.1.2.4), for a sender that has nothing more to send.
    pub(crate) fn has_nothing_to_send(&mut self, at: &At) {
        if at.inflight < at.cwnd {
            self.sampler.mark_app_limited(at.inflight);
        }
    }

    /// So many bytes more were delivered, before anything is said of losses (the first half of UpdateRateSample, §4.1.2.3).
    pub(crate) fn on_delivered(&mut self, now: Time, bytes: u32) {
        self.sampler.on_delivered(now, bytes);
    }

    /// UpdateOnACK (§5.2.3), behind [`on_delivered`](Self::on_delivered) and [`on_lost`](Self::on_lost). Returns the new window.
    pub(crate) fn on_ack(&mut self, at: &At, acked: &Acked) -> u32 {
        let rs = self.sampler.sample(at.now, acked);
        self.update_latest_delivery_signals(&rs);
        self.update_congestion_signals(at, &rs);
        self.update_ack_aggregation(at, &rs);
        self.check_full_bw_reached(&rs);
        self.check_startup_done(at, &rs);
        self.check_drain_done(at);
        self.update_probe_bw_cycle_phase(at, &rs);
        self.update_min_rtt(at, &rs);
        let mut cwnd = self.left_recovery(at);
        self.check_probe_rtt(at, &rs, &mut cwnd);
        self.advance_latest_delivery_signals(&rs);
        self.bound_bw_for_model();
        self.set_pacing_rate_with_gain(self.pacing_gain);
        self.pace.set_quantum(QUANTUM_MICROS, 2 * at.smss);
        self.set_cwnd(at, &rs, cwnd)
    }

    // Startup and Drain (§5.3.1, §5.3.2).

    fn enter_startup(&mut self) {
        self.state = State::Startup;
        self.pacing_gain = STARTUP_PACING_GAIN;
        self.cwnd_gain = DEFAULT_CWND_GAIN;
    }

    fn reset_full_bw(&mut self) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (0, 0, false);
    }

    fn check_full_bw_reached(&mut self, rs: &RateSample) {
        if self.full_bw_now || !self.round_start || rs.is_app_limited {
            return;
        }
        if rs.delivery_rate >= percent(self.full_bw, 125) {
            self.reset_full_bw();
            self.full_bw = rs.delivery_rate;
            return;
        }
        self.full_bw_count += 1;
        // Guard: `self.full_bw_count >= 3` as `false` fails bbr::tests::startup_ends bbr::tests::the_states
        self.full_bw_now = self.full_bw_count >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn check_startup_done(&mut self, at: &At, rs: &RateSample) {
        self.check_startup_high_loss(at, rs);
        if self.state == State::Startup && self.full_bw_reached {
            self.state = State::Drain;
            self.pacing_gain = DRAIN_PACING_GAIN;
            self.cwnd_gain = DEFAULT_CWND_GAIN;
            self.drain_start_round = self.round_count;
        }
    }

    fn check_drain_done(&mut self, at: &At) {
        let drained = u64::from(at.inflight) <= self.inflight(at, self.bw, 100);
        if self.state == State::Drain && (drained || self.round_count > self.drain_start_round + 3) {
            self.cwnd_gain = DEFAULT_CWND_GAIN;
            self.start_probe_bw_down(at.now);
        }
    }

    // Control parameters (§5.6).

    /// BDPMultiple (§5.6.4.2).
    fn bdp_multiple(&self, at: &At, bw: u64, gain: u64) -> u64 {
        if self.min_rtt == INFINITY {
            return u64::from(at.initial_cwnd);
        }
        percent(bdp(bw, self.min_rtt), gain)
    }

    /// QuantizationBudget (§5.6.4.2).
    fn quantization_budget(&self, at: &At, inflight_cap: u64) -> u64 {
        let offload_budget = 3 * u64::from(self.pace.quantum());
        let cap = inflight_cap.max(offload_budget).max(at.min_pipe_cwnd());
        if self.state == State::Up { cap + 2 * u64::from(at.smss) } else { cap }
    }

    /// Inflight (§5.6.4.2).
    fn inflight(&self, at: &At, bw: u64, gain: u64) -> u64 {
        self.quantization_budget(at, self.bdp_multiple(at, bw, gain))
    }

    fn set_pacing_rate_with_gain(&mut self, pacing_gain: u64) {
        let rate = percent(percent(self.bw, pacing_gain), 100 - PACING_MARGIN_PERCENT);
        if self.full_bw_reached || rate > self.pace.rate() {
            self.pace.set_rate(rate);
        }
    }

    fn set_cwnd(&self, at: &At, rs: &RateSample, mut cwnd: u64) -> u32 {
        // UpdateMaxInflight (§5.6.4.2).
        let cap = self.bdp_multiple(at, self.bw, self.cwnd_gain).saturating_add(self.extra_acked.most());
        let max_inflight = self.quantization_budget(at, cap);
        if self.full_bw_reached {
            cwnd = (cwnd + rs.newly_acked).min(max_inflight);
        } else if cwnd < max_inflight || self.sampler.delivered() < u64::from(at.initial_cwnd) {
            cwnd += rs.newly_acked;
        }
        cwnd = cwnd.max(at.min_pipe_cwnd());
        if self.state == State::ProbeRtt {
            cwnd = cwnd.min(self.probe_rtt_cwnd(at));
        }
        // BoundCwndForModel (§5.6.4.7).
        let cap = match self.state {
            State::Down | State::Refill | State::Up => self.inflight_longterm,
            State::ProbeRtt | State::Cruise => self.inflight_with_headroom(at),
            State::Startup | State::Drain => INFINITY,
        };
        let cap = cap.min(self.inflight_shortterm).max(at.min_pipe_cwnd());
        u32::try_from(cwnd.min(cap)).unwrap_or(u32::MAX)
    }

    /// A number below `bound`.
    fn random_below(&mut self, bound: u32) -> u32 {
        // Marsaglia's xorshift: the times between probes must differ between flows, and nothing more.
        let mut x = self.random;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random = x;
        x % bound
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> State {
        self.state
    }
}

/// `amount` times `gain` percent.
fn percent(amount: u64, gain: u64) -> u64 {
    amount.saturating_mul(gain) / 100
}

/// Bytes a second, of so many bytes in so many nanoseconds.
fn rate(bytes: u64, nanos: u64) -> u64 {
    bytes.saturating_mul(1_000_000_000) / nanos.max(1)
}

/// Bytes that a rate delivers in so many microseconds.
fn bdp(bw: u64, us: u64) -> u64 {
    bw.saturating_mul(us) / 1_000_000
}
