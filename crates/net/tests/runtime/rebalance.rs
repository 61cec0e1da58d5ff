//! Lanes move by themselves from a worker that has too much to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowlane::rebalance::{Even, Observation, Pack, Policy, Rebalancer, Step};
use flowlane::{Bucket, Handle, Host, Key, Runtime, UdpFields, block_on, sleep};

use crate::traffic::{PATIENCE, rss};

const PERIOD: Duration = Duration::from_millis(20);

/// Two workers with four lanes each. Lanes whose task `is_hot` never rest; the others do nothing.
fn runtime(is_hot: fn(u16) -> bool) -> Runtime {
    let mut builder = Runtime::builder().workers(2).pin(false);
    builder.host(Host::kernel("host", rss(Key::MICROSOFT, 8, 2, UdpFields::Two), move || async move {
        let bucket = flowlane::current().map_or(0, |lane| lane.bucket.0);
        while is_hot(bucket) {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(100) {
                std::hint::spin_loop();
            }
            flowlane::yield_now().await;
        }
    }));
    builder.start().unwrap()
}

fn workers(handle: &Handle, buckets: &[u16]) -> Vec<usize> {
    buckets.iter().map(|&bucket| handle.worker_of(0, Bucket(bucket)).unwrap()).collect()
}

/// Waits in an idle lane until `is_so`.
fn until(handle: &Handle, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", workers(handle, &[0, 1, 2, 3, 4, 5, 6, 7]));
        block_on(handle.spawn_on(0, Bucket(7), sleep(PERIOD)).unwrap()).unwrap();
    }
}

/// The hot lanes of one worker are shared out.
#[test]
fn hot_lanes_of_one_worker_are_shared_out() {
    let runtime = runtime(|bucket| bucket < 2);
    let handle = runtime.handle();
    // Both on one worker, wherever they were.
    for bucket in [0, 1] {
        handle.move_lane(0, Bucket(bucket), 0).unwrap();
    }
    let rebalancer = Rebalancer::start(handle.clone(), Box::<Even>::default(), PERIOD).unwrap();
    assert_eq!(rebalancer.policy(), "even");
    until(&handle, || {
        let at = workers(&handle, &[0, 1]);
        // A lane is at its new worker before its move is counted.
        at[0] != at[1] && rebalancer.counts().moves > 0
    });
    assert_eq!(rebalancer.counts().failed, 0);
    drop(rebalancer);
    drop(runtime);
}

/// Nothing to do: rounds pass, and no lane moves.
#[test]
fn idle_lanes_stay() {
    let runtime = runtime(|_| false);
    let handle = runtime.handle();
    let rebalancer = Rebalancer::start(handle.clone(), Box::<Even>::default(), PERIOD).unwrap();
    until(&handle, || rebalancer.counts().rounds >= 10);
    assert_eq!(rebalancer.counts().moves, 0);
    // The runtime may end first.
    drop(runtime);
    drop(rebalancer);
}

/// A worker that is not needed sleeps whole: rounds pass, and it does not turn. When there is load for two it gets lanes.
#[test]
fn a_worker_without_lanes_sleeps_whole_until_there_is_load() {
    static BUSY: AtomicBool = AtomicBool::new(false);
    let mut builder = Runtime::builder().workers(2).pin(false);
    builder.host(Host::kernel("host", rss(Key::MICROSOFT, 8, 2, UdpFields::Two), || async {
        let bucket = flowlane::current().map_or(0, |lane| lane.bucket.0);
        // Lanes 0 to 3 compute when they are told to; the others do next to nothing.
        loop {
            if BUSY.load(Ordering::Relaxed) && bucket < 4 {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
                flowlane::yield_now().await;
            } else {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let mut pack = Pack::default();
    (pack.calm, pack.rest) = (3, 1);
    let rebalancer = Rebalancer::start(handle.clone(), Box::new(pack), Duration::from_millis(5)).unwrap();
    let all = [0, 1, 2, 3, 4, 5, 6, 7];
    until(&handle, || workers(&handle, &all).iter().all(|worker| *worker == 0));
    let counted = || {
        let report = handle.counters();
        (report.workers[1].turns.all, report.workers[1].time.asleep, report.workers[0].turns.all)
    };
    let before = counted();
    let rounds = rebalancer.counts().rounds;
    until(&handle, || rebalancer.counts().rounds >= rounds + 100);
    let after = counted();
    // The report itself is a turn or two.
    assert!(after.0 - before.0 <= 4, "{} turns of the worker without lanes", after.0 - before.0);
    assert!(after.2 - before.2 >= 100, "the other one turns");
    assert!(after.1 > before.1);
    BUSY.store(true, Ordering::Relaxed);
    until(&handle, || workers(&handle, &all).contains(&1));
    BUSY.store(false, Ordering::Relaxed);
}

/// Proposes what cannot be.
#[derive(Debug)]
struct Absurd;

impl Policy for Absurd {
    fn name(&self) -> &'static str {
        "absurd"
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Step> {
        vec![Step { lane: 0, worker: seen.workers }, Step { lane: seen.lanes.len(), worker: 0 }]
    }
}

/// What a policy says is checked: no such worker, no such lane.
#[test]
fn steps_that_cannot_be_made_are_counted() {
    let runtime = runtime(|_| false);
    let handle = runtime.handle();
    let rebalancer = Rebalancer::start(handle.clone(), Box::new(Absurd), PERIOD).unwrap();
    until(&handle, || rebalancer.counts().failed >= 4);
    assert_eq!(rebalancer.counts().moves, 0);
}
