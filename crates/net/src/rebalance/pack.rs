//! As few workers as the load needs, so that the others sleep.

use super::history::{History, Item};
use super::spread::{Limits, load_of, spread};
use super::{Observation, Policy, Step};

/// Gathers the lanes on as few workers as can carry them; a worker without lanes, and without a queue that packets come to, sleeps.
///
/// Workers are woken at once when those awake become busy, and sent to sleep one by one when fewer have been enough for
/// [`calm`](Self::calm) rounds. Among those awake load is spread evenly.
#[derive(Debug)]
pub struct Pack {
    /// Load that a worker is given on average, as a share of a processor (0.6).
    pub target: f64,
    /// Load of the busiest worker at which one more is woken (0.85).
    pub busy: f64,
    /// Mean load at which one less is enough (0.5).
    pub idle: f64,
    /// Rounds for which that has to hold (20).
    pub calm: u32,
    /// Most steps a round (8).
    pub steps: usize,
    /// Rounds that a lane stays where it was moved to (10).
    pub rest: u32,
    history: History,
    /// Workers with the lowest numbers that are awake; 0 before the first round.
    awake: usize,
    /// Rounds for which fewer have been enough.
    calm_for: u32,
}

impl Default for Pack {
    fn default() -> Self {
        Self {
            target: 0.6,
            busy: 0.85,
            idle: 0.5,
            calm: 20,
            steps: 8,
            rest: 10,
            history: History::default(),
            awake: 0,
            calm_for: 0,
        }
    }
}

impl Pack {
    /// Workers that are awake.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.awake
    }

    fn count(&mut self, items: &[Item], workers: usize) {
        let total: f64 = items.iter().map(|item| item.load).sum();
        if self.awake == 0 {
            self.awake = workers;
        }
        let busiest = (0..self.awake).map(|worker| load_of(items, worker)).fold(0.0, f64::max);
        let needed = ((total / self.target).ceil() as usize).clamp(1, workers);
        // A single lane that fills its worker is not helped by a further one.
        let shared = items.iter().all(|item| item.load < self.busy);
        let is_busy = busiest > self.busy && shared;
        // Guard: `needed > self.awake` as `false` fails rebalance::simulation::pack_wakes
        if needed > self.awake || is_busy && self.awake < workers {
            self.awake = needed.max(self.awake + 1).min(workers);
            self.calm_for = 0;
        }
        let fewer = self.awake - 1;
        let is_calm = fewer > 0 && needed <= fewer && total / fewer as f64 <= self.idle;
        self.calm_for = if is_calm { self.calm_for + 1 } else { 0 };
        // Guard: `self.calm_for > self.calm` as `true` fails rebalance::simulation::pack_wakes
        if self.calm_for > self.calm {
            self.awake = fewer;
            self.calm_for = 0;
        }
    }
}

impl Policy for Pack {
    fn name(&self) -> &'static str {
        "pack"
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Step> {
        let mut items = self.history.add(seen);
        self.count(&items, seen.workers);
        let mut steps = Vec::new();
        let mut leaving: Vec<usize> =
            (0..items.len()).filter(|&at| items[at].worker >= self.awake && items[at].movable).collect();
        leaving.sort_by(|&a, &b| items[b].load.total_cmp(&items[a].load));
        for at in leaving.into_iter().take(self.steps) {
            let loads = (0..self.awake).map(|worker| (worker, load_of(&items, worker)));
            let Some((to, _)) = loads.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            (items[at].worker, items[at].movable) = (to, false);
            steps.push(Step { lane: items[at].lane, worker: to });
        }
        let steps_left = self.steps - steps.len();
        let limits = Limits { ratio: 1.15, floor: self.target / 2.0, errors: 4.0, steps: steps_left };
        steps.extend(spread(&mut items, (0..self.awake).collect(), limits));
        steps.iter().for_each(|step| self.history.rest(seen, step.lane, self.rest));
        steps
    }
}
