//! Calls of gRPC against hyper's server: what it is asked, and what counts as a failure.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use flowlane_load::http::grpc::Call;
use flowlane_load::http::{Body, EventStream, Pool, Request, Version};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::h2::InLane;
use super::kit::{Serve, ms, plan, pool, run, serve};

/// A body of given frames.
struct Frames(VecDeque<Frame<Bytes>>);

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

type Fields = &'static [(&'static str, &'static str)];

/// An answer: fields of its head, pieces of its content, trailers.
#[derive(Clone, Copy)]
struct Says(Fields, &'static [&'static [u8]], Fields);

fn fields(of: Fields) -> HeaderMap {
    of.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

/// What was asked: method and path, the head, and the body.
type Asked = Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>;

/// A server that says this to everybody, and what it was asked.
fn server(says: Says, asked: &Asked) -> Serve {
    let asked = asked.clone();
    serve(move |stream| {
        let asked = asked.clone();
        async move {
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let asked = asked.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await?.to_bytes();
                    asked.lock().unwrap().push((
                        format!("{} {}", head.method, head.uri.path()),
                        head.headers,
                        body,
                    ));
                    let mut frames: VecDeque<_> =
                        says.1.iter().map(|piece| Frame::data(Bytes::from_static(piece))).collect();
                    if !says.2.is_empty() {
                        frames.push_back(Frame::trailers(fields(says.2)));
                    }
                    let mut response = hyper::Response::new(Frames(frames));
                    *response.headers_mut() = fields(says.0);
                    Ok::<_, hyper::Error>(response)
                }
            });
            let _ = hyper::server::conn::http2::Builder::new(InLane)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    })
}

const HEAD: Fields = &[("content-type", "application/grpc")];
const FINE: Fields = &[("grpc-status", "0")];

fn calls(messages: u32, events: bool) -> Pool {
    let path = "/shop.Cart/Add";
    let target = pool().targets.remove(0);
    let request = Request {
        path: Some(path.into()),
        body: Body::Bytes(b"\x0a\x03tea"[..].into()),
        headers: vec![("x-user".into(), "7".into())],
        events: events.then(EventStream::default),
        ..Request::default()
    };
    let call = Call { descriptors: None, messages }.of(request, &[&target.url]).unwrap();
    Pool {
        version: Version::Http2 { streams: 2 },
        connections: 2,
        total_requests: Some(10),
        requests: vec![call],
        ..pool()
    }
}

#[test]
fn a_server_gets_calls_and_their_messages() {
    let asked = Asked::default();
    let ran = run(plan(calls(2, false), ms(20_000)), &server(Says(HEAD, &[b"\0\0\0\0\x01x"], FINE), &asked));
    assert_eq!((ran.counts().answered, ran.counts().failed), (10, 0), "{:?}", ran.counts());
    assert!(ran.run.total.events.is_none(), "nobody asked for the times of messages");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 10);
    for (what, head, body) in &*asked {
        assert_eq!(what, "POST /shop.Cart/Add");
        assert_eq!(
            (&head["content-type"], &head["te"], &head["x-user"]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap(), &"7".parse().unwrap())
        );
        assert_eq!(&body[..], b"\0\0\0\0\x05\x0a\x03tea\0\0\0\0\x05\x0a\x03tea");
    }
}

#[test]
fn messages_of_a_stream_are_events() {
    let says = Says(HEAD, &[b"\0\0\0", b"\0\x01x\0\0\0\0\0\0", b"\0\0\0\x03abc"], FINE);
    let ran = run(plan(calls(1, true), ms(20_000)), &server(says, &Arc::default()));
    assert_eq!((ran.counts().answered, ran.counts().failed), (10, 0), "{:?}", ran.counts());
    let events = ran.run.total.events.as_ref().unwrap();
    assert_eq!((events.streams, events.events, events.first_event.count()), (10, 30, 10));
}

#[test]
fn a_call_fails_by_its_status_and_by_what_is_no_answer() {
    for (says, what) in [
        (
            Says(HEAD, &[], &[("grpc-status", "5"), ("grpc-message", "no%20cart")]),
            "status 5 (not found): no cart",
        ),
        // An answer that is a head alone has its status there.
        (
            Says(&[("content-type", "application/grpc"), ("grpc-status", "16")], &[], &[]),
            "status 16 (unauthenticated)",
        ),
        (Says(HEAD, &[b"\0\0\0\0\x01x"], &[]), "after 1 messages without a status"),
        (Says(HEAD, &[b"\0\0\0\0\x02x"], FINE), "within a message"),
        (Says(HEAD, &[b"\x01\0\0\0\x01x"], FINE), "compressed"),
        (Says(&[("content-type", "text/plain")], &[b"hello"], &[]), "content type is text/plain"),
    ] {
        let ran = run(plan(calls(1, false), ms(20_000)), &server(says, &Arc::default()));
        let c = ran.counts();
        assert_eq!((ran.errors("grpc"), c.failed), (10, 10), "{what}: {c:?}");
        assert!(c.errors["grpc"].example.contains(what), "{what}: {c:?}");
    }
}

#[test]
fn a_call_needs_http2_and_a_method() {
    let refused = |pool: Pool| plan(pool, ms(1)).check().unwrap_err().to_string();
    let http1 = Version::Http1 { pipeline: 1 };
    assert!(refused(Pool { version: http1, ..calls(1, false) }).contains("over HTTP/2"));
    let mut nothing = calls(1, false);
    nothing.requests[0].path = Some("/add".into());
    assert!(refused(nothing).contains("/package.Service/Method"));
    assert!(refused(Pool { follow: Some(Default::default()), ..calls(1, false) }).contains("redirects"));
}
