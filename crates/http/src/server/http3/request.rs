//! One request over HTTP/3, from its head to the last byte of its answer.

use flowlane::Time;
use quinn_proto::{Connection, ReadError, StreamId, VarInt, WriteError};

use crate::h1::is_host;
use crate::h3::{self, Block, Event, Fault, Fields, Kind, Most, Of, Reader, code, is_safe};
use crate::server::counters::Counter;
use crate::server::options::Timeouts;
use crate::server::reply::{Body, Reply, has_body};
use crate::server::respond::{After, Sending, after};
use crate::server::route::{self, RequestView};
use crate::server::{Lane, scratch};

/// Most bytes of an answer that wait to be sent, and of a piece of it.
const PIECE: usize = 16 << 10;

/// How far the peer's part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Body,
    /// All has come, or the rest is not read.
    Ended,
}

/// Whether a request is over.
pub(super) enum Done {
    No,
    Yes,
    /// There is room, and more of the body is to be sent back.
    Read,
}

/// A request.
pub(super) struct Request {
    id: StreamId,
    reader: Reader,
    part: Part,
    /// The answer that waits for the end of the body, or for its time; whether the request is HEAD.
    reply: Option<(Reply, bool)>,
    /// The length of the body that the head announces, and what has come of it.
    length: Option<u64>,
    received: u64,
    /// What is to be sent, and how much of it was.
    out: Vec<u8>,
    at: usize,
    sending: Option<Sending>,
    /// The body is sent back as it comes.
    echo: bool,
    answered: bool,
    /// It came before the handshake was complete: anybody may have sent it a second time.
    early: bool,
    /// When it is to be looked at again; `u64::MAX` if no time is of concern.
    pub(super) due: u64,
    /// Since when there was no progress.
    since: u64,
    /// The turn in which something of it was last sent.
    pub(super) wrote: u64,
}

impl Request {
    pub(super) fn new(lane: &Lane, id: StreamId, now: u64) -> Self {
        Self {
            id,
            reader: Reader::new(Of::Message, lane.options().limits.head as usize),
            part: Part::Head,
            reply: None,
            length: None,
            received: 0,
            out: Vec::new(),
            at: 0,
            sending: None,
            echo: false,
            answered: false,
            early: false,
            due: u64::MAX,
            since: now,
            wrote: 0,
        }
    }

    /// How much of the body has come, and whether all has.
    pub(super) fn came(&self) -> (u64, bool) {
        (self.received, self.part == Part::Ended)
    }

