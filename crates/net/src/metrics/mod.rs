//! One place where the numbers of a runtime are gathered, and one list of metrics made from them.
//!
//! ```text
//!   workers ──messages──▶ Report ──▶ Snapshot ──▶ documents of the control socket ──▶ stat, lanes, top
//!                            │           └──────▶ metrics: name, unit, kind, labels, help ──▶ /metrics
//!                            └──▶ the summary of a run
//! ```
//!
//! [`Snapshot::take`] asks each worker once. A worker answers between two turns with a copy of its counters; between readings it does
//! nothing for them. [`Snapshot::metrics`] turns the copy into [`Metric`]s without asking anybody. Each counter of the stack, of a lane, a
//! worker or a queue gets into the list by the walk over its group (`Figures::each`), so a new counter is in every view at once.
//!
//! **Names.** `flowlane_` and the group (`worker`, `lane`, `link`, `tcp`, ...) and the counter's own name. A counter of nanoseconds is shown
//! in seconds. Labels are few and bounded by the configuration: `host`, `bucket`, `worker`, `interface`, `queue`, `layer`, `reason`, `state`,
//! `step`, `target`. Strangers cannot add series: no label has the address or port of a peer, and targets are those that the configuration
//! of a relay names.
//!
//! **Drops.** [`drops`] lists every way in which a packet is lost, with its layer and reason; all are samples of `flowlane_drops_total`, also
//! those that are 0.
//!
//! [`text`] writes the list as OpenMetrics 1.0 or in Prometheus' older format.

pub mod drops;
mod list;
pub mod steering;
pub mod text;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::dhcp::HostAddress;
use crate::runtime::handle::{Handle, HostInfo};
use crate::stats::Report;

/// Groups of counters of [`LaneStats::groups`](flowlane_stack::stats::LaneStats::groups) that the kernel keeps to itself: a host on kernel
/// sockets has none of them.
pub(crate) const KERNELS_OWN: [&str; 7] = ["ethernet", "arp", "ip", "ip6", "icmp", "icmp6", "tunnel"];

/// Who is running.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Instance {
    /// What kind of program it is: `serve udp-echo`.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since 1970 when it began to answer.
    pub started: u64,
    /// Milliseconds since then.
    pub uptime_ms: u64,
    #[serde(skip)]
    since: Option<Instant>,
}

impl Instance {
    /// This process, as of now.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let since = Some(Instant::now());
        Self { name: name.to_owned(), pid: std::process::id(), started, uptime_ms: 0, since }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(name: &str, pid: u32, started: u64, uptime_ms: u64) -> Self {
        Self { name: name.to_owned(), pid, started, uptime_ms, since: None }
    }

    pub(crate) fn now(&self) -> Self {
        let uptime_ms = self.since.map_or(0, |since| since.elapsed().as_millis() as u64);
        Self { uptime_ms, ..self.clone() }
    }
}

/// The numbers of a runtime at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Whose they are, and when they were read.
    pub instance: Instance,
    /// Workers that there are. Those that did not answer are not in the report.
    pub workers: usize,
    /// Hosts, by number.
    pub hosts: Vec<HostInfo>,
    /// Which worker holds the lane of each bucket, by host.
    pub owners: Vec<Vec<Option<usize>>>,
    /// What the workers counted.
    pub report: Report,
    /// Addresses that others gave, with the time until each ends; `None` for never.
    pub addresses: Vec<(HostAddress, Option<Duration>)>,
}

impl Snapshot {
    /// Asks every worker for its counters. Blocks for as long as a worker's turn lasts, and no longer than five seconds.
    #[must_use]
    pub fn take(handle: &Handle, instance: &Instance) -> Self {
        Self::of(handle, instance, handle.counters())
    }

    /// As [`take`](Self::take), with lists of sockets and connections, which take the workers some time.
    #[must_use]
    pub fn with_sockets(handle: &Handle, instance: &Instance) -> Self {
        Self::of(handle, instance, handle.report())
    }

    fn of(handle: &Handle, instance: &Instance, report: Report) -> Self {
        let owners = |(h, info): (usize, &HostInfo)| {
            (0..info.rss.buckets.len()).map(|b| handle.worker_of(h, flowlane_rss::Bucket(b as u16))).collect()
        };
        let now = handle.now();
        let left = |a: HostAddress| (a, a.until.map(|until| until.saturating_duration_since(now)));
        Self {
            addresses: handle.addresses().into_iter().map(left).collect(),
            instance: instance.now(),
            workers: handle.workers(),
            hosts: handle.hosts().to_vec(),
            owners: handle.hosts().iter().enumerate().map(owners).collect(),
            report,
        }
    }

    /// The list of metrics, in an order that does not change.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        list::of(self)
    }
}

/// What a metric's number means.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// It never falls while the process runs; two readings give a rate.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How many of something were no greater than each bound: a sample for each bound, with the label `le`, in rising order, the last of
    /// them `+Inf`; then one without that label, the sum.
    Histogram,
    /// Always 1; its labels are what it says.
    Info,
}

/// A metric with its samples.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Metric {
    /// Its name, without the suffix `_total` or `_info` that it has as text.
    pub name: String,
    /// What its numbers mean.
    pub kind: Kind,
    /// `seconds` or `bytes`, which is then the end of its name; empty for a plain number.
    pub unit: String,
    /// What it says, one line.
    pub help: String,
    /// Its numbers.
    pub samples: Vec<Sample>,
}

/// One number of a metric.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Sample {
    /// What it is the number of.
    pub labels: BTreeMap<String, String>,
    /// The number, in the metric's unit.
    pub value: f64,
}

impl Sample {
    /// The value of a label; empty if the sample does not have it.
    #[must_use]
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}
