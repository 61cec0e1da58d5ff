//! `flowlane flows`: the flows of a running instance with most packets or bytes. `flows on`, `flows off`: whether lanes keep them.
//!
//! The instance keeps them in tables of fixed size, so counts may be too high; how much at most is printed with them.

use super::instance;
use crate::stdout;
use crate::terminal::is_dumb;
use crate::units;
use anyhow::{bail, ensure};
use clap::{Subcommand, ValueEnum};
use flowlane::control::{self, FlowRow, FlowsView, WatchRequest};
use std::cmp::Reverse;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Show the flows with most packets or bytes.
///
/// Each lane keeps flows of UDP and TCP in a table of fixed size, both directions together. A count is never too low, and the output says
/// by how much it can be too high. The instance has to watch flows: start it with --top-flows, or say 'flowlane flows on'.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Flows {
    #[command(subcommand)]
    command: Option<What>,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Have the instance watch flows from now on.
    On(On),
    /// Have it watch flows no more, and forget them.
    Off(Off),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Packets,
    Bytes,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Number of flows to show, at most 10000.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    number: usize,
    /// What the flows are ordered by.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = By::Packets)]
    by: By,
    /// Repeat at this interval until stopped [default: 1s, if given without a value].
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = units::duration)]
    watch: Option<Duration>,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON, one document on each line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct On {
    /// Flows that each lane keeps by packets, and as many by bytes; 8 to 1048576.
    #[arg(long, value_name = "N", default_value_t = 256)]
    size: usize,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Off {
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Flows {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            None => self.show.run(),
            Some(What::On(On { size, control })) => watch(control, true, Some(size)),
            Some(What::Off(Off { control })) => watch(control, false, None),
        }
    }
}

fn watch(control: Option<PathBuf>, watch: bool, flows: Option<usize>) -> anyhow::Result<()> {
    let path = control.map_or_else(instance::only, Ok)?;
    let _: FlowsView = control::post(&path, "/v1/flows", &WatchRequest { watch, flows })?;
    let what = if watch { "are watched from now on" } else { "are not watched any more" };
    writeln!(stdout::lock(), "flows {what}")?;
    Ok(())
}

impl Show {
    fn run(self) -> anyhow::Result<()> {
        ensure!((1..=10_000).contains(&self.number), "-n {}: must be from 1 to 10000", self.number);
        if self.watch.is_some_and(|every| every < Duration::from_millis(10)) {
            bail!("--watch: must be at least 10ms");
        }
        let path = self.control.clone().map_or_else(instance::only, Ok)?;
        let clear = self.watch.is_some() && !self.json && io::stdout().is_terminal() && !is_dumb();
        loop {
            let mut view: FlowsView = control::get(&path, &format!("/v1/flows?n={}", self.number))?;
            ensure!(view.version == control::VERSION, "the instance speaks version {}", view.version);
            ensure!(
                view.watched,
                "the instance does not watch flows: say 'flowlane flows on', or start it with --top-flows"
            );
            self.order(&mut view);
            let mut out = stdout::lock();
            if self.json {
                writeln!(out, "{}", serde_json::to_string(&view)?)?;
            } else {
                if clear {
                    out.clear()?;
                }
                text(&mut out, &view, self.by)?;
            }
            out.flush()?;
            drop(out);
            let Some(every) = self.watch else { return Ok(()) };
            std::thread::sleep(every);
        }
    }

    /// Leaves the largest, in order. What is left out is in the bounds.
    fn order(&self, view: &mut FlowsView) {
        view.flows.sort_by_key(|row| Reverse(self.by.count(row).0));
        for row in view.flows.split_off(view.flows.len().min(self.number)) {
            view.packets_elsewhere = view.packets_elsewhere.max(row.packets);
            view.bytes_elsewhere = view.bytes_elsewhere.max(row.bytes);
        }
    }
}

impl By {
    /// The count, and by how much it may be too high.
    fn count(self, row: &FlowRow) -> (u64, u64) {
        match self {
            Self::Packets => (row.packets, row.packets_error),
            Self::Bytes => (row.bytes, row.bytes_error),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }
}

/// A number in at most five columns, rounded up: a bound stays one.
fn short(n: u64) -> String {
    let (mut value, mut unit) = (n as f64, 0);
    while value >= 999.5 {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    let unit_name = ["", "k", "M", "G", "T", "P", "E"][unit];
    match (unit, value) {
        (0, _) => n.to_string(),
        (_, ..9.995) => format!("{:.2}{unit_name}", (value * 100.0).ceil() / 100.0),
        (_, ..99.95) => format!("{:.1}{unit_name}", (value * 10.0).ceil() / 10.0),
        _ => format!("{:.0}{unit_name}", value.ceil()),
    }
}

fn text(out: &mut impl Write, view: &FlowsView, by: By) -> io::Result<()> {
    let FlowsView { packets, bytes, flows, .. } = view;
    writeln!(out, "{} packets, {} bytes counted, by {}", short(*packets), short(*bytes), by.name())?;
    let error = flows.iter().map(|row| by.count(row).1).max().unwrap_or(0);
    let elsewhere = match by {
        By::Packets => view.packets_elsewhere,
        By::Bytes => view.bytes_elsewhere,
    };
    if error == 0 {
        writeln!(out, "the counts of {} are exact", by.name())?;
    } else {
        writeln!(out, "a count of {} is at most {} too high (+)", by.name(), short(error))?;
    }
    writeln!(out, "a flow that is not listed has at most {} {}", short(elsewhere), by.name())?;
    if view.silent_lanes > 0 {
        writeln!(out, "lanes that did not answer, and are left out: {}", view.silent_lanes)?;
    }
    if flows.iter().any(|row| row.by_kernel) {
        writeln!(out, "kernel sockets tell bytes of data, without headers")?;
    }
    writeln!(
        out,
        "{:>7} {:>6} {:>6} {:>4} {:>5} {:>3}  ours, theirs",
        "packets", "bytes", "+", "in %", "lane", "on"
    )?;
    for row in flows {
        let all = (row.received_packets + row.sent_packets).max(1);
        let share = row.received_packets * 100 / all;
        let head = format!(
            "{:>7} {:>6} {:>6} {share:>4} {:>5} {:>3}",
            short(row.packets),
            short(row.bytes),
            short(by.count(row).1),
            row.bucket,
            row.worker
        );
        let flow = format!("{} {} {}", row.protocol, row.local, row.remote);
        if head.len() + 2 + flow.len() <= 80 {
            writeln!(out, "{head}  {flow}")?;
        } else {
            writeln!(out, "{head}  {} {}", row.protocol, row.local)?;
            writeln!(out, "{:>80}", row.remote)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_never_too_low() {
        for (n, is) in [
            (0, "0"),
            (999, "999"),
            (1000, "1.00k"),
            (1001, "1.01k"),
            (9_995, "10.0k"),
            (12_345, "12.4k"),
            (999_499, "1000k"),
            (999_500, "1.00M"),
            (u64::MAX, "18.5E"),
        ] {
            assert_eq!(short(n), is, "{n}");
        }
    }
}
