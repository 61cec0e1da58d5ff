//! A Toeplitz key from few hashes: each bit of a hash is one equation over the bits of the key.
//!
//! The columns of a Toeplitz hash overlap, so the whole hash is 320 bits of key, and a hash of 32 bits gives 32 equations at once. Some tens of
//! flows suffice where any affine map takes 289. A start value adds 32 unknowns.
//!
//! ```text
//!   hash bit j = start bit j + sum of key bits i + j over all data bits i that are set
//! ```

use super::super::system;
use crate::packet::Tuple;
use crate::{Affine, Arrangement};

/// Bits of the key that the longest data use.
const KEY: usize = 320;
/// Unknowns: the key and the start value.
const UNKNOWNS: usize = KEY + 32;

/// Words of a row.
const ROW: usize = UNKNOWNS / 64 + 1;

type Row = [u64; ROW];

/// What a hypothesis assumes besides Toeplitz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) arrangement: Arrangement,
    /// The hash does not start at zero.
    pub(super) start: bool,
    /// How many low bits of the hash are known: all 32, or those that the queue tells.
    pub(super) width: usize,
}

/// Equations over the bits of one key.
#[derive(Clone, Debug)]
pub(super) struct Equations {
    shape: Shape,
    pivots: Vec<Option<(Row, bool)>>,
}

impl Equations {
    pub(super) fn new(shape: Shape) -> Self {
        Self { shape, pivots: vec![None; UNKNOWNS] }
    }

    /// Adds the equations of a packet's hash. Returns `false`, and adds none, if they contradict the others.
    pub(super) fn add(&mut self, tuple: &Tuple, ports: bool, hash: u32) -> bool {
        let rows = self.rows(tuple, ports);
        // Equations of one packet may be contradictory only together, so all are added on trial.
        let mut fresh: Vec<(usize, Row, bool)> = Vec::new();
        for (j, row) in rows {
            let (mut row, mut value) = (row, hash >> (31 - j) & 1 == 1);
            loop {
                let Some(first) = first(&row) else {
                    if value {
                        for (at, ..) in fresh {
                            self.pivots[at] = None;
                        }
                        return false;
                    }
                    break;
                };
                match &self.pivots[first] {
                    Some((known, bit)) => {
                        row.iter_mut().zip(known).for_each(|(a, b)| *a ^= b);
                        value ^= bit;
                    }
                    None => {
                        self.pivots[first] = Some((row, value));
                        fresh.push((first, row, value));
                        break;
                    }
                }
            }
        }
        true
    }

    /// The equations of a packet, with the number of the hash's bit.
    fn rows(&self, tuple: &Tuple, ports: bool) -> impl Iterator<Item = (usize, Row)> + use<> {
        let mut arranged = *tuple;
        self.shape.arrangement.apply(&mut arranged);
        let used = if ports { tuple.kind.bits() } else { tuple.kind.bits() - 32 };
        let set: Vec<usize> = (0..used).filter(|i| arranged.bytes[i / 8] & 0x80 >> (i % 8) != 0).collect();
        let start = self.shape.start;
        (32 - self.shape.width..32).map(move |j| {
            let mut row: Row = [0; ROW];
            for at in set.iter().map(|i| i + j).chain(start.then_some(KEY + j)) {
                row[at / 64] |= 1 << (63 - at % 64);
            }
            (j, row)
        })
    }

    /// Which packets of so many bits, of which the first `used` are hashed, have a hash that the equations determine: a basis of their
    /// bits and the constant. More than what their sums make, since shifted packets say the same of other bits.
    pub(super) fn determined(&self, bits: usize, used: usize) -> Vec<system::Row> {
        let mut basis: Vec<Option<(Vec<u64>, system::Row)>> = vec![None; 32 * ROW * 64];
        let mut found = Vec::new();
        for place in (0..bits).chain([system::CONSTANT]) {
            let mut sum: system::Row = [0; 5];
            sum[place / 64] |= 1 << (63 - place % 64);
            // The rest of these equations after elimination of all that is known.
            let mut left = Vec::with_capacity(32 * ROW);
            for j in 32 - self.shape.width..32 {
                let at = if place == system::CONSTANT {
                    self.shape.start.then_some(KEY + j)
                } else {
                    (place < used).then_some(place + j)
                };
                let mut row: Row = [0; ROW];
                at.iter().for_each(|at| row[at / 64] |= 1 << (63 - at % 64));
                left.extend(self.reduced(row));
            }
            while let Some(word) = left.iter().position(|&word| word != 0) {
                let first = 64 * word + left[word].leading_zeros() as usize;
                let Some((known, known_sum)) = &basis[first] else {
                    basis[first] = Some((left.clone(), sum));
                    break;
                };
                left.iter_mut().zip(known).for_each(|(a, b)| *a ^= b);
                sum.iter_mut().zip(known_sum).for_each(|(a, b)| *a ^= b);
            }
            if left.iter().all(|&word| word == 0) {
                found.push(sum);
            }
        }
        found
    }

