//! A connection's task: opens it, talks over it, and opens it again when it ends before the run does.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::{Failure, SocketError, TcpStream};
use flowlane_memcached::map::LaneMap;

use super::lane::{Inner, Lane, Stage};
use super::outcome::Trouble;
use super::place;
use crate::run::clock;
use crate::run::door::Refusal;

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

/// Opens it, and talks over it; whether it brought an answer that was no error.
async fn once(lane: &Lane, at: usize, turn: u64) -> bool {
    let begun = clock();
    let opened = open(lane, at, turn).await;
    if !is_opened(lane, at, turn == 0, begun, opened) {
        return false;
    }
    let ended = poll_fn(|cx| lane.inner().poll(at, cx)).await;
    let mut inner = lane.inner();
    let is_of_use = inner.conns[at].is_of_use();
    inner.ends(at, ended.err().as_ref(), clock());
    is_of_use
}

/// Takes note of how opening ended; whether the connection stands.
fn is_opened(
    lane: &Lane,
    at: usize,
    is_first: bool,
    begun: u64,
    opened: Result<(TcpStream, Option<LaneMap>), Option<Trouble>>,
) -> bool {
    let (mut inner, now) = (lane.inner(), clock());
    let stands = match opened {
        Ok((stream, map)) => {
            lane.common.gate.door.opens();
            if let Some(map) = map {
                inner.conns[at].lane = map.here;
                inner.knows(map);
            }
            inner.book.connected(now, now.saturating_sub(begun));
            inner.conns[at].stream = Some(stream);
            inner.stands(at);
            true
        }
        Err(Some(trouble)) => {
            not_opened(lane, &mut inner, &trouble, now);
            false
        }
        Err(None) => false,
    };
    if is_first {
        inner.tried += 1;
        inner.tell_main();
    }
    stands
}

/// Opens a connection, and has it come to the lane that it is meant for, if that is asked for. An error is why it failed, if it did not just
/// become too late.
async fn open(lane: &Lane, at: usize, turn: u64) -> Result<(TcpStream, Option<LaneMap>), Option<Trouble>> {
    let common = &lane.common;
    let mut tries = 0;
    loop {
        let stream =
            TcpStream::begin(common.connect(lane.bucket, at, turn)).map_err(|e| Some(Trouble::Connect(e)))?;
        let connected = poll_fn(|cx| stream.poll_connected(cx));
        let too_late = Trouble::Connect(Failure::TimedOut.into());
        within(lane, async { connected.await.map_err(Trouble::Connect) }, too_late).await?;
        if !common.config.by_lane {
            return Ok((stream, None));
        }
        let map = within(lane, place::ask(&stream), Trouble::NoAnswer).await?;
        // Guard: `map.lanes > common.config.connections` as `false` fails
        // cli/each_key_is_asked_for_in_its_lane
        if map.lanes > common.config.connections {
            return Err(Some(Trouble::ManyLanes(map.lanes)));
        }
        tries += 1;
        // Guard: `map.here == common.destination(lane.bucket, at, map.lanes)` as `true` fails
        // cli/every_lane_has_a_connection
        if map.here == common.destination(lane.bucket, at, map.lanes) || tries > place::TRIES * map.lanes {
            return Ok((stream, Some(map)));
        }
    }
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
            Poll::Pending => over.as_mut().poll(cx).map(|_| Err(too_late.take())),
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
    /// Does what can be done now on a connection that stands. Ready at its end.
    fn poll(&mut self, at: usize, cx: &mut Context<'_>) -> Poll<Result<(), Trouble>> {
        let mut now = clock();
        for _ in 0..ROUNDS {
            let conn = &self.conns[at];
            let idle = conn.in_flight() == 0;
            match self.stage {
                Stage::Ending | Stage::Over if idle => return Poll::Ready(Ok(())),
                Stage::Over => return Poll::Ready(Err(Trouble::NoAnswer)),
                _ if conn.gives_up => return Poll::Ready(Err(Trouble::NoAnswer)),
                _ if idle => self.ask(at, now),
                _ => {}
            }
            let wrote = self.write(at, cx, now)?;
            let read = self.read(at, cx, &mut now)?;
            if !wrote && !read {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write(&mut self, at: usize, cx: &mut Context<'_>, now: u64) -> Result<bool, Trouble> {
        let Self { conns, book, .. } = self;
        let conn = &mut conns[at];
        let Some(stream) = conn.stream.as_ref().filter(|_| !conn.to_write().is_empty()) else {
            return Ok(false);
        };
        let Poll::Ready(taken) = stream.poll_write(cx, conn.to_write()) else { return Ok(false) };
        let n = taken?;
        conn.wrote(n);
        book.wrote(now, n);
        Ok(true)
    }

    fn read(&mut self, at: usize, cx: &mut Context<'_>, now: &mut u64) -> Result<bool, Trouble> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(stream) = &self.conns[at].stream else { return Ok(false) };
            let Poll::Ready(got) = stream.poll_read(cx, scratch) else { return Ok(false) };
            let n = got?;
            *now = clock();
            if n == 0 {
                return Err(Trouble::Closed);
            }
            self.came(at, &scratch[..n], *now)?;
            self.ask(at, *now);
            Ok(true)
        })
    }
}
