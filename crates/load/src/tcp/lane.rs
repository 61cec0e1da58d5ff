//! State shared by the connections of one lane: start and end of the run, counts, and the connections that are still there.
//!
//! Only tasks of one lane use it, and these never run at the same time, so the lock is never contended. It is needed since tasks may move
//! to another thread with their lane.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use flowlane::{ConnectError, Failure, SocketError};

use super::common::Common;
use super::outcome::{TcpCounts, Trouble};
use super::resizes::{Resize, Resizes};
use crate::report::{ErrorKind, Recorder, Sample, Span, Times};
use crate::run::clock;
use crate::run::door::Refusal;
use crate::run::outcome::LaneOutcome;
use crate::run::stretched::Stretched;
use crate::run::timeline;

/// One lane of a run.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    /// When the first connections are opened, nanoseconds.
    pub(super) start: u64,
    /// When all connections should be established and messages start, nanoseconds.
    pub(super) standing: u64,
    /// When nothing new is started any more, nanoseconds.
    pub(super) end: u64,
    /// Whether remaining connections must give up.
    over: AtomicBool,
    /// Whether the rate was changed, and when messages of connections that stay come since.
    is_changed: AtomicBool,
    stretched: Mutex<Stretched>,
    pub(super) resizes: Resizes,
    bucket: u16,
    inner: Mutex<Inner>,
}

/// Counts and connections.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) counts: TcpCounts,
    pub(super) recorder: Recorder,
    /// Times until a connection's first message was answered.
    first_byte: Times,
    /// Start and end of the measured part.
    measured: (u64, u64),
    /// The wakers of the connections.
    seats: Vec<Option<Waker>>,
    free: Vec<u32>,
    pub(super) live: usize,
    /// Waker of the lane's main task while it waits for a connection to end.
    main: Option<Waker>,
}

impl Lane {
    /// Publishes the progress of this lane, which is that of a bucket.
    pub(super) fn publish(&self, bucket: u16) {
        let progress = &self.common.progress[usize::from(bucket)];
        let mut inner = self.inner();
        progress.answers.store(inner.counts.answers, Ordering::Relaxed);
        progress.written.store(inner.counts.bytes_written, Ordering::Relaxed);
        let (now, live) = (clock(), inner.live as u64);
        inner.recorder.concurrency(now, live);
        inner.recorder.tick(now);
        drop(inner);
        self.follow();
    }

    /// Looks whether the rate or the connections were changed, of which connections that stay are told: each waits for its next message.
    fn follow(&self) {
        let (stays, changes) = (self.common.config.mode.stays(), &self.common.gate.changes);
        let is_stretched = stays && self.stretched().follow(changes, self.standing);
        if is_stretched {
            self.is_changed.store(true, Ordering::Relaxed);
        }
        for (at, all) in changes.sizes_after(self.resizes.count()) {
            self.is_resized(at, all.into());
        }
        if let Some(gone) = self.common.gate.gone(self.resizes.gone()).filter(|_| !stays) {
            // How many come and go at once; of those that stay each has a number.
            let turns = &self.common.turns;
            let taken: u64 = turns.taken(self.bucket, &gone, false).iter().map(|r| r.end - r.start).sum();
            // Guard: `turns.of(self.bucket) + taken` as `turns.of(self.bucket)` fails load/staying::connections_of_others
            let wanted = turns.of(self.bucket) + taken;
            self.resizes.takes_over(gone.len(), wanted);
        }
        if self.resizes.come(clock()) || is_stretched {
            // Guard: no `self.wake_all();` fails cli/load_set::a_rate_is_changed
            self.wake_all();
        }
    }

    /// Whether connections of others can be opened in the lane.
    pub(super) fn takes_over(&self) -> bool {
        self.common.turns.takes_over(self.common.config.mode.stays())
    }

    /// There are `all` connections from a moment on. The messages are theirs once the last is to be begun.
    fn is_resized(&self, at: u64, all: u64) {
        let last = self.resizes.count().checked_sub(1).and_then(|last| self.resizes.nth(last));
        let (before, earliest) = last.map_or((self.common.turns.all(), self.standing), |r| (r.all, r.from));
        let opening = self.common.config.opening_time(all.saturating_sub(before)).as_nanos() as u64;
        let from = self.planned(at).saturating_add(opening).max(earliest);
        let mine = self.common.turns.among(all, self.bucket, self.common.config.mode.stays());
        self.resizes.add(Resize { at, from, before, all, mine });
    }

