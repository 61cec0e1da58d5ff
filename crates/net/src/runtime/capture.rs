//! Starting and ending captures of a running runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{SystemTime, UNIX_EPOCH};

use super::handle::Handle;
use crate::capture::chunk::{LARGEST, Ring};
use crate::capture::{CaptureError, CaptureOptions, CaptureStatus, Filter, Interface, Tap, Writer};
use crate::shared::Message;

/// Least bytes of a frame, with which its flow can be told, and of a file.
const LEAST_SNAP: usize = 64;
const LEAST_FILE: u64 = 4096;

impl Handle {
    /// Starts a capture; its number. Frames that lanes receive, send and drop are copied on their workers and written by a thread of the
    /// capture. Nobody waits for it: what the thread is too slow for is counted and missing. It ends by [`Handle::stop_capture`], with the
    /// runtime, and as the options say. At most four run at once.
    ///
    /// # Errors
    /// See [`CaptureError`]. Then nothing is left behind.
    pub fn capture(&self, options: &CaptureOptions) -> Result<u64, CaptureError> {
        if !(LEAST_SNAP..=LARGEST / 2).contains(&options.snap) {
            return Err(CaptureError::Option("bytes of a frame to keep: from 64 to 32768"));
        }
        if options.max_bytes < LEAST_FILE {
            return Err(CaptureError::Option("size of a capture: at least 4096 bytes"));
        }
        let mut lanes = Vec::new();
        for (host, bucket) in &options.lanes {
            let index = self.lane(*host, *bucket);
            let index = index.ok_or(CaptureError::NoLane { host: *host, bucket: bucket.0 })?;
            lanes.resize(self.lane_count() as usize, false);
            lanes[index as usize] = true;
        }
        if self.has_ended() {
            return Err(CaptureError::Stopped);
        }
        let (interfaces, first_interface) = self.interfaces();
        let filter = Filter { lanes, flow: options.flow, drops_only: options.drops_only };
        self.shared().captures.add(|number| {
            let wall =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let tap = Arc::new(Tap {
                number,
                filter,
                snap: options.snap,
                rings: (0..self.workers()).map(|_| Ring::new()).collect(),
                epoch: wall.saturating_sub(self.now().as_nanos()),
                first_interface,
                over: AtomicBool::new(false),
                workers: AtomicUsize::new(self.workers()),
            });
            let shared = self.shared_arc();
            let end = move || {
                (0..shared.posts.len()).for_each(|w| shared.send(w, Message::EndCapture { number }));
            };
            let writer = Writer::start(options, &interfaces, tap.clone(), end)
                .map_err(|source| CaptureError::File { path: options.path.clone(), source })?;
            for worker in 0..self.workers() {
                self.shared().send(worker, Message::Capture(tap.clone()));
            }
            Ok(writer)
        })
    }

    /// Starts the captures of a runtime that is about to start. If it does not, nothing is left of them.
    pub(super) fn capture_all(&self, all: &[CaptureOptions]) -> Result<Begun, CaptureError> {
        let mut begun = Begun { handle: self.clone(), numbers: Vec::new() };
        for options in all {
            begun.numbers.push(self.capture(options)?);
        }
        Ok(begun)
    }

    /// What a capture has done so far. Asking for it shows that it is still wanted ([`CaptureOptions::lease`]).
    #[must_use]
    pub fn capture_status(&self, number: u64) -> Option<CaptureStatus> {
        self.shared().captures.status(number)
    }

    /// Ends a capture, and waits until its file is whole.
    pub fn stop_capture(&self, number: u64) -> Option<CaptureStatus> {
        self.shared().captures.stop(number)
    }

    /// The interfaces of a file: the links of each host, and behind them one for packets without a link's header. The number of the first of
    /// each host, and behind them of them all.
    fn interfaces(&self) -> (Vec<Interface>, Vec<u32>) {
        let (mut all, mut first) = (Vec::new(), Vec::new());
        for host in self.hosts() {
            first.push(all.len() as u32);
            all.extend(
                host.links
                    .iter()
                    .map(|link| Interface { name: link.clone(), description: format!("host {}", host.name) }),
            );
            all.push(Interface {
                name: "inside".to_owned(),
                description: format!(
                    "host {}: reassembled, or out of a tunnel; only what was dropped; the Ethernet header is added",
                    host.name
                ),
            });
        }
        first.push(all.len() as u32);
        (all, first)
    }
}

/// Captures whose runtime has not started yet. Dropped, they are given up, and their files removed.
#[derive(Debug)]
pub(super) struct Begun {
    handle: Handle,
    numbers: Vec<u64>,
}

impl Begun {
    /// The runtime has started.
    pub(super) fn go_on(mut self) {
        self.numbers.clear();
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        for number in self.numbers.drain(..) {
            self.handle.shared().captures.give_up(number);
        }
    }
}
