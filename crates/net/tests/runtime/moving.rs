//! Lanes move between workers while packets flow: nothing is lost, nothing is overtaken.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::{Bucket, Host, Key, MoveError, Rss, Runtime, block_on, timeout};

use crate::traffic::{CLIENT, PATIENCE, PATIENCE_FOR_MOVES, Plan, SERVER, assert_perfect};

/// Hundreds of moves of random lanes, of the server and of the client, under load.
#[test]
fn hundreds_of_moves_under_load_lose_and_reorder_nothing() {
    let plan = Plan { datagrams: 3_000, flows: 8, window: 8, buckets: 4, ..Plan::default() };
    let net = plan.start();
    let handle = net.runtime.handle();
    let mut flows = std::collections::BTreeMap::new();
    let (mut reported, mut moves, mut during) = (0, 0u32, 0u32);
    let mut random = 0x1234_5678_9abc_def1u64;
    let begin = Instant::now();
    for _ in 0..400 {
        net.collect(&mut flows, &mut reported);
        assert!(begin.elapsed() < PATIENCE_FOR_MOVES, "{moves} moves, {reported} lanes done");
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = if random >> 63 == 0 { SERVER } else { CLIENT };
        let bucket = Bucket((random >> 40) as u16 % 4);
        let to = 1 - handle.worker_of(host, bucket).unwrap();
        handle.move_lane(host, bucket, to).unwrap();
        assert_eq!(handle.worker_of(host, bucket), Some(to));
        moves += 1;
        during += u32::from(reported == 0);
    }
    assert!(during > 100, "only {during} of {moves} moves happened under load");
    net.wait(&mut flows, reported);
    let report = net.runtime.stop();
    assert_perfect(&plan, &flows);
    let counted: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.counts.moves).sum();
    assert_eq!(counted, u64::from(moves));
    assert!(report.workers.iter().all(|w| w.pool.move_overflow == 0 && w.netisr.dropped == 0));
    assert_eq!(report.total(SERVER).drops.total(), 0);
    assert!(report.steering(SERVER).redirected > 0, "frames for moved lanes were handed over");
}

/// Several lanes of both hosts at once, and moves that are given up at any moment: each lane is where its move says.
// Long: three hundred rounds of eight moves while datagrams flow.
#[test]
fn moves_side_by_side_and_given_up_lose_and_reorder_nothing() {
    let plan = Plan { datagrams: 3_000, flows: 8, window: 8, buckets: 4, ..Plan::default() };
    let net = plan.start();
    let handle = net.runtime.handle();
    let mut flows = std::collections::BTreeMap::new();
    let (mut reported, mut random) = (0, 0x9abc_def1_1234_5678u64);
    let (mut given_up, mut arrived, mut during) = (0, 0, 0);
    for _ in 0..300 {
        net.collect(&mut flows, &mut reported);
        during += u32::from(reported == 0);
        let places = [SERVER, CLIENT].into_iter().flat_map(|host| (0..4).map(move |b| (host, Bucket(b))));
        let begun: Vec<_> = places
            .map(|(host, bucket)| {
                let from = handle.worker_of(host, bucket).unwrap();
                (host, bucket, from, handle.begin_move(host, bucket, 1 - from).unwrap())
            })
            .collect();
        for (host, bucket, from, lane) in begun {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if random >> 62 == 0 {
                for _ in 0..random >> 44 & 0xfff {
                    std::hint::spin_loop();
                }
                if lane.give_up() {
                    assert_eq!(handle.worker_of(host, bucket), Some(from));
                    given_up += 1;
                    continue;
                }
                // It arrives, whoever waits for it: then to move it there is nothing to do.
                let deadline = Instant::now() + PATIENCE;
                while let Err(error) = handle.begin_move(host, bucket, 1 - from).map(drop) {
                    assert_eq!(error, MoveError::Moving);
                    assert!(Instant::now() < deadline, "the lane is on its way for ever");
                }
            } else {
                block_on(lane).unwrap();
                assert_eq!(handle.worker_of(host, bucket), Some(1 - from));
                arrived += 1;
            }
        }
    }
    assert!(
        given_up > 20 && arrived > 200 && during > 20,
        "{given_up} given up, {arrived} arrived, {during} under load"
    );
    net.wait(&mut flows, reported);
    let report = net.runtime.stop();
    assert_perfect(&plan, &flows);
    assert!(report.workers.iter().all(|w| w.pool.move_overflow == 0 && w.netisr.dropped == 0));
}

