//! Advancing the clock: the slots that become current, and moving timers to narrower slots.

use super::{LEVELS, PORTION, SLOTS, Wheel, shift, slot_of, time_of};
use crate::time::Time;

impl<T: Copy> Wheel<T> {
    /// Brings the clock to `target`, or to the first tick before it at which something is due.
    pub(super) fn turn(&mut self, target: u64) {
        while self.now < target {
            match self.next_event() {
                Some(next) if next <= target => {
                    self.now = next;
                    self.come_to_slots();
                    if self.is_due() {
                        return;
                    }
                }
                _ => self.now = target,
            }
        }
        self.drain();
        self.work_at = self.next_work().unwrap_or(Time::MAX);
    }

    /// The first tick after the current one at which a slot that is not empty becomes current.
    fn next_event(&self) -> Option<u64> {
        let levels = (0..LEVELS).filter(|level| self.occupied[*level] != 0);
        levels.map(|level| self.first_slot(level).0).min()
    }

    /// When to look at the slots again: at the next event, or earlier if a crowded slot has to be emptied in portions.
    fn next_work(&self) -> Option<Time> {
        let mut next = self.next_event()?;
        for level in 1..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let (start, slot) = self.first_slot(level);
            let len = u64::from(self.slots[slot].len);
            if len > PORTION {
                let turn = start - (1 << shift(level));
                let portion = if turn > self.now {
                    turn
                } else {
                    self.now + ((start - self.now) * PORTION / len).max(1)
                };
                next = next.min(portion);
            }
        }
        Some(time_of(next))
    }

    /// The first slot of a level that is not empty, and when it becomes current.
    #[inline]
    fn first_slot(&self, level: usize) -> (u64, usize) {
        let current = self.now >> shift(level);
        let ahead = self.occupied[level].rotate_right((current % SLOTS as u64) as u32).trailing_zeros();
        let start = (current + u64::from(ahead)) << shift(level);
        (start, slot_of(start, level))
    }

    /// Empties the wide slots that begin at the current tick. The narrow one is what is due.
    fn come_to_slots(&mut self) {
        for level in 1..LEVELS {
            if self.now & ((1 << shift(level)) - 1) != 0 {
                break;
            }
            self.move_down(slot_of(self.now, level), u32::MAX);
        }
    }

    /// Moves some timers out of each level's next slot: so many that it would be empty in time if this went on.
    fn drain(&mut self) {
        let ticks = self.now.saturating_sub(self.drained_at);
        self.drained_at = self.now;
        for level in 1..LEVELS {
            let width = 1 << shift(level);
            let slot = slot_of(self.now + width, level);
            let len = u64::from(self.slots[slot].len);
            if len > 0 {
                let gone = self.now & (width - 1);
                let ticks = ticks.min(gone);
                let quota = len.saturating_mul(ticks) / (width - gone + ticks) + 1;
                self.move_down(slot, u32::try_from(quota).unwrap_or(u32::MAX));
            }
        }
    }

    /// Moves at most `quota` timers of a slot to where they belong now: further down, unless they were pushed back.
    fn move_down(&mut self, slot: usize, quota: u32) {
        for _ in 0..quota {
            let index = self.slots[slot].first;
            let Some(node) = self.nodes.get(index as usize) else { return };
            let (tick, next) = (node.tick(), node.next);
            self.take_first(slot, next);
            self.arm_at(index, tick);
            #[cfg(test)]
            {
                self.moves += 1;
            }
        }
    }
}
