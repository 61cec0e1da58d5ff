//! Command-line options that replace a scenario's figures: duration, connections, rate.
//!
//! Phases, pools and weights keep their proportions.

use std::time::Duration;

use crate::http::{BadPlan, Pace, Plan};
use crate::units::{show_count, show_frequency, show_nanos};

/// Figures that replace the scenario's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Instead {
    /// Length of all measured phases together, or of all phases if none is measured.
    pub duration: Option<Duration>,
    /// Connections over all pools.
    pub connections: Option<u64>,
    /// Requests per second over all open loops.
    pub rate: Option<f64>,
}

impl Instead {
    /// Changes the plan. Returns the changes in words, with the scenario's own figures: `duration 3 s (10 s)`.
    ///
    /// # Errors
    /// What cannot be changed and why, in one line.
    pub fn apply(self, plan: &mut Plan) -> Result<Vec<String>, BadPlan> {
        let mut said = Vec::new();
        if let Some(duration) = self.duration {
            let had = last(plan, duration);
            said.push(format!(
                "duration {} ({})",
                show_nanos(duration.as_nanos() as u64),
                show_nanos(had.as_nanos() as u64)
            ));
        }
        if let Some(connections) = self.connections {
            let had: usize = plan.pools.iter().map(|p| p.connections).sum();
            connect(plan, connections)?;
            said.push(format!("connections {} ({})", show_count(connections), show_count(had as u64)));
        }
        if let Some(rate) = self.rate {
            let had = send(plan, rate)?;
            let had = had.map_or("closed loop".to_owned(), |r| format!("{}/s", show_frequency(r)));
            said.push(format!("rate {}/s ({had})", show_frequency(rate)));
        }
        plan.check()?;
        Ok(said)
    }
}

/// Scales the length of phases; returns their length before.
fn last(plan: &mut Plan, duration: Duration) -> Duration {
    let any = plan.phases.iter().any(|p| p.measured);
    let stretched = |p: &crate::run::timeline::Phase| p.measured || !any;
    let had: Duration = plan.phases.iter().filter(|p| stretched(p)).map(|p| p.duration).sum();
    let mut left = duration;
    let count = plan.phases.iter().filter(|p| stretched(p)).count();
    for (i, phase) in plan.phases.iter_mut().filter(|p| stretched(p)).enumerate() {
        // The last has what rounding left over.
        let share = phase.duration.as_secs_f64() / had.as_secs_f64().max(f64::MIN_POSITIVE);
        phase.duration = if i + 1 == count { left } else { duration.mul_f64(share.min(1.0)).min(left) };
        left -= phase.duration;
    }
    had
}

/// Divides connections among the pools in the same proportions, at least one for each.
fn connect(plan: &mut Plan, connections: u64) -> Result<(), BadPlan> {
    let pools = plan.pools.len() as u64;
    // Guard: `connections < pools` as `false` fails scenario::tests
    if connections < pools {
        return Err(BadPlan(format!(
            "--connections {connections}: the scenario has {pools} pools, and each needs one at least"
        )));
    }
    let had: u64 = plan.pools.iter().map(|p| p.connections as u64).sum();
    // One for each, and the rest by the parts that all up to a pool have of it: nothing is lost by rounding.
    let rest = u128::from(connections - pools);
    let (mut before, mut given) = (0u128, 0u128);
    for pool in &mut plan.pools {
        before += pool.connections as u128;
        let upto = rest * before / u128::from(had.max(1));
        pool.connections = (1 + upto - given) as usize;
        given = upto;
    }
    Ok(())
}

/// Divides a rate among the open loops and returns their sum before. A single closed loop becomes an open one.
fn send(plan: &mut Plan, rate: f64) -> Result<Option<f64>, BadPlan> {
    let of = |pace: Pace| if let Pace::Rate { per_second, .. } = pace { per_second } else { 0.0 };
    let had: f64 = plan.pools.iter().map(|p| of(p.pace)).sum();
    if had > 0.0 {
        for pool in &mut plan.pools {
            if let Pace::Rate { per_second, .. } = &mut pool.pace {
                *per_second *= rate / had;
            }
        }
        return Ok(Some(had));
    }
    let [pool] = &mut plan.pools[..] else {
        return Err(BadPlan(
            "--rate: no pool of the scenario has a rate, so nothing says which of them is to send at it"
                .into(),
        ));
    };
    pool.pace = Pace::Rate { per_second: rate, poisson: false };
    Ok(None)
}
