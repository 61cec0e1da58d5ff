//! What a lane counts of requests besides what every load counts whose connections stay.

use super::MemcachedLoadConfig;
use super::asker::{Kind, Waiting};
use super::outcome::Trouble;
use crate::report::ErrorKind;
use crate::run::staying;
use crate::run::staying::Lost;

/// The numbers of the requests in a report, which has latencies of each.
const GET: u16 = 0;
const SET: u16 = 1;
/// Their names there.
pub const REQUESTS: [&str; 2] = ["get", "set"];

/// The account of a lane.
pub(super) type Book = staying::Book<MemcachedLoadConfig>;

/// Counts of gets and sets, in the measured part or in the rest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Requests {
    pub(super) gets: u64,
    pub(super) sets: u64,
    pub(super) keys: u64,
    pub(super) hits: u64,
    pub(super) stored: u64,
    pub(super) late: u64,
}

/// Counts of this protocol alone.
#[derive(Debug, Default)]
pub struct Own {
    /// Of the measured part and of the rest.
    pub(super) requests: [Requests; 2],
    pub(super) refused: u64,
    /// Why filling cannot go on.
    pub(super) fill_failed: Option<String>,
}

impl Own {
    /// In all of the run.
    pub(super) fn sum(&self, of: impl Fn(&Requests) -> u64) -> u64 {
        self.requests.iter().map(of).sum()
    }
}

/// The number of a request in a report; `None` before the run.
fn number(kind: Kind) -> Option<u16> {
    match kind {
        Kind::Fill => None,
        Kind::Get => Some(GET),
        Kind::Set => Some(SET),
    }
}

impl Book {
    fn requests(&mut self, intended: u64) -> &mut Requests {
        &mut self.own.requests[usize::from(!self.measured.contains(&intended))]
    }

    /// A request was sent.
    #[inline]
    pub(super) fn asked(&mut self, kind: Kind, intended: u64, now: u64) {
        let Some(request) = number(kind) else { return };
        self.sent(intended, now);
        let requests = self.requests(intended);
        let count = if request == GET { &mut requests.gets } else { &mut requests.sets };
        *count += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.request_sent(request, intended);
        }
    }

    /// A request was answered; the first byte of the answer came at `first`. `hits`: values that came.
    #[inline]
    pub(super) fn heard(&mut self, waiting: &Waiting, first: u64, now: u64, hits: u32) {
        let Some(request) = number(waiting.kind) else {
            self.all.prepared += 1;
            return;
        };
        let intended = waiting.at.intended;
        let late = self.answered(waiting.at, first, now);
        let requests = self.requests(intended);
        if request == GET {
            requests.keys += u64::from(waiting.keys);
            requests.hits += u64::from(hits);
        }
        requests.late += u64::from(late);
        if let Some(recorder) = &mut self.recorder {
            recorder.request_answered(request, intended, now);
        }
    }

    /// An answered set was stored.
    #[inline]
    pub(super) fn stored(&mut self, waiting: &Waiting) {
        if waiting.kind == Kind::Set {
            self.requests(waiting.at.intended).stored += 1;
        }
    }

    /// An answered request was not done, in the server's words.
    pub(super) fn refused(&mut self, waiting: &Waiting, now: u64, words: &[u8]) {
        let words = || String::from_utf8_lossy(words).into_owned();
        if waiting.kind == Kind::Fill {
            self.own.fill_failed.get_or_insert_with(words);
            return;
        }
        self.own.refused += 1;
        self.failed(waiting.at.intended, now, ErrorKind::Status, words);
        self.request_failed(waiting, None);
    }

    /// An answered get brought a value that is not the one of its key.
    pub(super) fn wrong(&mut self, waiting: &Waiting, now: u64, key: &[u8]) {
        self.all.wrong += 1;
        let why = || format!("another value than the one of key {}", String::from_utf8_lossy(key));
        self.failed(waiting.at.intended, now, ErrorKind::Content, why);
        self.request_failed(waiting, None);
    }

    /// A request was in flight on a connection that ended so.
    pub(super) fn lost_request(&mut self, waiting: &Waiting, now: u64, trouble: &Trouble) {
        if waiting.kind == Kind::Fill {
            self.own.fill_failed.get_or_insert_with(|| trouble.words());
            return;
        }
        match self.lost(waiting.at, now, trouble) {
            Lost::TimedOut => self.request_failed(waiting, Some(now)),
            Lost::Failed => self.request_failed(waiting, None),
            Lost::Unfinished => {}
        }
    }

    fn request_failed(&mut self, waiting: &Waiting, timed_out: Option<u64>) {
        if let (Some(recorder), Some(request)) = (&mut self.recorder, number(waiting.kind)) {
            recorder.request_failed(request, waiting.at.intended, timed_out);
        }
    }
}
