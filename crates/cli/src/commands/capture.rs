//! `flowlane capture`: has a running instance write the frames of its lanes to a pcapng file, until ^C or as the options say.

use super::instance;
use crate::instruments::captures_to_a_file;
use crate::interrupt::Interrupt;
use crate::say::say;
use crate::stdout;
use crate::units;
use anyhow::{Context, anyhow, bail};
use flowlane::capture::FlowFilter;
use flowlane::control::{self, CaptureRequest, CaptureStart, CaptureView};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// How often the instance is asked how it goes.
const EVERY: Duration = Duration::from_millis(100);

/// Capture frames of a running instance, with lane, worker, hash and drop reason.
///
/// The instance writes the file, with its own rights, for its own user to read. Each packet has a comment that says what became of it. ^C ends
/// the capture, and the file is whole.
#[derive(Debug, clap::Args)]
pub(crate) struct Capture {
    /// File to write, in the format pcapng; not standard output.
    file: PathBuf,
    /// Overwrite a file that is there.
    #[arg(long)]
    overwrite: bool,
    /// Only lanes of these buckets: 3 or 0,3.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    lane: Vec<u16>,
    /// Only lanes of this host, if the instance has several.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Only this flow, both directions: 'udp 10.0.0.1:5 -> 10.0.0.2:7', 'tcp *:80', '10.0.0.2'.
    #[arg(long, value_name = "FLOW")]
    flow: Option<FlowFilter>,
    /// Only frames that are dropped.
    #[arg(long)]
    drops: bool,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = units::duration)]
    lasts: Option<Duration>,
    /// End when the file has this size.
    #[arg(long, value_name = "SIZE", default_value = "100M", value_parser = units::size)]
    max_size: usize,
    /// Bytes of each frame to keep, 64 to 32768.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    snap: usize,
    /// Control socket of the instance [default: that of the only instance of this user].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Capture {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        captures_to_a_file(&self.file).map_err(|e| anyhow!("{}: {e}", self.file.display()))?;
        let path = self.control.map_or_else(instance::only, Ok)?;
        let file = std::path::absolute(&self.file).with_context(|| self.file.display().to_string())?;
        let start = CaptureStart {
            path: file,
            overwrite: self.overwrite,
            host: self.host,
            lanes: self.lane,
            flow: self.flow.map(|flow| flow.to_string()),
            drops_only: self.drops,
            snap: Some(self.snap),
            max_bytes: Some(self.max_size as u64),
            lasts_ms: self.lasts.map(|lasts| lasts.as_millis() as u64),
        };
        let interrupt = Interrupt::listen()?;
        let ask = |request: &CaptureRequest| control::post::<CaptureView>(&path, "/v1/capture", request);
        let CaptureView { number, .. } = ask(&CaptureRequest::Start(start))?;
        say!("flowlane: capturing to {}; ^C ends it", self.file.display());
        let view = loop {
            std::thread::sleep(EVERY);
            let request = match interrupt.came() {
                true => CaptureRequest::Stop { number },
                false => CaptureRequest::Status { number },
            };
            let view = ask(&request)?;
            if view.ended.is_some() {
                break view;
            }
        };
        if let Some(error) = &view.error {
            bail!(crate::exit::Missed(format!(
                "{}: {error}; frames in it: {}",
                self.file.display(),
                view.frames
            )));
        }
        writeln!(stdout::lock(), "{}", in_words(&view))?;
        Ok(())
    }
}

/// One line about a capture that has ended.
pub(super) fn in_words(view: &CaptureView) -> String {
    let missed = match view.missed {
        0 => String::new(),
        missed => format!(", {missed} missed because the file could not be written as fast"),
    };
    let full = if view.ended.as_deref() == Some("full") { ", and the file is full" } else { "" };
    format!(
        "{}: {} frames, {} of them dropped, {} bytes{missed}{full}",
        view.path.display(),
        view.frames,
        view.dropped,
        view.bytes
    )
}
