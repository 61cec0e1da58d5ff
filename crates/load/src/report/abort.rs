//! `--abort`: conditions of `--fail` that are judged while the run goes on, and end it.
//!
//! They are judged on what has passed of the measured part, over all lanes, as at the end ([`super::threshold`]). Few samples say little: the
//! first slow request is the whole p99 of a run that has just begun. So a condition waits until there are enough of them
//! (`Threshold::broken` has how many), unless the person says from when on it is judged.

use std::time::Duration;

use super::build::part_of;
use super::live::Live;
use super::model::{Aborted, Part, Phase, rounded};
use super::recorder::{SnapshotsTo, Wanted};
use super::threshold::Threshold;

/// Conditions that end a run.
#[derive(Debug)]
pub struct Abort {
    conditions: Vec<Threshold>,
    after: Option<Duration>,
    phases: Vec<Phase>,
    pools: Vec<String>,
    /// When they are looked at next.
    next: Duration,
}

/// Between two looks: adding up the histograms of many lanes and pools takes milliseconds, and they are sent no more often.
const EVERY: Duration = Duration::from_millis(200);

impl Abort {
    /// Conditions for a run of these phases and pools. `after`: from when on they are judged, from the start of the run; `None`: each as soon
    /// as there are samples enough.
    #[must_use]
    pub fn new(
        conditions: Vec<Threshold>,
        after: Option<Duration>,
        phases: &[Phase],
        pools: &[String],
    ) -> Self {
        Self { conditions, after, phases: phases.to_vec(), pools: pools.to_vec(), next: Duration::ZERO }
    }

    /// The way for snapshots that have what is judged.
    #[must_use]
    pub fn asks(&self, to: SnapshotsTo) -> SnapshotsTo {
        to.with(Wanted(self.conditions.iter().filter_map(Threshold::times).collect()))
    }

    /// The first condition that is broken by what has passed, if one is.
    #[must_use]
    pub fn look(&mut self, live: &Live) -> Option<Aborted> {
        let elapsed = Duration::from_nanos(live.total().1);
        // Guard: `elapsed < self.after.unwrap_or_default()` as `false` fails
        // abort::tests::nothing_is_judged_before_its_time
        if elapsed < self.after.unwrap_or_default() {
            return None;
        }
        if elapsed < self.next {
            return None;
        }
        self.next = elapsed + EVERY;
        let seconds = measured_within(&self.phases, elapsed.as_secs_f64());
        let of = |name: &str, wanted: &dyn Fn(usize) -> bool| Part {
            name: name.to_owned(),
            ..part_of(live.passed().filter(|(pool, _)| wanted(*pool)).map(|(_, passed)| passed), seconds)
        };
        let total = of("total", &|_| true);
        // Most runs have one pool, and most conditions are about all.
        let by_pool = self.conditions.iter().any(|condition| condition.pool().is_some());
        let named = self.pools.iter().enumerate().filter(|_| by_pool);
        let pools: Vec<Part> = named.map(|(i, name)| of(name, &|pool| pool == i)).collect();
        let sure = self.after.is_some();
        self.conditions.iter().find_map(|condition| {
            let measured = condition.broken(&total, &pools, sure)?;
            let condition = condition.to_string();
            Some(Aborted { at_seconds: rounded(elapsed.as_secs_f64()), condition, measured })
        })
    }
}

