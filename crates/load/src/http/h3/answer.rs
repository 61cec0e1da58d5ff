//! Answers of HTTP/3, as they come on their streams.

use flowlane_http::h1::MOST_INTERIM;
use flowlane_http::h3::{Event, Fault, Fields, Kind, Most, Of, Reader, code};
use quinn_proto::{Connection, ReadError, StreamId, VarInt};

use crate::http::beside::Shared;
use crate::http::check::{Checker, Wrong};
use crate::http::client::Client;
use crate::http::hop::{Course, is_redirect};
use crate::http::plan::{Pool, Request};
use crate::report::ErrorKind;

/// Limits of an answer's head.
pub(super) const MOST_HEAD: usize = 64 << 10;
const MOST: Most = Most { bytes: MOST_HEAD, fields: 128 };

/// A request on its way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) id: StreamId,
    pub(super) intended: u64,
    pub(super) sent: u64,
    /// When it has taken too long.
    pub(super) limit: u64,
    pub(super) request: u16,
    /// How often it was sent before.
    pub(super) times: u8,
    /// As it is with its client's values, if it has any.
    pub(super) own: Option<Box<Request>>,
    /// It was sent before the handshake was complete.
    pub(super) early: bool,
    /// Where redirects have led it, if they have.
    pub(super) course: Option<Box<Course>>,
}

impl Asked {
    /// The request as it is now.
    fn wanted<'a>(&'a self, pool: &'a Pool) -> &'a Request {
        match (&self.course, &self.own) {
            (Some(course), _) => &course.request,
            (None, Some(own)) => own,
            (None, None) => &pool.requests[usize::from(self.request)],
        }
    }
}

/// What serves all answers of a connection, one after the other.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) fields: Fields,
    /// The target that all are asked of.
    pub(super) target: u16,
    /// They are asked of somebody else, to whom redirects have led.
    pub(super) away: bool,
}

/// What a read has brought.
pub(super) enum Came {
    /// More is to come.
    Part,
    /// The answer is whole: whether it is as it should be.
    Whole(Result<(), Wrong>),
    /// It is whole, and names where to ask.
    Leads,
    /// The server has not processed the request.
    Rejected,
    /// There is no answer.
    Broken(ErrorKind, String),
    /// The connection cannot go on.
    Fault(Fault),
}

/// An answer, as far as it has come.
pub(super) struct Answer {
    reader: Reader,
    pub(super) first_byte: u64,
    pub(super) status: u16,
    content: u64,
    /// The length that the head announces, if there is to be content.
    length: Option<u64>,
    interim: u64,
    checker: Option<Checker>,
    /// Where it leads, if that is followed.
    pub(super) location: Option<Box<[u8]>>,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            reader: Reader::new(Of::Message, MOST_HEAD),
            first_byte: 0,
            status: 0,
            content: 0,
            length: None,
            interim: 0,
            checker: None,
            location: None,
        }
    }
}

impl Answer {
    /// A request was sent: its answer is next.
    pub(super) fn begin(&mut self, wanted: &Request) {
        self.reader.renew();
        (self.first_byte, self.status, self.content) = (0, 0, 0);
        (self.length, self.interim, self.location) = (None, 0, None);
        if !wanted.checks.content() {
            self.checker = None;
            return;
        }
        self.checker.get_or_insert_with(Checker::new).begin(&wanted.checks);
    }

