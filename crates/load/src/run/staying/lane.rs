//! State shared by the connections of one lane: at which stage the run is, the connections, the schedule, and the account.
//!
//! Only tasks of one lane use it, and these never run at the same time, so the lock is never contended. It is needed since tasks may move to another thread
//! with their lane.
//!
//! In an open loop what is due is sent by whoever notices it: the lane's main task at its moments, and a connection that has become free while something
//! waited for one.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use super::book::Book;
use super::common::Common;
use super::wanted::Wanted;
use super::{Conn, Dialogue, Trouble};
use crate::run::clock;
use crate::run::gone::Gone;
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;

/// Most that is sent before the worker does its other work.
pub(super) const BATCH: usize = 32;

/// Most connections of a lane whose first handshakes are waited for at a time.
const OPENING: usize = 256;

/// What connections do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// They are opened, and wait for the common start.
    Before,
    /// They send what is sent before the run.
    Preparing,
    /// They send as fast as answers come, until that moment.
    Closed(u64),
    /// They send when it is due.
    Open,
    /// They send nothing more, and close when they have nothing in flight.
    Ending,
    /// They end: what they wait for had its time, or (`true`) the run was stopped.
    Over(bool),
}

/// One lane of a run.
#[derive(Debug)]
pub struct Lane<D: Dialogue> {
    pub(crate) common: Arc<Common<D>>,
    pub(crate) bucket: u16,
    inner: Mutex<Inner<D>>,
}

/// Its state.
#[derive(Debug)]
pub(crate) struct Inner<D: Dialogue> {
    pub(super) stage: Stage,
    pub(super) book: Book<D>,
    pub(super) places: Vec<Place<D>>,
    pub(super) wanted: Wanted,
    /// The number of its first connection among all.
    first: u64,
    pub(crate) pen: D::Pen,
    depth: usize,
    /// In an open loop: connections that have room, in turn.
    ready: VecDeque<u32>,
    pub(super) schedule: Option<Moments>,
    /// Something that is due waits for a connection.
    pub(super) blocked: bool,
    /// Tasks of connections that have not ended.
    pub(super) live: usize,
    /// Connections that stand, those that were begun, and those whose first attempt is over.
    pub(super) standing: usize,
    pub(super) begun: usize,
    pub(super) tried: usize,
    main: Option<Waker>,
}

/// A connection and its task.
#[derive(Debug)]
pub(super) struct Place<D: Dialogue> {
    pub(super) conn: D::Conn,
    /// Whether it has a task, and what wakes that.
    runs: bool,
    pub(super) waker: Option<Waker>,
    /// In the queue of those that have room.
    listed: bool,
    /// Has something to write that was asked for outside of its task.
    dirty: bool,
    /// The oldest of what is in flight has waited too long.
    pub(super) gives_up: bool,
}

