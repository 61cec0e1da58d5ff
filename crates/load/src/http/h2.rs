//! Pools with HTTP/2: hyper's client on the same streams, with the same schedule and records.
//!
//! A connection has a task that opens and drives it, and as many *slots* as streams may be open on it at once. A slot is a loop: take the
//! next time of the schedule, wait for it, send a request, read the answer, record it. Free slots take the times in order; a request that
//! is late keeps its intended time, from which its latency counts, as in the engine. This code allocates for each request and is not
//! optimised.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowlane::Time;
use flowlane_stack::rng::Rng;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;

use super::check::Checker;
use super::clock;
use super::conn::Stream;
use super::moments::Moments;
use super::open::{Routes, open};
use super::plan::Version;
use super::pool::{PoolPlan, PoolState};
use super::run::Common;
use crate::report::{ErrorKind, Sample};

type Asked = hyper::Request<Full<Bytes>>;

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
    moments: Option<Moments>,
    requests_left: u64,
    connections_left: u64,
    rng: Rng,
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
        let streams = match pool.plan.pool.version {
            Version::Http2 { streams } => usize::from(streams),
            Version::Http1 { .. } => 1,
        };
        let inner = Inner {
            book: std::mem::replace(&mut pool.book, super::book::Book::new()),
            routes: std::mem::replace(&mut pool.routes, Routes::new(&pool.plan.pool, 0, 1)),
            moments: pool.moments.take(),
            requests_left: pool.requests_left,
            connections_left: pool.connections_left,
            rng: Rng::new(rng.next_u64()),
            slots: pool.count as usize,
            waiting: None,
        };
        let shared =
            Arc::new(Self { common: common.clone(), plan: pool.plan.clone(), inner: inner.into(), end });
        for _ in 0..pool.count {
            // The lane has ended.
            let _ = flowlane::spawn(connection(shared.clone(), streams));
        }
        shared
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
        self.lock().book.tick(now);
    }

    /// Returns the records at the end, with requests that were due and not sent.
    pub(super) fn take_book(&self) -> super::book::Book {
        let now = clock();
        let mut inner = self.lock();
        let end = self.end.min(now);
        let Inner { moments, book, requests_left, .. } = &mut *inner;
        if let Some(moments) = moments {
            *requests_left -=
                moments.pass(end, *requests_left, |moment, n| book.unsent(moment, now, n, false));
        }
        std::mem::replace(&mut inner.book, super::book::Book::new())
    }

    fn over(&self) -> bool {
        self.common.stopped() || clock() >= self.end
    }

    /// The next scheduled time for a free slot, and how much later the one after it is; `None` if there are no more.
    fn next(&self) -> Option<(u64, u64)> {
        if self.over() {
            return None;
        }
        let mut inner = self.lock();
        if inner.requests_left == 0 {
            return None;
        }
        let next = match &mut inner.moments {
            None => (clock(), 0),
            Some(moments) => {
                let moment = moments.peek().filter(|m| *m < self.end)?;
                moments.advance();
                (moment, moments.peek().map_or(u64::MAX, |next| next - moment))
            }
        };
        inner.requests_left -= 1;
        Some(next)
    }
}

