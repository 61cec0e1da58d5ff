//! Sixteen tuples at a time in 512-bit registers.
//!
//! Tuples that lie together go through four carry-less products per instruction, one in each 128-bit lane. Tuples
//! laid out by field go through GFNI's bit matrices: after one byte permutation a register holds byte `p` of sixteen
//! addresses in lane `p`, and twelve matrix instructions give all bytes of sixteen hashes.
//!
//! Each function does whole groups of sixteen and returns how many tuples it has done; the caller does the rest.

use std::arch::x86_64::*;

use super::clmul::{KeyWords, MIRROR};
use super::{Columns4, KEY_BYTES};

/// Tuples that are done at a time.
pub(super) const GROUP: usize = 16;

/// What the kernels need of the key.
#[derive(Clone)]
pub(super) struct Keys {
    /// As for single tuples.
    words: KeyWords,
    /// `matrices[f][k]`: for field `f` (source, destination, ports), byte `k` of the hash; lane `p` has the matrix for
    /// byte `p` of the field, twice.
    matrices: [[[u64; 8]; 4]; 3],
}

impl Keys {
    pub(super) fn new(words: &KeyWords, key: &[u8; KEY_BYTES]) -> Self {
        let mut matrices = [[[0; 8]; 4]; 3];
        for (field, of_field) in matrices.iter_mut().enumerate() {
            for (byte, lanes) in of_field.iter_mut().enumerate() {
                for (half_lane, matrix) in lanes.iter_mut().enumerate() {
                    *matrix = matrix_at(key, 4 * field + half_lane / 2 + byte);
                }
            }
        }
        Self { words: *words, matrices }
    }
}

/// The matrix that takes byte `p` of the data to byte `k` of the hash, where `at` is `p + k`.
///
/// Row `r` makes bit `r` of the result, counted from the most significant: it is the eight key bits from `8 at + r`.
/// GF2P8AFFINEQB has that row in byte `r` of the matrix.
fn matrix_at(key: &[u8; KEY_BYTES], at: usize) -> u64 {
    let two = u16::from_be_bytes([key[at], key[at + 1]]);
    let mut rows = [0; 8];
    for (r, row) in rows.iter_mut().enumerate() {
        *row = (two >> (8 - r)) as u8;
    }
    u64::from_le_bytes(rows)
}

/// Byte permutation from sixteen 4-byte entries to four lanes, lane `p` with byte `p` of each.
const TO_LANES: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        index[i] = (4 * (i % 16) + i / 16) as u8;
        i += 1;
    }
    index
};

/// The same for ports: sixteen 2-byte source ports in the lower half and destination ports in the upper.
const PORTS_TO_LANES: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (lane, tuple) = (i / 16, i % 16);
        index[i] = (32 * (lane / 2) + 2 * tuple + lane % 2) as u8;
        i += 1;
    }
    index
};

/// Back from lanes to sixteen 4-byte numbers: lane `k` has byte `k` of the hashes, most significant first.
const FROM_LANES: [u8; 64] = {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        index[i] = (16 * (3 - i % 4) + i / 4) as u8;
        i += 1;
    }
    index
};

#[inline]
#[target_feature(enable = "avx512f")]
fn load64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array has 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(words: &[u64; 8]) -> __m512i {
    // SAFETY: the array has 64 bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// The first 64 bytes of a column of addresses.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_addresses(column: &[[u8; 4]]) -> __m512i {
    assert!(column.len() >= 16);
    // SAFETY: sixteen entries of four bytes are there (asserted); the load needs no alignment.
    unsafe { _mm512_loadu_si512(column.as_ptr().cast()) }
}

