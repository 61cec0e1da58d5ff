//! One lane's items: found by key, stored, changed, forgotten in time, and dropped when there is no more memory.
//!
//! ```text
//!   key ▸ hash ▸ table (chains of items) ▸ chunk: what is known of the item │ key and value
//!                                            └ order: a queue a size class, by which items leave
//! ```
//!
//! No I/O and no clock: the second it is now is an argument ([`Store::tick`]). In steady state nothing is allocated: chunks come from pages, and a value is read
//! and written where it is. The limit is one of everything: pages, what is known of chunks, and the table, so a store never takes more from the
//! allocator than it was given, but for some kilobytes of its own. (memcached's `-m` is one of pages alone.)
//!
//! Sizes are those of memcached where clients notice them: an item's size, which [`Limits::item`] bounds, is that of memcached's structures.
//!
//! **Seconds** count from a beginning of the caller's; second 0 and 1 are past, so that 1 is a time of expiry that has always been ([`Store::expiry`]).

mod hash;
mod order;
mod room;
mod slab;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
#[cfg(feature = "net")]
mod warm;
mod write;

use crate::counts::{ClassCounts, Counts};
use order::Order;
use slab::{Id, Meta, Slab, State};
use table::Table;

pub use hash::KeyHash;
pub(crate) use slab::{BINARY_KEY, FETCHED, STALE, TOKEN_SENT};
pub use snapshot::Snapshot;
#[cfg(feature = "net")]
pub(crate) use warm::AT_ONCE;
pub use write::{Delta, Mode, Outcome, Put};

/// Longest key, bytes.
pub const KEY: usize = 250;
/// Times of expiry above this are seconds since 1970, others are from now: 30 days.
const LONGEST: i64 = 60 * 60 * 24 * 30;

/// What a store may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of everything that it keeps.
    pub memory: usize,
    /// Largest item, bytes, as [`item_size`] counts.
    pub item: usize,
}

/// The size of an item as memcached counts it (its structure on a 64-bit machine, with the number for comparison), bytes.
#[must_use]
pub fn item_size(key: usize, flags: u32, value: usize) -> usize {
    48 + 8 + key + 1 + if flags == 0 { 0 } else { 4 } + value + 2
}

/// An item that was found. It is good until the store is next changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item(Id);

/// An item that was asked for and is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit<'a> {
    pub(crate) flags: u32,
    /// Bytes of the value.
    pub(crate) len: u32,
    pub(crate) cas: u64,
    /// The value, as far as it is in the item's first chunk.
    pub(crate) front: &'a [u8],
    pub(crate) item: Item,
}

/// One lane's items.
#[derive(Debug)]
pub struct Store {
    slab: Slab,
    table: Table,
    orders: Vec<Order>,
    limits: Limits,
    /// Seconds since 1970 of second 0.
    began: i64,
    now: u32,
    cas: u64,
    /// Items with a lower number are flushed.
    flushed_below: u64,
    flush_at: Option<u32>,
    /// Where the search for expired items goes on.
    swept: Id,
    /// Since pages were last compared between classes.
    evictions: u32,
    classes: Vec<ClassCounts>,
    counts: Counts,
    /// Used while a page is emptied, or a value is put together.
    list: Vec<Id>,
    scratch: Vec<u8>,
}