    fn stretched(&self) -> MutexGuard<'_, Stretched> {
        self.stretched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When comes what is planned for that moment.
    #[inline]
    pub(super) fn comes(&self, planned: u64) -> u64 {
        if self.is_changed.load(Ordering::Relaxed) { self.stretched().comes(planned) } else { planned }
    }

    /// How far the plan is at a moment.
    pub(super) fn planned(&self, moment: u64) -> u64 {
        if self.is_changed.load(Ordering::Relaxed) { self.stretched().planned(moment) } else { moment }
    }

    pub(super) fn new(common: Arc<Common>, bucket: u16, start: u64) -> Self {
        let standing = start + common.ramp_time().as_nanos() as u64;
        let end = start + timeline::duration(&common.phases).as_nanos() as u64;
        let measured = timeline::measured(&common.phases, start);
        let range = (measured.start, measured.end.saturating_sub(1));
        let (number, flows) = (common.turns.number(bucket), common.turns.of(bucket));
        let mut recorder = Recorder::new(number, 0, flows, Span::new(start, measured));
        if let Some(to) = &common.config.snapshots {
            recorder = recorder.reporting_to(to.clone());
        }
        let inner = Inner {
            counts: TcpCounts::default(),
            recorder,
            first_byte: Times::default(),
            measured: range,
            seats: Vec::new(),
            free: Vec::new(),
            live: 0,
            main: None,
        };
        let (over, is_changed) = (AtomicBool::new(false), AtomicBool::new(false));
        let stretched = Mutex::default();
        let (resizes, inner) = (Resizes::new(flows), Mutex::new(inner));
        Self { common, start, standing, end, over, is_changed, stretched, resizes, bucket, inner }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing new is started any more.
    #[inline]
    pub(super) fn ending(&self, now: u64) -> bool {
        now >= self.end || self.common.gate.stopped()
    }

    /// Ends everything that is still there.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Wakes every connection to check the clock.
    pub(super) fn wake_all(&self) {
        for waker in self.inner().seats.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Wakes the main task when a connection leaves.
    pub(super) fn wake_main(&self, waker: &Waker) {
        self.inner().main = Some(waker.clone());
    }

    /// Whether remaining connections must give up.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Registers a connection's waker and returns its seat; a task's waker never changes.
    pub(super) fn sit(&self, waker: &Waker) -> u32 {
        let mut inner = self.inner();
        let seat = inner.free.pop().unwrap_or_else(|| {
            inner.seats.push(None);
            inner.seats.len() as u32 - 1
        });
        inner.seats[seat as usize] = Some(waker.clone());
        seat
    }

    /// A connection has ended.
    pub(super) fn leave(&self, seat: u32, ended: Result<(), Trouble>) {
        let mut inner = self.inner();
        inner.seats[seat as usize] = None;
        inner.free.push(seat);
        inner.live -= 1;
        self.left(&mut inner, ended);
        if let Some(main) = inner.main.take() {
            main.wake();
        }
    }

    /// How a connection ended. If the first that is heard of the target is a refusal, nobody listens there, and the run ends with it: those
    /// that were begun meanwhile count for nothing.
    pub(super) fn left(&self, inner: &mut Inner, ended: Result<(), Trouble>) {
        let door = &self.common.gate.door;
        let refusal = match ended {
            Err(Trouble::Connect(SocketError::Connection(Failure::Refused))) => door.refuses(),
            // Guard: `door.leads_nowhere()` as `Refusal::Later` fails cli/load_target::where_no_route_leads
            Err(Trouble::Connect(SocketError::Connect(ConnectError::NoRoute))) => door.leads_nowhere(),
            Err(_) if door.is_shut() => Refusal::Again,
            _ => Refusal::Later,
        };
        match refusal {
            Refusal::First => self.common.gate.stop(),
            Refusal::Again => return inner.counts.begun -= 1,
            Refusal::Later => {}
        }
        inner.left(ended);
    }

    /// What it came to, if it began nothing new after `stopped`.
    pub(super) fn outcome(&self, stopped: u64) -> LaneOutcome<TcpCounts> {
        let mut inner = self.inner();
        let (now, counts) = (clock(), inner.counts);
        let moment = inner.measured.0;
        let tally = inner.recorder.tally(moment);
        for (name, count) in [
            ("begun", counts.begun),
            ("completed", counts.completed),
            ("standing", counts.standing),
            ("unfinished", counts.unfinished),
            ("resent", counts.retransmits),
        ] {
            tally.named(name, count);
        }
        if self.common.config.fast_open {
            tally.named("syn-data", counts.syn_data);
            tally.named("syn-data-resent", counts.syn_data_resent);
        }
        let spent = Recorder::new(0, 0, 0, Span::all(now));
        let recorder = std::mem::replace(&mut inner.recorder, spent);
        let first_byte = std::mem::take(&mut inner.first_byte);
        LaneOutcome {
            counts,
            record: Some(recorder.finish(now).with_first_bytes(first_byte)),
            span: (self.start, stopped.min(self.end)),
            failure: None,
        }
    }
}

impl Inner {
    /// What is measured although it happens before or after: connections that are made and lost.
    fn within(&self, moment: u64) -> u64 {
        moment.clamp(self.measured.0, self.measured.1.max(self.measured.0))
    }

    /// A connection stands, `nanos` after it was to be begun.
    pub(super) fn connected(&mut self, now: u64, nanos: u64) {
        self.counts.connected += 1;
        let moment = self.within(now);
        self.recorder.connected_for(moment, now, nanos);
    }

    /// A connection stands that sent data with its SYN; whether the far side took it.
    pub(super) fn sent_with_syn(&mut self, taken: bool) {
        let count = if taken { &mut self.counts.syn_data } else { &mut self.counts.syn_data_resent };
        *count += 1;
    }

    /// A SYN alone was answered; how, and how often it was refused.
    pub(super) fn syn_answered(&mut self, sample: &Sample, refused: bool) {
        if refused {
            self.counts.refused += 1;
            self.recorder.error(
                sample.intended,
                sample.done,
                ErrorKind::Refused,
                || "a reset answers the SYN",
            );
            return;
        }
        self.counts.answers += 1;
        self.counts.completed += 1;
        self.recorder.answered(sample);
    }

    /// A SYN alone that was to be sent at that moment was never answered.
    pub(super) fn syn_unanswered(&mut self, intended: u64, now: u64) {
        self.counts.timed_out += 1;
        self.recorder.error(intended, now, ErrorKind::ConnectTimeout, || "nothing answers the SYN");
    }

    /// Something that only some runs have.
    pub(super) fn named(&mut self, now: u64, name: &'static str, count: u64) {
        self.recorder.tally(now).named(name, count);
    }

    /// How a connection ended.
    fn left(&mut self, ended: Result<(), Trouble>) {
        let now = clock();
        let moment = self.within(now);
        let stood = !matches!(ended, Err(Trouble::Connect(_)));
        self.recorder.tally(moment).closed += u64::from(stood);
        let Err(trouble) = ended else {
            self.counts.completed += 1;
            return;
        };
        self.counts.note(trouble);
        self.recorder.tally(moment).not_opened += u64::from(!stood);
        if let Some(kind) = trouble.kind() {
            self.recorder.error(moment, now, kind, || trouble.words());
        }
    }

    /// A message was begun.
    #[inline]
    pub(super) fn sent(&mut self, intended: u64, now: u64) {
        self.recorder.sent(intended, now, 0);
    }

    /// A message was done that was to be begun and was begun at these moments.
    #[inline]
    pub(super) fn answered(&mut self, (intended, sent): (u64, u64), now: u64, timeout: u64) {
        self.counts.answers += 1;
        if now.saturating_sub(intended) > timeout {
            self.counts.late += 1;
            self.recorder.tally(intended).named("late", 1);
        }
        self.recorder.answered(&Sample { intended, sent, first_byte: now, done: now, code: 0 });
    }

    /// The first byte of a connection's first answer came after so long.
    pub(super) fn first_byte(&mut self, nanos: u64) {
        self.first_byte.record(nanos);
    }

    #[inline]
    pub(super) fn wrote(&mut self, now: u64, n: usize) {
        self.counts.bytes_written += n as u64;
        self.recorder.wrote(now, n as u64);
    }

    #[inline]
    pub(super) fn read(&mut self, now: u64, n: usize) {
        self.counts.bytes_read += n as u64;
        self.recorder.received(now, n as u64);
    }

    /// So many that were due at that moment are not begun any more.
    pub(super) fn unsent(&mut self, due: u64, now: u64, count: u64) {
        self.counts.unsent += count;
        self.recorder.unsent(due, now, count);
    }

    pub(super) fn held_up(&mut self, now: u64) {
        self.counts.held_up += 1;
        self.recorder.tally(now).held_up += 1;
    }
}
