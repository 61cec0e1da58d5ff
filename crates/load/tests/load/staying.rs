//! Loads whose connections stay, changed while they run: what a server that counts hears of that.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flowlane::{
    Host, Interface, Key, ListenOptions, PairConfig, Rss, Runtime, TcpListener, TcpStream, spawn,
};
use flowlane_load::memcached::{MemcachedLoad, MemcachedLoadConfig, Mix};
use flowlane_load::run::gone::Gone;
use flowlane_load::run::lanes::{Kind, Lanes};
use flowlane_load::tcp::{Mode, service};
use flowlane_load::ws::{WsLoad, WsLoadConfig};
use flowlane_load::{
    Change, ClientRange, FlowWish, Outcome, Part, Phase, Sources, TcpLoad, TcpLoadConfig, Unchanged, flows,
};
use flowlane_rss::Protocol;

use super::tcp::{clients, config};
use super::{memcached, ws};

/// Connections that a server accepted, and those that are open.
#[derive(Debug, Default)]
struct Seen {
    all: AtomicUsize,
    open: AtomicUsize,
    /// Requests that were answered.
    answered: AtomicUsize,
}

type Served = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What a server does with a connection.
type Serve = fn(TcpStream, Arc<Seen>) -> Served;

fn rss() -> Arc<Rss> {
    Arc::new(Rss::new(Key::MICROSOFT, 1))
}

/// Runs a load against a server; `each` is asked every few milliseconds whether the run goes on.
fn run<K: Kind>(
    load: &Lanes<K>,
    (port, serve): (u16, Serve),
    mut each: impl FnMut(&Seen) -> bool,
) -> (Outcome<K::Counts>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let count = seen.clone();
    let server = Host::new("server", rss(), move || {
        let count = count.clone();
        async move {
            let listener = TcpListener::bind(None, port, ListenOptions::default()).unwrap();
            while let Ok(stream) = listener.accept().await {
                let seen = count.clone();
                drop(spawn(async move {
                    seen.all.fetch_add(1, Relaxed);
                    seen.open.fetch_add(1, Relaxed);
                    serve(stream, seen.clone()).await;
                    seen.open.fetch_sub(1, Relaxed);
                }));
            }
        }
    });
    let server = builder.host(server.interface(on("10.0.0.1/16")));
    let claimed = "10.0.1.0/24".parse::<ClientRange>().unwrap().prefixes();
    let interface = Interface { claimed, ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss(), load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let outcome = load.wait(Duration::from_millis(5), |_| each(&seen));
    let report = runtime.stop();
    assert!(report.failures().is_empty(), "{:?}", report.failures());
    (outcome, seen)
}

/// Misses every key.
fn misses(stream: TcpStream, seen: Arc<Seen>) -> Served {
    Box::pin(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            let asked = buffer[..n].iter().filter(|byte| **byte == b'\n').count();
            seen.answered.fetch_add(asked, Relaxed);
            if stream.write_all("END\r\n".repeat(asked).as_bytes()).await.is_err() {
                return;
            }
        }
    })
}

/// Echoes messages of WebSockets, and answers a close frame.
fn echoes(stream: TcpStream, _seen: Arc<Seen>) -> Served {
    Box::pin(ws::kit::serve(stream, ws::kit::Far::Closes(u64::MAX, None)))
}

/// A run that is ended when it has shown what it is to show.
fn phases() -> Vec<Phase> {
    vec![Phase::hold(Duration::from_secs(20))]
}

fn memcached(connections: usize, rate: Option<u64>) -> MemcachedLoadConfig {
    let config = memcached::kit::config(100);
    let mix = Mix { update: 0.0, verify: false, ..config.mix.clone() };
    MemcachedLoadConfig { connections, depth: 3, rate, mix, fill: false, phases: phases(), ..config }
}

fn websockets(connections: usize, rate: Option<u64>) -> WsLoadConfig {
    WsLoadConfig { connections, depth: 3, rate, phases: phases(), ..ws::kit::config() }
}

