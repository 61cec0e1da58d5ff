//! Merges the records of the lanes into a [`Run`].

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowlane::metrics::steering::QueueSteering;
use time::UtcDateTime;

use super::events::Events;
use super::model::{
    Aborted, Counts, Ended, HomePorts, Lane, Part, Phase, Rates, RequestFigures, Run, Setup, SlipVerdict,
    VERSION, rounded,
};
use super::recorder::Passed;
use super::recorder::{LaneRecord, Spectra};
use super::series::{Slot, points};
use super::times::Times;
use super::usage::{Generator, Usage};
use super::{late, parts, periods};
use crate::report::threshold::Threshold;

/// Description of a pool, besides its counts.
#[derive(Debug, Clone, Default)]
pub struct PoolAbout {
    /// Its name.
    pub name: String,
    /// Its targets.
    pub targets: Vec<String>,
    /// Its share or rate, in words.
    pub schedule: String,
    /// The names of its requests, in order; empty if requests have no figures of their own.
    pub requests: Vec<String>,
}

/// Description of a run, besides its counts.
#[derive(Debug, Clone)]
pub struct About {
    /// The set-up.
    pub setup: Setup,
    /// When it started.
    pub started: SystemTime,
    /// How long it lasted.
    pub elapsed: Duration,
    /// The measured part of that time.
    pub measured: Duration,
    /// Its phases; empty for one measured phase.
    pub phases: Vec<Phase>,
    /// Its pools, in the order of the recorders' numbers; empty for one pool with the name `all`.
    pub pools: Vec<PoolAbout>,
    /// How it ended.
    pub ended: Ended,
    /// Why, if it failed.
    pub failure: Option<String>,
    /// The condition that ended it early, if one did.
    pub aborted: Option<Aborted>,
    /// Processor time and memory of the generator.
    pub usage: Usage,
    /// Share of frames that arrived on the worker of their bucket.
    pub alignment: Option<f64>,
    /// How they arrived on each queue.
    pub arrivals: Vec<QueueSteering>,
    /// Source ports of connections, if they were chosen by where answers come.
    pub home_ports: Option<HomePorts>,
    /// Packets that our side dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Counters of the server.
    pub server: BTreeMap<String, u64>,
    /// Conditions under which the run fails.
    pub thresholds: Vec<Threshold>,
    /// How late a request may be sent; `None` for the default, which depends on the run (`slip.budget-ns` in the report).
    pub slip_budget: Option<Duration>,
    /// How late requests may be sent on purpose; added to the default budget.
    pub slack: Duration,
    /// Whether a failed request makes the run fail, unless a threshold on errors is given.
    pub failures_count: bool,
    /// What a run must have done where failures count.
    pub goal: Goal,
}

/// What a run is to do, and fails without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Goal {
    /// Send requests.
    #[default]
    Requests,
    /// Open connections.
    Connections,
    /// Begin connections and give them up, of which no count tells.
    Attempts,
}

impl Default for About {
    fn default() -> Self {
        Self {
            setup: Setup::default(),
            started: UNIX_EPOCH,
            elapsed: Duration::ZERO,
            measured: Duration::ZERO,
            phases: Vec::new(),
            pools: Vec::new(),
            ended: Ended::Done,
            failure: None,
            aborted: None,
            usage: Usage::default(),
            alignment: None,
            arrivals: Vec::new(),
            home_ports: None,
            drops: BTreeMap::new(),
            server: BTreeMap::new(),
            thresholds: Vec::new(),
            slip_budget: None,
            slack: Duration::ZERO,
            failures_count: false,
            goal: Goal::default(),
        }
    }
}

impl LaneRecord {
    /// Uses these times as those of the first byte, for protocols whose records have none.
    #[must_use]
    pub(crate) fn with_first_bytes(mut self, times: Times) -> Self {
        (self.spectra.first_byte, self.spectra.no_last_byte) = (times.into(), true);
        self
    }
}

