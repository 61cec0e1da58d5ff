//! What the next requests will ask for, so that the store brings several items to the caches at once ([`Store::warm`](crate::store::Store)).
//!
//! Gets for one key each, which most requests are, are read and hashed here once ([`Gets`]). Of others it is a guess, from the first words of lines: whatever
//! it is wrong about is found by the request itself. One request alone is not looked at.

use super::shard::Shard;
use crate::protocol::{ONE_GET, Words, one_get};
use crate::store::{AT_ONCE, KEY, KeyHash};

/// Hashes of keys that this lane has.
#[derive(Default)]
struct Hashes {
    hashes: [u64; AT_ONCE],
    len: usize,
}

impl Hashes {
    fn add(&mut self, shard: &Shard, key: &[u8]) {
        if key.len() <= KEY {
            self.add_hash(shard, shard.hash.of(key));
        }
    }

    #[inline]
    fn add_hash(&mut self, shard: &Shard, hash: u64) {
        if self.len < AT_ONCE && KeyHash::lane(hash, shard.lanes()) == shard.index {
            self.hashes[self.len] = hash;
            self.len += 1;
        }
    }

    fn warm(&self, shard: &Shard) {
        // One alone is brought as fast by its request.
        if self.len > 1 {
            shard.store.warm(&self.hashes[..self.len]);
        }
    }
}

/// Gets for one key each, one behind the other, at most [`AT_ONCE`].
pub(super) struct Gets<'a> {
    keys: [(&'a [u8], u64); AT_ONCE],
    len: usize,
}

impl<'a> Gets<'a> {
    /// Those at the front of `bytes`. Their items are on the way.
    #[inline]
    pub(super) fn read(shard: &Shard, bytes: &'a [u8]) -> Self {
        let mut gets = Self { keys: [(&[], 0); AT_ONCE], len: 0 };
        let (mut hashes, mut at) = (Hashes::default(), 0);
        while gets.len < AT_ONCE
            && let Some(key) = one_get(&bytes[at..])
        {
            let hash = shard.hash.of(key);
            hashes.add_hash(shard, hash);
            gets.keys[gets.len] = (key, hash);
            gets.len += 1;
            at += key.len() + ONE_GET;
        }
        hashes.warm(shard);
        gets
    }

    /// Each key with its hash.
    pub(super) fn keys(&self) -> &[(&'a [u8], u64)] {
        &self.keys[..self.len]
    }
}

/// Looks at requests for one key each at the front of `bytes`. Returns how many bytes need not be looked at again, at least one.
pub(super) fn requests(shard: &Shard, bytes: &[u8]) -> usize {
    let (mut hashes, mut at) = (Hashes::default(), 0);
    for _ in 0..AT_ONCE {
        let rest = &bytes[at..];
        let asks = rest.strip_prefix(b"get ").or_else(|| rest.strip_prefix(b"mg "));
        let Some(key) = asks else { break };
        let Some(end) = key.iter().take(2 * KEY).position(|b| *b == b'\n') else { break };
        let line = key[..end].strip_suffix(b"\r").unwrap_or(&key[..end]);
        hashes.add(shard, Words::of(line).next().unwrap_or_default());
        at = bytes.len() - key.len() + end + 1;
    }
    hashes.warm(shard);
    at.max(1)
}

/// Looks at datagrams, each by the first request in it.
pub(super) fn datagrams<'a>(shard: &Shard, texts: impl Iterator<Item = &'a [u8]>) {
    let mut hashes = Hashes::default();
    texts.take(AT_ONCE).filter_map(one_get).for_each(|key| hashes.add(shard, key));
    hashes.warm(shard);
}

/// Looks at the next keys of a request for several; how many.
pub(super) fn keys(shard: &Shard, keys: &Words<'_>) -> usize {
    let mut hashes = Hashes::default();
    let some = keys.clone().take(AT_ONCE).inspect(|key| hashes.add(shard, key)).count();
    hashes.warm(shard);
    some
}
