//! The byte stream below HTTP/2: counts bytes, observes incoming frames, knows since when the peer takes nothing, and closes in order.
//!
//! **Closing.** The library sends its last frame (GOAWAY) and shuts the stream down. Dropping the stream then would be wrong: if there are
//! unread bytes of the peer, TCP sends a reset, and a reset makes the peer discard what it has not read, the last frame included. So after
//! closing our side we read and discard, and drop the stream when the peer has closed its side as well, has sent [`LINGER_BYTES`], or its
//! timeout has expired ([`super::conn`]).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use flowlane::{TcpStream, Time};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::Conn;
use super::frames::Frames;
use crate::ending::LINGER_BYTES;
use crate::server::PREFACE;
use crate::server::counters::Counter;
use crate::tls::Stream;

/// The stream of one connection, of which the beginning was read already.
pub(super) struct Wire {
    stream: Stream<TcpStream>,
    begun: Vec<u8>,
    at: usize,
    conn: Arc<Conn>,
    frames: Frames,
    /// The peer ended its side.
    ended: bool,
    /// We ended ours.
    shut: bool,
    /// Bytes that came since.
    lingered: u64,
}

impl Wire {
    /// `begun` begins with the whole preface.
    pub(super) fn new(stream: Stream<TcpStream>, begun: Vec<u8>, conn: Arc<Conn>) -> Self {
        let mut wire = Self {
            stream,
            begun,
            at: 0,
            conn,
            frames: Frames::default(),
            ended: false,
            shut: false,
            lingered: 0,
        };
        let begun = std::mem::take(&mut wire.begun);
        wire.look(begun.get(PREFACE.len()..).unwrap_or_default(), now());
        wire.begun = begun;
        wire
    }

    fn look(&mut self, bytes: &[u8], now: Time) {
        let seen = self.frames.feed(bytes);
        self.conn.moments.partial(self.frames.is_partial(), seen.whole, now);
        if seen.idle > 0 {
            self.conn.charge(seen.idle, now);
        }
    }

    fn wrote(&mut self, n: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &n {
            Poll::Ready(Ok(n)) => {
                self.conn.moments.blocked(false, now());
                self.conn.lane.cells().add(Counter::BytesOut, *n as u64);
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.conn.moments.blocked(true, now()),
        }
        n
    }

    /// Reads and throws away what comes after our end.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut buffer = [0; 4096];
        while !self.ended && self.lingered < LINGER_BYTES {
            let mut into = ReadBuf::new(&mut buffer);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut into)) {
                Ok(()) if !into.filled().is_empty() => self.lingered += into.filled().len() as u64,
                // An error does not matter: the connection has ended.
                _ => self.ended = true,
            }
        }
        Poll::Ready(())
    }
}

/// The lane's clock; never called outside a lane.
fn now() -> Time {
    flowlane::now().unwrap_or(Time::ZERO)
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.conn.is_aborted() {
            let _ = self.stream.get_ref().abort();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.conn.is_flooded() {
            // No more frames are observed; the connection is about to be ended.
            return Poll::Pending;
        }
        if let Some(rest) = this.begun.get(this.at..).filter(|rest| !rest.is_empty()) {
            let n = rest.len().min(into.remaining());
            into.put_slice(&rest[..n]);
            this.at += n;
            if this.at == this.begun.len() {
                this.begun = Vec::new();
                this.at = 0;
            }
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        let came = &into.filled()[before..];
        this.ended = came.is_empty();
        this.conn.lane.cells().add(Counter::BytesIn, came.len() as u64);
        this.look(came, now());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(n)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.conn.moments.closing(now());
        if !this.shut {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.shut = true;
        }
        this.poll_rest(cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.wrote(n)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