    /// Reads what has come.
    pub(super) fn read(
        &mut self,
        shared: &Shared,
        connection: &mut Connection,
        (asked, client): (&Asked, &mut Option<Box<Client>>),
        scratch: &mut Scratch,
        now: u64,
    ) -> Came {
        let wanted = asked.wanted(&shared.plan.pool);
        let mut stream = connection.recv_stream(asked.id);
        let Ok(mut chunks) = stream.read(true) else { return Came::Part };
        let came = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(came) = self.take(shared, wanted, asked, client, scratch, &chunk.bytes, now) {
                        break came;
                    }
                }
                Ok(None) => break self.end(shared, wanted, asked, client),
                Err(ReadError::Blocked) => break Came::Part,
                Err(ReadError::Reset(reset)) => break reset_with(reset, self.first_byte > 0),
            }
        };
        let _ = chunks.finalize();
        came
    }

    /// A piece of the stream.
    #[expect(clippy::too_many_arguments, reason = "parts of one connection that are borrowed apart")]
    fn take(
        &mut self,
        shared: &Shared,
        wanted: &Request,
        asked: &Asked,
        client: &mut Option<Box<Client>>,
        scratch: &mut Scratch,
        bytes: &[u8],
        now: u64,
    ) -> Result<(), Came> {
        let mut at = 0;
        loop {
            let (used, event) = self.reader.next(&bytes[at..]).map_err(Came::Fault)?;
            at += used;
            match event {
                None => return Ok(()),
                Some(Event::Head(block)) => {
                    scratch.fields.read(block, Kind::Response, MOST).map_err(faulty)?;
                    let status = scratch.fields.status();
                    if status < 200 {
                        self.reader.interim();
                        self.interim += 1;
                        if self.interim > u64::from(MOST_INTERIM) {
                            let why =
                                format!("more than {MOST_INTERIM} interim answers (1xx) to one request");
                            return Err(Came::Broken(ErrorKind::TooLong, why));
                        }
                        continue;
                    }
                    self.first_byte = now;
                    self.status = status;
                    let length = scratch.fields.content_length().map_err(faulty)?;
                    self.length = length.filter(|_| wanted.method != "HEAD" && status != 304);
                    if shared.plan.pool.follow.is_some() && is_redirect(status) {
                        self.location = scratch.fields.get("location").map(Box::from);
                    }
                    if let Some(client) = client {
                        head_of(
                            shared,
                            wanted.is_watched() && self.location.is_none(),
                            wanted,
                            client,
                            scratch,
                        );
                    }
                }
                Some(Event::Data(data)) => {
                    self.content += data.len() as u64;
                    shared.lock().book.received(now, data.len() as u64);
                    if let Some(checker) = &mut self.checker {
                        checker.data(&wanted.checks, data);
                    }
                    if let Some(client) =
                        client.as_mut().filter(|_| wanted.is_watched() && self.location.is_none())
                    {
                        watch(shared, wanted, asked.intended, client, data, now)
                            .map_err(|Wrong(kind, why)| Came::Broken(kind, why))?;
                    }
                    let most = shared.common.plan.max_body;
                    if self.content > most {
                        let why = format!("content of more than {most} bytes");
                        return Err(Came::Broken(ErrorKind::TooLong, why));
                    }
                }
                Some(Event::Trailers(block)) => {
                    scratch.fields.read(block, Kind::Trailers, MOST).map_err(faulty)?;
                }
                // No stream of requests has these.
                Some(Event::Settings(_) | Event::GoAway(_)) => {}
            }
        }
    }

    /// The stream has ended.
    fn end(
        &mut self,
        shared: &Shared,
        wanted: &Request,
        asked: &Asked,
        client: &mut Option<Box<Client>>,
    ) -> Came {
        if let Err(fault) = self.reader.end() {
            return if fault == Fault::Incomplete { faulty(fault) } else { Came::Fault(fault) };
        }
        let content = self.content;
        if let Some(length) = self.length.filter(|length| *length != content) {
            let why = format!("the stream ended after {content} of {length} bytes of content");
            return Came::Broken(ErrorKind::Closed, why);
        }
        if self.location.is_some() {
            return Came::Leads;
        }
        let mut verdict = wanted.checks.judge(self.status, content);
        if verdict.is_ok()
            && let Some(checker) = &mut self.checker
        {
            verdict = checker.end(&wanted.checks);
        }
        if let Some(client) = client.as_mut().filter(|_| verdict.is_ok() && wanted.is_watched()) {
            verdict = client.end(wanted, &shared.plan.slots[usize::from(asked.request)]);
            if verdict.is_ok() && wanted.events.is_some() {
                let (events, last) = client.watch.so_far(wanted);
                shared.lock().book.stream(asked.intended, last, events);
            }
        }
        Came::Whole(verdict)
    }
}

/// What a client wants to know of a head.
fn head_of(shared: &Shared, watched: bool, wanted: &Request, client: &mut Client, scratch: &Scratch) {
    let fields = &scratch.fields;
    if shared.plan.pool.cookies && !scratch.away {
        let host = shared.plan.pool.targets[usize::from(scratch.target)].url.name();
        for (_, value) in fields.iter().filter(|(name, _)| *name == b"set-cookie") {
            client.jar.take(value, host);
        }
    }
    if watched {
        client.watch.head(wanted, |name| fields.get(&name.to_ascii_lowercase()));
    }
}

/// A piece of content that a client looks at.
fn watch(
    shared: &Shared,
    wanted: &Request,
    intended: u64,
    client: &mut Client,
    data: &[u8],
    now: u64,
) -> Result<(), Wrong> {
    let (_, before) = client.watch.so_far(wanted);
    let events = client.watch.data(wanted, data, now)?;
    if events > 0 && wanted.events.is_some() {
        let since = (client.watch.so_far(wanted).0 > events).then_some(before);
        shared.lock().book.events(intended, now, events, since);
    }
    Ok(())
}

/// A fault of a message concerns its stream alone (RFC 9114 §4.1.2), one of QPACK the connection.
fn faulty(fault: Fault) -> Came {
    match fault.code() {
        code::MESSAGE | code::REQUEST_INCOMPLETE => Came::Broken(ErrorKind::Malformed, fault.to_string()),
        code::EXCESSIVE_LOAD => Came::Broken(ErrorKind::TooLong, fault.to_string()),
        _ => Came::Fault(fault),
    }
}

fn reset_with(reset: VarInt, begun: bool) -> Came {
    let reset = reset.into_inner();
    if reset == u64::from(code::REQUEST_REJECTED) && !begun {
        return Came::Rejected;
    }
    Came::Broken(ErrorKind::Http3, format!("the server reset the stream: code {reset:#x}"))
}
