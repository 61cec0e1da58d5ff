//! Planted periods are found, and none in noise.

use flowlane_stack::rng::Rng;

use super::super::{About, Recorder, Sample, Span, join};
use super::*;

const START: u64 = 3_000_000_000;

/// A time that varies by a factor of about two, and at times by much more.
fn noise(rng: &mut Rng) -> f64 {
    let even = |rng: &mut Rng| f64::from(rng.below(1 << 20)) / f64::from(1 << 20);
    let normal: f64 = (0..12).map(|_| even(rng)).sum::<f64>() - 6.0;
    let spike = if rng.below(200) == 0 { 4.0 * even(rng) } else { 0.0 };
    normal + spike
}

/// What a run is made of: requests a second, whether they come evenly, and how a logarithm (of two) depends on milliseconds.
struct Kind {
    rate: u64,
    even: bool,
    drift: bool,
    planted: fn(f64) -> f64,
}

/// Gives a run's requests to `note`: lane, intended moment, slip and latency, nanoseconds.
fn requests(kind: &Kind, seconds: u64, seed: u64, mut note: impl FnMut(usize, u64, u64, u64)) {
    let mut rng = Rng::new(seed);
    let mut slow = 0.0;
    for n in 0..seconds * kind.rate {
        let gap = 1_000_000_000 / kind.rate;
        let at = n * gap + if kind.even { 0 } else { u64::from(rng.below(2 * gap as u32)) };
        slow = 0.999 * slow + if kind.drift { 0.02 * noise(&mut rng) } else { 0.0 };
        // Lanes and pools differ.
        let lane = rng.below(3) as usize;
        let power = 14.0 + 3.0 * lane as f64 + 0.7 * noise(&mut rng) + slow + (kind.planted)(at as f64 / 1e6);
        note(lane, START + at, u64::from(rng.below(20_000)), power.exp2() as u64);
    }
}

/// The periods of a run's series, without all else that a recorder keeps.
fn periods(kind: &Kind, seconds: u64, seed: u64) -> Vec<Period> {
    let mut series: [[Fine; 3]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| Fine::new(START)));
    requests(kind, seconds, seed, |lane, at, slip, latency| {
        series[0][lane].note(at, latency);
        series[1][lane].note(at, slip);
    });
    let whole = START..START + seconds * 1_000_000_000;
    let found = |(of, series): (&str, [Fine; 3])| {
        let series = series.map(|fine| fine.finish(&whole, &[]));
        find_in(of, &series.each_ref())
    };
    ["latency", "slip"].into_iter().zip(series).flat_map(found).collect()
}

/// The same by recorders and a report.
fn reported(kind: &Kind, seconds: u64, seed: u64) -> Vec<Period> {
    let mut recorders: Vec<Recorder> =
        (0..3).map(|lane| Recorder::new(lane, 0, 1, Span::all(START))).collect();
    requests(kind, seconds, seed, |lane, intended, slip, latency| {
        recorders[lane].sent(intended, intended + slip, 100);
        let done = intended + latency;
        recorders[lane].answered(&Sample { intended, sent: intended, first_byte: done, done, code: 200 });
    });
    let end = START + seconds * 1_000_000_000;
    let records: Vec<_> = recorders.into_iter().map(|recorder| recorder.finish(end)).collect();
    let mut about = About::default();
    about.setup.open_loop = true;
    join(about, records).periods
}

const KINDS: [Kind; 4] = [
    Kind { rate: 1000, even: true, drift: false, planted: |_| 0.0 },
    Kind { rate: 1000, even: false, drift: true, planted: |_| 0.0 },
    Kind { rate: 400, even: true, drift: true, planted: |_| 0.0 },
    Kind { rate: 3000, even: false, drift: false, planted: |_| 0.0 },
];

// Long: nearly two hundred series of nine seconds are made and searched, without optimisation.
#[test]
fn none_in_noise() {
    for (i, kind) in KINDS.iter().enumerate() {
        for seed in 0..30 {
            let found = periods(kind, 9, 1000 * i as u64 + seed);
            assert!(found.is_empty(), "kind {i}, seed {seed}: {found:?}");
        }
    }
}

/// A sine and a pulse of 33 ms, 5 % of the variance (0.7² and 1 / 19 of it), less where there is drift.
// Long: a hundred series of nine seconds are made and searched, without optimisation.
#[test]
fn a_period_of_33_ms_is_found() {
    let sine: fn(f64) -> f64 = |ms| 0.228 * (std::f64::consts::TAU * ms / 33.0).sin();
    let pulse: fn(f64) -> f64 = |ms| if ms % 33.0 < 4.0 { 0.495 } else { 0.0 };
    for (i, planted) in [sine, pulse].into_iter().enumerate() {
        for (j, kind) in KINDS.iter().enumerate() {
            // A pulse has little of its power at its lowest frequency: 400 requests a second do not tell it in nine seconds.
            if i == 1 && kind.rate == 400 {
                continue;
            }
            for seed in 0..15 {
                let (kind, seed) = (Kind { planted, ..*kind }, 7000 + 1000 * j as u64 + seed);
                let found = periods(&kind, 9, seed);
                assert!(!seed.is_multiple_of(1000) || reported(&kind, 9, seed) == found, "{i}, kind {j}");
                let [one] = &found[..] else { panic!("{i}, kind {j}, seed {seed}: {found:?}") };
                assert_eq!(one.of, "latency");
                assert!(one.period_ns.abs_diff(33_000_000) < 200_000, "{i}, kind {j}, seed {seed}: {one:?}");
                assert!((0.02..0.09).contains(&one.share), "{i}, kind {j}, seed {seed}: {one:?}");
            }
        }
    }
}

/// A period whose length varies by two percent is found by the short windows, in a long run as well.
#[test]
fn a_period_that_is_not_exact_is_found() {
    // Where each one ends, by a walk that is the same for all.
    let wander: fn(f64) -> f64 = |ms| {
        let phase = ms / 33.0 + 0.9 * (ms / 400.0).sin() + 0.7 * (ms / 1700.0).sin();
        0.6 * (std::f64::consts::TAU * phase).sin()
    };
    for seed in 0..5 {
        let found = periods(&Kind { planted: wander, ..KINDS[0] }, 60, seed);
        assert!(found.iter().any(|p| p.period_ns.abs_diff(33_000_000) < 3_000_000), "seed {seed}: {found:?}");
    }
}

#[test]
fn it_is_said_and_drawn() {
    let steps_ns = (0..STEPS as u64).map(|i| if i == 5 { 0 } else { 80_000 + 1000 * i }).collect();
    let period = Period { of: "latency".into(), period_ns: 33_000_000, share: 0.052, steps_ns };
    assert_eq!(period.words(), "every 33.0 ms latency goes from 80.0 us to 103 us: 5.2 % of its variance");
    assert_eq!(period.drawn(), "▁▁▂▂▂ ▃▃▃▄▄▄▅▅▅▆▆▆▆▇▇▇██");
}
