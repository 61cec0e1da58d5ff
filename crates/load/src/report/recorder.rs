//! The accumulators of one pool in one lane.
//!
//! A lane makes one recorder for each pool when the run begins, tells it what happens, calls [`Recorder::tick`] now and
//! then (some ten times a second; more does no harm), and gives the [`LaneRecord`] back at the end. Nothing is shared.
//! What is recorded for each request is a handful of additions and up to six histogram entries of some nanoseconds
//! each; only the first error of a kind, the first of a code and the close of a second allocate.
//!
//! Moments decide what is measured: what was *intended* within the [`Span`]'s measured part counts for totals and
//! percentiles, the rest (warm-up, cool-down) is counted apart. The series in time has everything.

use std::ops::Range;
use std::sync::mpsc::SyncSender;

use super::kinds::ErrorKind;
use super::parts::{Parts, PhaseSpan};
use super::series::{Series, Slot};
use super::tally::Tally;
use super::times::Times;

/// How often a recorder hands over a snapshot, nanoseconds.
pub const SNAPSHOT_EVERY: u64 = 250_000_000;

/// When a run begins and which part of it counts, on the clock of the lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The beginning.
    pub start: u64,
    /// What is measured, but for phases within it that are not.
    pub measured: Range<u64>,
    /// Its phases, for figures of each; none if there are to be none.
    pub phases: Vec<PhaseSpan>,
}

impl Span {
    /// One part is measured, and phases have no figures of their own.
    #[must_use]
    pub fn new(start: u64, measured: Range<u64>) -> Self {
        Self { start, measured, phases: Vec::new() }
    }

    /// Everything from this moment on is measured.
    #[must_use]
    pub fn all(start: u64) -> Self {
        Self::new(start, 0..u64::MAX)
    }

    /// Phases that are not measured, between others that are.
    fn gaps(&self) -> Vec<Range<u64>> {
        let begins = std::iter::once(self.start).chain(self.phases.iter().map(|p| p.end));
        let ranges = begins.zip(&self.phases).map(|(begin, phase)| (begin..phase.end, phase.measured));
        let within = |r: &Range<u64>| self.measured.start <= r.start && r.end <= self.measured.end;
        ranges.filter(|(range, measured)| !measured && within(range)).map(|(range, _)| range).collect()
    }
}

/// A request that was answered. Moments on the clock of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it was to be sent. In a closed loop, when the decision to send it fell.
    pub intended: u64,
    /// When it was sent: times to the first and the last byte count from here.
    pub sent: u64,
    /// When the first byte of the answer came; `done` if that is not told apart.
    pub first_byte: u64,
    /// When the answer was whole.
    pub done: u64,
    /// Its code, such as 200; 0 if answers have none.
    pub code: u16,
}

/// What lanes hand over while they run. Counts are of the whole run so far, so that one that is lost does no harm.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The lane's bucket.
    pub bucket: u16,
    /// The pool, by its place.
    pub pool: usize,
    /// Seconds of the run, rounded down.
    pub at: u64,
    /// Nanoseconds of the run.
    pub nanos: u64,
    /// Requests sent.
    pub sent: u64,
    /// Answers.
    pub answered: u64,
    /// Errors.
    pub failed: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections, or requests on their way.
    pub concurrency: u64,
    /// Seconds that are over since the last snapshot.
    pub closed: Vec<Slot>,
}

/// What a recorder came to.
#[derive(Debug)]
pub struct LaneRecord {
    pub(super) bucket: u16,
    pub(super) pool: usize,
    pub(super) flows: u64,
    pub(super) measured: Tally,
    pub(super) unmeasured: Tally,
    pub(super) spectra: Spectra,
    pub(super) concurrency_max: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) parts: Parts,
}

/// The histograms of a part.
#[derive(Debug, Clone, Default)]
pub(super) struct Spectra {
    pub(super) latency: Times,
    pub(super) service: Times,
    pub(super) connect: Times,
    pub(super) tls: Times,
    pub(super) first_byte: Times,
    pub(super) slip: Times,
    /// What is answered has no last byte that is another moment than its first.
    pub(super) no_last_byte: bool,
}

/// The accumulators of one pool in one lane.
#[derive(Debug)]
pub struct Recorder {
    bucket: u16,
    pool: usize,
    flows: u64,
    span: Span,
    gaps: Vec<Range<u64>>,
    parts: Parts,
    measured: Tally,
    unmeasured: Tally,
    spectra: Spectra,
    concurrency: u64,
    concurrency_max: u64,
    series: Series,
    to: Option<SyncSender<Snapshot>>,
    next_snapshot: u64,
    told: u64,
}

impl Recorder {
    /// For a lane, by its bucket, and a pool, by its place. `flows`: how many flows or connections it is given.
    #[must_use]
    pub fn new(bucket: u16, pool: usize, flows: u64, span: Span) -> Self {
        Self {
            bucket,
            pool,
            flows,
            series: Series::new(span.start),
            next_snapshot: span.start.saturating_add(SNAPSHOT_EVERY),
            gaps: span.gaps(),
            parts: Parts::new(span.phases.clone(), 0),
            span,
            measured: Tally::default(),
            unmeasured: Tally::default(),
            spectra: Spectra::default(),
            concurrency: 0,
            concurrency_max: 0,
            to: None,
            told: 0,
        }
    }

