//! Conditions under which a run fails, as text: `p99 > 20ms`, `errors > 0.1%`, `rate < 90k`, `pool=slow p99 > 2s`.
//!
//! A threshold has a metric, `>`, `>=`, `<` or `<=`, and a value; the run *fails* if it holds. `pool=NAME` in front restricts it to one
//! pool. Metrics are
//!
//! * times: percentiles of latency (`p50`, `p99.9`, any `pNN`), `mean` and `max`, and the same of other times behind their
//!   names: `slip-p99`, `service-p99`, `connect-max`, `tls-p99`, `first-byte-p99`, `last-byte-p99`, of streams of events
//!   `first-event-p99` (or `ttft-p99`), `event-gap-p99` (or `itl-p99`), `last-event-p99`;
//! * counts, as numbers or as a share: `errors` (or `failed`), any kind of error (`timeout`, `reset`, `lost`, ...), `late`, `reordered`,
//!   `duplicates`, `strays`, `unsent`, `held-up` of what was tried; `404` or `5xx` of what was answered; `connections-failed`
//!   of the connections that were tried; of TCP's connections `begun`, `completed`, `standing`, `unfinished`, and `resent`;
//! * rates per second: `rate` (answers), `sent-rate`, `connection-rate`; in bits per second, `written` and `read`.

use std::fmt;
use std::str::FromStr;

use hdrhistogram::Histogram;

use crate::report::model::{Part, Verdict};
use crate::report::timed::Timed;
use crate::report::{ErrorKind, Run, Times};
use crate::units;

/// A condition under which a run fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    pool: Option<String>,
    metric: Metric,
    compare: Compare,
    limit: Limit,
}

#[derive(Debug, Clone, PartialEq)]
enum Metric {
    Time { of: Timed, what: Time },
    Count(String),
    Rate(Flow),
}

