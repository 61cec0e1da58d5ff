//! Pipelining: several requests in flight on a connection.
//!
//! Requests behind the first are collected and sent with one write; answers arrive in the same order (RFC 9112 §9.3.2). When a connection
//! ends, its requests fail, and each is counted.

use std::task::Poll;

use super::check::Checker;
use super::conn::{InFlight, State};
use super::engine::{Engine, Stage};
use crate::report::ErrorKind;

impl Engine {
    /// Adds requests behind the first, while there are any to send.
    pub(super) fn ask_behind(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let Stage::Run(end) = self.stage else { return };
        let mut bytes = std::mem::take(&mut self.conns[c as usize].extra().unsent);
        loop {
            let pool = &mut self.pools[p];
            let conn = &mut self.conns[c as usize];
            if conn.state != State::Reading || conn.last || conn.on_their_way() >= pool.pipeline() {
                break;
            }
            let due = match &pool.moments {
                None => Some(self.now),
                Some(moments) => moments.peek().filter(|m| *m <= self.now && *m < end),
            };
            let Some(intended) = due.filter(|_| pool.requests_left > 0) else { break };
            let plan = pool.plan.clone();
            let request = plan.requests.pick(&mut self.rng) as u16;
            conn.served += 1;
            conn.last = plan.pool.requests_per_connection.is_some_and(|most| u64::from(conn.served) >= most);
            let prepared = plan.prepared(conn.target, request);
            bytes.extend_from_slice(prepared.first(conn.last));
            let sent = self.now;
            pool.book.sent(request, intended, intended.max(conn.since), sent, 0);
            conn.extra().behind.push_back(InFlight { intended, sent, request });
            self.take_moment(p);
        }
        self.conns[c as usize].extra().unsent = bytes;
        self.push_unsent(c);
    }

    /// Writes the rest of pipelined requests.
    pub(super) fn push_unsent(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let now = self.now;
        let conn = &mut self.conns[c as usize];
        let mut bytes = std::mem::take(&mut conn.extra().unsent);
        let mut done = 0;
        while done < bytes.len() {
            match conn.write(&bytes[done..]) {
                Poll::Ready(Ok(0)) | Poll::Pending => break,
                Poll::Ready(Ok(n)) => {
                    done += n;
                    self.pools[p].book.wrote(conn.asked.intended, now, n as u64);
                }
                // The next read returns the error, after the answers that arrived before it.
                Poll::Ready(Err(_)) => {
                    done = bytes.len();
                }
            }
        }
        bytes.drain(..done);
        conn.extra().unsent = bytes;
    }

    /// Makes the next request in flight the current one.
    pub(super) fn next_behind(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let now = self.now;
        let conn = &mut self.conns[c as usize];
        let Some(asked) = conn.extra().behind.pop_front() else { return };
        conn.asked = asked;
        (conn.first_byte, conn.content, conn.since) = (0, 0, now);
        let plan = self.pools[p].plan.clone();
        let at = usize::from(conn.target) * plan.pool.requests.len() + usize::from(asked.request);
        if plan.prepared[at].to_head {
            conn.reader.expect_no_body();
        }
        let checks = &plan.pool.requests[usize::from(asked.request)].checks;
        if checks.content() {
            conn.extra().checker.get_or_insert_with(Checker::new).begin(checks);
        }
        // Half the pipeline is free: enough for a write.
        if conn.on_their_way() * 2 <= self.pools[p].pipeline() {
            self.ask_behind(c);
        }
    }

    /// Counts the requests behind the first as failed with the connection.
    pub(super) fn lose_behind(&mut self, c: u32, kind: ErrorKind, why: &str) {
        let p = self.conn_pool(c);
        let now = self.now;
        let conn = &mut self.conns[c as usize];
        let Some(extra) = &mut conn.extra else { return };
        for asked in extra.behind.drain(..) {
            self.pools[p].book.error(Some(asked.request), asked.intended, now, kind, || why.to_owned());
        }
        extra.unsent.clear();
    }

    /// The same when the run was stopped: they have not failed.
    pub(super) fn leave_behind(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let Some(extra) = &mut self.conns[c as usize].extra else { return };
        for asked in extra.behind.drain(..) {
            self.pools[p].book.unfinished(asked.intended, 1);
        }
        extra.unsent.clear();
    }
}
