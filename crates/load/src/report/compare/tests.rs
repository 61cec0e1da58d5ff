//! How often the intervals hold the truth, in seeded simulations, and what is made of them.

use super::interval::{of_runs, t_quantile};
use super::*;
use crate::report::{About, join};

/// A number near zero, normally distributed with deviation 1: the sum of twelve evenly distributed ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| f64::from(rng.next_u32()) / f64::from(u32::MAX)).sum::<f64>() - 6.0
}

fn run_with(p50: f64, rate: f64) -> Run {
    let mut run = join(About::default(), Vec::new());
    run.total.latency.record(p50 as u64);
    run.total.rates.answered = rate;
    run
}

/// Of so many simulations, the share whose interval holds the truth.
fn coverage(trials: u64, mut held: impl FnMut(&mut Rng) -> bool) -> f64 {
    let mut rng = Rng::new(1993);
    (0..trials).filter(|_| held(&mut rng)).count() as f64 / trials as f64
}

/// As few draws as are enough: the simulations are many.
fn wish(rng: &mut Rng, confidence: f64) -> CompareOptions {
    CompareOptions { confidence, draws: 800, seed: rng.next_u64(), ..CompareOptions::default() }
}

fn found(xs: &[f64], ys: &[f64], wish: &CompareOptions) -> (Method, (f64, f64)) {
    of_runs(xs, ys, wish, &mut Rng::new(wish.seed)).unwrap()
}

#[test]
fn paired_runs_hold_the_truth_as_often_as_promised() {
    for (runs, confidence) in [(2, 0.95), (3, 0.95), (5, 0.95), (12, 0.95), (6, 0.8), (30, 0.99)] {
        let truth: f64 = 1.1;
        let share = coverage(600, |rng| {
            let wish = wish(rng, confidence);
            // Days differ by 30 %, runs of a day by 5 %.
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                let day = 0.3 * normal(rng);
                a.push(day + 0.05 * normal(rng));
                b.push(day + truth.ln() + 0.05 * normal(rng));
            }
            let (method, (low, high)) = found(&a, &b, &wish);
            assert_eq!(method, Method::Paired);
            (low..=high).contains(&truth.ln())
        });
        // The stated rate less three standard errors of so many simulations, or on the safe side of it.
        let allowed = 3.0 * (confidence * (1.0 - confidence) / 600.0f64).sqrt();
        assert!(share >= confidence - allowed, "{runs} runs at {confidence}: {share}");
        // But not by promising nothing: no wider than half again as many misses.
        assert!(
            share <= confidence + (1.0 - confidence) * 0.75 + allowed,
            "{runs} runs at {confidence}: {share}"
        );
    }
}

#[test]
fn independent_runs_hold_the_truth_as_often_as_promised() {
    for (m, n) in [(3, 6), (8, 5), (2, 9)] {
        let share = coverage(600, |rng| {
            let wish = wish(rng, 0.95);
            let a: Vec<f64> = (0..m).map(|_| 0.05 * normal(rng)).collect();
            let b: Vec<f64> = (0..n).map(|_| 0.9f64.ln() + 0.1 * normal(rng)).collect();
            let (method, (low, high)) = found(&a, &b, &wish);
            assert_eq!(method, Method::Independent);
            (low..=high).contains(&0.9f64.ln())
        });
        assert!((0.92..=0.999).contains(&share), "{m} and {n} runs: {share}");
    }
}

#[test]
fn findings_follow_the_interval_and_what_may_be_neglected() {
    use Finding::{Better, NoDifferenceShown, Worse};
    for (metric, low, high, neglect, expected) in [
        (Metric::P99, 1.05, 1.20, 0.0, Worse),
        (Metric::P99, 1.05, 1.20, 0.1, NoDifferenceShown),
        (Metric::P99, 0.70, 0.80, 0.1, Better),
        (Metric::P99, 0.90, 1.01, 0.0, NoDifferenceShown),
        (Metric::Rate, 1.05, 1.20, 0.0, Better),
        (Metric::Rate, 0.70, 0.80, 0.02, Worse),
        (Metric::Rate, 0.985, 0.99, 0.02, NoDifferenceShown),
    ] {
        assert_eq!(finding(metric, low, high, neglect), expected, "{metric:?} {low} {high} {neglect}");
    }
}

