//! The generator in one lane: one task that drives all the lane's connections.
//!
//! ```text
//!   poll:  connections that rang ▸ timers ▸ what is due ▸ now and then: timeouts, progress        nothing? ▸ sleep
//! ```
//!
//! The task owns every connection, so nothing is locked, and there is one scratch buffer for all reads. A connection
//! that can go on rings its bell (see [`super::ready`]); what is due comes from the schedule of each pool, and when no
//! connection is free it stays due, with its intended moment, until one is: latency counts from there.
//!
//! Stages: `Connect` (connections are made), `Line` (this lane waits for the others), `Run`, `Drain` (answers on their
//! way are waited for), `Done`. What one connection does is in [`super::exchange`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use flowlane::{Sleep, Time};
use flowlane_stack::rng::Rng;

use super::clock;
use super::conn::Conn;
use super::h2;
use super::plan::{Behaviour, Pace};
use super::pool::{BURST_EVERY, PoolState};
use super::ready::{Bell, Ready};
use super::run::{Common, LaneResult};
use crate::report::{Recorder, Span};

/// Connections looked at, and requests begun, before the worker does its other work.
const BATCH: usize = 256;
/// Time between two looks at what is slow.
const TICK: u64 = 50_000_000;
/// Bytes read at once.
const SCRATCH: usize = 64 << 10;
/// The kernel wakes a sleeper late by about so much: so near to a moment the worker stays awake.
const NEAR: u64 = 30_000;
/// How long somebody may be waited for who never connects, when nobody else did either.
const NOBODY: u64 = 3_000_000_000;
/// How long a generator that is behind goes on after the end of the schedule.
const GRACE: u64 = 1_000_000_000;
/// Wait for answers after somebody asked for the end, and for handshakes that were under way at the end.
const HURRY: u64 = 300_000_000;

/// Where a run stands in this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Connections are made.
    Connect,
    /// The other lanes are waited for.
    Line,
    /// Requests are sent, until this moment.
    Run(u64),
    /// Answers are waited for, until this moment; handshakes until the other.
    Drain(u64, u64),
    /// Over.
    Done,
}

