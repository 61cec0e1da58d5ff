//! Quality of a key.
//!
//! The hash is linear: each set bit of a field adds its window of the key. So the effect of a field on the slot is a matrix over GF(2),
//! and its rank determines the spread: a field of 16 bits whose matrix has rank r for the bits that select the slot reaches exactly 2^r
//! slots, each equally often. A key of zeros, or one too short for the tuple, has rank 0; random keys rarely lack more than one. The rank
//! applies to tables whose size is a power of two; for other tables the spread over buckets is counted.
//!
//! Fields are rated by their last 16 bits: ports, and the part in which the addresses of a network differ.

use crate::{Bucket, HashConfig, Indirection, Key, KeyError};

/// Effect of 16 bits of one field on the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldQuality {
    /// The field, as in `source port`.
    pub name: &'static str,
    /// Rank of the field's matrix for the bits that choose the slot: log2 of the slots reached. For a table whose size
    /// is no power of two, the rank for as many bits as number its slots.
    pub rank: u32,
    /// The best that rank could be: the smaller of 16 and the number of those bits.
    pub full_rank: u32,
    /// Buckets reached when the field runs through its 65536 values and all else is zero.
    pub buckets_reached: usize,
    /// Values that fall into the bucket with the most of them.
    pub most: u32,
    /// Values that fall into the bucket with the fewest of them.
    pub fewest: u32,
}

/// Quality of a key for the four fields of one family: source address, destination address, source port, destination port.
pub type FamilyQuality = [FieldQuality; 4];

/// Quality of a key with a given table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quality {
    /// Fields of IPv4.
    pub ipv4: FamilyQuality,
    /// Fields of IPv6.
    pub ipv6: FamilyQuality,
    /// Number of buckets that have a slot.
    pub buckets: usize,
}

const NAMES: [&str; 4] = ["source address", "destination address", "source port", "destination port"];

/// Bit position of the last 16 bits of each field.
const PLACES_V4: [usize; 4] = [16, 48, 64, 80];
const PLACES_V6: [usize; 4] = [112, 240, 256, 272];

impl Key {
    /// Measures what the key does with a table. Takes microseconds for a table whose size is a power of two, milliseconds for another.
    #[must_use]
    pub fn judge(&self, table: &Indirection) -> Quality {
        let mut buckets = table.slots().to_vec();
        buckets.sort_unstable();
        buckets.dedup();
        let field = |i: usize, at: usize| judge_field(self, table, &buckets, NAMES[i], at);
        let family = |at: [usize; 4]| [0, 1, 2, 3].map(|i| field(i, at[i]));
        Quality { ipv4: family(PLACES_V4), ipv6: family(PLACES_V6), buckets: buckets.len() }
    }

