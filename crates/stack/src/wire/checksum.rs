//! The Internet checksum: a ones-complement sum of 16-bit words.
//!
//! RFC 1071 (the sum and why it may be computed in any word size and byte order), RFC 1624 (changing it in place).
//!
//! A [`Sum`] is an unfinished checksum. It adds memory eight bytes at a time *as the machine stores them*: the
//! ones-complement sum of byte-swapped words is the byte-swapped sum, so nothing is swapped until the very end. The
//! carry out of the top goes round to the bottom after each addition. Numbers that are not in memory (a length, a
//! protocol) are put into wire order first. That makes every method right on both byte orders.
//!
//! An odd number of bytes counts as if a zero followed. A piece of data that starts at an odd offset of the whole
//! has its bytes in the other half of each word; [`Sum::combine`] with the offset takes care of that.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::IpProtocol;

/// An unfinished ones-complement sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of nothing.
    pub const EMPTY: Sum = Sum(0);

    /// Adds bytes that start at an even offset of the checksummed data.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Sum {
        Sum(add(self.0, sum_of(bytes)))
    }

    /// Adds bytes that start at `offset` of the checksummed data; only whether it is odd matters.
    #[inline]
    #[must_use]
    pub fn add_bytes_at(self, offset: usize, bytes: &[u8]) -> Sum {
        self.combine(Sum(sum_of(bytes)), offset)
    }

    /// Adds a header of constant length (even, unless it is the last piece): unrolled, without a call.
    #[inline(always)]
    #[must_use]
    pub fn add_header<const N: usize>(self, bytes: &[u8; N]) -> Sum {
        let mut sum = self.0;
        let mut at = 0;
        while at + 8 <= N {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            sum = add(sum, u64::from_ne_bytes(word));
            at += 8;
        }
        Sum(add(sum, tail(&bytes[at..])))
    }

    /// Adds one 16-bit number, given in host order, at an even offset.
    #[inline(always)]
    #[must_use]
    pub fn add_u16(self, value: u16) -> Sum {
        Sum(add(self.0, u64::from(value.to_be())))
    }

    /// Adds one 32-bit number, given in host order, at an even offset.
    #[inline(always)]
    #[must_use]
    pub fn add_u32(self, value: u32) -> Sum {
        Sum(add(self.0, u64::from(value.to_be())))
    }

    /// As [`add_u32`](Sum::add_u32), to a sum of fewer than a thousand such numbers, which cannot overflow.
    #[inline(always)]
    pub(crate) const fn add_few(self, value: u32) -> Sum {
        Sum(self.0 + value.to_be() as u64)
    }

    /// The sum over the pseudo-header of a transport protocol over IPv4 (RFC 768, RFC 9293 §3.1): `len` is the length
    /// of transport header and data.
    #[inline(always)]
    #[must_use]
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, len: u16) -> Sum {
        let src = u64::from(u32::from_ne_bytes(src.octets()));
        let dst = u64::from(u32::from_ne_bytes(dst.octets()));
        // Two numbers of 32 bits and two of 16 cannot overflow 64.
        Sum(src + dst + u64::from(u16::from(protocol.0).to_be()) + u64::from(len.to_be()))
    }

    /// The sum over the pseudo-header of a transport protocol over IPv6 (RFC 8200 §8.1): `len` is the length of
    /// transport header and data, without extension headers.
    #[inline(always)]
    #[must_use]
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: IpProtocol, len: u32) -> Sum {
        Sum::EMPTY
            .add_header(&src.octets())
            .add_header(&dst.octets())
            .add_u32(len)
            .add_u32(u32::from(protocol.0))
    }

    /// Adds the sum of a piece that starts at `offset` of the whole; only whether it is odd matters.
    #[inline]
    #[must_use]
    pub fn combine(self, piece: Sum, offset: usize) -> Sum {
        let piece = if offset % 2 == 0 { piece.0 } else { u64::from(piece.fold_ne().swap_bytes()) };
        Sum(add(self.0, piece))
    }

    /// The sum in 16 bits, not complemented, in host order: what a transport header carries when the rest of the
    /// checksum is left to the card.
    #[inline]
    #[must_use]
    pub fn fold(self) -> u16 {
        u16::from_be(self.fold_ne())
    }

    /// The sum in 32 bits, as this machine stores it, to be kept and [added](Sum::add_kept) later. Zero only if all is.
    #[inline(always)]
    pub(crate) fn kept(self) -> u32 {
        (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32
    }

    /// Adds a sum that was [kept](Sum::kept).
    #[inline(always)]
    pub(crate) fn add_kept(self, kept: u32) -> Sum {
        Sum(add(self.0, u64::from(kept)))
    }

    /// The checksum: the complement of the sum, in host order.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// Whether data that contains its own checksum is intact: the sum over everything is then all ones.
    #[inline]
    #[must_use]
    pub fn is_intact(self) -> bool {
        self.fold_ne() == 0xffff
    }

    #[inline(always)]
    fn fold_ne(self) -> u16 {
        // Both halves added to each other, in both places: the carry out of the lower sum enters the upper one, which
        // is then the end-around sum of the halves.
        let sum = (self.0.wrapping_add(self.0.rotate_left(32)) >> 32) as u32;
        let sum = sum.wrapping_add(sum.rotate_left(16)) >> 16;
        sum as u16
    }
}

