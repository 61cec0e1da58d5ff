//! What the tasks of a pool share that run beside the engine, for HTTP/2 and HTTP/3: the schedule, the records, and requests to be sent again.
//!
//! A connection has as many places for requests as streams may be open on it. A time of the schedule is taken when it has come: of those that
//! have a free place one waits for it, and the others wait in a queue for their turn. So a change of the rate finds no time that was taken ahead.
//! A request that is late keeps its intended time, from which its latency counts, as in the engine.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use flowlane::Connect;
use flowlane_stack::rng::Rng;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http2::SendRequest;

use super::aws::{Kept, Signed};
use super::book::Book;
use super::client::Client;
use super::numbers::Numbers;
use super::open::{Aimed, Routes};
use super::origins::Origins;
use super::plan::{Request, Version};
use super::pool::{PoolPlan, PoolState};
use super::run::Common;
use super::steps;
use super::stream::Unopened;
use crate::report::ErrorKind;
use crate::run::door::Refusal;
use crate::run::moments::Moments;
use crate::run::{HOLD, LATE, TICK, clock};

/// How often a request is sent again before it has failed, for a server that refuses all.
pub(super) const MOST_AGAIN: u8 = 4;

/// Where a connection goes.
pub(super) type Route = Result<(Aimed, Connect), Unopened>;

/// A connection of HTTP/2 to another origin, while there is one. Whoever opens it has the others wait.
pub(super) type Elsewhere = Arc<tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>>;

/// State shared by a pool's tasks in one lane.
pub(super) struct Shared {
    pub(super) common: Arc<Common>,
    pub(super) plan: Arc<PoolPlan>,
    inner: Mutex<Inner>,
    /// Held by the one place or connection that waits for the next time of the schedule; the others wait for it, in their order.
    pub(super) first: Arc<tokio::sync::Mutex<()>>,
    /// When the schedule ends.
    pub(super) end: u64,
    /// Connections that are to end after their answers, since fewer are wanted.
    leaving: AtomicU32,
}

/// What changes of it. The lock is for the compiler alone: all tasks are in one lane.
pub(super) struct Inner {
    pub(super) book: Book,
    pub(super) routes: Routes,
    /// Where redirects led, and the connections there, by the origin's place in memory.
    pub(super) origins: Origins,
    pub(super) elsewhere: HashMap<usize, Elsewhere>,
    moments: Option<Moments>,
    /// How much later than the last the next is due.
    gap: u64,
    /// Requests to be sent again.
    pub(super) again: VecDeque<Due>,
    requests_left: u64,
    connections_left: u64,
    pub(super) rng: Rng,
    pub(super) numbers: Numbers,
    /// What was signed, if requests are.
    pub(super) signed: Option<Box<Signed>>,
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
    /// What a pool's tasks share in this lane. They own the pool's records until [`Shared::take_book`].
    pub(super) fn new(common: &Arc<Common>, pool: &mut PoolState, end: u64, rng: &mut Rng) -> Arc<Self> {
        let inner = Inner {
            book: std::mem::replace(&mut pool.book, Book::new()),
            routes: std::mem::replace(&mut pool.routes, Routes::new(&pool.plan.pool, 0, (0, 1))),
            origins: Origins::default(),
            elsewhere: HashMap::new(),
            moments: pool.moments.take(),
            gap: u64::MAX,
            again: VecDeque::new(),
            requests_left: pool.requests_left,
            connections_left: pool.connections_left,
            rng: Rng::new(rng.next_u64()),
            numbers: pool.numbers.clone(),
            signed: pool.signed.take(),
            nobody: None,
            slots: pool.count as usize,
            waiting: None,
        };
        let (common, plan, first) = (common.clone(), pool.plan.clone(), Arc::default());
        Arc::new(Self { common, plan, inner: inner.into(), first, end, leaving: AtomicU32::new(0) })
    }

