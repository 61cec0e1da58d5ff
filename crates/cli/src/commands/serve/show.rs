//! What a service prints: a line for each worker, the flows, the summary. Text or JSON, one document a line.

use super::Service;
use super::flows::List;
use crate::drops;
use flowlane::stack_stats::LaneStats;
use flowlane::stats::{LaneReport, Report, WorkerReport};
use flowlane_rss::HashType;
use serde_json::json;
use std::io::{self, Write};
use std::time::Duration;

/// How to print.
#[derive(Debug)]
pub(super) struct Show {
    service: Service,
    json: bool,
}

/// What a worker did.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    received: u64,
    sent: u64,
    dropped: u64,
    redirected: u64,
}

impl Work {
    fn of(service: Service, worker: &WorkerReport) -> Self {
        let mut work = Self { dropped: drops::of_worker(worker), ..Self::default() };
        for lane in &worker.lanes {
            work.received += received(service, &lane.stats);
            work.sent += sent(service, &lane.stats);
            work.redirected += lane.redirected;
        }
        work
    }
}

impl Show {
    pub(super) fn new(service: Service, json: bool) -> Self {
        Self { service, json }
    }

    /// What each worker did between two reports.
    pub(super) fn interval(&self, before: &Report, after: &Report, took: Duration) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let second = took.as_secs_f64().max(1e-9);
        for worker in &after.workers {
            let now = Work::of(self.service, worker);
            let then = before.workers.iter().find(|w| w.worker == worker.worker);
            let then = then.map(|w| Work::of(self.service, w)).unwrap_or_default();
            // A lane that moved takes its counters along, so a difference may be negative: nothing then.
            let work = Work {
                received: now.received.saturating_sub(then.received),
                sent: now.sent.saturating_sub(then.sent),
                dropped: now.dropped.saturating_sub(then.dropped),
                redirected: now.redirected.saturating_sub(then.redirected),
            };
            let rate = (work.received as f64 / second).round() as u64;
            if self.json {
                let line = json!({
                    "version": 1, "kind": "interval", "worker": worker.worker, "seconds": second,
                    "received": work.received, "sent": work.sent, "dropped": work.dropped,
                    "redirected": work.redirected, per_second(self.service): rate,
                });
                writeln!(out, "{line}")?;
            } else {
                writeln!(
                    out,
                    "worker {}: {rate} {}/s, received {}, sent {}, redirected {}, dropped {}",
                    worker.worker,
                    unit(self.service),
                    work.received,
                    work.sent,
                    work.redirected,
                    work.dropped,
                )?;
            }
        }
        out.flush()
    }

    /// The flows so far.
    pub(super) fn flows(&self, list: &List) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let name = |number| HashType::from_u8(number).unwrap_or(HashType::None).name();
        if self.json {
            let flows: Vec<_> = list
                .flows
                .iter()
                .map(|f| {
                    json!({
                        "hash": f.hash, "type": name(f.hash_type), "type-number": f.hash_type,
                        "bucket": f.bucket, "count": f.count,
                    })
                })
                .collect();
            writeln!(
                out,
                "{}",
                json!({"version": 1, "kind": "flows", "flows": flows, "beyond": list.beyond})
            )?;
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

    /// Everything, at the end.
    pub(super) fn summary(&self, report: &Report, host: usize, took: Duration) -> io::Result<()> {
        let lanes = report.lanes(host);
        let total = report.total(host);
        let steering = report.steering(host);
        let drops: Vec<_> =
            drops::of_host(report, host).into_iter().chain(drops::of_runtime(report)).collect();
        let mut out = io::stdout().lock();
        if self.json {
            let drops: serde_json::Map<_, _> =
                drops.iter().map(|d| (d.name.clone(), d.count.into())).collect();
            let summary = json!({
                "version": 1, "kind": "summary", "service": self.service.name(), "seconds": took.as_secs_f64(),
                "received": received(self.service, &total), "sent": sent(self.service, &total),
                "connections": total.tcp.connection_accepts,
                "alignment": steering.alignment(), "misdirected": steering.misdirected,
                "drops": drops, "buckets": lanes.iter().map(|l| bucket_json(self.service, l)).collect::<Vec<_>>(),
            });
            writeln!(out, "{summary}")?;
            return out.flush();
        }
        writeln!(
            out,
            "{:>6} {:>6} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "bucket", "worker", "received", "sent", "aligned", "redirected", "dropped"
        )?;
        for lane in &lanes {
            writeln!(
                out,
                "{:>6} {:>6} {:>12} {:>12} {:>12} {:>12} {:>12}",
                lane.bucket,
                lane.worker,
                received(self.service, &lane.stats),
                sent(self.service, &lane.stats),
                lane.aligned,
                lane.redirected,
                drops::of_lane(&lane.stats),
            )?;
        }
        for drop in drops {
            writeln!(out, "dropped: {} {}", drop.count, drop.text)?;
        }
        if self.service.is_tcp() {
            writeln!(out, "connections: {}", total.tcp.connection_accepts)?;
        }
        writeln!(
            out,
            "{}: received {}, sent {}, alignment {:.1} %, {:.1} s",
            self.service.name(),
            received(self.service, &total),
            sent(self.service, &total),
            steering.alignment() * 100.0,
            took.as_secs_f64(),
        )?;
        out.flush()
    }
}

/// What a service's packets are called.
fn unit(service: Service) -> &'static str {
    if service.is_tcp() { "segments" } else { "datagrams" }
}

fn per_second(service: Service) -> &'static str {
    if service.is_tcp() { "segments-per-second" } else { "datagrams-per-second" }
}

fn received(service: Service, stats: &LaneStats) -> u64 {
    if service.is_tcp() { stats.tcp.packets_received } else { stats.udp.delivered }
}

fn sent(service: Service, stats: &LaneStats) -> u64 {
    if service.is_tcp() { stats.tcp.packets_sent } else { stats.udp.sent }
}

fn bucket_json(service: Service, lane: &LaneReport) -> serde_json::Value {
    json!({
        "bucket": lane.bucket, "worker": lane.worker, "received": received(service, &lane.stats),
        "sent": sent(service, &lane.stats), "aligned": lane.aligned, "redirected": lane.redirected,
        "dropped": drops::of_lane(&lane.stats),
    })
}
