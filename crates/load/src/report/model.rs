//! The result of a run: the model from which every output is made, and the structure of the JSON report (`docs/schema/load-run.json`).
//!
//! Reading a report gives the same [`Run`], except for the histograms of single intervals, which only the HDR log has. Names are in
//! kebab-case. Times are nanoseconds in histograms and where a name ends in `-ns`, and seconds where the name says so. Within a version
//! fields are only added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use flowlane::metrics::steering::QueueSteering;

use super::events::Events;
use super::kinds::ErrorKind;
use super::periods::Period;
use super::times::Times;
use super::usage::Generator;

/// Version of the JSON, incremented when a field changes its meaning or is removed.
pub const VERSION: u32 = 1;

/// A run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// The set-up.
    pub setup: Setup,
    /// When it started, RFC 3339 in UTC.
    pub started: String,
    /// The same, milliseconds since 1970.
    pub started_ms: u64,
    /// Length in seconds, warm-up included.
    pub seconds: f64,
    /// How it ended.
    pub ended: Ended,
    /// The condition that ended it before its time, if one did (`--abort`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<Aborted>,
    /// Its phases in order; at least one.
    pub phases: Vec<Phase>,
    /// All pools together.
    pub total: Part,
    /// The pools, in the order of the scenario; one if there is none.
    pub pools: Vec<Part>,
    /// The lanes that took part, by bucket.
    pub lanes: Vec<Lane>,
    /// The agents that made it together, in the order of their lanes; none if one generator made it alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Agent>,
    /// Resources used by the generator; those of all agents together.
    pub generator: Generator,
    /// Share of received frames that arrived on the worker of their bucket, 0 to 1; `None` for kernel sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alignment: Option<f64>,
    /// How frames arrived on each queue, and why some were not aligned; none for kernel sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<QueueSteering>,
    /// Source ports of connections or flows on kernel sockets, if they were chosen by where answers come (`--home-ports`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_ports: Option<HomePorts>,
    /// Packets our own side dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Counters of the server, if they were read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, u64>,
    /// Whether the generator kept its schedule.
    pub slip: SlipVerdict,
    /// What repeats in the latency or the slip, the strongest first; none in a report of before there was such a search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<Period>,
    /// Where its figures were pushed to while it ran (`--push`); none if nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<Pushed>,
    /// The thresholds in the order given, evaluated.
    pub thresholds: Vec<Verdict>,
    /// What was missed: the run's failure, the slip budget, thresholds.
    pub failed: Vec<String>,
    /// Whether nothing was missed.
    pub ok: bool,
}

/// What came of pushing figures to a receiver.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pushed {
    /// How and where, without a password: `otlp http://localhost:4318/v1/metrics`.
    pub to: String,
    /// What told this run from others there: `service.instance.id`, or the label `instance`.
    pub instance: String,
    /// Pushes that the receiver took.
    pub taken: u64,
    /// Attempts that failed, also those that were made again later.
    pub failed: u64,
    /// Whether it took the last, which has the figures of this report.
    pub complete: bool,
    /// Why the last attempt that failed did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl Pushed {
    /// In one line.
    #[must_use]
    pub fn words(&self) -> String {
        let Self { to, instance, taken, failed, complete, last_error } = self;
        let (taken, failed) = (crate::units::show_count(*taken), crate::units::show_count(*failed));
        let complete = if *complete { "" } else { ", not the last" };
        let why = last_error.as_ref().map_or(String::new(), |why| format!("; last error: {why}"));
        format!("pushed to {to} as {instance}: {taken} taken{complete}, {failed} failed{why}")
    }
}

/// An agent's part of a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// How far its clock was ahead at the start, nanoseconds; negative if behind.
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

/// How many connections or flows have a source port whose answers come to their lane.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HomePorts {
    /// Those that have one.
    pub home: u64,
    /// Those for which none was free, so that the kernel chose.
    pub elsewhere: u64,
}

/// Rounds to a thousandth, so that a number is short and survives JSON unchanged.
#[must_use]
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// The set-up.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setup {
    /// The command, such as `load http`.
    pub command: String,
    /// Version of the program.
    pub program: String,
    /// Where requests went.
    pub targets: Vec<String>,
    /// The link: `kernel`, `af-xdp:eth1`, ...
    pub link: String,
    /// Workers, each a thread.
    pub workers: usize,
    /// The seed of random choices: it repeats them.
    pub seed: Option<u64>,
    /// When requests are sent, in words: `constant 10 000/s`, `closed loop, 100 connections`.
    pub schedule: String,
    /// Whether requests are sent at times fixed in advance; only then is slip meaningful.
    pub open_loop: bool,
    /// The scenario file, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// Name of the scenario.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Description of the scenario.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Further settings, in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, String>,
}

