//! Storing: set, add, replace, append, prepend, compare and swap, increment and decrement, with memcached's outcomes.

use super::slab::{BINARY_KEY, Id, Meta, STALE, State, TOKEN_SENT};
use super::{Item, Store, item_size, size_of_item};
use crate::number;

/// When a value is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Set,
    /// If the key has no item.
    Add,
    /// If it has one.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before it.
    Prepend,
    /// If the item there has the number that the client gives.
    Cas,
}

/// A value to store.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a> {
    /// When.
    pub mode: Mode,
    /// The key's hash.
    pub hash: u64,
    /// The key, at most [`KEY`](super::KEY) bytes.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Second of expiry, by [`Store::expiry`].
    pub expires: u32,
    /// The number to compare with; 0 for none.
    pub cas: u64,
    /// A lower number than that of the item is good enough, and marks the new value as out of date (meta set, `I`).
    pub stale: bool,
    /// The key came in base 64.
    pub binary: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, with this number.
    Stored(u64),
    /// The mode's condition does not hold.
    NotStored,
    /// The item has another number.
    Exists,
    /// There is no item to compare with.
    NotFound,
    /// There is no memory; the old item is gone.
    NoMemory,
}

/// What became of an increment or decrement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delta {
    /// The new number, and its item.
    Number(u64, Item),
    /// The value is no number.
    NotNumeric,
    /// There is no such item.
    NotFound,
    /// The item has another number for comparison.
    Exists,
    /// There is no memory for a longer number.
    NoMemory,
}

/// What a new item is made of.
struct New<'a> {
    hash: u64,
    key: &'a [u8],
    flags: u32,
    expires: u32,
    marks: u8,
}

impl Store {
    /// Stores a value, if it may be.
    pub fn put(&mut self, put: &Put<'_>) -> Outcome {
        let old = self.find(put.hash, put.key);
        let size = put.key.len() + put.value.len();
        let class = self.slab.class_for(size.min(super::slab::LARGEST));
        self.classes[class].cmd_set += 1;
        self.counts.cmd_set += 1;
        let mut new = New {
            hash: put.hash,
            key: put.key,
            flags: put.flags,
            expires: put.expires,
            marks: if put.binary { BINARY_KEY } else { 0 },
        };
        let Some(old) = old else {
            return match put.mode {
                Mode::Add | Mode::Set => self.store(&new, put.value, None),
                Mode::Cas => {
                    self.counts.cas_misses += 1;
                    Outcome::NotFound
                }
                Mode::Replace | Mode::Append | Mode::Prepend => Outcome::NotStored,
            };
        };
        let cas = self.slab.meta(old.0).cas;
        match put.mode {
            Mode::Add => {
                // As a get it shows that the item is wanted.
                let now = self.now;
                self.slab.meta_mut(old.0).time = now;
                Outcome::NotStored
            }
            Mode::Cas => {
                let class = self.slab.class_of(old.0);
                let stale = put.stale && put.cas != 0 && put.cas < cas;
                if put.cas != cas && !stale {
                    self.classes[class].cas_badval += 1;
                    self.counts.cas_badval += 1;
                    return Outcome::Exists;
                }
                self.classes[class].cas_hits += 1;
                self.counts.cas_hits += 1;
                if stale {
                    let meta = self.slab.meta(old.0);
                    new.expires = meta.expires;
                    new.marks |= STALE | meta.marks & TOKEN_SENT;
                }
                self.store(&new, put.value, Some(old.0))
            }
            Mode::Append | Mode::Prepend if put.cas != 0 && put.cas != cas => Outcome::Exists,
            Mode::Append | Mode::Prepend => self.join(old, &mut new, put),
            Mode::Replace | Mode::Set => self.store(&new, put.value, Some(old.0)),
        }
    }

    /// Puts a value behind or before the one that is there.
    fn join(&mut self, old: Item, new: &mut New<'_>, put: &Put<'_>) -> Outcome {
        let meta = *self.slab.meta(old.0);
        let len = meta.len as usize + put.value.len();
        // Guard: `item_size(put.key.len(), meta.flags, len) > self.limits.item` as `false` fails
        // answer::tests::values_do_not_grow_beyond
        if item_size(put.key.len(), meta.flags, len) > self.limits.item {
            return Outcome::NotStored;
        }
        (new.flags, new.expires) = (meta.flags, meta.expires);
        let mut whole = std::mem::take(&mut self.scratch);
        whole.clear();
        if put.mode == Mode::Prepend {
            whole.extend_from_slice(put.value);
        }
        self.value_into(old, &mut whole);
        if put.mode == Mode::Append {
            whole.extend_from_slice(put.value);
        }
        let outcome = self.store(new, &whole, Some(old.0));
        // One large value does not keep its memory for ever.
        whole.shrink_to(super::slab::PAGE);
        self.scratch = whole;
        if outcome == Outcome::NoMemory { Outcome::NotStored } else { outcome }
    }

