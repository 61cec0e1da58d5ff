//! A run: the state shared by the lanes, the common start, and the records at the end.
//!
//! ```text
//!   HttpLoad::new ▸ Host::new(.., load.main()) ▸ runtime.start() ▸ load.wait() ▸ HttpOutcome ▸ report::join()
//!                   each lane: connect ▸ wait for the others ▸ requests ▸ drain ▸ records
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::anew::Anew;
use super::aws::hash;
use super::choice::Weighted;
use super::engine::Engine;
use super::filled::{Names, literal};
use super::head::proxy_of;
use super::origins::Finder;
use super::plan::{BadPlan, Plan, Pool, Request, Target, Version};
use super::pool::PoolPlan;
use super::prepared::prepare;
use super::replay::Lines;
use super::way::{Way, quic, tls};
use crate::report::requests::LogTo;
use crate::report::{LaneRecord, SnapshotsTo};
use crate::run::changes::Changed;
use crate::run::gate::{self, Gate, Outcomes, Patience, gather};
use crate::run::part::{Part, even};
use crate::run::timeline;

/// State shared by the lanes of a run.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) plan: Plan,
    pub(super) pools: Vec<Arc<PoolPlan>>,
    /// Number of lanes of the host.
    pub(super) lanes: usize,
    /// Which lanes of the run they are.
    pub(super) part: Part,
    pub(super) gate: Gate,
    /// Connections of each lane.
    connections: Vec<u64>,
    /// What generators left that are gone.
    pub(super) anew: Anew,
    /// Whether workers poll shortly before a request is due.
    pub(super) exact: bool,
    /// How late requests may be sent so that several are sent together, nanoseconds.
    pub(super) slack: u64,
    /// Established connections of each lane, before the start.
    standing: Vec<AtomicU64>,
    pub(super) outcomes: Outcomes<LaneResult>,
    snapshots: Option<SnapshotsTo>,
    log: Option<LogTo>,
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
    /// Publishes the number of established connections of a lane.
    pub(super) fn stand(&self, bucket: u16, connections: u64) {
        if let Some(standing) = self.standing.get(usize::from(bucket)) {
            standing.store(connections, Ordering::Relaxed);
        }
    }

    /// The share of the nominal load at this time.
    pub(super) fn factor(&self, now: u64) -> f64 {
        let mut at = self.gate.start().unwrap_or_default();
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

    /// Whether lanes have anything to do, in their order.
    pub(super) fn lanes_taking_part(&self) -> impl Iterator<Item = bool> {
        self.connections.iter().map(|n| *n > 0)
    }

    pub(super) fn log(&self) -> Option<LogTo> {
        self.log.clone()
    }

    pub(super) fn snapshots(&self) -> Option<SnapshotsTo> {
        self.snapshots.clone()
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
    pub snapshots: Option<SnapshotsTo>,
    /// Where a line for each request goes.
    pub log: Option<LogTo>,
    /// Which part of the run this is, if others make the rest: it waits until it is said when to start, see [`HttpLoad::begin_at`].
    pub part: Option<Part>,
    /// A lane that has made its share of a total waits for [`HttpLoad::finish`]: others may be lost, whose shares it then has, see [`HttpLoad::share`].
    pub stays: bool,
}

/// A run.
#[derive(Debug)]
pub struct HttpLoad {
    pub(super) common: Arc<Common>,
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
    /// What was changed while it ran, in the order in which it took effect.
    pub changes: Vec<Changed>,
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
        let part = options.part.unwrap_or(Part::whole(lanes));
        let of_lane = |lane: usize| -> u64 {
            plan.pools.iter().map(|p| even(p.connections as u64, lane, part.of)).sum()
        };
        let connections: Vec<u64> = (part.first..part.first + lanes).map(of_lane).collect();
        let active = connections.iter().filter(|n| **n > 0).count();
        if active == 0 {
            return Err(BadPlan(
                "no connection is left for this part of the run: fewer parts, or more connections".into(),
            ));
        }
        let (to, outcomes) = Outcomes::new();
        let common = Common {
            pools,
            lanes,
            part,
            connections,
            anew: Anew::new(lanes, options.stays),
            gate: Gate::new(active).held(options.part.is_some()),
            exact: options.exact,
            slack: options.slack.as_nanos() as u64,
            standing: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            outcomes: to,
            snapshots: options.snapshots,
            log: options.log,
            plan,
        };
        Ok(Self { common: Arc::new(common), outcomes })
    }

    /// The main function of the lanes of the host that is to run it.
    pub fn main(&self) -> impl Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync + 'static {
        let common = self.common.clone();
        gate::main(move |bucket| {
            let takes_part = common.connections.get(usize::from(bucket)).is_some_and(|n| *n > 0);
            takes_part.then(|| Engine::new(common.clone(), bucket))
        })
    }

    /// Ends the run. Its lanes notice soon, and still wait a short time for outstanding answers.
    pub fn stop(&self) {
        self.common.gate.stop();
    }

    /// Says when a part of a run starts, once all its lanes [are ready](Self::is_ready).
    pub fn begin_at(&self, moment: std::time::Instant) {
        self.common.gate.begin_at(moment);
    }

    /// Whether all lanes have their connections and wait for the start.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.common.gate.is_ready()
    }

    /// While connections are opened in advance: the number established, and the number to open. `None` once requests are sent, and if
    /// connections are opened on demand.
    #[must_use]
    pub fn connecting(&self) -> Option<(u64, u64)> {
        let (plan, part) = (&self.common.plan, self.common.part);
        let first = plan.pools.iter().filter(|p| p.connects_first());
        let wanted: u64 = first.map(|p| part.share(p.connections as u64, self.common.lanes)).sum();
        let begun = self.common.gate.start().is_some();
        let standing = self.common.standing.iter().map(|n| n.load(Ordering::Relaxed)).sum();
        (!begun && wanted > 0).then_some((standing, wanted))
    }

    /// Waits for the end; `tick` is called about every `every` and may end the run by returning `false`.
    pub fn wait(&self, every: Duration, mut tick: impl FnMut() -> bool) -> HttpOutcome {
        let plan = &self.common.plan;
        // The run, draining, and as much again for a busy machine. Lanes limit the time of connecting
        // themselves: they continue as long as there is progress.
        let after = plan.duration() + plan.timeout * 2 + plan.waiting * 2 + Duration::from_secs(60);
        let (gate, patience) = (&self.common.gate, Patience { before: None, after });
        let (mut lanes, interrupted) = gather(&self.outcomes, gate, &patience, every, &mut tick);
        let missing = gate.active - lanes.len();
        let mut failure = lanes.iter_mut().find_map(|l| l.failure.take());
        if missing > 0 && failure.is_none() {
            failure = Some(format!("{missing} lanes of the generator did not end"));
        }
        let start = gate.start().unwrap_or_default();
        let end = lanes.iter().map(|l| l.end).max().unwrap_or(start);
        let ran = Duration::from_nanos(end.saturating_sub(start));
        let elapsed = if start == 0 { Duration::ZERO } else { ran.min(plan.duration()) };
        HttpOutcome {
            measured: timeline::measured_within(&plan.phases, elapsed),
            elapsed,
            changes: gate.changes.within(elapsed),
            interrupted,
            failure,
            records: records(lanes),
        }
    }
}

