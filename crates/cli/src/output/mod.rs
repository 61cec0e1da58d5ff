//! Output of the load commands: where the report goes, the conditions of `--fail`, and the display during a run.
//!
//! ```text
//!   Outputs::check(pools)              checks arguments and opens files, before a link is opened
//!   Outputs::watch(duration, pools)    a line, lines or a display during the run
//!   Outputs::write(run)                the last push, table or JSON on standard output, files, and the exit code
//! ```

mod display;
mod metrics;
mod push;
mod watch;
mod web;

pub(crate) use watch::Watch;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane::written;
use flowlane_load::find::burst::FoundBursts;
use flowlane_load::find::{self, Found};
use flowlane_load::report::model::{Counts, Ended};
use flowlane_load::report::{Abort, Run, ci, files, html, text};
use flowlane_load::{Phase, Threshold};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::Serialize;

use self::push::PushOptions;
use crate::address;
use crate::exit::{EndedBy, Missed, Slipped};
use crate::interrupt::Interrupt;
use crate::stdout;
use crate::units;

/// The signal of ^C.
const SIGINT: u8 = 2;

/// Options of the report.
#[derive(Debug, Args)]
pub(crate) struct Outputs {
    /// Fail the run (exit code 1) if this condition holds: 'p99 > 20ms', 'errors > 0.1%', 'pool=slow p99 > 2s'. May be repeated.
    #[arg(long, value_name = "CONDITION", help_heading = "Report")]
    fail: Vec<Threshold>,
    /// End the run as soon as a condition of --fail holds for what has passed, from this time of the run on [default: each condition once
    /// there are samples enough for it].
    #[arg(
        long,
        value_name = "AFTER",
        num_args = 0..=1,
        require_equals = true,
        value_parser = units::duration,
        requires = "fail",
        help_heading = "Report"
    )]
    abort: Option<Option<Duration>>,
    /// Print JSON instead of the table: the whole run, as --save writes it.
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
    /// Write the conditions as JUnit's XML to a file: a test for the run, for its schedule and for each --fail.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    junit: Option<PathBuf>,
    /// Write a summary in Markdown to a file, such as "$GITHUB_STEP_SUMMARY".
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    markdown: Option<PathBuf>,
    /// Show a full-screen display during the run; without a terminal, print a line each second.
    #[arg(long, conflicts_with = "quiet", help_heading = "Report")]
    tui: bool,
    /// Print a line each second to standard error.
    #[arg(long, conflicts_with_all = ["quiet", "tui"], help_heading = "Report")]
    lines: bool,
    /// Serve a web page that shows the run, at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening, help_heading = "Report")]
    web: Option<SocketAddr>,
    /// Serve /metrics of the run for Prometheus over HTTP, at this address, or at this port of 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::listening, help_heading = "Report")]
    metrics: Option<SocketAddr>,
    /// Print nothing during the run.
    #[arg(long, short, help_heading = "Report")]
    quiet: bool,
    #[command(flatten)]
    push: PushOptions,
}

