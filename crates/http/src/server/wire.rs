//! The stream of a connection whose future is written by hand: bytes that its peer has no room for are kept, and its one timer is set again
//! only when it expires or a deadline is earlier.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use flowlane::{Sleep, TcpStream, Time, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Lane;
use super::counters::Counter;
use super::scratch::OUTPUT;
use crate::tls::Stream;

/// The stream, and what is still to be sent.
pub(super) struct Wire {
    pub(super) stream: Stream<TcpStream>,
    /// Bytes that the peer has no room for yet; the first `sent` of them have been sent.
    kept: Vec<u8>,
    sent: usize,
    /// Whether TLS holds bytes back.
    flushing: bool,
    /// Whether bytes were received or sent since this was set to `false`.
    pub(super) progress: bool,
}

impl Wire {
    pub(super) fn new(stream: Stream<TcpStream>) -> Self {
        Self { stream, kept: Vec::new(), sent: 0, flushing: false, progress: false }
    }

    /// Whether something waits for the peer: nothing is to be read meanwhile.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        !self.kept.is_empty() || self.flushing
    }

    /// Memory that it holds, bytes.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Reads; ready with 0 at the end of what the peer sends.
    #[inline]
    pub(super) fn read(
        &mut self,
        cx: &mut Context<'_>,
        lane: &Lane,
        input: &mut [u8],
    ) -> io::Result<Poll<usize>> {
        let mut into = ReadBuf::new(input);
        if Pin::new(&mut self.stream).poll_read(cx, &mut into)?.is_pending() {
            return Ok(Poll::Pending);
        }
        let len = into.filled().len();
        if len > 0 {
            self.progress = true;
            lane.cells().add(Counter::BytesIn, len as u64);
        }
        Ok(Poll::Ready(len))
    }

    /// Sends the output, which is empty afterwards, and keeps the bytes that the peer has no room for. `last`: the end of the stream follows,
    /// and goes with these bytes where it can.
    #[inline]
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        lane: &Lane,
        output: &mut Vec<u8>,
        last: bool,
    ) -> io::Result<()> {
        let mut at = 0;
        while at < output.len() {
            match poll_write(&mut self.stream, cx, &output[at..], last)? {
                Poll::Ready(n) => at += n,
                Poll::Pending => {
                    self.kept.extend_from_slice(&output[at..]);
                    self.sent = 0;
                    break;
                }
            }
        }
        if at > 0 {
            self.wrote(lane, at);
            self.flushing = Pin::new(&mut self.stream).poll_flush(cx)?.is_pending();
        }
        output.clear();
        if output.capacity() > 4 * OUTPUT {
            output.shrink_to(2 * OUTPUT);
        }
        Ok(())
    }

    /// Sends what was kept. Ready when nothing is left.
    pub(super) fn write_kept(&mut self, cx: &mut Context<'_>, lane: &Lane) -> io::Result<Poll<()>> {
        while self.sent < self.kept.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.kept[self.sent..])? {
                Poll::Ready(n) => {
                    self.sent += n;
                    self.wrote(lane, n);
                }
                Poll::Pending => return Ok(Poll::Pending),
            }
        }
        self.kept = Vec::new();
        self.flushing = Pin::new(&mut self.stream).poll_flush(cx)?.is_pending();
        Ok(if self.flushing { Poll::Pending } else { Poll::Ready(()) })
    }

    /// So many bytes were sent.
    #[inline]
    pub(super) fn wrote(&mut self, lane: &Lane, n: usize) {
        self.progress = true;
        lane.cells().add(Counter::BytesOut, n as u64);
    }

    /// Ends the connection with a reset: its peer sees that something is missing.
    pub(super) fn abort(&self) {
        let _ = self.stream.get_ref().abort();
    }
}

/// Writes; `last`: the end of the stream follows, and goes with these bytes where it can.
#[inline]
fn poll_write(
    stream: &mut Stream<TcpStream>,
    cx: &mut Context<'_>,
    bytes: &[u8],
    last: bool,
) -> Poll<io::Result<usize>> {
    if let Stream::Plain(stream) = stream
        && last
        && let Some(n) = stream.try_write_before_end(bytes)?
    {
        return Poll::Ready(Ok(n));
    }
    Pin::new(stream).poll_write(cx, bytes)
}

/// A deadline, and the timer that wakes for it.
pub(super) struct Alarm {
    pub(super) deadline: Time,
    timer: Sleep,
    rings: Time,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { deadline: Time::ZERO, timer: sleep_until(Time::MAX), rings: Time::MAX }
    }

    /// Has the task woken at the deadline, or earlier; whether it has come meanwhile. A timer that rings too early is set again then, so a
    /// deadline that is put off costs nothing.
    #[inline]
    pub(super) fn rings(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        if self.rings <= self.deadline && now < self.rings {
            return false;
        }
        self.timer = sleep_until(self.deadline);
        self.rings = self.deadline;
        Pin::new(&mut self.timer).poll(cx).is_ready()
    }
}
