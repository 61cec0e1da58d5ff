//! Result of a run: counts, and the records of the lanes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::report::model::{Ended, Part};
use crate::report::{About, LaneRecord, Run, join};
use crate::run::changes::Changed;
use crate::run::timeline;
use crate::run::timeline::Phase;

/// Counts of a lane or of a run.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Counts {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams answered; an answer counts once.
    pub received: u64,
    /// Datagrams never answered.
    pub lost: u64,
    /// Answers, among those received, that arrived after the timeout.
    pub late: u64,
    /// Answers that arrived after a later one of their flow.
    pub reordered: u64,
    /// Answers received again.
    pub duplicates: u64,
    /// Answers of this run with damaged content, in spite of a right checksum.
    pub corrupt: u64,
    /// Datagrams received that are of another run or program, or in the wrong lane.
    pub strays: u64,
    /// ICMP errors received for datagrams; these datagrams are also lost if no answer arrives.
    pub refused: u64,
    /// Times a datagram waited because there was no room or no free frame.
    pub held_up: u64,
    /// Datagrams that were due and not sent, because the generator did not keep up or was stopped.
    pub unsent: u64,
    /// Probes sent before the run.
    pub probes: u64,
    /// Probes that were answered.
    pub probes_answered: u64,
}

impl Account for Counts {
    fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.late += other.late;
        self.reordered += other.reordered;
        self.duplicates += other.duplicates;
        self.corrupt += other.corrupt;
        self.strays += other.strays;
        self.refused += other.refused;
        self.held_up += other.held_up;
        self.unsent += other.unsent;
        self.probes += other.probes;
        self.probes_answered += other.probes_answered;
    }
}

/// Result of a lane.
#[derive(Debug)]
pub struct LaneOutcome<C> {
    pub(crate) counts: C,
    /// Its record, if it started.
    pub(crate) record: Option<LaneRecord>,
    /// When it started and stopped sending, nanoseconds on the runtime's clock.
    pub(crate) span: (u64, u64),
    /// Why it ended early.
    pub(crate) failure: Option<String>,
}

impl<C: Account> LaneOutcome<C> {
    /// The result of a lane that never started, with the reason if it is a failure.
    pub(crate) fn none(failure: Option<String>) -> Self {
        Self { counts: C::default(), record: None, span: (u64::MAX, 0), failure }
    }
}

/// Counts that can be added up over lanes.
pub trait Account: Default {
    /// Adds another lane's.
    fn add(&mut self, other: &Self);
}

/// A struct of counts, which are added up name by name.
macro_rules! counts {
    ($(#[doc = $of:literal])+ $counts:ident; $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[doc = $of])+
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case", default)]
        pub struct $counts { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl $crate::run::outcome::Account for $counts {
            fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }
        }
    };
}
pub(crate) use counts;

/// Result of a run: exact counts of all datagrams or connections, and the lanes' records, from which a report is made.
#[derive(Debug)]
pub struct Outcome<C = Counts> {
    /// Counts of all lanes over the whole run.
    pub counts: C,
    /// The record of each lane, for [`crate::report::join`].
    pub records: Vec<LaneRecord>,
    /// Time during which datagrams were sent.
    pub elapsed: Duration,
    /// The measured part of that time.
    pub measured: Duration,
    /// What was changed while it ran, in the order in which it took effect.
    pub changes: Vec<Changed>,
    /// Whether it was stopped early on request.
    pub interrupted: bool,
    /// Why it ended early.
    pub failure: Option<String>,
}

impl<C: Account> Outcome<C> {
    /// Merges the results of lanes. `phases`: the parts of the run; `missing`: number of lanes that did not end.
    pub(crate) fn merge(
        lanes: Vec<LaneOutcome<C>>,
        phases: &[Phase],
        interrupted: bool,
        missing: usize,
    ) -> Self {
        let (mut counts, mut records, mut failure) = (C::default(), Vec::new(), None);
        let (mut first, mut last) = (u64::MAX, 0);
        for lane in lanes {
            counts.add(&lane.counts);
            records.extend(lane.record);
            (first, last) = (first.min(lane.span.0), last.max(lane.span.1));
            failure = failure.or(lane.failure);
        }
        if missing > 0 && failure.is_none() {
            failure = Some(format!("{missing} lanes of the generator did not end"));
        }
        let elapsed = Duration::from_nanos(last.saturating_sub(first));
        let measured = timeline::measured_within(phases, elapsed);
        Self { counts, records, elapsed, measured, changes: Vec::new(), interrupted, failure }
    }
}

impl<C> Outcome<C> {
    /// The report of the run; `about` has everything that is not known here, and may name another failure.
    #[must_use]
    pub fn run(self, about: About) -> Run {
        let ended = match (&self.failure, self.interrupted) {
            (Some(_), _) => Ended::Failed,
            (None, true) => Ended::Interrupted,
            (None, false) => Ended::Done,
        };
        let failure = self.failure.or(about.failure);
        let (elapsed, measured) = (self.elapsed, self.measured);
        join(About { elapsed, measured, ended, failure, ..about }, self.records)
    }

    /// The totals over all lanes, as in a report. It takes the records.
    #[must_use]
    pub fn take_total(&mut self) -> Part {
        let (elapsed, measured) = (self.elapsed, self.measured);
        join(About { elapsed, measured, ..About::default() }, std::mem::take(&mut self.records)).total
    }
}

/// Percentiles of a histogram, nanoseconds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90 % are no longer.
    pub p90: u64,
    /// 99 % are no longer.
    pub p99: u64,
    /// 99.9 % are no longer.
    #[serde(rename = "p99.9")]
    pub p99_9: u64,
    /// Largest.
    pub max: u64,
}

impl From<&Histogram<u64>> for Percentiles {
    fn from(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        let at = |q| h.value_at_quantile(q);
        Self {
            count: h.len(),
            mean: h.mean() as u64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: h.max(),
        }
    }
}
