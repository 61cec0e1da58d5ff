//! The lane's randomness: a small generator for jitter and identifiers, and a keyed hash for what an attacker must
//! not guess. Both are seeded from outside, so a run with a given seed can be replayed.

/// xoshiro256++ (Blackman and Vigna, 2019). Not for secrets: use [`Keyed`] for those.
#[derive(Debug, Clone)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// From a seed; every seed gives a different, good state (it is spread with `SplitMix64`).
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Self { s: [next(), next(), next(), next()] }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// The next 32 random bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A number below `bound` (0 if `bound` is 0), nearly uniform: the bias is below `bound` / 2^32.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012) with a secret key: for initial sequence numbers (RFC 6528), SYN
/// cookies, fragment identifiers.
#[derive(Clone)]
pub struct Keyed {
    k0: u64,
    k1: u64,
}

impl Keyed {
    /// With a key from outside.
    #[must_use]
    pub fn new(k0: u64, k1: u64) -> Self {
        Self { k0, k1 }
    }

    /// Hash of `data`.
    #[must_use]
    pub fn hash(&self, data: &[u8]) -> u64 {
        let mut state = self.begin();
        let mut words = data.chunks_exact(8);
        for word in &mut words {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            state.take(u64::from_le_bytes(bytes));
        }
        let rest = words.remainder();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = data.len() as u8;
        state.finish(u64::from_le_bytes(last))
    }

    /// Hash of the bytes of `words` and the low `rest_len` bytes of `rest` (at most seven), in little-endian order: the same as
    /// [`hash`](Self::hash) of these bytes, for data available as numbers.
    #[inline]
    #[must_use]
    pub fn hash_words<const N: usize>(&self, words: [u64; N], rest: u64, rest_len: u8) -> u64 {
        debug_assert!(rest_len < 8 && rest >> (8 * rest_len) == 0, "more than was said");
        let mut state = self.begin();
        for word in words {
            state.take(word);
        }
        state.finish(rest | (8 * N as u64 + u64::from(rest_len)) << 56)
    }

    #[inline]
    fn begin(&self) -> Sip {
        Sip([
            self.k0 ^ 0x736f_6d65_7073_6575,
            self.k1 ^ 0x646f_7261_6e64_6f6d,
            self.k0 ^ 0x6c79_6765_6e65_7261,
            self.k1 ^ 0x7465_6462_7974_6573,
        ])
    }
}

impl core::fmt::Debug for Keyed {
    /// Does not show the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

/// SipHash under way.
struct Sip([u64; 4]);

impl Sip {
    #[inline(always)]
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        round(&mut self.0);
        round(&mut self.0);
        self.0[0] ^= word;
    }

    #[inline(always)]
    fn finish(mut self, last: u64) -> u64 {
        self.take(last);
        let v = &mut self.0;
        v[2] ^= 0xff;
        for _ in 0..4 {
            round(v);
        }
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First and last vectors of the reference implementation: key 00..0f, input 00, 01, ... of growing length.
    #[test]
    fn siphash_gives_the_published_vectors() {
        let k0 = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        let k1 = u64::from_le_bytes([8, 9, 10, 11, 12, 13, 14, 15]);
        let keyed = Keyed::new(k0, k1);
        let input: Vec<u8> = (0..64).collect();
        assert_eq!(keyed.hash(&input[..0]), 0x726f_db47_dd0e_0e31);
        assert_eq!(keyed.hash(&input[..15]), 0xa129_ca61_49be_45e5);
        // The same bytes as numbers.
        let word = |at: usize, n: usize| (0..n).fold(0, |word, i| word | ((at + i) as u64) << (8 * i));
        assert_eq!(keyed.hash_words([], 0, 0), keyed.hash(&[]));
        assert_eq!(keyed.hash_words([word(0, 8)], word(8, 7), 7), keyed.hash(&input[..15]));
        assert_eq!(keyed.hash_words([word(0, 8), word(8, 8)], word(16, 2), 2), keyed.hash(&input[..18]));
        assert_eq!(keyed.hash_words([word(0, 8), word(8, 8)], 0, 0), keyed.hash(&input[..16]));
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn seeds_give_different_streams_and_the_same_again() {
        let take = |seed| {
            (0..4)
                .map({
                    let mut r = Rng::new(seed);
                    move |_| r.next_u64()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }
}
