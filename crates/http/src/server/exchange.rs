//! Requests and answers of one HTTP/1 connection, without I/O: bytes in, bytes out.

use flowlane::Sleep;

use super::Lane;
use super::counters::Counter;
use super::reply::{PATTERN, Reply};
use super::respond::{After, LAST_CHUNK, Manner, Sending, chunk, head};
use super::route::{self, RequestView};
use super::scratch::{OUTPUT, Prepared};
use crate::h1::{Event, Fault, Framing, Request, RequestReader, Version, is_host};
use crate::ws::deflate::Agreed;

/// Work that must be done before the next request.
#[derive(Debug)]
pub(crate) enum Job {
    None,
    /// Wait, then answer.
    Delay(Box<(Sleep, Reply, Manner)>),
    /// Wait.
    Stall(Box<Sleep>),
    /// Send a body.
    Send(Box<Sending>),
    /// There is no other request: the connection is a WebSocket, whose messages may be compressed so.
    WebSocket(Option<Agreed>),
}

/// What to do with the body of a request.
#[derive(Debug)]
enum Incoming {
    /// There is none.
    None,
    /// Read to its end, then send this answer; `None` if it was sent already.
    Discard(Option<Box<(Reply, Manner)>>),
    /// Sent back.
    Echo { chunked: bool, then_close: bool },
}

/// One connection's state between its turns.
#[derive(Debug)]
pub(crate) struct Exchange {
    reader: RequestReader,
    rest: Rest,
}

/// All but the reader, from which events borrow.
#[derive(Debug)]
struct Rest {
    job: Job,
    incoming: Incoming,
    received: u64,
    requests: u64,
    /// Whether to read no more; the connection ends when everything is sent.
    closing: bool,
    /// Whether unread bytes may arrive.
    unclean: bool,
    /// The peer sends nothing after its last request: it asked to close, or its stream has ended.
    peer_ends: bool,
}

impl Exchange {
    pub(crate) fn new(lane: &Lane) -> Self {
        Self {
            reader: RequestReader::new(lane.options().limits),
            rest: Rest {
                job: Job::None,
                incoming: Incoming::None,
                received: 0,
                requests: 0,
                closing: false,
                unclean: false,
                peer_ends: false,
            },
        }
    }

    pub(crate) fn job(&mut self) -> &mut Job {
        &mut self.rest.job
    }

    pub(crate) fn requests(&self) -> u64 {
        self.rest.requests
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.rest.closing
    }

    /// Takes no more requests; the connection ends when everything is sent.
    pub(crate) fn close(&mut self) {
        self.rest.closing = true;
    }

    /// Whether bytes may arrive that nobody will read.
    pub(crate) fn is_unclean(&self) -> bool {
        // Guard: `!self.rest.peer_ends` as `false` fails server/files::a_peer_that_sends_more
        self.rest.unclean || !self.rest.peer_ends || !self.reader.is_between_messages()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.reader.is_between_messages()
    }

    /// Whether there is something to do without more bytes.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.reader.is_at_end()
    }

    pub(crate) fn is_in_body(&self) -> bool {
        self.reader.is_in_body()
    }

    /// Processes input until other work must be done first or there is enough to send. Returns the number of bytes used.
    #[inline]
    pub(crate) fn input(&mut self, lane: &Lane, input: &[u8], out: &mut Vec<u8>, page: &Prepared) -> usize {
        let mut at = 0;
        let most = lane.memory().allowance().min(OUTPUT);
        while matches!(self.rest.job, Job::None) && !self.rest.closing && out.len() < most {
            match self.reader.next(&input[at..]) {
                Ok((used, event)) => {
                    at += used;
                    match event {
                        Some(Event::Head(request)) => self.rest.request(lane, &request, out, page),
                        Some(Event::Data(data)) => self.rest.data(lane, data, out, page),
                        Some(Event::End) => self.rest.end(lane, out, page),
                        Some(Event::Interim(_)) => {}
                        None => break,
                    }
                }
                Err(fault) => {
                    self.rest.fault(lane, fault, out, page);
                    return input.len();
                }
            }
        }
        if !self.rest.closing {
            return at;
        }
        // A request without a body is over, though nobody asks for its end.
        if self.reader.is_at_end() {
            let _ = self.reader.next(&[]);
        }
        // Guard: no `self.rest.unclean |= at < input.len();` fails server/files::a_peer_that_sends_more
        self.rest.unclean |= at < input.len();
        input.len()
    }

    /// The peer will send no more.
    pub(crate) fn end_of_input(&mut self, lane: &Lane, out: &mut Vec<u8>, page: &Prepared) {
        self.rest.closing = true;
        self.rest.peer_ends = true;
        if let Err(fault) = self.reader.finish() {
            self.rest.fault(lane, fault, out, page);
            self.rest.unclean = false;
        }
    }

    /// Sends the answer after its delay.
    pub(crate) fn answer_now(
        &mut self,
        lane: &Lane,
        answer: (Reply, Manner),
        out: &mut Vec<u8>,
        page: &Prepared,
    ) {
        self.rest.answer(lane, answer.0, answer.1, out, page);
    }

    /// Ends the connection with this answer.
    pub(crate) fn refuse(&mut self, lane: &Lane, status: u16, out: &mut Vec<u8>, page: &Prepared) {
        self.rest.refuse(lane, status, out, page);
    }
}

