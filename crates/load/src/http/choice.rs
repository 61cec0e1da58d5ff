//! Weighted random choice, and think times.

use std::time::Duration;

use flowlane_stack::rng::Rng;

use crate::run::moments::{exponential, uniform};

/// Time that a client waits between an answer and its next request.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Think {
    /// None.
    #[default]
    None,
    /// Always this time.
    Constant(Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration),
    /// These times in turn, for each connection from the first on.
    List(Vec<Duration>),
}

impl Think {
    /// The time before request number `n` of a connection, nanoseconds.
    pub(super) fn nanos(&self, n: u64, rng: &mut Rng) -> u64 {
        let nanos = |d: &Duration| d.as_nanos() as u64;
        match self {
            Self::None => 0,
            Self::Constant(time) => nanos(time),
            Self::Exponential(mean) => (exponential(rng) * nanos(mean) as f64) as u64,
            Self::List(times) if times.is_empty() => 0,
            Self::List(times) => nanos(&times[(n % times.len() as u64) as usize]),
        }
    }

    /// Whether there is no think time.
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// Random choice by weight.
#[derive(Debug, Clone)]
pub(super) struct Weighted {
    /// Sums of the weights up to each, scaled so that the last is 1.
    sums: Vec<f64>,
}

impl Weighted {
    pub(super) fn new(weights: impl Iterator<Item = f64>) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = weights
            .map(|w| {
                sum += w;
                sum
            })
            .collect();
        sums.iter_mut().for_each(|s| *s /= sum);
        Self { sums }
    }

    /// Whether there is nothing to choose.
    #[inline]
    pub(super) fn is_one(&self) -> bool {
        self.sums.len() < 2
    }

    /// The index of the choice. Draws no random number if there is only one.
    #[inline]
    pub(super) fn pick(&self, rng: &mut Rng) -> usize {
        if self.sums.len() < 2 {
            return 0;
        }
        let u = uniform(rng);
        self.sums.partition_point(|s| *s < u).min(self.sums.len() - 1)
    }

    /// Whether all weights are equal.
    pub(super) fn is_even(&self) -> bool {
        let each = 1.0 / self.sums.len() as f64;
        self.sums.iter().enumerate().all(|(i, s)| (s - each * (i + 1) as f64).abs() < 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept() {
        let mut rng = Rng::new(1);
        let weighted = Weighted::new([1.0, 0.0, 3.0].into_iter());
        let mut counts = [0u32; 3];
        for _ in 0..40_000 {
            counts[weighted.pick(&mut rng)] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((9_500..10_500).contains(&counts[0]), "{counts:?}");
        assert!(!weighted.is_even());
        assert!(Weighted::new([2.0, 2.0, 2.0].into_iter()).is_even());
    }

    #[test]
    fn thinking_takes_its_time() {
        let mut rng = Rng::new(2);
        let ms = Duration::from_millis;
        assert_eq!(Think::None.nanos(3, &mut rng), 0);
        assert_eq!(Think::Constant(ms(2)).nanos(3, &mut rng), 2_000_000);
        let list = Think::List(vec![ms(1), ms(5)]);
        assert_eq!([0, 1, 2].map(|n| list.nanos(n, &mut rng)), [1_000_000, 5_000_000, 1_000_000]);
        let think = Think::Exponential(ms(10));
        let mean = (0..100_000).map(|n| think.nanos(n, &mut rng) as f64).sum::<f64>() / 1e5;
        assert!((9.8e6..10.2e6).contains(&mean), "{mean}");
    }
}
