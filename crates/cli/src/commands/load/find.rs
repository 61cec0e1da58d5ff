//! `--find-rate`: the highest rate at which a condition holds, by runs at one rate each ([`flowlane_load::find`]).

use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use flowlane_load::find::{Ended, Found, Limit, Search, Step, line};
use flowlane_load::report::Run;
use flowlane_load::report::text::plain;
use flowlane_load::{Phase, Threshold, timeline};

use crate::exit::{EndedBy, Missed, Slipped};
use crate::interrupt::Interrupt;
use crate::output::Outputs;
use crate::say::say;
use crate::units;

/// Rates between which is searched unless it is said.
const BETWEEN: (f64, f64) = (100.0, 1e6);
/// How near the bounds come unless it is said.
const WITHIN: f64 = 0.05;
/// How long a search may take unless it is said.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a target has to answer as before after a run that failed.
const RECOVERY: Duration = Duration::from_secs(10);
/// How much longer an answer may then take than before the first run.
const AS_BEFORE: (u32, Duration) = (2, Duration::from_millis(1));

/// Options of a search.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
pub(super) struct Find {
    /// Find the highest rate at which this condition holds: 'p99 < 20ms', 'errors <= 0.1%', 'lost <= 0'. Open loops follow each other at one rate each,
    /// with a warm-up of 500ms and a --duration of 3s unless these are given. A failure, answers that fall behind and what is sent late fail a rate, too; a rate that fails is tried once more.
    #[arg(long, value_name = "CONDITION", groups = ["open_loop", "search"], conflicts_with_all = [
        "rate", "ramp", "fail", "abort", "csv", "hdr", "junit", "markdown", "tui", "lines", "web", "metrics", "push", "capture", "flow_log",
    ])]
    pub(super) find_rate: Option<Threshold>,
    /// Rates between which it is looked for [default: 100..1M].
    #[arg(long, value_name = "LOW..HIGH", value_parser = between, requires = "search")]
    pub(super) between: Option<(f64, f64)>,
    /// How near the highest rate that holds and the lowest that fails come: 1% to 100% [default: 5%].
    #[arg(long, value_name = "SHARE", value_parser = within, requires = "search")]
    pub(super) within: Option<f64>,
    /// Longest time of the search; what it knows then is its result, and exit code 1 [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = units::duration, requires = "search")]
    find_for: Option<Duration>,
}

/// Warm-up and measurement of each run unless they are said.
const EACH: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));

/// How long a target of datagrams or connections is asked for one answer after the other.
pub(super) const QUESTION: Duration = Duration::from_millis(200);

/// The phases of each run of a search.
pub(super) fn phases(warm_up: Option<Duration>, duration: Option<Duration>) -> Vec<Phase> {
    timeline::usual(None, Some(warm_up.unwrap_or(EACH.0)), duration.unwrap_or(EACH.1))
}

/// How long an answer took in a run of questions: the median; `None` without an answer.
pub(super) fn usual(run: &Run) -> Option<Duration> {
    let latency = &run.total.latency;
    (!latency.is_empty()).then(|| Duration::from_nanos(latency.at(0.5)))
}

/// What is measured: runs at a rate, and how long an answer takes when nothing else is asked.
pub(super) trait Measured {
    /// A run at a rate per second.
    fn at(&mut self, rate: f64) -> anyhow::Result<Run>;
    /// The time of an answer of a target that is asked for one after the other; `None` if it does not answer.
    fn alone(&mut self) -> anyhow::Result<Option<Duration>>;
}

impl Find {
    /// How long a search may take.
    pub(super) fn longest(&self) -> Duration {
        self.find_for.unwrap_or(LONGEST)
    }

