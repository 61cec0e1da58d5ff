//! Comparison of two sets of runs, with confidence intervals.
//!
//! Each run gives one number for a metric, such as its median latency or rate, over the whole measured part. Two sets of runs are compared
//! by the **ratio** B / A, so that doubling and halving count alike:
//!
//! * with equal numbers of runs, at least two, the runs are **pairs** in their order (run A, then B, then A, ...). Influences common to both
//!   runs of a pair, such as a machine that is slower today, cancel out;
//! * with different numbers of runs, at least two of each, the runs are two independent samples;
//! * one run on a side gives the ratio and **no finding**. The seconds within a run show how much that run varies, not how much the next run
//!   would differ. The other side's runs do not show it either if the machine is sometimes disturbed: one disturbed run against three
//!   undisturbed ones was taken for a difference in eleven of a hundred comparisons.
//!
//! **Too few runs.** Three runs that differ by factors leave an interval from nothing to a million, which says nothing, least of all that
//! there is no difference. Where a difference of four times either way is within the interval, there is no finding and no interval, but the
//! number of runs that would tell.
//!
//! **Joint confidence.** The confidence holds for all compared metrics together: with `m` metrics each interval has the confidence
//! `1 - (1 - confidence) / m` (Bonferroni's inequality). So at 95 % at most one in twenty comparisons of equal programs finds a
//! difference in any metric. Fewer metrics give narrower intervals.
//!
//! The module `interval` computes the intervals; [`Turns`] asks for as many pairs as it takes.

mod interval;
mod turns;

pub use turns::{Judged, Turns, Verdict};

use serde::Serialize;

use super::model::Run;
use flowlane_stack::rng::Rng;

/// A compared metric.
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
    /// Answers per second.
    Rate,
    /// The generator's processor time per answer.
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

    /// Its value in a run; `None` if the run did not measure it.
    #[must_use]
    pub fn of_run(self, run: &Run) -> Option<f64> {
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

/// Result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// B is better, by more than the neglected difference.
    Better,
    /// B is worse, by more than the neglected difference.
    Worse,
    /// The interval contains "no difference" or a difference that is neglected.
    NoDifferenceShown,
    /// There are too few runs for a finding.
    NotJudged,
}

/// The bounds of a ratio B / A.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bounds {
    /// Lower end of the interval of the true ratio.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
}

/// A metric of two sets of runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Compared {
    /// The metric.
    pub metric: Metric,
    /// Geometric mean of A.
    pub a: f64,
    /// Geometric mean of B.
    pub b: f64,
    /// B / A.
    pub ratio: f64,
    /// Confidence interval of the true ratio; the confidence holds jointly for all metrics compared in one call. `None` with one run on a
    /// side, and with too few to say anything.
    #[serde(flatten)]
    pub bounds: Option<Bounds>,
    /// With too few runs: how many of each side would tell, if they vary as these do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_needed: Option<usize>,
    /// How the runs were compared.
    pub method: Method,
    /// The result.
    pub finding: Finding,
}

/// Options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompareOptions {
    /// Joint confidence of all intervals of one comparison, 0.5 to 0.999.
    pub confidence: f64,
    /// Differences of at most this share are neglected: 0.02 is 2 %.
    pub neglect: f64,
    /// Number of bootstrap draws.
    pub draws: usize,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self { confidence: 0.95, neglect: 0.0, draws: 10_000, seed: 1 }
    }
}

/// Compares the metrics that every run has, in the order of `metrics`.
#[must_use]
pub fn compare(metrics: &[Metric], a: &[Run], b: &[Run], wish: &CompareOptions) -> Vec<Compared> {
    let logarithms = |metric: Metric, runs: &[Run]| -> Option<Vec<f64>> {
        let values: Option<Vec<f64>> = runs.iter().map(|r| metric.of_run(r).map(f64::ln)).collect();
        values.filter(|v| !v.is_empty())
    };
    let measured =
        metrics.iter().filter_map(|m| Some((*m, logarithms(*m, a)?, logarithms(*m, b)?))).collect();
    compare_figures(measured, wish)
}

/// The same of the logarithms of each metric's figures, those of A and those of B.
fn compare_figures(measured: Vec<(Metric, Vec<f64>, Vec<f64>)>, wish: &CompareOptions) -> Vec<Compared> {
    let each = 1.0 - (1.0 - wish.confidence) / measured.len().max(1) as f64;
    let wish = CompareOptions { confidence: each, ..*wish };
    measured.into_iter().map(|(metric, xs, ys)| compare_one(metric, &xs, &ys, &wish)).collect()
}

fn compare_one(metric: Metric, xs: &[f64], ys: &[f64], wish: &CompareOptions) -> Compared {
    let (mean_a, mean_b) = (interval::mean(xs), interval::mean(ys));
    let (method, found) = match interval::of_runs(xs, ys, wish, &mut Rng::new(wish.seed)) {
        Some((method, found)) => (method, Some(found)),
        None => (Method::OneRun, None),
    };
    let mut bounds = found.map(|(low, high)| Bounds { low: low.exp(), high: high.exp() });
    let mut finding = bounds.map_or(Finding::NotJudged, |b| finding(metric, b.low, b.high, wish.neglect));
    let mut runs_needed = None;
    if finding == Finding::NoDifferenceShown
        && let Some((low, high)) = found
        && high - low > TOO_WIDE.ln()
    {
        runs_needed = Some(interval::runs_needed(xs, ys, method, wish));
        (bounds, finding) = (None, Finding::NotJudged);
    }
    let ratio = (mean_b - mean_a).exp();
    Compared { metric, a: mean_a.exp(), b: mean_b.exp(), ratio, bounds, runs_needed, method, finding }
}

/// An interval whose ends differ by this factor, without a finding, says nothing.
const TOO_WIDE: f64 = 4.0;

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
