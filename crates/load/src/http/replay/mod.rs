//! Replay: requests that were recorded, sent again at their own times.
//!
//! ```text
//!   HAR, access log or capture ▸ Builder ▸ Recording ▸ a pool's schedule: each request is due at its recorded offset
//! ```
//!
//! A file is recognised by its first bytes: a HAR by `{`, a capture (pcap, pcapng) by its magic number, and anything else is an access log
//! in the common or combined format. What cannot be replayed is counted by its [`Reason`]; only a file without any request is refused.
//!
//! Files are read as streams, and a request that comes often is kept once: see [`Recording`] for what it costs in memory.
//!
//! A recording is dealt to the connections of a run one request after the other, so that each request is sent by one lane alone.

mod access;
mod builder;
mod capture;
mod date;
mod har;
mod pcap;
mod reason;
mod recording;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub use reason::{Reason, Skipped};
pub use recording::Recording;
pub(super) use recording::{Lines, MOST_TOGETHER, Parts};

use builder::Builder;

/// Largest HAR file: a text of one request may be as long as the file, and is in memory as a whole.
const LARGEST_HAR: u64 = 1 << 30;

/// The mark of byte order that some write before JSON.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What a recording is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// HTTP Archive, JSON, as browsers export it.
    Har,
    /// An access log in the common or combined format.
    Log,
    /// A capture of packets: pcap or pcapng.
    Capture,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "har" => Ok(Self::Har),
            "log" => Ok(Self::Log),
            "capture" => Ok(Self::Capture),
            _ => Err(format!("'{text}': har, log or capture")),
        }
    }
}

impl Format {
    /// The format in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Har => "HAR",
            Self::Log => "access log",
            Self::Capture => "capture",
        }
    }

    /// By the first bytes of a file.
    fn of(begin: &[u8]) -> Result<Self, String> {
        if begin.starts_with(b"\x1f\x8b") {
            return Err(
                "it is compressed: gunzip -c FILE | flowlane load http ... --replay /dev/stdin".into()
            );
        }
        if begin.trim_ascii_start().starts_with(b"{") {
            return Ok(Self::Har);
        }
        Ok(if pcap::is_capture(begin) { Self::Capture } else { Self::Log })
    }
}

/// How a recording is read and replayed.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Its format; by the file's content if `None`.
    pub format: Option<Format>,
    /// How many times faster than recorded; 0 counts as 1.
    pub speed: f64,
    /// Only requests to this host.
    pub host: Option<String>,
    /// Header fields of every request, in the place of those of the same name.
    pub fields: Vec<(String, String)>,
    /// No more than these.
    pub most: Option<u64>,
    /// Only what is due within this time of the replay.
    pub within: Option<Duration>,
}

/// Reads a recording.
///
/// # Errors
/// The file cannot be read, or nothing in it can be replayed, in one line.
pub fn read(path: &Path, wishes: &Wishes) -> Result<Recording, String> {
    let in_words = |e: io::Error| e.to_string();
    let kind = std::fs::metadata(path).map_err(in_words)?;
    if kind.is_dir() {
        return Err("it is a directory".into());
    }
    if !kind.is_file() && !kind.file_type().is_fifo() {
        return Err("neither a file nor a pipe: a device may have no end".into());
    }
    let file = File::open(path).map_err(in_words)?;
    flowlane::written::note_read(&file).keep();
    parse(file, wishes)
}

/// The same from anything that can be read.
///
/// # Errors
/// Nothing in it can be replayed, in one line.
pub fn parse(input: impl Read, wishes: &Wishes) -> Result<Recording, String> {
    let mut input = BufReader::with_capacity(1 << 18, input);
    let begin = input.fill_buf().map_err(|e| e.to_string())?;
    if begin.is_empty() {
        return Err("it is empty".into());
    }
    if begin.starts_with(BOM) {
        input.consume(BOM.len());
    }
    let begin = input.buffer();
    let format = wishes.format.map_or_else(|| Format::of(begin), Ok)?;
    let mut builder = Builder::new(format, wishes);
    match format {
        Format::Har => {
            let mut input = input.take(LARGEST_HAR);
            let read = har::read(&mut input, &mut builder);
            if input.limit() == 0 {
                return Err("a HAR file of more than 1 GiB is not read: export it in parts".into());
            }
            read?;
        }
        Format::Log => access::read(input, &mut builder)?,
        Format::Capture => capture::read(input, &mut builder)?,
    }
    builder.finish(wishes)
}

#[cfg(test)]
mod tests;
