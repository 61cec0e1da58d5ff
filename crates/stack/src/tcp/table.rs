//! Where connections live, and what they are called.
//!
//! A slab gives every connection a small number; pages of fixed size mean that growing never moves a connection, beyond the
//! first page, which starts small. Later pages are large, so that the kernel may back them with huge pages.

use crate::rng::Keyed;
use core::hash::{Hash, Hasher};
use core::net::IpAddr;
use flowlane_sys::prefetch::{prefer_huge_pages, prefetch, prefetch_front};

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

/// The value first: it begins with a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry<T> {
    value: Option<T>,
    generation: u32,
    next_free: u32,
}

/// Entries of the first page and of each other.
const FIRST: usize = 1 << 10;
const PAGE_BITS: u32 = 15;
const PAGE: usize = 1 << PAGE_BITS;
const NONE: u32 = u32::MAX;

/// Page and place in it.
#[inline]
const fn place(slot: u32) -> (usize, usize) {
    let slot = slot as usize;
    if slot < FIRST {
        return (0, slot);
    }
    let rest = slot - FIRST;
    (1 + (rest >> PAGE_BITS), rest & (PAGE - 1))
}

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

    #[inline]
    fn entry(&self, slot: u32) -> Option<&Entry<T>> {
        let (page, at) = place(slot);
        self.pages.get(page)?.get(at)
    }

    #[inline]
    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry<T>> {
        let (page, at) = place(slot);
        self.pages.get_mut(page)?.get_mut(at)
    }

    /// Asks for the memory of a slot.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Some(entry) = self.entry(slot) {
            prefetch(entry);
        }
    }

    /// Asks for the first two cache lines of a slot.
    #[inline]
    pub(crate) fn prefetch_front(&self, slot: u32) {
        if let Some(entry) = self.entry(slot) {
            prefetch_front(entry, 128);
        }
    }

    /// Puts in what `make` returns for the new name.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(ConnId) -> T) -> ConnId {
        self.len += 1;
        let slot = self.free;
        if let Some(entry) = self.entry_mut(slot) {
            let id = ConnId { slot, generation: entry.generation };
            let next = entry.next_free;
            entry.value = Some(make(id));
            self.free = next;
            return id;
        }
        let full = match &self.pages[..] {
            [] => true,
            [first] => first.len() == FIRST,
            [.., last] => last.len() == PAGE,
        };
        if full {
            // The first page of a lane starts small; later ones are allocated whole and touched as they fill.
            let mut page = Vec::with_capacity(if self.pages.is_empty() { 0 } else { PAGE });
            prefer_huge_pages(&mut page);
            self.pages.push(page);
        }
        let pages = self.pages.len();
        let page = &mut self.pages[pages - 1];
        let before = if pages == 1 { 0 } else { FIRST + (pages - 2) * PAGE };
        let id = ConnId { slot: (before + page.len()) as u32, generation: 0 };
        page.push(Entry { value: Some(make(id)), generation: 0, next_free: NONE });
        id
    }

    #[inline]
    pub(crate) fn get_slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.entry_mut(slot)?.value.as_mut()
    }

    #[inline]
    pub(crate) fn get_slot(&self, slot: u32) -> Option<&T> {
        self.entry(slot)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        let entry = self.entry(id.slot)?;
        if entry.generation == id.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        let entry = self.entry_mut(id.slot)?;
        if entry.generation == id.generation { entry.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<T> {
        let free = self.free;
        let entry = self.entry_mut(id.slot)?;
        if entry.generation != id.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = free;
        self.free = id.slot;
        self.len -= 1;
        Some(value)
    }

    /// Removes by slot, whatever the generation.
    pub(crate) fn remove_slot(&mut self, slot: u32) -> Option<T> {
        let generation = self.entry(slot)?.generation;
        self.remove(ConnId { slot, generation })
    }

    /// Changes the value in a slot; its full name.
    pub(crate) fn update_slot(&mut self, slot: u32, change: impl FnOnce(&mut T)) -> Option<ConnId> {
        let entry = self.entry_mut(slot)?;
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
        let ids: Vec<_> = (0..50_000).map(|n| slab.insert_with(|_| n)).collect();
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(slab.get(*id), Some(&n));
        }
    }
}
