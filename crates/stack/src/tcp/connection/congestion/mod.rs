//! Congestion control: the limit of data in flight.
//!
//! RFC 5681 (slow start, congestion avoidance), RFC 6928 (initial window), RFC 9438 (CUBIC), RFC 9406 (HyStart++).
//! Loss recovery itself is in `recovery`; it asks here for the new threshold. Bytes throughout.
//!
//! With BBR the window is what the model of the path says (`bbr`). Then there is no threshold, which is 0, and neither
//! acknowledgements nor losses change the window here. With Prague slow start and losses are NewReno's, and beyond slow start the window
//! follows the marks of accurate ECN (`prague`). What these two know beside the window is a [`Model`].

pub(crate) mod bbr;
mod cubic;
mod hystart;
mod model;
mod newreno;
mod pace;
pub(crate) mod prague;

use crate::tcp::Seq;
use crate::tcp::config::{Algorithm, TcpConfig};
use crate::tcp::connection::congestion::cubic::Cubic;
use crate::time::Time;
pub(crate) use hystart::Hystart;
pub(crate) use model::Model;

/// The window of one connection.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged towards the next step of congestion avoidance.
    acked: u32,
    algorithm: Algorithm,
    /// Once a window has grown beyond slow start or was reduced, which those of most idle connections never were.
    cubic: Option<Box<Cubic>>,
}

/// An acknowledgement, as congestion control sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    pub(crate) bytes: u32,
    pub(crate) mss: u32,
    pub(crate) srtt_us: u32,
    pub(crate) now: Time,
}

/// No window grows beyond this.
const MAX_CWND: u32 = 1 << 30;

impl Congestion {
    pub(crate) fn new(algorithm: Algorithm, mss: u32, segments: u8) -> Self {
        Self {
            cwnd: mss * u32::from(segments),
            ssthresh: if algorithm == Algorithm::Bbr { 0 } else { u32::MAX },
            acked: 0,
            algorithm,
            cubic: None,
        }
    }

    /// The window, bytes.
    #[inline]
    pub(crate) const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The threshold of slow start, bytes.
    #[inline]
    pub(crate) const fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Loss recovery says what the window is for the rest of the round (RFC 9937), bytes.
    pub(crate) fn set_window(&mut self, cwnd: u32) {
        if self.algorithm != Algorithm::Bbr {
            self.cwnd = cwnd;
        }
    }

    /// The model of the path says what the window is, bytes.
    pub(crate) fn set_model_window(&mut self, cwnd: u32) {
        self.cwnd = cwnd.min(MAX_CWND);
    }

    /// Prague's window beyond slow start grows by so many bytes.
    pub(crate) fn grow(&mut self, bytes: u32) {
        self.cwnd = self.cwnd.saturating_add(bytes).min(MAX_CWND);
    }

    /// Packets were marked, and Prague's window is less by this share of it, parts of [`prague::ONE`]; two segments at least. `repairing`:
    /// recovery brings the window to the threshold in any case, which is less instead.
    pub(crate) fn cut(&mut self, share: u32, repairing: bool, mss: u32) {
        // Guard: `2 * mss` as `0` fails congestion::tests::prague_cuts
        let least = 2 * mss;
        if repairing {
            self.ssthresh = without(self.ssthresh, share).max(least);
        } else {
            self.cwnd = without(self.cwnd, share).max(least.min(self.cwnd));
            // Slow start is over.
            // Guard: `self.cwnd.max(least)` as `self.ssthresh` fails prague::the_first_mark_halves
            self.ssthresh = self.cwnd.max(least);
        }
    }

    /// A reduction whose losses were repaired without an episode: the window is no larger than the threshold.
    pub(crate) fn end_round(&mut self) {
        self.set_window(self.cwnd.min(self.ssthresh));
    }

