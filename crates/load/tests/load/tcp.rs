//! Load over TCP against an echo, a sink and a source on the other end of a wire in memory: what the generator says must
//! be what happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::{
    Endpoint, FastOpenListen, Host, Interface, Key, ListenOptions, PairConfig, Protocol, Quirk, Quirks, Rss,
    Runtime, TcpConfig, TcpListener, TcpStream, spawn,
};
use flowlane_load::Phase;
use flowlane_load::report::Part;
use flowlane_load::tcp::{Mode, Sources, TcpCounts, service};
use flowlane_load::{ClientRange, FlowWish, TcpLoad, TcpLoadConfig, TcpOutcome, flows};

#[derive(Clone, Copy, PartialEq)]
enum Far {
    Echo,
    Discard,
    Source(Option<u64>),
    /// Accepts and says nothing.
    Silent,
    /// Reads a little every few milliseconds.
    Slow,
    /// Reads a little and closes.
    Rude,
    /// Sends back something else.
    Liar,
}

async fn serve(stream: TcpStream, far: Far) {
    let _ = match far {
        Far::Echo => service::echo(&stream).await,
        Far::Discard => service::discard(&stream).await,
        Far::Source(total) => service::source(&stream, 10_000, total).await,
        Far::Silent => std::future::pending().await,
        Far::Slow => loop {
            match stream.read(&mut [0; 2000]).await {
                Ok(1..) => flowlane::sleep(Duration::from_millis(40)).await,
                end => break end.map(drop),
            }
        },
        Far::Rude => stream.read(&mut [0; 10]).await.map(drop),
        Far::Liar => {
            let mut bytes = [0; 64];
            let n = stream.read(&mut bytes).await.unwrap_or(0);
            bytes[n / 2] ^= 1;
            stream.write_all(&bytes[..n]).await
        }
    };
}

fn rss() -> Arc<Rss> {
    Arc::new(Rss::new(Key::MICROSOFT, 1))
}

pub(crate) fn clients() -> ClientRange {
    "10.0.1.0/24".parse().unwrap()
}

fn target() -> Endpoint {
    Endpoint::new("10.0.0.1".parse().unwrap(), 7)
}

pub(crate) fn config(mode: Mode, connections: usize) -> TcpLoadConfig {
    let wish = FlowWish {
        target: target(),
        clients: &[clients()],
        flows: connections,
        protocol: Protocol::TCP,
        rss: &rss(),
        aim: None,
        start: 0,
    };
    let sources = if mode == Mode::Connect {
        Sources::Addresses { clients: vec![clients()], lanes: rss().buckets.len() }
    } else {
        Sources::Flows(flows::choose(&wish).unwrap())
    };
    TcpLoadConfig {
        target: target(),
        mode,
        sources,
        connections,
        rate: None,
        poisson: false,
        size: 4096,
        total: None,
        opening: 10_000,
        phases: vec![Phase::hold(Duration::from_millis(400))],
        timeout: Duration::from_secs(5),
        nodelay: true,
        verify: true,
        reset: false,
        fast_open: false,
        exact: true,
        seed: 5,
        snapshots: None,
    }
}

struct Run {
    outcome: TcpOutcome,
    /// What the report says.
    total: Part,
    report: flowlane::stats::Report,
    server: usize,
}

fn run(far: Far, quirks: Quirks, config: TcpLoadConfig) -> Run {
    let fast_open = config.fast_open.then(FastOpenListen::default);
    run_at(ListenOptions { fast_open, ..ListenOptions::default() }, far, quirks, config)
}