/// The generator in one lane.
pub(super) struct Engine {
    pub(super) common: Arc<Common>,
    bucket: u16,
    pub(super) pools: Vec<PoolState>,
    pub(super) conns: Vec<Conn>,
    ready: Arc<Ready>,
    /// Rung by what is no connection of the engine's: looked at when the engine is.
    bell: Waker,
    batch: Vec<u32>,
    /// When connections want to be looked at, ring or not.
    pub(super) timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) scratch: Vec<u8>,
    pub(super) rng: Rng,
    /// The time when the clock was last read.
    pub(super) now: u64,
    pub(super) stage: Stage,
    begun: u64,
    next_tick: u64,
    /// The connection whose timeout is looked at next.
    swept: usize,
    alarm: Option<(u64, Sleep)>,
    failure: Option<String>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("bucket", &self.bucket)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(common: Arc<Common>, bucket: u16) -> Self {
        let lane = usize::from(bucket);
        let ready = Arc::new(Ready::default());
        let (mut pools, mut conns) = (Vec::new(), Vec::new());
        for (p, plan) in common.pools.iter().enumerate() {
            let pool = PoolState::new(plan, lane, common.lanes, conns.len() as u32);
            conns.reserve_exact(pool.count as usize);
            for _ in 0..pool.count {
                conns.push(Conn::new(conns.len() as u32, p as u16, &ready));
            }
            pools.push(pool);
        }
        let now = clock();
        Self {
            rng: Rng::new(common.plan.seed ^ (u64::from(bucket) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            bucket,
            pools,
            conns,
            bell: Waker::from(Bell::new(u32::MAX, &ready)),
            ready,
            batch: Vec::new(),
            timers: BinaryHeap::new(),
            scratch: vec![0; SCRATCH],
            now,
            stage: Stage::Connect,
            begun: now,
            next_tick: 0,
            swept: 0,
            alarm: None,
            failure: None,
            common,
        }
    }

    /// Reads the clock.
    #[inline]
    pub(super) fn look(&mut self) -> u64 {
        self.now = clock();
        self.now
    }

    /// Asks for `conn` to be looked at then.
    pub(super) fn at(&mut self, moment: u64, conn: u32) {
        self.conns[conn as usize].wake_at = moment;
        self.timers.push(Reverse((moment, conn)));
    }

    /// One turn. When to come back: at once, or then at the latest.
    fn turn(&mut self) -> u64 {
        self.look();
        let mut batch = std::mem::take(&mut self.batch);
        self.ready.take(&mut batch);
        for conn in batch.drain(..).filter(|c| *c != u32::MAX) {
            self.conns[conn as usize].bell.answered();
            self.rang(conn);
        }
        self.batch = batch;
        self.fire();
        if self.now >= self.next_tick {
            self.tick();
        }
        let next = match self.stage {
            Stage::Connect => self.connect(),
            Stage::Line => self.line(),
            Stage::Run(end) => self.run(end),
            Stage::Drain(limit, handshakes) => self.drain(limit, handshakes),
            Stage::Done => return u64::MAX,
        };
        let timer = self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        next.min(timer).min(self.next_tick)
    }

    /// Timers that are due.
    fn fire(&mut self) {
        while let Some(Reverse((at, conn))) = self.timers.peek().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            // One that was overtaken by events is nobody's any more.
            if self.conns[conn as usize].wake_at == at {
                self.conns[conn as usize].wake_at = 0;
                self.timer(conn);
            }
        }
    }

    /// Connections are made before the first request, where they are kept.
    fn connect(&mut self) -> u64 {
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
            // Somebody refuses: the run begins with those that stand, if any do.
            waiting |= failed && !pool.book.ever_opened;
        }
        let nobody = self.now - self.begun > NOBODY && !self.anybody();
        if nobody || self.common.stopped() {
            return self.give_up();
        }
        let late = self.now - self.begun > self.common.plan.timeout.as_nanos() as u64 + NOBODY;
        if waiting && !late {
            return next;
        }
        self.stage = Stage::Line;
        self.common.arrived();
        self.line()
    }

    /// Whether any connection ever stood, or none is needed.
    fn anybody(&self) -> bool {
        let needed = self.pools.iter().filter(|p| p.count > 0);
        needed.clone().next().is_none()
            || needed.clone().any(|p| p.book.ever_opened || p.book.first_error.is_none())
    }

    /// Nobody is there, or somebody asked for the end before it began.
    fn give_up(&mut self) -> u64 {
        if !self.common.stopped() {
            self.failure = self.pools.iter().find_map(|p| p.book.first_error.clone());
            self.common.stop();
        }
        if self.stage == Stage::Connect {
            self.common.arrived();
        }
        self.begin(self.now);
        self.end();
        u64::MAX
    }

    /// Waits for the common beginning.
    fn line(&mut self) -> u64 {
        if self.common.stopped() {
            return self.give_up();
        }
        let start = self.common.start.load(Ordering::Acquire);
        if start == 0 || start > self.now {
            return if start == 0 { self.now + 500_000 } else { start };
        }
        self.begin(start);
        let end = start + self.common.plan.duration().as_nanos() as u64;
        self.stage = Stage::Run(end);
        for p in 0..self.pools.len() {
            if self.pools[p].speaks_http2() {
                let shared = h2::Shared::start(&self.common, &mut self.pools[p], end, &mut self.rng);
                self.pools[p].h2 = Some(shared);
            } else {
                self.first_requests(p);
            }
        }
        self.run(end)
    }

    /// Opens the books and fixes the schedules.
    fn begin(&mut self, start: u64) {
        let span = Span { start, measured: self.common.measured(start) };
        for (p, pool) in self.pools.iter_mut().enumerate() {
            let recorder = Recorder::new(self.bucket, p, u64::from(pool.count), span.clone());
            pool.book.begin(recorder, self.common.snapshots(), &span);
            pool.schedule(&self.common.plan.phases, start, &mut self.rng);
        }
    }

    /// In a closed loop every connection that stands begins with a request, or with a thought.
    fn first_requests(&mut self, p: usize) {
        if self.pools[p].plan.pool.pace != Pace::Closed {
            return;
        }
        for conn in std::mem::take(&mut self.pools[p].idle) {
            self.free(conn);
        }
    }

    /// Begins what is due.
    fn run(&mut self, end: u64) -> u64 {
        let late = self.now >= end;
        if self.common.stopped() || self.now >= end + GRACE || (late && !self.behind(end)) {
            return self.stop(end);
        }
        let mut next = if late { self.now + TICK } else { end };
        let mut over = true;
        for p in 0..self.pools.len() {
            let pool = &self.pools[p];
            if let Some(shared) = &pool.h2 {
                over &= shared.is_done(&self.bell);
                continue;
            }
            if pool.exhausted() {
                let range = pool.first as usize..(pool.first + pool.count) as usize;
                over &= !self.conns[range].iter().any(Conn::busy);
                continue;
            }
            over = false;
            next = next.min(match (pool.plan.pool.behaviour, pool.plan.pool.pace) {
                (Behaviour::Normal, Pace::Rate { .. }) => self.dispatch(p, end),
                (_, Pace::Rate { .. }) => self.knock(p, end),
                (_, Pace::Closed) => self.fill(p),
            });
        }
        if over {
            return self.stop(end);
        }
        next
    }

    /// Whether something was due before the end that only our own lateness has kept from being sent.
    fn behind(&self, end: u64) -> bool {
        self.pools.iter().any(|pool| {
            let due = pool.moments.as_ref().and_then(super::moments::Moments::peek);
            let free = !pool.idle.is_empty() || (!pool.connects_first() && !pool.vacant.is_empty());
            let asks = pool.plan.pool.behaviour == Behaviour::Normal && pool.requests_left > 0;
            asks && free && due.is_some_and(|moment| moment < end)
        })
    }

    /// Open loop: a request for each moment that has come.
    fn dispatch(&mut self, p: usize, end: u64) -> u64 {
        for _ in 0..BATCH {
            let pool = &mut self.pools[p];
            let Some(moment) = pool.moments.as_ref().and_then(super::moments::Moments::peek) else {
                return end;
            };
            if moment >= end {
                return end;
            }
            if moment > self.now {
                // Connections that the server closed are made again while there is time.
                let refill = if pool.connects_first() { self.fill(p) } else { u64::MAX };
                return moment.min(refill);
            }
            if pool.requests_left == 0 {
                return end;
            }
            if let Some(conn) = pool.idle.pop_front() {
                self.take_moment(p);
                self.ask(conn, moment);
                continue;
            }
            let pool = &mut self.pools[p];
            match if pool.vacant.is_empty() { Err(u64::MAX) } else { pool.may_open(self.now) } {
                Ok(()) => {
                    let Some(conn) = pool.vacant.pop() else { return u64::MAX };
                    self.take_moment(p);
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

    /// Takes the moment that is due off the schedule.
    pub(super) fn take_moment(&mut self, p: usize) {
        let pool = &mut self.pools[p];
        pool.requests_left = pool.requests_left.saturating_sub(1);
        pool.blocked = None;
        if let Some(moments) = &mut pool.moments {
            moments.advance();
        }
    }

    /// Clients that do not ask: a connection attempt for each moment.
    fn knock(&mut self, p: usize, end: u64) -> u64 {
        for _ in 0..BATCH {
            let pool = &mut self.pools[p];
            let Some(moment) = pool.moments.as_ref().and_then(super::moments::Moments::peek) else {
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

    /// Makes connections until there are as many as there should be; when to go on.
    fn fill(&mut self, p: usize) -> u64 {
        self.pools[p].allowed = self.allowed(p);
        loop {
            let pool = &mut self.pools[p];
            if pool.vacant.is_empty() || pool.active() >= pool.allowed || !pool.needs_more() {
                return u64::MAX;
            }
            if let Err(again) = pool.may_open(self.now) {
                return again;
            }
            let Some(conn) = pool.vacant.pop() else { return u64::MAX };
            self.open(conn, None);
        }
    }

    /// Connections that the phase asks for.
    fn allowed(&self, p: usize) -> u32 {
        let pool = &self.pools[p];
        let Stage::Run(_) = self.stage else { return pool.count };
        if pool.plan.pool.pace != Pace::Closed {
            return pool.count;
        }
        let factor = self.common.factor(self.now);
        (f64::from(pool.count) * factor).ceil().clamp(0.0, f64::from(pool.count)) as u32
    }

    /// No more requests: what was due and not sent is counted.
    fn stop(&mut self, end: u64) -> u64 {
        let now = self.now;
        let end = end.min(now);
        for pool in &mut self.pools {
            let Some(moments) = &mut pool.moments else { continue };
            if pool.plan.pool.behaviour != Behaviour::Normal {
                continue;
            }
            let ours = !pool.idle.is_empty();
            while let Some(moment) = moments.peek().filter(|m| *m < end) {
                if pool.requests_left == 0 {
                    break;
                }
                pool.requests_left -= 1;
                pool.book.unsent(moment, now, ours);
                moments.advance();
            }
        }
        let mut waiting = self.common.plan.waiting.as_nanos() as u64;
        if self.common.stopped() {
            waiting = waiting.min(HURRY);
        }
        let (limit, handshakes) = (now + waiting, now + waiting.min(HURRY));
        self.stage = Stage::Drain(limit, handshakes);
        self.drain(limit, handshakes)
    }

    /// Waits for what is on its way: answers, and connections that the server may already count as made.
    fn drain(&mut self, limit: u64, handshakes: u64) -> u64 {
        let mut busy = self.conns.iter().any(Conn::busy);
        busy |= self.now < handshakes && self.pools.iter().any(PoolState::shakes_hands);
        for shared in self.pools.iter().filter_map(|p| p.h2.as_ref()) {
            busy |= !shared.is_done(&self.bell);
        }
        if busy && self.now < limit {
            return limit.min(self.now + TICK);
        }
        self.end();
        u64::MAX
    }

    /// The end: what is still on its way never came.
    fn end(&mut self) {
        for conn in 0..self.conns.len() as u32 {
            self.abandon(conn);
        }
        for pool in &mut self.pools {
            if let Some(shared) = pool.h2.take() {
                pool.book = shared.take_book();
            }
        }
        let now = self.now;
        let records = self.pools.iter_mut().filter_map(|pool| pool.book.finish(now)).collect();
        self.stage = Stage::Done;
        self.common.done(LaneResult { records, end: now, failure: self.failure.take() });
    }

    /// What is done now and then: books, timeouts.
    fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        for pool in &mut self.pools {
            match &pool.h2 {
                Some(shared) => shared.tick(self.now),
                None => pool.book.tick(self.now),
            }
        }
        // Every connection is looked at eight times in a timeout, or once a second, but never more than once a tick.
        let round = (self.common.plan.timeout.as_nanos() as u64 / 8).clamp(TICK, 1_000_000_000);
        let some = (self.conns.len() as u64 * TICK).div_ceil(round) as usize;
        for _ in 0..some.min(self.conns.len()) {
            self.swept = if self.swept + 1 < self.conns.len() { self.swept + 1 } else { 0 };
            self.timed(self.swept as u32);
        }
        if self.pools.iter().all(|p| !p.book.ever_opened && p.h2.is_none())
            && matches!(self.stage, Stage::Run(_))
        {
            let since = self.now.saturating_sub(self.begun);
            if since > NOBODY && !self.anybody() {
                self.failure = self.pools.iter().find_map(|p| p.book.first_error.clone());
                self.common.stop();
            }
        }
    }

    /// Sleeps until a bell rings or `moment`; `Ready` to go on at once.
    fn sleep(&mut self, moment: u64, cx: &mut Context<'_>) -> Poll<()> {
        let near = if self.common.exact { NEAR } else { 0 };
        if moment <= self.now + near || !self.ready.sleep(cx.waker()) {
            return Poll::Ready(());
        }
        let moment = moment - near;
        // Arming a sleep costs more than waking once too early.
        let (_, sleep) = match &mut self.alarm {
            Some(alarm) if alarm.0 <= moment && alarm.0 > self.now => alarm,
            alarm => alarm.insert((moment, flowlane::sleep_until(Time::from_nanos(moment)))),
        };
        let slept = Pin::new(sleep).poll(cx);
        if slept.is_ready() {
            self.alarm = None;
        }
        slept
    }
}

impl Future for Engine {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let next = self.turn();
        if self.stage == Stage::Done {
            return Poll::Ready(());
        }
        if self.sleep(next, cx).is_ready() {
            // Something is due: but the worker does its other work first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
