//! Load over WebSockets (RFC 6455): connections that stay, messages that an echo server sends back, each accounted for and compared.
//!
//! ```text
//!   payload ▸ conn ▸ the connection's task ▸ opening, then frames ▸ conn ▸ book ▸ report
//! ```
//!
//! An open loop sends at moments fixed in advance, on the connections in turn, and latencies count from these moments, so a stall of the server shows. A
//! closed loop keeps so many messages in flight on each connection. What a message carries is known from its number, so an answer is compared as it comes,
//! in whichever fragments, and nothing is kept of it.
//!
//! [`WsLoad`] is a run as [`crate::TcpLoad`] is one: a main function for the lanes of a host, progress, and an outcome.

mod book;
mod closes;
mod common;
mod conn;
mod lane;
mod opening;
mod outcome;
mod payload;
mod run;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::SnapshotsTo;
use crate::run::changes::Unchanged;
use crate::run::flows::Sources;
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::{Kind as LoadKind, Lanes};
use crate::run::outcome::LaneOutcome;
use crate::run::part::Part;
use crate::run::timeline::Phase;
use crate::run::turns::Turns;

pub use common::Common;
pub use opening::Opening;
pub use outcome::{WsCounts, WsOutcome};
pub use payload::Payload;

pub use flowlane_http::ws::Kind;

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct WsLoadConfig {
    /// The target.
    pub target: Endpoint,
    /// Where connections come from.
    pub sources: Sources,
    /// How a connection becomes a WebSocket.
    pub opening: Arc<Opening>,
    /// Connections over all lanes.
    pub connections: usize,
    /// Most messages in flight on a connection.
    pub depth: usize,
    /// Messages per second over all lanes; `None` for a closed loop.
    pub rate: Option<u64>,
    /// Poisson arrivals of messages, with a rate.
    pub poisson: bool,
    /// What messages carry.
    pub payload: Payload,
    /// The phases, see [`timeline::usual`](crate::timeline::usual); shares other than 1 are for a rate only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for the opening handshake, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of schedules, keys and masks.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SnapshotsTo>,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WsLoadError {
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

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WsProgress {
    /// Answers.
    pub answers: u64,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    answers: AtomicU64,
}

/// A run.
pub type WsLoad = Lanes<Common>;

impl WsLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`WsLoadError`].
    pub fn new(config: WsLoadConfig) -> Result<Self, WsLoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`WsLoadError`].
    pub fn part(config: WsLoadConfig, part: Option<Part>) -> Result<Self, WsLoadError> {
        for (what, n) in [
            ("connections", config.connections as u64),
            ("depth", config.depth as u64),
            ("rate", config.rate.unwrap_or(1)),
        ] {
            if n == 0 {
                return Err(WsLoadError::Nothing(what));
            }
        }
        let (lanes, connections) = (config.sources.lanes(), config.connections as u64);
        let wanted = part.map_or(connections, |part| part.share(connections, lanes));
        let one_a_flow = matches!(&config.sources,
            Sources::Flows(flows) if flows.iter().map(Vec::len).sum::<usize>() as u64 == wanted);
        let turns = Turns::new(&config.sources, config.connections, one_a_flow, part);
        let active = turns.active();
        if active == 0 {
            return Err(part.map_or(WsLoadError::NoFlows, |_| WsLoadError::NoneLeft));
        }
        Ok(Self::of(|outcomes| Common {
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active).held(part.is_some()),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            turns,
            config,
            outcomes,
        }))
    }
}

impl LoadKind for Common {
    type Counts = WsCounts;
    type Progress = WsProgress;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn outcomes(&self) -> &Outcomes<LaneOutcome<WsCounts>> {
        &self.outcomes
    }

    fn phases(&self) -> &[Phase] {
        &self.config.phases
    }

    fn target(&self) -> Endpoint {
        self.config.target
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    fn prepares(&self) -> bool {
        true
    }

    fn rate(&self) -> Result<f64, Unchanged> {
        self.config.rate.map(|rate| rate as f64).ok_or(Unchanged::Closed)
    }

    fn takes_part(&self, bucket: u16) -> bool {
        self.turns.takes_part(bucket)
    }

    fn progress(&self) -> WsProgress {
        WsProgress { answers: self.progress.iter().map(|p| p.answers.load(Ordering::Relaxed)).sum() }
    }

    async fn lane(self: Arc<Self>, bucket: u16) -> LaneOutcome<WsCounts> {
        run::lane(self, bucket).await
    }
}
