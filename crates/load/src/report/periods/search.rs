//! Lines in the spectrum of a series.
//!
//! The power of a frequency is compared with the noise around it, the median of its neighbours: latency is rarely white, and a slow drift
//! has much power at low frequencies without being a period. A line has to stand so far above the noise that among all frequencies of a
//! report chance makes one in [`CHANCE`] reports (the power of noise, summed over M windows, has a gamma distribution of shape M). Of lines at
//! multiples of another, only the lowest is a period.
//!
//! Two lengths of windows are searched: long ones tell faint periods that are exact, short ones those whose length varies by some percent.
//!
//! Bins without requests are no problem: what is transformed is the sum of differences from the mean, which is zero there. (Then the
//! arrivals themselves, however regular, have no line; Scargle 1982 has the unevenly spaced case.)

use std::f64::consts::TAU;

use rustfft::algorithm::Radix4;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection};

use super::fine::{BIN, BINS, Joined, time_of};
use super::{Period, STEPS};

/// One report in so many has a period that is none, for each series.
const CHANCE: f64 = 1e5;
/// Bins of the windows that are searched.
const LENGTHS: [usize; 2] = [BINS, BINS / 4];
/// The lowest line: so many periods in a window at least.
const LOWEST: usize = 16;
/// Neighbours on either side that tell the noise, at most, without those next to the line, into which it leaks. Below a frequency only those
/// to its half count, so that a slope is not taken for noise.
const NEIGHBOURS: usize = 64;
const LEAKS: usize = 3;
/// A period explains so much of the variance at least.
const LEAST_SHARE: f64 = 0.01;
/// Periods of a report at most.
const MOST: usize = 3;
/// Requests in a window below which nothing is searched.
const FEWEST: u64 = 64;

/// A line: its frequency, in periods per bin, and how far it stands above what chance explains.
#[derive(Debug, Clone, Copy)]
struct Line {
    frequency: f64,
    /// Half its width.
    width: f64,
    height: f64,
}

/// The periods of a series, the strongest first; `of` is left empty.
pub(super) fn search(windows: &[Joined]) -> Vec<Period> {
    let windows: Vec<&Joined> = windows.iter().filter(|window| window.count >= FEWEST).collect();
    let Some(counts) = windows.iter().map(|window| window.count).min() else { return Vec::new() };
    // Faster than half the rate of requests nothing can be seen.
    let highest = (counts as f64 / BINS as f64 / 2.0).min(0.5);
    let mut found: Vec<Line> = Vec::new();
    for length in LENGTHS {
        for line in lines(&spectrum(&windows, length), windows.len() * (BINS / length), length, highest) {
            let near = |other: &Line| (other.frequency - line.frequency).abs() <= other.width + line.width;
            if !found.iter().any(near) {
                found.push(line);
            }
        }
    }
    let mut periods: Vec<Period> = fundamentals(found)
        .into_iter()
        .filter_map(|line| fold(&windows, line))
        .filter(|period| period.share >= LEAST_SHARE)
        .collect();
    periods.sort_by(|a, b| b.share.total_cmp(&a.share));
    periods.truncate(MOST);
    periods
}

/// The power of each frequency, `k` periods in `length` bins, summed over all stretches of that length. Each has Hann's window.
fn spectrum(windows: &[&Joined], length: usize) -> Vec<f64> {
    // Lengths are powers of two. A planner would bring along the code of all others.
    let fft = Radix4::new(length, FftDirection::Forward);
    let hann: Vec<f64> = (0..length).map(|i| 0.5 - 0.5 * (TAU * i as f64 / length as f64).cos()).collect();
    let mut power = vec![0.0; length / 2];
    for window in windows {
        // Windows count alike, however many requests they have.
        let scale = 1.0 / window.squares.max(1.0);
        for stretch in window.differences.chunks_exact(length) {
            let mut values: Vec<Complex<f64>> =
                stretch.iter().zip(&hann).map(|(value, weight)| Complex::new(value * weight, 0.0)).collect();
            fft.process(&mut values);
            power.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value.norm_sqr() * scale);
        }
    }
    power
}

/// The frequencies whose power noise does not explain, of a spectrum that is the sum of `sums`.
fn lines(power: &[f64], sums: usize, length: usize, highest: f64) -> Vec<Line> {
    let end = power.len().min((highest * length as f64) as usize);
    let threshold = threshold(sums, CHANCE * end.max(1) as f64);
    // The median of a gamma distribution of mean 1 (Wilson and Hilferty 1931).
    let median = (1.0 - 1.0 / (9.0 * sums as f64)).powi(3);
    let mut lines = Vec::new();
    for k in LOWEST..end {
        let noise = noise(power, k) / median;
        let top = (k.saturating_sub(LEAKS)..=k + LEAKS).all(|i| power.get(i).is_none_or(|p| *p <= power[k]));
        // Guard: `power[k] > threshold * noise` as `power[k] > 2.0 * noise` fails
        // periods::tests::none_in_noise
        if noise > 0.0 && top && power[k] > threshold * noise {
            lines.push(Line {
                frequency: centre(power, k) / length as f64,
                width: 1.5 / length as f64,
                height: power[k] / (threshold * noise),
            });
        }
    }
    lines
}

