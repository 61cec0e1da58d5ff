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
mod popularity;
mod published;
mod run;
mod sizes;
mod task;
mod workload;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::Snapshot;
use crate::run::flows::Sources;
use crate::run::gate::{self, Gate, Outcomes, Patience, gather};
use crate::run::outcome::{LaneOutcome, Outcome};
use crate::run::shares::divide;
use crate::run::timeline::{self, Phase};

use common::Common;

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
    /// Whether all items are stored before the run.
    pub fill: bool,
    /// The phases, see [`timeline::usual`]; shares other than 1 are for a rate only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of schedules and of what is asked.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SyncSender<Snapshot>>,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemcachedLoadError {
    /// No lane can have a connection.
    #[error("no lane has any flow")]
    NoFlows,
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
    /// Whether the run has begun: connections stand, and items are stored.
    pub running: bool,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    answers: AtomicU64,
    filled: AtomicU64,
}

/// A run.
#[derive(Debug)]
pub struct MemcachedLoad {
    common: Arc<Common>,
    outcomes: mpsc::Receiver<LaneOutcome<MemcachedCounts>>,
}

impl MemcachedLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`MemcachedLoadError`].
    pub fn new(config: MemcachedLoadConfig) -> Result<Self, MemcachedLoadError> {
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
        let lanes = config.sources.lanes();
        let connections = match &config.sources {
            Sources::Flows(flows) if flows.iter().map(Vec::len).sum::<usize>() == config.connections => {
                flows.iter().map(|f| f.len() as u64).collect()
            }
            _ => {
                let able: Vec<usize> = (0..lanes).filter(|l| config.sources.serves(*l)).collect();
                let mut shares = vec![0; lanes];
                for (lane, share) in able.iter().zip(divide(config.connections as u64, able.len())) {
                    shares[*lane] = share;
                }
                shares
            }
        };
        let active = connections.iter().filter(|n| **n > 0).count();
        if active == 0 {
            return Err(MemcachedLoadError::NoFlows);
        }
        let (to, outcomes) = Outcomes::new();
        let common = Common {
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            connections,
            config,
            outcomes: to,
        };
        Ok(Self { common: Arc::new(common), outcomes })
    }

    /// The main function of the lanes of the host that is to run it.
    pub fn main(&self) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
        let common = self.common.clone();
        gate::main(move |bucket| {
            let common = common.clone();
            common.takes_part(bucket).then_some(async move {
                common.outcomes.add(run::lane(common.clone(), bucket).await);
            })
        })
    }

    /// Ends the run. Its lanes notice soon, and still wait for outstanding answers.
    pub fn stop(&self) {
        self.common.gate.stop();
    }

    /// Progress, at most 50 ms old.
    #[must_use]
    pub fn progress(&self) -> MemcachedProgress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.common.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        MemcachedProgress {
            answers: sum(|p| &p.answers),
            filled: sum(|p| &p.filled),
            running: self.common.gate.start().is_some(),
        }
    }

    /// The phases of the run.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.common.config.phases
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(MemcachedProgress) -> bool) -> MemcachedOutcome {
        let (gate, phases) = (&self.common.gate, self.phases());
        // The run, what is outstanding at its end, and as much again for a busy machine. What comes before the run ends by timeouts of its own.
        let after = timeline::duration(phases) + self.common.config.timeout * 2 + Duration::from_secs(20);
        let patience = Patience { before: None, after };
        let (lanes, interrupted) = gather(&self.outcomes, gate, &patience, every, || tick(self.progress()));
        let missing = gate.active - lanes.len();
        let mut outcome = Outcome::merge(lanes, phases, interrupted, missing);
        if gate.door.is_shut() {
            let target = std::net::SocketAddr::from(self.common.config.target);
            outcome.failure = Some(format!("nothing listens at {target}: connection refused"));
        }
        outcome
    }
}
