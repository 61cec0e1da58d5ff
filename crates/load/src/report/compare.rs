//! Whether one set of runs is faster than another, and how sure that is.
//!
//! Each run gives one number for a metric: its median latency, its rate, and so on, taken over the whole measured part.
//! Two sets of runs are compared by the **ratio** B / A, so that a doubling counts as much as a halving:
//!
//! * with as many runs on either side, at least two, the runs are **pairs** in their order (run A, then B, then A, ...).
//!   What both runs of a pair have in common, such as a machine that is slower today, drops out;
//! * with different numbers of runs, at least two of each, the runs are two independent samples;
//! * one run on a side gives the ratio and **no finding**. The seconds within a run say how much that run varies. They do not
//!   say how much the next run would differ, and that is the question. Nor do the other side's runs say it where the machine is
//!   disturbed now and then: one disturbed run beside three that were not was taken for a difference in eleven of a hundred.
//!
//! **Several metrics, one promise.** The confidence holds for all compared metrics together: with `m` of them each interval
//! is made at `1 - (1 - confidence) / m` (Bonferroni's inequality), so that two equal programs are told apart by any metric at
//! all in at most one comparison of twenty. Asking for fewer metrics gives narrower intervals.
//!
//! How the intervals are made: module `interval`.

mod interval;

use serde::Serialize;

use super::model::Run;
use flowlane_stack::rng::Rng;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Median latency.
    P50,
    /// 99th percentile of latency.
    P99,
    /// 99.9th percentile of latency.
    #[serde(rename = "p99.9")]
    P99_9,
    /// Mean latency.
    Mean,
    /// Answers a second.
    Rate,
    /// The generator's processor time for each answer.
    Cpu,
}

impl Metric {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 6] = [Self::P50, Self::P99, Self::P99_9, Self::Mean, Self::Rate, Self::Cpu];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::Mean => "mean",
            Self::Rate => "rate",
            Self::Cpu => "cpu",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self == Self::Rate
    }

    fn of_run(self, run: &Run) -> Option<f64> {
        let latency = &run.total.latency;
        let value = match self {
            Self::P50 => latency.at(0.5) as f64,
            Self::P99 => latency.at(0.99) as f64,
            Self::P99_9 => latency.at(0.999) as f64,
            Self::Mean => latency.mean() as f64,
            Self::Rate => run.total.rates.answered,
            Self::Cpu => run.generator.cpu_ns_per_answer as f64,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// How two sets were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Runs in pairs.
    Paired,
    /// Runs as two independent samples.
    Independent,
    /// One run on a side: the ratio alone, without an interval.
    OneRun,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// B is better, by more than may be neglected.
    Better,
    /// B is worse, by more than may be neglected.
    Worse,
    /// The interval holds "no difference", or only such as may be neglected.
    NoDifferenceShown,
    /// There are too few runs for a finding.
    NotJudged,
}

/// The bounds of a ratio B / A.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bounds {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A metric of two sets of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Compared {
    /// Which.
    pub metric: Metric,
    /// Geometric mean of A.
    pub a: f64,
    /// Geometric mean of B.
    pub b: f64,
    /// B / A.
    pub ratio: f64,
    /// Between these the true ratio is; with the confidence asked for that is so of all metrics compared in one call. `None`
    /// with one run on a side.
    #[serde(flatten)]
    pub bounds: Option<Bounds>,
    /// How it was found.
    pub method: Method,
    /// What that means.
    pub finding: Finding,
}

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// Confidence that all intervals of one comparison hold the truth, 0.5 to 0.999.
    pub confidence: f64,
    /// A difference of at most this share may be neglected: 0.02 is 2 %.
    pub neglect: f64,
    /// How often something is drawn.
    pub draws: usize,
    /// For the draws.
    pub seed: u64,
}

impl Default for Wish {
    fn default() -> Self {
        Self { confidence: 0.95, neglect: 0.0, draws: 10_000, seed: 1 }
    }
}

/// Compares those of the metrics that every run has, in their order.
#[must_use]
pub fn compare(metrics: &[Metric], a: &[Run], b: &[Run], wish: &Wish) -> Vec<Compared> {
    let logarithms = |metric: Metric, runs: &[Run]| -> Option<Vec<f64>> {
        let values: Option<Vec<f64>> = runs.iter().map(|r| metric.of_run(r).map(f64::ln)).collect();
        values.filter(|v| !v.is_empty())
    };
    let measured: Vec<(Metric, Vec<f64>, Vec<f64>)> =
        metrics.iter().filter_map(|m| Some((*m, logarithms(*m, a)?, logarithms(*m, b)?))).collect();
    let each = 1.0 - (1.0 - wish.confidence) / measured.len().max(1) as f64;
    let wish = Wish { confidence: each, ..*wish };
    measured.into_iter().map(|(metric, xs, ys)| compare_one(metric, &xs, &ys, &wish)).collect()
}

fn compare_one(metric: Metric, xs: &[f64], ys: &[f64], wish: &Wish) -> Compared {
    let (mean_a, mean_b) = (interval::mean(xs), interval::mean(ys));
    let (method, found) = match interval::of_runs(xs, ys, wish, &mut Rng::new(wish.seed)) {
        Some((method, found)) => (method, Some(found)),
        None => (Method::OneRun, None),
    };
    let bounds = found.map(|(low, high)| Bounds { low: low.exp(), high: high.exp() });
    let finding = bounds.map_or(Finding::NotJudged, |b| finding(metric, b.low, b.high, wish.neglect));
    let ratio = (mean_b - mean_a).exp();
    Compared { metric, a: mean_a.exp(), b: mean_b.exp(), ratio, bounds, method, finding }
}

fn finding(metric: Metric, low: f64, high: f64, neglect: f64) -> Finding {
    let more = low > 1.0 + neglect;
    let less = high < 1.0 / (1.0 + neglect);
    match (more, less, metric.more_is_better()) {
        (true, _, true) | (_, true, false) => Finding::Better,
        (true, _, false) | (_, true, true) => Finding::Worse,
        _ => Finding::NoDifferenceShown,
    }
}

#[cfg(test)]
mod tests;
