//! One HTTP/1 connection: reading, writing, timeouts and its end.
//!
//! The future is written by hand. It reads and answers in the buffers that the worker's connections share, and keeps only bytes that its
//! peer has no room for ([`Wire`]); while it keeps any, it reads nothing. A request needs no timer ([`Alarm`]).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use flowlane::{TcpStream, Time, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counters::Counter;
use super::exchange::{Exchange, Job};
use super::memory::Held;
use super::respond::NotSent;
use super::scratch::{self, Scratch};
use super::wire::{Alarm, Wire};
use super::{Lane, PREFACE, Phase};
use crate::ending::LINGER_BYTES;
use crate::tls::Stream;
use crate::ws::deflate::Agreed;

/// Most rounds in one turn; then other tasks run.
const ROUNDS: u32 = 16;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has ended.
    Closed,
    /// The peer speaks HTTP/2.
    Http2,
    /// It is a WebSocket from here on, whose messages may be compressed so.
    WebSocket(Option<Agreed>),
}

/// What a connection waits for; each has its own timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The next request, with the number of requests before it. Empty lines before a request (RFC 9112 §2.2) are not part of it.
    Idle(u64),
    /// The rest of a head, with the number of requests before it.
    Head(u64),
    Body,
    Write,
    /// The peer's FIN, after ours.
    Linger,
}

impl Wait {
    /// Whether progress extends the timeout. It does in bodies, since a peer's network may be slow; it does not where single bytes could
    /// keep a connection open for ever.
    fn is_prolonged_by_progress(self) -> bool {
        matches!(self, Self::Body | Self::Write)
    }
}

/// One connection.
pub(crate) struct Connection {
    lane: Lane,
    wire: Wire,
    exchange: Exchange,
    /// Received bytes that are not processed yet.
    unread: Vec<u8>,
    /// Accounts for both in the lane's memory.
    held: Held,
    lingering: bool,
    lingered: u64,
    /// What it waits for, if it waits.
    wait: Option<Wait>,
    alarm: Alarm,
}

impl Connection {
    pub(crate) fn new(lane: Lane, stream: Stream<TcpStream>) -> Self {
        Self {
            exchange: Exchange::new(&lane),
            held: Held::new(lane.clone()),
            lane,
            wire: Wire::new(stream),
            unread: Vec::new(),
            lingering: false,
            lingered: 0,
            wait: None,
            alarm: Alarm::new(),
        }
    }

    /// The stream, and the bytes read from it.
    pub(crate) fn into_parts(mut self) -> (Stream<TcpStream>, Vec<u8>) {
        self.held.set(0);
        (self.wire.stream, self.unread)
    }

    /// Counts what is kept.
    #[inline]
    fn count(&mut self) {
        self.held.set(self.wire.held() + self.unread.capacity());
    }

