//! Redirects that are followed, over HTTP/1 and HTTP/2: each request is answered once, by the last answer, and goes no further than allowed.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_load::http::{Body, Directions, Follow, Pool, Request, Target, Version, Via};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::h2::InLane;
use super::kit::{Heard, Ran, Serve, good, ms, ok, plan, pool, rate, run, run_on, serve, target};

/// A redirect to this place.
fn to(status: u16, place: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Go\r\nLocation: {place}\r\nContent-Length: 4\r\n\r\nnone").into_bytes()
}

fn follow(most: u32, anywhere: bool) -> Option<Follow> {
    Some(Follow { most, anywhere })
}

/// Thirty requests on three connections, and a name that leads to the server as its address does.
fn thirty(follow: Option<Follow>) -> Pool {
    let directions = Directions {
        resolve: vec!["b.example:80:10.0.0.1".parse().unwrap(), "c.example:80:10.0.0.1".parse().unwrap()],
        ..Directions::default()
    };
    let via = Via { directions, ..Via::default() };
    Pool { follow, via, connections: 3, total_requests: Some(30), ..pool() }
}

/// All are answered, with so many requests on the wire and so many connections.
fn answered(ran: &Ran, heard: &Heard, requests: u64, connections: impl RangeBounds<u64>) {
    let c = ran.counts();
    assert_eq!(ran.outcome.failure, None);
    assert_eq!((c.sent, c.answered, c.failed), (30, 30, 0), "{c:?}");
    assert_eq!(c.codes.get("200"), Some(&30), "{c:?}");
    assert_eq!(
        (heard.requests(), c.more.get("redirects").copied().unwrap_or(0)),
        (requests, requests - 30),
        "{c:?}"
    );
    assert!(connections.contains(&c.connections_opened), "{c:?}");
}

fn failed(ran: &Ran, kind: &str) {
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed, ran.errors(kind)), (30, 0, 30, 30), "{kind}: {c:?}");
}

/// `/x`, `/y` and the rest.
fn twice(method: &str, path: &str, _: u64) -> Vec<u8> {
    assert_eq!(method, "GET");
    match path {
        "/x" => to(302, "y?q"),
        "/y?q" => to(308, "//10.0.0.1/z"),
        _ => ok(b"hello"),
    }
}

#[test]
fn a_request_goes_on_on_its_connection() {
    for workers in [1, 2] {
        let heard = Arc::new(Heard::default());
        let ran = run_on(workers, plan(thirty(follow(2, false)), ms(5000)), &good(&heard, twice));
        answered(&ran, &heard, 90, 3..=3);
    }
    let heard = Arc::new(Heard::default());
    let open = Pool { pace: rate(500.0), ..thirty(follow(10, false)) };
    answered(&run(plan(open, ms(5000)), &good(&heard, twice)), &heard, 90, 3..=3);
    // Without the option a redirect is an answer.
    let heard = Arc::new(Heard::default());
    let ran = run(plan(thirty(None), ms(5000)), &good(&heard, twice));
    assert_eq!((ran.counts().codes["302"], heard.requests()), (30, 30));
}

#[test]
fn connections_that_end_are_opened_anew() {
    let heard = Arc::new(Heard::default());
    let each = Pool { requests_per_connection: Some(1), ..thirty(follow(10, false)) };
    answered(&run(plan(each, ms(5000)), &good(&heard, twice)), &heard, 90, 90..=90);
    // The server says that it closes after a redirect.
    let heard = Arc::new(Heard::default());
    let closing = good(&heard, |_, path, _| match path {
        "/x" => b"HTTP/1.1 301 Go\r\nLocation: /z\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok(b"hello"),
    });
    answered(&run(plan(thirty(follow(10, false)), ms(5000)), &closing), &heard, 60, 33..=33);
}

#[test]
fn other_origins_are_asked_over_connections_of_their_own() {
    // There, and from there on to a third, and back again: each client has one connection to each.
    let heard = Arc::new(Heard::default());
    let around = |_: &str, path: &str, _: u64| match path {
        "/x" => to(307, "http://b.example/1"),
        "/1" => to(307, "http://c.example/2"),
        "/2" => to(307, "http://10.0.0.1/3"),
        _ => ok(b"hello"),
    };
    let ran = run(plan(thirty(follow(3, true)), ms(5000)), &good(&heard, around));
    answered(&ran, &heard, 120, 9..=9);
    assert_eq!((heard.connections(), ran.counts().connections_closed), (9, 9));
    // Or it is not allowed, and nobody is asked.
    let heard = Arc::new(Heard::default());
    let ran = run(plan(thirty(follow(3, false)), ms(5000)), &good(&heard, around));
    failed(&ran, "redirect-away");
    assert_eq!((heard.requests(), ran.counts().connections_opened), (30, 3));
}

