//! What the lanes of a run share.

use std::ops::Range;

use flowlane::{Connect, SocketOptions};
use flowlane_stack::rng::Rng;

use super::outcome::MemcachedCounts;
use super::{LaneProgress, MemcachedLoadConfig, Sources};
use crate::run::flows::address;
use crate::run::gate::{Gate, Outcomes};
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(super) config: MemcachedLoadConfig,
    pub(super) gate: Gate,
    /// Connections of each lane, by bucket; a lane without any does not take part.
    pub(super) connections: Vec<u64>,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<MemcachedCounts>>,
}

impl Common {
    /// Lanes before that of `bucket` that take part.
    fn nth(&self, bucket: u16) -> u64 {
        self.connections[..usize::from(bucket)].iter().filter(|n| **n > 0).count() as u64
    }

    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let (nth, all) = (self.nth(bucket) as f64, self.gate.active as f64);
        let rng = self.config.poisson.then(|| Rng::new(self.config.seed ^ u64::from(bucket) << 48));
        Moments::new(&self.config.phases, start, rate as f64, 1.0 / all, nth / all, rng)
    }

    /// The items that a lane stores before the run: its share of all.
    pub(super) fn to_fill(&self, bucket: u16) -> Range<u64> {
        if !self.config.fill {
            return 0..0;
        }
        let (nth, all) = (u128::from(self.nth(bucket)), self.gate.active.max(1) as u128);
        let keys = u128::from(self.config.mix.items.keys());
        let at = |n: u128| (keys * n / all) as u64;
        at(nth)..at(nth + 1)
    }

    /// To which of the server's lanes a connection is to come: they take turns over all lanes of ours.
    pub(super) fn destination(&self, bucket: u16, nth: usize, lanes: usize) -> usize {
        let before: u64 = self.connections[..usize::from(bucket)].iter().sum();
        (before as usize).wrapping_add(nth) & (lanes - 1)
    }

    /// Where a connection of a lane comes from, for the `turn`-th time.
    pub(super) fn connect(&self, bucket: u16, nth: usize, turn: u64) -> Connect {
        let options = SocketOptions { nodelay: true, ..SocketOptions::default() };
        let to = Connect { options, ..Connect::to(self.config.target) };
        match &self.config.sources {
            Sources::Flows(flows) => {
                let mine = &flows[usize::from(bucket)];
                let Some(from) = mine.get(nth % mine.len().max(1)) else { return to };
                Connect { local_ip: Some(from.ip), local_port: from.port, ..to }
            }
            Sources::Addresses { clients, lanes } => {
                let connections = u128::from(self.connections[usize::from(bucket)]);
                let index = nth as u128 + u128::from(turn) * connections;
                Connect { local_ip: address(clients, index * *lanes as u128 + u128::from(bucket)), ..to }
            }
        }
    }
}
