//! SYNs alone against a listener of our own at the other end of a wire in memory: both ends must have counted the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::{
    Endpoint, Host, Interface, Key, ListenOptions, PairConfig, Protocol, Rss, Runtime, SynCookies, TcpConfig,
    TcpListener,
};
use flowlane_load::Phase;
use flowlane_load::tcp::{Mode, Sources, TcpOutcome};
use flowlane_load::{ClientRange, FlowWish, TcpLoad, TcpLoadConfig, flows};

const PATIENCE: Duration = Duration::from_secs(60);

struct Ran {
    outcome: TcpOutcome,
    server: flowlane::stack_stats::TcpStats,
    client: flowlane::stack_stats::TcpStats,
}

fn run(mode: Mode, port: u16, cookies: SynCookies, backlog: u32) -> Ran {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let target = Endpoint::new("10.0.0.1".parse().unwrap(), port);
    let clients: ClientRange = "10.0.1.0/24".parse().unwrap();
    let wish = FlowWish {
        target,
        clients: &[clients],
        flows: 4096,
        protocol: Protocol::TCP,
        rss: &rss,
        aim: None,
        start: 0,
    };
    let load = TcpLoad::new(TcpLoadConfig {
        target,
        mode,
        sources: Sources::Flows(flows::choose(&wish).unwrap()),
        connections: 4096,
        rate: Some(5000),
        poisson: false,
        size: 64,
        total: None,
        opening: 1,
        phases: vec![Phase::hold(Duration::from_millis(400))],
        timeout: Duration::from_secs(2),
        nodelay: true,
        verify: false,
        reset: false,
        fast_open: false,
        exact: true,
        seed: 5,
        snapshots: None,
    })
    .unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let server = Host::new("server", rss.clone(), move || async move {
        let options = ListenOptions { syn_backlog: backlog, ..ListenOptions::default() };
        let listener = TcpListener::bind(None, 7, options).unwrap();
        while listener.accept().await.is_ok() {}
    });
    // A SYN-ACK comes again only after longer than the run.
    let tcp = TcpConfig {
        syn_cookies: cookies,
        initial_rto: Duration::from_secs(20),
        resets_per_second: u32::MAX,
        ..TcpConfig::default()
    };
    let server = builder.host(server.interface(on("10.0.0.1/16")).tcp(tcp));
    let interface = Interface { claimed: clients.prefixes(), ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss, load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let outcome = load.wait(Duration::from_secs(1), |_| true);
    // The last resets of ours may still be on their way.
    let (handle, deadline) = (runtime.handle(), Instant::now() + PATIENCE);
    let arrived = || {
        let now = handle.report();
        now.total(server).tcp.packets_received == now.total(client).tcp.packets_sent
    };
    while !arrived() {
        assert!(Instant::now() < deadline, "{:#?}", handle.report());
        std::thread::yield_now();
    }
    let report = runtime.stop();
    assert_eq!(outcome.failure, None);
    let c = outcome.counts;
    assert_eq!(c.begun + c.unsent, 2000, "{c:?}");
    assert_eq!(c.begun, c.completed + c.failed(), "every SYN ends once: {c:?}");
    Ran { outcome, server: report.total(server).tcp, client: report.total(client).tcp }
}

#[test]
fn half_open_handshakes_stay_half_open() {
    for (cookies, backlog) in
        [(SynCookies::Always, 16), (SynCookies::WhenFull, 16), (SynCookies::Off, 1 << 16)]
    {
        let mut ran = run(Mode::HalfOpen, 7, cookies, backlog);
        let (c, s) = (ran.outcome.counts, ran.server);
        assert_eq!((c.answers, c.connected), (c.begun, 0), "{cookies:?}: {c:?}");
        // Every SYN got a SYN-ACK: remembered, or from a cookie.
        assert_eq!(s.cookies_sent + s.syncache_added, c.begun, "{cookies:?}: {s:?}");
        assert_eq!(s.cookies_sent > 0, cookies != SynCookies::Off, "{s:?}");
        // And nothing came back to it: no acknowledgement, no reset.
        assert_eq!((s.packets_received, s.connection_accepts), (c.begun, 0), "{cookies:?}: {s:?}");
        assert_eq!((s.syncache_reset, s.cookies_received, s.cookies_bad), (0, 0, 0), "{s:?}");
        assert_eq!(ran.client.packets_sent, c.begun, "{:?}", ran.client);
        assert_eq!(ran.outcome.take_total().latency.count(), c.answers);
    }
}

#[test]
fn syns_alone_are_reset_when_they_are_answered() {
    let ran = run(Mode::Syn, 7, SynCookies::Off, 1 << 16);
    let (c, s) = (ran.outcome.counts, ran.server);
    assert_eq!(c.answers, c.begun, "{c:?}");
    assert_eq!((s.syncache_added, s.syncache_reset), (c.begun, c.begun), "{s:?}");
    assert_eq!((s.packets_received, ran.client.packets_sent), (2 * c.begun, 2 * c.begun), "{s:?}");
}

#[test]
fn a_closed_port_refuses() {
    let mut ran = run(Mode::HalfOpen, 9, SynCookies::WhenFull, 16);
    let c = ran.outcome.counts;
    assert_eq!((c.refused, c.answers), (c.begun, 0), "{c:?}");
    assert_eq!(ran.outcome.take_total().counts.errors["refused"].count, c.begun);
}
