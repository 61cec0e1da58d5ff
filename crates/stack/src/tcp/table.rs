//! The slab of connections, and their names.
//!
//! A slab gives every connection a small number; growing adds a page and never moves a connection, beyond the first page, which
//! starts small. Later pages are large, so that the kernel may back them with huge pages.

use crate::packet::IpMeta;
use crate::rng::Keyed;
use crate::wire::TcpHeader;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr};
use flowlane_sys::prefetch::{prefer_huge_pages, prefetch_front};

/// Names a connection. A handle that outlives its connection is an error, never another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl ConnId {
    /// Of what has no name yet.
    pub(crate) const NOBODY: ConnId = ConnId { slot: u32::MAX, generation: 0 };

    /// As one number, for tables of the caller's.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }
}

/// Our end and the peer's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuple {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

impl Tuple {
    /// That of a packet that came in.
    #[inline(always)]
    pub(crate) fn of_input(ip: &IpMeta, header: &TcpHeader) -> Self {
        Self { local: ip.dst, remote: ip.src, local_port: header.dst_port, remote_port: header.src_port }
    }

    /// The words that are hashed: addresses and ports.
    pub(crate) fn words(&self) -> [u64; 5] {
        let wide = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let (l, r) = (wide(self.local), wide(self.remote));
        [l as u64, (l >> 64) as u64, r as u64, (r >> 64) as u64, self.ports()]
    }

    /// Keyed hash of addresses, ports and the low `len` bytes of `more`, at most three. The two families have different
    /// lengths; uses of one key must have different lengths or different `more`.
    pub(crate) fn keyed(&self, keyed: &Keyed, more: u64, len: u8) -> u64 {
        let (rest, len) = (self.ports() | more << 32, 4 + len);
        match (self.local, self.remote) {
            (IpAddr::V4(l), IpAddr::V4(r)) => keyed.hash_words([both(l, r)], rest, len),
            _ => {
                let [a, b, c, d, _] = self.words();
                keyed.hash_words([a, b, c, d], rest, len)
            }
        }
    }

    /// As [`keyed`](Self::keyed), with a number between the ports and `more`, of which there may be seven bytes.
    pub(crate) fn keyed_with(&self, keyed: &Keyed, number: u32, more: u64, len: u8) -> u64 {
        let word = self.ports() | u64::from(number) << 32;
        match (self.local, self.remote) {
            (IpAddr::V4(l), IpAddr::V4(r)) => keyed.hash_words([both(l, r), word], more, len),
            _ => {
                let [a, b, c, d, _] = self.words();
                keyed.hash_words([a, b, c, d, word], more, len)
            }
        }
    }

    #[inline]
    fn ports(&self) -> u64 {
        u64::from(self.local_port) << 16 | u64::from(self.remote_port)
    }
}

#[inline]
fn both(a: Ipv4Addr, b: Ipv4Addr) -> u64 {
    u64::from(a.to_bits()) << 32 | u64::from(b.to_bits())
}

impl PartialEq for Tuple {
    // Two words for the family that nearly all have.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let addresses = match (self.local, self.remote, other.local, other.remote) {
            (IpAddr::V4(a), IpAddr::V4(b), IpAddr::V4(c), IpAddr::V4(d)) => both(a, b) == both(c, d),
            _ => self.local == other.local && self.remote == other.remote,
        };
        addresses && self.ports() == other.ports()
    }
}

impl Eq for Tuple {}

impl Hash for Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.local, self.remote) {
            (IpAddr::V4(l), IpAddr::V4(r)) => {
                state.write_u64(both(l, r));
                state.write_u32(self.ports() as u32);
            }
            _ => {
                for word in self.words() {
                    state.write_u64(word);
                }
            }
        }
    }
}

/// The addresses of a [`Tuple`] as a connection keeps them: 16 bytes. Those of IPv6, four times as long, stand aside.
#[derive(Debug)]
pub(crate) enum Addresses {
    /// Of IPv4.
    V4 { local: Ipv4Addr, remote: Ipv4Addr },
    /// Ours and the peer's.
    Wide(Box<[IpAddr; 2]>),
}

