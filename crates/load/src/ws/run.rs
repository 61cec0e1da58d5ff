//! A run in one lane.
//!
//! ```text
//!   connections are opened ▸ common start ▸ phases ▸ nothing new is sent ▸ outstanding answers, close frames ▸ report
//! ```

use std::sync::Arc;

use super::common::Common;
use super::lane::{BATCH, Lane, Stage};
use super::outcome::WsCounts;
use super::task;
use crate::report::Recorder;
use crate::run::outcome::LaneOutcome;
use crate::run::staying::{self, pause, until};
use crate::run::{clock, timeline};

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
            until(lane.as_ref(), start, finish).await;
            lane.enter(Stage::Closed(finish));
            pause(lane.as_ref(), finish, true, |_| false).await;
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
        pause(lane.as_ref(), u64::MAX, true, |inner| at < inner.tried + OPENING).await;
    }
    pause(lane.as_ref(), u64::MAX, true, |inner| inner.tried == n).await;
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
    staying::open_loop(lane, finish).await;
}

/// Lets what is outstanding arrive and connections close, as long as the timeout, and ends those that have not.
async fn end(lane: &Lane) {
    lane.enter(Stage::Ending);
    pause(lane, clock() + lane.common.timeout, false, |inner| inner.live == 0).await;
    lane.enter(Stage::Over);
    pause(lane, u64::MAX, false, |inner| inner.live == 0).await;
}