/// Merges the lanes' records and evaluates them. It takes the records: a lane's histograms are freed when they have been added, so that
/// they and the sums are not held at once.
#[must_use]
pub fn join(about: About, mut records: Vec<LaneRecord>) -> Run {
    let lanes = lanes(&records);
    let pool_count = records.iter().map(|r| r.pool + 1).max().unwrap_or(0).max(about.pools.len()).max(1);
    let mut all = Histograms::default();
    let pools: Vec<Part> = (0..pool_count)
        .map(|i| {
            let mut histograms = Histograms::default();
            for record in records.iter_mut().filter(|r| r.pool == i) {
                histograms.add_lane(&std::mem::take(&mut record.spectra));
                if let Some(seen) = record.events.take() {
                    histograms.events.get_or_insert_default().add_lane(&seen);
                }
            }
            all.add(&histograms);
            let named = about.pools.get(i).cloned().unwrap_or_else(|| PoolAbout {
                name: if pool_count == 1 { "all".to_owned() } else { format!("pool {i}") },
                ..PoolAbout::default()
            });
            let mine: Vec<&LaneRecord> = records.iter().filter(|r| r.pool == i).collect();
            let requests = asked(&named.requests, &mine, about.measured);
            Part {
                targets: named.targets,
                schedule: named.schedule,
                requests,
                ..part(named.name, &mine, histograms, &about)
            }
        })
        .collect();
    let everything: Vec<&LaneRecord> = records.iter().collect();
    let total = part("total".to_owned(), &everything, all, &about);
    let nanos = |time: Duration| time.as_nanos() as u64;
    // A run that could not begin had no schedule to keep.
    let begun = about.failure.is_none() || total.counts.answered > 0;
    let judged = about.setup.open_loop && begun;
    let slip = SlipVerdict::of(&total, judged, about.slip_budget.map(nanos), nanos(about.slack));
    let seconds = rounded(about.elapsed.as_secs_f64());
    let phases = if about.phases.is_empty() {
        vec![Phase { name: "hold".to_owned(), to_seconds: seconds, measured: true, ..Phase::default() }]
    } else {
        with_figures(about.phases, &records, seconds)
    };
    let answered = total.counts.answered + total.unmeasured.answered;
    let open_loop = about.setup.open_loop;
    let mut run = Run {
        version: VERSION,
        setup: about.setup,
        started: rfc3339(about.started),
        started_ms: about.started.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64),
        seconds,
        // A run that a condition has stopped was not interrupted by anybody.
        ended: match about.ended {
            Ended::Interrupted if about.aborted.is_some() => Ended::Aborted,
            ended => ended,
        },
        aborted: about.aborted,
        phases,
        total,
        pools,
        lanes,
        agents: Vec::new(),
        generator: Generator::new(about.usage, answered),
        alignment: about.alignment,
        arrivals: about.arrivals,
        home_ports: about.home_ports,
        drops: about.drops,
        server: about.server,
        slip,
        periods: periods::find(&records, open_loop),
        pushes: Vec::new(),
        thresholds: Vec::new(),
        failed: about.failure.into_iter().collect(),
        ok: true,
    };
    run.judge(&about.thresholds, about.failures_count.then_some(about.goal));
    run
}

