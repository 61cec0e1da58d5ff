//! What a run came to: the model that every output is made from, and the shape of the JSON report
//! (`docs/schema/load-run.json`).
//!
//! Reading a report gives the same [`Run`] back, whole, but for the histograms of single intervals, which only the HDR
//! log has. Names are in kebab-case; times are nanoseconds where a name ends in `-ns` or a histogram is meant, and
//! seconds where it says so. Fields are only added within a version.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::times::Times;
use super::usage::Generator;

/// Version of the JSON's shape: it grows when a field changes its meaning or goes away.
pub const VERSION: u32 = 1;

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Run {
    /// [`VERSION`].
    pub version: u32,
    /// What was run.
    pub setup: Setup,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// The same, milliseconds since 1970.
    pub started_ms: u64,
    /// How long it lasted, warm-up and all.
    pub seconds: f64,
    /// How it ended.
    pub ended: Ended,
    /// Its parts in time, in order; one if none were asked for.
    pub phases: Vec<Phase>,
    /// All pools together.
    pub total: Part,
    /// The pools, in the order of the scenario; one if there is none.
    pub pools: Vec<Part>,
    /// The lanes that took part, by bucket.
    pub lanes: Vec<Lane>,
    /// What the generator itself needed.
    pub generator: Generator,
    /// Share of received frames that arrived on the worker of their bucket; kernel sockets have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alignment: Option<f64>,
    /// Packets our own side dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// What the server counted, if it was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, u64>,
    /// Whether the generator kept its time.
    pub slip: SlipVerdict,
    /// What was to be reached.
    pub thresholds: Vec<Verdict>,
    /// What was missed: the run's failure, the slip budget, thresholds.
    pub failed: Vec<String>,
    /// Nothing was missed.
    pub ok: bool,
}

/// To a thousandth: short enough to read, and the same after a journey through JSON.
#[must_use]
pub fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// What was run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Setup {
    /// Such as `load http`.
    pub command: String,
    /// Version of the program.
    pub program: String,
    /// Where requests went.
    pub targets: Vec<String>,
    /// The link: `kernel`, `af-xdp:eth1`, ...
    pub link: String,
    /// Workers, each a thread.
    pub workers: usize,
    /// What repeats the run's randomness.
    pub seed: Option<u64>,
    /// When requests are sent, in words: `constant 10 000/s`, `closed loop, 100 connections`.
    pub schedule: String,
    /// Requests are sent at moments fixed beforehand: latency and slip mean what they should.
    pub open_loop: bool,
    /// The scenario file, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// What the scenario calls itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What the scenario says that it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Whatever else matters, in words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, String>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// As planned.
    #[default]
    Done,
    /// Somebody asked for the end; what was measured until then stands.
    Interrupted,
    /// Something made it impossible to go on.
    Failed,
}

/// A part of the run in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Phase {
    /// `warm-up`, `ramp`, `hold`, `cool-down`, or as the scenario calls it.
    pub name: String,
    /// When it began, seconds from the run's beginning.
    pub from_seconds: f64,
    /// When it ended.
    pub to_seconds: f64,
    /// What was sent in it counts for the percentiles and thresholds.
    pub measured: bool,
    /// The load that it asks for, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub load: String,
    /// What was intended in it came to this; not of loads without figures of their phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// What a phase, or a request of a scenario, came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Figures {
    /// How long it was asked for, seconds.
    pub seconds: f64,
    /// Requests sent.
    pub sent: u64,
    /// Answered whole.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Due and not sent; not known of single requests, which are chosen when they are sent.
    pub unsent: u64,
    /// Requests sent a second.
    pub sent_rate: f64,
    /// Answers a second.
    pub answered_rate: f64,
    /// From the intended moment of sending to the end of the answer, exact to 1 %.
    pub latency: Times,
}

/// A request of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Asked {
    /// As the scenario calls it; method and path, if it does not.
    pub name: String,
    /// What was measured of it.
    pub figures: Figures,
}

/// Requests of a pool, or of all.
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
    /// Counts of what was measured.
    pub counts: Counts,
    /// Counts outside the measured time: warm-up and cool-down. The run's whole is both.
    pub unmeasured: Counts,
    /// What was measured, a second.
    pub rates: Rates,
    /// Most connections, or requests on their way, at once.
    pub concurrency_max: u64,
    /// From the intended moment of sending to the end of the answer.
    pub latency: Times,
    /// From the real moment of sending to the end of the answer.
    pub service: Times,
    /// To make a connection.
    pub connect: Times,
    /// To agree on TLS.
    pub tls: Times,
    /// From the real moment of sending to the first byte of the answer.
    pub first_byte: Times,
    /// From the real moment of sending to the last byte of the answer: service by another name.
    pub last_byte: Times,
    /// From the intended to the real moment of sending: the generator's own lateness.
    pub slip: Times,
    /// The run in time, warm-up and all.
    pub series: Vec<Point>,
    /// The pool's requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Asked>,
    /// Latencies of each point of the series: for the HDR log, not in JSON.
    #[serde(skip)]
    pub intervals: Vec<Times>,
}

impl Part {
    /// Its histograms with their names, in the order in which a request lives.
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
}