/// Against a listener of these options.
fn run_at(options: ListenOptions, far: Far, quirks: Quirks, config: TcpLoadConfig) -> Run {
    // A run whose target refuses ends at once and says so.
    let nobody = config.target.port == 9;
    let load = TcpLoad::new(config).unwrap();
    let on = |a: &str| Interface { addresses: vec![a.parse().unwrap()], ..Interface::default() };
    let mut builder = Runtime::builder().pin(false).seed(7);
    let server = Host::new("server", rss(), move || async move {
        let listener = TcpListener::bind(None, 7, options).unwrap();
        while let Ok(stream) = listener.accept().await {
            drop(spawn(serve(stream, far)));
        }
    });
    let tcp = TcpConfig { resets_per_second: u32::MAX, ..TcpConfig::default() };
    let server = builder.host(server.interface(on("10.0.0.1/16")).tcp(tcp));
    let interface = Interface { claimed: clients().prefixes(), ..on("10.0.0.2/16") };
    let client = builder.host(Host::new("client", rss(), load.main()).interface(interface));
    builder.pair((server, 0), (client, 0), PairConfig { quirks, ..PairConfig::default() });
    let runtime = builder.start().unwrap();
    let mut outcome = load.wait(Duration::from_secs(1), |_| true);
    // The client is done with a connection before the server has heard that its own FIN arrived.
    let handle = runtime.handle();
    let patience = Instant::now() + Duration::from_secs(2);
    while far == Far::Echo && outcome.failure.is_none() && Instant::now() < patience {
        let tcp = handle.report().total(server).tcp;
        if tcp.closed >= tcp.connection_accepts {
            break;
        }
    }
    let report = runtime.stop();
    assert_eq!(outcome.failure.is_some(), nobody, "{:?}", outcome.failure);
    let c = outcome.counts;
    assert_eq!(c.begun, c.completed + c.unfinished + c.failed(), "every connection ends once: {c:?}");
    let total = outcome.take_total();
    assert_agree(&c, &total);
    Run { total, outcome, report, server }
}

/// The report says what was counted.
fn assert_agree(c: &TcpCounts, total: &Part) {
    let sum = |f: fn(&flowlane_load::report::Counts) -> u64| f(&total.counts) + f(&total.unmeasured);
    let more = |name: &str| {
        total.counts.more.get(name).copied().unwrap_or(0)
            + total.unmeasured.more.get(name).copied().unwrap_or(0)
    };
    assert_eq!(sum(|t| t.answered), c.answers, "{c:?}");
    assert_eq!(sum(|t| t.failed), c.failed(), "{c:?}: {total:?}");
    assert_eq!((sum(|t| t.bytes_sent), sum(|t| t.bytes_received)), (c.bytes_written, c.bytes_read));
    assert_eq!((sum(|t| t.connections_opened), sum(|t| t.connections_closed)), (c.connected, c.connected));
    assert_eq!((sum(|t| t.unsent), sum(|t| t.held_up)), (c.unsent, c.held_up));
    for (name, count) in [
        ("begun", c.begun),
        ("completed", c.completed),
        ("standing", c.standing),
        ("unfinished", c.unfinished),
        ("resent", c.retransmits),
        ("late", c.late),
        ("syn-data", c.syn_data),
        ("syn-data-resent", c.syn_data_resent),
    ] {
        assert_eq!(more(name), count, "{name}: {c:?}");
    }
}

/// Nothing went wrong.
fn assert_good(c: &TcpCounts, connections: u64) {
    assert_eq!((c.begun, c.connected, c.completed), (connections, connections, connections), "{c:?}");
    assert_eq!((c.failed(), c.unfinished, c.late), (0, 0, 0), "{c:?}");
}

#[test]
fn echoes_come_back_byte_for_byte() {
    let run = run(Far::Echo, Quirks::default(), config(Mode::Echo, 16));
    let c = run.outcome.counts;
    assert_good(&c, 16);
    assert_eq!((c.standing, c.bytes_read, c.answers), (16, c.bytes_written, c.messages), "{c:?}");
    // What was sent while others were still being opened is not measured.
    assert_eq!(run.total.latency.count(), c.answers - run.total.unmeasured.answered);
    assert_eq!((run.total.first_byte.count(), run.total.connect.count()), (16, 16));
    let server = run.report.total(run.server).tcp;
    assert_eq!((server.connection_accepts, server.closed), (16, 16));
    assert!(c.bytes_read > 1_000_000, "{c:?}");
}

