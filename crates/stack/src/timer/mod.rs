//! A timing wheel: any number of timers, each armed and cancelled at constant cost.
//!
//! A lane with a million connections has about a million timers, and nearly all of them are cancelled or pushed back
//! before they fire. So arming and cancelling must not depend on how many there are, and neither must the work done at
//! any one moment, or a packet that arrives at a bad time waits for it.
//!
//! **The shape.** Time is counted in ticks of one millisecond. A timer hangs in a slot of one of [`LEVELS`] levels: a slot of
//! level 0 is one tick wide, a slot of level 1 is 64 ticks, of level 2 64² ticks, and so on. The further away the deadline,
//! the wider the slot. When the clock comes to a wide slot, its timers move to narrower ones (a textbook hierarchical
//! wheel, Varghese and Lauck 1987, scheme 7).
//!
//! **Difference.** In the textbook a slot is emptied all at once when its time comes; with 500,000 connections closing each second, these are two
//! million TIME-WAIT timers every four seconds. Here each level has 128 slots, room for *two* slots of the level above, so the next wide
//! slot can be emptied while the one before it is still current: a few timers at each tick, in proportion to the rest. Only the timers
//! still there when its time comes are moved at once.
//!
//! ```text
//!   level 1        now: slot 5          slot 6 (draining)     slot 7 ...
//!                 ┌────────────────────┬────────────────────┬──────
//!   level 0       │ ticks 320 .. 383   │ ticks 384 .. 447   │  (not yet)
//!                 └──────▲─────────────┴────────────────────┘
//!                       now
//! ```
//!
//! **Pushing back is cheaper still.** A retransmission timer is pushed back with nearly every acknowledgment. A timer that gets a
//! later deadline stays where it hangs and only its node is written; it moves when its old time comes.
//!
//! **Invariants.** Let `n(l, t) = t >> 6l` be the number of the slot of tick `t` on level `l`. A timer hangs in a slot
//! whose number is `n(l, t)` for some `t` not after its deadline. `n(l + 1, t)` is the current or the next slot of the level
//! above, so that 128 slots never confuse two numbers. A slot is empty by the time it is no longer the current one; on
//! the levels above the lowest, already when it becomes current.
//!
//! **Promises.** A timer never fires before its deadline, which is rounded up to a whole tick, so it fires less than a tick late if
//! the wheel is advanced in time. Timers fire in the order of their ticks; within one tick in no particular order. Memory
//! is allocated only when the number of timers exceeds what it ever was: 24 bytes for each with a token of four bytes,
//! and 8 KiB for the slots.

mod lists;
mod turning;

use crate::time::Time;
use core::fmt;
use core::num::NonZeroU32;

/// Nanoseconds in a tick.
pub const TICK_NANOS: u64 = 1_000_000;
/// How many levels there are: enough for every deadline that a [`Time`] can express.
pub const LEVELS: usize = 8;

/// Slots of one level, twice the ratio between the widths of two levels.
const SLOTS: usize = 128;
const RATIO_BITS: u32 = 6;
/// No node.
const NIL: u32 = u32::MAX;
/// About how many timers are moved to narrower slots at a time.
const PORTION: u64 = 256;
/// A node's slot is kept in the lower bits beside its tick.
const SLOT_BITS: u32 = 10;
const _: () = assert!(LEVELS * SLOTS == 1 << SLOT_BITS);

/// Handle of an armed timer. It is never reused, so a late [`cancel`](Wheel::cancel) is harmless.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId {
    index: u32,
    generation: NonZeroU32,
}

impl TimerId {
    /// Where it hangs, for owners who know whether it is armed: see [`Wheel::named`].
    #[inline]
    pub(crate) const fn index(self) -> u32 {
        self.index
    }
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer {}.{}", self.index, self.generation)
    }
}

