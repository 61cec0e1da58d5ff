//! Servers that do what they must not: counted by kind, and the run goes on and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flowlane_load::http::{Checks, Plan, Pool, Request, Target, Version};

use super::kit::{self, Heard, Ran, hello, ms, ok, plan, pool, rate, run, run_on, says, serve};

fn quick(pool: Pool) -> Plan {
    plan(pool, ms(200))
}

/// Every request comes to nothing, in this way.
fn only(ran: &Ran, kind: &str) {
    let c = ran.counts();
    assert_eq!(ran.outcome.failure, None);
    assert!(c.sent > 0 && c.answered == 0, "{kind}: {c:?}");
    assert_eq!(ran.errors(kind), c.failed, "{kind}: {c:?}");
    assert_eq!(c.failed, c.sent, "{kind}: {c:?}");
    assert!(!c.errors[kind].example.is_empty());
}

#[test]
fn garbage_half_answers_and_nothing_at_all() {
    let cases: [(&'static [u8], bool, &str); 17] = [
        (b"", true, "closed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", false, "malformed"),
        (b"\0\0\0\0\0\0\0\0\r\n\r\n", false, "malformed"),
        // No line ends: nothing more has to come to know that this is another protocol.
        (b"220 mail.example ESMTP", false, "malformed"),
        (b"\x15\x03\x03\x00\x02\x02\x16", false, "malformed"),
        (b"SSH-2.0", true, "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", true, "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", true, "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n", false, "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", false, "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false, "malformed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n", false, "malformed"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
            false,
            "malformed",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", true, "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", false, "malformed"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", false, "malformed"),
        (b"HTTP/9.9 200 OK\r\n\r\n", false, "malformed"),
    ];
    for (bytes, close, kind) in cases {
        only(&run(quick(Pool { connections: 2, pace: rate(200.0), ..pool() }), &says(bytes, close)), kind);
    }
}

#[test]
fn silence_and_half_an_answer_time_out() {
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel"] {
        let mut plan = quick(Pool { connections: 2, ..pool() });
        (plan.timeout, plan.waiting) = (ms(100), ms(300));
        let ran = run(plan, &says(bytes, false));
        only(&ran, "timeout");
        // What was given up waited at least as long as the timeout, and is in the latencies.
        assert!(ran.run.total.latency.at(0.5) >= 90_000_000);
    }
}

#[test]
fn endless_heads_and_bodies() {
    let endless = |head: &'static [u8], more: &'static [u8]| {
        serve(move |stream| async move {
            let mut buffer = [0; 4096];
            if stream.read(&mut buffer).await.is_err() || stream.write_all(head).await.is_err() {
                return;
            }
            while stream.write_all(more).await.is_ok() {}
        })
    };
    let head = endless(
        b"HTTP/1.1 200 OK\r\n",
        b"X-And-So-On: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    );
    only(&run(quick(pool()), &head), "too-long");
    for body in [
        endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 4096]),
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"8\r\nxxxxxxxx\r\n"),
        endless(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", &[b'x'; 4096]),
    ] {
        let mut plan = quick(pool());
        plan.max_body = 100_000;
        only(&run(plan, &body), "too-long");
    }
}

