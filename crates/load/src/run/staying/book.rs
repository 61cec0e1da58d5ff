//! What a lane counts: the fate of what was sent and of each connection, in the recorder of the report and in counts of its own.

use std::ops::Range;

use super::{Dialogue, Fault, Trouble};
use crate::report::{ErrorKind, LaneRecord, Recorder, Sample};
use crate::run::UNFINISHED;

/// Most failures of before the start that are kept one by one.
const EARLY: usize = 4096;

/// What every such load counts of a lane.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) timed_out: u64,
    pub(crate) lost: u64,
    /// Under way when the run was stopped.
    pub(crate) unfinished: u64,
    pub(crate) late: u64,
    pub(crate) wrong: u64,
    /// Sent and answered before the run.
    pub(crate) prepared: u64,
    pub(crate) unsent: u64,
    pub(crate) held_up: u64,
    pub(crate) connected: u64,
    pub(crate) not_connected: u64,
    pub(crate) connections_refused: u64,
    pub(crate) broken: u64,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_read: u64,
}

/// When something in flight was to be sent, and when it was, nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) intended: u64,
    pub(crate) sent: u64,
}

/// What became of something that had no answer when its connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It had none within the timeout.
    TimedOut,
    /// It failed with its connection.
    Failed,
    /// The run was stopped before.
    Unfinished,
}

/// The account of a lane.
#[derive(Debug)]
pub struct Book<D: Dialogue> {
    pub(crate) all: Counted,
    pub(crate) own: D::Own,
    /// There is none before the common start.
    pub(crate) recorder: Option<Recorder>,
    timeout: u64,
    /// The measured part.
    pub(crate) measured: Range<u64>,
    /// What happened to connections before the start: how long they and TLS took, and how they failed.
    early: Vec<(u64, Option<u64>)>,
    early_failures: Vec<(ErrorKind, String)>,
}

impl<D: Dialogue> Book<D> {
    pub(super) fn new(timeout: u64) -> Self {
        Self {
            all: Counted::default(),
            own: D::Own::default(),
            recorder: None,
            timeout,
            measured: 0..0,
            early: Vec::new(),
            early_failures: Vec::new(),
        }
    }

    /// The run starts; what happened to connections before is measured, too, as those are the ones that it uses.
    pub(super) fn start(&mut self, mut recorder: Recorder, measured: Range<u64>, now: u64) {
        let moment = measured.start;
        for (nanos, tls) in std::mem::take(&mut self.early) {
            recorder.connected_for(moment, now, nanos);
            if let Some(nanos) = tls {
                recorder.tls(moment, nanos);
            }
        }
        for (kind, why) in std::mem::take(&mut self.early_failures) {
            recorder.not_connected_for(moment, now, kind, || why);
        }
        (self.measured, self.recorder) = (measured, Some(recorder));
    }

    /// Why no connection stands, as far as is known.
    pub(super) fn why_none_stands(&self) -> String {
        let first = self.early_failures.first();
        first.map_or_else(|| "no connection can be opened".to_owned(), |(_, why)| why.clone())
    }

    /// What is measured although it happens before or after: connections.
    fn within(&self, moment: u64) -> u64 {
        moment.clamp(self.measured.start, self.measured.end.saturating_sub(1).max(self.measured.start))
    }

