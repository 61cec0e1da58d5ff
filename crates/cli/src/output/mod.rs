//! What load commands have in common: where a report goes, what is to be reached, and what there is to see meanwhile.
//!
//! ```text
//!   Outputs::check(pools)            arguments are sane, files can be written: before anything is opened
//!   Outputs::watch(from, duration)   a line, lines or a display while it runs
//!   Outputs::write(run)              table or JSON on standard output, files, and the exit code
//! ```

mod display;
mod watch;

pub(crate) use watch::Watch;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use flowlane_load::Threshold;
use flowlane_load::report::{Run, files, html, text};

use crate::exit::Missed;

/// Where a report goes and what is to be reached.
#[derive(Debug, Args)]
pub(crate) struct Outputs {
    /// Fail the run if this is so: 'p99 > 20ms', 'errors > 0.1%', 'pool=slow p99 > 2s'. May be repeated.
    #[arg(long, value_name = "CONDITION", help_heading = "Report")]
    fail: Vec<Threshold>,
    /// Print JSON (docs/schema/load-run.json) in place of the table.
    #[arg(long, help_heading = "Report")]
    json: bool,
    /// Write JSON to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    save: Option<PathBuf>,
    /// Write a page with plots to a file; it opens without a network.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    html: Option<PathBuf>,
    /// Write the seconds of the run as CSV to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    csv: Option<PathBuf>,
    /// Write the latencies of each second as an HdrHistogram log to a file.
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    hdr: Option<PathBuf>,
    /// Show a display on the terminal while it runs; without a terminal, a line for each second.
    #[arg(long, conflicts_with = "quiet", help_heading = "Report")]
    tui: bool,
    /// Print a line for each second to standard error.
    #[arg(long, conflicts_with_all = ["quiet", "tui"], help_heading = "Report")]
    lines: bool,
    /// Show nothing while it runs.
    #[arg(long, short, help_heading = "Report")]
    quiet: bool,
}

impl Outputs {
    /// Refuses, before the run, what could not be written or judged after it.
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

    /// What is to be reached, for [`flowlane_load::report::About`].
    pub(crate) fn thresholds(&self) -> Vec<Threshold> {
        self.fail.clone()
    }

    /// Writes everything that was asked for. An error when something was to be reached and was not.
    pub(crate) fn write(&self, run: &Run) -> anyhow::Result<()> {
        for (option, path) in self.files() {
            self.write_file(option, path, run).with_context(|| format!("{option} {}", path.display()))?;
        }
        let printed = self.print(run);
        // A run that missed its goal has missed it, whoever reads that.
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

    fn write_file(&self, option: &str, path: &Path, run: &Run) -> io::Result<()> {
        let file = open(path)?;
        // Devices and pipes have no length.
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        let mut out = BufWriter::new(file);
        match option {
            "--save" => files::json(run, &mut out)?,
            "--html" => html::page(run, &mut out)?,
            "--csv" => files::csv(run, &mut out)?,
            _ => files::hdr_log(run, &mut out)?,
        }
        out.flush()
    }
}

/// Opens a file to write, as it is: what it holds is replaced when there is something to replace it with.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}