/// Which value of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Time {
    Percentile(f64),
    Mean,
    Max,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Flow {
    Answers,
    Sent,
    Connections,
    Written,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Compare {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// What it is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    Number(u64),
    /// Share of the whole, 0 to 1.
    Share(f64),
}

/// Why a text is not a threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}': {what}")]
pub struct BadThreshold {
    text: String,
    what: String,
}

/// Counts that are not kinds of errors.
const COUNTS: [&str; 32] = [
    "errors",
    "failed",
    "late",
    "reordered",
    "duplicates",
    "strays",
    "unsent",
    "unasked",
    "closed-idle",
    "held-up",
    "begun",
    "completed",
    "standing",
    "unfinished",
    "resent",
    "syn-data",
    "syn-data-resent",
    "connections-failed",
    "flows",
    "flows-whole",
    "flows-cut",
    "steps-not-asked",
    "redirects",
    "sent-again",
    "quic-packets-sent",
    "quic-packets-lost",
    "quic-datagrams-received",
    "quic-congestion-events",
    "tls-full",
    "tls-resumed",
    "early-data-accepted",
    "early-data-rejected",
];
/// Counts that are known at the end of a run only.
const AT_END: [&str; 8] =
    ["begun", "completed", "standing", "unfinished", "resent", "syn-data", "syn-data-resent", "unsent"];
/// A condition on what has passed is judged from so many samples on, and so many must be beyond a percentile or a share.
const SAMPLES: f64 = 100.0;
const BEYOND: f64 = 5.0;
/// A rate is judged from so many seconds on: of what was sent before, answers are still on their way.
const RATES_FROM: f64 = 5.0;
const KINDS: [(&str, Timed); 11] = [
    ("slip-", Timed::Slip),
    ("service-", Timed::Service),
    ("connect-", Timed::Connect),
    ("tls-", Timed::Tls),
    ("first-byte-", Timed::FirstByte),
    ("last-byte-", Timed::LastByte),
    ("first-event-", Timed::FirstEvent),
    ("event-gap-", Timed::EventGap),
    ("last-event-", Timed::LastEvent),
    // What those call them who ask models: time to first token, inter-token latency.
    ("ttft-", Timed::FirstEvent),
    ("itl-", Timed::EventGap),
];

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Threshold {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Self, BadThreshold> {
        let bad = |what: String| BadThreshold { text: text.to_owned(), what };
        let (pool, rest) = pool(text.trim()).map_err(bad)?;
        let at = rest.find(['<', '>']).ok_or_else(|| {
            bad("a threshold is METRIC > VALUE or METRIC < VALUE, such as p99 > 20ms".into())
        })?;
        let (above, value) = (rest[at..].starts_with('>'), &rest[at + 1..]);
        let (compare, value) = match (above, value.strip_prefix('=')) {
            (true, None) => (Compare::Above, value),
            (true, Some(value)) => (Compare::AtLeast, value),
            (false, None) => (Compare::Below, value),
            (false, Some(value)) => (Compare::AtMost, value),
        };
        let (name, value) = (rest[..at].trim(), value.trim());
        let metric = metric(name).ok_or_else(|| bad(unknown(name)))?;
        let limit = limit(&metric, value).map_err(bad)?;
        Ok(Self { text: text.trim().to_owned(), pool, metric, compare, limit })
    }
}

/// The pool in front of a threshold, if one is named, and the rest.
fn pool(text: &str) -> Result<(Option<String>, &str), String> {
    let Some(rest) = text.strip_prefix("pool=") else { return Ok((None, text)) };
    let (name, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or("the pool's name has no closing quote")?,
        None => rest.split_once(' ').unwrap_or((rest, "")),
    };
    if name.is_empty() {
        return Err("pool= needs the pool's name".into());
    }
    Ok((Some(name.to_owned()), rest.trim()))
}

fn metric(name: &str) -> Option<Metric> {
    let code = |n: &str| n.len() == 3 && n.starts_with(|c: char| matches!(c, '1'..='9'));
    if COUNTS.contains(&name)
        || ErrorKind::ALL.iter().any(|k| k.name() == name)
        || (code(name) && (name[1..] == *"xx" || name.bytes().all(|b| b.is_ascii_digit())))
    {
        return Some(Metric::Count(name.to_owned()));
    }
    match name {
        "rate" => return Some(Metric::Rate(Flow::Answers)),
        "sent-rate" => return Some(Metric::Rate(Flow::Sent)),
        "connection-rate" => return Some(Metric::Rate(Flow::Connections)),
        "written" => return Some(Metric::Rate(Flow::Written)),
        "read" => return Some(Metric::Rate(Flow::Read)),
        _ => {}
    }
    let kind = KINDS.iter().find_map(|(prefix, kind)| Some((*kind, name.strip_prefix(prefix)?)));
    let (of, name) = kind.unwrap_or((Timed::Latency, name));
    let what = Time::parse(name)?;
    Some(Metric::Time { of, what })
}

fn unknown(name: &str) -> String {
    let kinds: Vec<&str> = ErrorKind::ALL.iter().map(|k| k.name()).collect();
    format!(
        "unknown metric '{name}': pNN, mean, max (also behind slip-, service-, connect-, tls-, first-byte-, \
         last-byte-, first-event- or ttft-, event-gap- or itl-, last-event-), rate, sent-rate, connection-rate, written, read, {}, {}, a status such as 404 or 5xx",
        COUNTS.join(", "),
        kinds.join(", ")
    )
}

fn limit(metric: &Metric, value: &str) -> Result<Limit, String> {
    match metric {
        Metric::Time { .. } => Limit::time(value),
        Metric::Rate(_) => units::rate(value).map(Limit::Number).map_err(|e| e.to_string()),
        Metric::Count(_) => Limit::count(value),
    }
}

impl Time {
    /// `p99.9`, `mean`, `max`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "mean" => Some(Self::Mean),
            "max" => Some(Self::Max),
            _ => {
                let number =
                    name.strip_prefix('p').filter(|n| n.starts_with(|c: char| c.is_ascii_digit()))?;
                let percentile: f64 = number.parse().ok()?;
                (0.0..=100.0).contains(&percentile).then_some(Self::Percentile(percentile))
            }
        }
    }
}

