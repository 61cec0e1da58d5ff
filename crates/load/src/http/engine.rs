//! The generator in one lane: one task that drives all the lane's connections.
//!
//! ```text
//!   poll:  connections that are ready ▸ timers ▸ requests that are due ▸ every tick: timeouts, progress        nothing? ▸ sleep
//! ```
//!
//! The task owns every connection, so there are no locks, and one buffer serves all reads. A connection that can proceed adds itself to a
//! list (see [`super::ready`]). Due requests come from the schedule of each pool. If no connection is free, a request waits for one and
//! keeps its intended time, from which its latency counts.
//!
//! Stages: `Connect` (opening connections), `Line` (waiting for the other lanes), `Run`, `Drain` (waiting for outstanding answers), `Done`:
//! see [`super::stages`]. [`super::exchange`] has what one connection does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flowlane::{Sleep, Time};
use flowlane_stack::rng::Rng;

use super::conn::Conn;
use super::pool::PoolState;
use super::ready::{Bell, Ready};
use super::run::Common;
use crate::run::clock;
use crate::run::{NEAR, TICK};

/// Most requests sent before the worker does its other work.
pub(super) const BATCH: usize = 256;
/// The same for the first requests of a closed loop: about as many as a worker receives in one turn.
pub(super) const FIRSTS: u32 = 64;
/// Connections checked for timeouts in one step, and the least time between two steps.
const SWEEP: u64 = 128;
const SWEEP_EVERY: u64 = 500_000;
/// Size of the read buffer, bytes.
const SCRATCH: usize = 64 << 10;
/// Polling for this time, nanoseconds, costs no more than going to sleep.
const AT_HAND: u64 = 5_000;
/// Limit for the first connection of a run to be established, nanoseconds.
pub(super) const NOBODY: u64 = 3_000_000_000;

/// Stage of the run in this lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Opening connections.
    Connect,
    /// Waiting for the other lanes.
    Line,
    /// Sending requests, until this time.
    Run(u64),
    /// Waiting for answers until the first time, for handshakes until the second.
    Drain(u64, u64),
    /// The end.
    Done,
}

