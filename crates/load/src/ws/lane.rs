//! State shared by the connections of one lane: at which stage the run is, the connections, the schedule, and the account.
//!
//! Only tasks of one lane use it, and these never run at the same time, so the lock is never contended. It is needed since tasks may move to another thread
//! with their lane.
//!
//! In an open loop messages are sent by whoever notices that they are due: the lane's main task at their moments, and a connection that has become free while
//! messages waited for one.

use std::collections::VecDeque;
use std::ops::DerefMut;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::book::Book;
use super::common::Common;
use super::conn::{Conn, Pen};
use super::opening::Opened;
use super::outcome::{Trouble, WsCounts};
use crate::run::clock;
use crate::run::gate::Gate;
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::staying;

/// Most messages sent before the worker does its other work.
pub(super) const BATCH: usize = 32;

/// What connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// They are opened, and wait for the common start.
    Opening,
    /// They send as fast as answers come, until that moment.
    Closed(u64),
    /// They send when it is due.
    Open,
    /// They send nothing more, and close when they have nothing in flight.
    Ending,
    /// They end.
    Over,
}

/// One lane of a run.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    pub(super) bucket: u16,
    inner: Mutex<Inner>,
}

/// Its state.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) stage: Stage,
    pub(super) book: Book,
    pub(super) conns: Vec<Conn>,
    pub(super) pen: Pen,
    depth: usize,
    /// In an open loop: connections that have room for a message, in turn.
    ready: VecDeque<u32>,
    pub(super) schedule: Option<Moments>,
    /// A message that is due waits for a connection.
    pub(super) blocked: bool,
    /// Tasks of connections that have not ended.
    pub(super) live: usize,
    /// Connections that stand, and those whose first attempt is over.
    pub(super) standing: usize,
    pub(super) tried: usize,
    main: Option<Waker>,
}

impl Lane {
    pub(super) fn new(common: Arc<Common>, bucket: u16) -> Self {
        let config = &common.config;
        let (first, conns) = (common.first(bucket), common.turns.of(bucket));
        let seed = config.seed ^ u64::from(common.turns.number(bucket)).rotate_left(40);
        let inner = Inner {
            stage: Stage::Opening,
            book: Book::new(common.timeout),
            conns: (first..first + conns).map(Conn::new).collect(),
            pen: Pen::new(config.payload, seed),
            depth: config.depth,
            ready: VecDeque::with_capacity(conns as usize),
            schedule: None,
            blocked: false,
            live: 0,
            standing: 0,
            tried: 0,
            main: None,
        };
        Self { common, bucket, inner: Mutex::new(inner) }
    }

