//! The thread that reads loads, asks the policy and moves lanes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flowlane_rss::Bucket;
use flowlane_stack::time::Time;

use super::{LaneLoad, Observation, Policy, Step};
use crate::block::block_on;
use crate::runtime::handle::Handle;
use crate::runtime::moving::Move;
use crate::shared::Rebalanced;
pub use crate::stats::RebalanceCounts as Counts;
use crate::stats::Report;
use crate::task::timeout;

/// A move that takes longer than this is given up, if it still can be. A worker's turn is microseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Moves the lanes of a running runtime as a policy says. Dropping it ends that; lanes stay where they are.
#[derive(Debug)]
pub struct Rebalancer {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
    counted: Arc<Rebalanced>,
    policy: &'static str,
}

impl Rebalancer {
    /// Starts to judge the load of lanes once a `period`: 100 ms is a good one. A shorter one finds imbalance sooner and takes chance for it more often.
    ///
    /// A reading costs each worker that has a lane a copy of its counters, and the others nothing: they go on to sleep.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use flowlane::{Host, Key, Rss, Runtime};
    /// use flowlane::rebalance::{Even, Rebalancer};
    /// # let mut builder = Runtime::builder().workers(2).pin(false);
    /// # builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 2)), || async {}));
    /// # let runtime = builder.start().unwrap();
    /// let rebalancer = Rebalancer::start(runtime.handle(), Box::<Even>::default(), Duration::from_millis(100)).unwrap();
    /// // ...
    /// println!("{} lanes moved", rebalancer.counts().moves);
    /// ```
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(handle: Handle, policy: Box<dyn Policy>, period: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let counted = Arc::new(Rebalanced::default());
        let name = policy.name();
        let mut rounds = Rounds { handle, policy, before: None, counted: counted.clone() };
        let run = move || {
            while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
                rounds.round();
            }
        };
        let thread = thread::Builder::new().name("flowlane-moves".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread), counted, policy: name })
    }

    /// What it has done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counted.counts()
    }

    /// Name of its policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }
}

impl Drop for Rebalancer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A policy that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

/// One round after the other.
struct Rounds {
    handle: Handle,
    policy: Box<dyn Policy>,
    before: Option<Reading>,
    counted: Arc<Rebalanced>,
}

impl Rounds {
    /// Counts for this one and for the runtime.
    fn count(&self, what: fn(&Rebalanced) -> &AtomicU64) {
        what(&self.counted).fetch_add(1, Ordering::Relaxed);
        what(self.handle.rebalanced()).fetch_add(1, Ordering::Relaxed);
    }

    fn round(&mut self) {
        // Those without a lane have no load, and are left asleep.
        let (report, asked) = self.handle.counters_of_holders();
        if report.workers.len() < asked {
            self.before = None;
            self.count(|c| &c.unanswered);
            return;
        }
        let now = Reading::of(&report, self.handle.now());
        let before = self.before.replace(now);
        let (Some(before), Some(now)) = (&before, &self.before) else { return };
        let seen = now.since(before, self.handle.workers());
        let steps = self.policy.decide(&seen);
        self.count(|c| &c.rounds);
        self.make(&seen, &steps);
    }

    /// All steps at once, and waits for them.
    fn make(&self, seen: &Observation, steps: &[Step]) {
        let moves: Vec<Option<Move>> = steps
            .iter()
            .map(|step| {
                let lane = seen.lanes.get(step.lane)?;
                self.handle.begin_move(lane.host, lane.bucket, step.worker).ok()
            })
            .collect();
        for started in moves {
            let done = started.is_some_and(|mut moving| match block_on(timeout(PATIENCE, &mut moving)) {
                Ok(done) => done.is_ok(),
                // On its way it arrives once its worker takes it.
                Err(_) => !moving.give_up(),
            });
            self.count(if done { |c| &c.moves } else { |c| &c.failed });
        }
    }
}

/// How long workers have spent on each lane by now.
#[derive(Debug)]
struct Reading {
    at: Time,
    /// Nanoseconds, and the worker, of a host's bucket.
    busy: HashMap<(usize, Bucket), (u64, usize)>,
}

impl Reading {
    fn of(report: &Report, at: Time) -> Self {
        let lanes = report.workers.iter().flat_map(|worker| &worker.lanes);
        let busy =
            lanes.map(|lane| ((lane.host, Bucket(lane.bucket)), (lane.counts.busy_nanos, lane.worker)));
        Self { at, busy: busy.collect() }
    }

    /// The loads since an earlier one. Lanes that were in neither, because they were on their way, are left out.
    fn since(&self, before: &Self, workers: usize) -> Observation {
        let passed = (self.at.saturating_duration_since(before.at).as_nanos() as f64).max(1.0);
        let lanes = self.busy.iter().filter_map(|(&(host, bucket), &(busy, worker))| {
            let (earlier, _) = before.busy.get(&(host, bucket))?;
            let load = (busy.saturating_sub(*earlier) as f64 / passed).min(1.0);
            Some(LaneLoad { host, bucket, worker, load })
        });
        let mut lanes: Vec<_> = lanes.collect();
        lanes.sort_by_key(|lane| (lane.host, lane.bucket.0));
        Observation { workers, lanes }
    }
}
