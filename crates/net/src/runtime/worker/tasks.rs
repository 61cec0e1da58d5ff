//! Tasks that are ready, each with its lane lent to the thread while it runs.

use std::panic::AssertUnwindSafe;

use flowlane_sys::ticks;

use super::Worker;
use crate::context;
use crate::lane::Ready;
use crate::shared::Message;

/// Tasks that run in the turn in which they were begun.
const FRESH: usize = 1024;

impl Worker {
    /// Runs each task that is ready now once, and then those that they begin.
    pub(crate) fn run_tasks(&mut self) -> bool {
        let n = context::ready_len();
        let (mut left, mut fresh) = (n, FRESH);
        let mut lent: Option<u32> = None;
        let mut ran = 0;
        let measures = self.meter.tasks_begin();
        loop {
            let ready = if left > 0 {
                left -= 1;
                context::pop_ready()
            } else if fresh > 0 {
                fresh -= 1;
                context::pop_fresh()
            } else {
                None
            };
            let Some(ready) = ready else { break };
            let lane = ready.metadata().lane.index;
            if lent != Some(lane) {
                self.take_back(lent);
                lent = None;
                if self.moves.is_leaving(lane)
                    && let Some(slot) = self.lanes.get_mut(lane)
                {
                    slot.parked.push(ready);
                    continue;
                }
                let Some(mut slot) = self.lanes.lend(lane) else {
                    self.run_elsewhere(lane, ready);
                    continue;
                };
                slot.counters.task_runs += 1;
                slot.work += 1;
                context::enter(slot, self.now);
                lent = Some(lane);
                self.meter.tasks_of(lane);
            }
            let task = ready.metadata().begun;
            self.meter.runs(task);
            context::budget::begin();
            ran += 1;
            let began = if measures { ticks::now() } else { 0 };
            // A task that panics takes nothing with it but itself: its lane's sockets stay whole, since no call into
            // the lane runs user code.
            if std::panic::catch_unwind(AssertUnwindSafe(|| ready.run())).is_err() {
                let _ = context::with_current(|slot, _| slot.counters.panics += 1);
            }
            if measures {
                self.meter.ran(task, lane, ticks::now().saturating_sub(began));
            }
        }
        self.take_back(lent);
        context::defer_fresh();
        self.meter.tasks_ran(ran);
        n > 0
    }

    fn take_back(&mut self, lent: Option<u32>) {
        if let Some(lane) = lent {
            self.lanes.put(lane, context::leave());
        }
    }

    /// A task of a lane that is not here: to whoever has it, or to be run when it comes.
    pub(super) fn run_elsewhere(&mut self, lane: u32, ready: Ready) {
        if let Some(ready) = self.moves.park_task(lane, ready) {
            let owner = self.owner_in_view(lane);
            if owner != self.index {
                self.shared.send(owner, Message::Run(ready));
            }
        }
    }
}
