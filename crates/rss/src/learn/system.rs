//! Linear equations over GF(2), and the affine maps that they determine.
//!
//! An equation says that the exclusive or of some unknowns is a number of 32 bits. For a hash the unknowns are the columns of
//! the map and its constant, and each observed packet is one equation.

use crate::Affine;
use crate::packet::Tuple;

/// The unknowns of an equation: unknown `i` is bit `63 - i % 64` of word `i / 64`.
pub(super) type Row = [u64; 5];

/// Index of the constant, behind the bits of the longest data.
pub(super) const CONSTANT: usize = 288;

/// One packet and its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) tuple: Tuple,
    pub(super) hash: u32,
}

/// The map that packets determine.
#[derive(Clone, Debug)]
pub(super) struct Fit {
    pub(super) map: Affine,
    /// How many of them are independent. All unknowns are determined if these are one more than the bits of the data.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests ask for it"))]
    pub(super) rank: usize,
    /// Packets that the map contradicts.
    pub(super) wrong: usize,
}

pub(super) fn row(tuple: &Tuple) -> Row {
    let mut row = [0; 5];
    for (i, &byte) in tuple.bytes.iter().enumerate() {
        row[i / 8] |= u64::from(byte) << (56 - 8 * (i % 8));
    }
    row[CONSTANT / 64] |= 1 << (63 - CONSTANT % 64);
    row
}

/// Solves for the map of these packets. The first independent ones in this order determine it. Unknowns that none determines are zero.
pub(super) fn fit(observed: &[Observed]) -> Fit {
    // Equations by the index of their first unknown.
    let mut pivots: Vec<Option<(Row, u32)>> = vec![None; CONSTANT + 1];
    let mut rank = 0;
    for packet in observed {
        let (mut left, mut right) = (row(&packet.tuple), packet.hash);
        while let Some(first) = first_bit(&left) {
            match &pivots[first] {
                Some((row, value)) => {
                    left.iter_mut().zip(row).for_each(|(a, b)| *a ^= b);
                    right ^= value;
                }
                None => {
                    pivots[first] = Some((left, right));
                    rank += 1;
                    break;
                }
            }
        }
    }
    let mut unknowns = [0_u32; CONSTANT + 1];
    for place in (0..=CONSTANT).rev() {
        let Some((row, value)) = &pivots[place] else { continue };
        // The unknowns behind this one are solved already.
        let rest = (place + 1..=CONSTANT).filter(|i| row[i / 64] >> (63 - i % 64) & 1 == 1);
        unknowns[place] = rest.fold(*value, |sum, i| sum ^ unknowns[i]);
    }
    let bits = observed.first().map_or(0, |packet| packet.tuple.kind.bits());
    let map = Affine::new(&unknowns[..bits], unknowns[CONSTANT]);
    let wrong = observed.iter().filter(|packet| map.hash(packet.tuple.data()) != packet.hash).count();
    Fit { map, rank, wrong }
}

pub(super) fn first_bit(row: &Row) -> Option<usize> {
    let word = row.iter().position(|&word| word != 0)?;
    Some(64 * word + row[word].leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PacketKind;
    use crate::random::Random;

    fn packets(random: &mut Random, map: &Affine, n: usize) -> Vec<Observed> {
        let mut one = || {
            let mut bytes = random.bytes::<36>();
            bytes[12..].fill(0);
            let tuple = Tuple { kind: PacketKind::TcpIpv4, bytes };
            Observed { tuple, hash: map.hash(tuple.data()) }
        };
        (0..n).map(|_| one()).collect()
    }

    #[test]
    fn any_map_is_found_and_a_wrong_packet_seen() {
        let mut random = Random::new(1);
        for _ in 0..10 {
            let columns: Vec<u32> = (0..96).map(|_| random.next() as u32).collect();
            let map = Affine::new(&columns, random.next() as u32);
            let mut observed = packets(&mut random, &map, 120);
            let found = fit(&observed);
            assert_eq!((found.rank, found.wrong), (97, 0));
            assert_eq!(found.map, map);
            observed[119].hash ^= 0x100;
            assert_eq!(fit(&observed).wrong, 1);
            // A wrong packet among the first spoils the map, and about half of the rest contradict it.
            observed[0].hash ^= 1;
            assert!(fit(&observed).wrong > 2);
        }
    }

    #[test]
    fn too_few_packets_determine_what_they_can() {
        let mut random = Random::new(2);
        let map = Affine::toeplitz(&crate::Key::MICROSOFT, 96);
        let observed = packets(&mut random, &map, 20);
        let found = fit(&observed);
        assert_eq!((found.rank, found.wrong), (20, 0));
        let sum = observed[..3].iter().fold([0_u8; 36], |mut sum, p| {
            sum.iter_mut().zip(p.tuple.bytes).for_each(|(a, b)| *a ^= b);
            sum
        });
        // The sum of an odd number of known packets is known.
        assert_eq!(found.map.hash(&sum[..12]), map.hash(&sum[..12]));
    }
}