    /// Stores a value in place of an item, or anew.
    fn store(&mut self, new: &New<'_>, value: &[u8], old: Option<Id>) -> Outcome {
        let bytes = new.key.len() + value.len();
        if let Some(old) = old
            && bytes <= super::slab::LARGEST
            && self.slab.class_of(old) == self.slab.class_for(bytes)
            && self.slab.meta(old).more == super::slab::NONE
        {
            // The same chunk will do: it only goes to the head of its queue.
            let before = size_of_item(self.slab.meta(old)) as u64;
            let class = self.slab.class_of(old);
            self.orders[class].remove(&mut self.slab, old);
            self.fill(old, new, value);
            self.orders[class].insert(&mut self.slab, old);
            let after = size_of_item(self.slab.meta(old)) as u64;
            self.classes[class].requested = self.classes[class].requested + after - before;
            self.counts.bytes = self.counts.bytes + after - before;
            self.counts.total_items += 1;
            return Outcome::Stored(self.slab.meta(old).cas);
        }
        if let Some(old) = old {
            self.remove(old);
        }
        let Some(id) = self.take_chunks(bytes) else {
            self.counts.store_no_memory += 1;
            return Outcome::NoMemory;
        };
        self.fill(id, new, value);
        self.link(id);
        Outcome::Stored(self.slab.meta(id).cas)
    }

    /// Writes fields, key and value into the chunks of an item.
    fn fill(&mut self, first: Id, new: &New<'_>, value: &[u8]) {
        let (cas, now) = (self.next_cas(), self.now);
        let meta = self.slab.meta_mut(first);
        *meta = Meta {
            cas,
            hash: new.hash as u32,
            expires: new.expires,
            time: now,
            flags: new.flags,
            len: value.len() as u32,
            key_len: new.key.len() as u8,
            marks: new.marks,
            state: State::Taken,
            ..*meta
        };
        let (mut id, mut left) = (first, value);
        let chunk = self.slab.chunk_mut(id);
        let (key, mut room) = chunk.split_at_mut(new.key.len());
        key.copy_from_slice(new.key);
        loop {
            let here = room.len().min(left.len());
            room[..here].copy_from_slice(&left[..here]);
            left = &left[here..];
            if left.is_empty() {
                return;
            }
            id = self.slab.meta(id).more;
            room = self.slab.chunk_mut(id);
        }
    }

    /// An item for a key that has none, which no client stored: not counted as stored by one.
    pub(super) fn make(&mut self, hash: u64, key: &[u8], value: &[u8]) -> Option<Item> {
        let new = New { hash, key, flags: 0, expires: 0, marks: 0 };
        match self.store(&new, value, None) {
            Outcome::Stored(_) => self.find(hash, key),
            _ => None,
        }
    }

    /// An item with this number for a key that has none.
    pub(crate) fn begin(&mut self, hash: u64, key: &[u8], number: u64) -> Delta {
        match self.make(hash, key, number::Digits::default().of(number)) {
            Some(item) => Delta::Number(number, item),
            None => Delta::NoMemory,
        }
    }

    /// Adds to the number that an item is, round the end of 64 bits, or takes from it, down to 0. `cas`: the number to compare with, 0 for none.
    pub fn delta(&mut self, hash: u64, key: &[u8], up: bool, by: u64, cas: u64) -> Delta {
        let Some(item) = self.find(hash, key) else { return Delta::NotFound };
        let meta = *self.slab.meta(item.0);
        if meta.len == 0 {
            return Delta::NotNumeric;
        }
        if cas != 0 && cas != meta.cas {
            return Delta::Exists;
        }
        // No number is longer than a chunk.
        let chunk = &self.slab.chunk(item.0)[usize::from(meta.key_len)..];
        let value = &chunk[..chunk.len().min(meta.len as usize)];
        let Some(old) = number::unsigned(value) else { return Delta::NotNumeric };
        let class = self.slab.class_of(item.0);
        let new = if up {
            self.counts.incr_hits += 1;
            self.classes[class].incr_hits += 1;
            old.wrapping_add(by)
        } else {
            self.counts.decr_hits += 1;
            self.classes[class].decr_hits += 1;
            old.saturating_sub(by)
        };
        let mut digits = number::Digits::default();
        let digits = digits.of(new);
        if digits.len() <= meta.len as usize {
            // In place, with spaces behind it, as clients of memcached know it.
            let len = meta.len as usize;
            let from = usize::from(meta.key_len);
            let chunk = self.slab.chunk_mut(item.0);
            let end = chunk.len().min(from + len);
            chunk[from..][..digits.len()].copy_from_slice(digits);
            chunk[from + digits.len()..end].fill(b' ');
            self.renumber(item);
            return Delta::Number(new, item);
        }
        let mut key = [0; super::KEY];
        let key = &mut key[..usize::from(meta.key_len)];
        key.copy_from_slice(self.key(item));
        let made =
            New { hash, key, flags: meta.flags, expires: meta.expires, marks: meta.marks & BINARY_KEY };
        match self.store(&made, digits, Some(item.0)) {
            Outcome::Stored(_) => match self.find(hash, key) {
                Some(item) => Delta::Number(new, item),
                None => Delta::NotFound,
            },
            _ => Delta::NoMemory,
        }
    }
}
