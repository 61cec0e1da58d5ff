//! One request over HTTP/2, from its head to the last byte of its answer.
//!
//! A request that can be answered at once needs no task, timer or copy. Any other has a task of the lane, which waits for one thing at a
//! time, each with a timeout: the request's body, a delay, room in the peer's windows, memory. A body is read only as far as there is room
//! for it, so an answer that waits holds no memory.

use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST, HeaderMap, HeaderName, HeaderValue, SERVER};
use http::{Method, Request, Response, StatusCode};

use super::body::{PIECE, Piece};
use super::call;
use super::conn::Conn;
use super::echo;
use crate::ending::within;
use crate::h1::is_host;
use crate::server::counters::Counter;
use crate::server::events::Events;
use crate::server::reply::{Body, LINE, PATTERN, Part, Reply, has_body, pattern};
use crate::server::route::{self, RequestView};
use crate::server::scratch;

/// Takes a request, and answers it now or in a task of its own.
pub(super) fn begin(conn: &Arc<Conn>, request: Request<RecvStream>, respond: SendResponse<Piece>) {
    let cells = conn.lane.cells();
    cells.add(Counter::Requests, 1);
    let (head, body) = request.into_parts();
    let mut reply = if call::is_call(&head) {
        call::answer(head.uri.path())
    } else if head.headers.get_all(HOST).iter().all(|host| is_host(host.as_bytes())) {
        let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
        let field = |name: &'static str| head.headers.get(name).map(HeaderValue::as_bytes);
        route::answer(conn.lane.site(), &RequestView { method: head.method.as_str(), target, field })
    } else {
        cells.add(Counter::BadHost, 1);
        Reply::status(400)
    };
    if let Some(elsewhere) = &conn.lane.options().alt_svc {
        reply.fields.push(("alt-svc", elsewhere.clone()));
    }
    let now = flowlane::now().ok();
    let stall = conn.lane.options().stall.zip(now).and_then(|(stall, now)| stall.until(now));
    let to_head = head.method == Method::HEAD;
    // Heads of many requests that wait would be a lot of memory.
    drop(head);
    let exchange = Exchange { open: Open::new(conn.clone()), respond, to_head };
    if stall.is_none() && reply.delay.is_zero() && body.is_end_stream() {
        if let Some(sending) = exchange.answer(reply, body) {
            let _ = flowlane::spawn(sending.run());
        }
        return;
    }
    let _ = flowlane::spawn(async move {
        let mut exchange = exchange;
        if let Some(until) = stall {
            exchange.open.0.lane.cells().add(Counter::Stalled, 1);
            flowlane::sleep_until(until).await;
        }
        if let Some((reply, body)) = exchange.prepare(reply, body).await
            && let Some(sending) = exchange.answer(reply, body)
        {
            sending.run().await;
        }
    });
}

/// A request that is being answered.
pub(super) struct Open(pub(super) Arc<Conn>);

impl Open {
    fn new(conn: Arc<Conn>) -> Self {
        conn.moments.begin();
        Self(conn)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Ok(now) = flowlane::now() {
            self.0.moments.end(now);
        }
    }
}

struct Exchange {
    open: Open,
    respond: SendResponse<Piece>,
    to_head: bool,
}

impl Exchange {
    /// Does everything before the answer; `None` if the peer has cancelled it.
    async fn prepare(&mut self, mut reply: Reply, mut body: RecvStream) -> Option<(Reply, RecvStream)> {
        if !matches!(reply.body, Body::Echo) || self.to_head {
            match discard(&self.open.0, &mut body).await {
                Ok(()) => {}
                Err(Counter::Lost) => return None,
                Err(why) => {
                    self.open.0.lane.cells().add(why, 1);
                    reply = Reply::status(if why == Counter::BodyTooLong { 413 } else { 408 });
                }
            }
        }
        if !reply.delay.is_zero() {
            let reset = poll_fn(|cx| self.respond.poll_reset(cx));
            if within(reply.delay, reset).await.is_some() {
                return None;
            }
        }
        Some((reply, body))
    }

