//! HTTP/2: hyper's, on the lane's tasks, timers and streams, with the same answers.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use flowlane::{Sleep, TcpStream};
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, SERVER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::counters::Counter;
use super::reply::{Body, LINE, PATTERN, Part, Reply, has_body, pattern};
use super::route::{self, Asked};
use super::{Lane, within};
use crate::tls::Stream;

/// Requests of one connection that are answered at once.
const STREAMS: u32 = 256;

/// Serves a connection, of which some bytes were read already.
pub(super) async fn serve(lane: &Lane, stream: Stream<TcpStream>, begun: Vec<u8>) {
    lane.cells().add(Counter::Http2, 1);
    let timeouts = lane.options().timeouts;
    let activity = Arc::new(Activity::default());
    let mut builder = hyper::server::conn::http2::Builder::new(InLane);
    builder
        .timer(LaneTimer)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(lane.options().limits.head)
        .max_send_buf_size(PATTERN)
        .initial_connection_window_size(1 << 20)
        .keep_alive_interval(timeouts.write)
        .keep_alive_timeout(timeouts.write);
    let counted = Counted { stream, begun, at: 0, lane: lane.clone() };
    let (own, seen) = (lane.clone(), activity.clone());
    let service = service_fn(move |request| answer(own.clone(), seen.clone(), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(counted), service));
    let (mut before, mut idle) = (u64::MAX, pin!(flowlane::sleep(timeouts.idle)));
    let mut leaving = false;
    // Looked at once in an idle time: nothing asked and nothing sent since the last look, and nothing being prepared.
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        while idle.as_mut().poll(cx).is_ready() {
            let now = activity.progress.load(Relaxed);
            if activity.preparing.load(Relaxed) == 0 && before == now {
                if activity.sending.load(Relaxed) > 0 {
                    lane.cells().add(Counter::WriteTimeout, 1);
                    return Poll::Ready(None);
                }
                if leaving {
                    return Poll::Ready(None);
                }
                leaving = true;
                lane.cells().add(Counter::IdleTimeout, 1);
                connection.as_mut().graceful_shutdown();
                cx.waker().wake_by_ref();
            }
            before = now;
            idle.set(flowlane::sleep(timeouts.idle));
        }
        Poll::Pending
    })
    .await;
    if ended.is_some_and(|ended| ended.is_err()) {
        lane.cells().add(Counter::Http2Failed, 1);
    }
}

/// What tells an idle connection from others. Only tasks of one lane touch it, so nobody waits for these cells.
#[derive(Debug, Default)]
struct Activity {
    /// Requests, and pieces of answers.
    progress: AtomicU64,
    /// Requests that are not answered yet.
    preparing: AtomicU64,
    /// Answers that are not sent yet.
    sending: AtomicU64,
}

/// One request, prepared and then sent.
struct Open {
    activity: Arc<Activity>,
    sending: bool,
}

impl Open {
    fn new(activity: Arc<Activity>) -> Self {
        activity.progress.fetch_add(1, Relaxed);
        activity.preparing.fetch_add(1, Relaxed);
        Self { activity, sending: false }
    }

    fn send(mut self) -> Self {
        self.activity.sending.fetch_add(1, Relaxed);
        self.activity.preparing.fetch_sub(1, Relaxed);
        self.sending = true;
        self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let count = if self.sending { &self.activity.sending } else { &self.activity.preparing };
        count.fetch_sub(1, Relaxed);
    }
}

async fn answer(
    lane: Lane,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let open = Open::new(activity);
    let cells = lane.cells();
    cells.add(Counter::Requests, 1);
    let stalled = lane.options().stall.zip(flowlane::now().ok()).and_then(|(stall, now)| stall.until(now));
    if let Some(until) = stalled {
        cells.add(Counter::Stalled, 1);
        flowlane::sleep_until(until).await;
    }
    let (head, mut body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("/", |t| t.as_str());
    let field = |name: &'static str| head.headers.get(name).map(HeaderValue::as_bytes);
    let mut reply = route::answer(lane.site(), &Asked { method: head.method.as_str(), target, field });
    let mut rest = Source::None;
    if matches!(reply.body, Body::Echo) && head.method != hyper::Method::HEAD {
        rest = Source::Echo(Box::new(body));
    } else if let Err(why) = discard(&lane, &mut body).await {
        cells.add(why, 1);
        reply = Reply::status(match why {
            Counter::BodyTooLong => 413,
            Counter::BodyTimeout => 408,
            _ => 400,
        });
    }
    if !reply.delay.is_zero() {
        flowlane::sleep(reply.delay).await;
    }
    cells.answer(reply.status);
    let no_body = head.method == hyper::Method::HEAD || !has_body(reply.status);
    let mut response = Response::new(Answer {
        source: Source::None,
        left: 0,
        unsized_body: reply.chunked,
        open: open.send(),
    });
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("flowlane"));
    for (name, value) in &reply.fields {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    if has_body(reply.status) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
        if let Some(len) = reply.len().filter(|_| !reply.chunked) {
            headers.insert(CONTENT_LENGTH, len.into());
        }
    }
    if !no_body {
        let answer = response.body_mut();
        answer.left = reply.len().unwrap_or(0);
        answer.source = match reply.body {
            Body::Text(text) => Source::Bytes(Bytes::from(text.into_owned())),
            Body::Pattern(_) => Source::Pattern,
            Body::Lines(n) => Source::Bytes(Bytes::from(LINE.repeat(n as usize))),
            Body::File(part) => Source::File(part, lane.clone()),
            Body::Echo => rest,
        };
    }
    Ok(response)
}

