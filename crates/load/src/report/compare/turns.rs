//! Comparison of two commands in turns: as many pairs as it takes.
//!
//! Pairs are looked at after 6 of them, then after half as many more each time. Who looks often finds something by chance often, so each
//! look has only its share of the errors that are allowed in all (Bonferroni's inequality, as for several metrics): of comparisons of a
//! program with itself at most one in twenty finds a difference, however many looks there are.
//!
//! It is over when
//!
//! * a difference is shown;
//! * or none is, and one of the size that was asked for would have been, with a chance of 95 %: **the smallest effect that could have
//!   been seen** is the half width of the interval, and Student's t of that chance beside it;
//! * or there are no more pairs. Then what could have been seen is larger than what was asked for, and the result says so.

use flowlane_stack::rng::Rng;
use serde::Serialize;

use super::{Bounds, CompareOptions, interval};

/// Pairs before the first look.
const FIRST: usize = 6;
/// Chance with which the smallest effect is seen.
const POWER: f64 = 0.95;

/// What is known after some pairs.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Judged {
    /// Pairs of runs, at least two.
    #[cfg_attr(feature = "schema", schemars(range(min = 2)))]
    pub pairs: usize,
    /// Geometric mean of A's figures.
    pub a: f64,
    /// Geometric mean of B's figures.
    pub b: f64,
    /// B / A.
    pub ratio: f64,
    /// Interval of the true ratio.
    #[serde(flatten)]
    pub bounds: Bounds,
    /// The smallest effect that could have been seen: 0.02 is a ratio of 1.02, or its inverse.
    pub could_see: f64,
    /// What was found.
    pub verdict: Verdict,
}

/// What was found.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B's figure is larger.
    BIsMore,
    /// B's figure is smaller.
    BIsLess,
    /// No difference was shown, and one of the size asked for would have been.
    NoDifference,
    /// No difference was shown, and the pairs were too few to see one of the size asked for.
    Undecided,
    /// It was ended between two looks, so nothing is found.
    Interrupted,
}

/// Two sides, in turns.
#[derive(Debug)]
pub struct Turns {
    wish: CompareOptions,
    /// The size of a difference that is to be seen.
    smallest: f64,
    /// Numbers of pairs at which there is a look.
    looks: Vec<usize>,
    logarithms: (Vec<f64>, Vec<f64>),
}

impl Turns {
    /// Pairs until a difference of `smallest` (0.02 is 2 %) is seen or ruled out, but at most `most` of them, and at least 2.
    #[must_use]
    pub fn new(wish: CompareOptions, smallest: f64, most: usize) -> Self {
        let mut looks: Vec<usize> =
            std::iter::successors(Some(FIRST), |n| Some(n + n / 2)).take_while(|n| *n < most).collect();
        looks.push(most.max(2));
        // Guard: `1.0 - (1.0 - wish.confidence) / looks.len() as f64` as `1.0 - 8.0 * (1.0 - wish.confidence)
        // / looks.len() as f64` fails turns
        let wish = CompareOptions { confidence: 1.0 - (1.0 - wish.confidence) / looks.len() as f64, ..wish };
        Self { wish, smallest, looks, logarithms: (Vec::new(), Vec::new()) }
    }

    /// Takes the figures of a pair, which are above 0; the result once it is there.
    pub fn pair(&mut self, a: f64, b: f64) -> Option<Judged> {
        self.logarithms.0.push(a.ln());
        self.logarithms.1.push(b.ln());
        let pairs = self.logarithms.0.len();
        let last = self.looks.last().is_none_or(|last| pairs >= *last);
        if !last && !self.looks.contains(&pairs) {
            return None;
        }
        let judged = self.judge()?;
        (last || judged.verdict != Verdict::Undecided).then_some(judged)
    }

    /// What is known when somebody ends it; `None` before the second pair. There is no look at it, so no difference is found: who ends it when the
    /// figures please him would find one by chance.
    #[must_use]
    pub fn interrupted(&self) -> Option<Judged> {
        self.judge().map(|judged| Judged { verdict: Verdict::Interrupted, ..judged })
    }

