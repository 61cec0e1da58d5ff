//! A lane on its way from one worker to another, and what is left of it if none takes it because the runtime ends: its flows end, and its
//! counters go to the last report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane_stack::time::Time;

use super::LaneSlot;
use crate::stats::LaneReport;

/// The journey of a lane.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// When it left.
    pub(crate) since: Time,
    /// The worker that is to take it.
    pub(crate) to: usize,
    /// Where its report goes if none does.
    pub(crate) last: LastReports,
}

/// The reports of lanes that no worker took before the runtime ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastReports(Arc<Mutex<Vec<LaneReport>>>);

impl LastReports {
    fn all(&self) -> MutexGuard<'_, Vec<LaneReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those there are.
    pub(crate) fn take(&self) -> Vec<LaneReport> {
        std::mem::take(&mut self.all())
    }
}

impl Drop for LaneSlot {
    /// A lane that no worker takes any more, since the runtime has ended while it was on its way.
    fn drop(&mut self) {
        // Guard: `self.under_way.take()` as `None` fails runtime::netisr
        if let Some(UnderWay { since, to, last }) = self.under_way.take() {
            self.end_flows(since);
            // Guard: `last.all().push(self.report(to, true))` as `drop((to, last))` fails
            // moving::tests::a_lane_under_way
            last.all().push(self.report(to, true));
        }
    }
}
