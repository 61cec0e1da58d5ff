//! Output of a service: a line for each worker, the flows, the summary; as text, or as JSON with one document on each line.
//!
//! All counts of a summary have one unit: datagrams, segments, or, for TCP on kernel sockets, whose segments only the kernel sees, reads
//! and writes. The share of aligned frames is a percentage.

use super::Service;
use super::documents::{
    Bucket, Card, Flow, FlowLog, Flows, Interval, Ipfix, KernelTcp, KernelTcpRates, Packets, Rebalance,
    Summary, Tcp, Udp,
};
use super::flows::List;
use crate::document::value;
use crate::recorders::Recorded;
use crate::stdout;
use crate::{drops, steering};
use flowlane::metrics::steering as arrivals;
use flowlane::rebalance::Counts;
use flowlane::stats::{LaneReport, Report, SteeringStats, Strayed, WorkerReport};
use flowlane_rss::HashType;
use serde_json::Value;
use std::io::{self, Write};
use std::time::Duration;

/// What a summary says beside the counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extras<'a> {
    /// What was done to balance the load, and by which policy.
    pub(super) moved: Option<(&'a str, Counts)>,
    /// What became of records of flows.
    pub(super) recorded: Recorded,
}

/// The printer.
#[derive(Debug)]
pub(super) struct Show {
    service: Service,
    unit: Unit,
    json: bool,
}

/// The unit of counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Datagrams,
    Segments,
    /// System calls that moved bytes.
    Calls,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Datagrams => "datagrams",
            Self::Segments => "segments",
            Self::Calls => "reads and writes",
        }
    }

    /// The unit of rates, per second.
    fn rate(self) -> &'static str {
        match self {
            Self::Calls => "reads",
            _ => self.name(),
        }
    }

    /// Headings of the columns for received and sent.
    fn columns(self) -> [&'static str; 2] {
        match self {
            Self::Calls => ["reads", "writes"],
            _ => ["received", "sent"],
        }
    }

    fn received(self, lane: &LaneReport) -> u64 {
        match self {
            Self::Datagrams => lane.stats.udp.delivered,
            Self::Segments => lane.stats.tcp.packets_received,
            Self::Calls => lane.kernel.map_or(0, |kernel| kernel.reads),
        }
    }

    fn sent(self, lane: &LaneReport) -> u64 {
        match self {
            Self::Datagrams => lane.stats.udp.sent,
            Self::Segments => lane.stats.tcp.packets_sent,
            Self::Calls => lane.kernel.map_or(0, |kernel| kernel.writes),
        }
    }
}

/// What one worker did between two reports.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    received: u64,
    sent: u64,
    dropped: u64,
    redirected: u64,
    /// All frames received.
    frames: u64,
}

impl Work {
    /// A lane that moved takes its counters along, so lanes are compared with themselves, wherever they were. What `before` lacks (a worker
    /// that did not answer, a lane on its way) counts as nothing.
    fn between(unit: Unit, before: &Report, worker: &WorkerReport) -> Self {
        let mut work = Self::default();
        let lanes = || before.workers.iter().flat_map(|w| &w.lanes);
        for lane in &worker.lanes {
            let Some(then) = lanes().find(|l| (l.host, l.bucket) == (lane.host, lane.bucket)) else {
                continue;
            };
            let since = |of: &dyn Fn(&LaneReport) -> u64| of(lane).saturating_sub(of(then));
            work.received += since(&|l| unit.received(l));
            work.sent += since(&|l| unit.sent(l));
            work.dropped += since(&drops::of_lane);
            work.redirected += since(&|l| l.counts.redirected);
            work.frames += since(&|l| l.counts.aligned + l.counts.redirected);
        }
        let own = |w: &WorkerReport| drops::of_worker(w) - w.lanes.iter().map(drops::of_lane).sum::<u64>();
        let then = before.workers.iter().find(|w| w.worker == worker.worker).map_or(u64::MAX, own);
        work.dropped += own(worker).saturating_sub(then);
        work
    }
}

impl Show {
    /// A printer; `kernel` if the service runs on kernel sockets.
    pub(super) fn new(service: Service, kernel: bool, json: bool) -> Self {
        let unit = match (service.is_tcp(), kernel) {
            (false, _) => Unit::Datagrams,
            (true, false) => Unit::Segments,
            (true, true) => Unit::Calls,
        };
        Self { service, unit, json }
    }

