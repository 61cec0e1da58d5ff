//! How the first tasks of all lanes end: who waits for a runtime's own end waits here.
//!
//! Each lane ends its first task once in its life, so a lock serves.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// First tasks that have not ended, and whether one has failed.
#[derive(Debug)]
pub(crate) struct Mains {
    left: Mutex<Left>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy)]
struct Left {
    tasks: usize,
    failed: bool,
}

impl Mains {
    /// So many have been begun, or will be.
    pub(crate) fn new(tasks: usize) -> Self {
        Self { left: Mutex::new(Left { tasks, failed: false }), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One has ended, maybe badly.
    pub(crate) fn ended(&self, failed: bool) {
        let mut left = self.lock();
        left.tasks = left.tasks.saturating_sub(1);
        left.failed |= failed;
        self.changed.notify_all();
    }

    /// Waits until all have ended or one has failed.
    pub(crate) fn wait(&self) {
        let mut left = self.lock();
        while left.tasks > 0 && !left.failed {
            left = self.changed.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
