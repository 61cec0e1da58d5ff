//! The stages of a run in a lane: connect, wait for the other lanes, run, wait for answers, end.

use std::sync::Arc;

use super::beside::Shared;
use super::conn::Conn;
use super::engine::{Engine, FIRSTS, NOBODY, Stage};
use super::plan::{Behaviour, Version};
use super::pool::PoolState;
use super::run::LaneResult;
use super::{h2, h3};
use crate::report::Recorder;
use crate::run::{HURRY, TICK, timeline};

/// Starts tasks in this lane, so many connections, of a pool that runs beside the engine.
pub(super) fn start_tasks(shared: &Arc<Shared>, version: Version, connections: u32) {
    match version {
        Version::Http3 { .. } => h3::start(shared, connections),
        _ => h2::start(shared, connections),
    }
}

impl Engine {
    /// Opens connections before the first request, if connections are kept open.
    pub(super) fn connect(&mut self) -> u64 {
        let mut next = u64::MAX;
        let mut waiting = false;
        for p in 0..self.pools.len() {
            if !self.pools[p].connects_first() {
                continue;
            }
            next = next.min(self.fill(p));
            let pool = &self.pools[p];
            let (failed, opening) = (pool.hold > self.now, pool.opening > 0);
            waiting |= opening || (!pool.vacant.is_empty() && pool.needs_more() && !failed);
            // The target refuses some: the run starts with those established, if any.
            waiting |= failed && !pool.book.ever_opened;
        }
        let standing = self.pools.iter().map(|p| p.book.open()).sum();
        self.common.stand(self.bucket, standing);
        if standing > self.stood.0 {
            self.stood = (standing, self.now);
        }
        let nobody = self.now - self.begun > NOBODY && !self.anybody();
        if nobody || self.common.gate.stopped() {
            return self.give_up();
        }
        // However many there are to open, as long as their number grows.
        let late = self.now - self.stood.1 > self.common.plan.timeout.as_nanos() as u64 + NOBODY;
        if waiting && !late {
            return next;
        }
        self.stage = Stage::Line;
        self.common.gate.arrive();
        self.line()
    }

    /// Whether any connection was ever established, or none is needed.
    pub(super) fn anybody(&self) -> bool {
        let needed = self.pools.iter().filter(|p| p.count > 0);
        needed.clone().next().is_none()
            || needed.clone().any(|p| p.ever_opened() || p.first_error().is_none())
    }

    /// Ends before the start: no connection could be established, or the run was stopped.
    fn give_up(&mut self) -> u64 {
        if !self.common.gate.stopped() {
            self.failure = self.pools.iter().find_map(PoolState::first_error);
            self.common.gate.stop();
        }
        if self.stage == Stage::Connect {
            self.common.gate.arrive();
        }
        self.begin(self.now);
        self.end();
        u64::MAX
    }

    /// Waits for the common start.
    pub(super) fn line(&mut self) -> u64 {
        if self.common.gate.stopped() {
            return self.give_up();
        }
        let Some(start) = self.common.gate.look() else { return self.now + 500_000 };
        if start > self.now {
            return start;
        }
        self.begin(start);
        let end = start + self.common.plan.duration().as_nanos() as u64;
        self.stage = Stage::Run(end);
        for p in 0..self.pools.len() {
            if self.pools[p].is_beside() {
                let shared = Shared::new(&self.common, &mut self.pools[p], end, &mut self.rng);
                start_tasks(&shared, self.pools[p].plan.pool.version, self.pools[p].count);
                self.pools[p].beside = Some(shared);
            } else {
                self.pools[p].unstarted = self.pools[p].idle.len() as u32;
            }
        }
        self.run(end)
    }