impl Run {
    /// Evaluates slip, failures and thresholds, and lists what was missed.
    fn judge(&mut self, thresholds: &[Threshold], goal: Option<Goal>) {
        let begun = self.failed.is_empty() || self.total.counts.answered > 0;
        if !self.slip.kept {
            let words = format!("the schedule was not kept: {}", self.slip.words());
            self.failed.push(format!("{words}; {}", late::cause(self)));
        }
        let failed = self.total.counts.failed;
        // Where nothing was answered because the run could not begin, its reason says all there is.
        let goal = goal.filter(|_| begun);
        if goal.is_some() && failed > 0 && !thresholds.iter().any(Threshold::is_about_all_errors) {
            let counts = &self.total.counts;
            let tried = counts.tried();
            // Where nothing was answered, most of what went wrong says what is there.
            let most = counts.errors.values().max_by_key(|error| error.count);
            let why = most.filter(|error| counts.answered == 0 && !error.example.is_empty());
            self.failed.push(format!(
                "{} of {} requests failed{} (--fail 'errors > SHARE' says what may be)",
                crate::units::show_count(failed),
                crate::units::show_count(tried),
                why.map_or(String::new(), |error| format!(": {}", error.example)),
            ));
        }
        let counts = &self.total.counts;
        match goal {
            Some(Goal::Requests) if counts.sent == 0 && failed == 0 && self.total.unmeasured.sent == 0 => {
                self.failed.push("nothing was sent".to_owned());
            }
            Some(Goal::Connections)
                if counts.connections_opened + self.total.unmeasured.connections_opened == 0
                    && failed == 0 =>
            {
                self.failed.push("no connection was opened".to_owned());
            }
            _ => {}
        }
        if let Some(aborted) = &self.aborted {
            self.failed.push(aborted.words());
        }
        self.thresholds = thresholds.iter().map(|t| t.verdict(self)).collect();
        let missed = self.thresholds.iter().filter(|v| v.failed);
        self.failed.extend(missed.map(|v| format!("{}: it was {}", v.threshold, v.measured)));
        self.ok = self.failed.is_empty();
    }

    /// Whether the run missed its schedule and nothing else: the generator was slow, not what it measured.
    #[must_use]
    pub fn only_slipped(&self) -> bool {
        !self.slip.kept && self.failed.len() == 1
    }

    /// What was missed, in one line.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        (!self.ok).then(|| self.failed.join("; "))
    }
}

/// The phases with their figures, as far as the run got. Recorders without phases have no figures.
fn with_figures(mut phases: Vec<Phase>, records: &[LaneRecord], run: f64) -> Vec<Phase> {
    let known = records.iter().any(|r| r.parts.phases.len() == phases.len());
    for (i, phase) in phases.iter_mut().enumerate().filter(|_| known) {
        let seconds = (phase.to_seconds.min(run) - phase.from_seconds.min(run)).max(0.0);
        let shares = records.iter().map(|r| r.parts.phases.get(i));
        phase.figures = Some(parts::figures(shares, seconds));
    }
    phases
}

/// A pool's requests with the figures of each.
fn asked(names: &[String], records: &[&LaneRecord], measured: Duration) -> Vec<RequestFigures> {
    let figures =
        |i: usize| parts::figures(records.iter().map(|r| r.parts.requests.get(i)), measured.as_secs_f64());
    names
        .iter()
        .enumerate()
        .map(|(i, name)| RequestFigures { name: name.clone(), figures: figures(i) })
        .collect()
}

/// The figures of what has passed in `seconds` of the measured part, without its series.
pub(super) fn part_of<'a>(passed: impl Iterator<Item = &'a Passed>, seconds: f64) -> Part {
    let (mut counts, mut histograms) = (Counts::default(), Histograms::default());
    for passed in passed {
        counts.add(&passed.counts.counts());
        passed.spectra.iter().for_each(|spectra| histograms.add_lane(spectra));
        if let Some(seen) = &passed.events {
            histograms.events.get_or_insert_default().add_lane(seen);
        }
    }
    Part { seconds, rates: Rates::of(&counts, seconds), counts, ..histograms.into_part() }
}

