//! What messages carry: a piece of a pattern, which begins where the connection and the message's number say.
//!
//! So an answer is compared with the pattern as it comes, and nothing is kept. The pattern repeats after a prime number of bytes
//! ([`crate::tcp::pattern`]): an answer of another message, or with bytes missing or twice, is another one.

use std::sync::OnceLock;

use flowlane_http::ws::{Kind, deflate, frame, mask};

use crate::tcp::pattern::{self, LONGEST, PERIOD};

/// What messages carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Text or bytes.
    pub kind: Kind,
    /// Bytes of each.
    pub size: usize,
    /// Whether answers are compared. If not, any message is an answer.
    pub verify: bool,
    /// Whether it is words, of which compression makes a third.
    pub words: bool,
}

/// What messages that are compressed are made of, as much like records as it takes.
const WORDS: [&str; 16] = [
    "\"name\": ",
    "\"price\": ",
    "\"time\": ",
    "\"from\": ",
    "true, ",
    "false, ",
    "null, ",
    "lane ",
    "queue ",
    "{ ",
    "}, ",
    "1024, ",
    "0.25, ",
    "\"open\", ",
    "\"closed\", ",
    "packet ",
];

/// Words, one after the other.
fn words() -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    ALL.get_or_init(|| {
        let word = |nth| WORDS[usize::from(pattern::slice(nth, 1)[0] >> 4)].bytes();
        let period: Vec<u8> = (0..PERIOD as u64).flat_map(word).take(PERIOD).collect();
        period.iter().copied().cycle().take(PERIOD + LONGEST).collect()
    })
}

/// The pattern as printable characters of ASCII.
fn text() -> &'static [u8] {
    static TEXT: OnceLock<Vec<u8>> = OnceLock::new();
    TEXT.get_or_init(|| {
        let byte = |at: usize| b' ' + pattern::slice(at as u64, 1)[0] % 95;
        (0..PERIOD + LONGEST).map(byte).collect()
    })
}

impl Payload {
    /// Where in the pattern message `nth` of a connection begins.
    #[inline]
    pub(super) fn begin(connection: u64, nth: u64) -> u64 {
        connection.wrapping_mul(7919).wrapping_add(nth.wrapping_mul(104_729)) % PERIOD as u64
    }

    #[inline]
    fn slice(self, at: u64, len: usize) -> &'static [u8] {
        let len = len.min(LONGEST);
        if self.words {
            let from = (at % PERIOD as u64) as usize;
            return &words()[from..from + len];
        }
        match self.kind {
            Kind::Binary => pattern::slice(at, len),
            Kind::Text => {
                let from = (at % PERIOD as u64) as usize;
                &text()[from..from + len]
            }
        }
    }

    /// Appends the message that begins there, as one frame with this mask.
    #[inline]
    pub(super) fn write(self, begin: u64, key: [u8; 4], out: &mut Vec<u8>) {
        frame::head(out, self.kind.into(), true, self.size, Some(key));
        let from = out.len();
        self.append(begin, out);
        mask::apply(key, 0, &mut out[from..]);
    }

    /// As [`write`](Self::write), compressed. `plain` is empty before and after.
    pub(super) fn write_deflated(self, begin: u64, key: [u8; 4], plain: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.append(begin, plain);
        deflate::write(out, self.kind.into(), plain, Some(key));
        plain.clear();
    }

    #[inline]
    fn append(self, begin: u64, out: &mut Vec<u8>) {
        let mut at = 0;
        while at < self.size {
            let piece = self.slice(begin + at as u64, self.size - at);
            out.extend_from_slice(piece);
            at += piece.len();
        }
    }

    /// Whether these are bytes of the message that begins there, from its byte `at` on.
    #[inline]
    pub(super) fn is_of(self, begin: u64, at: u64, bytes: &[u8]) -> bool {
        let mut from = begin + at;
        bytes.chunks(LONGEST).all(|chunk| {
            let same = self.slice(from, chunk.len()) == chunk;
            from += chunk.len() as u64;
            same
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_http::ws::{Event, Reader, Side};

    #[test]
    fn what_is_written_is_what_is_compared() {
        for (kind, size) in
            [(Kind::Text, 0), (Kind::Text, 200_000), (Kind::Binary, 7), (Kind::Binary, 70_000)]
        {
            let payload = Payload { kind, size, verify: true, words: size == 70_000 };
            let begin = Payload::begin(12, 65_000);
            let mut out = Vec::new();
            payload.write(begin, [1, 2, 3, 250], &mut out);
            let mut reader = Reader::new(Side::Client, 1 << 20);
            let (used, event) = reader.next(&mut out).unwrap();
            let Some(Event::Data { kind: came, bytes, last: true, .. }) = event else { panic!("{event:?}") };
            assert_eq!((came, bytes.len()), (kind, size));
            assert!(
                payload.is_of(begin, 0, bytes) && payload.is_of(begin, 5, bytes.get(5..).unwrap_or_default())
            );
            if size > 0 {
                assert!(!payload.is_of(Payload::begin(12, 65_001), 0, bytes), "another message");
                assert!(!payload.is_of(Payload::begin(13, 65_000), 0, bytes), "another connection");
                assert!(!payload.is_of(begin, 1, bytes), "a byte is missing");
            }
            assert_eq!(used, out.len());
        }
    }
}
