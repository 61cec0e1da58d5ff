//! The result of the demo: a table by bucket and worker, a line of latencies, a verdict; or the same as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flowlane::UdpFields;
use flowlane_load::{Counts, Outcome, Percentiles};
use serde::Serialize;

use super::card::Known;
use super::{Demo, Plan};
use crate::drops;
use crate::units::{show_count, show_nanos};
use crate::wrap::{WIDTH, wrapped};

/// Version of the JSON, incremented when a field changes its meaning or is removed.
const VERSION: u32 = 1;

/// Counts of a bucket, a worker, or all of the server.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Row {
    /// Frames that reached the lane.
    received: u64,
    /// Of them, on a queue of the worker that owns the bucket.
    aligned: u64,
    /// Of them, handed over by another worker.
    redirected: u64,
    /// Packets dropped, all reasons.
    dropped: u64,
    /// Datagrams echoed.
    echoed: u64,
    /// Datagrams echoed a second.
    per_second: u64,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.aligned += other.aligned;
        self.redirected += other.redirected;
        self.dropped += other.dropped;
        self.echoed += other.echoed;
        self.per_second += other.per_second;
    }
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct BucketRow {
    /// The bucket.
    bucket: u16,
    /// The worker that holds its lane.
    worker: usize,
    #[serde(flatten)]
    row: Row,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct WorkerRow {
    /// The worker.
    worker: usize,
    #[serde(flatten)]
    row: Row,
}

#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct CardRow {
    #[serde(flatten)]
    known: Known,
    /// Times that its settings were set again because it had forgotten them.
    set_again: u64,
}

