//! The figures of a run at one time, by pool: of snapshots while it runs, of the report at its end.
//!
//! Both count all that happened, measured or not, so that counters only grow. Times are exact to 1 % and those of whole seconds; the report has
//! the last second, too.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use crate::report::live::Live;
use crate::report::model::{Counts, Part, Run};
use crate::report::series::small;
use crate::report::times::Times;

/// The time of day when this was asked first, and what has passed since: a clock that is set meanwhile changes nothing. A receiver refuses samples that are
/// older than the last, and times that are before the start.
pub(super) fn wall() -> SystemTime {
    static BEGUN: OnceLock<(SystemTime, Instant)> = OnceLock::new();
    let (day, begun) = BEGUN.get_or_init(|| (SystemTime::now(), Instant::now()));
    *day + begun.elapsed()
}

/// All figures at one time.
#[derive(Debug, Clone)]
pub struct State {
    pub(super) at: SystemTime,
    pub(super) pools: Vec<PoolState>,
}

/// Those of a pool.
#[derive(Debug, Clone)]
pub(super) struct PoolState {
    pub(super) name: String,
    pub(super) sent: u64,
    pub(super) answered: u64,
    pub(super) failed: u64,
    pub(super) bytes_received: u64,
    pub(super) concurrency: u64,
    /// All counts; `None` where snapshots have none, as those of agents.
    pub(super) counts: Option<Counts>,
    pub(super) latency: Times,
    pub(super) slip: Times,
}

impl State {
    /// What snapshots say so far of pools with these names.
    pub(crate) fn of_live(live: &Live, pools: &[String]) -> Self {
        let pools = pools.iter().enumerate().map(|(i, name)| PoolState::of_live(live, i, name)).collect();
        Self { at: wall(), pools }
    }

    /// What the report says.
    pub(crate) fn of_run(run: &Run) -> Self {
        Self { at: wall(), pools: run.pools.iter().map(PoolState::of_part).collect() }
    }
}

impl PoolState {
    fn of_live(live: &Live, pool: usize, name: &str) -> Self {
        let sums = live.sums(pool).cloned().unwrap_or_default();
        let mut state = Self {
            name: name.to_owned(),
            sent: 0,
            answered: 0,
            failed: 0,
            bytes_received: 0,
            concurrency: 0,
            counts: Some(Counts::default()),
            latency: sums.latency,
            slip: sums.slip,
        };
        for snapshot in live.newest(pool) {
            state.sent += snapshot.sent;
            state.answered += snapshot.answered;
            state.failed += snapshot.failed;
            state.bytes_received += snapshot.bytes_received;
            state.concurrency += snapshot.concurrency;
            // Counts of some lanes alone would be none of the pool.
            state.counts = match (state.counts.take(), &snapshot.passed) {
                (Some(mut counts), Some(passed)) => {
                    counts.add(&passed.all_counts());
                    Some(counts)
                }
                _ => None,
            };
        }
        state
    }

    fn of_part(part: &Part) -> Self {
        let mut counts = part.counts.clone();
        counts.add(&part.unmeasured);
        let mut latency = Times(small());
        part.intervals.iter().for_each(|times| latency.add(&times.0));
        Self {
            name: part.name.clone(),
            sent: counts.sent,
            answered: counts.answered,
            failed: counts.failed,
            bytes_received: counts.bytes_received,
            concurrency: 0,
            counts: Some(counts),
            latency,
            slip: part.slips.clone(),
        }
    }
}
