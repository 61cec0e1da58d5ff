//! The lanes that a worker holds: which of them are to be looked after this turn, which wait, and when each wants to be woken.
//!
//! A lane that is touched is noted, and only these are polled for output, messages and deadlines at the end of the turn, so idle lanes
//! cost nothing.

mod waiting;

use std::iter;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use self::waiting::Waiting;
use crate::lane::LaneSlot;

/// The lanes of one worker.
pub(crate) struct Lanes {
    /// All lanes of the runtime by index; `Some` for those held here.
    slots: Vec<Option<Box<LaneSlot>>>,
    /// Lanes to be looked after at the end of this turn.
    touched: Vec<u32>,
    /// The other of two lists that take turns.
    spare: Vec<u32>,
    /// Those with output for which there is no room or no free frame.
    waiting: Waiting,
    /// When each lane wants to be woken.
    deadlines: Vec<Time>,
    /// No later than the earliest of `deadlines`.
    next_deadline: Time,
    /// More frames of a burst follow: lanes may hold segments until its end.
    in_burst: bool,
}

/// Notes a lane, unless it is noted already.
#[inline]
fn mark(touched: &mut Vec<u32>, slot: &mut LaneSlot, lane: u32) {
    if !slot.touched {
        slot.touched = true;
        touched.push(lane);
    }
}

impl Lanes {
    /// All lanes of the runtime by index; `Some` for those held here.
    pub(super) fn new(slots: Vec<Option<Box<LaneSlot>>>) -> Self {
        let count = slots.len();
        Self {
            slots,
            touched: Vec::with_capacity(count),
            spare: Vec::with_capacity(count),
            waiting: Waiting::default(),
            deadlines: vec![Time::MAX; count],
            next_deadline: Time::MAX,
            in_burst: false,
        }
    }

    /// A lane, if it is here.
    #[inline]
    pub(super) fn get(&self, lane: u32) -> Option<&LaneSlot> {
        self.slots.get(lane as usize)?.as_deref()
    }

    /// A lane, if it is here, for what needs no look at it afterwards.
    #[inline]
    pub(super) fn get_mut(&mut self, lane: u32) -> Option<&mut LaneSlot> {
        self.slots.get_mut(lane as usize)?.as_deref_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LaneSlot> {
        self.slots.iter().flatten().map(|slot| &**slot)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut LaneSlot> {
        self.slots.iter_mut().flatten().map(|slot| &mut **slot)
    }

    /// A lane, if it is here; it is looked after at the end of this turn.
    #[inline]
    pub(super) fn touch(&mut self, lane: u32) -> Option<&mut LaneSlot> {
        let slot = self.slots.get_mut(lane as usize)?.as_deref_mut()?;
        mark(&mut self.touched, slot, lane);
        Some(slot)
    }

    /// The lanes here for which `which` holds; they are looked after at the end of this turn.
    pub(super) fn touch_all(
        &mut self,
        which: impl Fn(&LaneSlot) -> bool,
    ) -> impl Iterator<Item = &mut LaneSlot> {
        let touched = &mut self.touched;
        self.slots.iter_mut().zip(0..).filter_map(move |(slot, lane)| {
            let slot = slot.as_deref_mut().filter(|slot| which(slot))?;
            mark(touched, slot, lane);
            Some(slot)
        })
    }

    /// Lends a lane out while its tasks run, to be [put back](Self::put); it is looked after at the end of this turn.
    #[inline]
    pub(super) fn lend(&mut self, lane: u32) -> Option<Box<LaneSlot>> {
        let mut slot = self.slots.get_mut(lane as usize)?.take()?;
        mark(&mut self.touched, &mut slot, lane);
        Some(slot)
    }

    /// A lane comes, or comes back.
    #[inline]
    pub(super) fn put(&mut self, lane: u32, slot: Option<Box<LaneSlot>>) {
        self.slots[lane as usize] = slot;
    }

    /// A lane leaves for good.
    pub(super) fn remove(&mut self, lane: u32) -> Option<Box<LaneSlot>> {
        let mut slot = self.slots[lane as usize].take()?;
        self.touched.retain(|l| *l != lane);
        self.waiting.remove(lane);
        (slot.touched, slot.waiting) = (false, false);
        self.deadlines[lane as usize] = Time::MAX;
        Some(slot)
    }

    /// Whether any is to be looked after.
    #[inline]
    pub(super) fn are_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Those to be looked after, to be [given back](Self::looked_after_all): the ones touched meanwhile wait for the next turn.
    #[inline]
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::replace(&mut self.touched, std::mem::take(&mut self.spare))
    }

    /// Gives the empty list back.
    #[inline]
    pub(super) fn looked_after_all(&mut self, list: Vec<u32>) {
        self.spare = list;
        self.waiting.looked_after_all();
    }

    /// A lane has been looked after, and wants to be woken at its deadline, if it has one.
    #[inline]
    pub(super) fn wake_at(&mut self, lane: u32, deadline: Option<Time>) {
        let deadline = deadline.unwrap_or(Time::MAX);
        self.deadlines[lane as usize] = deadline;
        self.next_deadline = self.next_deadline.min(deadline);
    }

    /// No later than the time at which the first lane wants to be woken.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.next_deadline
    }

    /// Runs what is due.
    #[inline]
    pub(super) fn fire_timers(&mut self, now: Time, frames: &Pool) -> bool {
        if now < self.next_deadline {
            return false;
        }
        for ((slot, deadline), lane) in iter::zip(&mut self.slots, &mut self.deadlines).zip(0..) {
            if *deadline > now {
                continue;
            }
            let Some(slot) = slot else {
                *deadline = Time::MAX;
                continue;
            };
            slot.lane.on_timer(now, frames);
            slot.sleepers.wake_due(now);
            if let Some(kernel) = &mut slot.kernel {
                kernel.look_at_flows(now);
            }
            mark(&mut self.touched, slot, lane);
        }
        self.next_deadline = self.deadlines.iter().copied().min().unwrap_or(Time::MAX);
        true
    }

    /// A burst of so many frames is given to lanes, until its [end](Self::end_burst).
    #[inline]
    pub(super) fn begin_burst(&mut self, frames: usize) {
        self.in_burst = frames > 1;
    }

    /// Whether more frames of a burst follow.
    #[inline]
    pub(super) fn are_in_burst(&self) -> bool {
        self.in_burst
    }

    /// A burst has been given in: what lanes held of it is handled.
    #[inline]
    pub(super) fn end_burst(&mut self, now: Time, frames: &Pool) {
        if std::mem::take(&mut self.in_burst) {
            for &lane in &self.touched {
                if let Some(slot) = &mut self.slots[lane as usize] {
                    slot.lane.end_burst(now, frames);
                }
            }
        }
    }
}
