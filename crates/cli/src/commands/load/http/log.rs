//! `--log-requests`: each request, or a share of them, as lines of JSON in a file, written while the run lasts.
//!
//! A thread of its own writes what the lanes hand over. A file that cannot take it, as on a full disk, is said once; the run goes on
//! without it and ends with exit code 1.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use anyhow::{Context, ensure};
use clap::Args;
use flowlane::written;
use flowlane_load::http::{Plan, Request};
use flowlane_load::report::requests::{Line, LogTo, log};

use crate::exit::note_unwritten;
use crate::say::say;

/// Options of the log of requests.
#[derive(Debug, Args)]
pub(super) struct LogOptions {
    /// Write each request to this file while the run lasts: a line of JSON with its times, status and error.
    #[arg(long, value_name = "FILE", conflicts_with = "find_rate", help_heading = "Report")]
    log_requests: Option<PathBuf>,
    /// Share of the requests that is written, evenly chosen: 1%, 0.01%.
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share, requires = "log_requests", help_heading = "Report")]
    log_share: f64,
}

/// A share above 0% and up to 100%.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("'{text}': a share is above 0% and at most 100%"))
}

/// The log of a run.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    file: File,
    share: f64,
}

/// The thread that writes it.
#[derive(Debug)]
pub(super) struct Writing(JoinHandle<()>);

impl LogOptions {
    /// Opens the file, if there is one: before privileges are given up and anything is sent.
    pub(super) fn open(&self) -> anyhow::Result<Option<Log>> {
        let Some(path) = &self.log_requests else { return Ok(None) };
        let option = || format!("--log-requests {}", path.display());
        ensure!(path.as_os_str() != "-", "{}: standard output is /dev/stdout here", option());
        let file = written::open_for_writing(path, 0o666).with_context(option)?;
        ensure!(!file.metadata().with_context(option)?.is_dir(), "{}: a directory", option());
        if file.metadata().is_ok_and(|found| found.is_file()) {
            file.set_len(0).with_context(option)?;
        }
        Ok(Some(Log { path: path.clone(), file, share: self.log_share }))
    }
}

impl Log {
    /// Begins to write what the lanes of a run of this plan send there.
    pub(super) fn begin(self, plan: &Plan) -> anyhow::Result<(LogTo, Writing)> {
        let (to, from) = log(self.share);
        let pools =
            plan.pools.iter().map(|p| (p.name.clone(), p.requests.iter().map(Request::title).collect()));
        let pools: Vec<(String, Vec<String>)> = pools.collect();
        let thread = std::thread::Builder::new().name("log-requests".into());
        let thread = thread.spawn(move || {
            if let Err(e) = write(self.file, &from, &pools) {
                let why = written::in_words(&e);
                say!("flowlane: --log-requests {}: {why}; the run goes on without it", self.path.display());
                note_unwritten();
                // So that no lane finds it full.
                from.iter().for_each(drop);
            }
        })?;
        Ok((to, Writing(thread)))
    }
}

impl Writing {
    /// Waits for the rest, once the run and all that could write to it are gone.
    pub(super) fn end(self) {
        // A panic there has been reported.
        let _ = self.0.join();
    }
}

fn write(file: File, from: &Receiver<Vec<Line>>, pools: &[(String, Vec<String>)]) -> io::Result<()> {
    let (mut file, mut text) = (BufWriter::with_capacity(1 << 16, file), String::new());
    for lines in from {
        text.clear();
        lines.iter().for_each(|line| line.write(pools, &mut text));
        file.write_all(text.as_bytes())?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        assert_eq!((share("1%"), share("100%")), (Ok(0.01), Ok(1.0)));
        for bad in ["0%", "101%", "1", "x%", "-1%", "nan%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
