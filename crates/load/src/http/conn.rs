//! One connection: its stream, its state, and its current request.
//!
//! It is kept small, since a hundred thousand of them are in one array. State that only some connections need (pipelined requests, content
//! checks) is behind a pointer. A connection has no buffer of its own; the lane has one for all.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flowlane_http::h1::{Limits, ResponseReader};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::check::Checker;
use super::client::Client;
use super::journey::Journey;
use super::open::{Aimed, poll_plain};
use super::prepared::Prepared;
use super::ready::{Bell, Ready};
use super::stream::{Opened, Stream, Unopened};
use crate::report::ErrorKind;
use crate::run::clock;

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No connection.
    Vacant,
    /// Being opened.
    Opening,
    /// Open, without a request.
    Idle,
    /// The request is being sent.
    Writing,
    /// The answer is awaited, or being read.
    Reading,
    /// In the think time.
    Thinking,
    /// A slow writer, until it may send more.
    WritePause,
    /// A slow reader, until it may read more.
    ReadPause,
    /// Open without sending requests (half-open clients).
    Held,
}

/// A request in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    /// The intended and the actual send time, nanoseconds.
    pub(super) intended: u64,
    pub(super) sent: u64,
    /// Index of the request in the pool.
    pub(super) request: u16,
}

/// State that only some connections need.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Pipelined requests behind the first.
    pub(super) behind: VecDeque<InFlight>,
    /// Pipelined requests that did not fit the socket's buffer, and how many bytes of them were written.
    pub(super) unsent: Vec<u8>,
    pub(super) checker: Option<Checker>,
    /// Why the rest of the request could not be written, once it could not.
    pub(super) unwritten: Option<(ErrorKind, String)>,
    /// Redirects that are followed.
    pub(super) journey: Option<Box<Journey>>,
    /// What the client keeps from request to request.
    pub(super) client: Option<Box<Client>>,
}

impl Extra {
    /// The request as it was made for this connection alone: by a redirect, or with values in the place of placeholders.
    fn made(&self) -> Option<&Arc<Prepared>> {
        let hop = self.journey.as_ref().and_then(|journey| journey.prepared.as_ref());
        hop.or_else(|| self.client.as_ref().filter(|client| client.is_made)?.made.as_ref())
    }
}

/// A connection.
pub(super) struct Conn {
    pub(super) stream: Stream,
    pub(super) reader: ResponseReader,
    waker: Waker,
    pub(super) extra: Option<Box<Extra>>,
    /// The request whose answer is next.
    pub(super) asked: InFlight,
    /// When the first byte of the answer arrived; 0 if none has.
    pub(super) first_byte: u64,
    /// When it last made progress or became free; in `Opening`, when that began.
    pub(super) since: u64,
    /// When its timer is due.
    pub(super) wake_at: u64,
    /// Bytes of the request written, and of the content of the answer read.
    pub(super) written: u64,
    pub(super) content: u64,
    /// Requests sent on it.
    pub(super) served: u32,
    /// Its ticket in the queue of idle connections; 0 if it is not idle.
    pub(super) ticket: u32,
    pub(super) pool: u16,
    pub(super) target: u16,
    /// Which of the target's addresses.
    pub(super) address: u8,
    pub(super) status: u16,
    pub(super) state: State,
    /// Whether the server keeps the connection open.
    pub(super) keep: bool,
    /// Whether the request announced that it is the last.
    pub(super) last: bool,
    /// Whether a request waits for this connection to be opened.
    pub(super) wanted: bool,
    /// Whether the request needs more than its bytes to be sent and its answer to be read ([`super::special`]).
    pub(super) special: bool,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("state", &self.state).field("asked", &self.asked).finish_non_exhaustive()
    }
}

/// Limits of an answer's head.
pub(super) const LIMITS: Limits = Limits { head: 64 << 10, fields: 128 };

impl Conn {
    pub(super) fn new(number: u32, pool: u16, ready: &Arc<Ready>) -> Self {
        Self {
            stream: Stream::None,
            reader: ResponseReader::new(LIMITS),
            waker: Bell::waker(number, ready),
            extra: None,
            asked: InFlight::default(),
            first_byte: 0,
            since: 0,
            wake_at: 0,
            written: 0,
            content: 0,
            served: 0,
            ticket: 0,
            pool,
            target: 0,
            address: 0,
            status: 0,
            state: State::Vacant,
            keep: true,
            last: false,
            wanted: false,
            special: false,
        }
    }

    /// Whether a request is in flight.
    pub(super) fn busy(&self) -> bool {
        match self.state {
            State::Opening => self.wanted,
            State::Writing | State::Reading | State::WritePause | State::ReadPause => true,
            State::Vacant | State::Idle | State::Thinking | State::Held => false,
        }
    }

