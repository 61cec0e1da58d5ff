//! One connection: what is still to be written, which requests are in flight, and what answers say to them.
//!
//! Answers come in the order of the requests (that is the protocol), so the first that waits is the one that is answered. An answer that does not fit it ends
//! the connection, since nothing behind it can be believed.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use flowlane::TcpStream;
use flowlane_memcached::client::{Answer, Answers};
use flowlane_memcached::map::LaneMap;
use flowlane_sys::words::said;

use super::asker::{Asker, Kind, Waiting};
use super::book::Book;
use super::items::is_of_value;
use super::outcome::{Fault, Trouble};
use super::{MemcachedLoadConfig, Protocol};
use crate::run::staying;

/// What a buffer may keep once everything is written, bytes.
const KEPT: usize = 64 << 10;
/// Requests in flight on a connection while items are stored before the run, and bytes that may wait to be written then.
const FILLS: usize = 32;
const FILL_BYTES: usize = 256 << 10;

/// A connection, or the place of one.
#[derive(Debug, Default)]
pub struct Conn {
    /// The connection, while it stands.
    stream: Option<TcpStream>,
    /// What is to be written, and how much of it has been.
    out: Vec<u8>,
    written: usize,
    answers: Answers,
    asked: Asked,
    /// The lane of the server that it came to, if keys are asked for by lanes.
    lane: usize,
}

/// Requests in flight, and what is known of the answer to the first.
#[derive(Debug, Default)]
struct Asked {
    waiting: VecDeque<Waiting>,
    /// The keys of gets, by their items, if values are verified.
    items: VecDeque<u64>,
    /// Of the first: values that came, keys that were passed over, when its first byte came, and whether a value was wrong, and of which item.
    hits: u32,
    passed: u32,
    first: Option<u64>,
    wrong: Option<u64>,
    refused: bool,
    /// Requests that were answered without an error.
    good: u64,
    /// The value that comes now: its item, its length, and how much has come.
    value: (u64, usize, usize),
}

impl staying::Conn<MemcachedLoadConfig> for Conn {
    fn new(_ordinal: u64) -> Self {
        Self::default()
    }

    /// What it was told of the server's lanes is the same on all, while the server runs.
    fn stands(&mut self, (stream, map): (TcpStream, Option<LaneMap>), asker: &mut Asker) -> Vec<u8> {
        if let Some(map) = map {
            self.lane = map.here;
            asker.map = Some(map);
        }
        self.stream = Some(stream);
        Vec::new()
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.asked.waiting.len()
    }

    #[inline]
    fn has_room(&self, depth: usize) -> bool {
        self.stream.is_some() && self.in_flight() < depth
    }

    fn oldest(&self) -> Option<u64> {
        self.asked.waiting.front().map(|waiting| waiting.at.sent)
    }

    fn heard(&self) -> u64 {
        self.asked.good
    }

    #[inline]
    fn is_to_write(&self) -> bool {
        self.written < self.out.len()
    }

    #[inline]
    fn ask(&mut self, asker: &mut Asker, book: &mut Book, intended: u64, now: u64) {
        let (kind, keys) = asker.next(self.lane, &mut self.out, &mut self.asked.items);
        self.asked.waiting.push_back(Waiting { kind, keys, at: staying::Waiting { intended, sent: now } });
        book.asked(kind, intended, now);
    }

