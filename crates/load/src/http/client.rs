//! What a client keeps from one request to the next, if its requests are more than bytes to be sent: the values of placeholders, where it
//! is in a flow of steps, and what it looks for in the answer that it reads.

use std::sync::Arc;

use flowlane_http::h1::Response;
use flowlane_stack::rng::Rng;

use super::check::Wrong;
use super::events::{Reading, is_stream};
use super::filled::Filled;
use super::grpc;
use super::jar::Jar;
use super::numbers::Numbers;
use super::plan::{Pool, Request};
use super::prepared::Prepared;
use crate::fill::{Capture, MOST_CONTENT, Vars};
use crate::report::ErrorKind;

/// A client.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) vars: Vars,
    /// The step that is next, or on its way; 0 if no flow is on its way but for its first step.
    pub(super) step: u16,
    /// Whether a flow has begun and has not ended.
    pub(super) begun: bool,
    /// The number of the recorded request that its connection is opened for.
    pub(super) recorded: Option<u64>,
    /// When the next step is due.
    pub(super) due: u64,
    /// The request as it is filled in, and whether the one on its way is.
    pub(super) made: Option<Arc<Prepared>>,
    pub(super) is_made: bool,
    pub(super) watch: Watch,
    pub(super) jar: Jar,
}

impl Client {
    /// Values for a request, or for a whole flow.
    pub(super) fn renew(&mut self, pool: &Pool, (numbers, rng): (&mut Numbers, &mut Rng), names: usize) {
        if pool.steps {
            // Another flow is another client.
            self.jar.clear();
        }
        let number = numbers.next();
        self.vars.number = number;
        self.vars.row = pool.data.as_ref().map_or(0, |data| numbers.row(number, data, rng));
        self.vars.caught.resize(names, Vec::new());
        self.vars.caught.iter_mut().for_each(Vec::clear);
        self.vars.seed = rng.next_u64();
    }

    /// Puts together the cookies of a request.
    pub(super) fn cookies(&mut self, filled: &Filled, https: bool) {
        self.vars.cookies.clear();
        let path = filled.path(&self.vars);
        self.jar.write(&path, https, &mut self.vars.cookies);
    }

    /// The answer is whole, and its status is as it should be: see [`Watch::end`].
    pub(super) fn end(&mut self, request: &Request, slots: &[u16]) -> Result<(), Wrong> {
        self.watch.end(request, slots, &mut self.vars)
    }
}

/// What is looked for in an answer.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The beginning of the content, for what is captured in it, and whether there is more.
    content: Vec<u8>,
    cut: bool,
    /// How the content is encoded, if it is.
    encoding: Option<String>,
    /// What is captured from header fields.
    fields: Vec<(usize, Result<Vec<u8>, String>)>,
    pub(super) stream: Reading,
    pub(super) call: grpc::Reading,
    /// The content type, if it is not that of a stream of events.
    no_stream: Option<String>,
}