#[test]
fn bytes_that_nobody_asked_for() {
    let ran = run(quick(pool()), &says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more", false));
    let c = ran.counts();
    assert!(c.answered > 0);
    assert_eq!((c.failed, c.more["unasked"]), (0, c.answered), "{c:?}");
    assert_eq!(c.firsts["unasked"], "', and more' behind an answer");
    // On a connection that rests between requests: who has waited long enough says so, and closes (RFC 9110 §15.5.9).
    let late = serve(|stream| async move {
        let mut buffer = [0; 4096];
        let _ = stream.read(&mut buffer).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        flowlane::sleep(ms(5)).await;
        let _ = stream.write_all(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n").await;
    });
    let ran = run(quick(Pool { pace: rate(20.0), ..pool() }), &late);
    let c = ran.counts();
    assert_eq!((c.failed, c.answered, ran.run.ok), (0, c.sent, true), "{c:?}");
    assert!(c.more["unasked"] > 0, "{c:?}");
    assert_eq!(c.firsts["unasked"], "'HTTP/1.1 408 Request Timeout\\r\\nConnection: close\\r...'");
}

/// A server that speaks first, and not HTTP, is named by what it says; what it says before it is asked is no failure of a request.
#[test]
fn a_server_that_speaks_something_else_is_named() {
    let greets = serve(|stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    });
    let says = "the server does not speak HTTP: it says 'SSH-2.0-OpenSSH_9.9\\r\\n'";
    let ran = run(quick(Pool { connections: 2, pace: rate(20.0), ..pool() }), &greets);
    let c = ran.counts();
    assert_eq!((c.failed, ran.errors("malformed")), (c.sent, c.sent), "{c:?}");
    assert_eq!(c.errors["malformed"].example, says);
    assert!(c.more["unasked"] > 0 && c.firsts["unasked"] == "'SSH-2.0-OpenSSH_9.9\\r\\n'", "{c:?}");
    for (bytes, words) in [
        (&b"\x15\x03\x01\x00\x02\x02\x46"[..], "the server speaks TLS: https:// in place of http://"),
        (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0", "the server speaks HTTP/2 here: --http2"),
        (b"HTTP/9.9 200 OK\r\n\r\n", "the version is not one of HTTP/1"),
    ] {
        let ran = run(quick(Pool { connections: 1, ..pool() }), &kit::says(bytes, false));
        assert_eq!(ran.counts().errors["malformed"].example, words);
    }
}

#[test]
fn nobody_there() {
    let refused = |ports: &[u16]| {
        let targets = ports.iter().map(|p| Target {
            addresses: vec![format!("10.0.0.1:{p}").parse().unwrap()],
            ..super::kit::target("/")
        });
        Pool { targets: targets.collect(), connections: 4, ..pool() }
    };
    let heard = Arc::new(Heard::default());
    let began = std::time::Instant::now();
    // However they ask: the first refusal is the only failure, and the end.
    let one_each = Pool { requests_per_connection: Some(1), ..refused(&[81]) };
    let pools = [
        refused(&[81]),
        Pool { pace: rate(5000.0), ..refused(&[81]) },
        one_each.clone(),
        Pool { pace: rate(5000.0), ..one_each },
        Pool { version: Version::Http2 { streams: 4 }, ..refused(&[81]) },
        Pool { version: Version::Http2 { streams: 4 }, pace: rate(5000.0), ..refused(&[81]) },
    ];
    for (i, pool) in pools.into_iter().enumerate() {
        for workers in [1, 2] {
            let ran = run_on(workers, plan(pool.clone(), ms(60_000)), &hello(&heard));
            assert_eq!(
                ran.outcome.failure.as_deref(),
                Some("nothing listens at 10.0.0.1:81: connection refused"),
                "{i}"
            );
            let c = ran.counts();
            assert_eq!((c.failed, ran.errors("refused"), c.connections_failed), (1, 1, 1), "{i}: {c:?}");
            assert_eq!((c.sent, c.unsent, c.answered), (0, 0, 0), "{i}: {c:?}");
            assert!(!ran.run.slip.judged, "{i}: nothing was due");
        }
    }
    assert!(began.elapsed() < ms(60_000), "it does not go on for a minute");
    let ran = run(plan(refused(&[81, 82, 83]), ms(60_000)), &hello(&heard));
    let failure = ran.outcome.failure.clone().unwrap();
    assert!(failure.contains("10.0.0.1:81, nor at the other 2 addresses"), "{failure}");
    // A name whose first address refuses: the other one is used, and nothing of the run fails for it.
    for version in [Version::Http1 { pipeline: 1 }, Version::Http2 { streams: 2 }] {
        let both = ["10.0.0.1:81", "10.0.0.1:80"].map(|a| a.parse().unwrap()).to_vec();
        let named = Target { addresses: both, ..super::kit::target("/") };
        let server = match version {
            Version::Http1 { .. } => hello(&heard),
            Version::Http2 { .. } | Version::Http3 { .. } => super::h2::http2(&heard),
        };
        let ran =
            run(plan(Pool { version, connections: 4, ..Pool::new("clients", named) }, ms(200)), &server);
        let c = ran.counts();
        assert_eq!((ran.outcome.failure.clone(), c.failed), (None, 0), "{c:?}");
        assert!(c.answered > 0 && c.connections_failed == 0 && c.connections_opened >= 4, "{c:?}");
    }
    let heard = Arc::new(Heard::default());
    // One of two targets answers: the run goes on with it.
    let ran = run(plan(refused(&[81, 80]), ms(300)), &hello(&heard));
    assert_eq!(ran.outcome.failure, None);
    assert!(ran.errors("refused") > 0 && ran.counts().answered > 0, "{:?}", ran.counts());
    assert_eq!(ran.counts().answered, heard.requests());
}

/// A server that closes at once is connected to again after a pause, and not as fast as it closes.
#[test]
fn a_server_that_closes_at_once_is_given_time() {
    let opened = Arc::new(AtomicU64::new(0));
    let count = opened.clone();
    let server = serve(move |stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move { drop(stream) }
    });
    let begun = Instant::now();
    let ran = run(plan(Pool { connections: 1, pace: rate(20.0), ..pool() }, ms(500)), &server);
    // Ten milliseconds before each that is opened in advance, and one for each of ten requests.
    let most = begun.elapsed().as_millis() as u64 / 10 + 20;
    let opened = opened.load(Ordering::Relaxed);
    assert!((5..=most).contains(&opened), "{opened} connections, at most {most}: {:?}", ran.counts());
}

#[test]
fn a_server_that_closes_after_each_answer_without_saying_so() {
    let server = says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true);
    let ran = run(plan(Pool { connections: 4, pace: rate(500.0), ..pool() }, ms(300)), &server);
    let c = ran.counts();
    assert_eq!(ran.outcome.failure, None);
    // A request may meet the end of the connection on its way.
    assert_eq!(c.answered + ran.errors("closed"), c.sent, "{c:?}");
    assert!(c.answered >= 75, "{c:?}");
    assert!(c.more["closed-idle"] > 0, "{c:?}");
}