impl Store {
    /// An empty store. `began`: seconds since 1970 of its second 0.
    #[must_use]
    pub fn new(limits: Limits, began: i64) -> Self {
        let slab = Slab::new();
        let classes = slab.classes().len();
        let mut counts = Counts { limit_maxbytes: limits.memory as u64, ..Counts::default() };
        let table = Table::new();
        counts.allocated_bytes = table.bytes() as u64;
        Self {
            slab,
            table,
            orders: vec![Order::new(); classes],
            limits,
            began,
            now: 2,
            cas: 0,
            flushed_below: 0,
            flush_at: None,
            swept: 0,
            evictions: 0,
            classes: vec![ClassCounts::default(); classes],
            counts,
            list: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// It is this second now, at least the second.
    #[inline]
    pub fn tick(&mut self, now: u32) {
        self.now = now.max(2);
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.flush_now();
        }
    }

    /// The second it is.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Seconds since 1970 of second 0.
    #[must_use]
    pub fn began(&self) -> i64 {
        self.began
    }

    /// What it may hold.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What is counted, for those that count with it.
    #[inline]
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// The second at which an item expires that a client gives this time: 0 never, negative at once, up to 30 days from now, and beyond that in
    /// seconds since 1970.
    #[must_use]
    pub fn expiry(&self, time: i32) -> u32 {
        match i64::from(time) {
            0 => 0,
            ..0 => 1,
            from_now @ ..=LONGEST => self.now.saturating_add(from_now as u32),
            at => u32::try_from((at - self.began).max(1)).unwrap_or(u32::MAX),
        }
    }

    /// The item of a key, if there is one that lives. One that does not is dropped. Neither counts as asked for.
    #[inline]
    pub fn find(&mut self, hash: u64, key: &[u8]) -> Option<Item> {
        let id = self.place(hash, key)?;
        if self.lives(self.slab.meta(id)) { Some(Item(id)) } else { self.drop_dead(id) }
    }

    #[inline]
    fn place(&self, hash: u64, key: &[u8]) -> Option<Id> {
        self.table.find(&self.slab, hash as u32, key)
    }

    #[inline]
    fn lives(&self, meta: &Meta) -> bool {
        // Guard: `meta.expires > self.now` as `true` fails answer::tests::times_of_expiry
        // Guard: `meta.cas >= self.flushed_below` as `true` fails answer::tests::times_of_expiry
        (meta.expires == 0 || meta.expires > self.now) && meta.cas >= self.flushed_below
    }

    #[cold]
    fn drop_dead<T>(&mut self, id: Id) -> Option<T> {
        self.count_dead(id);
        self.remove(id);
        None
    }

    fn count_dead(&mut self, id: Id) {
        let unfetched = u64::from(self.slab.meta(id).marks & FETCHED == 0);
        let class = &mut self.classes[self.slab.class_of(id)];
        class.reclaimed += 1;
        class.expired_unfetched += unfetched;
        self.counts.reclaimed += 1;
        self.counts.expired_unfetched += unfetched;
    }

    /// As [`Store::find`], and counts a hit or a miss of `get`.
    #[inline]
    pub fn get(&mut self, hash: u64, key: &[u8]) -> Option<Item> {
        let found = self.ask(hash, key);
        self.count_ask(found, false);
        found
    }

    /// As [`Store::get`] and [`Store::bump`], or with another time of expiry as [`Store::touch`]: what there is of the item, which is looked up once.
    #[inline]
    pub(crate) fn hit(&mut self, hash: u64, key: &[u8], expires: Option<u32>) -> Option<Hit<'_>> {
        let found = self.ask(hash, key);
        self.count_ask(found, expires.is_some());
        let item = found?;
        let (meta, chunk) = self.slab.both_mut(item.0);
        meta.expires = expires.unwrap_or(meta.expires);
        meta.bump(self.now);
        let value = &chunk[usize::from(meta.key_len)..];
        let front = &value[..value.len().min(meta.len as usize)];
        Some(Hit { flags: meta.flags, len: meta.len, cas: meta.cas, front, item })
    }

    /// Counts what was asked for and found, or not: as a touch or as a get.
    #[inline]
    pub(crate) fn count_ask(&mut self, found: Option<Item>, touch: bool) {
        let counts = &mut self.counts;
        let (all, hits, misses) = if touch {
            (&mut counts.cmd_touch, &mut counts.touch_hits, &mut counts.touch_misses)
        } else {
            (&mut counts.cmd_get, &mut counts.get_hits, &mut counts.get_misses)
        };
        *all += 1;
        let Some(item) = found else {
            *misses += 1;
            return;
        };
        *hits += 1;
        let class = &mut self.classes[self.slab.class_of(item.0)];
        *(if touch { &mut class.touch_hits } else { &mut class.get_hits }) += 1;
    }

    /// As [`Store::find`], telling a miss for age or flush in the counters of `get`.
    #[inline]
    pub(crate) fn ask(&mut self, hash: u64, key: &[u8]) -> Option<Item> {
        let id = self.place(hash, key)?;
        let meta = self.slab.meta(id);
        if self.lives(meta) {
            return Some(Item(id));
        }
        let flushed = meta.cas < self.flushed_below;
        self.counts.get_flushed += u64::from(flushed);
        self.counts.get_expired += u64::from(!flushed);
        self.drop_dead(id)
    }

    /// As [`Store::get`], and gives the item another time of expiry; counts as `touch`.
    pub fn touch(&mut self, hash: u64, key: &[u8], expires: u32) -> Option<Item> {
        let found = self.ask(hash, key);
        self.count_ask(found, true);
        if let Some(item) = found {
            self.slab.meta_mut(item.0).expires = expires;
        }
        found
    }

