//! What a lane counts: the fate of each request and connection, in the recorder of the report and in counts of its own.

use std::ops::Range;

use super::asker::{Kind, Waiting};
use super::outcome::{MemcachedCounts, Trouble};
use crate::report::{ErrorKind, LaneRecord, Recorder, Sample};

/// The numbers of the requests in a report, which has latencies of each.
const GET: u16 = 0;
const SET: u16 = 1;
/// Their names there.
pub const REQUESTS: [&str; 2] = ["get", "set"];

/// What only this protocol has, of the measured part or of the rest.
#[derive(Debug, Clone, Copy, Default)]
struct Own {
    gets: u64,
    sets: u64,
    keys: u64,
    hits: u64,
    stored: u64,
    late: u64,
}

/// The account of a lane.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) counts: MemcachedCounts,
    /// There is none before the common start.
    recorder: Option<Recorder>,
    timeout: u64,
    /// The measured part.
    measured: Range<u64>,
    own: [Own; 2],
    /// What happened to connections before the start: how long they took, and how they failed.
    early: Vec<u64>,
    early_failures: Vec<(ErrorKind, String)>,
    /// Why filling cannot go on.
    pub(super) fill_failed: Option<String>,
}

/// Most failures of before the start that are kept one by one.
const EARLY: usize = 4096;

impl Book {
    pub(super) fn new(timeout: u64) -> Self {
        Self {
            counts: MemcachedCounts::default(),
            recorder: None,
            timeout,
            measured: 0..0,
            own: [Own::default(); 2],
            early: Vec::new(),
            early_failures: Vec::new(),
            fill_failed: None,
        }
    }

