//! Reader of a connection's messages, one after the other, from input segmented at any byte.

use std::fmt::Debug;

use super::{BodyDecoder, Fault, Framing, Limits, Piece, Request, Response, request, response};

/// Interim responses (status 1xx) that one request may have: a server that sends them for ever would keep its client busy for nothing.
pub const MOST_INTERIM: u8 = 64;

/// An event of a [`Reader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a, H> {
    /// A head; the pieces of the body, if any, and the end follow.
    Head(H),
    /// An interim response (status 1xx), which has no body.
    Interim(H),
    /// A piece of the body, never empty.
    Data(&'a [u8]),
    /// The message is complete.
    End,
}

/// Bytes used and an event, if there is one.
pub type Found<'a, H> = Result<(usize, Option<Event<'a, H>>), Fault>;

/// The kind of messages: [`Requests`] or [`Responses`].
pub trait Kind: private::Kind {}

/// Messages that a server reads.
#[derive(Debug, Clone, Copy)]
pub struct Requests;

/// Messages that a client reads.
#[derive(Debug, Clone, Copy)]
pub struct Responses;

impl Kind for Requests {}
impl Kind for Responses {}

pub(crate) mod private {
    use super::{Debug, Fault, Framing, Limits};

    pub trait Kind {
        type Head<'a>: Copy + Debug;
        fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Self::Head<'a>, usize)>, Fault>;
        /// The fault of an incomplete first line that cannot become valid.
        fn hopeless(_begin: &[u8]) -> Option<Fault> {
            None
        }
        /// How the body is framed; `None` for an interim response.
        fn framing(head: &Self::Head<'_>, to_head: bool) -> Result<Option<Framing>, Fault>;
    }
}

impl private::Kind for Requests {
    type Head<'a> = Request<'a>;

    #[inline]
    fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Request<'a>, usize)>, Fault> {
        request(bytes, limits)
    }

    #[inline]
    fn framing(head: &Request<'_>, _: bool) -> Result<Option<Framing>, Fault> {
        Ok(Some(head.framing))
    }
}

impl private::Kind for Responses {
    type Head<'a> = Response<'a>;

    #[inline]
    fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<(Response<'a>, usize)>, Fault> {
        response(bytes, limits)
    }

    /// Detects another protocol by its first bytes, since it may wait for us to send or never end its first line. The fault is that of the
    /// whole line.
    fn hopeless(begin: &[u8]) -> Option<Fault> {
        const NAME: &[u8] = b"HTTP/";
        let same = begin.len().min(NAME.len());
        (begin[..same] != NAME[..same]).then_some(Fault::BadVersion)
    }

    #[inline]
    fn framing(head: &Response<'_>, to_head: bool) -> Result<Option<Framing>, Fault> {
        match head.status {
            101 => Err(Fault::Switching),
            100..200 => Ok(None),
            _ if to_head => Ok(Some(Framing::None)),
            _ => Ok(Some(head.framing)),
        }
    }
}

#[derive(Debug)]
enum State {
    Head,
    Body(BodyDecoder),
    Failed(Fault),
}

