//! Output of the load commands: where the report goes, the conditions of `--fail`, and the display during a run.
//!
//! ```text
//!   Outputs::check(pools)              checks arguments and opens files, before a link is opened
//!   Outputs::watch(duration, pools)    a line, lines or a display during the run
//!   Outputs::write(run)                table or JSON on standard output, files, and the exit code
//! ```

mod display;
mod watch;
mod web;

pub(crate) use watch::Watch;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use flowlane_load::Threshold;
use flowlane_load::report::{Run, files, html, text};

use crate::address;
use crate::exit::Missed;

/// Options of the report.
#[derive(Debug, Args)]
pub(crate) struct Outputs {
    /// Fail the run (exit code 1) if this condition holds: 'p99 > 20ms', 'errors > 0.1%', 'pool=slow p99 > 2s'. May be repeated.
    #[arg(long, value_name = "CONDITION", help_heading = "Report")]
    fail: Vec<Threshold>,
    /// Print JSON (docs/schema/load-run.json) instead of the table.
    #[arg(long, help_heading = "Report")]
    json: bool,
    /// Write the report as JSON to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    save: Option<PathBuf>,
    /// Write a self-contained HTML page with plots to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
    /// Write the figures of each second as CSV to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    csv: Option<PathBuf>,
    /// Write the latencies of each second as an HdrHistogram log to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    hdr: Option<PathBuf>,
    /// Show a full-screen display during the run; without a terminal, print a line each second.
    #[arg(long, conflicts_with = "quiet", help_heading = "Report")]
    tui: bool,
    /// Print a line each second to standard error.
    #[arg(long, conflicts_with_all = ["quiet", "tui"], help_heading = "Report")]
    lines: bool,
    /// Serve a web page that shows the run, at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening, help_heading = "Report")]
    web: Option<SocketAddr>,
    /// Print nothing during the run.
    #[arg(long, short, help_heading = "Report")]
    quiet: bool,
}

impl Outputs {
    /// Checks before the run that conditions can be evaluated and files can be written after it.
    pub(crate) fn check<S: AsRef<str>>(&self, pools: &[S]) -> anyhow::Result<()> {
        for threshold in &self.fail {
            threshold.check(pools).context("--fail")?;
        }
        let wanted = self.files();
        for (i, (option, path)) in wanted.iter().enumerate() {
            if let Some((other, _)) = wanted[..i].iter().find(|(_, p)| p == path) {
                bail!("{option} and {other} both write to {}", path.display());
            }
            open(path).with_context(|| format!("{option} {}", path.display()))?;
        }
        Ok(())
    }

    fn files(&self) -> Vec<(&'static str, &Path)> {
        [("--save", &self.save), ("--html", &self.html), ("--csv", &self.csv), ("--hdr", &self.hdr)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
            .collect()
    }

    /// The conditions of `--fail`, for [`flowlane_load::report::About`].
    pub(crate) fn thresholds(&self) -> Vec<Threshold> {
        self.fail.clone()
    }

    /// Writes the report to all outputs. One that cannot be written takes none of the others with it: the run is over and cannot be had again.
    ///
    /// # Errors
    /// Files cannot be written, or a condition of `--fail` holds ([`Missed`]).
    pub(crate) fn write(&self, run: &Run) -> anyhow::Result<()> {
        let mut unwritten = Vec::new();
        for (option, path) in self.files() {
            if let Err(e) = write_file(option, path, run) {
                unwritten.push(format!("{option} {}: {e}", path.display()));
            }
        }
        let printed = self.print(run);
        if !unwritten.is_empty() {
            bail!(unwritten.join("; "));
        }
        // A failed run takes precedence over an error of printing.
        match run.failure() {
            Some(failure) => bail!(Missed(text::plain(&failure))),
            None => Ok(printed?),
        }
    }

    fn print(&self, run: &Run) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            files::json(run, &mut out)?;
        } else {
            text::table(run, &mut out)?;
        }
        out.flush()
    }
}

/// Writes what an option asks for to its file. A file that cannot hold all of it is left empty: half a report is none.
fn write_file(option: &str, path: &Path, run: &Run) -> io::Result<()> {
    let file = open(path)?;
    // Devices and pipes have no length to set.
    let has_length = file.metadata()?.is_file();
    if has_length {
        file.set_len(0)?;
    }
    let written = fill(option, run, &file);
    if written.is_err() && has_length {
        file.set_len(0)?;
    }
    written
}

fn fill(option: &str, run: &Run, file: &File) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    match option {
        "--save" => files::json(run, &mut out)?,
        "--html" => html::page(run, &mut out)?,
        "--csv" => files::csv(run, &mut out)?,
        _ => files::hdr_log(run, &mut out)?,
    }
    out.flush()
}

/// Opens a file for writing without truncating it: the old content stays until there is a report to replace it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}
