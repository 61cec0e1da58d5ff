//! Any hash that is affine over GF(2): the exclusive or of a constant and of a column for each set bit.
//!
//! Toeplitz under any key is affine, and so are Toeplitz with another start value or order of bytes or fields, folded halves, CRC32 and the
//! exclusive or of words. If the columns are those of a Toeplitz key, [`Affine::toeplitz_key`] returns the key, and the fast forms of
//! [`Toeplitz`](crate::Toeplitz) compute the same. For hashes that are affine only in pieces the fields are rearranged first: see
//! [`Arrangement`](crate::Arrangement).
//!
//! Evaluation looks up each byte in a table of 256 sums for its place, as the table form of Toeplitz does, in
//! tables of 1 KiB for each byte of data.

use core::fmt;

use crate::Key;

/// Most bits of data: two IPv6 addresses and two ports.
pub const MAX_BITS: usize = 288;

/// An affine map from up to 288 bits to 32.
///
/// Bit 0 is the first bit of the first byte. Bits beyond the last column add nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Affine {
    columns: Vec<u32>,
    constant: u32,
    /// For each byte of the data, what each of its values adds.
    sums: Box<[[u32; 256]]>,
}

impl Affine {
    /// The map that adds `columns[i]` for bit `i` to the constant. Columns beyond the 288th are left out.
    #[must_use]
    pub fn new(columns: &[u32], constant: u32) -> Self {
        let columns = &columns[..columns.len().min(MAX_BITS)];
        let sums = columns.chunks(8).map(|chunk| {
            let mut sums = [0; 256];
            for value in 1..256_usize {
                // The sum for the value without its lowest set bit is there already.
                let lowest = value.trailing_zeros() as usize;
                let column = chunk.get(7 - lowest).copied().unwrap_or(0);
                sums[value] = sums[value & (value - 1)] ^ column;
            }
            sums
        });
        Self { columns: columns.to_vec(), constant, sums: sums.collect() }
    }

    /// Toeplitz under `key` for `bits` bits of data.
    #[must_use]
    pub fn toeplitz(key: &Key, bits: usize) -> Self {
        let columns: Vec<u32> = (0..bits).map(|bit| key.window(bit)).collect();
        Self::new(&columns, 0)
    }

    /// The columns of the map, for each input bit from the first on.
    #[must_use]
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The hash of zeros.
    #[must_use]
    pub fn constant(&self) -> u32 {
        self.constant
    }

    /// The hash of these bytes: one look into a table for each.
    #[must_use]
    #[inline]
    pub fn hash(&self, data: &[u8]) -> u32 {
        self.sums.iter().zip(data).fold(self.constant, |hash, (sums, &byte)| hash ^ sums[usize::from(byte)])
    }

    /// The key with which Toeplitz is this map, if there is one: four bytes more than the data.
    ///
    /// Bits of the key that no column shows are zero.
    #[must_use]
    pub fn toeplitz_key(&self) -> Option<Key> {
        let (&first, rest) = self.columns.split_first()?;
        let mut bytes = [0_u8; crate::key::MAX_KEY];
        bytes.get_mut(..4)?.copy_from_slice(&first.to_be_bytes());
        for (i, column) in rest.iter().enumerate() {
            let at = i + 32;
            *bytes.get_mut(at / 8)? |= ((column & 1) as u8) << (7 - at % 8);
        }
        let key = Key::new(&bytes[..(self.columns.len().div_ceil(8) + 4).max(crate::key::MIN_KEY)]).ok()?;
        let same = self.columns.iter().enumerate().all(|(bit, &column)| key.window(bit) == column);
        (self.constant == 0 && same).then_some(key)
    }
}

impl fmt::Debug for Affine {
    /// Not the columns: they would give the key away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Affine").field("bits", &self.columns.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Toeplitz;
    use crate::random::Random;

    #[test]
    fn toeplitz_is_a_special_case() {
        let mut random = Random::new(1);
        for _ in 0..20 {
            // 36 bytes of data are 288 windows of 32 bits, which show 319 bits of the key; 12 bytes show 127.
            let mut bytes = random.bytes::<40>();
            (bytes[39], bytes[15]) = (bytes[39] & !1, bytes[15] & !1);
            let key = Key::new(&bytes).unwrap();
            let (toeplitz, affine) = (Toeplitz::new(&key), Affine::toeplitz(&key, 288));
            assert_eq!(affine.toeplitz_key(), Some(key));
            for _ in 0..50 {
                let data = random.bytes::<36>();
                for n in [0, 1, 8, 12, 32, 36] {
                    assert_eq!(affine.hash(&data[..n]), toeplitz.hash(&data[..n]));
                }
            }
            let short = Affine::toeplitz(&key, 96);
            assert_eq!(short.toeplitz_key().unwrap().as_bytes(), &key.as_bytes()[..16]);
        }
    }

    #[test]
    fn what_is_not_toeplitz_has_no_key() {
        let key = Key::MICROSOFT;
        let affine = Affine::toeplitz(&key, 288);
        assert_eq!(Affine::new(affine.columns(), 1).toeplitz_key(), None);
        for bit in [0, 100, 287] {
            let mut columns = affine.columns().to_vec();
            columns[bit] ^= 0x10;
            assert_eq!(Affine::new(&columns, 0).toeplitz_key(), None, "bit {bit}");
        }
        assert_eq!(Affine::new(&[], 0).toeplitz_key(), None);
    }

    #[test]
    fn the_constant_is_the_hash_of_zeros() {
        let affine = Affine::new(&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], 0x8000_0000);
        assert_eq!(affine.hash(&[0; 36]), 0x8000_0000);
        assert_eq!(affine.hash(&[0x81, 0x40]), 0x8000_0000 | 1 | 128 | 512);
        // Bits beyond the tenth add nothing.
        assert_eq!(affine.hash(&[0, 0x3f, 0xff]), 0x8000_0000);
        assert_eq!(format!("{affine:?}"), "Affine { bits: 10, .. }");
    }
}