/// How a run ended.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// As planned.
    #[default]
    Done,
    /// Stopped early on request; the figures are those until then.
    Interrupted,
    /// Ended early since it could not continue.
    Failed,
    /// Ended early by a condition that was broken; the figures are those until then.
    Aborted,
}

/// The condition that ended a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Aborted {
    /// When it was broken, seconds from the start of the run.
    pub at_seconds: f64,
    /// The condition, as it was given.
    pub condition: String,
    /// What was measured until then, in words.
    pub measured: String,
}

impl Aborted {
    /// In one line.
    #[must_use]
    pub fn words(&self) -> String {
        format!("aborted after {:.1} s by {}: it was {} then", self.at_seconds, self.condition, self.measured)
    }
}

/// A phase of the run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Phase {
    /// `warm-up`, `ramp`, `hold`, `cool-down`, or the scenario's name for it.
    pub name: String,
    /// Start, seconds from the start of the run.
    pub from_seconds: f64,
    /// End, seconds from the start of the run.
    pub to_seconds: f64,
    /// Whether it counts for percentiles and thresholds.
    pub measured: bool,
    /// Its load, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub load: String,
    /// Figures of the requests intended in it; `None` for loads without figures by phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// Figures of a phase, or of a request of a scenario.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    /// How long it was asked for, seconds.
    pub seconds: f64,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered completely.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Requests due and not sent; 0 for a request of a scenario, since requests are chosen when they are sent.
    pub unsent: u64,
    /// Requests sent a second.
    pub sent_rate: f64,
    /// Answers a second.
    pub answered_rate: f64,
    /// From the intended send time to the end of the answer, exact to 1 %.
    pub latency: Times,
}

/// A request of a pool.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RequestFigures {
    /// Its name in the scenario, or method and path.
    pub name: String,
    /// Its figures, of the measured part.
    pub figures: Figures,
}

/// Figures of a pool, or of all pools.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Part {
    /// The pool's name; `total` for all.
    pub name: String,
    /// Its targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Its share or rate, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule: String,
    /// How long was measured, seconds.
    pub seconds: f64,
    /// Counts of the measured part.
    pub counts: Counts,
    /// Counts outside the measured part: warm-up and cool-down. The sum of both is the whole run.
    pub unmeasured: Counts,
    /// Rates per second of the measured part.
    pub rates: Rates,
    /// Most connections, or requests in flight, at once: the sum of the lanes' maxima.
    pub concurrency_max: u64,
    /// From the intended send time to the end of the answer.
    pub latency: Times,
    /// From the actual send time to the end of the answer.
    pub service: Times,
    /// Time to connect.
    pub connect: Times,
    /// Time of the TLS handshake.
    pub tls: Times,
    /// From the actual send time to the first byte of the answer.
    pub first_byte: Times,
    /// From the actual send time to the last byte of the answer: the same as `service`.
    pub last_byte: Times,
    /// From the intended to the actual send time: the generator's own lateness.
    pub slip: Times,
    /// Server-sent events, where answers are streams of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// The intervals of the run, warm-up included; at most 1200.
    pub series: Vec<Point>,
    /// The pool's requests, in the order of the scenario.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestFigures>,
    /// Latencies of each point of the series: for the HDR log, not in JSON.
    #[serde(skip)]
    pub intervals: Vec<Times>,
    /// Slips of the whole series, exact to 1 %: for what is pushed, not in JSON.
    #[serde(skip)]
    pub slips: Times,
}

impl Part {
    /// Its histograms with their names, in the order of a request's stages.
    #[must_use]
    pub fn spectra(&self) -> [(&'static str, &Times); 7] {
        [
            ("latency", &self.latency),
            ("service", &self.service),
            ("connect", &self.connect),
            ("tls", &self.tls),
            ("first byte", &self.first_byte),
            ("last byte", &self.last_byte),
            ("slip", &self.slip),
        ]
    }

    /// The same with the times of events, if there were any.
    pub fn all_spectra(&self) -> impl Iterator<Item = (&'static str, &Times)> {
        self.spectra().into_iter().chain(self.events.iter().flat_map(Events::spectra))
    }
}

/// Counts of a part.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Requests sent.
    pub sent: u64,
    /// Requests answered completely, whatever the answer.
    pub answered: u64,
    /// Errors of all kinds.
    pub failed: u64,
    /// Due and not sent.
    pub unsent: u64,
    /// Times that a due request waited for room or for a connection.
    pub held_up: u64,
    /// Bytes sent, heads included.
    pub bytes_sent: u64,
    /// Bytes received, heads included.
    pub bytes_received: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections that could not be opened.
    pub connections_failed: u64,
    /// Connections ended.
    pub connections_closed: u64,
    /// Answers by code: `200`, `404`, ...; `other` beyond 64 of them.
    pub codes: BTreeMap<String, u64>,
    /// Errors by kind: `refused`, `reset`, `timeout`, ...
    pub errors: BTreeMap<String, ErrorCount>,
    /// Counts that only some protocols have: `reordered`, `duplicates`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, u64>,
    /// What was first counted by some of these, in words: of `unasked` the bytes that came.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub firsts: BTreeMap<String, String>,
}

