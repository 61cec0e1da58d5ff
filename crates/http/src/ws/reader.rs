//! Reading a stream of frames: messages in pieces, control frames whole.
//!
//! A message's length is the sum of those that its frames announce, so one that is too long is refused before its bytes come. Payloads are
//! unmasked where they are. Control frames may come between the fragments of a message (RFC 6455 §5.4); one that is cut is kept, at most 125 bytes.

use std::ops::Range;

use super::frame::{DEFLATED, LONGEST_HEAD};
use super::utf8::Utf8;
use super::{Fault, Kind, MOST_CONTROL, Opcode, is_code, mask};

/// Fragments of one message that may have no byte.
const EMPTY: u16 = 1000;

/// Whose bytes are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client's: masked.
    Client,
    /// A server's: not masked.
    Server,
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A piece of a message. `first` and `last`: it begins and ends the message; it may be empty then.
    Data {
        /// What the message is.
        kind: Kind,
        /// The piece, unmasked.
        bytes: &'a [u8],
        /// Whether the message begins with it.
        first: bool,
        /// Whether the message ends with it.
        last: bool,
        /// Whether the message has had several frames so far.
        fragmented: bool,
        /// Whether the message is compressed: what it carries, UTF-8 or not, is known once it is decompressed.
        deflated: bool,
    },
    /// A ping, which wants a pong with the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong(&'a [u8]),
    /// The end, with its code if there is one. What follows is skipped.
    Close(Option<u16>),
}

/// The frame whose payload comes now.
#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: Opcode,
    last: bool,
    key: Option<[u8; 4]>,
    /// Bytes of its payload, and how many have come.
    len: u64,
    at: u64,
}

/// What a step found, by its place in the input.
#[derive(Debug)]
enum Found {
    Data {
        kind: Kind,
        first: bool,
        last: bool,
        fragmented: bool,
        deflated: bool,
        piece: Range<usize>,
    },
    /// Its payload lies in the input, unless some of it is kept.
    Control(Opcode, Range<usize>),
}

/// A message that has begun.
#[derive(Debug, Clone, Copy)]
struct Message {
    kind: Kind,
    /// Bytes that its frames announced.
    len: u64,
    /// Whether a piece of it was given out.
    told: bool,
    empty: u16,
    deflated: bool,
}

/// Reads one side's frames. After a fault it says the same fault again.
#[derive(Debug)]
pub struct Reader {
    side: Side,
    /// Whether messages may be compressed.
    deflates: bool,
    longest: u64,
    /// The head of a frame as far as it has come.
    head: [u8; LONGEST_HEAD],
    have: u8,
    frame: Option<Frame>,
    message: Option<Message>,
    utf8: Utf8,
    /// A control frame's payload that was cut.
    control: Vec<u8>,
    over: bool,
    fault: Option<Fault>,
}

impl Reader {
    /// Reads the frames of this side, in messages of at most `longest` bytes.
    #[must_use]
    pub fn new(side: Side, longest: u64) -> Self {
        Self {
            side,
            deflates: false,
            longest,
            head: [0; LONGEST_HEAD],
            have: 0,
            frame: None,
            message: None,
            utf8: Utf8::default(),
            control: Vec::new(),
            over: false,
            fault: None,
        }
    }

    /// Compressed messages may come.
    #[must_use]
    pub fn deflates(self, may: bool) -> Self {
        Self { deflates: may, ..self }
    }

