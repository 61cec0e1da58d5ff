//! `--capture FILE` of a service: a capture for as long as it runs.

use crate::say::say;
use crate::units;
use anyhow::anyhow;
use flowlane::Handle;
use flowlane::capture::{CaptureOptions, CaptureStatus, Ended};
use std::str::FromStr;

/// The file, and how much of it.
#[derive(Debug, Clone)]
pub(crate) struct CaptureTo(CaptureOptions);

impl FromStr for CaptureTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let path = words.next().unwrap_or_default();
        if path.is_empty() {
            return Err("a file is needed".into());
        }
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

/// A capture that runs.
#[derive(Debug)]
pub(super) struct Running {
    handle: Handle,
    number: u64,
}

impl CaptureTo {
    /// Makes the file, after privileges were given up, and starts.
    pub(super) fn start(&self, handle: Handle) -> anyhow::Result<Running> {
        let number = handle.capture(&self.0).map_err(|e| anyhow!("--capture {e}"))?;
        Ok(Running { handle, number })
    }
}

impl Running {
    /// The service does not start: what was made is removed.
    pub(super) fn give_up(self) {
        if let Some(status) = self.handle.stop_capture(self.number) {
            let _ = std::fs::remove_file(status.path);
        }
    }

    /// Says what is in the file, after the runtime has stopped.
    pub(super) fn end(self) {
        let Some(CaptureStatus { path, frames, dropped, bytes, missed, ended }) =
            self.handle.stop_capture(self.number)
        else {
            return;
        };
        let missed = if missed > 0 { format!(", {missed} missed") } else { String::new() };
        let full = if ended == Some(Ended::Full) { ", and it is full" } else { "" };
        say!(
            "flowlane: capture {}: {frames} frames, {dropped} of them dropped, {bytes} bytes{missed}{full}",
            path.display()
        );
    }
}
