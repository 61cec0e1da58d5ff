//! Ways into lanes from outside the runtime, and out again: tasks begun by handles, first tasks that fail, the runtime's end.

use std::sync::mpsc;
use std::time::Duration;

use flowlane::{
    Bucket, Host, Key, Runtime, SpawnError, StartError, TimedOut, UdpFields, block_on, current, sleep,
    spawn_on, timeout, yield_now,
};

use crate::traffic::{PATIENCE, rss};

/// A runtime of so many workers and four lanes, in each of which this runs.
fn runtime<F, R>(workers: usize, main: F) -> Result<Runtime, StartError>
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output: flowlane::Outcome> + Send + 'static,
{
    let mut builder = Runtime::builder().workers(workers).pin(false);
    builder.host(Host::kernel("host", rss(Key::MICROSOFT, 4, workers, UdpFields::Two), main));
    builder.start()
}

#[test]
fn a_task_begun_from_outside_runs_in_its_lane_and_its_result_comes_back() {
    let runtime = runtime(2, || async {}).unwrap();
    let handle = runtime.handle();
    for bucket in (0..4).map(Bucket) {
        let here = block_on(handle.spawn_on(0, bucket, async { current().unwrap() }).unwrap()).unwrap();
        assert_eq!((here.bucket, Some(here.worker)), (bucket, handle.worker_of(0, bucket)));
    }
    // It follows a lane that moves.
    handle.move_lane(0, Bucket(0), 1).unwrap();
    let here = block_on(handle.spawn_on(0, Bucket(0), async { current().unwrap() }).unwrap()).unwrap();
    assert_eq!((here.bucket, here.worker), (Bucket(0), 1));
    let panicked = handle.spawn_on(0, Bucket(3), async { panic!("on purpose") }).unwrap();
    let error = block_on(panicked).map(|()| "a result").unwrap_err();
    assert!(error.is_panic() && error.to_string().contains("on purpose"), "{error}");
    for (host, bucket) in [(0, 4), (1, 0)] {
        let none = handle.spawn_on(host, Bucket(bucket), async {}).map(drop);
        assert_eq!(none, Err(SpawnError::NoSuchLane));
    }
    drop(runtime);
    assert_eq!(handle.spawn_on(0, Bucket(0), async {}).map(drop), Err(SpawnError::Stopped));
}

/// Whoever waits from outside is not left waiting, whenever the runtime ends; and what the task had is dropped.
#[test]
fn the_end_of_the_runtime_is_told_to_who_waits_outside() {
    let runtime = runtime(2, || async {}).unwrap();
    let (say, said) = mpsc::channel::<()>();
    let (begun, begin) = mpsc::channel();
    let waiting: Vec<_> = (0..4)
        .map(|bucket| {
            let (say, begun) = (say.clone(), begun.clone());
            let never = async move {
                begun.send(()).unwrap();
                sleep(PATIENCE * 60).await;
                drop(say);
            };
            let task = runtime.handle().spawn_on(0, Bucket(bucket), never).unwrap();
            std::thread::spawn(move || block_on(task).unwrap_err().is_cancelled())
        })
        .collect();
    drop(say);
    (0..4).for_each(|_| begin.recv_timeout(PATIENCE).unwrap());
    drop(runtime.stop());
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap()));
    assert!(said.recv_timeout(PATIENCE).is_err(), "the tasks are gone");
}

/// From one lane to another of its host, on whichever worker, and no further.
#[test]
fn a_lane_begins_tasks_in_the_others() {
    let (say, said) = mpsc::channel();
    let runtime = runtime(2, move || {
        let say = say.clone();
        async move {
            assert!(spawn_on(Bucket(4), async {}).is_err(), "there are four");
            for bucket in (0..4).map(Bucket) {
                let there = spawn_on(bucket, async { current().unwrap().bucket }).unwrap().await.unwrap();
                say.send((bucket, there)).unwrap();
            }
        }
    });
    let runtime = runtime.unwrap();
    let answers: Vec<_> = (0..16).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(answers.iter().all(|(asked, there)| asked == there), "{answers:?}");
    drop(runtime.stop());
}

