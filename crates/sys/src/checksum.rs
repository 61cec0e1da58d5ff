//! The sum of the Internet checksum over long data, with vector instructions where the processor has them.
//!
//! RFC 1071, §2(B) and §2(C): the sum may be computed in any word size and in the machine's byte order. Words of 32 bits are
//! added in lanes of 64, so no carry is lost and none has to be brought round before the end.

/// Bytes of a block.
pub const BLOCK: usize = 64;

/// The sum over the whole blocks of `bytes`, as 32-bit words in machine byte order, and the bytes behind them. `None` if the processor
/// has no suitable vector instructions. For up to 16 GiB.
#[inline]
#[must_use]
pub fn sum_blocks(bytes: &[u8]) -> Option<(u64, &[u8])> {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        let whole = bytes.len() - bytes.len() % BLOCK;
        let (blocks, rest) = bytes.split_at(whole);
        // SAFETY: the processor has AVX2.
        return Some((unsafe { avx2(blocks) }, rest));
    }
    let _ = bytes;
    None
}

/// The sum over whole blocks.
///
/// # Safety
/// The processor must have AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(blocks: &[u8]) -> u64 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
    };
    let mut lanes = [0u64; 4];
    // SAFETY: the caller promises AVX2. Loads take 32 bytes at 0 and 32 of chunks of exactly 64 and need no alignment; the
    // store fills the array of 32 bytes.
    unsafe {
        let low = _mm256_set1_epi64x(0xffff_ffff);
        let (mut a, mut b) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        let (mut c, mut d) = (a, b);
        for block in blocks.chunks_exact(BLOCK) {
            let at = block.as_ptr().cast::<__m256i>();
            let (x, y) = (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1)));
            a = _mm256_add_epi64(a, _mm256_and_si256(x, low));
            b = _mm256_add_epi64(b, _mm256_srli_epi64::<32>(x));
            c = _mm256_add_epi64(c, _mm256_and_si256(y, low));
            d = _mm256_add_epi64(d, _mm256_srli_epi64::<32>(y));
        }
        let sum = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
        _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum);
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word by word, for every length and some alignments.
    #[test]
    fn agrees_with_one_word_at_a_time() {
        let bytes: Vec<u8> =
            (0..3000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 0x80).collect();
        for start in [0, 1, 3, 8, 31] {
            for len in 0..1500 {
                let data = &bytes[start..start + len];
                let Some((sum, rest)) = sum_blocks(data) else { return };
                assert_eq!(rest.len(), len % BLOCK);
                let words = data[..len - rest.len()].chunks_exact(4);
                let want: u64 = words.map(|w| u64::from(u32::from_ne_bytes([w[0], w[1], w[2], w[3]]))).sum();
                assert_eq!(sum, want, "start {start}, length {len}");
            }
        }
        let full = vec![0xff; 1 << 20];
        if let Some((sum, _)) = sum_blocks(&full) {
            assert_eq!(sum, (1 << 18) * 0xffff_ffff);
        }
    }
}
