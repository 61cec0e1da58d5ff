//! What an agent sends at the end: a line of JSON, and behind it the records of its lanes.

use std::collections::BTreeMap;
use std::time::Duration;

use flowlane_load::report::{HomePorts, LaneRecord, Limits, Usage};
use serde::{Deserialize, Serialize};

use crate::message::cut;

/// Most reasons for drops, and records: one for each lane and pool.
const REASONS: usize = 256;
const RECORDS: usize = 1 << 16;

/// The largest count that is taken as it is: sums over all agents, and of several counts, have to fit.
const MOST_COUNTED: u64 = u64::MAX >> 16;

/// What an agent's part came to, besides its records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Summary {
    /// Time during which requests were sent, nanoseconds.
    pub elapsed_ns: u64,
    /// The measured part of it.
    pub measured_ns: u64,
    /// Whether it was stopped.
    pub interrupted: bool,
    /// Why it could not go on.
    pub failure: Option<String>,
    /// Workers.
    pub workers: usize,
    /// Records behind it.
    pub records: usize,
    /// What its kind of load counts, by name: that by which the whole run is judged.
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// Packets that its side dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Share of frames that arrived on the worker of their bucket.
    pub alignment: Option<f64>,
    /// Source ports chosen by where answers come.
    pub home_ports: Option<HomePorts>,
    /// Processor time in user mode, in the kernel, and waited for, nanoseconds.
    pub cpu_ns: [u64; 3],
    /// Time that all processors were idle, and that the host took, nanoseconds.
    pub machine_ns: [u64; 2],
    /// Elapsed time, nanoseconds.
    pub wall_ns: u64,
    /// Most resident memory, bytes.
    pub memory: u64,
    /// Processors.
    pub processors: usize,
}

/// Why results are none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("results that cannot be read: {0}")]
pub struct BadResults(String);

