//! A run in one lane.
//!
//! ```text
//!   connections are opened ▸ common start ▸ phases ▸ nothing new is sent ▸ outstanding answers, close frames ▸ report
//! ```

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::common::Common;
use super::lane::{BATCH, Inner, Lane, Stage};
use super::outcome::WsCounts;
use super::task;
use crate::report::Recorder;
use crate::run::moments::Moments;
use crate::run::outcome::LaneOutcome;
use crate::run::{GRACE, TICK, clock, timeline, wait};

/// Most connections of a lane whose handshakes are waited for at a time before the run.
const OPENING: usize = 256;

/// The whole run of one lane.
pub(super) async fn lane(common: Arc<Common>, bucket: u16) -> LaneOutcome<WsCounts> {
    let lane = Arc::new(Lane::new(common.clone(), bucket));
    let failure = prepare(&lane).await.err().flatten();
    if failure.is_some() {
        common.gate.stop();
    }
    let Some(start) = common.gate.start_line().await.filter(|_| failure.is_none()) else {
        // There is no run; what happened to its connections is in the report.
        let now = clock();
        begin(&lane, now);
        end(&lane).await;
        return LaneOutcome { failure, ..lane.outcome(now, now) };
    };
    let finish = start + timeline::duration(&common.config.phases).as_nanos() as u64;
    begin(&lane, start);
    match common.config.rate {
        Some(rate) => open_loop(&lane, start, finish, rate).await,
        None => {
            until(&lane, start, finish).await;
            lane.enter(Stage::Closed(finish));
            pause(&lane, finish, true, |_| false).await;
        }
    }
    let stopped = clock();
    end(&lane).await;
    lane.tick();
    lane.outcome(start, stopped.min(finish))
}

/// Opens the connections. An error is why the run cannot go on, if it was not just stopped.
async fn prepare(lane: &Arc<Lane>) -> Result<(), Option<String>> {
    let n = lane.inner().conns.len();
    for at in 0..n {
        lane.inner().live += 1;
        // Only fails outside a lane, where nothing of this runs.
        let _ = flowlane::spawn(task::run(lane.clone(), at));
        if at % BATCH == BATCH - 1 {
            flowlane::yield_now().await;
        }
        pause(lane, u64::MAX, true, |inner| at < inner.tried + OPENING).await;
    }
    pause(lane, u64::MAX, true, |inner| inner.tried == n).await;
    if lane.common.gate.stopped() {
        return Err(None);
    }
    let inner = lane.inner();
    if inner.book.counts.connected == 0 { Err(Some(inner.book.why_none_stands())) } else { Ok(()) }
}

/// The account begins at `start`.
fn begin(lane: &Lane, start: u64) {
    let common = &lane.common;
    let measured = timeline::measured(&common.config.phases, start);
    let (number, flows) = (common.turns.number(lane.bucket), common.turns.of(lane.bucket));
    let span = timeline::span(&common.config.phases, start);
    let mut recorder = Recorder::new(number, 0, flows, span);
    if let Some(to) = &common.config.snapshots {
        recorder = recorder.reporting_to(to.clone());
    }
    lane.inner().book.start(recorder, measured, clock());
}

/// Sends what is due at its moments.
async fn open_loop(lane: &Lane, start: u64, finish: u64, rate: u64) {
    {
        let mut inner = lane.inner();
        inner.schedule = Some(lane.common.moments(lane.bucket, start, rate));
        inner.stage = Stage::Open;
        inner.list_all();
    }
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
            until(lane, next.unwrap_or(finish), finish + GRACE).await;
        }
    }
    let (mut inner, now) = (lane.inner(), clock());
    let blocked = inner.blocked;
    let Inner { schedule, book, .. } = &mut *inner;
    // What would have come after an early end was never due.
    if let Some(mut schedule) = schedule.take() {
        schedule.pass(now.min(finish) + 1, u64::MAX, |due, n| book.unsent(due, now, n, blocked));
    }
}

/// Lets what is outstanding arrive and connections close, as long as the timeout, and ends those that have not.
async fn end(lane: &Lane) {
    lane.enter(Stage::Ending);
    pause(lane, clock() + lane.common.timeout, false, |inner| inner.live == 0).await;
    lane.enter(Stage::Over);
    pause(lane, u64::MAX, false, |inner| inner.live == 0).await;
}

/// Waits for a moment, or until nothing is sent any more after `last`.
async fn until(lane: &Lane, moment: u64, last: u64) {
    let over = |now| now >= last || lane.common.gate.stopped();
    wait::until(moment, lane.common.config.exact, over, || lane.tick()).await;
}

/// Waits until something is so, or until `last`, or, if `stops`, until the run is stopped.
async fn pause(lane: &Lane, last: u64, stops: bool, so: impl Fn(&Inner) -> bool) {
    loop {
        let now = clock();
        if now >= last || stops && lane.common.gate.stopped() || so(&lane.inner()) {
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
            tick.as_mut().poll(cx)
        })
        .await;
        lane.tick();
    }
}