    /// Sends the head, and the body if it is short; else returns the rest to send.
    fn answer(mut self, reply: Reply, body: RecvStream) -> Option<Sending> {
        let conn = &self.open.0;
        conn.lane.cells().answer(reply.status);
        conn.credit(8);
        let no_body = self.to_head || !has_body(reply.status);
        let len = reply.len();
        let mut response = Response::new(());
        *response.status_mut() =
            StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        fields(response.headers_mut(), &reply, len);
        let ends = no_body || len == Some(0);
        let mut stream = self.respond.send_response(response, ends).ok()?;
        if ends {
            return None;
        }
        let source = match reply.body {
            // Short, all of them.
            Body::Text(text) => return send_whole(conn, &mut stream, text.into_owned().into_bytes()),
            Body::Lines(n) => return send_whole(conn, &mut stream, LINE.repeat(n as usize).into_bytes()),
            Body::Pattern(_) => Source::Pattern,
            Body::File(part) => Source::File(part),
            Body::Kept(bytes) => Source::Kept(bytes),
            Body::Echo => Source::Echo { body, call: reply.kind == call::KIND },
            Body::Events(events) => Source::Events(events),
            // HTTP/2 has no field that asks for it.
            Body::WebSocket { .. } => return None,
        };
        let mut sending = Sending { stream, source, at: 0, len: len.unwrap_or(0), open: self.open };
        if matches!(sending.source, Source::Pattern | Source::Kept(_)) && sending.len <= PATTERN as u64 {
            // In most cases this is the whole answer.
            sending.stream.reserve_capacity(sending.left());
            if sending.stream.capacity() >= sending.left() {
                sending.send(sending.left()).ok()?;
                return None;
            }
        }
        Some(sending)
    }
}

/// What every answer says, and this one.
fn fields(headers: &mut HeaderMap, reply: &Reply, len: Option<u64>) {
    headers.insert(SERVER, HeaderValue::from_static("flowlane"));
    let date = flowlane::now().ok().map(|now| scratch::with(now, |s| s.prepared.date.clone()));
    if let Some(date) = date {
        headers.insert(DATE, date);
    }
    for (name, value) in &reply.fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    if has_body(reply.status) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
        if let Some(len) = len.filter(|_| !reply.chunked) {
            headers.insert(CONTENT_LENGTH, len.into());
        }
    }
}

fn send_whole(conn: &Arc<Conn>, stream: &mut SendStream<Piece>, bytes: Vec<u8>) -> Option<Sending> {
    let _ = stream.send_data(Piece::held(bytes, conn), true);
    None
}

/// Reads a body to its end, or says what was wrong with it.
async fn discard(conn: &Conn, body: &mut RecvStream) -> Result<(), Counter> {
    let (mut received, options) = (0, conn.lane.options());
    while !body.is_end_stream() {
        let data = within(options.timeouts.body, poll_fn(|cx| body.poll_data(cx)));
        let Some(data) = data.await.ok_or(Counter::BodyTimeout)? else { break };
        let len = data.map_err(|_| Counter::Lost)?.len();
        received += len as u64;
        if received > options.max_body {
            return Err(Counter::BodyTooLong);
        }
        let _ = body.flow_control().release_capacity(len);
    }
    Ok(())
}

/// Where the rest of an answer comes from.
enum Source {
    Pattern,
    File(Part),
    Kept(Bytes),
    /// `call`: of gRPC, whose answer ends with trailers.
    Echo {
        body: RecvStream,
        call: bool,
    },
    Events(Box<Events>),
}

/// An answer of which the head is sent.
struct Sending {
    stream: SendStream<Piece>,
    source: Source,
    /// Bytes sent, of so many.
    at: u64,
    len: u64,
    open: Open,
}

/// An answer has ended early, by either side.
pub(super) struct Over;

