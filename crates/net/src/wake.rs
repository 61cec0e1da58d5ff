//! Waking a worker: its doorbell, and the descriptor it sleeps on.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use flowlane_sys::doorbell::Doorbell;
use rustix::event::{EventfdFlags, eventfd};

use crate::worker_id;

thread_local! {
    /// What this thread rang.
    static RINGS: Cell<Rings> = const { Cell::new(Rings { rung: 0, woke: 0 }) };
}

/// Doorbells that a thread rang.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    pub(crate) rung: u64,
    /// Of them, whose worker slept and was woken by this ring.
    pub(crate) woke: u64,
}

/// What the calling thread rang so far.
pub(crate) fn rings() -> Rings {
    RINGS.get()
}

/// One worker's doorbell with its bell wire.
#[derive(Debug)]
pub(crate) struct Wake {
    bell: Doorbell,
    fd: OwnedFd,
    runtime: u32,
    worker: usize,
}

impl Wake {
    /// Of a worker of the runtime with this number.
    pub(crate) fn new(runtime: u32, worker: usize) -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { bell: Doorbell::new(), fd, runtime, worker })
    }

    /// To be called after work was put where the worker will look. Costs a fence; a system call only when the worker
    /// sleeps and nobody else has woken it yet.
    #[inline]
    pub(crate) fn ring(&self) {
        // A worker does not wake itself: it looks at all its queues before it sleeps.
        if worker_id::is_worker(self.runtime, self.worker) {
            return;
        }
        let sleeps = self.bell.ring();
        let Rings { rung, woke } = RINGS.get();
        RINGS.set(Rings { rung: rung + 1, woke: woke + u64::from(sleeps) });
        if sleeps {
            self.signal();
        }
    }

    #[cold]
    fn signal(&self) {
        // The counter cannot overflow: the worker resets it, and only one ring a sleep gets here.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Worker: announces sleep; it must look for work once more before it waits.
    pub(crate) fn prepare_sleep(&self) {
        self.bell.prepare_sleep();
    }

    /// Worker: is awake again. `true` if somebody rang.
    pub(crate) fn woke(&self) -> bool {
        let rung = self.bell.woke();
        if rung {
            // The signal may still be on its way; then it cuts the next sleep short, which does no harm.
            let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        }
        rung
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
