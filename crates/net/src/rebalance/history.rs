//! What is known of each lane's load: mean and variance since it last changed.
//!
//! A load that stays the same is known better each period, so that noise moves nothing. One that is elsewhere than the variance allows twice
//! in a row has changed, and what was known of it before is forgotten. Once does not count.

use std::collections::HashMap;

use flowlane_rss::Bucket;

use super::Observation;

/// Weight of the newest period at least, so that a load that drifts is followed.
const WEIGHT: f64 = 0.1;

/// Periods for which a lane is only watched.
const LEARNED: u32 = 2;

/// Standard deviations from the mean that are more than noise.
const ODD: f64 = 4.0;

/// Variance that is assumed at least: a tenth of a percent of a processor, squared.
const LEAST: f64 = 1e-6;

/// One lane over time.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    mean: f64,
    /// Of the load in one period.
    variance: f64,
    /// Periods since it changed.
    periods: u32,
    /// How far the last period was away, if it was more than noise.
    odd: Option<f64>,
    /// Rounds for which it stays where it is.
    rest: u32,
    /// Periods in all.
    seen: u32,
}

impl Past {
    fn add(&mut self, load: f64) {
        if self.periods == 0 {
            self.mean = load;
        }
        let by = load - self.mean;
        let limit = ODD * self.variance.max(LEAST).sqrt();
        // Guard: `self.periods > LEARNED && by.abs() > limit` as `false` fails
        // rebalance::simulation::a_hot_spot
        if self.periods > LEARNED && by.abs() > limit {
            match self.odd.replace(by).filter(|odd| odd.signum() == by.signum()) {
                None => return,
                Some(odd) => (self.mean, self.periods) = (self.mean + (odd + by) / 2.0, 2),
            }
        } else {
            self.periods += 1;
            let weight = self.weight();
            self.mean += weight * by;
            self.variance += weight * (by * by - self.variance);
        }
        self.odd = None;
    }

    /// Variance of the mean: of so many values, or of an exponentially weighted mean.
    fn error(&self) -> f64 {
        let weight = self.weight();
        if weight > WEIGHT { self.variance * weight } else { self.variance * weight / (2.0 - weight) }
    }

    fn weight(&self) -> f64 {
        WEIGHT.max(1.0 / f64::from(self.periods.max(1)))
    }
}

/// A lane as a decision sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    /// Its place in the observation.
    pub(super) lane: usize,
    pub(super) worker: usize,
    /// Share of a processor.
    pub(super) load: f64,
    /// Variance of that mean, as an estimate.
    pub(super) variance: f64,
    /// It may move.
    pub(super) movable: bool,
}

/// All lanes over time.
#[derive(Debug, Default)]
pub(super) struct History {
    lanes: HashMap<(usize, Bucket), Past>,
}

impl History {
    /// Takes in a period, and returns the lanes with what is known of them by now.
    pub(super) fn add(&mut self, seen: &Observation) -> Vec<Item> {
        let mut known = HashMap::with_capacity(seen.lanes.len());
        let items = seen.lanes.iter().enumerate().map(|(lane, now)| {
            let key = (now.host, now.bucket);
            let mut past = self.lanes.get(&key).copied().unwrap_or_default();
            past.add(now.load);
            past.rest = past.rest.saturating_sub(1);
            let variance = past.error();
            past.seen = past.seen.saturating_add(1);
            // Guard: `past.rest == 0` as `true` fails rebalance::simulation::a_hot_spot
            // rebalance::simulation::overload
            let movable = past.rest == 0 && past.seen > LEARNED;
            known.insert(key, past);
            Item { lane, worker: now.worker, load: past.mean, variance, movable }
        });
        let items = items.collect();
        self.lanes = known;
        items
    }

    /// A lane moves: it stays there for so many rounds.
    pub(super) fn rest(&mut self, seen: &Observation, lane: usize, rounds: u32) {
        let lane = &seen.lanes[lane];
        if let Some(past) = self.lanes.get_mut(&(lane.host, lane.bucket)) {
            past.rest = rounds;
        }
    }
}
