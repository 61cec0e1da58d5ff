//! A run of datagrams: one task in each lane that has flows, a common start, progress, and the outcome.
//!
//! ```text
//!   Load::new ▸ Host::new(.., load.main()) ▸ runtime.start() ▸ load.wait() ▸ Outcome ▸ report
//!               each lane: probe ▸ wait for the others ▸ send and receive ▸ drain ▸ record
//! ```
//!
//! While they run, lanes share only a flag to stop. Each publishes its progress on its own cache lines, twenty times a second, and sends
//! snapshots to a channel if there is one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowlane::Endpoint;
use flowlane::impair::{Edges, Slots};

mod bursts;
mod lane;
mod order;
mod payload;
mod sizes;
mod window;

pub use self::bursts::Bursts;
use self::lane::Lane;
pub use self::payload::MIN_PAYLOAD;
pub use self::sizes::PayloadSizes;
use crate::report::SnapshotsTo;
use crate::run::changes::Unchanged;
use crate::run::flows::Sources;
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::{Kind, Lanes};
use crate::run::outcome::{Counts, LaneOutcome};
use crate::run::part::Part;
use crate::run::timeline::Phase;
use crate::run::turns::Turns;

/// When datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Open loop: at times fixed in advance.
    Rate {
        /// Datagrams per second over all lanes.
        per_second: u64,
        /// Poisson arrivals in place of evenly spaced ones.
        poisson: bool,
    },
    /// Closed loop: as fast as answers arrive, with this many datagrams in flight in each lane.
    Window(usize),
}

/// Configuration of a run.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// The target.
    pub target: Endpoint,
    /// The sources. With [`Sources::Flows`] a lane has one socket for all its flows, which needs a link of ours; with
    /// [`Sources::Addresses`] it has a connected socket for each flow.
    pub sources: Sources,
    /// Number of flows over all lanes, for [`Sources::Addresses`].
    pub flows: usize,
    /// When datagrams are sent.
    pub pace: Pace,
    /// Payloads, each at least [`MIN_PAYLOAD`].
    pub sizes: PayloadSizes,
    /// Datagrams that a lane sends at each of its moments, at least 1; with a rate. The moments are as much rarer.
    pub burst: u32,
    /// The phases with their share of the rate: see [`timeline::usual`](crate::timeline::usual).
    pub phases: Vec<Phase>,
    /// Time after which an answer is late; a datagram without an answer is lost.
    pub timeout: Duration,
    /// Whether the target does not answer.
    pub discard: bool,
    /// Workers poll shortly before a datagram is due: more exact send times, more processor time.
    pub exact: bool,
    /// Seed of the run id and of Poisson schedules.
    pub seed: u64,
    /// Datagrams are sent in these slots only; one that is due outside of them is meant for the next. Only for [`Pace::Rate`].
    pub slots: Option<Slots>,
    /// Bursts are sent in the place of a pace, by one lane with one flow, until the phases end at the latest.
    pub bursts: Option<Bursts>,
    /// Channel for snapshots during the run.
    pub snapshots: Option<SnapshotsTo>,
}

/// Why a run cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The payload is too small for the header.
    #[error("a payload of {0} bytes does not hold the header: at least {MIN_PAYLOAD}")]
    Size(usize),
    /// No lane has a flow.
    #[error("no lane has any flow")]
    NoFlows,
    /// A part of a run has no flow.
    #[error("no flow is left for this part of the run: fewer parts, or more flows")]
    NoneLeft,
    /// A closed loop needs answers.
    #[error("a window needs answers, and the far side gives none: set a rate")]
    WindowWithoutAnswers,
    /// A closed loop sends when answers come.
    #[error("slots are for a rate: a window sends when answers come")]
    SlotsWithWindow,
    /// Nothing at a moment.
    #[error("a burst of nothing sends nothing: at least 1")]
    NoBurst,
    /// The window is 0.
    #[error("a window of nothing sends nothing: at least 1")]
    NoWindow,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Datagrams sent.
    pub sent: u64,
    /// Answers received.
    pub received: u64,
}

