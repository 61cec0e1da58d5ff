//! Lanes move between workers while packets flow: nothing is lost, nothing is overtaken.

use std::time::{Duration, Instant};

use flowlane::{Bucket, MoveError};

use crate::traffic::{CLIENT, PATIENCE, PATIENCE_FOR_MOVES, Plan, SERVER, assert_perfect};

/// A thousand moves of random lanes, of the server and of the client, under load.
#[test]
fn a_thousand_moves_under_load_lose_and_reorder_nothing() {
    let plan = Plan { datagrams: 20_000, flows: 8, window: 4, buckets: 4, ..Plan::default() };
    let net = plan.start();
    let handle = net.runtime.handle();
    let mut flows = std::collections::BTreeMap::new();
    let (mut reported, mut moves, mut during) = (0, 0u32, 0u32);
    let mut random = 0x1234_5678_9abc_def1u64;
    let begin = Instant::now();
    for _ in 0..1000 {
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
    let counted: u64 = report.workers.iter().flat_map(|w| &w.lanes).map(|l| l.moves).sum();
    assert_eq!(counted, u64::from(moves));
    assert!(report.workers.iter().all(|w| w.move_overflow == 0 && w.netisr.dropped == 0));
    assert_eq!(report.total(SERVER).drops.total(), 0);
    assert!(report.steering(SERVER).redirected > 0, "frames for moved lanes were handed over");
}

/// Timers go with their lane.
#[test]
fn a_sleeping_task_wakes_on_the_other_worker() {
    use flowlane::{Host, Interface, Key, PairConfig, Runtime, UdpFields, current, sleep};
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