/// Reads a body to its end, or says what was wrong with it.
async fn discard(lane: &Lane, body: &mut Incoming) -> Result<(), Counter> {
    let mut received = 0;
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        let frame = within(lane.options().timeouts.body, frame).await.ok_or(Counter::BodyTimeout)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Counter::Lost)?;
        received += frame.data_ref().map_or(0, Bytes::len) as u64;
        if received > lane.options().max_body {
            return Err(Counter::BodyTooLong);
        }
    }
    Ok(())
}

/// The body of an answer.
struct Answer {
    source: Source,
    left: u64,
    /// Leave the length out.
    unsized_body: bool,
    open: Open,
}

enum Source {
    None,
    Bytes(Bytes),
    Pattern,
    File(Part, Lane),
    Echo(Box<Incoming>),
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.open.activity.progress.fetch_add(1, Relaxed);
        let len = usize::try_from(self.left).map_or(PATTERN, |left| left.min(PATTERN));
        let data = match &mut self.source {
            Source::Echo(body) => {
                return match ready!(Pin::new(body.as_mut()).poll_frame(cx)) {
                    Some(frame) => Poll::Ready(Some(frame.map_err(io::Error::other))),
                    None => Poll::Ready(None),
                };
            }
            Source::None => return Poll::Ready(None),
            _ if len == 0 => return Poll::Ready(None),
            Source::Bytes(bytes) => std::mem::take(bytes),
            Source::Pattern => Bytes::from_static(&pattern()[..len]),
            Source::File(part, lane) => {
                let mut bytes = vec![0; len];
                if let Err(e) = std::os::unix::fs::FileExt::read_exact_at(&part.file, &mut bytes, part.at) {
                    lane.cells().add(Counter::FileFailed, 1);
                    return Poll::Ready(Some(Err(e)));
                }
                part.at += len as u64;
                Bytes::from(bytes)
            }
        };
        self.left -= data.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::None => true,
            Source::Echo(body) => body.is_end_stream(),
            _ => self.left == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::None => SizeHint::with_exact(0),
            Source::Echo(body) => body.size_hint(),
            _ if self.unsized_body => SizeHint::default(),
            _ => SizeHint::with_exact(self.left),
        }
    }
}

/// A stream of which the beginning was read already, and whose bytes are counted.
struct Counted {
    stream: Stream<TcpStream>,
    begun: Vec<u8>,
    at: usize,
    lane: Lane,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(rest) = this.begun.get(this.at..).filter(|rest| !rest.is_empty()) {
            let n = rest.len().min(into.remaining());
            into.put_slice(&rest[..n]);
            this.at += n;
            if this.at == this.begun.len() {
                this.begun = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        this.lane.cells().add(Counter::BytesIn, (into.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.lane.cells().add(Counter::BytesOut, n as u64);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bytes))?;
        self.lane.cells().add(Counter::BytesOut, n as u64);
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Runs hyper's tasks in the lane of the connection.
#[derive(Debug, Clone, Copy)]
struct InLane;

impl<F> hyper::rt::Executor<F> for InLane
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        // Called from a task of the lane; once the lane is gone the connection is too.
        let _ = flowlane::spawn(future);
    }
}

/// Hyper's timers, as sleeping tasks of the lane.
#[derive(Debug, Clone, Copy)]
struct LaneTimer;

struct Timed(Sleep);

impl Future for Timed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl hyper::rt::Sleep for Timed {}

impl hyper::rt::Timer for LaneTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(Timed(flowlane::sleep(duration)))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}
