//! Sending requests that are due, and opening the connections that should be open.

use super::conn::{Conn, State};
use super::engine::{BATCH, Engine, Stage};
use super::plan::{Behaviour, Pace};
use super::pool::BURST_EVERY;
use crate::run::{GRACE, TICK};

impl Engine {
    /// Sends the requests and opens the connections that are due; returns when to continue.
    pub(super) fn run(&mut self, end: u64) -> u64 {
        let late = self.now >= end;
        if self.common.gate.stopped() || self.now >= end + GRACE || (late && !self.behind(end)) {
            return self.stop(end);
        }
        let mut next = if late { self.now + TICK } else { end };
        self.next_due = u64::MAX;
        let mut over = true;
        for p in 0..self.pools.len() {
            let pool = &self.pools[p];
            if let Some(shared) = &pool.beside {
                over &= shared.is_done(&self.bell);
                continue;
            }
            if pool.exhausted() {
                over &= self.is_quiet(p);
                continue;
            }
            over = false;
            let (behaviour, pace) = (pool.plan.pool.behaviour, pool.plan.pool.pace);
            let again = match (behaviour, pace) {
                (Behaviour::Normal, Pace::Rate { .. }) => {
                    let again = self.dispatch(p, end);
                    self.next_due = self.next_due.min(again);
                    if !late {
                        let pool = &mut self.pools[p];
                        let next = pool.moments.as_ref().and_then(crate::run::moments::Moments::peek);
                        pool.kept_up = next.is_none_or(|moment| moment > self.now);
                    }
                    again
                }
                (_, Pace::Rate { .. }) => self.begin_attempts(p, end),
                (_, Pace::Closed) => self.first_requests(p).min(self.fill(p)),
            };
            next = next.min(again);
        }
        if over {
            return if self.waits() { next.min(self.now + TICK) } else { self.stop(end) };
        }
        next
    }

    /// Sends the requests that have become due since the clock was last read.
    pub(super) fn overdue(&mut self) {
        if self.now >= self.next_tick {
            self.bend();
        }
        self.next_due = u64::MAX;
        let Stage::Run(end) = self.stage else { return };
        for p in 0..self.pools.len() {
            let pool = &self.pools[p];
            let asks = pool.plan.pool.behaviour == Behaviour::Normal && pool.beside.is_none();
            if asks && pool.moments.is_some() && !pool.exhausted() && self.now < end {
                let again = self.dispatch(p, end);
                self.next_due = self.next_due.min(again);
            }
        }
    }

    /// Whether no connection of a pool has a request in flight or in its think time. No more requests are started, so a connection
    /// without one stays without.
    fn is_quiet(&mut self, p: usize) -> bool {
        let pool = &mut self.pools[p];
        let end = pool.last;
        let rest = &self.conns[pool.quiet as usize..end as usize];
        let works = |c: &Conn| c.busy() || c.state == State::Thinking;
        let next = rest.iter().position(|c| usize::from(c.pool) == p && works(c));
        pool.quiet = next.map_or(end, |n| pool.quiet + n as u32);
        pool.quiet == end
    }

    /// Takes the connection that has been idle longest.
    pub(super) fn take_idle(&mut self, p: usize) -> Option<u32> {
        let conns = &mut self.conns;
        let conn = self.pools[p].idle.pop(|c| conns[c as usize].ticket)?;
        conns[conn as usize].ticket = 0;
        Some(conn)
    }

    /// Whether requests due before the end are unsent only because the generator is late: a connection is free for one, or none waited
    /// for a connection when the generator was last in time.
    fn behind(&self, end: u64) -> bool {
        self.pools.iter().any(|pool| {
            let due = pool.moments.as_ref().and_then(crate::run::moments::Moments::peek);
            let free = !pool.idle.is_empty() || (!pool.connects_first() && pool.has_room());
            let asks = pool.plan.pool.behaviour == Behaviour::Normal && pool.requests_left > 0;
            asks && (free || pool.kept_up) && due.is_some_and(|moment| moment < end)
        })
    }

