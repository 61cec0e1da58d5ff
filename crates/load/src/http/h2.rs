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

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowlane_stack::rng::Rng;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::check::{Checker, Wrong};
use super::client::Client;
use super::hop::is_redirect;
use super::interim::Limited;
use super::numbers::Numbers;
use super::open::{Aimed, Routes};
use super::origins::Origins;
use super::plan::Version;
use super::pool::{PoolPlan, PoolState};
use super::run::Common;
use super::steps;
use super::stream::Stream;
use super::way::open;
use crate::report::ErrorKind;
use crate::run::clock;
use crate::run::door::Refusal;
use crate::run::moments::Moments;

use self::slot::{Due, slot};

type Body = Full<Bytes>;
type Outgoing = hyper::Request<Body>;
/// Why a connection ended, once it has.
type Ended = Arc<OnceLock<(ErrorKind, String)>>;

/// How often a request is sent again before it has failed, for a server that refuses all.
const MOST_AGAIN: u8 = 4;
/// Pause after a failed connection attempt.
const HOLD: Duration = Duration::from_millis(10);

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

/// State shared by a pool's tasks in one lane.
pub(super) struct Shared {
    common: Arc<Common>,
    plan: Arc<PoolPlan>,
    inner: Mutex<Inner>,
    /// When the schedule ends.
    end: u64,
}

struct Inner {
    book: super::book::Book,
    routes: Routes,
    /// Where redirects led, and the connections there, by the origin's place in memory.
    origins: Origins,
    elsewhere: HashMap<usize, follow::Elsewhere>,
    moments: Option<Moments>,
    /// Requests to be sent again.
    again: VecDeque<Due>,
    requests_left: u64,
    connections_left: u64,
    rng: Rng,
    numbers: Numbers,
    /// Why the run has ended, where nobody listens.
    nobody: Option<String>,
    /// Slots that still run, and the waker for when the last ends.
    slots: usize,
    waiting: Option<Waker>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Starts a pool's tasks in this lane. They own the pool's records until [`Shared::take_book`].
    pub(super) fn start(common: &Arc<Common>, pool: &mut PoolState, end: u64, rng: &mut Rng) -> Arc<Self> {
        let inner = Inner {
            book: std::mem::replace(&mut pool.book, super::book::Book::new()),
            routes: std::mem::replace(&mut pool.routes, Routes::new(&pool.plan.pool, 0, (0, 1))),
            origins: Origins::default(),
            elsewhere: HashMap::new(),
            moments: pool.moments.take(),
            again: VecDeque::new(),
            requests_left: pool.requests_left,
            connections_left: pool.connections_left,
            rng: Rng::new(rng.next_u64()),
            numbers: pool.numbers.clone(),
            nobody: None,
            slots: pool.count as usize,
            waiting: None,
        };
        let shared =
            Arc::new(Self { common: common.clone(), plan: pool.plan.clone(), inner: inner.into(), end });
        for _ in 0..pool.count {
            // The lane has ended.
            let _ = flowlane::spawn(connection(shared.clone(), shared.streams()));
        }
        shared
    }

