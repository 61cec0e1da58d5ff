//! What the connections of one lane have in common: when the run begins and ends, what was counted, and who is still
//! there.
//!
//! All of it is used by tasks of one lane, which never run at the same time, so the lock is never contended; it is
//! there because tasks may move to another thread with their lane.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use super::outcome::{Measured, TcpCounts, TcpLaneOutcome, TcpTimes, Trouble};
use super::run::Common;

/// One lane of a run.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    /// When connections begin to be made, nanoseconds.
    pub(super) start: u64,
    /// When all of them are to stand, and are measured.
    pub(super) measured: u64,
    /// When nothing new is begun any more.
    pub(super) end: u64,
    /// Whoever is still there gives up.
    over: AtomicBool,
    inner: Mutex<Inner>,
}

/// What is counted, and who is there.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) counts: TcpCounts,
    pub(super) times: TcpTimes,
    pub(super) did: Measured,
    /// Connections, each with how to wake it.
    seats: Vec<Option<Waker>>,
    free: Vec<u32>,
    pub(super) live: usize,
    /// The lane's main task, when it waits for one to leave.
    main: Option<Waker>,
}

impl Lane {
    pub(super) fn new(common: Arc<Common>, start: u64, measured: u64, end: u64) -> Self {
        Self { common, start, measured, end, over: AtomicBool::new(false), inner: Mutex::default() }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing new is begun any more.
    #[inline]
    pub(super) fn ending(&self, now: u64) -> bool {
        now >= self.end || self.common.gate.stopped()
    }

    /// Whether what is done now counts for rates.
    #[inline]
    pub(super) fn counts_for_rates(&self, now: u64) -> bool {
        (self.measured..self.end).contains(&now)
    }

    /// Ends everything that is still there.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Has every connection look at the clock.
    pub(super) fn wake_all(&self) {
        for waker in self.inner().seats.iter().flatten() {
            waker.wake_by_ref();
        }
    }

    /// Wakes the main task when a connection leaves.
    pub(super) fn wake_main(&self, waker: &Waker) {
        self.inner().main = Some(waker.clone());
    }

    /// A connection from its beginning to its end: counts what becomes of it.
    pub(super) async fn supervise(self: Arc<Self>, connection: impl Future<Output = Result<(), Trouble>>) {
        let seat = self.sit();
        let ended = {
            let mut connection = pin!(connection);
            poll_fn(|cx| {
                self.hear(seat, cx.waker());
                if self.over.load(Ordering::Relaxed) {
                    return Poll::Ready(Err(Trouble::Unfinished));
                }
                connection.as_mut().poll(cx)
            })
            .await
        };
        self.leave(seat, ended);
    }

    /// Takes a seat before the task runs, so that the lane knows how many there are.
    fn sit(&self) -> u32 {
        let mut inner = self.inner();
        inner.free.pop().unwrap_or_else(|| {
            inner.seats.push(None);
            inner.seats.len() as u32 - 1
        })
    }

    /// Notes how to wake whoever sits there; a task's waker never changes.
    fn hear(&self, seat: u32, waker: &Waker) {
        let mut inner = self.inner();
        let place = &mut inner.seats[seat as usize];
        if place.is_none() {
            *place = Some(waker.clone());
        }
    }

    fn leave(&self, seat: u32, ended: Result<(), Trouble>) {
        let mut inner = self.inner();
        inner.seats[seat as usize] = None;
        inner.free.push(seat);
        inner.live -= 1;
        match ended {
            Ok(()) => inner.counts.completed += 1,
            Err(trouble) => inner.counts.trouble(trouble),
        }
        if let Some(main) = inner.main.take() {
            main.wake();
        }
    }

    /// What it came to.
    pub(super) fn outcome(&self, bucket: u16) -> TcpLaneOutcome {
        let mut inner = self.inner();
        TcpLaneOutcome {
            bucket,
            counts: inner.counts,
            times: std::mem::take(&mut inner.times),
            measured: inner.did,
            failure: None,
        }
    }
}

impl Inner {
    #[inline]
    pub(super) fn connected(&mut self, nanos: u64) {
        self.counts.connected += 1;
        self.times.connect.saturating_record(nanos.max(1));
    }

    /// A message was done, `nanos` after it was to be begun.
    #[inline]
    pub(super) fn answered(&mut self, nanos: u64, timeout: u64, measured: bool) {
        self.counts.answers += 1;
        self.counts.late += u64::from(nanos > timeout);
        self.times.latency.saturating_record(nanos.max(1));
        self.did.answers += u64::from(measured);
    }

    #[inline]
    pub(super) fn wrote(&mut self, n: usize, measured: bool) {
        self.counts.bytes_written += n as u64;
        self.did.written += if measured { n as u64 } else { 0 };
    }

    #[inline]
    pub(super) fn read(&mut self, n: usize, measured: bool) {
        self.counts.bytes_read += n as u64;
        self.did.read += if measured { n as u64 } else { 0 };
    }

    #[inline]
    pub(super) fn slipped(&mut self, nanos: u64) {
        self.times.slip.saturating_record(nanos.max(1));
    }
}
