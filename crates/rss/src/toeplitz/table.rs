//! The hash a byte at a time: for each place in the data, what each of the 256 values adds.

use crate::Key;

/// One table of 256 sums (1 KiB) for each byte of the key.
#[derive(Clone)]
pub(super) struct Table {
    places: Box<[[u32; 256]]>,
}

impl Table {
    pub(super) fn new(key: &Key) -> Self {
        let places = (0..key.as_bytes().len()).map(|place| {
            let mut sums = [0; 256];
            for value in 1..256_usize {
                // The sum for the value without its lowest set bit is there already.
                let lowest = value.trailing_zeros() as usize;
                sums[value] = sums[value & (value - 1)] ^ key.window(8 * place + 7 - lowest);
            }
            sums
        });
        Self { places: places.collect() }
    }

    #[inline]
    pub(super) fn hash(&self, data: &[u8]) -> u32 {
        self.places.iter().zip(data).fold(0, |hash, (sums, &byte)| hash ^ sums[usize::from(byte)])
    }
}
