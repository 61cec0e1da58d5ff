//! The accumulators of one pool in one lane.
//!
//! A lane creates one recorder for each pool when the run starts, records events, calls [`Recorder::tick`] about ten times a second (more
//! often is harmless), and returns the [`LaneRecord`] at the end. Nothing is shared. Recording a request costs a few additions and up to
//! six histogram entries of some nanoseconds each; only the first error of a kind, the first answer of a code and the end of a second
//! allocate.
//!
//! Requests *intended* within the measured part of the [`Span`] count for totals and percentiles; the rest (warm-up, cool-down) is counted
//! separately. The series has all requests.

mod passed;

pub(super) use passed::Wanted;
pub use passed::{Passed, SnapshotsTo};

use std::ops::Range;

use super::counted::Counted;
use super::events::Seen;
use super::kinds::ErrorKind;
use super::parts::{Parts, PhaseSpan};
use super::periods::fine::Fine;
use super::requests::{Line, Log, LogTo};
use super::series::{Series, Slot};
use super::tally::Tally;

/// Interval of a recorder's snapshots, nanoseconds.
pub const SNAPSHOT_EVERY: u64 = 250_000_000;

/// When a run starts and which part of it is measured, nanoseconds on the clock of the lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub start: u64,
    /// The measured part, except for phases within it that are not measured.
    pub measured: Range<u64>,
    /// Its phases, for figures of each; empty for no figures by phase.
    pub phases: Vec<PhaseSpan>,
}

impl Span {
    /// A span with one measured part and no figures by phase.
    #[must_use]
    pub fn new(start: u64, measured: Range<u64>) -> Self {
        Self { start, measured, phases: Vec::new() }
    }

    /// A span in which everything from `start` on is measured.
    #[must_use]
    pub fn all(start: u64) -> Self {
        Self::new(start, 0..u64::MAX)
    }

    /// Phases that are not measured between phases that are.
    fn gaps(&self) -> Vec<Range<u64>> {
        let begins = std::iter::once(self.start).chain(self.phases.iter().map(|p| p.end));
        let ranges = begins.zip(&self.phases).map(|(begin, phase)| (begin..phase.end, phase.measured));
        let within = |r: &Range<u64>| self.measured.start <= r.start && r.end <= self.measured.end;
        ranges.filter(|(range, measured)| !measured && within(range)).map(|(range, _)| range).collect()
    }
}

/// An answered request. Times are nanoseconds on the clock of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Intended send time. In a closed loop, when the decision to send it was made.
    pub intended: u64,
    /// Actual send time: times to the first and last byte count from here.
    pub sent: u64,
    /// When the first byte of the answer arrived; `done` if that is not known.
    pub first_byte: u64,
    /// When the answer was complete.
    pub done: u64,
    /// Code of the answer, such as 200; 0 if answers have none.
    pub code: u16,
}

/// The figures of a lane during a run. Counts are those of the whole run so far, so a lost snapshot does no harm.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The lane's bucket.
    pub bucket: u16,
    /// The pool, by its number.
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
    /// Connections, or requests in flight.
    pub concurrency: u64,
    /// Seconds that have ended since the last snapshot.
    pub closed: Vec<Slot>,
    /// What has passed, if it is judged or pushed while the run goes on.
    pub passed: Option<Box<Passed>>,
}

/// Result of a recorder.
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
    pub(super) fine_latency: Fine,
    pub(super) fine_slip: Fine,
    pub(super) parts: Parts,
    pub(super) events: Option<Box<Seen>>,
}

/// The histograms of a recorder.
#[derive(Debug, Clone, Default)]
pub(super) struct Spectra {
    pub(super) latency: Counted,
    pub(super) service: Counted,
    pub(super) connect: Counted,
    pub(super) tls: Counted,
    pub(super) first_byte: Counted,
    pub(super) slip: Counted,
    /// What is answered has no last byte that is another moment than its first.
    pub(super) no_last_byte: bool,
}

impl Spectra {
    fn settle(&mut self) {
        let Self { latency, service, connect, tls, first_byte, slip, no_last_byte: _ } = self;
        [latency, service, connect, tls, first_byte, slip].into_iter().for_each(Counted::settle);
    }
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
    events: Option<Box<Seen>>,
    log: Option<Box<Log>>,
    concurrency: u64,
    concurrency_max: u64,
    series: Series,
    fine_latency: Fine,
    fine_slip: Fine,
    to: Option<SnapshotsTo>,
    next_snapshot: u64,
    told: u64,
}

