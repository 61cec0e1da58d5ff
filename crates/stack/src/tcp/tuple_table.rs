//! The connection table: from a four-tuple to a slot.
//!
//! The table consists of cache lines with seven keys each, so that finding a connection among a million costs one cache miss, not one for
//! a tag and one for an entry. A key whose line is full goes to the next line, and every line counts the keys that went past it: a search
//! ends at the first line that no key went past.
//!
//! ```text
//!   hash ──▶ line  ┌ hash × 7 │ went past │ slot × 7 ┐ ──▶ next line, if any went past
//! ```
//!
//! It keeps 32 bits of the hash beside the slot, so that growing does not touch the connections, and it is keyed with a
//! secret of the lane, since the RSS key may be public. It grows a little with each insertion, never all at once: the old
//! table is emptied line by line while both are searched.

use crate::tcp::table::Tuple;
use core::hash::BuildHasher;
use flowlane_sys::prefetch::{prefer_huge_pages, prefetch};
use foldhash::fast::FixedState;

/// What a four-tuple leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A connection's slot.
    Connection(u32),
    /// A TIME-WAIT record's slot.
    TimeWait(u32),
}

/// The top bit of a kept slot says TIME-WAIT.
const TIME_WAIT: u32 = 1 << 31;
const EMPTY: u32 = u32::MAX;
const KEYS: usize = 7;
/// Lines of the old table emptied with each insertion: it is gone long before the new one is full.
const MOVED: usize = 2;

/// Lines of a table that is worth being made smaller.
const ROOMY: usize = 1024;

fn unpacked(slot: u32) -> Found {
    if slot & TIME_WAIT == 0 { Found::Connection(slot) } else { Found::TimeWait(slot & !TIME_WAIT) }
}

fn packed(found: Found) -> u32 {
    match found {
        Found::Connection(slot) => slot,
        Found::TimeWait(slot) => slot | TIME_WAIT,
    }
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    /// The hashes of the keys; behind them the number of keys that found this line full, or one before it, and went on.
    head: [u32; KEYS + 1],
    slots: [u32; KEYS],
}

impl Line {
    /// One bit for each place that holds `hash`, or held it last. All places are looked at without a branch: which of them it is, nobody
    /// could predict.
    // With a bit for the number behind them, and none that is 1, eight comparisons are two of vectors.
    #[inline(always)]
    fn places_of(&self, hash: u32) -> u32 {
        let all = (0..=KEYS).fold(0, |places, at| places | if self.head[at] == hash { 2 << at } else { 0 });
        all >> 1 & ((1 << KEYS) - 1)
    }

    /// How many keys went past it.
    #[inline(always)]
    fn past(&self) -> u32 {
        self.head[KEYS]
    }
}

const NO_KEYS: Line = Line { head: [0; KEYS + 1], slots: [EMPTY; KEYS] };

/// Lines, as many as a power of two, or none.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<Line>,
    len: usize,
}

impl Lines {
    fn new(lines: usize) -> Self {
        let mut all = Vec::with_capacity(lines);
        prefer_huge_pages(&mut all);
        all.resize(lines, NO_KEYS);
        Self { lines: all, len: 0 }
    }

    /// The line in which a search for `hash` begins. There is one.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    /// What is kept for `hash` and is the one; [`EMPTY`] if nothing is.
    // The first candidate, which nearly always is the one, without the loop, whose preparations would cost more than the look.
    #[inline(always)]
    fn find(&self, hash: u32, is: &mut impl FnMut(Found) -> bool) -> u32 {
        let Some(line) = self.lines.get(hash as usize & self.lines.len().wrapping_sub(1)) else {
            return EMPTY;
        };
        let places = line.places_of(hash);
        if places != 0 {
            let slot = line.slots[places.trailing_zeros() as usize];
            if slot != EMPTY && is(unpacked(slot)) {
                return slot;
            }
        }
        if places & places.wrapping_sub(1) == 0 && line.past() == 0 { EMPTY } else { self.find_on(hash, is) }
    }

    /// The same, beyond the first candidate.
    #[inline(never)]
    fn find_on(&self, hash: u32, is: &mut dyn FnMut(Found) -> bool) -> u32 {
        let mut at = hash as usize;
        for line in 0..self.lines.len() {
            let this = &self.lines[at & (self.lines.len() - 1)];
            let mut places = this.places_of(hash);
            if line == 0 {
                places &= places.wrapping_sub(1);
            }
            while places != 0 {
                let slot = this.slots[places.trailing_zeros() as usize];
                if slot != EMPTY && is(unpacked(slot)) {
                    return slot;
                }
                places &= places - 1;
            }
            if this.past() == 0 {
                return EMPTY;
            }
            at = at.wrapping_add(1);
        }
        EMPTY
    }

