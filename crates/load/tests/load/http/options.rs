//! Each option does what it says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use flowlane_load::http::{Body, Checks, Pool, Request, Target, Version, check};

use super::kit::{Heard, good, hello, ms, ok, plan, pool, rate, run, serve, target};

fn request(f: impl FnOnce(&mut Request)) -> Vec<Request> {
    let mut request = Request::default();
    f(&mut request);
    vec![request]
}

#[test]
fn methods_and_bodies() {
    for length in [0u64, 1, 5000, 65_536, 300_000] {
        for body in [Body::Generated(length), Body::Bytes(vec![b'x'; length as usize].into())] {
            let heard = Arc::new(Heard::default());
            let requests = request(|r| (r.method, r.body) = ("PUT".into(), body));
            let pool = Pool { requests, connections: 2, total_requests: Some(20), ..pool() };
            let server = good(&heard, |method, path, _| ok(format!("{method} {path}").as_bytes()));
            let ran = run(plan(pool, ms(20_000)), &server);
            let c = ran.counts();
            assert_eq!((c.answered, c.failed), (20, 0), "{length}: {c:?}");
            assert_eq!(heard.body.load(Ordering::Relaxed), 20 * length);
            assert!(c.bytes_sent > 20 * length);
        }
    }
}

#[test]
fn head_has_no_body() {
    let heard = Arc::new(Heard::default());
    let server = good(&heard, |_, _, _| b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec());
    let requests = request(|r| r.method = "HEAD".into());
    let ran = run(plan(Pool { requests, total_requests: Some(50), ..pool() }, ms(10_000)), &server);
    assert_eq!((ran.counts().answered, ran.counts().failed), (50, 0), "{:?}", ran.counts());
}

#[test]
fn statuses_are_counted_and_checked() {
    let heard = Arc::new(Heard::default());
    let server = good(&heard, |_, path, _| {
        format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", &path[1..]).into_bytes()
    });
    let with = |path: &str, weight| Request { path: Some(path.into()), weight, ..Request::default() };
    let requests = vec![with("/200", 2.0), with("/302", 1.0), with("/404", 1.0), with("/204", 0.0)];
    let pool = Pool { requests, total_requests: Some(4000), connections: 4, ..pool() };
    let ran = run(plan(pool, ms(60_000)), &server);
    let c = ran.counts();
    assert_eq!(c.answered, 4000);
    assert_eq!(c.codes.keys().collect::<Vec<_>>(), ["200", "302", "404"]);
    assert!((1850..2150).contains(&c.codes["200"]), "{c:?}");
    assert_eq!(ran.errors("status"), c.codes["404"]);
    let checks = Checks { status: check::statuses("404").unwrap(), ..Checks::default() };
    let requests = vec![Request { checks, ..with("/404", 1.0) }];
    let ran = run(plan(Pool { requests, total_requests: Some(10), ..super::kit::pool() }, ms(9000)), &server);
    assert_eq!(ran.counts().failed, 0);
}

#[test]
fn content_is_checked() {
    let heard = Arc::new(Heard::default());
    let server = good(&heard, |_, _, _| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nthe \r\n6\r\nquick \r\n5\r\nbrown\r\n0\r\n\r\n".to_vec()
    });
    // From `printf 'the quick brown' | sha256sum`.
    let digest = check::sha256("7e3297785fe0e41e24f274fe4e3019b19939e2b7bfe53650b8535a3f6056e1c4");
    let sum = digest.unwrap();
    let wrong = Checks { sha256: Some([0; 32]), ..Checks::default() };
    let contains = |s: &str| Checks { contains: Some(s.into()), ..Checks::default() };
    let length = |n| Checks { length: Some(n), ..Checks::default() };
    let right = Checks { sha256: Some(sum), ..Checks::default() };
    for (checks, kind) in [
        (contains("quick b"), None),
        (contains("slow"), Some("content")),
        (length(15), None),
        (length(14), Some("length")),
        (wrong, Some("content")),
        (right, None),
    ] {
        let requests = request(|r| r.checks = checks.clone());
        let ran = run(plan(Pool { requests, total_requests: Some(5), ..pool() }, ms(9000)), &server);
        assert_eq!(ran.counts().answered, 5);
        assert_eq!(ran.counts().failed, if kind.is_some() { 5 } else { 0 }, "{checks:?}");
        assert_eq!(kind.map_or(0, |k| ran.errors(k)), ran.counts().failed);
    }
}

