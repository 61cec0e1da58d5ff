//! Sleep and wake-up of a worker without lost wake-ups.
//!
//! There are three states, as in FreeBSD's epair, which lost wake-ups with fewer:
//!
//! ```text
//!             ring: "wake it"                  woke / cancel_sleep
//!   Sleeping ─────────────────▶ Waking ───────────────────────────▶ Running
//!      ▲                                                              │
//!      └──────────────────────── prepare_sleep ◀──────────────────────┘
//! ```
//!
//! The rule against lost wake-ups: the sleeper publishes `Sleeping`, then a full fence, then looks at every queue
//! once more, and sleeps only if all are empty. A waker enqueues, then a full fence, then reads the state. One of
//! the two must see the other's write. Without the fences both may read the old value (the store-load race of
//! FreeBSD's x86 idle loop), and the worker sleeps on work. Only the first ring of a sleep costs a system call.

use crate::sync::{AtomicU32, Ordering, fence};

const RUNNING: u32 = 0;
const SLEEPING: u32 = 1;
const WAKING: u32 = 2;

/// The state of one worker, shared with all threads that may wake it.
#[derive(Debug)]
pub struct Doorbell {
    state: AtomicU32,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl Doorbell {
    /// A doorbell of a running worker.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(RUNNING) }
    }

    /// To be called after work was put where the worker will look. `true`: the worker sleeps and this caller, and
    /// no other, must signal it.
    #[inline]
    #[must_use]
    pub fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.state.load(Ordering::Relaxed) == SLEEPING
            && self.state.compare_exchange(SLEEPING, WAKING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Worker: announces sleep. Afterwards it must look at every queue once more, and then either sleep or call
    /// [`Doorbell::woke`].
    #[inline]
    pub fn prepare_sleep(&self) {
        self.state.store(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Worker: it is awake again, whether it slept or found work at the last look. `true`: somebody rang, so a
    /// signal has been or is about to be sent and stays to be taken.
    #[inline]
    pub fn woke(&self) -> bool {
        self.state.swap(RUNNING, Ordering::AcqRel) == WAKING
    }
}
