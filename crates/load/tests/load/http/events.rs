//! Streams of server-sent events: their figures beside the pace at which `serve http` sends them, and streams that are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane_load::http::{Body, EventStream, Pool, Request, Version};
use flowlane_load::report::{Events, Threshold};

use super::kit::{Ran, ms, plan, pool, rate, run, run_on_ours, says, serve};

const VERSIONS: [Version; 2] = [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 4 }];

fn stream(path: &str, end: Option<&str>) -> Request {
    Request {
        method: "POST".into(),
        path: Some(path.into()),
        headers: vec![("Content-Type".into(), "application/json".into())],
        body: Body::Text("{\"stream\": true}".into()),
        events: Some(EventStream::ending_with(end).unwrap()),
        ..Request::default()
    }
}

fn events(ran: &Ran) -> &Events {
    ran.run.total.events.as_ref().unwrap_or_else(|| panic!("{:?}", ran.counts()))
}

/// Times are those of the server: never less, and half of them little more, on a machine that does other things besides.
fn near(nanos: u64, expected: Duration, what: &str) {
    let (least, most) = (expected.as_nanos() as u64, (expected + ms(40)).as_nanos() as u64);
    assert!((least - least / 100..most).contains(&nanos), "{what}: {nanos} ns, {expected:?} expected");
}

#[test]
fn the_figures_are_those_of_the_server() {
    for version in VERSIONS {
        let pool = Pool {
            version,
            pace: rate(10.0),
            connections: 8,
            requests: vec![stream("/events/5/30?first=120&size=100&end=[DONE]", Some("[DONE]"))],
            ..pool()
        };
        let ran = run_on_ours(plan(pool, ms(1000)));
        let c = ran.counts();
        assert_eq!((c.sent, c.answered, c.failed), (10, 10, 0), "{version:?} {c:?}");
        let events = events(&ran);
        assert_eq!((events.streams, events.events), (10, 50), "{version:?}");
        assert_eq!((events.per_stream.max(), events.per_stream.mean()), (5, 5));
        assert_eq!(
            (events.first_event.count(), events.event_gap.count(), events.last_event.count()),
            (10, 40, 10)
        );
        near(events.first_event.at(0.5), ms(120), "first");
        near(events.last_event.at(0.5), ms(120 + 4 * 30), "last");
        // The time between two of them is as often too short as too long.
        let gap = events.event_gap.mean();
        assert!((20_000_000..45_000_000).contains(&gap), "{gap} ns: {version:?}");
        // The head comes at once, and the answer's end with the last event.
        assert!(ran.run.total.first_byte.at(0.5) < 100_000_000, "{version:?}");
        let last = ran.run.total.latency.at(0.5);
        assert!(last + last / 100 >= events.last_event.at(0.5), "{last}");
        let verdict = |text: &str| text.parse::<Threshold>().unwrap().verdict(&ran.run);
        assert!(verdict("ttft-p50 > 100ms").failed && !verdict("ttft-max > 60s").failed);
        assert!(verdict("itl-mean > 10ms").failed && verdict("last-event-p50 > 200ms").failed);
    }
}

/// A stream whose first event does not come in time counts with the time waited.
#[test]
fn a_stream_that_does_not_begin_is_none_that_was_quick() {
    for version in VERSIONS {
        let request = stream("/events/2/10?first=60000", None);
        let pool =
            Pool { version, connections: 2, total_requests: Some(4), requests: vec![request], ..pool() };
        let mut plan = plan(pool, ms(20_000));
        plan.request_timeout = Some(ms(200));
        let ran = run_on_ours(plan);
        assert_eq!(ran.errors("timeout"), 4, "{version:?} {:?}", ran.counts());
        let events = events(&ran);
        assert_eq!((events.streams, events.events, events.first_event.count()), (0, 0, 4));
        // A lane reads the clock once a turn, so a time may begin a turn too early.
        assert!(events.first_event.at(0.01) >= 150_000_000, "{:?}", events.first_event);
    }
}

/// What comes in pieces of one byte is one event.
#[test]
fn an_event_may_come_in_pieces() {
    let dripping = serve(|stream| async move {
        let mut buffer = [0; 4096];
        while matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
            let body = b"\xef\xbb\xbf: hello\r\n\r\ndata: a\rdata: b\r\r:\n\nid: 1\nevent: x\ndata: c\n\ndata: [DONE]\n\n";
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            for byte in head.as_bytes().iter().chain(body) {
                if stream.write_all(&[*byte]).await.is_err() {
                    return;
                }
                flowlane::yield_now().await;
            }
        }
    });
    let pool = Pool { total_requests: Some(3), requests: vec![stream("/", Some("[DONE]"))], ..pool() };
    let ran = run(plan(pool, ms(20_000)), &dripping);
    assert_eq!((ran.counts().answered, ran.counts().failed), (3, 0), "{:?}", ran.counts());
    assert_eq!((events(&ran).streams, events(&ran).events), (3, 6));
}

#[test]
fn what_is_no_whole_stream_has_failed() {
    let close = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let answer = |content: &str| -> &'static [u8] {
        Box::leak(format!("{close}{content}").into_boxed_str()).as_bytes()
    };
    let huge = format!("data: {}\n\n", "x".repeat(2 << 20));
    for (bytes, end, kind, what) in [
        (answer("data: a\n\ndata: b"), None, "events", "within an event, after 1 whole"),
        (answer("data: a\n\n"), Some("[DONE]"), "events", "after 1 events without '[DONE]'"),
        (answer(": nothing\n\n"), None, "events", "no event"),
        (answer(&huge), None, "too-long", "more than 1 MiB"),
        (&b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"[..], None, "events", "application/json"),
        (&b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n"[..], None, "closed", ""),
        (&b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"[..], None, "status", "503"),
    ] {
        let pool = Pool { total_requests: Some(3), requests: vec![stream("/", end)], ..pool() };
        let ran = run(plan(pool, ms(20_000)), &says(bytes, true));
        let c = ran.counts();
        assert_eq!((c.sent, c.failed, ran.errors(kind)), (3, 3, 3), "{kind}: {c:?}");
        assert!(c.errors[kind].example.contains(what), "{c:?}");
        assert_eq!(ran.run.total.events.as_ref().map_or(0, |events| events.streams), 0);
    }
}

/// A stream without an end: no memory is taken for it, and its time is over at some time.
#[test]
fn a_stream_may_not_go_on_for_ever() {
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    let endless = serve(move |stream| {
        let count = count.clone();
        async move {
            let mut buffer = [0; 4096];
            if matches!(stream.read(&mut buffer).await, Ok(n) if n > 0) {
                let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
                let mut out = head.to_vec();
                while stream.write_all(&out).await.is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                    out = b"data: again\n\n".to_vec();
                }
            }
        }
    });
    let pool = Pool { total_requests: Some(1), requests: vec![stream("/", None)], ..pool() };
    let mut plan = plan(pool, ms(60_000));
    plan.max_body = 1 << 20;
    let ran = run(plan, &endless);
    assert_eq!(ran.errors("too-long"), 1, "{:?}", ran.counts());
    assert!(sent.load(Ordering::Relaxed) > 50_000 && events(&ran).events > 50_000);
}