#[test]
fn a_total_is_kept_to_the_byte() {
    for (mode, far) in [(Mode::Echo, Far::Echo), (Mode::Write, Far::Discard)] {
        let total = Some(100_001);
        let run = run(far, Quirks::default(), TcpLoadConfig { total, ..config(mode, 8) });
        let c = run.outcome.counts;
        assert_good(&c, 8);
        let back = if mode == Mode::Echo { 8 * 100_001 } else { 0 };
        assert_eq!((c.bytes_written, c.bytes_read), (8 * 100_001, back), "{c:?}");
        assert_eq!((c.messages, c.answers), (8 * 25, 8 * 25), "the last message is shorter: {c:?}");
        assert_eq!(run.report.total(run.server).tcp.in_sequence_bytes, 8 * 100_001);
    }
    let total = Some(50_001);
    let run = run(Far::Source(total), Quirks::default(), TcpLoadConfig { total, ..config(Mode::Read, 8) });
    assert_good(&run.outcome.counts, 8);
    assert_eq!(run.outcome.counts.bytes_read, 8 * 50_001);
}

#[test]
fn reading_is_compared_and_ends_with_the_time() {
    let run = run(Far::Source(None), Quirks::default(), config(Mode::Read, 8));
    let c = run.outcome.counts;
    assert_good(&c, 8);
    assert!(c.bytes_read > 1_000_000 && c.standing == 8, "{c:?}");
    assert!(run.total.rates.bytes_received * 8.0 > 1e6);
}

#[test]
fn rates_are_kept_in_every_mode() {
    for (mode, far) in [
        (Mode::Echo, Far::Echo),
        (Mode::Write, Far::Discard),
        (Mode::Read, Far::Source(None)),
        (Mode::Hold, Far::Echo),
        (Mode::Connect, Far::Echo),
    ] {
        let run = run(far, Quirks::default(), TcpLoadConfig { rate: Some(1000), ..config(mode, 40) });
        let (c, total) = (run.outcome.counts, &run.total);
        assert_eq!((c.failed(), c.unfinished), (0, 0), "{mode:?}: {c:?}");
        // 400 ms at a thousand a second are due, however busy the machine is: each is sent once or counted as unsent.
        let (sent, unsent) = (total.counts.sent, total.counts.unsent);
        assert_eq!((sent + unsent, unsent), (400, c.unsent), "{mode:?}: {c:?}");
        assert_eq!((total.unmeasured.sent, total.slip.count()), (0, 400), "{mode:?}: {c:?}");
        // Only what the end found late is unsent, and how late, the slip says: a moment each millisecond.
        assert!(sent > 0 && unsent <= total.slip.max() / 1_000_000 + 1, "{mode:?}: {c:?} {:?}", total.slip);
        // All that was sent was answered; a connection that only reads leaves at the end what it is reading.
        let cut = sent - c.answers;
        assert!(cut == 0 || mode == Mode::Read && cut <= 40, "{mode:?}: {c:?}");
        assert_eq!(total.latency.count(), c.answers, "{mode:?}: {c:?}");
    }
}

/// A far side that never answers: each connection asks once, and all else that was due is said to be unsent.
#[test]
fn what_is_never_begun_is_unsent() {
    let wanted = TcpLoadConfig {
        rate: Some(1000),
        size: 64,
        timeout: Duration::from_millis(200),
        ..config(Mode::Hold, 4)
    };
    let run = run(Far::Silent, Quirks::default(), wanted);
    let (c, total) = (run.outcome.counts, &run.total);
    assert_eq!((c.answers, c.failed(), c.unfinished), (0, 0, 4), "{c:?}");
    assert!(total.counts.sent <= 4, "{c:?}");
    assert_eq!((total.counts.sent + total.counts.unsent, total.slip.count()), (400, 400), "{c:?}");
}