    /// Prints what each worker did between two reports.
    pub(super) fn interval(&self, before: &Report, after: &Report, took: Duration) -> io::Result<()> {
        let mut out = stdout::lock();
        let seconds = took.as_secs_f64().max(1e-9);
        let [received, sent] = self.unit.columns();
        for worker in &after.workers {
            let work = Work::between(self.unit, before, worker);
            let rate = (work.received as f64 / seconds).round() as u64;
            if self.json {
                writeln!(out, "{}", self.interval_json(worker.worker, &work, seconds, rate))?;
            } else {
                writeln!(
                    out,
                    "worker {}: {rate} {}/s, {received} {}, {sent} {}, dropped {}{}",
                    worker.worker,
                    self.unit.rate(),
                    work.received,
                    work.sent,
                    work.dropped,
                    aligned(work.frames - work.redirected.min(work.frames), work.frames),
                )?;
            }
        }
        out.flush()
    }

    /// Prints the flows so far.
    pub(super) fn flows(&self, list: &List) -> io::Result<()> {
        let mut out = stdout::lock();
        let name = |number| HashType::from_u8(number).unwrap_or(HashType::None).name();
        if self.json {
            let flow = |f: &super::flows::Flow| Flow {
                hash: f.hash,
                hash_type: name(f.hash_type),
                type_number: f.hash_type,
                bucket: f.bucket,
                count: f.count,
            };
            let flows = list.flows.iter().map(flow).collect();
            writeln!(out, "{}", value(Flows { version: 1, kind: "flows", flows, beyond: list.beyond }))?;
            return out.flush();
        }
        for f in &list.flows {
            let name = name(f.hash_type);
            writeln!(
                out,
                "flow 0x{:08x} type {} ({name}) bucket {}: {}",
                f.hash, f.hash_type, f.bucket, f.count
            )?;
        }
        if list.beyond > 0 {
            writeln!(out, "flows beyond those: {}", list.beyond)?;
        }
        out.flush()
    }

    /// Prints the summary, at the end.
    ///
    /// `moved`: by which policy lanes moved by themselves, and how many did. `exported`: what became of records of flows.
    pub(super) fn summary(
        &self,
        report: &Report,
        host: usize,
        took: Duration,
        extras: &Extras<'_>,
    ) -> io::Result<()> {
        let &Extras { moved, recorded } = extras;
        let mut out = stdout::lock();
        if self.json {
            let summary = match self.unit {
                Unit::Calls => {
                    let counts = |reads, writes| KernelTcp { reads, writes };
                    value(self.summary_of(report, host, took, extras, counts))
                }
                Unit::Datagrams | Unit::Segments => {
                    let counts = |received, sent| Packets { received, sent };
                    value(self.summary_of(report, host, took, extras, counts))
                }
            };
            writeln!(out, "{summary}")?;
        } else {
            for line in recorded.lines() {
                writeln!(out, "{line}")?;
            }
            if let Some((policy, counts)) = moved {
                let Counts { moves, failed, .. } = counts;
                let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
                writeln!(out, "rebalance {policy}: {moves} moves{failed}")?;
            }
            self.summary_text(&mut out, report, host, took)?;
        }
        out.flush()
    }

    fn interval_json(&self, worker: usize, work: &Work, seconds: f64, rate: u64) -> Value {
        fn of<C>(worker: usize, work: &Work, seconds: f64, counts: C) -> Interval<C> {
            let (dropped, redirected) = (work.dropped, work.redirected);
            Interval { version: 1, kind: "interval", worker, seconds, counts, dropped, redirected }
        }
        let (received, sent) = (work.received, work.sent);
        match self.unit {
            Unit::Datagrams => {
                value(of(worker, work, seconds, Udp { received, sent, datagrams_per_second: rate }))
            }
            Unit::Segments => {
                value(of(worker, work, seconds, Tcp { received, sent, segments_per_second: rate }))
            }
            Unit::Calls => {
                let counts = KernelTcpRates { reads: received, writes: sent, reads_per_second: rate };
                value(of(worker, work, seconds, counts))
            }
        }
    }

    /// The summary; `counts` names what was received and sent.
    fn summary_of<C>(
        &self,
        report: &Report,
        host: usize,
        took: Duration,
        &Extras { moved, recorded }: &Extras<'_>,
        counts: impl Fn(u64, u64) -> C,
    ) -> Summary<C> {
        let (lanes, steering, drops) = (report.lanes(host), report.steering(host), dropped(report, host));
        let bucket = |lane: &&LaneReport| Bucket {
            bucket: lane.bucket,
            worker: lane.worker,
            counts: counts(self.unit.received(lane), self.unit.sent(lane)),
            aligned: lane.counts.aligned,
            redirected: lane.counts.redirected,
            dropped: drops::of_lane(lane),
        };
        let card = report.cards.iter().find(|card| card.host == host);
        Summary {
            version: 1,
            kind: "summary",
            service: self.service.name(),
            seconds: took.as_secs_f64(),
            unit: self.unit.name(),
            counts: counts(self.sum(&lanes, Unit::received), self.sum(&lanes, Unit::sent)),
            connections: report.total(host).tcp.connection_accepts,
            alignment: alignment(&lanes, &steering),
            misdirected: steering.misdirected,
            foreign_hashes: steering.foreign_hash,
            arrivals: arrivals::queues(report, host),
            card: card.map(|card| Card { counts: card.counts, strayed: card.strayed.map(Strayed::words) }),
            rebalance: moved.map(|(policy, counts)| Rebalance { policy: policy.to_owned(), counts }),
            ipfix: recorded.exported.map(|exported| Ipfix {
                sent: exported.sent,
                refused: exported.refused,
                lost: exported.lost,
            }),
            flow_log: recorded.logged.map(|logged| FlowLog {
                written: logged.written,
                files: logged.files,
                failed: logged.failed,
                lost: logged.lost,
            }),
            dropped: drops.iter().map(|d| d.count).sum(),
            drops: drops.iter().map(|d| (d.name.clone(), d.count)).collect(),
            buckets: lanes.iter().map(bucket).collect(),
        }
    }

