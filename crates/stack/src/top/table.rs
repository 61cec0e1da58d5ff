//! A table of fixed size that keeps the flows with the largest counts.
//!
//! It is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005) in sets of
//! eight: a flow's hash names its set, and within the set a newcomer takes the place of the flow with the smallest count, and starts from
//! that count, which may have been its own. So a packet costs one look at the tags of a set, and at worst one at its eight counts, however
//! many flows there are.
//!
//! **Bounds.** A flow's count is never too low, and too high by at most its `error`, the count that it started from. A flow that is not in
//! the table has had at most the *floor* of its set: the largest count that was put out of it. As long as no flow expires, that is at most
//! an eighth of what was counted in the set. The bounds that are reported are those of the moment, and hold always.
//!
//! **Idle flows** leave. All flows are in a list in the order of their last packets, to the second; a flow moves to its end at most once a
//! second. What is idle is at its head, so that expiry costs as much as there is to expire, and nothing is searched. Packets after that are
//! of a new flow. A floor is forgotten with the last of those that it may stand for: whoever was put out and has been silent since is a
//! new flow, too.

use super::key::{Key, Weight};

/// Flows in a set.
pub(super) const WAYS: usize = 8;

/// No entry.
const NONE: u32 = u32::MAX;
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

#[derive(Debug, Clone, Copy, Default)]
struct Set {
    /// A byte for each way: 0 if it is free, else the upper bits of its flow's hash and the highest bit.
    tags: u64,
    counts: [u64; WAYS],
    /// No flow that was put out of here and may come again has had more.
    floor: u64,
    /// When one was put out last.
    put_out: u32,
}

/// A flow in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Its count may be too high by as much.
    pub(super) error: u64,
    /// Since it is in the table.
    pub(super) received: Weight,
    pub(super) sent: Weight,
    /// Seconds on the lane's clock.
    pub(super) began: u32,
    pub(super) last: u32,
    older: u32,
    newer: u32,
}

const FREE: Entry = Entry {
    key: Key::NONE,
    error: 0,
    received: Weight::NONE,
    sent: Weight::NONE,
    began: 0,
    last: 0,
    older: NONE,
    newer: NONE,
};

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    sets: Box<[Set]>,
    entries: Box<[Entry]>,
    /// Ends of the list by time.
    oldest: u32,
    newest: u32,
    /// Seconds after which a flow is idle.
    idle: u32,
    len: u32,
}

impl Table {
    /// For at least `entries` flows, at most 2^20; the number of sets is a power of two.
    pub(super) fn new(entries: usize, idle: u32) -> Self {
        let sets = entries.div_ceil(WAYS).clamp(1, 1 << 17).next_power_of_two();
        Self {
            sets: vec![Set::default(); sets].into(),
            entries: vec![FREE; sets * WAYS].into(),
            oldest: NONE,
            newest: NONE,
            idle,
            len: 0,
        }
    }

    /// Counts a frame that adds `count`.
    #[inline]
    pub(super) fn add(
        &mut self,
        hash: u64,
        key: &Key,
        count: u64,
        weight: Weight,
        received: bool,
        second: u32,
    ) {
        let set = hash as usize & (self.sets.len() - 1);
        let tag = hash >> 56 | 0x80;
        let way = self.find(set, tag, key).unwrap_or_else(|| self.admit(set, tag, key, second));
        self.sets[set].counts[way] += count;
        let at = set * WAYS + way;
        let entry = &mut self.entries[at];
        let totals = if received { &mut entry.received } else { &mut entry.sent };
        totals.packets += weight.packets;
        totals.octets += weight.octets;
        if entry.last != second {
            entry.last = second;
            self.unlink(at as u32);
            self.push(at as u32);
        }
    }

    #[inline]
    fn find(&self, set: usize, tag: u64, key: &Key) -> Option<usize> {
        let different = self.sets[set].tags ^ (LOW * tag);
        // The highest bit of each byte that is zero, and now and then of one above it: the key decides.
        let mut same = different.wrapping_sub(LOW) & !different & HIGH;
        while same != 0 {
            let way = same.trailing_zeros() as usize / 8;
            if self.entries[set * WAYS + way].key == *key {
                return Some(way);
            }
            same &= same - 1;
        }
        None
    }

    /// Makes room for a flow in its set.
    #[cold]
    fn admit(&mut self, set: usize, tag: u64, key: &Key, second: u32) -> usize {
        let s = &mut self.sets[set];
        if second.saturating_sub(s.put_out) > self.idle {
            s.floor = 0;
        }
        let free = !s.tags & HIGH;
        let way = if free != 0 {
            free.trailing_zeros() as usize / 8
        } else {
            let least = (0..WAYS).min_by_key(|way| s.counts[*way]).unwrap_or(0);
            (s.floor, s.put_out) = (s.floor.max(s.counts[least]), second);
            least
        };
        let floor = s.floor;
        s.tags = s.tags & !(0xff << (way * 8)) | tag << (way * 8);
        s.counts[way] = floor;
        let at = (set * WAYS + way) as u32;
        if free == 0 {
            self.unlink(at);
        } else {
            self.len += 1;
        }
        self.entries[at as usize] = Entry { key: *key, error: floor, began: second, last: second, ..FREE };
        self.push(at);
        way
    }

    /// Removes flows that have been idle for too long: as many steps as there are such flows.
    pub(super) fn expire(&mut self, second: u32) {
        while let Some(entry) = self.entries.get(self.oldest as usize) {
            if second.saturating_sub(entry.last) <= self.idle {
                return;
            }
            let at = self.oldest;
            self.unlink(at);
            let (set, way) = (at as usize / WAYS, at as usize % WAYS);
            self.sets[set].tags &= !(0xff << (way * 8));
            self.len -= 1;
        }
    }

    /// The flows in the table with their counts, those heard of last first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Entry, u64)> {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            let count = self.sets[at as usize / WAYS].counts[at as usize % WAYS];
            at = entry.older;
            Some((entry, count))
        })
    }

    /// The count of a flow, if it is in the table, and else what it can have at most.
    pub(super) fn of(&self, hash: u64, key: &Key, second: u32) -> Result<(u64, u64), u64> {
        let set = hash as usize & (self.sets.len() - 1);
        match self.find(set, hash >> 56 | 0x80, key) {
            Some(way) => Ok((self.sets[set].counts[way], self.entries[set * WAYS + way].error)),
            None => Err(self.floor(&self.sets[set], second)),
        }
    }

    fn floor(&self, set: &Set, second: u32) -> u64 {
        if second.saturating_sub(set.put_out) > self.idle { 0 } else { set.floor }
    }

    /// No flow that is not in the table has had more.
    pub(super) fn most_missing(&self, second: u32) -> u64 {
        self.sets.iter().map(|set| self.floor(set, second)).max().unwrap_or(0)
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Flows that it can hold.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    /// Appends an entry to the list, as the newest.
    fn push(&mut self, at: u32) {
        let older = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (older, NONE);
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
    }
}
