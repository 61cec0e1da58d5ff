//! Lanes that move by themselves, away from workers that have more to do than others.
//!
//! The hash spreads flows, not work: a few long-lived connections that do much may all be in the lanes of one worker. [`Rebalancer`]
//! reads the load of each lane, asks a [`Policy`] which lanes should be elsewhere, and moves them.
//!
//! ```text
//!   counters of all lanes ──▶ Observation ──▶ Policy::decide ──▶ Steps ──▶ Handle::begin_move
//!        each period          load of each      Even, Pack                  the next round waits for them
//! ```
//!
//! A policy is a function of what it has been shown: it has no clock and no thread, so it is tested by simulation. The **load** of a
//! lane is the share of a period that its worker spent on it, 1 for a whole processor. A worker that has more to do than it can shows
//! a load of 1 however much waits; one move shows how much it was.
//!
//! What always holds: a policy proposes no step that does not lower the load of the busier of the two workers by [`GAIN`] at least; no
//! more than [`Even::steps`] steps a round; a lane that moved stays for [`Even::rest`] rounds.

mod even;
mod history;
mod pack;
mod rebalancer;
#[cfg(test)]
mod simulation;
mod spread;

use std::fmt::Debug;

use flowlane_rss::Bucket;

pub use even::Even;
pub use pack::Pack;
pub use rebalancer::{Counts, Rebalancer};
pub use spread::GAIN;

/// What a lane cost its worker during one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaneLoad {
    /// The host, by order of configuration.
    pub host: usize,
    /// The lane's bucket.
    pub bucket: Bucket,
    /// The worker that holds it.
    pub worker: usize,
    /// Share of a processor, 0 to 1.
    pub load: f64,
}

/// All lanes of a runtime in one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observation {
    /// Number of workers; those without a lane count, too.
    pub workers: usize,
    /// Every lane.
    pub lanes: Vec<LaneLoad>,
}

impl Observation {
    /// The load of each worker: the sum of its lanes.
    #[must_use]
    pub fn loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.workers];
        for lane in &self.lanes {
            loads[lane.worker] += lane.load;
        }
        loads
    }
}

/// One lane is to go to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its place in [`Observation::lanes`].
    pub lane: usize,
    /// Where it is to go.
    pub worker: usize,
}

/// Decides which lanes should move.
pub trait Policy: Send + Debug {
    /// Its name, as `--rebalance` takes it.
    fn name(&self) -> &'static str;

    /// Called once a period, with every lane. What it returned the last time has been tried, and the observation says what came of it.
    fn decide(&mut self, seen: &Observation) -> Vec<Step>;
}

/// The shipped policies by name: `even`, `pack`.
#[must_use]
pub fn policy(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "even" => Some(Box::new(Even::default())),
        "pack" => Some(Box::new(Pack::default())),
        _ => None,
    }
}