    /// A random 40-byte key that is useful with this table: drawn again until it is.
    ///
    /// One in a hundred random keys is not with 128 buckets, one in fifteen with 1024.
    ///
    /// # Errors
    /// If a hundred draws gave none, which means that the source of random bytes is broken.
    pub fn random_useful(
        table: &Indirection,
        config: &HashConfig,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<Self, KeyError> {
        let mut tries = 100;
        loop {
            let key = Self::random(&mut fill);
            match key.judge(table).require_useful(config) {
                Ok(()) => return Ok(key),
                Err(error) if tries == 0 => return Err(error),
                Err(_) => tries -= 1,
            }
        }
    }
}

impl Quality {
    /// Refuses a key with which some bucket cannot be reached by changing one field alone.
    ///
    /// Only families and fields that `config` hashes are rated.
    ///
    /// # Errors
    /// Names the first such field, or the family.
    pub fn require_useful(&self, config: &HashConfig) -> Result<(), KeyError> {
        let families = [
            ("IPv4", &self.ipv4, config.ipv4, config.tcp_ipv4 || config.udp_ipv4),
            ("IPv6", &self.ipv6, config.ipv6, config.tcp_ipv6 || config.udp_ipv6),
        ];
        for (family, fields, addresses, ports) in families {
            for (i, field) in fields.iter().enumerate() {
                let asked = ports || (addresses && i < 2);
                if asked && field.buckets_reached < self.buckets {
                    return Err(KeyError::Useless {
                        family,
                        field: field.name,
                        reached: field.buckets_reached,
                        buckets: self.buckets,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether every field reaches every slot it could.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ipv4.iter().chain(&self.ipv6).all(|field| field.rank == field.full_rank)
    }
}

fn judge_field(
    key: &Key,
    table: &Indirection,
    buckets: &[Bucket],
    name: &'static str,
    at: usize,
) -> FieldQuality {
    // Column i: what bit i of the field, counted from the lowest, adds to the hash.
    let columns: [u32; 16] = core::array::from_fn(|i| key.window(at + 15 - i));
    let bits = table.len().next_power_of_two().trailing_zeros();
    let mask = (1 << bits) - 1;
    // The hash's low bits choose the slot of a table whose size is a power of two; of any other all of them do.
    let chooses = if table.len().is_power_of_two() { mask } else { u32::MAX };
    let (basis, rank) = independent(columns.map(|column| column & chooses));
    // Each sum of the basis comes from as many values of the field as any other.
    let each = 1_u32 << (16 - rank);
    let mut of_slot = vec![0_u32; table.len()];
    let mut hash = 0;
    for step in 1..=1_u32 << rank {
        of_slot[table.slot_of(hash)] += each;
        // Gray code: each sum differs from the one before in one term.
        if let Some(term) = basis[..rank].get(step.trailing_zeros() as usize) {
            hash ^= term;
        }
    }
    let mut counts = vec![0_u32; buckets.len()];
    for (bucket, n) in table.slots().iter().zip(of_slot) {
        if let Ok(i) = buckets.binary_search(bucket) {
            counts[i] += n;
        }
    }
    FieldQuality {
        name,
        rank: independent(columns.map(|column| column & mask)).1 as u32,
        full_rank: bits.min(16),
        buckets_reached: counts.iter().filter(|&&n| n > 0).count(),
        most: counts.iter().copied().max().unwrap_or(0),
        fewest: counts.iter().copied().min().unwrap_or(0),
    }
}

/// A basis over GF(2) of what the columns of a matrix span, and their rank: how many there are in it.
fn independent(mut columns: [u32; 16]) -> ([u32; 16], usize) {
    let (mut basis, mut rank) = ([0; 16], 0);
    for i in 0..columns.len() {
        let pivot = columns[i];
        if pivot == 0 {
            continue;
        }
        basis[rank] = pivot;
        rank += 1;
        let lowest = pivot & pivot.wrapping_neg();
        for column in &mut columns[i + 1..] {
            if *column & lowest != 0 {
                *column ^= pivot;
            }
        }
    }
    (basis, rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::{HashConfig, UdpFields};

    #[test]
    fn named_keys_are_useful() {
        for (slots, buckets) in [(128, 2), (128, 8), (128, 128), (512, 64), (100, 4), (2048, 1024)] {
            let table = Indirection::new(slots, buckets).unwrap();
            for config in [HashConfig::default(), HashConfig::with_udp(UdpFields::Four)] {
                assert_eq!(Key::MICROSOFT.judge(&table).require_useful(&config), Ok(()), "{slots}/{buckets}");
            }
        }
        let table = Indirection::new(128, 8).unwrap();
        assert_eq!(Key::symmetric().judge(&table).require_useful(&HashConfig::default()), Ok(()));
    }

    #[test]
    fn useless_keys_are_refused_in_one_line() {
        let table = Indirection::new(128, 8).unwrap();
        let refused =
            |key: &Key| key.judge(&table).require_useful(&HashConfig::default()).unwrap_err().to_string();
        let zeros = Key::new(&[0; 40]).unwrap();
        assert_eq!(
            refused(&zeros),
            "useless key: over IPv4 the source address reaches 1 of 8 buckets; take another key"
        );
        // One bit pattern all the way: every window is the same.
        assert!(refused(&Key::new(&[0xff; 40]).unwrap()).contains("reaches 2 of 8"));
        // Too short for IPv6, but good for IPv4.
        let short = Key::new(&Key::MICROSOFT.as_bytes()[..16]).unwrap();
        assert!(refused(&short).contains("IPv6"));
        let only4 = HashConfig { ipv6: false, tcp_ipv6: false, ..HashConfig::default() };
        assert_eq!(short.judge(&table).require_useful(&only4), Ok(()));
    }

    #[test]
    fn random_keys_are_drawn_until_useful() {
        let mut random = Random::new(11);
        let config = HashConfig::default();
        let table = Indirection::weighted(2048, &[1, 0, 3, 5]).unwrap();
        let mut draws = 0;
        let key = Key::random_useful(&table, &config, |bytes| {
            draws += 1;
            if draws > 3 {
                random.fill(bytes);
            }
        });
        assert!(key.unwrap().judge(&table).require_useful(&config).is_ok() && draws > 3);
        assert!(Key::random_useful(&table, &config, |_| ()).is_err());
    }

    /// What is found by the basis is what every value of the field gives, one by one.
    #[test]
    fn the_spread_is_that_of_all_values() {
        let mut random = Random::new(5);
        for (slots, buckets) in [(128, 8), (128, 128), (100, 4), (320, 48), (2048, 1024), (128, 1)] {
            let table = Indirection::new(slots, buckets).unwrap();
            for key in [Key::MICROSOFT, Key::symmetric(), Key::new(&random.bytes::<40>()).unwrap()] {
                let quality = key.judge(&table);
                for (field, at) in quality.ipv4.iter().zip(PLACES_V4) {
                    let mut counts = vec![0_u32; buckets];
                    for value in 0..1_u32 << 16 {
                        let hash = (0..16).filter(|bit| value >> bit & 1 == 1);
                        let hash = hash.fold(0, |hash, bit| hash ^ key.window(at + 15 - bit));
                        counts[usize::from(table.bucket_of(hash).0)] += 1;
                    }
                    let (most, fewest) = (*counts.iter().max().unwrap(), *counts.iter().min().unwrap());
                    assert_eq!((field.most, field.fewest), (most, fewest), "{slots}/{buckets} {field:?}");
                    assert_eq!(field.buckets_reached, counts.iter().filter(|n| **n > 0).count());
                }
            }
        }
    }

    /// The rank predicts the counted spread.
    #[test]
    fn rank_equals_spread() {
        let mut random = Random::new(4);
        let table = Indirection::new(256, 256).unwrap();
        for round in 0..20 {
            let mut bytes: [u8; 40] = random.bytes();
            if round % 2 == 1 {
                // Periodic keys, for low ranks.
                for i in 1..40 {
                    bytes[i] = bytes[i % (round % 3 + 1)];
                }
            }
            let quality = Key::new(&bytes).unwrap().judge(&table);
            for field in quality.ipv4.iter().chain(&quality.ipv6) {
                assert_eq!(field.buckets_reached, 1 << field.rank, "{field:?}");
                assert_eq!(field.most, 65536 >> field.rank);
                assert_eq!(field.fewest, if field.rank == 8 { 256 } else { 0 });
            }
        }
    }
}
