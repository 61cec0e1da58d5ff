//! A run: the state shared by the lanes, the common start, and the records at the end.
//!
//! ```text
//!   HttpLoad::new ▸ Host::new(.., load.main()) ▸ runtime.start() ▸ load.wait() ▸ HttpOutcome ▸ report::join()
//!                   each lane: connect ▸ wait for the others ▸ requests ▸ drain ▸ records
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::choice::Weighted;
use super::clock;
use super::engine::Engine;
use super::open::Secure;
use super::plan::{BadPlan, Plan, Pool, Version};
use super::pool::{PoolPlan, share};
use super::prepared::prepare;
use crate::report::{LaneRecord, Snapshot};
use crate::timeline;

/// Time between the last lane being ready and the first request, nanoseconds.
const RUN_UP: u64 = 2_000_000;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) plan: Plan,
    pub(super) pools: Vec<Arc<PoolPlan>>,
    /// Number of lanes of the host, and of those with connections.
    pub(super) lanes: usize,
    active: usize,
    ready: AtomicUsize,
    /// Start time, nanoseconds; 0 until all lanes are ready.
    pub(super) start: AtomicU64,
    stop: AtomicBool,
    /// Whether workers poll shortly before a request is due.
    pub(super) exact: bool,
    /// How late requests may be sent so that several are sent together, nanoseconds.
    pub(super) slack: u64,
    /// Established connections of each lane, before the start.
    standing: Vec<AtomicU64>,
    outcomes: Mutex<Sender<LaneResult>>,
    snapshots: Option<SyncSender<Snapshot>>,
}

/// Result of a lane.
#[derive(Debug)]
pub(super) struct LaneResult {
    pub(super) records: Vec<LaneRecord>,
    /// When it ended.
    pub(super) end: u64,
    pub(super) failure: Option<String>,
}

impl Common {
    #[inline]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Publishes the number of established connections of a lane.
    pub(super) fn stand(&self, bucket: u16, connections: u64) {
        if let Some(standing) = self.standing.get(usize::from(bucket)) {
            standing.store(connections, Ordering::Relaxed);
        }
    }

    /// A lane is ready; the last one sets the start time.
    pub(super) fn arrived(&self) {
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.active {
            self.start.store(clock() + RUN_UP, Ordering::Release);
        }
    }

    /// The share of the nominal load at this time.
    pub(super) fn factor(&self, now: u64) -> f64 {
        let mut at = self.start.load(Ordering::Relaxed);
        for phase in &self.plan.phases {
            let length = phase.duration.as_nanos() as u64;
            if now < at + length {
                let passed = now.saturating_sub(at) as f64 / length.max(1) as f64;
                return phase.from + (phase.to - phase.from) * passed;
            }
            at += length;
        }
        self.plan.phases.last().map_or(1.0, |p| p.to)
    }

    pub(super) fn snapshots(&self) -> Option<SyncSender<Snapshot>> {
        self.snapshots.clone()
    }

    pub(super) fn done(&self, result: LaneResult) {
        // An error means that the receiver has stopped waiting.
        let _ = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).send(result);
    }
}

/// Options of a run, besides its plan.
#[derive(Debug, Default)]
pub struct HttpOptions {
    /// Lanes of the host that runs it: the buckets of its steering, or the lanes of kernel sockets.
    pub lanes: usize,
    /// Workers poll shortly before a request is due: more exact send times, more processor time.
    pub exact: bool,
    /// How late requests of an open loop may be sent, so that several are sent after one wake-up. Zero: each is sent when it is due.
    pub slack: Duration,
    /// Where snapshots go while it runs.
    pub snapshots: Option<SyncSender<Snapshot>>,
}

/// A run.
#[derive(Debug)]
pub struct HttpLoad {
    common: Arc<Common>,
    outcomes: Receiver<LaneResult>,
}

/// Result of a run.
#[derive(Debug)]
pub struct HttpOutcome {
    /// The records of each lane and pool, for [`crate::report::join`].
    pub records: Vec<LaneRecord>,
    /// Time during which requests were sent, without opening connections and waiting at the end.
    pub elapsed: Duration,
    /// The measured part of that time.
    pub measured: Duration,
    /// Whether [`HttpLoad::stop`] ended it early.
    pub interrupted: bool,
    /// Why it could not run or continue.
    pub failure: Option<String>,
}

