//! Input from the server: answers, the end of the stream, and unexpected bytes.

use std::io;
use std::task::Poll;

use flowlane_http::h1::Event;
use flowlane_sys::words::said;

use super::conn::{InFlight, State};
use super::engine::Engine;
use super::exchange::PARTS;
use super::hop;
use super::{special, steps};
use crate::report::{ErrorKind, Sample};

impl Engine {
    /// Reads the available bytes of an answer.
    pub(super) fn read(&mut self, c: u32) {
        if self.scratch.is_empty() {
            // A request that follows an answer, while the buffer is in use for that.
            self.conns[c as usize].ring();
            return;
        }
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

    /// Parses bytes of answers.
    fn feed(&mut self, c: u32, bytes: &[u8]) {
        let p = self.conn_pool(c);
        let mut at = 0;
        loop {
            let conn = &mut self.conns[c as usize];
            if !conn.busy() {
                // No further request, or the connection was closed.
                return;
            }
            let (used, event) =
                match conn.reader.next(&bytes[at..]) {
                    Ok(found) => found,
                    Err(fault) => {
                        let (kind, first) = (kind_of(fault), conn.first_byte == 0);
                        // What is told apart by its first line is named by it.
                        self.fail(c, kind, || {
                            if first { no_http(fault, &bytes[at..]) } else { fault.to_string() }
                        });
                        return;
                    }
                };
            at += used;
            match event {
                None => return,
                Some(Event::Interim(_)) => {}
                Some(Event::Head(head)) => {
                    let (special, asked) = (conn.special, (conn.target, conn.asked.request));
                    conn.status = head.status;
                    conn.keep = head.keep_alive;
                    conn.first_byte = if conn.first_byte == 0 { self.now } else { conn.first_byte };
                    if head.status >= 300 {
                        let follow = self.pools[p].plan.pool.follow;
                        if let Some(location) = follow.and_then(|_| hop::location(&head)) {
                            let extra = conn.extra.get_or_insert_default();
                            extra.journey.get_or_insert_default().location = Some(location);
                        }
                    }
                    if special {
                        special::head(&self.pools[p].plan, &mut conn.extra, asked, &head);
                    }
                }
                Some(Event::Data(data)) => {
                    conn.content += data.len() as u64;
                    if conn.special {
                        let at = (conn.asked.request, conn.asked.intended, self.now);
                        if let Err(wrong) = special::data(&mut self.pools[p], &mut conn.extra, at, data) {
                            self.fail(c, wrong.0, || wrong.1);
                            return;
                        }
                    }
                    if conn.content > self.common.plan.max_body {
                        let most = self.common.plan.max_body;
                        self.fail(c, ErrorKind::TooLong, || format!("content of more than {most} bytes"));
                        return;
                    }
                }
                Some(Event::End) => {
                    if conn.is_redirected() {
                        self.follow(c, &bytes[at..]);
                        return;
                    }
                    self.answered(c);
                    let conn = &mut self.conns[c as usize];
                    if conn.extra.as_ref().is_some_and(|e| !e.behind.is_empty()) && conn.keep {
                        self.next_behind(c);
                        continue;
                    }
                    self.after(c, bytes.get(at..).filter(|surplus| !surplus.is_empty()));
                    return;
                }
            }
        }
    }

    /// The answer is complete.
    fn answered(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let now = self.now;
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        let InFlight { intended, sent, request } = conn.asked;
        let first_byte = if conn.first_byte == 0 { now } else { conn.first_byte };
        let checks = &pool.plan.pool.requests[usize::from(request)].checks;
        let mut verdict = checks.judge(conn.status, conn.content);
        let special = conn.special;
        if special && verdict.is_ok() {
            verdict = special::end(pool, &mut conn.extra, request, intended);
        }
        let fine = verdict.is_ok();
        let wrong = verdict.as_ref().err().map(|wrong| wrong.0);
        let sample = Sample { intended, sent, first_byte, done: now, code: conn.status };
        pool.book.answered(request, &sample, wrong);
        if let Err(wrong) = verdict {
            pool.book.error(Some(request), intended, now, wrong.0, || wrong.1);
        }
        if special && pool.plan.pool.steps {
            if fine {
                self.step_done(c);
            } else {
                self.flow_ends(c, true, steps::CUT);
            }
        }
    }

    /// What to do after an answer when no other request is in flight.
    fn after(&mut self, c: u32, surplus: Option<&[u8]>) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        if let Some(surplus) = surplus {
            let behind = conn.extra.as_ref().map_or(0, |e| e.behind.len());
            self.pools[p].book.unasked(self.now, || format!("{} behind an answer", said(surplus)));
            if behind > 0 {
                self.lose_behind(
                    c,
                    ErrorKind::Closed,
                    "closed for bytes behind an answer that nobody asked for",
                );
            }
            self.close(c);
            return;
        }
        if conn.extra.is_some() && self.goes_on(c) {
            return;
        }
        let conn = &mut self.conns[c as usize];
        let behind = conn.extra.as_ref().map_or(0, |e| e.behind.len());
        if !conn.keep || conn.last || conn.written_short() {
            if behind > 0 {
                self.lose_behind(c, ErrorKind::Closed, "the server closed with requests on their way");
            }
            self.close(c);
            return;
        }
        self.free_again(c);
    }

