//! What a worker says of where it is, for the [watchdog](crate::watchdog): a store when a step of a turn begins, one when a task begins to run.
//!
//! Each worker's stores go to cache lines of its own, which others read only when a watchdog looks, a few times a second.

use std::panic::Location;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use flowlane_sys::published::Published;

/// Where in a turn a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Place {
    /// It has not begun, or has ended.
    Away,
    Asleep,
    Receive,
    Stack,
    Tasks,
    Netisr,
    Transmit,
}

impl Place {
    const ALL: [Self; 7] =
        [Self::Away, Self::Asleep, Self::Receive, Self::Stack, Self::Tasks, Self::Netisr, Self::Transmit];

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        ["away", "asleep", "receive", "stack", "tasks", "netisr", "transmit"][self as usize]
    }
}

/// Bits of the lane.
const LANE: u32 = (1 << 24) - 1;

/// Where one worker is.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Beat {
    /// Turns of its loop, the low bits.
    turn: AtomicU32,
    /// The place, in the upper eight bits; below the lane of its tasks plus one, or 0.
    place: AtomicU32,
    /// The task that runs, or ran last.
    task: Published<Location<'static>>,
    /// Its thread, as the kernel counts.
    thread: AtomicI32,
}

/// What somebody else saw of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) turn: u32,
    pub(crate) place: Place,
    pub(crate) lane: Option<u32>,
    pub(crate) task: Option<&'static Location<'static>>,
    pub(crate) thread: i32,
}

impl Beat {
    /// The worker's thread begins.
    pub(crate) fn begins(&self) {
        self.thread.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    }

    /// A turn begins.
    #[inline(always)]
    pub(crate) fn turn(&self, number: u64) {
        self.turn.store(number as u32, Ordering::Relaxed);
    }

    /// The worker is here from now on.
    #[inline(always)]
    pub(crate) fn at(&self, place: Place) {
        self.place.store((place as u32) << 24, Ordering::Relaxed);
    }

    /// Tasks of this lane run from now on.
    #[inline(always)]
    pub(crate) fn at_tasks_of(&self, lane: u32) {
        self.place.store(((Place::Tasks as u32) << 24) | ((lane + 1) & LANE), Ordering::Relaxed);
    }

    /// This task begins to run.
    #[inline(always)]
    pub(crate) fn runs(&self, task: &'static Location<'static>) {
        self.task.set(task);
    }

    /// The worker's own: the task that ran last.
    pub(crate) fn last_task(&self) -> Option<&'static Location<'static>> {
        self.task.get()
    }

    /// What it is doing, for others. The parts may be of different moments if it goes on meanwhile.
    pub(crate) fn see(&self) -> Seen {
        let turn = self.turn.load(Ordering::Acquire);
        let word = self.place.load(Ordering::Acquire);
        let place = Place::ALL.get((word >> 24) as usize).copied().unwrap_or(Place::Away);
        let task = if place == Place::Tasks { self.task.get() } else { None };
        let lane = (word & LANE).checked_sub(1);
        Seen { turn, place, lane, task, thread: self.thread.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_see_where_it_is() {
        let beat = Beat::default();
        assert_eq!((beat.see().place, beat.see().lane), (Place::Away, None));
        beat.turn(u64::from(u32::MAX) + 8);
        let here = Location::caller();
        beat.runs(here);
        for lane in [0, 1, LANE - 1] {
            beat.at_tasks_of(lane);
            let seen = beat.see();
            assert_eq!((seen.turn, seen.place, seen.lane), (7, Place::Tasks, Some(lane)));
            assert_eq!(seen.task, Some(here));
        }
        for place in Place::ALL {
            beat.at(place);
            assert_eq!((beat.see().place, beat.see().lane), (place, None));
            assert_eq!(beat.see().task.is_some(), place == Place::Tasks);
        }
    }
}
