//! Load over TCP: many connections from many client addresses, each accounted for.
//!
//! | mode | each connection | the far side |
//! |---|---|---|
//! | [`Mode::Write`] | writes, as fast as it can or at a rate, and ends the stream | reads to the end |
//! | [`Mode::Read`] | reads, as fast as it can or at a rate | writes |
//! | [`Mode::Echo`] | writes, and compares what comes back byte by byte | sends back |
//! | [`Mode::Connect`] | is opened, asks once, is answered and closed; another follows | sends back |
//! | [`Mode::Hold`] | stays, and asks now and then | sends back |
//!
//! Rates are open loop: the moments are fixed beforehand and times count from them, so a far side that stalls cannot
//! hide it. Bytes come from a pattern in which a place decides what stands there ([`pattern`]).
//!
//! [`TcpLoad`] is a run as [`crate::Load`] is one: a main function for the lanes of a host, progress, and an outcome.

mod lane;
mod outcome;
pub mod pattern;
mod run;
pub mod service;
mod talk;
mod threshold;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use flowlane::Endpoint;

use crate::clients::ClientRange;
use crate::gate::{Gate, gather};
use crate::schedule::divide;

pub use outcome::{Measured, TcpCounts, TcpLaneOutcome, TcpOutcome, TcpTimes};
use run::Common;
pub use threshold::TcpThreshold;

/// What connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write.
    Write,
    /// Read.
    Read,
    /// Write, and compare what comes back.
    Echo,
    /// Be opened, ask once, be closed.
    Connect,
    /// Stay, and ask now and then.
    Hold,
}

impl Mode {
    /// Whether the far side is to send everything back.
    #[must_use]
    pub fn needs_echo(self) -> bool {
        matches!(self, Self::Echo | Self::Connect | Self::Hold)
    }
}

/// Where connections come from.
#[derive(Debug, Clone)]
pub enum Sources {
    /// These, by bucket: see [`crate::flows::choose`]. One connection each, or in turn when there are more.
    Flows(Vec<Vec<Endpoint>>),
    /// These addresses in turn, from ports whose answers come home.
    Addresses {
        /// The addresses.
        clients: Vec<ClientRange>,
        /// Lanes of the host.
        lanes: usize,
    },
}

/// What to run.
#[derive(Debug, Clone)]
pub struct TcpLoadConfig {
    /// Where to.
    pub target: Endpoint,
    /// What connections do.
    pub mode: Mode,
    /// Where they come from. Connections that stay need [`Sources::Flows`].
    pub sources: Sources,
    /// Connections open at once; in the modes in which they stay, one for each flow at most.
    pub connections: usize,
    /// Connections ([`Mode::Connect`]) or messages (else) a second, all lanes together; as fast as possible without.
    pub rate: Option<u64>,
    /// Connections at independent moments instead of evenly ([`Mode::Connect`] with a rate).
    pub poisson: bool,
    /// Bytes of a message.
    pub size: usize,
    /// Bytes of a connection, for [`Mode::Write`], [`Mode::Read`] and [`Mode::Echo`].
    pub total: Option<u64>,
    /// Connections begun a second until all stand.
    pub ramp: u64,
    /// How long, once they stand.
    pub duration: Duration,
    /// How long connecting, an answer, and what is left at the end may take.
    pub timeout: Duration,
    /// Small segments are sent at once.
    pub nodelay: bool,
    /// Compare what is only read with the pattern.
    pub verify: bool,
    /// Connections end with a reset.
    pub reset: bool,
    /// For Poisson schedules.
    pub seed: u64,
}

/// A run cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpLoadError {
    /// Nobody has flows.
    #[error("no lane has any flow")]
    NoFlows,
    /// Nothing would ever be done.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
    /// Connections that stay have ends of their own.
    #[error("connections that stay need a flow each")]
    NeedsFlows,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpProgress {
    /// Connections open, or being opened.
    pub open: u64,
    /// Connections that failed.
    pub failed: u64,
    /// Answers.
    pub answers: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    open: AtomicU64,
    failed: AtomicU64,
    answers: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
}

