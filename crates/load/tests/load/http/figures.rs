//! Every figure of a report beside the server's own record of the same run: each schedule, with each policy of connections,
//! with and without phases that are not measured, in each protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use flowlane_http::h1::{Event, Limits, RequestReader};
use flowlane_http::tls::{Alpn, Identity, ServerTls, Trust};
use flowlane_load::Phase;
use flowlane_load::http::{Body, Pace, Pool, Request, Version};
use flowlane_load::report::Part;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::h2::InLane;
use super::kit::{Ran, Serve, ms, plan, pool, run, serve, target};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const CONTENT: &[u8] = b"hello";
/// What goes before the hundred bytes of a body.
const HEAD: &[u8] =
    b"POST /x HTTP/1.1\r\nHost: 10.0.0.1\r\nUser-Agent: flowlane\r\nContent-Length: 100\r\n\r\n";
const CONNECTIONS: u64 = 6;

/// What the server saw.
#[derive(Debug, Default)]
struct Record {
    connections: AtomicU64,
    requests: AtomicU64,
    bodies: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// Answers everything, and writes down what it saw of it.
fn recording(record: &Arc<Record>) -> Serve {
    recording_in(record, Protocol::Http)
}

fn recording_in(record: &Arc<Record>, protocol: Protocol) -> Serve {
    let record = record.clone();
    let alpn = if protocol.is_http2() { Alpn::Http2 } else { Alpn::Http1 };
    let tls = ServerTls::new(&Identity::SelfSigned(vec!["10.0.0.1".into()]), alpn).unwrap();
    serve(move |stream| {
        let (record, tls) = (record.clone(), tls.clone());
        async move {
            record.connections.fetch_add(1, Relaxed);
            match protocol {
                Protocol::Http => http1(stream, &record).await,
                Protocol::Http2 => http2(stream, record).await,
                Protocol::Https | Protocol::Http2Tls => {
                    // Who was given up at the end of a run does not finish its handshake.
                    let Ok(stream) = tls.accept(stream).await else { return };
                    if protocol.is_http2() {
                        http2(stream, record).await;
                    } else {
                        http1(stream, &record).await;
                    }
                }
            }
        }
    })
}

async fn http1(mut stream: impl AsyncRead + AsyncWrite + Unpin, record: &Record) {
    let (mut reader, mut buffer) = (RequestReader::new(Limits::default()), vec![0; 16 << 10]);
    loop {
        let n = match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => n,
            _ => return,
        };
        record.read.fetch_add(n as u64, Relaxed);
        let (mut at, mut out, mut ends) = (0, Vec::new(), false);
        while let (used, Some(event)) = reader.next(&buffer[at..n]).unwrap() {
            match event {
                Event::Head(head) => ends |= !head.keep_alive,
                Event::Data(data) => drop(record.bodies.fetch_add(data.len() as u64, Relaxed)),
                Event::End => {
                    record.requests.fetch_add(1, Relaxed);
                    out.extend_from_slice(ANSWER);
                }
                Event::Interim(_) => {}
            }
            at += used;
        }
        // Counted before: the peer may have it before we go on.
        record.written.fetch_add(out.len() as u64, Relaxed);
        if stream.write_all(&out).await.is_err() || stream.flush().await.is_err() || ends {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

/// Bytes are counted as HTTP/1 has them, and of answers their content alone: what docs/report.md says.
async fn http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, record: Arc<Record>) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let record = record.clone();
        async move {
            record.requests.fetch_add(1, Relaxed);
            let body = request.into_body().collect().await?.to_bytes();
            record.bodies.fetch_add(body.len() as u64, Relaxed);
            record.read.fetch_add((HEAD.len() + body.len()) as u64, Relaxed);
            record.written.fetch_add(CONTENT.len() as u64, Relaxed);
            Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::from_static(CONTENT))))
        }
    });
    let _ = hyper::server::conn::http2::Builder::new(InLane)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Protocol {
    Http,
    Https,
    Http2,
    Http2Tls,
}

