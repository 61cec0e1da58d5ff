//! A connection's task: opens it, sends and reads on it, closes it in the end, and opens it again when it ends before the run does.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::{Failure, SocketError, TcpStream};
use flowlane_http::ws::Code;

use super::lane::{Inner, Lane, Stage};
use super::opening::Opened;
use super::outcome::{End, NotOpened, Trouble};
use crate::run::clock;
use crate::run::door::Refusal;

/// Rounds of writing and reading before the worker does its other work.
const ROUNDS: usize = 16;
/// Before a connection is tried again that could not be opened, or ended without one answer.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const READ: usize = 64 << 10;

thread_local! {
    /// Where bytes are read to: they are looked at and forgotten, so one for each thread is enough.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// The connection in the place `at` of a lane, until the run ends.
pub(super) async fn run(lane: Arc<Lane>, at: usize) {
    // A task's waker never changes.
    poll_fn(|cx| {
        lane.inner().conns[at].waker = Some(cx.waker().clone());
        Poll::Ready(())
    })
    .await;
    let mut turn = 0;
    while goes_on(&lane) {
        let was_of_use = once(&lane, at, turn).await;
        turn += 1;
        if !was_of_use && goes_on(&lane) {
            flowlane::sleep(PAUSE).await;
        }
    }
    let mut inner = lane.inner();
    inner.conns[at].waker = None;
    inner.live -= 1;
    inner.tell_main();
}

fn goes_on(lane: &Lane) -> bool {
    !lane.common.gate.stopped() && !matches!(lane.inner().stage, Stage::Ending | Stage::Over)
}

/// Opens it, and sends and reads on it; whether it brought an answer.
async fn once(lane: &Lane, at: usize, turn: u64) -> bool {
    let begun = clock();
    // What opening needs is gone afterwards.
    let opened = Box::pin(open(lane, at, turn)).await;
    let answered = lane.inner().conns[at].answers();
    let stands = is_opened(lane, at, turn == 0, begun, opened);
    let ended = match stands {
        None => return false,
        Some(Err(trouble)) => Err(trouble),
        Some(Ok(())) => poll_fn(|cx| lane.inner().poll(at, cx)).await,
    };
    // The close frame that answers goes as far as it can.
    poll_fn(|cx| Poll::Ready(lane.inner().write(at, cx, clock()).is_ok())).await;
    let mut inner = lane.inner();
    let was_of_use = inner.conns[at].answers() > answered;
    inner.ends(at, ended.err().as_ref(), clock());
    was_of_use
}

/// Takes note of how opening ended; `None` if it does not stand, and what ended it already, if something did.
fn is_opened(
    lane: &Lane,
    at: usize,
    is_first: bool,
    begun: u64,
    opened: Result<Opened, Option<Trouble>>,
) -> Option<Result<(), Trouble>> {
    let (mut inner, now) = (lane.inner(), clock());
    let stands = match opened {
        Ok(opened) => {
            lane.common.gate.door.opens();
            inner.book.connected(now, now.saturating_sub(begun), opened.tls);
            Some(inner.stands(at, opened, now))
        }
        Err(Some(trouble)) => {
            not_opened(lane, &mut inner, &trouble, now);
            None
        }
        Err(None) => None,
    };
    if is_first {
        inner.tried += 1;
        inner.tell_main();
    }
    stands
}

/// Opens a connection, and makes a WebSocket of it. An error is why it failed, if it did not just become too late.
async fn open(lane: &Lane, at: usize, turn: u64) -> Result<Opened, Option<Trouble>> {
    let common = &lane.common;
    let stream =
        TcpStream::begin(common.connect(lane.bucket, at, turn)).map_err(|e| Some(Trouble::Connect(e)))?;
    let connected = poll_fn(|cx| stream.poll_connected(cx));
    let too_late = Trouble::Connect(Failure::TimedOut.into());
    within(lane, async { connected.await.map_err(Trouble::Connect) }, too_late).await?;
    let nonce = lane.inner().pen.nonce();
    let opening = async { common.config.opening.open(stream, nonce).await.map_err(Trouble::Opening) };
    within(lane, opening, Trouble::Opening(NotOpened::TooLate)).await
}

/// What comes of it, or `too_late` after the timeout, or nothing if the run does not go on.
async fn within<T>(
    lane: &Lane,
    what: impl Future<Output = Result<T, Trouble>>,
    too_late: Trouble,
) -> Result<T, Option<Trouble>> {
    let (mut what, mut over) = (pin!(what), pin!(flowlane::sleep(lane.common.config.timeout)));
    let mut too_late = Some(too_late);
    poll_fn(|cx| {
        if !goes_on(lane) {
            return Poll::Ready(Err(None));
        }
        match what.as_mut().poll(cx) {
            Poll::Ready(came) => Poll::Ready(came.map_err(Some)),
            Poll::Pending => over.as_mut().poll(cx).map(|()| Err(too_late.take())),
        }
    })
    .await
}

/// Counts a connection that could not be opened. If the first that is heard of the target is a refusal, nobody listens there, and the run ends with it: those
/// that were begun meanwhile count for nothing.
fn not_opened(lane: &Lane, inner: &mut Inner, trouble: &Trouble, now: u64) {
    let gate = &lane.common.gate;
    match trouble {
        Trouble::Connect(SocketError::Connection(Failure::Refused)) => match gate.door.refuses() {
            Refusal::First => gate.stop(),
            Refusal::Again => return,
            Refusal::Later => {}
        },
        _ if gate.door.is_shut() => return,
        _ => {}
    }
    inner.book.not_connected(now, trouble);
}

impl Inner {
    /// Does what can be done now on a WebSocket. Ready at its end.
    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        let mut now = clock();
        for _ in 0..ROUNDS {
            let conn = &self.conns[at];
            let idle = conn.in_flight() == 0;
            match self.stage {
                // One whose close frame had no answer ends without.
                Stage::Over if idle => return Poll::Ready(Ok(())),
                Stage::Over => return Poll::Ready(Err(Trouble::NoAnswer)),
                // Guard: `conn.gives_up` as `false` fails load/ws::wrong::a_handshake_without
                _ if conn.gives_up => return Poll::Ready(Err(Trouble::NoAnswer)),
                Stage::Ending if idle => {
                    let Self { conns, pen, .. } = self;
                    conns[at].close(pen, Code::Normal);
                }
                _ if idle => self.ask(at, now),
                _ => {}
            }
            let wrote = self.write(at, cx, now)?;
            let read = match self.read(at, cx, &mut now) {
                // Behind the close frames of both sides.
                // Guard: `self.conns[at].end == End::Said` as `false` fails load/ws::the_figures_are
                Err(Trouble::Closed | Trouble::Socket(..)) if self.conns[at].end == End::Said => {
                    return Poll::Ready(Ok(()));
                }
                read => read?,
            };
            if !wrote && !read {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write(&mut self, at: usize, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble> {
        let Self { conns, pen, book, .. } = self;
        if !conns[at].is_to_write() {
            return Ok(false);
        }
        let n = conns[at].poll_write(cx, pen)?;
        book.wrote(now, n);
        Ok(n > 0)
    }

    fn read(&mut self, at: usize, cx: &mut Context<'_>, now: &mut u64) -> Result<bool, Trouble> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(got) = self.conns[at].poll_read(cx, scratch) else { return Ok(false) };
            let n = got?;
            *now = clock();
            if n == 0 {
                return Err(Trouble::Closed);
            }
            self.came(at, &mut scratch[..n], *now)?;
            self.ask(at, *now);
            Ok(true)
        })
    }
}
