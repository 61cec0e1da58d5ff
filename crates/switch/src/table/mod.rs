//! The table of addresses: which port each address was last seen on (IEEE 802.1Q §8.8, the filtering database).
//!
//! ```text
//!   place(VLAN, address) ─▶ line: eight words of 64 bits         links: who is older, who is younger, on the same port
//!                           ├ valid 1│static 1│second 1│seen 5│port 6│tag 50 ┤
//! ```
//!
//! * Memory is fixed. A line is one cache line, and an address is in one of two (`place.rs`): a lookup reads two lines at most, whatever is in
//!   the table.
//! * *Seen* is the time, in sixteenths of the ageing time, modulo 32. A frame from a known address compares it and, once in a sixteenth,
//!   moves the entry to the young end of its port's list. So entries of a port are in order of age, ageing looks only at entries that it
//!   removes and at one more for each port, and a port's entries go without a look at the others'.
//! * Bounds: all entries together, and the learnt ones of each port. Beyond either an address is not learnt, and frames to it are flooded.
//! * Static entries are in no list: they neither age nor move nor count for a port's bound.
//!
//! An entry goes between 16 and 17 sixteenths of the ageing time after the last frame. The expiry has to be run at least once in 14 of them.

mod place;

pub use place::Place;

use core::time::Duration;

use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_sys::prefetch;

use crate::ports::{MAX_PORTS, PortId, PortSet};
use crate::seed::Seed;
use place::{FEWEST, MOST, Scatter};

const VALID: u64 = 1 << 63;
const STATIC: u64 = 1 << 62;
/// The entry is in the second line of its place.
const SECOND: u64 = 1 << 61;
const SEEN: u32 = 56;
const SEEN_MASK: u64 = 31 << SEEN;
const PORT: u32 = 50;
const PORT_MASK: u64 = 63 << PORT;
const TAG: u64 = (1 << PORT) - 1;
/// What a search compares.
const NAME: u64 = VALID | SECOND | TAG;

/// Sixteenths of the ageing time after which an entry goes.
const AGES: u8 = 16;
/// "Seen" counts to here.
const WRAP: u8 = 32;
const WAYS: usize = 8;
/// Once the first line has this many, the emptier of both is taken.
const CROWDED: u32 = 6;
/// No entry.
const NONE: u32 = u32::MAX;

/// Entries of a table at most.
pub const MOST_ADDRESSES: u32 = 1 << (MOST + 2);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

#[derive(Clone, Copy)]
struct Links {
    older: u32,
    younger: u32,
}

/// The learnt entries of one port, the oldest first.
#[derive(Clone, Copy)]
struct List {
    oldest: u32,
    youngest: u32,
    len: u32,
    bound: u32,
}

/// What became of a source address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learnt {
    /// It was known at this port. `again`: its age was renewed, which happens at most once in a sixteenth of the ageing time.
    Known {
        /// Its age was renewed.
        again: bool,
    },
    /// It is new.
    New,
    /// It was known at another port and is at this one now.
    Moved {
        /// Where it was.
        from: PortId,
    },
    /// It is at another port, and its move was not allowed.
    Held {
        /// Where it is.
        at: PortId,
    },
    /// It is configured on another port.
    Static,
    /// The table, the port's share or both lines are full.
    Full,
}

/// One entry, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The filtering database: the VLAN's number, or 0.
    pub fid: u16,
    /// The address.
    pub mac: MacAddr,
    /// Its port.
    pub port: PortId,
    /// Configured, not learnt.
    pub is_static: bool,
    /// Since the last frame from it, at least; to a sixteenth of the ageing time.
    pub age: Duration,
}

/// The table.
pub struct Table {
    scatter: Scatter,
    lines: Vec<Line>,
    links: Vec<Links>,
    ports: [List; MAX_PORTS],
    /// Entries now, and how many there may be.
    len: u32,
    capacity: u32,
    /// A sixteenth of the ageing time, nanoseconds.
    sixteenth: u64,
    /// The present sixteenth, since the start of the clock and modulo 32.
    turn: u64,
    now: u8,
}