    /// Continues to open the connection.
    pub(super) fn poll_open(&mut self) -> Poll<Result<Opened, Unopened>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.stream {
            Stream::Opening(opening) => opening.as_mut().poll(&mut cx),
            Stream::Plain(tcp) => match poll_plain(tcp, &mut cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(unopened)) => Poll::Ready(Err(unopened)),
                Poll::Ready(Ok(())) => {
                    let connected = clock();
                    let stream = std::mem::replace(&mut self.stream, Stream::None);
                    Poll::Ready(Ok(Opened { stream, connected, secured: connected, resumed: None }))
                }
            },
            Stream::None | Stream::Tls(_) => Poll::Pending,
        }
    }

    /// Reads the available bytes; after `Pending` the waker is called when there are some.
    #[inline]
    pub(super) fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_read(&mut cx, into).map_err(io::Error::from),
            Stream::Tls(stream) => {
                let mut buffer = ReadBuf::new(into);
                let read = Pin::new(stream.as_mut()).poll_read(&mut cx, &mut buffer);
                read.map_ok(|()| buffer.filled().len())
            }
            Stream::None | Stream::Opening(_) => Poll::Pending,
        }
    }

    /// Whether there is more to read after a read that did not fill its buffer; if not, the waker is called when there is. Makes no system
    /// call.
    #[inline]
    pub(super) fn more(&mut self) -> bool {
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_readable(&mut Context::from_waker(&self.waker)).is_ready(),
            // Only a read can tell.
            Stream::Tls(_) => true,
            Stream::None | Stream::Opening(_) => false,
        }
    }

    /// Writes as much as there is room for; after `Pending` the waker is called when there is room.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_write(&mut cx, bytes).map_err(io::Error::from),
            Stream::Tls(stream) => {
                let mut stream = Pin::new(stream.as_mut());
                let written = stream.as_mut().poll_write(&mut cx, bytes);
                if matches!(written, Poll::Ready(Ok(_))) {
                    // The rest is sent with the next read or write.
                    if let Poll::Ready(Err(e)) = stream.poll_flush(&mut cx) {
                        return Poll::Ready(Err(e));
                    }
                }
                written
            }
            Stream::None | Stream::Opening(_) => Poll::Pending,
        }
    }

    /// Flushes bytes that TLS holds back.
    pub(super) fn flush(&mut self) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tls(stream) => {
                Pin::new(stream.as_mut()).poll_flush(&mut Context::from_waker(&self.waker))
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Whether the answer arrived before the whole request was sent, or although it could not be: the connection cannot be used for another
    /// request.
    pub(super) fn written_short(&self) -> bool {
        matches!(self.state, State::Writing | State::WritePause)
            || self.extra.as_ref().is_some_and(|e| e.unwritten.is_some())
    }

    /// Whether another request may follow the answer that was read.
    pub(super) fn is_reusable(&self) -> bool {
        self.keep && !self.last && !self.written_short()
    }

    /// Whether nothing has come on a stream that nobody asked anything, not even its end.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.read(&mut [0; 1]).is_pending()
    }

    /// The request as a redirect has made it, if it was redirected.
    #[inline]
    pub(super) fn hop(&self) -> Option<&Arc<Prepared>> {
        self.extra.as_ref()?.journey.as_ref()?.prepared.as_ref()
    }

    /// The request, if it is another one than the plan has.
    #[inline]
    pub(super) fn made(&self) -> Option<&Arc<Prepared>> {
        self.extra.as_ref()?.made()
    }

    /// Whether the answer that was read is a redirect that is to be followed.
    #[inline]
    pub(super) fn is_redirected(&self) -> bool {
        self.extra.as_ref().and_then(|e| e.journey.as_ref()).is_some_and(|j| j.location.is_some())
    }

    /// Has the connection looked at in the engine's next turn.
    pub(super) fn ring(&self) {
        self.waker.wake_by_ref();
    }

    /// Where it goes.
    pub(super) fn aimed(&self) -> Aimed {
        Aimed { target: self.target, address: self.address }
    }

    /// Number of requests in flight.
    pub(super) fn on_their_way(&self) -> usize {
        usize::from(self.busy()) + self.extra.as_ref().map_or(0, |e| e.behind.len())
    }

    pub(super) fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_small() {
        let conn = std::mem::size_of::<Conn>();
        assert!(conn <= 272, "{conn} bytes");
        let connect = flowlane::Connect::to("10.0.0.1:80".parse::<std::net::SocketAddr>().unwrap().into());
        let opening = std::mem::size_of_val(&super::super::way::open(connect, None));
        // An endpoint carries the number of its interface.
        assert!(opening <= 1024, "{opening} bytes");
    }
}
