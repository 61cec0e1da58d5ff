//! The items of a run: the key of each number, and the value that belongs to it.
//!
//! Both depend on the item's number and on the options alone, not on the seed of a run or on the lane: so every connection can check what any other has
//! stored, and a run what an earlier one has. A key is the prefix and the number in decimal digits, with zeros before it up to its length. A value is a slice of
//! the [pattern](crate::tcp::pattern), whose place follows from the number and the value's length: a value of another key, or one that is cut, is another.

use flowlane_stack::rng::Rng;

use super::sizes::Sizes;
use crate::tcp::pattern;

/// Longest key, bytes.
pub const LONGEST_KEY: u32 = 250;
/// Largest value, bytes: that of memcached's largest item.
pub const LARGEST_VALUE: u32 = 1 << 30;
/// Values that have no bound by themselves are cut here, bytes, since memcached by default takes items of 1 MiB.
const UNBOUNDED: u32 = (1 << 20) - 1024;

/// Which keys and values there are.
#[derive(Debug, Clone, PartialEq)]
pub struct Items {
    keys: u64,
    prefix: String,
    key_sizes: Sizes,
    value_sizes: Sizes,
    /// Least length of a key.
    least: u32,
    most_value: u32,
}

/// Why there are no such items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ItemsError {
    /// None is asked for.
    #[error("--keys must be at least 1")]
    NoKeys,
    /// A prefix that may not be in a key.
    #[error("--key-prefix: a key has no space and no control character")]
    Prefix,
    /// Too many keys for their length.
    #[error(
        "keys of {has} bytes: {keys} of them need {needs} bytes, the prefix included (--key-size, --keys)"
    )]
    KeysTooShort {
        /// What was asked for.
        has: u32,
        /// How many.
        keys: u64,
        /// What they need.
        needs: u32,
    },
    /// Keys longer than memcached takes.
    #[error("keys of {0} bytes: memcached takes up to 250")]
    KeysTooLong(u32),
    /// Values larger than memcached takes.
    #[error("values of {0} bytes: memcached takes up to 1 GiB")]
    ValuesTooLarge(u32),
}

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    bytes: [u8; LONGEST_KEY as usize],
    len: usize,
}

impl Key {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Items {
    /// So many items.
    ///
    /// # Errors
    /// See [`ItemsError`].
    pub fn new(keys: u64, prefix: &str, key_sizes: Sizes, value_sizes: Sizes) -> Result<Self, ItemsError> {
        if keys == 0 {
            return Err(ItemsError::NoKeys);
        }
        if prefix.bytes().any(|b| b <= b' ' || b == 127) {
            return Err(ItemsError::Prefix);
        }
        let digits = (keys - 1).checked_ilog10().unwrap_or(0) + 1;
        let least = digits.saturating_add(u32::try_from(prefix.len()).unwrap_or(u32::MAX));
        if least > LONGEST_KEY {
            return Err(ItemsError::KeysTooLong(least));
        }
        match key_sizes.largest() {
            // Guard: `has < least` as `false` fails memcached::items::tests::items_that_cannot_be
            Some(has) if has < least => return Err(ItemsError::KeysTooShort { has, keys, needs: least }),
            Some(has) if has > LONGEST_KEY => return Err(ItemsError::KeysTooLong(has)),
            _ => {}
        }
        let most_value = value_sizes.largest().unwrap_or(UNBOUNDED);
        if most_value > LARGEST_VALUE {
            return Err(ItemsError::ValuesTooLarge(most_value));
        }
        Ok(Self { keys, prefix: prefix.to_owned(), key_sizes, value_sizes, least, most_value })
    }

    /// How many there are.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The sizes of keys and of values.
    #[must_use]
    pub fn sizes(&self) -> (Sizes, Sizes) {
        (self.key_sizes, self.value_sizes)
    }

