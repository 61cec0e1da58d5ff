//! Whether one set of runs is faster than another, and how sure that is.
//!
//! Each run says one number for a metric: its median latency, its rate, and so on, taken over the whole measured part.
//! Two sets of runs are compared by the **ratio** B / A, so that a doubling counts as much as a halving:
//!
//! * as many runs on either side, at least two: they are taken as **pairs** in their order (run A, then B, then A, ...),
//!   and what they have in common, such as a machine that is slower today, drops out;
//! * else, with at least two on either side: as two independent samples;
//! * one run on either side: their intervals are resampled in blocks of some seconds, which shows how much the figures waver
//!   *within* these two runs, and says nothing about how much the next run would differ. It is said so.
//!
//! The interval comes from a bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993): runs are drawn
//! with replacement ten thousand times. For few runs the plain percentile interval is too narrow, and its logarithms of
//! ratios are near enough to normal: so for runs the bootstrap is of Student's t (ibid., chapter 12.5), which widens it as it
//! must. The seed is fixed: the same files give the same answer.

use serde::Serialize;

use super::model::{Point, Run};
use flowlane_stack::rng::Rng;

/// Fewest intervals of a run that say anything.
const LEAST_POINTS: usize = 8;

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

    /// Of an interval, where that makes sense.
    fn of_point(self, point: &Point) -> Option<f64> {
        let value = match self {
            Self::P50 => point.p50_ns as f64,
            Self::P99 => point.p99_ns as f64,
            Self::P99_9 => point.p99_9_ns as f64,
            Self::Rate if point.seconds > 0.0 => point.answered as f64 / point.seconds,
            Self::Rate | Self::Mean | Self::Cpu => return None,
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
    /// The intervals of one run each.
    WithinRuns,
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
    /// Between these the true ratio is, with the confidence asked for.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How it was found.
    pub method: Method,
    /// What that means.
    pub finding: Finding,
}

/// How to compare.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// Confidence of the interval, 0.5 to 0.999.
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

/// Compares a metric; `None` if one side has none of it.
#[must_use]
pub fn compare(metric: Metric, a: &[Run], b: &[Run], wish: &Wish) -> Option<Compared> {
    let values = |runs: &[Run]| -> Option<Vec<f64>> {
        runs.iter()
            .map(|r| metric.of_run(r).map(f64::ln))
            .collect::<Option<Vec<f64>>>()
            .filter(|v| !v.is_empty())
    };
    let (xs, ys) = (values(a)?, values(b)?);
    let (mean_a, mean_b) = (mean(&xs), mean(&ys));
    let mut rng = Rng::new(wish.seed);
    let (method, (low, high)) = match of_runs(&xs, &ys, wish, &mut rng) {
        Some(found) => found,
        None => (Method::WithinRuns, within(metric, a.first()?, b.first()?, wish, &mut rng)?),
    };
    let (low, high) = (low.exp(), high.exp());
    let finding = finding(metric, low, high, wish.neglect);
    let ratio = (mean_b - mean_a).exp();
    Some(Compared { metric, a: mean_a.exp(), b: mean_b.exp(), ratio, low, high, method, finding })
}

/// The interval of the difference of two sets of logarithms, one for each run; `None` if one set has but one.
fn of_runs(xs: &[f64], ys: &[f64], wish: &Wish, rng: &mut Rng) -> Option<(Method, (f64, f64))> {
    if xs.len() < 2 || ys.len() < 2 {
        return None;
    }
    if xs.len() == ys.len() {
        let differences: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - x).collect();
        return Some((Method::Paired, one_sample(&differences, wish, rng)));
    }
    Some((Method::Independent, two_samples(xs, ys, wish, rng)))
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

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Square of the standard error of the mean.
fn error2(values: &[f64]) -> f64 {
    let (m, n) = (mean(values), values.len() as f64);
    values.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (n - 1.0) / n
}

fn draw(values: &[f64], into: &mut Vec<f64>, rng: &mut Rng) {
    into.clear();
    into.extend((0..values.len()).map(|_| values[rng.below(values.len() as u32) as usize]));
}

/// Quantile of sorted numbers, between them where it falls between.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, part) = (at.floor() as usize, at.fract());
    let next = sorted[(below + 1).min(sorted.len() - 1)];
    sorted[below] + (next - sorted[below]) * part
}

/// The interval of Student's t that so many draws give, or of its table where there are too few runs to draw from.
fn student(
    estimate: f64,
    error: f64,
    freedom: f64,
    wish: &Wish,
    mut t: impl FnMut() -> Option<f64>,
) -> (f64, f64) {
    let tail = (1.0 - wish.confidence) / 2.0;
    let table = t_quantile(1.0 - tail, freedom);
    let mut ts: Vec<f64> = (0..wish.draws).filter_map(|_| t()).collect();
    if error <= 0.0 {
        return (estimate, estimate);
    }
    // Draws from a handful of runs are often all the same: then, and where they promise more than is known, the table holds.
    if ts.len() < wish.draws / 2 + 1 {
        return (estimate - table * error, estimate + table * error);
    }
    ts.sort_by(f64::total_cmp);
    let low = quantile(&ts, 1.0 - tail).clamp(table, 3.0 * table);
    let high = (-quantile(&ts, tail)).clamp(table, 3.0 * table);
    (estimate - low * error, estimate + high * error)
}