/// Bytes that are only written, and that the far side takes no more of: that is a failure, and slowness is none.
#[test]
fn a_far_side_that_takes_nothing_more_has_failed() {
    for (far, timeout, stuck) in [(Far::Silent, 300, 4), (Far::Slow, 2000, 0)] {
        let wanted = TcpLoadConfig { timeout: Duration::from_millis(timeout), ..config(Mode::Write, 4) };
        let run = run(far, Quirks::default(), wanted);
        let (c, total) = (run.outcome.counts, &run.total);
        assert_eq!((c.connected, c.no_answer, c.failed()), (4, stuck, stuck), "{c:?}");
        // All of it would take seconds more.
        assert_eq!(c.unfinished, 4 - stuck, "{c:?}");
        assert_eq!(total.counts.errors.get("timeout").map_or(0, |e| e.count), stuck, "{c:?}");
    }
}

/// What fits the buffers of both ends is acknowledged without a reader: that is no success either.
#[test]
fn bytes_that_are_acknowledged_and_not_read_are_not_done() {
    let timeout = Duration::from_millis(300);
    let wanted = TcpLoadConfig { timeout, total: Some(1000), size: 100, ..config(Mode::Write, 4) };
    let c = run(Far::Silent, Quirks::default(), wanted).outcome.counts;
    assert_eq!((c.connected, c.no_answer, c.completed, c.unfinished), (4, 4, 0, 0), "{c:?}");
}

#[test]
fn connections_come_and_go() {
    for rate in [None, Some(2000)] {
        let wanted = TcpLoadConfig { rate, size: 64, ..config(Mode::Connect, 32) };
        let run = run(Far::Echo, Quirks::default(), wanted);
        let c = run.outcome.counts;
        assert_good(&c, c.begun);
        assert_eq!((c.answers, c.bytes_read), (c.begun, c.begun * 64), "{c:?}");
        assert_eq!(run.report.total(run.server).tcp.connection_accepts, c.begun);
        assert!(c.begun > 300, "{c:?}");
        assert_eq!((run.total.connect.count(), run.total.counts.sent), (c.begun, c.begun));
    }
}

/// Client addresses with Fast Open: no divisor in common with the lanes, so that each lane uses each.
const ADDRESSES: u64 = 5;

/// A request of 64 bytes fits into a SYN, one of 5000 does not; connections from some addresses in turn, one at a time in each lane,
/// at a rate and as fast as possible.
fn fast_open(size: usize, rate: Option<u64>) -> TcpLoadConfig {
    let clients: ClientRange = format!("10.0.1.1-10.0.1.{ADDRESSES}").parse().unwrap();
    assert_eq!(clients.count(), ADDRESSES.into());
    let sources = Sources::Addresses { clients: vec![clients], lanes: rss().buckets.len() };
    TcpLoadConfig { fast_open: true, sources, size, rate, ..config(Mode::Connect, rss().buckets.len()) }
}

#[test]
fn requests_go_with_the_syn() {
    for (size, rate) in [(64, None), (64, Some(500)), (5000, None)] {
        let run = run(Far::Echo, Quirks::default(), fast_open(size, rate));
        let c = run.outcome.counts;
        assert_good(&c, c.begun);
        assert_eq!((c.messages, c.answers, c.bytes_read), (c.begun, c.begun, c.begun * size as u64), "{c:?}");
        assert_eq!((c.bytes_written, c.syn_data_resent), (c.bytes_read, 0), "{c:?}");
        // In each lane the first from each address asks for the cookie; they open one at a time when they do not follow a rate. A
        // cookie that was given to another address would be refused and its data sent again.
        let (lanes, server) = (rss().buckets.len() as u64, run.report.total(run.server).tcp);
        assert!(c.begun > 100 && c.syn_data < c.begun, "{c:?}");
        assert!(rate.is_some() || c.begun - c.syn_data <= lanes * ADDRESSES, "{c:?}");
        assert_eq!(server.fast_open_passive, c.syn_data);
        assert_eq!(server.fast_open_cookies_asked, c.begun - c.syn_data);
    }
}

