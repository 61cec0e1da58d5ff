//! The records of one pool in one lane: a [`Recorder`], and until the run starts a list of events to record then.
//!
//! Connections are opened before the common start, so that the schedule does not begin with a thousand handshakes. Their times are in the
//! report as well: they are kept here until there is a recorder.

use crate::report::{ErrorKind, LaneRecord, Recorder, Sample, SnapshotsTo, Span};
use crate::run::UNFINISHED;

/// Most errors kept from before the start; further ones count as the last.
const EARLY_ERRORS: usize = 1024;

/// The name of bytes for which no request waited.
const UNASKED: &str = "unasked";

/// The records of a pool in one lane.
#[derive(Debug)]
pub(super) struct Book {
    recorder: Option<Recorder>,
    /// Connect times, and TLS handshake times.
    opened: Vec<u64>,
    secured: Vec<u64>,
    errors: Vec<(ErrorKind, String)>,
    counts: Vec<(&'static str, u64)>,
    /// How often bytes came for which no request waited, and the first.
    unasked: (u64, Option<String>),
    closed: u64,
    /// Established connections.
    open: u64,
    /// Requests sent that were neither answered nor lost.
    on_their_way: u64,
    /// Wrong answers whose errors are still to be recorded.
    wrong: u64,
    /// Whether no more requests are sent.
    over: bool,
    /// Whether any connection was ever established; the first error.
    pub(super) ever_opened: bool,
    pub(super) first_error: Option<String>,
}

impl Book {
    pub(super) fn new() -> Self {
        Self {
            recorder: None,
            opened: Vec::new(),
            secured: Vec::new(),
            errors: Vec::new(),
            counts: Vec::new(),
            unasked: (0, None),
            closed: 0,
            open: 0,
            on_their_way: 0,
            wrong: 0,
            over: false,
            ever_opened: false,
            first_error: None,
        }
    }

    /// Established connections.
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    /// Starts recording at the start of the run.
    pub(super) fn begin(&mut self, recorder: Recorder, to: Option<SnapshotsTo>, span: &Span) {
        let mut recorder = match to {
            Some(to) => recorder.reporting_to(to),
            None => recorder,
        };
        // Events before the start count in the first measured part, and are at the beginning of the series.
        let at = span.measured.start.max(span.start);
        for connect in std::mem::take(&mut self.opened) {
            recorder.connected_for(at, span.start, connect);
        }
        for tls in std::mem::take(&mut self.secured) {
            recorder.tls(at, tls);
        }
        for (kind, why) in std::mem::take(&mut self.errors) {
            recorder.not_connected_for(at, span.start, kind, || why);
        }
        for (name, by) in std::mem::take(&mut self.counts) {
            recorder.tally(at).named(name, by);
        }
        let (times, first) = std::mem::take(&mut self.unasked);
        if let Some(first) = first {
            recorder.tally(at).told(UNASKED, || first);
            recorder.tally(at).named(UNASKED, times.saturating_sub(1));
        }
        for _ in 0..std::mem::take(&mut self.closed) {
            recorder.closed(at);
        }
        recorder.concurrency(span.start, self.open);
        self.recorder = Some(recorder);
    }

    /// Records an established connection.
    pub(super) fn connected(&mut self, now: u64, connect: u64, tls: Option<u64>) {
        self.ever_opened = true;
        self.open += 1;
        let Some(recorder) = &mut self.recorder else {
            self.opened.push(connect);
            self.secured.extend(tls);
            return;
        };
        recorder.connected(now, connect);
        if let Some(tls) = tls {
            recorder.tls(now, tls);
        }
        recorder.concurrency(now, self.open);
    }

    /// Records a handshake of TLS, if sessions may be taken up again: whether one was.
    pub(super) fn handshake(&mut self, now: u64, resumed: Option<bool>) {
        let Some(resumed) = resumed else { return };
        let name = if resumed { "tls-resumed" } else { "tls-full" };
        match (&mut self.recorder, self.counts.iter_mut().find(|count| count.0 == name)) {
            (Some(recorder), _) => recorder.tally(now).named(name, 1),
            (None, Some(count)) => count.1 += 1,
            (None, None) => self.counts.push((name, 1)),
        }
    }

    /// Records a connection that could not be opened.
    pub(super) fn not_connected(&mut self, now: u64, kind: ErrorKind, why: String) {
        if self.first_error.is_none() {
            self.first_error = Some(why.clone());
        }
        match &mut self.recorder {
            Some(recorder) => recorder.not_connected(now, kind, || why),
            None if self.errors.len() < EARLY_ERRORS => self.errors.push((kind, why)),
            None => {}
        }
    }

    /// Records a connection that could not be opened for a request that was due: one error for both.
    pub(super) fn request_not_connected(
        &mut self,
        request: u16,
        intended: u64,
        now: u64,
        kind: ErrorKind,
        why: String,
    ) {
        if self.first_error.is_none() {
            self.first_error = Some(why.clone());
        }
        let Some(recorder) = &mut self.recorder else { return };
        recorder.tally(now).not_opened += 1;
        recorder.request_lost(request, intended, now, kind);
        recorder.error(intended, now, kind, || why);
    }

