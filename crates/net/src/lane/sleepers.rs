//! Tasks that sleep in one lane.
//!
//! A heap of exact deadlines, not a wheel: load generators send by these, and a tick of a millisecond is a thousand
//! times too coarse for them. Cancelled entries stay in the heap until they are due or outnumber the others.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use flowlane_stack::time::Time;

/// Names a sleeping task of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SleepId {
    slot: u32,
    generation: u32,
}

/// Tasks that sleep in one lane.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    heap: BinaryHeap<Reverse<(Time, u32, u32)>>,
    slots: Vec<Sleeper>,
    free: Vec<u32>,
    cancelled: usize,
}

#[derive(Debug)]
struct Sleeper {
    waker: Option<Waker>,
    generation: u32,
    /// Its entry is still in the heap.
    queued: bool,
}

impl Sleepers {
    /// Has `waker` woken at `deadline`.
    pub(crate) fn add(&mut self, deadline: Time, waker: &Waker) -> SleepId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Sleeper { waker: None, generation: 0, queued: false });
            self.slots.len() as u32 - 1
        });
        let sleeper = &mut self.slots[slot as usize];
        sleeper.waker = Some(waker.clone());
        sleeper.queued = true;
        let generation = sleeper.generation;
        self.heap.push(Reverse((deadline, slot, generation)));
        SleepId { slot, generation }
    }

    fn get(&mut self, id: SleepId) -> Option<&mut Sleeper> {
        self.slots.get_mut(id.slot as usize).filter(|s| s.generation == id.generation)
    }

    /// Another waker is to be woken in place of the one before.
    pub(crate) fn set_waker(&mut self, id: SleepId, waker: &Waker) {
        if let Some(sleeper) = self.get(id) {
            match &sleeper.waker {
                Some(w) if w.will_wake(waker) => {}
                _ => sleeper.waker = Some(waker.clone()),
            }
        }
    }

    /// Removes the entry: it wakes no task any more.
    pub(crate) fn remove(&mut self, id: SleepId) {
        let Some(sleeper) = self.get(id) else { return };
        sleeper.generation = sleeper.generation.wrapping_add(1);
        sleeper.waker = None;
        self.cancelled += usize::from(std::mem::take(&mut sleeper.queued));
        self.free.push(id.slot);
        if self.cancelled > 64 && self.cancelled > self.heap.len() / 2 {
            let slots = &self.slots;
            self.heap
                .retain(|Reverse((_, slot, generation))| slots[*slot as usize].generation == *generation);
            self.cancelled = 0;
        }
    }

    /// When the next sleeper is due; an entry that was cancelled may make this too early.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Wakes the tasks that are due.
    pub(crate) fn wake_due(&mut self, now: Time) {
        while let Some(Reverse((at, slot, generation))) = self.heap.peek().copied() {
            if at > now {
                return;
            }
            self.heap.pop();
            let sleeper = &mut self.slots[slot as usize];
            if sleeper.generation != generation {
                self.cancelled = self.cancelled.saturating_sub(1);
                continue;
            }
            sleeper.queued = false;
            if let Some(waker) = sleeper.waker.take() {
                waker.wake();
            }
        }
    }
}
