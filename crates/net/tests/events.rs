//! What a runtime tells `tracing` of its lanes: their moves, that they lack memory, and that they failed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use flowlane::{
    Bucket, Host, Interface, Key, MoveError, NOTICE, PairConfig, Rss, Runtime, SocketError, TcpListener,
    TcpStream, block_on, current, sleep, spawn,
};
use flowlane_testnet::eventually_or;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes every event of `flowlane::lane` down, and every notice.
#[derive(Clone, Default)]
struct Notes {
    lanes: Arc<Mutex<Vec<String>>>,
    notices: Arc<Mutex<Vec<String>>>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        ["flowlane::lane", NOTICE].contains(&metadata.target())
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let of = if event.metadata().target() == NOTICE { &self.notices } else { &self.lanes };
        of.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The process has one subscriber, which takes down what all tests do.
fn notes() -> Notes {
    static NOTES: LazyLock<Notes> = LazyLock::new(|| {
        let notes = Notes::default();
        tracing::subscriber::set_global_default(notes.clone()).unwrap();
        notes
    });
    NOTES.clone()
}

impl Notes {
    /// What was noted, of moves or of memory.
    fn of(&self, memory: bool) -> Vec<String> {
        let lines = self.lanes.lock().unwrap();
        lines.iter().filter(|line| line.contains("memory") == memory).cloned().collect()
    }
}

/// The peers of connections that are not read fill the memory of a lane: that is told when it begins, and when it is over; in between
/// nothing.
#[test]
fn a_lack_of_memory_is_told_when_it_begins_and_ends() {
    const CONNECTIONS: usize = 32;
    const BYTES: usize = 200_000;
    let notes = notes();
    let read = Arc::new(AtomicBool::new(false));
    let reads = read.clone();
    let serve = move || {
        let reads = reads.clone();
        async move {
            let listener = TcpListener::on_port(7)?;
            loop {
                let (stream, reads) = (listener.accept().await?, reads.clone());
                let _ = spawn(async move {
                    while !reads.load(Ordering::Relaxed) {
                        sleep(Duration::from_millis(5)).await;
                    }
                    let mut bytes = vec![0; 1 << 16];
                    while stream.read(&mut bytes).await? > 0 {}
                    Ok::<_, SocketError>(())
                });
            }
            #[expect(unreachable_code, reason = "it names the type of the error")]
            Ok::<_, SocketError>(())
        }
    };
    let write = || async {
        for _ in 0..CONNECTIONS {
            let _ = spawn(async {
                TcpStream::connect("10.0.0.1:7".parse().unwrap()).await?.write_all(&vec![1; BYTES]).await
            });
        }
    };
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder().workers(1).pin(false).tcp_memory(4 << 20);
    let server = builder.host(Host::new("unread", rss.clone(), serve).interface(on("10.0.0.1/24")));
    let client = builder.host(Host::new("writer", rss, write).interface(on("10.0.0.2/24")));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    // Of each of the server's two lanes, in order: whether it is short.
    let told = || {
        let lines: Vec<_> = notes.of(true).into_iter().filter(|line| line.contains("\"unread\"")).collect();
        assert!(
            lines.iter().all(|line| line.contains(" held=") && line.contains(" bound=1048576")),
            "{lines:?}"
        );
        [0, 1].map(|bucket| {
            let of_it = |line: &&String| line.contains(&format!(" bucket={bucket} "));
            lines.iter().filter(of_it).map(|line| line.contains("short of memory")).collect::<Vec<_>>()
        })
    };
    let wait_for = |is_it: fn(&Vec<bool>) -> bool| {
        eventually_or(|| format!("{:?}", notes.of(true)), || told().iter().all(is_it));
    };
    wait_for(|lane| !lane.is_empty());
    assert_eq!(told(), [[true], [true]], "it stays so");
    read.store(true, Ordering::Relaxed);
    wait_for(|lane| lane.len() % 2 == 0);
    // More may begin while it is read: each has its end.
    assert!(told().iter().all(|lane| lane.iter().enumerate().all(|(n, short)| *short == (n % 2 == 0))));
    drop(runtime.stop());
}

/// The program decides what it does with it: the library does not print.
#[test]
fn a_lane_that_fails_is_a_notice() {
    let notes = notes();
    let mut builder = Runtime::builder().workers(1).pin(false);
    let main = || async {
        // After the start, which would fail otherwise.
        sleep(Duration::from_millis(1)).await;
        if current().unwrap().bucket.0 == 1 { Err("no luck") } else { Ok(()) }
    };
    builder.host(Host::kernel("unlucky", Arc::new(Rss::new(Key::MICROSOFT, 1)), main));
    assert!(builder.start().unwrap().join().is_err());
    let notices = notes.notices.lock().unwrap();
    let ours: Vec<&String> = notices.iter().filter(|line| line.contains("unlucky")).collect();
    assert_eq!(ours, [" message=host 'unlucky', lane 1: its first task failed: no luck"]);
}

#[test]
fn moves_are_told_from_beginning_to_end() {
    let notes = notes();
    let mut builder = Runtime::builder().workers(2).pin(false);
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let host = builder.host(Host::kernel("host", rss, std::future::pending::<()>));
    let runtime = builder.start().unwrap();
    let handle = runtime.handle();
    let from = handle.worker_of(host, Bucket(1)).unwrap();
    let to = 1 - from;
    handle.move_lane(host, Bucket(1), to).unwrap();
    let mut expected = vec![
        format!(" message=move begun lane=1 from={from} to={to}"),
        format!(" message=sent lane=1 from={from} to={to} held=0"),
        format!(" message=arrived lane=1 to={to}"),
    ];
    assert_eq!(notes.of(false), expected);
    // Back again, and given up: unless the workers were faster.
    let back = handle.begin_move(host, Bucket(1), from).unwrap();
    if back.give_up() {
        expected.push(format!(" message=move begun lane=1 from={to} to={from}"));
        expected.push(format!(" message=move given up lane=1 from={to} to={from}"));
        assert_eq!(notes.of(false), expected);
        // And a new one takes it there.
        match handle.begin_move(host, Bucket(1), from) {
            Ok(back) => block_on(back).unwrap(),
            Err(e) => assert!(matches!(e, MoveError::Moving), "{e}"),
        }
    }
    // One that could not be given up, or had not been heard to be, arrives before the end.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = handle.begin_move(host, Bucket(1), from).map(block_on) {
        assert!(error == MoveError::Moving && Instant::now() < deadline, "{error}");
        std::thread::yield_now();
    }
    let _ = runtime.stop();
    let notes = notes.of(false);
    let count = |word: &str| notes.iter().filter(|l| l.contains(word)).count();
    assert_eq!(count("begun"), count("arrived") + count("given up"), "{notes:?}");
}