impl Counts {
    /// Adds other counts. The first example of each kind of error is kept.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        self.unsent += other.unsent;
        self.held_up += other.held_up;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.connections_opened += other.connections_opened;
        self.connections_failed += other.connections_failed;
        self.connections_closed += other.connections_closed;
        for (code, count) in &other.codes {
            *self.codes.entry(code.clone()).or_default() += count;
        }
        for (name, count) in &other.more {
            *self.more.entry(name.clone()).or_default() += count;
        }
        for (name, first) in &other.firsts {
            self.firsts.entry(name.clone()).or_insert_with(|| first.clone());
        }
        for (kind, error) in &other.errors {
            let mine = self.errors.entry(kind.clone()).or_default();
            mine.count += error.count;
            if mine.example.is_empty() {
                mine.example.clone_from(&error.example);
            }
        }
    }

    /// Answers whose code begins with this digit: 2 for 200 to 299.
    #[must_use]
    pub fn class(&self, digit: u32) -> u64 {
        let mine =
            |code: &str| code.len() == 3 && code.chars().next().and_then(|c| c.to_digit(10)) == Some(digit);
        self.codes.iter().filter(|(code, _)| mine(code)).map(|(_, count)| count).sum()
    }

    /// A count by its name in thresholds: `errors`, a kind of error, or a count that only some protocols have.
    #[must_use]
    pub fn named(&self, name: &str) -> u64 {
        match name {
            "errors" | "failed" => self.failed,
            "unsent" => self.unsent,
            "held-up" => self.held_up,
            _ => self.errors.get(name).map(|e| e.count).or_else(|| self.more.get(name).copied()).unwrap_or(0),
        }
    }

    /// Requests that were answered or failed, each once: one with a complete but wrong answer is both. A request whose connection was
    /// refused was never sent, so these can be more than were sent; where nothing answers it is what was sent.
    #[must_use]
    pub fn tried(&self) -> u64 {
        let wrong = ErrorKind::OF_ANSWERS.map(|kind| self.errors.get(kind.name()).map_or(0, |e| e.count));
        // Guard: `(self.answered + self.failed).saturating_sub(wrong.iter().sum())` as `0` fails
        // report::tests::the_share_of_failures_is_of_the_requests_tried
        let done = (self.answered + self.failed).saturating_sub(wrong.iter().sum());
        done.max(self.failed).max(self.sent)
    }

    /// Errors as a share of the requests tried; 0 to 1.
    #[must_use]
    pub fn error_share(&self) -> f64 {
        let tried = self.tried();
        if tried == 0 { 0.0 } else { self.failed as f64 / tried as f64 }
    }
}

/// Errors of a kind.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorCount {
    /// How many.
    pub count: u64,
    /// The message of the first one.
    pub example: String,
}

/// Rates per second.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rates {
    /// Requests sent.
    pub sent: f64,
    /// Answers.
    pub answered: f64,
    /// Bytes sent.
    pub bytes_sent: f64,
    /// Bytes received.
    pub bytes_received: f64,
    /// Connections opened.
    pub connections: f64,
}

impl Rates {
    /// The rates of counts over `seconds` seconds.
    #[must_use]
    pub fn of(counts: &Counts, seconds: f64) -> Self {
        let per_second = |n: u64| if seconds > 0.0 { rounded(n as f64 / seconds) } else { 0.0 };
        Self {
            sent: per_second(counts.sent),
            answered: per_second(counts.answered),
            bytes_sent: per_second(counts.bytes_sent),
            bytes_received: per_second(counts.bytes_received),
            connections: per_second(counts.connections_opened),
        }
    }
}

/// An interval of the run. Percentiles are exact to 1 %.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Point {
    /// Start, seconds from the start of the run.
    pub at_seconds: f64,
    /// Length, seconds.
    pub seconds: f64,
    /// Requests sent in it.
    pub sent: u64,
    /// Answers in it.
    pub answered: u64,
    /// Errors in it.
    pub failed: u64,
    /// Bytes sent in it.
    pub bytes_sent: u64,
    /// Bytes received in it.
    pub bytes_received: u64,
    /// Connections made in it.
    pub connections_opened: u64,
    /// Connections, or requests in flight, at its end.
    pub concurrency: u64,
    /// Latency of its answers, nanoseconds: median.
    pub p50_ns: u64,
    /// Latency, nanoseconds: 90 %.
    pub p90_ns: u64,
    /// Latency, nanoseconds: 99 %.
    pub p99_ns: u64,
    /// Latency, nanoseconds: 99.9 %.
    #[serde(rename = "p99.9-ns")]
    pub p99_9_ns: u64,
    /// Latency, nanoseconds: the longest.
    pub max_ns: u64,
    /// Slip of the requests sent in it, nanoseconds: 99 %.
    pub slip_p99_ns: u64,
    /// Slip, nanoseconds: the most.
    pub slip_max_ns: u64,
}