    /// There is room.
    fn insert(&mut self, hash: u32, slot: u32) {
        let mut at = self.home(hash);
        for _ in 0..self.lines.len() {
            let line = &mut self.lines[at];
            if let Some(free) = line.slots.iter().position(|slot| *slot == EMPTY) {
                (line.head[free], line.slots[free]) = (hash, slot);
                self.len += 1;
                return;
            }
            line.head[KEYS] += 1;
            at = (at + 1) & (self.lines.len() - 1);
        }
        debug_assert!(false, "a full table");
    }

    fn remove(&mut self, hash: u32, slot: u32) -> bool {
        if self.len == 0 {
            return false;
        }
        let home = self.home(hash);
        let mask = self.lines.len() - 1;
        for distance in 0..self.lines.len() {
            let line = &mut self.lines[(home + distance) & mask];
            if let Some(n) = line.slots.iter().position(|s| *s == slot) {
                line.slots[n] = EMPTY;
                for passed in 0..distance {
                    self.lines[(home + passed) & mask].head[KEYS] -= 1;
                }
                self.len -= 1;
                return true;
            }
            if line.past() == 0 {
                return false;
            }
        }
        false
    }

    fn replace(&mut self, hash: u32, old: u32, new: u32) -> bool {
        if self.len == 0 {
            return false;
        }
        let mut at = self.home(hash);
        for _ in 0..self.lines.len() {
            let line = &mut self.lines[at];
            if let Some(n) = line.slots.iter().position(|slot| *slot == old) {
                line.slots[n] = new;
                return true;
            }
            if line.past() == 0 {
                return false;
            }
            at = (at + 1) & (self.lines.len() - 1);
        }
        false
    }

    /// Whether another key keeps searches short.
    fn has_room(&self) -> bool {
        self.len < self.lines.len() * KEYS * 3 / 4
    }
}

/// From a four-tuple to a slot.
#[derive(Debug)]
pub(crate) struct TupleTable {
    now: Lines,
    /// What is left of the table before it grew, and how many of its lines, from the front, are empty.
    old: Lines,
    emptied: usize,
    hasher: FixedState,
}

impl TupleTable {
    pub(crate) fn new(seed: u64) -> Self {
        Self { now: Lines::default(), old: Lines::default(), emptied: 0, hasher: FixedState::with_seed(seed) }
    }

    #[inline]
    pub(crate) fn hash(&self, tuple: &Tuple) -> u32 {
        let hash = self.hasher.hash_one(tuple);
        (hash ^ hash >> 32) as u32
    }