/// The interval of a mean.
fn one_sample(values: &[f64], wish: &Wish, rng: &mut Rng) -> (f64, f64) {
    let (centre, error) = (mean(values), error2(values).sqrt());
    let mut drawn = Vec::with_capacity(values.len());
    student(centre, error, values.len() as f64 - 1.0, wish, || {
        draw(values, &mut drawn, rng);
        let spread = error2(&drawn).sqrt();
        (spread > 1e-12).then(|| (mean(&drawn) - centre) / spread)
    })
}

/// The interval of a difference of means, with Welch's degrees of freedom.
fn two_samples(xs: &[f64], ys: &[f64], wish: &Wish, rng: &mut Rng) -> (f64, f64) {
    let centre = mean(ys) - mean(xs);
    let (ex, ey) = (error2(xs), error2(ys));
    let error = (ex + ey).sqrt();
    let (nx, ny) = (xs.len() as f64, ys.len() as f64);
    let freedom = (ex + ey).powi(2) / (ex.powi(2) / (nx - 1.0) + ey.powi(2) / (ny - 1.0));
    let freedom = if freedom.is_finite() { freedom } else { (nx + ny) - 2.0 };
    let (mut dx, mut dy) = (Vec::new(), Vec::new());
    student(centre, error, freedom, wish, || {
        draw(xs, &mut dx, rng);
        draw(ys, &mut dy, rng);
        let spread = (error2(&dx) + error2(&dy)).sqrt();
        (spread > 1e-12).then(|| (mean(&dy) - mean(&dx) - centre) / spread)
    })
}

/// Student's t: the number that its distribution of so many degrees of freedom stays below with this chance (above one
/// half). With t = sqrt(v) tan(u) the density is a power of cos(u), smooth and bounded: it is integrated by Simpson's rule,
/// and the right u found by bisection.
fn t_quantile(chance: f64, freedom: f64) -> f64 {
    let density = |u: f64| u.cos().max(0.0).powf(freedom - 1.0);
    let area = |to: f64| {
        let steps = 128;
        let h = to / f64::from(steps);
        let inner: f64 =
            (1..steps).map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        (density(0.0) + inner + density(to)) * h / 3.0
    };
    let wanted = (2.0 * chance - 1.0) * area(std::f64::consts::FRAC_PI_2);
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if area(middle) < wanted { low = middle } else { high = middle }
    }
    freedom.sqrt() * low.tan()
}

/// The interval of a difference that two runs show within themselves: their intervals, drawn in blocks, since one second
/// is like the next.
fn within(metric: Metric, a: &Run, b: &Run, wish: &Wish, rng: &mut Rng) -> Option<(f64, f64)> {
    let logarithms = |run: &Run| -> Option<Vec<f64>> {
        let measured = |p: &Point| {
            let middle = p.at_seconds + p.seconds / 2.0;
            run.phases.iter().any(|f| f.measured && (f.from_seconds..f.to_seconds).contains(&middle))
        };
        let values: Vec<f64> = run
            .total
            .series
            .iter()
            .filter(|p| measured(p) && p.seconds >= 0.5)
            .filter_map(|p| metric.of_point(p).map(f64::ln))
            .collect();
        (values.len() >= LEAST_POINTS).then_some(values)
    };
    let (xs, ys) = (logarithms(a)?, logarithms(b)?);
    // Around the ratio of the whole runs, as that is what is shown.
    let centre = metric.of_run(b)?.ln() - metric.of_run(a)?.ln();
    let middle = mean(&ys) - mean(&xs);
    let mut differences: Vec<f64> = (0..wish.draws.max(2))
        .map(|_| mean_of_blocks(&ys, rng) - mean_of_blocks(&xs, rng) - middle)
        .collect();
    differences.sort_by(f64::total_cmp);
    let tail = (1.0 - wish.confidence) / 2.0;
    // Blocks drawn from n values waver less than the truth does, by about this.
    let widen = |n: usize| n as f64 / (n - block(n)).max(1) as f64;
    let factor = widen(xs.len().min(ys.len())).sqrt();
    Some((
        centre + quantile(&differences, tail) * factor,
        centre + quantile(&differences, 1.0 - tail) * factor,
    ))
}

/// Length of a block: the cube root of how many there are, as is usual.
fn block(count: usize) -> usize {
    (count as f64).cbrt().round().max(2.0) as usize
}

/// The mean of as many values, drawn in blocks that go around the end.
fn mean_of_blocks(values: &[f64], rng: &mut Rng) -> f64 {
    let (count, length) = (values.len(), block(values.len()));
    let mut sum = 0.0;
    let mut taken = 0;
    while taken < count {
        let start = rng.below(count as u32) as usize;
        for i in 0..length.min(count - taken) {
            sum += values[(start + i) % count];
        }
        taken += length.min(count - taken);
    }
    sum / count as f64
}

#[cfg(test)]
mod tests;
