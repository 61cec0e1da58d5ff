//! Steps that make the busiest of some workers less busy.
//!
//! The busiest gives a lane to the least busy one, or exchanges one for some others, whichever lowers the higher of their two loads most.
//! That is repeated while it is worth it. A worker for which nothing more can be done, for example one with a single lane that is too hot to
//! share it, is left alone, and the others are compared among themselves.

use super::Step;
use super::history::Item;

/// A step lowers the load of the busier worker by this at least: a fifth of a percent of a processor.
pub const GAIN: f64 = 0.002;

/// Standard errors by which a step's gain is taken to be smaller than it seems.
const SURE: f64 = 1.5;

/// An exchange has to be so much better for each lane that comes instead of the one that goes.
const COST: f64 = 0.25;

/// Lanes that may come instead of one.
const BACK: usize = 8;

/// Lanes for which an exchange is looked for.
const CANDIDATES: usize = 8;

/// Two workers' lanes and what one has more than the other.
#[derive(Debug, Clone)]
struct Exchange {
    /// Goes from the busiest worker.
    away: usize,
    /// Come instead.
    back: Vec<usize>,
    /// What the higher load falls by.
    gain: f64,
}

impl Exchange {
    /// Its gain, less for each lane that has to move besides.
    fn worth(&self) -> f64 {
        self.gain / (1.0 + COST * self.back.len() as f64)
    }
}

/// What is spread and how far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The busiest worker may have so many times the mean.
    pub(super) ratio: f64,
    /// A worker with less load than this is not relieved.
    pub(super) floor: f64,
    /// The busiest worker has to have so many standard errors more than the least busy.
    pub(super) errors: f64,
    /// Most steps.
    pub(super) steps: usize,
}

/// Spreads the lanes of `workers` among them. `items` are changed to where they will be.
pub(super) fn spread(items: &mut [Item], mut workers: Vec<usize>, limits: Limits) -> Vec<Step> {
    let mut steps = Vec::new();
    while workers.len() > 1 && steps.len() < limits.steps {
        let loads: Vec<(usize, f64)> = workers.iter().map(|&w| (w, load_of(items, w))).collect();
        let mean = loads.iter().map(|(_, load)| load).sum::<f64>() / loads.len() as f64;
        let Some(&(hot, most)) = loads.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        let Some(&(cold, least)) = loads.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        // Guard: `most < limits.floor` as `false` fails rebalance::simulation::an_idle_machine
        if most < limits.floor || most <= mean * limits.ratio {
            break;
        }
        let gap = most - least;
        let error = error(items, [hot, cold]);
        let between = Between { hot, cold, gap, surely: gap - SURE * error };
        // Guard: `gap < limits.errors * error` as `false` fails rebalance::simulation::an_even_load
        let best = if gap < limits.errors * error { None } else { between.best(items) };
        let Some(exchange) = best else {
            workers.retain(|&w| w != hot);
            continue;
        };
        if steps.len() + 1 + exchange.back.len() > limits.steps {
            break;
        }
        let back = exchange.back.into_iter().map(|at| (at, hot));
        for (at, to) in std::iter::once((exchange.away, cold)).chain(back) {
            let item = &mut items[at];
            (item.worker, item.movable) = (to, false);
            steps.push(Step { lane: item.lane, worker: to });
        }
    }
    steps
}

/// The load of one worker.
pub(super) fn load_of(items: &[Item], worker: usize) -> f64 {
    items.iter().filter(|item| item.worker == worker).map(|item| item.load).sum()
}

/// The busiest worker and the least busy one.
#[derive(Debug, Clone, Copy)]
struct Between {
    hot: usize,
    cold: usize,
    /// What `hot` has more.
    gap: f64,
    /// That, less what may be chance.
    surely: f64,
}

/// Standard error of the difference of two workers' loads.
fn error(items: &[Item], workers: [usize; 2]) -> f64 {
    let both = items.iter().filter(|item| workers.contains(&item.worker));
    both.map(|item| item.variance).sum::<f64>().sqrt()
}

impl Between {
    /// The best exchange, if one is worth it: what moves `by` from one to the other lowers the higher of the two loads by `by`, or by what is
    /// then left of the gap. It counts as far as it is more than chance.
    fn best(&self, items: &[Item]) -> Option<Exchange> {
        let mut hot: Vec<usize> = self.movable(items, self.hot);
        let mut cold: Vec<usize> = self.movable(items, self.cold);
        hot.sort_by(|&a, &b| items[a].load.total_cmp(&items[b].load));
        cold.sort_by(|&a, &b| items[b].load.total_cmp(&items[a].load));
        let half = hot.partition_point(|&at| items[at].load < self.gap / 2.0);
        // One that is best alone stands next to half the gap. What is more than half can only go in exchange.
        let near = &hot[half.saturating_sub(1)..hot.len().min(half + 1)];
        let single =
            near.iter().map(|&away| Exchange { away, back: Vec::new(), gain: self.gain(items[away].load) });
        let double = hot[half..].iter().take(CANDIDATES).map(|&away| self.exchange(items, away, &cold));
        let found = single.chain(double).filter(|exchange| exchange.gain >= GAIN);
        found.max_by(|a, b| a.worth().total_cmp(&b.worth()))
    }

    fn movable(&self, items: &[Item], worker: usize) -> Vec<usize> {
        (0..items.len()).filter(|&at| items[at].worker == worker && items[at].movable).collect()
    }

    fn gain(&self, by: f64) -> f64 {
        by.min(self.surely - by)
    }

    /// A lane for as many of the others as bring the difference next to half the gap, from above or, by one of them, from below.
    fn exchange(&self, items: &[Item], away: usize, cold: &[usize]) -> Exchange {
        let too_much = items[away].load - self.gap / 2.0;
        let mut several = Vec::new();
        let mut left = too_much + GAIN;
        for &at in cold {
            if several.len() < BACK && (GAIN..=left).contains(&items[at].load) {
                several.push(at);
                left -= items[at].load;
            }
        }
        let more = cold.partition_point(|&at| items[at].load > too_much);
        let one = cold[..more].last().map(|&at| vec![at]);
        let found = [Some(several), one].into_iter().flatten().map(|back| {
            let all = || back.iter().map(|&at| &items[at]);
            let by = items[away].load - all().map(|item| item.load).sum::<f64>();
            let error = all().map(|item| item.variance).sum::<f64>() + items[away].variance;
            let is_more = by > SURE * error.sqrt();
            Exchange { away, gain: if is_more { self.gain(by) } else { 0.0 }, back }
        });
        let nothing = Exchange { away, back: Vec::new(), gain: 0.0 };
        found.max_by(|a, b| a.worth().total_cmp(&b.worth())).unwrap_or(nothing)
    }
}