    /// Asks for the memory that a search for `hash` looks at first.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        if let Some(line) = self.now.lines.get(self.now.lines.len().wrapping_sub(1) & hash as usize) {
            prefetch(line);
        }
    }

    /// Looks `hash` up; `is` says whether a candidate really is the one.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(Found) -> bool) -> Option<Found> {
        let mut found = self.now.find(hash, &mut is);
        if found == EMPTY && self.old.len > 0 {
            found = self.old.find(hash, &mut is);
        }
        (found != EMPTY).then(|| unpacked(found))
    }

    pub(crate) fn insert(&mut self, hash: u32, found: Found) {
        if !self.now.has_room() {
            self.grow();
        }
        self.move_some(MOVED);
        self.now.insert(hash, packed(found));
    }

    pub(crate) fn remove(&mut self, hash: u32, found: Found) {
        let slot = packed(found);
        if !self.now.remove(hash, slot) {
            self.old.remove(hash, slot);
        }
    }

    /// What `hash` led to is something else now. `false` if it led to nothing of the kind.
    pub(crate) fn replace(&mut self, hash: u32, old: Found, new: Found) -> bool {
        let (old, new) = (packed(old), packed(new));
        self.now.replace(hash, old, new) || self.old.replace(hash, old, new)
    }

    #[cold]
    fn grow(&mut self) {
        // Whatever is left of the one before.
        self.move_some(usize::MAX);
        let lines = (self.now.lines.len() * 2).max(1);
        self.old = core::mem::replace(&mut self.now, Lines::new(lines));
        self.emptied = 0;
    }

    /// Moves the keys of `lines` lines of the old table.
    fn move_some(&mut self, lines: usize) {
        for _ in 0..lines {
            if self.old.len == 0 {
                if !self.old.lines.is_empty() {
                    self.old = Lines::default();
                }
                return;
            }
            let Some(line) = self.old.lines.get(self.emptied).copied() else { return };
            for (hash, slot) in line.head.into_iter().zip(line.slots).filter(|(_, slot)| *slot != EMPTY) {
                self.old.remove(hash, slot);
                self.now.insert(hash, slot);
            }
            self.emptied += 1;
        }
    }

    /// Whether nearly all of a large table is empty.
    #[inline]
    pub(crate) fn is_roomy(&self) -> bool {
        let lines = self.now.lines.len();
        lines > ROOMY && self.len() * 16 < lines
    }

    /// Makes it small again, if it is.
    pub(crate) fn trim(&mut self) {
        if !self.is_roomy() {
            return;
        }
        self.move_some(usize::MAX);
        let lines = self.now.len.next_power_of_two().max(ROOMY / 16);
        self.old = core::mem::replace(&mut self.now, Lines::new(lines));
        self.emptied = 0;
        self.move_some(usize::MAX);
    }

    /// Keys in the table.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.now.len + self.old.len
    }

    /// Bytes the table holds.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        (self.now.lines.capacity() + self.old.lines.capacity()) * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::HashMap;

    #[test]
    fn a_line_is_a_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }

    /// Insertions and removals at random, hashes that crowd into few lines, against a map.
    #[test]
    fn agrees_with_a_map() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut table = TupleTable::new(1);
            let mut map: HashMap<u32, u32> = HashMap::new();
            // From no collisions to all.
            let mask = [u32::MAX, 0xffff, 0xff, 7][seed as usize % 4];
            for round in 0..4000u32 {
                let slot = rng.below(600);
                let found = if slot % 3 == 0 { Found::TimeWait(slot) } else { Found::Connection(slot) };
                match map.remove(&slot) {
                    // Another comes in its place.
                    Some(hash) if round % 5 == 0 => {
                        let other = 1000 + slot;
                        let now =
                            if other % 3 == 0 { Found::TimeWait(other) } else { Found::Connection(other) };
                        assert!(table.replace(hash, found, now), "seed {seed}");
                        assert!(!table.replace(hash, found, now), "seed {seed}");
                        assert!(table.replace(hash, now, found), "seed {seed}");
                        map.insert(slot, hash);
                    }
                    Some(hash) => table.remove(hash, found),
                    None => {
                        let hash = rng.next_u32() & mask;
                        table.insert(hash, found);
                        map.insert(slot, hash);
                    }
                }
                assert_eq!(table.now.len + table.old.len, map.len(), "seed {seed}");
                let slot = rng.below(600);
                let wanted = if slot % 3 == 0 { Found::TimeWait(slot) } else { Found::Connection(slot) };
                let hash = map.get(&slot).copied();
                let got = table.find(hash.unwrap_or(round & mask), |found| found == wanted);
                assert_eq!(got, hash.map(|_| wanted), "seed {seed}");
            }
            for (slot, hash) in map {
                let found = if slot % 3 == 0 { Found::TimeWait(slot) } else { Found::Connection(slot) };
                table.remove(hash, found);
            }
            assert_eq!(table.now.len + table.old.len, 0);
            let past = |lines: &Lines| lines.lines.iter().map(Line::past).sum::<u32>();
            assert_eq!(past(&table.now) + past(&table.old), 0, "nobody is past any more");
        }
    }

    /// A table that has become much too large gets small, and loses nothing.
    #[test]
    fn a_table_shrinks_after_a_burst() {
        let mut table = TupleTable::new(1);
        let hash = |n: u32| n.wrapping_mul(2_654_435_761);
        for n in 0..200_000 {
            table.insert(hash(n), Found::Connection(n));
        }
        let full = table.allocated();
        for n in 100..200_000 {
            assert!(!table.is_roomy() || n > 150_000);
            table.remove(hash(n), Found::Connection(n));
        }
        table.trim();
        assert!(table.allocated() < full / 100, "{} of {full} bytes", table.allocated());
        for n in 0..200 {
            let found = table.find(hash(n), |found| found == Found::Connection(n));
            assert_eq!(found.is_some(), n < 100);
        }
        assert!(!table.is_roomy());
    }

    /// No single insertion moves more than a few lines.
    #[test]
    fn growing_is_spread_out() {
        let mut table = TupleTable::new(1);
        let mut rng = Rng::new(1);
        for slot in 0..200_000 {
            let before = table.old.len;
            table.insert(rng.next_u32(), Found::Connection(slot));
            let grew = before == 0;
            assert!(grew || before - table.old.len <= MOVED * KEYS, "slot {slot}: {before}");
        }
        let each = table.allocated() as f64 / 200_000.0;
        assert!(each < 26.0, "{each} bytes each");
    }
}
