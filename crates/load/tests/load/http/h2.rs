//! HTTP/2 against hyper's server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flowlane_load::http::{Body, Checks, Pace, Pool, Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::kit::{Heard, Serve, ms, plan, pool, rate, run, run_with, says, serve};

#[derive(Clone)]
pub(crate) struct InLane;

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for InLane {
    fn execute(&self, future: F) {
        let _ = flowlane::spawn(future);
    }
}

pub(crate) fn http2(heard: &Arc<Heard>) -> Serve {
    let heard = heard.clone();
    serve(move |stream| {
        let heard = heard.clone();
        async move {
            heard.connections.fetch_add(1, Ordering::Relaxed);
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let heard = heard.clone();
                async move {
                    heard.requests.fetch_add(1, Ordering::Relaxed);
                    let body = request.into_body().collect().await?.to_bytes();
                    heard.body.fetch_add(body.len() as u64, Ordering::Relaxed);
                    Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::from_static(b"hello"))))
                }
            });
            let _ = hyper::server::conn::http2::Builder::new(InLane)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
}

#[test]
fn open_and_closed_loops_agree_with_the_server() {
    for pace in [flowlane_load::http::Pace::Closed, rate(2000.0)] {
        let heard = Arc::new(Heard::default());
        let checks = Checks { contains: Some("hell".into()), length: Some(5), ..Checks::default() };
        let body = Body::Generated(1000);
        let request = Request { method: "POST".into(), body, checks, ..Request::default() };
        let version = Version::Http2 { streams: 10 };
        let pool = Pool { version, connections: 3, pace, requests: vec![request], ..pool() };
        let ran = run(plan(pool, ms(300)), &http2(&heard));
        let c = ran.counts();
        assert_eq!(ran.outcome.failure, None);
        assert_eq!((c.answered, c.failed), (c.sent, 0), "{c:?}");
        assert_eq!((c.sent, c.connections_opened), (heard.requests(), 3), "{c:?}");
        assert_eq!(heard.body.load(Ordering::Relaxed), 1000 * c.sent);
        assert!(c.sent > 100, "{c:?}");
    }
}

/// As over HTTP/1: several go together, as late as they may be, and what has nothing to go together with is not late.
#[test]
fn slack_sends_several_at_once() {
    let slip = |per_second: f64, slack: u64, length: u64| {
        let heard = Arc::new(Heard::default());
        let version = Version::Http2 { streams: 10 };
        let pool = Pool { version, connections: 4, pace: rate(per_second), ..pool() };
        let ran = run_with(plan(pool, ms(length)), &http2(&heard), ms(slack));
        assert_eq!((ran.counts().sent, ran.counts().answered), (heard.requests(), heard.requests()));
        ran.run.total.slip
    };
    // A busy machine is late by itself, and may leave so many due at once that they wait for streams: three tries.
    assert!((0..3).any(|_| slip(1000.0, 20, 600).at(0.5) >= 7_000_000));
    assert!((0..3).any(|_| slip(4.0, 200, 1500).at(0.5) < 40_000_000));
}

#[test]
fn who_does_not_speak_it_is_counted() {
    let version = Version::Http2 { streams: 4 };
    let mut plan = plan(Pool { version, ..pool() }, ms(200));
    (plan.timeout, plan.waiting) = (ms(100), ms(200));
    let ran = run(plan, &says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", true));
    let c = ran.counts();
    assert_eq!(c.answered, 0);
    assert!(ran.errors("http2") > 0, "{c:?}");
    assert!(c.errors["http2"].example.contains("does not speak HTTP/2"), "{c:?}");
}

/// A server that closes before it has answered anything, whatever it says before, is connected to again after a pause.
#[test]
fn a_server_that_closes_at_once_is_given_time() {
    // SETTINGS, and a GOAWAY that takes no stream (RFC 9113 §6.8).
    let goes: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for (says, pace) in
        [(&b""[..], rate(20.0)), (b"", Pace::Closed), (goes, rate(20.0)), (goes, Pace::Closed)]
    {
        let opened = Arc::new(AtomicU64::new(0));
        let count = opened.clone();
        let server = serve(move |stream| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                let _ = stream.write_all(says).await;
            }
        });
        let begun = Instant::now();
        let version = Version::Http2 { streams: 4 };
        let ran = run(plan(Pool { version, connections: 1, pace, ..pool() }, ms(500)), &server);
        // Ten milliseconds before each.
        let most = begun.elapsed().as_millis() as u64 / 10 + 2;
        let opened = opened.load(Ordering::Relaxed);
        assert!((5..=most).contains(&opened), "{opened} connections, at most {most}: {:?}", ran.counts());
    }
}

/// Whoever speaks first, and something else, is named by what it says.
#[test]
fn a_server_that_speaks_something_else_is_named() {
    let greets = serve(|stream| async move {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await;
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer).await {}
    });
    let ran = run(plan(Pool { version: Version::Http2 { streams: 4 }, ..pool() }, ms(100)), &greets);
    let c = ran.counts();
    assert_eq!((c.answered, ran.errors("http2")), (0, c.failed), "{c:?}");
    let says = "does not speak HTTP/2: it says 'SSH-2.0-OpenSSH_9.9\\r\\n'";
    assert!(c.errors["http2"].example.contains(says), "{c:?}");
}
