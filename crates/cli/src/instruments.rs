//! What is looked at while a service or a load runs: its counters and flows over a control socket, and its frames in a file.
//!
//! `serve` and every `load` have the same options. They are checked before anything is opened; the socket is opened next, the file of a
//! capture when privileges have been given up and before the first packet is handled.

use crate::exit;
use crate::lost;
use crate::recorders::{RecordOptions, Recorders, Recording};
use crate::say::say;
use crate::units;
use anyhow::{Context, bail, ensure};
use clap::Args;
use flowlane::capture::{CaptureOptions, CaptureStatus, Ended};
use flowlane::control::{self, Control, Listener, LoadRequest, LoadView};
use flowlane::stats::Report;
use flowlane::{Builder, Handle, Runtime, WatchFlows};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The options.
#[derive(Debug, Clone, Args)]
pub(crate) struct Instruments {
    /// Open a control socket for 'flowlane top', 'flowlane stat', 'flowlane lanes', 'flowlane flows' and 'flowlane capture'.
    #[arg(long, value_name = "PATH", num_args = 0..=1)]
    control: Option<Option<PathBuf>>,
    /// Keep the flows with most packets and bytes for 'flowlane flows', N of each in every lane [default: 256, if given without a value]. Kernel
    /// sockets need not be watched: they are asked.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "256")]
    top_flows: Option<usize>,
    /// Capture frames with lane, worker, hash and drop reason to this pcapng file, which is made. After it, separated by commas: max=100M,
    /// snap=128, drops (only what is dropped), overwrite.
    #[arg(long, value_name = "FILE")]
    capture: Option<CaptureTo>,
    #[command(flatten)]
    pub(crate) records: RecordOptions,
    #[arg(skip)]
    kept: Kept,
}

/// The control socket of a command that has one runtime after the other.
#[derive(Debug, Default)]
struct Kept(OnceCell<Listener>);

impl Clone for Kept {
    /// Another command opens its own.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Instruments {
    /// Checks the options; `kernel`: the run is on kernel sockets.
    pub(crate) fn check(&self, kernel: bool) -> anyhow::Result<()> {
        if let Some(n) = self.top_flows {
            ensure!((8..=1 << 20).contains(&n), "--top-flows {n}: must be from 8 to 1048576");
            ensure!(
                self.control.is_some(),
                "--top-flows: needs --control, through which 'flowlane flows' asks for them"
            );
        }
        if kernel && self.capture.is_some() {
            bail!("--capture: with kernel sockets packets are the kernel's; capture them with tcpdump");
        }
        Ok(())
    }

    /// Opens the control socket for as long as this lives: who asks between two runtimes is answered by the second.
    pub(crate) fn keep_open(&self) -> anyhow::Result<()> {
        if let Some(listener) = self.listen()? {
            let _ = self.kept.0.set(listener);
        }
        Ok(())
    }

    /// Opens the control socket, which answers once it is served.
    pub(crate) fn listen(&self) -> anyhow::Result<Option<Listener>> {
        if let Some(kept) = self.kept.0.get() {
            return Ok(Some(kept.try_clone()?));
        }
        Ok(self.control.as_ref().map(|path| control::listen(path.as_deref())).transpose()?)
    }

    /// Starts a runtime, looked at as the options say.
    pub(crate) fn start(&self, mut builder: Builder) -> anyhow::Result<(Runtime, Option<Capturing>)> {
        let capture = self.capture.as_ref().map(|to| builder.capture(to.0.clone()));
        let runtime = lost::start(builder)?;
        let capture = capture.map(|number| Capturing { handle: runtime.handle(), number, keep: false });
        let keep = self.top_flows.map(|n| WatchFlows::default().flows(n));
        keep.map(|keep| runtime.handle().watch_flows(Some(keep))).transpose().context("--top-flows")?;
        Ok((runtime, capture))
    }