/// A worker asks a worker of another runtime, which has the same number and sleeps.
#[test]
fn a_lane_of_one_runtime_waits_for_a_lane_of_another() {
    let far = runtime(1, || async {}).unwrap();
    let handle = far.handle();
    let near = runtime(1, move || {
        let handle = handle.clone();
        async move {
            for bucket in [0, 1, 2, 3].map(Bucket) {
                let answer = handle.spawn_on(0, bucket, async move {
                    yield_now().await;
                    current().map(|lane| lane.bucket)
                })?;
                let answer = timeout(PATIENCE, answer).await?;
                assert_eq!(answer.unwrap().unwrap(), bucket);
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        }
    });
    near.unwrap().join().unwrap();
    drop(far);
}

#[test]
fn a_limit_of_time_in_a_lane() {
    let ends = runtime(1, || async {
        let short = Duration::from_millis(5);
        assert_eq!(timeout(PATIENCE, async { 5 }).await, Ok(5));
        assert_eq!(timeout(short, sleep(PATIENCE)).await, Err(TimedOut));
        assert_eq!(timeout(Duration::ZERO, async { 5 }).await, Ok(5), "ready is never late");
        timeout(short, std::future::pending::<()>()).await
    });
    let error = ends.unwrap().join().unwrap_err();
    assert!(!error.failed.panicked && error.host == "host", "{error}");
    assert!(error.to_string().contains("its first task failed: it took too long"), "{error}");
    assert_eq!(std::io::Error::from(TimedOut).kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn block_on_in_a_lane_is_refused() {
    let ends = runtime(1, || async {
        yield_now().await;
        block_on(async {});
    });
    let error = ends.unwrap().join().unwrap_err();
    assert!(error.failed.panicked && error.to_string().contains("block_on in a lane"), "{error}");
}

/// At once it is an error of the start, later of `join`, and in the report of `stop`; with host, lane and words.
#[test]
fn the_error_of_a_first_task_is_named() {
    let main = |late: bool, buckets: &'static [u16]| {
        move || async move {
            if late {
                yield_now().await;
            }
            match current().unwrap().bucket.0 {
                bucket if buckets.contains(&bucket) => Err(format!("no luck with {bucket}")),
                _ => Ok(()),
            }
        }
    };
    let error = runtime(2, main(false, &[2])).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "host 'host', lane 2: its first task failed: no luck with 2");
    let error = runtime(2, main(true, &[2])).unwrap().join().unwrap_err();
    assert_eq!(error.to_string(), "host 'host', lane 2: its first task failed: no luck with 2");
    assert_eq!(error.report.lanes(0).iter().map(|l| l.counts.panics).sum::<u64>(), 0);
    let report = runtime(2, main(true, &[])).unwrap().join().unwrap();
    assert!(report.failures().is_empty() && report.lanes(0).len() == 4);
}

/// What is kept for a lane lives as long as the lane, and no longer.
#[test]
fn what_a_lane_keeps_goes_with_it() {
    let (say, said) = mpsc::channel::<()>();
    let runtime = runtime(2, move || {
        let say = say.clone();
        async move { flowlane::keep(say).unwrap() }
    });
    let runtime = runtime.unwrap();
    assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Empty));
    drop(runtime);
    assert!(said.recv_timeout(PATIENCE).is_err());
    assert!(flowlane::keep(()).is_err(), "here is no lane");
}

/// tokio's timers, tasks and sockets in a lane, by a runtime of its own on another thread.
#[test]
fn what_needs_tokio_finds_it_on_workers_that_carry_it() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle: &'static tokio::runtime::Handle = Box::leak(Box::new(tokio.handle().clone()));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let driver = std::thread::spawn(move || tokio.block_on(stopped));
    let mut builder = Runtime::builder().workers(2).pin(false).in_workers(|_| handle.enter());
    let rss = rss(Key::MICROSOFT, 4, 2, UdpFields::Two);
    builder.host(Host::kernel("host", rss, || async {
        let lane = current()?;
        // That tokio's timer fires here is what is tried.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(current()?, lane, "the task is still in its lane");
        let late = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>()).await;
        assert!(late.is_err());
        assert!(tokio::spawn(async { current().is_err() }).await?, "it runs outside");
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await?;
        socket.send_to(b"hello", socket.local_addr()?).await?;
        let mut buffer = [0; 16];
        let (n, _) = socket.recv_from(&mut buffer).await?;
        assert_eq!(&buffer[..n], b"hello");
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    }));
    builder.start().unwrap().join().unwrap();
    drop(stop);
    assert!(driver.join().unwrap().is_err());
    // One that fails is an error of the start.
    let mut builder =
        Runtime::builder().workers(2).pin(false).in_workers(|worker| assert_ne!(worker, 1, "no"));
    builder.host(Host::kernel("host", self::rss(Key::MICROSOFT, 4, 2, UdpFields::Two), || async {}));
    assert!(matches!(builder.start(), Err(StartError::Thread(_))));
}