/// The median power of the neighbours below or above, whichever is more: where the spectrum falls, those below.
fn noise(power: &[f64], k: usize) -> f64 {
    let reach = NEIGHBOURS.min(k / 2);
    let below = &power[k - reach..k - LEAKS];
    let above = &power[(k + LEAKS + 1).min(power.len())..(k + reach + LEAKS).min(power.len())];
    median(below).max(median(above))
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// The middle of a line over three frequencies.
fn centre(power: &[f64], k: usize) -> f64 {
    let (mut sum, mut weighted) = (0.0, 0.0);
    for (i, p) in power.iter().enumerate().skip(k.saturating_sub(1)).take(3) {
        (sum, weighted) = (sum + p, weighted + p * i as f64);
    }
    weighted / sum
}

/// How many times its mean the sum of `sums` powers of noise exceeds once in `once` cases: where the tail of the gamma distribution,
/// exp(-x) times the sum of x^j / j! for j below `sums`, is 1 / `once`, for x = `sums` times the result.
fn threshold(sums: usize, once: f64) -> f64 {
    let tail = |x: f64| {
        let (mut term, mut sum) = (1.0, 1.0);
        for j in 1..sums {
            term *= x / j as f64;
            sum += term;
        }
        sum.ln() - x
    };
    let (mut low, mut high) = (1.0, 100.0);
    for _ in 0..50 {
        let middle: f64 = (low + high) / 2.0;
        if tail(middle * sums as f64) > -once.ln() { low = middle } else { high = middle }
    }
    high
}

/// Lines that are no multiples of others.
fn fundamentals(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by(|a, b| a.frequency.total_cmp(&b.frequency));
    let mut kept: Vec<Line> = Vec::new();
    for line in lines {
        let is_multiple = kept.iter().any(|base| {
            let times = (line.frequency / base.frequency).round();
            times >= 2.0 && (line.frequency - times * base.frequency).abs() <= times * base.width + line.width
        });
        // Guard: `!is_multiple` as `true` fails periods::tests::a_period_of_33
        if !is_multiple {
            kept.push(line);
        }
    }
    kept.sort_by(|a, b| b.height.total_cmp(&a.height));
    kept
}

/// The window in which a line is strongest, laid on top of itself.
fn fold(windows: &[&Joined], line: Line) -> Option<Period> {
    let power = |window: &Joined, frequency: f64| {
        let mut sum = Complex::new(0.0, 0.0);
        for (i, value) in window.differences.iter().enumerate() {
            let (sine, cosine) = (TAU * frequency * i as f64).sin_cos();
            sum += Complex::new(cosine, -sine) * value;
        }
        sum.norm_sqr() / window.squares.max(1.0)
    };
    // The frequency within the line, to a fraction of what one transform tells.
    let steps = (line.width * BINS as f64 * 16.0).ceil() as i32;
    let near = (-steps..=steps).map(|i| line.frequency + f64::from(i) * line.width / f64::from(steps));
    let candidates = near.flat_map(|frequency| windows.iter().map(move |window| (*window, frequency)));
    let (window, frequency, _) = candidates
        .map(|(window, frequency)| (window, frequency, power(window, frequency)))
        .max_by(|a, b| a.2.total_cmp(&b.2))?;
    let (mut sums, mut counts) = ([0.0; STEPS], [0u64; STEPS]);
    for (i, (difference, count)) in window.differences.iter().zip(&window.counts).enumerate() {
        let step = ((i as f64 * frequency).fract() * STEPS as f64) as usize % STEPS;
        sums[step] += difference;
        counts[step] += u64::from(*count);
    }
    let variance = window.squares / window.count.max(1) as f64;
    let used = counts.iter().filter(|count| **count > 0).count();
    let between: f64 =
        sums.iter().zip(&counts).filter(|(_, n)| **n > 0).map(|(sum, n)| sum * sum / *n as f64).sum();
    // Means of noise differ as well: by the variance, once for each step.
    let explained = (between - variance * used.saturating_sub(1) as f64) / window.squares.max(1.0);
    let mean_of = |(sum, count): (&f64, &u64)| match count {
        0 => 0,
        count => time_of(window.mean + sum / *count as f64),
    };
    Some(Period {
        of: String::new(),
        period_ns: (BIN as f64 / frequency).round() as u64,
        share: super::super::model::rounded(explained.clamp(0.0, 1.0)),
        steps_ns: sums.iter().zip(&counts).map(mean_of).collect(),
    })
}