/// One lane's progress, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LaneProgress {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// State shared by the lanes of a run.
#[derive(Debug)]
pub struct Common {
    pub(crate) config: LoadConfig,
    /// The run id, which tells this run's datagrams from others.
    pub(crate) run: u32,
    /// Flows of each lane.
    pub(crate) turns: Turns,
    pub(crate) progress: Vec<LaneProgress>,
    pub(crate) gate: Gate,
    /// How the lanes that have ended kept their slots.
    edges: Mutex<Edges>,
    outcomes: Outcomes<LaneOutcome<Counts>>,
}

impl Common {
    /// Whether the run was stopped.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.gate.stopped()
    }

    pub(crate) fn stop(&self) {
        self.gate.stop();
    }

    /// Adds how a lane kept its slots.
    pub(crate) fn add_edges(&self, edges: &Edges) {
        self.edges.lock().unwrap_or_else(PoisonError::into_inner).add(edges);
    }
}

/// A run.
pub type Load = Lanes<Common>;

impl Load {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn new(config: LoadConfig) -> Result<Self, LoadError> {
        Self::part(config, None)
    }

    /// Prepares a part of a run, if it is one, where others make the rest: it waits until it is said when to start, see
    /// [`begin_at`](Self::begin_at). Its flows are those of the part alone.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn part(mut config: LoadConfig, part: Option<Part>) -> Result<Self, LoadError> {
        if config.bursts.is_some() {
            bursts::keep_one_flow(&mut config);
        }
        let (smallest, _) = config.sizes.ends();
        if smallest < MIN_PAYLOAD {
            return Err(LoadError::Size(smallest));
        }
        if config.burst == 0 {
            return Err(LoadError::NoBurst);
        }
        let turns = Turns::new(&config.sources, config.flows, true, part);
        let active = turns.active();
        if active == 0 {
            return Err(part.map_or(LoadError::NoFlows, |_| LoadError::NoneLeft));
        }
        match config.pace {
            Pace::Window(_) if config.discard => return Err(LoadError::WindowWithoutAnswers),
            Pace::Window(_) if config.slots.is_some() => return Err(LoadError::SlotsWithWindow),
            Pace::Window(0) => return Err(LoadError::NoWindow),
            Pace::Window(_) | Pace::Rate { .. } => {}
        }
        Ok(Self::of(|outcomes| Common {
            // Any number that the next run does not have.
            run: (config.seed ^ config.seed >> 32) as u32,
            progress: (0..config.sources.lanes()).map(|_| LaneProgress::default()).collect(),
            turns,
            gate: Gate::new(active).held(part.is_some()),
            edges: Mutex::default(),
            outcomes,
            config,
        }))
    }

    /// How slots were kept, of the lanes that have ended.
    #[must_use]
    pub fn edges(&self) -> Edges {
        self.kind().edges.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Kind for Common {
    type Counts = Counts;
    type Progress = Progress;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn outcomes(&self) -> &Outcomes<LaneOutcome<Counts>> {
        &self.outcomes
    }

    fn phases(&self) -> &[Phase] {
        &self.config.phases
    }

    fn target(&self) -> Endpoint {
        self.config.target
    }

    fn refusal() -> &'static str {
        "the port is unreachable"
    }

    fn timeout(&self) -> Duration {
        self.config.timeout
    }

    fn rate(&self) -> Result<f64, Unchanged> {
        match self.config.pace {
            _ if self.config.bursts.is_some() => Err(Unchanged::Closed),
            Pace::Rate { per_second, .. } => Ok(per_second as f64),
            Pace::Window(_) => Err(Unchanged::Closed),
        }
    }

    fn takes_part(&self, bucket: u16) -> bool {
        self.turns.takes_part(bucket)
    }

    fn progress(&self) -> Progress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        Progress { sent: sum(|p| &p.sent), received: sum(|p| &p.received) }
    }

    async fn lane(self: Arc<Self>, bucket: u16) -> LaneOutcome<Counts> {
        Lane::run(self, bucket).await
    }
}