    /// The connection can be used further, if it is to.
    pub(super) fn free_again(&mut self, c: u32) {
        let p = self.conn_pool(c);
        if self.pools[p].active() > self.pools[p].allowed {
            self.close(c);
            return;
        }
        self.free(c);
    }

    /// The server has closed its side of the connection.
    fn ended(&mut self, c: u32) {
        let conn = &mut self.conns[c as usize];
        if conn.reader.is_between_messages() {
            self.cut(c, ErrorKind::Closed, "closed before any answer");
            return;
        }
        match conn.reader.finish() {
            Ok(Some(Event::End)) => {
                conn.keep = false;
                if conn.is_redirected() {
                    self.follow(c, &[]);
                    return;
                }
                self.answered(c);
                self.after(c, None);
            }
            Ok(_) => self.cut(c, ErrorKind::Closed, "closed before any answer"),
            Err(fault) => self.cut(c, ErrorKind::Closed, &fault.to_string()),
        }
    }

    /// The connection has ended before the answer has. If the request could not be written, that is why.
    fn cut(&mut self, c: u32, kind: ErrorKind, why: &str) {
        let unwritten = self.conns[c as usize].extra.as_mut().and_then(|e| e.unwritten.take());
        let (kind, why) = unwritten.unwrap_or_else(|| (kind, why.to_owned()));
        self.fail(c, kind, || why);
    }

    fn broken(&mut self, c: u32, e: &io::Error) {
        let kind = match ErrorKind::of_io(e) {
            // TLS reports a stream that ends without close_notify. Anybody on the way can end it so: content whose end is the end of the
            // stream may have been cut (RFC 9112 §9.8). An answer that says its length is complete already.
            ErrorKind::Closed if self.conns[c as usize].reader.is_in_body() => {
                self.fail(c, ErrorKind::Closed, || {
                    "the TLS connection ended in the content, without close_notify".to_owned()
                });
                return;
            }
            ErrorKind::Closed => {
                self.ended(c);
                return;
            }
            kind => kind,
        };
        self.cut(c, kind, &e.to_string());
    }

    /// Input on a connection without a request in flight.
    pub(super) fn unasked(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let mut bytes = [0; 512];
        let conn = &mut self.conns[c as usize];
        let what = match conn.read(&mut bytes) {
            Poll::Pending => return,
            Poll::Ready(Ok(0) | Err(_)) => None,
            Poll::Ready(Ok(n)) => Some(n),
        };
        let now = self.look();
        if let Some(n) = what {
            self.pools[p].book.received(now, n as u64);
            // A server may say so when it has waited long enough (RFC 9110 §15.5.9, 408): no request has failed.
            self.pools[p].book.unasked(now, || said(&bytes[..n]));
        } else {
            self.pools[p].book.named(now, "closed-idle");
        }
        let conn = &mut self.conns[c as usize];
        if std::mem::take(&mut conn.ticket) != 0 {
            let conns = &self.conns;
            self.pools[p].idle.left(|i| conns[i as usize].ticket);
        }
        if self.is_mid_flow(c) {
            self.pools[p].book.closed(now);
            self.lose_stream(c);
            return;
        }
        let conn = &mut self.conns[c as usize];
        if conn.state == State::Thinking {
            // The request after the think time is sent on another connection.
            conn.wake_at = 0;
            let pool = &mut self.pools[p];
            pool.requests_left = pool.requests_left.saturating_add(1);
            pool.quiet = pool.first;
        }
        self.close(c);
    }
}

/// Why what came is no answer; what it is, if it is none of HTTP at all.
fn no_http(fault: flowlane_http::h1::Fault, bytes: &[u8]) -> String {
    use flowlane_http::h1::Fault;
    match bytes {
        _ if !matches!(fault, Fault::BadVersion | Fault::BadStartLine) => fault.to_string(),
        [b'H', b'T', b'T', b'P', b'/', ..] => fault.to_string(),
        // An alert of TLS (RFC 8446 §6), and the SETTINGS with which HTTP/2 begins (RFC 9113 §3.4).
        [21, 3, ..] => "the server speaks TLS: https:// in place of http://".to_owned(),
        [0, _, _, 4, 0 | 1, 0, 0, 0, 0, ..] => "the server speaks HTTP/2 here: --http2".to_owned(),
        _ => format!("the server does not speak HTTP: it says {}", said(bytes)),
    }
}

fn kind_of(fault: flowlane_http::h1::Fault) -> ErrorKind {
    use flowlane_http::h1::Fault;
    match fault {
        Fault::HeadTooLong
        | Fault::TooManyFields
        | Fault::ExtensionsTooLong
        | Fault::TrailersTooLong
        | Fault::TooManyInterim => ErrorKind::TooLong,
        _ => ErrorKind::Malformed,
    }
}
