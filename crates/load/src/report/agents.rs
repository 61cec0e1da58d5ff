//! A run that several generators made together: their records merged, and a section for each.
//!
//! The merge is that of lanes, [`join`]: histograms and counts are added, so the whole is exactly the sum. Each agent has its own counts, and how it
//! kept its part of the schedule, by the budget of the whole.

use super::build::{About, join};
pub use super::model::Agent;
use super::model::{Run, SlipVerdict};
use super::recorder::LaneRecord;
use super::times::Times;

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
