//! Load over WebSockets against our own server, whose counts must be the generator's, against tungstenite, and against servers that do wrong.

mod deflate;
pub(super) mod kit;
mod wrong;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flowlane::{Endpoint, Host, Key, Rss, Runtime};
use flowlane_http::server::Counter;
use flowlane_http::tls::{Alpn, ClientOptions, ClientTls, Identity, ServerTls, Trust};
use flowlane_load::ws::{Kind, Payload, WsLoad, WsLoadConfig};
use flowlane_load::{Phase, Sources};
use tungstenite::Message;

use kit::{Far, Ran, config, opening, run, run_with};

/// What the generator counted is what the server did.
fn assert_is_what_the_server_did(ran: &Ran, kind: Kind) {
    let (c, server) = (ran.counts, &ran.server);
    assert_eq!(c.failed(), 0, "{c:?} {:?}", ran.report.failed);
    let (of_kind, other) = match kind {
        Kind::Text => (Counter::WsText, Counter::WsBinary),
        Kind::Binary => (Counter::WsBinary, Counter::WsText),
    };
    assert_eq!((server.get(of_kind), server.get(other)), (c.messages, 0), "{c:?}");
    let sockets = [Counter::WebSockets, Counter::WsClosed].map(|counter| server.get(counter));
    assert_eq!(sockets, [c.connected, c.closed], "{c:?} {server:?}");
    assert_eq!((c.broken, c.unclosed, server.errors()), (0, 0, 0), "{c:?} {server:?}");
    assert!(ran.report.ok, "{:?}", ran.report.failed);
}

#[test]
fn the_figures_are_those_of_the_server() {
    for (kind, size, depth) in
        [(Kind::Binary, 64, 1), (Kind::Text, 0, 1), (Kind::Text, 300, 8), (Kind::Binary, 70_000, 2)]
    {
        let payload = Payload { kind, size, verify: true, words: false };
        let ran = run(Far::Good, WsLoadConfig { payload, depth, ..config() });
        assert_is_what_the_server_did(&ran, kind);
        let c = ran.counts;
        assert_eq!((c.connected, c.closed, c.not_connected, c.unasked), (4, 4, 0, 0), "{c:?}");
        assert!(c.messages > 20, "{size}: {c:?}");
    }
}

#[test]
fn messages_of_megabytes_come_whole() {
    let payload = Payload { kind: Kind::Text, size: 3 << 20, verify: true, words: false };
    let phases = vec![Phase::hold(Duration::from_millis(500))];
    let ran = run(Far::Good, WsLoadConfig { payload, phases, ..config() });
    assert_is_what_the_server_did(&ran, Kind::Text);
    assert!(ran.counts.messages >= 4, "{:?}", ran.counts);
}

