//! The first task of each lane, and how these end: who waits for a runtime's own end waits here.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use flowlane_sys::caught;

use super::host::Main;
use crate::context;
use crate::error::Failed;

/// The first task of a lane. If it fails, the lane says so and remembers why; that it ended the runtime learns.
pub(crate) struct FirstTask {
    pub(crate) main: Main,
    pub(crate) host: Arc<str>,
    pub(crate) mains: Arc<Mains>,
}

impl Future for FirstTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let failed = match catch_unwind(AssertUnwindSafe(|| this.main.as_mut().poll_first(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(None)) => None,
            Ok(Poll::Ready(Some(words))) => Some(Failed { panicked: false, words }),
            Err(payload) => Some(Failed { panicked: true, words: caught::words(&*payload).to_owned() }),
        };
        let failed = failed.is_some_and(|failed| {
            let told = context::with_current(|slot, _| {
                let counts = failed.panicked || !slot.ending;
                if counts {
                    slot.fail(&this.host, failed);
                }
                counts
            });
            told.unwrap_or(false)
        });
        this.mains.ended(failed);
        Poll::Ready(())
    }
}

/// First tasks that have not ended, and whether one has failed. Each lane ends its first task once in its life, so a lock serves.
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
