//! The course of one connection: it is opened ([`super::opening`]), sends a request, reads the answer ([`super::answer`]), and sends
//! another or is closed ([`super::leave`]). This module has the idle connection and the sending of requests.
//!
//! ```text
//!   Vacant ▸ Opening ▸ Idle ▸ Writing ▸ Reading ─┬▸ Idle | Thinking ▸ ...
//!                                                └▸ Vacant (closed)
//! ```
//!
//! A request is one write, its answer one read: a read that does not fill the buffer has taken all bytes there are and is not repeated.
//! The clock is read next to the write and next to the read.

use std::io;
use std::task::Poll;

use flowlane_stack::rng::Rng;

use super::conn::{Conn, InFlight, State};
use super::engine::{Engine, Stage};
use super::plan::Pace;
use super::pool::PoolPlan;
use super::special;
use super::stream::Stream;
use crate::report::ErrorKind;
use crate::run::moments::Moments;

/// Parts of a second in which a slow reader or writer proceeds.
pub(super) const PARTS: u64 = 20;

impl Engine {
    pub(super) fn conn_pool(&self, c: u32) -> usize {
        usize::from(self.conns[c as usize].pool)
    }

    /// A connection is ready.
    #[inline]
    pub(super) fn rang(&mut self, c: u32) {
        match self.conns[c as usize].state {
            State::Reading => self.read(c),
            State::Opening => self.opening(c),
            State::Writing => {
                self.write(c);
                // It may have been an answer that rang: one may arrive before the whole request is sent.
                if self.conns[c as usize].state == State::Reading {
                    self.read(c);
                }
            }
            State::Idle | State::Thinking | State::Held => self.unasked(c),
            State::Vacant | State::WritePause | State::ReadPause => {}
        }
    }

    /// A connection's timer is due.
    pub(super) fn timer(&mut self, c: u32) {
        let mid_flow = self.is_mid_flow(c);
        let conn = &mut self.conns[c as usize];
        match conn.state {
            State::Thinking if mid_flow => self.next_step(c),
            State::Thinking if matches!(conn.stream, Stream::None) => {
                let p = self.conn_pool(c);
                if matches!(self.stage, Stage::Run(_)) && self.pools[p].requests_left > 0 {
                    self.open(c, None);
                } else {
                    self.vacate(c);
                }
            }
            State::Thinking if matches!(self.stage, Stage::Run(_)) => {
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
            // A SYN-only client.
            State::Opening => self.vacate(c),
            _ => {}
        }
    }

    /// A connection without a request becomes idle, and notices if the server closes it.
    pub(super) fn rest(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let conn = &mut self.conns[c as usize];
        conn.state = State::Idle;
        conn.since = self.now;
        conn.ticket = self.pools[p].idle.push(c);
        // Nothing should be there; if there is, it is handled when the connection is ready.
        if conn.more() && !matches!(conn.stream, Stream::Tls(_)) {
            self.unasked(c);
        }
    }

    /// A connection is free: it takes a request that is due, starts its think time, or becomes idle.
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
                let due = pool.moments.as_ref().and_then(crate::run::moments::Moments::peek);
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

    /// Sends a request with the intended time `intended` on a free connection.
    pub(super) fn ask(&mut self, c: u32, intended: u64) {
        let due = intended.max(self.conns[c as usize].since);
        self.begin_request(c, intended, due);
    }

    /// Starts a request that could be sent from `due` on; the delay after that is the generator's slip.
    pub(super) fn begin_request(&mut self, c: u32, intended: u64, due: u64) {
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let plan = &pool.plan;
        let conn = &mut self.conns[c as usize];
        // What went with the SYN (Fast Open) is the beginning of the request that was chosen then.
        let early = if conn.served == 0 { conn.written } else { 0 };
        let request = match early {
            0 if plan.requests.is_one() => 0,
            0 => choose(plan, conn, pool.moments.as_ref(), &mut self.rng),
            _ => conn.asked.request,
        };
        conn.served += 1;
        conn.last = plan.pool.requests_per_connection.is_some_and(|most| u64::from(conn.served) >= most);
        conn.special = !plan.prepared(conn.target, request).plain;
        if conn.special {
            special::begin(pool, conn, request, intended, &mut self.rng);
        }
        let now = crate::run::clock();
        self.now = now;
        let sent = if early > 0 { conn.asked.sent } else { now };
        conn.asked = InFlight { intended, sent, request };
        conn.since = now;
        (conn.first_byte, conn.written, conn.content) = (0, early, 0);
        conn.state = State::Writing;
        pool.book.sent(request, intended, due, now, early);
        self.write(c);
        if self.pools[p].pipeline() > 1 {
            self.ask_behind(c);
        }
    }

    /// Continues to send.
    pub(super) fn write(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        let made = conn.made().cloned();
        let prepared = match &made {
            None => pool.plan.prepared(conn.target, conn.asked.request),
            Some(made) => made,
        };
        let most = pool.plan.pool.write_rate.map_or(u64::MAX, |rate| (rate / PARTS).max(1));
        loop {
            let piece = prepared.piece(conn.written, conn.last);
            if piece.is_empty() {
                if let Poll::Ready(Err(e)) = conn.flush() {
                    self.write_failed(c, &e);
                    return;
                }
                conn.state = State::Reading;
                // The connection becomes ready with an answer or with its end. It may be ready already: with the answer to a request that
                // went with the SYN, or because a proxy's last word left it so.
                if conn.more() {
                    self.read(c);
                }
                return;
            }
            let piece = &piece[..piece.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
            match conn.write(piece) {
                Poll::Ready(Ok(n)) => {
                    conn.written += n as u64;
                    conn.since = self.now;
                    pool.book.wrote(conn.asked.intended, self.now, n as u64);
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
                    // A server may answer without reading the rest (413), and then there never is room.
                    if conn.more() {
                        self.read(c);
                    }
                    return;
                }
            }
        }
    }

    /// A write failed: the server may have answered before it closed (RFC 9112 §9.6, RFC 9110 §15.5.14), and what has arrived counts. If no
    /// answer is there, the request fails for this reason when the stream is found to have ended.
    pub(super) fn write_failed(&mut self, c: u32, e: &io::Error) {
        let kind = ErrorKind::of_io(e);
        if kind == ErrorKind::Local {
            self.fail(c, kind, || e.to_string());
            return;
        }
        let conn = &mut self.conns[c as usize];
        conn.state = State::Reading;
        conn.extra().unwritten = Some((kind, e.to_string()));
        self.read(c);
    }
}

/// The request that is next: the step that a flow is at, that with the method of the recorded one, or any by its weight.
fn choose(plan: &PoolPlan, conn: &Conn, moments: Option<&Moments>, rng: &mut Rng) -> u16 {
    if plan.pool.steps {
        return conn.extra.as_ref().and_then(|e| e.client.as_ref()).map_or(0, |client| client.step);
    }
    if let Some(recording) = &plan.pool.replay {
        return recording.method(special::recorded(moments, conn));
    }
    plan.requests.pick(rng) as u16
}
