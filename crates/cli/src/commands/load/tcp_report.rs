//! What a run over TCP came to, for people and as JSON, and whether that was enough.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flowlane::stack_stats::TcpStats;
use flowlane_load::tcp::TcpCounts;
use flowlane_load::{Percentiles, TcpOutcome};
use serde::Serialize;

use super::report::times;
use super::tcp::{ModeName, Tcp};
use crate::drops;
use crate::units::{show_count, show_nanos};

/// Version of the JSON's shape: it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// One lane.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Lane {
    bucket: u16,
    counts: TcpCounts,
}

/// What our side's TCP counted, in segments.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Segments {
    sent: u64,
    received: u64,
    retransmitted: u64,
    retransmit_timeouts: u64,
    out_of_order: u64,
    resets_received: u64,
}

/// All of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    version: u32,
    command: &'static str,
    target: String,
    link: String,
    mode: &'static str,
    connections: usize,
    size: usize,
    open_loop: bool,
    /// How long was measured: after the ramp, before the end.
    seconds: f64,
    counts: TcpCounts,
    failed_connections: u64,
    answers_per_second: u64,
    written_bits_per_second: u64,
    read_bits_per_second: u64,
    connect_ns: Percentiles,
    first_byte_ns: Percentiles,
    latency_ns: Percentiles,
    /// The generator's own lateness.
    slip_ns: Percentiles,
    slip_budget_ns: u64,
    slipped: bool,
    segments: Segments,
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
        tcp: &Tcp,
        connections: usize,
        outcome: &TcpOutcome,
        counted: &flowlane::stats::Report,
        host: usize,
    ) -> Self {
        let open_loop = tcp.open_loop();
        let slipped = open_loop && outcome.slipped();
        let counts = outcome.counts;
        let mut failed: Vec<String> = outcome.failure.iter().cloned().collect();
        if counts.begun > 0 && counts.connected == 0 {
            let why =
                if counts.refused > 0 { "refuses: is a service on this port?" } else { "does not answer" };
            failed.push(format!("{} {why} ({} connections tried)", tcp.target, show_count(counts.begun)));
        }
        if counts.corrupt > 0 {
            failed.push(format!("{} connections brought other bytes than were sent", counts.corrupt));
        }
        if slipped {
            let (p99_9, budget) = (outcome.times.slip.value_at_quantile(0.999), outcome.slip_budget());
            failed.push(format!(
                "the generator did not keep its schedule: slip p99.9 was {}, its budget {}",
                show_nanos(p99_9),
                show_nanos(budget)
            ));
        }
        failed.extend(tcp.fail.iter().filter_map(|t| t.judge(outcome)));
        let (written, read) = outcome.bits_per_second();
        let lane = |l: &flowlane_load::tcp::TcpLaneOutcome| Lane { bucket: l.bucket, counts: l.counts };
        Self {
            version: VERSION,
            command: "load tcp",
            target: tcp.target.to_string(),
            link: tcp.near.link.to_string(),
            mode: tcp.mode.name(),
            connections,
            size: tcp.size(),
            open_loop,
            seconds: outcome.elapsed().as_secs_f64(),
            counts,
            failed_connections: counts.failed(),
            answers_per_second: outcome.answer_rate() as u64,
            written_bits_per_second: written as u64,
            read_bits_per_second: read as u64,
            connect_ns: Percentiles::from(&outcome.times.connect),
            first_byte_ns: Percentiles::from(&outcome.times.first_byte),
            latency_ns: Percentiles::from(&outcome.times.latency),
            slip_ns: Percentiles::from(&outcome.times.slip),
            slip_budget_ns: outcome.slip_budget(),
            slipped,
            segments: segments(&counted.total(host).tcp),
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
        writeln!(
            out,
            "{} connections to {} over {} for {:.1} s: {}, {} bytes a message, {} lanes",
            show_count(self.connections as u64),
            self.target,
            self.link,
            self.seconds,
            self.mode,
            self.size,
            self.lanes.len()
        )?;
        writeln!(out, "connected   {:>13}  of {} begun", show_count(c.connected), show_count(c.begun))?;
        writeln!(out, "completed   {:>13}", show_count(c.completed))?;
        let rates = [
            ("answers", c.answers, format!("{}/s", show_count(self.answers_per_second))),
            ("written", c.bytes_written, format!("{}bit/s", show_count(self.written_bits_per_second))),
            ("read", c.bytes_read, format!("{}bit/s", show_count(self.read_bits_per_second))),
        ];
        for (name, count, rate) in rates.iter().filter(|(_, count, _)| *count > 0) {
            writeln!(out, "{name:<11} {:>13}  {rate:>13}", show_count(*count))?;
        }
        let share = |n: u64| if c.begun == 0 { 0.0 } else { n as f64 / c.begun as f64 * 100.0 };
        let failed = self.failed_connections;
        writeln!(out, "failed      {:>13}  {:>11.4} %", show_count(failed), share(failed))?;
        for (name, count) in [
            ("refused", c.refused),
            ("reset", c.reset),
            ("timed out", c.timed_out),
            ("unreachable", c.unreachable),
            ("no answer", c.no_answer),
            ("not begun", c.not_begun),
            ("closed early", c.closed_early),
            ("corrupt", c.corrupt),
            ("unfinished", c.unfinished),
            ("standing", if self.mode == ModeName::Hold.name() { c.standing } else { 0 }),
            ("late", c.late),
            ("unsent", c.unsent),
            ("held up", c.held_up),
            ("resent", self.segments.retransmitted),
        ] {
            if count > 0 {
                writeln!(out, "{name:<12}{:>13}", show_count(count))?;
            }
        }
        for (reason, count) in &self.drops {
            writeln!(out, "dropped     {:>13}  {reason}", show_count(*count))?;
        }
        times(out, "connect", &self.connect_ns)?;
        times(out, "first byte", &self.first_byte_ns)?;
        times(out, "latency", &self.latency_ns)?;
        if self.open_loop {
            times(out, "slip", &self.slip_ns)?;
        }
        writeln!(out, "alignment   {:.2} %", self.alignment * 100.0)
    }
}

fn segments(tcp: &TcpStats) -> Segments {
    Segments {
        sent: tcp.packets_sent,
        received: tcp.packets_received,
        retransmitted: tcp.packets_retransmitted,
        retransmit_timeouts: tcp.retransmit_timeouts,
        out_of_order: tcp.out_of_order_packets,
        resets_received: tcp.resets_received,
    }
}
