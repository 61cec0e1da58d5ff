//! The interval of a ratio of runs.
//!
//! The interval is computed by a bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993): runs are drawn with
//! replacement ten thousand times. For few runs the plain percentile interval is too narrow, and logarithms of ratios are close to
//! normal. So Student's t is bootstrapped (ibid., chapter 12.5), and the interval is never narrower than that of the t table. The seed is
//! fixed: the same files give the same result.

use flowlane_stack::rng::Rng;

use super::{CompareOptions, Method};

/// The interval of the difference of two sets of logarithms, one for each run; `None` with one run on a side.
pub(super) fn of_runs(
    xs: &[f64],
    ys: &[f64],
    wish: &CompareOptions,
    rng: &mut Rng,
) -> Option<(Method, (f64, f64))> {
    match (xs.len(), ys.len()) {
        (0 | 1, _) | (_, 0 | 1) => None,
        (a, b) if a == b => {
            let differences: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - x).collect();
            Some((Method::Paired, one_sample(&differences, wish, rng)))
        }
        _ => Some((Method::Independent, two_samples(xs, ys, wish, rng))),
    }
}

/// Runs of each side that would show a difference of the size that was seen, or bound it to a factor of two either way, if further runs vary
/// as these do. Never fewer than one more than there are.
pub(super) fn runs_needed(xs: &[f64], ys: &[f64], method: Method, wish: &CompareOptions) -> usize {
    // The variance of one difference.
    let variance = match method {
        Method::Paired => {
            let differences: Vec<f64> = xs.iter().zip(ys).map(|(x, y)| y - x).collect();
            error2(&differences) * differences.len() as f64
        }
        _ => error2(xs) * xs.len() as f64 + error2(ys) * ys.len() as f64,
    };
    let seen = (mean(ys) - mean(xs)).abs() - wish.neglect.ln_1p();
    let wanted = seen.max(std::f64::consts::LN_2);
    let had = xs.len().max(ys.len());
    let tells = |n: &usize| {
        let t = t_quantile(1.0 - (1.0 - wish.confidence) / 2.0, *n as f64 - 1.0);
        t * (variance / *n as f64).sqrt() < wanted
    };
    (had + 1..MOST_RUNS).find(tells).unwrap_or(MOST_RUNS)
}

/// Most runs that are said to be needed.
const MOST_RUNS: usize = 1000;
/// Below so many pairs there are too few different draws for a bootstrap: the table of Student's t holds.
const FEW: usize = 6;

/// The arithmetic mean.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Variance of a logarithm that comes from the histogram's steps alone: they are a thousandth, and the value is anywhere
/// in one.
const STEP_VARIANCE: f64 = 1e-3 * 1e-3 / 12.0;

/// Square of the standard error of the mean. Never below what the steps of the histogram leave open: figures that happen to be the
/// same step are not known better than that.
pub(super) fn error2(values: &[f64]) -> f64 {
    let (m, n) = (mean(values), values.len() as f64);
    let variance = values.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (n - 1.0);
    variance.max(STEP_VARIANCE) / n
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

/// The interval of Student's t that so many draws give, or of its table where there are no draws, or too few runs to draw from.
fn student(
    estimate: f64,
    error: f64,
    freedom: f64,
    wish: &CompareOptions,
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
fn one_sample(values: &[f64], wish: &CompareOptions, rng: &mut Rng) -> (f64, f64) {
    let (centre, error) = (mean(values), error2(values).sqrt());
    let mut drawn = Vec::with_capacity(values.len());
    let wish = &CompareOptions { draws: if values.len() < FEW { 0 } else { wish.draws }, ..*wish };
    student(centre, error, values.len() as f64 - 1.0, wish, || {
        draw(values, &mut drawn, rng);
        let spread = error2(&drawn).sqrt();
        (spread > 1e-12).then(|| (mean(&drawn) - centre) / spread)
    })
}

/// The interval of a difference of means, with Welch's degrees of freedom.
fn two_samples(xs: &[f64], ys: &[f64], wish: &CompareOptions, rng: &mut Rng) -> (f64, f64) {
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
pub(super) fn t_quantile(chance: f64, freedom: f64) -> f64 {
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
