//! Load over TCP: many connections from many client addresses, each accounted for.
//!
//! | mode | each connection | the far side |
//! |---|---|---|
//! | [`Mode::Write`] | writes, as fast as it can or at a rate, and ends the stream | reads to the end |
//! | [`Mode::Read`] | reads, as fast as it can or at a rate | writes |
//! | [`Mode::Echo`] | writes, and compares what comes back byte by byte | sends back |
//! | [`Mode::Connect`] | is opened, sends one message, reads the echo and is closed; another follows | sends back |
//! | [`Mode::Hold`] | stays open, and sends messages at intervals | sends back |
//! | [`Mode::Syn`], [`Mode::HalfOpen`] | is one SYN | listens |
//!
//! Rates are open loop: send times are fixed in advance and latencies count from them, so a stall of the far side shows. The bytes come
//! from a pattern that depends on the position in the stream only ([`pattern`]).
//!
//! [`TcpLoad`] is a run as [`crate::Load`] is one: a main function for the lanes of a host, progress, and an outcome.

mod common;
mod connection;
mod half_open;
mod lane;
mod outcome;
pub mod pattern;
mod run;
pub mod service;
mod talk;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::Snapshot;
pub use crate::run::flows::Sources;
use crate::run::gate::{self, Gate, Outcomes, Patience, gather};
use crate::run::outcome::{LaneOutcome, Outcome};
use crate::run::shares::divide;
use crate::run::timeline;
use crate::run::timeline::Phase;

use common::Common;
pub use outcome::{TcpCounts, TcpOutcome};

/// What connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write.
    Write,
    /// Read.
    Read,
    /// Write, and compare what comes back.
    Echo,
    /// Connect, send one message, read the echo, close.
    Connect,
    /// Stay open, and send messages at intervals.
    Hold,
    /// Send SYNs at a rate; each SYN-ACK is answered with a reset. Links of ours only.
    Syn,
    /// Send SYNs at a rate; SYN-ACKs are not answered, so the far side's handshakes stay half open. Links of ours only.
    HalfOpen,
}

impl Mode {
    /// Whether connections stay open until the end.
    #[must_use]
    pub fn stays(self) -> bool {
        !matches!(self, Self::Connect | Self::Syn | Self::HalfOpen)
    }

    /// Whether only SYNs are sent.
    #[must_use]
    pub fn is_half_open(self) -> bool {
        matches!(self, Self::Syn | Self::HalfOpen)
    }

    /// Whether the far side must echo.
    #[must_use]
    pub fn needs_echo(self) -> bool {
        matches!(self, Self::Echo | Self::Connect | Self::Hold)
    }
}

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct TcpLoadConfig {
    /// The target.
    pub target: Endpoint,
    /// What connections do.
    pub mode: Mode,
    /// The sources. Each of [`Sources::Flows`] has one connection in modes in which connections stay; in other modes flows are used in
    /// turn.
    pub sources: Sources,
    /// Concurrent connections; in modes in which they stay, one for each flow if there are [`Sources::Flows`].
    pub connections: usize,
    /// Connections ([`Mode::Connect`]) or messages (other modes) per second over all lanes; `None` for as fast as possible.
    pub rate: Option<u64>,
    /// Poisson arrivals of connections ([`Mode::Connect`] with a rate).
    pub poisson: bool,
    /// Size of a message, bytes.
    pub size: usize,
    /// Bytes to transfer on each connection, for [`Mode::Write`], [`Mode::Read`] and [`Mode::Echo`]; `None` for no limit.
    pub total: Option<u64>,
    /// Connections to open per second until all are established, in modes in which they stay.
    pub opening: u64,
    /// The phases after that, see [`timeline::usual`]; shares other than 1 are for [`Mode::Connect`] only.
    pub phases: Vec<Phase>,
    /// Limit for connecting, for an answer, and for what is outstanding at the end.
    pub timeout: Duration,
    /// Whether Nagle's algorithm is off (`TCP_NODELAY`).
    pub nodelay: bool,
    /// Whether bytes are compared with the pattern in [`Mode::Read`].
    pub verify: bool,
    /// Whether connections end with a reset.
    pub reset: bool,
    /// TCP Fast Open (RFC 7413): send the request with the SYN; [`Mode::Connect`] on links of ours. A lane requests a cookie with its first
    /// connection from each address, and keeps at most
    /// [`TcpConfig::fast_open_peers`](flowlane::TcpConfig::fast_open_peers) cookies; with more addresses than that, cookies are evicted
    /// before they are used.
    pub fast_open: bool,
    /// Workers poll shortly before a send time: more exact, more processor time.
    pub exact: bool,
    /// Seed of Poisson schedules.
    pub seed: u64,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SyncSender<Snapshot>>,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpLoadError {
    /// No lane has a flow.
    #[error("no lane has any flow")]
    NoFlows,
    /// SYN modes need a rate.
    #[error("SYNs alone need a rate, and flows of a link of ours")]
    NeedsRate,
    /// Fast Open is for [`Mode::Connect`] only.
    #[error("Fast Open is for connections that come and go")]
    FastOpen,
    /// A number that must not be 0.
    #[error("{0} must be at least 1")]
    Nothing(&'static str),
}

/// Progress of a run.
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
        let opening = common::opening(&config, connections.iter().sum());
        let mut phases = config.phases.clone();
        if !opening.is_zero() {
            let (name, duration) = ("opening".into(), opening);
            phases.insert(0, Phase { name, duration, from: 0.0, to: 0.0, measured: false });
        }
        let (to, outcomes) = Outcomes::new();
        let common = Common {
            takes_part: connections.iter().map(|n| *n > 0).collect(),
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active),
            progress: (0..lanes).map(|_| LaneProgress::default()).collect(),
            connections,
            phases,
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
            let takes_part = common.takes_part.get(usize::from(bucket)).is_some_and(|takes| *takes);
            takes_part.then_some(async move { common.outcomes.add(run::lane(common.clone(), bucket).await) })
        })
    }

    /// Ends the run. Its lanes notice soon, and still wait for outstanding answers.
    pub fn stop(&self) {
        self.common.gate.stop();
    }

    /// Progress, at most 50 ms old.
    #[must_use]
    pub fn progress(&self) -> TcpProgress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.common.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        TcpProgress { answers: sum(|p| &p.answers), written: sum(|p| &p.written) }
    }

    /// The phases of the run, including the opening of connections that stay.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.common.phases
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(TcpProgress) -> bool) -> TcpOutcome {
        let (gate, phases) = (&self.common.gate, &self.common.phases);
        // The run, what is outstanding at its end, and as much again for a busy machine.
        let after = timeline::duration(phases) + self.common.config.timeout * 2 + Duration::from_secs(20);
        let patience = Patience { before: Some(after), after };
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