    /// Reads what has come, as far as there is room for what is sent back.
    pub(super) fn read(
        &mut self,
        lane: &Lane,
        connection: &mut Connection,
        fields: &mut Fields,
        now: u64,
    ) -> Result<(), Fault> {
        if self.part == Part::Ended {
            return Ok(());
        }
        self.early = connection.is_handshaking();
        let mut stream = connection.recv_stream(self.id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let read = loop {
            if self.out.len() - self.at > PIECE {
                break Ok(());
            }
            match chunks.next(PIECE) {
                Ok(Some(chunk)) => {
                    self.since = now;
                    match self.take(lane, fields, &chunk.bytes, now) {
                        Ok(()) if self.part != Part::Ended => {}
                        taken => break taken,
                    }
                }
                Ok(None) => break self.end(lane, now),
                Err(ReadError::Blocked) => break Ok(()),
                Err(ReadError::Reset(_)) => {
                    lane.cells().add(Counter::Lost, 1);
                    self.refuse_rest();
                    break Ok(());
                }
            }
        };
        let _ = chunks.finalize();
        if let Err(fault) = read {
            // A fault of a message ends its stream alone (RFC 9114 §4.1.2).
            if !matches!(fault.code(), code::MESSAGE | code::REQUEST_INCOMPLETE) {
                return Err(fault);
            }
            lane.cells().add(Counter::Http3Failed, 1);
            self.give_up(connection, fault.code());
            self.refuse_rest();
        } else if self.part == Part::Ended {
            // If it is the end already this does nothing.
            let _ = connection.recv_stream(self.id).stop(VarInt::from_u32(code::NO_ERROR));
        }
        Ok(())
    }

    /// Nothing is answered any more.
    fn refuse_rest(&mut self) {
        self.part = Part::Ended;
        (self.answered, self.reply, self.sending) = (true, None, None);
        self.out.clear();
        self.at = 0;
    }

    fn take(&mut self, lane: &Lane, fields: &mut Fields, bytes: &[u8], now: u64) -> Result<(), Fault> {
        let options = lane.options();
        let most = Most { bytes: options.limits.head as usize, fields: options.limits.fields.into() };
        let mut at = 0;
        loop {
            let (used, event) = match self.reader.next(&bytes[at..]) {
                Ok(found) => found,
                Err(Fault::TooLong) => return self.refuse(lane, 431, now),
                Err(fault) => return Err(fault),
            };
            at += used;
            match event {
                None => return Ok(()),
                Some(Event::Head(block)) => {
                    match fields.read(block, Kind::Request, most) {
                        Ok(()) => {}
                        Err(Fault::TooLong | Fault::TooManyFields) => return self.refuse(lane, 431, now),
                        Err(fault) => return Err(fault),
                    }
                    self.length = fields.content_length()?;
                    self.head(lane, fields, now)?;
                }
                Some(Event::Data(data)) => {
                    self.received += data.len() as u64;
                    // Guard: `self.received > options.max_body` as `false` fails
                    // cli/serve_http_h3::every_endpoint
                    if self.received > options.max_body {
                        lane.cells().add(Counter::BodyTooLong, 1);
                        return self.refuse(lane, 413, now);
                    }
                    if self.echo {
                        h3::data(data.len() as u64, &mut self.out);
                        self.out.extend_from_slice(data);
                    }
                }
                Some(Event::Trailers(block)) => fields.read(block, Kind::Trailers, most)?,
                Some(Event::Settings(_) | Event::GoAway(_)) => {}
            }
            if self.part == Part::Ended {
                return Ok(());
            }
        }
    }

    /// The head has come whole.
    fn head(&mut self, lane: &Lane, fields: &Fields, now: u64) -> Result<(), Fault> {
        self.part = Part::Body;
        let cells = lane.cells();
        cells.add(Counter::Requests, 1);
        let text = |name: &str| std::str::from_utf8(fields.get(name).unwrap_or_default()).unwrap_or("");
        let (method, target) = (text(":method"), text(":path"));
        if self.early {
            cells.add(Counter::Early, 1);
            // Guard: `!is_safe(method)` as `false` fails cli/serve_http_h3::what_may_do_something
            if !is_safe(method) {
                cells.add(Counter::TooEarly, 1);
                return self.refuse(lane, 425, now);
            }
        }
        let host = fields.get(":authority").or_else(|| fields.get("host"));
        let reply = if host.is_some_and(is_host) {
            // There is no upgrade here (RFC 9114 §4.5).
            let field = |name: &'static str| fields.get(name);
            route::answer(lane.site(), &RequestView { method, target, field })
        } else {
            cells.add(if host.is_some() { Counter::BadHost } else { Counter::NoHost }, 1);
            Reply::status(400)
        };
        if self.length.is_some_and(|length| length > lane.options().max_body) {
            cells.add(Counter::BodyTooLong, 1);
            return self.refuse(lane, 413, now);
        }
        let to_head = method == "HEAD";
        self.echo = matches!(reply.body, Body::Echo) && !to_head && reply.delay.is_zero();
        let stall = lane.options().stall.and_then(|stall| stall.until(Time::from_nanos(now)));
        if let Some(until) = stall {
            cells.add(Counter::Stalled, 1);
            self.due = until.as_nanos();
        }
        self.reply = Some((reply, to_head));
        if self.echo {
            self.begin(lane);
        }
        Ok(())
    }

    /// The body has come whole.
    fn end(&mut self, lane: &Lane, now: u64) -> Result<(), Fault> {
        self.reader.end()?;
        self.part = Part::Ended;
        if self.length.is_some_and(|length| length != self.received) {
            return Err(Fault::BadLength);
        }
        self.ask(lane, now);
        Ok(())
    }

    /// Answers, unless there is a time for that.
    fn ask(&mut self, lane: &Lane, now: u64) {
        if let Some((reply, _)) = &mut self.reply {
            let delay = std::mem::take(&mut reply.delay).as_nanos() as u64;
            if delay > 0 {
                let begin = if self.due == u64::MAX { now } else { self.due.max(now) };
                self.due = begin + delay;
            }
            if self.due == u64::MAX || self.due <= now {
                self.begin(lane);
            }
        }
    }

    /// Answers with this status, and reads no more.
    fn refuse(&mut self, lane: &Lane, status: u16, now: u64) -> Result<(), Fault> {
        self.part = Part::Ended;
        if self.answered {
            // It was being sent back.
            return Err(Fault::Incomplete);
        }
        self.reply = Some((Reply::status(status), false));
        self.ask(lane, now);
        Ok(())
    }

    /// Writes the head of the answer, and the body if it is small.
    fn begin(&mut self, lane: &Lane) {
        let Some((reply, to_head)) = self.reply.take() else { return };
        self.due = u64::MAX;
        self.answered = true;
        lane.cells().answer(reply.status);
        let mut block = Block::new();
        let digits = |value: u64| value.to_string();
        block.field(b":status", digits(reply.status.into()).as_bytes());
        block.field(b"server", b"flowlane");
        if let Ok(now) = flowlane::now() {
            scratch::with(now, |s| block.field(b"date", s.prepared.date.as_bytes()));
        }
        for (name, value) in &reply.fields {
            block.field(name.to_ascii_lowercase().as_bytes(), value.as_bytes());
        }
        let body = has_body(reply.status);
        if body {
            block.field(b"content-type", reply.kind.as_bytes());
            let echoed = self.length.filter(|_| matches!(reply.body, Body::Echo));
            if let Some(length) = reply.len().or(echoed).filter(|_| !reply.chunked) {
                block.field(b"content-length", digits(length).as_bytes());
            }
        }
        h3::headers(block.bytes(), &mut self.out);
        if to_head || !body {
            return;
        }
        let mut small = Vec::new();
        match after(&mut small, reply, false, PIECE) {
            After::Send(sending) => self.sending = Some(sending),
            // What comes has a frame of its own; of a WebSocket there is none here.
            After::Nothing | After::Echo { .. } | After::WebSocket(_) => {}
        }
        if !small.is_empty() {
            h3::data(small.len() as u64, &mut self.out);
            self.out.append(&mut small);
        }
    }

    /// Sends as much as there is room for. `turn`: how often any request of the connection has had its turn.
    pub(super) fn write(&mut self, lane: &Lane, connection: &mut Connection, now: u64, turn: u64) -> Done {
        if !self.answered && self.part == Part::Ended && self.due <= now {
            self.begin(lane);
        }
        loop {
            while self.at < self.out.len() {
                match connection.send_stream(self.id).write(&self.out[self.at..]) {
                    Ok(n) => {
                        self.at += n;
                        (self.since, self.wrote) = (now, turn);
                    }
                    Err(WriteError::Blocked) => return Done::No,
                    Err(WriteError::Stopped(code)) => {
                        let _ = connection.send_stream(self.id).reset(code);
                        return Done::Yes;
                    }
                    Err(WriteError::ClosedStream) => return Done::Yes,
                }
            }
            self.out.clear();
            self.at = 0;
            if !self.answered {
                return Done::No;
            }
            let Some(sending) = &mut self.sending else {
                if self.echo && self.part != Part::Ended {
                    return Done::Read;
                }
                // It has been reset, or is done.
                let _ = connection.send_stream(self.id).finish();
                return Done::Yes;
            };
            if let Some(due) = sending.due(Time::from_nanos(now)).filter(|due| due.as_nanos() > now) {
                self.due = due.as_nanos();
                self.since = now;
                return Done::No;
            }
            self.due = u64::MAX;
            let mut piece = Vec::new();
            match sending.more(&mut piece, PIECE) {
                Ok(last) => {
                    if last {
                        self.sending = None;
                    }
                    if !piece.is_empty() {
                        h3::data(piece.len() as u64, &mut self.out);
                        self.out.append(&mut piece);
                    }
                }
                Err(_) => {
                    lane.cells().add(Counter::FileFailed, 1);
                    let _ = connection.send_stream(self.id).reset(VarInt::from_u32(code::INTERNAL));
                    return Done::Yes;
                }
            }
        }
    }

    /// What has taken too long, if anything has.
    pub(super) fn too_slow(&self, now: u64, timeouts: &Timeouts) -> Option<Counter> {
        let (limit, counter) = match self.part {
            Part::Head => (timeouts.head, Counter::HeadTimeout),
            _ if self.at < self.out.len() => (timeouts.write, Counter::WriteTimeout),
            Part::Body => (timeouts.body, Counter::BodyTimeout),
            Part::Ended => return None,
        };
        (now.saturating_sub(self.since) > limit.as_nanos() as u64).then_some(counter)
    }

    /// Ends the stream both ways.
    pub(super) fn give_up(&self, connection: &mut Connection, code: u32) {
        let code = VarInt::from_u32(code);
        let _ = connection.recv_stream(self.id).stop(code);
        let _ = connection.send_stream(self.id).reset(code);
    }
}