impl Recorder {
    /// A recorder of a lane (by bucket) and a pool (by number). `flows`: number of flows or connections assigned to it.
    #[must_use]
    pub fn new(bucket: u16, pool: usize, flows: u64, span: Span) -> Self {
        Self {
            bucket,
            pool,
            flows,
            series: Series::new(span.start),
            fine_latency: Fine::new(span.start),
            fine_slip: Fine::new(span.start),
            next_snapshot: span.start.saturating_add(SNAPSHOT_EVERY),
            gaps: span.gaps(),
            parts: Parts::new(span.phases.clone(), 0),
            span,
            measured: Tally::default(),
            unmeasured: Tally::default(),
            spectra: Spectra::default(),
            events: None,
            log: None,
            concurrency: 0,
            concurrency_max: 0,
            to: None,
            told: 0,
        }
    }

    /// Sends snapshots to this channel, see [`super::live::channel`]. Snapshots for which it has no room are dropped.
    #[must_use]
    pub fn reporting_to(mut self, to: impl Into<SnapshotsTo>) -> Self {
        self.to = Some(to.into());
        self
    }

    /// Sends a line for each request to this log, see [`super::requests::log`].
    #[must_use]
    pub fn logging_to(mut self, to: Option<LogTo>) -> Self {
        self.log = to.map(|to| Box::new(Log::new(to)));
        self
    }

    /// Adds figures for each of `requests` requests, see [`Recorder::request_sent`].
    #[must_use]
    pub fn with_requests(mut self, requests: usize) -> Self {
        self.parts = Parts::new(self.span.phases.clone(), requests);
        self
    }

    /// Whether a request intended at this time is measured.
    #[inline]
    fn counts(&self, moment: u64) -> bool {
        // Guard: `!self.gaps.iter().any(|gap| gap.contains(&moment))` as `true` fails timeline::
        self.span.measured.contains(&moment) && !self.gaps.iter().any(|gap| gap.contains(&moment))
    }

    /// The counters for this time, for events that have no method here.
    #[inline]
    pub fn tally(&mut self, moment: u64) -> &mut Tally {
        if self.counts(moment) { &mut self.measured } else { &mut self.unmeasured }
    }

    /// Records that a request of the pool, by number, was sent, for its own figures; in addition to [`Recorder::sent`].
    #[inline]
    pub fn request_sent(&mut self, request: u16, intended: u64) {
        if let Some(share) = self.request(request, intended) {
            share.sent += 1;
        }
    }

    /// Records that it was answered; in addition to [`Recorder::answered`].
    #[inline]
    pub fn request_answered(&mut self, request: u16, intended: u64, done: u64) {
        if let Some(share) = self.request(request, intended) {
            share.answered += 1;
            share.latency(done.saturating_sub(intended));
        }
    }

    /// Logs an answer, and what was wrong with it.
    #[inline]
    pub fn log_answer(&mut self, request: u16, sample: &Sample, wrong: Option<ErrorKind>) {
        if let Some(log) = &mut self.log {
            let moments = [sample.intended, sample.sent, sample.first_byte, sample.done];
            let at = (self.bucket, self.pool);
            let line = Line::answered(at, request, moments, sample.code, self.span.start);
            log.add(Line { error: wrong, ..line });
        }
    }

    /// Logs that it failed without an answer.
    #[cold]
    pub fn request_lost(&mut self, request: u16, intended: u64, now: u64, kind: ErrorKind) {
        let Some(log) = &mut self.log else { return };
        let at = (self.bucket, self.pool);
        let line = Line::answered(at, request, [intended, 0, 0, now], 0, self.span.start);
        log.add(Line { error: Some(kind), times: None, ..line });
    }

    /// Records that it failed; in addition to [`Recorder::error`]. If it timed out at `waited_until`, the wait counts as a latency.
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

    /// Records a sent request: intended time, actual time (the end of the batch, if several are sent at once), and size in bytes.
    #[inline]
    pub fn sent(&mut self, intended: u64, now: u64, bytes: u64) {
        self.sent_when_due(intended, intended, now, bytes);
    }

    /// The same for a request that could be sent only from `due` on: slip counts from `due`.
    #[inline]
    pub fn sent_when_due(&mut self, intended: u64, due: u64, now: u64, bytes: u64) {
        let slip = now.saturating_sub(due);
        let tally = self.tally(intended);
        tally.sent += 1;
        tally.bytes_sent += bytes;
        if self.counts(intended) {
            self.spectra.slip.record(slip);
            self.fine_slip.note(intended, slip);
        }
        if let Some(phase) = self.parts.phase(intended) {
            phase.sent += 1;
        }
        let slot = self.series.slot(now);
        slot.sent += 1;
        slot.bytes_sent += bytes;
        self.series.slip(slip);
    }

