//! What a run must reach, as text: `p99 > 20ms`, `lost > 0.1%`, `rate < 90k`.
//!
//! A threshold names what makes the run *fail*. Metrics are percentiles of latency (`p50`, `p99.9`, any `pNN`), `mean`,
//! `max`, the same of the generator's own slip behind `slip-`, counts (`lost`, `late`, `reordered`, `duplicates`,
//! `corrupt`, and `errors` for lost and corrupt together) as numbers or as a share of what was sent, and `rate`,
//! answers a second.

use std::str::FromStr;

use hdrhistogram::Histogram;

use crate::outcome::Outcome;
use crate::report::Run;
use crate::report::model::Verdict;
use crate::units;

/// A condition under which a run fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    metric: Metric,
    above: bool,
    limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    Time { slip: bool, of: Time },
    Count(&'static str),
    Rate,
}

/// Which value of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Time {
    Percentile(f64),
    Mean,
    Max,
}

/// What it is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Number(u64),
    /// Share of what was sent, 0 to 1.
    Share(f64),
}

/// Why a text is no threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}")]
pub struct BadThreshold {
    text: String,
    what: String,
}

const COUNTS: [&str; 6] = ["lost", "late", "reordered", "duplicates", "corrupt", "errors"];

impl FromStr for Threshold {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Self, BadThreshold> {
        let bad = |what: String| BadThreshold { text: text.to_owned(), what };
        let (name, above, value) = split(text)?;
        let metric = metric(name).ok_or_else(|| {
            bad(format!("unknown metric '{name}': pNN, mean, max, slip-pNN, rate, {}", COUNTS.join(", ")))
        })?;
        let limit = match metric {
            Metric::Time { .. } => Limit::time(value),
            Metric::Rate => units::rate(value).map(Limit::Number).map_err(|e| e.to_string()),
            Metric::Count(_) => Limit::count(value),
        }
        .map_err(bad)?;
        Ok(Self { text: text.trim().to_owned(), metric, above, limit })
    }
}

fn metric(name: &str) -> Option<Metric> {
    if let Some(count) = COUNTS.into_iter().find(|c| *c == name) {
        return Some(Metric::Count(count));
    }
    if name == "rate" {
        return Some(Metric::Rate);
    }
    let (slip, name) = name.strip_prefix("slip-").map_or((false, name), |rest| (true, rest));
    let of = Time::parse(name)?;
    Some(Metric::Time { slip, of })
}

impl Threshold {
    /// What is wrong with a run, or `None`.
    #[must_use]
    pub fn judge(&self, outcome: &Outcome) -> Option<String> {
        let (fails, measured) = match self.metric {
            Metric::Time { slip, of } => {
                let histogram = if slip { &outcome.slip } else { &outcome.latency };
                if histogram.is_empty() {
                    // A latency nobody measured kept no promise, and broke none that asks for slowness.
                    return self.above.then(|| format!("{}: nothing was measured", self.text));
                }
                let nanos = time(histogram, of);
                (self.beyond(nanos, 0), units::show_nanos(nanos))
            }
            Metric::Count(name) => {
                let count = outcome.counts.by_name(name);
                (self.beyond(count, outcome.counts.sent), units::show_count(count))
            }
            Metric::Rate => {
                let rate = outcome.received_rate() as u64;
                (self.beyond(rate, 0), format!("{} a second", units::show_count(rate)))
            }
        };
        fails.then(|| format!("{}: it was {measured}", self.text))
    }

    /// What a run came to beside what it had to.
    #[must_use]
    pub fn verdict(&self, run: &Run) -> Verdict {
        let part = &run.total;
        let (failed, measured) = match self.metric {
            Metric::Time { slip, of } => {
                let histogram = if slip { &part.slip.0 } else { &part.latency.0 };
                if histogram.is_empty() {
                    (self.above, "not measured".to_owned())
                } else {
                    let nanos = time(histogram, of);
                    (self.beyond(nanos, 0), units::show_nanos(nanos))
                }
            }
            Metric::Count(name) => {
                let count = part.counts.named(name);
                (self.beyond(count, part.counts.sent), units::show_count(count))
            }
            Metric::Rate => {
                let rate = part.rates.answered as u64;
                (self.beyond(rate, 0), format!("{} a second", units::show_count(rate)))
            }
        };
        Verdict { threshold: self.text.clone(), measured, failed }
    }

