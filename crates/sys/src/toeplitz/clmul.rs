//! One tuple at a time, by carry-less multiplication of 64 × 64 bits.
//!
//! `keys` holds the key as big-endian words at byte offsets 0, 8, 12, 20, 24 and 32: two for each 12 bytes of tuple,
//! the first for the product whose answer is in bits 32..64 ("low"), the second for bits 64..96 ("high"). See the
//! picture in the parent module.

use std::arch::x86_64::*;

/// Mirrors the eight bits of every byte, as a matrix for GF2P8AFFINEQB.
pub(super) const MIRROR: i64 = 0x8040_2010_0804_0201_u64 as i64;

/// Key words for the products, in pairs (low, high) for tuple bytes 0..12, 12..24 and 24..36.
pub(super) type KeyWords = [[u64; 2]; 3];

/// Mirrors the bits of each byte of `x`.
#[inline]
#[target_feature(enable = "avx2,gfni")]
fn mirror(x: __m128i) -> __m128i {
    _mm_gf2p8affine_epi64_epi8::<0>(x, _mm_set1_epi64x(MIRROR))
}

/// A pair of key words as a register.
#[inline]
#[target_feature(enable = "avx2")]
fn pair(words: &[u64; 2]) -> __m128i {
    // SAFETY: the array has sixteen bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// The answer held in bits 32..64 of `low` plus the one in bits 64..96 of `high`.
#[inline]
#[target_feature(enable = "avx2")]
fn answer(low: __m128i, high: __m128i) -> u32 {
    let sum = _mm_xor_si128(_mm_srli_epi64::<32>(low), _mm_unpackhi_epi64(high, high));
    _mm_cvtsi128_si32(sum) as u32
}

/// Hash of twelve bytes: `first` is bytes 0..8 and `second` bytes 4..12, as little-endian words.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,gfni")]
pub(super) fn ipv4(keys: &KeyWords, first: u64, second: u64) -> u32 {
    two_products(keys, _mm_cvtsi64_si128(first as i64), _mm_cvtsi64_si128(second as i64))
}

/// Hash of twelve bytes that lie together.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,gfni")]
pub(super) fn tuple12(keys: &KeyWords, tuple: &[u8; 12]) -> u32 {
    let at = tuple.as_ptr();
    // SAFETY: each load takes eight of the twelve bytes, from byte 0 and byte 4, and needs no alignment.
    let (first, second) = unsafe { (_mm_loadl_epi64(at.cast()), _mm_loadl_epi64(at.add(4).cast())) };
    two_products(keys, first, second)
}

/// The two products of a 12-byte tuple; only the low halves of `first` and `second` are used.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,gfni")]
fn two_products(keys: &KeyWords, first: __m128i, second: __m128i) -> u32 {
    let key = pair(&keys[0]);
    let (first, second) = (mirror(first), mirror(second));
    answer(_mm_clmulepi64_si128::<0x00>(first, key), _mm_clmulepi64_si128::<0x10>(second, key))
}

/// Hash of 36 bytes that lie together.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,gfni")]
pub(super) fn tuple36(keys: &KeyWords, tuple: &[u8; 36]) -> u32 {
    let at0 = mirror(load16(tuple, 0));
    let at4 = mirror(load16(tuple, 4));
    let at16 = mirror(load16(tuple, 16));
    let at20 = mirror(load16(tuple, 20));
    six_products(keys, at0, at4, at16, at20)
}

/// Hash of an IPv6 tuple given by field; `ports` holds its four bytes as a little-endian word.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq,gfni")]
pub(super) fn ipv6(keys: &KeyWords, src: &[u8; 16], dst: &[u8; 16], ports: u32) -> u32 {
    let src = mirror(load16(src, 0));
    let dst = mirror(load16(dst, 0));
    let ports = mirror(_mm_cvtsi32_si128(ports as i32));
    let at4 = _mm_alignr_epi8::<4>(dst, src);
    let at20 = _mm_alignr_epi8::<4>(ports, dst);
    six_products(keys, src, at4, dst, at20)
}

/// The six products of a 36-byte tuple; `atN` holds tuple bytes N..N+16.
#[inline]
#[target_feature(enable = "avx2,pclmulqdq")]
fn six_products(keys: &KeyWords, at0: __m128i, at4: __m128i, at16: __m128i, at20: __m128i) -> u32 {
    let (k0, k1, k2) = (pair(&keys[0]), pair(&keys[1]), pair(&keys[2]));
    let low = _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(at0, k0), _mm_clmulepi64_si128::<0x01>(at4, k1)),
        _mm_clmulepi64_si128::<0x01>(at16, k2),
    );
    let high = _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128::<0x10>(at4, k0), _mm_clmulepi64_si128::<0x10>(at16, k1)),
        _mm_clmulepi64_si128::<0x11>(at20, k2),
    );
    answer(low, high)
}

/// Sixteen bytes of `bytes` from `offset`, wherever they lie.
#[inline]
#[target_feature(enable = "avx2")]
fn load16<const N: usize>(bytes: &[u8; N], offset: usize) -> __m128i {
    assert!(offset + 16 <= N);
    // SAFETY: the sixteen bytes are inside the array (asserted above); the load needs no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().add(offset).cast()) }
}