/// The whole report.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    /// [`VERSION`].
    version: u32,
    /// The command.
    #[cfg_attr(test, schemars(extend("const" = "demo")))]
    command: &'static str,
    /// Payload of a datagram, bytes.
    size: usize,
    /// Fields that UDP is hashed with: two addresses, or ports, too.
    #[cfg_attr(test, schemars(extend("enum" = [2, 4])))]
    hash_fields: u32,
    /// How long it ran.
    seconds: f64,
    /// Figures by bucket.
    buckets: Vec<BucketRow>,
    /// Figures by worker.
    workers: Vec<WorkerRow>,
    /// Figures of all together.
    total: Row,
    /// Share of the server's frames that arrived on the worker that owns their bucket, 0 to 1.
    alignment: f64,
    /// Packets dropped anywhere, by `host:reason`.
    drops: BTreeMap<String, u64>,
    /// What the client counted, datagrams.
    client: Counts,
    /// Lost datagrams that no counter explains.
    unexplained: u64,
    /// Round trips, nanoseconds.
    latency_ns: Percentiles,
    /// The emulated card, if one was named (`--card`).
    #[serde(skip_serializing_if = "Option::is_none")]
    card: Option<CardRow>,
    /// Whether it went as it should.
    ok: bool,
    /// Why the run failed; there only if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        outcome: &mut Outcome,
        counted: &flowlane::stats::Report,
        (server, client): (usize, usize),
        demo: &Demo,
    ) -> Self {
        let seconds = outcome.elapsed.as_secs_f64();
        let mut buckets = Vec::new();
        let mut workers: BTreeMap<usize, Row> = (0..plan.workers).map(|w| (w, Row::default())).collect();
        let mut total = Row::default();
        for lane in counted.lanes(server) {
            let echoed = lane.stats.udp.sent_on_original;
            let row = Row {
                received: lane.counts.aligned + lane.counts.redirected,
                aligned: lane.counts.aligned,
                redirected: lane.counts.redirected,
                dropped: lane.stats.drops.total(),
                echoed,
                per_second: if seconds > 0.0 { (echoed as f64 / seconds) as u64 } else { 0 },
            };
            workers.entry(lane.worker).or_default().add(&row);
            total.add(&row);
            buckets.push(BucketRow { bucket: lane.bucket, worker: lane.worker, row });
        }
        let drops = drops::by_reason(counted, &[("server", server), ("client", client)]);
        let unexplained = outcome.counts.lost.saturating_sub(drops.values().sum());
        let mut report = Self {
            version: VERSION,
            command: "demo",
            size: demo.size,
            hash_fields: if plan.fields == UdpFields::Four { 4 } else { 2 },
            seconds,
            buckets,
            workers: workers.into_iter().map(|(worker, row)| WorkerRow { worker, row }).collect(),
            total,
            alignment: counted.steering(server).alignment(),
            drops,
            client: outcome.counts,
            unexplained,
            latency_ns: Percentiles::from(&outcome.take_total().latency.0),
            card: plan.card.as_ref().map(|emulated| CardRow {
                known: emulated.known.clone(),
                set_again: counted.cards.iter().map(|card| card.counts.set_again).sum(),
            }),
            ok: true,
            failure: None,
        };
        report.failure = report.judge(outcome);
        report.ok = report.failure.is_none();
        report
    }

    /// Why the run failed, if it did.
    fn judge(&self, outcome: &Outcome) -> Option<String> {
        let Counts { lost, reordered, duplicates, corrupt, strays, received, .. } = self.client;
        if let Some(failure) = &outcome.failure {
            return Some(failure.clone());
        }
        if self.unexplained > 0 {
            return Some(format!("{} of {lost} lost datagrams have no counted reason", self.unexplained));
        }
        let excused = if self.reorders().is_some() { reordered } else { 0 };
        if reordered - excused + duplicates + corrupt + strays > 0 {
            return Some(format!(
                "answers out of order: {reordered}, twice: {duplicates}, damaged: {corrupt}, in the wrong lane: {strays}"
            ));
        }
        (received == 0).then(|| "nothing was echoed".to_owned())
    }

    /// Why the card, not the hosts, let packets of one flow overtake one another.
    fn reorders(&self) -> Option<&'static str> {
        self.card.as_ref().and_then(|card| card.known.reorders(card.set_again))
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Prints the report as text.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "{:>6} {:>6}", "bucket", "worker")?;
        for (head, width) in COLUMNS {
            write!(out, " {head:>width$}")?;
        }
        writeln!(out)?;
        for b in &self.buckets {
            line(out, &b.bucket.to_string(), &b.worker.to_string(), &b.row)?;
        }
        for w in &self.workers {
            line(out, "all", &w.worker.to_string(), &w.row)?;
        }
        line(out, "all", "all", &self.total)?;
        writeln!(out)?;
        for (reason, count) in &self.drops {
            writeln!(out, "dropped     {reason} {}", show_count(*count))?;
        }
        let c = &self.client;
        writeln!(
            out,
            "client      sent {}, answered {}, lost {}, out of order {}, twice {}",
            show_count(c.sent),
            show_count(c.received),
            show_count(c.lost),
            show_count(c.reordered),
            show_count(c.duplicates)
        )?;
        if let Some(why) = self.reorders().filter(|_| c.reordered > 0) {
            writeln!(out, "            (out of order, because {why})")?;
        }
        writeln!(out, "alignment   {:.2} %", self.alignment * 100.0)?;
        let card = self.card.iter().flat_map(|card| card.known.lines(card.set_again));
        for (i, text) in card.flat_map(|text| wrapped(&text, WIDTH - 12)).enumerate() {
            writeln!(out, "{:<12}{text}", if i == 0 { "card" } else { "" })?;
        }
        let l = &self.latency_ns;
        writeln!(
            out,
            "round trip  p50 {}, p90 {}, p99 {}, p99.9 {}, max {}",
            show_nanos(l.p50),
            show_nanos(l.p90),
            show_nanos(l.p99),
            show_nanos(l.p99_9),
            show_nanos(l.max)
        )?;
        writeln!(
            out,
            "{} datagrams of {} bytes echoed a second over {:.1} s",
            show_count(self.total.per_second),
            self.size,
            self.seconds
        )
    }
}

/// Headings and widths of the columns of numbers; with bucket and worker a line has 80 columns.
const COLUMNS: [(&str, usize); 6] =
    [("received", 11), ("aligned", 11), ("redirected", 10), ("dropped", 9), ("echoed", 11), ("echoed/s", 9)];

fn line(out: &mut impl Write, bucket: &str, worker: &str, row: &Row) -> io::Result<()> {
    write!(out, "{bucket:>6} {worker:>6}")?;
    let numbers = [row.received, row.aligned, row.redirected, row.dropped, row.echoed, row.per_second];
    for (n, (_, width)) in numbers.into_iter().zip(COLUMNS) {
        write!(out, " {:>width$}", show_count(n))?;
    }
    writeln!(out)
}

#[cfg(test)]
#[test]
fn schema_of_demo() {
    let about = "The version grows when a field changes its meaning or goes away.";
    flowlane_schema::Made::new("demo", "flowlane demo --json", about).form::<Report>().closed().keep();
}