    /// Records a complete answer. A failed check is recorded as an error in addition.
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
            self.fine_latency.note(sample.intended, latency);
            self.spectra.service.record(sample.done.saturating_sub(sample.sent));
            self.spectra.first_byte.record(sample.first_byte.saturating_sub(sample.sent));
        }
        self.series.slot(sample.done).answered += 1;
        self.series.latency(latency);
    }

    /// Records `count` events of a stream intended at that time, which came together; the one before them at `since`, if there was one. No
    /// event at all: the wait for the first was given up.
    #[inline]
    pub fn events(&mut self, intended: u64, now: u64, count: u64, since: Option<u64>) {
        if self.counts(intended) {
            self.events.get_or_insert_default().events(intended, now, count, since);
        }
    }

    /// Records a stream of events that is whole.
    pub fn stream(&mut self, intended: u64, last: u64, events: u64) {
        if self.counts(intended) {
            self.events.get_or_insert_default().stream(intended, last, events);
        }
    }

    /// Records received bytes, of an answer or not.
    #[inline]
    pub fn received(&mut self, now: u64, bytes: u64) {
        self.tally(now).bytes_received += bytes;
        self.series.slot(now).bytes_received += bytes;
    }

    /// Records an error of a request intended at that time, or of a connection. `why` is called for the first error of a kind only.
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

    /// Records a request that timed out. It counts as an error **and** as a latency of the time waited, which is a lower bound: without
    /// it a slow server would look fast.
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

    /// Records `count` requests that were due at that time and will not be sent, with their lateness so far.
    pub fn unsent(&mut self, intended: u64, now: u64, count: u64) {
        self.unsent_for_want(intended, count);
        let slip = now.saturating_sub(intended);
        if self.counts(intended) {
            self.spectra.slip.record_n(slip, count);
        }
        self.series.slot(now);
        self.series.slip_n(slip, count);
    }

    /// The same for lack of a connection, which does not count as lateness of the generator.
    pub fn unsent_for_want(&mut self, intended: u64, count: u64) {
        self.tally(intended).unsent += count;
        if let Some(phase) = self.parts.phase(intended) {
            phase.unsent += count;
        }
    }

    /// Records sent bytes of a message whose [`Recorder::sent`] had none.
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

    /// Records a connection established in `nanos` nanoseconds.
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

    /// Records a TLS handshake of `nanos` nanoseconds.
    #[inline]
    pub fn tls(&mut self, now: u64, nanos: u64) {
        if self.counts(now) {
            self.spectra.tls.record(nanos);
        }
    }

    /// Records a connection that could not be opened.
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

    /// Records the end of a connection, from either side.
    #[inline]
    pub fn closed(&mut self, now: u64) {
        self.tally(now).closed += 1;
    }

    /// Records the current number of connections, or of requests in flight.
    #[inline]
    pub fn concurrency(&mut self, now: u64, count: u64) {
        self.concurrency = count;
        self.concurrency_max = self.concurrency_max.max(count);
        self.series.slot(now).concurrency = count;
    }

    /// Periodic work: ends seconds and sends snapshots.
    #[inline]
    pub fn tick(&mut self, now: u64) {
        self.series.slot(now);
        self.flush(now);
        if now >= self.next_snapshot {
            self.next_snapshot = now + SNAPSHOT_EVERY;
            self.spectra.settle();
            self.events.iter_mut().for_each(|seen| seen.settle());
            self.hand_over(now);
        }
    }

    /// Gives the lines of the log away, and counts those for which there was no room.
    fn flush(&mut self, now: u64) {
        let lost = self.log.as_mut().map_or(0, |log| log.flush());
        if lost > 0 {
            self.tally(now).named("log-lost", lost);
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
            passed: to.passed((&self.measured, &self.unmeasured), &self.spectra, self.events.as_deref()),
        };
        let told = snapshot.at;
        // The receiver is slow or gone; the next snapshot has the counts again.
        if to.try_send(snapshot).is_ok() {
            self.told = told;
        }
    }

    /// Ends the recording at `now`.
    #[must_use]
    pub fn finish(mut self, now: u64) -> LaneRecord {
        self.series.slot(now);
        self.flush(now);
        let whole = self.span.measured.start..self.span.measured.end.min(now);
        LaneRecord {
            bucket: self.bucket,
            pool: self.pool,
            flows: self.flows,
            measured: self.measured,
            unmeasured: self.unmeasured,
            spectra: self.spectra,
            concurrency_max: self.concurrency_max,
            slots: self.series.finish(),
            fine_latency: self.fine_latency.finish(&whole, &self.gaps),
            fine_slip: self.fine_slip.finish(&whole, &self.gaps),
            parts: self.parts,
            events: self.events,
        }
    }
}
