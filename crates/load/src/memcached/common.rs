//! What the lanes of a run share.

use std::ops::Range;

use flowlane::{Connect, SocketOptions};

use super::outcome::MemcachedCounts;
use super::{LaneProgress, MemcachedLoadConfig, Sources};
use crate::run::flows::address;
use crate::run::gate::{Gate, Outcomes};
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::turns::Turns;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(super) config: MemcachedLoadConfig,
    pub(super) gate: Gate,
    /// Connections of each lane.
    pub(super) turns: Turns,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<MemcachedCounts>>,
}

impl Common {
    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let seed = self.config.poisson.then_some(self.config.seed);
        self.turns.moments(bucket, &self.config.phases, (start, rate as f64), seed)
    }

    /// The items that a lane stores before the run: its share of all.
    pub(super) fn to_fill(&self, bucket: u16) -> Range<u64> {
        if self.config.fill { self.turns.slice(self.config.mix.items.keys(), bucket) } else { 0..0 }
    }

    /// To which of the server's lanes a connection is to come: they take turns over all lanes of ours.
    pub(super) fn destination(&self, bucket: u16, nth: usize, lanes: usize) -> usize {
        (self.turns.before(bucket) as usize).wrapping_add(nth) & (lanes - 1)
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
                let connections = u128::from(self.turns.of(bucket));
                let index = nth as u128 + u128::from(turn) * connections;
                Connect { local_ip: address(clients, index * *lanes as u128 + u128::from(bucket)), ..to }
            }
        }
    }
}