#[test]
fn tls_carries_the_same() {
    let server =
        ServerTls::new(&Identity::for_addresses(&["10.0.0.1".parse().unwrap()]), Alpn::Both).unwrap();
    let file = std::env::temp_dir().join(format!("flowlane-load-ws-{}.pem", std::process::id()));
    std::fs::write(&file, server.certificate_pem()).unwrap();
    let trust = Trust::File(file.clone());
    let clients =
        ClientTls::new(&ClientOptions { trust, alpn: Alpn::Http1, ..ClientOptions::default() }).unwrap();
    let name = ClientTls::name("10.0.0.1").unwrap();
    for rate in [None, Some(500)] {
        let opening = opening(Some((clients.clone(), name.clone())));
        let ran = run_with(Far::Good, WsLoadConfig { opening, rate, ..config() }, Some(server.clone()));
        assert_is_what_the_server_did(&ran, Kind::Binary);
        assert_eq!(ran.report.total.tls.count(), 4, "the handshakes are timed");
    }
    // One whom nobody trusts is refused.
    let strangers = ClientTls::new(&ClientOptions { alpn: Alpn::Http1, ..ClientOptions::default() });
    if let Ok(strangers) = strangers {
        let ran = run_with(
            Far::Good,
            WsLoadConfig { opening: opening(Some((strangers, name))), ..config() },
            Some(server),
        );
        assert_eq!((ran.more("handshake-tls"), ran.counts.connected), (ran.counts.not_connected, 0));
        assert!(ran.failure.is_some_and(|why| why.contains("TLS")));
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_schedule_is_kept_and_latencies_count_from_it() {
    for (poisson, depth) in [(false, 1), (true, 4)] {
        let phases = vec![
            Phase { measured: false, name: "warm-up".into(), ..Phase::hold(Duration::from_millis(100)) },
            Phase::hold(Duration::from_millis(400)),
        ];
        let ran = run(Far::Good, WsLoadConfig { rate: Some(2000), poisson, depth, phases, ..config() });
        assert_is_what_the_server_did(&ran, Kind::Binary);
        let c = ran.counts;
        assert_eq!(c.unsent, 0, "{c:?}");
        let due = if poisson { 850..1150 } else { 1000..1001 };
        assert!(due.contains(&c.messages), "{c:?}");
        let total = &ran.report.total;
        assert_eq!(total.latency.count(), total.counts.answered);
        assert_eq!(total.slip.count(), total.counts.sent);
        assert!(poisson || total.counts.sent == 800, "{:?}", total.counts);
    }
}

/// A rate that the one connection cannot carry: what waited is held up, and what was never sent is unsent.
#[test]
fn what_is_due_and_finds_no_connection_waits_and_is_counted() {
    let phases = vec![Phase::hold(Duration::from_millis(100))];
    let ran = run(Far::Good, WsLoadConfig { rate: Some(5_000_000), connections: 1, phases, ..config() });
    let c = ran.counts;
    assert!(c.held_up > 0 && c.unsent > 0 && c.messages > 0, "{c:?}");
    assert_eq!(c.messages + c.unsent, 500_000, "{c:?}");
    let latency = &ran.report.total.latency;
    let later = latency.at(0.9) > latency.at(0.1) + 10_000_000;
    assert!(later, "a message waits longer the later it is due: {latency:?}");
}

/// Over kernel sockets, against the crate that others use.
#[test]
fn tungstenite_echoes_what_it_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let sockets: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        let echo = |stream| {
            let mut socket = tungstenite::accept(stream).unwrap();
            let (mut texts, mut ended) = (0u64, false);
            socket.send(Message::Ping("are you there?".into())).unwrap();
            loop {
                match socket.read() {
                    Ok(Message::Pong(payload)) => assert_eq!(&payload[..], b"are you there?"),
                    Ok(Message::Close(frame)) => {
                        assert_eq!(frame.map(|frame| u16::from(frame.code)), Some(1000));
                        ended = true;
                    }
                    Ok(message) => {
                        texts += u64::from(message.is_text());
                        socket.send(message).unwrap();
                    }
                    Err(tungstenite::Error::ConnectionClosed) => return (texts, ended),
                    Err(e) => panic!("{e}"),
                }
            }
        };
        let threads: Vec<_> = sockets.into_iter().map(|stream| thread::spawn(move || echo(stream))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let sources = Sources::Addresses { clients: Vec::new(), lanes: rss.buckets.len() };
    let payload = Payload { kind: Kind::Text, size: 1000, verify: true, words: false };
    let load = WsLoad::new(WsLoadConfig {
        target: Endpoint::from(address),
        sources,
        payload,
        connections: 3,
        ..config()
    })
    .unwrap();
    let mut builder = Runtime::builder().pin(false);
    builder.host(Host::kernel("load", rss, load.main()));
    let runtime = builder.start().unwrap();
    let c = load.wait(Duration::from_secs(1), |_| true).counts;
    drop(runtime.stop());
    let served = serving.join().unwrap();
    assert_eq!(served.iter().map(|(texts, _)| texts).sum::<u64>(), c.messages);
    assert!(served.iter().all(|(_, ended)| *ended));
    assert_eq!((c.failed(), c.connected, c.closed, c.pings), (0, 3, 3, 3), "{c:?}");
    assert!(c.messages > 20, "{c:?}");
}

/// With a stop in the middle nothing is left open.
#[test]
fn a_run_that_is_stopped_closes_its_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let mut socket = tungstenite::accept(listener.accept().unwrap().0).unwrap();
        let mut closed = false;
        while let Ok(message) = socket.read() {
            closed |= message.is_close();
            let _ = socket.send(message);
        }
        closed
    });
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let sources = Sources::Addresses { clients: Vec::new(), lanes: rss.buckets.len() };
    let load = WsLoad::new(WsLoadConfig {
        target: Endpoint::from(address),
        sources,
        connections: 1,
        phases: vec![Phase::hold(Duration::from_secs(600))],
        ..config()
    })
    .unwrap();
    let mut builder = Runtime::builder().pin(false);
    builder.host(Host::kernel("load", rss, load.main()));
    let runtime = builder.start().unwrap();
    let outcome = load.wait(Duration::from_millis(1), |progress| progress.answers < 10);
    drop(runtime.stop());
    assert!(outcome.interrupted && outcome.counts.closed == 1, "{:?}", outcome.counts);
    assert!(serving.join().unwrap());
}
