//! Published workloads: ETC and USR of Facebook, after B. Atikoglu, Y. Xu, E. Frachtenberg, S. Jiang and M. Paleczny, "Workload Analysis of a Large-Scale
//! Key-Value Store", SIGMETRICS 2012.
//!
//! | | ETC | USR |
//! |---|---|---|
//! | keys | generalised extreme value: location 30.7984, scale 8.20449, shape 0.078688 (section 5) | 16 or 21 bytes (section 3.2) |
//! | values | a table up to 14 bytes, then generalised Pareto: scale 214.476, shape 0.348238 (section 5) | 2 bytes (section 3.2) |
//! | requests | 30 gets to a set (abstract) | 99.8 % gets (section 3.1) |
//!
//! What the paper does not say, and what is taken here: keys of USR have either length as often; the Pareto distribution of ETC's values begins at 15 bytes,
//! where the table ends; popularity is Zipf's law with exponent 0.99 for both, as other benchmarks have it, since the paper draws it and fits nothing to it.
//! Deletes, which ETC has, too, are not sent.

use std::str::FromStr;

use super::popularity::Popularity;
use super::sizes::Sizes;

/// A published workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A general cache of a web site.
    Etc,
    /// Of the status of users' accounts.
    Usr,
}

impl Workload {
    /// Sizes of keys.
    #[must_use]
    pub fn key_sizes(self) -> Sizes {
        match self {
            Self::Etc => Sizes::Extreme(30.7984, 8.20449, 0.078_688),
            Self::Usr => Sizes::UsrKeys,
        }
    }

    /// Sizes of values.
    #[must_use]
    pub fn value_sizes(self) -> Sizes {
        match self {
            Self::Etc => Sizes::EtcValues,
            Self::Usr => Sizes::Fixed(2),
        }
    }

    /// Share of requests that are sets.
    #[must_use]
    pub fn update(self) -> f64 {
        match self {
            Self::Etc => 1.0 / 31.0,
            Self::Usr => 0.002,
        }
    }

    /// Which keys are asked for.
    #[must_use]
    pub fn popularity(self) -> Popularity {
        Popularity::Zipf(0.99)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "etc" => Ok(Self::Etc),
            "usr" => Ok(Self::Usr),
            _ => Err(format!("'{text}' is not a workload: etc or usr")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::published::ETC_SMALL;
    use super::*;
    use flowlane_stack::rng::Rng;

    fn drawn(sizes: Sizes, most: u32) -> Vec<u32> {
        let mut rng = Rng::new(0xe7c);
        (0..400_000).map(|_| sizes.draw(&mut rng, 0, most)).collect()
    }

    fn mean(all: &[u32]) -> f64 {
        all.iter().map(|n| f64::from(*n)).sum::<f64>() / all.len() as f64
    }

    /// Mean of a generalised extreme value distribution: location + scale (gamma(1 - shape) - 1) / shape, where gamma(1 - 0.078688) is 1.05203.
    #[test]
    fn keys_of_etc_have_the_mean_and_the_median_of_the_fit() {
        let mut keys = drawn(Workload::Etc.key_sizes(), 250);
        let expected = 30.7984 + 8.20449 * (1.052_027 - 1.0) / 0.078_688;
        assert!((mean(&keys) - expected).abs() < 0.1, "{} {expected}", mean(&keys));
        keys.sort_unstable();
        // The median: location + scale (ln 2 ^ -shape - 1) / shape.
        assert!(keys[keys.len() / 2].abs_diff(34) <= 1, "{}", keys[keys.len() / 2]);
    }

    #[test]
    fn values_of_etc_have_the_shares_and_the_mean_of_the_fit() {
        let values = drawn(Workload::Etc.value_sizes(), 1 << 20);
        for (len, share) in ETC_SMALL.iter().enumerate() {
            let had = values.iter().filter(|n| **n == len as u32).count() as f64 / values.len() as f64;
            // Five deviations of a count of so many.
            let deviation = (share * (1.0 - share) / values.len() as f64).sqrt();
            assert!((had - share).abs() < 5.0 * deviation, "{len}: {had}, not {share}");
        }
        let small: f64 = ETC_SMALL.iter().enumerate().map(|(len, share)| len as f64 * share).sum();
        let rest = 1.0 - ETC_SMALL.iter().sum::<f64>();
        let expected = small + rest * (15.0 + 214.476 / (1.0 - 0.348_238));
        assert!((mean(&values) / expected - 1.0).abs() < 0.02, "{}, not {expected}", mean(&values));
    }

    #[test]
    fn keys_of_usr_have_two_lengths() {
        let keys = drawn(Workload::Usr.key_sizes(), 250);
        let short = keys.iter().filter(|n| **n == 16).count();
        assert!(keys.iter().all(|n| [16, 21].contains(n)));
        assert!(short.abs_diff(200_000) < 2000, "{short}");
        assert_eq!(Workload::Usr.value_sizes(), Sizes::Fixed(2));
        assert!("var".parse::<Workload>().is_err());
    }
}
