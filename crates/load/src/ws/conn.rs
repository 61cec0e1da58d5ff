//! One connection: what is still to be written, which messages are in flight, and what comes.
//!
//! An echo server answers in the order of the messages (it is one stream), so the first that waits is the one that is answered. Its bytes are compared as
//! they come, and nothing is kept of them. A frame is made in a buffer of the lane's, which it keeps only while the server takes it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use flowlane::TcpStream;
use flowlane_http::tls::Stream;
use flowlane_http::ws::{Code, Event, Fault as BadFrame, Kind, Opcode, Reader, Side, deflate, frame};
use flowlane_stack::rng::Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::WsLoadConfig;
use super::book::Book;
use super::opening::Opened;
use super::outcome::{End, Fault, Trouble};
use super::payload::Payload;
use crate::run::staying;
use crate::run::staying::Waiting;

/// Longest message that a server may send when it is to be no answer of ours, bytes.
const LONGEST: u64 = 1 << 20;
/// Bytes that may wait to be written when a ping is still answered: who pings and does not read gets no more pongs (RFC 6455 §5.5.3).
const FULL: usize = 64 << 10;
/// Spare buffers of a lane, and what one may keep, bytes.
const SPARE: usize = 64;
const KEPT: usize = 256 << 10;

/// What the connections of a lane share to write with.
#[derive(Debug)]
pub struct Pen {
    pub(super) payload: Payload,
    pub(super) rng: Rng,
    /// Empty buffers that have room.
    spare: Vec<Vec<u8>>,
    /// A message before it is compressed.
    plain: Vec<u8>,
}

impl Pen {
    pub(super) fn new(payload: Payload, seed: u64) -> Self {
        Self { payload, rng: Rng::new(seed), spare: Vec::with_capacity(SPARE), plain: Vec::new() }
    }

    /// A mask. It need not surprise anybody between a generator and what it tests (RFC 6455 §5.3 has browsers in mind).
    #[inline]
    fn key(&mut self) -> [u8; 4] {
        self.rng.next_u32().to_ne_bytes()
    }

    /// A key of the opening handshake.
    pub(super) fn nonce(&mut self) -> [u8; 16] {
        let (a, b) = (self.rng.next_u64(), self.rng.next_u64());
        (u128::from(a) << 64 | u128::from(b)).to_ne_bytes()
    }

    /// Gives a buffer room, if there is a spare one.
    #[inline]
    fn give_room(&mut self, out: &mut Vec<u8>) {
        if out.capacity() == 0
            && let Some(spare) = self.spare.pop()
        {
            *out = spare;
        }
    }

    /// Longest message that a server may send, bytes.
    fn longest(&self) -> u64 {
        LONGEST.max(self.payload.size as u64)
    }

    fn put_back(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.spare.len() < SPARE {
            buffer.shrink_to(KEPT);
            self.spare.push(buffer);
        }
    }
}

/// A connection, or the place of one.
#[derive(Debug)]
pub struct Conn {
    /// The connection, while it stands.
    stream: Option<Stream<TcpStream>>,
    /// What is to be written, and how much of it has been.
    out: Vec<u8>,
    written: usize,
    /// Whether TLS holds bytes back.
    flushing: bool,
    reader: Reader,
    waiting: VecDeque<Waiting>,
    /// Its number among all connections, and those of the next message to be sent and to be answered.
    ordinal: u64,
    next: u64,
    answered: u64,
    /// Messages that were answered, over all its turns.
    heard: u64,
    answer: Answer,
    /// Whether messages go compressed, and what has come of an answer that did and is not whole.
    deflates: bool,
    deflated: Vec<u8>,
    end: End,
}

/// What is known of the answer that comes now.
#[derive(Debug, Clone, Copy, Default)]
struct Answer {
    /// Bytes that have come of it.
    at: u64,
    /// When the first came.
    first: Option<u64>,
    wrong: bool,
    /// Nobody waited for it when it began.
    unasked: bool,
}

impl staying::Conn<WsLoadConfig> for Conn {
    fn new(ordinal: u64) -> Self {
        Self {
            stream: None,
            out: Vec::new(),
            written: 0,
            flushing: false,
            reader: Reader::new(Side::Server, LONGEST),
            waiting: VecDeque::new(),
            ordinal,
            next: 0,
            answered: 0,
            heard: 0,
            answer: Answer::default(),
            deflates: false,
            deflated: Vec::new(),
            end: End::No,
        }
    }