    /// Streams that may be open on a connection at once.
    fn streams(&self) -> usize {
        match self.plan.pool.version {
            Version::Http2 { streams } => usize::from(streams),
            Version::Http1 { .. } => 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all its connections are done; if not, `waker` is called when they are.
    pub(super) fn is_done(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        if inner.waiting.is_none() {
            inner.waiting = Some(waker.clone());
        }
        inner.slots == 0
    }

    /// Whether any connection was ever established, and the first error of one.
    pub(super) fn opened(&self) -> (bool, Option<String>) {
        let inner = self.lock();
        (inner.book.ever_opened, inner.book.first_error.clone())
    }

    /// No more requests are sent.
    pub(super) fn asked_all(&self) {
        self.lock().book.asked_all();
    }

    pub(super) fn tick(&self, now: u64) {
        let mut inner = self.lock();
        inner.book.tick(now);
        if let Some(moments) = &mut inner.moments {
            moments.raise(self.common.gate.raised());
        }
    }

    /// Returns the records at the end, with requests that were due and not sent.
    pub(super) fn take_book(&self) -> super::book::Book {
        let now = clock();
        let mut inner = self.lock();
        let end = self.end.min(now);
        let Inner { moments, book, requests_left, again, .. } = &mut *inner;
        for due in again.drain(..) {
            let Some(mut before) = due.before else { continue };
            let asked = before.times > 0;
            if asked {
                book.error(Some(before.request), due.intended, now, ErrorKind::Timeout, || {
                    "not processed by the server, and not sent again before the run ended".to_owned()
                });
            }
            if let Some(client) = &mut before.client {
                steps::ends(book, &self.plan.pool, client, due.intended, asked, steps::UNFINISHED);
            }
        }
        if let Some(moments) = moments
            && !self.common.gate.door.is_shut()
        {
            *requests_left -=
                moments.pass(end, *requests_left, |moment, n| book.unsent(moment, now, n, false));
        }
        std::mem::replace(&mut inner.book, super::book::Book::new())
    }

    fn over(&self) -> bool {
        self.common.gate.stopped() || clock() >= self.end
    }

    /// A connection failed; whether another address of its target is tried at once, so that it is no failure of the run. Where nobody
    /// listens, the run ends with the first refusal.
    fn not_connected(&self, at: Option<Aimed>, now: u64, kind: ErrorKind, why: String) -> bool {
        let mut inner = self.lock();
        if at.is_some_and(|at| inner.routes.failed(at, kind)) {
            inner.connections_left = inner.connections_left.saturating_add(1);
            return true;
        }
        let alone = self.common.pools.len() == 1;
        if alone && kind == ErrorKind::Refused && inner.routes.all_given_up() {
            match self.common.gate.door.refuses() {
                Refusal::First => {
                    inner.nobody = Some(inner.routes.nobody_listens());
                    self.common.gate.stop();
                }
                Refusal::Again => return false,
                Refusal::Later => {}
            }
        }
        inner.book.not_connected(now, kind, why);
        false
    }

    /// That nobody listens, if the run has ended for it.
    pub(super) fn nobody_listens(&self) -> Option<String> {
        self.lock().nobody.take()
    }

    /// The next request for a free slot; `None` if there are no more.
    fn next(&self) -> Option<Due> {
        if self.over() {
            return None;
        }
        let mut inner = self.lock();
        if let Some(again) = inner.again.pop_front() {
            return Some(again);
        }
        if inner.requests_left == 0 {
            return None;
        }
        let (intended, gap, recorded) = match &mut inner.moments {
            None => (clock(), 0, 0),
            Some(moments) => {
                let moment = moments.peek().filter(|m| *m < self.end)?;
                moments.advance();
                (moment, moments.peek().map_or(u64::MAX, |next| next - moment), moments.taken())
            }
        };
        inner.requests_left -= 1;
        Some(Due { intended, gap, recorded, before: None })
    }
}

/// Opens one connection after the other until the run is over.
async fn connection(shared: Arc<Shared>, streams: usize) {
    while !shared.over() {
        let (begun, route) = {
            let mut inner = shared.lock();
            let nothing_due =
                inner.moments.as_ref().is_some_and(|m| m.peek().is_none_or(|m| m >= shared.end));
            let nothing_left = (inner.requests_left == 0 || nothing_due) && inner.again.is_empty();
            if inner.connections_left == 0 || nothing_left {
                break;
            }
            inner.connections_left -= 1;
            let now = clock();
            let Inner { routes, rng, .. } = &mut *inner;
            (now, routes.next(None, now, rng))
        };
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
                let (kind, why) = match failed {
                    Some(Err(unopened)) => (unopened.kind, unopened.why),
                    _ => (ErrorKind::ConnectTimeout, "no connection in time".to_owned()),
                };
                if !shared.not_connected(at, now, kind, why) {
                    flowlane::sleep(HOLD).await;
                }
                continue;
            }
        };
        let tls = matches!(opened.stream, Stream::Tls(_)).then(|| opened.secured - opened.connected);
        shared.lock().book.connected(now, opened.connected - begun, tls);
        let done = match opened.stream {
            Stream::Plain(tcp) => speak(&shared, target, tcp, streams).await,
            Stream::Tls(tls) => speak(&shared, target, *tls, streams).await,
            Stream::None | Stream::Opening(_) => Ok(()),
        };
        let now = clock();
        let over = shared.over();
        let mut inner = shared.lock();
        if over {
            inner.book.asked_all();
        }
        inner.book.closed(now);
        if let Err(why) = done {
            inner.book.error(None, now, now, ErrorKind::Http2, || why);
        }
    }
    let mut inner = shared.lock();
    inner.slots -= 1;
    if inner.slots == 0
        && let Some(waker) = inner.waiting.take()
    {
        waker.wake();
    }
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

/// Runs all slots of one connection until there are no more requests or the connection ends.
async fn speak<S>(shared: &Arc<Shared>, target: u16, io: S, streams: usize) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let ended: Ended = Arc::new(OnceLock::new());
    let sender = handshake(io, streams, ended.clone()).await?;
    let slots: Vec<_> = (0..streams)
        .map(|_| flowlane::spawn(slot(shared.clone(), target, sender.clone(), ended.clone())))
        .collect();
    drop(sender);
    for slot in slots.into_iter().flatten() {
        // A panic has been reported; the slot sends no more requests.
        let _ = slot.await;
    }
    Ok(())
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

/// The result of a future, or `None` if it takes longer than `time`.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut over) = (pin!(future), pin!(flowlane::sleep(time)));
    std::future::poll_fn(move |cx: &mut Context<'_>| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}