/// A run.
#[derive(Debug)]
pub struct TcpLoad {
    common: Arc<Common>,
    outcomes: mpsc::Receiver<TcpLaneOutcome>,
}

impl TcpLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`TcpLoadError`].
    pub fn new(config: TcpLoadConfig) -> Result<Self, TcpLoadError> {
        for (what, n) in [
            ("connections", config.connections as u64),
            ("rate", config.rate.unwrap_or(1)),
            ("size", config.size as u64),
            ("total", config.total.unwrap_or(1)),
            ("ramp", config.ramp),
        ] {
            if n == 0 {
                return Err(TcpLoadError::Nothing(what));
            }
        }
        let lanes = match &config.sources {
            Sources::Flows(flows) => flows.len(),
            Sources::Addresses { lanes, .. } if config.mode == Mode::Connect => *lanes,
            Sources::Addresses { .. } => return Err(TcpLoadError::NeedsFlows),
        };
        let able: Vec<usize> = match &config.sources {
            Sources::Flows(flows) => (0..lanes).filter(|l| !flows[*l].is_empty()).collect(),
            Sources::Addresses { .. } => (0..lanes).collect(),
        };
        let share = |amount: u64| {
            let mut shares = vec![0; lanes];
            for (lane, share) in able.iter().zip(divide(amount, able.len())) {
                shares[*lane] = share;
            }
            shares
        };
        let connections = match &config.sources {
            Sources::Flows(flows) if config.mode != Mode::Connect => {
                flows.iter().map(|f| f.len() as u64).collect()
            }
            _ => share(config.connections as u64),
        };
        let rates = share(if config.mode == Mode::Connect { config.rate.unwrap_or(0) } else { 0 });
        let takes_part = |lane: &usize| {
            let paced = config.mode == Mode::Connect && config.rate.is_some();
            connections[*lane] > 0 && (!paced || rates[*lane] > 0)
        };
        let active = (0..lanes).filter(takes_part).count();
        if active == 0 {
            return Err(TcpLoadError::NoFlows);
        }
        let (to, outcomes) = mpsc::channel();
        let common = Common {
            takes_part: (0..lanes).map(|l| takes_part(&l)).collect(),
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            connections,
            rates,
            config,
            outcomes: Mutex::new(to),
        };
        Ok(Self { common: Arc::new(common), outcomes })
    }

    /// The main function of the lanes of the host that is to run it.
    pub fn main(
        &self,
    ) -> impl Fn() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
        let common = self.common.clone();
        move || {
            let common = common.clone();
            Box::pin(async move {
                let Ok(here) = flowlane::current() else { return };
                let bucket = here.bucket.0;
                if !common.takes_part.get(usize::from(bucket)).copied().unwrap_or_default() {
                    return;
                }
                let outcome = run::lane(common.clone(), bucket).await;
                let to = common.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                // Nobody waits any more: nobody minds.
                let _ = to.send(outcome);
            })
        }
    }

    /// Ends the run as soon as its lanes see it; what is on its way is still waited for.
    pub fn stop(&self) {
        self.common.gate.stop();
    }

    /// How far it is, at most a twentieth of a second ago.
    #[must_use]
    pub fn progress(&self) -> TcpProgress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.common.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        TcpProgress {
            open: sum(|p| &p.open),
            failed: sum(|p| &p.failed),
            answers: sum(|p| &p.answers),
            written: sum(|p| &p.written),
            read: sum(|p| &p.read),
        }
    }

    /// How long the ramp takes and what follows, if nothing ends it before.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.common.ramp_time() + self.common.config.duration
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(TcpProgress) -> bool) -> TcpOutcome {
        let common = &self.common;
        // The run, what is left at its end, and as much again for a machine that has other things to do.
        let patience = self.duration() + common.config.timeout * 2 + Duration::from_secs(20);
        let lanes = gather(&self.outcomes, &common.gate, patience, every, || tick(self.progress()));
        let missing = common.gate.active - lanes.len();
        let mut outcome = TcpOutcome::merge(lanes);
        if missing > 0 && outcome.failure.is_none() {
            outcome.failure = Some(format!("{missing} lanes of the generator did not end"));
        }
        outcome
    }
}