/// Timers go with their lane.
#[test]
fn a_sleeping_task_wakes_on_the_other_worker() {
    use flowlane::{Interface, PairConfig, UdpFields, current, sleep};
    let rss = crate::traffic::rss(Key::MICROSOFT, 2, 2, UdpFields::Two);
    let (say, said) = std::sync::mpsc::channel();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().workers(2).pin(false);
    let host = Host::new("a", rss.clone(), move || {
        let say = say.clone();
        async move {
            if current().unwrap().bucket.0 == 0 {
                say.send(current().unwrap().worker).unwrap();
                sleep(Duration::from_millis(300)).await;
                say.send(current().unwrap().worker).unwrap();
            }
        }
    });
    let a = builder.host(host.interface(on("10.0.0.1/24")));
    let b = builder.host(Host::new("b", rss, || async {}).interface(on("10.0.0.2/24")));
    builder.pair((a, 0), (b, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    assert_eq!(said.recv_timeout(PATIENCE), Ok(0));
    runtime.handle().move_lane(a, Bucket(0), 1).unwrap();
    assert_eq!(said.recv_timeout(PATIENCE), Ok(1));
}

#[test]
fn moves_that_make_no_sense_are_refused() {
    let net = Plan { datagrams: 1, ..Plan::default() }.start();
    let handle = net.runtime.handle();
    assert_eq!(handle.move_lane(9, Bucket(0), 0), Err(MoveError::NoSuchLane));
    assert_eq!(handle.move_lane(SERVER, Bucket(99), 0), Err(MoveError::NoSuchLane));
    assert_eq!(handle.move_lane(SERVER, Bucket(0), 2), Err(MoveError::NoSuchWorker));
    let here = handle.worker_of(SERVER, Bucket(0)).unwrap();
    assert_eq!(handle.move_lane(SERVER, Bucket(0), here), Ok(()), "nothing to do");
    net.finish();
}

/// Two workers of one lane each, with a task in each lane that does not return until it is told to.
struct Stuck {
    runtime: Runtime,
    host: usize,
    go_on: [mpsc::Sender<()>; 2],
}

impl Stuck {
    fn new() -> Self {
        let mut builder = Runtime::builder().workers(2).pin(false);
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
        let host = builder.host(Host::kernel("host", rss, || async { flowlane::sleep(Duration::MAX).await }));
        let runtime = builder.start().unwrap();
        let go_on = [0, 1].map(|bucket| {
            let (go_on, wait) = mpsc::channel();
            let (say, said) = mpsc::channel();
            let stuck = async move {
                say.send(()).unwrap();
                let _ = wait.recv();
            };
            drop(runtime.handle().spawn_on(host, Bucket(bucket), stuck).unwrap());
            said.recv_timeout(PATIENCE).unwrap();
            go_on
        });
        Self { runtime, host, go_on }
    }

    fn runs_on(&self, bucket: u16) -> usize {
        let at = async { flowlane::current().unwrap().worker };
        let task = self.runtime.handle().spawn_on(self.host, Bucket(bucket), at).unwrap();
        block_on(timeout(PATIENCE, task)).expect("in time").expect("no panic")
    }
}

/// A worker whose task does not return is no reason to wait: the move is given up, the lane works where it was, and a later
/// move succeeds.
#[test]
fn a_worker_that_does_not_answer_costs_nothing_but_its_own_moves() {
    let net = Stuck::new();
    let handle = net.runtime.handle();
    let moved = handle.begin_move(net.host, Bucket(0), 1).unwrap();
    assert_eq!(handle.begin_move(net.host, Bucket(0), 1).map(drop), Err(MoveError::Moving));
    assert!(moved.give_up(), "nobody has heard of it");
    net.go_on[0].send(()).unwrap();
    assert_eq!(net.runs_on(0), 0, "while the other worker is still stuck");
    // And again, with the worker that has the lane at work and the other still stuck.
    let moved = handle.begin_move(net.host, Bucket(0), 1).unwrap();
    assert_eq!(net.runs_on(0), 0);
    assert!(moved.give_up());
    net.go_on[1].send(()).unwrap();
    assert_eq!(handle.move_lane(net.host, Bucket(0), 1), Ok(()));
    assert_eq!((handle.worker_of(net.host, Bucket(0)), net.runs_on(0)), (Some(1), 1));
}

/// The worker that has the lane is stuck: the one that waits for it forgets it.
#[test]
fn a_lane_that_is_not_given_stays() {
    let net = Stuck::new();
    let handle = net.runtime.handle();
    net.go_on[1].send(()).unwrap();
    let moved = handle.begin_move(net.host, Bucket(0), 1).unwrap();
    // The other worker has taken the message before this task.
    assert_eq!(net.runs_on(1), 1);
    assert!(moved.give_up());
    net.go_on[0].send(()).unwrap();
    assert_eq!(net.runs_on(0), 0);
    assert_eq!(handle.move_lane(net.host, Bucket(0), 1), Ok(()));
    assert_eq!(net.runs_on(0), 1);
}

/// A move is given up while its lane is parked, after its worker has looked into its inbox and before it would send the lane: the lane
/// stays. The worker is led from turn to turn by a task of another of its lanes, which waits for a word in each.
#[test]
fn a_lane_that_is_parked_stays_when_its_move_is_given_up() {
    let mut builder = Runtime::builder().workers(2).pin(false);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let host = builder.host(Host::kernel("host", rss, || async { flowlane::sleep(Duration::MAX).await }));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let (say, said) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let ticks = Arc::new(AtomicU32::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    // Of two tasks that yield, the one that began first runs first in each turn.
    let (counted, stopped) = (ticks.clone(), stop.clone());
    let tick = async move {
        while !stopped.load(SeqCst) {
            counted.fetch_add(1, SeqCst);
            flowlane::yield_now().await;
        }
        flowlane::current().unwrap().worker
    };
    let ticking = handle.spawn_on(host, Bucket(0), tick).unwrap();
    let (counted, stopped) = (ticks.clone(), stop.clone());
    let lead = async move {
        while !stopped.load(SeqCst) && say.send(counted.load(SeqCst)).is_ok() && wait.recv().is_ok() {
            flowlane::yield_now().await;
        }
    };
    drop(handle.spawn_on(host, Bucket(2), lead).unwrap());
    let turn = || said.recv_timeout(PATIENCE).unwrap();
    let first = turn();
    go_on.send(()).unwrap();
    assert!(turn() > first, "the lane's task runs in every turn");
    let moved = handle.begin_move(host, Bucket(0), 1).unwrap();
    // Until the lane is parked: its task did not run.
    let mut before = ticks.load(SeqCst);
    loop {
        go_on.send(()).unwrap();
        let now = turn();
        if now == before {
            break;
        }
        before = now;
    }
    assert!(moved.give_up(), "it has not been sent yet");
    while ticks.load(SeqCst) == before {
        go_on.send(()).unwrap();
        turn();
    }
    assert_eq!(handle.worker_of(host, Bucket(0)), Some(0));
    stop.store(true, SeqCst);
    drop(go_on);
    assert_eq!(block_on(timeout(PATIENCE, ticking)).unwrap().unwrap(), 0);
    assert_eq!(runtime.stop().lanes(host)[0].counts.moves, 0);
}

/// Runtimes that stop while lanes move: each lane is in the last report, once, with all that was counted for it.
#[test]
fn lanes_that_move_when_the_runtime_stops_are_reported() {
    const BUCKETS: u16 = 64;
    for round in 0..40 {
        let mut builder = Runtime::builder().workers(2).pin(false);
        let rss = crate::traffic::rss(Key::MICROSOFT, BUCKETS.into(), 2, flowlane::UdpFields::Two);
        let host = builder.host(Host::kernel("host", rss, || async { flowlane::sleep(Duration::MAX).await }));
        let runtime = builder.start().unwrap();
        let handle = runtime.handle();
        // Each lane has moved once, and is about to move once more.
        let begin = |b| {
            let from = handle.worker_of(host, Bucket(b)).unwrap();
            handle.begin_move(host, Bucket(b), 1 - from).unwrap()
        };
        for lane in (0..BUCKETS).map(begin).collect::<Vec<_>>() {
            block_on(lane).unwrap();
        }
        let places: Vec<_> = (0..BUCKETS).map(|b| handle.worker_of(host, Bucket(b)).unwrap()).collect();
        let begun: Vec<_> = (0..BUCKETS).map(begin).collect();
        let report = if round % 2 == 0 { runtime.stop() } else { runtime.stop_within(PATIENCE) };
        let lanes = report.lanes(host);
        let buckets: Vec<_> = lanes.iter().map(|lane| lane.bucket).collect();
        assert_eq!(buckets, (0..BUCKETS).collect::<Vec<_>>(), "each lane once");
        for ((lane, from), moved) in lanes.iter().zip(places).zip(begun) {
            // First task, and the moves that were awaited.
            assert!(lane.counts.task_runs >= 1 && (1..=2).contains(&lane.counts.moves), "{lane:?}");
            assert_eq!(lane.worker == from, lane.counts.moves == 1, "{lane:?}");
            if block_on(moved).is_ok() {
                assert_eq!(lane.counts.moves, 2, "{lane:?}");
            }
        }
    }
}
