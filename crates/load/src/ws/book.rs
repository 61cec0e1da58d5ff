//! What a lane counts: the fate of each message and connection, in the recorder of the report and in counts of its own.

use std::ops::Range;

use super::closes::Closes;
use super::outcome::{End, NotOpened, Trouble, WsCounts};
use crate::report::{ErrorKind, LaneRecord, Recorder, Sample};

/// Most failures of before the start that are kept one by one.
const EARLY: usize = 4096;

/// A message in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    /// When it was to be sent, nanoseconds.
    pub(super) intended: u64,
    /// When it was sent.
    pub(super) sent: u64,
}

/// The account of a lane.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) counts: WsCounts,
    /// There is none before the common start.
    recorder: Option<Recorder>,
    timeout: u64,
    /// The measured part.
    measured: Range<u64>,
    closes: Closes,
    /// How often each kind of opening handshake failed.
    handshakes: Vec<(&'static str, u64)>,
    /// What happened to connections before the start: how long they and TLS took, and how they failed.
    early: Vec<(u64, Option<u64>)>,
    early_failures: Vec<(ErrorKind, String)>,
}

impl Book {
    pub(super) fn new(timeout: u64) -> Self {
        Self {
            counts: WsCounts::default(),
            recorder: None,
            timeout,
            measured: 0..0,
            closes: Closes::default(),
            handshakes: Vec::new(),
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

    /// A message was sent.
    #[inline]
    pub(super) fn sent(&mut self, intended: u64, now: u64) {
        self.counts.messages += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(intended, now, 0);
        }
    }

    /// A message was answered; the first byte of the answer came at `first`.
    #[inline]
    pub(super) fn answered(&mut self, message: Waiting, first: u64, now: u64) {
        let Waiting { intended, sent } = message;
        self.counts.answered += 1;
        self.counts.late += u64::from(now.saturating_sub(intended) > self.timeout);
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(&Sample { intended, sent, first_byte: first, done: now, code: 0 });
        }
    }

    /// An answer is not the message that was sent.
    #[cold]
    pub(super) fn wrong(&mut self, message: Waiting, now: u64) {
        self.counts.wrong += 1;
        let why = || "the answer is not the message that was sent";
        if let Some(recorder) = &mut self.recorder {
            recorder.error(message.intended, now, ErrorKind::Content, why);
        }
    }

    /// A message came for which none of ours waited.
    pub(super) fn unasked(&mut self) {
        self.counts.unasked += 1;
    }

    /// A message was in flight on a connection that ended so.
    pub(super) fn lost(&mut self, message: Waiting, now: u64, trouble: &Trouble) {
        let over = now.saturating_sub(message.sent) >= self.timeout;
        if *trouble == Trouble::NoAnswer && over {
            self.counts.timed_out += 1;
            if let Some(recorder) = &mut self.recorder {
                recorder.timed_out(message.intended, now, || trouble.words());
            }
            return;
        }
        self.counts.lost += 1;
        let Some(recorder) = &mut self.recorder else { return };
        if *trouble == Trouble::NoAnswer {
            let why = || "an earlier message on the connection had no answer, so it was given up";
            recorder.error(message.intended, now, ErrorKind::Closed, why);
        } else {
            recorder.error(message.intended, now, trouble.kind(), || trouble.words());
        }
    }

    /// A WebSocket is open, `nanos` after its connection was begun; TLS took `tls` of them.
    pub(super) fn connected(&mut self, now: u64, nanos: u64, tls: Option<u64>) {
        self.counts.connected += 1;
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

    /// A WebSocket could not be opened.
    pub(super) fn not_connected(&mut self, now: u64, trouble: &Trouble) {
        self.counts.not_connected += 1;
        if let Trouble::Opening(why) = trouble {
            self.handshake_failed(why);
        }
        let (kind, moment) = (trouble.kind(), self.within(now));
        self.counts.connections_refused += u64::from(kind == ErrorKind::Refused);
        match &mut self.recorder {
            Some(recorder) => recorder.not_connected_for(moment, now, kind, || trouble.words()),
            None if self.early_failures.len() < EARLY => self.early_failures.push((kind, trouble.words())),
            None => {}
        }
    }

    fn handshake_failed(&mut self, why: &NotOpened) {
        self.counts.handshakes_failed += 1;
        let name = why.name();
        match self.handshakes.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.handshakes.push((name, 1)),
        }
    }

    /// A WebSocket has ended. `trouble`: by itself, before the run was over. With messages in flight these are the errors; without, it is one
    /// if the server had said something wrong.
    pub(super) fn ended(&mut self, now: u64, trouble: Option<&Trouble>, had_messages: bool, end: End) {
        let moment = self.within(now);
        let Some(recorder) = &mut self.recorder else { return };
        recorder.tally(moment).closed += 1;
        let Some(trouble) = trouble else {
            match end {
                End::Said => self.counts.closed += 1,
                End::No | End::Told => self.counts.unclosed += 1,
            }
            return;
        };
        self.counts.broken += 1;
        if let Trouble::CloseFrame(code) = trouble {
            self.counts.closed_by_server += 1;
            self.closes.count(*code);
        }
        if matches!(trouble, Trouble::Fault(_)) && !had_messages {
            recorder.error(moment, now, trouble.kind(), || trouble.words());
        }
    }

    #[inline]
    pub(super) fn wrote(&mut self, now: u64, n: usize) {
        if let Some(recorder) = &mut self.recorder {
            self.counts.bytes_written += n as u64;
            recorder.wrote(now, n as u64);
        }
    }

    #[inline]
    pub(super) fn read(&mut self, now: u64, n: usize) {
        if let Some(recorder) = &mut self.recorder {
            self.counts.bytes_read += n as u64;
            recorder.received(now, n as u64);
        }
    }

    /// A message that is due waits for a connection.
    pub(super) fn held_up(&mut self, now: u64) {
        self.counts.held_up += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.tally(now).held_up += 1;
        }
    }

    /// So many that were due at that moment are not sent any more. `want`: for lack of a connection.
    pub(super) fn unsent(&mut self, due: u64, now: u64, count: u64, want: bool) {
        self.counts.unsent += count;
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
    pub(super) fn finish(&mut self, now: u64) -> Option<LaneRecord> {
        let mut recorder = self.recorder.take()?;
        let (c, tally) = (self.counts, recorder.tally(self.measured.start));
        for (name, count) in [
            ("late", c.late),
            ("fragmented", c.fragmented),
            ("unasked", c.unasked),
            ("pings", c.pings),
            ("handshakes-failed", c.handshakes_failed),
            ("broken", c.broken),
            ("closed-by-server", c.closed_by_server),
            ("closed", c.closed),
            ("unclosed", c.unclosed),
        ] {
            tally.named(name, count);
        }
        for (name, count) in self.closes.each().chain(self.handshakes.iter().copied()) {
            tally.named(name, count);
        }
        Some(recorder.finish(now))
    }
}
