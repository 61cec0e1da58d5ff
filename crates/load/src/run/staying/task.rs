//! A connection's task: opens it, sends and reads on it, and opens it again when it ends before the run does.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::{Failure, TcpStream};

use super::lane::{BATCH, Inner, Lane, Stage};
use super::{Conn, Dialogue, Trouble};
use crate::run::door::Refusal;
use crate::run::{clock, wait};

/// Rounds of writing and reading before the worker does its other work.
const ROUNDS: usize = 16;
/// Before a connection is tried again that could not be opened, or ended without one answer that was no error.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const READ: usize = 64 << 10;

thread_local! {
    /// Where bytes are read to: they are looked at and forgotten, so one for each thread is enough.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// Between connections that are begun while a run lasts.
const BREATH: Duration = Duration::from_millis(1);

/// Begins the connection of the next place that is to have one; `false` if there is none.
pub(super) fn begin_next<D: Dialogue>(lane: &Arc<Lane<D>>) -> bool {
    let next = lane.inner().begins();
    if let Some(at) = next {
        // Only fails outside a lane, where nothing of this runs.
        let _ = flowlane::spawn(run(lane.clone(), at));
    }
    next.is_some()
}

/// Begins connections that are wanted since the load was changed, some at a time, so that what is due does not wait for them.
pub(super) async fn begin_wanted<D: Dialogue>(lane: Arc<Lane<D>>) {
    while !lane.is_ending() && (0..BATCH).all(|_| !lane.inner().may_begin() || begin_next(&lane)) {
        flowlane::sleep(BREATH).await;
    }
    lane.inner().wanted.is_beginning = false;
}

/// The connection in the place `at` of a lane, until the run ends or fewer are wanted.
pub(super) async fn run<D: Dialogue>(lane: Arc<Lane<D>>, at: usize) {
    // A task's waker never changes.
    poll_fn(|cx| {
        lane.inner().places[at].waker = Some(cx.waker().clone());
        Poll::Ready(())
    })
    .await;
    let mut turn = 0;
    while lane.goes_on(at) {
        let was_of_use = once(&lane, at, turn).await;
        turn += 1;
        if !was_of_use && lane.goes_on(at) {
            flowlane::sleep(PAUSE).await;
        }
    }
    lane.inner().is_over(at);
}

/// Opens it, and sends and reads on it; whether it brought an answer that was no error.
async fn once<D: Dialogue>(lane: &Lane<D>, at: usize, turn: u64) -> bool {
    let begun = clock();
    // What opening needs is gone afterwards.
    let opened = Box::pin(D::open(lane, at, turn)).await;
    let heard = lane.inner().places[at].conn.heard();
    let ended = match is_opened(lane, at, turn == 0, begun, opened) {
        None => return false,
        Some(Err(trouble)) => Err(trouble),
        Some(Ok(())) => poll_fn(|cx| lane.inner().poll(at, cx)).await,
    };
    if D::SAYS_BYE {
        // What answers the far side's end goes as far as it can.
        poll_fn(|cx| Poll::Ready(lane.inner().write(at, cx, clock()).is_ok())).await;
    }
    let mut inner = lane.inner();
    let was_of_use = inner.places[at].conn.heard() > heard;
    inner.ends(at, ended.err().as_ref(), clock());
    was_of_use
}

/// Takes note of how opening ended; `None` if it does not stand, and what ended it already, if something did.
fn is_opened<D: Dialogue>(
    lane: &Lane<D>,
    at: usize,
    is_first: bool,
    begun: u64,
    opened: Result<D::Opened, Option<Trouble<D::Fault>>>,
) -> Option<Result<(), Trouble<D::Fault>>> {
    let (mut inner, now) = (lane.inner(), clock());
    let stands = match opened {
        Ok(opened) => {
            lane.common.gate.door.opens();
            inner.book.connected(now, now.saturating_sub(begun), D::tls(&opened));
            D::opened(&mut inner.book.own, &opened);
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

/// A connection to the target. An error is why it failed, if it did not just become too late.
pub(crate) async fn connect<D: Dialogue>(
    lane: &Lane<D>,
    at: usize,
    turn: u64,
) -> Result<TcpStream, Option<Trouble<D::Fault>>> {
    let connect = lane.common.connect(lane.bucket, at, turn);
    let begun = wait::begin(&connect, || lane.goes_on(at)).await;
    let stream = begun.map_err(|e| Some(Trouble::Connect(e)))?;
    let connected = async { poll_fn(|cx| stream.poll_connected(cx)).await.map_err(Trouble::Connect) };
    within(lane, at, connected, Trouble::Connect(Failure::TimedOut.into())).await?;
    Ok(stream)
}

/// What comes of it, or `too_late` after the timeout, or nothing if the run does not go on.
pub(crate) async fn within<D: Dialogue, T>(
    lane: &Lane<D>,
    at: usize,
    what: impl Future<Output = Result<T, Trouble<D::Fault>>>,
    too_late: Trouble<D::Fault>,
) -> Result<T, Option<Trouble<D::Fault>>> {
    let (mut what, mut over) = (pin!(what), pin!(flowlane::sleep(lane.common.config.parts().timeout)));
    let mut too_late = Some(too_late);
    poll_fn(|cx| {
        if !lane.goes_on(at) {
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
fn not_opened<D: Dialogue>(lane: &Lane<D>, inner: &mut Inner<D>, trouble: &Trouble<D::Fault>, now: u64) {
    let gate = &lane.common.gate;
    if trouble.is_refusal() {
        match gate.door.refuses() {
            Refusal::First => gate.stop(),
            Refusal::Again => return,
            Refusal::Later => {}
        }
    } else if gate.door.is_shut() {
        return;
    }
    inner.book.not_connected(now, trouble);
}

impl<D: Dialogue> Lane<D> {
    fn is_ending(&self) -> bool {
        self.common.gate.stopped() || matches!(self.inner().stage, Stage::Ending | Stage::Over(_))
    }

    fn goes_on(&self, at: usize) -> bool {
        !self.is_ending() && self.inner().wanted.has(at)
    }
}

impl<D: Dialogue> Inner<D> {
    /// Does what can be done now on a connection that stands. Ready at its end.
    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Result<(), Trouble<D::Fault>>> {
        let mut now = clock();
        for _ in 0..ROUNDS {
            let place = &self.places[at];
            let idle = place.conn.in_flight() == 0;
            match self.stage {
                Stage::Over(_) if idle => return Poll::Ready(Ok(())),
                // Guard: `self.stage == Stage::Over(true)` as `false` fails load/staying::what_is_under_way
                Stage::Over(_) if self.stage == Stage::Over(true) => {
                    return Poll::Ready(Err(Trouble::Stopped));
                }
                // What was said has no answer, or that it ends.
                Stage::Over(_) => return Poll::Ready(Err(Trouble::NoAnswer)),
                // It does not answer that it is to end.
                _ if place.gives_up && idle => return Poll::Ready(Ok(())),
                // Guard: `place.gives_up` as `false` fails load/ws::wrong::a_handshake_without
                _ if place.gives_up => return Poll::Ready(Err(Trouble::NoAnswer)),
                _ if !idle => {}
                // Guard: `self.wanted.has(at)` as `true` fails load/staying::connections_to_a_memcached
                stage if stage != Stage::Ending && self.wanted.has(at) => self.ask(at, now),
                _ if !D::SAYS_BYE => return Poll::Ready(Ok(())),
                _ => {
                    let Self { places, pen, .. } = self;
                    places[at].conn.close(pen);
                }
            }
            let wrote = self.write(at, cx, now)?;
            let read = match self.read(at, cx, &mut now) {
                Err(Trouble::Closed | Trouble::Socket(..)) if self.places[at].conn.has_said_bye() => {
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

    fn write(&mut self, at: usize, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble<D::Fault>> {
        let Self { places, pen, book, .. } = self;
        let conn = &mut places[at].conn;
        if !conn.is_to_write() {
            return Ok(false);
        }
        let n = conn.poll_write(cx, pen)?;
        book.wrote(now, n);
        Ok(n > 0)
    }

    fn read(&mut self, at: usize, cx: &mut Context<'_>, now: &mut u64) -> Result<bool, Trouble<D::Fault>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Poll::Ready(got) = self.places[at].conn.poll_read(cx, scratch) else { return Ok(false) };
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
