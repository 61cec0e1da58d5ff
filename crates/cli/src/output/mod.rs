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

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use flowlane_load::Threshold;
use flowlane_load::report::{Run, files, html, text};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::address;
use crate::exit::Missed;
use crate::stdout;

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
    pub(crate) fn check<S: AsRef<str>>(&self, pools: &[S]) -> anyhow::Result<Made> {
        let mut made = Made(Vec::new());
        for threshold in &self.fail {
            threshold.check(pools).context("--fail")?;
        }
        let wanted = self.files();
        for (i, (option, path)) in wanted.iter().enumerate() {
            if let Some((other, _)) = wanted[..i].iter().find(|(_, p)| p == path) {
                bail!("{option} and {other} both write to {}", path.display());
            }
            match OpenOptions::new().write(true).create_new(true).open(path) {
                Ok(_) => made.0.push(path.to_path_buf()),
                Err(_) => drop(open(path).with_context(|| format!("{option} {}", path.display()))?),
            }
        }
        Ok(made)
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
        let mut out = stdout::lock();
        if self.json {
            files::json(run, &mut out)?;
        } else {
            text::table(run, &mut out)?;
        }
        out.flush()
    }
}

/// Files that were not there before the run. They are made before privileges are given up; those without a report are removed with this.
#[derive(Debug)]
#[must_use]
pub(crate) struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            if fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
                // An empty file does no harm.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Writes what an option asks for to its file. The file's room is allocated first, so that a full disk, or a limit on the size of files,
/// leaves the old content as it is; a file that cannot hold all of the report for another reason is left empty: half a report is none.
fn write_file(option: &str, path: &Path, run: &Run) -> io::Result<()> {
    let report = render(option, run)?;
    let mut file = open(path)?;
    let old = file.metadata()?;
    // Devices and pipes have no length to set.
    if !old.is_file() {
        return file.write_all(&report);
    }
    match fallocate(&file, FallocateFlags::empty(), 0, report.len() as u64) {
        // A file system without it finds out as it writes.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(e) => {
            file.set_len(old.len())?;
            return Err(e.into());
        }
    }
    let written = file.write_all(&report);
    file.set_len(if written.is_ok() { report.len() as u64 } else { 0 })?;
    written
}

fn render(option: &str, run: &Run) -> io::Result<Vec<u8>> {
    let mut report = Vec::new();
    match option {
        "--save" => files::json(run, &mut report)?,
        "--html" => html::page(run, &mut report)?,
        "--csv" => files::csv(run, &mut report)?,
        _ => files::hdr_log(run, &mut report)?,
    }
    Ok(report)
}

/// Opens a file for writing without truncating it: the old content stays until there is a report to replace it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}
