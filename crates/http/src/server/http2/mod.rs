//! HTTP/2: the crate `h2` handles frames; requests, answers, timeouts and memory limits are ours.
//!
//! ```text
//!   Wire   the byte stream: counts, observes, closes in order     one for each connection
//!   Driver takes requests from h2; enforces timeouts              ”
//!   stream a request and its answer: at once, or as a task        one for each request
//! ```
//!
//! A peer may open [`STREAMS`] streams on each of very many connections and then read nothing. So nothing is prepared for a stream before
//! the peer has room for it: bodies are read in the sizes that its windows allow, and bytes read and not sent are counted for each
//! connection and lane ([`super::memory`]).
//!
//! Invariants: there are timeouts for the preface and every frame (`head`), between requests (`idle`), in bodies (`body`), and for a peer
//! that does not read (`write`), by stream and for the whole connection; frames without content are limited ([`conn`]); when we end a
//! connection, the peer receives GOAWAY ([`wire`]). Read RFC 9113 §5.2, §6.8, §10.5. Not supported: push, priorities, extended CONNECT.

mod body;
mod call;
mod conn;
mod echo;
mod frames;
mod stream;
mod wire;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use flowlane::{Sleep, TcpStream, Time, sleep_until};
use h2::Reason;
use h2::server::{Builder, Connection};
use tokio::io::{AsyncRead, ReadBuf};

use super::counters::Counter;
use super::{Lane, PREFACE, Phase};
use crate::ending::{finish, within};
use crate::tls::Stream;
use body::Piece;
use conn::{Conn, Due};
use wire::Wire;

/// Most concurrent streams of one connection.
const STREAMS: u32 = 256;
/// Receive window of a connection and of a stream, bytes.
const WINDOW: u32 = 256 << 10;
/// Most bytes of one answer that wait to be sent.
const STREAM_BUFFER: usize = 64 << 10;
/// Most requests taken in one turn; then other tasks run.
const TURN: u32 = 64;

/// Serves a connection of which the bytes `begun` were read already.
pub(super) async fn serve(lane: &Lane, mut stream: Stream<TcpStream>, mut begun: Vec<u8>) {
    let (cells, timeouts) = (lane.cells(), lane.options().timeouts);
    cells.add(Counter::Http2, 1);
    let why = match within(timeouts.head, poll_fn(|cx| poll_preface(lane, &mut stream, &mut begun, cx))).await
    {
        Some(Ok(true)) => None,
        Some(Ok(false)) => Some(Counter::Http2Failed),
        Some(Err(_)) => Some(Counter::Lost),
        None => Some(Counter::HeadTimeout),
    };
    if let Some(why) = why {
        cells.add(why, 1);
        return finish(stream, timeouts.body).await;
    }
    let Ok(now) = flowlane::now() else { return };
    let conn = Arc::new(Conn::new(lane.clone(), now));
    let wire = Wire::new(stream, begun, conn.clone());
    let handshake = Builder::new()
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(lane.options().limits.head)
        .max_send_buffer_size(STREAM_BUFFER)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(wire);
    // The preface is there: this waits for room for our first frame alone.
    match within(timeouts.write, handshake).await {
        Some(Ok(connection)) => {
            let mut driver = Driver::new(connection, conn);
            poll_fn(|cx| driver.poll(cx)).await;
        }
        Some(Err(_)) => cells.add(Counter::Http2Failed, 1),
        None => cells.add(Counter::WriteTimeout, 1),
    }
}

/// Reads the preface; `false` if something else arrived.
fn poll_preface(
    lane: &Lane,
    stream: &mut Stream<TcpStream>,
    begun: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<io::Result<bool>> {
    loop {
        let same = begun.len().min(PREFACE.len());
        if begun[..same] != PREFACE[..same] {
            return Poll::Ready(Ok(false));
        }
        if same == PREFACE.len() {
            return Poll::Ready(Ok(true));
        }
        let mut buffer = [0; 512];
        let mut into = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut into))?;
        if into.filled().is_empty() {
            return Poll::Ready(Ok(false));
        }
        lane.cells().add(Counter::BytesIn, into.filled().len() as u64);
        begun.extend_from_slice(into.filled());
    }
}

/// Runs one connection.
struct Driver {
    connection: Connection<Wire, Piece>,
    conn: Arc<Conn>,
    /// Since when the connection is being shut down, while streams in progress are finished.
    leaving: Option<Time>,
    /// Whether to end it with streams in progress.
    ending: bool,
    timer: Sleep,
    rings: Time,
}

impl Driver {
    fn new(connection: Connection<Wire, Piece>, conn: Arc<Conn>) -> Self {
        let timer = sleep_until(Time::MAX);
        Self { connection, conn, leaving: None, ending: false, timer, rings: Time::MAX }
    }

    /// Does what can be done; ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Never polled outside a lane.
        let Ok(now) = flowlane::now() else { return Poll::Ready(()) };
        match self.conn.lane.phase() {
            Phase::Serving => {}
            Phase::Stopping if self.leaving.is_some() => {}
            Phase::Stopping => {
                self.leaving = Some(now);
                self.connection.graceful_shutdown();
            }
            Phase::Resetting => {
                self.conn.abort();
                return Poll::Ready(());
            }
        }
        for _ in 0..TURN {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    stream::begin(&self.conn, request, respond);
                    continue;
                }
                Poll::Ready(Some(Err(error))) => {
                    let lost = error.is_io();
                    self.count(if lost { Counter::Lost } else { Counter::Http2Failed });
                    return Poll::Ready(());
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            if self.conn.is_flooded() && !self.ending {
                self.count(Counter::Http2Flood);
                self.end(Reason::ENHANCE_YOUR_CALM);
                continue;
            }
            match self.poll_time(cx, now) {
                Some(over) => return over,
                None => continue,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Enforces the timeouts; `None` if there is something to do now.
    fn poll_time(&mut self, cx: &mut Context<'_>, now: Time) -> Option<Poll<()>> {
        let timeouts = self.conn.lane.options().timeouts;
        let (mut due, what) = self.conn.moments.due(&timeouts, self.leaving);
        if now >= due {
            match what {
                Due::Idle => {
                    self.count(Counter::IdleTimeout);
                    self.leaving = Some(now);
                    self.connection.graceful_shutdown();
                    return None;
                }
                Due::Partial if !self.ending => {
                    self.count(Counter::HeadTimeout);
                    self.end(Reason::NO_ERROR);
                    return None;
                }
                Due::Leaving if !self.ending => {
                    self.end(Reason::NO_ERROR);
                    return None;
                }
                Due::Blocked => {
                    // The peer has not read for the whole timeout: drop the bytes that are left.
                    self.count(Counter::WriteTimeout);
                    self.conn.abort();
                    return Some(Poll::Ready(()));
                }
                Due::Partial | Due::Leaving | Due::Closing => return Some(Poll::Ready(())),
            }
        }
        // Nothing signals the end of an answer, so check again.
        due = due.min(now + timeouts.idle);
        if self.rings > due || now >= self.rings {
            self.timer = sleep_until(due);
            self.rings = due;
            if Pin::new(&mut self.timer).poll(cx).is_ready() {
                return None;
            }
        }
        Some(Poll::Pending)
    }

    fn end(&mut self, reason: Reason) {
        self.ending = true;
        self.leaving = self.leaving.or(flowlane::now().ok());
        self.connection.abrupt_shutdown(reason);
    }

    fn count(&self, counter: Counter) {
        self.conn.lane.cells().add(counter, 1);
    }
}