fn records(lanes: Vec<LaneResult>) -> Vec<LaneRecord> {
    lanes.into_iter().flat_map(|lane| lane.records).collect()
}

fn lines(pool: &Pool) -> Vec<Lines> {
    pool.targets.iter().map(|target| Lines::new(&target.url, proxy_of(pool, &target.url))).collect()
}

fn pool(pool: &Pool) -> Result<Arc<PoolPlan>, BadPlan> {
    let names = Names::of(pool);
    let slots = pool.requests.iter().map(|r| names.slots(r)).collect();
    let pool = &literal(pool)?;
    let prepared = prepare(pool)?;
    let fills = prepared.iter().any(|p| p.filled.is_some());
    let signed = pool.aws.as_ref().map(|_| pool.requests.iter().map(|r| hash(&r.body)).collect());
    let any = pool.targets.iter().any(|t| t.url.https);
    let tls = match any {
        true => Some(tls(pool)?),
        // A redirect may lead to https: what is missing for that is said when one does.
        false => pool.follow.and_then(|_| tls(pool).ok()),
    };
    let quic = match (pool.version, &tls) {
        (Version::Http3 { .. }, Some(tls)) => Some(quic(tls)?),
        _ => None,
    };
    let way = |t: &Target| Way::new(&t.url, pool, tls.as_ref());
    Ok(Arc::new(PoolPlan {
        lines: lines(pool),
        has_clients: fills
            || pool.replay.is_some()
            || pool.aws.is_some()
            || pool.steps
            || pool.requests.iter().any(Request::is_watched),
        is_apart: pool.replay.is_some() || pool.aws.is_some(),
        hashes: signed.unwrap_or_default(),
        names: names.all().len(),
        slots,
        prepared,
        quic,
        ways: pool.targets.iter().map(way).collect::<Result<_, _>>()?,
        requests: Weighted::new(pool.requests.iter().map(|r| r.weight)),
        finder: pool.follow.map(|_| Finder::new(pool, tls.clone())),
        pool: pool.clone(),
    }))
}