    /// The key of an item.
    #[inline]
    pub(super) fn key(&self, item: u64) -> Key {
        let len = self.key_sizes.draw(&mut Rng::new(item ^ 0x006b_6579), self.least, LONGEST_KEY) as usize;
        let mut key = Key { bytes: [b'0'; LONGEST_KEY as usize], len };
        key.bytes[..self.prefix.len()].copy_from_slice(self.prefix.as_bytes());
        let (mut rest, mut at) = (item, len);
        while rest > 0 && at > self.prefix.len() {
            at -= 1;
            key.bytes[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        key
    }

    /// Bytes of its value.
    #[inline]
    pub(super) fn value_len(&self, item: u64) -> usize {
        self.value_sizes.draw(&mut Rng::new(item ^ 0x0076_616c_7565), 0, self.most_value) as usize
    }
}

/// Where in the pattern the value of an item begins that has so many bytes.
#[inline]
fn place(item: u64, len: usize) -> u64 {
    // Neighbours, and other lengths, begin far apart.
    let mixed = (item ^ (len as u64).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Appends a value of so many bytes.
pub(super) fn write_value(item: u64, len: usize, out: &mut Vec<u8>) {
    let (mut at, mut left) = (place(item, len), len);
    while left > 0 {
        let piece = pattern::slice(at, left);
        out.extend_from_slice(piece);
        at += piece.len() as u64;
        left -= piece.len();
    }
}

/// Whether `bytes` are those of a value of `len` bytes from byte `from` on.
#[inline]
pub(super) fn is_of_value(item: u64, len: usize, from: usize, bytes: &[u8]) -> bool {
    pattern::matches(place(item, len) + from as u64, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memcached::Workload;
    use std::collections::HashSet;

    fn items(keys: u64, prefix: &str, key_sizes: &str, value_sizes: &str) -> Result<Items, ItemsError> {
        Items::new(keys, prefix, key_sizes.parse().unwrap(), value_sizes.parse().unwrap())
    }

    #[test]
    fn keys_differ_and_have_their_length() {
        for (items, lengths) in [
            (items(10_000, "", "30", "1").unwrap(), 30..=30),
            (items(10_000, "", "4", "1").unwrap(), 4..=4),
            (items(10_000, "user:", "9..12", "1").unwrap(), 9..=12),
            (items(10_000, "", "normal:3,10", "1").unwrap(), 4..=60),
            (Items::new(10_000, "", Workload::Etc.key_sizes(), Sizes::Fixed(1)).unwrap(), 4..=250),
            (Items::new(10_000, "", Workload::Usr.key_sizes(), Sizes::Fixed(1)).unwrap(), 16..=21),
        ] {
            let keys: HashSet<Vec<u8>> = (0..10_000).map(|item| items.key(item).bytes().to_vec()).collect();
            assert_eq!(keys.len(), 10_000, "{items:?}");
            assert!(
                keys.iter().all(|k| lengths.contains(&k.len()) && k.starts_with(items.prefix.as_bytes()))
            );
        }
        let key = items(1000, "k", "10", "1").unwrap().key(207);
        assert_eq!(String::from_utf8_lossy(key.bytes()), "k000000207");
    }

    #[test]
    fn items_that_cannot_be_are_refused() {
        assert_eq!(items(0, "", "30", "1"), Err(ItemsError::NoKeys));
        assert_eq!(items(9, "a b", "30", "1"), Err(ItemsError::Prefix));
        assert_eq!(items(101, "", "2", "1"), Err(ItemsError::KeysTooShort { has: 2, keys: 101, needs: 3 }));
        assert!(items(100, "", "2", "1").is_ok());
        assert_eq!(items(9, "", "251", "1"), Err(ItemsError::KeysTooLong(251)));
        assert_eq!(items(10, &"x".repeat(250), "250", "1"), Err(ItemsError::KeysTooLong(251)));
        assert_eq!(items(9, "", "30", "2Gi"), Err(ItemsError::ValuesTooLarge(2 << 30)));
    }

    /// Whatever is wrong with a value is seen: a byte, its length, the key it belongs to.
    #[test]
    fn another_value_is_noticed() {
        for len in [1usize, 2, 200, 70_000, 200_000] {
            let mut value = Vec::new();
            write_value(5, len, &mut value);
            assert_eq!(value.len(), len);
            assert!(is_of_value(5, len, 0, &value));
            let (first, second) = value.split_at(len / 3);
            assert!(
                is_of_value(5, len, 0, first) && is_of_value(5, len, len / 3, second),
                "{len}: in pieces"
            );
            value[len / 2] ^= 1;
            assert!(!is_of_value(5, len, 0, &value), "{len}: a byte");
        }
        let mut value = Vec::new();
        write_value(5, 200, &mut value);
        assert!(!is_of_value(6, 200, 0, &value), "of another key");
        assert!(!is_of_value(5, 199, 0, &value[..199]), "cut");
        assert!(!is_of_value(5, 200, 1, &value[..100]), "moved");
    }

    #[test]
    fn values_are_the_same_in_every_run() {
        let items = items(1000, "", "30", "1..5000").unwrap();
        let lens: Vec<usize> = (0..1000).map(|item| items.value_len(item)).collect();
        assert_eq!(lens, (0..1000).map(|item| items.value_len(item)).collect::<Vec<_>>());
        assert!(lens.iter().min() < Some(&100) && lens.iter().max() > Some(&4900));
    }
}