impl Watch {
    /// The head of an answer has come; `field` finds a header field by its name.
    pub(super) fn head<'a>(&mut self, request: &Request, field: impl Fn(&str) -> Option<&'a [u8]>) {
        self.content.clear();
        self.cut = false;
        self.fields.clear();
        for (i, capture) in request.captures.iter().enumerate() {
            let crate::fill::From::Header(name, _) = &capture.from else { continue };
            self.fields.extend(capture.find_in_header(field(name)).map(|found| (i, found)));
        }
        let text = |name: &str| {
            field(name).map(|value| String::from_utf8_lossy(&value[..value.len().min(100)]).into_owned())
        };
        self.encoding = None;
        if request.captures.iter().any(Capture::is_in_content) {
            self.encoding =
                text("content-encoding").filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        }
        if request.grpc {
            self.call.begin(field);
        } else if request.events.is_some() {
            self.stream.begin();
            self.no_stream =
                (!is_stream(field("content-type"))).then(|| text("content-type").unwrap_or_default());
        }
    }

    /// Events or messages of the answer so far, and when the last came.
    pub(super) fn so_far(&self, request: &Request) -> (u64, u64) {
        match request.grpc {
            true => (self.call.messages, self.call.last),
            false => (self.stream.events, self.stream.last),
        }
    }

    /// A piece of the content; returns how many events or messages it completes.
    pub(super) fn data(&mut self, request: &Request, data: &[u8], now: u64) -> Result<u64, Wrong> {
        if request.captures.iter().any(Capture::is_in_content) {
            // Guard: `MOST_CONTENT - self.content.len().min(MOST_CONTENT)` as `usize::MAX >> 1` fails
            // http::client
            let room = MOST_CONTENT - self.content.len().min(MOST_CONTENT);
            self.content.extend_from_slice(&data[..data.len().min(room)]);
            self.cut |= data.len() > room;
        }
        if request.grpc {
            return self.call.read(data, now);
        }
        match &request.events {
            Some(of) if self.no_stream.is_none() => self
                .stream
                .read(of, data, now)
                .map_err(|_| Wrong(ErrorKind::TooLong, "an event of more than 1 MiB".to_owned())),
            _ => Ok(0),
        }
    }

    /// The answer is whole, and its status is as it should be: what was looked for is found, or the request has failed.
    fn end(&mut self, request: &Request, slots: &[u16], vars: &mut Vars) -> Result<(), Wrong> {
        if request.grpc {
            self.call.finish()?;
        } else if let Some(of) = &request.events {
            let wrong = |why: String| Wrong(ErrorKind::Events, why);
            if let Some(kind) = self.no_stream.take() {
                let kind = if kind.is_empty() { "none".to_owned() } else { kind };
                return Err(wrong(format!("the answer is no stream of events: its content type is {kind}")));
            }
            self.stream.finish(of).map_err(wrong)?;
        }
        for (i, capture) in request.captures.iter().enumerate() {
            let wrong = |why: String| Wrong(ErrorKind::Capture, why);
            let found = match self.fields.iter().position(|(of, _)| *of == i) {
                Some(at) => self.fields.swap_remove(at).1,
                None => capture.find(&self.content, self.cut).map_err(|why| match &self.encoding {
                    Some(encoding) => format!("{why} (its content is encoded: {encoding})"),
                    None => why,
                }),
            };
            let value = found.map_err(wrong)?;
            if let Some(caught) = slots.get(i).and_then(|slot| vars.caught.get_mut(usize::from(*slot))) {
                *caught = value;
            }
        }
        // A large answer is not kept until the next.
        if self.content.capacity() > 64 << 10 {
            self.content = Vec::new();
        }
        Ok(())
    }
}

/// Header fields of HTTP/1.
pub(super) fn fields<'a>(head: &Response<'a>) -> impl Fn(&str) -> Option<&'a [u8]> {
    let fields = head.fields;
    move |name| fields.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_large_answer_is_kept() {
        let capture = Capture::new("x", None, Some("end"), None).unwrap();
        let request = Request { captures: vec![capture], ..Request::default() };
        let (mut watch, mut vars) = (Watch::default(), Vars { caught: vec![Vec::new()], ..Vars::default() });
        let none = |_: &str| None;
        watch.head(&request, none);
        let piece = vec![b'x'; 300_000];
        for _ in 0..10 {
            watch.data(&request, &piece, 0).unwrap();
        }
        watch.data(&request, b"the end", 0).unwrap();
        assert_eq!(watch.content.len(), MOST_CONTENT);
        let Wrong(kind, why) = watch.end(&request, &[0], &mut vars).unwrap_err();
        assert!(kind == ErrorKind::Capture && why.contains("only the first 1 MiB"), "{why}");
        // The next answer begins anew, and says how it is encoded if nothing is found in it.
        watch.head(&request, |name| (name == "content-encoding").then_some(&b"gzip"[..]));
        watch.data(&request, b"\x1f\x8b", 0).unwrap();
        let Wrong(_, why) = watch.end(&request, &[0], &mut vars).unwrap_err();
        assert!(why.contains("encoded: gzip") && !why.contains("1 MiB"), "{why}");
        watch.head(&request, none);
        watch.data(&request, b"the en", 0).unwrap();
        watch.data(&request, b"d", 0).unwrap();
        watch.end(&request, &[0], &mut vars).unwrap();
        assert_eq!(vars.caught, [b"end"]);
    }
}
