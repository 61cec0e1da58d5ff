//! What one connection does: it is made, asks, reads the answer, and asks again or is closed.
//!
//! ```text
//!   Vacant ▸ Opening ▸ Idle ▸ Writing ▸ Reading ─┬▸ Idle | Thinking ▸ ...
//!                                                └▸ Vacant (closed)
//! ```
//!
//! A request is one write, its answer one read: a read that does not fill the buffer has taken all there is, and is not
//! repeated to be told so. Moments are read from the clock next to the write and next to the read.

use std::io;
use std::task::Poll;

use flowlane_http::h1::{Event, ResponseReader};

use super::check::Checker;
use super::conn::{Asked, LIMITS, State, Stream};
use super::engine::{Engine, Stage};
use super::open::{Opened, Unopened, open};
use super::plan::{Behaviour, Pace};
use crate::report::{ErrorKind, Sample};

/// Parts into which a slow reader's or writer's second is cut.
const PARTS: u64 = 20;
/// How long a connection attempt is kept that is given up before it stands.
const SYN_GONE: u64 = 1_000_000;
/// No connection is begun for so long after one that failed.
const HOLD: u64 = 10_000_000;

impl Engine {
    pub(super) fn conn_pool(&self, c: u32) -> usize {
        usize::from(self.conns[c as usize].pool)
    }

    /// A connection's bell rang.
    #[inline]
    pub(super) fn rang(&mut self, c: u32) {
        match self.conns[c as usize].state {
            State::Reading => self.read(c),
            State::Opening => self.opening(c),
            State::Writing => {
                self.write(c);
                // An answer may come before the request is whole, and it may be that nothing more is taken.
                if self.conns[c as usize].state == State::Writing {
                    self.read(c);
                }
            }
            State::Idle | State::Thinking | State::Held => self.unasked(c),
            State::Vacant | State::WritePause | State::ReadPause => {}
        }
    }

    /// A connection's timer is due.
    pub(super) fn timer(&mut self, c: u32) {
        let conn = &mut self.conns[c as usize];
        match conn.state {
            State::Thinking => {
                let due = self.now;
                self.begin_request(c, due, due);
            }
            State::WritePause => {
                conn.state = State::Writing;
                self.write(c);
            }
            State::ReadPause => {
                conn.state = State::Reading;
                self.read(c);
            }
            // A SYN without more.
            State::Opening => self.vacate(c),
            _ => {}
        }
    }

    /// Begins a connection, for a request that is due or to have it.
    pub(super) fn open(&mut self, c: u32, wanted: Option<u64>) {
        let now = self.look();
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        pool.connections_left = pool.connections_left.saturating_sub(1);
        let conn = &mut self.conns[c as usize];
        conn.state = State::Opening;
        conn.since = now;
        conn.served = 0;
        conn.keep = true;
        conn.wanted = wanted.is_some();
        pool.opening += u32::from(wanted.is_none());
        conn.asked.intended = wanted.unwrap_or(0);
        match pool.routes.next(now, &mut self.rng) {
            Ok((target, connect)) => {
                conn.target = target;
                let secure = pool.plan.secure[usize::from(target)].clone();
                conn.stream = Stream::Opening(Box::pin(open(connect, secure)));
                if pool.plan.pool.behaviour == Behaviour::SynOnly {
                    self.at(now + SYN_GONE, c);
                }
                self.opening(c);
            }
            Err(unopened) => self.not_opened(c, unopened),
        }
    }

    fn opening(&mut self, c: u32) {
        match self.conns[c as usize].poll_open() {
            Poll::Pending => {}
            Poll::Ready(Ok(opened)) => self.opened(c, opened),
            Poll::Ready(Err(unopened)) => self.not_opened(c, unopened),
        }
    }