    /// Hands over snapshots here: see [`super::live::channel`]. When nobody takes them they are dropped.
    #[must_use]
    pub fn reporting_to(mut self, to: SyncSender<Snapshot>) -> Self {
        self.to = Some(to);
        self
    }

    /// Has figures of each of so many requests, see [`Recorder::request_sent`].
    #[must_use]
    pub fn with_requests(mut self, requests: usize) -> Self {
        self.parts = Parts::new(self.span.phases.clone(), requests);
        self
    }

    /// Whether what is intended at a moment is measured.
    #[inline]
    fn counts(&self, moment: u64) -> bool {
        self.span.measured.contains(&moment) && !self.gaps.iter().any(|gap| gap.contains(&moment))
    }

    /// The counters that a moment belongs to, for what has no method here.
    #[inline]
    pub fn tally(&mut self, moment: u64) -> &mut Tally {
        if self.counts(moment) { &mut self.measured } else { &mut self.unmeasured }
    }

    /// A request of the pool, by its place, was sent that was intended at this moment: for figures of each, besides
    /// [`Recorder::sent`].
    #[inline]
    pub fn request_sent(&mut self, request: u16, intended: u64) {
        if let Some(share) = self.request(request, intended) {
            share.sent += 1;
        }
    }

    /// The same, answered: besides [`Recorder::answered`].
    #[inline]
    pub fn request_answered(&mut self, request: u16, intended: u64, done: u64) {
        if let Some(share) = self.request(request, intended) {
            share.answered += 1;
            share.latency(done.saturating_sub(intended));
        }
    }

    /// The same, failed: besides [`Recorder::error`]. One that was given up at `waited_until` has a latency.
    #[inline]
    pub fn request_failed(&mut self, request: u16, intended: u64, waited_until: Option<u64>) {
        if let Some(share) = self.request(request, intended) {
            share.failed += 1;
            if let Some(until) = waited_until {
                share.latency(until.saturating_sub(intended));
            }
        }
    }

    #[inline]
    fn request(&mut self, request: u16, intended: u64) -> Option<&mut super::parts::Share> {
        let counts = self.counts(intended);
        self.parts.requests.get_mut(usize::from(request)).filter(|_| counts)
    }

    /// A request was sent: when it was to be, when it was (the end of the batch, if many are sent at once), and how
    /// large it was.
    #[inline]
    pub fn sent(&mut self, intended: u64, now: u64, bytes: u64) {
        self.sent_when_due(intended, intended, now, bytes);
    }

    /// The same for a request that could not be sent when it was intended, but from `due` on: slip counts from there.
    #[inline]
    pub fn sent_when_due(&mut self, intended: u64, due: u64, now: u64, bytes: u64) {
        let slip = now.saturating_sub(due);
        let tally = self.tally(intended);
        tally.sent += 1;
        tally.bytes_sent += bytes;
        if self.counts(intended) {
            self.spectra.slip.record(slip);
        }
        if let Some(phase) = self.parts.phase(intended) {
            phase.sent += 1;
        }
        let slot = self.series.slot(now);
        slot.sent += 1;
        slot.bytes_sent += bytes;
        self.series.slip(slip);
    }

    /// A request was answered, whole. A check that it fails is an error besides.
    #[inline]
    pub fn answered(&mut self, sample: &Sample) {
        let latency = sample.done.saturating_sub(sample.intended);
        let tally = self.tally(sample.intended);
        tally.answered += 1;
        tally.code(sample.code);
        if let Some(phase) = self.parts.phase(sample.intended) {
            phase.answered += 1;
            phase.latency(latency);
        }
        if self.counts(sample.intended) {
            self.spectra.latency.record(latency);
            self.spectra.service.record(sample.done.saturating_sub(sample.sent));
            self.spectra.first_byte.record(sample.first_byte.saturating_sub(sample.sent));
        }
        self.series.slot(sample.done).answered += 1;
        self.series.latency(latency);
    }

    /// Bytes came, of an answer or not.
    #[inline]
    pub fn received(&mut self, now: u64, bytes: u64) {
        self.tally(now).bytes_received += bytes;
        self.series.slot(now).bytes_received += bytes;
    }

    /// Something went wrong with a request intended at that moment, or with a connection. `why` is asked for words the
    /// first time a kind comes.
    #[inline]
    pub fn error<S: Into<String>>(
        &mut self,
        intended: u64,
        now: u64,
        kind: ErrorKind,
        why: impl FnOnce() -> S,
    ) {
        self.tally(intended).error(kind, why);
        if let Some(phase) = self.parts.phase(intended) {
            phase.failed += 1;
        }
        self.series.slot(now).failed += 1;
    }