/// Eight connections become twenty, four and twelve, as a server sees them.
fn come_and_go<K: Kind>(load: &Lanes<K>, server: (u16, Serve)) -> (Outcome<K::Counts>, Arc<Seen>) {
    let (sizes, next, changer) = ([20, 4, 12], Cell::new(0usize), load.changer());
    let ran = run(load, server, |seen| {
        let before = next.get().checked_sub(1).map_or(8, |last| sizes[last]);
        if seen.open.load(Relaxed) != before {
            return true;
        }
        let Some(size) = sizes.get(next.get()) else { return false };
        let few = changer.change(Change::Connections(1));
        match changer.change(Change::Connections(*size as u32)) {
            Ok(_) => {
                assert_eq!(few, Err(Unchanged::FewConnections(2)));
                next.set(next.get() + 1);
            }
            Err(why) => assert_eq!(why, Unchanged::NotBegun),
        }
        true
    });
    assert_eq!((ran.0.failure.as_ref(), ran.0.changes.len()), (None, 3));
    // Eight, twelve more, and eight after all but four were closed.
    assert_eq!(ran.1.all.load(Relaxed), 28);
    ran
}

#[test]
fn connections_to_a_memcached_are_changed_and_no_request_is_lost() {
    for rate in [None, Some(3000)] {
        let load = MemcachedLoad::new(memcached(8, rate)).unwrap();
        let (Outcome { counts, .. }, seen) = come_and_go(&load, (11211, misses));
        assert_eq!((counts.answered, counts.failed(), counts.broken), (counts.requests, 0, 0), "{counts:?}");
        assert_eq!(seen.answered.load(Relaxed) as u64, counts.requests);
        assert_eq!((counts.connected, counts.not_connected), (28, 0), "{counts:?}");
    }
}

#[test]
fn websockets_are_changed_and_closed_by_both_ends() {
    for rate in [None, Some(3000)] {
        let load = WsLoad::new(websockets(8, rate)).unwrap();
        let (Outcome { counts, .. }, _) = come_and_go(&load, (80, echoes));
        assert_eq!((counts.answered, counts.failed(), counts.broken), (counts.messages, 0, 0), "{counts:?}");
        // The opening handshakes of the last eight may not be over when the run ends.
        assert!((20..=28).contains(&counts.connected), "{counts:?}");
        assert_eq!((counts.closed, counts.unclosed), (counts.connected, 0), "{counts:?}");
    }
}

/// Echoes bytes.
fn echoes_bytes(stream: TcpStream, _seen: Arc<Seen>) -> Served {
    Box::pin(async move { service::echo(&stream).await.unwrap_or_default() })
}

/// Echoes bytes after a while.
fn echoes_late(stream: TcpStream, seen: Arc<Seen>) -> Served {
    Box::pin(async move {
        flowlane::sleep(Duration::from_millis(20)).await;
        echoes_bytes(stream, seen).await;
    })
}

/// Reads bytes to the end.
fn discards(stream: TcpStream, _seen: Arc<Seen>) -> Served {
    Box::pin(async move { service::discard(&stream).await.unwrap_or_default() })
}

/// Writes bytes as fast as they are read.
fn writes(stream: TcpStream, _seen: Arc<Seen>) -> Served {
    Box::pin(async move { service::source(&stream, 1000, None).await.unwrap_or_default() })
}

fn tcp(mode: Mode, connections: usize, rate: Option<u64>) -> TcpLoadConfig {
    let sources = Sources::Addresses { clients: vec![clients()], lanes: rss().buckets.len() };
    let phases = phases();
    TcpLoadConfig { sources, rate, size: 64, opening: 1000, phases, ..config(mode, connections) }
}

