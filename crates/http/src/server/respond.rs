//! Writing an answer in HTTP/1.

use std::io;
use std::task::{Context, Poll};

use flowlane::{SocketError, TcpStream, Time};

use super::events::Events;
use super::reply::{Body, LINE, LINE_OF_PATTERN, PATTERN, Part, Reply, has_body, pattern, reason};
use super::scratch::Prepared;
use crate::h1::Version;
use crate::ws::deflate::Agreed;

/// How to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The request was `HEAD`.
    pub(crate) to_head: bool,
    pub(crate) version: Version,
    pub(crate) keep_alive: bool,
    /// Length of the request's body, for an echo; `None` if it comes in chunks.
    pub(crate) request_len: Option<u64>,
}

/// A body that is still to be sent.
#[derive(Debug)]
pub(crate) struct Sending {
    source: Source,
    left: u64,
    chunked: bool,
}

#[derive(Debug)]
enum Source {
    Pattern,
    Lines,
    File(Part),
    Events(Box<Events>),
}

/// What comes after the head.
#[derive(Debug)]
pub(crate) enum After {
    Nothing,
    /// This body, piece by piece.
    Send(Sending),
    /// Frames of a WebSocket, whose messages may be compressed so.
    WebSocket(Option<Agreed>),
    /// The request's body as it comes, in chunks or not.
    Echo {
        chunked: bool,
    },
}

/// Bodies up to this size go out with their head.
const SMALL: u64 = 16 << 10;

