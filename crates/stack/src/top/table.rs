//! A table of fixed size that keeps the flows with the largest counts of packets, and those with the largest counts of bytes.
//!
//! It is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005) for two orders
//! at once, in sets of sixteen: a flow's hash names its set, where it has one entry with both counts. So a packet costs one look at the tags of
//! a set and one entry, however many flows there are.
//!
//! A set has two *floors*, of packets and of bytes: no flow that was put out of the set has had more. A newcomer may have been one of those, so
//! its counts start from the floors, which are its errors. The entries that nobody misses are those whose counts exceed neither floor: newcomers
//! take their places (`spare`). If there are none, the floors rise: each to the eighth largest count of its order. Then at most seven entries
//! exceed either, and of sixteen at least two exceed neither.
//!
//! **Bounds.** A flow's count is never too low, and too high by at most its error. A flow that is not in the table has had at most the floor of
//! its set. As long as no flow expires, a floor is at most an eighth of what was counted in its set: call what a count exceeds the floor by its
//! surplus. A newcomer has none, and a packet adds one to the sum of all. A floor that rises by *n* takes *n* from each of the eight
//! largest counts at least. Bytes likewise. The bounds that are reported are those of the moment, and hold always.
//!
//! **Idle flows** leave. A set frees the ways of its idle flows when it is looked at for the first time in a second, so nothing waits for the
//! rest of the table, and a packet compares one number. Packets after that are of a new flow. The floors are forgotten with the last of those
//! that they may stand for: whoever was put out and has been silent since is a new flow, too.

use super::key::{Key, Weight};

/// Flows in a set.
const WAYS: usize = 16;
/// Flows of each order that a set keeps for certain.
pub(super) const LARGEST: usize = 8;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

/// What a packet looks at before an entry: one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    /// A byte for each way: 0 if it is free, else the upper bits of its flow's hash and the highest bit.
    tags: [u64; 2],
    /// A bit for each way that a newcomer takes: all that are free or, if none is, some whose counts exceeded neither floor. That is looked at
    /// again before it takes one.
    spare: u32,
    /// No flow here was idle in this second.
    second: u32,
    /// When a flow was put out last.
    put_out: u32,
    /// No flow that was put out of here and may come again has had more.
    floor: Weight,
    entries: [Entry; WAYS],
}

/// A flow in the table.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Entry {
    /// What was sent and what was received since it is in the table.
    totals: [Weight; 2],
    /// When it had its last packet, and when it came: seconds on the lane's clock.
    pub(super) last: u32,
    pub(super) began: u32,
    pub(super) key: Key,
    /// What it may have had before.
    pub(super) error: Weight,
}

impl Entry {
    const FREE: Self =
        Self { totals: [Weight::NONE; 2], last: 0, began: 0, key: Key::NONE, error: Weight::NONE };

    pub(super) fn sent(&self) -> Weight {
        self.totals[0]
    }

    pub(super) fn received(&self) -> Weight {
        self.totals[1]
    }

    /// Since it is in the table.
    #[inline]
    fn had(&self) -> Weight {
        self.totals[0] + self.totals[1]
    }

    /// No less than it has had.
    #[inline]
    pub(super) fn count(&self) -> Weight {
        self.error + self.had()
    }
}

impl Set {
    const EMPTY: Self = Self {
        tags: [0; 2],
        spare: (1 << WAYS) - 1,
        second: 0,
        put_out: 0,
        floor: Weight::NONE,
        entries: [Entry::FREE; WAYS],
    };

    #[inline(always)]
    fn find(&self, tag: u64, key: &Key) -> Option<usize> {
        for (half, tags) in self.tags.iter().enumerate() {
            let different = tags ^ (LOW * tag);
            // The highest bit of each byte that is zero, and now and then of one above it: the key decides.
            let mut same = different.wrapping_sub(LOW) & !different & HIGH;
            while same != 0 {
                let way = half * 8 + same.trailing_zeros() as usize / 8;
                if self.entries[way % WAYS].key.is(key) {
                    return Some(way);
                }
                same &= same - 1;
            }
        }
        None
    }

    /// Makes room for a flow: its way, and what that had which is put out.
    #[inline(never)]
    fn admit(&mut self, tag: u64, second: u32) -> (usize, Weight) {
        let way = loop {
            if self.spare == 0 {
                self.raise_floors();
            }
            let way = self.spare.trailing_zeros() as usize % WAYS;
            self.spare &= self.spare.wrapping_sub(1);
            // Guard: `self.is_spare(way)` as `true` fails top::tests::counts_are_within_their_bounds
            if self.is_spare(way) {
                break way;
            }
        };
        let (half, shift) = (way / 8, way % 8 * 8);
        let mut gone = Weight::NONE;
        if self.tags[half] >> shift & 0xff != 0 {
            (self.put_out, gone) = (second, self.entries[way].had());
        }
        self.tags[half] = self.tags[half] & !(0xff << shift) | tag << shift;
        let entry = &mut self.entries[way];
        // Guard: `self.floor` as `Weight::NONE` fails top::tests::counts_are_within_their_bounds
        (entry.totals, entry.began, entry.error) = ([Weight::NONE; 2], second, self.floor);
        (way, gone)
    }