impl HttpLoad {
    /// Prepares a run.
    ///
    /// # Errors
    /// What is wrong with the plan.
    pub fn new(plan: Plan, options: HttpOptions) -> Result<Self, BadPlan> {
        plan.check()?;
        let lanes = options.lanes.max(1);
        let pools: Vec<Arc<PoolPlan>> = plan.pools.iter().map(pool).collect::<Result<_, _>>()?;
        let connections = |lane: usize| -> u64 {
            plan.pools.iter().map(|p| share(p.connections as u64, lane, lanes)).sum()
        };
        let active = (0..lanes).filter(|lane| connections(*lane) > 0).count();
        let (to, outcomes) = channel();
        let common = Common {
            pools,
            lanes,
            active,
            ready: AtomicUsize::new(0),
            start: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            exact: options.exact,
            slack: options.slack.as_nanos() as u64,
            standing: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            outcomes: Mutex::new(to),
            snapshots: options.snapshots,
            plan,
        };
        Ok(Self { common: Arc::new(common), outcomes })
    }

    /// The main function of the lanes of the host that is to run it.
    pub fn main(&self) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
        let common = self.common.clone();
        move || {
            let common = common.clone();
            Box::pin(async move {
                let Ok(here) = flowlane::current() else { return };
                let lane = usize::from(here.bucket.0);
                let connections: u64 =
                    common.plan.pools.iter().map(|p| share(p.connections as u64, lane, common.lanes)).sum();
                if connections > 0 {
                    Engine::new(common, here.bucket.0).await;
                }
            })
        }
    }

    /// Ends the run. Its lanes notice soon, and still wait a short time for outstanding answers.
    pub fn stop(&self) {
        self.common.stop();
    }

    /// While connections are opened in advance: the number established, and the number to open. `None` once requests are sent, and if
    /// connections are opened on demand.
    #[must_use]
    pub fn connecting(&self) -> Option<(u64, u64)> {
        let plan = &self.common.plan;
        let first = plan.pools.iter().filter(|p| p.connects_first());
        let wanted: u64 = first.map(|p| p.connections as u64).sum();
        let begun = self.common.start.load(Ordering::Relaxed) != 0;
        let standing = self.common.standing.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        (!begun && wanted > 0).then_some((standing, wanted))
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut() -> bool) -> HttpOutcome {
        let plan = &self.common.plan;
        // The run, draining, and as much again for a busy machine. Lanes limit the time of connecting
        // themselves: they continue as long as there is progress.
        let patience = plan.duration() + plan.timeout * 2 + plan.waiting * 2 + Duration::from_secs(60);
        let mut begun = Instant::now();
        let (mut lanes, mut interrupted) = (Vec::new(), false);
        while lanes.len() < self.common.active && begun.elapsed() < patience {
            match self.outcomes.recv_timeout(every) {
                Ok(lane) => lanes.push(lane),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !interrupted && !tick() {
                interrupted = true;
                self.stop();
            }
            if !interrupted && self.common.start.load(Ordering::Relaxed) == 0 {
                begun = Instant::now();
            }
        }
        let missing = self.common.active - lanes.len();
        let mut failure = lanes.iter_mut().find_map(|l| l.failure.take());
        if missing > 0 && failure.is_none() {
            failure = Some(format!("{missing} lanes of the generator did not end"));
        }
        let start = self.common.start.load(Ordering::Relaxed);
        let end = lanes.iter().map(|l| l.end).max().unwrap_or(start);
        let ran = Duration::from_nanos(end.saturating_sub(start));
        let elapsed = if start == 0 { Duration::ZERO } else { ran.min(plan.duration()) };
        HttpOutcome {
            measured: timeline::measured_within(&plan.phases, elapsed),
            elapsed,
            interrupted,
            failure,
            records: records(lanes),
        }
    }
}

fn records(lanes: Vec<LaneResult>) -> Vec<LaneRecord> {
    lanes.into_iter().flat_map(|lane| lane.records).collect()
}

fn pool(pool: &Pool) -> Result<Arc<PoolPlan>, BadPlan> {
    let http2 = matches!(pool.version, Version::Http2 { .. });
    let secure = |target: &super::plan::Target| {
        target.url.https.then(|| Secure::new(&target.url.host, &pool.trust, http2)).transpose()
    };
    let any = pool.targets.iter().any(|t| t.url.https);
    Ok(Arc::new(PoolPlan {
        prepared: prepare(pool)?,
        secure: if any {
            pool.targets.iter().map(secure).collect::<Result<_, _>>()?
        } else {
            vec![None; pool.targets.len()]
        },
        requests: Weighted::new(pool.requests.iter().map(|r| r.weight)),
        pool: pool.clone(),
    }))
}