/// Writes the head of an answer, and its body if that is small. The connection must be closed after it if
/// `manner.keep_alive` is false on return: an HTTP/1.0 peer learns the end of what has no length in no other way.
///
/// No more than `most` bytes of the body, unless it is small.
pub(crate) fn head(
    out: &mut Vec<u8>,
    prepared: &Prepared,
    reply: Reply,
    manner: &mut Manner,
    most: usize,
) -> After {
    let events = matches!(reply.body, Body::Events(_));
    let len = reply.len().or(manner.request_len.filter(|_| !events));
    let unsized_body = reply.chunked || len.is_none();
    let chunked = unsized_body && manner.version == Version::Http11;
    if unsized_body && !chunked && !manner.to_head {
        manner.keep_alive = false;
    }
    if reply.status == 200 {
        out.extend_from_slice(&prepared.ok);
    } else {
        if let Body::WebSocket { accept, deflate } = &reply.body {
            return websocket(out, prepared, accept, *deflate);
        }
        out.extend_from_slice(b"HTTP/1.1 ");
        number(out, reply.status.into());
        out.push(b' ');
        out.extend_from_slice(reason(reply.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&prepared.common);
        if reply.status == 426 {
            // What is required (RFC 9110 §15.5.22). HTTP/2 has no such field.
            out.extend_from_slice(b"Upgrade: websocket\r\n");
        }
    }
    for (name, value) in &reply.fields {
        for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    let body = has_body(reply.status);
    if body {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(reply.kind.as_bytes());
        out.extend_from_slice(b"\r\n");
        match len {
            _ if chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Some(len) if !unsized_body => {
                out.extend_from_slice(b"Content-Length: ");
                number(out, len);
                out.extend_from_slice(b"\r\n");
            }
            _ => {}
        }
    }
    match (manner.keep_alive, manner.version) {
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (true, Version::Http10) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (true, Version::Http11) => {}
    }
    out.extend_from_slice(b"\r\n");
    if manner.to_head || !body {
        return After::Nothing;
    }
    after(out, reply, chunked, most)
}

/// The answer behind which the connection is a WebSocket (RFC 6455 §4.2.2).
#[cold]
fn websocket(out: &mut Vec<u8>, prepared: &Prepared, accept: &str, deflate: Option<Agreed>) -> After {
    out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\n");
    out.extend_from_slice(&prepared.common);
    out.extend_from_slice(b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ");
    out.extend_from_slice(accept.as_bytes());
    if let Some(agreed) = deflate {
        out.extend_from_slice(format!("\r\nSec-WebSocket-Extensions: {agreed}").as_bytes());
    }
    out.extend_from_slice(b"\r\n\r\n");
    After::WebSocket(deflate)
}

/// Writes the body of an answer if it is small.
#[inline]
pub(crate) fn after(out: &mut Vec<u8>, reply: Reply, chunked: bool, most: usize) -> After {
    let (source, left) = match reply.body {
        Body::Text(text) if !chunked => {
            out.extend_from_slice(text.as_bytes());
            return After::Nothing;
        }
        Body::Text(text) => {
            chunk(out, text.as_bytes());
            out.extend_from_slice(LAST_CHUNK);
            return After::Nothing;
        }
        Body::Pattern(len) if len <= SMALL && !chunked => {
            // The block is larger than what is small.
            out.extend_from_slice(&pattern()[..len as usize]);
            return After::Nothing;
        }
        // Never in chunks, and small.
        Body::Kept(bytes) => {
            out.extend_from_slice(&bytes);
            return After::Nothing;
        }
        Body::Echo => return After::Echo { chunked },
        // It has an answer of its own.
        Body::WebSocket { deflate, .. } => return After::WebSocket(deflate),
        Body::Pattern(len) => (Source::Pattern, len),
        Body::Lines(n) => (Source::Lines, n.into()),
        // Its length is not known.
        Body::Events(events) => (Source::Events(events), u64::MAX),
        Body::File(part) => {
            let left = part.len;
            (Source::File(part), left)
        }
    };
    let mut sending = Sending { source, left, chunked };
    // Small ones are whole after this.
    match left <= SMALL && matches!(sending.source, Source::Pattern | Source::Lines) {
        true if matches!(sending.more(out, most), Ok(true)) => After::Nothing,
        _ => After::Send(sending),
    }
}

impl Sending {
    /// Writes the next piece, at most [`PATTERN`] bytes or `most`; `true` if it was the last.
    ///
    /// # Errors
    /// A file could not be read, became shorter, or was changed. What is missing cannot be replaced: the connection must end.
    pub(crate) fn more(&mut self, out: &mut Vec<u8>, most: usize) -> io::Result<bool> {
        // Whole lines of the pattern, which begins anew with each piece.
        let most = most.min(PATTERN).next_multiple_of(LINE_OF_PATTERN).min(PATTERN);
        match &mut self.source {
            // Every line is a chunk, as in the original.
            Source::Lines => {
                for _ in 0..std::mem::take(&mut self.left) {
                    if self.chunked {
                        chunk(out, LINE.as_bytes());
                    } else {
                        out.extend_from_slice(LINE.as_bytes());
                    }
                }
            }
            Source::Pattern => {
                let len = usize::try_from(self.left).map_or(most, |left| left.min(most));
                if self.chunked && len > 0 {
                    chunk(out, &pattern()[..len]);
                } else {
                    out.extend_from_slice(&pattern()[..len]);
                }
                self.left -= len as u64;
            }
            Source::Events(events) => {
                let mut event = Vec::new();
                events.write(&mut event);
                if self.chunked {
                    chunk(out, &event);
                } else {
                    out.extend_from_slice(&event);
                }
                if events.is_over() {
                    self.left = 0;
                }
            }
            Source::File(part) => {
                let len = usize::try_from(self.left).map_or(most, |left| left.min(most));
                let begin = out.len();
                out.resize(begin + len, 0);
                let read = std::os::unix::fs::FileExt::read_exact_at(&part.file, &mut out[begin..], part.at);
                let last = len as u64 == self.left;
                if let Err(e) = read.and_then(|()| if last { unchanged(part) } else { Ok(()) }) {
                    out.truncate(begin);
                    return Err(e);
                }
                part.at += len as u64;
                self.left -= len as u64;
            }
        }
        let last = self.left == 0;
        if last && self.chunked {
            out.extend_from_slice(LAST_CHUNK);
        }
        Ok(last)
    }

    /// When the next piece is due, if it has a time.
    pub(crate) fn due(&mut self, now: Time) -> Option<Time> {
        match &mut self.source {
            Source::Events(events) => Some(events.due(now)),
            Source::Pattern | Source::Lines | Source::File(_) => None,
        }
    }

    /// Whether the next piece is not due yet; the task is woken when it is.
    pub(crate) fn is_early(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.source {
            Source::Events(events) => events.is_early(cx),
            Source::Pattern | Source::Lines | Source::File(_) => false,
        }
    }

    /// Sends the next piece of a file from where it is; `true` if it was the last, `None` for what is no file or too small for that.
    ///
    /// # Errors
    /// As [`Sending::more`], and those of the connection.
    pub(crate) fn poll_in_place(
        &mut self,
        cx: &mut Context<'_>,
        stream: &TcpStream,
    ) -> Option<Poll<Result<(usize, bool), NotSent>>> {
        let Source::File(part) = &mut self.source else { return None };
        if self.chunked || part.len < IN_PLACE {
            return None;
        }
        // The last piece goes alone, when it is known to belong to the others.
        let len = if self.left > LAST_PIECE { self.left - LAST_PIECE } else { self.left };
        // Guard: `unchanged(part).is_err()` as `false` fails server/files::a_file_that_is_changed_meanwhile
        if len == self.left && unchanged(part).is_err() {
            return Some(Poll::Ready(Err(NotSent::File)));
        }
        Some(stream.poll_send_file(cx, &part.file, part.at, len).map(|sent| match sent {
            // Guard: `Err(NotSent::File)` as `Ok((0, true))` fails server/files::a_file_that_becomes_shorter
            // server/files::a_file_that_is_changed_meanwhile
            Ok(0) | Err(SocketError::Kernel(_)) => Err(NotSent::File),
            Ok(n) => {
                part.at += n as u64;
                self.left -= n as u64;
                Ok((n, self.left == 0))
            }
            Err(e) => Err(NotSent::Connection(e)),
        }))
    }
}

/// Why a file was not sent to its end.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// It could not be read, became shorter, or was changed.
    File,
    /// The connection ended.
    Connection(SocketError),
}

/// Files from this size on are sent from where they are. Smaller ones cost less to copy.
const IN_PLACE: u64 = 32 << 10;
/// Bytes that are held back until the file has been looked at again.
const LAST_PIECE: u64 = 4 << 10;

/// An error if the file is not what it was.
fn unchanged(part: &Part) -> io::Result<()> {
    if part.is_unchanged() { Ok(()) } else { Err(io::Error::other("the file was changed")) }
}

/// The end of a body in chunks.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// One chunk (RFC 9112 §7.1). Not of no bytes: that is the end.
pub(crate) fn chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let digits = (usize::BITS - data.len().leading_zeros()).div_ceil(4);
    for i in (0..digits).rev() {
        out.push(b"0123456789abcdef"[data.len() >> (4 * i) & 15]);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

#[inline]
fn number(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ws::deflate::{OFFER, agree};

    fn write(reply: Reply, mut manner: Manner) -> (String, bool) {
        let mut out = Vec::new();
        match head(&mut out, &Prepared::for_tests(), reply, &mut manner, PATTERN) {
            After::Send(mut sending) => while !sending.more(&mut out, PATTERN).unwrap() {},
            After::Nothing => {}
            After::WebSocket(_) => out.extend(b"frames"),
            After::Echo { chunked } => out.extend(format!("echo {chunked}").bytes()),
        }
        (String::from_utf8(out).unwrap(), manner.keep_alive)
    }

    const MANNER: Manner =
        Manner { to_head: false, version: Version::Http11, keep_alive: true, request_len: Some(0) };

    fn size(n: u64, chunked: bool) -> Reply {
        Reply { chunked, ..Reply::ok("a/b", Body::Pattern(n)) }
    }

    #[test]
    fn heads_and_small_bodies() {
        let (text, kept) = write(size(3, false), MANNER);
        assert_eq!(text, "HTTP/1.1 200 OK\r\nDate: x\r\nContent-Type: a/b\r\nContent-Length: 3\r\n\r\n012");
        assert!(kept);
        let (text, _) = write(Reply::status(404).with("A", "b"), Manner { keep_alive: false, ..MANNER });
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\nDate: x\r\nA: b\r\n"), "{text}");
        assert!(text.ends_with("Content-Length: 14\r\nConnection: close\r\n\r\n404 Not Found\n"), "{text}");
        let (text, _) = write(Reply::status(204), MANNER);
        assert_eq!(text, "HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n");
        let (text, _) = write(size(3, false), Manner { to_head: true, ..MANNER });
        assert!(text.ends_with("Content-Length: 3\r\n\r\n"), "{text}");
    }

    #[test]
    fn chunks() {
        let (text, kept) = write(size(3, true), MANNER);
        assert!(text.ends_with("Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n0\r\n\r\n"), "{text}");
        assert!(kept);
        let (text, _) = write(size(0, true), MANNER);
        assert!(text.ends_with("\r\n\r\n0\r\n\r\n"), "{text}");
        let (text, _) = write(Reply { chunked: true, ..Reply::ok("a/b", Body::Lines(2)) }, MANNER);
        assert!(text.ends_with("\r\n\r\n8\r\nfoobar\r\n\r\n8\r\nfoobar\r\n\r\n0\r\n\r\n"), "{text}");
        let (text, _) = write(size(PATTERN as u64 + 1, true), MANNER);
        assert!(text.contains("\r\n\r\n10000\r\n") && text.ends_with("\r\n1\r\n0\r\n0\r\n\r\n"));
    }

    #[test]
    fn old_peers_get_no_chunks() {
        let old = Manner { version: Version::Http10, ..MANNER };
        let (text, kept) = write(size(3, true), old);
        assert!(text.ends_with("Connection: close\r\n\r\n012") && !text.contains("chunked"), "{text}");
        assert!(!kept, "the end of the body is the end of the connection");
        let (text, kept) = write(size(3, false), old);
        assert!(text.contains("Connection: keep-alive") && kept, "{text}");
    }

    #[test]
    fn large_bodies_come_in_pieces() {
        let (text, _) = write(size(200_000, false), MANNER);
        let body = text.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body.len(), 200_000);
        assert_eq!(&body[PATTERN..PATTERN + 10], "0123456789");
    }

    #[test]
    fn pieces_are_as_large_as_there_is_memory() {
        let mut sending = Sending { source: Source::Pattern, left: 200_000, chunked: false };
        let mut out = Vec::new();
        for most in [100, 4096, 1, 70_000].into_iter().cycle() {
            let before = out.len();
            let last = sending.more(&mut out, most).unwrap();
            assert!(out.len() - before <= most.next_multiple_of(64).min(PATTERN));
            if last {
                break;
            }
        }
        let whole: Vec<u8> = pattern().iter().copied().cycle().take(200_000).collect();
        assert!(out == whole, "another body");
    }

    #[test]
    fn a_websocket_has_a_head_of_its_own() {
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nDate: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        let with = |deflate| {
            let body = Body::WebSocket { accept: "key".into(), deflate };
            let reply = Reply { status: 101, ..Reply::ok("a/b", body) };
            write(reply, Manner { keep_alive: false, ..MANNER }).0
        };
        assert_eq!(with(None), format!("{head}Sec-WebSocket-Accept: key\r\n\r\nframes"));
        let deflate = format!("Sec-WebSocket-Extensions: {OFFER}\r\n");
        assert_eq!(
            with(agree(OFFER.as_bytes())),
            format!("{head}Sec-WebSocket-Accept: key\r\n{deflate}\r\nframes")
        );
        let (text, _) = write(Reply::status(426), MANNER);
        assert!(text.contains("426 Upgrade Required\r\nDate: x\r\nUpgrade: websocket\r\n"), "{text}");
    }

    #[test]
    fn echoes_are_framed_like_the_request() {
        let (text, _) = write(Reply::ok("a/b", Body::Echo), Manner { request_len: Some(7), ..MANNER });
        assert!(text.ends_with("Content-Length: 7\r\n\r\necho false"), "{text}");
        let (text, _) = write(Reply::ok("a/b", Body::Echo), Manner { request_len: None, ..MANNER });
        assert!(text.ends_with("Transfer-Encoding: chunked\r\n\r\necho true"), "{text}");
    }
}