impl Addresses {
    #[inline]
    pub(crate) fn of(tuple: &Tuple) -> Self {
        match (tuple.local, tuple.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => Self::V4 { local, remote },
            (local, remote) => Self::Wide(Box::new([local, remote])),
        }
    }

    /// Ours.
    #[inline]
    pub(crate) fn local(&self) -> IpAddr {
        match self {
            Self::V4 { local, .. } => IpAddr::V4(*local),
            Self::Wide(wide) => wide[0],
        }
    }

    /// The peer's.
    #[inline]
    pub(crate) fn remote(&self) -> IpAddr {
        match self {
            Self::V4 { remote, .. } => IpAddr::V4(*remote),
            Self::Wide(wide) => wide[1],
        }
    }

    /// Whether they are IPv4's.
    #[inline]
    pub(crate) const fn is_ipv4(&self) -> bool {
        matches!(self, Self::V4 { .. })
    }

    /// Whether they are those of `tuple`.
    #[inline]
    pub(crate) fn are_of(&self, tuple: &Tuple) -> bool {
        match (self, tuple.local, tuple.remote) {
            (Self::V4 { local, remote }, IpAddr::V4(l), IpAddr::V4(r)) => both(*local, *remote) == both(l, r),
            (Self::V4 { .. }, ..) => false,
            (Self::Wide(wide), l, r) => **wide == [l, r],
        }
    }
}

/// A value that stores its own name.
pub(crate) trait Named {
    fn id(&self) -> ConnId;
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    Free {
        /// Of the value that will be put here.
        generation: u32,
        next: u32,
    },
}

/// Begins with a cache line. Which kind of place it is shows in values that `T` never has, and takes no room.
#[derive(Debug)]
#[repr(align(64))]
struct Entry<T>(Place<T>);

impl<T: Named> Entry<T> {
    #[inline]
    fn get(&self) -> Option<&T> {
        match &self.0 {
            Place::Taken(value) => Some(value),
            Place::Free { .. } => None,
        }
    }

    #[inline]
    fn get_mut(&mut self) -> Option<&mut T> {
        match &mut self.0 {
            Place::Taken(value) => Some(value),
            Place::Free { .. } => None,
        }
    }
}

/// Entries of the first page and of the second. Each further page has as many as all before it, so that memory follows the number
/// of connections.
const FIRST: usize = 1 << FIRST_BITS;
const FIRST_BITS: u32 = 10;
const NONE: u32 = u32::MAX;

/// Page and place in it.
#[inline]
const fn place(slot: u32) -> (usize, usize) {
    if slot < FIRST as u32 {
        return (0, slot as usize);
    }
    let bits = slot.ilog2();
    ((bits - FIRST_BITS + 1) as usize, (slot ^ 1 << bits) as usize)
}

/// Slot of the first entry of a page, and the number of its entries.
const fn page_at(page: usize) -> (usize, usize) {
    if page == 0 { (0, FIRST) } else { (FIRST << (page - 1), FIRST << (page - 1)) }
}

/// One page of a slab.
#[derive(Debug)]
struct Page<T> {
    entries: Vec<Entry<T>>,
    /// The first free entry.
    free: u32,
    /// Values in it.
    live: u32,
}

/// Values by number, with generations. Free places of the first pages are taken before others, so that the last pages fall empty
/// and can be given back.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Page<T>>,
    len: usize,
    /// No page before this one has a free entry.
    hint: usize,
    /// Later than every generation that was ever given back: those of new pages begin with it, so that no name is given twice.
    fresh: u32,
}