    /// Searches by a condition, and writes what was found.
    ///
    /// # Errors
    /// A run that cannot be made; the condition holds nowhere, or the time was up ([`Missed`]); the generator was the limit ([`Slipped`]); a
    /// signal ([`EndedBy`]).
    pub(super) fn search(
        &self,
        condition: &Threshold,
        (command, targets): (&str, Vec<String>),
        measured: &mut impl Measured,
        outputs: &Outputs,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        let between = self.between.unwrap_or(BETWEEN);
        let within = self.within.unwrap_or(WITHIN);
        let mut search = Search::new(between, within);
        let mut found = Found {
            version: 1,
            program: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            targets,
            condition: condition.to_string(),
            between: between.into(),
            within,
            rate: None,
            fails_at: None,
            limit: None,
            ended: Ended::Narrow,
            seconds: 0.0,
            recovered: true,
            steps: Vec::new(),
        };
        let before = measured.alone()?;
        let mut early = None;
        while let Some(rate) = search.rate() {
            if begin.elapsed() >= self.longest() {
                early = Some(Ended::Time);
                break;
            }
            let run = measured.at(rate)?;
            if interrupt.came() {
                early = Some(Ended::Interrupted);
                break;
            }
            if run.ended == flowlane_load::report::model::Ended::Failed {
                bail!(Missed(plain(&run.failure().unwrap_or_else(|| "the run failed".to_owned()))));
            }
            let step = Step::of(rate, condition, &run);
            if !outputs.are_quiet() {
                say!("{}", line(&step));
            }
            search.tell(rate, step.holds);
            let failed = !step.holds;
            found.steps.push(step);
            if failed && !recovers(measured, before, interrupt)? {
                found.recovered = false;
            }
        }
        found.note(&search);
        found.ended = early.unwrap_or(found.ended);
        found.seconds = (begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        outputs.write_found(&found)?;
        match (found.ended, found.limit) {
            (Ended::Interrupted, _) => {
                let signal = interrupt.signal().unwrap_or(2);
                bail!(EndedBy(signal, "the search was ended before its time".into()))
            }
            (Ended::Time, _) => bail!(Missed("the time was up before the search was (--find-for)".into())),
            (_, Some(Limit::Generator)) => bail!(Slipped(
                "this generator is the limit, not what it asks: more workers or another machine for it"
                    .into()
            )),
            (Ended::NoneHolds, _) => bail!(Missed(format!("{condition} does not hold at the lowest rate"))),
            _ => Ok(()),
        }
    }
}

/// Waits until a target answers as before: what it was asked too much of may still be in its queues. Whether it does.
fn recovers(
    measured: &mut impl Measured,
    before: Option<Duration>,
    interrupt: &Interrupt,
) -> anyhow::Result<bool> {
    let Some(before) = before else { return Ok(true) };
    let end = Instant::now() + RECOVERY;
    while Instant::now() < end && !interrupt.came() {
        if measured.alone()?.is_some_and(|now| now <= before * AS_BEFORE.0 + AS_BEFORE.1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `1k..100k`.
fn between(text: &str) -> Result<(f64, f64), String> {
    let expected = || format!("'{text}': LOW..HIGH, as 1k..100k");
    let (low, high) = text.split_once("..").ok_or_else(expected)?;
    let rate = |text: &str| units::frequency(text).map_err(|e| e.to_string());
    let (low, high) = (rate(low)?, rate(high)?);
    if low <= high { Ok((low, high)) } else { Err(format!("'{text}': the first is above the second")) }
}

/// `5%`.
fn within(text: &str) -> Result<f64, String> {
    let share = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
    match share {
        Some(percent) if (1.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err(format!("'{text}' is not a share from 1% to 100%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read() {
        assert_eq!(between("1k..100k"), Ok((1e3, 1e5)));
        assert_eq!(between("0.5..0.5"), Ok((0.5, 0.5)));
        for wrong in ["", "1k", "..", "1k..", "2..1", "0..1", "a..b", "1...2"] {
            assert!(between(wrong).is_err(), "{wrong}");
        }
        assert_eq!(within("5%"), Ok(0.05));
        for wrong in ["5", "0.5%", "101%", "%", "-1%", "NaN%"] {
            assert!(within(wrong).is_err(), "{wrong}");
        }
    }
}
