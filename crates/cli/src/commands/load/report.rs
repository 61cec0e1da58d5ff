//! What a run of the generator came to, for people and as JSON, and whether that was enough.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flowlane_load::{Counts, Outcome, Percentiles};
use serde::Serialize;

use super::udp::Udp;
use crate::drops;
use crate::units::{show_count, show_nanos};

/// Version of the JSON's shape: it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// Loss and the like of one lane.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Lane {
    bucket: u16,
    flows: usize,
    counts: Counts,
}

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    version: u32,
    command: &'static str,
    target: String,
    link: String,
    size: usize,
    open_loop: bool,
    seconds: f64,
    counts: Counts,
    sent_per_second: u64,
    received_per_second: u64,
    latency_ns: Percentiles,
    /// The generator's own lateness.
    slip_ns: Percentiles,
    slip_budget_ns: u64,
    slipped: bool,
    lanes: Vec<Lane>,
    /// Share of received frames that arrived on the worker of their bucket.
    alignment: f64,
    drops: BTreeMap<String, u64>,
    /// What was to be reached and was not.
    failed: Vec<String>,
    ok: bool,
}

impl Report {
    pub(super) fn new(
        udp: &Udp,
        outcome: &Outcome,
        counted: &flowlane::stats::Report,
        host: usize,
        open_loop: bool,
    ) -> Self {
        let slipped = open_loop && outcome.slipped();
        let mut failed: Vec<String> = outcome.failure.iter().cloned().collect();
        if slipped {
            let (p99_9, budget) = (outcome.slip.value_at_quantile(0.999), outcome.slip_budget());
            failed.push(format!(
                "the generator did not keep its schedule: slip p99.9 was {}, its budget {}",
                show_nanos(p99_9),
                show_nanos(budget)
            ));
        }
        failed.extend(udp.fail.iter().filter_map(|t| t.judge(outcome)));
        let lane =
            |l: &flowlane_load::LaneOutcome| Lane { bucket: l.bucket, flows: l.flows, counts: l.counts };
        Self {
            version: VERSION,
            command: "load udp",
            target: udp.target.to_string(),
            link: udp.near.link.to_string(),
            size: udp.size,
            open_loop,
            seconds: outcome.elapsed.as_secs_f64(),
            counts: outcome.counts,
            sent_per_second: outcome.sent_rate() as u64,
            received_per_second: outcome.received_rate() as u64,
            latency_ns: Percentiles::from(&outcome.latency),
            slip_ns: Percentiles::from(&outcome.slip),
            slip_budget_ns: outcome.slip_budget(),
            slipped,
            lanes: outcome.lanes.iter().map(lane).collect(),
            alignment: counted.steering(host).alignment(),
            drops: drops::by_reason(counted, &[("load", host)]),
            ok: failed.is_empty(),
            failed,
        }
    }

    /// What was missed, in one line.
    pub(super) fn failure(&self) -> Option<String> {
        (!self.ok).then(|| self.failed.join("; "))
    }

    /// The same for people.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let c = &self.counts;
        let flows: usize = self.lanes.iter().map(|l| l.flows).sum();
        writeln!(
            out,
            "{} bytes to {} over {} for {:.1} s: {} flows in {} lanes",
            self.size,
            self.target,
            self.link,
            self.seconds,
            flows,
            self.lanes.len()
        )?;
        writeln!(out, "sent        {:>13}  {:>11}/s", show_count(c.sent), show_count(self.sent_per_second))?;
        writeln!(
            out,
            "answered    {:>13}  {:>11}/s",
            show_count(c.received),
            show_count(self.received_per_second)
        )?;
        let share = if c.sent == 0 { 0.0 } else { c.lost as f64 / c.sent as f64 * 100.0 };
        writeln!(out, "lost        {:>13}  {share:>11.4} %", show_count(c.lost))?;
        for (name, count) in [
            ("late", c.late),
            ("reordered", c.reordered),
            ("duplicates", c.duplicates),
            ("corrupt", c.corrupt),
            ("strays", c.strays),
            ("unsent", c.unsent),
            ("held up", c.held_up),
        ] {
            if count > 0 {
                writeln!(out, "{name:<11} {:>13}", show_count(count))?;
            }
        }
        for (reason, count) in &self.drops {
            writeln!(out, "dropped     {:>13}  {reason}", show_count(*count))?;
        }
        times(out, "latency", &self.latency_ns)?;
        if self.open_loop {
            times(out, "slip", &self.slip_ns)?;
        }
        writeln!(out, "alignment   {:.2} %", self.alignment * 100.0)
    }
}

/// Percentiles in one line; nothing if nothing was measured.
pub(super) fn times(out: &mut impl Write, name: &str, p: &Percentiles) -> io::Result<()> {
    if p.count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "{name:<11} p50 {}, p90 {}, p99 {}, p99.9 {}, max {}, mean {}",
        show_nanos(p.p50),
        show_nanos(p.p90),
        show_nanos(p.p99),
        show_nanos(p.p99_9),
        show_nanos(p.max),
        show_nanos(p.mean)
    )
}
