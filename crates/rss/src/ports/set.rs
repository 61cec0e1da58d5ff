//! A set of ports in which a free one is found quickly however few are left.
//!
//! A bitmap of 65536 bits with two summaries above it: a bit of `words` says that a word of `bits` has a free port,
//! and a bit of `top` that a word of `words` is not empty. A search goes down through one word of each level. Bits are in the solver's coordinates, where the home ports of a destination are a few aligned runs.

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
        let free = self.is_free(y);
        if free {
            self.take_free(y);
        }
        free
    }

    /// Makes the free `y` used.
    #[inline]
    pub(super) fn take_free(&mut self, y: u16) {
        debug_assert!(self.is_free(y));
        self.free -= 1;
        // No branches on what becomes empty: nobody could predict them in a set that is nearly full.
        let word = &mut self.bits[usize::from(y >> 6)];
        *word &= !(1 << (y & 63));
        let empty = u64::from(*word == 0);
        let group = &mut self.words[usize::from(y >> 12)];
        *group &= !(empty << (y >> 6 & 63));
        let empty = u16::from(*group == 0);
        self.top &= !(empty << (y >> 12));
    }

    /// A free bit in the aligned run of `2^log2` bits around `start`, or `None` if there is none.
    ///
    /// On each level the search begins at `start`'s place and goes round, so random starts give random ports.
    #[inline]
    pub(super) fn find_in_run(&self, start: u16, log2: u32) -> Option<u16> {
        // A level at which the run lies in one place needs no search.
        let mut group = start >> 12;
        if log2 > 12 {
            group = first_from(u64::from(self.top), group, log2 - 12)?;
        }
        let mut word = start >> 6 & 63;
        if log2 > 6 {
            word = first_from(self.words[usize::from(group)], word, (log2 - 6).min(6))?;
        }
        let word = group << 6 | word;
        let bit = first_from(self.bits[usize::from(word)], start & 63, log2.min(6))?;
        Some(word << 6 | bit)
    }
}

/// The first set bit from `at` on in the aligned block of `2^log2` bits around it, going round at its end.
#[inline]
fn first_from(bits: u64, at: u16, log2: u32) -> Option<u16> {
    let mask = BLOCKS[(log2 & 7) as usize];
    let block = at & !((1 << log2) - 1);
    let inside = bits & mask << (block & 63);
    // Turned so that `at` comes first, all bits in question are in the order of the search. No branch here but on
    // emptiness: nobody could predict it in a set that is nearly full.
    let ahead = inside.rotate_right(u32::from(at)).trailing_zeros() as u16;
    (inside != 0).then_some((at + ahead) & 63)
}

/// Blocks of 1, 2, 4 ... 64 bits.
const BLOCKS: [u64; 8] = [0x1, 0x3, 0xf, 0xff, 0xffff, 0xffff_ffff, u64::MAX, u64::MAX];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

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
                let run = first..first + size;
                match set.find_in_run(start, log2).map(usize::from) {
                    Some(y) => assert!(run.contains(&y) && plain[y], "{start} {log2}"),
                    None => assert!(!plain[run].contains(&true), "{start} {log2}"),
                }
            }
        }
        assert_eq!(set.free(), plain.iter().filter(|&&free| free).count());
    }
}
