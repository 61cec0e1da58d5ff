//! Ends of connections and requests: closed, failed, timed out, abandoned.

use super::conn::State;
use super::engine::{Engine, Stage};
use super::follow;
use super::plan::Pace;
use super::steps;
use super::stream::{Stream, Unopened};
use crate::report::ErrorKind;
use crate::run::{HOLD, LATE};

/// How long an address of a name may take when another one answers, nanoseconds (RFC 8305 §5).
const OTHERS_ANSWER: u64 = 250_000_000;

impl Engine {
    /// The request has failed.
    pub(super) fn fail(&mut self, c: u32, kind: ErrorKind, why: impl FnOnce() -> String) {
        let p = self.conn_pool(c);
        let now = self.now;
        let asked = self.conns[c as usize].asked;
        self.pools[p].book.error(Some(asked.request), asked.intended, now, kind, why);
        self.lose_behind(c, kind, "lost with the request before it");
        if self.conns[c as usize].special {
            self.waited(c, kind);
            self.flow_ends(c, true, steps::CUT);
        }
        self.close(c);
    }

    /// A stream of events that has not begun when its time is over: the wait counts, as that for an answer does.
    fn waited(&mut self, c: u32, kind: ErrorKind) {
        let p = self.conn_pool(c);
        let conn = &self.conns[c as usize];
        let client = conn.extra.as_ref().and_then(|e| e.client.as_ref());
        let is_stream = self.pools[p].plan.pool.requests[usize::from(conn.asked.request)].events.is_some();
        let none = conn.first_byte == 0 || client.is_none_or(|client| client.watch.stream.events == 0);
        if is_stream && none && kind == ErrorKind::Timeout {
            let (intended, now) = (conn.asked.intended, self.now);
            self.pools[p].book.events(intended, now, 0, None);
        }
    }

    /// Closes an established connection; in a closed loop another is opened at once.
    pub(super) fn close(&mut self, c: u32) {
        let p = self.conn_pool(c);
        self.pools[p].book.closed(self.now);
        self.gone(c);
    }

    /// An established connection is no more; in a closed loop another is opened at once.
    pub(super) fn gone(&mut self, c: u32) {
        let p = self.conn_pool(c);
        // Guard: `self.conns[c as usize].served == 0` as `false` fails load/http::faults::a_server_that_closes_at_once
        if self.conns[c as usize].served == 0 {
            self.pools[p].rests_until = self.now + HOLD;
        }
        self.vacate(c);
        let Stage::Run(_) = self.stage else { return };
        let pool = &mut self.pools[p];
        let again = match pool.plan.pool.pace {
            Pace::Closed => pool.needs_more() && pool.active() < pool.allowed && self.now >= pool.hold,
            // Connections that are kept are reopened in advance; others are opened when needed.
            Pace::Rate { .. } => false,
        };
        if again && let Some(c) = pool.vacant.pop() {
            self.open_another(c);
        }
    }

    /// Drops the stream.
    pub(super) fn vacate(&mut self, c: u32) {
        let p = self.conn_pool(c);
        if self.is_mid_flow(c) {
            self.flow_ends(c, false, steps::CUT);
        }
        let conn = &mut self.conns[c as usize];
        if conn.state == State::Opening && !conn.wanted {
            self.pools[p].opening -= 1;
        }
        conn.stream = Stream::None;
        conn.state = State::Vacant;
        conn.wanted = false;
        conn.wake_at = 0;
        if let Some(extra) = &mut conn.extra {
            extra.behind.clear();
            extra.unsent.clear();
            extra.unwritten = None;
            for _ in 0..follow::end(&mut extra.journey) {
                self.pools[p].book.closed(self.now);
            }
        }
        self.pools[p].vacant.push(c);
    }

    /// Whether a connection has made no progress for too long.
    pub(super) fn timed(&mut self, c: u32) {
        let timeout = self.common.plan.timeout.as_nanos() as u64;
        let conn = &self.conns[c as usize];
        let whole = self.common.plan.request_timeout.map_or(u64::MAX, |t| t.as_nanos() as u64);
        if conn.busy() && conn.state != State::Opening && self.now.saturating_sub(conn.asked.sent) >= whole {
            let read = conn.content;
            self.fail(c, ErrorKind::Timeout, || {
                format!("the answer was not whole in time ({read} bytes of content)")
            });
            return;
        }
        let since = self.now.saturating_sub(conn.since);
        if conn.state == State::Opening && since >= OTHERS_ANSWER {
            let p = self.conn_pool(c);
            if self.pools[p].routes.is_slower(conn.aimed()) {
                let why = "another address of the name answers".to_owned();
                self.not_opened(c, Unopened { kind: ErrorKind::ConnectTimeout, why, other_address: false });
                return;
            }
        }
        if since < timeout.min(whole) {
            return;
        }
        match conn.state {
            State::Opening => {
                let why = "no connection in time".to_owned();
                self.not_opened(c, Unopened { kind: ErrorKind::ConnectTimeout, why, other_address: false });
            }
            State::Reading | State::Writing if self.now.saturating_sub(conn.since) >= timeout => {
                let read = self.conns[c as usize].content;
                let what =
                    if self.conns[c as usize].first_byte == 0 { "no answer" } else { "half an answer" };
                self.fail(c, ErrorKind::Timeout, || format!("{what} in time ({read} bytes of content)"));
            }
            _ => {}
        }
    }

    /// The run is over.
    pub(super) fn abandon(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let conn = &self.conns[c as usize];
        let (state, asked, now) = (conn.state, conn.asked, self.now);
        // A request that waits for its connection has no target yet.
        let request = (state != State::Opening).then_some(asked.request);
        let stopped = self.common.gate.stopped();
        if conn.busy() && !self.common.gate.door.is_shut() {
            // Guard: `stopped` as `false` fails load/http::counts::what_is_under_way
            if stopped {
                self.leave_behind(c);
                self.pools[p].book.unfinished(asked.intended, 1);
            } else {
                self.pools[p]
                    .book
                    .error(request, asked.intended, now, ErrorKind::Timeout, || LATE.to_owned());
                self.lose_behind(c, ErrorKind::Timeout, LATE);
            }
        }
        let asked = self.conns[c as usize].busy() && state != State::Opening;
        if asked || self.is_mid_flow(c) {
            if asked && !stopped && self.conns[c as usize].special {
                self.waited(c, ErrorKind::Timeout);
            }
            self.flow_ends(c, asked, steps::UNFINISHED);
        }
        if let Some(extra) = &mut self.conns[c as usize].extra {
            for _ in 0..follow::end(&mut extra.journey) {
                self.pools[p].book.closed(now);
            }
        }
        let stood = matches!(self.conns[c as usize].stream, Stream::Plain(_) | Stream::Tls(_));
        if stood && !matches!(state, State::Vacant | State::Opening) {
            self.pools[p].book.closed(now);
        }
        self.conns[c as usize].stream = Stream::None;
        self.conns[c as usize].state = State::Vacant;
    }
}
