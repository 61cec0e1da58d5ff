//! A run that several generators made together: their records merged, and a section for each.
//!
//! The merge is that of lanes, [`join`]: histograms and counts are added, so the whole is exactly the sum. Each agent has its own counts, and how it
//! kept its part of the schedule, by the budget of the whole.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::build::{About, join};
use super::model::{Run, SlipVerdict};
use super::recorder::LaneRecord;
use super::text::{plain, wrapped};
use super::times::Times;
use super::usage::Generator;
use crate::units::{show_count, show_nanos};

/// An agent's part of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Version of its program.
    pub program: String,
    /// Its share of the load, 0 to 1.
    pub share: f64,
    /// Its first lane.
    pub first_lane: u64,
    /// Its lanes.
    pub lanes: u64,
    /// How far its clock was ahead at the start, nanoseconds.
    pub clock_ahead_ns: i64,
    /// By how much that may be wrong, nanoseconds: how exact the common start was.
    pub clock_uncertainty_ns: u64,
    /// How far its clock moved during the run, nanoseconds, if that can be told from the uncertainty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_drift_ns: Option<i64>,
    /// Requests sent, over the whole run.
    pub sent: u64,
    /// Answers.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// How it kept its part of the schedule.
    pub slip: SlipVerdict,
    /// Resources that it used.
    pub generator: Generator,
    /// What was wrong with it; then its part is in the figures as far as it was heard of, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// More than this and clocks drift apart so far that a part is not where it should be, nanoseconds.
const DRIFT: u64 = 1_000_000;

impl Agent {
    /// Whether its clock moved so far that it is worth a word.
    #[must_use]
    pub fn drifts(&self) -> bool {
        self.clock_drift_ns.is_some_and(|drift| drift.unsigned_abs() > DRIFT)
    }
}

/// How far a clock is ahead, in words.
fn ahead(nanos: i64) -> String {
    let by = show_nanos(nanos.unsigned_abs());
    if nanos < 0 { format!("{by} behind") } else { format!("{by} ahead") }
}

/// Writes a line for each agent, and one more for what is to be said of it.
pub(super) fn table(run: &Run, out: &mut impl Write) -> io::Result<()> {
    if run.agents.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{:<14} {:>7} {:>13} {:>13} {:>9} {:>10} {:>7}",
        "agent", "share", "sent", "answered", "failed", "slip p99.9", "lanes"
    )?;
    for agent in &run.agents {
        let mut name = plain(&agent.name);
        if name.chars().count() > 14 {
            wrapped(out, &name)?;
            name.clear();
        }
        writeln!(
            out,
            "{name:<14} {:>5.1} % {:>13} {:>13} {:>9} {:>10} {:>7}",
            agent.share * 100.0,
            show_count(agent.sent),
            show_count(agent.answered),
            show_count(agent.failed),
            show_nanos(agent.slip.p99_9_ns),
            agent.lanes
        )?;
        let drift = match agent.clock_drift_ns {
            Some(drift) if agent.drifts() => format!(", and went {} during the run", ahead(drift)),
            _ => String::new(),
        };
        wrapped(
            out,
            &format!(
                "    host {}, clock {} to within {}{drift}",
                plain(&agent.host),
                ahead(agent.clock_ahead_ns),
                show_nanos(agent.clock_uncertainty_ns)
            ),
        )?;
        if let Some(fault) = &agent.fault {
            wrapped(out, &format!("    FAILED: {}", plain(fault)))?;
        }
        if !agent.slip.kept {
            wrapped(out, &format!("    late: {}", agent.slip.words()))?;
        }
    }
    writeln!(out)
}

/// Merges the records of all agents, as [`join`] does for one generator.
#[must_use]
pub fn join_all(about: About, agents: Vec<(Agent, Vec<LaneRecord>)>) -> Run {
    let mut slips: Vec<(Times, u64)> = Vec::new();
    let (mut all, mut parts) = (Vec::new(), Vec::new());
    for (mut agent, records) in agents {
        let (mut slip, mut due) = (Times::default(), 0);
        for record in &records {
            let [sent, answered, failed] = record.counts();
            agent.sent += sent;
            agent.answered += answered;
            agent.failed += failed;
            due += record.due();
            slip.add(&record.slip().0);
        }
        slips.push((slip, due));
        all.extend(records);
        parts.push(agent);
    }
    let mut run = join(about, all);
    for (agent, (slip, due)) in parts.iter_mut().zip(slips) {
        agent.slip = SlipVerdict::by(&slip, due, run.slip.budget_ns, run.slip.judged);
    }
    let late: Vec<&str> = parts.iter().filter(|a| !a.slip.kept).map(|a| a.name.as_str()).collect();
    if !late.is_empty()
        && let Some(words) = run.failed.iter_mut().find(|w| w.starts_with("the schedule was not kept"))
    {
        words.push_str(&format!("; late was agent {}", late.join(", ")));
    }
    run.agents = parts;
    run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Recorder, Span};

    /// A lane's record of a thousand requests, each so late.
    fn record(lane: u16, late: u64) -> LaneRecord {
        let mut recorder = Recorder::new(lane, 0, 1, Span::all(0));
        (0..1000).for_each(|i| recorder.sent(i * 1000, i * 1000 + late, 10));
        recorder.finish(5_000_000_000)
    }

    #[test]
    fn whoever_was_late_is_named() {
        let agent = |name: &str| Agent { name: name.into(), ..Agent::default() };
        let mut about = About::default();
        about.setup.open_loop = true;
        let run = join_all(
            about,
            vec![
                (agent("a"), vec![record(0, 5_000)]),
                (agent("b"), vec![record(1, 5_000), record(2, 90_000_000)]),
            ],
        );
        assert_eq!(run.total.counts.sent, 3000);
        assert_eq!(run.agents.iter().map(|a| a.sent).collect::<Vec<_>>(), [1000, 2000]);
        assert!(run.agents[0].slip.kept && !run.agents[1].slip.kept, "{:?}", run.agents);
        assert_eq!((run.agents[1].slip.due, run.agents[1].slip.late), (2000, 1000));
        let failure = run.failure().unwrap();
        assert!(failure.ends_with("late was agent b"), "{failure}");
        let json = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&json).unwrap().agents, run.agents);
    }

    #[test]
    fn a_clock_that_moves_far_is_told() {
        let agent = |drift| Agent { clock_drift_ns: drift, ..Agent::default() };
        assert!(!agent(None).drifts() && !agent(Some(1_000_000)).drifts());
        assert!(agent(Some(1_000_001)).drifts() && agent(Some(-2_000_000)).drifts());
    }
}
