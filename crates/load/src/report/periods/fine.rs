//! Latency or slip in bins of a millisecond.
//!
//! Four windows of 4,096 bins are kept, wherever the run is long enough evenly spread over it: window 0, 1, 2, 3 at first; when the fifth
//! begins, every other one is dropped and from then on every second is kept, and so on. Which ones depends on the time alone, so that the
//! windows of all lanes and pools fit together. They take 32 KiB each, from the first request in them on.
//!
//! A bin has the sum of the times' logarithms and their number. A search needs sums of differences from the mean; the means of lanes and
//! pools differ, so each is taken off before they are added.

use std::ops::Range;

use crate::report::bytes::{Damaged, In, Out};

/// Nanoseconds of a bin.
pub(super) const BIN: u64 = 1_000_000;
/// Bins of a window: a power of two.
pub(super) const BINS: usize = 4096;
/// Nanoseconds of a window.
const WINDOW: u64 = BIN * BINS as u64;
/// Bins over which the mean is taken off.
const LEVEL: usize = 256;
/// Windows that are kept at most.
const KEPT: usize = 4;
/// Most requests of a bin that come from another machine: more than a lane can do, and few enough that the sums over all lanes fit.
const MOST: u64 = 100_000;
/// Steps of the logarithm for a doubling.
const STEPS_A_DOUBLING: u32 = 256;

/// The logarithm of a time, in steps; between powers of two it is a straight line, at most 0.09 doublings off.
#[inline]
fn logarithm(nanos: u64) -> u32 {
    let nanos = nanos.max(1);
    let power = nanos.ilog2();
    let fraction = if power >= 8 { nanos >> (power - 8) } else { nanos << (8 - power) };
    power * STEPS_A_DOUBLING + (fraction as u32 & 0xff)
}

/// The time with that logarithm, nanoseconds.
pub(super) fn time_of(logarithm: f64) -> u64 {
    let power = (logarithm / f64::from(STEPS_A_DOUBLING)).floor();
    let fraction = logarithm / f64::from(STEPS_A_DOUBLING) - power;
    (power.exp2() * (1.0 + fraction)).round() as u64
}

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    sum: u32,
    count: u32,
}

#[derive(Debug, Clone)]
struct Window {
    /// It begins so many windows after the start.
    index: u64,
    bins: Vec<Bin>,
    squares: u64,
}

/// The series of one lane and pool.
#[derive(Debug, Clone)]
pub(in crate::report) struct Fine {
    start: u64,
    /// Every how many windows one is kept.
    stride: u64,
    /// By index; one of the last is the open one.
    windows: Vec<Window>,
}

impl Fine {
    /// A series that starts at `start`, nanoseconds.
    pub(in crate::report) fn new(start: u64) -> Self {
        Self { start, stride: 1, windows: Vec::new() }
    }

    /// Notes a time of that moment; both nanoseconds.
    #[inline]
    pub(in crate::report) fn note(&mut self, moment: u64, nanos: u64) {
        let at = moment.saturating_sub(self.start);
        let index = at / WINDOW;
        let open = self.windows.last().is_some_and(|window| window.index == index);
        if !open && !self.open(index) {
            return;
        }
        let Some(window) = self.windows.last_mut() else { return };
        let Some(bin) = window.bins.get_mut((at % WINDOW / BIN) as usize) else { return };
        let logarithm = logarithm(nanos);
        bin.sum = bin.sum.saturating_add(logarithm);
        bin.count += 1;
        window.squares += u64::from(logarithm * logarithm);
    }

    /// Makes the window the last of the list; `false` if it is not kept, or is over.
    #[cold]
    fn open(&mut self, index: u64) -> bool {
        while index / self.stride >= KEPT as u64 {
            self.stride *= 2;
            let stride = self.stride;
            self.windows.retain(|window| window.index.is_multiple_of(stride));
        }
        let over = self.windows.last().is_some_and(|window| window.index > index);
        if over || !index.is_multiple_of(self.stride) {
            return false;
        }
        self.windows.push(Window { index, bins: vec![Bin::default(); BINS], squares: 0 });
        true
    }