impl Rest {
    #[inline]
    fn request(&mut self, lane: &Lane, request: &Request<'_>, out: &mut Vec<u8>, page: &Prepared) {
        let options = lane.options();
        self.requests += 1;
        self.received = 0;
        lane.cells().add(Counter::Requests, 1);
        if request.version == Version::Http11 && request.host.is_none() {
            lane.cells().add(Counter::NoHost, 1);
            return self.refuse(lane, 400, out, page);
        }
        if !request.host.is_none_or(is_host) {
            lane.cells().add(Counter::BadHost, 1);
            return self.refuse(lane, 400, out, page);
        }
        let asked = RequestView {
            method: request.method,
            target: request.target,
            // HTTP/1.0 knows no change of the protocol (RFC 9110 §7.8).
            field: |name| {
                // Guard: `name != "upgrade" || request.version == Version::Http11` as `true` fails
                // server/websocket::requests_that_ask
                let known = name != "upgrade" || request.version == Version::Http11;
                request.fields.get(name).filter(|_| known)
            },
        };
        let mut reply = route::answer(lane.site(), &asked);
        if let Some(elsewhere) = &options.alt_svc {
            reply.fields.push(("Alt-Svc", elsewhere.clone()));
        }
        self.peer_ends = !request.keep_alive;
        let manner = Manner {
            to_head: request.method == "HEAD",
            version: request.version,
            keep_alive: request.keep_alive && self.requests < options.requests_per_connection,
            request_len: match request.framing {
                Framing::Length(n) => Some(n),
                Framing::None => Some(0),
                Framing::Chunked | Framing::UntilClose => None,
            },
        };
        if request.framing == Framing::None {
            return self.answer(lane, reply, manner, out, page);
        }
        if manner.request_len.is_some_and(|len| len > options.max_body) {
            lane.cells().add(Counter::BodyTooLong, 1);
            return self.refuse(lane, 413, out, page);
        }
        if request.expects_continue {
            if reply.status >= 400 {
                // The peer need not send the body (RFC 9110 §10.1.1), and must not now.
                return self.answer(lane, reply, Manner { keep_alive: false, ..manner }, out, page);
            }
            out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        let echo = matches!(reply.body, super::reply::Body::Echo) && !manner.to_head;
        if echo {
            self.answer(lane, reply, manner, out, page);
        } else {
            self.incoming = Incoming::Discard(Some(Box::new((reply, manner))));
        }
    }

    /// Writes an answer or its first part, or waits first.
    #[inline]
    fn answer(
        &mut self,
        lane: &Lane,
        mut reply: Reply,
        mut manner: Manner,
        out: &mut Vec<u8>,
        page: &Prepared,
    ) {
        if !reply.delay.is_zero() {
            let sleep = flowlane::sleep(std::mem::take(&mut reply.delay));
            self.job = Job::Delay(Box::new((sleep, reply, manner)));
            return;
        }
        lane.cells().answer(reply.status);
        manner.keep_alive &= !lane.is_stopping();
        let after = head(out, page, reply, &mut manner, lane.memory().allowance());
        self.closing |= !manner.keep_alive;
        match after {
            After::Nothing => {}
            After::Send(sending) => self.job = Job::Send(Box::new(sending)),
            After::WebSocket(deflate) => {
                self.closing = false;
                self.job = Job::WebSocket(deflate);
            }
            After::Echo { chunked } => {
                if manner.request_len == Some(0) {
                    if chunked {
                        out.extend_from_slice(LAST_CHUNK);
                    }
                    return;
                }
                // Closes only after the end of the body.
                self.closing = false;
                self.incoming = Incoming::Echo { chunked, then_close: !manner.keep_alive };
            }
        }
    }

    fn data(&mut self, lane: &Lane, data: &[u8], out: &mut Vec<u8>, page: &Prepared) {
        self.received += data.len() as u64;
        if self.received > lane.options().max_body {
            lane.cells().add(Counter::BodyTooLong, 1);
            return self.refuse(lane, 413, out, page);
        }
        match self.incoming {
            Incoming::Echo { chunked: true, .. } => chunk(out, data),
            Incoming::Echo { chunked: false, .. } => out.extend_from_slice(data),
            Incoming::None | Incoming::Discard(_) => {}
        }
    }

    #[inline]
    fn end(&mut self, lane: &Lane, out: &mut Vec<u8>, page: &Prepared) {
        match std::mem::replace(&mut self.incoming, Incoming::None) {
            Incoming::None | Incoming::Discard(None) => {}
            Incoming::Discard(Some(answer)) => self.answer(lane, answer.0, answer.1, out, page),
            Incoming::Echo { chunked, then_close } => {
                if chunked {
                    out.extend_from_slice(LAST_CHUNK);
                }
                self.closing |= then_close;
            }
        }
    }

    fn fault(&mut self, lane: &Lane, fault: Fault, out: &mut Vec<u8>, page: &Prepared) {
        lane.cells().fault(fault);
        self.refuse(lane, fault.status(), out, page);
    }

    /// Ends the connection, with an answer if none has begun.
    fn refuse(&mut self, lane: &Lane, status: u16, out: &mut Vec<u8>, page: &Prepared) {
        self.closing = true;
        self.unclean = true;
        if matches!(self.incoming, Incoming::Echo { .. }) {
            return;
        }
        self.incoming = Incoming::None;
        let mut manner =
            Manner { to_head: false, version: Version::Http11, keep_alive: false, request_len: Some(0) };
        lane.cells().answer(status);
        head(out, page, Reply::status(status), &mut manner, PATTERN);
    }
}