    /// The run starts; what happened to connections before is measured, too, as those are the ones that it uses.
    pub(super) fn start(&mut self, mut recorder: Recorder, measured: Range<u64>, now: u64) {
        let moment = measured.start;
        for nanos in std::mem::take(&mut self.early) {
            recorder.connected_for(moment, now, nanos);
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

    fn own(&mut self, intended: u64) -> &mut Own {
        &mut self.own[usize::from(!self.measured.contains(&intended))]
    }

    /// A request was sent.
    #[inline]
    pub(super) fn sent(&mut self, kind: Kind, intended: u64, now: u64) {
        let request = match kind {
            Kind::Fill => return,
            Kind::Get => GET,
            Kind::Set => SET,
        };
        self.counts.requests += 1;
        let own = self.own(intended);
        if request == GET {
            own.gets += 1;
            self.counts.gets += 1;
        } else {
            own.sets += 1;
            self.counts.sets += 1;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(intended, now, 0);
            recorder.request_sent(request, intended);
        }
    }

    /// A request was answered; the first byte of the answer came at `first`. `hits`: values that came.
    #[inline]
    pub(super) fn answered(&mut self, waiting: &Waiting, first: u64, now: u64, hits: u32) {
        let request = match waiting.kind {
            Kind::Fill => {
                self.counts.filled += 1;
                return;
            }
            Kind::Get => GET,
            Kind::Set => SET,
        };
        let intended = waiting.intended;
        self.counts.answered += 1;
        if request == GET {
            let keys = u64::from(waiting.keys);
            self.counts.keys += keys;
            self.counts.hits += u64::from(hits);
            self.counts.misses += keys - u64::from(hits);
            let own = self.own(intended);
            own.keys += keys;
            own.hits += u64::from(hits);
        }
        if now.saturating_sub(intended) > self.timeout {
            self.counts.late += 1;
            self.own(intended).late += 1;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.answered(&Sample {
                intended,
                sent: waiting.sent,
                first_byte: first,
                done: now,
                code: 0,
            });
            recorder.request_answered(request, intended, now);
        }
    }

    /// An answered set was stored.
    #[inline]
    pub(super) fn stored(&mut self, waiting: &Waiting) {
        if waiting.kind == Kind::Set {
            self.counts.stored += 1;
            self.own(waiting.intended).stored += 1;
        }
    }

    /// An answered request was not done, in the server's words.
    pub(super) fn refused(&mut self, waiting: &Waiting, now: u64, words: &[u8]) {
        if waiting.kind == Kind::Fill {
            let words = String::from_utf8_lossy(words).into_owned();
            self.fill_failed.get_or_insert(words);
            return;
        }
        self.counts.refused += 1;
        self.failed(waiting, now, ErrorKind::Status, || String::from_utf8_lossy(words).into_owned());
    }

    /// An answered get brought a value that is not the one of its key.
    pub(super) fn wrong(&mut self, waiting: &Waiting, now: u64, key: &[u8]) {
        self.counts.wrong += 1;
        let why = || format!("another value than the one of key {}", String::from_utf8_lossy(key));
        self.failed(waiting, now, ErrorKind::Content, why);
    }

    fn failed(&mut self, waiting: &Waiting, now: u64, kind: ErrorKind, why: impl FnOnce() -> String) {
        let request = if waiting.kind == Kind::Get { GET } else { SET };
        if let Some(recorder) = &mut self.recorder {
            recorder.error(waiting.intended, now, kind, why);
            recorder.request_failed(request, waiting.intended, None);
        }
    }

    /// A request was in flight on a connection that ended so.
    pub(super) fn lost(&mut self, waiting: &Waiting, now: u64, trouble: &Trouble) {
        if waiting.kind == Kind::Fill {
            self.fill_failed.get_or_insert_with(|| trouble.words());
            return;
        }
        let over = now.saturating_sub(waiting.sent) >= self.timeout;
        match trouble {
            Trouble::NoAnswer if over => {
                self.counts.timed_out += 1;
                let request = if waiting.kind == Kind::Get { GET } else { SET };
                if let Some(recorder) = &mut self.recorder {
                    recorder.timed_out(waiting.intended, now, || trouble.words());
                    recorder.request_failed(request, waiting.intended, Some(now));
                }
            }
            Trouble::NoAnswer => {
                self.counts.lost += 1;
                let why =
                    || "an earlier request on the connection had no answer, so it was given up".to_owned();
                self.failed(waiting, now, ErrorKind::Closed, why);
            }
            _ => {
                self.counts.lost += 1;
                self.failed(waiting, now, trouble.kind(), || trouble.words());
            }
        }
    }

    /// A connection stands, `nanos` after it was begun.
    pub(super) fn connected(&mut self, now: u64, nanos: u64) {
        self.counts.connected += 1;
        let moment = self.within(now);
        match &mut self.recorder {
            Some(recorder) => recorder.connected_for(moment, now, nanos),
            None => self.early.push(nanos),
        }
    }

    /// A connection could not be made.
    pub(super) fn not_connected(&mut self, now: u64, trouble: &Trouble) {
        self.counts.not_connected += 1;
        let (kind, moment) = (trouble.kind(), self.within(now));
        self.counts.connections_refused += u64::from(kind == ErrorKind::Refused);
        match &mut self.recorder {
            Some(recorder) => recorder.not_connected_for(moment, now, kind, || trouble.words()),
            None if self.early_failures.len() < EARLY => self.early_failures.push((kind, trouble.words())),
            None => {}
        }
    }

    /// A connection that stood has ended. `trouble`: by itself, before the run was over. With requests in flight these are the errors; without, it is
    /// one if the server had said something wrong.
    pub(super) fn ended(&mut self, now: u64, trouble: Option<&Trouble>, had_requests: bool) {
        let moment = self.within(now);
        let Some(recorder) = &mut self.recorder else { return };
        recorder.tally(moment).closed += 1;
        let Some(trouble) = trouble else { return };
        self.counts.broken += 1;
        let says = matches!(trouble, Trouble::Malformed(_) | Trouble::OutOfTurn(_) | Trouble::Unasked(_));
        if says && !had_requests {
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

    /// A request that is due waits for a connection.
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
    pub(super) fn finish(&mut self, start: u64, now: u64) -> Option<LaneRecord> {
        let mut recorder = self.recorder.take()?;
        let measured = self.measured.start;
        // Before the start nothing is measured.
        for (own, moment) in self.own.iter().zip([measured, start.saturating_sub(1)]) {
            let tally = recorder.tally(moment);
            for (name, count) in [
                ("gets", own.gets),
                ("sets", own.sets),
                ("keys", own.keys),
                ("hits", own.hits),
                ("misses", own.keys - own.hits),
                ("stored", own.stored),
                ("late", own.late),
            ] {
                tally.named(name, count);
            }
        }
        recorder.tally(measured).named("filled", self.counts.filled);
        recorder.tally(measured).named("broken", self.counts.broken);
        Some(recorder.finish(now))
    }
}
