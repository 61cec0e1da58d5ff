//! Load over TCP: many connections from many client addresses, each accounted for.
//!
//! | mode | each connection | the far side |
//! |---|---|---|
//! | [`Mode::Write`] | writes, as fast as it can or at a rate, and ends the stream | reads to the end |
//! | [`Mode::Read`] | reads, as fast as it can or at a rate | writes |
//! | [`Mode::Echo`] | writes, and compares what comes back byte by byte | sends back |
//! | [`Mode::Connect`] | is opened, asks once, is answered and closed; another follows | sends back |
//! | [`Mode::Hold`] | stays, and asks now and then | sends back |
//! | [`Mode::Syn`], [`Mode::HalfOpen`] | is a SYN and no more | listens |
//!
//! Rates are open loop: the moments are fixed beforehand and times count from them, so a far side that stalls cannot
//! hide it. Bytes come from a pattern in which a place decides what stands there ([`pattern`]).
//!
//! [`TcpLoad`] is a run as [`crate::Load`] is one: a main function for the lanes of a host, progress, and an outcome.

mod connection;
mod half_open;
mod lane;
mod outcome;
pub mod pattern;
mod run;
pub mod service;
mod talk;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use flowlane::Endpoint;

pub use crate::flows::Sources;
use crate::gate::{Gate, gather};
use crate::http::Phase;
use crate::outcome::{LaneOutcome, Outcome};
use crate::report::Snapshot;
use crate::shares::divide;
use crate::timeline;

pub use outcome::{TcpCounts, TcpOutcome};
use run::Common;

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
    /// A SYN at each moment of a rate; its answer is reset, as the answer to any stranger. Links of ours only.
    Syn,
    /// The same, and its answer gets nothing back: the far side's handshakes stay half open. Links of ours only.
    HalfOpen,
}

impl Mode {
    /// Whether connections stay until the end, rather than come and go.
    #[must_use]
    pub fn stays(self) -> bool {
        !matches!(self, Self::Connect | Self::Syn | Self::HalfOpen)
    }

    /// Whether there are SYNs alone.
    #[must_use]
    pub fn is_half_open(self) -> bool {
        matches!(self, Self::Syn | Self::HalfOpen)
    }

    /// Whether the far side is to send everything back.
    #[must_use]
    pub fn needs_echo(self) -> bool {
        matches!(self, Self::Echo | Self::Connect | Self::Hold)
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct TcpLoadConfig {
    /// Where to.
    pub target: Endpoint,
    /// What connections do.
    pub mode: Mode,
    /// Where they come from. From [`Sources::Flows`] one connection each in the modes in which they stay, else in turn.
    pub sources: Sources,
    /// Connections open at once; in the modes in which they stay, one for each flow if there are [`Sources::Flows`].
    pub connections: usize,
    /// Connections ([`Mode::Connect`]) or messages (else) a second, all lanes together; as fast as possible without.
    pub rate: Option<u64>,
    /// Connections at independent moments instead of evenly ([`Mode::Connect`] with a rate).
    pub poisson: bool,
    /// Bytes of a message.
    pub size: usize,
    /// Bytes of a connection, for [`Mode::Write`], [`Mode::Read`] and [`Mode::Echo`].
    pub total: Option<u64>,
    /// Connections that stay: begun a second until all stand.
    pub opening: u64,
    /// What follows once they stand, see [`timeline::usual`]; shares of the rate that are not 1 are for [`Mode::Connect`].
    pub phases: Vec<Phase>,
    /// How long connecting, an answer, and what is left at the end may take.
    pub timeout: Duration,
    /// Small segments are sent at once.
    pub nodelay: bool,
    /// Compare what is only read with the pattern.
    pub verify: bool,
    /// Connections end with a reset.
    pub reset: bool,
    /// The request goes with the SYN to a far side that takes it (Fast Open, RFC 7413): [`Mode::Connect`], links of ours. A
    /// lane asks for a cookie with its first connection from each address, and keeps as many as
    /// [`TcpConfig::fast_open_peers`](flowlane::TcpConfig::fast_open_peers) says: beyond that many addresses none is there when it
    /// is wanted.
    pub fast_open: bool,
    /// Workers stay awake for a moment before something is due: more exact, at the price of some processor time.
    pub exact: bool,
    /// For Poisson schedules.
    pub seed: u64,
    /// Where snapshots go while it runs.
    pub snapshots: Option<SyncSender<Snapshot>>,
}

/// A run cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpLoadError {
    /// Nobody has flows.
    #[error("no lane has any flow")]
    NoFlows,
    /// SYNs alone are sent at a rate.
    #[error("SYNs alone need a rate, and flows of a link of ours")]
    NeedsRate,
    /// Only connections that ask at once have something to send with the SYN.
    #[error("Fast Open is for connections that come and go")]
    FastOpen,
    /// Nothing would ever be done.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
}

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpProgress {
    /// Answers.
    pub answers: u64,
    /// Bytes written.
    pub written: u64,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    answers: AtomicU64,
    written: AtomicU64,
}

/// A run.
#[derive(Debug)]
pub struct TcpLoad {
    common: Arc<Common>,
    outcomes: mpsc::Receiver<LaneOutcome<TcpCounts>>,
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
            ("opening", config.opening),
        ] {
            if n == 0 {
                return Err(TcpLoadError::Nothing(what));
            }
        }
        if config.mode.is_half_open()
            && (config.rate.is_none() || !matches!(config.sources, Sources::Flows(_)))
        {
            return Err(TcpLoadError::NeedsRate);
        }
        if config.fast_open && config.mode != Mode::Connect {
            return Err(TcpLoadError::FastOpen);
        }
        let lanes = config.sources.lanes();
        let able: Vec<usize> = (0..lanes).filter(|l| config.sources.serves(*l)).collect();
        let connections = match &config.sources {
            Sources::Flows(flows) if config.mode.stays() || config.mode.is_half_open() => {
                flows.iter().map(|f| f.len() as u64).collect()
            }
            _ => {
                let mut shares = vec![0; lanes];
                for (lane, share) in able.iter().zip(divide(config.connections as u64, able.len())) {
                    shares[*lane] = share;
                }
                shares
            }
        };
        let active = connections.iter().filter(|n| **n > 0).count();
        if active == 0 {
            return Err(TcpLoadError::NoFlows);
        }
        let opening = run::opening(&config, connections.iter().sum());
        let mut phases = config.phases.clone();
        if !opening.is_zero() {
            let (name, duration) = ("opening".into(), opening);
            phases.insert(0, Phase { name, duration, from: 0.0, to: 0.0, measured: false });
        }
        let (to, outcomes) = mpsc::channel();
        let common = Common {
            takes_part: connections.iter().map(|n| *n > 0).collect(),
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            connections,
            phases,
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
        TcpProgress { answers: sum(|p| &p.answers), written: sum(|p| &p.written) }
    }

    /// The parts of the run, the opening of connections that stay included.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.common.phases
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(TcpProgress) -> bool) -> TcpOutcome {
        let (gate, phases) = (&self.common.gate, &self.common.phases);
        // The run, what is left at its end, and as much again for a machine that has other things to do.
        let patience = timeline::duration(phases) + self.common.config.timeout * 2 + Duration::from_secs(20);
        let (lanes, interrupted) = gather(&self.outcomes, gate, patience, every, || tick(self.progress()));
        let missing = gate.active - lanes.len();
        Outcome::merge(lanes, phases, interrupted, missing)
    }
}
