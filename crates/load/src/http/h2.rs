//! Pools with HTTP/2: hyper's client on the same streams, with the same schedule and records.
//!
//! A connection has a task that opens and drives it, and as many *slots* as streams may be open on it at once. A slot is a loop: take the
//! next time of the schedule, wait for it, send a request, read the answer, record it. Free slots take the times in order; a request that
//! is late keeps its intended time, from which its latency counts, as in the engine. This code allocates for each request and is not
//! optimised.
//!
//! A request that the server says it has not processed (above the last stream of a GOAWAY, or REFUSED_STREAM), or that was queued when its
//! connection ended, has not failed (RFC 9113 §8.7): it is sent again, on another connection if this one ends, and counted as
//! `sent-again`.

mod follow;
mod slot;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::beside::{Shared, within};
use super::check::{Checker, Wrong};
use super::client::Client;
use super::hop::is_redirect;
use super::interim::Limited;
use super::stream::Stream;
use super::way::open;
use crate::report::ErrorKind;
use crate::run::clock;

use self::slot::Slot;

type Body = Full<Bytes>;
type Outgoing = hyper::Request<Body>;
/// Why a connection ended, once it has.
type Ended = Arc<OnceLock<(ErrorKind, String)>>;

/// Runs hyper's own tasks in the lane.
#[derive(Clone, Copy, Debug)]
struct InLane;

impl<F> hyper::rt::Executor<F> for InLane
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        // The lane has ended.
        let _ = flowlane::spawn(future);
    }
}

/// Starts a pool's tasks in this lane, as many as it has connections.
pub(super) fn start(shared: &Arc<Shared>, connections: u32) {
    for _ in 0..connections {
        // The lane has ended.
        let _ = flowlane::spawn(connection(shared.clone(), shared.streams()));
    }
}

/// Opens one connection after the other until the run is over.
async fn connection(shared: Arc<Shared>, streams: usize) {
    while let Some((begun, route)) = shared.route() {
        let made = match route {
            Ok((at, connect)) => {
                let way = shared.plan.ways[usize::from(at.target)].clone();
                let limit = shared.common.plan.timeout;
                (Some(at), within(limit, open(connect, way)).await)
            }
            Err(unopened) => (None, Some(Err(unopened))),
        };
        let now = clock();
        let (target, opened) = match made {
            (Some(at), Some(Ok(opened))) => {
                shared.lock().routes.stands(at);
                shared.common.gate.door.opens();
                (at.target, opened)
            }
            (at, failed) => {
                shared.not_made(at, now, failed.and_then(Result::err)).await;
                continue;
            }
        };
        let tls = matches!(opened.stream, Stream::Tls(_)).then(|| opened.secured - opened.connected);
        {
            let mut inner = shared.lock();
            inner.book.connected(now, opened.connected - begun, tls);
            inner.book.handshake(now, opened.resumed);
        }
        let leaves = Arc::new(AtomicBool::new(false));
        let done = match opened.stream {
            Stream::Plain(tcp) => speak(&shared, target, tcp, streams, &leaves).await,
            Stream::Tls(tls) => speak(&shared, target, *tls, streams, &leaves).await,
            Stream::None | Stream::Opening(_) => Ok(false),
        };
        let heard = done.as_ref().is_ok_and(|heard| *heard);
        shared.closed(done.err().map(|why| (ErrorKind::Http2, why)));
        if leaves.load(Ordering::Relaxed) {
            break;
        }
        shared.rests(heard).await;
    }
    shared.ended();
}

/// Begins HTTP/2 on a connection. `ended` is told why it ended, once it has.
async fn handshake<S>(io: S, streams: usize, ended: Ended) -> Result<SendRequest<Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(InLane);
    builder.max_concurrent_reset_streams(streams).initial_max_send_streams(streams);
    let io = TokioIo::new(Limited::new(io, ended.clone()));
    let (sender, driver) = builder.handshake(io).await.map_err(|e| format!("HTTP/2 handshake: {e}"))?;
    // The driver ends with the last sender. If it ends early, it has the reason, if reading has not found it already.
    let _ = flowlane::spawn(async move {
        if let Err(e) = driver.await {
            // The first reason stays.
            let _ = ended.set((ErrorKind::Http2, error_chain(&e)));
        }
    });
    Ok(sender)
}

/// Runs all slots of one connection until there are no more requests, or the connection ends, or `leaves` since fewer are wanted. Whether it brought an
/// answer.
async fn speak<S>(
    shared: &Arc<Shared>,
    target: u16,
    io: S,
    streams: usize,
    leaves: &Arc<AtomicBool>,
) -> Result<bool, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ended: Ended = Arc::new(OnceLock::new());
    let sender = handshake(io, streams, ended.clone()).await?;
    let slots: Vec<_> = (0..streams)
        .map(|_| Slot::new(shared, target, (&sender, &ended), leaves))
        .map(|slot| flowlane::spawn(slot.run()))
        .collect();
    drop(sender);
    let mut heard = false;
    for slot in slots.into_iter().flatten() {
        // A panic has been reported; the slot sends no more requests.
        heard |= slot.await.unwrap_or(false);
    }
    Ok(heard)
}

/// The client of a request, the places of what it captures, and the host that is asked, unless a redirect has led to another origin.
struct With<'a> {
    client: &'a mut Client,
    slots: &'a [u16],
    host: Option<&'a str>,
}

/// A client that is needed again afterwards.
fn again<'s>(with: &'s mut Option<With<'_>>) -> Option<With<'s>> {
    with.as_mut().map(|with| With { client: with.client, slots: with.slots, host: with.host })
}

