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
mod resizes;
mod run;
pub mod service;
mod talk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::Endpoint;

use crate::report::SnapshotsTo;
use crate::run::changes::Unchanged;
pub use crate::run::flows::Sources;
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::{Kind, Lanes};
use crate::run::outcome::LaneOutcome;
use crate::run::part::Part;
use crate::run::timeline::Phase;
use crate::run::turns::Turns;

pub use common::Common;
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
    /// The phases after that, see [`timeline::usual`](crate::timeline::usual); shares other than 1 are for [`Mode::Connect`] only.
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
    pub snapshots: Option<SnapshotsTo>,
}

impl TcpLoadConfig {
    /// How long it takes until all of so many connections that stay have been begun.
    fn opening_time(&self, connections: u64) -> Duration {
        if self.mode.stays() {
            Duration::from_secs_f64(connections as f64 / self.opening as f64)
        } else {
            Duration::ZERO
        }
    }

    /// The phases of a run of so many connections, including the opening of those that stay.
    fn phases_with(&self, connections: u64) -> Vec<Phase> {
        let (duration, mut phases) = (self.opening_time(connections), self.phases.clone());
        if !duration.is_zero() {
            let name = "opening".into();
            phases.insert(0, Phase { name, duration, from: 0.0, to: 0.0, measured: false });
        }
        phases
    }

    /// The phases of the run, including the opening of connections that stay.
    #[must_use]
    pub fn all_phases(&self) -> Vec<Phase> {
        self.phases_with(self.connections as u64)
    }
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TcpLoadError {
    /// No lane has a flow.
    #[error("no lane has any flow")]
    NoFlows,
    /// A part of a run has no connection.
    #[error("no connection is left for this part of the run: fewer parts, or more connections")]
    NoneLeft,
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
pub type TcpLoad = Lanes<Common>;

impl TcpLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`TcpLoadError`].
    pub fn new(config: TcpLoadConfig) -> Result<Self, TcpLoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`TcpLoadError`].
    pub fn part(config: TcpLoadConfig, part: Option<Part>) -> Result<Self, TcpLoadError> {
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
        let one_a_flow = config.mode.stays() || config.mode.is_half_open();
        let turns = Turns::new(&config.sources, config.connections, one_a_flow, part);
        let active = turns.active();
        if active == 0 {
            return Err(part.map_or(TcpLoadError::NoFlows, |_| TcpLoadError::NoneLeft));
        }
        Ok(Self::of(|outcomes| Common {
            timeout: config.timeout.as_nanos() as u64,
            gate: Gate::new(active).held(part.is_some()),
            progress: (0..config.sources.lanes()).map(|_| LaneProgress::default()).collect(),
            phases: config.phases_with(turns.all()),
            turns,
            config,
            outcomes,
        }))
    }
}

impl Kind for Common {
    type Counts = TcpCounts;
    type Progress = TcpProgress;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn outcomes(&self) -> &Outcomes<LaneOutcome<TcpCounts>> {
        &self.outcomes
    }

    fn phases(&self) -> &[Phase] {
        &self.phases
    }

    fn target(&self) -> Endpoint {
        self.config.target
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    fn rate(&self) -> Result<f64, Unchanged> {
        self.config.rate.map(|rate| rate as f64).ok_or(Unchanged::Closed)
    }

    fn may_have(&self, connections: u32) -> Result<(), Unchanged> {
        if self.config.mode.is_half_open() {
            return Err(Unchanged::OtherConnections);
        }
        self.turns.may_have(connections, self.config.mode.stays())
    }

    fn takes_part(&self, bucket: u16) -> bool {
        self.turns.takes_part(bucket)
    }

    fn progress(&self) -> TcpProgress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        TcpProgress { answers: sum(|p| &p.answers), written: sum(|p| &p.written) }
    }

    async fn lane(self: Arc<Self>, bucket: u16) -> LaneOutcome<TcpCounts> {
        run::lane(self, bucket).await
    }
}