    fn summary_text(
        &self,
        out: &mut impl Write,
        report: &Report,
        host: usize,
        took: Duration,
    ) -> io::Result<()> {
        let (lanes, drops) = (report.lanes(host), dropped(report, host));
        let ([received, sent], steering) = (self.unit.columns(), report.steering(host));
        writeln!(out, "in {}:", self.unit.name())?;
        // Of kernel sockets, connections and some datagrams are counted, where workers are bound to processors.
        let steered = steering.received > 0
            || lanes.iter().any(|lane| lane.counts.aligned + lane.counts.redirected > 0);
        let last = if steered { "    aligned" } else { "" };
        writeln!(out, "{:>6} {:>6} {received:>14} {sent:>14} {:>14}{last}", "bucket", "worker", "dropped")?;
        for lane in &lanes {
            let frames = lane.counts.aligned + lane.counts.redirected;
            let share = match frames {
                _ if !steered => String::new(),
                0 => format!("{:>11}", "-"),
                _ => format!("{:>9.1} %", lane.counts.aligned as f64 / frames as f64 * 100.0),
            };
            writeln!(
                out,
                "{:>6} {:>6} {:>14} {:>14} {:>14}{share}",
                lane.bucket,
                lane.worker,
                self.unit.received(lane),
                self.unit.sent(lane),
                drops::of_lane(lane),
            )?;
        }
        if steered {
            write!(out, "{}", arrivals::table(&arrivals::queues(report, host)))?;
        }
        if let Some(card) = report.cards.iter().find(|card| card.host == host).and_then(|c| {
            steering::card_in_words([
                c.counts.slots_moved,
                c.counts.refused,
                c.counts.followed,
                c.counts.set_again,
            ])
        }) {
            writeln!(out, "card: {card}")?;
        }
        for drop in &drops {
            writeln!(out, "dropped: {} {}", drop.count, drop.text)?;
        }
        if self.service.is_tcp() {
            writeln!(out, "connections: {}", report.total(host).tcp.connection_accepts)?;
        }
        writeln!(
            out,
            "{}: {received} {}, {sent} {}, dropped {}{}, {:.1} s",
            self.service.name(),
            self.sum(&lanes, Unit::received),
            self.sum(&lanes, Unit::sent),
            drops.iter().map(|d| d.count).sum::<u64>(),
            if steered {
                format!(", aligned {:.1} %", alignment(&lanes, &steering) * 100.0)
            } else {
                String::new()
            },
            took.as_secs_f64(),
        )
    }

    fn sum(&self, lanes: &[&LaneReport], of: fn(Unit, &LaneReport) -> u64) -> u64 {
        lanes.iter().map(|lane| of(self.unit, lane)).sum()
    }
}

/// All drops of the runtime and of this host, by reason.
fn dropped(report: &Report, host: usize) -> Vec<drops::Dropped> {
    drops::of_host(report, host).into_iter().chain(drops::of_runtime(report)).collect()
}

/// The share of frames that arrived on the worker of their bucket; empty if there are no frames, as on kernel sockets.
fn aligned(aligned: u64, frames: u64) -> String {
    if frames == 0 {
        return String::new();
    }
    format!(", aligned {:.1} %", aligned as f64 / frames as f64 * 100.0)
}

/// The share of frames that arrived on the worker of their bucket; of a host on kernel sockets that of connections and datagrams.
fn alignment(lanes: &[&LaneReport], steering: &SteeringStats) -> f64 {
    let counted = |of: fn(&LaneReport) -> u64| lanes.iter().map(|lane| of(lane)).sum::<u64>();
    match counted(|lane| lane.counts.aligned + lane.counts.redirected) {
        all if steering.received == 0 && all > 0 => counted(|lane| lane.counts.aligned) as f64 / all as f64,
        _ => steering.alignment(),
    }
}