/// Why there is no answer.
struct Broken {
    kind: ErrorKind,
    why: String,
    /// Whether the server has not processed the request, so that it may be sent again.
    unprocessed: bool,
    /// hyper says no more than that the request was dropped with its connection.
    unexplained: bool,
}

impl Broken {
    /// For a reason of our own.
    fn new(kind: ErrorKind, why: String) -> Self {
        Self { kind, why, unprocessed: false, unexplained: false }
    }
}

impl From<hyper::Error> for Broken {
    fn from(e: hyper::Error) -> Self {
        let unprocessed = is_unprocessed(&e);
        // That its task is gone counts as a mistake of the caller's.
        let unexplained = unprocessed || e.is_user();
        Self { kind: ErrorKind::Http2, why: error_chain(&e), unprocessed, unexplained }
    }
}

/// Whether an error says that the request was not processed: RFC 9113 §6.8 and §8.7, or it never left the queue.
fn is_unprocessed(e: &hyper::Error) -> bool {
    if e.is_canceled() || e.is_closed() {
        return true;
    }
    let h2 = std::error::Error::source(e).and_then(|cause| cause.downcast_ref::<h2::Error>());
    h2.is_some_and(|e| match e.reason() {
        Some(h2::Reason::REFUSED_STREAM) => e.is_reset() && e.is_remote(),
        Some(h2::Reason::NO_ERROR) => e.is_go_away() && e.is_remote(),
        _ => false,
    })
}

struct Answer {
    code: u16,
    first_byte: u64,
    verdict: Result<(), super::check::Wrong>,
    /// Where it leads, if it is a redirect that is to be followed.
    location: Option<Vec<u8>>,
}

async fn exchange(
    shared: &Arc<Shared>,
    sender: &mut SendRequest<Body>,
    asked: Outgoing,
    wanted: &super::plan::Request,
    intended: u64,
    client: Option<With<'_>>,
) -> Result<Answer, Broken> {
    sender.ready().await?;
    let response = sender.send_request(asked).await?;
    let first_byte = clock();
    let code = response.status().as_u16();
    let length = content_length(&response).filter(|_| wanted.method != "HEAD" && code != 304);
    let followed = shared.plan.pool.follow.is_some() && is_redirect(code);
    let location = response.headers().get(hyper::header::LOCATION).filter(|_| followed);
    let location = location.map(|location| location.as_bytes().to_vec());
    let mut client = client;
    if let Some(With { client, host: Some(host), .. }) = &mut client
        && shared.plan.pool.cookies
    {
        for value in response.headers().get_all(hyper::header::SET_COOKIE) {
            client.jar.take(value.as_bytes(), host);
        }
    }
    let mut client = client.filter(|_| wanted.is_watched());
    if let Some(With { client, .. }) = &mut client {
        client.watch.head(wanted, |name| Some(response.headers().get(name)?.as_bytes()));
    }
    let mut body = response.into_body();
    let (mut content, mut checker) = (0u64, wanted.checks.content().then(Checker::new));
    if let Some(checker) = &mut checker {
        checker.begin(&wanted.checks);
    }
    while let Some(frame) = body.frame().await {
        // The server has begun to answer, so it has processed the request.
        let frame = frame.map_err(|e| Broken { unprocessed: false, ..Broken::from(e) })?;
        let Some(data) = frame.data_ref() else {
            if let Some(trailers) = frame.trailers_ref().filter(|_| wanted.grpc)
                && let Some(With { client, .. }) = &mut client
            {
                client.watch.call.trailers(|name| Some(trailers.get(name)?.as_bytes()));
            }
            continue;
        };
        content += data.len() as u64;
        let now = clock();
        shared.lock().book.received(now, data.len() as u64);
        if let Some(checker) = &mut checker {
            checker.data(&wanted.checks, data);
        }
        if let Some(With { client, .. }) = &mut client {
            let (_, before) = client.watch.so_far(wanted);
            let events =
                client.watch.data(wanted, data, now).map_err(|Wrong(kind, why)| Broken::new(kind, why))?;
            if events > 0 && wanted.events.is_some() {
                let since = (client.watch.so_far(wanted).0 > events).then_some(before);
                shared.lock().book.events(intended, now, events, since);
            }
        }
        if content > shared.common.plan.max_body {
            let most = shared.common.plan.max_body;
            return Err(Broken::new(ErrorKind::TooLong, format!("content of more than {most} bytes")));
        }
    }
    // hyper takes a stream that is reset without an error for one that has ended.
    if let Some(length) = length.filter(|length| *length != content) {
        let why = format!("the stream ended after {content} of {length} bytes of content");
        return Err(Broken::new(ErrorKind::Closed, why));
    }
    let mut verdict = wanted.checks.judge(code, content);
    if verdict.is_ok()
        && let Some(checker) = &mut checker
    {
        verdict = checker.end(&wanted.checks);
    }
    if let Some(With { client, slots, .. }) = client.filter(|_| verdict.is_ok() && location.is_none()) {
        verdict = client.end(wanted, slots);
        if verdict.is_ok() && wanted.events.is_some() {
            let (events, last) = client.watch.so_far(wanted);
            shared.lock().book.stream(intended, last, events);
        }
    }
    Ok(Answer { code, first_byte, verdict, location })
}

/// The length that the head of an answer announces.
fn content_length<B>(response: &hyper::Response<B>) -> Option<u64> {
    response.headers().get(hyper::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// An error with its causes: hyper has the details in the cause.
fn error_chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    text
}