    fn opened(&mut self, c: u32, opened: Opened) {
        let now = self.look();
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        let tls = matches!(opened.stream, Stream::Tls(_));
        let (connect, secure) = (opened.connected - conn.since, opened.secured - opened.connected);
        pool.book.connected(now, connect, tls.then_some(secure));
        pool.opening -= u32::from(!conn.wanted);
        conn.stream = opened.stream;
        conn.reader = ResponseReader::new(LIMITS);
        conn.since = now;
        conn.wake_at = 0;
        if pool.plan.pool.behaviour != Behaviour::Normal {
            conn.state = State::Held;
            conn.more();
            return;
        }
        if std::mem::take(&mut conn.wanted) {
            let intended = conn.asked.intended;
            // It was begun when the request was due: the handshake is the server's time, and no slip of ours.
            self.begin_request(c, intended, now);
            return;
        }
        if matches!(self.stage, Stage::Run(_)) {
            self.free(c);
        } else {
            self.rest(c);
        }
    }

    fn not_opened(&mut self, c: u32, unopened: Unopened) {
        let now = self.look();
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        conn.stream = Stream::None;
        let pool = &mut self.pools[p];
        let wanted = std::mem::take(&mut conn.wanted);
        pool.opening -= u32::from(!wanted);
        let (intended, kind, why) = (conn.asked.intended, unopened.kind, unopened.why);
        if unopened.other_address {
            pool.book.named(now, "ports-tried-again");
        }
        conn.state = State::Vacant;
        pool.vacant.push(c);
        pool.hold = now + HOLD;
        if wanted {
            // The request went with it; it counts once.
            pool.book.request_not_connected(intended, now, kind, why);
        } else {
            pool.book.not_connected(now, kind, why);
        }
    }

    /// A connection without a request: waits for one, and hears if it is closed.
    fn rest(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        conn.state = State::Idle;
        conn.since = self.now;
        self.pools[p].idle.push_back(c);
        // Nothing should be there; if there is, it is looked at when the bell rings.
        if conn.more() && !matches!(conn.stream, Stream::Tls(_)) {
            self.unasked(c);
        }
    }

    /// A connection is free: it takes what is due, thinks, or waits.
    pub(super) fn free(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let now = self.now;
        let Stage::Run(end) = self.stage else {
            self.rest(c);
            return;
        };
        let pool = &mut self.pools[p];
        match pool.plan.pool.pace {
            Pace::Rate { .. } => {
                let due = pool.moments.as_ref().and_then(super::moments::Moments::peek);
                match due.filter(|m| *m <= now && *m < end && pool.requests_left > 0) {
                    Some(moment) if pool.idle.is_empty() => {
                        self.take_moment(p);
                        self.conns[c as usize].since = now;
                        self.begin_request(c, moment, now);
                    }
                    _ => self.rest(c),
                }
            }
            Pace::Closed if pool.requests_left == 0 => self.rest(c),
            Pace::Closed => {
                let think = &pool.plan.pool.think;
                if think.is_none() {
                    pool.requests_left -= 1;
                    self.begin_request(c, now, now);
                    return;
                }
                let time = think.nanos(u64::from(self.conns[c as usize].served), &mut self.rng);
                pool.requests_left -= 1;
                let conn = &mut self.conns[c as usize];
                conn.state = State::Thinking;
                conn.since = now;
                conn.more();
                self.at(now + time, c);
            }
        }
    }

    /// Sends a request whose moment was `intended` on a connection that has nothing else to do.
    pub(super) fn ask(&mut self, c: u32, intended: u64) {
        let due = intended.max(self.conns[c as usize].since);
        self.begin_request(c, intended, due);
    }

