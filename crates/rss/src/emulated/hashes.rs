//! The hash functions of emulated cards, each by its definition.

use crate::packet::Tuple;
use crate::{Arrangement, Key, Toeplitz};

/// What a card does with the fields of a packet.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one in a card, and the large ones are the usual ones")]
pub(super) enum Function {
    Toeplitz(Toeplitz),
    /// Source xor destination, twice.
    SymmetricXor(Toeplitz),
    Arranged(Arrangement, Toeplitz),
    /// Toeplitz under a key whose bytes were reversed, with all bits of the start value set.
    Reversed(Toeplitz),
    /// Upper half xor lower half.
    Fold16(Toeplitz),
    Crc32c,
    Xor,
    /// Jenkins' hash of 32-bit words, under a secret.
    Jhash(u32),
}

impl Function {
    pub(super) fn reversed(key: &Key) -> Self {
        let mut bytes = [0; crate::key::MAX_KEY];
        let n = key.as_bytes().len();
        for (to, &from) in bytes.iter_mut().zip(key.as_bytes().iter().rev()) {
            *to = from;
        }
        // As long as the key it was made of, so never refused.
        Key::new(&bytes[..n]).map_or(Self::Xor, |key| Self::Reversed(Toeplitz::new(&key)))
    }

    /// Of addresses, and of ports if they are hashed.
    pub(super) fn hash(&self, tuple: &Tuple, ports: bool) -> u32 {
        let n = tuple.kind.address();
        let len = 2 * n + if ports { 4 } else { 0 };
        match self {
            Self::Toeplitz(toeplitz) => toeplitz.hash(&tuple.bytes[..len]),
            Self::SymmetricXor(toeplitz) => {
                let mut twice = [0; 36];
                for i in 0..n {
                    twice[i] = tuple.bytes[i] ^ tuple.bytes[n + i];
                    twice[n + i] = twice[i];
                }
                for i in 2 * n..2 * n + 2 {
                    twice[i] = tuple.bytes[i] ^ tuple.bytes[i + 2];
                    twice[i + 2] = twice[i];
                }
                toeplitz.hash(&twice[..len])
            }
            Self::Arranged(arrangement, toeplitz) => {
                let mut arranged = *tuple;
                if !ports {
                    // A card that does not hash ports does not compare them.
                    arranged.bytes[2 * n..].fill(0);
                }
                arrangement.apply(&mut arranged);
                toeplitz.hash(&arranged.bytes[..len])
            }
            Self::Reversed(toeplitz) => !toeplitz.hash(&tuple.bytes[..len]),
            Self::Fold16(toeplitz) => {
                let hash = toeplitz.hash(&tuple.bytes[..len]);
                hash >> 16 ^ hash & 0xffff
            }
            Self::Crc32c => crc32c(&tuple.bytes[..len]),
            Self::Xor => words(&tuple.bytes[..len]).fold(0, |hash, word| hash ^ word),
            Self::Jhash(secret) => jhash(&tuple.bytes[..len], *secret),
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|c| u32::from_be_bytes([c[0], c[1], c[2], c[3]]))
}

/// CRC32C, reflected, start and end inverted (RFC 3720 appendix B.4).
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

/// Three words at a time are mixed by subtraction, rotation and addition: additions carry, so it is not affine.
fn jhash(bytes: &[u8], secret: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(secret);
    let mut state = [start; 3];
    let mut input = words(bytes);
    let mut left = bytes.len() / 4;
    while left > 0 {
        for word in state.iter_mut().take(left) {
            *word = word.wrapping_add(input.next().unwrap_or(0));
        }
        if left > 3 {
            // Round i: a -= c, a ^= c <<< n, c += b, the names taking turns.
            for (i, n) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
                let (a, b, c) = (i % 3, (i + 1) % 3, (i + 2) % 3);
                state[a] = state[a].wrapping_sub(state[c]) ^ state[c].rotate_left(n);
                state[c] = state[c].wrapping_add(state[b]);
            }
        }
        left = left.saturating_sub(3);
    }
    // At the end: x ^= y, x -= y <<< n, for (c, b), (a, c), (b, a) in turn.
    for (i, n) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let x = (i + 2) % 3;
        let y = (i + 1) % 3;
        state[x] = (state[x] ^ state[y]).wrapping_sub(state[y].rotate_left(n));
    }
    state[2]
}