    /// Something was sent.
    #[inline]
    pub(crate) fn sent(&mut self, intended: u64, now: u64) {
        self.all.sent += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(intended, now, 0);
        }
    }

    /// It was answered; the first byte of the answer came at `first`. Returns whether that was late.
    #[inline]
    pub(crate) fn answered(&mut self, waiting: Waiting, first: u64, now: u64) -> bool {
        let Waiting { intended, sent } = waiting;
        self.all.answered += 1;
        let late = now.saturating_sub(intended) > self.timeout;
        self.all.late += u64::from(late);
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(&Sample { intended, sent, first_byte: first, done: now, code: 0 });
        }
        late
    }

    /// An answer is an error, or a wrong one.
    pub(crate) fn failed(&mut self, intended: u64, now: u64, kind: ErrorKind, why: impl FnOnce() -> String) {
        if let Some(recorder) = &mut self.recorder {
            recorder.error(intended, now, kind, why);
        }
    }

    /// It was in flight on a connection that ended so.
    pub(crate) fn lost(&mut self, waiting: Waiting, now: u64, trouble: &Trouble<D::Fault>) -> Lost {
        let Waiting { intended, sent } = waiting;
        if *trouble == Trouble::Stopped {
            self.all.unfinished += 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.tally(intended).named(UNFINISHED, 1);
            }
            return Lost::Unfinished;
        }
        let is_silent = *trouble == Trouble::NoAnswer;
        let over = is_silent && now.saturating_sub(sent) >= self.timeout;
        if over {
            self.all.timed_out += 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.timed_out(intended, now, || trouble.words());
            }
            return Lost::TimedOut;
        }
        self.all.lost += 1;
        if is_silent {
            let why =
                || format!("an earlier {} on the connection had no answer, so it was given up", D::NOUN);
            self.failed(intended, now, ErrorKind::Closed, why);
        } else {
            self.failed(intended, now, trouble.kind(), || trouble.words());
        }
        Lost::Failed
    }

    /// A connection stands, `nanos` after it was begun; TLS took `tls` of them.
    pub(super) fn connected(&mut self, now: u64, nanos: u64, tls: Option<u64>) {
        self.all.connected += 1;
        let moment = self.within(now);
        match &mut self.recorder {
            Some(recorder) => {
                recorder.connected_for(moment, now, nanos);
                if let Some(nanos) = tls {
                    recorder.tls(moment, nanos);
                }
            }
            None => self.early.push((nanos, tls)),
        }
    }

    /// A connection could not be opened.
    pub(super) fn not_connected(&mut self, now: u64, trouble: &Trouble<D::Fault>) {
        self.all.not_connected += 1;
        D::not_opened(&mut self.own, trouble);
        let (kind, moment) = (trouble.kind(), self.within(now));
        self.all.connections_refused += u64::from(kind == ErrorKind::Refused);
        match &mut self.recorder {
            Some(recorder) => recorder.not_connected_for(moment, now, kind, || trouble.words()),
            None if self.early_failures.len() < EARLY => self.early_failures.push((kind, trouble.words())),
            None => {}
        }
    }

    /// A connection that stood has ended. `trouble`: by itself, before the run was over. With something in flight that is the error; without, it is one
    /// if the far side had said something wrong. Returns whether the account has begun, so that it counts.
    pub(crate) fn ended(&mut self, now: u64, trouble: Option<&Trouble<D::Fault>>, had_any: bool) -> bool {
        let moment = self.within(now);
        let Some(recorder) = &mut self.recorder else { return false };
        recorder.tally(moment).closed += 1;
        if let Some(trouble) = trouble.filter(|trouble| **trouble != Trouble::Stopped) {
            self.all.broken += 1;
            if !had_any && matches!(trouble, Trouble::Own(fault) if fault.is_said()) {
                recorder.error(moment, now, trouble.kind(), || trouble.words());
            }
        }
        true
    }

    #[inline]
    pub(super) fn wrote(&mut self, now: u64, n: usize) {
        if let Some(recorder) = &mut self.recorder {
            self.all.bytes_written += n as u64;
            recorder.wrote(now, n as u64);
        }
    }

    #[inline]
    pub(super) fn read(&mut self, now: u64, n: usize) {
        if let Some(recorder) = &mut self.recorder {
            self.all.bytes_read += n as u64;
            recorder.received(now, n as u64);
        }
    }

    /// Something that is due waits for a connection.
    pub(super) fn held_up(&mut self, now: u64) {
        self.all.held_up += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.tally(now).held_up += 1;
        }
    }

    /// So many that were due at that moment are not sent any more. `want`: for lack of a connection.
    pub(super) fn unsent(&mut self, due: u64, now: u64, count: u64, want: bool) {
        self.all.unsent += count;
        match &mut self.recorder {
            Some(recorder) if want => recorder.unsent_for_want(due, count),
            Some(recorder) => recorder.unsent(due, now, count),
            None => {}
        }
    }

    /// Periodic work.
    pub(super) fn tick(&mut self, now: u64, connections: u64) {
        if let Some(recorder) = &mut self.recorder {
            recorder.concurrency(now, connections);
            recorder.tick(now);
        }
    }

    /// The record of the report; `None` before the start.
    pub(super) fn finish(&mut self, start: u64, now: u64) -> Option<LaneRecord> {
        let mut recorder = self.recorder.take()?;
        // Before the start nothing is measured.
        D::name(&self.all, &self.own, &mut recorder, self.measured.start, start.saturating_sub(1));
        Some(recorder.finish(now))
    }
}