#[derive(Clone, Copy)]
struct Node<T> {
    /// The tick at which to fire, and the slot in which the node hangs until then.
    place: u64,
    /// The next node of the list, or of the free nodes.
    next: u32,
    /// The node before.
    back: u32,
    /// Changes when the timer ends.
    generation: NonZeroU32,
    token: T,
}

impl<T> Node<T> {
    #[inline]
    const fn tick(&self) -> u64 {
        self.place >> SLOT_BITS
    }

    #[inline]
    const fn slot(&self) -> usize {
        self.place as usize % (LEVELS * SLOTS)
    }
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    len: u32,
}

const EMPTY: List = List { first: NIL, len: 0 };

/// A set of timers, each with a small token that is given back when it fires.
pub struct Wheel<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    armed: u32,
    /// Everything before this tick has fired; what fires at this tick is in the current slot of the lowest level.
    now: u64,
    /// The tick at which timers were last moved ahead of time.
    drained_at: u64,
    /// Nothing needs to be done before this moment, unless something is due.
    work_at: Time,
    /// The slots of all levels.
    slots: Box<[List]>,
    /// One bit for each slot that is not empty.
    occupied: [u128; LEVELS],
    /// How many timers were ever moved to a narrower slot, to show that this is spread out.
    #[cfg(test)]
    moves: u64,
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel").field("armed", &self.armed).field("tick", &self.now).finish_non_exhaustive()
    }
}

impl<T: Copy> Wheel<T> {
    /// An empty wheel whose clock is at `now`.
    #[must_use]
    pub fn new(now: Time) -> Wheel<T> {
        Wheel::with_capacity(now, 0)
    }

    /// An empty wheel that holds `timers` timers before it has to allocate.
    #[must_use]
    pub fn with_capacity(now: Time, timers: usize) -> Wheel<T> {
        let now = now.as_nanos() / TICK_NANOS;
        Wheel {
            nodes: Vec::with_capacity(timers),
            free: NIL,
            armed: 0,
            now,
            drained_at: now,
            work_at: Time::MAX,
            slots: vec![EMPTY; LEVELS * SLOTS].into_boxed_slice(),
            occupied: [0; LEVELS],
            #[cfg(test)]
            moves: 0,
        }
    }

