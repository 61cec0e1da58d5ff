//! CUBIC (RFC 9438): the window as a cubic function of the time since the last reduction.
//!
//! `W_cubic(t) = C (t - K)^3 + W_max`, in segments and seconds. Single precision is enough: a window of 2^24 segments.

use crate::tcp::connection::congestion::Acked;

/// How fast it probes (RFC 9438 §5).
const C: f32 = 0.4;
/// Multiplicative decrease (RFC 9438 §4.6).
const BETA: f32 = 0.7;
/// Reno-friendly increase for that decrease (RFC 9438 §4.3).
const ALPHA: f32 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State between two reductions.
#[derive(Debug, Clone, Default)]
pub(super) struct Cubic {
    /// Start of this epoch of congestion avoidance, the low bits of milliseconds; zero before it.
    epoch: u32,
    /// Seconds from the epoch to `w_max`.
    k: f32,
    /// Window before the last reduction, segments.
    w_max: f32,
    /// Window before the last reduction without fast convergence, segments.
    cwnd_prior: f32,
    /// What Reno would have, segments.
    w_est: f32,
}

impl Cubic {
    /// How many bytes must be acknowledged for one more segment.
    pub(super) fn bytes_per_segment(&mut self, cwnd: u32, ack: &Acked) -> u32 {
        let mss = ack.mss as f32;
        let w = cwnd as f32 / mss;
        let now = ack.now.as_millis() as u32;
        if self.epoch == 0 {
            self.epoch = now.max(1);
            self.w_est = w;
            if w < self.w_max {
                self.k = ((self.w_max - w) / C).cbrt();
            } else {
                self.k = 0.0;
                self.w_max = w;
            }
        }
        let t = (now.wrapping_sub(self.epoch) as i32).max(0) as f32 / 1e3 + ack.srtt_us as f32 / 1e6;
        // RFC 9438 §4.2: the target a round-trip time from now, between cwnd and 1.5 cwnd.
        // Guard: `(C * (t - self.k).powi(3) + self.w_max).clamp(w, 1.5 * w)` as `w` fails congestion::
        let target = (C * (t - self.k).powi(3) + self.w_max).clamp(w, 1.5 * w);
        // RFC 9438 §4.3: never slower than Reno; as fast as Reno once it has passed the old window.
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * ack.bytes as f32 / cwnd as f32;
        // Guard: `target.max(self.w_est)` as `target` fails congestion::
        let target = target.max(self.w_est);
        let more = target - w;
        // RFC 9438 §4.4: a window's worth of acknowledgements brings the window to the target. On the plateau, one segment in a
        // hundred rounds.
        let per_segment = w / more.max(0.01);
        (per_segment * mss).clamp(mss * 2.0_f32.min(per_segment), 1e9) as u32
    }

    /// RFC 9438 §4.6, with fast convergence (§4.7). Returns the new threshold in bytes.
    pub(super) fn reduce(&mut self, cwnd: u32, mss: u32) -> u32 {
        let w = cwnd as f32 / mss as f32;
        self.cwnd_prior = w;
        // Guard: `w < self.w_max` as `false` fails cubic::tests::fast_convergence
        self.w_max = if w < self.w_max { w * (1.0 + BETA) / 2.0 } else { w };
        self.epoch = 0;
        (u64::from(cwnd) * 7 / 10) as u32
    }

    /// The next acknowledgement begins a new epoch.
    pub(super) fn restart(&mut self) {
        self.epoch = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 §4.7: who loses below the window of the last loss gives way to newcomers, and aims lower.
    #[test]
    fn fast_convergence() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.reduce(100_000, 1000), 70_000);
        assert!((cubic.w_max - 100.0).abs() < 0.1);
        assert_eq!(cubic.reduce(80_000, 1000), 56_000);
        assert!((cubic.w_max - 68.0).abs() < 0.1, "{}", cubic.w_max);
        assert_eq!(cubic.reduce(90_000, 1000), 63_000);
        assert!((cubic.w_max - 90.0).abs() < 0.1, "{}", cubic.w_max);
    }
}