    /// So many connections more are wanted, or fewer. Returns how many are to be started.
    pub(super) fn resize(&self, had: u32, wanted: u32) -> u32 {
        let leaving = self.leaving.load(Ordering::Relaxed);
        if wanted <= had {
            self.leaving.store(leaving + (had - wanted), Ordering::Relaxed);
            return 0;
        }
        // Those that were to end and have not stay.
        let stay = leaving.min(wanted - had);
        self.leaving.store(leaving - stay, Ordering::Relaxed);
        let more = wanted - had - stay;
        self.lock().slots += more as usize;
        more
    }

    /// It has so many requests and connections more to make than it had, over so many connections at once. Returns how many are to be started.
    pub(super) fn takes_over(&self, requests: u64, in_all: u64, wanted: u32) -> u32 {
        let now = clock();
        let mut inner = self.lock();
        let had_nothing = inner.requests_left == 0;
        if let Some(moments) = inner.moments.as_mut().filter(|_| had_nothing) {
            // What was due while nothing was left to send was the others'.
            while moments.peek().is_some_and(|moment| moment < now) {
                moments.advance();
            }
        }
        inner.requests_left = inner.requests_left.saturating_add(requests);
        inner.connections_left = inner.connections_left.saturating_add(in_all);
        // Those that had nothing left to send have ended.
        let more = wanted.saturating_sub(inner.slots as u32);
        inner.slots += more as usize;
        more
    }

    /// Whether the connection that asks is one that ends, since fewer are wanted.
    #[inline]
    pub(super) fn leaves(&self) -> bool {
        let leaving = self.leaving.load(Ordering::Relaxed);
        if leaving > 0 {
            // Guard: no `self.leaving.store(leaving - 1, Ordering::Relaxed);` fails load/http::changer::connections_of_streams
            self.leaving.store(leaving - 1, Ordering::Relaxed);
        }
        leaving > 0
    }