    /// Open loop: sends a request for each scheduled time that has passed.
    fn dispatch(&mut self, p: usize, end: u64) -> u64 {
        for _ in 0..BATCH {
            let pool = &mut self.pools[p];
            let Some(moment) = pool.moments.as_ref().and_then(crate::run::moments::Moments::peek) else {
                return end;
            };
            if moment >= end {
                return end;
            }
            if moment > self.now {
                // Connections that the server closed are reopened while there is time.
                let refill = if pool.connects_first() { self.fill(p) } else { u64::MAX };
                // If the lane wakes earlier, the request is sent then; at the end of the schedule there is no waiting. If the next
                // request is due later than the slack, waiting saves nothing.
                let slack = self.common.slack;
                let slack = if self.pools[p].gap <= slack { slack } else { 0 };
                return (moment + slack).min(end).min(refill);
            }
            if pool.requests_left == 0 {
                return end;
            }
            if let Some(conn) = self.take_idle(p) {
                self.take_moment(p);
                self.ask(conn, moment);
                continue;
            }
            let pool = &mut self.pools[p];
            match if pool.has_room() { pool.may_open(self.now) } else { Err(u64::MAX) } {
                Ok(()) => {
                    let Some(conn) = pool.vacant.pop() else { return u64::MAX };
                    self.take_moment(p);
                    self.opens_for_recorded(p, conn);
                    self.open(conn, Some(moment));
                }
                Err(again) => {
                    if pool.blocked.is_none_or(|since| since != moment) {
                        pool.blocked = Some(moment);
                        pool.book.held_up(moment);
                    }
                    return again;
                }
            }
        }
        self.now
    }

    /// Removes the time that is due from the schedule.
    pub(super) fn take_moment(&mut self, p: usize) {
        let pool = &mut self.pools[p];
        pool.requests_left = pool.requests_left.saturating_sub(1);
        pool.blocked = None;
        if let Some(moments) = &mut pool.moments {
            let taken = moments.peek().unwrap_or(0);
            moments.advance();
            pool.gap = moments.peek().map_or(u64::MAX, |next| next - taken);
        }
    }

    /// A connection is opened for the recorded request that was taken, which others may follow before it stands.
    fn opens_for_recorded(&mut self, p: usize, c: u32) {
        let pool = &self.pools[p];
        if let (Some(recording), Some(moments)) = (&pool.plan.pool.replay, &pool.moments) {
            let (taken, conn) = (moments.taken(), &mut self.conns[c as usize]);
            conn.asked.request = recording.method(usize::try_from(taken).unwrap_or(0));
            // Guard: `Some(taken)` as `None` fails load/http::replay::each_recorded_request_is_sent_once
            conn.extra().client.get_or_insert_default().recorded = Some(taken);
        }
    }

    /// SYN-only clients: a connection attempt at each scheduled time.
    fn begin_attempts(&mut self, p: usize, end: u64) -> u64 {
        for _ in 0..BATCH {
            let pool = &mut self.pools[p];
            let Some(moment) = pool.moments.as_ref().and_then(crate::run::moments::Moments::peek) else {
                return end;
            };
            if moment > self.now {
                return moment;
            }
            let Some(conn) = pool.vacant.pop() else { return self.now + BURST_EVERY };
            self.take_moment(p);
            self.open(conn, None);
        }
        self.now
    }

    /// Opens connections until there are as many as there should be; returns when to continue.
    pub(super) fn fill(&mut self, p: usize) -> u64 {
        self.pools[p].allowed = self.allowed(p);
        loop {
            let pool = &mut self.pools[p];
            if !pool.has_room() || !pool.needs_more() {
                return u64::MAX;
            }
            if self.now < pool.rests_until {
                return pool.rests_until;
            }
            if let Err(again) = pool.may_open(self.now) {
                return again;
            }
            let Some(conn) = pool.vacant.pop() else { return u64::MAX };
            self.open_another(conn);
        }
    }

    /// Number of connections in the current phase.
    fn allowed(&self, p: usize) -> u32 {
        let pool = &self.pools[p];
        let Stage::Run(_) = self.stage else { return pool.wanted };
        if pool.plan.pool.pace != Pace::Closed {
            return pool.wanted;
        }
        let factor = self.common.factor(self.now);
        (f64::from(pool.wanted) * factor).ceil().clamp(0.0, f64::from(pool.wanted)) as u32
    }
}
