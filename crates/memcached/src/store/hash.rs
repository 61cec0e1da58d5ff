//! The hash of keys: SipHash with one round for a block and three at the end (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).
//!
//! Its key is drawn for each server, so that nobody who chooses keys of items alone can aim at one lane, or at one place of a table. Who may speak to the
//! server may ask for it (`stats lanes`): clients that know it send each request to the lane that has the key.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Hashes keys, the same in all lanes of a server, and in no other server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u64; 2]);

impl Default for KeyHash {
    /// With a new key.
    fn default() -> Self {
        // The standard library's secrets, which differ from one call to the next.
        Self([RandomState::new().hash_one(0u8), RandomState::new().hash_one(1u8)])
    }
}

impl KeyHash {
    /// With this key: its bytes in the order of the paper.
    #[must_use]
    pub fn with_key(key: [u8; 16]) -> Self {
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| key[at + i]));
        Self([half(0), half(8)])
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.0[0].to_le_bytes());
        key[8..].copy_from_slice(&self.0[1].to_le_bytes());
        key
    }

    /// The hash: its low half is for tables, its high half says which lane has the key.
    #[must_use]
    #[inline]
    pub fn of(&self, key: &[u8]) -> u64 {
        siphash::<1, 3>(self.0, key)
    }

    /// The lane that has a key with this hash; `lanes` is a power of two.
    #[must_use]
    #[inline]
    pub fn lane(hash: u64, lanes: usize) -> usize {
        (hash >> 32) as usize & (lanes - 1)
    }
}

#[inline]
fn round(v: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *v;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *v = [a, b, c, d];
}

/// SipHash-C-D.
#[inline]
fn siphash<const C: usize, const D: usize>([k0, k1]: [u64; 2], bytes: &[u8]) -> u64 {
    // "somepseudorandomlygeneratedbytes"
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut take = |block: u64| {
        v[3] ^= block;
        (0..C).for_each(|_| round(&mut v));
        v[0] ^= block;
    };
    let (blocks, rest) = bytes.as_chunks::<8>();
    blocks.iter().for_each(|block| take(u64::from_le_bytes(*block)));
    let rest = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    take(rest | (bytes.len() as u64) << 56);
    v[2] ^= 0xff;
    (0..D).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    /// The example of the paper's appendix A, whose rounds are two and four; and the standard library's hash, which is of one and three.
    #[test]
    fn it_is_siphash() {
        let key: [u8; 16] = std::array::from_fn(|i| i as u8);
        let text: Vec<u8> = (0..15).collect();
        let hash = KeyHash::with_key(key);
        assert_eq!(siphash::<2, 4>(hash.0, &text), 0xa129_ca61_49be_45e5);
        assert_eq!(hash.key(), key);
        let zero = KeyHash::with_key([0; 16]);
        for len in 0..70 {
            let text: Vec<u8> = (0..len).map(|i: u8| i.wrapping_mul(7).wrapping_add(len)).collect();
            let mut std = DefaultHasher::new();
            std.write(&text);
            assert_eq!(zero.of(&text), std.finish(), "{len} bytes");
        }
        assert_ne!(KeyHash::default(), KeyHash::default());
    }
}