/// Opens one connection after the other until the run is over.
async fn connection(shared: Arc<Shared>, streams: usize) {
    while !shared.over() {
        let (begun, route) = {
            let mut inner = shared.lock();
            let nothing_due =
                inner.moments.as_ref().is_some_and(|m| m.peek().is_none_or(|m| m >= shared.end));
            if inner.connections_left == 0 || inner.requests_left == 0 || nothing_due {
                break;
            }
            inner.connections_left -= 1;
            let now = clock();
            let Inner { routes, rng, .. } = &mut *inner;
            (now, routes.next(now, rng))
        };
        let made = match route {
            Ok((target, connect)) => {
                let secure = shared.plan.secure[usize::from(target)].clone();
                let limit = shared.common.plan.timeout;
                within(limit, open(connect, secure)).await.map(|opened| opened.map(|o| (target, o)))
            }
            Err(unopened) => Some(Err(unopened)),
        };
        let now = clock();
        let (target, opened) = match made {
            Some(Ok(made)) => made,
            failed => {
                let (kind, why) = match failed {
                    Some(Err(unopened)) => (unopened.kind, unopened.why),
                    _ => (ErrorKind::ConnectTimeout, "no connection in time".to_owned()),
                };
                shared.lock().book.not_connected(now, kind, why);
                flowlane::sleep(HOLD).await;
                continue;
            }
        };
        let tls = matches!(opened.stream, Stream::Tls(_)).then(|| opened.secured - opened.connected);
        shared.lock().book.connected(now, opened.connected - begun, tls);
        let done = match opened.stream {
            Stream::Plain(tcp) => speak(&shared, target, TokioIo::new(tcp), streams).await,
            Stream::Tls(tls) => speak(&shared, target, TokioIo::new(*tls), streams).await,
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

/// Runs all slots of one connection until there are no more requests or the connection ends.
async fn speak<S>(shared: &Arc<Shared>, target: u16, io: S, streams: usize) -> Result<(), String>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(InLane);
    builder.max_concurrent_reset_streams(streams).initial_max_send_streams(streams);
    let (sender, driver) = builder.handshake(io).await.map_err(|e| format!("HTTP/2 handshake: {e}"))?;
    // The driver ends with the last sender. If it ends early, the requests have the reason.
    let _ = flowlane::spawn(async move { drop(driver.await) });
    let slots: Vec<_> =
        (0..streams).map(|_| flowlane::spawn(slot(shared.clone(), target, sender.clone()))).collect();
    drop(sender);
    for slot in slots.into_iter().flatten() {
        // A panic has been reported; the slot sends no more requests.
        let _ = slot.await;
    }
    Ok(())
}

/// Sends one request after the other.
async fn slot(shared: Arc<Shared>, target: u16, mut sender: SendRequest<Full<Bytes>>) {
    let pool = shared.plan.clone();
    let (checks_all, think) = (&pool.pool.requests, &pool.pool.think);
    let mut n = 0;
    while !sender.is_closed() {
        let Some((intended, gap)) = shared.next() else { return };
        let free = clock();
        if intended > free {
            // Slots that are due within the slack wake together, at its next multiple. If the next request is due later than that, waiting
            // saves nothing.
            let slack = if gap <= shared.common.slack { shared.common.slack.max(1) } else { 1 };
            let moment = intended.div_ceil(slack) * slack;
            flowlane::sleep_until(Time::from_nanos(moment.min(shared.end.max(intended)))).await;
        }
        let request = pool.requests.pick(&mut shared.lock().rng);
        let place = request as u16;
        let wanted = &checks_all[request];
        let prepared = &pool.prepared[usize::from(target) * checks_all.len() + request];
        let asked = match prepared.http2(&pool.pool.targets[usize::from(target)], wanted) {
            Ok(asked) => asked,
            Err(why) => {
                let now = clock();
                shared.lock().book.error(Some(place), intended, now, ErrorKind::Local, || why);
                return;
            }
        };
        let sent = clock();
        shared.lock().book.sent(place, intended, intended.max(free), sent, prepared.len(false));
        let plan = &shared.common.plan;
        let limit = (sent + plan.request_timeout.unwrap_or(plan.timeout).as_nanos() as u64)
            .min(shared.end + shared.common.plan.waiting.as_nanos() as u64);
        let answer = exchange(&shared, &mut sender, asked, wanted);
        let answer = within(Duration::from_nanos(limit.saturating_sub(sent)), answer).await;
        let done = clock();
        let pause = {
            let mut inner = shared.lock();
            match answer {
                None => {
                    inner.book.error(Some(place), intended, done, ErrorKind::Timeout, || {
                        "no answer in time".to_owned()
                    });
                }
                Some(Err((kind, why))) => inner.book.error(Some(place), intended, done, kind, || why),
                Some(Ok(answer)) => {
                    let code = answer.code;
                    inner.book.answered(
                        place,
                        &Sample { intended, sent, first_byte: answer.first_byte, done, code },
                    );
                    if let Err(wrong) = answer.verdict {
                        inner.book.error(Some(place), intended, done, wrong.0, || wrong.1);
                    }
                }
            }
            think.nanos(n, &mut inner.rng)
        };
        n += 1;
        if pause > 0 {
            flowlane::sleep(Duration::from_nanos(pause)).await;
        }
    }
}

struct Answer {
    code: u16,
    first_byte: u64,
    verdict: Result<(), super::check::Wrong>,
}

async fn exchange(
    shared: &Arc<Shared>,
    sender: &mut SendRequest<Full<Bytes>>,
    asked: Asked,
    wanted: &super::plan::Request,
) -> Result<Answer, (ErrorKind, String)> {
    let broken = |e: hyper::Error| (ErrorKind::Http2, error_chain(&e));
    sender.ready().await.map_err(broken)?;
    let response = sender.send_request(asked).await.map_err(broken)?;
    let first_byte = clock();
    let code = response.status().as_u16();
    let mut body = response.into_body();
    let (mut content, mut checker) = (0u64, wanted.checks.content().then(Checker::new));
    if let Some(checker) = &mut checker {
        checker.begin(&wanted.checks);
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(broken)?;
        let Some(data) = frame.data_ref() else { continue };
        content += data.len() as u64;
        let now = clock();
        shared.lock().book.received(now, data.len() as u64);
        if let Some(checker) = &mut checker {
            checker.data(&wanted.checks, data);
        }
        if content > shared.common.plan.max_body {
            let most = shared.common.plan.max_body;
            return Err((ErrorKind::TooLong, format!("content of more than {most} bytes")));
        }
    }
    let mut verdict = wanted.checks.judge(code, content);
    if verdict.is_ok()
        && let Some(checker) = &mut checker
    {
        verdict = checker.end(&wanted.checks);
    }
    Ok(Answer { code, first_byte, verdict })
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