#[test]
fn the_same_files_give_the_same_answer_and_equal_runs_differ_in_nothing() {
    let runs: Vec<Run> = (0..4).map(|i| run_with(1e6 + f64::from(i) * 1e4, 1e5)).collect();
    let others: Vec<Run> = (0..4).map(|i| run_with(2e6 + f64::from(i * i) * 1e4, 1e5)).collect();
    let once = compare(&[Metric::P50], &runs, &others, &CompareOptions::default());
    assert_eq!(once, compare(&[Metric::P50], &runs, &others, &CompareOptions::default()));
    assert_eq!(once[0].finding, Finding::Worse);
    let same = compare(&[Metric::P50], &runs, &runs, &CompareOptions::default())[0];
    assert_eq!((same.ratio, same.finding), (1.0, Finding::NoDifferenceShown));
    // Nothing to compare: no answer rather than a wrong one.
    assert!(compare(&[Metric::P99], &[], &runs, &CompareOptions::default()).is_empty());
    assert!(compare(&[Metric::Cpu], &runs, &others, &CompareOptions::default()).is_empty());
}

#[test]
fn one_run_on_a_side_gives_a_ratio_and_no_finding() {
    let runs = |p50, n| -> Vec<Run> { (0..n).map(|_| run_with(p50, 1e5)).collect() };
    for (a, b) in [(1, 1), (1, 3), (5, 1)] {
        let compared = compare(&Metric::ALL, &runs(1e6, a), &runs(3e6, b), &CompareOptions::default());
        assert!(!compared.is_empty());
        for c in &compared {
            assert_eq!((c.method, c.finding, c.bounds), (Method::OneRun, Finding::NotJudged, None), "{c:?}");
        }
        assert!((compared[0].ratio - 3.0).abs() < 0.01, "{compared:?}");
    }
}

/// Three runs of each, one side 38 times slower and each of its runs another: nothing is shown by all six metrics, but "no difference" least of
/// all, and bounds from nothing to a million are none.
#[test]
fn with_too_few_runs_it_is_said_how_many_would_tell() {
    let runs = |rates: &[f64]| -> Vec<Run> { rates.iter().map(|rate| run_with(1e9 / rate, *rate)).collect() };
    let (fast, slow) = ([18_000.0, 18_400.0, 18_320.0], [110.0, 500.0, 2100.0]);
    let metrics = [Metric::P50, Metric::P99, Metric::P99_9, Metric::Mean, Metric::Rate];
    let compared = compare(&metrics, &runs(&fast), &runs(&slow), &CompareOptions::default());
    assert_eq!(compared.len(), 5);
    for c in &compared {
        assert_eq!((c.finding, c.bounds), (Finding::NotJudged, None), "{c:?}");
    }
    let needed = compared[4].runs_needed.unwrap();
    assert!((4..=6).contains(&needed), "{compared:?}");
    // So many, which vary in the same way, do tell.
    let again = |three: &[f64]| runs(&three.iter().cycle().take(needed).copied().collect::<Vec<_>>());
    let more = compare(&metrics, &again(&fast), &again(&slow), &CompareOptions::default())[4];
    assert_eq!((more.finding, more.runs_needed), (Finding::Worse, None), "{more:?}");
    // Three that vary less are enough, and those of unequal numbers are no other.
    let steady = [450.0, 500.0, 520.0];
    assert_eq!(
        compare(&metrics, &runs(&fast), &runs(&steady), &CompareOptions::default())[4].finding,
        Finding::Worse
    );
    let unequal = compare(&metrics, &runs(&fast[..2]), &runs(&slow), &CompareOptions::default())[4];
    assert!(unequal.runs_needed.is_some_and(|n| n > 3), "{unequal:?}");
    // Equal programs whose runs differ by factors: as many as would bound it.
    let wild = compare(&metrics, &runs(&slow), &runs(&[2000.0, 120.0, 490.0]), &CompareOptions::default())[4];
    assert!(wild.runs_needed.is_some_and(|n| n > 6), "{wild:?}");
}

/// Pairs whose figures all differ by one step of the histogram are no proof: a step is all that was measured.
#[test]
fn a_step_of_the_histogram_is_no_difference() {
    let a: Vec<Run> = (0..2).map(|_| run_with(1_000_000.0, 1e5)).collect();
    let b: Vec<Run> = (0..2).map(|_| run_with(1_000_600.0, 1e5)).collect();
    let compared = compare(&[Metric::P50], &a, &b, &CompareOptions::default())[0];
    assert!(compared.ratio > 1.0, "{compared:?}");
    assert_eq!(compared.finding, Finding::NoDifferenceShown, "{compared:?}");
}