    /// Leaves only windows all of which is in `whole`, nanoseconds, and none of it in `gaps`.
    pub(in crate::report) fn finish(mut self, whole: &Range<u64>, gaps: &[Range<u64>]) -> Self {
        let start = self.start;
        self.windows.retain(|window| {
            let from = start.saturating_add(window.index.saturating_mul(WINDOW));
            let to = from.saturating_add(WINDOW);
            // Guard: `whole.start <= from` as `true` fails fine::tests::only_whole
            // Guard: `!gaps.iter().any(|gap| gap.start < to && from < gap.end)` as `true` fails
            // fine::tests::only_whole
            whole.start <= from && to <= whole.end && !gaps.iter().any(|gap| gap.start < to && from < gap.end)
        });
        self
    }
}

impl Fine {
    /// Adds what was noted to `to`.
    pub(in crate::report) fn write(&self, to: &mut Out) {
        to.number(self.stride);
        to.number(self.windows.len() as u64);
        for window in &self.windows {
            to.number(window.index);
            to.number(window.squares);
            for bin in &window.bins {
                to.number(u64::from(bin.count));
                if bin.count > 0 {
                    to.number(u64::from(bin.sum));
                }
            }
        }
    }

    /// Takes the same from the beginning of `from`.
    pub(in crate::report) fn read(from: &mut In<'_>) -> Result<Self, Damaged> {
        let stride = from.upto(1 << 40)?;
        let count = from.upto(KEPT as u64)?;
        let mut windows = Vec::new();
        for _ in 0..count {
            let (index, squares) = (from.upto(1 << 50)?, from.upto(1 << 60)?);
            let mut bins = Vec::with_capacity(BINS);
            for _ in 0..BINS {
                let count = from.upto(MOST)? as u32;
                let sum = if count > 0 { from.upto(MOST << 14)? as u32 } else { 0 };
                bins.push(Bin { sum, count });
            }
            windows.push(Window { index, bins, squares });
        }
        if stride == 0 || windows.windows(2).any(|w| w[0].index >= w[1].index) {
            return Err(Damaged("its windows are not in order"));
        }
        Ok(Self { start: 0, stride, windows })
    }
}

/// A window of all series together.
#[derive(Debug)]
pub(super) struct Joined {
    /// For each bin: the sum of the logarithms' differences from the mean of their series, and from the moving mean of all.
    pub(super) differences: Vec<f64>,
    /// For each bin: how many there are.
    pub(super) counts: Vec<u32>,
    /// How many there are in all.
    pub(super) count: u64,
    /// The sum of the squares of the logarithms' differences from the mean of their series.
    pub(super) squares: f64,
    /// The mean logarithm of all.
    pub(super) mean: f64,
}

/// The windows that all series have kept which got that far.
pub(super) fn join(series: &[&Fine]) -> Vec<Joined> {
    let stride = series.iter().map(|fine| fine.stride).max().unwrap_or(1);
    let mut indices: Vec<u64> = series
        .iter()
        .flat_map(|fine| fine.windows.iter().map(|window| window.index))
        .filter(|index| index.is_multiple_of(stride))
        .collect();
    indices.sort_unstable();
    indices.dedup();
    indices
        .into_iter()
        .map(|index| add(series.iter().filter_map(|f| f.windows.iter().find(|w| w.index == index))))
        .collect()
}

