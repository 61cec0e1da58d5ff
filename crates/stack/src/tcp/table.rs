//! Where connections live and how a segment finds its own.
//!
//! A slab gives every connection a small number; pages of fixed size mean that growing never moves a connection. A
//! hash table maps a four-tuple to that number. It keeps the hash beside the number, so that growing it does not touch
//! the connections, and it is keyed with a secret of the lane, since the RSS key may be public.

use crate::rng::Keyed;
use core::hash::{BuildHasher, Hash, Hasher};
use core::net::IpAddr;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Names a connection. A handle that outlives its connection is an error, never another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// As one number, for tables of the caller's.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
}

/// Our end and the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Tuple {
    /// The words that are hashed: addresses and ports.
    pub(crate) fn words(&self) -> [u64; 5] {
        let wide = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let (l, r) = (wide(self.local), wide(self.remote));
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        [l as u64, (l >> 64) as u64, r as u64, (r >> 64) as u64, ports]
    }

    /// Keyed hash of addresses and ports, with a tag that keeps uses apart. The two families have different lengths.
    pub(crate) fn keyed(&self, keyed: &Keyed, tag: u64) -> u64 {
        let ports = u64::from(self.local_port) << 16 | u64::from(self.remote_port);
        if let (IpAddr::V4(l), IpAddr::V4(r)) = (self.local, self.remote) {
            let mut bytes = [0; 24];
            bytes[..4].copy_from_slice(&l.octets());
            bytes[4..8].copy_from_slice(&r.octets());
            bytes[8..16].copy_from_slice(&ports.to_le_bytes());
            bytes[16..].copy_from_slice(&tag.to_le_bytes());
            return keyed.hash(&bytes);
        }
        let mut bytes = [0; 48];
        for (at, word) in self.words().into_iter().chain([tag]).enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        keyed.hash(&bytes)
    }
}

impl Hash for Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.local, self.remote) {
            (IpAddr::V4(l), IpAddr::V4(r)) => {
                state.write_u64(u64::from(l.to_bits()) << 32 | u64::from(r.to_bits()));
                state.write_u32(u32::from(self.local_port) << 16 | u32::from(self.remote_port));
            }
            _ => {
                for word in self.words() {
                    state.write_u64(word);
                }
            }
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

const PAGE_BITS: u32 = 10;
const PAGE: usize = 1 << PAGE_BITS;
const NONE: u32 = u32::MAX;

/// Values by number, with generations.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Vec<Entry<T>>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    /// Bytes one entry takes.
    #[cfg(test)]
    pub(crate) const ENTRY_SIZE: usize = size_of::<Entry<T>>();

    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), free: NONE, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Puts in what `make` returns for the new name.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(ConnId) -> T) -> ConnId {
        self.len += 1;
        if self.free != NONE {
            let slot = self.free;
            let entry = &mut self.pages[slot as usize >> PAGE_BITS][slot as usize & (PAGE - 1)];
            self.free = entry.next_free;
            let id = ConnId { slot, generation: entry.generation };
            entry.value = Some(make(id));
            return id;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            // The first page of a lane starts small; later ones are allocated whole and touched as they fill.
            self.pages.push(Vec::with_capacity(if self.pages.is_empty() { 0 } else { PAGE }));
        }
        let page = self.pages.len() - 1;
        let slot = ((page << PAGE_BITS) + self.pages[page].len()) as u32;
        let id = ConnId { slot, generation: 0 };
        self.pages[page].push(Entry { generation: 0, next_free: NONE, value: Some(make(id)) });
        id
    }

    #[inline]
    pub(crate) fn get_slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.pages.get_mut(slot as usize >> PAGE_BITS)?.get_mut(slot as usize & (PAGE - 1))?.value.as_mut()
    }

    #[inline]
    pub(crate) fn get_slot(&self, slot: u32) -> Option<&T> {
        self.pages.get(slot as usize >> PAGE_BITS)?.get(slot as usize & (PAGE - 1))?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        let entry = self.pages.get(id.slot as usize >> PAGE_BITS)?.get(id.slot as usize & (PAGE - 1))?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        let entry =
            self.pages.get_mut(id.slot as usize >> PAGE_BITS)?.get_mut(id.slot as usize & (PAGE - 1))?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<T> {
        let entry =
            self.pages.get_mut(id.slot as usize >> PAGE_BITS)?.get_mut(id.slot as usize & (PAGE - 1))?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = self.free;
        self.free = id.slot;
        self.len -= 1;
        Some(value)
    }

    /// Removes by slot, whatever the generation.
    pub(crate) fn remove_slot(&mut self, slot: u32) -> Option<T> {
        let entry = self.pages.get(slot as usize >> PAGE_BITS)?.get(slot as usize & (PAGE - 1))?;
        self.remove(ConnId { slot, generation: entry.generation })
    }

    /// Changes the value in a slot; its full name.
    pub(crate) fn update_slot(&mut self, slot: u32, change: impl FnOnce(&mut T)) -> Option<ConnId> {
        let entry = self.pages.get_mut(slot as usize >> PAGE_BITS)?.get_mut(slot as usize & (PAGE - 1))?;
        change(entry.value.as_mut()?);
        Some(ConnId { slot, generation: entry.generation })
    }

    /// All values; for statistics, not for packets.
    /// Those among the first `slots` places: bounded also when most are empty.
    pub(crate) fn first(&self, slots: usize) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().take(slots).filter_map(|entry| entry.value.as_ref())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten().filter_map(|entry| entry.value.as_ref())
    }
}

