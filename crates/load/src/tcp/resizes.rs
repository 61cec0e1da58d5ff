//! How many connections there are from which moment on, as it was changed while the run lasts.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From a moment on there are so many connections.
#[derive(Debug, Clone)]
pub(super) struct Resize {
    /// When connections are opened or begin to leave, nanoseconds.
    pub(super) at: u64,
    /// From when on messages are dealt out to these connections, in [planned](super::lane::Lane::planned) time: once the last is to be begun.
    pub(super) from: u64,
    /// Of how many more or fewer than before it is, over all lanes.
    pub(super) before: u64,
    pub(super) all: u64,
    /// Which of all are the lane's.
    pub(super) mine: Range<u64>,
}

impl Resize {
    /// Connections of the lane.
    pub(super) fn count(&self) -> u64 {
        self.mine.end - self.mine.start
    }
}

/// Those of a lane. Connections ask for each message whether there is a new one, which costs them a relaxed load.
#[derive(Debug)]
pub(super) struct Resizes {
    all: Mutex<Vec<Resize>>,
    count: AtomicUsize,
    /// Those whose moment has come, and how many connections there are to be since.
    came: AtomicUsize,
    wanted: AtomicU64,
    /// Generators that are gone, as far as it has their connections.
    gone: AtomicUsize,
}

impl Resizes {
    /// `wanted`: connections of the lane at the start.
    pub(super) fn new(wanted: u64) -> Self {
        Self { all: Mutex::default(), count: 0.into(), came: 0.into(), wanted: wanted.into(), gone: 0.into() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Resize>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many were agreed.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The one that was agreed as this, counted from 0.
    #[inline]
    pub(super) fn nth(&self, nth: usize) -> Option<Resize> {
        if nth >= self.count() { None } else { self.lock().get(nth).cloned() }
    }

    /// Connections that the lane is to have.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Generators that are gone, as far as it has their connections.
    pub(super) fn gone(&self) -> usize {
        self.gone.load(Ordering::Relaxed)
    }

    /// There are to be so many, since so many generators are gone.
    pub(super) fn takes_over(&self, gone: usize, wanted: u64) {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.gone.store(gone, Ordering::Relaxed);
    }

    /// One was agreed.
    pub(super) fn add(&self, resize: Resize) {
        let mut all = self.lock();
        all.push(resize);
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Whether the moment of any has come since this was last asked.
    pub(super) fn come(&self, now: u64) -> bool {
        let before = self.came.load(Ordering::Relaxed);
        if before == self.count() {
            return false;
        }
        let all = self.lock();
        let came = all.iter().take_while(|resize| resize.at <= now).count();
        if came > before {
            self.wanted.store(all[came - 1].count(), Ordering::Relaxed);
            self.came.store(came, Ordering::Relaxed);
        }
        came > before
    }
}
