//! The messages and the status of an answer, read as they come.

use crate::http::check::Wrong;
use crate::report::ErrorKind;

/// Names of the statuses, by their numbers.
const STATUSES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid argument",
    "deadline exceeded",
    "not found",
    "already exists",
    "permission denied",
    "resource exhausted",
    "failed precondition",
    "aborted",
    "out of range",
    "unimplemented",
    "internal",
    "unavailable",
    "data loss",
    "unauthenticated",
];
/// Most characters of a server's words that are shown.
const MOST_WORDS: usize = 100;

/// An answer that is being read.
#[derive(Debug, Default)]
pub(in crate::http) struct Reading {
    /// Flag and length of the message that is being read, as much of them as has come.
    front: [u8; 5],
    have: usize,
    /// Bytes of it that are to come.
    left: u32,
    /// Messages so far, and when the last came.
    pub(in crate::http) messages: u64,
    pub(in crate::http) last: u64,
    /// The status and the server's words, once they have come.
    status: Option<(Result<u16, String>, String)>,
    /// The content type, if it is not gRPC's.
    other: Option<String>,
}

impl Reading {
    /// The head of an answer; `field` finds a header field by its name.
    pub(in crate::http) fn begin<'a>(&mut self, field: impl Fn(&str) -> Option<&'a [u8]>) {
        *self = Self::default();
        let kind = field("content-type").unwrap_or_default();
        let is_call = kind
            .strip_prefix(b"application/grpc")
            .is_some_and(|rest| rest.first().is_none_or(|next| matches!(next, b'+' | b';' | b' ')));
        self.other = (!is_call).then(|| words(kind));
        // An answer without messages has its status in its head.
        self.trailers(field);
    }

    /// The trailers of an answer.
    pub(in crate::http) fn trailers<'a>(&mut self, field: impl Fn(&str) -> Option<&'a [u8]>) {
        let Some(status) = field("grpc-status") else { return };
        let number = std::str::from_utf8(status).ok().and_then(|status| status.parse().ok());
        let message = words(&unescaped(field("grpc-message").unwrap_or_default()));
        self.status = Some((number.ok_or_else(|| words(status)), message));
    }

    /// A piece of the content that came at `now`; returns how many messages it completes.
    ///
    /// # Errors
    /// It is not what gRPC has.
    pub(in crate::http) fn read(&mut self, mut piece: &[u8], now: u64) -> Result<u64, Wrong> {
        if self.other.is_some() {
            return Ok(0);
        }
        let mut found = 0;
        while !piece.is_empty() {
            if self.have < 5 {
                let n = piece.len().min(5 - self.have);
                self.front[self.have..self.have + n].copy_from_slice(&piece[..n]);
                self.have += n;
                piece = &piece[n..];
                if self.have < 5 {
                    break;
                }
                let wrong = |why: String| Err(Wrong(ErrorKind::Grpc, why));
                match self.front[0] {
                    0 => {}
                    1 => return wrong("a compressed message, though no compression is offered".into()),
                    flag => return wrong(format!("a message with the flag {flag}, which is none")),
                }
                self.left = u32::from_be_bytes([self.front[1], self.front[2], self.front[3], self.front[4]]);
            }
            let n = (self.left as usize).min(piece.len());
            self.left -= n as u32;
            piece = &piece[n..];
            if self.left == 0 {
                self.have = 0;
                found += 1;
            }
        }
        if found > 0 {
            self.messages += found;
            self.last = now;
        }
        Ok(found)
    }

    /// The answer is whole.
    ///
    /// # Errors
    /// The call has failed.
    pub(in crate::http) fn finish(&mut self) -> Result<(), Wrong> {
        let wrong = |why: String| Err(Wrong(ErrorKind::Grpc, why));
        if let Some(other) = self.other.take() {
            let other = if other.is_empty() { "none".to_owned() } else { other };
            return wrong(format!("the answer is none of gRPC: its content type is {other}"));
        }
        match self.status.take() {
            None => wrong(format!("the answer ended after {} messages without a status", self.messages)),
            // Guard: `self.have > 0` as `false` fails grpc::reading::tests::what_is_wrong
            Some((Ok(0), _)) if self.have > 0 => {
                wrong(format!("the answer ended within a message, after {} whole ones", self.messages))
            }
            Some((Ok(0), _)) => Ok(()),
            Some((Ok(status), message)) => {
                let name = STATUSES.get(usize::from(status)).copied().unwrap_or("which is none");
                let colon = if message.is_empty() { "" } else { ": " };
                wrong(format!("status {status} ({name}){colon}{message}"))
            }
            Some((Err(status), _)) => wrong(format!("the status '{status}' is no number")),
        }
    }
}