fn part(name: String, records: &[&LaneRecord], histograms: Histograms, about: &About) -> Part {
    let (mut counts, mut unmeasured) = (Counts::default(), Counts::default());
    for record in records {
        counts.add(&record.measured.counts());
        unmeasured.add(&record.unmeasured.counts());
    }
    let slots: Vec<&[Slot]> = records.iter().map(|r| r.slots.as_slice()).collect();
    let (series, intervals, slips) = points(&slots, rounded(about.elapsed.as_secs_f64()));
    let seconds = rounded(about.measured.as_secs_f64());
    let mut with_times = histograms.into_part();
    if let Some(events) = &mut with_times.events {
        events.rate = if seconds > 0.0 { rounded(events.events as f64 / seconds) } else { 0.0 };
    }
    Part {
        name,
        seconds,
        rates: Rates::of(&counts, seconds),
        counts,
        unmeasured,
        concurrency_max: records.iter().map(|r| r.concurrency_max).sum(),
        series,
        intervals,
        slips,
        ..with_times
    }
}

/// The histograms of a part, over all lanes.
#[derive(Default)]
struct Histograms {
    latency: Times,
    service: Times,
    connect: Times,
    tls: Times,
    first_byte: Times,
    slip: Times,
    no_last_byte: bool,
    events: Option<Box<Events>>,
}

impl Histograms {
    fn add_lane(&mut self, lane: &Spectra) {
        lane.latency.add_to(&mut self.latency);
        lane.service.add_to(&mut self.service);
        lane.connect.add_to(&mut self.connect);
        lane.tls.add_to(&mut self.tls);
        lane.first_byte.add_to(&mut self.first_byte);
        lane.slip.add_to(&mut self.slip);
        self.no_last_byte |= lane.no_last_byte;
    }

    /// A part that has these times and nothing else.
    fn into_part(self) -> Part {
        Part {
            latency: self.latency,
            // To the last byte from the request, as to the first: the same thing by another name.
            last_byte: if self.no_last_byte { Times::default() } else { self.service.clone() },
            service: self.service,
            connect: self.connect,
            tls: self.tls,
            first_byte: self.first_byte,
            slip: self.slip,
            events: self.events.map(|events| *events),
            ..Part::default()
        }
    }

    fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency.0);
        self.service.add(&other.service.0);
        self.connect.add(&other.connect.0);
        self.tls.add(&other.tls.0);
        self.first_byte.add(&other.first_byte.0);
        self.slip.add(&other.slip.0);
        self.no_last_byte |= other.no_last_byte;
        if let Some(events) = &other.events {
            self.events.get_or_insert_default().add(events);
        }
    }
}

/// The figures of each lane over all pools; one lane at a time, since a histogram has a quarter of a megabyte.
fn lanes(records: &[LaneRecord]) -> Vec<Lane> {
    let mut by_bucket: BTreeMap<u16, Vec<&LaneRecord>> = BTreeMap::new();
    for record in records {
        by_bucket.entry(record.bucket).or_default().push(record);
    }
    by_bucket.into_iter().map(|(bucket, records)| lane(bucket, &records)).collect()
}

fn lane(bucket: u16, records: &[&LaneRecord]) -> Lane {
    let (mut lane, mut times) = (Lane { bucket, ..Lane::default() }, Times::default());
    for record in records {
        for tally in [&record.measured, &record.unmeasured] {
            lane.sent += tally.sent;
            lane.answered += tally.answered;
            lane.failed += tally.errors;
            lane.bytes_received += tally.bytes_received;
        }
        lane.flows += record.flows;
        record.spectra.latency.add_to(&mut times);
    }
    Lane { p50_ns: times.at(0.5), p99_ns: times.at(0.99), max_ns: times.max(), ..lane }
}

/// A time in the format of RFC 3339, UTC, in seconds. What is outside the years 1970 to 9999 is the nearer end of these.
#[must_use]
pub fn rfc3339(moment: SystemTime) -> String {
    const LAST: u64 = 253_402_300_799;
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    let moment = UtcDateTime::UNIX_EPOCH + Duration::from_secs(since.as_secs().min(LAST));
    let (year, month, day) = moment.to_calendar_date();
    let (hour, minute, second) = moment.as_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