fn add<'a>(windows: impl Iterator<Item = &'a Window>) -> Joined {
    let (mut differences, mut counts) = (vec![0.0; BINS], vec![0; BINS]);
    let (mut count, mut sum, mut squares) = (0, 0, 0.0);
    for window in windows {
        let n: u64 = window.bins.iter().map(|bin| u64::from(bin.count)).sum();
        let total: u64 = window.bins.iter().map(|bin| u64::from(bin.sum)).sum();
        let mean = total as f64 / n.max(1) as f64;
        // Guard: `*difference += f64::from(bin.sum) - mean * f64::from(bin.count);` as `*difference +=
        // f64::from(bin.sum);` fails periods::tests::a_period_of_33
        for ((difference, all), bin) in differences.iter_mut().zip(&mut counts).zip(&window.bins) {
            *difference += f64::from(bin.sum) - mean * f64::from(bin.count);
            *all += bin.count;
        }
        (count, sum) = (count + n, sum + total);
        squares += (window.squares as f64 - mean * total as f64).max(0.0);
    }
    // Guard: `level(&mut differences, &counts);` as `let _ = level;` fails periods::tests::none_in_noise
    level(&mut differences, &counts);
    Joined { differences, counts, count, squares, mean: sum as f64 / count.max(1) as f64 }
}

/// Takes the moving mean off. What is slower than [`LEVEL`] is no line, but has the power to look like one at the rate at which even
/// arrivals and bins meet.
fn level(differences: &mut [f64], counts: &[u32]) {
    // Sums and numbers of all before.
    let mut before = vec![(0.0, 0u64)];
    for (difference, count) in differences.iter().zip(counts) {
        let (sum, n) = before.last().copied().unwrap_or_default();
        before.push((sum + difference, n + u64::from(*count)));
    }
    for (i, (difference, count)) in differences.iter_mut().zip(counts).enumerate() {
        let (from, to) = (before[i.saturating_sub(LEVEL / 2)], before[(i + LEVEL / 2).min(counts.len())]);
        let mean = (to.0 - from.0) / (to.1 - from.1).max(1) as f64;
        *difference -= mean * f64::from(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_rise_and_come_back() {
        let mut last = 0;
        for nanos in (0..2000).chain((11..60).map(|power| 1 << power)).chain([u64::MAX]) {
            let logarithm = logarithm(nanos);
            assert!(logarithm >= last, "{nanos}");
            last = logarithm;
            let back = time_of(f64::from(logarithm)) as f64;
            assert!((back / nanos.max(1) as f64 - 1.0).abs() < 0.01, "{nanos}: {back}");
        }
    }

    /// However long the run and whoever slept: at most four windows, evenly spread, the same for all.
    #[test]
    fn windows_are_spread_over_the_run() {
        for windows in [1, 4, 5, 9, 100, 1000] {
            let mut always = Fine::new(7);
            let mut late = Fine::new(7);
            for index in 0..windows {
                always.note(7 + index * WINDOW, 1000);
                if index + 1 == windows {
                    late.note(7 + index * WINDOW, 1000);
                }
            }
            let all = 0..u64::MAX;
            let (always, late) = (always.finish(&all, &[]), late.finish(&all, &[]));
            assert_eq!(always.stride, late.stride);
            assert!((1..=KEPT).contains(&always.windows.len()));
            assert!(always.windows.iter().all(|w| w.index.is_multiple_of(always.stride)));
            assert!(windows < 5 || always.windows.len() >= KEPT / 2, "{windows}");
            let joined = join(&[&always, &late]);
            assert_eq!(joined.len(), always.windows.len());
        }
    }

    /// What is not measured, and the window in which the run ends, are left out.
    #[test]
    fn only_whole_windows_count() {
        let mut fine = Fine::new(0);
        (0..4).for_each(|index| fine.note(index * WINDOW + 5, 1000));
        let left = |whole: Range<u64>, gaps: &[Range<u64>]| {
            fine.clone().finish(&whole, gaps).windows.iter().map(|w| w.index).collect::<Vec<_>>()
        };
        assert_eq!(left(0..4 * WINDOW - 1, &[]), [0, 1, 2]);
        assert_eq!(left(1..4 * WINDOW, &[]), [1, 2, 3]);
        assert_eq!(left(0..4 * WINDOW, &[WINDOW..WINDOW + 1, 3 * WINDOW - 1..3 * WINDOW]), [0, 3]);
    }
}
