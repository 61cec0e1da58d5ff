//! Vector forms of the Toeplitz hash, behind a safe door.
//!
//! The hash of a packet is a product of polynomials over GF(2): bit `j` of the hash is the sum over all data bits `i`
//! of `data[i] & key[i + j]`. Two instructions of x86-64 do such sums, and each is used where it is best:
//!
//! * **Carry-less multiplication** for tuples that lie together. A 64 × 64 bit product holds a triangle of sums beyond
//!   the 32 × 32 square one would expect; taken from both ends, two products cover exactly the 96 data bits of an
//!   IPv4 tuple with ports, and six cover the 288 bits of an IPv6 tuple:
//!
//! ```text
//!   data bits      0        32        64        96
//!                  |── d0 ──|── d1 ──|── d2 ──|
//!   first product  |═══════ × key[0..64] ═════|          answer in bits 32..64
//!   second                  |═════ × key[64..128] ════|  answer in bits 64..96
//! ```
//!
//!   The data must have its first bit lowest, so every byte is mirrored first (one GFNI instruction).
//!
//! * **GFNI's 8 × 8 bit matrices** for tuples laid out by field, where a vector holds one byte of sixteen tuples in
//!   each lane: the matrix that takes byte `p` of the data to byte `k` of the hash depends only on `p + k`.
//!
//! What always holds: a [`Vector`] can only be made on a processor that has every instruction its level uses, so its
//! methods are safe; all levels give the same hash as the portable forms in `flowlane-rss`, whose tests compare them.
//! What this does not do: portable forms, other processors, tuples of other lengths.
//!
//! Reading: "Verifying the RSS hash calculation" (Microsoft's driver documentation) for the hash; Intel's manual,
//! volume 2, for PCLMULQDQ and GF2P8AFFINEQB.

#[cfg(all(target_arch = "x86_64", flowlane_vector))]
#[allow(clippy::incompatible_msrv, reason = "built only where the build script finds Rust 1.89")]
mod avx512;
#[cfg(all(target_arch = "x86_64", flowlane_vector))]
#[allow(clippy::incompatible_msrv, reason = "built only where the build script finds Rust 1.89")]
mod clmul;
#[cfg(all(target_arch = "x86_64", flowlane_vector))]
mod vector;
#[cfg(not(all(target_arch = "x86_64", flowlane_vector)))]
#[path = "toeplitz/absent.rs"]
mod vector;

pub use vector::Vector;

/// Bytes of key a [`Vector`] takes: the longest key in use (52), shorter ones filled up with zeros.
pub const KEY_BYTES: usize = 52;

/// A set of processor features for which there is a vector form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// AVX2, PCLMULQDQ and GFNI: 128-bit products, one tuple after the other.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL, VBMI), VPCLMULQDQ and GFNI: sixteen tuples at a time.
    Avx512,
}

/// IPv4 tuples laid out by field: entry `i` of each column belongs to tuple `i`.
///
/// Addresses and ports are in network byte order. All columns must have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Columns4<'a> {
    /// Source addresses.
    pub src: &'a [[u8; 4]],
    /// Destination addresses.
    pub dst: &'a [[u8; 4]],
    /// Source ports.
    pub src_port: &'a [[u8; 2]],
    /// Destination ports.
    pub dst_port: &'a [[u8; 2]],
}

impl Columns4<'_> {
    /// Number of tuples.
    ///
    /// # Panics
    /// If the columns differ in length.
    #[must_use]
    pub fn len(&self) -> usize {
        let n = self.src.len();
        assert!(
            self.dst.len() == n && self.src_port.len() == n && self.dst_port.len() == n,
            "columns of tuples differ in length"
        );
        n
    }

    /// Whether there are no tuples.
    ///
    /// # Panics
    /// If the columns differ in length.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The two ports of tuple `i`, source first.
    ///
    /// # Panics
    /// If there is no such tuple.
    #[must_use]
    #[inline]
    pub fn ports(&self, i: usize) -> [u8; 4] {
        let (s, d) = (self.src_port[i], self.dst_port[i]);
        [s[0], s[1], d[0], d[1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first published vector, on every level this processor has; `flowlane-rss` compares the forms at length.
    #[test]
    fn published_vector() {
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&0x6d5a_56da_255b_0ec2_4167_253d_43a3_8fb0_u128.to_be_bytes());
        let tuple = [66, 9, 149, 187, 161, 142, 100, 80, 0x0a, 0xea, 0x06, 0xe6];
        for level in [Level::Avx2, Level::Avx512] {
            let Some(vector) = Vector::with_level(&key, level) else { continue };
            let mut hashes = [0; 17];
            vector.batch12(&[tuple; 17], &mut hashes);
            assert_eq!(hashes, [0x51cc_c178; 17]);
            assert_eq!(vector.tuple12(&tuple), 0x51cc_c178);
            assert_eq!(vector.level(), level);
        }
    }
}
