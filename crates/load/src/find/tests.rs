//! Searches for a rate that is known, on machines that are quiet and on machines that are not.

use super::*;

/// Searches with this answer to each rate; the bounds and the rates that were tried.
fn search(
    between: (f64, f64),
    within: f64,
    mut holds: impl FnMut(f64) -> bool,
) -> ((Option<f64>, Option<f64>), Vec<f64>) {
    let (mut search, mut tried) = (Search::new(between, within), Vec::new());
    while let Some(rate) = search.rate() {
        assert!(tried.len() < 200, "{search:?}");
        tried.push(rate);
        search.tell(rate, holds(rate));
    }
    (search.bounds(), tried)
}

#[test]
fn a_limit_is_found_between_its_bounds() {
    for limit in [100.0, 101.0, 437.0, 5_000.0, 99_999.0, 999_000.0] {
        for within in [0.01, 0.05, 0.2] {
            let ((held, failed), tried) = search((100.0, 1e6), within, |rate| rate <= limit);
            let (held, failed) = (held.unwrap(), failed.unwrap());
            assert!(held <= limit && limit < failed, "{limit}: {held} to {failed}");
            assert!(failed <= held * (1.0 + within), "{limit}: {held} to {failed}");
            assert!(tried.len() <= 30, "{limit} within {within}: {tried:?}");
            assert_eq!(tried.iter().filter(|rate| **rate == held).count(), 2, "it holds twice: {tried:?}");
            assert_eq!(tried.iter().filter(|rate| **rate == failed).count(), 2, "it fails twice: {tried:?}");
        }
    }
}

#[test]
fn what_always_or_never_holds_is_found() {
    let (bounds, tried) = search((100.0, 5_000.0), 0.05, |_| true);
    assert_eq!((bounds, tried), ((Some(5_000.0), None), vec![100.0, 400.0, 1_600.0, 5_000.0, 5_000.0]));
    let (bounds, tried) = search((100.0, 5_000.0), 0.05, |_| false);
    assert_eq!((bounds, tried), ((None, Some(100.0)), vec![100.0, 100.0]));
    assert_eq!(search((7.0, 7.0), 0.05, |_| true).0, (Some(7.0), None));
}

/// A rate that held by chance fails when it is tried again, and the search goes on below it.
#[test]
fn a_rate_that_held_by_chance_is_not_found() {
    let mut lucky = true;
    let chance = |rate: f64| rate <= 1_000.0 || rate <= 1_700.0 && std::mem::take(&mut lucky);
    let ((held, failed), _) = search((100.0, 1e6), 0.05, chance);
    assert!((950.0..=1_000.0).contains(&held.unwrap()) && failed.unwrap() <= 1_050.0, "{held:?} {failed:?}");
}

/// One run in ten is spoilt, whatever its rate is.
#[test]
fn spoilt_runs_do_not_mislead() {
    let mut near = 0;
    for seed in 0..100u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut spoilt = || {
            // An xorshift generator (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 10 == 0
        };
        let ((held, _), _) = search((100.0, 1e6), 0.05, |rate| rate <= 5_000.0 && !spoilt());
        near += u32::from(held.is_some_and(|rate| (4_750.0..=5_000.0).contains(&rate)));
    }
    assert!(near >= 80, "{near} of 100 within 5 %");
}

/// What is lost fails a rate, unless the condition says how much may be.
#[test]
fn a_rate_is_judged_by_its_condition_and_by_what_no_condition_names() {
    use crate::report::model::{ErrorCount, Rates};
    let mut run = crate::report::join(crate::report::About::default(), Vec::new());
    run.total.latency.record(5_000_000);
    let counts = &mut run.total.counts;
    (counts.sent, counts.answered, counts.failed) = (1000, 990, 10);
    counts.errors = [("lost".into(), ErrorCount { count: 10, ..ErrorCount::default() })].into();
    run.total.rates = Rates { sent: 1000.0, answered: 990.0, ..Rates::default() };
    for (rate, condition, why) in [
        (1000.0, "lost <= 1%", None),
        (1000.0, "errors <= 1%", None),
        (1000.0, "lost <= 0.5%", Some("it was 1.000% (10 of 1 000)")),
        (1000.0, "p99 < 20ms", Some("10 of 1 000 failed")),
        (1000.0, "timeout <= 5%", Some("10 of 1 000 failed")),
        (1000.0, "p99 < 1ms", Some("it was 5.00 ms")),
        (1100.0, "lost <= 1%", Some("only 990 a second were answered")),
    ] {
        let step = Step::of(rate, &condition.parse().unwrap(), &run);
        assert_eq!((step.why.as_deref(), step.holds), (why, why.is_none()), "{rate}, {condition}");
    }
}