impl Outputs {
    /// Checks before the run that conditions can be evaluated and files can be written after it.
    pub(crate) fn check<S: AsRef<str>>(&self, pools: &[S]) -> anyhow::Result<Made> {
        let mut made = Made(Vec::new());
        for threshold in &self.fail {
            threshold.check(pools).context("--fail")?;
        }
        self.push.check()?;
        let wanted = self.files();
        for (i, (option, path)) in wanted.iter().enumerate() {
            // Guard: `path.as_os_str() != "-"` as `true` fails cli/outputs::a_dash_is_no_file
            ensure!(
                path.as_os_str() != "-",
                "{option} -: standard output is /dev/stdout here; --json prints the report there"
            );
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

    /// Whether a condition may end a run.
    #[cfg(feature = "agents")]
    pub(crate) fn may_abort(&self) -> bool {
        self.abort.is_some()
    }

    /// The conditions that end a run of these phases and pools.
    fn abort(&self, phases: &[Phase], pools: &[String]) -> Option<Abort> {
        self.abort
            .map(|after| Abort::new(self.fail.clone(), after, &flowlane_load::timeline::shown(phases), pools))
    }

    /// Whether nothing is printed during runs.
    pub(crate) fn are_quiet(&self) -> bool {
        self.quiet
    }

    /// Writes what a search found to all outputs.
    ///
    /// # Errors
    /// Files cannot be written ([`Missed`]).
    pub(crate) fn write_found(&self, found: &Found) -> anyhow::Result<()> {
        let mut unwritten = Vec::new();
        for (option, path) in self.files() {
            let render = |report: &mut Vec<u8>| match option {
                "--html" => find::page(found, report),
                _ => json(found, report),
            };
            if let Err(e) = write_file(path, render) {
                unwritten.push(format!("{option} {}: {}", path.display(), written::in_words(&e)));
            }
        }
        let mut out = stdout::lock();
        if self.json {
            json(found, &mut out)?;
        } else {
            find::table(found, &mut out)?;
        }
        out.flush()?;
        if unwritten.is_empty() { Ok(()) } else { bail!(Missed(unwritten.join("; "))) }
    }

    /// Writes what a back-to-back benchmark found.
    ///
    /// # Errors
    /// The file cannot be written ([`Missed`]).
    pub(crate) fn write_bursts(&self, found: &FoundBursts) -> anyhow::Result<()> {
        let mut out = stdout::lock();
        if self.json {
            json(found, &mut out)?;
        } else {
            find::burst::summary(found, &mut out)?;
        }
        out.flush()?;
        for (option, path) in self.files() {
            if let Err(e) = write_file(path, |report| json(found, report)) {
                bail!(Missed(format!("{option} {}: {}", path.display(), written::in_words(&e))));
            }
        }
        Ok(())
    }

    fn files(&self) -> Vec<(&'static str, &Path)> {
        [
            ("--save", &self.save),
            ("--html", &self.html),
            ("--csv", &self.csv),
            ("--hdr", &self.hdr),
            ("--junit", &self.junit),
            ("--markdown", &self.markdown),
        ]
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
    /// Files cannot be written ([`Missed`]: the run was made, and what it showed is lost), a condition of `--fail` holds ([`Missed`]), the schedule was not kept ([`Slipped`]), or the run was ended
    /// early ([`EndedBy`]), by a signal or in the display, which counts as ^C: a run that was cut short has not shown that all is well.
    pub(crate) fn write(&self, run: &Run, interrupt: &Interrupt) -> anyhow::Result<()> {
        let pushed = self.push.last(run);
        let run = pushed.as_ref().unwrap_or(run);
        let mut unwritten = Vec::new();
        for (option, path) in self.files() {
            if let Err(e) = write_file(path, |report| render(option, run, report)) {
                unwritten.push(format!("{option} {}: {}", path.display(), written::in_words(&e)));
            }
        }
        let judged = self.judge(run, interrupt);
        if unwritten.is_empty() {
            return judged;
        }
        let lost =
            format!("the run is over and not all of its report could be written: {}", unwritten.join("; "));
        match judged {
            Ok(()) => bail!(Missed(lost)),
            Err(e) => match e.downcast::<EndedBy>() {
                Ok(EndedBy(signal, words)) => bail!(EndedBy(signal, format!("{words}; {lost}"))),
                Err(e) => bail!(Missed(format!("{e}; {lost}"))),
            },
        }
    }

    /// Prints the report, and says what the run missed.
    fn judge(&self, run: &Run, interrupt: &Interrupt) -> anyhow::Result<()> {
        let printed = self.print(run);
        // A failed run takes precedence over an error of printing.
        let failure = run.failure().map(|failure| text::plain(&failure));
        match (interrupt.signal(), failure) {
            (signal, failure) if signal.is_some() || run.ended == Ended::Interrupted => {
                let words = failure.unwrap_or_else(|| "ended before its time".to_owned());
                bail!(EndedBy(signal.unwrap_or(SIGINT), words))
            }
            (_, Some(failure)) if run.only_slipped() => bail!(Slipped(failure)),
            (_, Some(failure)) => bail!(Missed(failure)),
            (_, None) => Ok(printed?),
        }
    }

    fn print(&self, run: &Run) -> io::Result<()> {
        let mut out = stdout::lock();
        if self.json {
            files::json(run, &mut out)?;
        } else if !could_not_begin(run) {
            text::table(run, &mut out)?;
        }
        out.flush()
    }
}

/// Whether nothing was sent or connected in a run that failed: the reason in one line is all that there is to say.
fn could_not_begin(run: &Run) -> bool {
    let all = |f: fn(&Counts) -> u64| f(&run.total.counts) + f(&run.total.unmeasured);
    let refused = all(|c| c.connections_failed) > 0 && all(|c| c.connections_opened) == 0;
    // Guard: `refused && !run.ok` as `false` fails cli/load_target::where_no_route_leads
    refused && !run.ok || run.ended == Ended::Failed && all(|c| c.sent) == 0
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
fn write_file(path: &Path, render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut report = Vec::new();
    render(&mut report)?;
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

fn render(option: &str, run: &Run, report: &mut Vec<u8>) -> io::Result<()> {
    match option {
        "--save" => files::json(run, report),
        "--html" => html::page(run, report),
        "--csv" => files::csv(run, report),
        "--junit" => ci::junit(run, report),
        "--markdown" => ci::markdown(run, report),
        _ => files::hdr_log(run, report),
    }
}

fn json(found: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, found)?;
    writeln!(out)
}

/// Opens a file for writing without truncating it: the old content stays until there is a report to replace it.
fn open(path: &Path) -> io::Result<File> {
    written::open_for_writing(path, 0o666)
}