    /// Streams that may be open on a connection at once.
    pub(super) fn streams(&self) -> usize {
        match self.plan.pool.version {
            Version::Http2 { streams } | Version::Http3 { streams } => usize::from(streams),
            Version::Http1 { .. } => 1,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
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
    pub(super) fn take_book(&self) -> Book {
        let now = clock();
        let mut inner = self.lock();
        let end = self.end.min(now);
        let Inner { moments, book, requests_left, again, .. } = &mut *inner;
        let stopped = self.common.gate.stopped();
        for due in again.drain(..) {
            let Some(mut before) = due.before else { continue };
            let asked = before.times > 0;
            if asked && stopped {
                book.unfinished(due.intended, 1);
            } else if asked {
                book.error(Some(before.request), due.intended, now, ErrorKind::Timeout, || {
                    "not processed by the server, and not sent again before the run ended".to_owned()
                });
            }
            if let Some(client) = &mut before.client {
                steps::ends(book, &self.plan.pool, client, due.intended, asked, steps::UNFINISHED);
            }
        }
        // Their tasks have not ended yet, and record nothing any more.
        let moment = end.saturating_sub(1);
        let late = if stopped { 0 } else { book.on_their_way() };
        // Guard: no `book.unfinished(moment, book.on_their_way() - late);` fails load/http::counts::what_is_under_way
        book.unfinished(moment, book.on_their_way() - late);
        for _ in 0..late {
            book.error(None, moment, now, ErrorKind::Timeout, || LATE.to_owned());
        }
        if let Some(moments) = moments
            && !self.common.gate.door.is_shut()
        {
            *requests_left -=
                moments.pass(end, *requests_left, |moment, n| book.unsent(moment, now, n, false));
        }
        std::mem::replace(&mut inner.book, Book::new())
    }

    pub(super) fn over(&self) -> bool {
        self.common.gate.stopped() || clock() >= self.end
    }

    /// A connection was not made, for want of time if nothing else is said: it is counted, and the next attempt waits, unless it is to another
    /// address of the target.
    pub(super) async fn not_made(&self, at: Option<Aimed>, now: u64, why: Option<Unopened>) {
        let (kind, why) = match why {
            Some(unopened) => (unopened.kind, unopened.why),
            None => (ErrorKind::ConnectTimeout, "no connection in time".to_owned()),
        };
        if !self.not_connected(at, now, kind, why) {
            flowlane::sleep(Duration::from_nanos(HOLD)).await;
        }
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

    /// Where the next connection goes, and the time; `None` if no more are needed.
    pub(super) fn route(&self) -> Option<(u64, Route)> {
        if self.over() || self.leaves() {
            return None;
        }
        let mut inner = self.lock();
        let nothing_left = inner.is_spent(self.end) && inner.again.is_empty();
        if inner.connections_left == 0 || nothing_left {
            return None;
        }
        inner.connections_left -= 1;
        let now = clock();
        let Inner { routes, rng, .. } = &mut *inner;
        Some((now, routes.next(None, now, rng)))
    }

    /// A connection has ended, for this reason if it was none of ours.
    pub(super) fn closed(&self, why: Option<(ErrorKind, String)>) {
        let now = clock();
        let over = self.over();
        let mut inner = self.lock();
        if over {
            inner.book.asked_all();
        }
        inner.book.closed(now);
        if let Some((kind, why)) = why {
            inner.book.error(None, now, now, kind, || why);
        }
    }

    /// The pause before the next connection, if the last brought no answer.
    pub(super) async fn rests(&self, heard: bool) {
        // Guard: `heard` as `true` fails load/http::h2::a_server_that_closes_at_once
        if !heard {
            flowlane::sleep(Duration::from_nanos(HOLD)).await;
        }
    }

    /// A task opens no more connections.
    pub(super) fn ended(&self) {
        let mut inner = self.lock();
        inner.slots -= 1;
        if inner.slots == 0
            && let Some(waker) = inner.waiting.take()
        {
            waker.wake();
        }
    }

    /// The next request for a place that is free since `free`. A request that became due before the end, while the place was free, is sent after the
    /// end, too: the generator is late, not the server.
    pub(super) fn next(&self, free: u64) -> Next {
        let now = clock();
        let over = now >= self.end;
        let mut inner = self.lock();
        let waited = |m: &Moments| m.peek().is_some_and(|moment| (free..self.end).contains(&moment));
        if self.common.gate.stopped() || over && !inner.moments.as_ref().is_some_and(waited) {
            return Next::Never;
        }
        if !over && let Some(again) = inner.again.pop_front() {
            return Next::Due(again);
        }
        if inner.is_spent(self.end) {
            return Next::Never;
        }
        let Inner { moments, gap, requests_left, .. } = &mut *inner;
        let Some(moments) = moments else {
            *requests_left -= 1;
            return Next::Due(Due { intended: now, recorded: 0, before: None });
        };
        // Guard: no `moments.bend(&self.common.gate.changes, now);` fails cli/load_set::a_rate_is_changed
        moments.bend(&self.common.gate.changes, now);
        // Those that are due within the slack go together, at its next multiple. If the next is due later than that, waiting saves nothing.
        let slack = if *gap <= self.common.slack { self.common.slack.max(1) } else { 1 };
        // At the end of the schedule there is no waiting.
        let together = |moment: u64| Some(moment.div_ceil(slack) * slack).filter(|later| *later < self.end);
        match moments.peek().filter(|moment| *moment < self.end) {
            Some(intended) if together(intended).unwrap_or(intended) <= now => {
                moments.advance();
                *gap = moments.peek().map_or(u64::MAX, |next| next - intended);
                *requests_left -= 1;
                Next::Due(Due { intended, recorded: moments.taken(), before: None })
            }
            later => {
                let moment = later.map_or(u64::MAX, |moment| together(moment).unwrap_or(moment));
                // Guard: `now + TICK` as `u64::MAX` fails cli/load_set::a_rate_is_changed
                Next::At(moment.min(now + TICK).min(self.end))
            }
        }
    }

    /// Which request one that is due is, and how often it was sent. Its client becomes that of the place.
    pub(super) fn takes(
        &self,
        client: &mut Option<Box<Client>>,
        before: Option<Before>,
        recorded: u64,
    ) -> (u16, u8) {
        if let Some(before) = before {
            *client = before.client;
            return (before.request, before.times);
        }
        let plan = &self.plan;
        let mut inner = self.lock();
        if plan.has_clients {
            let client = client.get_or_insert_default();
            let Inner { numbers, rng, .. } = &mut *inner;
            client.renew(&plan.pool, (numbers, rng), plan.names);
            client.recorded = Some(recorded);
        }
        if let Some(recording) = &plan.pool.replay {
            return (recording.method(usize::try_from(recorded).unwrap_or(0)), 0);
        }
        let request = if plan.pool.steps { 0 } else { plan.requests.pick(&mut inner.rng) as u16 };
        (request, 0)
    }

    /// The request to a target as it is with the client's values, if it has placeholders or is a recorded one.
    pub(super) fn own(
        &self,
        client: &mut Option<Box<Client>>,
        (target, place): (u16, u16),
        intended: u64,
    ) -> Option<Request> {
        let pool = &self.plan;
        let url = &pool.pool.targets[usize::from(target)].url;
        let form = pool.prepared(target, place);
        let written = &pool.pool.requests[usize::from(place)];
        if let Some(client) = client {
            if pool.pool.steps && place == 0 && !client.begun {
                client.begun = true;
                self.lock().book.named(intended, "flows");
            }
            if let Some(filled) = form.filled.as_ref().filter(|_| pool.pool.cookies) {
                client.cookies(filled, url.https);
            }
        }
        let filled = form.filled.as_ref().zip(client.as_ref());
        let own = || filled.map(|(filled, client)| filled.request(written, &client.vars));
        if !pool.is_apart {
            return own();
        }
        let mut own = match &pool.pool.replay {
            Some(recording) => {
                let number = client.as_ref().and_then(|client| client.recorded).unwrap_or(0);
                let lines = &pool.lines[usize::from(target)];
                let parts = recording.parts(usize::try_from(number).unwrap_or(0), lines);
                Some(written.recorded(parts))
            }
            None => own(),
        };
        if let (Some(own), Some(signed)) = (&mut own, &mut self.lock().signed) {
            signed.own(&pool.pool, target, own);
        }
        own
    }

    /// What `take` makes of a request of the plan as it is signed in this second, if requests are.
    pub(super) fn signed<T>(&self, at: (u16, u16), take: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let mut inner = self.lock();
        Some(take(inner.signed.as_mut()?.same(&self.plan.pool, at)))
    }

    /// A flow ends before its last step.
    pub(super) fn flow_ends(
        &self,
        client: &mut Option<Box<Client>>,
        moment: u64,
        asked: bool,
        how: &'static str,
    ) {
        if let Some(client) = client {
            steps::ends(&mut self.lock().book, &self.plan.pool, client, moment, asked, how);
        }
    }
}

impl Inner {
    /// Whether none of the schedule is left. One that may be changed has none left only when the run ends.
    fn is_spent(&self, end: u64) -> bool {
        let recorded = self.moments.as_ref().filter(|moments| moments.is_recorded());
        self.requests_left == 0 || recorded.is_some_and(|all| all.peek().is_none_or(|moment| moment >= end))
    }
}

/// What there is to do for a free place.
#[derive(Debug)]
pub(super) enum Next {
    /// This request.
    Due(Due),
    /// Nothing yet: one of those that are free is to ask again at this time.
    At(u64),
    /// Nothing any more.
    Never,
}

/// A request that is to be sent.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) intended: u64,
    /// Its number among recorded requests, if it is one that has just become due.
    pub(super) recorded: u64,
    /// What is known of it, if it is none that has just become due.
    pub(super) before: Option<Before>,
}

/// A request that was to be sent before.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) request: u16,
    /// How often it was sent.
    pub(super) times: u8,
    pub(super) client: Option<Box<Client>>,
}

/// The result of a future, or `None` if it takes longer than `time`.
pub(super) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut over) = (pin!(future), pin!(flowlane::sleep(time)));
    std::future::poll_fn(move |cx: &mut Context<'_>| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => over.as_mut().poll(cx).map(|()| None),
    })
    .await
}