/// Reads the messages of one direction of one connection.
///
/// Pass received bytes to [`Reader::next`] until it returns `None`, then pass the bytes received next. Between messages and in bodies it
/// holds no memory.
#[derive(Debug)]
pub struct Reader<K> {
    limits: Limits,
    state: State,
    /// The beginning of an incomplete head.
    held: Vec<u8>,
    /// Whether the head in `held` was returned; it stays because the returned head borrows from it.
    spent: bool,
    to_head: bool,
    /// Interim responses since the last other one.
    interim: u8,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Kind> Reader<K> {
    /// A reader for the beginning of a connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Head,
            held: Vec::new(),
            spent: false,
            to_head: false,
            interim: 0,
            kind: std::marker::PhantomData,
        }
    }

    /// Announces that the next response answers a `HEAD` request, so it has no body. Applies to one message.
    pub fn expect_no_body(&mut self) {
        self.to_head = true;
    }

    /// Whether no byte of the next message has been read: the peer may end the stream here.
    #[must_use]
    #[inline]
    pub fn is_between_messages(&self) -> bool {
        matches!(self.state, State::Head) && (self.spent || self.held.is_empty())
    }

    /// Whether a body is being read.
    #[must_use]
    #[inline]
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Body(_))
    }

    /// Whether the message is complete and only [`Event::End`] is left, which needs no more bytes.
    #[must_use]
    #[inline]
    pub fn is_at_end(&self) -> bool {
        matches!(&self.state, State::Body(decoder) if decoder.is_done())
    }

    /// Returns the number of bytes of `input` used, and the next event. Without an event all bytes were used, and more are needed.
    ///
    /// An event may use no bytes (the end of a message without a body), so call it until there is no event.
    ///
    /// # Errors
    /// What is wrong with the message; all later calls return the same.
    #[inline]
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Found<'a, K::Head<'a>> {
        if self.spent {
            self.spent = false;
            self.held = Vec::new();
        }
        match &mut self.state {
            State::Body(decoder) => match decoder.decode(input) {
                Ok((used, Piece::Data(data))) => Ok((used, Some(Event::Data(data)))),
                Ok((used, Piece::More)) => Ok((used, None)),
                Ok((used, Piece::End)) => {
                    self.to_head = false;
                    self.state = State::Head;
                    Ok((used, Some(Event::End)))
                }
                Err(fault) => {
                    self.state = State::Failed(fault);
                    Err(fault)
                }
            },
            State::Head => self.head(input),
            State::Failed(fault) => Err(*fault),
        }
    }

    /// Reads a head of which nothing is held.
    #[inline]
    fn head<'a>(&'a mut self, input: &'a [u8]) -> Found<'a, K::Head<'a>> {
        if !self.held.is_empty() {
            return self.rest_of_head(input);
        }
        // Empty lines before a message are ignored (RFC 9112 §2.2).
        let skipped = input.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(input.len());
        match parse::<K>(&input[skipped..], 0, &self.limits, self.to_head) {
            Ok(Some(parsed)) => {
                let used = skipped + parsed.len;
                Ok((used, Some(begin(&mut self.state, &mut self.interim, parsed, &self.limits)?)))
            }
            Ok(None) => {
                self.held.extend_from_slice(&input[skipped..]);
                Ok((input.len(), None))
            }
            Err(fault) => {
                self.state = State::Failed(fault);
                Err(fault)
            }
        }
    }

    /// Reads a head whose beginning is held.
    fn rest_of_head<'a>(&'a mut self, input: &[u8]) -> Found<'a, K::Head<'a>> {
        let before = self.held.len();
        let room = self.limits.head_bytes().saturating_sub(before);
        self.held.extend_from_slice(&input[..input.len().min(room)]);
        match parse::<K>(&self.held, before, &self.limits, self.to_head) {
            Ok(Some(parsed)) => {
                self.spent = true;
                let used = parsed.len.saturating_sub(before);
                Ok((used, Some(begin(&mut self.state, &mut self.interim, parsed, &self.limits)?)))
            }
            Ok(None) => Ok((input.len(), None)),
            Err(fault) => {
                self.state = State::Failed(fault);
                Err(fault)
            }
        }
    }

    /// Handles the end of the stream: the end of the message, `None` between messages, or a fault if a message is incomplete.
    ///
    /// # Errors
    /// [`Fault::EndInHead`] and [`Fault::EndInBody`], or what was wrong before.
    pub fn finish(&mut self) -> Result<Option<Event<'static, K::Head<'static>>>, Fault> {
        let fault = match &self.state {
            State::Failed(fault) => return Err(*fault),
            State::Head if self.is_between_messages() => return Ok(None),
            State::Head => Fault::EndInHead,
            State::Body(decoder) if decoder.ends_with_stream() => {
                self.state = State::Head;
                return Ok(Some(Event::End));
            }
            State::Body(_) => Fault::EndInBody,
        };
        self.state = State::Failed(fault);
        Err(fault)
    }
}

/// A head that was found.
struct Parsed<H> {
    head: H,
    len: usize,
    /// `None` for an interim response.
    framing: Option<Framing>,
}

/// Parses a head whose first `before` bytes were examined already.
///
/// It parses whole lines, and only when there is a new one, so that a peer cannot make us parse a head again for every byte. The first
/// input is parsed as it is, since it usually contains the whole head, and its last line may belong to a body.
#[inline]
fn parse<'a, K: Kind>(
    bytes: &'a [u8],
    before: usize,
    limits: &Limits,
    to_head: bool,
) -> Result<Option<Parsed<K::Head<'a>>>, Fault> {
    let limit = limits.head_bytes();
    let bytes = &bytes[..bytes.len().min(limit)];
    let first = (before == 0).then(|| K::parse(bytes, limits));
    let found = match first {
        // The fault may be in an incomplete line, which is checked when it is complete.
        None | Some(Err(_)) => whole_lines::<K>(bytes, before, limits)?,
        Some(found) => found?,
    };
    let Some((head, len)) = found else { return K::hopeless(bytes).map_or(Ok(None), Err) };
    let framing = K::framing(&head, to_head)?;
    Ok(Some(Parsed { head, len, framing }))
}

/// Parses a head without its last line if that is incomplete, and only if there are new lines behind the first `before` bytes.
fn whole_lines<'a, K: Kind>(
    bytes: &'a [u8],
    before: usize,
    limits: &Limits,
) -> Result<Option<(K::Head<'a>, usize)>, Fault> {
    let end = match bytes.iter().rposition(|b| *b == b'\n') {
        _ if bytes.len() == limits.head_bytes() => bytes.len(),
        Some(last) if last >= before => last + 1,
        _ => return Ok(None),
    };
    K::parse(&bytes[..end], limits)
}

#[inline]
fn begin<'a, H>(
    state: &mut State,
    interim: &mut u8,
    parsed: Parsed<H>,
    limits: &Limits,
) -> Result<Event<'a, H>, Fault> {
    match parsed.framing {
        // Guard: `*interim >= MOST_INTERIM` as `false` fails reader::tests::interim_responses_have_an_end
        None if *interim >= MOST_INTERIM => {
            *state = State::Failed(Fault::TooManyInterim);
            Err(Fault::TooManyInterim)
        }
        None => {
            *interim += 1;
            Ok(Event::Interim(parsed.head))
        }
        Some(framing) => {
            *interim = 0;
            *state = State::Body(BodyDecoder::new(framing, limits));
            Ok(Event::Head(parsed.head))
        }
    }
}

#[cfg(test)]
mod tests;