    /// Starts the recorders and computes the schedules.
    fn begin(&mut self, start: u64) {
        let span = timeline::span(&self.common.plan.phases, start);
        for (p, pool) in self.pools.iter_mut().enumerate() {
            let recorder =
                Recorder::new(self.common.part.number(self.bucket), p, u64::from(pool.count), span.clone())
                    .with_requests(pool.plan.pool.requests.len())
                    .logging_to(self.common.log());
            pool.book.begin(recorder, self.common.snapshots(), &span);
            pool.schedule(&self.common.plan.phases, start, &mut self.rng);
        }
    }

    /// Closed loop: every established connection begins with a request or a think time. Handles some now and returns when to continue.
    pub(super) fn first_requests(&mut self, p: usize) -> u64 {
        for _ in 0..self.pools[p].unstarted.min(FIRSTS) {
            self.pools[p].unstarted -= 1;
            let Some(conn) = self.take_idle(p) else {
                // The others were closed by the server.
                self.pools[p].unstarted = 0;
                break;
            };
            self.free(conn);
        }
        if self.pools[p].unstarted == 0 { u64::MAX } else { self.now }
    }

    /// Stops sending, and counts requests that were due and not sent.
    pub(super) fn stop(&mut self, end: u64) -> u64 {
        let now = self.now;
        let end = end.min(now);
        for pool in &mut self.pools {
            match &pool.beside {
                Some(shared) => shared.asked_all(),
                None => pool.book.asked_all(),
            }
            let Some(moments) = &mut pool.moments else { continue };
            if pool.plan.pool.behaviour != Behaviour::Normal || self.common.gate.door.is_shut() {
                continue;
            }
            let ours = !pool.idle.is_empty();
            let (book, most) = (&mut pool.book, pool.requests_left);
            pool.requests_left -= moments.pass(end, most, |moment, n| book.unsent(moment, now, n, ours));
        }
        let mut waiting = self.common.plan.waiting.as_nanos() as u64;
        if self.common.gate.stopped() {
            waiting = waiting.min(HURRY);
        }
        let (limit, handshakes) = (now + waiting, now + waiting.min(HURRY));
        self.stage = Stage::Drain(limit, handshakes);
        self.drain(limit, handshakes)
    }

    /// Waits for outstanding answers, and for handshakes that the server may already count as connections.
    pub(super) fn drain(&mut self, mut limit: u64, handshakes: u64) -> u64 {
        // Stopped only now: nobody wants to wait as long as was said before.
        // Guard: `self.common.gate.stopped() && limit > self.now + HURRY` as `false` fails load/http::counts::a_run_that_is_interrupted_while_it_waits
        if self.common.gate.stopped() && limit > self.now + HURRY {
            limit = self.now + HURRY;
            self.stage = Stage::Drain(limit, handshakes);
        }
        // Nothing new is started, so a connection that is not busy stays so and need not be checked again.
        let idle = self.conns[self.drained..].iter().position(Conn::busy);
        self.drained = idle.map_or(self.conns.len(), |n| self.drained + n);
        let mut busy = self.drained < self.conns.len();
        busy |= self.now < handshakes && self.pools.iter().any(PoolState::shakes_hands);
        for shared in self.pools.iter().filter_map(|p| p.beside.as_ref()) {
            busy |= !shared.is_done(&self.bell);
        }
        if busy && self.now < limit {
            return limit.min(self.now + TICK);
        }
        self.end();
        u64::MAX
    }

    /// The end: outstanding answers count as missing.
    fn end(&mut self) {
        for conn in 0..self.conns.len() as u32 {
            self.abandon(conn);
        }
        for pool in &mut self.pools {
            if let Some(shared) = pool.beside.take() {
                self.failure = self.failure.take().or_else(|| shared.nobody_listens());
                pool.book = shared.take_book();
            }
        }
        // Nothing was done since.
        let now = self.idle_since.unwrap_or(self.now);
        let records = self.pools.iter_mut().filter_map(|pool| pool.book.finish(now)).collect();
        self.stage = Stage::Done;
        self.common.outcomes.add(LaneResult { records, end: now, failure: self.failure.take() });
    }
}
