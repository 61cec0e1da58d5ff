//! What a worker measures of itself: turns, the time of their steps and of its lanes, tasks that take long, events of the processor; and
//! where others see it.

mod long_tasks;
mod perf;
mod spent;
mod steps;

pub(super) use steps::Step;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::time::Time;

use self::long_tasks::{LongTaskFinder, Ran};
use self::perf::Perf;
use self::spent::Spent;
use self::steps::Steps;
use super::lanes::Lanes;
use crate::shared::{Beat, Place};
use crate::stats::{LongTasks, Meeting, PerfReport, StepTimes, Turns};

/// What a worker watches of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    /// Time for which a task may hold its worker; zero for any.
    pub(crate) task_budget: Duration,
    /// Events of processor and kernel are counted.
    pub(crate) perf: bool,
}

impl Default for Watched {
    fn default() -> Self {
        Self { task_budget: TASK_BUDGET, perf: false }
    }
}

/// A tick of the timer wheel: a task that takes longer makes timers of all lanes of its worker late.
const TASK_BUDGET: Duration = Duration::from_millis(1);

/// What a worker measures of itself.
pub(crate) struct Meter {
    turns: Turns,
    /// Where it meets other workers, as far as its loop knows.
    meeting: Meeting,
    /// Panics of what applications gave away, when it was dropped.
    panics: u64,
    /// What the lanes did in this turn.
    spent: Spent,
    /// Where the time goes.
    steps: Steps,
    /// Where others see this worker.
    beat: Arc<Beat>,
    /// Tasks that take long.
    long_tasks: LongTaskFinder,
    /// The lane of the task that ran last.
    last_lane: u32,
    /// What processor and kernel count for this thread.
    perf: Option<Perf>,
}

impl Meter {
    /// On the worker's thread.
    pub(super) fn new(watched: Watched, beat: Arc<Beat>) -> Self {
        Self {
            turns: Turns::default(),
            meeting: Meeting::default(),
            panics: 0,
            spent: Spent::default(),
            steps: Steps::default(),
            beat,
            long_tasks: LongTaskFinder::new(watched.task_budget),
            last_lane: 0,
            perf: watched.perf.then(Perf::begin),
        }
    }

    /// The loop begins.
    pub(super) fn begin(&mut self, now: Time) {
        self.steps = Steps::new(now);
    }

    /// A turn begins.
    #[inline]
    pub(super) fn turn_begins(&mut self, now: Time) {
        self.steps.turn_begins(now);
        self.turns.all += 1;
        self.beat.turn(self.turns.all);
    }

    /// The turn is over.
    #[inline]
    pub(super) fn turned(&mut self, busy: bool) {
        self.turns.busy += u64::from(busy);
        self.steps.turned(busy);
    }

    /// Where the worker is now, for who looks.
    #[inline(always)]
    pub(super) fn at(&self, place: Place) {
        self.beat.at(place);
    }

    /// A step has done something.
    #[inline]
    pub(super) fn mark(&mut self, step: Step) {
        self.steps.mark(step);
    }

    /// A lane was looked after, having done so much.
    #[inline]
    pub(super) fn worked(&mut self, lane: u32, work: u32) {
        self.spent.add(lane, work);
    }

    /// Shares the time since the turn began out among the lanes of the turn.
    #[inline]
    pub(super) fn charge_lanes(&mut self, began: Time, now: Time, lanes: &mut Lanes) {
        if self.spent.is_empty() {
            return;
        }
        let nanos = now.saturating_duration_since(began).as_nanos() as u64;
        if self.long_tasks.is_long(nanos) {
            self.look_for_long_tasks(nanos);
        }
        self.spent.share_out(nanos, lanes);
    }

    /// The last turn took longer than a task may.
    #[cold]
    fn look_for_long_tasks(&mut self, nanos: u64) {
        let seen = self.beat.last_task();
        let last = seen.map(|task| Ran { task, lane: self.last_lane, ticks: 0 });
        self.long_tasks.judge(nanos, self.steps.last_turn(), self.turns.all, last);
    }

    /// The tasks of a turn are about to run; whether each is to be measured.
    #[inline]
    pub(super) fn tasks_begin(&mut self) -> bool {
        self.long_tasks.measures(self.turns.all)
    }

    /// Tasks of another lane than before are about to run.
    #[inline]
    pub(super) fn tasks_of(&mut self, lane: u32) {
        self.beat.at_tasks_of(lane);
        self.last_lane = lane;
    }

    /// A task is about to run.
    #[inline]
    pub(super) fn runs(&self, task: &'static Location<'static>) {
        self.beat.runs(task);
    }

    /// A task of a turn that is measured has run for so many ticks.
    pub(super) fn ran(&mut self, task: &'static Location<'static>, lane: u32, ticks: u64) {
        self.long_tasks.ran(task, lane, ticks);
    }

    /// So many tasks ran in this turn.
    #[inline]
    pub(super) fn tasks_ran(&mut self, tasks: usize) {
        self.long_tasks.ran = tasks;
    }

    /// From `now` on the worker sleeps.
    pub(super) fn falls_asleep(&mut self, now: Time) {
        self.turns.sleeps += 1;
        self.steps.falls_asleep(now);
    }

    /// It is awake; `woken`: by another thread.
    pub(super) fn woke(&mut self, woken: bool) {
        self.meeting.woken += u64::from(woken);
    }

    /// A burst was cut short, or not, because a ring to another worker had no room for more.
    pub(super) fn held_back(&mut self, cut: bool) {
        self.meeting.held_back += u64::from(cut);
    }

    /// A lane begins, or not, to wait for room on a link or for a free frame.
    pub(super) fn waits_for_room(&mut self, begins: bool) {
        self.meeting.room_waits += u64::from(begins);
    }

    /// So many panics when what applications gave away was dropped.
    #[inline]
    pub(super) fn panicked(&mut self, times: usize) {
        self.panics += times as u64;
    }

    pub(super) fn turns(&self) -> Turns {
        self.turns
    }

    pub(super) fn meeting(&self) -> Meeting {
        self.meeting
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics
    }

    /// Where the time went until the clock was read last.
    pub(super) fn times(&mut self) -> StepTimes {
        self.steps.so_far()
    }

    pub(super) fn long_tasks(&self) -> LongTasks {
        self.long_tasks.report()
    }

    pub(super) fn perf(&self) -> Option<Box<PerfReport>> {
        self.perf.as_ref().map(|perf| Box::new(perf.report()))
    }
}