    /// Whether nobody misses the flow of a way, or it has none.
    #[inline]
    fn is_spare(&self, way: usize) -> bool {
        let count = self.entries[way].count();
        let free = self.tags[way / 8] >> (way % 8 * 8) & 0xff == 0;
        free || count.packets <= self.floor.packets && count.octets <= self.floor.octets
    }

    /// All ways are taken, and the counts of each exceed a floor: at least two are spare afterwards.
    #[cold]
    #[inline(never)]
    fn raise_floors(&mut self) {
        let counts: [Weight; WAYS] = core::array::from_fn(|way| self.entries[way].count());
        let packets = largest_but_seven(counts.map(|count| count.packets));
        let octets = largest_but_seven(counts.map(|count| count.octets));
        self.floor =
            Weight { packets: self.floor.packets.max(packets), octets: self.floor.octets.max(octets) };
        for way in 0..WAYS {
            self.spare |= u32::from(self.is_spare(way)) << way;
        }
    }

    /// The ways that are taken.
    fn taken(&self) -> impl Iterator<Item = usize> + use<> {
        let tags = self.tags;
        (0..WAYS).filter(move |way| tags[way / 8] >> (way % 8 * 8) & 0xff != 0)
    }

    /// Another second: flows that have been idle for too long leave, and floors that stand for nobody. What they had.
    #[cold]
    fn turn_to(&mut self, second: u32, idle: u32) -> Weight {
        self.second = second;
        let mut gone = Weight::NONE;
        let mut free = (1 << WAYS) - 1;
        for way in self.taken() {
            // Guard: `> idle` as `> u32::MAX` fails top::tests::idle_flows_are_forgotten
            if second.saturating_sub(self.entries[way].last) > idle {
                self.tags[way / 8] &= !(0xff << (way % 8 * 8));
                gone = gone + self.entries[way].had();
            } else {
                free &= !(1 << way);
            }
        }
        // Who exceeds neither floor may exceed what the floors are now.
        self.spare = free;
        // Guard: `> idle` as `> 0` fails top::tests::who_was_put_out_comes_back
        if second.saturating_sub(self.put_out) > idle {
            self.floor = Weight::NONE;
        }
        gone
    }
}

/// The eighth largest.
fn largest_but_seven(mut counts: [u64; WAYS]) -> u64 {
    counts.sort_unstable();
    // Guard: `WAYS - LARGEST` as `WAYS - 1` fails top::tests::a_missing_flow_had_at_most_an_eighth
    let eighth = WAYS - LARGEST;
    counts[eighth]
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    sets: Box<[Set]>,
    /// What those had that are in it no more.
    gone: Weight,
    /// Seconds after which a flow is idle.
    idle: u32,
}

impl Table {
    /// For at least `largest` flows of each order, at most 2^20; the number of sets is a power of two.
    pub(super) fn new(largest: usize, idle: u32) -> Self {
        let sets = largest.div_ceil(LARGEST).clamp(1, 1 << 17).next_power_of_two();
        Self { sets: vec![Set::EMPTY; sets].into(), gone: Weight::NONE, idle }
    }

    /// Counts packets of a flow that came or went together; `hash` is that of its key.
    #[inline(always)]
    pub(super) fn add(&mut self, key: Key, hash: u64, weight: Weight, received: bool, second: u32) {
        let (at, tag) = (self.set_of(hash), tag_of(hash));
        let Some(set) = self.sets.get_mut(at) else { return };
        // Guard: `set.second != second` as `false` fails top::tests::newcomers_take_the_place_of_idle_flows
        if set.second != second {
            self.gone = self.gone + set.turn_to(second, self.idle);
        }
        let way = match set.find(tag, &key) {
            Some(way) => way % WAYS,
            None => {
                let (way, gone) = set.admit(tag, second);
                self.gone = self.gone + gone;
                set.entries[way % WAYS].key = key;
                way % WAYS
            }
        };
        let entry = &mut set.entries[way];
        entry.last = second;
        let totals = &mut entry.totals[usize::from(received)];
        *totals = *totals + weight;
    }

    #[inline]
    fn set_of(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    /// Removes all flows that have been idle for too long, before the table is read.
    pub(super) fn turn_to(&mut self, second: u32) {
        for set in &mut self.sets {
            self.gone = self.gone + set.turn_to(second, self.idle);
        }
    }

    /// All that was counted.
    pub(super) fn counted(&self) -> Weight {
        self.iter().fold(self.gone, |sum, entry| sum + entry.had())
    }

    /// The flows in the table. [`Table::turn_to`] goes before this.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.sets.iter().flat_map(|set| set.taken().map(|way| &set.entries[way]))
    }

    /// No flow that is not in the table has had more, after [`Table::turn_to`].
    pub(super) fn most_missing(&self) -> Weight {
        self.sets.iter().fold(Weight::NONE, |most, set| Weight {
            packets: most.packets.max(set.floor.packets),
            octets: most.octets.max(set.floor.octets),
        })
    }

    /// Flows of each order that it keeps for certain.
    pub(super) fn room(&self) -> usize {
        self.sets.len() * LARGEST
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
