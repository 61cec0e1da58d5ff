//! What the lanes of a run share, and how it is prepared.

use std::sync::atomic::AtomicU64;

use flowlane::{Connect, SocketOptions};

use super::Dialogue;
use crate::run::flows::{Sources, address};
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::Lanes;
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::part::Part;
use crate::run::turns::Turns;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common<D: Dialogue> {
    pub(crate) config: D,
    pub(crate) gate: Gate,
    /// Connections of each lane.
    pub(crate) turns: Turns,
    pub(super) timeout: u64,
    pub(super) progress: Vec<LaneProgress>,
    pub(super) outcomes: Outcomes<LaneOutcome<D::Counts>>,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct LaneProgress {
    pub(super) answers: AtomicU64,
    pub(super) prepared: AtomicU64,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StayingError {
    /// No lane can have a connection.
    #[error("no lane has any flow")]
    NoFlows,
    /// A part of a run has no connection.
    #[error("no connection is left for this part of the run: fewer parts, or more connections")]
    NoneLeft,
    /// A number that must not be 0.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
}

impl<D: Dialogue> Lanes<Common<D>> {
    /// Prepares a run, or a part of one, where others make the rest.
    pub(crate) fn staying(config: D, part: Option<Part>) -> Result<Self, StayingError> {
        let parts = config.parts();
        for (what, n) in [
            ("connections", parts.connections as u64),
            ("depth", parts.depth as u64),
            ("rate", parts.rate.unwrap_or(1)),
        ] {
            if n == 0 {
                return Err(StayingError::Nothing(what));
            }
        }
        let (lanes, connections) = (parts.sources.lanes(), parts.connections as u64);
        let wanted = part.map_or(connections, |part| part.share(connections, lanes));
        let one_a_flow = matches!(parts.sources,
            Sources::Flows(flows) if flows.iter().map(Vec::len).sum::<usize>() as u64 == wanted);
        let turns = Turns::new(parts.sources, parts.connections, one_a_flow, part);
        let active = turns.active();
        if active == 0 {
            return Err(part.map_or(StayingError::NoFlows, |_| StayingError::NoneLeft));
        }
        Ok(Self::of(|outcomes| Common {
            timeout: parts.timeout.as_nanos() as u64,
            gate: Gate::new(active).held(part.is_some()),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            turns,
            config,
            outcomes,
        }))
    }
}

impl<D: Dialogue> Common<D> {
    /// The moments of a lane: lanes take turns.
    pub(super) fn moments(&self, bucket: u16, start: u64, rate: u64) -> Moments {
        let parts = self.config.parts();
        self.turns.moments(bucket, parts.phases, (start, rate as f64), parts.poisson.then_some(parts.seed))
    }

    /// Where a connection of a lane comes from, for the `turn`-th time.
    pub(super) fn connect(&self, bucket: u16, nth: usize, turn: u64) -> Connect {
        let parts = self.config.parts();
        let options = SocketOptions { nodelay: true, ..SocketOptions::default() };
        let to = Connect { options, ..Connect::to(parts.target) };
        match parts.sources {
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
