//! Frames (RFC 9114 §7): what a stream of requests, or the control stream, is made of.

use super::fault::Fault;
use super::varint::{Varint, read, varint};

const DATA: u64 = 0;
const HEADERS: u64 = 1;
const CANCEL_PUSH: u64 = 3;
pub(super) const SETTINGS: u64 = 4;
const PUSH_PROMISE: u64 = 5;
const GOAWAY: u64 = 7;
const MAX_PUSH_ID: u64 = 13;
/// Types that HTTP/2 has, and HTTP/3 refuses (RFC 9114 §7.2.8).
const OF_HTTP2: [u64; 4] = [2, 6, 8, 9];

/// Most bytes of a frame of the control stream that is read.
const MOST_CONTROL: usize = 1 << 10;

/// Which stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A request, or its answer.
    Message,
    /// The control stream, behind its type.
    Control,
}

/// What has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The block of a head, for [`Fields::read`](super::Fields::read): the first of a message, or that behind an interim one.
    Head(&'a [u8]),
    /// A piece of content.
    Data(&'a [u8]),
    /// The block of the trailers.
    Trailers(&'a [u8]),
    /// Settings, for [`Settings::read`](super::Settings::read).
    Settings(&'a [u8]),
    /// The peer ends: a server takes no request of this stream or a later one.
    GoAway(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The type of the next frame.
    Type,
    /// The length of a frame of this type.
    Length(u64),
    /// What is left of content.
    Content(u64),
    /// What is left of a frame that nobody knows.
    Unknown(u64),
    /// A frame of this type that is kept until it is whole, of this length.
    Whole(u64, usize),
}

/// Which part of a message is next, or whether the control stream has had its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    First,
    Content,
    Last,
}

/// Reads the frames of one stream.
#[derive(Debug)]
pub struct Reader {
    of: Of,
    state: State,
    part: Part,
    varint: Varint,
    kept: Vec<u8>,
    /// Whether `kept` was handed out.
    given: bool,
    most: usize,
}

impl Reader {
    /// A reader for heads of at most so many bytes, as they are on the wire.
    #[must_use]
    pub fn new(of: Of, most: usize) -> Self {
        let most = if of == Of::Control { MOST_CONTROL } else { most };
        Self {
            of,
            state: State::Type,
            part: Part::First,
            varint: Varint::default(),
            kept: Vec::new(),
            given: false,
            most,
        }
    }

    /// Begins with another stream; memory is kept, unless it is much.
    pub fn renew(&mut self) {
        self.kept.clear();
        self.kept.shrink_to(4 << 10);
        (self.state, self.part, self.varint, self.given) =
            (State::Type, Part::First, Varint::default(), false);
    }

    /// The head was an interim one (RFC 9114 §4.1): another follows.
    pub fn interim(&mut self) {
        self.part = Part::First;
    }

    /// Reads on in `bytes`; how many were used, and what they have brought. `None`: all were used.
    ///
    /// # Errors
    /// The stream cannot be read further.
    pub fn next<'a>(&'a mut self, bytes: &'a [u8]) -> Result<(usize, Option<Event<'a>>), Fault> {
        if std::mem::take(&mut self.given) {
            self.kept.clear();
        }
        let mut at = 0;
        loop {
            match self.state {
                State::Type | State::Length(_) => {
                    let Some(byte) = bytes.get(at) else { return Ok((at, None)) };
                    at += 1;
                    let Some(value) = self.varint.push(*byte) else { continue };
                    self.state = match self.state {
                        State::Length(kind) => self.begin(kind, value)?,
                        _ => State::Length(self.allowed(value)?),
                    };
                }
                State::Unknown(0) | State::Content(0) => self.state = State::Type,
                State::Unknown(left) => {
                    let n = left.min((bytes.len() - at) as u64);
                    if n == 0 {
                        return Ok((at, None));
                    }
                    at += n as usize;
                    self.state = State::Unknown(left - n);
                }
                State::Content(left) => {
                    let n = left.min((bytes.len() - at) as u64);
                    if n == 0 {
                        return Ok((at, None));
                    }
                    self.state = State::Content(left - n);
                    let piece = &bytes[at..at + n as usize];
                    return Ok((at + n as usize, Some(Event::Data(piece))));
                }
                State::Whole(kind, length) => {
                    let n = (length - self.kept.len()).min(bytes.len() - at);
                    let piece = &bytes[at..at + n];
                    at += n;
                    if n < length {
                        self.kept.extend_from_slice(piece);
                        if self.kept.len() < length {
                            return Ok((at, None));
                        }
                        self.given = true;
                    }
                    self.state = State::Type;
                    // Nobody pushes anything: we have allowed it to nobody (RFC 9114 §7.2.3, §7.2.7).
                    if matches!(kind, CANCEL_PUSH | MAX_PUSH_ID) {
                        number(if n < length { &self.kept } else { piece })?;
                        if kind == CANCEL_PUSH {
                            return Err(Fault::BadId);
                        }
                        continue;
                    }
                    let whole = if n < length { &self.kept } else { piece };
                    return event(&mut self.part, kind, whole).map(|event| (at, Some(event)));
                }
            }
        }
    }

    /// The stream has ended.
    ///
    /// # Errors
    /// It ended in the middle of a frame, or before a message was whole.
    pub fn end(&self) -> Result<(), Fault> {
        match (self.of, self.part) {
            (Of::Control, _) => Err(Fault::CriticalStreamEnded),
            _ if !matches!(self.state, State::Type | State::Content(0) | State::Unknown(0)) => {
                Err(Fault::FrameMalformed)
            }
            _ if !self.varint.is_empty() => Err(Fault::FrameMalformed),
            // Guard: `Err(Fault::Incomplete)` as `Ok(())` fails h3::frame::
            (Of::Message, Part::First) => Err(Fault::Incomplete),
            _ => Ok(()),
        }
    }

    /// Whether a frame of this type may be here (RFC 9114 §7.2, table 1).
    fn allowed(&self, kind: u64) -> Result<u64, Fault> {
        // Guard: `kind != SETTINGS` as `false` fails h3::frame::
        if self.of == Of::Control && self.part == Part::First && kind != SETTINGS {
            return Err(Fault::NoSettings);
        }
        let fine = match (self.of, kind) {
            (Of::Message, DATA) => self.part == Part::Content,
            (Of::Message, HEADERS) => self.part != Part::Last,
            (Of::Message, CANCEL_PUSH | SETTINGS | GOAWAY | MAX_PUSH_ID | PUSH_PROMISE) => false,
            (Of::Control, SETTINGS) => self.part == Part::First,
            (Of::Control, DATA | HEADERS | PUSH_PROMISE) => false,
            (_, kind) => !OF_HTTP2.contains(&kind),
        };
        // Guard: `Err(Fault::FrameUnexpected)` as `Ok(kind)` fails h3::frame::
        if fine { Ok(kind) } else { Err(Fault::FrameUnexpected) }
    }

    fn begin(&self, kind: u64, length: u64) -> Result<State, Fault> {
        match kind {
            DATA => Ok(State::Content(length)),
            HEADERS | SETTINGS | GOAWAY | CANCEL_PUSH | MAX_PUSH_ID => {
                // Guard: `*length <= self.most` as `true` fails h3::frame::
                let length = usize::try_from(length).ok().filter(|length| *length <= self.most);
                Ok(State::Whole(kind, length.ok_or(Fault::TooLong)?))
            }
            _ => Ok(State::Unknown(length)),
        }
    }
}

/// What a whole frame says.
fn event<'a>(part: &mut Part, kind: u64, whole: &'a [u8]) -> Result<Event<'a>, Fault> {
    let first = *part == Part::First;
    match kind {
        GOAWAY => number(whole).map(Event::GoAway),
        SETTINGS => {
            *part = Part::Content;
            Ok(Event::Settings(whole))
        }
        _ => {
            *part = if first { Part::Content } else { Part::Last };
            Ok(if first { Event::Head(whole) } else { Event::Trailers(whole) })
        }
    }
}

/// The one number of a frame.
fn number(whole: &[u8]) -> Result<u64, Fault> {
    match read(whole) {
        Some((id, length)) if length == whole.len() => Ok(id),
        _ => Err(Fault::FrameMalformed),
    }
}

/// Appends a HEADERS frame.
pub fn headers(block: &[u8], out: &mut Vec<u8>) {
    varint(HEADERS, out);
    varint(block.len() as u64, out);
    out.extend_from_slice(block);
}

/// Appends the beginning of a DATA frame, behind which so many bytes of content follow.
pub fn data(length: u64, out: &mut Vec<u8>) {
    varint(DATA, out);
    varint(length, out);
}

/// A GOAWAY frame.
#[must_use]
pub fn go_away(id: u64) -> Vec<u8> {
    let (mut frame, mut number) = (Vec::new(), Vec::new());
    varint(id, &mut number);
    varint(GOAWAY, &mut frame);
    varint(number.len() as u64, &mut frame);
    frame.extend_from_slice(&number);
    frame
}

#[cfg(test)]
mod tests;
