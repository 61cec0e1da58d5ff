//! The slots of the wheel: inserting and removing timers.

use super::{NIL, RATIO_BITS, SLOT_BITS, SLOTS, Wheel, shift, slot_of, time_of};

impl<T: Copy> Wheel<T> {
    /// When a slot that has timers becomes, or became, the current one.
    #[inline]
    pub(super) fn start_of(&self, slot: usize) -> u64 {
        let shift = shift(slot / SLOTS);
        let current = self.now >> shift;
        let ahead = (slot as u64).wrapping_sub(current) % SLOTS as u64;
        (current + ahead) << shift
    }

    /// Hangs a node that is in no list into the slot of its tick, on the lowest level that will have it.
    #[inline]
    pub(super) fn arm_at(&mut self, index: u32, tick: u64) {
        let mut level = 0;
        if let Some(ahead @ 1..) = tick.checked_sub(self.now) {
            level = (ahead.ilog2() / RATIO_BITS) as usize;
            if level > 0 && (tick >> shift(level)) - (self.now >> shift(level)) == 1 {
                // In the next slot of this level, so the level below has room for it.
                level -= 1;
            }
            // A wide slot is looked at when it becomes the next one: by then it may be crowded.
            let look = if level == 0 { tick } else { ((tick >> shift(level)) - 1) << shift(level) };
            self.work_at = self.work_at.min(time_of(look));
        }
        // What should have fired already goes to what fires now.
        let slot = slot_of(tick.max(self.now), level);
        self.occupied[level] |= 1 << (slot % SLOTS);
        let next = self.slots[slot].first;
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.back = index;
        }
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.place = tick << SLOT_BITS | slot as u64;
            (node.next, node.back) = (next, NIL);
        }
        self.slots[slot].first = index;
        self.slots[slot].len += 1;
    }

    /// Takes a node out of its list.
    #[inline]
    pub(super) fn unlink(&mut self, index: u32) {
        let Some(node) = self.nodes.get(index as usize) else { return };
        let (slot, next, back) = (node.slot(), node.next, node.back);
        match self.nodes.get_mut(back as usize) {
            Some(before) => {
                before.next = next;
                self.slots[slot].len -= 1;
                if let Some(after) = self.nodes.get_mut(next as usize) {
                    after.back = back;
                }
            }
            None => self.take_first(slot, next),
        }
    }

    /// Takes the first node out of a slot, of which `next` is the second.
    #[inline]
    pub(super) fn take_first(&mut self, slot: usize, next: u32) {
        self.slots[slot].first = next;
        self.slots[slot].len -= 1;
        match self.nodes.get_mut(next as usize) {
            Some(after) => after.back = NIL,
            None => self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS)),
        }
    }
}
