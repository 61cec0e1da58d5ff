//! The parts of a run, one after the other: how long it lasts, which of it is measured, and how it is told.

use std::ops::Range;
use std::time::Duration;

use crate::http::Phase;
use crate::report::model;

/// How long all of it lasts.
#[must_use]
pub fn duration(phases: &[Phase]) -> Duration {
    phases.iter().map(|p| p.duration).sum()
}

/// From when to when it is measured, nanoseconds, if it begins at `start`; nothing, if no part is.
#[must_use]
pub fn measured(phases: &[Phase], start: u64) -> Range<u64> {
    let (mut at, mut range) = (start, None::<Range<u64>>);
    for phase in phases {
        let end = at + phase.duration.as_nanos() as u64;
        if phase.measured {
            range = Some(range.map_or(at, |r| r.start)..end);
        }
        at = end;
    }
    range.unwrap_or(start..start)
}

/// How much of the first `elapsed` is measured.
#[must_use]
pub fn measured_within(phases: &[Phase], elapsed: Duration) -> Duration {
    let range = measured(phases, 0);
    let elapsed = elapsed.as_nanos() as u64;
    Duration::from_nanos(range.end.min(elapsed).saturating_sub(range.start))
}

/// The parts as a report has them.
#[must_use]
pub fn shown(phases: &[Phase]) -> Vec<model::Phase> {
    let mut at = 0.0;
    let shown = |phase: &Phase| {
        let from_seconds = at;
        at += phase.duration.as_secs_f64();
        model::Phase { name: phase.name.clone(), from_seconds, to_seconds: at, measured: phase.measured }
    };
    phases.iter().map(shown).collect()
}

/// A run with a ramp, a warm-up, and what is measured; the first two if they are wanted.
#[must_use]
pub fn usual(ramp: Option<Duration>, warm_up: Option<Duration>, hold: Duration) -> Vec<Phase> {
    let before = |name: &str, duration: Option<Duration>, from: f64| {
        duration.map(|duration| Phase { name: name.into(), duration, from, to: 1.0, measured: false })
    };
    let (ramp, warm_up) = (before("ramp", ramp, 0.0), before("warm-up", warm_up, 1.0));
    ramp.into_iter().chain(warm_up).chain([Phase::hold(hold)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_begins_after_the_warm_up() {
        let s = Duration::from_secs;
        let phases = usual(Some(s(2)), Some(s(3)), s(10));
        assert_eq!(duration(&phases), s(15));
        assert_eq!(measured(&phases, 7), 5_000_000_007..15_000_000_007);
        for (elapsed, of) in [(4, 0), (8, 3), (99, 10)] {
            assert_eq!(measured_within(&phases, s(elapsed)), s(of), "{elapsed}");
        }
        let names: Vec<String> = shown(&phases).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["ramp", "warm-up", "hold"]);
        assert_eq!(measured(&[], 5), 5..5);
    }
}