impl Protocol {
    fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::Http2Tls)
    }

    fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Http2Tls)
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    pace: Pace,
    per_connection: Option<u64>,
    phases: Phases,
    protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phases {
    /// All of it is measured.
    One,
    /// A ramp and a warm-up of more than a second first, and a part afterwards.
    Many,
}

impl Case {
    fn phases(self) -> Vec<Phase> {
        let phase = |name: &str, time, from, measured| Phase {
            name: name.into(),
            duration: ms(time),
            from,
            to: 1.0,
            measured,
        };
        match self.phases {
            Phases::One => vec![phase("hold", 400, 1.0, true)],
            Phases::Many => vec![
                phase("ramp", 400, 0.5, false),
                phase("warm-up", 800, 1.0, false),
                phase("hold", 500, 1.0, true),
                phase("after", 200, 1.0, false),
            ],
        }
    }
}

fn check(case: Case) {
    let record = Arc::new(Record::default());
    let request = Request { method: "POST".into(), body: Body::Generated(100), ..Request::default() };
    let mut target = target("/x");
    target.url.https = case.protocol.is_tls();
    target.url.port = if target.url.https { 443 } else { 80 };
    let pool = Pool {
        connections: CONNECTIONS as usize,
        targets: vec![target],
        trust: Trust::Anybody,
        version: match case.protocol.is_http2() {
            true => Version::Http2 { streams: 4 },
            false => Version::Http1 { pipeline: 1 },
        },
        pace: case.pace,
        requests_per_connection: case.per_connection,
        requests: vec![request],
        ..pool()
    };
    let mut plan = plan(pool, ms(1));
    plan.phases = case.phases();
    let ran = run(plan, &recording_in(&record, case.protocol));
    let part = &ran.run.total;
    let (m, u) = (&part.counts, &part.unmeasured);
    let of = |f: &AtomicU64| f.load(Relaxed);
    assert_eq!(ran.outcome.failure, None, "{case:?}");
    assert_eq!((m.failed, u.failed), (0, 0), "{case:?} {m:?}");
    assert_eq!(m.sent + u.sent, of(&record.requests), "requests, {case:?}");
    assert_eq!((m.answered, u.answered), (m.sent, u.sent), "{case:?}");
    assert_eq!(m.codes.get("200").copied().unwrap_or(0), m.answered, "{case:?}");
    assert_eq!(100 * of(&record.requests), of(&record.bodies), "{case:?}");
    assert_eq!(m.bytes_sent + u.bytes_sent, of(&record.read), "bytes sent, {case:?}");
    assert_eq!(m.bytes_received + u.bytes_received, of(&record.written), "bytes received, {case:?}");
    assert!(m.sent > 0 && (u.sent > 0) == (case.phases == Phases::Many), "{case:?}");
    connections(case, part, &record);
    times(case, part);
    schedule(case, &ran);
    series(case, part);
}

fn connections(case: Case, part: &Part, record: &Record) {
    let (m, u) = (&part.counts, &part.unmeasured);
    let opened = m.connections_opened + u.connections_opened;
    assert_eq!(opened, m.connections_closed + u.connections_closed, "{case:?}");
    // Of those that were being made at the end, one side may know less.
    let seen = record.connections.load(Relaxed);
    assert!(opened.abs_diff(seen) <= CONNECTIONS, "{opened} connections, the server saw {seen}: {case:?}");
    match case.per_connection {
        // A ramp of a closed loop begins with some of them, and lets go of the others until it needs them.
        None if case.pace == Pace::Closed && case.phases == Phases::Many && !case.protocol.is_http2() => {
            assert!(opened == seen && (CONNECTIONS..=2 * CONNECTIONS).contains(&opened), "{opened} {seen}");
        }
        None => assert_eq!((opened, seen), (CONNECTIONS, CONNECTIONS), "{case:?}"),
        // Not asked as often as they may be: those that stand at the end, and those that a ramp lets go of.
        Some(n) => {
            let needed = record.requests.load(Relaxed).div_ceil(n);
            let most = needed + CONNECTIONS * if case.phases == Phases::Many { 2 } else { 1 };
            assert!((needed..=most).contains(&opened), "{opened} for {needed}: {case:?}");
        }
    }
    assert!((1..=CONNECTIONS).contains(&part.concurrency_max), "{case:?}");
}

