//! Requests for another lane's keys, on their way there and back: what a connection asks of one lane at a time, in its order.
//!
//! A request travels as the bytes that the client sent. The lane that has the key reads it again and appends the answer, so nothing is shared and
//! nothing but the parcel's own memory is used, which comes back with it. A lane stops answering when the answers of a parcel are as long as its connection has
//! room for; what is left is sent again later. The first request of a parcel is always answered, so this ends.

use crate::answer;
use crate::protocol::{Parsed, parse};
use crate::store::{KeyHash, Snapshot, Store};

const REQUEST: u8 = 0;
const GET: u8 = 1;
const FLUSH: u8 = 2;
const SNAPSHOT: u8 = 3;
const RESET: u8 = 4;

/// What a connection asks of one lane, and what that answered.
#[derive(Debug, Default)]
pub(crate) struct Parcel {
    /// Who asks: the place of its connection in the lane it comes from.
    pub(crate) desk: usize,
    pub(crate) visit: u64,
    /// Bytes of answers that there is room for.
    pub(crate) room: usize,
    /// Requests: kind, length in four bytes, and the bytes.
    asked: Vec<u8>,
    /// The first of `asked` that is not answered.
    at: usize,
    answers: Vec<u8>,
    /// Where the answer to each request ends.
    ends: Vec<usize>,
    /// Answers that were taken, and where the next one begins.
    taken: (usize, usize),
    snapshots: Vec<Snapshot>,
}

impl Parcel {
    /// Of the connection at this place.
    pub(crate) fn new(desk: usize, visit: u64) -> Self {
        Self { desk, visit, ..Self::default() }
    }

    fn ask(&mut self, kind: u8, parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        self.asked.push(kind);
        self.asked.extend_from_slice(&(len as u32).to_le_bytes());
        parts.iter().for_each(|part| self.asked.extend_from_slice(part));
    }

    /// A whole request, as it came.
    pub(crate) fn ask_request(&mut self, bytes: &[u8]) {
        self.ask(REQUEST, [bytes, &[]]);
    }

    /// One key of a `get`.
    pub(crate) fn ask_get(&mut self, key: &[u8], cas: bool, touch: Option<i32>) {
        let mut how = [u8::from(cas), u8::from(touch.is_some()), 0, 0, 0, 0];
        how[2..].copy_from_slice(&touch.unwrap_or(0).to_le_bytes());
        self.ask(GET, [&how, key]);
    }

    /// That all items go.
    pub(crate) fn ask_flush(&mut self, delay: i32) {
        self.ask(FLUSH, [&delay.to_le_bytes(), &[]]);
    }

    /// What the lane counts; with `reset` the counters are set to 0.
    pub(crate) fn ask_snapshot(&mut self, reset: bool) {
        self.ask(if reset { RESET } else { SNAPSHOT }, [&[], &[]]);
    }

    /// Bytes of memory that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.asked.capacity() + self.answers.capacity() + 8 * self.ends.capacity()
    }

    /// Bytes of requests that are not answered.
    pub(crate) fn waiting(&self) -> usize {
        self.asked.len() - self.at
    }

    /// Requests that are not answered.
    pub(crate) fn requests(&self) -> u64 {
        let (mut at, mut count) = (self.at, 0);
        while let Some([_, a, b, c, d]) = self.asked.get(at..).and_then(|rest| rest.first_chunk::<5>()) {
            at += 5 + u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            count += 1;
        }
        count
    }

    /// Answers what there is room for, in order; returns how many.
    pub(crate) fn answer(&mut self, store: &mut Store, hash: &KeyHash) -> u64 {
        let mut done = 0;
        while self.at < self.asked.len() && (done == 0 || self.answers.len() < self.room) {
            let rest = &self.asked[self.at..];
            let Some((head, rest)) = rest.split_first_chunk::<5>() else { break };
            let [kind, len @ ..] = *head;
            let len = u32::from_le_bytes(len) as usize;
            let Some(bytes) = rest.get(..len) else { break };
            match kind {
                GET => {
                    if let Some((how, key)) = bytes.split_first_chunk::<6>() {
                        let touch = i32::from_le_bytes([how[2], how[3], how[4], how[5]]);
                        let touch = (how[1] != 0).then_some(touch);
                        answer::get(store, hash.of(key), key, how[0] != 0, touch, &mut self.answers);
                    }
                }
                REQUEST => {
                    if let Parsed::Request(request, _) = parse(bytes, store.limits().item) {
                        let of = request.command.key().map_or(0, |key| hash.of(key));
                        answer::answer(store, of, &request, &mut self.answers);
                    }
                }
                FLUSH => {
                    if let Some(delay) = bytes.first_chunk::<4>() {
                        store.flush(i32::from_le_bytes(*delay));
                    }
                }
                _ => {
                    self.snapshots.push(store.snapshot());
                    if kind == RESET {
                        store.reset_counts();
                    }
                }
            }
            self.at += 5 + len;
            self.ends.push(self.answers.len());
            done += 1;
        }
        done
    }

    /// The next answer, if it has come.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let (taken, from) = self.taken;
        let end = *self.ends.get(taken)?;
        self.taken = (taken + 1, end);
        Some(&self.answers[from..end])
    }

    /// Whether the next answer has come.
    pub(crate) fn has_next(&self) -> bool {
        self.taken.0 < self.ends.len()
    }

    /// The next snapshot that came.
    pub(crate) fn snapshot(&mut self) -> Option<Snapshot> {
        (!self.snapshots.is_empty()).then(|| self.snapshots.remove(0))
    }

    /// Forgets what was answered and taken; what is left is asked again.
    pub(crate) fn again(&mut self) {
        self.asked.drain(..self.at);
        self.at = 0;
        self.answers.clear();
        self.ends.clear();
        self.taken = (0, 0);
    }

    /// Forgets everything, and keeps memory for so many bytes.
    pub(crate) fn clear(&mut self, keep: usize) {
        self.at = self.asked.len();
        self.again();
        self.snapshots.clear();
        self.asked.shrink_to(keep);
        self.answers.shrink_to(keep);
    }
}