    /// Does what can be done.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        // Never polled outside a lane.
        let Ok(now) = flowlane::now() else { return Poll::Ready(Outcome::Closed) };
        let polled = scratch::with(now, |scratch| self.rounds(cx, now, scratch));
        self.count();
        polled
    }

    fn rounds(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> Poll<Outcome> {
        scratch.output.clear();
        if self.lane.phase() == Phase::Resetting {
            self.wire.abort();
            return Poll::Ready(Outcome::Closed);
        }
        for _ in 0..ROUNDS {
            match self.round(cx, now, scratch) {
                Ok(Step::Again) => {}
                Ok(Step::Wait) => return Poll::Pending,
                Ok(Step::End(outcome)) => return Poll::Ready(outcome),
                Err(_) => {
                    self.lane.cells().add(Counter::Lost, 1);
                    return Poll::Ready(Outcome::Closed);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One step; `scratch.output` is empty before and after.
    #[inline]
    fn round(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> io::Result<Step> {
        if self.wire.is_full() {
            return match self.wire.write_kept(cx, &self.lane)? {
                Poll::Ready(()) => Ok(Step::Again),
                Poll::Pending => self.wait(cx, now, Wait::Write, scratch),
            };
        }
        if let Some(sent) = self.send_in_place(cx) {
            return match sent? {
                Poll::Ready(step) => Ok(step),
                Poll::Pending => self.wait(cx, now, Wait::Write, scratch),
            };
        }
        if !matches!(self.exchange.job(), Job::None) {
            match self.work(cx, scratch) {
                Step::Again => {}
                step => return Ok(step),
            }
        } else if self.exchange.is_closing() {
            return self.close(cx, now, scratch);
        } else if !self.unread.is_empty() || self.exchange.is_at_end() {
            let unread = std::mem::take(&mut self.unread);
            let used = self.exchange.input(&self.lane, &unread, &mut scratch.output, &scratch.prepared);
            if used < unread.len() {
                self.unread = unread;
                self.unread.drain(..used);
            }
        } else {
            // Input that cannot be answered yet is kept, up to the allowance.
            let most = self.lane.memory().allowance().min(scratch.input.len());
            match self.wire.read(cx, &self.lane, &mut scratch.input[..most])? {
                Poll::Pending if self.exchange.is_idle() && self.lane.is_stopping() => self.exchange.close(),
                Poll::Pending => {
                    let wait = if self.exchange.is_idle() {
                        Wait::Idle(self.exchange.requests())
                    } else if self.exchange.is_in_body() {
                        Wait::Body
                    } else {
                        Wait::Head(self.exchange.requests())
                    };
                    return self.wait(cx, now, wait, scratch);
                }
                Poll::Ready(0) => {
                    self.exchange.end_of_input(&self.lane, &mut scratch.output, &scratch.prepared);
                }
                Poll::Ready(len) => {
                    if let Some(step) = self.arrived(now, len, scratch) {
                        return Ok(step);
                    }
                }
            }
        }
        self.send(cx, scratch)?;
        Ok(Step::Again)
    }

    /// Processes the bytes read, unless they must wait or are HTTP/2.
    #[inline]
    fn arrived(&mut self, now: Time, len: usize, scratch: &mut Scratch) -> Option<Step> {
        let Scratch { input, output, prepared } = scratch;
        let input = &input[..len];
        if self.exchange.requests() == 0
            && input[0] == b'P'
            && self.exchange.is_idle()
            && self.lane.options().http2
        {
            let same = len.min(PREFACE.len());
            // No supported method begins with these three letters.
            if input[..same] == PREFACE[..same] && same >= 3 {
                self.unread = input.to_vec();
                return Some(Step::End(Outcome::Http2));
            }
        }
        if let Some(until) = self.lane.options().stall.and_then(|stall| stall.until(now)) {
            self.lane.cells().add(Counter::Stalled, 1);
            *self.exchange.job() = Job::Stall(Box::new(sleep_until(until)));
            self.unread = input.to_vec();
            return Some(Step::Again);
        }
        let used = self.exchange.input(&self.lane, input, output, prepared);
        if used < len {
            self.unread = input[used..].to_vec();
        }
        None
    }

    /// Does the work that precedes the next request.
    fn work(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Step {
        let Scratch { output, prepared, .. } = scratch;
        match self.exchange.job() {
            Job::None => {}
            Job::WebSocket(deflate) => return Step::End(Outcome::WebSocket(*deflate)),
            Job::Stall(sleep) => {
                if Pin::new(sleep.as_mut()).poll(cx).is_pending() {
                    return Step::Wait;
                }
                *self.exchange.job() = Job::None;
            }
            Job::Delay(delay) => {
                if Pin::new(&mut delay.0).poll(cx).is_pending() {
                    return Step::Wait;
                }
                if let Job::Delay(delay) = std::mem::replace(self.exchange.job(), Job::None) {
                    let (_, reply, manner) = *delay;
                    self.exchange.answer_now(&self.lane, (reply, manner), output, prepared);
                }
            }
            Job::Send(sending) => {
                if sending.is_early(cx) {
                    return Step::Wait;
                }
                match sending.more(output, self.lane.memory().allowance()) {
                    Ok(true) => *self.exchange.job() = Job::None,
                    Ok(false) => {}
                    Err(_) => return self.file_failed(),
                }
            }
        }
        Step::Again
    }

    /// Sends a file from where it is; `None` if there is none to be sent so.
    #[inline]
    fn send_in_place(&mut self, cx: &mut Context<'_>) -> Option<io::Result<Poll<Step>>> {
        let (Stream::Plain(stream), Job::Send(sending)) = (&self.wire.stream, self.exchange.job()) else {
            return None;
        };
        Some(Ok(match sending.poll_in_place(cx, stream)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok((n, last))) => {
                self.wire.wrote(&self.lane, n);
                if last {
                    *self.exchange.job() = Job::None;
                }
                Poll::Ready(Step::Again)
            }
            Poll::Ready(Err(NotSent::File)) => Poll::Ready(self.file_failed()),
            Poll::Ready(Err(NotSent::Connection(e))) => return Some(Err(e.into())),
        }))
    }

    /// The missing bytes or the missing last chunk tell the peer that the answer is incomplete, and so does the reset.
    #[cold]
    fn file_failed(&mut self) -> Step {
        self.lane.cells().add(Counter::FileFailed, 1);
        self.wire.abort();
        Step::End(Outcome::Closed)
    }

    /// Sends the output.
    #[inline]
    fn send(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> io::Result<()> {
        let last = self.exchange.is_closing() && matches!(self.exchange.job(), Job::None);
        self.wire.send(cx, &self.lane, &mut scratch.output, last)
    }

    /// Closes our side. If the peer, which may not know yet that we stop, may still be sending, it continues to read for a time: closing a
    /// connection with unread bytes resets it, and the peer might not receive our answer (RFC 9112 §9.6).
    fn close(&mut self, cx: &mut Context<'_>, now: Time, scratch: &mut Scratch) -> io::Result<Step> {
        if !self.lingering {
            let clean = !self.exchange.is_unclean() && self.unread.is_empty() && !self.lane.is_stopping();
            if clean && matches!(self.wire.stream, Stream::Plain(_)) {
                // Dropping it ends the stream.
                return Ok(Step::End(Outcome::Closed));
            }
            if Pin::new(&mut self.wire.stream).poll_shutdown(cx)?.is_pending() {
                return self.wait(cx, now, Wait::Write, scratch);
            }
            self.lingering = true;
            if clean {
                return Ok(Step::End(Outcome::Closed));
            }
        }
        loop {
            let mut into = ReadBuf::new(&mut scratch.input);
            match Pin::new(&mut self.wire.stream).poll_read(cx, &mut into) {
                Poll::Pending => return self.wait(cx, now, Wait::Linger, scratch),
                Poll::Ready(Ok(())) if !into.filled().is_empty() && self.lingered < LINGER_BYTES => {
                    self.lingered += into.filled().len() as u64;
                }
                // An error does not matter: the connection has ended.
                Poll::Ready(_) => return Ok(Step::End(Outcome::Closed)),
            }
        }
    }

    /// Waits, and enforces the timeouts.
    #[inline]
    fn wait(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        wait: Wait,
        scratch: &mut Scratch,
    ) -> io::Result<Step> {
        if Some(wait) != self.wait || self.wire.progress && wait.is_prolonged_by_progress() {
            let timeouts = &self.lane.options().timeouts;
            let time = match wait {
                Wait::Idle(_) => timeouts.idle,
                Wait::Head(_) => timeouts.head,
                Wait::Body | Wait::Linger => timeouts.body,
                Wait::Write => timeouts.write,
            };
            (self.wait, self.alarm.deadline, self.wire.progress) = (Some(wait), now + time, false);
        }
        if now >= self.alarm.deadline {
            return self.too_slow(cx, wait, scratch);
        }
        Ok(if self.alarm.rings(cx, now) { Step::Again } else { Step::Wait })
    }

    #[cold]
    fn too_slow(&mut self, cx: &mut Context<'_>, wait: Wait, scratch: &mut Scratch) -> io::Result<Step> {
        let cells = self.lane.cells();
        let counter = match wait {
            Wait::Linger => return Ok(Step::End(Outcome::Closed)),
            Wait::Idle(_) => Counter::IdleTimeout,
            Wait::Head(_) => Counter::HeadTimeout,
            Wait::Body => Counter::BodyTimeout,
            Wait::Write => Counter::WriteTimeout,
        };
        cells.add(counter, 1);
        match wait {
            Wait::Head(_) | Wait::Body => {
                self.exchange.refuse(&self.lane, 408, &mut scratch.output, &scratch.prepared);
                self.send(cx, scratch)?;
                Ok(Step::Again)
            }
            Wait::Write => {
                // The peer has not read for the whole timeout: drop the bytes that are left.
                self.wire.abort();
                Ok(Step::End(Outcome::Closed))
            }
            Wait::Idle(_) | Wait::Linger => {
                // Send close_notify if possible.
                let _ = Pin::new(&mut self.wire.stream).poll_shutdown(cx);
                Ok(Step::End(Outcome::Closed))
            }
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Again,
    Wait,
    End(Outcome),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // And it has nothing on the heap: its buffers are empty and its job is none.
        let size = size_of::<Connection>();
        println!("{size} bytes");
        assert!(size <= 512, "{size} bytes");
    }
}
