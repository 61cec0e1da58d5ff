//! What each run of a search showed, and what the search found.

use serde::{Deserialize, Serialize};

use super::Search;
use crate::Threshold;
use crate::report::{Run, Times};
use crate::units::show_count;

/// Share of the rate that has to be answered while it is measured: where less is, the rest waits, and waits longer the longer it goes on.
const ANSWERED: f64 = 0.98;

/// What keeps a higher rate from holding.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// What was asked: it answered late, not all, or with errors.
    Server,
    /// The way there: packets were dropped on our side of it.
    Network,
    /// This program: it did not send when it was time.
    Generator,
}

impl Limit {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Network => "network",
            Self::Generator => "generator",
        }
    }
}

/// One run at one rate.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Step {
    /// The rate per second: of requests, datagrams or connections.
    pub rate: f64,
    /// Whether the condition held.
    pub holds: bool,
    /// What the condition's figure was, in words.
    pub measured: String,
    /// Why it did not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What it was that did not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Answers per second while it was measured.
    pub answered_rate: f64,
    /// Requests that failed.
    pub failed: u64,
    /// Median of the latency, nanoseconds.
    pub p50_ns: u64,
    /// 90th percentile of the latency, nanoseconds.
    pub p90_ns: u64,
    /// 99th percentile of the latency, nanoseconds.
    pub p99_ns: u64,
    /// Processors that the generator used: 1 is all of one.
    pub generator_processors: f64,
}

impl Step {
    /// Judges a run at a rate by the condition that has to hold.
    #[must_use]
    pub fn of(rate: f64, condition: &Threshold, run: &Run) -> Self {
        let verdict = condition.verdict(run);
        let (part, dropped) = (&run.total, run.drops.values().sum::<u64>());
        let by_network = if dropped > 0 { Limit::Network } else { Limit::Server };
        let answered = part.rates.answered;
        // A request that no connection was free for was not sent because answers to others were late.
        let never = run.slip.due.saturating_sub(part.slip.count());
        let why = if !run.slip.kept && 2 * never < run.slip.late {
            let late = (show_count(run.slip.late), show_count(run.slip.due));
            Some((Limit::Generator, format!("{} of {} were sent late", late.0, late.1)))
        } else if !verdict.failed {
            // A threshold of --fail names what fails a run; this one names what has to be.
            Some((by_network, format!("it was {}", verdict.measured)))
        // Guard: `part.counts.failed > condition.judges(run)` as `false` fails find::tests::a_rate_is_judged
        } else if part.counts.failed > condition.judges(run) {
            let counts = (show_count(part.counts.failed), show_count(part.counts.tried()));
            Some((by_network, format!("{} of {} failed", counts.0, counts.1)))
        // Guard: `answered < ANSWERED * rate` as `false` fails find::tests::a_rate_is_judged
        } else if answered < ANSWERED * rate {
            Some((by_network, format!("only {} a second were answered", show_count(answered as u64))))
        } else {
            None
        };
        let of = |times: &Times, share: f64| if times.is_empty() { 0 } else { times.at(share) };
        Self {
            rate,
            holds: why.is_none(),
            measured: verdict.measured,
            limit: why.as_ref().map(|(limit, _)| *limit),
            why: why.map(|(_, words)| words),
            answered_rate: answered,
            failed: part.counts.failed,
            p50_ns: of(&part.latency, 0.5),
            p90_ns: of(&part.latency, 0.9),
            p99_ns: of(&part.latency, 0.99),
            generator_processors: processors(run),
        }
    }
}

fn processors(run: &Run) -> f64 {
    let generator = &run.generator;
    let seconds = if generator.seconds > 0.0 { generator.seconds } else { run.seconds };
    let used = (generator.cpu_user_seconds + generator.cpu_system_seconds) / seconds;
    if used.is_finite() { (used * 1000.0).round() / 1000.0 } else { 0.0 }
}

/// Why a search ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Its bounds are as near as was asked.
    Narrow,
    /// The condition holds at the highest rate.
    AllHold,
    /// It does not hold at the lowest.
    NoneHolds,
    /// Its time was up.
    Time,
    /// A signal ended it.
    Interrupted,
}

/// A search and what it found: the document of `--json` and `--save`.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Found {
    /// 1.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The command.
    pub command: String,
    /// What was asked.
    pub targets: Vec<String>,
    /// The condition that has to hold.
    pub condition: String,
    /// The rates between which was searched, per second: of requests, datagrams or connections.
    #[cfg_attr(feature = "schema", schemars(inner(range(min = 0.0))))]
    pub between: [f64; 2],
    /// How near the bounds were to come: 0.05 is 5 %.
    pub within: f64,
    /// The highest rate that held, per second.
    pub rate: Option<f64>,
    /// The lowest rate that failed, per second.
    pub fails_at: Option<f64>,
    /// What did not hold at the lowest rate that failed.
    pub limit: Option<Limit>,
    /// Why the search ended.
    pub ended: Ended,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Whether the target answered as before within 10 s after each run that failed.
    pub recovered: bool,
    /// The runs, in their order.
    pub steps: Vec<Step>,
}

impl Found {
    /// Notes where the search is.
    pub fn note(&mut self, search: &Search) {
        (self.rate, self.fails_at) = search.bounds();
        let last = self.steps.iter().rev().find(|step| !step.holds && Some(step.rate) == self.fails_at);
        self.limit = last.and_then(|step| step.limit);
        self.ended = match (self.rate, self.fails_at) {
            (None, Some(_)) => Ended::NoneHolds,
            (Some(_), None) => Ended::AllHold,
            _ => Ended::Narrow,
        };
    }
}