    /// Records the end of a connection.
    pub(super) fn closed(&mut self, now: u64) {
        self.open = self.open.saturating_sub(1);
        match &mut self.recorder {
            Some(recorder) => {
                recorder.closed(now);
                if !self.over {
                    recorder.concurrency(now, self.open);
                }
            }
            None => self.closed += 1,
        }
    }

    /// Records a sent request, by its index in the pool. It could be sent from `due` on: its intended time, or when a connection became
    /// free. It counts in the part of the run in which it was intended.
    #[inline]
    pub(super) fn sent(&mut self, request: u16, intended: u64, due: u64, now: u64, bytes: u64) {
        self.on_their_way += 1;
        let Some(recorder) = &mut self.recorder else { return };
        recorder.sent_when_due(intended, due, now, bytes);
        recorder.request_sent(request, intended);
    }

    /// Records written bytes of a request. They count in the part of the run in which it was intended.
    #[inline]
    pub(super) fn wrote(&mut self, intended: u64, now: u64, bytes: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.wrote_for(intended, now, bytes);
        }
    }

    /// No more requests are sent: connections closed from here on no longer count in the number of connections of the run.
    pub(super) fn asked_all(&mut self) {
        self.over = true;
    }

    #[inline]
    pub(super) fn received(&mut self, now: u64, bytes: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.received(now, bytes);
        }
    }

    #[inline]
    pub(super) fn answered(&mut self, request: u16, sample: &Sample, wrong: Option<ErrorKind>) {
        self.on_their_way = self.on_their_way.saturating_sub(1);
        self.wrong += u64::from(wrong.is_some());
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(sample);
            recorder.request_answered(request, sample.intended, sample.done);
            recorder.log_answer(request, sample, wrong);
        }
    }

    /// Records an error of a request, or of a connection without one.
    pub(super) fn error(
        &mut self,
        request: Option<u16>,
        intended: u64,
        now: u64,
        kind: ErrorKind,
        why: impl FnOnce() -> String,
    ) {
        if request.is_some() {
            match self.wrong.checked_sub(1) {
                Some(left) => self.wrong = left,
                None => self.on_their_way = self.on_their_way.saturating_sub(1),
            }
        }
        let Some(recorder) = &mut self.recorder else { return };
        if let Some(request) = request {
            recorder.request_failed(request, intended, (kind == ErrorKind::Timeout).then_some(now));
            // A wrong answer was logged when it was answered.
            if !ErrorKind::OF_ANSWERS.contains(&kind) {
                recorder.request_lost(request, intended, now, kind);
            }
        }
        if kind == ErrorKind::Timeout {
            recorder.timed_out(intended, now, why);
        } else {
            recorder.error(intended, now, kind, why);
        }
    }

    /// Requests sent that were neither answered nor lost.
    pub(super) fn on_their_way(&self) -> u64 {
        self.on_their_way
    }

    /// Records requests that were under way when the run was stopped: they have neither failed nor been answered.
    pub(super) fn unfinished(&mut self, intended: u64, count: u64) {
        self.on_their_way = self.on_their_way.saturating_sub(count);
        if count > 0 {
            self.count(intended, UNFINISHED, count);
        }
    }

    /// Records `count` requests that were due and will not be sent; `ours` if a connection was free for them.
    pub(super) fn unsent(&mut self, intended: u64, now: u64, count: u64, ours: bool) {
        let Some(recorder) = &mut self.recorder else { return };
        if ours {
            recorder.unsent(intended, now, count);
        } else {
            recorder.unsent_for_want(intended, count);
        }
    }

    /// Records that a request that is due waits for a connection.
    pub(super) fn held_up(&mut self, intended: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tally(intended).held_up += 1;
        }
    }

    /// Increments a counter that only HTTP has.
    pub(super) fn named(&mut self, now: u64, name: &'static str) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tally(now).named(name, 1);
        }
    }

    /// Records bytes for which no request waited, `what` in words: they are no failure of a request, and the connection ends.
    pub(super) fn unasked(&mut self, now: u64, what: impl FnOnce() -> String) {
        match &mut self.recorder {
            Some(recorder) => recorder.tally(now).told(UNASKED, what),
            None => {
                self.unasked.1.get_or_insert_with(what);
                self.unasked.0 += 1;
            }
        }
    }

    /// Adds to a counter that only HTTP has.
    pub(super) fn count(&mut self, now: u64, name: &'static str, by: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tally(now).named(name, by);
        }
    }

    /// Records `count` events of a stream that came together; the one before them came at `since`, if there was one. None: the first did
    /// not come in time.
    pub(super) fn events(&mut self, intended: u64, now: u64, count: u64, since: Option<u64>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.events(intended, now, count, since);
        }
    }

    /// Records a whole stream: when its last event came, and how many it had.
    pub(super) fn stream(&mut self, intended: u64, last: u64, events: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.stream(intended, last, events);
        }
    }

    pub(super) fn tick(&mut self, now: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(now);
        }
    }

    pub(super) fn finish(&mut self, now: u64) -> Option<LaneRecord> {
        self.recorder.take().map(|recorder| recorder.finish(now))
    }
}