/// The checksum of `bytes`, in host order.
#[inline]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::EMPTY.add_bytes(bytes).finish()
}

/// The checksum after one 16-bit word under it changed from `old` to `new` (RFC 1624, equation 3).
///
/// Not for UDP without a checksum: there zero means absent, and stays.
#[inline]
#[must_use]
pub fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

/// The checksum after an aligned 32-bit number under it changed from `old` to `new`: an address, or a pair of ports.
#[inline]
#[must_use]
pub fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let half = update_u16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update_u16(half, old as u16, new as u16)
}

/// Addition with the carry brought round.
#[inline(always)]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

/// Adds all words of a block: one chain of additions with carry for the processor.
#[inline(always)]
fn add_block<const N: usize>(sum: u64, block: &[u8; N]) -> u64 {
    let mut sum = sum;
    let mut carry = false;
    let mut at = 0;
    while at < N {
        let (once, first) = sum.overflowing_add(word(block, at));
        let (twice, second) = once.overflowing_add(u64::from(carry));
        (sum, carry) = (twice, first | second);
        at += 8;
    }
    add(sum, u64::from(carry))
}

/// The sum over a slice.
#[inline]
fn sum_of(bytes: &[u8]) -> u64 {
    if bytes.len() >= 256 { sum_of_many(bytes) } else { sum_of_few(bytes, bytes, 0) }
}

/// Adds `rest`, the end of `bytes`, to a sum: few instructions for short data.
#[inline(always)]
fn sum_of_few(bytes: &[u8], rest: &[u8], sum: u64) -> u64 {
    let (mut rest, mut sum) = (rest, sum);
    while let Some((block, after)) = rest.split_first_chunk::<64>() {
        (sum, rest) = (add_block(sum, block), after);
    }
    if let Some((block, after)) = rest.split_first_chunk::<32>() {
        (sum, rest) = (add_block(sum, block), after);
    }
    if let Some((block, after)) = rest.split_first_chunk::<16>() {
        (sum, rest) = (add_block(sum, block), after);
    }
    if let Some((block, after)) = rest.split_first_chunk::<8>() {
        (sum, rest) = (add_block(sum, block), after);
    }
    if rest.is_empty() {
        return sum;
    }
    let Some(last) = bytes.last_chunk::<8>() else {
        return add(sum, tail(rest));
    };
    // The last eight bytes without those that are in the sum already, as if zeros followed.
    let gone = 64 - 8 * rest.len() as u32;
    let last = u64::from_ne_bytes(*last);
    add(sum, if cfg!(target_endian = "little") { last >> gone } else { last << gone })
}

/// Fast for long data: with the processor's vectors, or four chains of words side by side.
fn sum_of_many(bytes: &[u8]) -> u64 {
    match flowlane_sys::checksum::sum_blocks(bytes) {
        Some((sum, rest)) => sum_of_few(bytes, rest, sum),
        None => sum_of_words(bytes),
    }
}

/// Carries collect in the upper halves of 128 bits.
fn sum_of_words(bytes: &[u8]) -> u64 {
    let (mut a, mut b, mut c, mut d) = (0u128, 0u128, 0u128, 0u128);
    let mut rest = bytes;
    while let Some((block, after)) = rest.split_first_chunk::<64>() {
        a += u128::from(word(block, 0));
        b += u128::from(word(block, 8));
        c += u128::from(word(block, 16));
        d += u128::from(word(block, 24));
        a += u128::from(word(block, 32));
        b += u128::from(word(block, 40));
        c += u128::from(word(block, 48));
        d += u128::from(word(block, 56));
        rest = after;
    }
    let sum = a + b + c + d;
    sum_of_few(bytes, rest, add(sum as u64, (sum >> 64) as u64))
}

