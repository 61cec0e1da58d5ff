//! Distributions of sizes, in bytes: of keys and of values.
//!
//! | text | the size |
//! |---|---|
//! | `200` | always this |
//! | `10..100` | each from 10 to 100 as often as any other |
//! | `normal:MEAN,SD` | a normal distribution |
//! | `exponential:MEAN` | an exponential distribution |
//! | `pareto:LOCATION,SCALE,SHAPE` | a generalised Pareto distribution |
//! | `gev:LOCATION,SCALE,SHAPE` | a generalised extreme value distribution |
//!
//! A draw is rounded to whole bytes and bounded by the caller.

use std::str::FromStr;

use flowlane_stack::rng::Rng;

use super::laws::{extreme, normal, pareto};
use super::published;
use crate::run::moments::{exponential, uniform};
use crate::units;

/// A distribution of sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Sizes {
    /// One size.
    Fixed(u32),
    /// From the first to the second, both included.
    Uniform(u32, u32),
    /// Mean and standard deviation.
    Normal(f64, f64),
    /// Mean.
    Exponential(f64),
    /// Generalised Pareto: location, scale and shape.
    Pareto(f64, f64, f64),
    /// Generalised extreme value: location, scale and shape.
    Extreme(f64, f64, f64),
    /// The values of the workload ETC: a table of small ones, and a generalised Pareto distribution of the rest.
    EtcValues,
    /// The keys of the workload USR: two lengths.
    UsrKeys,
}

/// Why a text is no distribution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a size, as 200, 10..100, normal:MEAN,SD, exponential:MEAN, pareto:LOC,SCALE,SHAPE or gev:LOC,SCALE,SHAPE"
)]
pub struct BadSizes {
    text: String,
}

impl Sizes {
    /// Draws a size from `least` to `most`.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut Rng, least: u32, most: u32) -> u32 {
        let size = match *self {
            Self::Fixed(size) => return size.clamp(least, most),
            Self::Uniform(from, to) => {
                return from.saturating_add(rng.below((to - from).saturating_add(1))).clamp(least, most);
            }
            Self::Normal(mean, deviation) => mean + deviation * normal(rng),
            Self::Exponential(mean) => mean * exponential(rng),
            Self::Pareto(location, scale, shape) => pareto(location, scale, shape, uniform(rng)),
            Self::Extreme(location, scale, shape) => extreme(location, scale, shape, uniform(rng)),
            Self::EtcValues => published::etc_value(uniform(rng)),
            Self::UsrKeys => published::usr_key(uniform(rng)),
        };
        // Beyond the bounds of the type, and what is no number, is a bound, too.
        (size.round() as u32).clamp(least, most)
    }

    /// The largest size that comes at all; `None` if there is no bound.
    #[must_use]
    pub fn largest(&self) -> Option<u32> {
        match *self {
            Self::Fixed(size) => Some(size),
            Self::Uniform(_, to) => Some(to),
            Self::UsrKeys => Some(published::USR_KEYS.1),
            _ => None,
        }
    }
}

impl FromStr for Sizes {
    type Err = BadSizes;

