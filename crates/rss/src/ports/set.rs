//! A set of ports in which a free one is found quickly however few are left.
//!
//! A bitmap of 65536 bits with two summaries above it: a bit of `words` says that a word of `bits` has a free port,
//! and a bit of `top` that a word of `words` is not empty. A search looks at one word of each level going up and one
//! going down. Bits are in the solver's coordinates, where the home ports of a destination are a few aligned runs.

use core::ops::RangeInclusive;

/// Which local ports are free, for one family and protocol. 8.3 KiB.
///
/// Made by [`Ports::all_free`](super::Ports::all_free) and used with any [`Ports`](super::Ports) of the same kind: one
/// set may serve a single destination, so that a port can be used again for another, or all of them.
#[derive(Clone, Debug)]
pub struct PortSet {
    bits: Box<[u64; 1024]>,
    words: [u64; 16],
    top: u16,
    free: u32,
    pub(super) range: RangeInclusive<u16>,
    /// The coordinates in use; a set means nothing in others.
    pub(super) kind: u8,
}

impl PortSet {
    /// A set with nothing free.
    pub(super) fn empty(kind: u8, range: RangeInclusive<u16>) -> Self {
        Self { bits: Box::new([0; 1024]), words: [0; 16], top: 0, free: 0, range, kind }
    }

    /// Number of free ports, home or not.
    #[must_use]
    pub fn free(&self) -> usize {
        self.free as usize
    }

    #[inline]
    pub(super) fn is_free(&self, y: u16) -> bool {
        self.bits[usize::from(y >> 6)] >> (y & 63) & 1 == 1
    }

    /// Makes `y` free; whether it was not.
    #[inline]
    pub(super) fn put(&mut self, y: u16) -> bool {
        let fresh = !self.is_free(y);
        self.free += u32::from(fresh);
        self.bits[usize::from(y >> 6)] |= 1 << (y & 63);
        self.words[usize::from(y >> 12)] |= 1 << (y >> 6 & 63);
        self.top |= 1 << (y >> 12);
        fresh
    }

    /// Makes `y` used; whether it was free.
    #[inline]
    pub(super) fn take(&mut self, y: u16) -> bool {
        if !self.is_free(y) {
            return false;
        }
        self.free -= 1;
        let word = &mut self.bits[usize::from(y >> 6)];
        *word &= !(1 << (y & 63));
        if *word == 0 {
            let word = &mut self.words[usize::from(y >> 12)];
            *word &= !(1 << (y >> 6 & 63));
            if *word == 0 {
                self.top &= !(1 << (y >> 12));
            }
        }
        true
    }

    /// The first free bit from `start` on in the aligned run of `2^log2` bits around it, going round at its end.
    #[inline]
    pub(super) fn find_in_run(&self, start: u16, log2: u32) -> Option<u16> {
        let size_less_one = ((1_u32 << log2) - 1) as u16;
        let (first, last) = (start & !size_less_one, start | size_less_one);
        if log2 <= 6 {
            // The run lies in one word: turn it so that `start` comes first.
            let word = self.bits[usize::from(start >> 6)] >> (first & 63);
            let run = if log2 == 6 { word } else { word & ((1 << (1_u32 << log2)) - 1) };
            let after = run & (u64::MAX << (start - first));
            let found = if after != 0 { after } else { run };
            return (found != 0).then(|| first + found.trailing_zeros() as u16);
        }
        self.next(start, last).or_else(|| self.next(first, start))
    }

    /// The first free bit from `from` to `to`, both included.
    #[inline]
    fn next(&self, from: u16, to: u16) -> Option<u16> {
        let here = self.bits[usize::from(from >> 6)] & (u64::MAX << (from & 63));
        if here != 0 {
            let y = from & !63 | here.trailing_zeros() as u16;
            return (y <= to).then_some(y);
        }
        let word = self.next_word(from >> 6)?;
        let y = word << 6 | self.bits[usize::from(word)].trailing_zeros() as u16;
        (y <= to).then_some(y)
    }

    /// The first word after `word` with a free bit.
    #[inline]
    fn next_word(&self, word: u16) -> Option<u16> {
        let after = |bit: u16| (u64::MAX << bit) << 1;
        let here = self.words[usize::from(word >> 6)] & after(word & 63);
        if here != 0 {
            return Some(word & !63 | here.trailing_zeros() as u16);
        }
        let above = u64::from(self.top) & after(word >> 6);
        if above == 0 {
            return None;
        }
        let group = above.trailing_zeros() as u16;
        Some(group << 6 | self.words[usize::from(group)].trailing_zeros() as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    /// Against a plain list of 65536 flags.
    #[test]
    fn random_operations_agree_with_a_plain_list() {
        let mut random = Random::new(5);
        let mut set = PortSet::empty(0, 0..=u16::MAX);
        let mut plain = vec![false; 65536];
        for step in 0..60_000 {
            let r = random.next();
            // Phases of filling and emptying, in few places so that words become empty and full.
            let y = (r as u16) & if step / 10_000 % 2 == 0 { 0xf0ff } else { 0x03ff };
            if (r >> 20) % 4 < 1 + step / 10_000 % 3 {
                assert_eq!(set.put(y), !plain[usize::from(y)]);
                plain[usize::from(y)] = true;
            } else {
                assert_eq!(set.take(y), plain[usize::from(y)]);
                plain[usize::from(y)] = false;
            }
            if step % 16 == 0 {
                let (start, log2) = ((r >> 32) as u16, (r >> 48) as u32 % 17);
                let size = 1_usize << log2;
                let first = usize::from(start) / size * size;
                let expected =
                    (0..size).map(|i| first + (usize::from(start) - first + i) % size).find(|&y| plain[y]);
                assert_eq!(set.find_in_run(start, log2).map(usize::from), expected, "{start} {log2}");
            }
        }
        assert_eq!(set.free(), plain.iter().filter(|&&free| free).count());
    }
}
