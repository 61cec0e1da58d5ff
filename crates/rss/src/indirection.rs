//! The indirection table: from a hash to a bucket.
//!
//! A card uses the low bits of the hash as the index into a table of, say, 128 slots, each of which names a queue; slots of our table
//! name a [`Bucket`]. There are more slots than buckets so that load can be shifted in small steps.
//!
//! Any size from 2 to 2048 is accepted. The slot of a hash is its low bits where the size is a power of two, and the
//! remainder of division by the size otherwise, as the few cards with such tables do.

use core::fmt;

use crate::Bucket;

/// Slots of the largest table.
pub const MAX_SLOTS: usize = 2048;

/// A table of slots, each naming a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indirection {
    slots: Vec<Bucket>,
    /// Size less one for a power of two.
    mask: Option<u32>,
}

/// Why there is no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndirectionError {
    /// Not 2 to 2048 slots.
    Size(usize),
    /// All weights are zero, or there are none.
    NoWeight,
}

impl fmt::Display for IndirectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(n) => write!(f, "indirection table of {n} slots: must be 2 to {MAX_SLOTS}"),
            Self::NoWeight => write!(f, "indirection table without weights: at least one must be above zero"),
        }
    }
}

impl core::error::Error for IndirectionError {}

impl Indirection {
    /// Slots of the usual card.
    pub const DEFAULT_SLOTS: usize = 128;

    /// `slots` slots over `buckets` buckets in turn: slot `i` names bucket `i % buckets`.
    ///
    /// # Errors
    /// If the size is out of range.
    pub fn new(slots: usize, buckets: usize) -> Result<Self, IndirectionError> {
        let table: Vec<Bucket> = (0..slots).map(|i| Bucket((i % buckets.max(1)) as u16)).collect();
        Self::from_slots(table)
    }

    /// A table of these slots.
    ///
    /// # Errors
    /// If the size is out of range.
    pub fn from_slots(slots: Vec<Bucket>) -> Result<Self, IndirectionError> {
        let n = slots.len();
        // Guard: `!(2..=MAX_SLOTS).contains(&n)` as `n > MAX_SLOTS` fails indirection::tests
        if !(2..=MAX_SLOTS).contains(&n) {
            return Err(IndirectionError::Size(n));
        }
        let mask = n.is_power_of_two().then_some(n as u32 - 1);
        Ok(Self { slots, mask })
    }

    /// `slots` slots in proportion to the weights: `weights[b]` for bucket `b`.
    ///
    /// Every share is exact to less than one slot, and the slots of a bucket lie evenly through the table.
    ///
    /// # Errors
    /// If the size is out of range or all weights are zero.
    pub fn weighted(slots: usize, weights: &[u32]) -> Result<Self, IndirectionError> {
        let total: i64 = weights.iter().map(|&w| i64::from(w)).sum();
        // Guard: `total == 0` as `false` fails indirection::tests
        if total == 0 {
            return Err(IndirectionError::NoWeight);
        }
        // Each bucket earns its weight a slot; the richest takes the slot and pays the total.
        let mut earned = vec![0_i64; weights.len()];
        let table = (0..slots.min(MAX_SLOTS + 1)).map(|_| {
            for (have, &weight) in earned.iter_mut().zip(weights) {
                *have += i64::from(weight);
            }
            let richest = (0..earned.len()).rev().max_by_key(|&b| earned[b]).unwrap_or(0);
            // Guard: no `earned[richest] -= total;` fails indirection::tests
            earned[richest] -= total;
            Bucket(richest as u16)
        });
        Self::from_slots(table.collect())
    }

    /// The slots in order.
    #[must_use]
    pub fn slots(&self) -> &[Bucket] {
        &self.slots
    }

    /// Number of slots, 2 to 2048.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bits of the hash that choose the slot, where the size is a power of two.
    #[must_use]
    pub fn bits(&self) -> Option<u32> {
        self.mask.map(u32::count_ones)
    }

    /// The slot of a hash.
    #[must_use]
    #[inline]
    pub fn slot_of(&self, hash: u32) -> usize {
        let slot = match self.mask {
            Some(mask) => hash & mask,
            None => hash % self.slots.len() as u32,
        };
        slot as usize
    }

    /// The bucket of a hash.
    #[must_use]
    #[inline]
    pub fn bucket_of(&self, hash: u32) -> Bucket {
        self.slots[self.slot_of(hash)]
    }

    /// Makes a slot name another bucket.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn set(&mut self, slot: usize, bucket: Bucket) {
        self.slots[slot] = bucket;
    }

    /// The slots whose bucket satisfies `wanted`.
    #[must_use]
    pub fn slots_where(&self, wanted: impl Fn(Bucket) -> bool) -> SlotSet {
        (0..self.slots.len()).filter(|&slot| wanted(self.slots[slot])).collect()
    }
}

/// A set of slots of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotSet {
    words: [u64; MAX_SLOTS / 64],
}

impl SlotSet {
    /// No slot.
    pub const EMPTY: Self = Self { words: [0; MAX_SLOTS / 64] };

    /// Adds a slot.
    ///
    /// # Panics
    /// If the number is 2048 or more.
    pub fn insert(&mut self, slot: usize) {
        self.words[slot / 64] |= 1 << (slot % 64);
    }

    /// Whether the slot is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, slot: usize) -> bool {
        self.words.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Number of slots in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no slot is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// The slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..MAX_SLOTS).filter(|&slot| self.contains(slot))
    }
}

impl FromIterator<usize> for SlotSet {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_or_remainder() {
        let table = Indirection::new(128, 8).unwrap();
        assert_eq!((table.slot_of(0x51cc_c178), table.bits()), (120, Some(7)));
        assert_eq!(table.bucket_of(0x51cc_c178), Bucket(0));
        let odd = Indirection::new(100, 8).unwrap();
        assert_eq!((odd.slot_of(0x51cc_c178), odd.bits()), ((0x51cc_c178_u32 % 100) as usize, None));
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for n in [0, 1, 2049, 1 << 20] {
            assert_eq!(Indirection::new(n, 2), Err(IndirectionError::Size(n)));
        }
        assert!((2..=2048).all(|n| Indirection::new(n, 4).is_ok()));
    }

    #[test]
    fn weights_are_exact_to_a_slot() {
        let weights = [1, 2, 0, 5];
        let table = Indirection::weighted(128, &weights).unwrap();
        for (b, weight) in weights.into_iter().enumerate() {
            let share = table.slots_where(|bucket| bucket == Bucket(b as u16)).len();
            assert_eq!(share, 128 * weight as usize / 8);
        }
        assert_eq!(Indirection::weighted(128, &[1; 4]), Indirection::new(128, 4));
        assert_eq!(Indirection::weighted(128, &[0; 4]), Err(IndirectionError::NoWeight));
    }

    #[test]
    fn sets_of_slots() {
        let set: SlotSet = [0, 63, 64, 2047].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 2047]);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(5000));
        assert_eq!((set.len(), set.is_empty(), SlotSet::EMPTY.is_empty()), (4, false, true));
    }
}