impl Sending {
    async fn run(mut self) {
        if let Source::Echo { body, call } = self.source {
            return echo::run(self.open, self.stream, body, call).await;
        }
        if let Source::Events(of) = self.source {
            // On the heap, so that no other answer's task is larger for it.
            return Box::pin(send_events(self.open, self.stream, *of)).await;
        }
        let write = self.open.0.lane.options().timeouts.write;
        while self.at < self.len {
            let Some(sent) = within(write, poll_fn(|cx| self.poll_send(cx))).await else {
                return too_slow(&self.open.0, &mut self.stream, Counter::WriteTimeout);
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Bytes of the next piece at most.
    fn left(&self) -> usize {
        let most = if matches!(self.source, Source::Pattern) { PATTERN } else { PIECE };
        usize::try_from(self.len - self.at).map_or(most, |left| left.min(most))
    }

    /// Sends a piece when the peer has room for one, and we have.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        let left = self.left();
        let capacity = match ready!(poll_capacity(&mut self.stream, cx, left)) {
            Ok(capacity) => capacity.min(left),
            Err(over) => return Poll::Ready(Err(over)),
        };
        let room = match self.source {
            Source::File(..) => ready!(self.open.0.poll_room(cx, capacity)),
            Source::Pattern | Source::Kept(_) | Source::Echo { .. } | Source::Events(_) => capacity,
        };
        Poll::Ready(self.send(room))
    }

    fn send(&mut self, n: usize) -> Result<(), Over> {
        let conn = &self.open.0;
        let (piece, n) = match &self.source {
            Source::Pattern => {
                let at = usize::try_from(self.at % PATTERN as u64).unwrap_or(0);
                let bytes = &pattern()[at..PATTERN.min(at + n)];
                (Piece::constant(bytes), bytes.len())
            }
            Source::Kept(bytes) => {
                let at = usize::try_from(self.at).unwrap_or(bytes.len()).min(bytes.len());
                let piece = bytes.slice(at..bytes.len().min(at + n));
                let n = piece.len();
                (Piece::shared(piece), n)
            }
            Source::File(part) => {
                let mut bytes = vec![0; n];
                let read = part.file.read_exact_at(&mut bytes, part.at + self.at);
                let last = self.at + n as u64 == self.len;
                if read.is_err() || last && !part.is_unchanged() {
                    conn.lane.cells().add(Counter::FileFailed, 1);
                    self.stream.send_reset(Reason::INTERNAL_ERROR);
                    return Err(Over);
                }
                (Piece::held(bytes, conn), n)
            }
            Source::Echo { .. } | Source::Events(_) => return Err(Over),
        };
        conn.credit(4 + n as u64 / 1024);
        self.at += n as u64;
        self.stream.send_data(piece, self.at == self.len).map_err(|_| Over)
    }
}

/// Sends the events, each when it is due, until the peer wants no more.
async fn send_events(open: Open, mut stream: SendStream<Piece>, mut events: Events) {
    let write = open.0.lane.options().timeouts.write;
    while !events.is_over() {
        let Ok(now) = flowlane::now() else { return };
        let early = events.due(now).saturating_duration_since(now);
        if !early.is_zero() && within(early, poll_fn(|cx| stream.poll_reset(cx))).await.is_some() {
            return;
        }
        let mut bytes = Vec::new();
        events.write(&mut bytes);
        open.0.credit(4);
        let mut at = 0;
        while at < bytes.len() {
            let left = bytes.len() - at;
            let room = within(write, poll_fn(|cx| poll_capacity(&mut stream, cx, left)));
            let Some(room) = room.await else {
                return too_slow(&open.0, &mut stream, Counter::WriteTimeout);
            };
            let Ok(room) = room else { return };
            let n = room.min(left);
            let last = events.is_over() && n == left;
            if stream.send_data(Piece::held(bytes[at..at + n].to_vec(), &open.0), last).is_err() {
                return;
            }
            at += n;
        }
    }
}

/// Ends one answer; the others go on.
pub(super) fn too_slow(conn: &Conn, stream: &mut SendStream<Piece>, why: Counter) {
    conn.lane.cells().add(why, 1);
    stream.send_reset(Reason::CANCEL);
}

/// How much the peer has room for, at least one byte.
pub(super) fn poll_capacity(
    stream: &mut SendStream<Piece>,
    cx: &mut Context<'_>,
    want: usize,
) -> Poll<Result<usize, Over>> {
    if stream.poll_reset(cx).is_ready() {
        return Poll::Ready(Err(Over));
    }
    stream.reserve_capacity(want);
    let capacity = stream.capacity();
    if capacity > 0 {
        return Poll::Ready(Ok(capacity));
    }
    Poll::Ready(match ready!(stream.poll_capacity(cx)) {
        Some(Ok(capacity)) => Ok(capacity),
        _ => Err(Over),
    })
}

/// The shorter of what both may take.
pub(super) fn patience(conn: &Conn) -> (Duration, Duration) {
    let timeouts = &conn.lane.options().timeouts;
    (timeouts.body, timeouts.write)
}