    /// How many timers are armed.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.armed as usize
    }

    /// Whether no timer is armed.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Arms a timer. A deadline that is not in the future is due at once.
    ///
    /// # Panics
    /// With more than four thousand million timers.
    pub fn arm(&mut self, deadline: Time, token: T) -> TimerId {
        let index = self.free;
        let (index, generation) = match self.nodes.get_mut(index as usize) {
            Some(node) => {
                self.free = node.next;
                node.token = token;
                (index, node.generation)
            }
            None => self.grow(token),
        };
        self.armed += 1;
        self.arm_at(index, tick_of(deadline));
        TimerId { index, generation }
    }

    /// Disarms a timer; false if it has fired or was cancelled already.
    pub fn cancel(&mut self, id: TimerId) -> bool {
        let live = self.is_armed(id);
        if live {
            self.unlink(id.index);
            self.release(id.index);
        }
        live
    }

    /// Gives an armed timer another deadline; its name stays. False if it has fired or was cancelled already.
    pub fn rearm(&mut self, id: TimerId, deadline: Time) -> bool {
        let Some(&Node { place, .. }) = self.live(id) else { return false };
        let tick = tick_of(deadline);
        let slot = place as usize % (LEVELS * SLOTS);
        if tick >= self.start_of(slot) {
            if let Some(node) = self.nodes.get_mut(id.index as usize) {
                node.place = tick << SLOT_BITS | slot as u64;
            }
        } else {
            self.unlink(id.index);
            self.arm_at(id.index, tick);
        }
        true
    }

    /// Whether a timer has neither fired nor been cancelled.
    #[inline]
    #[must_use]
    pub fn is_armed(&self, id: TimerId) -> bool {
        self.live(id).is_some()
    }

    /// The name of the timer that hangs there. Without its generation nobody could tell if it fired and another took its place.
    #[inline]
    pub(crate) fn named(&self, index: u32) -> Option<TimerId> {
        self.nodes.get(index as usize).map(|node| TimerId { index, generation: node.generation })
    }

    /// When an armed timer will fire: its deadline rounded up to a tick. `None` if it has fired or was cancelled.
    #[inline]
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Time> {
        self.live(id).map(|node| time_of(node.tick()))
    }

    /// Fires everything whose time has come, in order.
    pub fn advance(&mut self, now: Time, fire: &mut impl FnMut(T)) {
        while let Some(token) = self.pop_due(now) {
            fire(token);
        }
    }

    /// Takes one timer whose time has come, the earliest first. Timers may be armed and cancelled between calls; one that
    /// is armed for `now` or earlier is returned by this same series of calls. A clock that goes back does no harm.
    #[inline]
    pub fn pop_due(&mut self, now: Time) -> Option<T> {
        if !self.is_due() && now < self.work_at { None } else { self.pop(now.as_nanos() / TICK_NANOS) }
    }

    fn pop(&mut self, target: u64) -> Option<T> {
        loop {
            if !self.is_due() {
                self.turn(target);
            }
            let slot = slot_of(self.now, 0);
            let index = self.slots[slot].first;
            let Node { place, next, token, .. } = *self.nodes.get(index as usize)?;
            self.take_first(slot, next);
            let tick = place >> SLOT_BITS;
            if tick <= self.now {
                self.release(index);
                return Some(token);
            }
            // It was pushed back.
            self.arm_at(index, tick);
            #[cfg(test)]
            {
                self.moves += 1;
            }
        }
    }

    /// When to advance next: never after the moment at which a timer fires, and such that advancing then makes progress.
    /// It is earlier when timers have to move first: at most twice for each level, and more often only while a crowded
    /// slot is emptied in portions. `None` if nothing is armed.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.armed == 0 {
            None
        } else if self.is_due() {
            Some(time_of(self.now))
        } else {
            Some(self.work_at)
        }
    }

    /// Whether the current slot of the lowest level has timers: due ones, or some that were pushed back.
    #[inline]
    fn is_due(&self) -> bool {
        self.slots[slot_of(self.now, 0)].first != NIL
    }

    #[inline]
    fn live(&self, id: TimerId) -> Option<&Node<T>> {
        self.nodes.get(id.index as usize).filter(|node| node.generation == id.generation)
    }

    /// Gives a node that is in no list back.
    #[inline]
    fn release(&mut self, index: u32) {
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.generation = node.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            node.next = self.free;
            self.free = index;
            self.armed -= 1;
        }
    }

    #[cold]
    fn grow(&mut self, token: T) -> (u32, NonZeroU32) {
        let index = self.nodes.len();
        assert!(index < NIL as usize, "too many timers");
        let generation = NonZeroU32::MIN;
        self.nodes.push(Node { place: 0, next: NIL, back: NIL, generation, token });
        (index as u32, generation)
    }
}

impl<T: Copy> Default for Wheel<T> {
    /// An empty wheel whose clock stands at zero.
    fn default() -> Wheel<T> {
        Wheel::new(Time::ZERO)
    }
}

#[inline]
const fn shift(level: usize) -> u32 {
    level as u32 * RATIO_BITS
}

/// The slot of a tick on a level.
#[inline]
const fn slot_of(tick: u64, level: usize) -> usize {
    level * SLOTS + (tick >> shift(level)) as usize % SLOTS
}

/// The tick at which a deadline fires: the first that is not before it. The last tick of all is the end of time.
#[inline]
fn tick_of(deadline: Time) -> u64 {
    deadline.as_nanos().div_ceil(TICK_NANOS).min(u64::MAX / TICK_NANOS)
}

#[inline]
const fn time_of(tick: u64) -> Time {
    Time::from_nanos(tick.saturating_mul(TICK_NANOS))
}

#[cfg(test)]
mod tests;