/// Whoever takes nothing with the SYN gets all of it after the handshake, and the report says so: a listener without Fast Open
/// gives no cookie; one that may have a single early connection takes the data of few of those that come at once.
#[test]
fn data_that_is_not_taken_with_the_syn_is_sent_again() {
    let without = run_at(ListenOptions::default(), Far::Echo, Quirks::default(), fast_open(64, None));
    let c = without.outcome.counts;
    assert_good(&c, c.begun);
    assert_eq!(
        (c.syn_data, c.syn_data_resent, c.bytes_read),
        (0, 0, c.begun * 64),
        "no cookie, no data: {c:?}"
    );

    let one = FastOpenListen { pending: 1, ..FastOpenListen::default() };
    let one = ListenOptions { fast_open: Some(one), ..ListenOptions::default() };
    let many = TcpLoadConfig { connections: 64, ..fast_open(64, None) };
    let run = run_at(one, Far::Echo, Quirks::default(), many);
    let (c, server) = (run.outcome.counts, run.report.total(run.server).tcp);
    assert_good(&c, c.begun);
    assert!(c.syn_data > 0 && c.syn_data_resent > 0, "{c:?}");
    assert_eq!((server.fast_open_passive, c.bytes_read), (c.syn_data, c.begun * 64), "{c:?}");
    assert!(server.fast_open_overflows >= c.syn_data_resent && c.retransmits >= c.syn_data_resent, "{c:?}");
}

#[test]
fn a_bad_wire_loses_no_byte() {
    let quirks = Quirks::new(3).with(Quirk::Drop, 50).with(Quirk::Reorder, 50).with(Quirk::Corrupt, 100);
    let wanted =
        TcpLoadConfig { total: Some(300_000), timeout: Duration::from_secs(30), ..config(Mode::Echo, 8) };
    let wanted = TcpLoadConfig { phases: vec![Phase::hold(Duration::from_secs(20))], ..wanted };
    let run = run(Far::Echo, quirks, wanted);
    assert_good(&run.outcome.counts, 8);
    assert_eq!(run.outcome.counts.bytes_read, 8 * 300_000);
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let short = |mode| TcpLoadConfig { timeout: Duration::from_millis(200), size: 64, ..config(mode, 4) };
    let refused = TcpLoadConfig { target: Endpoint::new(target().ip, 9), ..short(Mode::Connect) };
    let c = run(Far::Echo, Quirks::default(), refused).outcome.counts;
    assert!(c.refused > 0 && c.refused == c.begun && c.connected == 0, "{c:?}");
    let c = run(Far::Silent, Quirks::default(), short(Mode::Connect)).outcome.counts;
    assert!(c.no_answer > 0 && c.no_answer == c.connected, "{c:?}");
    let c = run(Far::Silent, Quirks::default(), short(Mode::Echo)).outcome.counts;
    assert!(c.unfinished == 4 && c.failed() == 0, "{c:?}");
    let c = run(Far::Rude, Quirks::default(), short(Mode::Hold)).outcome.counts;
    assert!(c.closed_early + c.reset == 4, "{c:?}");
    let c = run(Far::Liar, Quirks::default(), short(Mode::Connect)).outcome.counts;
    assert!(c.corrupt > 0 && c.corrupt == c.connected, "{c:?}");
    let nobody =
        TcpLoadConfig { target: Endpoint::new("10.0.0.77".parse().unwrap(), 7), ..short(Mode::Connect) };
    let c = run(Far::Echo, Quirks::default(), nobody).outcome.counts;
    assert!(c.timed_out + c.unreachable == c.begun && c.begun > 0, "{c:?}");
}

#[test]
fn a_run_that_cannot_be_is_refused() {
    let refused = |config: TcpLoadConfig| TcpLoad::new(config).unwrap_err();
    assert!(
        refused(TcpLoadConfig { connections: 0, ..config(Mode::Connect, 1) })
            .to_string()
            .contains("at least 1")
    );
    assert!(refused(TcpLoadConfig { size: 0, ..config(Mode::Echo, 1) }).to_string().contains("size"));
    for mode in [Mode::Echo, Mode::Write, Mode::Read, Mode::Hold] {
        assert!(
            refused(TcpLoadConfig { fast_open: true, ..config(mode, 1) }).to_string().contains("come and go")
        );
    }
    let none = Sources::Flows(vec![Vec::new(); 2]);
    assert!(refused(TcpLoadConfig { sources: none, ..config(Mode::Echo, 1) }).to_string().contains("flow"));
}
