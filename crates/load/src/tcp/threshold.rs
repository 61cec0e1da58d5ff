//! What a run over TCP must reach, as text: `p99 > 20ms`, `failed > 0`, `written < 1G`.
//!
//! Percentiles (`p50`, `p99.9`, any `pNN`), `mean` and `max` of latency, and of the other times behind `connect-`,
//! `first-byte-` and `slip-`; every count of the report by its name, and `failed` for all failures together, as numbers
//! or as a share of the connections begun; `rate`, answers a second; `written` and `read`, bits a second.

use std::str::FromStr;

use hdrhistogram::Histogram;

use super::outcome::{TcpCounts, TcpOutcome, TcpTimes};
use crate::threshold::{BadThreshold, Limit, Time, split, time};
use crate::units;

/// A condition under which a run over TCP fails.
#[derive(Debug, Clone, PartialEq)]
pub struct TcpThreshold {
    text: String,
    metric: Metric,
    above: bool,
    limit: Limit,
}

#[derive(Debug, Clone, PartialEq)]
enum Metric {
    Time(Times, Time),
    Count(String),
    Rate,
    Written,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Times {
    Latency,
    Connect,
    FirstByte,
    Slip,
}

impl Times {
    const PREFIXES: [(&'static str, Self); 3] =
        [("connect-", Self::Connect), ("first-byte-", Self::FirstByte), ("slip-", Self::Slip)];

    fn of(self, times: &TcpTimes) -> &Histogram<u64> {
        match self {
            Self::Latency => &times.latency,
            Self::Connect => &times.connect,
            Self::FirstByte => &times.first_byte,
            Self::Slip => &times.slip,
        }
    }
}

impl Metric {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "rate" => return Some(Self::Rate),
            "written" => return Some(Self::Written),
            "read" => return Some(Self::Read),
            "failed" => return Some(Self::Count(name.to_owned())),
            _ if TcpCounts::default().by_name(name).is_some() => return Some(Self::Count(name.to_owned())),
            _ => {}
        }
        let prefixed = Times::PREFIXES.iter().find_map(|(p, t)| Some((*t, name.strip_prefix(p)?)));
        let (times, value) = prefixed.unwrap_or((Times::Latency, name));
        Some(Self::Time(times, Time::parse(value)?))
    }
}

impl FromStr for TcpThreshold {
    type Err = BadThreshold;

    fn from_str(text: &str) -> Result<Self, BadThreshold> {
        let (name, above, value) = split(text)?;
        let metric = Metric::parse(name).ok_or_else(|| {
            let known = "pNN, mean, max (also behind connect-, first-byte- and slip-), rate, written, read, failed, \
                         or a count of the report";
            BadThreshold::new(text, format!("unknown metric '{name}': {known}"))
        })?;
        let limit = match metric {
            Metric::Time(..) => Limit::time(value),
            Metric::Count(_) => Limit::count(value),
            _ => units::rate(value).map(Limit::Number).map_err(|e| e.to_string()),
        }
        .map_err(|what| BadThreshold::new(text, what))?;
        Ok(Self { text: text.trim().to_owned(), metric, above, limit })
    }
}

impl TcpThreshold {
    /// What is wrong with a run, or `None`.
    #[must_use]
    pub fn judge(&self, outcome: &TcpOutcome) -> Option<String> {
        let (measured, shown) = match &self.metric {
            Metric::Time(times, of) => {
                let histogram = times.of(&outcome.times);
                if histogram.is_empty() {
                    // A time nobody measured kept no promise, and broke none that asks for slowness.
                    return self.above.then(|| format!("{}: nothing was measured", self.text));
                }
                let nanos = time(histogram, *of);
                (nanos, units::show_nanos(nanos))
            }
            Metric::Count(name) => {
                let counts = &outcome.counts;
                let count = counts.by_name(name).unwrap_or_else(|| counts.failed());
                (count, units::show_count(count))
            }
            Metric::Rate => rate(outcome.answer_rate(), "a second"),
            Metric::Written => rate(outcome.bits_per_second().0, "bit/s"),
            Metric::Read => rate(outcome.bits_per_second().1, "bit/s"),
        };
        let fails = self.limit.beyond(self.above, measured, outcome.counts.begun);
        fails.then(|| format!("{}: it was {shown}", self.text))
    }
}

fn rate(rate: f64, unit: &str) -> (u64, String) {
    (rate as u64, format!("{} {unit}", units::show_count(rate as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Measured;

    #[test]
    fn thresholds_judge() {
        let mut outcome = TcpOutcome::default();
        for ms in 1..=100u64 {
            outcome.times.connect.saturating_record(ms * 1_000_000);
        }
        outcome.counts = TcpCounts { begun: 1000, refused: 4, corrupt: 1, ..TcpCounts::default() };
        let read = 125_000_000;
        outcome.measured = Measured { span: (5, 1_000_000_005), read, answers: 500, ..Measured::default() };
        let fails = |text: &str| text.parse::<TcpThreshold>().unwrap().judge(&outcome).is_some();
        assert!(fails("connect-p99 > 20ms") && !fails("connect-p10 > 20ms"));
        assert!(fails("p99 > 20ms") && fails("slip-max > 1s"), "nothing was measured");
        assert!(fails("failed > 4") && !fails("failed > 5") && fails("failed > 0.4%"));
        assert!(fails("refused > 0") && !fails("no-answer > 0"));
        assert!(fails("read < 2G") && !fails("read < 900M") && fails("written < 1"));
        assert!(fails("rate < 501") && !fails("rate > 501"));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in
            ["", "p99", "speed > 1", "connect-p101 > 1s", "failed > 5ms", "read < fast", "connect- > 1s"]
        {
            let error = text.parse::<TcpThreshold>().unwrap_err().to_string();
            assert!(!error.contains('\n'), "{text}");
        }
    }
}