    fn beyond(&self, measured: u64, whole: u64) -> bool {
        self.limit.beyond(self.above, measured, whole)
    }
}

impl Time {
    /// `p99.9`, `mean`, `max`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "mean" => Some(Self::Mean),
            "max" => Some(Self::Max),
            _ => {
                let percentile: f64 = name.strip_prefix('p')?.parse().ok()?;
                (0.0..=100.0).contains(&percentile).then_some(Self::Percentile(percentile))
            }
        }
    }
}

impl Limit {
    /// `20ms`.
    pub(crate) fn time(value: &str) -> Result<Self, String> {
        let time = units::duration(value).map_err(|e| e.to_string())?;
        Ok(Self::Number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `10k`, or `0.1%` of a whole.
    pub(crate) fn count(value: &str) -> Result<Self, String> {
        match value.strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(p) if (0.0..=100.0).contains(&p) => Ok(Self::Share(p / 100.0)),
                _ => Err(format!("'{value}' is not a share from 0% to 100%")),
            },
            None => units::count(value).map(Self::Number).map_err(|e| e.to_string()),
        }
    }

    /// Whether what was measured is above, or below, the limit.
    pub(crate) fn beyond(self, above: bool, measured: u64, whole: u64) -> bool {
        let (measured, limit) = match self {
            Self::Number(limit) => (measured as f64, limit as f64),
            Self::Share(share) => (measured as f64, share * whole as f64),
        };
        if above { measured > limit } else { measured < limit }
    }
}

/// `METRIC > VALUE`: metric, whether above is bad, and value.
pub(crate) fn split(text: &str) -> Result<(&str, bool, &str), BadThreshold> {
    let at = text.find(['<', '>']).ok_or_else(|| {
        BadThreshold::new(text, "a threshold is METRIC > VALUE or METRIC < VALUE, such as p99 > 20ms")
    })?;
    Ok((text[..at].trim(), text[at..].starts_with('>'), text[at + 1..].trim()))
}

impl BadThreshold {
    pub(crate) fn new(text: &str, what: impl Into<String>) -> Self {
        Self { text: text.to_owned(), what: what.into() }
    }
}

/// A value of a histogram, nanoseconds.
pub(crate) fn time(histogram: &Histogram<u64>, of: Time) -> u64 {
    match of {
        Time::Percentile(p) => histogram.value_at_quantile(p / 100.0),
        Time::Mean => histogram.mean() as u64,
        Time::Max => histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let mut outcome = Outcome::default();
        for ms in 1..=100u64 {
            outcome.latency.saturating_record(ms * 1_000_000);
        }
        outcome.slip.saturating_record(1_000);
        outcome.counts.sent = 1000;
        outcome.counts.received = 990;
        outcome.counts.lost = 10;
        outcome.elapsed = std::time::Duration::from_secs(1);
        outcome
    }

    #[test]
    fn thresholds_judge() {
        let outcome = outcome();
        let fails = |text: &str| text.parse::<Threshold>().unwrap().judge(&outcome).is_some();
        assert!(fails("p99 > 20ms"));
        assert!(!fails("p99 > 200ms"));
        assert!(fails("p10<50ms"));
        assert!(fails("max > 99ms"));
        assert!(!fails("mean > 60ms"));
        assert!(!fails("slip-p99.9 > 1ms"));
        assert!(fails("slip-max > 500ns"));
        assert!(fails("lost > 0"));
        assert!(fails("lost > 0.9%"));
        assert!(!fails("lost > 1%"));
        assert!(fails("errors > 0.1%"));
        assert!(fails("rate < 1k"));
        assert!(!fails("rate < 900"));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in
            ["", "p99", "p99 = 3ms", "p101 > 1s", "p99 > fast", "lost > 5ms", "lost > 101%", "foo > 1", "> 1"]
        {
            let error = text.parse::<Threshold>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{text}");
        }
    }

    #[test]
    fn nothing_measured_fails() {
        let empty = Outcome::default();
        assert!("p99 > 20ms".parse::<Threshold>().unwrap().judge(&empty).is_some());
    }
}