    fn stands(&mut self, opened: Opened, pen: &mut Pen) -> Vec<u8> {
        self.stream = Some(opened.stream);
        self.reader = Reader::new(Side::Server, pen.longest()).deflates(opened.deflates);
        (self.deflates, self.deflated) = (opened.deflates, Vec::new());
        self.answered = self.next;
        (self.end, self.answer) = (End::No, Answer::default());
        opened.rest
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    #[inline]
    fn has_room(&self, depth: usize) -> bool {
        self.stream.is_some() && self.end == End::No && self.waiting.len() < depth
    }

    fn heard(&self) -> u64 {
        self.heard
    }

    fn oldest(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.sent)
    }

    #[inline]
    fn is_to_write(&self) -> bool {
        self.flushing || self.written < self.out.len()
    }

    #[inline]
    fn ask(&mut self, pen: &mut Pen, book: &mut Book, intended: u64, now: u64) {
        pen.give_room(&mut self.out);
        let (begin, key) = (Payload::begin(self.ordinal, self.next), pen.key());
        let Pen { payload, plain, .. } = pen;
        if self.deflates {
            payload.write_deflated(begin, key, plain, &mut self.out);
        } else {
            payload.write(begin, key, &mut self.out);
        }
        self.next += 1;
        self.waiting.push_back(Waiting { intended, sent: now });
        book.sent(intended, now);
    }

    fn close(&mut self, pen: &mut Pen) {
        self.close_with(pen, Code::Normal);
    }

    fn has_said_bye(&self) -> bool {
        // Guard: `self.end == End::Said` as `false` fails load/ws::the_figures_are
        self.end == End::Said
    }

    /// What TLS holds back is pushed on.
    fn poll_write(&mut self, cx: &mut Context<'_>, pen: &mut Pen) -> Result<usize, Trouble> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let mut n = 0;
        while self.written < self.out.len() {
            match Pin::new(&mut *stream).poll_write(cx, &self.out[self.written..])? {
                Poll::Ready(taken) => {
                    self.written += taken;
                    n += taken;
                }
                Poll::Pending => break,
            }
        }
        if n > 0 || self.flushing {
            self.flushing = Pin::new(stream).poll_flush(cx)?.is_pending();
        }
        if self.written == self.out.len() && self.out.capacity() > 0 {
            pen.put_back(std::mem::take(&mut self.out));
            self.written = 0;
        }
        Ok(n)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Result<usize, Trouble>> {
        let Some(stream) = self.stream.as_mut() else { return Poll::Pending };
        let mut into = ReadBuf::new(buffer);
        let read = Pin::new(stream).poll_read(cx, &mut into)?;
        read.map(|()| Ok(into.filled().len()))
    }

    /// The close frame that answers is written as far as there is room.
    #[inline]
    fn came(&mut self, bytes: &mut [u8], pen: &mut Pen, book: &mut Book, now: u64) -> Result<(), Trouble> {
        let mut at = 0;
        loop {
            // Borrowed apart from the rest of the connection, which hears what it says.
            let Self {
                reader, waiting, answer, ordinal, answered, heard, deflated, out, written, end, ..
            } = &mut *self;
            let mut ear = Ear { waiting, answer, deflated, ordinal: *ordinal, answered, heard };
            match reader.next(&mut bytes[at..]) {
                Err(fault) => {
                    self.close_with(pen, fault.code());
                    return Err(Fault::Frame(fault).into());
                }
                Ok((_, None)) => return Ok(()),
                Ok((used, Some(event))) => {
                    at += used;
                    match event {
                        Event::Data { .. } => {
                            if let Err(fault) = ear.hear(event, pen, book, now) {
                                self.close_with(pen, fault.code());
                                return Err(Fault::Frame(fault).into());
                            }
                        }
                        Event::Ping(payload) => {
                            book.own.pings += 1;
                            if *end == End::No && out.len() - *written < FULL {
                                pen.give_room(out);
                                frame::write(out, Opcode::Pong, payload, Some(pen.key()));
                            }
                        }
                        Event::Pong(_) => {}
                        Event::Close(code) => {
                            let before = std::mem::replace(end, End::Said);
                            if before == End::No {
                                // The answer has the same code (RFC 6455 §5.5.1).
                                frame::close(out, code, "", Some(pen.key()));
                                return Err(Fault::CloseFrame(code).into());
                            }
                        }
                    }
                }
            }
        }
    }

    fn end(&mut self, trouble: Option<&Trouble>, pen: &mut Pen, book: &mut Book, now: u64) {
        self.stream = None;
        let had_messages = !self.waiting.is_empty();
        for message in self.waiting.drain(..) {
            let _ = book.lost(message, now, trouble.unwrap_or(&Trouble::Closed));
        }
        book.closed(now, trouble, had_messages, self.end);
        if self.out.capacity() > 0 {
            pen.put_back(std::mem::take(&mut self.out));
        }
        (self.written, self.flushing) = (0, false);
    }
}

impl Conn {
    /// Begins the end.
    fn close_with(&mut self, pen: &mut Pen, code: Code) {
        if self.end == End::No {
            pen.give_room(&mut self.out);
            frame::close(&mut self.out, Some(code.into()), "", Some(pen.key()));
            self.end = End::Told;
        }
    }
}

/// What hears answers: the connection without its reader, from which they are borrowed.
struct Ear<'a> {
    waiting: &'a mut VecDeque<Waiting>,
    answer: &'a mut Answer,
    deflated: &'a mut Vec<u8>,
    ordinal: u64,
    answered: &'a mut u64,
    heard: &'a mut u64,
}