impl Limit {
    /// `20ms`.
    pub(crate) fn time(value: &str) -> Result<Self, String> {
        let time = units::duration(value).map_err(|e| e.to_string())?;
        Ok(Self::Number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// `10k`, or `0.1%` of a whole.
    pub(crate) fn count(value: &str) -> Result<Self, String> {
        match value.strip_suffix('%') {
            Some(percent) => match percent.trim().parse::<f64>() {
                Ok(p) if (0.0..=100.0).contains(&p) => Ok(Self::Share(p / 100.0)),
                _ => Err(format!("'{value}' is not a share from 0% to 100%")),
            },
            None => units::count(value).map(Self::Number).map_err(|e| e.to_string()),
        }
    }

    /// The number it is for a whole.
    fn of(self, whole: u64) -> f64 {
        match self {
            Self::Number(limit) => limit as f64,
            Self::Share(share) => share * whole as f64,
        }
    }
}

/// A value of a histogram, nanoseconds.
pub(crate) fn time(histogram: &Histogram<u64>, of: Time) -> u64 {
    match of {
        Time::Percentile(p) => histogram.value_at_quantile(p / 100.0),
        Time::Mean => histogram.mean() as u64,
        Time::Max => histogram.max(),
    }
}

impl Threshold {
    /// The pool that it is about; `None` for all pools together.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        self.pool.as_deref()
    }

    /// Checks before the run that the pool exists.
    ///
    /// # Errors
    /// There is no such pool; the error lists the pools.
    pub fn check<S: AsRef<str>>(&self, pools: &[S]) -> Result<(), BadThreshold> {
        let Some(pool) = &self.pool else { return Ok(()) };
        if pools.iter().any(|p| p.as_ref() == pool) {
            return Ok(());
        }
        let names: Vec<&str> = pools.iter().map(AsRef::as_ref).collect();
        let there = if names.is_empty() {
            "this run has none".into()
        } else {
            format!("there are {}", names.join(", "))
        };
        Err(BadThreshold { text: self.text.clone(), what: format!("no pool is called '{pool}': {there}") })
    }

    /// Whether it limits the errors of all kinds and pools.
    #[must_use]
    pub fn is_about_all_errors(&self) -> bool {
        let all = matches!(&self.metric, Metric::Count(name) if name == "errors" || name == "failed");
        all && self.pool.is_none()
    }

    /// How many of a run's failures it judges: all of them, those of one kind, or none.
    #[must_use]
    pub fn judges(&self, run: &Run) -> u64 {
        let total = &run.total.counts;
        match &self.metric {
            _ if self.is_about_all_errors() => total.failed,
            // Guard: `ErrorKind::ALL.iter().any(|k| k.name() == name)` as `false` fails
            // find::tests::a_rate_is_judged
            Metric::Count(name) if self.pool.is_none() && ErrorKind::ALL.iter().any(|k| k.name() == name) => {
                count(&run.total, name).0
            }
            _ => 0,
        }
    }

    /// The times that it is about, if it is about times.
    pub(super) fn times(&self) -> Option<Timed> {
        match self.metric {
            Metric::Time { of, .. } => Some(of),
            Metric::Count(_) | Metric::Rate(_) => None,
        }
    }

    /// The part of a run that it is about.
    fn part<'a>(&self, total: &'a Part, pools: &'a [Part]) -> Option<&'a Part> {
        match &self.pool {
            None => Some(total),
            Some(name) => pools.iter().find(|p| p.name == *name),
        }
    }

    /// Whether what has passed of a run that goes on breaks it: what was measured then. Unless the person is `sure` that it may be judged
    /// now, it waits for enough samples.
    ///
    /// * What cannot become whole again, such as `errors > 10` or `max > 1s`, is broken at once.
    /// * A percentile waits until 5 samples are beyond it, 100 at least: `p99` for 500. So does a share: `errors > 1%` for 500 tried.
    /// * A rate waits for 5 s.
    /// * What grows to the end, such as `200 < 1M`, and what is known at the end only, is not judged before.
    pub(super) fn broken(&self, total: &Part, pools: &[Part], sure: bool) -> Option<String> {
        let part = self.part(total, pools)?;
        let upper = matches!(self.compare, Compare::Above | Compare::AtLeast);
        // Guard: `sure` as `true` fails abort::tests::the_first_slow_requests_end_nothing
        let samples = |share: f64| if sure { 1.0 } else { (BEYOND / share.max(1e-9)).max(SAMPLES) };
        let enough = match (&self.metric, self.limit) {
            // Guard: `AT_END.contains(&name.as_str())` as `false` fails
            // abort::tests::what_is_whole_at_the_end_only
            (Metric::Count(name), _) if AT_END.contains(&name.as_str()) => false,
            (Metric::Count(_), Limit::Number(_)) | (Metric::Time { what: Time::Max, .. }, _) => upper,
            (Metric::Count(_), Limit::Share(share)) if share <= 0.0 => upper,
            (Metric::Count(name), Limit::Share(share)) => {
                count(part, name).1 as f64 >= samples(share.min(1.0 - share))
            }
            (Metric::Time { of, what }, _) => {
                let beyond = match what {
                    Time::Percentile(p) => 1.0 - p / 100.0,
                    Time::Mean | Time::Max => 1.0,
                };
                times(part, *of).is_some_and(|times| times.count() as f64 >= samples(beyond))
            }
            // Guard: `sure` as `true` fails abort::tests::a_rate_is_that_of_what_has_passed
            (Metric::Rate(_), _) => part.seconds >= if sure { f64::MIN_POSITIVE } else { RATES_FROM },
        };
        let measured = enough.then(|| self.of_part(part)).filter(|(failed, _)| *failed);
        // A time that has no sample yet is not known to be long.
        measured
            .map(|(_, words)| words)
            .filter(|_| self.times().is_none_or(|of| times(part, of).is_some_and(|t| !t.is_empty())))
    }

    /// Evaluates the threshold for a run.
    #[must_use]
    pub fn verdict(&self, run: &Run) -> Verdict {
        let part = self.part(&run.total, &run.pools);
        let (failed, measured) = part.map_or((true, "no such pool".to_owned()), |part| self.of_part(part));
        Verdict { threshold: self.text.clone(), measured, failed }
    }

    fn of_part(&self, part: &Part) -> (bool, String) {
        match &self.metric {
            Metric::Time { of, what } => {
                let times = times(part, *of).filter(|times| !times.is_empty());
                let Some(times) = times else {
                    // A latency that was not measured fails an upper limit and does not fail a lower one.
                    let fails = matches!(self.compare, Compare::Above | Compare::AtLeast);
                    return (fails, "not measured".to_owned());
                };
                let nanos = time(&times.0, *what);
                (self.beyond(nanos as f64, 0), units::show_nanos(nanos))
            }
            Metric::Count(name) => {
                let (count, whole) = count(part, name);
                let share = if whole == 0 { 0.0 } else { count as f64 / whole as f64 * 100.0 };
                let shown = match self.limit {
                    Limit::Share(_) => {
                        format!("{share:.3}% ({} of {})", units::show_count(count), units::show_count(whole))
                    }
                    Limit::Number(_) => units::show_count(count),
                };
                (self.beyond(count as f64, whole), shown)
            }
            Metric::Rate(flow) => {
                let rate = match flow {
                    Flow::Answers => part.rates.answered,
                    Flow::Sent => part.rates.sent,
                    Flow::Connections => part.rates.connections,
                    Flow::Written => part.rates.bytes_sent * 8.0,
                    Flow::Read => part.rates.bytes_received * 8.0,
                };
                let unit = if matches!(flow, Flow::Written | Flow::Read) { "bit/s" } else { "a second" };
                (self.beyond(rate, 0), format!("{} {unit}", units::show_count(rate as u64)))
            }
        }
    }

    fn beyond(&self, measured: f64, whole: u64) -> bool {
        let limit = self.limit.of(whole);
        match self.compare {
            Compare::Above => measured > limit,
            Compare::AtLeast => measured >= limit,
            Compare::Below => measured < limit,
            Compare::AtMost => measured <= limit,
        }
    }
}

fn times(part: &Part, kind: Timed) -> Option<&Times> {
    let events = part.events.as_ref();
    Some(match kind {
        Timed::Latency => &part.latency,
        Timed::Slip => &part.slip,
        Timed::Service => &part.service,
        Timed::Connect => &part.connect,
        Timed::Tls => &part.tls,
        Timed::FirstByte => &part.first_byte,
        Timed::LastByte => &part.last_byte,
        Timed::FirstEvent => &events?.first_event,
        Timed::EventGap => &events?.event_gap,
        Timed::LastEvent => &events?.last_event,
    })
}

/// A count and the whole that it is a share of.
fn count(part: &Part, name: &str) -> (u64, u64) {
    let counts = &part.counts;
    if name == "connections-failed" {
        return (counts.connections_failed, counts.connections_failed + counts.connections_opened);
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        let count = match name.strip_suffix("xx").and_then(|digit| digit.parse().ok()) {
            Some(digit) => counts.class(digit),
            None => counts.codes.get(name).copied().unwrap_or(0),
        };
        return (count, counts.answered);
    }
    (counts.named(name), counts.tried())
}

#[cfg(test)]
mod tests;