/// Escapes of bytes undone, as `grpc-message` has them: `%20`. What is no escape stays.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, behind @ ..] = rest {
        let digit = |i: usize| behind.get(i).and_then(|b| char::from(*b).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high << 4 | low) as u8);
                rest = &behind[2..];
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

/// A server's words, for a terminal.
fn words(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let shown = text.trim().chars().take(MOST_WORDS);
    shown.map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = &'static [(&'static str, &'static str)];
    const HEAD: Fields = &[("content-type", "application/grpc+proto")];
    const FINE: Fields = &[("grpc-status", "0")];

    fn field(fields: Fields) -> impl Fn(&str) -> Option<&'static [u8]> {
        move |name| fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_bytes())
    }

    fn answer(head: Fields, content: &[u8], trailers: Fields, cut: usize) -> Result<u64, String> {
        let mut reading = Reading::default();
        reading.begin(field(head));
        for piece in content.chunks(cut) {
            reading.read(piece, 7).map_err(|Wrong(_, why)| why)?;
        }
        reading.trailers(field(trailers));
        assert!(reading.messages == 0 || reading.last == 7);
        let messages = reading.messages;
        reading.finish().map(|()| messages).map_err(|Wrong(kind, why)| {
            assert_eq!(kind, ErrorKind::Grpc);
            why
        })
    }

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let content = b"\0\0\0\0\x03abc\0\0\0\0\0\0\0\0\0\x01x";
        for cut in 1..=content.len() {
            assert_eq!(answer(HEAD, content, FINE, cut), Ok(3), "in pieces of {cut}");
        }
        assert_eq!(answer(&[("content-type", "application/grpc"), ("grpc-status", "0")], b"", &[], 1), Ok(0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (head, content, trailers, what) in [
            (HEAD, &b"\0\0\0\0\x03abc"[..], &[][..], "after 1 messages without a status"),
            (HEAD, b"\0\0\0\0\x03ab", FINE, "within a message, after 0 whole"),
            (HEAD, b"\0\0\0\0\x01a\0\0", FINE, "within a message, after 1 whole"),
            (HEAD, b"\x01\0\0\0\x01a", FINE, "compressed"),
            (HEAD, b"\x02\0\0\0\x01a", FINE, "flag 2"),
            (
                HEAD,
                b"",
                &[("grpc-status", "5"), ("grpc-message", "no %22cart%22 %zz")],
                "status 5 (not found): no \"cart\" %zz",
            ),
            (HEAD, b"", &[("grpc-status", "16")], "status 16 (unauthenticated)"),
            (HEAD, b"", &[("grpc-status", "99")], "status 99 (which is none)"),
            (HEAD, b"", &[("grpc-status", "x")], "'x' is no number"),
            (
                HEAD,
                b"",
                &[("grpc-status", "13"), ("grpc-message", "%1b[2J%0a")],
                "status 13 (internal): \u{fffd}[2J",
            ),
            (&[("content-type", "text/html")], b"<html>", FINE, "its content type is text/html"),
            (&[("content-type", "application/grpcx")], b"", FINE, "application/grpcx"),
            (&[], b"", FINE, "its content type is none"),
        ] {
            for cut in 1..=content.len().max(1) {
                let why = answer(head, content, trailers, cut).unwrap_err();
                assert!(why.contains(what) && why.len() < 300, "{what}: {why}");
            }
        }
    }

    #[test]
    fn a_long_message_takes_no_memory() {
        let mut reading = Reading::default();
        reading.begin(field(HEAD));
        assert_eq!(reading.read(&[0, 0xff, 0xff, 0xff, 0xff], 0).unwrap(), 0);
        for _ in 0..1000 {
            assert_eq!(reading.read(&[0; 4096], 0).unwrap(), 0);
        }
        assert_eq!(reading.left, u32::MAX - 4_096_000);
    }
}