#[test]
fn an_answer_that_ends_with_the_connection() {
    let server = says(b"HTTP/1.0 200 OK\r\n\r\nall of it", true);
    let checks = Checks { length: Some(9), ..Checks::default() };
    let pool = Pool { requests: vec![Request { checks, ..Request::default() }], connections: 2, ..pool() };
    let ran = run(plan(pool, ms(200)), &server);
    let c = ran.counts();
    assert!(c.answered > 10, "{c:?}");
    assert_eq!((c.failed, c.answered), (0, c.sent), "{c:?}");
    // Those that were being made at the end were asked nothing.
    assert!((0..=2).contains(&(c.connections_opened - c.sent)), "{c:?}");
}

#[test]
fn a_rate_that_cannot_be_met_is_said() {
    let slow = serve(|stream| async move {
        let mut buffer = [0; 4096];
        while matches!(stream.read(&mut buffer).await, Ok(1..)) {
            flowlane::sleep(ms(50)).await;
            if stream.write_all(&ok(b"x")).await.is_err() {
                return;
            }
        }
    });
    // Two connections, an answer each 50 ms: forty a second, and two hundred are wanted.
    let ran = run(plan(Pool { connections: 2, pace: rate(200.0), ..pool() }, ms(1000)), &slow);
    let c = ran.counts();
    assert_eq!(c.sent + c.unsent, 200, "{c:?}");
    assert!((30..=44).contains(&c.answered), "{c:?}");
    assert!(c.held_up > 0);
    // The last ones were answered most of a second after they were due.
    assert!(ran.run.total.latency.max() > 600_000_000);
    assert!(ran.run.total.service.max() < 300_000_000);
    // The server's slowness is none of the generator's.
    assert!(ran.run.total.slip.at(0.9) < 20_000_000);
}