fn times(case: Case, part: &Part) {
    let answered = part.counts.answered;
    for (name, times) in
        part.spectra().into_iter().filter(|(name, _)| !matches!(*name, "connect" | "tls" | "slip"))
    {
        assert_eq!(times.count(), answered, "{name}, {case:?}");
    }
    assert_eq!(part.connect.count(), part.counts.connections_opened, "{case:?}");
    let tls = if case.protocol.is_tls() { part.connect.count() } else { 0 };
    assert_eq!(part.tls.count(), tls, "{case:?}");
    assert!(part.service.mean() <= part.latency.mean() + part.latency.mean() / 100, "{case:?}");
    // Who needs a connection for a request waits for it, too; with TLS much of that is the machine's own time.
    if case.per_connection == Some(1) && case.protocol == Protocol::Http {
        // Medians: one handshake that takes a second may be measured where its request, begun before, is not.
        let [latency, service, connect] =
            [&part.latency, &part.service, &part.connect].map(|times| times.at(0.5) as f64);
        assert!(
            latency >= 0.8 * (service + connect),
            "latency {latency}, service {service}, connect {connect}: {case:?}"
        );
    }
}

/// Open loops send what is due, and nothing else.
fn schedule(case: Case, ran: &Ran) {
    let Pace::Rate { per_second, poisson } = case.pace else { return };
    let (m, u) = (&ran.run.total.counts, &ran.run.total.unmeasured);
    let expected = |measured: bool| -> f64 {
        let of = case.phases().into_iter().filter(|p| p.measured == measured);
        of.map(|p| per_second * p.duration.as_secs_f64() * (p.from + p.to) / 2.0).sum()
    };
    for (counts, expected) in [(m, expected(true)), (u, expected(false))] {
        let due = (counts.sent + counts.unsent) as f64;
        let off = if poisson { 6.0 * expected.sqrt() } else { 1.5 };
        assert!((due - expected).abs() <= off, "{due} due, {expected} expected: {case:?}");
    }
}

/// The series has everything, each thing in its second.
fn series(case: Case, part: &Part) {
    let (m, u) = (&part.counts, &part.unmeasured);
    let sum = |f: fn(&flowlane_load::report::Point) -> u64| part.series.iter().map(f).sum::<u64>();
    assert_eq!(sum(|p| p.sent), m.sent + u.sent, "{case:?}");
    assert_eq!(sum(|p| p.answered), m.answered + u.answered, "{case:?}");
    assert_eq!(sum(|p| p.bytes_sent), m.bytes_sent + u.bytes_sent, "{case:?}");
    assert_eq!(sum(|p| p.bytes_received), m.bytes_received + u.bytes_received, "{case:?}");
    assert_eq!(sum(|p| p.connections_opened), m.connections_opened + u.connections_opened, "{case:?}");
    let total: Duration = case.phases().iter().map(|p| p.duration).sum();
    assert_eq!(part.series.len() as u64, total.as_nanos().div_ceil(1_000_000_000) as u64, "{case:?}");
    for (i, point) in part.series.iter().enumerate() {
        assert_eq!(point.at_seconds, i as f64, "{case:?}");
        assert!(point.answered > 0 && point.p50_ns > 0, "nothing in second {i}: {case:?}");
    }
    if let Pace::Rate { per_second, poisson: false } = case.pace {
        // Sent late is sent in a later second, never in an earlier one.
        let first = part.series[0].sent as f64;
        assert!(first <= per_second + 1.0, "{first} in the first second of {per_second}: {case:?}");
    }
    if case.per_connection.is_none() && !case.protocol.is_http2() {
        let last = part.series.last().unwrap();
        assert_eq!(last.concurrency, CONNECTIONS, "they all stood until the end: {case:?}");
    }
}