/// Counts of a part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Requests handed over to be sent.
    pub sent: u64,
    /// Answered whole, whatever the answer was.
    pub answered: u64,
    /// Errors of all kinds.
    pub failed: u64,
    /// Due and not sent.
    pub unsent: u64,
    /// Times something due had to wait for room or a connection.
    pub held_up: u64,
    /// Bytes sent, heads included.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections made.
    pub connections_opened: u64,
    /// Connections that could not be made.
    pub connections_failed: u64,
    /// Connections ended.
    pub connections_closed: u64,
    /// Answers by code: `200`, `404`, ...
    pub codes: BTreeMap<String, u64>,
    /// Errors by kind.
    pub errors: BTreeMap<String, ErrorCount>,
    /// What only some protocols have: `reordered`, `duplicates`, ...
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, u64>,
}

impl Counts {
    /// Adds another's. The first example of each kind of error stays.
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
        for (kind, error) in &other.errors {
            let mine = self.errors.entry(kind.clone()).or_default();
            mine.count += error.count;
            if mine.example.is_empty() {
                mine.example.clone_from(&error.example);
            }
        }
    }

    /// Answers whose code has this first digit: 2 for 200 to 299.
    #[must_use]
    pub fn class(&self, digit: u32) -> u64 {
        let mine =
            |code: &str| code.len() == 3 && code.chars().next().and_then(|c| c.to_digit(10)) == Some(digit);
        self.codes.iter().filter(|(code, _)| mine(code)).map(|(_, count)| count).sum()
    }

    /// A count by its name in thresholds: `errors`, a kind of error, or what only some protocols have.
    #[must_use]
    pub fn named(&self, name: &str) -> u64 {
        match name {
            "errors" | "failed" => self.failed,
            "unsent" => self.unsent,
            "held-up" => self.held_up,
            _ => self.errors.get(name).map(|e| e.count).or_else(|| self.more.get(name).copied()).unwrap_or(0),
        }
    }

    /// Errors, as a share of what was sent or could not be: 0 to 1.
    #[must_use]
    pub fn error_share(&self) -> f64 {
        let tried = self.sent.max(self.failed);
        if tried == 0 { 0.0 } else { self.failed as f64 / tried as f64 }
    }
}

/// Errors of a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ErrorCount {
    /// How many.
    pub count: u64,
    /// The first one's own words.
    pub example: String,
}

/// A second's worth of a part.
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
    /// Connections made.
    pub connections: f64,
}

impl Rates {
    /// Of counts in so many seconds.
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Point {
    /// When it began, seconds from the run's beginning.
    pub at_seconds: f64,
    /// How long it is.
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
    /// Connections, or requests on their way, at its end.
    pub concurrency: u64,
    /// Latency of its answers, nanoseconds: median.
    pub p50_ns: u64,
    /// 90 %.
    pub p90_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// 99.9 %.
    #[serde(rename = "p99.9-ns")]
    pub p99_9_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Slip of what was sent in it, nanoseconds: 99 %.
    pub slip_p99_ns: u64,
    /// Most.
    pub slip_max_ns: u64,
}

/// What a lane did, for the picture of how even the lanes were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Lane {
    /// Its bucket; kernel sockets have workers in its place.
    pub bucket: u16,
    /// Flows or connections it was given.
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
    /// 99 %.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Whether the generator kept its time: how many of the requests that were due were sent within the budget.
///
/// The share that must be is the highest that so many requests say something about: of a thousand 99 %, of a hundred 90 %,
/// of fewer half. Requests that were due and never sent are late, whatever kept them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SlipVerdict {
    /// 99.9 % of what was sent slipped no more, nanoseconds.
    #[serde(rename = "p99.9-ns")]
    pub p99_9_ns: u64,
    /// How late a request may be sent: as asked, or a millisecond, 1 % of the median latency, or a tenth of the mean time
    /// between two requests, whichever is most.
    pub budget_ns: u64,
    /// Requests that were due.
    #[serde(default)]
    pub due: u64,
    /// Of them, those sent later than the budget or not at all.
    #[serde(default)]
    pub late: u64,
    /// The share that must be in time, 0 to 1.
    #[serde(default)]
    pub share: f64,
    /// It was judged: only schedules can be missed.
    pub judged: bool,
    /// It was within the budget, or was not judged.
    pub kept: bool,
}

impl SlipVerdict {
    /// Of a part. `asked`: the budget, nanoseconds, if it was given; `slack`: how late requests were sent on purpose.
    #[must_use]
    pub fn of(part: &Part, judged: bool, asked: Option<u64>, slack: u64) -> Self {
        let due = part.counts.sent + part.counts.unsent;
        let between = (part.seconds * 1e9) as u64 / due.max(1);
        let usual = (part.latency.at(0.5) / 100).max(between / 10).max(1_000_000);
        let budget_ns = asked.unwrap_or(usual + slack);
        // Those that no connection was free for have no slip.
        let never = due.saturating_sub(part.slip.count());
        let slipped = part.slip.count() - part.slip.within(budget_ns);
        let late = (slipped + never).min(due);
        let share = match due {
            1000.. => 0.99,
            100.. => 0.9,
            _ => 0.5,
        };
        let kept = !judged || late as f64 <= due as f64 * (1.0 - share) + 1e-9;
        Self { p99_9_ns: part.slip.at(0.999), budget_ns, due, late, share, judged, kept }
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Verdict {
    /// What makes the run fail, as it was typed.
    pub threshold: String,
    /// What was measured, in words.
    pub measured: String,
    /// The run fails.
    pub failed: bool,
}
