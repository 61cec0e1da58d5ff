//! Changes of a running load: which loads can be changed, and how an engine follows.

use std::sync::Arc;

use super::engine::{Engine, Stage};
use super::plan::{Pace, Plan, Version};
use super::run::{Common, HttpLoad};
use crate::run::changes::{Change, Changed, Course, Unchanged};

/// Changes a load while it runs, from any thread.
#[derive(Debug, Clone)]
pub struct HttpChanger(Arc<Common>);

impl HttpLoad {
    /// What changes it while it runs.
    #[must_use]
    pub fn changer(&self) -> HttpChanger {
        HttpChanger(self.common.clone())
    }
}

impl HttpChanger {
    /// Changes it in all lanes at one moment, which is returned: it is 200 ms ahead.
    ///
    /// # Errors
    /// Why it cannot be changed.
    pub fn change(&self, change: Change) -> Result<Changed, Unchanged> {
        let Common { plan, gate, .. } = &*self.0;
        let rate = changeable(plan, change)?;
        if gate.is_held() {
            return Err(Unchanged::Part);
        }
        if gate.stopped() {
            return Err(Unchanged::Ending);
        }
        let (Some(start), Some(now)) = (gate.start(), gate.changes.now()) else {
            return Err(Unchanged::NotBegun);
        };
        let end = start + plan.duration().as_nanos() as u64;
        gate.changes.agree(change, now, Course { start, end, rate })
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
        let changes = &self.common.gate.changes;
        if changes.count() == self.changed || !matches!(self.stage, Stage::Run(_)) {
            return;
        }
        for bend in changes.after(self.changed) {
            self.changed += 1;
            for moments in self.pools.iter_mut().filter_map(|pool| pool.moments.as_mut()) {
                moments.change(bend.at, bend.factor, self.now);
            }
        }
    }
}
