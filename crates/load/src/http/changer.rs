//! Changes of a running load: which loads can be changed, and how an engine follows.

use std::time::Duration;

use super::engine::{Engine, Stage};
use super::plan::{Pace, Plan, Version};
use super::run::{Common, HttpLoad};
use crate::run::changer::{Changeable, Changer};
use crate::run::changes::{Change, Unchanged};
use crate::run::gate::Gate;

impl HttpLoad {
    /// What changes it while it runs.
    #[must_use]
    pub fn changer(&self) -> Changer {
        Changer::of(self.common.clone())
    }
}

impl Changeable for Common {
    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn duration(&self) -> Duration {
        self.plan.duration()
    }

    fn rate(&self, change: Change) -> Result<f64, Unchanged> {
        changeable(&self.plan, change)
    }
}

/// The rate of a plan that can be changed so; 0 if its pools have several.
fn changeable(plan: &Plan, change: Change) -> Result<f64, Unchanged> {
    let mut rates = Vec::with_capacity(plan.pools.len());
    for pool in &plan.pools {
        if pool.replay.is_some() {
            return Err(Unchanged::Recorded);
        }
        let Pace::Rate { per_second, .. } = pool.pace else { return Err(Unchanged::Closed) };
        if matches!(pool.version, Version::Http2 { .. } | Version::Http3 { .. }) {
            return Err(Unchanged::Streams);
        }
        rates.push(per_second);
    }
    match (&rates[..], change) {
        ([rate], _) => Ok(*rate),
        (_, Change::Rate(_)) => Err(Unchanged::SeveralPools),
        _ => Ok(0.0),
    }
}

impl Engine {
    /// Bends the schedules as was agreed since it was last asked.
    pub(super) fn bend(&mut self) {
        if !matches!(self.stage, Stage::Run(_)) {
            return;
        }
        for moments in self.pools.iter_mut().filter_map(|pool| pool.moments.as_mut()) {
            moments.bend(&self.common.gate.changes, self.now);
        }
    }
}
