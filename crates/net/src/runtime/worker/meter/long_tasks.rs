//! Tasks that hold their worker for longer than a budget.
//!
//! While a task runs, nothing else of its worker does: no packet of any lane, no timer. The clock is read once a turn, so a turn that was
//! short costs a comparison. After a long one, its time is divided by the processor's counter, as [`steps`](super::steps) does: if one task ran in
//! it, that task is known; if several did, each task of the next turns is measured by the counter, and those that do it again are known. What is
//! kept is a table of fixed size, by the line of the program that began the task.

use std::panic::Location;

use crate::stats::{LongTask, LongTasks};

/// Lines of the program that are kept.
const KEPT: usize = 32;
/// Turns whose tasks are measured after a long one in which several ran.
const MEASURED: u64 = 4096;

/// A task that ran, with the ticks that it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    pub(super) task: &'static Location<'static>,
    pub(super) lane: u32,
    pub(super) ticks: u64,
}

/// What is known of long tasks.
#[derive(Debug)]
pub(super) struct LongTaskFinder {
    /// Nanoseconds; the most there are for no budget.
    budget: u64,
    /// Tasks are measured in turns before this one.
    until: u64,
    /// Tasks that ran in this turn.
    pub(super) ran: usize,
    /// In a turn that is measured: the longest.
    longest: Option<Ran>,
    found: LongTasks,
}

impl LongTaskFinder {
    pub(super) fn new(budget: std::time::Duration) -> Self {
        let budget = if budget.is_zero() { u64::MAX } else { budget.as_nanos().min(u64::MAX.into()) as u64 };
        let found = LongTasks { budget_nanos: budget, ..LongTasks::default() };
        Self { budget, until: 0, ran: 0, longest: None, found }
    }

    /// Whether the tasks of this turn are measured.
    #[inline]
    pub(super) fn measures(&mut self, turn: u64) -> bool {
        self.longest = None;
        turn < self.until
    }

    /// A task of a turn that is measured has run.
    pub(super) fn ran(&mut self, task: &'static Location<'static>, lane: u32, ticks: u64) {
        if self.longest.is_none_or(|longest| longest.ticks < ticks) {
            self.longest = Some(Ran { task, lane, ticks });
        }
    }

    /// Whether a turn of so many nanoseconds is worth a look.
    #[inline(always)]
    pub(super) fn is_long(&self, nanos: u64) -> bool {
        nanos > self.budget
    }

    pub(super) fn report(&self) -> LongTasks {
        self.found.clone()
    }

    /// A turn took `nanos`: so many ticks in all, of them in tasks `ticks`; `last` is the task that ran last.
    pub(super) fn judge(&mut self, nanos: u64, (all, ticks): (u64, u64), turn: u64, last: Option<Ran>) {
        let part = |ticks: u64| {
            (u128::from(nanos) * u128::from(ticks)).checked_div(u128::from(all)).unwrap_or(0) as u64
        };
        if !self.is_long(part(ticks)) {
            return;
        }
        let measured = turn < self.until;
        self.until = turn + MEASURED;
        let known = match self.ran {
            1 => last.map(|last| Ran { ticks, ..last }),
            _ if measured => self.longest,
            _ => {
                self.found.unnamed += 1;
                return;
            }
        };
        // Several that were long only together are no fault of one.
        if let Some(known) = known.filter(|known| self.is_long(part(known.ticks))) {
            self.keep(known.task.to_string(), known.lane, part(known.ticks));
        }
    }

    fn keep(&mut self, task: String, lane: u32, nanos: u64) {
        if let Some(kept) = self.found.tasks.iter_mut().find(|kept| kept.task == task) {
            kept.times += 1;
            kept.lane = lane;
            kept.longest_nanos = kept.longest_nanos.max(nanos);
        // Guard: `self.found.tasks.len() < KEPT` as `true` fails long_tasks::tests::the_table_has_an_end
        } else if self.found.tasks.len() < KEPT {
            self.found.tasks.push(LongTask { task, times: 1, longest_nanos: nanos, lane });
        } else {
            self.found.unnamed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const BUDGET: u64 = 1_000_000;

    fn ran(ticks: u64) -> Ran {
        Ran { task: Location::caller(), lane: 3, ticks }
    }

    #[test]
    fn the_only_task_of_a_long_turn_is_known() {
        let mut over = LongTaskFinder::new(Duration::from_nanos(BUDGET));
        over.ran = 1;
        // Most of a long turn was not the task's.
        over.judge(5 * BUDGET, (1000, 100), 1, Some(ran(0)));
        assert_eq!(over.report().tasks, []);
        over.judge(5 * BUDGET, (1000, 900), 2, Some(ran(0)));
        over.judge(3 * BUDGET, (1000, 1000), 3, Some(ran(0)));
        let found = over.report();
        assert_eq!((found.tasks.len(), found.tasks[0].times, found.unnamed), (1, 2, 0), "{found:?}");
        assert_eq!(found.tasks[0].longest_nanos, 4_500_000);
        assert!(found.tasks[0].task.contains("long_tasks.rs:") && found.tasks[0].lane == 3);
    }

    #[test]
    fn of_several_the_one_that_does_it_again_is_known() {
        let mut over = LongTaskFinder::new(Duration::from_nanos(BUDGET));
        over.ran = 7;
        assert!(!over.measures(10));
        over.judge(2 * BUDGET, (1000, 1000), 10, Some(ran(0)));
        assert_eq!((over.report().unnamed, over.report().tasks.len()), (1, 0));
        for turn in [11, 12] {
            assert!(over.measures(turn));
            [5, 900, 20].into_iter().for_each(|ticks| over.ran(ran(ticks).task, 9, ticks));
            over.judge(2 * BUDGET, (1000, 1000), turn, Some(ran(0)));
        }
        let found = over.report();
        assert_eq!((found.unnamed, found.tasks[0].times, found.tasks[0].lane), (1, 2, 9), "{found:?}");
        assert_eq!(found.tasks[0].longest_nanos, 1_800_000);
        // Long only together.
        assert!(over.measures(13));
        [400, 300, 300].into_iter().for_each(|ticks| over.ran(ran(ticks).task, 9, ticks));
        over.judge(2 * BUDGET, (1000, 1000), 13, Some(ran(0)));
        assert_eq!(over.report(), found);
        assert!(!over.measures(13 + MEASURED), "and then no task is measured any more");
    }

    #[test]
    fn the_table_has_an_end_and_no_budget_finds_nothing() {
        let mut over = LongTaskFinder::new(Duration::from_nanos(BUDGET));
        (0..2 * KEPT).for_each(|line| over.keep(format!("src/main.rs:{line}:1"), 0, 2 * BUDGET));
        (0..KEPT).for_each(|line| over.keep(format!("src/main.rs:{line}:1"), 0, 3 * BUDGET));
        let found = over.report();
        assert_eq!((found.tasks.len(), found.unnamed), (KEPT, KEPT as u64));
        assert!(found.tasks.iter().all(|task| (task.times, task.longest_nanos) == (2, 3 * BUDGET)));
        assert!(!LongTaskFinder::new(Duration::ZERO).is_long(u64::MAX));
    }
}