    /// Stores items.
    fn prepare(&mut self, asker: &mut Asker, now: u64) {
        while self.in_flight() < FILLS
            && self.out.len() - self.written < FILL_BYTES
            && asker.next_to_fill(&mut self.out)
        {
            let at = staying::Waiting { intended: now, sent: now };
            self.asked.waiting.push_back(Waiting { kind: Kind::Fill, keys: 1, at });
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, _asker: &mut Asker) -> Result<usize, Trouble> {
        let Some(stream) = &self.stream else { return Ok(0) };
        let before = self.written;
        while self.written < self.out.len() {
            let Poll::Ready(taken) = stream.poll_write(cx, &self.out[self.written..]) else { break };
            self.written += taken?;
        }
        let n = self.written - before;
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            self.out.shrink_to(KEPT);
        }
        Ok(n)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Trouble>> {
        let Some(stream) = &self.stream else { return Poll::Pending };
        stream.poll_read(cx, buffer).map_err(Trouble::from)
    }

    #[inline]
    fn came(
        &mut self,
        bytes: &mut [u8],
        asker: &mut Asker,
        book: &mut Book,
        now: u64,
    ) -> Result<(), Trouble> {
        let mut bytes = &*bytes;
        loop {
            let came = bytes;
            let read = self.answers.next(&mut bytes);
            let Some(answer) = read.map_err(|why| Fault::Malformed(why, said(came)))? else { return Ok(()) };
            self.asked.hears(answer, asker, book, now)?;
        }
    }

    fn end(&mut self, trouble: Option<&Trouble>, _asker: &mut Asker, book: &mut Book, now: u64) {
        self.stream = None;
        let had_requests = !self.asked.waiting.is_empty();
        for waiting in self.asked.waiting.drain(..) {
            book.lost_request(&waiting, now, trouble.unwrap_or(&Trouble::Closed));
        }
        book.ended(now, trouble, had_requests);
        self.asked.items.clear();
        self.asked.forget();
        self.answers = Answers::default();
        self.out.clear();
        self.written = 0;
    }
}

impl Asked {
    /// A piece of an answer, to the first request that waits.
    #[inline]
    fn hears(&mut self, answer: Answer<'_>, asker: &Asker, book: &mut Book, now: u64) -> Result<(), Trouble> {
        let Some(first) = self.waiting.front().copied() else {
            return Err(match answer {
                Answer::Error(line) => Fault::Unasked(String::from_utf8_lossy(line).into_owned()),
                _ => Fault::OutOfTurn("an answer to nothing that was asked"),
            }
            .into());
        };
        self.first.get_or_insert(now);
        let gets = first.kind == Kind::Get;
        let meta = asker.mix.protocol == Protocol::Meta;
        let whole = match answer {
            // Guard: `self.hits < u32::from(first.keys)` as `true` fails
            // load/memcached::wrong::more_values_than_keys
            Answer::Value { key, len, .. } if gets && self.hits < u32::from(first.keys) => {
                self.value = (0, len, 0);
                if asker.mix.verify {
                    let item = self.item_of(key, &first, asker)?;
                    self.value.0 = item;
                    // The length is compared as well, since an empty value has no bytes to compare.
                    if len != asker.mix.items.value_len(item) {
                        self.wrong.get_or_insert(item);
                    }
                }
                return Ok(());
            }
            Answer::Bytes(bytes) => {
                let (item, len, from) = self.value;
                // Guard: `!is_of_value(item, len, from, bytes)` as `false` fails
                // load/memcached::wrong::a_value_that_is_not
                if asker.mix.verify && self.wrong.is_none() && !is_of_value(item, len, from, bytes) {
                    self.wrong = Some(item);
                }
                self.value.2 += bytes.len();
                return Ok(());
            }
            Answer::Whole => {
                self.hits += 1;
                meta && first.keys == 1
            }
            Answer::End if gets && !meta => true,
            Answer::Miss if gets && meta && first.keys == 1 => true,
            Answer::NoOp if gets && meta && first.keys > 1 => true,
            Answer::Stored if !gets => {
                book.stored(&first);
                true
            }
            Answer::Refused(word) if !gets => {
                self.refused = true;
                book.refused(&first, now, word);
                true
            }
            Answer::Error(line) => {
                if !std::mem::replace(&mut self.refused, true) {
                    book.refused(&first, now, line);
                }
                // Behind a get of many by the meta protocol stands its end.
                !(gets && meta && first.keys > 1)
            }
            _ => return Err(out_of_turn(gets)),
        };
        if whole {
            self.answered(&first, asker, book, now);
        }
        Ok(())
    }

    /// Which of the keys that the first request asked for this is: values come in the order of the keys, and a key that is passed over was not there.
    fn item_of(&mut self, key: &[u8], first: &Waiting, asker: &Asker) -> Result<u64, Trouble> {
        // The meta protocol does not repeat the key of a get of one.
        let unnamed = key.is_empty() && first.keys == 1;
        while self.passed < u32::from(first.keys) {
            let Some(item) = self.items.pop_front() else { break };
            self.passed += 1;
            // Guard: `asker.mix.items.key(item).bytes() == key` as `true` fails
            // load/memcached::wrong::answers_to_something_else
            if unnamed || asker.mix.items.key(item).bytes() == key {
                return Ok(item);
            }
        }
        Err(Fault::OutOfTurn("a value of a key that was not asked for").into())
    }

    fn answered(&mut self, first: &Waiting, asker: &Asker, book: &mut Book, now: u64) {
        book.heard(first, self.first.unwrap_or(now), now, self.hits);
        if let Some(item) = self.wrong {
            book.wrong(first, now, asker.mix.items.key(item).bytes());
        }
        self.good += u64::from(!self.refused);
        self.waiting.pop_front();
        if asker.mix.verify && first.kind == Kind::Get {
            let rest = u32::from(first.keys) - self.passed;
            self.items.drain(..rest as usize);
        }
        self.forget();
    }

    /// Of the first request nothing is known.
    fn forget(&mut self) {
        (self.hits, self.passed, self.first, self.wrong, self.refused) = (0, 0, None, None, false);
    }
}

fn out_of_turn(gets: bool) -> Trouble {
    Fault::OutOfTurn(if gets { "no answer to a get" } else { "no answer to a set" }).into()
}
