//! The phases of a run: its length, its measured part, and its form in reports.

use std::ops::Range;
use std::time::Duration;

use crate::report::{PhaseSpan, Span, model};

/// A part of a run, during which the load changes linearly between two shares of the nominal load.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its name in reports.
    pub name: String,
    /// Its length.
    pub duration: Duration,
    /// Share of the nominal rate (open loop) or connections (closed loop) at its start; 1 is all of it.
    pub from: f64,
    /// The same at its end.
    pub to: f64,
    /// Whether its requests are in the figures.
    pub measured: bool,
}

impl Phase {
    /// A measured phase with the nominal load.
    #[must_use]
    pub fn hold(duration: Duration) -> Self {
        Self { name: "hold".into(), duration, from: 1.0, to: 1.0, measured: true }
    }
}

/// Length of all phases together.
#[must_use]
pub fn duration(phases: &[Phase]) -> Duration {
    phases.iter().map(|p| p.duration).sum()
}

/// The measured part of a run that starts at `start`, nanoseconds; empty if no phase is measured.
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

/// The measured part of the first `elapsed`.
#[must_use]
pub fn measured_within(phases: &[Phase], elapsed: Duration) -> Duration {
    let (mut at, mut sum) = (Duration::ZERO, Duration::ZERO);
    for phase in phases {
        let end = at + phase.duration;
        if phase.measured {
            sum += end.min(elapsed).saturating_sub(at);
        }
        at = end;
    }
    sum
}

/// The span for recorders, with phases from `start` on. A request intended exactly at the end belongs to the last phase.
#[must_use]
pub fn span(phases: &[Phase], start: u64) -> Span {
    let end = start + duration(phases).as_nanos() as u64;
    let mut range = measured(phases, start);
    if range.end == end && !range.is_empty() {
        range.end = u64::MAX;
    }
    let mut at = start;
    let ends = phases.iter().map(|phase| {
        at += phase.duration.as_nanos() as u64;
        PhaseSpan { end: at, measured: phase.measured }
    });
    Span { start, measured: range, phases: ends.collect() }
}

/// The phases in the form of a report.
#[must_use]
pub fn shown(phases: &[Phase]) -> Vec<model::Phase> {
    let mut at = 0.0;
    let shown = |phase: &Phase| {
        let from_seconds = at;
        at += phase.duration.as_secs_f64();
        model::Phase {
            name: phase.name.clone(),
            from_seconds,
            to_seconds: at,
            measured: phase.measured,
            ..model::Phase::default()
        }
    };
    phases.iter().map(shown).collect()
}

/// The phases ramp and warm-up, if given, and a measured phase of length `hold`.
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

    #[test]
    fn what_lies_between_measured_phases_is_not_measured_with_them() {
        let s = Duration::from_secs;
        let phase = |seconds, measured| Phase { measured, ..Phase::hold(s(seconds)) };
        let phases = [phase(1, false), phase(2, true), phase(4, false), phase(8, true)];
        for (elapsed, of) in [(1, 0), (2, 1), (3, 2), (7, 2), (8, 3), (99, 10)] {
            assert_eq!(measured_within(&phases, s(elapsed)), s(of), "{elapsed}");
        }
        let span = span(&phases, 0);
        let mut recorder = crate::report::Recorder::new(0, 0, 1, span);
        for second in 0..20 {
            recorder.sent(second * 1_000_000_000, second * 1_000_000_000, 0);
        }
        // Seconds 1 and 2, and 7 to 14, with what comes after the end.
        assert_eq!(recorder.tally(8_000_000_000).sent, 2 + 13);
        assert_eq!(recorder.tally(4_000_000_000).sent, 1 + 4);
    }
}
