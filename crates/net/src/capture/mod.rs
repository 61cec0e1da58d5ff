//! Captures while a runtime runs: frames that lanes receive, send and drop, in a pcapng file, with what Flowlane knows of each.
//!
//! ```text
//!   worker ── chunk of records ──▶ ring ──▶ writer: a thread for each capture ──▶ FILE.pcapng
//!     ▲────────── empty chunk ◀── ring ◀──────┘
//! ```
//!
//! A worker copies the frames that the `Filter` lets through into a chunk of its own and passes it on when it is full, old, or before it
//! sleeps (`chunk`). All chunks are made when the capture starts; if the writer has none ready, frames are counted and not copied, and the
//! worker goes on. Without a capture a worker looks at one empty list for each frame and turn. `pcapng` is the format, `writer` the
//! thread, and what workers do is in `runtime/worker/captures.rs`.

pub(crate) mod chunk;
mod filter;
mod pcapng;
mod registry;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use flowlane_rss::Bucket;

pub(crate) use filter::Filter;
pub use filter::{BadFilter, FlowFilter};
pub(crate) use pcapng::Interface;
pub(crate) use registry::Captures;
pub(crate) use writer::Writer;
pub use writer::{CaptureStatus, Ended};

use self::chunk::Ring;

/// What to capture, and where to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CaptureOptions {
    /// The file.
    pub path: PathBuf,
    /// Whether a file that is there is overwritten.
    pub overwrite: bool,
    /// Lanes by host and bucket; empty: all.
    pub lanes: Vec<(usize, Bucket)>,
    /// Only this flow, both directions.
    pub flow: Option<FlowFilter>,
    /// Only frames that are dropped.
    pub drops_only: bool,
    /// Bytes of a frame at most.
    pub snap: usize,
    /// Bytes of the file at most.
    pub max_bytes: u64,
    /// How long it lasts at most.
    pub lasts: Option<Duration>,
    /// It ends when nobody has asked for its status for so long.
    pub lease: Option<Duration>,
}

impl CaptureOptions {
    /// Bytes of a frame by default.
    pub const SNAP: usize = 128;
    /// Bytes of a file by default.
    pub const MAX_BYTES: u64 = 100_000_000;

    /// All frames, 128 bytes of each, up to 100 MB.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            overwrite: false,
            lanes: Vec::new(),
            flow: None,
            drops_only: false,
            snap: Self::SNAP,
            max_bytes: Self::MAX_BYTES,
            lasts: None,
            lease: None,
        }
    }
}

/// Why a capture could not begin: one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file cannot be made.
    #[error("{}: {}", .path.display(), in_words(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such lane.
    #[error("there is no bucket {bucket} of host {host}")]
    NoLane {
        /// Number of the host.
        host: usize,
        /// The bucket.
        bucket: u16,
    },
    /// A number makes no sense.
    #[error("{0}")]
    Option(&'static str),
    /// There are as many as there may be.
    #[error("four captures run already: stop one first")]
    TooMany,
    /// The runtime has stopped.
    #[error("the runtime has stopped")]
    Stopped,
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "a file is there already, and only overwritten with 'overwrite'".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A capture as workers see it.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) number: u64,
    pub(crate) filter: Filter,
    pub(crate) snap: usize,
    /// Of each worker.
    pub(crate) rings: Vec<Ring>,
    /// Nanoseconds from 1970 to the zero of the runtime's clock.
    pub(crate) epoch: u64,
    /// First interface of each host in the file. The one behind its last is for packets without a link's header.
    pub(crate) first_interface: Vec<u32>,
    /// It is over: nothing more is copied.
    pub(crate) over: AtomicBool,
    /// Workers that may still send chunks.
    pub(crate) workers: AtomicUsize,
}

/// Makes the file, for nobody else to read.
fn create(path: &Path, overwrite: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match overwrite {
        // Guard: `options.create_new(true).open(path)` as `options.create(true).open(path)` fails
        // capture::tests::a_full_file_is_whole
        false => options.create_new(true).open(path),
        true => {
            let file = crate::written::open_for_writing(path, 0o600)?;
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("is no regular file"));
            }
            file.set_len(0)?;
            Ok(file)
        }
    }
}
