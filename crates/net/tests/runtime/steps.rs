//! Where the time of workers goes, and where workers meet.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::stats::{Figures, StepTimes, WorkerReport};
use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, UdpFields};

use crate::traffic::{PATIENCE, Plan, assert_perfect};

fn working(time: &StepTimes) -> u64 {
    time.total() - time.looking - time.asleep
}

/// No time is charged twice, and lanes are charged no more than their worker was at work.
#[test]
fn the_shares_of_a_worker_are_its_time() {
    let began = Instant::now();
    let plan = Plan { workers: 2, buckets: 8, udp: UdpFields::Four, flows: 8, ..Plan::default() };
    let net = plan.start();
    assert_perfect(&plan, &net.finish());
    let report = net.runtime.stop();
    let passed = began.elapsed().as_nanos() as u64;
    for worker in &report.workers {
        let time = &worker.time;
        assert!(time.total() <= passed, "{time:?} in {passed}");
        let lanes: u64 = worker.lanes.iter().map(|lane| lane.counts.busy_nanos).sum();
        assert!(lanes > 0 && working(time) >= lanes, "lanes {lanes}: {time:?}");
        for (name, value) in StepTimes::FIELDS.iter().zip(time.values()).take(3) {
            assert!(value > 0, "{name}: {time:?}");
        }
        assert!(time.transmit > 0, "{time:?}");
        let mut each = Vec::new();
        time.each(&mut |counter| each.push((counter.name.to_owned(), counter.value)));
        let named = StepTimes::FIELDS.iter().map(|name| format!("{name}-nanos")).zip(time.values());
        assert!(named.eq(each), "every view has the same numbers");
    }
}

/// A task that keeps its worker is where the time goes, as long as it kept it.
#[test]
fn a_task_that_spins_is_charged_to_tasks() {
    const SPIN: Duration = Duration::from_millis(30);
    let (done, spun) = mpsc::channel();
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder().workers(1).pin(false);
    let host = Host::new("host", rss.clone(), move || {
        let done = done.clone();
        async move {
            // The first turn of the loop comes after the first tasks have run.
            flowlane::sleep(Duration::from_micros(1)).await;
            let began = Instant::now();
            while began.elapsed() < SPIN {
                std::hint::spin_loop();
            }
            let _ = done.send(());
            std::future::pending::<()>().await;
        }
    });
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let a = builder.host(host.interface(on("10.0.0.1/24")));
    let b = builder.host(Host::new("other", rss, || async {}).interface(on("10.0.0.2/24")));
    builder.pair((a, 0), (b, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    // One for each lane of the host.
    for _ in 0..runtime.handle().report().lanes(0).len() {
        spun.recv_timeout(PATIENCE).unwrap();
    }
    let lanes = runtime.handle().report().lanes(0).len() as u64;
    let report = runtime.stop();
    let time = report.workers[0].time;
    let least = lanes * SPIN.as_nanos() as u64;
    // The two counters of the processor and of the clock need not agree to the last.
    assert!(time.tasks >= least / 100 * 98, "{lanes} lanes: {time:?}");
}

/// A worker that sleeps is asleep, and who wakes it is counted there. A worker counts whom it woke.
#[test]
fn sleeps_and_who_ends_them_are_counted() {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder().workers(1).pin(false);
    builder.host(Host::kernel("host", rss, || async {}));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let began = Instant::now();
    let woken = |worker: &WorkerReport| worker.meeting.woken > 0 && worker.time.asleep > 0;
    // It may be awake still when it is asked first, and then again.
    while !handle.report().workers.iter().all(woken) {
        assert!(began.elapsed() < PATIENCE, "{:?}", handle.report().workers[0].meeting);
    }
    let meeting = runtime.stop().workers[0].meeting;
    assert!(meeting.woken > 0 && meeting.rung == 0 && meeting.woke == 0, "nobody else is there: {meeting:?}");
}