    /// `due`: when it could be sent; how much later it is sent is our slip.
    fn begin_request(&mut self, c: u32, intended: u64, due: u64) {
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let plan = &pool.plan;
        let conn = &mut self.conns[c as usize];
        let request = plan.requests.pick(&mut self.rng) as u16;
        conn.served += 1;
        conn.last = plan.pool.requests_per_connection.is_some_and(|most| u64::from(conn.served) >= most);
        let prepared =
            &plan.prepared[usize::from(conn.target) * plan.pool.requests.len() + usize::from(request)];
        if prepared.to_head {
            conn.reader.expect_no_body();
        }
        let checks = &plan.pool.requests[usize::from(request)].checks;
        if checks.content() {
            conn.extra().checker.get_or_insert_with(Checker::new).begin(checks);
        }
        let now = super::clock();
        self.now = now;
        conn.asked = Asked { intended, sent: now, request };
        conn.since = now;
        (conn.first_byte, conn.written, conn.content) = (0, 0, 0);
        conn.state = State::Writing;
        pool.book.sent(intended, due, now, prepared.len(conn.last));
        self.write(c);
        if self.pools[p].pipeline() > 1 {
            self.ask_behind(c);
        }
    }

    /// Goes on sending.
    fn write(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let pool = &self.pools[p];
        let conn = &mut self.conns[c as usize];
        let at = usize::from(conn.target) * pool.plan.pool.requests.len() + usize::from(conn.asked.request);
        let prepared = &pool.plan.prepared[at];
        let most = pool.plan.pool.write_rate.map_or(u64::MAX, |rate| (rate / PARTS).max(1));
        loop {
            let piece = prepared.piece(conn.written, conn.last);
            if piece.is_empty() {
                if let Poll::Ready(Err(e)) = conn.flush() {
                    self.write_failed(c, &e);
                    return;
                }
                conn.state = State::Reading;
                // An answer, or the end, rings.
                if conn.more() && !matches!(conn.stream, Stream::Plain(_)) {
                    self.read(c);
                }
                return;
            }
            let piece = &piece[..piece.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
            match conn.write(piece) {
                Poll::Ready(Ok(n)) => {
                    conn.written += n as u64;
                    conn.since = self.now;
                    if let Some(rate) = pool.plan.pool.write_rate
                        && conn.written < prepared.len(conn.last)
                    {
                        conn.state = State::WritePause;
                        let pause = (n as u64 * 1_000_000_000).div_ceil(rate);
                        self.at(self.now + pause, c);
                        return;
                    }
                }
                Poll::Ready(Err(e)) => {
                    self.write_failed(c, &e);
                    return;
                }
                Poll::Pending => {
                    conn.state = State::Writing;
                    return;
                }
            }
        }
    }

    /// The server may have said why before it closed.
    fn write_failed(&mut self, c: u32, e: &io::Error) {
        self.conns[c as usize].state = State::Reading;
        self.read(c);
        if self.conns[c as usize].state == State::Reading {
            self.fail(c, ErrorKind::of_io(e), || e.to_string());
        }
    }

    /// Reads what came of an answer.
    fn read(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let read_rate = self.pools[p].plan.pool.read_rate;
        let mut scratch = std::mem::take(&mut self.scratch);
        let most =
            read_rate.map_or(scratch.len(), |rate| ((rate / PARTS).max(1) as usize).min(scratch.len()));
        loop {
            let conn = &mut self.conns[c as usize];
            if !matches!(conn.state, State::Reading | State::Writing) {
                break;
            }
            let n = match conn.read(&mut scratch[..most]) {
                Poll::Pending => break,
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => {
                    self.look();
                    self.broken(c, &e);
                    break;
                }
            };
            let now = self.look();
            if n == 0 {
                self.ended(c);
                break;
            }
            self.conns[c as usize].since = now;
            self.pools[p].book.received(now, n as u64);
            self.feed(c, &scratch[..n]);
            let conn = &mut self.conns[c as usize];
            if let (State::Reading, Some(rate)) = (conn.state, read_rate) {
                conn.state = State::ReadPause;
                self.at(now + (n as u64 * 1_000_000_000).div_ceil(rate), c);
                break;
            }
            if n < most && !conn.more() {
                break;
            }
        }
        self.scratch = scratch;
    }

    /// Bytes of answers.
    fn feed(&mut self, c: u32, bytes: &[u8]) {
        let p = self.conn_pool(c);
        let mut at = 0;
        loop {
            let conn = &mut self.conns[c as usize];
            if !conn.busy() {
                // The connection went on to nothing, or was closed.
                return;
            }
            let checks = &self.pools[p].plan.pool.requests[usize::from(conn.asked.request)].checks;
            let (used, event) = match conn.reader.next(&bytes[at..]) {
                Ok(found) => found,
                Err(fault) => {
                    let kind = kind_of(fault);
                    self.fail(c, kind, || fault.to_string());
                    return;
                }
            };
            at += used;
            match event {
                None => return,
                Some(Event::Interim(_)) => {}
                Some(Event::Head(head)) => {
                    conn.status = head.status;
                    conn.keep = head.keep_alive;
                    conn.first_byte = if conn.first_byte == 0 { self.now } else { conn.first_byte };
                }
                Some(Event::Data(data)) => {
                    conn.content += data.len() as u64;
                    if checks.content()
                        && let Some(checker) = conn.extra.as_mut().and_then(|e| e.checker.as_mut())
                    {
                        checker.data(checks, data);
                    }
                    if conn.content > self.common.plan.max_body {
                        let most = self.common.plan.max_body;
                        self.fail(c, ErrorKind::TooLong, || format!("content of more than {most} bytes"));
                        return;
                    }
                }
                Some(Event::End) => {
                    self.answered(c);
                    let conn = &mut self.conns[c as usize];
                    if conn.extra.as_ref().is_some_and(|e| !e.behind.is_empty()) && conn.keep {
                        self.next_behind(c);
                        continue;
                    }
                    self.after(c, at < bytes.len());
                    return;
                }
            }
        }
    }

    /// The answer is whole.
    fn answered(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let now = self.now;
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        let Asked { intended, sent, request } = conn.asked;
        let first_byte = if conn.first_byte == 0 { now } else { conn.first_byte };
        pool.book.answered(&Sample { intended, sent, first_byte, done: now, code: conn.status });
        let checks = &pool.plan.pool.requests[usize::from(request)].checks;
        let mut verdict = checks.judge(conn.status, conn.content);
        if verdict.is_ok()
            && checks.content()
            && let Some(checker) = conn.extra.as_mut().and_then(|e| e.checker.as_mut())
        {
            verdict = checker.end(checks);
        }
        if let Err(wrong) = verdict {
            pool.book.error(intended, now, wrong.0, || wrong.1);
        }
    }

    /// What comes after an answer that nothing else is on its way behind.
    fn after(&mut self, c: u32, surplus: bool) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        if surplus {
            let asked = conn.asked;
            let now = self.now;
            self.pools[p].book.error(asked.intended, now, ErrorKind::Malformed, || {
                "bytes behind the answer that nobody asked for".to_owned()
            });
            self.close(c);
            return;
        }
        let behind = conn.extra.as_ref().map_or(0, |e| e.behind.len());
        if !conn.keep || conn.last || conn.written_short() {
            if behind > 0 {
                self.lose_behind(c, ErrorKind::Closed, "the server closed with requests on their way");
            }
            self.close(c);
            return;
        }
        if self.pools[p].active() > self.pools[p].allowed {
            self.close(c);
            return;
        }
        self.free(c);
    }