/// The generator in one lane.
pub(super) struct Engine {
    pub(super) common: Arc<Common>,
    pub(super) bucket: u16,
    pub(super) pools: Vec<PoolState>,
    pub(super) conns: Vec<Conn>,
    pub(super) ready: Arc<Ready>,
    /// The waker of everything that is not a connection of the engine.
    pub(super) bell: Waker,
    batch: Vec<u32>,
    /// Timers of connections.
    pub(super) timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) scratch: Vec<u8>,
    pub(super) rng: Rng,
    /// The time when the clock was last read.
    pub(super) now: u64,
    pub(super) stage: Stage,
    pub(super) begun: u64,
    /// Most connections established before the start, and since when.
    pub(super) stood: (u64, u64),
    pub(super) next_tick: u64,
    next_sweep: u64,
    /// Generators that are gone, as far as shares have it.
    pub(super) gone: usize,
    /// How often the number of its connections was changed, as far as it knows.
    pub(super) resized: usize,
    /// Since when every share is made, for a lane that waits.
    pub(super) idle_since: Option<u64>,
    /// When the next request of an open loop is due, while requests are sent.
    pub(super) next_due: u64,
    /// The connection whose timeout is looked at next.
    swept: usize,
    /// In `Drain`: no connection before this one is busy.
    pub(super) drained: usize,
    alarm: Option<(u64, Sleep)>,
    pub(super) failure: Option<String>,
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
        let lane = common.part.lane(bucket);
        let ready = Arc::new(Ready::default());
        let (mut pools, mut conns) = (Vec::new(), Vec::new());
        for (p, plan) in common.pools.iter().enumerate() {
            let pool = PoolState::new(plan, bucket, common.part, common.lanes, conns.len() as u32);
            conns.reserve_exact(pool.count as usize);
            for _ in 0..pool.count {
                conns.push(Conn::new(conns.len() as u32, p as u16, &ready));
            }
            pools.push(pool);
        }
        let now = clock();
        Self {
            rng: Rng::new(common.plan.seed ^ (lane as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            bucket,
            pools,
            conns,
            bell: Bell::waker(u32::MAX, &ready),
            ready,
            batch: Vec::new(),
            timers: BinaryHeap::new(),
            scratch: vec![0; SCRATCH],
            now,
            stage: Stage::Connect,
            begun: now,
            stood: (0, now),
            next_tick: 0,
            next_sweep: 0,
            gone: 0,
            resized: 0,
            idle_since: None,
            next_due: u64::MAX,
            swept: 0,
            drained: 0,
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

    /// Sets the timer of `conn`.
    pub(super) fn at(&mut self, moment: u64, conn: u32) {
        self.conns[conn as usize].wake_at = moment;
        self.timers.push(Reverse((moment, conn)));
    }

    /// One turn. Returns when the next is needed at the latest.
    fn turn(&mut self) -> u64 {
        self.look();
        // Before anything is taken from a schedule that is to be bent.
        if self.now >= self.next_tick {
            self.bend();
        }
        let mut batch = std::mem::take(&mut self.batch);
        self.ready.take(&mut batch);
        for conn in batch.drain(..).filter(|c| *c != u32::MAX) {
            self.rang(conn);
            // Requests that become due meanwhile do not wait for the rest of a long list.
            if self.now >= self.next_due {
                self.overdue();
            }
        }
        self.batch = batch;
        self.fire();
        if self.now >= self.next_tick {
            self.tick();
        }
        if self.now >= self.next_sweep {
            self.sweep();
        }
        let next = match self.stage {
            Stage::Connect => self.connect(),
            Stage::Line => self.line(),
            Stage::Run(end) => self.run(end),
            Stage::Drain(limit, handshakes) => self.drain(limit, handshakes),
            Stage::Done => return u64::MAX,
        };
        let timer = self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
        next.min(timer).min(self.next_tick).min(self.next_sweep)
    }

    /// Runs the timers that are due.
    fn fire(&mut self) {
        while let Some(Reverse((at, conn))) = self.timers.peek().copied() {
            if at > self.now {
                return;
            }
            self.timers.pop();
            // A timer that was set anew since is stale.
            if self.conns[conn as usize].wake_at == at {
                self.conns[conn as usize].wake_at = 0;
                self.timer(conn);
            }
        }
    }

    /// Work at every tick: records, timeouts.
    fn tick(&mut self) {
        self.next_tick = self.now + TICK;
        self.take_shares();
        if let Stage::Run(_) = self.stage {
            self.resize();
        }
        let raised = self.common.gate.raised();
        for pool in &mut self.pools {
            if let Some(moments) = &mut pool.moments {
                moments.raise(raised);
            }
            match &pool.beside {
                Some(shared) => shared.tick(self.now),
                None => pool.book.tick(self.now),
            }
        }
        let since = self.now.saturating_sub(self.begun);
        if since > NOBODY && matches!(self.stage, Stage::Run(_)) && !self.anybody() {
            self.failure = self.pools.iter().find_map(PoolState::first_error);
            self.common.gate.stop();
        }
    }

    /// Checks for timeouts. Every connection is checked eight times within a timeout, or once a second, but at most once a tick; few enough
    /// are checked in one step that requests do not wait for it.
    fn sweep(&mut self) {
        let plan = &self.common.plan;
        let timeout = plan.request_timeout.map_or(plan.timeout, |whole| whole.min(plan.timeout));
        let round = (timeout.as_nanos() as u64 / 8).clamp(TICK, 1_000_000_000);
        let all = self.conns.len() as u64;
        let every = (round * SWEEP / all.max(1)).clamp(SWEEP_EVERY, TICK);
        self.next_sweep = self.now + every;
        for _ in 0..(all * every).div_ceil(round).min(all) {
            self.swept = if self.swept + 1 < self.conns.len() { self.swept + 1 } else { 0 };
            self.timed(self.swept as u32);
        }
    }

    /// Sleeps until a connection is ready or until `moment`; `Ready` to continue at once.
    fn sleep(&mut self, moment: u64, cx: &mut Context<'_>) -> Poll<()> {
        let near = if self.common.exact { NEAR } else { 0 };
        if moment <= self.now + near.max(AT_HAND) || !self.ready.sleep(cx.waker()) {
            return Poll::Ready(());
        }
        let moment = moment - near;
        // Setting a new sleep costs more than waking once too early.
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
            // A request is due, but the worker does its other work first.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
