//! What the next requests will ask for, so that the store brings several items to the caches at once ([`Store::warm`](crate::store::Store)).
//!
//! It is a guess, from the first words of lines: whatever it is wrong about is found by the request itself. One request alone is not looked at.

use super::shard::Shard;
use crate::protocol::Words;
use crate::store::{AT_ONCE, KEY, KeyHash};

/// Hashes of keys that this lane has.
#[derive(Default)]
struct Hashes {
    hashes: [u64; AT_ONCE],
    len: usize,
}

impl Hashes {
    fn add(&mut self, shard: &Shard, key: &[u8]) {
        if key.len() > KEY || self.len == AT_ONCE {
            return;
        }
        let hash = shard.hash.of(key);
        if KeyHash::lane(hash, shard.lanes()) == shard.index {
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

/// Looks at the next keys of a request for several; how many.
pub(super) fn keys(shard: &Shard, keys: &Words<'_>) -> usize {
    let mut hashes = Hashes::default();
    let some = keys.clone().take(AT_ONCE).inspect(|key| hashes.add(shard, key)).count();
    hashes.warm(shard);
    some
}