/// The sum over at most seven bytes, as if zeros followed.
#[inline(always)]
fn tail(bytes: &[u8]) -> u64 {
    let mut rest = bytes;
    let mut sum = 0;
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        sum += u64::from(u32::from_ne_bytes(*four));
        rest = after;
    }
    if let Some((two, after)) = rest.split_first_chunk::<2>() {
        sum += u64::from(u16::from_ne_bytes(*two));
        rest = after;
    }
    if let Some(&one) = rest.first() {
        sum += u64::from(u16::from_ne_bytes([one, 0]));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::EMPTY.add_bytes(&bytes).fold(), 0xddf2);
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // The RFC's case where an earlier formula gave 0xffff.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn carries_survive_long_runs_of_ones() {
        for len in [1, 2, 7, 8, 31, 32, 33, 64, 1460, 9000, 65535] {
            let bytes = vec![0xff; len];
            assert_eq!(checksum(&bytes), naive(&bytes), "{len}");
        }
        assert_eq!(checksum(&[]), 0xffff);
    }

    #[test]
    fn folding_never_loses_a_carry() {
        for sum in [
            0,
            1,
            0xffff,
            0x1_0000,
            0xffff_ffff,
            0x1_0000_0000,
            u64::MAX,
            u64::MAX - 1,
            0xffff_0000_ffff_0001,
        ] {
            let want = (u128::from(sum) % 0xffff) as u16;
            let got = Sum(sum).fold_ne() % 0xffff;
            assert_eq!(got, want, "{sum:x}");
        }
    }

    proptest! {
        #[test]
        fn equals_the_naive_sum(bytes in proptest::collection::vec(any::<u8>(), 0..600), skip in 0usize..8) {
            let bytes = &bytes[skip.min(bytes.len())..];
            prop_assert_eq!(checksum(bytes), naive(bytes));
            // On processors with vectors, nothing else asks for it.
            prop_assert_eq!(Sum(sum_of_words(bytes)).finish(), naive(bytes));
        }

        #[test]
        fn pieces_combine_at_any_cut(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            let sum = Sum::EMPTY.add_bytes(a).add_bytes_at(a.len(), b);
            prop_assert_eq!(sum.finish(), naive(&bytes));
            let sum = Sum::EMPTY.add_bytes(a).combine(Sum::EMPTY.add_bytes(b), a.len());
            prop_assert_eq!(sum.finish(), naive(&bytes));
        }

        #[test]
        fn headers_equal_slices(bytes in any::<[u8; 23]>(), start in any::<u64>()) {
            let sum = Sum(start);
            prop_assert_eq!(sum.add_header(&bytes).fold() % 0xffff, sum.add_bytes(&bytes).fold() % 0xffff);
        }

        #[test]
        fn numbers_equal_their_bytes(a in any::<u16>(), b in any::<u32>()) {
            let sum = Sum::EMPTY.add_u16(a).add_u32(b);
            let bytes = [a.to_be_bytes().as_slice(), &b.to_be_bytes()].concat();
            prop_assert_eq!(sum.finish(), naive(&bytes));
        }

        #[test]
        fn pseudo_headers_equal_their_bytes(
            s in any::<[u8; 16]>(), d in any::<[u8; 16]>(), p in any::<u8>(), len in any::<u16>(),
        ) {
            let bytes = [&s[..], &d, &u32::from(len).to_be_bytes(), &[0, 0, 0, p]].concat();
            let sum = Sum::pseudo_v6(s.into(), d.into(), IpProtocol(p), u32::from(len));
            prop_assert_eq!(sum.finish(), naive(&bytes));
            let (s, d) = ([s[0], s[1], s[2], s[3]], [d[0], d[1], d[2], d[3]]);
            let bytes = [&s[..], &d, &[0, p], &len.to_be_bytes()].concat();
            prop_assert_eq!(Sum::pseudo_v4(s.into(), d.into(), IpProtocol(p), len).finish(), naive(&bytes));
        }

        #[test]
        fn updates_equal_recomputing(mut bytes in any::<[u8; 24]>(), at in 0usize..5, new in any::<u32>()) {
            // Data of all zeros has two representations of its sum; a real header never is.
            bytes[23] |= 1;
            let before = naive(&bytes);
            let place = at * 4;
            let old = be32(&bytes, place);
            bytes[place..place + 4].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u32(before, old, new), naive(&bytes));
        }

        #[test]
        fn data_with_its_checksum_is_intact(mut bytes in proptest::collection::vec(any::<u8>(), 2..100)) {
            bytes[0] = 0;
            bytes[1] = 0;
            let sum = checksum(&bytes);
            bytes[..2].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(Sum::EMPTY.add_bytes(&bytes).is_intact());
            bytes[1] ^= 1;
            prop_assert!(!Sum::EMPTY.add_bytes(&bytes).is_intact());
        }
    }

    fn be32(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
    }
}
