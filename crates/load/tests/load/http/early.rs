//! Servers that answer before they have read the request (RFC 9110 §15.5.14), and go away or stay: what has arrived is the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane::TcpStream;
use flowlane_http::tls::{Alpn, Identity, ServerTls, Trust};
use flowlane_load::http::{Body, Checks, Pool, Request, Target, Version};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::h2::InLane;
use super::kit::{Ran, Serve, ms, plan, pool, run, serve, target};

const REQUESTS: u64 = 24;
/// Far more than all buffers on the way hold.
const LONG: u64 = 32 << 20;
/// More than a stream may send before the server allows it.
const LONG_FOR_HTTP2: u64 = 1 << 20;
const CLOSES: &[u8] =
    b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 8\r\n\r\ntoo much";
/// It does not say that it will close.
const SILENT: &[u8] = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\ntoo much";

/// Reads a little, answers, and leaves at once, which resets the connection, or when the client has left.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &'static [u8], stays: bool) {
    let mut buffer = [0; 1024];
    if !matches!(stream.read(&mut buffer).await, Ok(1..)) {
        return;
    }
    let _ = stream.write_all(answer).await;
    let _ = stream.flush().await;
    // What a reset overtakes was never sent: the answer is on its way before.
    flowlane::sleep(ms(5)).await;
    if stays {
        // The client's end is behind bytes that are never read: a second write finds that it has gone.
        while stream.write_all(b"").await.is_ok() && stream.flush().await.is_ok() {
            flowlane::sleep(ms(5)).await;
            if stream.write_all(b"\r\n").await.is_err() {
                return;
            }
        }
    }
}

fn asks(body: u64, expect: bool) -> Pool {
    let headers = if expect { vec![("Expect".into(), "100-continue".into())] } else { Vec::new() };
    let checks = Checks { status: vec![413..=413], length: Some(8), ..Checks::default() };
    let body = Body::Generated(body);
    let request = Request { method: "POST".into(), body, headers, checks, ..Request::default() };
    Pool { requests: vec![request], connections: 3, total_requests: Some(REQUESTS), ..pool() }
}

fn all_answered(what: &str, ran: &Ran) {
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (REQUESTS, REQUESTS, 0), "{what}: {c:?}");
    assert_eq!(c.codes.get("413"), Some(&REQUESTS), "{what}: {c:?}");
    assert_eq!(ran.outcome.failure, None, "{what}");
}

#[test]
fn an_answer_that_comes_before_the_end_of_the_request() {
    for (answer, stays, expect) in
        [(CLOSES, false, false), (SILENT, false, false), (CLOSES, false, true), (CLOSES, true, false)]
    {
        let server = serve(move |stream| refuse(stream, answer, stays));
        let ran = run(plan(asks(LONG, expect), ms(20_000)), &server);
        all_answered(&format!("closing said {}, stays {stays}, expect {expect}", answer == CLOSES), &ran);
        assert_eq!(ran.counts().connections_opened, REQUESTS, "none is used again");
    }
}

#[test]
fn the_same_over_tls() {
    for (answer, stays) in [(CLOSES, false), (SILENT, false), (CLOSES, true)] {
        let tls = ServerTls::new(&Identity::SelfSigned(vec!["10.0.0.1".into()]), Alpn::Http1).unwrap();
        let server = serve(move |stream: TcpStream| {
            let tls = tls.clone();
            async move {
                if let Ok(stream) = tls.accept(stream).await {
                    refuse(stream, answer, stays).await;
                }
            }
        });
        let pool = Pool { targets: vec![https()], trust: Trust::Anybody, ..asks(LONG, false) };
        all_answered(&format!("stays {stays}"), &run(plan(pool, ms(20_000)), &server));
    }
}

fn https() -> Target {
    let mut target = target("/x");
    (target.url.https, target.url.port) = (true, 443);
    target
}

/// A server that goes away without an answer is a reset, though it was writing that failed.
#[test]
fn no_answer_is_still_a_reset() {
    let server = serve(|stream: TcpStream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let ran = run(plan(asks(LONG, false), ms(20_000)), &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, ran.errors("reset")), (REQUESTS, 0, REQUESTS), "{c:?}");
}

