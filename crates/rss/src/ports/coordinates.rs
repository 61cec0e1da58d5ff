//! The change of basis that makes the ports of a slot a run of neighbours.
//!
//! `A` takes 16 bits of port to the bits of a slot. Elimination gives a basis of the ports in which each of the upper
//! `rank` vectors alone moves one *pivot* bit of the slot, and the others move nothing:
//!
//! ```text
//!        15          16-rank           0
//!   y =  |───── u ─────|────── v ──────|      u = pivot bits of A x,  v: position within the class
//! ```
//!
//! The lowest slot bit is the highest of `u`. Buckets are mostly the low bits of the slot, so the slots of a bucket
//! differ in the lower bits of `u` only, and all its ports make one long run.
//!
//! Slot bits that are no pivots depend on `u`; what is left of them after taking `u`'s part away is the *syndrome*. A
//! slot can be reached from `c` if and only if both have the same syndrome; with a key of full rank it has no bits.

/// A linear map of 16 bits as two tables, one for each byte.
#[derive(Clone)]
struct Map16<T>([[T; 256]; 2]);

impl<T: Copy + Default + core::ops::BitXor<Output = T>> Map16<T> {
    /// From what each bit goes to, lowest first.
    fn new(columns: &[T; 16]) -> Self {
        let mut tables = [[T::default(); 256]; 2];
        for (table, columns) in tables.iter_mut().zip([&columns[..8], &columns[8..]]) {
            for value in 1..256_usize {
                table[value] = table[value & (value - 1)] ^ columns[value.trailing_zeros() as usize];
            }
        }
        Self(tables)
    }

    #[inline]
    fn apply(&self, x: u16) -> T {
        let [low, high] = x.to_le_bytes();
        self.0[0][usize::from(low)] ^ self.0[1][usize::from(high)]
    }
}

/// The coordinates for ports at one place of the hashed data.
///
/// 6 KiB. They depend on the key and the size of the table alone.
#[derive(Clone)]
pub(super) struct Coordinates {
    rank: u32,
    bits: u32,
    hash: Map16<u32>,
    to_port: Map16<u16>,
    from_port: Map16<u16>,
    /// Pivot part of a slot in the lower half, in the upper what remains once that is taken away.
    split: Map16<u32>,
}

impl Coordinates {
    /// For what each bit of a port adds to the hash, lowest first, and slots of `bits` bits; all zeros are packets hashed
    /// without ports; with 0 bits, a fixed shuffle.
    pub(super) fn new(hash: [u32; 16], bits: u32) -> Self {
        let mask = (1_u32 << bits) - 1;
        let slot_of_bit = hash.map(|h| (h & mask) as u16);
        let (basis, images, pivots) = eliminate(slot_of_bit, bits);
        let rank = pivots.len() as u32;

        // y has u on top; basis vector i belongs to u's bit i, kernel vectors to v.
        let mut columns = [0; 16];
        for (i, &port) in basis.iter().enumerate() {
            let bit = if i < pivots.len() { 15 - i } else { i - pivots.len() };
            columns[bit] = port;
        }
        let split_of_bit = core::array::from_fn(|bit| {
            let slot = 1_u16 << bit;
            match pivots.iter().position(|&pivot| pivot == slot) {
                Some(i) => 1 << (pivots.len() - 1 - i) | u32::from(slot ^ images[i]) << 16,
                None => (u32::from(slot) & mask) << 16,
            }
        });
        Self {
            rank,
            bits,
            hash: Map16::new(&hash),
            to_port: Map16::new(&columns),
            from_port: Map16::new(&invert(columns)),
            split: Map16::new(&split_of_bit),
        }
    }

    /// Bits of the slot.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    /// Ports in the class of one slot, as a power of two.
    #[inline]
    pub(super) fn log2_class(&self) -> u32 {
        16 - self.rank
    }

    /// What the port adds to the whole hash.
    #[inline]
    pub(super) fn hash_of(&self, port: u16) -> u32 {
        self.hash.apply(port)
    }

    /// The port at a coordinate.
    #[inline]
    pub(super) fn port(&self, y: u16) -> u16 {
        self.to_port.apply(y)
    }

    /// The coordinate of a port.
    #[inline]
    pub(super) fn coordinate(&self, port: u16) -> u16 {
        self.from_port.apply(port)
    }

    /// Pivot part `u` and syndrome of a slot; both are linear.
    #[inline]
    pub(super) fn split(&self, slot: usize) -> (u16, u16) {
        let both = self.split.apply(slot as u16);
        (both as u16, (both >> 16) as u16)
    }
}

/// Ports and their images such that each of the first has a pivot bit that no other image has, and the rest no image.
///
/// Returns the basis with the kernel last, the images of the first, and their pivots, each a single bit, ascending.
fn eliminate(images: [u16; 16], bits: u32) -> (Vec<u16>, Vec<u16>, Vec<u16>) {
    let mut rows: Vec<(u16, u16)> = (0..16).map(|i| (1 << i, images[i])).collect();
    let mut pivots: Vec<u16> = Vec::with_capacity(16);
    for pivot in (0..bits).map(|bit| 1 << bit) {
        let here = pivots.len();
        let Some(found) = (here..16).find(|&i| rows[i].1 & pivot != 0) else { continue };
        rows.swap(here, found);
        let (port, image) = rows[here];
        for (i, row) in rows.iter_mut().enumerate() {
            if i != here && row.1 & pivot != 0 {
                *row = (row.0 ^ port, row.1 ^ image);
            }
        }
        pivots.push(pivot);
    }
    let images = rows.iter().take(pivots.len()).map(|row| row.1).collect();
    (rows.iter().map(|row| row.0).collect(), images, pivots)
}

/// The inverse of a matrix of full rank, by columns.
fn invert(columns: [u16; 16]) -> [u16; 16] {
    // Pairs (A e, e); turning the left sides into unit vectors turns the right sides into the inverse's columns.
    let mut pairs: [(u16, u16); 16] = core::array::from_fn(|i| (columns[i], 1 << i));
    for bit in 0..16 {
        let Some(found) = (bit..16).find(|&i| pairs[i].0 >> bit & 1 == 1) else {
            unreachable!("a basis of the ports has full rank");
        };
        pairs.swap(bit, found);
        let (left, right) = pairs[bit];
        for (i, pair) in pairs.iter_mut().enumerate() {
            if i != bit && pair.0 >> bit & 1 == 1 {
                *pair = (pair.0 ^ left, pair.1 ^ right);
            }
        }
    }
    pairs.map(|pair| pair.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_bijection_whose_upper_part_is_the_slot() {
        for (key, bits) in
            [(Key::MICROSOFT, 7), (Key::MICROSOFT, 11), (Key::symmetric(), 7), (Key::symmetric(), 11)]
        {
            let c = Coordinates::new(core::array::from_fn(|i| key.window(95 - i)), bits);
            for port in 0..=u16::MAX {
                let y = c.coordinate(port);
                assert_eq!(c.port(y), port);
                let slot = c.hash_of(port) & ((1 << bits) - 1);
                let (u, syndrome) = c.split(slot as usize);
                assert_eq!((u32::from(u), syndrome), (u32::from(y) >> c.log2_class(), 0));
            }
        }
    }

    #[test]
    fn without_ports_all_is_one_class() {
        let c = Coordinates::new([0; 16], 7);
        assert_eq!((c.log2_class(), c.port(80), c.hash_of(80)), (16, 80, 0));
        assert_eq!(c.split(77), (0, 77));
    }
}
