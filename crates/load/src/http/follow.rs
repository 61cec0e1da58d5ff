//! Redirects of HTTP/1: a request goes on to where its answer leads, and its connection comes back.
//!
//! ```text
//!   redirect ▸ same origin? ─ yes ▸ the same stream ───────────────┐
//!                           └ no ▸ park it ▸ parked | opened ▸ ... ┴▸ send ▸ redirect ... ▸ answer ▸ back to the target's stream
//! ```
//!
//! For the schedule and the records it is one request: it is sent once, with its intended time, and answered by the last answer; each
//! redirect counts as `redirects`. The rules are in [`super::hop`].

use std::sync::Arc;

use flowlane_http::h1::ResponseReader;
use flowlane_sys::words::said;

use super::check::Checker;
use super::conn::{Extra, LIMITS, State};
use super::engine::Engine;
use super::hop::Course;
use super::journey::Journey;
use super::origins::{Origin, Origins, open_origin};
use super::prepared::Prepared;
use super::steps::{self, Left};
use super::stream::{Opened, Stream, Unopened};
use crate::report::ErrorKind;

impl Engine {
    /// A redirect has been read to its end: the request goes on. `surplus`: there are bytes behind it.
    pub(super) fn follow(&mut self, c: u32, surplus: &[u8]) {
        let p = self.conn_pool(c);
        let now = self.now;
        if !surplus.is_empty() {
            self.pools[p].book.unasked(now, || format!("{} behind a redirect", said(surplus)));
            // It goes on by way of another.
            self.conns[c as usize].keep = false;
        }
        let pool = &mut self.pools[p];
        let plan = pool.plan.clone();
        let conn = &mut self.conns[c as usize];
        let (status, asked, target) = (conn.status, conn.asked, conn.target);
        let Extra { journey, client, .. } = conn.extra();
        let journey = journey.get_or_insert_default();
        let location = journey.location.take().unwrap_or_default();
        let begins = || {
            let filled = plan.prepared(target, asked.request).filled.as_ref();
            let request = &plan.pool.requests[usize::from(asked.request)];
            let request = match (filled, &client) {
                (Some(filled), Some(client)) => filled.request(request, &client.vars),
                _ => request.clone(),
            };
            Box::new(Course::begins(plan.pool.targets[usize::from(target)].url.clone(), request))
        };
        let mut course = journey.course.take().unwrap_or_else(begins);
        let before = course.url.clone();
        let next = course.goes(&plan.pool, status, &location).and_then(|()| {
            let target = &plan.pool.targets[usize::from(target)].url;
            if let Some(client) = client.as_ref().filter(|_| plan.pool.cookies) {
                client.jar.apply(&mut course.request, &course.url, target);
            }
            let mut origin = |url| pool.origins.of(url).ok_or_else(Origins::full);
            if journey.home.is_none() && !course.url.is_of_one_origin_with(&before) {
                let home = origin(target)?;
                (journey.at, journey.home) = (Some(home.clone()), Some(home));
            }
            let origin = if journey.home.is_some() { Some(origin(&course.url)?) } else { None };
            let prepared = Prepared::of(&plan.pool, &course.url, &course.request)
                .map_err(|e| (ErrorKind::Malformed, e.to_string()))?;
            Ok((origin, prepared))
        });
        match next {
            Ok((origin, prepared)) => {
                journey.prepared = Some(Arc::new(prepared));
                journey.course = Some(course);
                pool.book.named(asked.intended, "redirects");
                self.set_out(c, origin);
            }
            Err((kind, why)) => {
                pool.book.error(Some(asked.request), asked.intended, now, kind, || why);
                self.flow_ends(c, true, steps::CUT);
                self.come_home(c);
            }
        }
    }

    /// Sends the request to an origin, over a stream that leads there; `None`: to where the stream leads.
    fn set_out(&mut self, c: u32, origin: Option<Arc<Origin>>) {
        let conn = &mut self.conns[c as usize];
        let reusable = conn.is_reusable();
        let journey = conn.extra().journey.get_or_insert_default();
        let stays = match (&origin, &journey.at) {
            (Some(to), Some(at)) => Arc::ptr_eq(to, at),
            _ => true,
        };
        if stays && reusable {
            self.send_on(c);
            return;
        }
        let p = self.conn_pool(c);
        // The server closes it: the same origin is asked by way of another connection.
        let Some(to) = origin.or_else(|| self.home_of(c)) else {
            let (kind, why) = Origins::full();
            self.fail(c, kind, || why);
            return;
        };
        self.put_away(c);
        let parked = self.conns[c as usize].extra().journey.get_or_insert_default().take(&to);
        let conn = &mut self.conns[c as usize];
        conn.extra().journey.get_or_insert_default().at = Some(to.clone());
        // A pause of a slow client is over with its stream.
        conn.wake_at = 0;
        if let Some(stream) = parked {
            (conn.stream, conn.reader) = (stream, ResponseReader::new(LIMITS));
            if conn.is_quiet() {
                self.send_on(c);
                return;
            }
            self.pools[p].book.closed(self.now);
        }
        let now = self.look();
        let pool = &mut self.pools[p];
        let Some(finder) = pool.plan.finder.clone() else { return };
        let from = pool.routes.towards_anywhere();
        let conn = &mut self.conns[c as usize];
        conn.stream = Stream::Opening(Box::pin(open_origin(to, finder, from)));
        conn.state = State::Opening;
        conn.since = now;
        // A request waits for it.
        conn.wanted = true;
        self.opening(c);
    }

