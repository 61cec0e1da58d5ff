//! `HyStart++` (RFC 9406): leaving slow start when delay rises, before there is loss.
//!
//! Round by round the least round-trip time is compared with the round before. A rise ends unchecked doubling: for up to
//! five rounds the window grows a sixteenth as fast (Conservative Slow Start); if the delay falls back, doubling resumes.
//!
//! RFC 9406 §4.3 recommends a quarter and lets implementations choose. In five rounds of a quarter the window triples behind
//! the rise of delay. Beside a sender that leaves slow start there at once, as Linux does, a deep queue then goes to ours, and
//! CUBIC takes minutes to give it back (`benches/tcp/share.sh`). In five rounds of a sixteenth it grows by a third.

use crate::tcp::Seq;

const MIN_RTT_THRESH: u32 = 4_000;
const MAX_RTT_THRESH: u32 = 16_000;
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_GROWTH_DIVISOR: u32 = 16;
const CSS_ROUNDS: u8 = 5;

/// State of one slow start, or of the part of it since data was last on its way.
#[derive(Debug, Clone)]
pub(crate) struct Hystart {
    window_end: Seq,
    last_min: u32,
    current_min: u32,
    /// Delay before the rise; 0 outside Conservative Slow Start.
    css_baseline: u32,
    samples: u8,
    css_rounds: u8,
    started: bool,
}

impl Default for Hystart {
    fn default() -> Self {
        Self {
            window_end: Seq(0),
            last_min: u32::MAX,
            current_min: u32::MAX,
            css_baseline: 0,
            samples: 0,
            css_rounds: 0,
            started: false,
        }
    }
}

impl Hystart {
    /// How much the window grows for `bytes` acknowledged.
    pub(super) fn slowed(&self, bytes: u32) -> u32 {
        if self.css_baseline > 0 { bytes / CSS_GROWTH_DIVISOR } else { bytes }
    }

    /// A sample; `una` has been reached and `nxt` is the next to send. Returns whether slow start is over.
    pub(super) fn sample(&mut self, us: u32, una: Seq, nxt: Seq) -> bool {
        if !self.started || una >= self.window_end {
            self.started = true;
            self.window_end = nxt;
            self.last_min = self.current_min;
            self.current_min = u32::MAX;
            self.samples = 0;
            if self.css_baseline > 0 {
                self.css_rounds += 1;
                // Guard: `self.css_rounds >= CSS_ROUNDS` as `false` fails hystart::tests::rising
                if self.css_rounds >= CSS_ROUNDS {
                    *self = Self::default();
                    return true;
                }
            }
        }
        self.current_min = self.current_min.min(us);
        self.samples = self.samples.saturating_add(1);
        if self.samples < N_RTT_SAMPLE || self.last_min == u32::MAX {
            return false;
        }
        if self.css_baseline > 0 {
            // Guard: `self.current_min < self.css_baseline` as `false` fails hystart::tests::delay_that
            if self.current_min < self.css_baseline {
                self.css_baseline = 0;
            }
        } else {
            let thresh = (self.last_min / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
            // Guard: `self.current_min >= self.last_min.saturating_add(thresh)` as `false` fails
            // hystart::tests::rising
            if self.current_min >= self.last_min.saturating_add(thresh) {
                self.css_baseline = self.current_min;
                self.css_rounds = 0;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9406 §4.2: a round whose least delay rose by an eighth slows the growth; five such rounds end slow start.
    #[test]
    fn rising_delay_ends_slow_start() {
        let mut hystart = Hystart::default();
        let mut at = 0;
        let mut round = |hystart: &mut Hystart, us: u32| {
            let mut done = false;
            for n in 0..10u32 {
                done |= hystart.sample(us, Seq(at + n), Seq(at + 10));
            }
            at += 10;
            done
        };
        assert!(!round(&mut hystart, 50_000));
        assert_eq!(hystart.slowed(1000), 1000);
        assert!(!round(&mut hystart, 60_000));
        assert_eq!(hystart.slowed(1600), 100);
        let rounds = (0..10).position(|_| round(&mut hystart, 61_000));
        assert_eq!(rounds, Some(4));
    }

    #[test]
    fn delay_that_falls_back_resumes_doubling() {
        let mut hystart = Hystart::default();
        for (round, us) in [50_000, 60_000, 50_000].into_iter().enumerate() {
            for n in 0..10 {
                let at = round as u32 * 10;
                assert!(!hystart.sample(us, Seq(at + n), Seq(at + 10)));
            }
        }
        assert_eq!(hystart.slowed(1000), 1000);
    }
}
