//! The secrets of a switch.

/// Secret numbers, drawn once at the start of a switch. All instances of one switch have the same.
///
/// They decide where the tables keep an address, so that strangers cannot choose addresses that fall together, and they are the name under
/// which a switch knows its own probe frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub [u64; 4]);

impl Seed {
    /// The number that the switch's own probe frames carry.
    #[must_use]
    pub(crate) fn switch_id(self) -> u64 {
        // Not one of the numbers themselves: a probe is sent to everybody.
        mix(self.0[0] ^ mix(self.0[3].wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }
}

impl core::fmt::Debug for Seed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seed")
    }
}

/// A bijection of 64 bits (the finaliser of splitmix64).
#[inline]
pub(crate) const fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
