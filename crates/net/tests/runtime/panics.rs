//! Panics of an application's code end what panicked, and are said; nothing else ends with them.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use flowlane::{
    Host, Interface, Key, ListenOptions, OwnedBytes, Runtime, StartError, TcpListener, TcpStream, UdpFields,
    current, spawn,
};

use crate::streams::{echo, there_and_back};
use crate::traffic::{PATIENCE, rss};

fn interface(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

fn hosts<F, R>(workers: usize, main: F) -> Result<Runtime, StartError>
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let rss = |key| rss(key, 4, workers, UdpFields::Two);
    let mut builder = Runtime::builder().workers(workers).pin(false).seed(1).frames(8192);
    let a = builder.host(Host::new("mine", rss(Key::MICROSOFT), main).interface(interface("10.0.0.1/24")));
    let server = || echo("10.0.0.2:7".parse().unwrap());
    let b =
        builder.host(Host::new("other", rss(Key::symmetric()), server).interface(interface("10.0.0.2/24")));
    builder.pair((a, 0), (b, 0), Default::default());
    builder.start()
}

/// Says something when it is dropped, by a panic.
struct Bad(Arc<AtomicUsize>);

impl Drop for Bad {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
        resume_unwind(Box::new("a destructor's"));
    }
}

/// In the call that makes the first task, and in the task before it waits: in one lane of four, on one worker of two.
#[test]
fn a_main_that_panics_ends_the_start_and_is_named() {
    for early in [true, false] {
        let alive = Arc::new(());
        let (calls, held) = (AtomicUsize::new(0), alive.clone());
        let started = hosts(2, move || {
            let mine = calls.fetch_add(1, Ordering::SeqCst) == 2;
            assert!(!(early && mine), "on purpose");
            let held = held.clone();
            async move {
                let _held = held;
                assert!(!mine, "on purpose");
                flowlane::sleep(std::time::Duration::from_secs(3600)).await;
            }
        });
        let error = started.expect_err("it started");
        let said = error.to_string();
        assert!(matches!(&error, StartError::FirstTask { failed, .. } if failed.panicked), "{error:?}");
        assert!(said.contains("'mine'") && said.contains("on purpose"), "{said}");
        // All threads have ended, and let go of what they had.
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

/// Later the lane alone ends, and the report says so.
#[test]
fn a_main_that_panics_later_is_in_the_report_and_the_other_lanes_go_on() {
    let (say, said) = mpsc::channel();
    let runtime = hosts(2, move || {
        let say = say.clone();
        async move {
            flowlane::yield_now().await;
            assert_ne!(current().unwrap().bucket.0, 1, "the second lane's");
            say.send(there_and_back("10.0.0.2:7".parse().unwrap(), 100_000).await).unwrap();
        }
    });
    let runtime = runtime.unwrap();
    for _ in 0..3 {
        assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(100_000));
    }
    let report = runtime.stop();
    let [(0, 1, failed)] = report.failures()[..] else { panic!("{:?}", report.failures()) };
    assert!(failed.panicked && failed.words.contains("the second lane's"), "{failed}");
    assert_eq!(report.lanes(0).iter().map(|l| l.counts.panics).sum::<u64>(), 1);
}

#[test]
fn who_awaits_a_task_that_panicked_is_told() {
    let (say, said) = mpsc::channel();
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let runtime = hosts(1, move || {
        let (say, counter) = (say.clone(), counter.clone());
        async move {
            if current().unwrap().bucket.0 != 0 {
                return;
            }
            let error = spawn(async { resume_unwind(Box::new("its own")) }).unwrap().await;
            let error: flowlane::JoinError = error.map(|()| "a result").unwrap_err();
            let words = (error.is_panic(), error.is_cancelled(), error.to_string());
            let payload = *error.into_panic().downcast::<&str>().unwrap();
            // Destructors of a task that is stopped, of one that panics, and of a result that nobody wants.
            let bad = Bad(counter.clone());
            spawn(async move {
                std::future::pending::<()>().await;
                drop(bad);
            })
            .unwrap()
            .abort();
            let bad = Bad(counter.clone());
            drop(spawn(async move { bad }).unwrap());
            let value = spawn(async { 5 }).unwrap().await.unwrap();
            say.send((words, payload, value)).unwrap();
            flowlane::yield_now().await;
            say.send(((false, false, String::new()), "", 0)).unwrap();
        }
    });
    let runtime = runtime.unwrap();
    let (words, payload, value) = said.recv_timeout(PATIENCE).unwrap();
    assert_eq!(words, (true, false, "the task panicked: its own".into()));
    assert_eq!((payload, value), ("its own", 5));
    said.recv_timeout(PATIENCE).unwrap();
    let report = runtime.stop();
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    assert_eq!(report.lanes(0)[0].counts.panics, 3);
    assert!(report.failures().is_empty());
}

/// What was given away to be sent is dropped once it is acknowledged: its panic reaches no connection.
#[test]
fn an_owner_that_panics_when_it_is_dropped_harms_no_connection() {
    struct Gift(Vec<u8>, #[expect(dead_code, reason = "panics")] Bad);
    impl AsRef<[u8]> for Gift {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    const GIFTS: usize = 20;
    let (say, said) = mpsc::channel();
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let runtime = hosts(1, move || {
        let (say, counter) = (say.clone(), counter.clone());
        async move {
            if current().unwrap().bucket.0 != 0 {
                return;
            }
            let stream = TcpStream::connect("10.0.0.2:7".parse().unwrap()).await.unwrap();
            for n in 0..GIFTS {
                let gift = Gift(vec![n as u8; 3000], Bad(counter.clone()));
                stream.write_owned(OwnedBytes::new(gift)).await.unwrap();
                let (mut got, mut at) = (vec![0; 3000], 0);
                while at < got.len() {
                    at += stream.read(&mut got[at..]).await.unwrap();
                }
                assert_eq!(got, [n as u8; 3000]);
            }
            // Given away, and dropped with the connection.
            let gift = Gift(vec![0; 3000], Bad(counter.clone()));
            stream.write_owned(OwnedBytes::new(gift)).await.unwrap();
            drop(stream);
            say.send(there_and_back("10.0.0.2:7".parse().unwrap(), 100_000).await).unwrap();
            let _listener = TcpListener::bind(None, 9, ListenOptions::default()).unwrap();
            std::future::pending::<()>().await;
        }
    });
    let runtime = runtime.unwrap();
    assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(100_000));
    let report = runtime.stop();
    assert!(dropped.load(Ordering::SeqCst) >= GIFTS);
    assert!(report.workers[0].pool.panics >= GIFTS as u64, "{}", report.workers[0].pool.panics);
    assert_eq!(report.lanes(0).iter().map(|l| l.counts.panics).sum::<u64>(), 0);
}
