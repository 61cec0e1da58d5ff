//! Where an address is kept: a secret bijection of (VLAN, address).
//!
//! A learnt address has 47 bits (its group bit is zero) and belongs to one of 4,096 filtering databases, 59 bits together. A bijection of 59
//! bits, made from secret numbers, scatters them. Its upper bits select the line, its lower bits (the *tag*) are what the line stores; line and
//! tag together give the address back. So an entry needs no other copy of the address, and a whole line of eight entries is 64 bytes.
//!
//! Without the secrets nobody can name addresses that share a line. Whoever could would gain little: a lookup reads two lines at most.

use flowlane_stack::wire::MacAddr;

use crate::seed::{Seed, mix};

/// Bits of an address and its filtering database.
const KEY_BITS: u32 = 59;
const KEY: u64 = (1 << KEY_BITS) - 1;
/// The smallest table has this many lines, two to that power: so a tag has 50 bits at most.
pub(super) const FEWEST: u32 = 9;
/// And the largest.
pub(super) const MOST: u32 = 20;

/// The bit of the group flag in an address as a number.
const GROUP: u32 = 40;

/// Two lines in which an address may be, and its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) tag: u64,
}

/// The bijection.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    xor: u64,
    factors: [u64; 2],
    inverses: [u64; 2],
    lines: u32,
}

impl Scatter {
    /// For a table of 2^`lines` lines.
    pub(super) fn new(seed: Seed, lines: u32) -> Scatter {
        let factors = [mix(seed.0[1]) | 1, mix(seed.0[2]) | 1];
        Scatter { xor: mix(seed.0[0]) & KEY, factors, inverses: factors.map(inverse), lines }
    }

    /// Of the address `mac` (48 bits, no group) in filtering database `fid` (12 bits).
    #[inline]
    pub(super) fn place(&self, fid: u16, mac: u64) -> Place {
        let low = (1 << GROUP) - 1;
        let mut x = u64::from(fid) << 47 | (mac >> 1 & !low) | (mac & low);
        x = (x ^ self.xor) & KEY;
        for factor in self.factors {
            x = (x ^ x >> 30).wrapping_mul(factor) & KEY;
        }
        x ^= x >> 30;
        let tag_bits = KEY_BITS - self.lines;
        let (first, tag) = ((x >> tag_bits) as u32, x & ((1 << tag_bits) - 1));
        Place { first, second: self.other(first, tag), tag }
    }

    /// The other line of an entry with this tag.
    #[inline]
    fn other(&self, line: u32, tag: u64) -> u32 {
        line ^ (tag.wrapping_mul(self.factors[0]) >> (64 - self.lines)) as u32
    }

    /// The filtering database and the address of an entry; `line` is its first.
    pub(super) fn address(&self, line: u32, tag: u64, second: bool) -> (u16, MacAddr) {
        let first = if second { self.other(line, tag) } else { line };
        let mut x = u64::from(first) << (KEY_BITS - self.lines) | tag;
        x ^= x >> 30;
        for inverse in self.inverses.into_iter().rev() {
            x = x.wrapping_mul(inverse) & KEY;
            x ^= x >> 30;
        }
        x ^= self.xor;
        let low = (1 << GROUP) - 1;
        let mac = (x & ((1 << 47) - 1) & !low) << 1 | x & low;
        let [_, _, mac @ ..] = mac.to_be_bytes();
        ((x >> 47) as u16, MacAddr(mac))
    }
}

/// The multiplicative inverse of an odd number, modulo 2^64, by Newton's iteration.
fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    for _ in 0..6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_entry_gives_its_address_back(
            seed: [u64; 4], fid in 0u16..4096, mac: [u8; 6], lines in FEWEST..=MOST, second: bool
        ) {
            let mut mac = mac;
            mac[0] &= 0xfe;
            let number = u64::from_be_bytes([0, 0, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]);
            let scatter = Scatter::new(Seed(seed), lines);
            let place = scatter.place(fid, number);
            prop_assert!(place.first < 1 << lines && place.second < 1 << lines && place.tag < 1 << 50);
            let line = if second { place.second } else { place.first };
            prop_assert_eq!(scatter.address(line, place.tag, second), (fid, MacAddr(mac)));
        }
    }

    /// Addresses in a row, as cards and guests have them, spread like random ones.
    #[test]
    fn addresses_in_a_row_spread_over_the_lines() {
        for seed in 0..20 {
            let scatter = Scatter::new(Seed([seed, 1, 2, 3]), 10);
            let mut lines = vec![0u32; 1 << 10];
            for n in 0..4096u64 {
                lines[scatter.place(1, 0x0200_0000_0000 + n).first as usize] += 1;
            }
            // A line gets four on average; among 1,024 lines of a random spread about 14 at most.
            let most = lines.iter().max().copied().unwrap_or_default();
            assert!((8..20).contains(&most), "seed {seed}: {most}");
        }
    }
}