    /// The origin of the connection's own target, at which it is.
    fn home_of(&mut self, c: u32) -> Option<Arc<Origin>> {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        let pool = &mut self.pools[p];
        let home = pool.origins.of(&pool.plan.pool.targets[usize::from(conn.target)].url)?;
        let journey = conn.extra().journey.get_or_insert_default();
        (journey.at, journey.home) = (Some(home.clone()), Some(home.clone()));
        Some(home)
    }

    /// Keeps the stream for later, or closes it.
    fn put_away(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        let reusable = conn.is_reusable();
        let stream = std::mem::replace(&mut conn.stream, Stream::None);
        let stood = matches!(stream, Stream::Plain(_) | Stream::Tls(_));
        let journey = conn.extra().journey.get_or_insert_default();
        let gone = match journey.at.clone() {
            Some(at) if reusable && stood => journey.park(at, stream).is_some(),
            _ => stood,
        };
        if gone {
            self.pools[p].book.closed(self.now);
        }
    }

    /// Sends the request as it is now over the stream that there is.
    fn send_on(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let pool = &self.pools[p];
        let conn = &mut self.conns[c as usize];
        let most = pool.plan.pool.requests_per_connection;
        conn.last = most.is_some_and(|most| u64::from(conn.served) >= most);
        conn.keep = true;
        conn.state = State::Writing;
        conn.since = self.now;
        (conn.first_byte, conn.written, conn.content) = (0, 0, 0);
        conn.extra().unwritten = None;
        if conn.hop().is_some_and(|prepared| prepared.to_head) {
            conn.reader.expect_no_body();
        }
        let checks = &pool.plan.pool.requests[usize::from(conn.asked.request)].checks;
        if checks.content() {
            conn.extra().checker.get_or_insert_with(Checker::new).begin(checks);
        }
        self.write(c);
    }

    /// A connection to another origin stands.
    pub(super) fn arrived(&mut self, c: u32, opened: Opened) {
        let now = self.look();
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        let tls = matches!(opened.stream, Stream::Tls(_)).then(|| opened.secured - opened.connected);
        self.pools[p].book.connected(now, opened.connected - conn.since, tls);
        self.pools[p].book.handshake(now, opened.resumed);
        conn.stream = opened.stream;
        conn.reader = ResponseReader::new(LIMITS);
        conn.wanted = false;
        self.send_on(c);
    }

    /// No connection to another origin: the request has failed.
    pub(super) fn not_arrived(&mut self, c: u32, unopened: Unopened) {
        let now = self.look();
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        // It is no more an attempt of the pool's that the connection makes.
        (conn.stream, conn.wanted, conn.state) = (Stream::None, false, State::Reading);
        let (asked, Unopened { kind, why, .. }) = (conn.asked, unopened);
        self.pools[p].book.error(Some(asked.request), asked.intended, now, kind, || why);
        self.flow_ends(c, true, steps::CUT);
        self.come_home(c);
    }

    /// The request is over, and its connection leads to its target again, or is closed.
    pub(super) fn come_home(&mut self, c: u32) {
        let conn = &mut self.conns[c as usize];
        let journey = conn.extra().journey.get_or_insert_default();
        (journey.course, journey.prepared, journey.location) = (None, None, None);
        if !journey.is_away() {
            let stands = !matches!(conn.stream, Stream::None);
            let left = match stands {
                true if conn.is_reusable() => Left::Usable,
                true => Left::Standing,
                false => Left::Nothing,
            };
            self.back(c, left);
            return;
        }
        let home = journey.home.clone();
        self.put_away(c);
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        let journey = conn.extra().journey.get_or_insert_default();
        let stream = home.as_ref().and_then(|home| journey.take(home));
        journey.at = home;
        let Some(stream) = stream else {
            self.back(c, Left::Nothing);
            return;
        };
        (conn.stream, conn.reader) = (stream, ResponseReader::new(LIMITS));
        (conn.keep, conn.state, conn.wake_at) = (true, State::Reading, 0);
        conn.extra().unwritten = None;
        if conn.is_quiet() {
            self.back(c, Left::Usable);
        } else {
            self.pools[p].book.named(self.now, "closed-idle");
            self.back(c, Left::Standing);
        }
    }

    /// The connection is at its target again, or is no more.
    fn back(&mut self, c: u32, left: Left) {
        if self.goes_on_with(c, left) {
            return;
        }
        match left {
            Left::Usable => self.free_again(c),
            Left::Standing => self.close(c),
            Left::Nothing => self.gone(c),
        }
    }
}

/// Ends the journeys of a connection that is closed; returns how many streams waited for it.
pub(super) fn end(journey: &mut Option<Box<Journey>>) -> usize {
    journey.take().map_or(0, |mut journey| journey.end())
}
