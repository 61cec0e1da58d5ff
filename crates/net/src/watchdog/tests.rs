//! Workers that are made to stand still: by a task that computes, by one that waits in a system call, by a debugger.

use std::io::{PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::*;
use crate::{Bucket, Host, Key, Rss, Runtime};

const LIMIT: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime of two workers, watched; what it tells comes out of the channel.
fn watched() -> (Runtime, Watching, mpsc::Receiver<Stall>) {
    let mut builder = Runtime::builder().workers(2).pin(false);
    builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 2)), || async {}));
    let runtime = builder.start().unwrap();
    let (say, told) = mpsc::channel();
    let dog = Watchdog::new(LIMIT).on_stall(move |stall| say.send(stall.clone()).unwrap());
    let watching = dog.start(runtime.handle()).unwrap();
    (runtime, watching, told)
}

/// Waits for the stall of worker 1: on a machine with much to do others may be told, too.
fn of_worker_1(told: &mpsc::Receiver<Stall>) -> Stall {
    loop {
        let stall = told.recv_timeout(PATIENCE).unwrap();
        if stall.worker == 1 {
            return stall;
        }
    }
}

/// Waits until the last stall of worker 1 is over, and returns what was counted.
fn over(runtime: &Runtime) -> WatchdogReport {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let report = *runtime.handle().counters().watchdog.unwrap();
        if report.last.iter().find(|stall| stall.worker == 1).is_some_and(|stall| stall.is_over) {
            return report;
        }
        assert!(Instant::now() < deadline, "{report:?}");
    }
}

#[inline(never)]
fn computes_until(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[test]
fn a_task_that_computes() {
    let (runtime, _watching, told) = watched();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let line = line!() + 1;
    let task = runtime.handle().spawn_on(0, Bucket(1), async move { computes_until(&seen) }).unwrap();
    let stall = of_worker_1(&told);
    stop.store(true, Ordering::Relaxed);
    crate::block_on(task).unwrap();
    assert_eq!((stall.step, stall.lane.clone()), ("tasks", Some(("host".to_owned(), 1))), "{stall:?}");
    let task = stall.task.clone().unwrap();
    assert!(task.contains(&format!("watchdog/tests.rs:{line}:")), "{task}");
    assert!(stall.lasted >= LIMIT && stall.to_string().contains("worker 1 has not turned for"), "{stall}");
    match &stall.no_trace {
        None => assert!(stall.trace.iter().any(|name| name.contains("computes_until")), "{stall:#?}"),
        Some(why) => panic!("no trace: {why}"),
    }
    let report = over(&runtime);
    assert!(report.workers[1].stalls >= 1 && report.workers[1].longest_nanos >= LIMIT.as_nanos() as u64);
    assert_eq!(report.limit, LIMIT);
}

#[test]
fn a_task_that_waits_in_a_system_call() {
    let (runtime, _watching, told) = watched();
    let (mut from, to): (_, PipeWriter) = std::io::pipe().unwrap();
    let waits = async move {
        let mut byte = [0];
        from.read(&mut byte).map(|n| (n, byte[0]))
    };
    let task = runtime.handle().spawn_on(0, Bucket(1), waits).unwrap();
    let stall = of_worker_1(&told);
    // The signal for the trace has not ended the call.
    (&to).write_all(&[9]).unwrap();
    assert_eq!(crate::block_on(task).unwrap().unwrap(), (1, 9));
    assert!(stall.thread.starts_with("waiting"), "{stall}");
    // Where /proc says it.
    if stall.thread.contains("system call") {
        assert!(stall.thread.contains("in the system call read"), "{stall}");
    }
    assert!(stall.trace.iter().any(|name| name.contains("read")), "{stall:#?}");
    over(&runtime);
}

/// Workers that sleep are let be, and so are those that turn.
#[test]
fn workers_that_sleep_or_turn_are_no_news() {
    let (runtime, watching, told) = watched();
    let deadline = Instant::now() + 10 * LIMIT;
    let turns = runtime.handle().spawn_on(0, Bucket(1), async move {
        while Instant::now() < deadline {
            crate::yield_now().await;
        }
    });
    crate::block_on(turns.unwrap()).unwrap();
    drop(watching);
    // Not even those that were given no processor for the limit.
    assert_eq!(told.try_iter().collect::<Vec<_>>(), []);
    let report = runtime.handle().counters().watchdog.unwrap();
    assert_eq!(report.workers.iter().map(|w| w.stalls).sum::<u64>(), 0, "{report:?}");
    assert!(Runtime::builder().workers(1).pin(false).start().unwrap().handle().counters().watchdog.is_none());
}

/// Tasks that take longer than the budget are named in the report of their worker, with the line that began them.
#[test]
fn long_tasks_are_named() {
    let mut builder = Runtime::builder().workers(1).pin(false).task_budget(Duration::from_millis(5));
    builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {}));
    let runtime = builder.start().unwrap();
    for millis in [20, 30] {
        let until = move || {
            let until = Instant::now() + Duration::from_millis(millis);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        };
        crate::block_on(runtime.handle().spawn_on(0, Bucket(1), async move { until() }).unwrap()).unwrap();
    }
    let found = runtime.handle().counters().workers[0].long_tasks.clone();
    let named: Vec<_> = found.tasks.iter().filter(|t| t.task.contains("watchdog/tests.rs:")).collect();
    assert!(found.times() >= 2 && named.len() == 1, "{found:?}");
    assert!(named[0].times >= 2 && named[0].longest_nanos >= 25_000_000 && named[0].lane == 1, "{found:?}");
    assert_eq!(found.budget_nanos, 5_000_000);
}

/// With an exit code the first stall ends the process: this test again, as another process.
#[test]
fn a_stall_ends_the_process_if_that_is_wanted() {
    const ROLE: &str = "FLOWLANE_TEST_STALLS";
    if std::env::var_os(ROLE).is_some() {
        let mut builder = Runtime::builder().workers(2).pin(false);
        builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 2)), || async {}));
        let runtime = builder.start().unwrap();
        let dog = Watchdog::new(LIMIT).ends_process(3).on_stall(|stall| eprintln!("told: {stall}"));
        let _watching = dog.start(runtime.handle()).unwrap();
        let for_ever = async { computes_until(&AtomicBool::new(false)) };
        crate::block_on(runtime.handle().spawn_on(0, Bucket(1), for_ever).unwrap()).unwrap();
        return;
    }
    let name = "watchdog::tests::a_stall_ends_the_process_if_that_is_wanted";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("told: worker "), "{said}");
}