impl Summary {
    /// With what a process used.
    #[must_use]
    pub fn using(self, usage: Usage) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            cpu_ns: [usage.user, usage.system, usage.waited].map(nanos),
            machine_ns: [usage.idle, usage.stolen].map(nanos),
            wall_ns: nanos(usage.wall),
            memory: usage.memory,
            processors: usage.processors,
            ..self
        }
    }

    /// What the process used.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let [user, system, waited] = self.cpu_ns.map(Duration::from_nanos);
        let [idle, stolen] = self.machine_ns.map(Duration::from_nanos);
        let (wall, memory, processors) = (Duration::from_nanos(self.wall_ns), self.memory, self.processors);
        Usage { user, system, waited, idle, stolen, wall, memory, processors }
    }

    /// With how long it took.
    #[must_use]
    pub fn taking(self, elapsed: Duration, measured: Duration) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { elapsed_ns: nanos(elapsed), measured_ns: nanos(measured), ..self }
    }

    /// As bytes, with the records behind it.
    #[must_use]
    pub fn write(mut self, records: &[LaneRecord]) -> Vec<u8> {
        self.records = records.len();
        self.failure = self.failure.map(cut);
        let mut bytes = crate::message::write(&self, &[]);
        bytes.push(b'\n');
        records.iter().for_each(|record| record.write(&mut bytes));
        bytes
    }

    /// Reads it, with its records. Times beyond `longest` are cut.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(
        bytes: &[u8],
        limits: &Limits,
        longest: Duration,
    ) -> Result<(Self, Vec<LaneRecord>), BadResults> {
        let bad = |why: &str| BadResults(why.to_owned());
        let end = bytes.iter().position(|b| *b == b'\n').ok_or_else(|| bad("they end early"))?;
        let mut summary: Self = serde_json::from_slice(&bytes[..end]).map_err(|_| bad("not understood"))?;
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        (summary.elapsed_ns, summary.measured_ns) =
            (summary.elapsed_ns.min(longest), summary.measured_ns.min(longest));
        // Sums over agents have to fit.
        let most = |number: &mut u64| *number = (*number).min(u64::MAX >> 10);
        summary.cpu_ns.iter_mut().chain(&mut summary.machine_ns).for_each(most);
        [&mut summary.wall_ns, &mut summary.memory].into_iter().for_each(most);
        summary.drops.values_mut().for_each(most);
        // Guard: `(*count).min(MOST_COUNTED)` as `*count` fails summary::tests::results_come_whole
        summary.counts.values_mut().for_each(|count| *count = (*count).min(MOST_COUNTED));
        if let Some(ports) = &mut summary.home_ports {
            [&mut ports.home, &mut ports.elsewhere].into_iter().for_each(most);
        }
        (summary.workers, summary.processors) =
            (summary.workers.min(1 << 20), summary.processors.min(1 << 20));
        summary.alignment = summary.alignment.filter(|share| (0.0..=1.0).contains(share));
        summary.failure = summary.failure.map(cut);
        if summary.drops.len() > REASONS || summary.drops.keys().any(|reason| reason.len() > 64) {
            return Err(bad("more reasons for drops than there are"));
        }
        // Guard: `summary.counts.len() > REASONS` as `false` fails summary::tests::results_that_are_none
        if summary.counts.len() > REASONS || summary.counts.keys().any(|name| name.len() > 64) {
            return Err(bad("more counts than there are"));
        }
        // Guard: `summary.records > RECORDS.min(limits.lanes.len().saturating_mul(limits.pools))` as `false`
        // fails summary::tests::results_that_are_none
        if summary.records > RECORDS.min(limits.lanes.len().saturating_mul(limits.pools)) {
            return Err(bad("more records than lanes"));
        }
        let mut rest = &bytes[end + 1..];
        let mut records = Vec::new();
        for _ in 0..summary.records {
            records.push(LaneRecord::read(&mut rest, limits).map_err(|e| BadResults(e.to_string()))?);
        }
        if rest.is_empty() { Ok((summary, records)) } else { Err(bad("something is behind them")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_load::report::{Recorder, Span};

    const LIMITS: Limits = Limits { lanes: 2..4, pools: 1, phases: 0, requests: 0 };

    fn written() -> Vec<u8> {
        let mut recorder = Recorder::new(3, 0, 1, Span::all(0));
        (0..50).for_each(|i| recorder.sent(i, i + 9, 10));
        let usage = Usage { user: Duration::from_secs(3), memory: 77, ..Usage::default() };
        let summary = Summary {
            elapsed_ns: 5_000_000_000,
            drops: [("full".to_owned(), 3)].into(),
            alignment: Some(0.5),
            counts: [("begun".to_owned(), 7), ("much".to_owned(), u64::MAX)].into(),
            ..Summary::default()
        };
        summary.using(usage).write(&[recorder.finish(5_000_000_000)])
    }

    #[test]
    fn results_come_whole_and_no_longer_than_the_run() {
        let (summary, records) = Summary::read(&written(), &LIMITS, Duration::from_secs(4)).unwrap();
        assert_eq!(
            (summary.elapsed_ns, summary.drops["full"], summary.alignment),
            (4_000_000_000, 3, Some(0.5))
        );
        assert_eq!((summary.usage().user, summary.usage().memory), (Duration::from_secs(3), 77));
        assert_eq!((summary.counts["begun"], summary.counts["much"]), (7, MOST_COUNTED));
        assert_eq!(records[0].counts(), [50, 0, 0]);
    }

    #[test]
    fn results_that_are_none_are_refused() {
        let (whole, long) = (written(), Duration::from_secs(9));
        for length in 0..whole.len() {
            assert!(Summary::read(&whole[..length], &LIMITS, long).is_err(), "{length}");
        }
        let behind = [whole.clone(), vec![0]].concat();
        let twice = String::from_utf8_lossy(&whole[..whole.iter().position(|b| *b == b'\n').unwrap()])
            .replace("\"records\":1", "\"records\":9999999");
        for (bytes, what) in [(behind, "behind"), (format!("{twice}\n").into_bytes(), "more records")] {
            let error = Summary::read(&bytes, &LIMITS, long).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let names = |n: usize, long: usize| {
            let name = |i: usize| (format!("{i:0long$}"), 1);
            let counts = (0..n).map(name).collect();
            Summary { counts, ..Summary::default() }.write(&[])
        };
        assert!(Summary::read(&names(REASONS, 64), &LIMITS, long).is_ok());
        for bytes in [names(REASONS + 1, 3), names(1, 65)] {
            let error = Summary::read(&bytes, &LIMITS, long).unwrap_err().to_string();
            assert!(error.contains("more counts"), "{error}");
        }
        assert!(Summary::read(&whole, &Limits { lanes: 0..2, ..LIMITS }, long).is_err(), "another's lanes");
    }
}