    /// The rest of a row after elimination of all that is known.
    fn reduced(&self, mut row: Row) -> Row {
        for at in 0..UNKNOWNS {
            if let Some((known, _)) =
                self.pivots[at].as_ref().filter(|_| row[at / 64] >> (63 - at % 64) & 1 == 1)
            {
                row.iter_mut().zip(known).for_each(|(a, b)| *a ^= b);
            }
        }
        row
    }

    /// Solves for all unknowns. Bits that nothing determines are zero.
    pub(super) fn solve(&self) -> Solved {
        // The last unknown comes first, so that the rows to which a row refers are final.
        let mut rows: Vec<Option<(Row, bool)>> = vec![None; UNKNOWNS];
        for at in (0..UNKNOWNS).rev() {
            let Some((mut row, mut value)) = self.pivots[at] else { continue };
            for later in at + 1..UNKNOWNS {
                if let Some((known, bit)) = &rows[later] {
                    if row[later / 64] >> (63 - later % 64) & 1 == 1 {
                        row.iter_mut().zip(known).for_each(|(a, b)| *a ^= b);
                        value ^= bit;
                    }
                }
            }
            rows[at] = Some((row, value));
        }
        let bits = rows.iter().map(|row| row.is_some_and(|(_, value)| value)).collect();
        Solved { shape: self.shape, bits }
    }
}

fn first(row: &Row) -> Option<usize> {
    let word = row.iter().position(|&word| word != 0)?;
    Some(64 * word + row[word].leading_zeros() as usize)
}

/// A key that fits. Bits that nothing determines are zero.
#[derive(Clone, Debug)]
pub(super) struct Solved {
    shape: Shape,
    bits: Vec<bool>,
}

impl Solved {
    fn word(&self, at: usize) -> u32 {
        let known = 32 - self.shape.width..32;
        (0..32).fold(0, |word, j| word << 1 | u32::from(known.contains(&j) && self.bits[at + j]))
    }

    /// The map for data of so many bits, of which the first `used` count.
    pub(super) fn map(&self, bits: usize, used: usize) -> Affine {
        let columns: Vec<u32> = (0..bits).map(|i| if i < used { self.word(i) } else { 0 }).collect();
        Affine::new(&columns, if self.shape.start { self.word(KEY) } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::{Key, PacketKind};

    fn tuple(random: &mut Random) -> Tuple {
        let mut bytes = random.bytes::<36>();
        bytes[12..].fill(0);
        Tuple { kind: PacketKind::TcpIpv4, bytes }
    }

    /// Eight random flows of IPv4 tell all 127 bits of the key that they meet; a hash that contradicts is not taken.
    #[test]
    fn a_few_flows_tell_the_key() {
        let mut random = Random::new(3);
        for start in [0, 0xffff_ffff] {
            let key = Key::random(|bytes| random.fill(bytes));
            let map = Affine::new(Affine::toeplitz(&key, 96).columns(), start);
            let shape = Shape { arrangement: Arrangement::Plain, start: start != 0, width: 32 };
            let mut equations = Equations::new(shape);
            for _ in 0..8 {
                let packet = tuple(&mut random);
                assert!(equations.add(&packet, true, map.hash(packet.data())));
            }
            let packet = tuple(&mut random);
            assert!(!equations.add(&packet, true, map.hash(packet.data()) ^ 0x400));
            assert_eq!(equations.solve().map(96, 96), map);
            assert_eq!(equations.determined(96, 96).len(), 97);
        }
    }

    fn packet_of(bits: &[usize]) -> Tuple {
        let mut bytes = [0; 36];
        bits.iter().for_each(|i| bytes[i / 8] |= 0x80 >> (i % 8));
        Tuple { kind: PacketKind::TcpIpv4, bytes }
    }

    /// Two low bits of each hash, as four queues tell them.
    #[test]
    fn two_bits_a_flow() {
        let mut random = Random::new(4);
        let map = Affine::toeplitz(&Key::MICROSOFT, 96);
        let shape = Shape { arrangement: Arrangement::Plain, start: false, width: 2 };
        let mut equations = Equations::new(shape);
        for _ in 0..90 {
            let packet = tuple(&mut random);
            assert!(equations.add(&packet, true, map.hash(packet.data()) & 3));
        }
        let low: Vec<u32> = map.columns().iter().map(|column| column & 3).collect();
        assert_eq!(equations.solve().map(96, 96).columns(), low);
        // One flow determines itself and the flow of zeros, nothing else.
        let mut one = Equations::new(Shape { width: 32, ..shape });
        assert!(one.add(&packet_of(&[0, 50]), true, 7) && one.determined(96, 96).len() == 2);
    }
}
