//! Changes of a running load: which loads can be changed, and how an engine follows.

use std::time::Duration;

use super::conn::Conn;
use super::engine::{Engine, Stage};
use super::plan::{Pace, Plan};
use super::run::{Common, HttpLoad};
use super::stages::start_tasks;
use crate::run::changer::{Changeable, Changer};
use crate::run::changes::{Change, Unchanged};
use crate::run::gate::Gate;
use crate::run::part::even;

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
        if let Change::Connections(n) = change {
            let lanes = self.lanes_taking_part().filter(|takes| *takes).count() as u32;
            // Guard: `n < lanes` as `false` fails load/http::changer::connections_of_streams
            if n < lanes {
                return Err(Unchanged::FewConnections(lanes));
            }
        }
        changeable(&self.plan, change)
    }
}

/// The rate of a plan that can be changed so; 0 if its pools have several.
fn changeable(plan: &Plan, change: Change) -> Result<f64, Unchanged> {
    if let Change::Connections(_) = change {
        let [pool] = &plan.pools[..] else { return Err(Unchanged::OtherConnections) };
        return Ok(if let Pace::Rate { per_second, .. } = pool.pace { per_second } else { 0.0 });
    }
    let mut rates = Vec::with_capacity(plan.pools.len());
    for pool in &plan.pools {
        if pool.replay.is_some() {
            return Err(Unchanged::Recorded);
        }
        let Pace::Rate { per_second, .. } = pool.pace else { return Err(Unchanged::Closed) };
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

    /// Has as many connections from now on as was agreed since it was last asked: its share among the lanes that had any.
    pub(super) fn resize(&mut self) {
        let common = self.common.clone();
        let Some((times, all)) = common.gate.changes.size(self.resized, self.now) else { return };
        self.resized = times;
        let lane = usize::from(self.bucket);
        let takes: Vec<bool> = common.lanes_taking_part().collect();
        let before = takes[..lane].iter().filter(|takes| **takes).count();
        let lanes = takes.iter().filter(|takes| **takes).count();
        let Some(pool) = self.pools.first_mut() else { return };
        let wanted = even(all.into(), before, lanes) as u32;
        let had = pool.wanted;
        // Guard: no `pool.wanted = wanted;` fails load/http::changer::connections_are_opened_and_closed
        pool.wanted = wanted;
        if let Some(shared) = &pool.beside {
            let more = shared.resize(had, wanted);
            return start_tasks(shared, pool.plan.pool.version, more);
        }
        if pool.plan.pool.pace != Pace::Closed {
            pool.allowed = wanted;
        }
        // Numbers that are not needed any more stay vacant.
        let more = wanted.saturating_sub(pool.count);
        self.add_connections(0, more);
    }

    /// Gives a pool so many connections more, which are not open yet; those that it has are opened before them.
    pub(super) fn add_connections(&mut self, p: usize, more: u32) {
        let first = self.conns.len() as u32;
        let numbers = first..first + more;
        self.conns.extend(numbers.clone().map(|number| Conn::new(number, p as u16, &self.ready)));
        let pool = &mut self.pools[p];
        // Those of several pools are not one after the other any more.
        pool.last = pool.last.max(numbers.end);
        pool.vacant.splice(0..0, numbers.rev());
        pool.count += more;
    }
}
