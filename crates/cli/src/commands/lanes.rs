//! `flowlane lanes`: shows the lanes of a running instance with their worker and load. `lanes move`: moves a lane to another worker while
//! packets flow.

use super::instance;
use crate::document::{document, value};
use crate::stdout;
use crate::units;
use anyhow::bail;
use clap::Subcommand;
use flowlane::control::{self, MoveRequest, MoveView, ReportView};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Show the lanes of a running instance, and move them.
///
/// The load of a lane is the share of a processor's time that its worker spent on it during the interval: on packets, timers and tasks.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Lanes {
    #[command(subcommand)]
    command: Option<What>,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Move the lane of a bucket to another worker, with its sockets, timers and tasks.
    ///
    /// Packets continue to flow; none is lost or overtaken. Where the card's own table steers and may be changed, it is changed to deliver
    /// the lane's packets to the new worker.
    Move(Move),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Time over which load is measured.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
    interval: Duration,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Move {
    /// Bucket of the lane.
    bucket: u16,
    /// Number of the new worker.
    worker: usize,
    /// Host of the lane, if the instance has several.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Lanes {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            None => self.show.run(),
            Some(What::Move(command)) => command.run(),
        }
    }
}

fn path(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    given.map_or_else(instance::only, Ok)
}

impl Move {
    fn run(self) -> anyhow::Result<()> {
        let path = path(self.control)?;
        let asked = MoveRequest { host: self.host, bucket: self.bucket, worker: self.worker };
        let MoveView { host, bucket, from, worker, .. } = control::post(&path, "/v1/move", &asked)?;
        let what = if from == worker {
            format!("is on worker {worker} already")
        } else {
            format!("moved from worker {from} to worker {worker}")
        };
        writeln!(stdout::lock(), "{host}: the lane of bucket {bucket} {what}")?;
        Ok(())
    }
}

document! {
    /// The lanes of an instance, by host and bucket.
    Document {
        /// 1.
        version: u32,
        /// What it is.
        #[cfg_attr(test, schemars(extend("const" = "lanes")))]
        kind: &'static str,
        /// The lanes.
        lanes: Vec<Row>,
    }
    /// One lane.
    Row {
        /// The host.
        host: String,
        /// Its bucket.
        bucket: u16,
        /// The worker that has it.
        worker: usize,
        /// Share of a processor that its worker spent on it during the interval, 0 to 1; `None` for a lane that was not there before.
        load: Option<f64>,
        /// Connections of TCP, TIME-WAIT records not counted.
        connections: u64,
        /// Sockets of UDP.
        sockets: u64,
        /// Times it has moved.
        moves: u64,
    }
}

#[cfg(test)]
#[test]
fn schema_of_lanes() {
    let about = "The lanes of an instance, by host and bucket. New members may be added.";
    flowlane_schema::Made::new("lanes-v1", "flowlane lanes --json, version 1", about)
        .form::<Document>()
        .keep();
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        if self.interval < Duration::from_millis(10) {
            bail!("--interval: must be at least 10ms");
        }
        let path = path(self.control)?;
        let before: ReportView = control::get(&path, "/v1/report")?;
        std::thread::sleep(self.interval);
        let now: ReportView = control::get(&path, "/v1/report")?;
        let rows = rows(&before, &now);
        let mut out = stdout::lock();
        if self.json {
            writeln!(out, "{}", value(Document { version: 1, kind: "lanes", lanes: rows }))?;
        } else {
            text(&mut out, &rows, now.workers.workers.len())?;
        }
        out.flush()?;
        Ok(())
    }
}

fn rows(before: &ReportView, now: &ReportView) -> Vec<Row> {
    let passed = (now.instance.uptime_ms.saturating_sub(before.instance.uptime_ms)).max(1) as f64 * 1e6;
    let lanes = |report: &ReportView| {
        let mut all = Vec::new();
        for worker in &report.workers.workers {
            for host in &worker.hosts {
                all.extend(host.lanes.iter().map(|lane| (host.host.clone(), worker.worker, lane.clone())));
            }
        }
        all
    };
    let busy: HashMap<(String, u16), u64> = lanes(before)
        .into_iter()
        .map(|(host, _, lane)| ((host, lane.bucket), lane.counts.busy_nanos))
        .collect();
    let mut rows: Vec<Row> = lanes(now)
        .into_iter()
        .map(|(host, worker, lane)| Row {
            load: busy
                .get(&(host.clone(), lane.bucket))
                .map(|was| lane.counts.busy_nanos.saturating_sub(*was) as f64 / passed),
            host,
            bucket: lane.bucket,
            worker,
            connections: lane.counts.connections,
            sockets: lane.counts.sockets,
            moves: lane.counts.moves,
        })
        .collect();
    rows.sort_by(|a, b| (&a.host, a.bucket).cmp(&(&b.host, b.bucket)));
    rows
}

fn text(out: &mut impl Write, rows: &[Row], workers: usize) -> io::Result<()> {
    let percent = |load: Option<f64>| load.map_or("-".to_owned(), |load| format!("{:.1} %", load * 100.0));
    let width = rows.iter().map(|row| row.host.len()).max().unwrap_or(4).clamp(4, 24);
    writeln!(
        out,
        "{:<width$} {:>6} {:>6} {:>8} {:>11} {:>7} {:>6}",
        "host", "bucket", "worker", "load", "connections", "sockets", "moves"
    )?;
    for row in rows {
        writeln!(
            out,
            "{:<width$.width$} {:>6} {:>6} {:>8} {:>11} {:>7} {:>6}",
            row.host,
            row.bucket,
            row.worker,
            percent(row.load),
            row.connections,
            row.sockets,
            row.moves
        )?;
    }
    for worker in 0..workers {
        let load: f64 = rows.iter().filter(|row| row.worker == worker).filter_map(|row| row.load).sum();
        writeln!(out, "worker {worker}: {}", percent(Some(load)))?;
    }
    Ok(())
}