#[test]
fn targets_take_turns_or_weigh() {
    for (weights, range) in [([1.0, 1.0], 995..1006u64), ([3.0, 1.0], 1400..1600)] {
        let heard = Arc::new(Heard::default());
        let server = good(&heard, |_, path, _| {
            let status = if path == "/a" { 200 } else { 201 };
            format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
        let targets: Vec<Target> = ["/a", "/b"]
            .iter()
            .zip(weights)
            .map(|(path, weight)| Target { weight, ..target(path) })
            .collect();
        let pool = Pool {
            targets,
            connections: 4,
            requests_per_connection: Some(1),
            total_requests: Some(2000),
            ..pool()
        };
        let ran = run(plan(pool, ms(60_000)), &server);
        assert!(range.contains(&ran.counts().codes["200"]), "{:?}", ran.counts());
        assert_eq!(ran.counts().answered, 2000);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    for pace in [flowlane_load::http::Pace::Closed, rate(5000.0)] {
        let heard = Arc::new(Heard::default());
        let version = Version::Http1 { pipeline: 8 };
        let ran = run(plan(Pool { version, connections: 2, pace, ..pool() }, ms(300)), &hello(&heard));
        let c = ran.counts();
        assert_eq!((c.answered, c.failed), (c.sent, 0), "{c:?}");
        assert_eq!(c.sent, heard.requests());
        assert_eq!(c.connections_opened, 2);
        assert!(c.sent > 1000, "{c:?}");
    }
}

#[test]
fn slow_readers_take_their_time() {
    let heard = Arc::new(Heard::default());
    let content = vec![b'x'; 40_000];
    let server = good(&heard, move |_, _, _| ok(&content));
    let pool = Pool { read_rate: Some(100_000), total_requests: Some(2), connections: 2, ..pool() };
    let ran = run(plan(pool, ms(20_000)), &server);
    assert_eq!((ran.counts().answered, ran.counts().failed), (2, 0), "{:?}", ran.counts());
    // 40 kB at 100 kB/s, less what comes at once.
    let took = ran.run.total.service.at(0.5);
    assert!((300_000_000..800_000_000).contains(&took), "{took}");
}

#[test]
fn slow_writers_take_their_time() {
    let heard = Arc::new(Heard::default());
    let requests = request(|r| (r.method, r.body) = ("POST".into(), Body::Generated(20_000)));
    let pool = Pool { requests, write_rate: Some(50_000), total_requests: Some(2), connections: 2, ..pool() };
    let ran = run(plan(pool, ms(20_000)), &hello(&heard));
    assert_eq!((ran.counts().answered, ran.counts().failed), (2, 0), "{:?}", ran.counts());
    assert_eq!(heard.body.load(Ordering::Relaxed), 40_000);
    let took = ran.run.total.service.at(0.5);
    assert!((300_000_000..800_000_000).contains(&took), "{took}");
}

#[test]
fn many_addresses_cost_nothing() {
    let heard = Arc::new(Heard::default());
    let seen: Arc<std::sync::Mutex<std::collections::BTreeSet<std::net::IpAddr>>> = Arc::default();
    let server = {
        let (seen, hello) = (seen.clone(), hello(&heard));
        serve(move |stream| {
            seen.lock().unwrap().insert(stream.peer_addr().ip());
            hello(stream)
        })
    };
    let pool = Pool {
        clients: vec!["10.64.0.0/10".parse().unwrap()],
        connections: 50,
        requests_per_connection: Some(1),
        total_requests: Some(2000),
        ..pool()
    };
    let ran = run(plan(pool, ms(60_000)), &server);
    assert_eq!((ran.counts().answered, ran.counts().failed), (2000, 0), "{:?}", ran.counts());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2000, "each connection has an address of its own");
    assert!(seen.iter().all(|ip| ip.to_string().starts_with("10.")));
    assert_eq!(ran.server.total(0).drops.total(), 0);
}

#[test]
fn a_burst_bounds_new_connections() {
    let heard = Arc::new(Heard::default());
    // Ten connections, two in 10 ms: the last begins 40 ms after the first.
    let at: Arc<std::sync::Mutex<Vec<u64>>> = Arc::default();
    let server = {
        let (at, hello) = (at.clone(), hello(&heard));
        serve(move |stream| {
            at.lock().unwrap().push(flowlane::precise_now().unwrap().as_nanos());
            hello(stream)
        })
    };
    // All in one lane's count: a burst is rounded up in each.
    let ran = run(plan(Pool { connections: 10, burst: 2, ..pool() }, ms(100)), &server);
    assert_eq!(ran.counts().connections_opened, 10);
    let at = at.lock().unwrap();
    let span = at.iter().max().unwrap() - at.iter().min().unwrap();
    // The first may be accepted late; all at once they come within a millisecond or two.
    assert!(span >= 20_000_000, "{span}");
}

#[test]
fn connections_hit_the_buckets_that_are_aimed_at() {
    use flowlane::{Key, Rss};
    use flowlane_load::http::{AimLaw, HttpAim};
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let n = rss.buckets.len();
    for law in [AimLaw::One(1), AimLaw::Even, AimLaw::Zipf(2.0), AimLaw::Moving(ms(40))] {
        let heard = Arc::new(Heard::default());
        let hits: Arc<Vec<std::sync::atomic::AtomicU64>> = Arc::new((0..n).map(|_| 0.into()).collect());
        let server = {
            let (hits, hello) = (hits.clone(), hello(&heard));
            serve(move |stream| {
                let (_, _, bucket) = stream.flow().unwrap();
                hits[usize::from(bucket.0)].fetch_add(1, Ordering::Relaxed);
                hello(stream)
            })
        };
        let pool = Pool {
            clients: vec!["10.64.0.0/16".parse().unwrap()],
            aim: Some(HttpAim { rss: rss.clone(), home: Some(rss.clone()), law: law.clone() }),
            connections: 8,
            requests_per_connection: Some(1),
            pace: rate(2000.0),
            ..pool()
        };
        let ran = super::kit::run_on(2, plan(pool, ms(300)), &server);
        assert_eq!(ran.counts().failed, 0, "{law:?}: {:?}", ran.counts());
        let hits: Vec<u64> = hits.iter().map(|h| h.load(Ordering::Relaxed)).collect();
        let all: u64 = hits.iter().sum();
        // Of 600; a busy machine leaves some out.
        assert!(all >= 100, "{law:?}: {hits:?}");
        match law {
            AimLaw::One(bucket) => assert_eq!(hits[usize::from(bucket)], all, "{hits:?}"),
            AimLaw::Even | AimLaw::Moving(_) => {
                assert!(hits.iter().all(|h| *h > all / n as u64 / 3), "{law:?}: {hits:?}");
            }
            AimLaw::Zipf(_) => assert!(hits[0] > all / 2 && hits[0] < all, "{hits:?}"),
        }
    }
}

#[test]
fn clients_that_do_not_ask() {
    use flowlane_load::http::Behaviour;
    let heard = Arc::new(Heard::default());
    let half_open = Pool { behaviour: Behaviour::HalfOpen, connections: 10, ..pool() };
    let ran = run(plan(half_open, ms(200)), &hello(&heard));
    let c = ran.counts();
    assert_eq!((heard.connections(), heard.requests(), c.connections_opened), (10, 0, 10), "{c:?}");
    let syn_only = Pool { behaviour: Behaviour::SynOnly, pace: rate(500.0), connections: 100, ..pool() };
    let ran = run(plan(syn_only, ms(200)), &hello(&heard));
    assert_eq!(heard.requests(), 0);
    assert_eq!(ran.counts().sent, 0, "{:?}", ran.counts());
}