/// What a four-tuple leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A connection's slot.
    Connection(u32),
    /// A TIME-WAIT record's slot.
    TimeWait(u32),
}

#[derive(Debug, Clone, Copy)]
struct Key {
    hash: u32,
    /// The slot; the top bit says TIME-WAIT.
    slot: u32,
}

const TIME_WAIT: u32 = 1 << 31;

impl Key {
    fn found(self) -> Found {
        if self.slot & TIME_WAIT == 0 {
            Found::Connection(self.slot)
        } else {
            Found::TimeWait(self.slot & !TIME_WAIT)
        }
    }
}

fn packed(found: Found) -> u32 {
    match found {
        Found::Connection(slot) => slot,
        Found::TimeWait(slot) => slot | TIME_WAIT,
    }
}

/// Spreads the 32 kept bits over the ends that the table looks at.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// From a four-tuple to a slot.
#[derive(Debug)]
pub(crate) struct TupleTable {
    table: HashTable<Key>,
    hasher: FixedState,
}

impl TupleTable {
    pub(crate) fn new(seed: u64) -> Self {
        Self { table: HashTable::new(), hasher: FixedState::with_seed(seed) }
    }

    #[inline]
    pub(crate) fn hash(&self, tuple: &Tuple) -> u32 {
        let hash = self.hasher.hash_one(tuple);
        (hash ^ hash >> 32) as u32
    }

    /// Looks `hash` up; `is` says whether a candidate really is the one.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is: impl FnMut(Found) -> bool) -> Option<Found> {
        self.table.find(spread(hash), |key| key.hash == hash && is(key.found())).map(|key| key.found())
    }

    pub(crate) fn insert(&mut self, hash: u32, found: Found) {
        self.table.insert_unique(spread(hash), Key { hash, slot: packed(found) }, |key| spread(key.hash));
    }

    pub(crate) fn remove(&mut self, hash: u32, found: Found) {
        let slot = packed(found);
        if let Ok(entry) = self.table.find_entry(spread(hash), |key| key.slot == slot) {
            entry.remove();
        }
    }

    /// Bytes the table holds.
    #[cfg(test)]
    pub(crate) fn allocated(&self) -> usize {
        self.table.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert_with(|_| 1);
        assert_eq!(slab.remove(a), Some(1));
        let b = slab.insert_with(|_| 2);
        assert_eq!(a.slot, b.slot);
        assert_eq!((slab.get(a), slab.get(b)), (None, Some(&2)));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn names_stay_good_while_the_slab_grows() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..5000).map(|n| slab.insert_with(|_| n)).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(slab.get(*id), Some(&n));
        }
    }
}
