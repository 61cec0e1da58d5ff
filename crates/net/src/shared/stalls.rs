//! How often workers stood still, counted by the watchdog's thread and read on request.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::stats::{Stall, StallCounts, WatchdogReport};

/// Stalls that are kept with their traces.
const KEPT: usize = 8;

/// Nothing without a watchdog.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Mutex<Option<Counted>>);

/// What was counted.
#[derive(Debug)]
pub(crate) struct Counted {
    limit: Duration,
    pub(crate) workers: Vec<StallCounts>,
    last: VecDeque<Stall>,
}

impl Counted {
    /// A worker stands still.
    pub(crate) fn add(&mut self, stall: Stall) {
        if let Some(counts) = self.workers.get_mut(stall.worker) {
            counts.stalls += 1;
        }
        self.lasts(&stall);
        self.last.truncate(KEPT - 1);
        self.last.push_front(stall);
    }

    /// A stall has lasted for so long, or is over.
    pub(crate) fn lasts(&mut self, stall: &Stall) {
        if let Some(counts) = self.workers.get_mut(stall.worker) {
            counts.longest_nanos = counts.longest_nanos.max(stall.lasted.as_nanos() as u64);
        }
        let same = |kept: &&mut Stall| (kept.worker, kept.began) == (stall.worker, stall.began);
        if let Some(kept) = self.last.iter_mut().find(same) {
            (kept.lasted, kept.is_over) = (stall.lasted, stall.is_over);
        }
    }
}

impl Stalls {
    fn lock(&self) -> MutexGuard<'_, Option<Counted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A watchdog begins. What an earlier one counted stays.
    pub(crate) fn begin(&self, limit: Duration, workers: usize) {
        let mut counted = self.lock();
        let counted = counted.get_or_insert_with(|| Counted {
            limit,
            workers: vec![StallCounts::default(); workers],
            last: VecDeque::new(),
        });
        counted.limit = limit;
    }

    /// Counts something.
    pub(crate) fn count(&self, f: impl FnOnce(&mut Counted)) {
        if let Some(counted) = self.lock().as_mut() {
            f(counted);
        }
    }

    /// What was counted, if there is or was a watchdog.
    pub(crate) fn report(&self) -> Option<Box<WatchdogReport>> {
        let counted = self.lock();
        let counted = counted.as_ref()?;
        Some(Box::new(WatchdogReport {
            limit: counted.limit,
            workers: counted.workers.clone(),
            last: counted.last.iter().cloned().collect(),
        }))
    }
}
