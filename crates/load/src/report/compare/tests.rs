//! How often the intervals hold the truth, in seeded simulations, and what is made of them.

use super::*;
use crate::report::model::Phase;
use crate::report::{About, join};

/// A number near zero, normally distributed with deviation 1: the sum of twelve evenly distributed ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| f64::from(rng.next_u32()) / f64::from(u32::MAX)).sum::<f64>() - 6.0
}

fn run_with(p50: f64, rate: f64) -> Run {
    let mut run = join(About::default(), &[]);
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
fn wish(rng: &mut Rng, confidence: f64) -> Wish {
    Wish { confidence, draws: 800, seed: rng.next_u64(), ..Wish::default() }
}

fn found(xs: &[f64], ys: &[f64], wish: &Wish) -> (Method, (f64, f64)) {
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

fn run_of_seconds(rng: &mut Rng, seconds: u64, rate: f64) -> Run {
    let mut run = join(About::default(), &[]);
    run.phases =
        vec![Phase { name: "hold".into(), from_seconds: 0.0, to_seconds: seconds as f64, measured: true }];
    let mut drift = 0.0;
    let mut sum = 0.0;
    for second in 0..seconds {
        // A second is somewhat like the one before.
        drift = 0.5 * drift + 0.05 * normal(rng);
        let answered = (rate * f64::exp(drift)) as u64;
        sum += answered as f64;
        run.total.series.push(Point {
            at_seconds: second as f64,
            seconds: 1.0,
            answered,
            ..Point::default()
        });
    }
    run.total.rates.answered = sum / seconds as f64;
    run
}

#[test]
fn seconds_that_are_like_each_other_hold_the_truth_nearly_as_often() {
    let share = coverage(200, |rng| {
        let (a, b) = (run_of_seconds(rng, 60, 1e5), run_of_seconds(rng, 60, 1.2e5));
        let found = compare(Metric::Rate, &[a], &[b], &wish(rng, 0.95)).unwrap();
        assert_eq!(found.method, Method::WithinRuns);
        (found.low..=found.high).contains(&1.2)
    });
    // Blocks see only some of what neighbours have in common: documented as "about 90 %".
    assert!((0.85..=0.99).contains(&share), "{share}");
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
    let once = compare(Metric::P50, &runs, &others, &Wish::default());
    assert_eq!(once, compare(Metric::P50, &runs, &others, &Wish::default()));
    assert_eq!(once.unwrap().finding, Finding::Worse);
    let same = compare(Metric::P50, &runs, &runs, &Wish::default()).unwrap();
    assert_eq!((same.low, same.ratio, same.high, same.finding), (1.0, 1.0, 1.0, Finding::NoDifferenceShown));
    // Nothing to compare: no answer rather than a wrong one.
    assert!(compare(Metric::P99, &[], &runs, &Wish::default()).is_none());
    assert!(compare(Metric::Cpu, &runs, &others, &Wish::default()).is_none());
    assert!(compare(Metric::P50, &runs[..1], &others[..1], &Wish::default()).is_none());
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
