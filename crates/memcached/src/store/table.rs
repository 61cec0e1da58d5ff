//! The hash table of a store: buckets of chains, of which one is split for each item that comes (linear hashing, W. Litwin 1980).
//!
//! So the table grows with the items and never stops to be rebuilt. Buckets are in segments, which are counted as memory of the store. If
//! there is no memory for another segment, chains grow longer instead; the store makes room before that.

use super::slab::{Id, NONE, Slab};

/// Buckets of a segment.
const SEGMENT: usize = 4096;
/// Bytes of a segment.
pub(crate) const SEGMENT_BYTES: usize = SEGMENT * size_of::<Id>();

/// Heads of chains; the rest of each is in the items.
#[derive(Debug)]
pub(crate) struct Table {
    segments: Vec<Box<[Id]>>,
    buckets: usize,
    /// The largest power of two that is not above `buckets`.
    round: usize,
    items: usize,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { segments: vec![segment()], buckets: SEGMENT, round: SEGMENT, items: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT_BYTES
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        let wide = hash as usize & (2 * self.round - 1);
        if wide < self.buckets { wide } else { wide - self.round }
    }

    #[inline]
    fn head(&mut self, bucket: usize) -> &mut Id {
        &mut self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    /// The bucket of a hash: where its chain begins.
    #[inline]
    pub(crate) fn front(&self, hash: u32) -> &Id {
        let bucket = self.bucket(hash);
        &self.segments[bucket / SEGMENT][bucket % SEGMENT]
    }

    /// The item of a key.
    #[inline]
    pub(crate) fn find(&self, slab: &Slab, hash: u32, key: &[u8]) -> Option<Id> {
        let mut id = *self.front(hash);
        while id != NONE {
            let (meta, chunk) = slab.both(id);
            if meta.hash == hash && usize::from(meta.key_len) == key.len() && chunk.starts_with(key) {
                return Some(id);
            }
            id = meta.chain;
        }
        None
    }

    /// Whether the next item should have another segment first.
    pub(crate) fn wants_segment(&self) -> bool {
        self.items >= self.buckets && self.buckets == self.segments.len() * SEGMENT
    }

    /// Adds a segment.
    pub(crate) fn add_segment(&mut self) {
        self.segments.push(segment());
    }

    /// Puts an item in; its `hash` is set.
    pub(crate) fn insert(&mut self, slab: &mut Slab, id: Id) {
        if self.items >= self.buckets && self.buckets < self.segments.len() * SEGMENT {
            self.split(slab);
        }
        let bucket = self.bucket(slab.meta(id).hash);
        let head = std::mem::replace(self.head(bucket), id);
        slab.meta_mut(id).chain = head;
        self.items += 1;
    }

    /// Takes an item out.
    pub(crate) fn remove(&mut self, slab: &mut Slab, id: Id) {
        let bucket = self.bucket(slab.meta(id).hash);
        let after = slab.meta(id).chain;
        let mut at = *self.head(bucket);
        if at == id {
            *self.head(bucket) = after;
        } else {
            while slab.meta(at).chain != id {
                at = slab.meta(at).chain;
            }
            slab.meta_mut(at).chain = after;
        }
        self.items -= 1;
    }

    /// One bucket becomes two.
    fn split(&mut self, slab: &mut Slab) {
        let (new, old) = (self.buckets, self.buckets - self.round);
        self.buckets += 1;
        if self.buckets == 2 * self.round {
            self.round *= 2;
        }
        let mut id = std::mem::replace(self.head(old), NONE);
        *self.head(new) = NONE;
        while id != NONE {
            let meta = *slab.meta(id);
            let bucket = self.bucket(meta.hash);
            let head = std::mem::replace(self.head(bucket), id);
            slab.meta_mut(id).chain = head;
            id = meta.chain;
        }
    }
}

fn segment() -> Box<[Id]> {
    vec![NONE; SEGMENT].into_boxed_slice()
}
