//! Where the time of a worker goes: receive, stack, tasks, netisr, transmit, looking, asleep.
//!
//! ```text
//!   clock      now ───────────── a turn ───────────── now ─────── idle turn ─────── now ─── sleep ─── now
//!   charged     └ busy, divided in proportion to ticks ┘└────────── looking ─────────┘└─── asleep ────┘
//!   ticks       │ receive │ stack │ tasks │ stack │ transmit │
//! ```
//!
//! Every nanosecond between two clock readings of the loop is charged once: to `looking` after a turn that found nothing, to `asleep` after
//! a sleep, else to what busy turns took. A busy turn is divided among its steps by the processor's own counter
//! ([`flowlane_sys::ticks`]), read after each step that did something: no step costs a clock reading of its own. A step that found nothing
//! reads nothing; its time goes with the next step that did something. The division is made when somebody asks, over all turns since it was
//! made last, so that no time once charged is ever taken back.
//!
//! Lanes share out the same time among themselves ([`spent`](super::spent)), by their frames and tasks.

use flowlane_stack::time::Time;
use flowlane_sys::ticks;

use crate::shared::Place;
use crate::stats::StepTimes;

/// A part of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Step {
    Receive,
    Stack,
    Tasks,
    Netisr,
    Transmit,
}

impl Step {
    /// What the worker says of where it is.
    #[inline(always)]
    pub(in super::super) fn place(self) -> Place {
        match self {
            Self::Receive => Place::Receive,
            Self::Stack => Place::Stack,
            Self::Tasks => Place::Tasks,
            Self::Netisr => Place::Netisr,
            Self::Transmit => Place::Transmit,
        }
    }
}

/// Number of steps.
const STEPS: usize = 5;

/// What the worker has done since the clock was read last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Looking,
    Working,
    Sleeping,
}

/// The time of one worker.
#[derive(Debug, Default)]
pub(super) struct Steps {
    charged: StepTimes,
    /// When the clock was read last: all time before has been charged.
    until: Time,
    doing: Doing,
    /// Time of busy turns that is not divided yet, nanoseconds.
    undivided: u64,
    /// Ticks of each step in that time.
    ticks: [u64; STEPS],
    /// The counter when it was read last.
    tick: u64,
    /// The counter when the turn began, and ticks of its tasks.
    turn: (u64, u64),
}

impl Steps {
    /// Counts from now on.
    pub(super) fn new(now: Time) -> Self {
        Self { until: now, tick: ticks::now(), ..Self::default() }
    }

    /// The clock was read at the beginning of a turn.
    #[inline]
    pub(super) fn turn_begins(&mut self, now: Time) {
        self.charge(now);
        self.tick = ticks::now();
        self.turn = (self.tick, 0);
    }

    /// Ticks of the last turn that did something: in all, and in tasks.
    pub(super) fn last_turn(&self) -> (u64, u64) {
        (self.tick.saturating_sub(self.turn.0), self.turn.1)
    }

    /// A step has done something.
    #[inline]
    pub(super) fn mark(&mut self, step: Step) {
        let tick = ticks::now();
        // Less than before: another processor's counter.
        let took = tick.saturating_sub(self.tick);
        self.ticks[step as usize] += took;
        if step == Step::Tasks {
            self.turn.1 += took;
        }
        self.tick = tick;
    }

    /// The turn is over.
    #[inline]
    pub(super) fn turned(&mut self, busy: bool) {
        self.doing = if busy { Doing::Working } else { Doing::Looking };
    }

    /// From `now` on the worker sleeps.
    pub(super) fn falls_asleep(&mut self, now: Time) {
        self.charge(now);
        self.doing = Doing::Sleeping;
    }

    #[inline]
    fn charge(&mut self, now: Time) {
        let nanos = now.as_nanos().saturating_sub(self.until.as_nanos());
        self.until = now;
        match self.doing {
            Doing::Looking => self.charged.looking += nanos,
            Doing::Working => self.undivided += nanos,
            Doing::Sleeping => self.charged.asleep += nanos,
        }
    }

    /// What was charged until the clock was read last.
    pub(super) fn so_far(&mut self) -> StepTimes {
        let shares = divide(std::mem::take(&mut self.undivided), std::mem::take(&mut self.ticks));
        let charged = &mut self.charged;
        let steps = [
            &mut charged.receive,
            &mut charged.stack,
            &mut charged.tasks,
            &mut charged.netisr,
            &mut charged.transmit,
        ];
        steps.into_iter().zip(shares).for_each(|(sum, share)| *sum += share);
        *charged
    }
}

/// `nanos` in proportion to the ticks. What rounding leaves goes to the longest step; without ticks, all of it goes to netisr: a turn is
/// busy without a step only while something waits for a ring to another worker.
fn divide(nanos: u64, ticks: [u64; STEPS]) -> [u64; STEPS] {
    let total: u128 = ticks.iter().map(|t| u128::from(*t)).sum();
    let mut shares =
        ticks.map(|t| (u128::from(nanos) * u128::from(t)).checked_div(total).unwrap_or(0) as u64);
    let longest = (0..STEPS).max_by_key(|s| ticks[*s]).filter(|_| total > 0);
    shares[longest.unwrap_or(Step::Netisr as usize)] += nanos - shares.iter().sum::<u64>();
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nanosecond_is_charged_once() {
        let at = Time::from_nanos;
        let mut steps = Steps::new(at(1000));
        let mut now = 1000;
        let mut last = StepTimes::default();
        let mut busy_time = 0;
        for turn in 0..1000u64 {
            steps.turn_begins(at(now));
            let busy = turn % 3 != 0;
            if busy {
                steps.mark(Step::Receive);
                steps.mark(Step::Stack);
                steps.ticks[Step::Tasks as usize] += 1 + turn * 7;
            }
            steps.turned(busy);
            now += 13 + turn * 17 % 101;
            if busy {
                busy_time += 13 + turn * 17 % 101;
            }
            if turn % 5 == 0 {
                steps.falls_asleep(at(now));
                now += 12_345;
            }
            if turn % 70 == 0 {
                let times = steps.so_far();
                assert_eq!(times.total(), steps.until.as_nanos() - 1000);
                let grew = |(new, old): (u64, &u64)| new >= *old;
                assert!(times.values().into_iter().zip(&last.values()).all(grew), "{last:?} {times:?}");
                last = times;
            }
        }
        steps.turn_begins(at(now));
        let times = steps.so_far();
        assert_eq!(times.total(), now - 1000);
        assert_eq!(times.asleep, 200 * 12_345);
        assert_eq!(times.total() - times.looking - times.asleep, busy_time);
        assert_eq!((times.netisr, times.transmit), (0, 0));
    }

    #[test]
    fn a_turn_is_divided_by_its_ticks() {
        assert_eq!(divide(1000, [1, 2, 5, 0, 2]), [100, 200, 500, 0, 200]);
        assert_eq!(divide(1000, [1, 1, 0, 0, 1]), [333, 333, 0, 0, 334]);
        assert_eq!(divide(7, [0; STEPS]), [0, 0, 0, 7, 0]);
        assert_eq!(divide(0, [3; STEPS]), [0; STEPS]);
        assert_eq!(divide(u64::MAX, [u64::MAX; STEPS]).iter().sum::<u64>(), u64::MAX);
    }
}