/// Seconds of the measured part in the first `elapsed` seconds of a run.
fn measured_within(phases: &[Phase], elapsed: f64) -> f64 {
    let measured = phases.iter().filter(|phase| phase.measured);
    measured.map(|phase| (phase.to_seconds.min(elapsed) - phase.from_seconds).max(0.0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ErrorKind, Recorder, Sample, live};
    use crate::run::timeline;

    const SECOND: u64 = 1_000_000_000;

    /// A run with a warm-up of a second, of which `requests` are (when, pool, latency or an error).
    fn aborted(
        conditions: &[&str],
        after: Option<u64>,
        until: u64,
        requests: impl Fn(u64) -> Option<u64>,
    ) -> Option<Aborted> {
        let phases = timeline::usual(None, Some(Duration::from_secs(1)), Duration::from_secs(100));
        let conditions = conditions.iter().map(|text| text.parse().unwrap()).collect();
        let pools = ["one".to_owned(), "other".to_owned()];
        let mut abort =
            Abort::new(conditions, after.map(Duration::from_secs), &timeline::shown(&phases), &pools);
        let (to, from) = live::channel();
        let mut recorders: Vec<Recorder> = (0..4u16)
            .map(|i| {
                let span = timeline::span(&phases, SECOND);
                Recorder::new(i % 2, usize::from(i / 2), 1, span).reporting_to(abort.asks(to.clone().into()))
            })
            .collect();
        let mut live = Live::new();
        for ms in 0..until {
            let now = SECOND + ms * 1_000_000;
            for (i, recorder) in recorders.iter_mut().enumerate() {
                recorder.sent(now, now, 100);
                match requests(ms) {
                    // Only the second pool is slow.
                    Some(latency) if i >= 2 => {
                        recorder.answered(&Sample {
                            intended: now,
                            sent: now,
                            first_byte: now,
                            done: now + latency,
                            code: 200,
                        });
                    }
                    None if i >= 2 => recorder.error(now, now, ErrorKind::Reset, || "reset"),
                    _ => recorder.answered(&Sample {
                        intended: now,
                        sent: now,
                        first_byte: now,
                        done: now,
                        code: 200,
                    }),
                }
                recorder.tick(now);
            }
            // The display looks ten times a second.
            if !ms.is_multiple_of(50) {
                continue;
            }
            live.take(&from);
            if let Some(aborted) = abort.look(&live) {
                return Some(aborted);
            }
        }
        None
    }

    #[test]
    fn the_first_slow_requests_end_nothing_and_many_do() {
        let first_are_slow = |ms: u64| Some(if ms == 1001 { SECOND } else { 1 });
        assert_eq!(aborted(&["pool=other p99.9 > 20ms"], None, 4000, first_are_slow), None);
        // The person may want it so.
        let early = aborted(&["pool=other p99.9 > 20ms"], Some(1), 4000, first_are_slow).unwrap();
        assert!(early.at_seconds < 1.6, "{early:?}");
        let many = |ms: u64| Some(if ms > 2000 { 30_000_000 } else { 1 });
        let slow = aborted(&["errors > 0", "pool=other p99 > 20ms"], None, 4000, many).unwrap();
        assert_eq!((slow.condition.as_str(), slow.measured.as_str()), ("pool=other p99 > 20ms", "30.0 ms"));
        assert!((2.0..2.6).contains(&slow.at_seconds), "{slow:?}");
        assert_eq!(aborted(&["pool=one p99 > 20ms"], None, 4000, many), None);
    }

    #[test]
    fn nothing_is_judged_before_its_time() {
        let late = aborted(&["errors > 0", "max > 1ms"], Some(3), 5000, |_| Some(SECOND)).unwrap();
        assert!((3.0..3.6).contains(&late.at_seconds) && late.condition == "max > 1ms", "{late:?}");
    }

    #[test]
    fn the_warm_up_breaks_nothing() {
        let warm = |ms: u64| (ms >= 1000).then_some(1);
        assert_eq!(aborted(&["errors > 0", "max > 1ms", "rate < 1"], None, 8000, warm), None);
    }

    #[test]
    fn what_cannot_become_whole_again_is_broken_at_once() {
        let one = |ms: u64| (ms != 1500).then_some(1);
        for condition in ["errors > 0", "errors > 0%", "reset >= 2", "pool=other errors > 1"] {
            let broken = aborted(&[condition], None, 4000, one).unwrap();
            assert!((1.5..1.9).contains(&broken.at_seconds), "{condition}: {broken:?}");
        }
        // Two in four thousand and more are no share of 0.1 %.
        assert_eq!(aborted(&["errors > 0.1%"], None, 4000, one), None);
        assert!(
            aborted(&["errors > 0.1%"], None, 4000, |ms| (!ms.is_multiple_of(100)).then_some(1)).is_some()
        );
    }

    #[test]
    fn what_is_whole_at_the_end_only_is_judged_there() {
        let all = |_| Some(1);
        for condition in ["200 < 1M", "max < 1s", "completed < 99%", "standing < 1", "unsent < 5%"] {
            assert_eq!(aborted(&[condition], Some(0), 8000, all), None, "{condition}");
        }
    }

    #[test]
    fn a_rate_is_that_of_what_has_passed() {
        let all = |_| Some(1);
        assert_eq!(aborted(&["rate < 3900"], None, 8000, all), None);
        let slow = aborted(&["rate < 4100"], None, 8000, all).unwrap();
        assert!(slow.measured.ends_with(" a second") && slow.at_seconds >= 6.0, "{slow:?}");
    }
}