    /// The last reduction was needless: what was before it, if that was more.
    pub(crate) fn undo(&mut self, cwnd: u32, ssthresh: u32) {
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        // The window stays, and slow start does not begin anew in the middle of a connection.
        if algorithm == Algorithm::Bbr {
            self.ssthresh = 0;
        } else if self.algorithm == Algorithm::Bbr {
            self.ssthresh = self.cwnd;
        }
        self.algorithm = algorithm;
        self.cubic = None;
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// RFC 6928 §2: the initial window; one segment if the SYN or SYN-ACK was lost (RFC 5681 §3.1).
    pub(crate) fn start(&mut self, mss: u32, segments: u8, syn_lost: bool) {
        // Guard: `syn_lost` as `false` fails handshake::one_segment_after_two_lost_syns
        self.cwnd = if syn_lost { mss } else { mss * u32::from(segments) };
    }

    /// New data was acknowledged outside recovery, and the window was used.
    pub(crate) fn on_ack(&mut self, ack: &Acked, hystart: &Hystart) {
        let mut bytes = ack.bytes;
        if self.in_slow_start() {
            let grow = hystart.slowed(bytes);
            let room = self.ssthresh - self.cwnd;
            // Guard: `grow.min(room)` as `grow` fails congestion::tests::slow_start_stops
            self.cwnd += grow.min(room);
            if grow < room {
                self.cwnd = self.cwnd.min(MAX_CWND);
                return;
            }
            bytes = grow - room;
        }
        let step = match self.algorithm {
            Algorithm::Cubic => self.cubic.get_or_insert_default().bytes_per_segment(self.cwnd, ack),
            Algorithm::NewReno => newreno::bytes_per_segment(self.cwnd),
            Algorithm::Bbr | Algorithm::Prague => return,
        };
        // One segment more for every `step` bytes acknowledged. What was counted towards a longer step is worth one segment: where
        // the curve is flat a step is a hundred windows, and they must not all come in at once when it rises.
        // Guard: `self.acked >= step` as `false` fails congestion::tests::what_was_acknowledged
        if self.acked >= step {
            self.acked = 0;
            self.cwnd = self.cwnd.saturating_add(ack.mss).min(MAX_CWND);
        }
        self.acked = self.acked.saturating_add(bytes);
        if self.acked >= step {
            let segments = self.acked / step.max(1);
            self.acked -= segments * step;
            self.cwnd = self.cwnd.saturating_add(segments * ack.mss).min(MAX_CWND);
        }
    }

    /// A round-trip sample during slow start (RFC 9406). Returns whether slow start ended.
    pub(crate) fn on_rtt(&mut self, hystart: &mut Hystart, us: u32, una: Seq, nxt: Seq) -> bool {
        if self.in_slow_start() && hystart.sample(us, una, nxt) {
            self.ssthresh = self.cwnd;
            return true;
        }
        false
    }

    /// Loss or ECN: sets the new threshold. The window itself is PRR's (RFC 9937) for the rest of the round.
    pub(crate) fn on_congestion(&mut self, in_flight: u32, mss: u32) {
        // Guard: `.max(2 * mss)` as `.max(0)` fails congestion::tests::two_segments guards::the_threshold
        self.ssthresh = match self.algorithm {
            Algorithm::Cubic => self.cubic.get_or_insert_default().reduce(self.cwnd, mss),
            Algorithm::NewReno | Algorithm::Prague => newreno::reduce(in_flight.min(self.cwnd)),
            Algorithm::Bbr => return,
        }
        .max(2 * mss);
        self.acked = 0;
    }

    /// Retransmission timeout (RFC 5681 §3.1, equation 4; §5): back to one segment. `first` for the first timeout of
    /// this data.
    pub(crate) fn on_timeout(&mut self, in_flight: u32, mss: u32, first: bool) {
        // Guard: `first` as `true` fails congestion::tests::only_the_first_timeout guards::a_second_timeout
        if first {
            self.on_congestion(in_flight, mss);
        }
        self.begin_epoch();
        self.set_window(mss);
    }

    /// RFC 5681 §4.1: the window halves for each timeout of idleness, down to the initial one; the threshold remembers
    /// three quarters of where it was (RFC 2861).
    pub(crate) fn on_idle(&mut self, timeouts: u32, initial: u32) {
        if self.algorithm == Algorithm::Bbr {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        // Guard: `initial.min(self.cwnd)` as `0` fails congestion::tests::idleness
        let restart = initial.min(self.cwnd);
        self.cwnd = (self.cwnd >> timeouts.min(31)).max(restart);
        self.begin_epoch();
        self.acked = 0;
    }

    /// What grows from now on begins a new epoch.
    fn begin_epoch(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.restart();
        }
    }

    pub(crate) fn for_config(config: &TcpConfig, algorithm: Option<Algorithm>, mss: u32) -> Self {
        Self::new(algorithm.unwrap_or(config.congestion), mss, config.initial_window)
    }
}

/// Bytes without this share of them, parts of [`prague::ONE`], to the nearest.
pub(crate) fn without(bytes: u32, share: u32) -> u32 {
    let share = (u64::from(bytes) * u64::from(share) + u64::from(prague::ONE / 2)) / u64::from(prague::ONE);
    bytes.saturating_sub(share.min(u64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const MSS: u32 = 1000;

    fn ack(now: Time) -> Acked {
        Acked { bytes: MSS, mss: MSS, srtt_us: 100_000, now }
    }

    /// RFC 5681 §3.1: slow start doubles each round.
    #[test]
    fn slow_start_grows_by_what_is_acknowledged() {
        let mut cc = Congestion::new(Algorithm::NewReno, MSS, 10);
        for _ in 0..10 {
            cc.on_ack(&ack(Time::ZERO), &Hystart::default());
        }
        assert_eq!(cc.cwnd, 20 * MSS);
    }

    /// RFC 5681 §3.1: slow start ends at the threshold, and what was acknowledged beyond it counts for the next phase.
    #[test]
    fn slow_start_stops_at_the_threshold() {
        let mut cc = Congestion::new(Algorithm::NewReno, MSS, 10);
        cc.ssthresh = 10 * MSS + 400;
        cc.on_ack(&ack(Time::ZERO), &Hystart::default());
        assert_eq!((cc.cwnd, cc.acked), (10 * MSS + 400, 600));
    }

    /// RFC 5681 §3.1: only the first timeout of a window of data sets the threshold.
    #[test]
    fn only_the_first_timeout_sets_the_threshold() {
        let mut cc = Congestion::new(Algorithm::NewReno, MSS, 20);
        cc.on_timeout(20 * MSS, MSS, true);
        assert_eq!((cc.cwnd, cc.ssthresh), (MSS, 10 * MSS));
        cc.on_timeout(20 * MSS, MSS, false);
        assert_eq!((cc.cwnd, cc.ssthresh), (MSS, 10 * MSS));
    }

    /// RFC 5681 §3.1: congestion avoidance adds one segment each round.
    #[test]
    fn newreno_adds_a_segment_a_round_and_halves() {
        let mut cc = Congestion::new(Algorithm::NewReno, MSS, 20);
        cc.on_congestion(20 * MSS, MSS);
        assert_eq!(cc.ssthresh, 10 * MSS);
        cc.cwnd = cc.ssthresh;
        for _ in 0..10 {
            cc.on_ack(&ack(Time::ZERO), &Hystart::default());
        }
        assert_eq!(cc.cwnd, 11 * MSS);
    }

    /// RFC 5681 §3.1, equation 4: `max(FlightSize / 2, 2 * SMSS)`; RFC 9438 §4.6 says the same of CUBIC.
    #[test]
    fn two_segments_are_the_least_threshold() {
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
            let mut cc = Congestion::new(algorithm, MSS, 1);
            cc.on_congestion(MSS, MSS);
            assert_eq!(cc.ssthresh, 2 * MSS);
            cc.on_timeout(0, MSS, true);
            assert_eq!((cc.cwnd, cc.ssthresh), (MSS, 2 * MSS));
        }
    }

    /// RFC 9438 §4.1, §4.6: 0.7 on loss, then concave growth that reaches the old window after K seconds.
    #[test]
    fn cubic_returns_to_the_old_window_after_k() {
        let mut cc = Congestion::new(Algorithm::Cubic, MSS, 100);
        cc.on_congestion(0, MSS);
        assert_eq!(cc.ssthresh, 70 * MSS);
        cc.cwnd = cc.ssthresh;
        // K = cbrt(W_max * 0.3 / 0.4) = cbrt(75) = 4.217 s.
        let mut now = Time::from_secs(1);
        let start = now;
        while now < start + Duration::from_millis(4217) {
            for _ in 0..cc.cwnd / MSS {
                cc.on_ack(&ack(now), &Hystart::default());
            }
            now += Duration::from_millis(100);
        }
        let segments = cc.cwnd / MSS;
        assert!((95..=102).contains(&segments), "{segments}");
    }

    /// RFC 9438 §4.4, §4.5: near the old window the curve is flat, and behind it the window rises no faster than the curve.
    #[test]
    fn what_was_acknowledged_on_the_plateau_does_not_come_in_at_once() {
        let mut cc = Congestion::new(Algorithm::Cubic, MSS, 100);
        cc.on_congestion(0, MSS);
        cc.cwnd = cc.ssthresh;
        let (mut now, mut before, mut reno) = (Time::from_secs(1), cc.cwnd, 70.0_f32);
        let curve = |s: f32| 0.4 * (s - 75_f32.cbrt()).powi(3) + 100.0;
        for round in 0..80 {
            for _ in 0..cc.cwnd / MSS {
                cc.on_ack(&ack(now), &Hystart::default());
                assert!(cc.cwnd - before <= MSS, "{} segments at once", (cc.cwnd - before) / MSS);
                before = cc.cwnd;
            }
            now += Duration::from_millis(100);
            // RFC 9438 §4.3: never below what Reno would have.
            reno += if reno < 100.0 { 9.0 / 17.0 } else { 1.0 };
            let (is, at) = (cc.cwnd as f32 / MSS as f32, curve(round as f32 * 0.1 + 0.1).max(reno));
            assert!((at - 3.0..at + 2.0).contains(&is), "{is} segments, the curve is at {at}, round {round}");
        }
    }

    /// Prague: half of the share that is marked, two segments at least; slow start is over by it. In an episode the threshold is less.
    #[test]
    fn prague_cuts() {
        let share = |percent: u32| prague::ONE / 100 * percent;
        let mut cc = Congestion::new(Algorithm::Prague, MSS, 100);
        cc.cut(share(5), false, MSS);
        assert!((94_999..=95_001).contains(&cc.cwnd) && cc.ssthresh == cc.cwnd, "{cc:?}");
        cc.on_ack(&ack(Time::ZERO), &Hystart::default());
        assert_eq!(cc.cwnd, cc.ssthresh, "it grows elsewhere");
        cc.grow(500);
        cc.on_congestion(u32::MAX, MSS);
        let (cwnd, ssthresh) = (cc.cwnd, cc.ssthresh);
        assert_eq!(ssthresh, cwnd / 2, "a loss halves");
        cc.cut(share(50), true, MSS);
        assert!(cc.cwnd == cwnd && cc.ssthresh.abs_diff(ssthresh / 2) < 3, "{cc:?}");
        for _ in 0..20 {
            cc.cut(share(50), false, MSS);
        }
        assert_eq!((cc.cwnd, cc.ssthresh), (2 * MSS, 2 * MSS));
        // After a timeout, too: less is not made more.
        cc.on_timeout(2 * MSS, MSS, true);
        cc.cut(share(50), false, MSS);
        assert_eq!((cc.cwnd, cc.ssthresh), (MSS, 2 * MSS));
    }

    #[test]
    fn idleness_halves_down_to_the_initial_window() {
        let mut cc = Congestion::new(Algorithm::Cubic, MSS, 80);
        cc.on_idle(2, 10 * MSS);
        assert_eq!(cc.cwnd, 20 * MSS);
        cc.on_idle(9, 10 * MSS);
        assert_eq!(cc.cwnd, 10 * MSS);
    }
}