/// Each policy of connections and of phases; HTTP/2 keeps its connections.
fn check_all(pace: Pace, protocol: Protocol) {
    for per_connection in [None, Some(1), Some(3)] {
        for phases in [Phases::One, Phases::Many] {
            // Handshakes without optimization take milliseconds, of a machine that does other things besides.
            let shakes_hands = protocol.is_tls() && per_connection.is_some();
            let pace = match pace {
                Pace::Rate { poisson, .. } if shakes_hands => Pace::Rate { per_second: 60.0, poisson },
                pace => pace,
            };
            if per_connection.is_none() || !protocol.is_http2() {
                check(Case { pace, per_connection, phases, protocol });
            }
        }
    }
}

fn check_schedules(protocol: Protocol) {
    check_all(Pace::Closed, protocol);
    for poisson in [false, true] {
        check_all(Pace::Rate { per_second: 400.0, poisson }, protocol);
    }
}

// Long: every schedule has a run, compared with what the server knows.
#[test]
fn closed_loops() {
    check_all(Pace::Closed, Protocol::Http);
}

// Long: every schedule has a run, compared with what the server knows.
#[test]
fn even_open_loops() {
    check_all(Pace::Rate { per_second: 400.0, poisson: false }, Protocol::Http);
}

// Long: every schedule has a run, compared with what the server knows.
#[test]
fn poisson_open_loops() {
    check_all(Pace::Rate { per_second: 400.0, poisson: true }, Protocol::Http);
}

// Long: every schedule has a run, compared with what the server knows.
#[test]
fn https() {
    check_schedules(Protocol::Https);
}

// Long: every schedule has a run, compared with what the server knows.
#[test]
fn http2_with_and_without_tls() {
    check_schedules(Protocol::Http2);
    check_schedules(Protocol::Http2Tls);
}

#[test]
fn slow_and_broken_rates() {
    let record = Arc::new(Record::default());
    let pace = Pace::Rate { per_second: 2.5, poisson: false };
    let ran = run(plan(Pool { pace, ..pool() }, ms(2000)), &recording(&record));
    assert_eq!((ran.counts().sent, record.requests.load(Relaxed)), (5, 5));
}

#[test]
fn bytes_that_were_never_written_are_not_sent() {
    // It says no as soon as it has the head, and closes.
    let early = serve(|stream| async move {
        let mut buffer = [0; 1000];
        if matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
            let no = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(no).await;
            // What comes meanwhile is read, so that the answer arrives.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            for _ in 0..20 {
                if !matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
                    return;
                }
            }
        }
    });
    const BODY: u64 = 50_000_000;
    let request = Request { method: "POST".into(), body: Body::Generated(BODY), ..Request::default() };
    let pool = Pool { requests: vec![request], total_requests: Some(3), ..pool() };
    let ran = run(plan(pool, ms(20_000)), &early);
    let c = ran.counts();
    assert_eq!(c.sent, 3, "{c:?}");
    assert!(c.bytes_sent < BODY, "{c:?}");
}

#[test]
fn a_request_has_its_time_however_it_drips() {
    let drips = serve(|stream| async move {
        let mut buffer = [0; 1000];
        if matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
            let mut out = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
            while stream.write_all(&out).await.is_ok() {
                out = b"x".to_vec();
                flowlane::sleep(ms(10)).await;
            }
        }
    });
    let pool = Pool { connections: 2, total_requests: Some(4), ..pool() };
    let mut plan = plan(pool, ms(60_000));
    plan.request_timeout = Some(ms(150));
    let ran = run(plan, &drips);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, ran.errors("timeout")), (4, 0, 4), "{c:?}");
    assert!(ran.outcome.elapsed < ms(30_000), "they were given up");
}