    /// The server ended the stream.
    fn ended(&mut self, c: u32) {
        let conn = &mut self.conns[c as usize];
        if conn.reader.is_between_messages() {
            self.fail(c, ErrorKind::Closed, || "closed before any answer".to_owned());
            return;
        }
        match conn.reader.finish() {
            Ok(Some(Event::End)) => {
                conn.keep = false;
                self.answered(c);
                self.after(c, false);
            }
            Ok(_) => self.fail(c, ErrorKind::Closed, || "closed before any answer".to_owned()),
            Err(fault) => self.fail(c, ErrorKind::Closed, || fault.to_string()),
        }
    }

    fn broken(&mut self, c: u32, e: &io::Error) {
        let kind = match ErrorKind::of_io(e) {
            // TLS says so when the stream ends without a farewell.
            ErrorKind::Closed => {
                self.ended(c);
                return;
            }
            kind => kind,
        };
        self.fail(c, kind, || e.to_string());
    }

    /// Something came on a connection that had asked for nothing.
    fn unasked(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let mut byte = [0; 512];
        let conn = &mut self.conns[c as usize];
        let what = match conn.read(&mut byte) {
            Poll::Pending => return,
            Poll::Ready(Ok(0) | Err(_)) => None,
            Poll::Ready(Ok(n)) => Some(n),
        };
        let now = self.look();
        if let Some(n) = what {
            self.pools[p].book.received(now, n as u64);
            self.pools[p]
                .book
                .error(now, now, ErrorKind::Malformed, || "bytes that nobody asked for".to_owned());
        } else {
            self.pools[p].book.named(now, "closed-idle");
        }
        let conn = &mut self.conns[c as usize];
        if conn.state == State::Idle {
            self.pools[p].idle.retain(|i| *i != c);
        }
        if conn.state == State::Thinking {
            // The request it thought about is still to be sent, by another connection.
            conn.wake_at = 0;
            self.pools[p].requests_left = self.pools[p].requests_left.saturating_add(1);
        }
        self.close(c);
    }

