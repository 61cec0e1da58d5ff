//! A run of datagrams: one task in each lane that has flows, a common start, progress, and the outcome.
//!
//! ```text
//!   Load::new ▸ Host::new(.., load.main()) ▸ runtime.start() ▸ load.wait() ▸ Outcome ▸ report
//!               each lane: probe ▸ wait for the others ▸ send and receive ▸ drain ▸ record
//! ```
//!
//! Lanes share nothing while they run but a flag to stop; each publishes its progress on a cache line of its own, twenty
//! times a second, and hands over snapshots to whoever wants them.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use flowlane::Endpoint;

use crate::flows::Sources;
use crate::gate::{Gate, gather};
use crate::http::Phase;
use crate::lane::Lane;
use crate::outcome::{Counts, LaneOutcome, Outcome};
use crate::payload::MIN_PAYLOAD;
use crate::report::Snapshot;
use crate::shares::divide;
use crate::timeline;

/// How fast datagrams are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Open loop: at moments fixed beforehand.
    Rate {
        /// Datagrams a second, all lanes together.
        per_second: u64,
        /// At independent moments instead of evenly.
        poisson: bool,
    },
    /// Closed loop: as fast as answers come, with so many on their way in each lane.
    Window(usize),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// Where datagrams go.
    pub target: Endpoint,
    /// Where they come from. With [`Sources::Flows`] a lane has one socket for all of them, which needs a link of ours;
    /// with [`Sources::Addresses`] a connected socket for each flow.
    pub sources: Sources,
    /// Flows in all, for [`Sources::Addresses`].
    pub flows: usize,
    /// How fast.
    pub pace: Pace,
    /// Payload, bytes: at least [`MIN_PAYLOAD`].
    pub size: usize,
    /// How long, and what part of the rate when: see [`timeline::usual`].
    pub phases: Vec<Phase>,
    /// How long an answer may take; what comes later is late, what never comes is lost.
    pub timeout: Duration,
    /// The far side does not answer.
    pub discard: bool,
    /// Workers stay awake for a moment before a datagram is due: more exact, at the price of some processor time.
    pub exact: bool,
    /// For what is random: run id and Poisson schedules.
    pub seed: u64,
    /// Where snapshots go while it runs.
    pub snapshots: Option<SyncSender<Snapshot>>,
}

/// A run cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The payload does not hold the header.
    #[error("a payload of {0} bytes does not hold the header: at least {MIN_PAYLOAD}")]
    Size(usize),
    /// Nobody has flows.
    #[error("no lane has any flow")]
    NoFlows,
    /// Closed loops need answers.
    #[error("a window needs answers, and the far side gives none: set a rate")]
    WindowWithoutAnswers,
    /// Nothing would ever be sent.
    #[error("a window of nothing sends nothing: at least 1")]
    NoWindow,
}

/// How far a run is.
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

/// What lanes of a run have in common.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: LoadConfig,
    /// This run's datagrams from others'.
    pub(crate) run: u32,
    /// Flows of each lane, by bucket; none for those that take no part.
    pub(crate) flows: Vec<usize>,
    pub(crate) progress: Vec<LaneProgress>,
    pub(crate) gate: Gate,
    outcomes: Mutex<mpsc::Sender<LaneOutcome<Counts>>>,
}

impl Common {
    /// Whether the run is to end now.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.gate.stopped()
    }

    pub(crate) fn stop(&self) {
        self.gate.stop();
    }

    /// The place of a lane among those that take part.
    pub(crate) fn place(&self, bucket: u16) -> usize {
        self.flows[..usize::from(bucket)].iter().filter(|n| **n > 0).count()
    }
}

/// A run.
#[derive(Debug)]
pub struct Load {
    common: Arc<Common>,
    outcomes: mpsc::Receiver<LaneOutcome<Counts>>,
}

impl Load {
    /// Prepares a run.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn new(config: LoadConfig) -> Result<Self, LoadError> {
        if config.size < MIN_PAYLOAD {
            return Err(LoadError::Size(config.size));
        }
        let flows: Vec<usize> = match &config.sources {
            Sources::Flows(flows) => flows.iter().map(Vec::len).collect(),
            Sources::Addresses { lanes, .. } => {
                divide(config.flows as u64, *lanes).into_iter().map(|n| n as usize).collect()
            }
        };
        let active = flows.iter().filter(|n| **n > 0).count();
        if active == 0 {
            return Err(LoadError::NoFlows);
        }
        match config.pace {
            Pace::Window(_) if config.discard => return Err(LoadError::WindowWithoutAnswers),
            Pace::Window(0) => return Err(LoadError::NoWindow),
            Pace::Window(_) | Pace::Rate { .. } => {}
        }
        let (to, outcomes) = mpsc::channel();
        let common = Common {
            // Any number will do, as long as the next run has another.
            run: (config.seed ^ config.seed >> 32) as u32,
            progress: flows.iter().map(|_| LaneProgress::default()).collect(),
            flows,
            gate: Gate::new(active),
            outcomes: Mutex::new(to),
            config,
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
                if common.flows.get(usize::from(here.bucket.0)).is_none_or(|n| *n == 0) {
                    return;
                }
                let outcome = Lane::run(common.clone(), here.bucket.0).await;
                let to = common.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                // Nobody waits any more: nobody minds.
                let _ = to.send(outcome);
            })
        }
    }

    /// Ends the run as soon as its lanes see it; they still wait for answers on their way.
    pub fn stop(&self) {
        self.common.stop();
    }

    /// How far it is, at most a twentieth of a second ago.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.common.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        Progress { sent: sum(|p| &p.sent), received: sum(|p| &p.received) }
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut(Progress) -> bool) -> Outcome {
        let config = &self.common.config;
        // Probing, the run, draining, and as much again for a machine that has other things to do.
        let patience = timeline::duration(&config.phases) + config.timeout * 2 + Duration::from_secs(20);
        let gate = &self.common.gate;
        let (lanes, interrupted) = gather(&self.outcomes, gate, patience, every, || tick(self.progress()));
        let missing = gate.active - lanes.len();
        Outcome::merge(lanes, &config.phases, interrupted, missing)
    }
}
