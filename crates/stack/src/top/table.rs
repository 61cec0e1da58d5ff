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
//! **Idle flows** leave. A set frees the ways of its idle flows when it is looked at for the first time in a second, so nothing waits for the
//! rest of the table, and a packet compares one number. Packets after that are of a new flow. A floor is forgotten with the last of those
//! that it may stand for: whoever was put out and has been silent since is a new flow, too.

use super::key::{Key, Weight};

/// Flows in a set.
pub(super) const WAYS: usize = 8;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

/// What a packet looks at before an entry: one cache line, and one more for the counts.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    /// A byte for each way: 0 if it is free, else the upper bits of its flow's hash and the highest bit.
    tags: u64,
    /// No flow that was put out of here and may come again has had more.
    floor: u64,
    /// When one was put out last.
    put_out: u32,
    /// No flow here was idle in this second.
    second: u32,
    /// When each flow had its last packet: seconds on the lane's clock.
    last: [u32; WAYS],
    counts: [u64; WAYS],
    entries: [Entry; WAYS],
}

/// A flow in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Its count may be too high by as much.
    pub(super) error: u64,
    /// What was sent and what was received since it is in the table.
    totals: [Weight; 2],
    /// Seconds on the lane's clock.
    pub(super) began: u32,
}

/// Packets of one flow that passed one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) key: Key,
    /// What was sent and what was received.
    pub(super) totals: [Weight; 2],
}

impl Run {
    /// No packet.
    pub(super) const NONE: Self = Self { key: Key::NONE, totals: [Weight::NONE; 2] };
}

impl Entry {
    const FREE: Self = Self { key: Key::NONE, error: 0, totals: [Weight::NONE; 2], began: 0 };

    pub(super) fn sent(&self) -> Weight {
        self.totals[0]
    }

    pub(super) fn received(&self) -> Weight {
        self.totals[1]
    }
}

impl Set {
    const EMPTY: Self = Self {
        tags: 0,
        floor: 0,
        put_out: 0,
        second: 0,
        last: [0; WAYS],
        counts: [0; WAYS],
        entries: [Entry::FREE; WAYS],
    };

    #[inline]
    fn find(&self, tag: u64, key: &Key) -> Option<usize> {
        let different = self.tags ^ (LOW * tag);
        // The highest bit of each byte that is zero, and now and then of one above it: the key decides.
        let mut same = different.wrapping_sub(LOW) & !different & HIGH;
        while same != 0 {
            let way = same.trailing_zeros() as usize / 8;
            if self.entries[way % WAYS].key.is(key) {
                return Some(way);
            }
            same &= same - 1;
        }
        None
    }

    /// Makes room for a flow.
    #[inline]
    fn admit(&mut self, tag: u64, key: &Key, second: u32) -> usize {
        let free = !self.tags & HIGH;
        let way = if free != 0 {
            free.trailing_zeros() as usize / 8
        } else {
            let (least, count) = self.least();
            (self.floor, self.put_out) = (self.floor.max(count), second);
            least
        };
        let way = way % WAYS;
        self.tags = self.tags & !(0xff << (way * 8)) | tag << (way * 8);
        self.counts[way] = self.floor;
        let entry = &mut self.entries[way];
        entry.key = *key;
        entry.error = self.floor;
        entry.totals = [Weight::NONE; 2];
        entry.began = second;
        way
    }

    /// The way with the smallest count, and that.
    #[inline]
    fn least(&self) -> (usize, u64) {
        let (mut least, mut count) = (0, self.counts[0]);
        for way in 1..WAYS {
            if self.counts[way] < count {
                (least, count) = (way, self.counts[way]);
            }
        }
        (least, count)
    }

    /// Another second: flows that have been idle for too long leave, and a floor that stands for nobody.
    #[cold]
    fn turn_to(&mut self, second: u32, idle: u32) {
        self.second = second;
        for way in 0..WAYS {
            if second.saturating_sub(self.last[way]) > idle {
                self.tags &= !(0xff << (way * 8));
            }
        }
        if second.saturating_sub(self.put_out) > idle {
            self.floor = 0;
        }
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    sets: Box<[Set]>,
    /// Seconds after which a flow is idle.
    idle: u32,
}

impl Table {
    /// For at least `entries` flows, at most 2^20; the number of sets is a power of two.
    pub(super) fn new(entries: usize, idle: u32) -> Self {
        let sets = entries.div_ceil(WAYS).clamp(1, 1 << 17).next_power_of_two();
        Self { sets: vec![Set::EMPTY; sets].into(), idle }
    }

    /// Counts a run that adds `count`; `hash` is that of its key.
    #[inline]
    pub(super) fn add(&mut self, run: &Run, hash: u64, count: u64, second: u32) {
        let (at, tag) = (self.set_of(hash), tag_of(hash));
        let Some(set) = self.sets.get_mut(at) else { return };
        if set.second != second {
            set.turn_to(second, self.idle);
        }
        let way = match set.find(tag, &run.key) {
            Some(way) => way % WAYS,
            None => set.admit(tag, &run.key, second),
        };
        set.last[way] = second;
        set.counts[way] += count;
        for (total, more) in set.entries[way].totals.iter_mut().zip(&run.totals) {
            total.packets += more.packets;
            total.octets += more.octets;
        }
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    /// Removes all flows that have been idle for too long, before the table is read.
    pub(super) fn turn_to(&mut self, second: u32) {
        self.sets.iter_mut().for_each(|set| set.turn_to(second, self.idle));
    }

    /// The flows in the table with their counts, and the seconds of their last packets. [`Table::turn_to`] goes before this and what follows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Entry, u64, u32)> {
        self.sets.iter().flat_map(|set| {
            let taken = (0..WAYS).filter(|way| set.tags >> (way * 8) & 0xff != 0);
            taken.map(|way| (&set.entries[way], set.counts[way], set.last[way]))
        })
    }

    /// The count of a flow, if it is in the table, and else what it can have at most.
    pub(super) fn of(&self, hash: u64, key: &Key) -> Result<(u64, u64), u64> {
        let set = &self.sets[self.set_of(hash)];
        match set.find(tag_of(hash), key) {
            Some(way) => Ok((set.counts[way], set.entries[way].error)),
            None => Err(set.floor),
        }
    }

    /// No flow that is not in the table has had more.
    pub(super) fn most_missing(&self) -> u64 {
        self.sets.iter().map(|set| set.floor).max().unwrap_or(0)
    }

    pub(super) fn len(&self) -> usize {
        self.sets.iter().map(|set| (set.tags & HIGH).count_ones() as usize).sum()
    }

    /// Flows that it can hold.
    pub(super) fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }
}

#[inline]
fn tag_of(hash: u64) -> u64 {
    hash >> 56 | 0x80
}