impl core::fmt::Debug for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Table")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// A table of up to `capacity` addresses (at most [`MOST_ADDRESSES`]) that forgets them after `ageing`.
    ///
    /// Takes 32 bytes for each address, and 64 KiB at least.
    #[must_use]
    pub fn new(seed: Seed, capacity: u32, ageing: Duration, now: Time) -> Table {
        let capacity = capacity.clamp(1, MOST_ADDRESSES);
        // At most half of the words are used, so two full lines hardly ever meet.
        let lines = (capacity.next_power_of_two() / (WAYS as u32 / 2)).max(1 << FEWEST).ilog2();
        let count = 1usize << lines;
        let mut memory = vec![Line([0; WAYS]); count];
        let mut links = vec![Links { older: NONE, younger: NONE }; count * WAYS];
        prefetch::prefer_huge_pages(&mut memory);
        prefetch::prefer_huge_pages(&mut links);
        let sixteenth = (ageing.as_nanos() as u64 / u64::from(AGES)).max(1);
        let turn = now.as_nanos() / sixteenth;
        Table {
            scatter: Scatter::new(seed, lines),
            lines: memory,
            links,
            ports: [List { oldest: NONE, youngest: NONE, len: 0, bound: u32::MAX }; MAX_PORTS],
            len: 0,
            capacity,
            sixteenth,
            turn,
            now: (turn % u64::from(WRAP)) as u8,
        }
    }

    /// Addresses that it has now, static ones too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Addresses learnt on a port now.
    #[must_use]
    pub fn len_of(&self, port: PortId) -> usize {
        self.ports[port.index()].len as usize
    }

    /// How many addresses may be learnt on a port. What is there already stays.
    pub fn bound(&mut self, port: PortId, bound: u32) {
        self.ports[port.index()].bound = bound;
    }

    /// Where an address may be. `mac` is its 48 bits as a number; the group bit is ignored.
    #[inline]
    #[must_use]
    pub fn place(&self, fid: u16, mac: u64) -> Place {
        self.scatter.place(fid, mac)
    }

    /// Asks for the memory in which an address would be.
    #[inline]
    pub fn prefetch(&self, place: Place) {
        prefetch::prefetch(&self.lines[place.first as usize]);
    }

    /// The port of an address; `None` if it is not known.
    #[inline]
    #[must_use]
    pub fn lookup(&self, place: Place) -> Option<PortId> {
        self.find(place).map(|at| PortId::of_bits(self.word(at) >> PORT))
    }

    /// Takes note of a frame from an address on a port. An address of another port moves here only if `may_move` says so.
    #[inline]
    pub fn learn(&mut self, place: Place, port: PortId, may_move: impl FnOnce() -> bool) -> Learnt {
        let Some(at) = self.find(place) else { return self.insert(place, port) };
        let word = self.word(at);
        let current = (port.index() as u64) << PORT | u64::from(self.now) << SEEN;
        if (word ^ current) & (PORT_MASK | SEEN_MASK) == 0 {
            return Learnt::Known { again: false };
        }
        self.renew(at, port, may_move)
    }

    #[cold]
    fn renew(&mut self, at: u32, port: PortId, may_move: impl FnOnce() -> bool) -> Learnt {
        let word = self.word(at);
        let there = PortId::of_bits(word >> PORT);
        if word & STATIC != 0 {
            return if there == port { Learnt::Known { again: false } } else { Learnt::Static };
        }
        if there != port {
            if !may_move() {
                return Learnt::Held { at: there };
            }
            if self.ports[port.index()].len >= self.ports[port.index()].bound {
                return Learnt::Full;
            }
        }
        self.unlink(at, there);
        let seen = u64::from(self.now) << SEEN;
        *self.word_mut(at) = word & !(PORT_MASK | SEEN_MASK) | (port.index() as u64) << PORT | seen;
        self.link(at, port);
        if there == port { Learnt::Known { again: true } } else { Learnt::Moved { from: there } }
    }

    #[cold]
    fn insert(&mut self, place: Place, port: PortId) -> Learnt {
        let list = &self.ports[port.index()];
        // Guard: `self.len >= self.capacity || list.len >= list.bound` as `false` fails
        // table::tests::a_full_table table::tests::a_port_has_its_share
        if self.len >= self.capacity || list.len >= list.bound {
            return Learnt::Full;
        }
        let Some(at) = self.put(place, port, 0) else { return Learnt::Full };
        self.link(at, port);
        Learnt::New
    }

    /// Configures an address on a port, in place of what was learnt. `false` if there is no room.
    pub fn set_static(&mut self, place: Place, port: PortId) -> bool {
        if let Some(at) = self.find(place) {
            self.remove(at);
        }
        self.len < self.capacity && self.put(place, port, STATIC).is_some()
    }

    /// Puts an entry into the first line, or the emptier one if that is crowded.
    fn put(&mut self, place: Place, port: PortId, flags: u64) -> Option<u32> {
        let used = |line: u32| self.lines[line as usize].0.iter().filter(|w| **w != 0).count() as u32;
        let first = used(place.first);
        let second = first >= CROWDED && used(place.second) < first;
        let line = if second { place.second } else { place.first };
        let way = self.lines[line as usize].0.iter().position(|w| *w == 0)?;
        let at = line * WAYS as u32 + way as u32;
        let (side, seen) = (if second { SECOND } else { 0 }, u64::from(self.now) << SEEN);
        *self.word_mut(at) = VALID | side | flags | seen | (port.index() as u64) << PORT | place.tag;
        self.len += 1;
        Some(at)
    }

    /// Forgets an address.
    pub fn forget(&mut self, place: Place) -> bool {
        let found = self.find(place);
        if let Some(at) = found {
            self.remove(at);
        }
        found.is_some()
    }

    /// Forgets what was learnt on a port. Its cost is the number of those entries.
    pub fn flush(&mut self, port: PortId) -> usize {
        let mut gone = 0;
        while self.ports[port.index()].oldest != NONE {
            self.remove(self.ports[port.index()].oldest);
            gone += 1;
        }
        gone
    }

    /// Forgets the entries, static ones too, that `keep` does not want. Looks at all of them.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) -> usize {
        let before = self.len;
        for at in 0..self.links.len() as u32 {
            if self.word(at) != 0 && !keep(&self.entry(at)) {
                self.remove(at);
            }
        }
        (before - self.len) as usize
    }

    /// Forgets up to `budget` addresses from which nothing came for the ageing time; `gone` is told the port of each. Returns how many.
    pub fn expire(&mut self, now: Time, budget: usize, mut gone: impl FnMut(PortId)) -> usize {
        let turn = (now.as_nanos() / self.sixteenth).max(self.turn);
        // After a long pause in steps, so that no entry becomes young again.
        let mut left = budget;
        loop {
            for port in PortSet::ALL {
                while left > 0 && self.is_old(self.ports[port.index()].oldest) {
                    self.remove(self.ports[port.index()].oldest);
                    gone(port);
                    left -= 1;
                }
            }
            if left == 0 || self.turn >= turn {
                return budget - left;
            }
            self.turn = if turn - self.turn > 2 * u64::from(WRAP) {
                turn - 2 * u64::from(WRAP)
            } else {
                self.turn + 1
            };
            self.now = (self.turn % u64::from(WRAP)) as u8;
        }
    }

    #[inline]
    fn is_old(&self, at: u32) -> bool {
        // Guard: `self.age(at) > AGES` as `false` fails table::tests::addresses_age
        at != NONE && self.age(at) > AGES
    }

    fn age(&self, at: u32) -> u8 {
        let seen = (self.word(at) >> SEEN) as u8 % WRAP;
        (self.now + WRAP - seen) % WRAP
    }

    /// Every entry.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.links.len() as u32).filter(|at| self.word(*at) != 0).map(|at| self.entry(at))
    }

    fn entry(&self, at: u32) -> Entry {
        let word = self.word(at);
        let (fid, mac) = self.scatter.address(at / WAYS as u32, word & TAG, word & SECOND != 0);
        let is_static = word & STATIC != 0;
        let age = if is_static { 0 } else { u64::from(self.age(at)) * self.sixteenth };
        Entry { fid, mac, port: PortId::of_bits(word >> PORT), is_static, age: Duration::from_nanos(age) }
    }

    #[inline]
    fn find(&self, place: Place) -> Option<u32> {
        let way = way(&self.lines[place.first as usize], VALID | place.tag);
        if way < WAYS as u32 {
            return Some(place.first * WAYS as u32 + way);
        }
        let way = way_of_second(&self.lines[place.second as usize], place.tag);
        (way < WAYS as u32).then_some(place.second * WAYS as u32 + way)
    }

    #[inline]
    fn word(&self, at: u32) -> u64 {
        self.lines[at as usize / WAYS].0[at as usize % WAYS]
    }

    #[inline]
    fn word_mut(&mut self, at: u32) -> &mut u64 {
        &mut self.lines[at as usize / WAYS].0[at as usize % WAYS]
    }

    fn remove(&mut self, at: u32) {
        let word = self.word(at);
        if word & STATIC == 0 {
            self.unlink(at, PortId::of_bits(word >> PORT));
        }
        *self.word_mut(at) = 0;
        self.len -= 1;
    }

    /// Puts an entry at the young end of a port's list.
    fn link(&mut self, at: u32, port: PortId) {
        let list = &mut self.ports[port.index()];
        let last = core::mem::replace(&mut list.youngest, at);
        list.len += 1;
        if last == NONE {
            list.oldest = at;
        } else {
            self.links[last as usize].younger = at;
        }
        self.links[at as usize] = Links { older: last, younger: NONE };
    }

    fn unlink(&mut self, at: u32, port: PortId) {
        let Links { older, younger } = self.links[at as usize];
        let list = &mut self.ports[port.index()];
        list.len -= 1;
        match older {
            NONE => list.oldest = younger,
            older => self.links[older as usize].younger = younger,
        }
        match younger {
            NONE => list.youngest = older,
            younger => self.links[younger as usize].older = older,
        }
    }
}

/// Where in a line the name is; [`WAYS`] if nowhere. Without branches: which way an entry has is random, so a branch would be wrong often.
#[inline]
fn way(line: &Line, name: u64) -> u32 {
    let mut found = 1 << WAYS;
    for (way, word) in line.0.iter().enumerate() {
        found |= u32::from((word ^ name) & NAME == 0) << way;
    }
    found.trailing_zeros()
}

#[inline]
fn way_of_second(line: &Line, tag: u64) -> u32 {
    way(line, VALID | SECOND | tag)
}

#[cfg(test)]
mod tests;