    /// Marks an item as asked for. Twice since it was stored is often; then its time is now.
    #[inline]
    pub fn bump(&mut self, item: Item) {
        let now = self.now;
        self.slab.meta_mut(item.0).bump(now);
    }

    /// Drops the item of a key; counts as `delete`.
    pub fn delete(&mut self, item: Item) {
        self.counts.delete_hits += 1;
        let class = self.slab.class_of(item.0);
        self.classes[class].delete_hits += 1;
        self.remove(item.0);
    }

    /// Drops the item of a key that could not be stored, uncounted: what is old must not stay.
    pub fn forget(&mut self, hash: u64, key: &[u8]) {
        if let Some(id) = self.place(hash, key) {
            self.remove(id);
        }
    }

    /// Drops all items: now, or in so many seconds if that is more than 0.
    pub fn flush(&mut self, delay: i32) {
        self.counts.cmd_flush += 1;
        if delay > 0 {
            self.flush_at = Some(self.expiry(delay));
            return;
        }
        self.flush_now();
    }

    fn flush_now(&mut self) {
        self.flush_at = None;
        self.flushed_below = self.next_cas();
    }

    fn next_cas(&mut self) -> u64 {
        self.cas += 1;
        self.cas
    }

    /// Looks at `most` chunks, from where the last call ended, and drops the items among them that have expired or were flushed. Returns their number.
    pub fn sweep(&mut self, most: usize) -> usize {
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        let (now, below) = (self.now, self.flushed_below);
        self.swept = self.slab.walk(self.swept, most, |id, meta| {
            let item = meta.state == State::Item;
            if item && (meta.expires != 0 && meta.expires <= now || meta.cas < below) {
                list.push(id);
            }
        });
        for id in &list {
            self.count_dead(*id);
            self.remove(*id);
        }
        let dropped = list.len();
        self.list = list;
        dropped
    }

    /// Sets counters to 0, as `stats reset` does. What there is now stays.
    pub fn reset_counts(&mut self) {
        let old = self.counts;
        self.counts = Counts {
            curr_connections: old.curr_connections,
            limit_maxbytes: old.limit_maxbytes,
            bytes: old.bytes,
            allocated_bytes: old.allocated_bytes,
            curr_items: old.curr_items,
            ..Counts::default()
        };
        for class in &mut self.classes {
            *class = ClassCounts { requested: class.requested, ..ClassCounts::default() };
        }
    }
}

/// What is known of an item.
impl Store {
    /// An empty item for a key that has none.
    pub(crate) fn vivify(&mut self, hash: u64, key: &[u8]) -> Option<Item> {
        self.make(hash, key, b"")
    }

    pub(crate) fn meta(&self, item: Item) -> &Meta {
        self.slab.meta(item.0)
    }

    pub(crate) fn meta_mut(&mut self, item: Item) -> &mut Meta {
        self.slab.meta_mut(item.0)
    }

    /// Gives an item the next number for comparison.
    pub(crate) fn renumber(&mut self, item: Item) {
        let cas = self.next_cas();
        self.slab.meta_mut(item.0).cas = cas;
    }

    /// The number of its size class, from 1.
    pub(crate) fn class(&self, item: Item) -> usize {
        self.slab.class_of(item.0) + 1
    }

    /// The key.
    #[must_use]
    #[inline]
    pub fn key(&self, item: Item) -> &[u8] {
        &self.slab.chunk(item.0)[..usize::from(self.slab.meta(item.0).key_len)]
    }

    /// Appends the value.
    #[inline]
    pub fn value_into(&self, item: Item, out: &mut Vec<u8>) {
        let meta = self.slab.meta(item.0);
        let (mut id, mut skip, mut left) = (item.0, usize::from(meta.key_len), meta.len as usize);
        loop {
            let chunk = &self.slab.chunk(id)[skip..];
            let here = chunk.len().min(left);
            out.extend_from_slice(&chunk[..here]);
            left -= here;
            if left == 0 {
                return;
            }
            (id, skip) = (self.slab.meta(id).more, 0);
        }
    }

    /// Its size as memcached counts it.
    pub(crate) fn size(&self, item: Item) -> usize {
        size_of_item(self.slab.meta(item.0))
    }
}

fn size_of_item(meta: &Meta) -> usize {
    item_size(usize::from(meta.key_len), meta.flags, meta.len as usize)
}
