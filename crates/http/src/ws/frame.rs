//! Frames: their heads, and how they are written (RFC 6455 §5.2).

use super::{Code, MOST_CONTROL, mask};

/// Longest head: two bytes, eight of the length, four of the mask.
pub const LONGEST_HEAD: usize = 14;

/// The reserved bit of a message's first frame that says that it is compressed (RFC 7692 §6): RSV1.
pub(super) const DEFLATED: u8 = 0x40;

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Goes on with a message.
    Continuation = 0,
    /// Begins a message of text, which is UTF-8.
    Text = 1,
    /// Begins a message of bytes.
    Binary = 2,
    /// Ends the connection.
    Close = 8,
    /// Asks for a pong.
    Ping = 9,
    /// Answers a ping, or says that one is there.
    Pong = 10,
}

impl Opcode {
    pub(super) fn of(bits: u8) -> Option<Self> {
        [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong]
            .into_iter()
            .find(|opcode| *opcode as u8 == bits)
    }

    /// Whether it is one of a control frame.
    #[must_use]
    pub fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// Kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text,
            Kind::Binary => Self::Binary,
        }
    }
}

/// Appends the head of a frame that is the last of its message, or that is not, with a payload of so many bytes.
#[inline]
pub fn head(out: &mut Vec<u8>, opcode: Opcode, last: bool, len: usize, key: Option<[u8; 4]>) {
    let masked = u8::from(key.is_some()) << 7;
    out.push(u8::from(last) << 7 | opcode as u8);
    match len {
        0..=125 => out.push(masked | len as u8),
        126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(masked | 127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    if let Some(key) = key {
        out.extend_from_slice(&key);
    }
}

/// Appends a whole frame. `key`: the mask, which a client's frames have and a server's have not.
#[inline]
pub fn write(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], key: Option<[u8; 4]>) {
    head(out, opcode, true, payload.len(), key);
    let begin = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = key {
        mask::apply(key, 0, &mut out[begin..]);
    }
}

/// Appends a close frame: with a code and words, of which as many go along as have room, or without either.
pub fn close(out: &mut Vec<u8>, code: Option<u16>, words: &str, key: Option<[u8; 4]>) {
    let Some(code) = code else { return write(out, Opcode::Close, &[], key) };
    let mut end = words.len().min(MOST_CONTROL - 2);
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    let payload = [&code.to_be_bytes()[..], &words.as_bytes()[..end]].concat();
    write(out, Opcode::Close, &payload, key);
}

impl From<Code> for u16 {
    fn from(code: Code) -> Self {
        code as Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    fn written(opcode: Opcode, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, opcode, payload, key);
        out
    }

    /// RFC 6455 §5.7
    #[test]
    fn the_examples_of_the_standard() {
        assert_eq!(written(Opcode::Text, b"Hello", None), [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(written(Opcode::Text, b"Hello", Some(KEY)), masked);
        assert_eq!(written(Opcode::Ping, b"Hello", None), [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
        let pong = [0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(written(Opcode::Pong, b"Hello", Some(KEY)), pong);
        assert_eq!(written(Opcode::Binary, &[7; 256], None)[..4], [0x82, 0x7e, 0x01, 0x00]);
        let long = [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(written(Opcode::Binary, &[7; 65536], None)[..10], long);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        head(&mut first, Opcode::Text, false, 3, None);
        head(&mut second, Opcode::Continuation, true, 2, None);
        assert_eq!((first, second), (vec![0x01, 0x03], vec![0x80, 0x02]));
    }

    #[test]
    fn a_close_has_a_code_and_as_many_words_as_fit() {
        let mut out = Vec::new();
        close(&mut out, Some(1000), &"ä".repeat(100), None);
        assert_eq!(out.len(), 2 + 2 + 122, "no half of a character");
        assert_eq!(out[..4], [0x88, 124, 3, 0xe8]);
        out.clear();
        close(&mut out, None, "", None);
        assert_eq!(out, [0x88, 0]);
    }
}
