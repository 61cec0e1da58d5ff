//! `POST /v1/capture`: starts a capture, tells how one goes, and ends one.
//!
//! The instance writes the file, with its own rights: the path has to be absolute. A capture that was started here ends when nobody has asked
//! for it for ten seconds, so that one whose client has disappeared does not go on.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::capture::{CaptureOptions, CaptureStatus, Ended};
use crate::{Bucket, Handle};

/// How long a capture goes on without being asked for.
const LEASE: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do", deny_unknown_fields)]
pub enum CaptureRequest {
    /// To start a capture.
    Start(CaptureStart),
    /// To tell how one goes. Asking keeps it going.
    Status {
        /// Its number.
        number: u64,
    },
    /// To end one.
    Stop {
        /// Its number.
        number: u64,
    },
}

/// A capture that is to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CaptureStart {
    /// The file, from the root on.
    pub path: PathBuf,
    /// Whether a file that is there is overwritten.
    #[serde(default)]
    pub overwrite: bool,
    /// Host of the lanes; `None`: the only one, or all.
    #[serde(default)]
    pub host: Option<String>,
    /// Buckets of the lanes; empty: all.
    #[serde(default)]
    pub lanes: Vec<u16>,
    /// Only this flow ([`FlowFilter`](crate::capture::FlowFilter)).
    #[serde(default)]
    pub flow: Option<String>,
    /// Only what is dropped.
    #[serde(default)]
    pub drops_only: bool,
    /// Bytes of a frame.
    #[serde(default)]
    pub snap: Option<usize>,
    /// Bytes of the file.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Milliseconds that it lasts.
    #[serde(default)]
    pub lasts_ms: Option<u64>,
}

/// How a capture goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CaptureView {
    /// [`VERSION`].
    pub version: u32,
    /// Its number.
    pub number: u64,
    /// The file.
    pub path: PathBuf,
    /// Frames in the file.
    pub frames: u64,
    /// Of them, those that were dropped.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Frames that are missing because the disk or the writer was too slow.
    pub missed: u64,
    /// Why it ended: `stopped`, `time`, `full`, `forgotten` or `failed`; `None` while it runs.
    pub ended: Option<String>,
    /// What the system said, if it failed.
    pub error: Option<String>,
}

impl CaptureView {
    fn new(number: u64, status: CaptureStatus) -> Self {
        let CaptureStatus { path, frames, dropped, bytes, missed, ended } = status;
        let error = match &ended {
            Some(Ended::Failed(why)) => Some(why.clone()),
            _ => None,
        };
        let ended = ended.map(|ended| {
            let word = match ended {
                Ended::Stopped => "stopped",
                Ended::Time => "time",
                Ended::Full => "full",
                Ended::Forgotten => "forgotten",
                Ended::Failed(_) => "failed",
            };
            word.to_owned()
        });
        Self { version: VERSION, number, path, frames, dropped, bytes, missed, ended, error }
    }
}

/// Does what is asked for.
pub(super) fn capture(asked: &CaptureRequest, handle: &Handle) -> Result<CaptureView, String> {
    let unknown = |number: u64| format!("there is no capture {number}");
    let (number, status) = match asked {
        CaptureRequest::Start(start) => {
            let number = handle.capture(&options(start, handle)?).map_err(|e| e.to_string())?;
            (number, handle.capture_status(number))
        }
        CaptureRequest::Status { number } => (*number, handle.capture_status(*number)),
        CaptureRequest::Stop { number } => (*number, handle.stop_capture(*number)),
    };
    status.map(|status| CaptureView::new(number, status)).ok_or_else(|| unknown(number))
}

fn options(start: &CaptureStart, handle: &Handle) -> Result<CaptureOptions, String> {
    if !start.path.is_absolute() {
        return Err(format!("{}: must be a path from the root on", start.path.display()));
    }
    let hosts = handle.hosts();
    if hosts.iter().all(|host| host.kernel) {
        return Err("packets of kernel sockets are the kernel's: capture them with tcpdump".into());
    }
    let named = |name: &String| {
        let names = hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = hosts.iter().position(|host| host.name == *name);
        found.ok_or_else(|| format!("there is no host '{name}', but {names}"))
    };
    let host = start.host.as_ref().map(named).transpose()?;
    let mut options = CaptureOptions::new(&start.path);
    options.overwrite = start.overwrite;
    options.lanes = match (host, &start.lanes[..]) {
        (None, []) => Vec::new(),
        (None, _) if hosts.len() > 1 => return Err("there are several hosts: name one with --host".into()),
        (host, []) => {
            let host = host.unwrap_or(0);
            (0..hosts[host].rss.buckets.len()).map(|b| (host, Bucket(b as u16))).collect()
        }
        (host, lanes) => lanes.iter().map(|b| (host.unwrap_or(0), Bucket(*b))).collect(),
    };
    let flow =
        start.flow.as_ref().map(|flow| flow.parse().map_err(|e: crate::capture::BadFilter| e.to_string()));
    options.flow = flow.transpose()?;
    options.drops_only = start.drops_only;
    options.snap = start.snap.unwrap_or(options.snap);
    options.max_bytes = start.max_bytes.unwrap_or(options.max_bytes);
    options.lasts = start.lasts_ms.map(Duration::from_millis);
    options.lease = Some(LEASE);
    Ok(options)
}