    fn judge(&self) -> Option<Judged> {
        let (xs, ys) = (&self.logarithms.0, &self.logarithms.1);
        let wish = &self.wish;
        let (_, (low, high)) = interval::of_runs(xs, ys, wish, &mut Rng::new(wish.seed))?;
        let (a, b) = (interval::mean(xs), interval::mean(ys));
        let power = interval::t_quantile(POWER, xs.len() as f64 - 1.0);
        let differences: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - x).collect();
        let could_see = ((high - low) / 2.0 + power * interval::error2(&differences).sqrt()).exp() - 1.0;
        let neglect = wish.neglect.ln_1p();
        let verdict = match () {
            () if low > neglect => Verdict::BIsMore,
            () if high < -neglect => Verdict::BIsLess,
            () if could_see <= self.smallest => Verdict::NoDifference,
            () => Verdict::Undecided,
        };
        Some(Judged {
            pairs: xs.len(),
            a: a.exp(),
            b: b.exp(),
            ratio: (b - a).exp(),
            bounds: Bounds { low: low.exp(), high: high.exp() },
            could_see,
            verdict,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers a second of one echo on one machine, two seconds each, as `benches/kernel/udp.sh` printed them while others worked there.
    const RECORDED: [f64; 20] = [
        324_139.0, 325_552.0, 329_890.0, 329_677.0, 296_346.0, 325_232.0, 323_164.0, 336_624.0, 336_030.0,
        334_720.0, 325_648.0, 332_416.0, 331_344.0, 333_312.0, 326_916.0, 328_272.0, 308_120.0, 322_048.0,
        335_090.0, 326_144.0,
    ];

    /// Compares a program with one that has `factor` times its figure, by noise that was recorded.
    fn compared(rng: &mut Rng, factor: f64) -> Judged {
        let wish = CompareOptions { draws: 500, seed: rng.next_u64(), ..CompareOptions::default() };
        let mut turns = Turns::new(wish, 0.02, 400);
        loop {
            let mut figure = || RECORDED[rng.below(RECORDED.len() as u32) as usize];
            let (a, b) = (figure(), figure() * factor);
            if let Some(judged) = turns.pair(a, b) {
                return judged;
            }
        }
    }

    /// Of 200 comparisons of a program with itself at most 5 % find a difference.
    #[test]
    fn a_program_is_like_itself() {
        let mut rng = Rng::new(200);
        let all: Vec<Judged> = (0..200).map(|_| compared(&mut rng, 1.0)).collect();
        let found = all.iter().filter(|j| matches!(j.verdict, Verdict::BIsMore | Verdict::BIsLess)).count();
        assert!(found <= 10, "{found} of 200");
        // And none of the others for want of pairs.
        assert!(all.iter().all(|j| j.verdict != Verdict::Undecided));
    }

    /// Of 50 that are slower by 2 % at least 90 % are found, and none is found to be faster.
    #[test]
    fn two_percent_are_found() {
        let mut rng = Rng::new(50);
        let all: Vec<Judged> = (0..50).map(|_| compared(&mut rng, 0.98)).collect();
        let found = all.iter().filter(|j| j.verdict == Verdict::BIsLess).count();
        assert!(found >= 45, "{found} of 50");
        assert!(all.iter().all(|j| j.verdict != Verdict::BIsMore));
    }

    #[test]
    fn what_could_not_be_seen_is_said() {
        let mut turns = Turns::new(CompareOptions::default(), 0.01, 6);
        let figures = [(100.0, 120.0), (120.0, 100.0), (90.0, 110.0), (110.0, 90.0), (100.0, 101.0)];
        assert!(figures.iter().all(|(a, b)| turns.pair(*a, *b).is_none()));
        let judged = turns.pair(101.0, 100.0).unwrap();
        assert_eq!((judged.verdict, judged.pairs), (Verdict::Undecided, 6));
        assert!(judged.could_see > 0.1, "{judged:?}");
        // A large difference is seen at once, and a small one is neglected if that is asked for.
        let mut turns = Turns::new(CompareOptions::default(), 0.01, 100);
        let judged = (0..100).find_map(|n| turns.pair(100.0 + f64::from(n % 3), 200.0)).unwrap();
        assert_eq!((judged.verdict, judged.pairs), (Verdict::BIsMore, 6));
        let mut turns = Turns::new(CompareOptions { neglect: 0.05, ..CompareOptions::default() }, 0.02, 100);
        let judged = (0..100).find_map(|n| turns.pair(100.0 + f64::from(n % 3), 103.0)).unwrap();
        assert_eq!(judged.verdict, Verdict::NoDifference);
    }
}