    #[inline]
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on to a stage, and tells every connection.
    pub(super) fn enter(&self, stage: Stage) {
        let mut inner = self.inner();
        inner.stage = stage;
        for waker in inner.conns.iter().filter_map(|conn| conn.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    /// Slow work: progress, and messages that have waited too long.
    pub(super) fn tick(&self) {
        let mut inner = self.inner();
        let (now, standing) = (clock(), inner.standing as u64);
        inner.book.tick(now, standing);
        if let Some(schedule) = &mut inner.schedule {
            schedule.follow(&self.common.gate, now);
        }
        let progress = &self.common.progress[usize::from(self.bucket)];
        progress.answers.store(inner.book.counts.answered, Ordering::Relaxed);
        let patience = self.common.timeout;
        for conn in &mut inner.conns {
            if conn.oldest().is_some_and(|sent| now.saturating_sub(sent) >= patience) {
                conn.gives_up = true;
                if let Some(waker) = &conn.waker {
                    waker.wake_by_ref();
                }
            }
        }
    }

    /// What it came to, if it began at `start` and sent nothing new after `stopped`.
    pub(super) fn outcome(&self, start: u64, stopped: u64) -> LaneOutcome<WsCounts> {
        let mut inner = self.inner();
        let record = inner.book.finish(clock());
        LaneOutcome { counts: inner.book.counts, record, span: (start, stopped), failure: None }
    }
}

impl Inner {
    /// Has the main task woken when something ends.
    pub(super) fn wake_main(&mut self, waker: &Waker) {
        self.main = Some(waker.clone());
    }

    /// Something ended that the main task may wait for.
    pub(super) fn tell_main(&mut self) {
        if let Some(main) = self.main.take() {
            main.wake();
        }
    }

    /// A WebSocket is open. What came behind the answer is the first that is heard on it.
    pub(super) fn stands(&mut self, at: usize, opened: Opened, now: u64) -> Result<(), Trouble> {
        let Opened { stream, mut rest, .. } = opened;
        let Self { conns, pen, .. } = self;
        conns[at].stands(stream, pen.payload);
        self.standing += 1;
        self.list(at);
        self.came(at, &mut rest, now)
    }

    /// A WebSocket is no more.
    pub(super) fn ends(&mut self, at: usize, trouble: Option<&Trouble>, now: u64) {
        let Self { conns, pen, book, .. } = self;
        conns[at].end(trouble, pen, book, now);
        self.standing -= 1;
    }

    /// Sends what the stage wants sent on a connection.
    pub(super) fn ask(&mut self, at: usize, now: u64) {
        match self.stage {
            Stage::Closed(end) if now < end => {
                let Self { conns, pen, book, depth, .. } = self;
                while conns[at].has_room(*depth) {
                    conns[at].ask(pen, book, now, now);
                }
            }
            Stage::Open => {
                self.list(at);
                if self.blocked {
                    self.blocked = false;
                    self.pump(now);
                    if !self.blocked {
                        self.tell_main();
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes bytes that came on a connection.
    pub(super) fn came(&mut self, at: usize, bytes: &mut [u8], now: u64) -> Result<(), Trouble> {
        let Self { conns, pen, book, .. } = self;
        book.read(now, bytes.len());
        conns[at].came(bytes, pen, book, now)
    }

    /// Puts a connection that has room for a message behind the others that have.
    fn list(&mut self, at: usize) {
        let conn = &mut self.conns[at];
        if self.stage == Stage::Open && !conn.listed && conn.has_room(self.depth) {
            conn.listed = true;
            self.ready.push_back(at as u32);
        }
    }

    /// All connections that stand have room.
    pub(super) fn list_all(&mut self) {
        for at in 0..self.conns.len() {
            self.list(at);
        }
    }

    /// The next connection that has room.
    fn free(&mut self) -> Option<usize> {
        loop {
            let at = self.ready.pop_front()? as usize;
            let conn = &mut self.conns[at];
            conn.listed = false;
            if conn.has_room(self.depth) {
                return Some(at);
            }
        }
    }

    /// Open loop: sends what is due, at most a batch; whether that was all there is now.
    pub(super) fn pump(&mut self, now: u64) -> bool {
        let (mut touched, mut n) = ([0u32; BATCH], 0);
        let mut sent = 0;
        let all = loop {
            let Some(due) = self.schedule.as_ref().and_then(Moments::peek).filter(|due| *due <= now) else {
                break true;
            };
            if sent == BATCH {
                break false;
            }
            let Some(at) = self.free() else {
                self.blocked = true;
                self.book.held_up(now);
                break true;
            };
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
            let Self { conns, pen, book, .. } = self;
            conns[at].ask(pen, book, due, now);
            if !std::mem::replace(&mut conns[at].dirty, true) {
                touched[n] = at as u32;
                n += 1;
            }
            sent += 1;
            self.list(at);
        };
        touched[..n].iter().for_each(|at| self.flush(*at as usize));
        all
    }

    /// Writes what a connection has to write, from outside of its task, which is woken when the rest has room.
    fn flush(&mut self, at: usize) {
        let Self { conns, pen, book, .. } = self;
        let conn = &mut conns[at];
        conn.dirty = false;
        let Some(waker) = conn.waker.take() else { return };
        match conn.poll_write(&mut Context::from_waker(&waker), pen) {
            Ok(n) => book.wrote(clock(), n),
            // Its task finds the same.
            Err(_) => waker.wake_by_ref(),
        }
        conn.waker = Some(waker);
    }
}

impl staying::Lane for Lane {
    type Inner = Inner;

    fn inner(&self) -> impl DerefMut<Target = Inner> {
        self.inner()
    }

    fn gate(&self) -> &Gate {
        &self.common.gate
    }

    fn is_exact(&self) -> bool {
        self.common.config.exact
    }

    fn tick(&self) {
        self.tick();
    }
}

impl staying::Inner for Inner {
    fn schedule(&mut self) -> &mut Option<Moments> {
        &mut self.schedule
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn pump(&mut self, now: u64) -> bool {
        self.pump(now)
    }

    fn unsent(&mut self, due: u64, now: u64, count: u64, want: bool) {
        self.book.unsent(due, now, count, want);
    }

    fn wake_main(&mut self, waker: &Waker) {
        self.wake_main(waker);
    }
}
