//! All workers equally busy.

use super::history::History;
use super::spread::{Limits, spread};
use super::{Observation, Policy, Step};

/// Spreads load evenly over all workers.
///
/// It begins when the busiest worker has [`start`](Self::start) times the mean, clearly more than loads vary by, and then goes on until it has
/// [`enough`](Self::enough) times, or nothing has helped for as long as lanes rest. A worker whose one lane is hotter than the mean gets rid of
/// its other lanes and keeps that one to itself.
#[derive(Debug)]
pub struct Even {
    /// Load of the busiest worker at which it begins, in means (1.1).
    pub start: f64,
    /// Load of the busiest worker at which it is done, in means (1.03).
    pub enough: f64,
    /// A worker is left alone that is less busy than this, as a share of a processor (0.1).
    pub floor: f64,
    /// Most steps a round (16).
    pub steps: usize,
    /// Rounds that a lane stays where it was moved to (4).
    pub rest: u32,
    history: History,
    /// Rounds for which it goes on.
    acting: u32,
}

impl Default for Even {
    fn default() -> Self {
        Self {
            start: 1.1,
            enough: 1.03,
            floor: 0.1,
            steps: 16,
            rest: 4,
            history: History::default(),
            acting: 0,
        }
    }
}

impl Policy for Even {
    fn name(&self) -> &'static str {
        "even"
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Step> {
        let mut items = self.history.add(seen);
        // Guard: `self.acting > 0` as `false` fails rebalance::simulation::overload
        // rebalance::simulation::a_hot_spot
        let (ratio, errors) = if self.acting > 0 { (self.enough, 2.0) } else { (self.start, 4.5) };
        let limits = Limits { ratio, floor: self.floor, errors, steps: self.steps };
        let steps = spread(&mut items, (0..seen.workers).collect(), limits);
        steps.iter().for_each(|step| self.history.rest(seen, step.lane, self.rest));
        self.acting = if steps.is_empty() { self.acting.saturating_sub(1) } else { self.rest + 5 };
        steps
    }
}