impl Ear<'_> {
    /// A piece of a message. One that is compressed is kept until it is whole, then it is compared.
    #[inline]
    fn hear(&mut self, event: Event<'_>, pen: &Pen, book: &mut Book, now: u64) -> Result<(), BadFrame> {
        let Event::Data { kind, bytes, first, last, fragmented, deflated } = event else { return Ok(()) };
        let answer = &mut *self.answer;
        // Guard: `self.waiting.is_empty()` as `false` fails load/ws::wrong::what_nobody_asked
        if first {
            *answer = Answer { unasked: self.waiting.is_empty(), ..Answer::default() };
        }
        answer.first.get_or_insert(now);
        let begin = Payload::begin(self.ordinal, *self.answered);
        if !deflated {
            hear(answer, begin, pen.payload, (kind, bytes));
        } else if first && last {
            deflate::read(kind, bytes, pen.longest(), |plain| {
                hear(answer, begin, pen.payload, (kind, plain));
            })?;
        } else {
            self.deflated.extend_from_slice(bytes);
            if last {
                let whole = std::mem::take(self.deflated);
                deflate::read(kind, &whole, pen.longest(), |plain| {
                    hear(answer, begin, pen.payload, (kind, plain));
                })?;
            }
        }
        if last {
            let answer = std::mem::take(answer);
            if answer.unasked {
                book.own.unasked += 1;
            } else if let Some(message) = self.waiting.pop_front() {
                *self.answered += 1;
                *self.heard += 1;
                book.own.fragmented += u64::from(fragmented);
                book.own.deflated += u64::from(deflated);
                let size = pen.payload.size as u64;
                // Guard: `pen.payload.verify && answer.at != size` as `false` fails
                // load/ws::wrong::answers_that_are_not
                let wrong = answer.wrong || pen.payload.verify && answer.at != size;
                book.answered(message, answer.first.unwrap_or(now), now);
                // Guard: `wrong` as `false` fails load/ws::wrong::answers_that_are_not
                if wrong {
                    book.wrong(message, now);
                }
            }
        }
        Ok(())
    }
}

/// A piece of the answer to the message that begins there in the pattern.
#[inline]
fn hear(answer: &mut Answer, begin: u64, payload: Payload, (kind, bytes): (Kind, &[u8])) {
    if payload.verify && !answer.unasked && !answer.wrong {
        // Whether it is longer or shorter is seen at its end.
        // Guard: `kind != payload.kind` as `false` fails load/ws::wrong::answers_that_are_not
        // Guard: `!payload.is_of(begin, answer.at, bytes)` as `false` fails
        // load/ws::wrong::answers_that_are_not
        answer.wrong = kind != payload.kind || !payload.is_of(begin, answer.at, bytes);
    }
    answer.at += bytes.len() as u64;
}