/// Logarithms of the figures of a run, in the order of [`Metric::ALL`], on a machine that is as slow as `day` (0: as always) and of a program that is
/// slower by the factor `slow`.
fn simulate(rng: &mut Rng, day: f64, slow: f64) -> [f64; 6] {
    // What all figures of a run have in common, and each its own: higher percentiles waver more.
    let mine = slow.ln() + day + 0.01 * normal(rng);
    let (middle, tail) = (0.003 * normal(rng), 3f64.ln() + 0.03 * normal(rng));
    let mean = (0.97 * middle.exp() + 0.03 * tail.exp()).ln();
    let (rate, cpu) = (-mine + 0.005 * normal(rng), mine + 0.005 * normal(rng));
    [mine + middle, mine + tail, mine + tail, mine + mean, rate, cpu]
}

/// Whether any of these metrics has a finding in a comparison of such runs.
fn tells(metrics: &[Metric], a: &[[f64; 6]], b: &[[f64; 6]], wish: &CompareOptions) -> bool {
    let of = |metric: &Metric, runs: &[[f64; 6]]| -> Vec<f64> {
        let at = Metric::ALL.iter().position(|m| m == metric).unwrap();
        runs.iter().map(|run| run[at]).collect()
    };
    let compared = compare_figures(metrics.iter().map(|m| (*m, of(m, a), of(m, b))).collect(), wish);
    assert_eq!(compared.len(), metrics.len());
    compared.iter().any(|c| matches!(c.finding, Finding::Better | Finding::Worse))
}

/// The share of 200 comparisons in which any metric has a finding.
fn flagged(shape: (usize, usize), metrics: &[Metric], slow: f64) -> f64 {
    coverage(200, |rng| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for i in 0..shape.0.max(shape.1) {
            // Days differ by 10 %. Unequal numbers of runs are no pairs, so they are of one day.
            let day = if shape.0 == shape.1 { 0.1 * normal(rng) } else { 0.0 };
            if i < shape.0 {
                a.push(simulate(rng, day, 1.0));
            }
            if i < shape.1 {
                b.push(simulate(rng, day, slow));
            }
        }
        tells(metrics, &a, &b, &wish(rng, 0.95))
    })
}

#[test]
fn equal_programs_are_told_apart_at_most_once_in_twenty() {
    for shape in [(2, 2), (3, 3), (5, 5), (10, 10), (2, 3), (4, 7)] {
        let share = flagged(shape, &Metric::ALL, 1.0);
        assert!(share <= 0.05, "{shape:?}: {share}");
    }
}

/// Runs taken in turns, A, B, A, B, on a machine whose speed wanders: what it is in one run is nearly what it was in the run before, so
/// the runs of a side are no independent draws.
#[test]
fn equal_programs_on_a_machine_that_wanders_are_told_apart_at_most_once_in_twenty() {
    for n in [2, 3, 5, 10] {
        for memory in [0.5f64, 0.99] {
            let share = coverage(200, |rng| {
                // An autoregressive process of order one, which begins as it goes on: 10 % off on an average run.
                let mut speed = 0.1 * normal(rng);
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for _ in 0..n {
                    for runs in [&mut a, &mut b] {
                        runs.push(simulate(rng, speed, 1.0));
                        speed = memory * speed + 0.1 * (1.0 - memory * memory).sqrt() * normal(rng);
                    }
                }
                tells(&Metric::ALL, &a, &b, &wish(rng, 0.95))
            });
            assert!(share <= 0.05, "{n} and {n} runs, {memory}: {share}");
        }
    }
}

#[test]
fn a_difference_of_a_twentieth_is_found() {
    for (shape, metrics) in
        [((8, 8), &Metric::ALL[..]), ((5, 5), &[Metric::Rate][..]), ((6, 9), &Metric::ALL[..])]
    {
        let share = flagged(shape, metrics, 1.05);
        assert!(share >= 0.9, "{shape:?}: {share}");
    }
    // One run of each shows nothing, however large the difference.
    assert!(flagged((1, 1), &Metric::ALL, 2.0) == 0.0);
}

#[test]
fn students_t_is_as_in_the_tables() {
    for (freedom, chance, t) in [
        (1.0, 0.975, 12.706),
        (2.0, 0.975, 4.303),
        (4.0, 0.975, 2.776),
        (9.0, 0.95, 1.833),
        (30.0, 0.975, 2.042),
        (2.0, 0.995, 9.925),
    ] {
        assert!(
            (t_quantile(chance, freedom) - t).abs() < 0.002 * t,
            "{freedom}: {}",
            t_quantile(chance, freedom)
        );
    }
}
