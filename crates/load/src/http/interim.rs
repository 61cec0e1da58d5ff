//! What is between `h2` and the stream of an HTTP/2 connection: a limit on interim answers, and reading on after an error of writing.
//!
//! `h2` passes over them, and tells nobody how many there were. So the frames that a server sends are looked at on their way to it: a HEADERS
//! frame without END_STREAM is an interim answer, or the head of the answer. A stream with more of them than a request may have ends its
//! connection, as over HTTP/1 (`flowlane_http::h1::MOST_INTERIM`).
//!
//! A server may answer a request that it does not read to its end, and close (413). Writing then fails, and `h2` would end the connection
//! with the answer unread. So what cannot be written is passed over, and the connection ends when what has arrived is read: with the end of
//! the stream or the error that reading finds there.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use flowlane_http::h1::MOST_INTERIM;
use flowlane_sys::words::said;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::report::ErrorKind;

/// Length of a frame's header (RFC 9113 §4.1).
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
/// Streams that are counted at once. `h2` ends a connection whose peer names a stream that was never opened.
const STREAMS: usize = 4096;

/// Frames by their headers, from input cut at any byte.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; HEADER],
    /// Bytes of the header that are here.
    have: usize,
    /// Bytes of the payload that are still to come.
    left: usize,
    /// Streams with HEADERS frames, and how many.
    heads: Vec<(u32, u8)>,
}

impl Frames {
    /// Whether no stream has more interim answers than it may.
    fn look(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.left > 0 {
                let n = self.left.min(bytes.len());
                self.left -= n;
                bytes = &bytes[n..];
                continue;
            }
            let n = (HEADER - self.have).min(bytes.len());
            self.header[self.have..self.have + n].copy_from_slice(&bytes[..n]);
            self.have += n;
            bytes = &bytes[n..];
            if self.have == HEADER {
                self.have = 0;
                let [a, b, c, kind, flags, id @ ..] = self.header;
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                if !self.count(kind, flags, u32::from_be_bytes(id) & 0x7fff_ffff) {
                    return false;
                }
            }
        }
        true
    }

    fn count(&mut self, kind: u8, flags: u8, stream: u32) -> bool {
        let over = kind == RST_STREAM || matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
        if over {
            self.heads.retain(|(id, _)| *id != stream);
            return true;
        }
        if kind != HEADERS {
            return true;
        }
        match self.heads.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, n)) => {
                *n += 1;
                // One is the answer's own head.
                // Guard: `*n <= MOST_INTERIM + 1` as `true` fails interim::tests::a_stream_has_so_many
                *n <= MOST_INTERIM + 1
            }
            None => {
                self.heads.push((stream, 1));
                self.heads.len() <= STREAMS
            }
        }
    }
}

/// A connection whose input is looked at.
#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    frames: Frames,
    /// Something has been read.
    begun: bool,
    /// Nothing can be written any more.
    deaf: bool,
    /// Is told why reading failed, where hyper says no more than that a request was dropped: an alert of TLS, for one.
    ended: Arc<OnceLock<(ErrorKind, String)>>,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S, ended: Arc<OnceLock<(ErrorKind, String)>>) -> Self {
        Self { stream, frames: Frames::default(), begun: false, deaf: false, ended }
    }

    /// The result of writing: after an error everything is passed over, and reading tells how the connection ended.
    fn wrote<T>(&mut self, result: Poll<io::Result<T>>, all: T) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = result {
            self.deaf = true;
            return Poll::Ready(Ok(all));
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        if let Err(e) = ready!(Pin::new(&mut self.stream).poll_read(cx, into)) {
            let kind = match ErrorKind::of_io(&e) {
                ErrorKind::Tls => ErrorKind::Tls,
                _ => ErrorKind::Http2,
            };
            // The first reason stays.
            let _ = self.ended.set((kind, e.to_string()));
            return Poll::Ready(Err(e));
        }
        if let Some(why) = Some(&into.filled()[before..]).filter(|_| !self.begun).and_then(no_http2) {
            let _ = self.ended.set((ErrorKind::Http2, why.clone()));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        self.begun = true;
        if self.frames.look(&into.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        let why = format!("more than {MOST_INTERIM} interim answers (1xx) to one request");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(wrote, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bytes.iter().map(|b| b.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(all));
        }
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.wrote(wrote, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// What the server speaks, by its first bytes, if it is not HTTP/2, which begins with SETTINGS (RFC 9113 §3.4).
fn no_http2(came: &[u8]) -> Option<String> {
    if came.starts_with(b"HTTP/") {
        return Some("the server answers in HTTP/1: it does not speak HTTP/2 on this port".to_owned());
    }
    // Of what came in part, as much as there is.
    let settings =
        came.iter().zip([None, None, None, Some(4)]).all(|(byte, is)| is.is_none_or(|is| is == *byte));
    (!settings).then(|| format!("the server does not speak HTTP/2: it says {}", said(came)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_http2_is_named() {
        assert_eq!(no_http2(&frame(4, 0, 0, 6)), None);
        assert_eq!((no_http2(b""), no_http2(&[0, 0]), no_http2(&[0, 0, 6, 4])), (None, None, None));
        assert!(no_http2(b"HTTP/1.1 400").unwrap().contains("answers in HTTP/1"));
        let why = "the server does not speak HTTP/2: it says 'SSH-2.0-x\\r\\n'";
        assert_eq!(no_http2(b"SSH-2.0-x\r\n").as_deref(), Some(why));
    }

    fn frame(kind: u8, flags: u8, stream: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, len, kind, flags, 0, 0, 0, stream];
        frame.resize(HEADER + usize::from(len), kind);
        frame
    }

    fn allowed(frames: &[Vec<u8>], cut: usize) -> bool {
        let mut seen = Frames::default();
        frames.concat().chunks(cut).all(|bytes| seen.look(bytes))
    }

    #[test]
    fn a_stream_has_so_many_interim_answers_and_its_answer() {
        let most = usize::from(MOST_INTERIM);
        let answer = [vec![frame(HEADERS, 4, 1, 12); most + 1], vec![frame(DATA, 1, 1, 30)]].concat();
        for cut in [1, 5, 100_000] {
            assert!(
                allowed(&[answer.clone(), answer.clone(), answer.clone()].concat(), cut),
                "counted anew for each stream"
            );
            assert!(!allowed(&vec![frame(HEADERS, 4, 1, 12); most + 2], cut));
            // Others between them change nothing.
            let mixed = [frame(HEADERS, 4, 3, 1), frame(HEADERS, 5, 5, 9), frame(6, 0, 0, 8)];
            let times = |n| (0..n).flat_map(|_| mixed.clone()).collect::<Vec<_>>();
            assert!(allowed(&times(most + 1), cut));
            assert!(!allowed(&times(most + 2), cut));
        }
    }
}
