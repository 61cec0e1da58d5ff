//! Load for a memcached: gets and sets of known items over connections that stay, each request accounted for.
//!
//! ```text
//!   Sizes, Popularity ▸ Items, Mix ▸ asker ▸ conn ▸ the connection's task ▸ conn ▸ book ▸ report
//! ```
//!
//! An open loop sends at moments fixed in advance, on whichever connection has room, and latencies count from these moments, so a stall of the server shows. A
//! closed loop keeps so many requests in flight on each connection. Which value belongs to a key is known without having stored it ([`Items`]), so any answer
//! can be verified.
//!
//! [`MemcachedLoad`] is a run as [`crate::TcpLoad`] is one: a main function for the lanes of a host, progress, and an outcome.

mod asker;
mod book;
mod common;
mod conn;
mod items;
mod lane;
mod laws;
mod outcome;
mod place;
mod popularity;
mod published;
mod run;
mod sizes;
mod task;
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::SnapshotsTo;
use crate::run::changes::Unchanged;
use crate::run::flows::Sources;
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::{Kind, Lanes};
use crate::run::outcome::LaneOutcome;
use crate::run::part::Part;
use crate::run::timeline::Phase;
use crate::run::turns::Turns;

pub use common::Common;

pub use asker::Mix;
pub use book::REQUESTS;
pub use items::{Items, ItemsError, LARGEST_VALUE, LONGEST_KEY};
pub use outcome::{MemcachedCounts, MemcachedOutcome};
pub use popularity::Popularity;
pub use sizes::{BadSizes, Sizes};
pub use workload::Workload;

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `get` and `set`.
    Text,
    /// `mg` and `ms`.
    Meta,
}

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct MemcachedLoadConfig {
    /// The target.
    pub target: Endpoint,
    /// Where connections come from.
    pub sources: Sources,
    /// Connections over all lanes.
    pub connections: usize,
    /// Most requests in flight on a connection.
    pub depth: usize,
    /// Requests per second over all lanes; `None` for a closed loop.
    pub rate: Option<u64>,
    /// Poisson arrivals of requests, with a rate.
    pub poisson: bool,
    /// What is asked.
    pub mix: Mix,
    /// Whether a key is asked for on a connection of the server's lane that has it, of a server that tells (`stats lanes`). Not with
    /// [`Sources::Flows`], whose ports are fixed.
    pub by_lane: bool,
    /// Whether all items are stored before the run.
    pub fill: bool,
    /// The phases, see [`timeline::usual`](crate::timeline::usual); shares other than 1 are for a rate only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of schedules and of what is asked.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SnapshotsTo>,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemcachedLoadError {
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
pub struct MemcachedProgress {
    /// Answers.
    pub answers: u64,
    /// Items stored before the run.
    pub filled: u64,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    answers: AtomicU64,
    filled: AtomicU64,
}

/// A run.
pub type MemcachedLoad = Lanes<Common>;

impl MemcachedLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`MemcachedLoadError`].
    pub fn new(config: MemcachedLoadConfig) -> Result<Self, MemcachedLoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`MemcachedLoadError`].
    pub fn part(config: MemcachedLoadConfig, part: Option<Part>) -> Result<Self, MemcachedLoadError> {
        for (what, n) in [
            ("connections", config.connections as u64),
            ("depth", config.depth as u64),
            ("rate", config.rate.unwrap_or(1)),
            ("multiget", config.mix.multiget.into()),
        ] {
            if n == 0 {
                return Err(MemcachedLoadError::Nothing(what));
            }
        }
        let (lanes, connections) = (config.sources.lanes(), config.connections as u64);
        let wanted = part.map_or(connections, |part| part.share(connections, lanes));
        let one_a_flow = matches!(&config.sources,
            Sources::Flows(flows) if flows.iter().map(Vec::len).sum::<usize>() as u64 == wanted);
        let turns = Turns::new(&config.sources, config.connections, one_a_flow, part);
        let active = turns.active();
        if active == 0 {
            return Err(part.map_or(MemcachedLoadError::NoFlows, |_| MemcachedLoadError::NoneLeft));
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

impl Kind for Common {
    type Counts = MemcachedCounts;
    type Progress = MemcachedProgress;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn outcomes(&self) -> &Outcomes<LaneOutcome<MemcachedCounts>> {
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

    fn progress(&self) -> MemcachedProgress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        MemcachedProgress { answers: sum(|p| &p.answers), filled: sum(|p| &p.filled) }
    }

    async fn lane(self: Arc<Self>, bucket: u16) -> LaneOutcome<MemcachedCounts> {
        run::lane(self, bucket).await
    }
}