    fn from_str(text: &str) -> Result<Self, BadSizes> {
        let bad = || BadSizes { text: text.to_owned() };
        let size =
            |text: &str| units::size(text).ok().and_then(|size| u32::try_from(size).ok()).ok_or_else(bad);
        if let Some((from, to)) = text.split_once("..") {
            let (from, to) = (size(from)?, size(to)?);
            return if from <= to { Ok(Self::Uniform(from, to)) } else { Err(bad()) };
        }
        let Some((name, numbers)) = text.split_once(':') else { return Ok(Self::Fixed(size(text)?)) };
        let numbers: Result<Vec<f64>, _> = numbers.split(',').map(|n| n.trim().parse::<f64>()).collect();
        let numbers = numbers.ok().filter(|all| all.iter().all(|n| n.is_finite() && n.abs() < 1e9));
        match (name, numbers.as_deref()) {
            ("fixed", Some([n])) if *n >= 0.0 && n.fract() == 0.0 => Ok(Self::Fixed(*n as u32)),
            ("normal", Some([mean, deviation])) if *deviation >= 0.0 => Ok(Self::Normal(*mean, *deviation)),
            ("exponential", Some([mean])) if *mean > 0.0 => Ok(Self::Exponential(*mean)),
            ("pareto", Some([location, scale, shape])) if *scale > 0.0 => {
                Ok(Self::Pareto(*location, *scale, *shape))
            }
            ("gev", Some([location, scale, shape])) if *scale > 0.0 => {
                Ok(Self::Extreme(*location, *scale, *shape))
            }
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Fixed(size) => write!(f, "{size} bytes"),
            Self::Uniform(from, to) => write!(f, "{from} to {to} bytes"),
            Self::Normal(mean, deviation) => write!(f, "normal, {mean} bytes, deviation {deviation}"),
            Self::Exponential(mean) => write!(f, "exponential, {mean} bytes"),
            Self::Pareto(location, scale, shape) => {
                write!(f, "generalised Pareto {location}, {scale}, {shape}")
            }
            Self::Extreme(location, scale, shape) => {
                write!(f, "generalised extreme value {location}, {scale}, {shape}")
            }
            Self::EtcValues => f.write_str("ETC"),
            Self::UsrKeys => write!(f, "{} or {} bytes", published::USR_KEYS.0, published::USR_KEYS.1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Sizes {
        text.parse().unwrap()
    }

    /// Mean and deviation of a hundred thousand draws.
    fn moments(sizes: &Sizes) -> (f64, f64) {
        let mut rng = Rng::new(0x517e);
        let all: Vec<f64> = (0..100_000).map(|_| f64::from(sizes.draw(&mut rng, 0, 1 << 20))).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        (mean, (all.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt())
    }

    #[test]
    fn draws_have_the_mean_and_the_deviation_of_their_distribution() {
        for (text, mean, deviation, within) in [
            ("200", 200.0, 0.0, 1e-9),
            ("10..100", 55.0, (91.0f64 * 91.0 - 1.0).sqrt() / 12f64.sqrt(), 0.01),
            ("normal:500,50", 500.0, 50.0, 0.01),
            ("exponential:300", 300.0, 300.0, 0.01),
            // Mean location + scale / (1 - shape), deviation scale / ((1 - shape) sqrt(1 - 2 shape)).
            ("pareto:10,100,0.2", 135.0, 100.0 / 0.8 / 0.6f64.sqrt(), 0.03),
            ("pareto:0,100,0", 100.0, 100.0, 0.01),
            // Euler's constant, and pi / sqrt(6), of Gumbel's distribution.
            ("gev:100,10,0", 105.772, 12.825, 0.01),
        ] {
            let (had, spread) = moments(&sizes(text));
            assert!((had - mean).abs() <= within * mean, "{text}: mean {had}, not {mean}");
            assert!(
                (spread - deviation).abs() <= within * deviation.max(1.0),
                "{text}: {spread}, not {deviation}"
            );
        }
    }

    #[test]
    fn draws_are_bounded() {
        let mut rng = Rng::new(1);
        for text in
            ["0", "9999", "0..4000", "normal:0,1000", "exponential:90", "pareto:0,100,2", "gev:0,9,-3"]
        {
            for _ in 0..10_000 {
                assert!((5..=90).contains(&sizes(text).draw(&mut rng, 5, 90)), "{text}");
            }
        }
    }

    #[test]
    fn texts_that_are_none_are_refused() {
        assert_eq!((sizes("2Ki"), sizes("fixed:30")), (Sizes::Fixed(2048), Sizes::Fixed(30)));
        for text in [
            "",
            "x",
            "-1",
            "5..",
            "9..5",
            "normal",
            "normal:5",
            "normal:5,-1",
            "exponential:0",
            "pareto:1,0,1",
            "gev:1,2",
            "gev:1,2,x",
            "gev:1,2,inf",
            "etc:5",
            "fixed:1.5",
            "5G",
        ] {
            let error = text.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("10..100"), "{text}: {error}");
        }
    }
}