    /// A request was given up because its answer took too long. It counts as an error **and** as a latency of what it
    /// waited, which is the least it can be: leaving it out would make a slow server look fast.
    #[inline]
    pub fn timed_out<S: Into<String>>(&mut self, intended: u64, now: u64, why: impl FnOnce() -> S) {
        self.error(intended, now, ErrorKind::Timeout, why);
        let latency = now.saturating_sub(intended);
        if let Some(phase) = self.parts.phase(intended) {
            phase.latency(latency);
        }
        if self.counts(intended) {
            self.spectra.latency.record(latency);
        }
        self.series.slot(now);
        self.series.latency(latency);
    }

    /// A request was due at that moment and will not be sent any more: as late as can be said.
    #[inline]
    pub fn unsent(&mut self, intended: u64, now: u64) {
        self.unsent_for_want(intended);
        let slip = now.saturating_sub(intended);
        if self.counts(intended) {
            self.spectra.slip.record(slip);
        }
        self.series.slot(now);
        self.series.slip(slip);
    }

    /// The same for want of a connection, which is no lateness of the generator.
    #[inline]
    pub fn unsent_for_want(&mut self, intended: u64) {
        self.tally(intended).unsent += 1;
        if let Some(phase) = self.parts.phase(intended) {
            phase.unsent += 1;
        }
    }

    /// Bytes went, of a message whose own [`Recorder::sent`] has none.
    #[inline]
    pub fn wrote(&mut self, now: u64, bytes: u64) {
        self.tally(now).bytes_sent += bytes;
        self.series.slot(now).bytes_sent += bytes;
    }

    /// The same, counted with what belongs to another moment.
    #[inline]
    pub fn wrote_for(&mut self, moment: u64, now: u64, bytes: u64) {
        self.tally(moment).bytes_sent += bytes;
        self.series.slot(now).bytes_sent += bytes;
    }

    /// A connection was made, in so many nanoseconds.
    #[inline]
    pub fn connected(&mut self, now: u64, nanos: u64) {
        self.connected_for(now, now, nanos);
    }

    /// The same, counted with what belongs to another moment.
    #[inline]
    pub fn connected_for(&mut self, moment: u64, now: u64, nanos: u64) {
        self.tally(moment).opened += 1;
        if self.counts(moment) {
            self.spectra.connect.record(nanos);
        }
        self.series.slot(now).opened += 1;
    }

    /// TLS was agreed on, in so many nanoseconds.
    #[inline]
    pub fn tls(&mut self, now: u64, nanos: u64) {
        if self.counts(now) {
            self.spectra.tls.record(nanos);
        }
    }

    /// A connection could not be made.
    #[inline]
    pub fn not_connected<S: Into<String>>(&mut self, now: u64, kind: ErrorKind, why: impl FnOnce() -> S) {
        self.not_connected_for(now, now, kind, why);
    }

    /// The same, counted with what belongs to another moment.
    pub fn not_connected_for<S: Into<String>>(
        &mut self,
        moment: u64,
        now: u64,
        kind: ErrorKind,
        why: impl FnOnce() -> S,
    ) {
        self.tally(moment).not_opened += 1;
        self.error(moment, now, kind, why);
    }

    /// A connection ended, by whom ever.
    #[inline]
    pub fn closed(&mut self, now: u64) {
        self.tally(now).closed += 1;
    }

    /// So many connections, or requests on their way, are there now.
    #[inline]
    pub fn concurrency(&mut self, now: u64, count: u64) {
        self.concurrency = count;
        self.concurrency_max = self.concurrency_max.max(count);
        self.series.slot(now).concurrency = count;
    }

    /// What is done now and then: seconds are closed, snapshots handed over.
    #[inline]
    pub fn tick(&mut self, now: u64) {
        self.series.slot(now);
        if now >= self.next_snapshot {
            self.next_snapshot = now + SNAPSHOT_EVERY;
            self.hand_over(now);
        }
    }

    fn hand_over(&mut self, now: u64) {
        let Some(to) = &self.to else { return };
        let unknown = |slot: &&Slot| slot.length == 1 && slot.from >= self.told;
        let closed: Vec<Slot> = self.series.closed().iter().rev().take(8).filter(unknown).cloned().collect();
        let both = |f: fn(&Tally) -> u64| f(&self.measured) + f(&self.unmeasured);
        let snapshot = Snapshot {
            bucket: self.bucket,
            pool: self.pool,
            at: now.saturating_sub(self.span.start) / super::series::SECOND,
            nanos: now.saturating_sub(self.span.start),
            sent: both(|t| t.sent),
            answered: both(|t| t.answered),
            failed: both(|t| t.errors),
            bytes_received: both(|t| t.bytes_received),
            concurrency: self.concurrency,
            closed,
        };
        let told = snapshot.at;
        // Who watches is slow or gone: the next snapshot has the counts again.
        if to.try_send(snapshot).is_ok() {
            self.told = told;
        }
    }

    /// The end.
    #[must_use]
    pub fn finish(mut self, now: u64) -> LaneRecord {
        self.series.slot(now);
        LaneRecord {
            bucket: self.bucket,
            pool: self.pool,
            flows: self.flows,
            measured: self.measured,
            unmeasured: self.unmeasured,
            spectra: self.spectra,
            concurrency_max: self.concurrency_max,
            slots: self.series.finish(),
            parts: self.parts,
        }
    }
}