/// A head that is cut is no answer.
#[test]
fn half_an_answer_is_none() {
    let server = serve(|stream| refuse(stream, &CLOSES[..60], false));
    let ran = run(plan(asks(LONG, false), ms(20_000)), &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, c.failed), (REQUESTS, 0, REQUESTS), "{c:?}");
}

/// hyper's server resets the stream with NO_ERROR behind a whole answer (RFC 9113 §8.1).
#[test]
fn a_stream_that_is_reset_without_an_error_behind_its_answer() {
    let service = service_fn(|_: hyper::Request<Incoming>| async {
        let body = http_body_util::Full::new(Bytes::from_static(b"too much"));
        hyper::Response::builder().status(413).body(body)
    });
    let server: Serve = serve(move |stream| async move {
        let _ = hyper::server::conn::http2::Builder::new(InLane)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    let pool = Pool { version: Version::Http2 { streams: 4 }, ..asks(LONG_FOR_HTTP2, false) };
    let ran = run(plan(pool, ms(20_000)), &server);
    all_answered("http2", &ran);
}

/// Reads a client's frames up to the first HEADERS, and maybe more; `false` if the stream ends before.
async fn heads_are_there(stream: &mut TcpStream) -> bool {
    let (mut had, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match AsyncReadExt::read(stream, &mut buffer).await {
            Ok(n) if n > 0 => had.extend_from_slice(&buffer[..n]),
            _ => return false,
        }
        // Behind the preface.
        let mut frames = had.get(24..).unwrap_or_default();
        while let [a, b, c, kind, ..] = *frames {
            let end = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
            if frames.len() < end {
                break;
            }
            if kind == 1 {
                return true;
            }
            frames = &frames[end..];
        }
    }
}

/// One that answers the first stream of a connection and goes away, with the request half read.
#[test]
fn an_http2_server_that_answers_and_goes_away() {
    let connections = Arc::new(AtomicU64::new(0));
    let count = connections.clone();
    let server = serve(move |mut stream: TcpStream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            if !heads_are_there(&mut stream).await {
                return;
            }
            let mut answer = b"\0\0\0\x04\0\0\0\0\0".to_vec();
            // :status 413 as a literal with the name of static entry 8, then "too much" with END_STREAM.
            answer.extend(b"\0\0\x05\x01\x04\0\0\0\x01\x08\x03413");
            answer.extend(b"\0\0\x08\0\x01\0\0\0\x01too much");
            // GOAWAY: what was asked behind it was not processed, and is asked again elsewhere.
            answer.extend(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\x01\0\0\0\0");
            let _ = AsyncWriteExt::write_all(&mut stream, &answer).await;
            flowlane::sleep(ms(5)).await;
        }
    });
    let pool = Pool { version: Version::Http2 { streams: 1 }, ..asks(LONG_FOR_HTTP2, false) };
    let ran = run(plan(pool, ms(20_000)), &server);
    all_answered("http2", &ran);
    assert!(connections.load(Ordering::Relaxed) >= REQUESTS, "each has its own");
}

/// A stream that is reset without an error in the middle of an answer that says how long it is: no answer.
#[test]
fn a_stream_that_is_cut_without_an_error_is_no_answer() {
    let server = serve(|mut stream: TcpStream| async move {
        if !heads_are_there(&mut stream).await {
            return;
        }
        let mut buffer = [0; 4096];
        let mut answer = b"\0\0\0\x04\0\0\0\0\0".to_vec();
        // :status 200, content-length 9 (static entry 28), four bytes, RST_STREAM with NO_ERROR.
        answer.extend(b"\0\0\x05\x01\x04\0\0\0\x01\x88\x0f\x0d\x019");
        answer.extend(b"\0\0\x04\0\0\0\0\0\x01half");
        answer.extend(b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\0");
        let _ = AsyncWriteExt::write_all(&mut stream, &answer).await;
        while matches!(AsyncReadExt::read(&mut stream, &mut buffer).await, Ok(1..)) {}
    });
    let version = Version::Http2 { streams: 1 };
    let pool = Pool { version, connections: 1, total_requests: Some(1), ..pool() };
    let ran = run(plan(pool, ms(5000)), &server);
    let c = ran.counts();
    assert_eq!((c.sent, c.answered, ran.errors("closed")), (1, 0, 1), "{c:?}");
}
