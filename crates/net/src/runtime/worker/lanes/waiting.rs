//! Lanes that have output for which a link has no room, or the pool no frame. They are not polled again before there is either, so that
//! waiting costs no turns.

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::Lanes;
use crate::events;
use crate::runtime::worker::ports::Backoff;

/// Free frames with which it is worth asking lanes again that found none.
const PLENTY: usize = 64;

/// The lanes of a worker that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    lanes: Vec<u32>,
    /// There were too few free frames for a lane's output: when to ask again.
    frames: Option<Backoff>,
    /// When that was told last.
    told: Option<Time>,
}

impl Waiting {
    pub(super) fn remove(&mut self, lane: u32) {
        self.lanes.retain(|l| *l != lane);
    }

    #[inline]
    pub(super) fn looked_after_all(&mut self) {
        if self.lanes.is_empty() {
            self.frames = None;
        }
    }
}

impl Lanes {
    /// Whether any has output that waits.
    #[inline]
    pub(in super::super) fn are_waiting(&self) -> bool {
        !self.waiting.lanes.is_empty()
    }

    /// A lane's output waits. `true` if it did not before.
    pub(in super::super) fn wait(&mut self, lane: u32) -> bool {
        let Some(slot) = self.slots[lane as usize].as_mut().filter(|slot| !slot.waiting) else {
            return false;
        };
        slot.waiting = true;
        self.waiting.lanes.push(lane);
        true
    }

    /// There were too few free frames for a lane's output.
    pub(in super::super) fn lack_frames(&mut self, worker: usize, now: Time) {
        if self.waiting.frames.is_none() {
            events::no_frames(worker, now, &mut self.waiting.told);
        }
        self.waiting.frames.get_or_insert(Backoff::new(now));
    }

    /// When to look for free frames again, if they were lacking.
    pub(in super::super) fn retry_at(&self) -> Option<Time> {
        self.waiting.frames.as_ref().map(Backoff::at)
    }

    /// Whether there are free frames again, or it is time to ask again.
    pub(in super::super) fn found_frames(&mut self, now: Time, frames: &Pool) -> bool {
        let Some(backoff) = &mut self.waiting.frames else { return false };
        frames.gather();
        let plenty = frames.free() >= PLENTY;
        let found = plenty || now >= backoff.at();
        if found {
            backoff.longer(now);
        }
        if plenty {
            self.waiting.frames = None;
        }
        found
    }

    /// Touches the lanes that wait: before the others, and each of them once first, so that none takes all the room there is.
    pub(in super::super) fn touch_waiting(&mut self) {
        let mut first = std::mem::take(&mut self.waiting.lanes);
        if first.len() > 1 {
            first.rotate_left(1);
        }
        let slots = &mut self.slots;
        let waited = |lane: &u32| slots[*lane as usize].as_ref().is_some_and(|slot| slot.waiting);
        self.touched.retain(|lane| !waited(lane));
        let others = std::mem::take(&mut self.touched);
        for lane in first.drain(..) {
            if let Some(slot) = &mut slots[lane as usize] {
                (slot.waiting, slot.touched) = (false, true);
                self.touched.push(lane);
            }
        }
        self.touched.extend(others);
        self.waiting.lanes = first;
    }
}
