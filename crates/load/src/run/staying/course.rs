//! A run in one lane.
//!
//! ```text
//!   connections are opened ▸ what is sent before ▸ common start ▸ phases ▸ nothing new is sent ▸ outstanding answers ▸ report
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flowlane::Endpoint;

use super::common::{Common, LaneProgress};
use super::lane::{BATCH, Inner, Lane, Stage};
use super::pace::{open_loop, pause, tick, until};
use super::{Dialogue, task};
use crate::report::Recorder;
use crate::run::changes::Unchanged;
use crate::run::gate::{Gate, Outcomes};
use crate::run::lanes::Kind;
use crate::run::outcome::LaneOutcome;
use crate::run::timeline::Phase;
use crate::run::{HURRY, clock, timeline};

impl<D: Dialogue> Kind for Common<D> {
    type Counts = D::Counts;
    type Progress = D::Progress;

    fn gate(&self) -> &Gate {
        &self.gate
    }

    fn outcomes(&self) -> &Outcomes<LaneOutcome<D::Counts>> {
        &self.outcomes
    }

    fn phases(&self) -> &[Phase] {
        self.config.parts().phases
    }

    fn target(&self) -> Endpoint {
        self.config.parts().target
    }

    fn timeout(&self) -> Duration {
        self.config.parts().timeout
    }

    fn prepares(&self) -> bool {
        true
    }

    fn rate(&self) -> Result<f64, Unchanged> {
        self.config.parts().rate.map(|rate| rate as f64).ok_or(Unchanged::Closed)
    }

    fn may_have(&self, connections: u32) -> Result<(), Unchanged> {
        self.turns.may_have(connections, true)
    }

    fn takes_part(&self, bucket: u16) -> bool {
        self.turns.takes_part(bucket)
    }

    fn progress(&self) -> D::Progress {
        let sum = |f: fn(&LaneProgress) -> &AtomicU64| {
            self.progress.iter().map(|p| f(p).load(Ordering::Relaxed)).sum()
        };
        D::progress(sum(|p| &p.answers), sum(|p| &p.prepared))
    }

    async fn lane(self: Arc<Self>, bucket: u16) -> LaneOutcome<D::Counts> {
        lane(self, bucket).await
    }
}

/// The whole run of one lane.
pub(super) async fn lane<D: Dialogue>(common: Arc<Common<D>>, bucket: u16) -> LaneOutcome<D::Counts> {
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
    let parts = common.config.parts();
    let finish = start + timeline::duration(parts.phases).as_nanos() as u64;
    begin(&lane, start);
    match parts.rate {
        Some(rate) => {
            lane.inner().opens(common.moments(bucket, start, rate));
            open_loop(&lane, finish).await;
        }
        None => {
            until(&lane, start, finish).await;
            lane.enter(Stage::Closed(finish));
            pause(&lane, finish, true, |_| false).await;
        }
    }
    let stopped = clock();
    end(&lane).await;
    tick(&lane);
    lane.outcome(start, stopped.min(finish))
}

/// Opens the connections, and sends what is sent before the run. An error is why the run cannot go on, if it was not just stopped.
async fn prepare<D: Dialogue>(lane: &Arc<Lane<D>>) -> Result<(), Option<String>> {
    while task::begin_next(lane) {
        if lane.inner().begun.is_multiple_of(BATCH) {
            flowlane::yield_now().await;
        }
        pause(lane, u64::MAX, true, Inner::may_begin).await;
    }
    pause(lane, u64::MAX, true, |inner| inner.tried == inner.begun).await;
    if lane.common.gate.stopped() {
        return Err(None);
    }
    if lane.inner().book.all.connected == 0 {
        return Err(Some(lane.inner().book.why_none_stands()));
    }
    if !lane.common.config.prepares() {
        return Ok(());
    }
    lane.enter(Stage::Preparing);
    let over = |inner: &Inner<D>| inner.prepared().is_some() || inner.standing == 0;
    pause(lane, u64::MAX, true, over).await;
    let prepared = lane.inner().prepared();
    lane.enter(Stage::Before);
    if lane.common.gate.stopped() {
        return Err(None);
    }
    let prepared = prepared.unwrap_or_else(|| Err("no connection is left".to_owned()));
    prepared.map_err(|why| Some(D::unprepared(&why)))
}

/// The account begins at `start`.
fn begin<D: Dialogue>(lane: &Lane<D>, start: u64) {
    let (common, parts) = (&lane.common, lane.common.config.parts());
    let measured = timeline::measured(parts.phases, start);
    let (number, flows) = (common.turns.number(lane.bucket), common.turns.of(lane.bucket));
    let mut recorder = Recorder::new(number, 0, flows, timeline::span(parts.phases, start));
    if D::REQUESTS > 0 {
        recorder = recorder.with_requests(D::REQUESTS);
    }
    if let Some(to) = parts.snapshots {
        recorder = recorder.reporting_to(to.clone());
    }
    lane.inner().book.start(recorder, measured, clock());
}

/// Lets what is outstanding arrive and connections say that they end, as long as the timeout, or for a moment once the run is stopped, and ends those that
/// have not.
async fn end<D: Dialogue>(lane: &Arc<Lane<D>>) {
    lane.enter(Stage::Ending);
    let patience = clock() + lane.common.timeout;
    // Guard: `true` as `false` fails load/staying::what_is_under_way
    pause(lane, patience, true, |inner| inner.live == 0).await;
    if lane.common.gate.stopped() {
        pause(lane, patience.min(clock() + HURRY), false, |inner| inner.live == 0).await;
    }
    lane.enter(Stage::Over(lane.common.gate.stopped()));
    pause(lane, u64::MAX, false, |inner| inner.live == 0).await;
}