impl<T: Named> Slab<T> {
    /// Bytes one entry takes.
    pub(crate) const ENTRY_SIZE: usize = size_of::<Entry<T>>();

    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), len: 0, hint: 0, fresh: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn entry(&self, slot: u32) -> Option<&Entry<T>> {
        let (page, at) = place(slot);
        self.pages.get(page)?.entries.get(at)
    }

    #[inline]
    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry<T>> {
        let (page, at) = place(slot);
        self.pages.get_mut(page)?.entries.get_mut(at)
    }

    /// Asks for the memory of a slot: its first `len` bytes.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32, len: usize) {
        if let Some(entry) = self.entry(slot) {
            prefetch_front(entry, len);
        }
    }

    /// Puts in what `make` returns for the new name, which is that value's own from then on.
    // Made where it stays: a connection is large.
    #[inline(always)]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(ConnId) -> T) -> &mut T {
        let (number, at, id) = self.take_free();
        let entry = &mut self.pages[number].entries[at];
        entry.0 = Place::Taken(make(id));
        match &mut entry.0 {
            Place::Taken(value) => value,
            Place::Free { .. } => unreachable!("a value was put there"),
        }
    }

    /// Page and place of a free entry, which counts as taken, and the name of what comes there.
    fn take_free(&mut self) -> (usize, usize, ConnId) {
        self.len += 1;
        while self.pages.get(self.hint).is_some_and(|page| page.free == NONE) {
            self.hint += 1;
        }
        if self.hint >= self.pages.len() {
            self.grow();
        }
        let page = &mut self.pages[self.hint];
        let slot = page.free;
        let (_, at) = place(slot);
        let Place::Free { generation, next } = page.entries[at].0 else { unreachable!("it is free") };
        page.free = next;
        page.live += 1;
        (self.hint, at, ConnId { slot, generation })
    }

    /// There is no free entry: one more.
    fn grow(&mut self) {
        let pages = self.pages.len();
        if self.pages.last().is_none_or(|last| last.entries.len() == page_at(pages - 1).1) {
            // The first page of a lane starts small; later ones are allocated whole and touched as they fill.
            let mut entries = Vec::with_capacity(if pages == 0 { 0 } else { page_at(pages).1 });
            prefer_huge_pages(&mut entries);
            self.pages.push(Page { entries, free: NONE, live: 0 });
        }
        self.hint = self.pages.len() - 1;
        let page = &mut self.pages[self.hint];
        page.free = (page_at(self.hint).0 + page.entries.len()) as u32;
        page.entries.push(Entry(Place::Free { generation: self.fresh, next: NONE }));
    }

    /// Whether the last page is empty, and not the first.
    #[inline]
    pub(crate) fn has_spare_page(&self) -> bool {
        self.pages.len() > 1 && self.pages.last().is_some_and(|last| last.live == 0)
    }

    /// Gives the empty pages at the end back.
    pub(crate) fn trim(&mut self) {
        while self.has_spare_page() {
            self.pages.pop();
        }
        self.hint = 0;
    }

    #[inline]
    pub(crate) fn get_slot_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.entry_mut(slot)?.get_mut()
    }

    #[inline]
    pub(crate) fn get_slot(&self, slot: u32) -> Option<&T> {
        self.entry(slot)?.get()
    }

    /// As [`get_slot`](Self::get_slot), and asks for the first `len` bytes of what is there.
    #[inline(always)]
    pub(crate) fn get_slot_ahead(&self, slot: u32, len: usize) -> Option<&T> {
        let entry = self.entry(slot)?;
        prefetch_front(entry, len);
        entry.get()
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Option<&T> {
        self.get_slot(id.slot).filter(|value| value.id() == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut T> {
        self.get_slot_mut(id.slot).filter(|value| value.id() == id)
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<T> {
        match self.vacate(id, |_| {}, core::mem::replace)? {
            Place::Taken(value) => Some(value),
            Place::Free { .. } => None,
        }
    }

    /// Drops a value where it is, if it is there, after `last` was done to it.
    #[inline]
    pub(crate) fn discard(&mut self, id: ConnId, last: impl FnOnce(&mut T)) {
        self.vacate(id, last, |place, free| *place = free);
    }

    /// Makes a place free: `last` is given the value, and `put` the place and what it is from then on.
    #[inline(always)]
    fn vacate<R>(
        &mut self,
        id: ConnId,
        last: impl FnOnce(&mut T),
        put: impl FnOnce(&mut Place<T>, Place<T>) -> R,
    ) -> Option<R> {
        let (number, at) = place(id.slot);
        let page = self.pages.get_mut(number)?;
        let entry = page.entries.get_mut(at)?;
        last(entry.get_mut().filter(|value| value.id() == id)?);
        let generation = id.generation.wrapping_add(1);
        let was = put(&mut entry.0, Place::Free { generation, next: page.free });
        page.free = id.slot;
        page.live -= 1;
        self.len -= 1;
        self.hint = self.hint.min(number);
        // Guard: no `self.fresh = self.fresh.max(generation);` fails table::tests::empty_pages
        self.fresh = self.fresh.max(generation);
        Some(was)
    }

    /// Removes by slot, whatever the generation.
    pub(crate) fn remove_slot(&mut self, slot: u32) -> Option<T> {
        self.remove(self.get_slot(slot)?.id())
    }

    /// Changes the value in a slot; its full name.
    pub(crate) fn update_slot(&mut self, slot: u32, change: impl FnOnce(&mut T)) -> Option<ConnId> {
        let value = self.get_slot_mut(slot)?;
        change(value);
        Some(value.id())
    }

    /// Those among the first `slots` places: bounded also when most are empty.
    pub(crate) fn first(&self, slots: usize) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| &page.entries).take(slots).filter_map(Entry::get)
    }

    /// Slots there are, those that hold nothing included.
    pub(crate) fn slots(&self) -> u32 {
        self.pages.iter().map(|page| page.entries.len()).sum::<usize>() as u32
    }

    /// All values; for statistics, not for packets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| &page.entries).filter_map(Entry::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Named for (ConnId, u32) {
        fn id(&self) -> ConnId {
            self.0
        }
    }

    #[test]
    fn a_stale_name_finds_nothing() {
        let mut slab = Slab::new();
        let a = slab.insert_with(|id| (id, 1)).0;
        assert_eq!(slab.remove(a), Some((a, 1)));
        let b = slab.insert_with(|id| (id, 2)).0;
        assert_eq!(a.slot, b.slot);
        assert_eq!((slab.get(a), slab.get(b)), (None, Some(&(b, 2))));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn names_stay_good_while_the_slab_grows() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..50_000).map(|n| slab.insert_with(|id| (id, n)).0).collect();
        for (n, id) in (0..).zip(&ids) {
            assert_eq!(slab.get(*id), Some(&(*id, n)));
        }
    }

    /// Pages that fell empty go, and what comes in their place has other names.
    #[test]
    fn empty_pages_are_given_back() {
        let mut slab = Slab::new();
        let ids: Vec<_> = (0..50_000).map(|n| slab.insert_with(|id| (id, n)).0).collect();
        let pages = slab.pages.len();
        assert!(!slab.has_spare_page());
        for id in &ids[100..] {
            slab.remove(*id);
        }
        assert!(slab.has_spare_page());
        slab.trim();
        assert_eq!((slab.pages.len(), slab.len()), (1, 100));
        assert!(pages > 5);
        for (n, id) in (0..).zip(&ids[..100]) {
            assert_eq!(slab.get(*id), Some(&(*id, n)));
        }
        let again: Vec<_> = (0..50_000).map(|n| slab.insert_with(|id| (id, n)).0).collect();
        assert!(again.iter().all(|id| slab.get(*id).is_some()));
        assert!(ids[100..].iter().all(|id| slab.get(*id).is_none()), "an old name leads nowhere");
    }

    #[test]
    fn addresses_are_what_they_were_in_both_families() {
        assert_eq!(size_of::<Addresses>(), 16);
        let all = ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", "::ffff:10.0.0.1", "::ffff:10.0.0.2"];
        let all = all.map(|ip| ip.parse::<IpAddr>().expect("an address"));
        let tuples: Vec<_> = all
            .iter()
            .flat_map(|local| {
                all.map(|remote| Tuple { local: *local, remote, local_port: 1, remote_port: 2 })
            })
            .collect();
        for (n, tuple) in tuples.iter().enumerate() {
            let kept = Addresses::of(tuple);
            assert_eq!((kept.local(), kept.remote()), (tuple.local, tuple.remote));
            assert_eq!(kept.is_ipv4(), tuple.local.is_ipv4() && tuple.remote.is_ipv4());
            for (m, other) in tuples.iter().enumerate() {
                assert_eq!(kept.are_of(other), n == m, "{tuple:?} and {other:?}");
            }
        }
    }
}