    /// Starts the runtime of a load, and serves its control socket, over which the load is changed by `change`. `host`: whose records of flows go
    /// to the recorders.
    pub(crate) fn run<F>(
        &self,
        builder: Builder,
        name: &str,
        (host, recorders): (usize, Recorders),
        change: F,
    ) -> anyhow::Result<Looked>
    where
        F: Fn(&LoadRequest) -> Result<LoadView, String> + Send + Sync + 'static,
    {
        let listener = self.listen()?;
        let (runtime, capture) = self.start(builder)?;
        let control = listener.map(|l| l.serve_load(runtime.handle(), name, change)).transpose()?;
        let recording = recorders.start(&runtime.handle())?;
        Ok(Looked { control, capture, recording: (recording, host), runtime })
    }
}

/// A runtime that is looked at.
#[derive(Debug)]
pub(crate) struct Looked {
    control: Option<Control>,
    capture: Option<Capturing>,
    recording: (Recording, usize),
    runtime: Runtime,
}

impl Looked {
    pub(crate) fn handle(&self) -> Handle {
        self.runtime.handle()
    }

    /// Stops it, and says what was captured.
    pub(crate) fn stop(self) -> Report {
        let Self { control, capture, recording: (recording, host), runtime } = self;
        drop(control);
        let report = runtime.stop();
        if let Some(capture) = capture {
            capture.end();
        }
        recording.end(&report, host).say();
        report
    }
}

/// Whether a capture may go there: other output is on standard output, and that of the instance is not that of the command that asks it.
pub(crate) fn captures_to_a_file(path: &Path) -> Result<(), &'static str> {
    if path == Path::new("-") || path == Path::new("/dev/stdout") {
        return Err("captures go to files: name one, and 'tail -c +1 -f FILE | tshark -r -' reads along");
    }
    Ok(())
}

/// The file, and how much of it.
#[derive(Debug, Clone)]
struct CaptureTo(CaptureOptions);

impl FromStr for CaptureTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let path = words.next().unwrap_or_default();
        if path.is_empty() {
            return Err("a file is needed".into());
        }
        captures_to_a_file(Path::new(path))?;
        let bytes = |text: &str| units::size(text).map_err(|e| e.to_string());
        let mut options = CaptureOptions::new(path);
        for word in words {
            match (word, word.split_once('=')) {
                ("drops", _) => options.drops_only = true,
                ("overwrite", _) => options.overwrite = true,
                (_, Some(("max", size))) => options.max_bytes = bytes(size)? as u64,
                (_, Some(("snap", size))) => options.snap = bytes(size)?,
                _ => return Err(format!("'{word}': known are max=SIZE, snap=BYTES, drops and overwrite")),
            }
        }
        Ok(Self(options))
    }
}

/// A capture that runs. Dropped before its end it removes its file: the run did not come about.
#[derive(Debug)]
#[must_use]
pub(crate) struct Capturing {
    handle: Handle,
    number: u64,
    keep: bool,
}

impl Capturing {
    /// Says what is in the file, after the runtime has stopped.
    pub(crate) fn end(mut self) {
        self.keep = true;
        let Some(CaptureStatus { path, frames, dropped, bytes, missed, ended }) =
            self.handle.stop_capture(self.number)
        else {
            return;
        };
        let missed = if missed > 0 { format!(", {missed} missed") } else { String::new() };
        let full = match ended {
            Some(Ended::Full) => ", and it is full",
            Some(Ended::Failed(_)) => {
                // What went wrong was said when it did.
                exit::note_unwritten();
                ", and the rest could not be written"
            }
            _ => "",
        };
        say!(
            "flowlane: capture {}: {frames} frames, {dropped} of them dropped, {bytes} bytes{missed}{full}",
            path.display()
        );
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        if !self.keep
            && let Some(status) = self.handle.stop_capture(self.number)
        {
            let _ = std::fs::remove_file(status.path);
        }
    }
}