#[test]
fn connections_of_tcp_that_stay_are_changed_and_share_the_schedule() {
    for (mode, serve, rate) in [
        (Mode::Hold, echoes_bytes as Serve, Some(3000)),
        (Mode::Echo, echoes_bytes, Some(3000)),
        (Mode::Echo, echoes_bytes, None),
        (Mode::Write, discards, Some(3000)),
        (Mode::Read, writes, None),
    ] {
        let load = TcpLoad::new(tcp(mode, 8, rate)).unwrap();
        let (Outcome { counts, elapsed, .. }, _) = come_and_go(&load, (7, serve));
        assert_eq!((counts.begun, counts.connected, counts.completed), (28, 28, 28), "{mode:?} {counts:?}");
        // Twelve are left at the end.
        assert_eq!((counts.failed(), counts.standing, counts.unfinished), (0, 12, 0), "{mode:?} {counts:?}");
        if mode != Mode::Read {
            assert_eq!(counts.answers, counts.messages, "{mode:?} {counts:?}");
        }
        if let Some(rate) = rate {
            // Whoever has them, as many are due as if nothing had changed, after the first were opened.
            let due = rate as f64 * (elapsed - Duration::from_millis(8)).as_secs_f64();
            let were = (counts.messages + counts.unsent) as f64;
            assert!((were - due).abs() <= 30.0, "{mode:?} {due}: {counts:?}");
        }
    }
}

/// Of connections that come and go it is how many there are at once.
#[test]
fn connections_that_come_and_go_are_changed() {
    for rate in [None, Some(20_000)] {
        let load = TcpLoad::new(tcp(Mode::Connect, 8, rate)).unwrap();
        let (changer, most) = (load.changer(), Cell::new(0));
        let (outcome, seen) = run(&load, (7, echoes_late), |seen| {
            let open = seen.open.load(Relaxed);
            if most.get() == 0 {
                assert!(open <= 8, "{open}");
                if changer.change(Change::Connections(40)).is_ok() {
                    most.set(8);
                }
            } else {
                most.set(most.get().max(open));
            }
            most.get() < 30
        });
        assert!((30..=40).contains(&most.get()), "{}", most.get());
        assert_eq!((outcome.counts.failed(), outcome.counts.unfinished), (0, 0), "{:?}", outcome.counts);
        assert_eq!(outcome.counts.connected as usize, seen.all.load(Relaxed));
    }
}

#[test]
fn a_server_that_answers_no_close_frame_keeps_no_connection_that_is_too_many() {
    fn keeps_open(stream: TcpStream, _seen: Arc<Seen>) -> Served {
        Box::pin(ws::kit::serve(stream, ws::kit::Far::KeepsOpen))
    }
    let config = WsLoadConfig { timeout: Duration::from_secs(2), ..websockets(8, None) };
    let load = WsLoad::new(config).unwrap();
    let changer = load.changer();
    let (Outcome { counts, changes, .. }, _) = run(&load, (80, keeps_open), |seen| {
        let _ = changer.change(Change::Connections(4));
        seen.open.load(Relaxed) != 4 || seen.all.load(Relaxed) < 8
    });
    assert!(!changes.is_empty());
    assert_eq!((counts.connected, counts.unclosed, counts.broken), (8, 8, 0), "{counts:?}");
}

/// A part of two lanes of six, whose others go one after the other: the connections that each left are opened.
fn takes_over<K: Kind>(load: &Lanes<K>, server: (u16, Serve)) -> (Outcome<K::Counts>, Arc<Seen>) {
    // Of twelve connections it has four, then half of the other eight, then all.
    let gone = [Gone { first: 2, lanes: 2, sent: Vec::new() }, Gone { first: 4, lanes: 2, sent: Vec::new() }];
    let step = Cell::new(0);
    let ran = run(load, server, |seen| {
        if load.is_ready() {
            load.begin_at(Instant::now());
        }
        if seen.open.load(Relaxed) == [4, 6, 12][step.get()] {
            step.set(step.get() + 1);
            load.share(6, gone.get(..step.get()).unwrap_or(&gone));
        }
        step.get() < 3
    });
    assert_eq!((ran.0.failure.as_ref(), step.get(), ran.1.all.load(Relaxed)), (None, 3, 12));
    ran
}