    /// The request came to nothing.
    pub(super) fn fail(&mut self, c: u32, kind: ErrorKind, why: impl FnOnce() -> String) {
        let p = self.conn_pool(c);
        let now = self.now;
        let intended = self.conns[c as usize].asked.intended;
        self.pools[p].book.error(intended, now, kind, why);
        self.lose_behind(c, kind, "lost with the request before it");
        self.close(c);
    }

    /// Closes a connection that stood; in a closed loop another takes its place at once.
    fn close(&mut self, c: u32) {
        let p = self.conn_pool(c);
        self.pools[p].book.closed(self.now);
        self.vacate(c);
        let Stage::Run(_) = self.stage else { return };
        let pool = &mut self.pools[p];
        let again = match pool.plan.pool.pace {
            Pace::Closed => pool.needs_more() && pool.active() < pool.allowed && self.now >= pool.hold,
            // Kept connections are kept ready; others are made when they are needed.
            Pace::Rate { .. } => false,
        };
        if again && let Some(c) = pool.vacant.pop() {
            self.open(c, None);
        }
    }

    /// Takes the stream away.
    fn vacate(&mut self, c: u32) {
        let p = self.conn_pool(c);
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
        }
        self.pools[p].vacant.push(c);
    }

    /// Whether a connection has made no progress for too long.
    pub(super) fn timed(&mut self, c: u32) {
        let timeout = self.common.plan.timeout.as_nanos() as u64;
        let conn = &self.conns[c as usize];
        if self.now.saturating_sub(conn.since) < timeout {
            return;
        }
        match conn.state {
            State::Opening => {
                let why = "no connection in time".to_owned();
                self.not_opened(c, Unopened { kind: ErrorKind::ConnectTimeout, why, other_address: false });
            }
            State::Reading | State::Writing => {
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
        let (state, intended, now) = (conn.state, conn.asked.intended, self.now);
        if conn.busy() {
            let why = || "still on its way when the run ended".to_owned();
            self.pools[p].book.error(intended, now, ErrorKind::Timeout, why);
            self.lose_behind(c, ErrorKind::Timeout, "still on its way when the run ended");
        }
        if !matches!(state, State::Vacant | State::Opening) {
            self.pools[p].book.closed(now);
        }
        self.conns[c as usize].stream = Stream::None;
        self.conns[c as usize].state = State::Vacant;
    }
}

fn kind_of(fault: flowlane_http::h1::Fault) -> ErrorKind {
    use flowlane_http::h1::Fault;
    match fault {
        Fault::HeadTooLong | Fault::TooManyFields | Fault::ExtensionsTooLong | Fault::TrailersTooLong => {
            ErrorKind::TooLong
        }
        _ => ErrorKind::Malformed,
    }
}
