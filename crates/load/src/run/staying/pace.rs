//! How a lane spends its time: an open loop over its connections, and waits that something in the lane may end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::lane::{Inner, Lane};
use super::{Dialogue, task};
use crate::run::moments::Moments;
use crate::run::{GRACE, TICK, clock, wait};

/// Sends what is due at the moments of the schedule, until `finish`.
pub(super) async fn open_loop<D: Dialogue>(lane: &Arc<Lane<D>>, finish: u64) {
    loop {
        let now = clock();
        // Who wakes late, even after the end, still sends what was due before it.
        if lane.common.gate.stopped() || now >= finish + GRACE {
            break;
        }
        let (all, next, blocked) = {
            let mut inner = lane.inner();
            let all = inner.blocked || inner.pump(now);
            (all, inner.schedule.as_ref().and_then(Moments::peek), inner.blocked)
        };
        // What waits for a connection is still sent if it does so since a moment ago: else the server does not keep up.
        let behind = blocked && next.is_none_or(|due| now.saturating_sub(due) > TICK);
        if now >= finish && (behind || next.is_none()) {
            break;
        }
        if !all {
            flowlane::yield_now().await;
        } else if blocked {
            pause(lane, finish.max(now + TICK), true, |inner| !inner.blocked).await;
        } else {
            // No longer than a tick: the schedule may be another one then.
            until(lane, next.unwrap_or(finish).min(now + TICK), finish + GRACE).await;
        }
    }
    let (mut inner, now) = (lane.inner(), clock());
    let blocked = inner.blocked;
    // What would have come after an early end was never due.
    if let Some(mut schedule) = inner.schedule.take() {
        let book = &mut inner.book;
        // Guard: `book.unsent(due, now, n, blocked)` as `()` fails load/memcached::what_is_due
        // load/ws::what_is_due
        schedule.pass(now.min(finish) + 1, u64::MAX, |due, n| book.unsent(due, now, n, blocked));
    }
}

/// Slow work, and the beginning of connections that are wanted since the load was changed.
pub(super) fn tick<D: Dialogue>(lane: &Arc<Lane<D>>) {
    // Guard: `lane.tick()` as `false` fails load/staying::connections_to_a_memcached load/staying::websockets_are
    // load/staying::connections_of_others
    if lane.tick() {
        // Only fails outside a lane, where nothing of this runs.
        let _ = flowlane::spawn(task::begin_wanted(lane.clone()));
    }
}

/// Waits for a moment, or until nothing is sent any more after `last`.
pub(super) async fn until<D: Dialogue>(lane: &Arc<Lane<D>>, moment: u64, last: u64) {
    let over = |now| now >= last || lane.common.gate.stopped();
    wait::until(moment, lane.common.config.parts().exact, over, || tick(lane)).await;
}

/// Waits until something is so, or until `last`, or, if `stops`, until the run is stopped.
pub(super) async fn pause<D: Dialogue>(
    lane: &Arc<Lane<D>>,
    last: u64,
    stops: bool,
    so: impl Fn(&Inner<D>) -> bool,
) {
    loop {
        let now = clock();
        if now >= last || stops && lane.common.gate.stopped() || so(&lane.inner()) {
            return;
        }
        let mut soon = pin!(flowlane::sleep(Duration::from_nanos(TICK.min(last - now))));
        poll_fn(|cx| {
            let mut inner = lane.inner();
            if so(&inner) {
                return Poll::Ready(());
            }
            inner.wake_main(cx.waker());
            drop(inner);
            soon.as_mut().poll(cx).map(drop)
        })
        .await;
        tick(lane);
    }
}
