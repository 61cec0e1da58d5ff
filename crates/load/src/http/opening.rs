//! Opening connections, for a request that is due or in advance.

use std::task::Poll;

use flowlane_http::h1::ResponseReader;

use super::conn::{InFlight, LIMITS, State};
use super::engine::{Engine, Stage};
use super::open::{Aimed, begin};
use super::plan::Behaviour;
use super::steps;
use super::stream::{Opened, Stream, Unopened};
use super::way::open;
use crate::report::ErrorKind;
use crate::run::HOLD;
use crate::run::door::Refusal;

/// Time after which a SYN-only attempt is aborted, nanoseconds.
const SYN_GONE: u64 = 1_000_000;

impl Engine {
    /// Closed loop: opens another connection. If each request has its own connection, it is opened after the think time, so that the
    /// handshake happens when the request is sent.
    pub(super) fn open_another(&mut self, c: u32) {
        let p = self.conn_pool(c);
        let pool = &self.pools[p];
        if !pool.is_request_of_its_own() || pool.plan.pool.think.is_none() {
            self.open(c, None);
            return;
        }
        let number = u64::from(self.conns[c as usize].served);
        let time = pool.plan.pool.think.nanos(number, &mut self.rng);
        let conn = &mut self.conns[c as usize];
        conn.state = State::Thinking;
        conn.since = self.now;
        self.at(self.now + time, c);
    }

    /// Starts to open a connection, for a request that is due or in advance.
    pub(super) fn open(&mut self, c: u32, wanted: Option<u64>) {
        let now = self.look();
        let p = self.conn_pool(c);
        let running = matches!(self.stage, Stage::Run(_));
        let again = self.is_mid_flow(c);
        let pool = &mut self.pools[p];
        let fast_open = pool.plan.pool.fast_open;
        let mut wanted = wanted;
        if fast_open && running && wanted.is_none() && pool.requests_left > 0 {
            // Closed loop: the SYN takes the request along, so it is taken now.
            pool.requests_left -= 1;
            wanted = Some(now);
        }
        pool.connections_left = pool.connections_left.saturating_sub(1);
        let conn = &mut self.conns[c as usize];
        conn.state = State::Opening;
        conn.since = now;
        conn.served = 0;
        conn.written = 0;
        conn.keep = true;
        conn.wanted = wanted.is_some();
        pool.opening += u32::from(wanted.is_none());
        conn.asked.intended = wanted.unwrap_or(0);
        // A flow goes on at the target at which it began.
        let again = again.then(|| conn.aimed());
        match pool.routes.next(again, now, &mut self.rng) {
            Ok((Aimed { target, address }, connect)) => {
                (conn.target, conn.address) = (target, address);
                let mut first: &[u8] = &[];
                if fast_open && conn.wanted {
                    let request = pool.plan.requests.pick(&mut self.rng) as u16;
                    conn.asked = InFlight { intended: conn.asked.intended, sent: now, request };
                    first = pool.plan.prepared(target, conn.asked.request).first(true);
                }
                conn.stream = match &pool.plan.ways[usize::from(target)] {
                    Some(way) => Stream::Opening(Box::pin(open(connect, Some(way.clone())))),
                    None => match begin(&connect, first) {
                        Ok((tcp, taken)) => {
                            conn.written = taken as u64;
                            Stream::Plain(tcp)
                        }
                        Err(unopened) => return self.not_opened(c, unopened),
                    },
                };
                if pool.plan.pool.behaviour == Behaviour::SynOnly {
                    self.at(now + SYN_GONE, c);
                }
                self.opening(c);
            }
            Err(unopened) => self.not_opened(c, unopened),
        }
    }

    pub(super) fn opening(&mut self, c: u32) {
        match self.conns[c as usize].poll_open() {
            Poll::Pending => {}
            Poll::Ready(Ok(opened)) if self.conns[c as usize].hop().is_some() => self.arrived(c, opened),
            Poll::Ready(Ok(opened)) => self.opened(c, opened),
            Poll::Ready(Err(unopened)) => self.not_opened(c, unopened),
        }
    }

    fn opened(&mut self, c: u32, opened: Opened) {
        let now = self.look();
        let p = self.conn_pool(c);
        let pool = &mut self.pools[p];
        let conn = &mut self.conns[c as usize];
        pool.routes.stands(conn.aimed());
        self.common.gate.door.opens();
        let tls = matches!(opened.stream, Stream::Tls(_));
        let begun = conn.since;
        let (connect, secure) = (opened.connected - conn.since, opened.secured - opened.connected);
        pool.book.connected(now, connect, tls.then_some(secure));
        pool.book.handshake(now, opened.resumed);
        pool.opening -= u32::from(!conn.wanted);
        pool.pacing.stood(now, connect);
        if conn.written > 0
            && let Stream::Plain(tcp) = &opened.stream
        {
            let taken = tcp.info().is_ok_and(|info| info.syn_data);
            pool.book.named(conn.asked.intended, if taken { "syn-data" } else { "syn-data-resent" });
        }
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
            // The connection was opened when the request was due: the handshake counts as the server's time, not as slip.
            self.begin_request(c, intended, now);
            return;
        }
        if matches!(self.stage, Stage::Run(_)) {
            if pool.is_request_of_its_own() && pool.requests_left > 0 {
                // The request began with opening the connection: the handshake is part of the latency, as in an open loop.
                pool.requests_left -= 1;
                self.begin_request(c, begun, now);
                return;
            }
            self.free(c);
        } else {
            self.rest(c);
        }
    }

    pub(super) fn not_opened(&mut self, c: u32, unopened: Unopened) {
        if self.conns[c as usize].hop().is_some() {
            self.not_arrived(c, unopened);
            return;
        }
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
        if pool.routes.failed(conn.aimed(), kind) {
            // Another address of the name is tried in its place; this is no failure of the run.
            pool.connections_left = pool.connections_left.saturating_add(1);
            self.open(c, wanted.then_some(intended));
            return;
        }
        pool.vacant.push(c);
        if kind == ErrorKind::Refused && self.is_shut_out(p) {
            return;
        }
        let pool = &mut self.pools[p];
        pool.hold = now + HOLD;
        let conn = &self.conns[c as usize];
        pool.pacing.failed(now, now.saturating_sub(conn.since));
        if wanted {
            // The request failed with the connection; it counts once. The next one on this connection is another.
            if let Some(client) =
                self.conns[c as usize].extra.as_mut().and_then(|extra| extra.client.as_mut())
            {
                client.recorded = None;
            }
            let request = self.conns[c as usize].asked.request;
            pool.book.request_not_connected(request, intended, now, kind, why);
            self.flow_ends(c, true, steps::CUT);
        } else {
            pool.book.not_connected(now, kind, why);
        }
    }

    /// After a refusal: whether it need not be counted, since the run has ended for it. A run all of whose targets refuse before anything
    /// was ever connected ends with the first refusal: nobody listens there.
    fn is_shut_out(&mut self, p: usize) -> bool {
        let all = self.pools.iter().all(|pool| pool.count == 0 || pool.routes.all_given_up());
        if !all || self.pools[p].plan.pool.behaviour == Behaviour::SynOnly {
            return false;
        }
        match self.common.gate.door.refuses() {
            Refusal::First => {
                self.failure = Some(self.pools[p].routes.nobody_listens());
                self.common.gate.stop();
                false
            }
            Refusal::Again => true,
            Refusal::Later => false,
        }
    }
}