fn part() -> Option<Part> {
    Some(Part { first: 0, of: 6 })
}

#[test]
fn connections_of_others_that_are_gone_are_opened() {
    for rate in [None, Some(3000)] {
        let load = MemcachedLoad::part(memcached(12, rate), part()).unwrap();
        let (Outcome { counts, .. }, _) = takes_over(&load, (11211, misses));
        assert_eq!((counts.answered, counts.failed(), counts.broken), (counts.requests, 0, 0), "{counts:?}");
        let load = WsLoad::part(websockets(12, rate), part()).unwrap();
        let (Outcome { counts, .. }, _) = takes_over(&load, (80, echoes));
        assert_eq!((counts.answered, counts.failed()), (counts.messages, 0), "{counts:?}");
        assert_eq!((counts.closed, counts.unclosed), (counts.connected, 0), "{counts:?}");
    }
    for (mode, rate) in [(Mode::Hold, Some(3000)), (Mode::Echo, None)] {
        let load = TcpLoad::part(tcp(mode, 12, rate), part()).unwrap();
        let (Outcome { counts, .. }, _) = takes_over(&load, (7, echoes_bytes));
        assert_eq!((counts.completed, counts.standing, counts.failed()), (12, 12, 0), "{counts:?}");
        assert_eq!(counts.answers, counts.messages);
    }
    // Of those that come and go there are as many at once.
    let load = TcpLoad::part(tcp(Mode::Connect, 12, None), part()).unwrap();
    let most = Cell::new(0);
    let (Outcome { counts, .. }, _) = run(&load, (7, echoes_late), |seen| {
        if load.is_ready() {
            load.begin_at(Instant::now());
        }
        let open = seen.open.load(Relaxed);
        if open >= 4 {
            load.share(6, &[Gone { first: 2, lanes: 4, sent: Vec::new() }]);
        }
        most.set(most.get().max(open));
        most.get() < 10
    });
    assert!((10..=12).contains(&most.get()) && counts.failed() == 0, "{}: {counts:?}", most.get());
}

/// Those that stay have the places of others in the schedule, so that all of it is sent from then on.
#[test]
fn connections_that_take_over_send_what_was_the_others() {
    let load = TcpLoad::part(tcp(Mode::Hold, 12, Some(3000)), part()).unwrap();
    let (taken, gone) = (Cell::new(None), [Gone { first: 2, lanes: 4, sent: Vec::new() }]);
    let (Outcome { counts, elapsed, .. }, _) = run(&load, (7, echoes_bytes), |seen| {
        if load.is_ready() {
            load.begin_at(Instant::now());
        }
        if taken.get().is_none() && seen.open.load(Relaxed) == 4 {
            load.share(6, &gone);
        }
        if taken.get().is_none() && seen.open.load(Relaxed) == 12 {
            taken.set(Some(Instant::now()));
        }
        taken.get().is_none_or(|at| at.elapsed() < Duration::from_millis(600))
    });
    let were = counts.messages + counts.unsent;
    // All of it for six tenths of a second, a third of it before.
    assert!(were >= 1700 && were as f64 <= 3000.0 * elapsed.as_secs_f64(), "{were} {counts:?} {elapsed:?}");
}