    /// Whether a close frame has come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether no frame and no message has begun.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.have == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Takes bytes, as many as are said, and tells what came with them; nothing once all are taken.
    ///
    /// # Errors
    /// The stream is wrong here, and cannot be read further.
    #[inline]
    pub fn next<'a>(&'a mut self, input: &'a mut [u8]) -> Result<(usize, Option<Event<'a>>), Fault> {
        let (used, found) = self.step(input)?;
        let Some(found) = found else { return Ok((used, None)) };
        let Self { control, over, fault, .. } = self;
        let event = match found {
            Found::Data { kind, first, last, fragmented, deflated, piece } => {
                Event::Data { kind, bytes: &input[piece], first, last, fragmented, deflated }
            }
            Found::Control(opcode, piece) => {
                let payload = if control.is_empty() { &input[piece] } else { &control[..] };
                match opcode {
                    Opcode::Ping => Event::Ping(payload),
                    Opcode::Pong => Event::Pong(payload),
                    _ => match close(payload) {
                        Ok(code) => {
                            *over = true;
                            Event::Close(code)
                        }
                        Err(why) => {
                            *fault = Some(why);
                            return Err(why);
                        }
                    },
                }
            }
        };
        Ok((used, Some(event)))
    }

    #[inline]
    fn step(&mut self, input: &mut [u8]) -> Result<(usize, Option<Found>), Fault> {
        if self.over {
            return Ok((input.len(), None));
        }
        let mut used = 0;
        loop {
            if let Some(fault) = self.fault {
                return Err(fault);
            }
            if self.frame.is_none() {
                used += self.begin(&input[used..]).map_err(|fault| self.fails(fault))?;
            }
            let Some(frame) = self.frame else { return Ok((used, None)) };
            let n = (input.len() - used).min(usize::try_from(frame.len - frame.at).unwrap_or(usize::MAX));
            let piece = used..used + n;
            used += n;
            if let Some(key) = frame.key {
                mask::apply(key, frame.at, &mut input[piece.clone()]);
            }
            let at = frame.at + n as u64;
            let whole = at == frame.len;
            self.frame = if whole { None } else { Some(Frame { at, ..frame }) };
            if frame.opcode.is_control() {
                if frame.at == 0 {
                    self.control.clear();
                }
                if !whole || !self.control.is_empty() {
                    self.control.extend_from_slice(&input[piece.clone()]);
                }
                return Ok((used, whole.then_some(Found::Control(frame.opcode, piece))));
            }
            let told = self.data(frame, &input[piece.clone()], whole);
            if let Some((message, first, last)) = told.map_err(|fault| self.fails(fault))? {
                let Message { kind, deflated, .. } = message;
                let fragmented = frame.opcode == Opcode::Continuation;
                return Ok((used, Some(Found::Data { kind, first, last, fragmented, deflated, piece })));
            }
            if !whole {
                return Ok((used, None));
            }
        }
    }

    #[cold]
    fn fails(&mut self, fault: Fault) -> Fault {
        self.fault = Some(fault);
        fault
    }

    /// Takes bytes of a head; the frame begins when it is whole.
    #[inline]
    fn begin(&mut self, input: &[u8]) -> Result<usize, Fault> {
        let mut used = 0;
        let mut need = 2;
        loop {
            let have = usize::from(self.have);
            let n = (need - have.min(need)).min(input.len() - used);
            self.head[have..have + n].copy_from_slice(&input[used..used + n]);
            used += n;
            self.have += n as u8;
            if usize::from(self.have) < need {
                return Ok(used);
            }
            if need > 2 {
                break;
            }
            need = self.check()?;
            if need == 2 {
                break;
            }
        }
        self.frame = Some(self.read(need)?);
        self.have = 0;
        Ok(used)
    }

    /// Looks at the first two bytes; how many bytes the head has.
    #[inline]
    fn check(&self) -> Result<usize, Fault> {
        let [first, second, ..] = self.head;
        let opcode = Opcode::of(first & 15);
        // On the first frame of a message alone (RFC 7692 §6.1).
        // Guard: `matches!(opcode, Some(Opcode::Text | Opcode::Binary))` as `true` fails
        // ws::reader::tests::compressed_messages
        let known =
            if self.deflates && matches!(opcode, Some(Opcode::Text | Opcode::Binary)) { DEFLATED } else { 0 };
        // Guard: `first & 0x70 & !known != 0` as `false` fails ws::reader::tests::what_is_wrong
        if first & 0x70 & !known != 0 {
            return Err(Fault::Reserved);
        }
        let opcode = opcode.ok_or(Fault::Opcode)?;
        let masked = second & 0x80 != 0;
        match self.side {
            // Guard: `!masked` as `false` fails ws::reader::tests::what_is_wrong
            Side::Client if !masked => return Err(Fault::Unmasked),
            // Guard: `masked` as `false` fails ws::reader::tests::what_is_wrong
            Side::Server if masked => return Err(Fault::Masked),
            _ => {}
        }
        let len = usize::from(second & 0x7f);
        if opcode.is_control() {
            // Guard: `first & 0x80 == 0` as `false` fails ws::reader::tests::what_is_wrong
            if first & 0x80 == 0 {
                return Err(Fault::FragmentedControl);
            }
            // Guard: `len > MOST_CONTROL` as `false` fails ws::reader::tests::what_is_wrong
            if len > MOST_CONTROL {
                return Err(Fault::LongControl);
            }
        }
        match (opcode, &self.message) {
            (Opcode::Continuation, None) => return Err(Fault::Continuation),
            (Opcode::Text | Opcode::Binary, Some(_)) => return Err(Fault::Interleaved),
            _ => {}
        }
        let more = match len {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        Ok(2 + more + if masked { 4 } else { 0 })
    }

    /// The frame of a head of so many bytes, which is whole.
    #[inline]
    fn read(&mut self, end: usize) -> Result<Frame, Fault> {
        let [first, second, ..] = self.head;
        let opcode = Opcode::of(first & 15).ok_or(Fault::Opcode)?;
        let [_, _, a, b, c, d, e, f, g, h, ..] = self.head;
        let (len, least) = match second & 0x7f {
            126 => (u64::from(u16::from_be_bytes([a, b])), 126),
            127 => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 1 << 16),
            short => (u64::from(short), 0),
        };
        // Guard: `len < least` as `false` fails ws::reader::tests::what_is_wrong
        // Guard: `len >> 63 != 0` as `false` fails ws::reader::tests::what_is_wrong
        if len < least || len >> 63 != 0 {
            return Err(Fault::Length);
        }
        let key = (second & 0x80 != 0).then(|| {
            let mut key = [0; 4];
            key.copy_from_slice(&self.head[end - 4..end]);
            key
        });
        if !opcode.is_control() {
            let kind = if opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
            let deflated = first & DEFLATED != 0;
            let new = Message { kind, len: 0, told: false, empty: 0, deflated };
            let message = self.message.get_or_insert(new);
            message.len = message.len.saturating_add(len);
            // Guard: `message.len > self.longest` as `false` fails ws::reader::tests::what_is_wrong
            // ws::reader::tests::messages_without_end
            if message.len > self.longest {
                return Err(Fault::TooLong);
            }
        }
        Ok(Frame { opcode, last: first & 0x80 != 0, key, len, at: 0 })
    }

    /// A piece of a message: which, and whether it is the first and the last, if it is to be told.
    #[inline]
    fn data(
        &mut self,
        frame: Frame,
        piece: &[u8],
        whole: bool,
    ) -> Result<Option<(Message, bool, bool)>, Fault> {
        // The head has made sure of it.
        let Some(message) = &mut self.message else { return Err(Fault::Continuation) };
        let is_text = message.kind == Kind::Text && !message.deflated;
        if is_text {
            self.utf8.feed(piece).map_err(|_| Fault::Utf8)?;
        }
        let last = whole && frame.last;
        if piece.is_empty() && !last {
            if whole {
                message.empty += 1;
                // Guard: `message.empty > EMPTY` as `false` fails ws::reader::tests::messages_without_end
                if message.empty > EMPTY {
                    return Err(Fault::EmptyFragments);
                }
            }
            return Ok(None);
        }
        let first = !std::mem::replace(&mut message.told, true);
        let of = *message;
        if last {
            self.message = None;
            if is_text {
                self.utf8.end().map_err(|_| Fault::Utf8)?;
            }
        }
        Ok(Some((of, first, last)))
    }
}

/// The code of a close frame's payload (§5.5.1).
fn close(payload: &[u8]) -> Result<Option<u16>, Fault> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() { Ok(None) } else { Err(Fault::Close) };
    };
    let code = u16::from_be_bytes(*code);
    // Guard: `!is_code(code)` as `false` fails ws::reader::tests::what_is_wrong
    if !is_code(code) {
        return Err(Fault::Close);
    }
    std::str::from_utf8(reason).map_err(|_| Fault::Utf8)?;
    Ok(Some(code))
}

#[cfg(test)]
mod tests;
