//! What the lanes of a run share.

use flowlane::{Connect, SocketOptions};

use super::outcome::WsCounts;
use super::{LaneProgress, WsLoadConfig};
use crate::run::flows::{Sources, address};
use crate::run::gate::{Gate, Outcomes};
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::turns::Turns;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(super) config: WsLoadConfig,
    pub(super) gate: Gate,
    /// Connections of each lane.
    pub(super) turns: Turns,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<WsCounts>>,
}

impl Common {
    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let seed = self.config.poisson.then_some(self.config.seed);
        self.turns.moments(bucket, &self.config.phases, (start, rate as f64), seed)
    }

    /// The number of a lane's first connection among those of all lanes.
    pub(super) fn first(&self, bucket: u16) -> u64 {
        self.turns.before(bucket)
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
