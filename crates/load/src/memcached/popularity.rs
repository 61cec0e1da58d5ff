//! Which key is asked for: all as often as any other, or by Zipf's law, where the key at rank r is asked for in proportion to r to the power of -s.

use std::str::FromStr;

use flowlane_stack::rng::Rng;

use crate::run::moments::uniform;

/// How often each key is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Popularity {
    /// All as often.
    Uniform,
    /// Zipf's law with this exponent, above 0. Key 0 is the most popular.
    Zipf(f64),
}

impl FromStr for Popularity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let exponent = text.strip_prefix("zipf:").and_then(|s| s.parse::<f64>().ok());
        match (text, exponent) {
            ("uniform", _) => Ok(Self::Uniform),
            (_, Some(s)) if s > 0.0 && s <= 10.0 => Ok(Self::Zipf(s)),
            _ => Err(format!("'{text}' is not uniform or zipf:S, with S above 0 and up to 10, as zipf:0.99")),
        }
    }
}

impl std::fmt::Display for Popularity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(s) => write!(f, "Zipf, exponent {s}"),
        }
    }
}

/// Picks keys.
#[derive(Debug, Clone)]
pub(super) enum Picker {
    Uniform(u64),
    Zipf(Zipf),
}

impl Picker {
    /// Of `keys` keys, at least one.
    pub(super) fn new(popularity: Popularity, keys: u64) -> Self {
        match popularity {
            Popularity::Uniform => Self::Uniform(keys.max(1)),
            Popularity::Zipf(s) => Self::Zipf(Zipf::new(keys.max(1), s)),
        }
    }

    /// The number of a key, from 0.
    #[inline]
    pub(super) fn pick(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Uniform(keys) => ((u128::from(rng.next_u64()) * u128::from(*keys)) >> 64) as u64,
            Self::Zipf(zipf) => zipf.pick(rng) - 1,
        }
    }
}

/// Zipf's law over ranks from 1, drawn by rejection from the inverse of its integral (Hörmann and Derflinger, 1996): no table, and hardly ever more than two
/// tries however many keys there are.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    ranks: f64,
    s: f64,
    /// The integral at the lower end, less the weight of rank 1, and at the upper end.
    low: f64,
    high: f64,
    /// A rank that is so near to the number drawn is taken without a look at the integral.
    near: f64,
}

impl Zipf {
    fn new(ranks: u64, s: f64) -> Self {
        let ranks = ranks as f64;
        let mut zipf = Self { ranks, s, low: 0.0, high: 0.0, near: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(ranks + 0.5);
        zipf.near = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.s * x.ln()).exp()
    }

    /// The integral of the weight from 1 to `x`: (x^(1-s) - 1) / (1-s), which is ln x where s is 1.
    fn integral(&self, x: f64) -> f64 {
        let (log, rest) = (x.ln(), 1.0 - self.s);
        if (rest * log).abs() < 1e-9 { log } else { (rest * log).exp_m1() / rest }
    }

    fn inverse(&self, y: f64) -> f64 {
        let rest = 1.0 - self.s;
        let t = (rest * y).max(-1.0);
        if t.abs() < 1e-9 { y.exp() } else { (t.ln_1p() / rest).exp() }
    }

    fn pick(&self, rng: &mut Rng) -> u64 {
        loop {
            let y = self.high + uniform(rng) * (self.low - self.high);
            let x = self.inverse(y);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.near || y >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi square of draws over ten keys is not beyond what one run in a thousand has (27.9 for nine degrees of freedom).
    #[test]
    fn keys_are_as_frequent_as_the_law_says() {
        for popularity in ["uniform", "zipf:0.5", "zipf:0.99", "zipf:1", "zipf:1.2", "zipf:3"] {
            let popularity: Popularity = popularity.parse().unwrap();
            let weight = |key: usize| match popularity {
                Popularity::Zipf(s) => ((key + 1) as f64).powf(-s),
                Popularity::Uniform => 1.0,
            };
            let all: f64 = (0..10).map(weight).sum();
            let (picker, mut rng, mut had) = (Picker::new(popularity, 10), Rng::new(0x21bf), [0u32; 10]);
            let draws = 200_000;
            (0..draws).for_each(|_| had[picker.pick(&mut rng) as usize] += 1);
            let chi: f64 = (0..10)
                .map(|key| {
                    let expected = f64::from(draws) * weight(key) / all;
                    (f64::from(had[key]) - expected).powi(2) / expected
                })
                .sum();
            assert!(chi < 27.9, "{popularity}: chi square {chi}, {had:?}");
        }
    }

    /// Of many keys, the head has the share that the law says: the sum of r^-s, which Euler and Maclaurin's formula gives for the tail.
    #[test]
    fn the_head_of_a_million_keys_has_its_share() {
        let (keys, draws) = (1_000_000u64, 200_000u32);
        for s in [0.8, 0.99, 1.0, 1.3] {
            let sum = |n: u64| (1..=n).map(|r| (r as f64).powf(-s)).sum::<f64>();
            let expected = sum(1000) / sum(keys);
            let (picker, mut rng) = (Picker::new(Popularity::Zipf(s), keys), Rng::new(7));
            let mut most = 0;
            let head = (0..draws)
                .filter(|_| {
                    let key = picker.pick(&mut rng);
                    most = most.max(key);
                    key < 1000
                })
                .count();
            let share = head as f64 / f64::from(draws);
            assert!((share - expected).abs() < 0.01, "{s}: {share}, not {expected}");
            assert!(most < keys && most > keys / 20, "{s}: {most}");
        }
    }

    #[test]
    fn one_key_is_always_the_same() {
        for popularity in [Popularity::Uniform, Popularity::Zipf(0.99)] {
            let (picker, mut rng) = (Picker::new(popularity, 1), Rng::new(3));
            assert!((0..1000).all(|_| picker.pick(&mut rng) == 0), "{popularity}");
        }
        for text in ["", "zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:11", "zipf:NaN", "normal"] {
            assert!(text.parse::<Popularity>().unwrap_err().contains("zipf:0.99"), "{text}");
        }
    }
}
