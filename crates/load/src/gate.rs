//! The start line and the end of a run: lanes begin together, and stop when somebody says so.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time between the last lane's arrival and the start, nanoseconds: enough for all to see it.
const HEAD_START: u64 = 2_000_000;

/// What lanes of a run wait at.
#[derive(Debug)]
pub(crate) struct Gate {
    stop: AtomicBool,
    /// Lanes that take part.
    pub(crate) active: usize,
    ready: AtomicUsize,
    /// When all begin, nanoseconds; 0 until all are ready.
    start: AtomicU64,
}

impl Gate {
    /// For so many lanes.
    pub(crate) fn new(active: usize) -> Self {
        Self { stop: AtomicBool::new(false), active, ready: AtomicUsize::new(0), start: AtomicU64::new(0) }
    }

    /// Whether the run is to end now.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the run.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until every lane is ready, and returns when to begin; `None` if the run was stopped meanwhile.
    pub(crate) async fn start_line(&self) -> Option<u64> {
        let last = self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.active;
        if last {
            self.start.store(crate::lane::clock() + HEAD_START, Ordering::Release);
        }
        loop {
            let start = self.start.load(Ordering::Acquire);
            if start != 0 {
                return Some(start);
            }
            if self.stopped() {
                return None;
            }
            flowlane::sleep(Duration::from_micros(500)).await;
        }
    }
}

/// Waits until `active` lanes have told what they came to, or for no longer than `patience`; `tick` is called about
/// every `every` until it returns `false` to have the run stopped, which is told with the lanes.
pub(crate) fn gather<T>(
    outcomes: &mpsc::Receiver<T>,
    gate: &Gate,
    patience: Duration,
    every: Duration,
    mut tick: impl FnMut() -> bool,
) -> (Vec<T>, bool) {
    let begun = Instant::now();
    let (mut lanes, mut interrupted) = (Vec::new(), false);
    while lanes.len() < gate.active && begun.elapsed() < patience {
        match outcomes.recv_timeout(every) {
            Ok(lane) => lanes.push(lane),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if !interrupted && !tick() {
                    interrupted = true;
                    gate.stop();
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    (lanes, interrupted)
}
