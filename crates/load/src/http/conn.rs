//! One connection: its stream, where it stands, and the request it is busy with.
//!
//! Small on purpose: a hundred thousand of them lie in one array. What only some need (requests behind the first on a
//! pipelined connection, content checks) hangs off a pointer. There is no buffer of its own; the lane has one for all.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use flowlane::TcpStream;
use flowlane_http::h1::{Limits, ResponseReader};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::check::Checker;
use super::clock;
use super::open::{Opened, Unopened, poll_plain};
use super::ready::{Bell, Ready};

/// A stream encrypted by TLS.
pub(super) type TlsStream = tokio_rustls::TlsStream<TcpStream>;

/// Where a connection comes from.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Opened, Unopened>> + Send>>;

/// What a connection talks through.
pub(super) enum Stream {
    None,
    /// With TLS on top; without, it is made in its place.
    Opening(Opening),
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// There is none.
    Vacant,
    /// Being made.
    Opening,
    /// Nothing to do.
    Idle,
    /// The request is being sent.
    Writing,
    /// The answer is awaited, or being read.
    Reading,
    /// The client thinks.
    Thinking,
    /// A slow writer waits until it may send more.
    WritePause,
    /// A slow reader waits until it may read more.
    ReadPause,
    /// Open and silent.
    Held,
}

/// A request on its way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Asked {
    /// When it was to be sent, and when it was.
    pub(super) intended: u64,
    pub(super) sent: u64,
    /// Which.
    pub(super) request: u16,
}

/// What only some connections need.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Requests on their way behind the first.
    pub(super) behind: VecDeque<Asked>,
    /// Pipelined requests that did not fit the socket, and how much of them was written.
    pub(super) unsent: Vec<u8>,
    pub(super) checker: Option<Checker>,
}

/// A connection.
pub(super) struct Conn {
    pub(super) stream: Stream,
    pub(super) reader: ResponseReader,
    waker: Waker,
    pub(super) extra: Option<Box<Extra>>,
    /// The request whose answer comes next.
    pub(super) asked: Asked,
    /// When the first byte of the answer came; 0 if none has.
    pub(super) first_byte: u64,
    /// When it last made progress or became free; for Opening, when that began.
    pub(super) since: u64,
    /// The timer it waits for.
    pub(super) wake_at: u64,
    /// Bytes of the request written, and of the content of the answer read.
    pub(super) written: u64,
    pub(super) content: u64,
    /// Requests sent on it.
    pub(super) served: u32,
    /// Its place among the idle connections; 0 if it is not idle.
    pub(super) ticket: u32,
    pub(super) pool: u16,
    pub(super) target: u16,
    pub(super) status: u16,
    pub(super) state: State,
    /// The server will go on with this connection.
    pub(super) keep: bool,
    /// The request says that it is the last.
    pub(super) last: bool,
    /// A request waits for the connection that is being made.
    pub(super) wanted: bool,
}

impl std::fmt::Debug for Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conn").field("state", &self.state).field("asked", &self.asked).finish_non_exhaustive()
    }
}

/// What a server may make us hold of a head.
pub(super) const LIMITS: Limits = Limits { head: 64 << 10, fields: 128 };

impl Conn {
    pub(super) fn new(number: u32, pool: u16, ready: &Arc<Ready>) -> Self {
        Self {
            stream: Stream::None,
            reader: ResponseReader::new(LIMITS),
            waker: Bell::waker(number, ready),
            extra: None,
            asked: Asked::default(),
            first_byte: 0,
            since: 0,
            wake_at: 0,
            written: 0,
            content: 0,
            served: 0,
            ticket: 0,
            pool,
            target: 0,
            status: 0,
            state: State::Vacant,
            keep: true,
            last: false,
            wanted: false,
        }
    }

    /// Whether a request is on its way.
    pub(super) fn busy(&self) -> bool {
        match self.state {
            State::Opening => self.wanted,
            State::Writing | State::Reading | State::WritePause | State::ReadPause => true,
            State::Vacant | State::Idle | State::Thinking | State::Held => false,
        }
    }

    /// Goes on making the connection.
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
                    Poll::Ready(Ok(Opened { stream, connected, secured: connected }))
                }
            },
            Stream::None | Stream::Tls(_) => Poll::Pending,
        }
    }

    /// Reads what is there; `Pending` rings the bell when there is something.
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

    /// Whether there is more to read, after a read that did not fill its buffer; rings the bell otherwise. Costs no
    /// system call.
    #[inline]
    pub(super) fn more(&mut self) -> bool {
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_readable(&mut Context::from_waker(&self.waker)).is_ready(),
            // Only reading tells.
            Stream::Tls(_) => true,
            Stream::None | Stream::Opening(_) => false,
        }
    }

    /// Writes what there is room for; `Pending` rings the bell when there is some.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_write(&mut cx, bytes).map_err(io::Error::from),
            Stream::Tls(stream) => {
                let mut stream = Pin::new(stream.as_mut());
                let written = stream.as_mut().poll_write(&mut cx, bytes);
                if matches!(written, Poll::Ready(Ok(_))) {
                    // What cannot leave now leaves with the next read or write.
                    if let Poll::Ready(Err(e)) = stream.poll_flush(&mut cx) {
                        return Poll::Ready(Err(e));
                    }
                }
                written
            }
            Stream::None | Stream::Opening(_) => Poll::Pending,
        }
    }

    /// Whether everything written has left TLS; only that may keep something back.
    pub(super) fn flush(&mut self) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tls(stream) => {
                Pin::new(stream.as_mut()).poll_flush(&mut Context::from_waker(&self.waker))
            }
            _ => Poll::Ready(Ok(())),
        }
    }

    /// The answer came before the request was whole: nothing further can be asked here.
    pub(super) fn written_short(&self) -> bool {
        matches!(self.state, State::Writing | State::WritePause)
    }

    /// Requests on their way.
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
        let opening = std::mem::size_of_val(&super::super::open::open(connect, None));
        assert!(opening <= 1000, "{opening} bytes");
    }
}
