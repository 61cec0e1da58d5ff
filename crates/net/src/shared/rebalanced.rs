//! What was done to balance the load of workers, counted by the thread that does it and read on request.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::RebalanceCounts;

/// See [`RebalanceCounts`].
#[derive(Debug, Default)]
pub(crate) struct Rebalanced {
    pub(crate) rounds: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Rebalanced {
    pub(crate) fn counts(&self) -> RebalanceCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RebalanceCounts {
            rounds: get(&self.rounds),
            unanswered: get(&self.unanswered),
            moves: get(&self.moves),
            failed: get(&self.failed),
        }
    }
}
