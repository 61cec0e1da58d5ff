//! The common start and the end of a run: lanes start together, and stop when asked to.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time between the last lane's arrival and the start, nanoseconds, so that all lanes see the start time before it.
const HEAD_START: u64 = 2_000_000;

/// A barrier for the lanes of a run.
#[derive(Debug)]
pub(crate) struct Gate {
    stop: AtomicBool,
    /// Number of lanes that take part.
    pub(crate) active: usize,
    ready: AtomicUsize,
    /// Start time in nanoseconds; 0 until all lanes are ready.
    start: AtomicU64,
}

impl Gate {
    /// A barrier for `active` lanes.
    pub(crate) fn new(active: usize) -> Self {
        Self { stop: AtomicBool::new(false), active, ready: AtomicUsize::new(0), start: AtomicU64::new(0) }
    }

    /// Whether the run was stopped.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Stops the run.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until every lane is ready and returns the start time; `None` if the run was stopped meanwhile.
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

/// Waits for the results of `active` lanes, at most for `patience`. `tick` is called about every `every`; when it returns `false` the run
/// is stopped, which is returned with the results.
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