/// Counts of a lane, to show how evenly the lanes were used.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lane {
    /// Its bucket; with kernel sockets the worker.
    pub bucket: u16,
    /// Flows or connections assigned to it.
    pub flows: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Latency, nanoseconds: median.
    pub p50_ns: u64,
    /// Latency, nanoseconds: 99 %.
    pub p99_ns: u64,
    /// Latency, nanoseconds: the longest.
    pub max_ns: u64,
}

/// Whether the generator kept its schedule: whether enough of the due requests were sent within the budget.
///
/// The share required depends on the number of requests: 99 % from a thousand requests on, 90 % from a hundred on, half of fewer. Requests
/// that were due and never sent count as late, for whatever reason.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SlipVerdict {
    /// 99.9th percentile of slip, nanoseconds.
    #[serde(rename = "p99.9-ns")]
    pub p99_9_ns: u64,
    /// How late a request may be sent: the given budget, or else the largest of 5 ms, 1 % of the median latency and a tenth of the mean
    /// time between two requests.
    pub budget_ns: u64,
    /// Requests that were due.
    #[serde(default)]
    pub due: u64,
    /// Of them, those sent later than the budget or not at all.
    #[serde(default)]
    pub late: u64,
    /// The share that must be sent in time, 0 to 1.
    #[serde(default)]
    pub share: f64,
    /// Whether it was evaluated: only open loops have a schedule.
    pub judged: bool,
    /// Whether the schedule was kept, or was not evaluated.
    pub kept: bool,
}

/// How late a request may always be sent, nanoseconds. A thread that becomes ready on a processor which another one uses, such as the
/// server's on the same machine, waits for the end of a slice of the kernel's scheduler: up to 4 ms, the tick of a kernel with `HZ=250`.
const LEAST_BUDGET: u64 = 5_000_000;

impl SlipVerdict {
    /// Whether the generator was late by most of what it measured, though within the least budget: a larger one was asked for, or is small
    /// against what was measured.
    #[must_use]
    pub fn is_most_of(&self, part: &Part) -> bool {
        let (slip, latency) = (part.slip.at(0.99), part.latency.at(0.99));
        let least = self.judged && self.kept && self.budget_ns == LEAST_BUDGET;
        least && slip > LEAST_BUDGET / 5 && slip * 2 > latency && latency > 0
    }

    /// Evaluates a part. `asked`: the budget in nanoseconds, if given; `slack`: how late requests were sent on purpose, nanoseconds.
    #[must_use]
    pub fn of(part: &Part, judged: bool, asked: Option<u64>, slack: u64) -> Self {
        let due = part.counts.sent + part.counts.unsent;
        let between = (part.seconds * 1e9) as u64 / due.max(1);
        let usual = (part.latency.at(0.5) / 100).max(between / 10).max(LEAST_BUDGET);
        Self::by(&part.slip, due, asked.unwrap_or(usual + slack), judged)
    }

    /// Evaluates times of slip, of the requests that were `due`, by a budget in nanoseconds.
    #[must_use]
    pub fn by(slip: &Times, due: u64, budget_ns: u64, judged: bool) -> Self {
        // Nothing was due: there is no schedule to keep.
        let judged = judged && due > 0;
        // Requests for which no connection was free have no slip.
        let never = due.saturating_sub(slip.count());
        let slipped = slip.count() - slip.within(budget_ns);
        let late = (slipped + never).min(due);
        let share = match due {
            1000.. => 0.99,
            100.. => 0.9,
            _ => 0.5,
        };
        let kept = !judged || late as f64 <= due as f64 * (1.0 - share) + 1e-9;
        Self { p99_9_ns: slip.at(0.999), budget_ns, due, late, share, judged, kept }
    }

    /// In words, with a verb in front: `late: 12 of 5 000 ...`.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "{} of {} requests were more than {} late or not sent, {} % may be",
            crate::units::show_count(self.late),
            crate::units::show_count(self.due),
            crate::units::show_nanos(self.budget_ns),
            ((1.0 - self.share) * 100.0).round()
        )
    }
}

/// A threshold and what was measured.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Verdict {
    /// The condition under which the run fails, as given.
    pub threshold: String,
    /// What was measured, in words.
    pub measured: String,
    /// Whether the condition holds, so that the run fails.
    pub failed: bool,
}