impl<D: Dialogue> Place<D> {
    fn new(ordinal: u64) -> Self {
        Self {
            conn: D::Conn::new(ordinal),
            runs: false,
            waker: None,
            listed: false,
            dirty: false,
            gives_up: false,
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl<D: Dialogue> Lane<D> {
    pub(super) fn new(common: Arc<Common<D>>, bucket: u16) -> Self {
        let (first, conns) = (common.turns.before(bucket), common.turns.of(bucket));
        let parts = common.config.parts();
        let seed = parts.seed ^ u64::from(common.turns.number(bucket)).rotate_left(40);
        let inner = Inner {
            stage: Stage::Before,
            book: Book::new(common.timeout),
            places: (first..first + conns).map(Place::new).collect(),
            wanted: Wanted::new(conns as usize),
            first,
            pen: D::pen(&common, bucket, seed),
            depth: parts.depth,
            ready: VecDeque::with_capacity(conns as usize),
            schedule: None,
            blocked: false,
            live: 0,
            standing: 0,
            begun: 0,
            tried: 0,
            main: None,
        };
        Self { common, bucket, inner: Mutex::new(inner) }
    }

    #[inline]
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner<D>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on to a stage, and tells every connection.
    pub(super) fn enter(&self, stage: Stage) {
        let mut inner = self.inner();
        inner.stage = stage;
        inner.places.iter().for_each(Place::wake);
    }

    /// Slow work: progress, what has waited too long, and how many connections there are to be; whether somebody has to begin some.
    pub(super) fn tick(&self) -> bool {
        let mut inner = self.inner();
        let mut has_to_begin = false;
        let (now, standing) = (clock(), inner.standing as u64);
        if matches!(inner.stage, Stage::Closed(_) | Stage::Open) {
            let common = &self.common;
            let share = |n: u32| {
                let mine = common.turns.among(n.into(), self.bucket, true);
                (mine.end - mine.start) as usize
            };
            if inner.wanted.follow(&common.gate.changes, now, share) {
                inner.places.iter().skip(inner.wanted.count).for_each(Place::wake);
            }
            let own = common.turns.of(self.bucket) as usize;
            let taken = |gone: &[Gone]| {
                let taken = common.turns.taken(self.bucket, gone, true);
                taken.iter().map(|range| range.end - range.start).sum::<u64>() as usize
            };
            // Guard: no `inner.wanted.take_over(&common.gate, own, taken);` fails load/staying::connections_of_others
            inner.wanted.take_over(&common.gate, own, taken);
            has_to_begin = inner.wanted.has_to_begin();
        }
        inner.book.tick(now, standing);
        if let Some(schedule) = &mut inner.schedule {
            schedule.follow(&self.common.gate, now);
        }
        let progress = &self.common.progress[usize::from(self.bucket)];
        progress.answers.store(inner.book.all.answered, Ordering::Relaxed);
        progress.prepared.store(inner.book.all.prepared, Ordering::Relaxed);
        let patience = self.common.timeout;
        let leaves = inner.wanted.leaves(now.saturating_sub(patience));
        for (at, place) in inner.places.iter_mut().enumerate() {
            // Guard: `now.saturating_sub(sent) >= patience` as `false` fails
            // load/memcached::wrong::silence_is
            let waits = place.conn.oldest().is_some_and(|sent| now.saturating_sub(sent) >= patience);
            if waits || at >= leaves {
                place.gives_up = true;
                place.wake();
            }
        }
        has_to_begin
    }

    /// What it came to, if it began at `start` and sent nothing new after `stopped`.
    pub(super) fn outcome(&self, start: u64, stopped: u64) -> LaneOutcome<D::Counts> {
        let mut inner = self.inner();
        let record = inner.book.finish(start, clock());
        let counts = D::counts(&inner.book.all, &inner.book.own);
        LaneOutcome { counts, record, span: (start, stopped), failure: None }
    }
}

impl<D: Dialogue> Inner<D> {
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

    /// The next place that is to have a task and has none; it has one from now on.
    pub(super) fn begins(&mut self) -> Option<usize> {
        while let Some(at) = self.wanted.next() {
            if at == self.places.len() {
                self.places.push(Place::new(self.first + at as u64));
            }
            if !std::mem::replace(&mut self.places[at].runs, true) {
                (self.live, self.begun) = (self.live + 1, self.begun + 1);
                return Some(at);
            }
        }
        None
    }

    /// Whether another connection may be begun before those are tried that were.
    pub(super) fn may_begin(&self) -> bool {
        self.begun < self.tried + OPENING
    }

    /// The task of a place is over.
    pub(super) fn is_over(&mut self, at: usize) {
        (self.places[at].runs, self.places[at].waker) = (false, None);
        self.live -= 1;
        self.tell_main();
    }

    /// Whether what is sent on it may wait for it.
    #[inline]
    fn has_room(&self, at: usize) -> bool {
        self.wanted.has(at) && self.places[at].conn.has_room(self.depth)
    }

    /// A connection was opened. What came with its opening is the first that is heard on it.
    pub(super) fn stands(&mut self, at: usize, opened: D::Opened, now: u64) -> Result<(), Trouble<D::Fault>> {
        let Self { places, pen, .. } = self;
        let mut came = places[at].conn.stands(opened, pen);
        self.standing += 1;
        self.list(at);
        if came.is_empty() { Ok(()) } else { self.came(at, &mut came, now) }
    }

    /// A connection is no more.
    pub(super) fn ends(&mut self, at: usize, trouble: Option<&Trouble<D::Fault>>, now: u64) {
        let Self { places, pen, book, .. } = self;
        places[at].conn.end(trouble, pen, book, now);
        places[at].gives_up = false;
        self.standing -= 1;
        self.look_whether_prepared();
    }

    /// Sends what the stage wants sent on a connection.
    pub(super) fn ask(&mut self, at: usize, now: u64) {
        match self.stage {
            Stage::Closed(end) if now < end && self.wanted.has(at) => {
                let Self { places, pen, book, depth, .. } = self;
                let conn = &mut places[at].conn;
                while conn.has_room(*depth) {
                    conn.ask(pen, book, now, now);
                }
            }
            Stage::Preparing => {
                let Self { places, pen, .. } = self;
                places[at].conn.prepare(pen, now);
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
    pub(super) fn came(&mut self, at: usize, bytes: &mut [u8], now: u64) -> Result<(), Trouble<D::Fault>> {
        let Self { places, pen, book, .. } = self;
        book.read(now, bytes.len());
        places[at].conn.came(bytes, pen, book, now)?;
        self.look_whether_prepared();
        Ok(())
    }

    /// Whether all that is sent before the run was sent and answered, or why it cannot be; `None` for not yet.
    pub(super) fn prepared(&self) -> Option<Result<(), String>> {
        let prepared = D::prepared(&self.pen, &self.book.own)?;
        let answered = || self.places.iter().all(|place| place.conn.in_flight() == 0);
        (prepared.is_err() || answered()).then_some(prepared)
    }

    #[inline]
    fn look_whether_prepared(&mut self) {
        if self.stage == Stage::Preparing && D::prepared(&self.pen, &self.book.own).is_some() {
            self.tell_main();
        }
    }

    /// An open loop begins: all connections that stand have room.
    pub(super) fn opens(&mut self, schedule: Moments) {
        (self.schedule, self.stage) = (Some(schedule), Stage::Open);
        for at in 0..self.places.len() {
            self.list(at);
        }
    }

    /// Puts a connection that has room behind the others that have.
    fn list(&mut self, at: usize) {
        if self.stage == Stage::Open && !self.places[at].listed && self.has_room(at) {
            self.places[at].listed = true;
            self.ready.push_back(at as u32);
        }
    }

    /// The next connection that has room.
    fn free(&mut self) -> Option<usize> {
        loop {
            let at = self.ready.pop_front()? as usize;
            self.places[at].listed = false;
            if self.has_room(at) {
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
            let Self { places, pen, book, .. } = self;
            places[at].conn.ask(pen, book, due, now);
            if !std::mem::replace(&mut places[at].dirty, true) {
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
        let Self { places, pen, book, .. } = self;
        let place = &mut places[at];
        place.dirty = false;
        let Some(waker) = place.waker.take() else { return };
        match place.conn.poll_write(&mut Context::from_waker(&waker), pen) {
            Ok(n) => book.wrote(clock(), n),
            // Its task finds the same.
            Err(_) => waker.wake_by_ref(),
        }
        place.waker = Some(waker);
    }
}