/// The first 32 bytes of a column of ports.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_ports(column: &[[u8; 2]]) -> __m256i {
    assert!(column.len() >= 16);
    // SAFETY: sixteen entries of two bytes are there (asserted); the load needs no alignment.
    unsafe { _mm256_loadu_si256(column.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(hashes: &mut [u32], value: __m512i) {
    assert!(hashes.len() >= 16);
    // SAFETY: there is room for sixteen numbers (asserted); the store needs no alignment.
    unsafe { _mm512_storeu_si512(hashes.as_mut_ptr().cast(), value) }
}

/// The exclusive or of three.
#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

/// Tuples laid out by field.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
pub(super) fn columns4(keys: &Keys, columns: Columns4<'_>, hashes: &mut [u32]) -> usize {
    let [src_keys, dst_keys, port_keys] = keys.matrices.map(|of_field| of_field.map(|m| load_words(&m)));
    let (to_lanes, ports_to_lanes) = (load64(&TO_LANES), load64(&PORTS_TO_LANES));
    let from_lanes = load64(&FROM_LANES);
    let groups = columns.len() / 16;
    for g in 0..groups {
        let at = 16 * g;
        let src = _mm512_permutexvar_epi8(to_lanes, load_addresses(&columns.src[at..]));
        let dst = _mm512_permutexvar_epi8(to_lanes, load_addresses(&columns.dst[at..]));
        let ports = _mm512_inserti64x4::<1>(
            _mm512_castsi256_si512(load_ports(&columns.src_port[at..])),
            load_ports(&columns.dst_port[at..]),
        );
        let ports = _mm512_permutexvar_epi8(ports_to_lanes, ports);
        // Lane p of `sum[k]`: what byte p of all three fields adds to byte k of the hash.
        let sum: [__m512i; 4] = std::array::from_fn(|k| {
            xor3(
                _mm512_gf2p8affine_epi64_epi8::<0>(src, src_keys[k]),
                _mm512_gf2p8affine_epi64_epi8::<0>(dst, dst_keys[k]),
                _mm512_gf2p8affine_epi64_epi8::<0>(ports, port_keys[k]),
            )
        });
        // Add up the lanes of each while bringing the four together: (0 0 1 1) and (2 2 3 3), then (0 1 2 3).
        let low = fold(sum[0], sum[1]);
        let high = fold(sum[2], sum[3]);
        let all = _mm512_xor_si512(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(low, high),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(low, high),
        );
        store(&mut hashes[at..], _mm512_permutexvar_epi8(from_lanes, all));
    }
    16 * groups
}

/// Lanes 0+2 and 1+3 of `a`, then the same of `b`.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b))
}

/// 12-byte tuples one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni,vpclmulqdq")]
pub(super) fn batch12(keys: &Keys, tuples: &[[u8; 12]], hashes: &mut [u32]) -> usize {
    let key = both_words(&keys.words[0]);
    let mirror = _mm512_set1_epi64(MIRROR);
    // Of each tuple's dwords 0 1 2, a lane gets 0 1 1 2: the two overlapping factors.
    let spread = _mm512_setr_epi32(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let (inputs, _) = tuples.as_chunks::<16>();
    let (outputs, _) = hashes.as_chunks_mut::<16>();
    for (input, output) in inputs.iter().zip(outputs) {
        let mut low = [_mm512_setzero_si512(); 4];
        let mut high = low;
        for j in 0..4 {
            let four = load_four_tuples(input, j);
            let four = _mm512_gf2p8affine_epi64_epi8::<0>(four, mirror);
            let four = _mm512_permutexvar_epi32(spread, four);
            low[j] = _mm512_clmulepi64_epi128::<0x00>(four, key);
            high[j] = _mm512_clmulepi64_epi128::<0x11>(four, key);
        }
        store(output, _mm512_permutexvar_epi32(order, gather_answers(low, high)));
    }
    16 * inputs.len()
}

/// Tuples 4 j to 4 j + 4 of sixteen; the last 16 bytes of the register are zero.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_four_tuples(tuples: &[[u8; 12]; 16], j: usize) -> __m512i {
    assert!(j < 4);
    // SAFETY: the mask limits the load to 48 bytes from byte 48 j of 192; it needs no alignment.
    unsafe { _mm512_maskz_loadu_epi32(0x0fff, tuples.as_ptr().cast::<i32>().add(12 * j)) }
}

/// 36-byte tuples one after the other.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,gfni,vpclmulqdq")]
pub(super) fn batch36(keys: &Keys, tuples: &[[u8; 36]], hashes: &mut [u32]) -> usize {
    let key = keys.words.map(|words| both_words(&words));
    let mirror = _mm512_set1_epi64(MIRROR);
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let (inputs, _) = tuples.as_chunks::<16>();
    let (outputs, _) = hashes.as_chunks_mut::<16>();
    for (input, output) in inputs.iter().zip(outputs) {
        let mut low = [_mm512_setzero_si512(); 4];
        let mut high = low;
        let (fours, _) = input.as_chunks::<4>();
        for j in 0..4 {
            // Bytes 0..16, 12..28 and 20..36 of four tuples, one tuple in a lane. The first two carry four bytes too
            // many behind, the last four too many in front.
            let first = _mm512_gf2p8affine_epi64_epi8::<0>(load_lanes::<0>(&fours[j]), mirror);
            let middle = _mm512_gf2p8affine_epi64_epi8::<0>(load_lanes::<12>(&fours[j]), mirror);
            let last = _mm512_gf2p8affine_epi64_epi8::<0>(load_lanes::<20>(&fours[j]), mirror);
            let first_high = _mm512_shuffle_epi32::<0b10_01_10_01>(first);
            let middle_high = _mm512_shuffle_epi32::<0b10_01_10_01>(middle);
            let last_low = _mm512_shuffle_epi32::<0b10_01_10_01>(last);
            low[j] = xor3(
                _mm512_clmulepi64_epi128::<0x00>(first, key[0]),
                _mm512_clmulepi64_epi128::<0x00>(middle, key[1]),
                _mm512_clmulepi64_epi128::<0x00>(last_low, key[2]),
            );
            high[j] = xor3(
                _mm512_clmulepi64_epi128::<0x10>(first_high, key[0]),
                _mm512_clmulepi64_epi128::<0x10>(middle_high, key[1]),
                _mm512_clmulepi64_epi128::<0x11>(last, key[2]),
            );
        }
        store(output, _mm512_permutexvar_epi32(order, gather_answers(low, high)));
    }
    16 * inputs.len()
}

/// Sixteen bytes from `AT` of four tuples, one tuple in each lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_lanes<const AT: usize>(tuples: &[[u8; 36]; 4]) -> __m512i {
    const { assert!(AT + 16 <= 36) };
    // SAFETY: each load is inside its array of 36 bytes (asserted) and needs no alignment.
    let [a, b, c, d] =
        [0, 1, 2, 3].map(|i: usize| unsafe { _mm_loadu_si128(tuples[i].as_ptr().add(AT).cast()) });
    let lanes = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(lanes, c), d)
}

/// A pair of key words in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn both_words(words: &[u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(words[1] as i64, words[0] as i64))
}

/// Sixteen hashes from their products: number 4 * lane + j of the result belongs to lane `lane` of `low[j]` (answer in
/// bits 32..64) and `high[j]` (bits 64..96).
#[inline]
#[target_feature(enable = "avx512f")]
fn gather_answers(low: [__m512i; 4], high: [__m512i; 4]) -> __m512i {
    const SECOND: u16 = 0x2222;
    const FOURTH: u16 = 0x8888;
    let low01 = _mm512_mask_mov_epi32(_mm512_srli_epi64::<32>(low[0]), SECOND, low[1]);
    let low23 = _mm512_mask_mov_epi32(_mm512_srli_epi64::<32>(low[2]), SECOND, low[3]);
    let high01 = _mm512_mask_mov_epi32(high[0], FOURTH, _mm512_slli_epi64::<32>(high[1]));
    let high23 = _mm512_mask_mov_epi32(high[2], FOURTH, _mm512_slli_epi64::<32>(high[3]));
    _mm512_xor_si512(_mm512_unpacklo_epi64(low01, low23), _mm512_unpackhi_epi64(high01, high23))
}
