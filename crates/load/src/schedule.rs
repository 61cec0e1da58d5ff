//! When datagrams are to be sent: decided beforehand, whatever happens while they are.
//!
//! That is what "open loop" means. A generator that waits for answers, or that shifts its schedule when it is late
//! itself, sends less exactly when the far side is slow, and leaves the worst moments out of its figures (coordinated
//! omission). Here the n-th moment is a function of n (or of n and a seed), and latency counts from it.

use flowlane_stack::rng::Rng;

const SECOND: u64 = 1_000_000_000;

/// Divides a rate, or any amount, among lanes in whole numbers; the first takes the remainder.
#[must_use]
pub fn divide(amount: u64, lanes: usize) -> Vec<u64> {
    let n = lanes.max(1) as u64;
    let mut shares = vec![amount / n; lanes];
    if let Some(first) = shares.first_mut() {
        *first += amount % n;
    }
    shares
}

/// The moments of one lane, nanoseconds, never falling.
#[derive(Debug, Clone)]
pub struct Schedule {
    start: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// The n-th moment is start + n / rate, without drift however long it runs.
    Constant { rate: u64, sent: u64 },
    /// Independent exponential gaps.
    Poisson { mean: f64, at: f64, rng: Rng },
}

impl Schedule {
    /// Evenly spaced, `rate` a second, the first at `start`.
    #[must_use]
    pub fn constant(start: u64, rate: u64) -> Self {
        Self { start, kind: Kind::Constant { rate: rate.max(1), sent: 0 } }
    }

    /// Independent of each other, `rate` a second on average, from `start` on.
    #[must_use]
    pub fn poisson(start: u64, rate: u64, seed: u64) -> Self {
        let mean = SECOND as f64 / rate.max(1) as f64;
        let mut rng = Rng::new(seed);
        let at = gap(&mut rng, mean);
        Self { start, kind: Kind::Poisson { mean, at, rng } }
    }

    /// The next moment.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> u64 {
        match &self.kind {
            Kind::Constant { rate, sent } => {
                // Whole seconds apart, so that nothing overflows in centuries.
                self.start + sent / rate * SECOND + sent % rate * SECOND / rate
            }
            Kind::Poisson { at, .. } => self.start + *at as u64,
        }
    }

    /// Goes on to the moment after.
    #[inline]
    pub fn advance(&mut self) {
        match &mut self.kind {
            Kind::Constant { sent, .. } => *sent += 1,
            Kind::Poisson { mean, at, rng } => *at += gap(rng, *mean),
        }
    }
}

/// An exponentially distributed gap.
fn gap(rng: &mut Rng, mean: f64) -> f64 {
    // From (0, 1]: 53 bits, shifted by one so that zero cannot happen.
    let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -mean * uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_takes_the_remainder() {
        assert_eq!(divide(10, 4), [4, 2, 2, 2]);
        assert_eq!(divide(3, 4), [3, 0, 0, 0]);
        assert_eq!(divide(8, 1), [8]);
        assert!(divide(8, 0).is_empty());
    }

    #[test]
    fn constant_does_not_drift() {
        let mut schedule = Schedule::constant(1000, 3_000_007);
        for _ in 0..3_000_007 * 5 {
            schedule.advance();
        }
        assert_eq!(schedule.peek(), 1000 + 5 * SECOND);
        let mut fast = Schedule::constant(0, 9_000_000_000_000_000);
        fast.advance();
        assert_eq!(fast.peek(), 0);
    }

    #[test]
    fn constant_is_even() {
        let mut schedule = Schedule::constant(0, 7);
        let mut last = 0;
        for _ in 0..100 {
            schedule.advance();
            let gap = schedule.peek() - last;
            assert!((142_857_142..=142_857_143).contains(&gap), "{gap}");
            last = schedule.peek();
        }
    }

    #[test]
    fn poisson_has_its_mean_and_variance_and_repeats() {
        let moments = |seed| {
            let mut schedule = Schedule::poisson(5, 1_000_000, seed);
            let mut gaps = Vec::new();
            let mut last = 5;
            for _ in 0..100_000 {
                gaps.push((schedule.peek() - last) as f64);
                last = schedule.peek();
                schedule.advance();
            }
            gaps
        };
        let gaps = moments(1);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((990.0..1010.0).contains(&mean), "{mean}");
        assert!((0.97..1.03).contains(&(variance.sqrt() / mean)), "{variance}");
        assert_eq!(gaps, moments(1));
        assert_ne!(gaps, moments(2));
    }
}