/// Where each connection has an address and a port that were chosen before the run there are no more than these, and they are used again.
#[test]
fn connections_with_flows_are_no_more_than_these() {
    let (config, clients) = (tcp(Mode::Hold, 8, Some(3000)), ["10.0.1.0/24".parse().unwrap()]);
    let rss = rss();
    let wish = FlowWish {
        target: config.target,
        clients: &clients,
        flows: 8,
        protocol: Protocol::TCP,
        rss: &rss,
        aim: None,
        start: 5,
    };
    let sources = Sources::Flows(flows::choose(&wish).unwrap());
    let load = TcpLoad::new(TcpLoadConfig { sources, ..config }).unwrap();
    let (sizes, next, changer) = ([4, 8], Cell::new(0usize), load.changer());
    let (Outcome { counts, .. }, seen) = run(&load, (7, echoes_bytes), |seen| {
        let before = next.get().checked_sub(1).map_or(8, |last| sizes[last]);
        if seen.open.load(Relaxed) == before {
            let Some(size) = sizes.get(next.get()) else { return false };
            let many = changer.change(Change::Connections(9));
            assert!(matches!(many, Err(Unchanged::FewFlows(8) | Unchanged::NotBegun)), "{many:?}");
            next.set(next.get() + usize::from(changer.change(Change::Connections(*size as u32)).is_ok()));
        }
        true
    });
    assert_eq!((next.get(), seen.all.load(Relaxed)), (2, 12), "{counts:?}");
    assert_eq!((counts.begun, counts.completed, counts.failed()), (12, 12, 0), "{counts:?}");
}

/// Reads what comes, and answers nothing.
fn reads(stream: TcpStream, seen: Arc<Seen>) -> Served {
    Box::pin(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            seen.answered.fetch_add(n, Relaxed);
        }
        // Nor does it answer that it is to end.
        std::future::pending::<()>().await;
    })
}

/// Makes a WebSocket of it, and answers nothing.
fn is_mute(stream: TcpStream, seen: Arc<Seen>) -> Served {
    Box::pin(async move {
        seen.answered.fetch_add(1, Relaxed);
        ws::kit::serve(stream, ws::kit::Far::Silent).await;
    })
}

/// Whoever stops a run does not wait for the timeout, and what was under way then has neither failed nor been answered.
#[test]
fn what_is_under_way_when_a_run_is_stopped_is_not_waited_for() {
    let timeout = Duration::from_secs(20);
    let soon = |elapsed: Duration| assert!(elapsed < timeout, "{elapsed:?}");
    // It is asked every five milliseconds: some pass until what was asked is under way.
    let after = |so: fn(&Seen) -> bool| {
        let left = Cell::new(20);
        move |seen: &Seen| {
            left.set(left.get() - usize::from(so(seen)));
            left.get() > 0
        }
    };
    let asked = |seen: &Seen| seen.answered.load(Relaxed) > 0;
    for mode in [Mode::Hold, Mode::Echo, Mode::Connect] {
        let load = TcpLoad::new(TcpLoadConfig { timeout, ..tcp(mode, 8, None) }).unwrap();
        let begun = Instant::now();
        let (Outcome { counts, interrupted, .. }, _) = run(&load, (7, reads), after(asked));
        soon(begun.elapsed());
        assert!(interrupted && counts.messages > 0, "{mode:?} {counts:?}");
        assert_eq!((counts.failed(), counts.unfinished), (0, counts.begun), "{mode:?} {counts:?}");
    }
    for rate in [None, Some(3000)] {
        let load = MemcachedLoad::new(MemcachedLoadConfig { timeout, ..memcached(8, rate) }).unwrap();
        let begun = Instant::now();
        let (Outcome { counts, .. }, _) = run(&load, (11211, reads), after(asked));
        soon(begun.elapsed());
        assert!(counts.requests > 0, "{counts:?}");
        assert_eq!((counts.failed(), counts.unfinished), (0, counts.requests), "{counts:?}");
        assert_eq!(counts.broken, 0, "{counts:?}");
        let load = WsLoad::new(WsLoadConfig { timeout, ..websockets(8, rate) }).unwrap();
        let begun = Instant::now();
        let (Outcome { counts, .. }, _) = run(&load, (80, is_mute), after(asked));
        soon(begun.elapsed());
        assert!(counts.messages > 0, "{counts:?}");
        assert_eq!((counts.failed(), counts.unfinished), (0, counts.messages), "{counts:?}");
        assert_eq!((counts.broken, counts.unclosed), (0, counts.connected), "{counts:?}");
    }
}
