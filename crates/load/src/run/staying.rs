//! How a lane whose connections stay spends its time: an open loop over them, and waits that something in the lane may end.

use std::future::{Future, poll_fn};
use std::ops::DerefMut;
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::gate::Gate;
use super::moments::Moments;
use super::{GRACE, TICK, clock, wait};

/// A lane whose connections stay.
pub(crate) trait Lane {
    /// What its tasks share.
    type Inner: Inner;
    fn inner(&self) -> impl DerefMut<Target = Self::Inner>;
    fn gate(&self) -> &Gate;
    /// Whether workers stay awake shortly before a moment.
    fn is_exact(&self) -> bool;
    /// Slow work, about each [`TICK`].
    fn tick(&self);
}

/// What the tasks of a lane share.
pub(crate) trait Inner {
    /// When something is due, in an open loop.
    fn schedule(&mut self) -> &mut Option<Moments>;
    /// Whether what is due waits for a connection.
    fn is_blocked(&self) -> bool;
    /// Sends what is due, at most a batch; whether that was all there is now.
    fn pump(&mut self, now: u64) -> bool;
    /// So much was due and was not sent; `want`: for want of a connection.
    fn unsent(&mut self, due: u64, now: u64, count: u64, want: bool);
    /// Has the main task woken when something ends.
    fn wake_main(&mut self, waker: &Waker);
}

/// Sends what is due at the moments of the schedule, until `finish`.
pub(crate) async fn open_loop<L: Lane>(lane: &L, finish: u64) {
    loop {
        let now = clock();
        // Who wakes late, even after the end, still sends what was due before it.
        if lane.gate().stopped() || now >= finish + GRACE {
            break;
        }
        let (all, next, blocked) = {
            let mut inner = lane.inner();
            let all = inner.is_blocked() || inner.pump(now);
            (all, inner.schedule().as_ref().and_then(Moments::peek), inner.is_blocked())
        };
        // What waits for a connection is still sent if it does so since a moment ago: else the server does not keep up.
        let behind = blocked && next.is_none_or(|due| now.saturating_sub(due) > TICK);
        if now >= finish && (behind || next.is_none()) {
            break;
        }
        if !all {
            flowlane::yield_now().await;
        } else if blocked {
            pause(lane, finish.max(now + TICK), true, |inner| !inner.is_blocked()).await;
        } else {
            // No longer than a tick: the schedule may be another one then.
            until(lane, next.unwrap_or(finish).min(now + TICK), finish + GRACE).await;
        }
    }
    let (mut inner, now) = (lane.inner(), clock());
    let blocked = inner.is_blocked();
    // What would have come after an early end was never due.
    if let Some(mut schedule) = inner.schedule().take() {
        // Guard: `inner.unsent(due, now, n, blocked)` as `()` fails load/memcached::what_is_due
        // load/ws::what_is_due
        schedule.pass(now.min(finish) + 1, u64::MAX, |due, n| inner.unsent(due, now, n, blocked));
    }
}

/// Waits for a moment, or until nothing is sent any more after `last`.
pub(crate) async fn until<L: Lane>(lane: &L, moment: u64, last: u64) {
    let over = |now| now >= last || lane.gate().stopped();
    wait::until(moment, lane.is_exact(), over, || lane.tick()).await;
}

/// Waits until something is so, or until `last`, or, if `stops`, until the run is stopped.
pub(crate) async fn pause<L: Lane>(lane: &L, last: u64, stops: bool, so: impl Fn(&L::Inner) -> bool) {
    loop {
        let now = clock();
        if now >= last || stops && lane.gate().stopped() || so(&lane.inner()) {
            return;
        }
        let mut tick = pin!(flowlane::sleep(Duration::from_nanos(TICK.min(last - now))));
        poll_fn(|cx| {
            let mut inner = lane.inner();
            if so(&inner) {
                return Poll::Ready(());
            }
            inner.wake_main(cx.waker());
            drop(inner);
            tick.as_mut().poll(cx).map(drop)
        })
        .await;
        lane.tick();
    }
}
