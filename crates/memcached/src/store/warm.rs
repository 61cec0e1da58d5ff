//! Items that are about to be asked for are brought to the processor's caches, several at once.
//!
//! To find an item takes three looks at memory, each of which says where the next is: the bucket, what is known of the chunk, the chunk. In a store that
//! is larger than the caches each is waited for. For several keys the first looks are done together, then the second ones, then the third.

use flowlane_sys::prefetch::prefetch;

use super::Store;
use super::slab::{Meta, NONE};

/// Keys that are looked for at once: the processor has about so many accesses under way.
pub(crate) const AT_ONCE: usize = 16;
/// Bytes of a chunk that are brought; the processor follows by itself what is read behind them.
const FRONT: usize = 256;

/// Half of them are in two cache lines.
#[inline]
fn bring(meta: &Meta) {
    prefetch(meta);
    prefetch(&meta.state);
}

impl Store {
    /// Brings the items of these hashes, at most [`AT_ONCE`], if they are there. It changes nothing but how long the next requests take.
    pub(crate) fn warm(&self, hashes: &[u64]) {
        let mut ids = [NONE; AT_ONCE];
        let hashes = &hashes[..hashes.len().min(AT_ONCE)];
        hashes.iter().for_each(|hash| prefetch(self.table.front(*hash as u32)));
        for (id, hash) in ids.iter_mut().zip(hashes) {
            *id = *self.table.front(*hash as u32);
            if *id != NONE {
                bring(self.slab.meta(*id));
            }
        }
        // The first of the bucket, and the second for those whose it is not: four of five items are one of these.
        for _ in 0..2 {
            for (id, hash) in ids.iter_mut().zip(hashes).filter(|(id, _)| **id != NONE) {
                let (meta, chunk) = self.slab.both(*id);
                if meta.hash == *hash as u32 {
                    let front = FRONT.min(usize::from(meta.key_len) + meta.len as usize).min(chunk.len());
                    prefetch(&chunk[..front]);
                    // Where it does not begin with a line it may end in one more.
                    chunk[..front].last().into_iter().for_each(prefetch);
                    *id = NONE;
                    continue;
                }
                *id = meta.chain;
                if *id != NONE {
                    bring(self.slab.meta(*id));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{KeyHash, Limits, Store};
    use super::*;

    /// Whatever it is asked to bring, there or not, in a small store and in one that evicts: nothing changes.
    #[test]
    fn nothing_changes() {
        let (hash, limits) = (KeyHash::with_key([3; 16]), Limits { memory: 2 << 20, item: 1 << 20 });
        let mut store = Store::new(limits, 0);
        let key = |n: u32| format!("key{n}").into_bytes();
        store.warm(&[]);
        store.warm(&[0; 3 * AT_ONCE]);
        for n in 0..30_000 {
            let (own, value) = (key(n), vec![b'v'; n as usize * 37 % 900]);
            store.make(hash.of(&own), &own, &value).unwrap();
            if n % 500 == 0 {
                let before = *store.counts();
                let some: Vec<u64> = (n..n + 40).map(|n| hash.of(&key(n))).collect();
                some.chunks(AT_ONCE).for_each(|some| store.warm(some));
                assert_eq!(*store.counts(), before);
            }
        }
        assert!(store.counts().evictions > 1000, "it is full");
    }
}