#[test]
fn a_loop_and_what_leads_nowhere_are_counted() {
    for (place, most, kind, requests) in [
        ("/x", 4, "redirect-limit", 150),
        ("ftp://10.0.0.1/", 4, "malformed", 30),
        ("http://u:p@10.0.0.1/", 4, "malformed", 30),
        // Nobody listens there, and the connection comes back from it.
        ("http://10.0.0.1:81/", 4, "refused", 30),
    ] {
        let heard = Arc::new(Heard::default());
        let ran =
            run(plan(thirty(follow(most, false)), ms(5000)), &good(&heard, move |_, _, _| to(301, place)));
        failed(&ran, kind);
        assert_eq!((heard.requests(), ran.counts().connections_opened), (requests, 3), "{place}");
    }
}

/// Each answer names another place: their number is bounded, and the run goes on.
#[test]
fn a_server_that_leads_everywhere_leads_to_a_few() {
    let (heard, next) = (Arc::new(Heard::default()), Arc::new(AtomicU64::new(1000)));
    let place = move |_: &str, _: &str, _: u64| {
        to(302, &format!("http://10.0.0.1:{}/", next.fetch_add(1, Ordering::Relaxed)))
    };
    let many = Pool { total_requests: Some(1000), ..thirty(follow(10, false)) };
    let ran = run(plan(many, ms(10_000)), &good(&heard, place));
    let c = ran.counts();
    // In each of two lanes; one of the places is the target's own.
    let (tried, away) = (ran.errors("refused"), ran.errors("redirect-away"));
    assert!(tried <= 2 * 255 && tried + away == 1000 && c.sent == 1000, "{c:?}");
    assert!(c.errors["redirect-away"].example.contains("more than 256"), "{c:?}");
}

#[test]
fn bodies_go_along_where_the_status_says_so() {
    for (status, length, method, then) in
        [(307, 200_000, "PUT", 200_000), (308, 5, "POST", 5), (303, 200_000, "PUT", 0), (301, 5, "POST", 0)]
    {
        let heard = Arc::new(Heard::default());
        let request = Request { method: method.into(), body: Body::Generated(length), ..Request::default() };
        let server = good(&heard, move |method, path, body| {
            let expected = if path == "/x" { length } else { then };
            assert_eq!((body, method == "GET"), (expected, path != "/x" && then == 0));
            if path == "/x" { to(status, "/y") } else { ok(b"") }
        });
        let ran =
            run(plan(Pool { requests: vec![request], ..thirty(follow(1, false)) }, ms(10_000)), &server);
        answered(&ran, &heard, 60, 3..=3);
    }
}

/// hyper's server, with the same answers.
fn http2(heard: &Arc<Heard>, place: fn(&str, &str) -> Option<&'static str>) -> Serve {
    let heard = heard.clone();
    serve(move |stream| {
        let heard = heard.clone();
        async move {
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                heard.requests.fetch_add(1, Ordering::Relaxed);
                let uri = request.uri();
                let place = place(uri.authority().unwrap().as_str(), uri.path());
                let answer = hyper::Response::builder();
                let answer = match place {
                    Some(place) => answer.status(302).header("location", place),
                    None => answer,
                };
                async move { answer.body(Full::new(Bytes::from_static(b"hello"))) }
            });
            let _ = hyper::server::conn::http2::Builder::new(InLane)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
}

#[test]
fn streams_go_on_as_well() {
    let two = |follow| Pool { version: Version::Http2 { streams: 5 }, ..thirty(follow) };
    let place = |_: &str, path: &str| match path {
        "/x" => Some("/y"),
        "/y" => Some("http://b.example/z"),
        _ => None,
    };
    // One connection of each of two lanes to the other origin.
    let heard = Arc::new(Heard::default());
    answered(&run(plan(two(follow(2, true)), ms(5000)), &http2(&heard, place)), &heard, 90, 4..=5);
    let heard = Arc::new(Heard::default());
    failed(&run(plan(two(follow(2, false)), ms(5000)), &http2(&heard, place)), "redirect-away");
    let heard = Arc::new(Heard::default());
    failed(&run(plan(two(follow(1, true)), ms(5000)), &http2(&heard, place)), "redirect-limit");
    assert_eq!(heard.requests(), 60);
    let heard = Arc::new(Heard::default());
    failed(
        &run(plan(two(follow(1, true)), ms(5000)), &http2(&heard, |_, _| Some("http://10.0.0.1:81/"))),
        "refused",
    );
}

/// Two targets, of which one leads to the other: hosts of targets were asked for.
#[test]
fn a_target_may_lead_to_another() {
    let heard = Arc::new(Heard::default());
    let other = Target { url: "http://b.example/done".parse().unwrap(), ..target("/") };
    let pool = Pool { targets: vec![target("/x"), other], ..thirty(follow(1, false)) };
    let server =
        good(&heard, |_, path, _| if path == "/x" { to(302, "http://b.example/z") } else { ok(b"") });
    let ran = run(plan(pool, ms(5000)), &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (30, 30, 0), "{c:?}");
    assert_eq!(heard.requests() - 30, c.more["redirects"], "{c:?}");
}
