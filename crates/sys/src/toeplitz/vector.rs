//! The safe door: a [`Vector`] proves that the processor has the instructions.

use core::fmt;

use super::clmul::{self, KeyWords};
use super::{Columns4, KEY_BYTES, Level, avx512};

/// The vector forms of the hash under one key.
///
/// It has about 1 KiB of constants derived from the key. Construction checks the features of the processor; methods do not. No method
/// allocates. Tuples are in network byte order: source address, destination address, source port, destination port.
#[derive(Clone)]
pub struct Vector {
    words: KeyWords,
    wide: avx512::Keys,
    level: Level,
}

impl Vector {
    /// The best level of this processor, or `None` if it has no vector form.
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Option<Self> {
        Self::with_level(key, Level::Avx512).or_else(|| Self::with_level(key, Level::Avx2))
    }

    /// The given level, or `None` if this processor lacks one of its instructions.
    #[must_use]
    pub fn with_level(key: &[u8; KEY_BYTES], level: Level) -> Option<Self> {
        if !supported(level) {
            return None;
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&key[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let words = [[word(0), word(8)], [word(12), word(20)], [word(24), word(32)]];
        Some(Self { words, wide: avx512::Keys::new(&words, key), level })
    }

    /// The level in use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Hash of a 12-byte tuple (IPv4 with ports).
    #[must_use]
    #[inline]
    pub fn tuple12(&self, tuple: &[u8; 12]) -> u32 {
        // SAFETY: a `Vector` exists only where `supported` found AVX2, PCLMULQDQ and GFNI.
        unsafe { clmul::tuple12(&self.words, tuple) }
    }

    /// Hash of an IPv4 tuple given by field; with ports of zero, the hash of the addresses alone.
    #[must_use]
    #[inline]
    pub fn ipv4(&self, src: [u8; 4], dst: [u8; 4], ports: [u8; 4]) -> u32 {
        let [src, dst, ports] = [src, dst, ports].map(|f| u64::from(u32::from_le_bytes(f)));
        // SAFETY: a `Vector` exists only where `supported` found AVX2, PCLMULQDQ and GFNI.
        unsafe { clmul::ipv4(&self.words, src | dst << 32, dst | ports << 32) }
    }

    /// Hash of a 36-byte tuple (IPv6 with ports).
    #[must_use]
    #[inline]
    pub fn tuple36(&self, tuple: &[u8; 36]) -> u32 {
        // SAFETY: a `Vector` exists only where `supported` found AVX2, PCLMULQDQ and GFNI.
        unsafe { clmul::tuple36(&self.words, tuple) }
    }

    /// Hash of an IPv6 tuple given by field; with ports of zero, the hash of the addresses alone.
    #[must_use]
    #[inline]
    pub fn ipv6(&self, src: &[u8; 16], dst: &[u8; 16], ports: [u8; 4]) -> u32 {
        // SAFETY: a `Vector` exists only where `supported` found AVX2, PCLMULQDQ and GFNI.
        unsafe { clmul::ipv6(&self.words, src, dst, u32::from_le_bytes(ports)) }
    }

    /// Hashes of 12-byte tuples into `hashes`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn batch12(&self, tuples: &[[u8; 12]], hashes: &mut [u32]) {
        assert_eq!(tuples.len(), hashes.len(), "as many hashes as tuples");
        let mut done = 0;
        if self.level == Level::Avx512 && hashes.len() >= avx512::GROUP {
            // SAFETY: this level exists only where `supported` found all features of the function.
            done = unsafe { avx512::batch12(&self.wide, tuples, hashes) };
        }
        for (tuple, hash) in tuples[done..].iter().zip(&mut hashes[done..]) {
            *hash = self.tuple12(tuple);
        }
    }

    /// Hashes of 36-byte tuples into `hashes`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn batch36(&self, tuples: &[[u8; 36]], hashes: &mut [u32]) {
        assert_eq!(tuples.len(), hashes.len(), "as many hashes as tuples");
        let mut done = 0;
        if self.level == Level::Avx512 && hashes.len() >= avx512::GROUP {
            // SAFETY: this level exists only where `supported` found all features of the function.
            done = unsafe { avx512::batch36(&self.wide, tuples, hashes) };
        }
        for (tuple, hash) in tuples[done..].iter().zip(&mut hashes[done..]) {
            *hash = self.tuple36(tuple);
        }
    }

    /// Hashes of IPv4 tuples laid out by field into `hashes`.
    ///
    /// # Panics
    /// If the columns and `hashes` differ in length.
    pub fn columns4(&self, columns: Columns4<'_>, hashes: &mut [u32]) {
        assert_eq!(columns.len(), hashes.len(), "as many hashes as tuples");
        let mut done = 0;
        if self.level == Level::Avx512 && hashes.len() >= avx512::GROUP {
            // SAFETY: this level exists only where `supported` found all features of the function.
            done = unsafe { avx512::columns4(&self.wide, columns, hashes) };
        }
        for (i, hash) in hashes.iter_mut().enumerate().skip(done) {
            *hash = self.ipv4(columns.src[i], columns.dst[i], columns.ports(i));
        }
    }
}

impl fmt::Debug for Vector {
    /// The level only: the rest would give the key away.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vector").field("level", &self.level).finish_non_exhaustive()
    }
}

/// Whether this processor, and the operating system's register saving, has all of a level's instructions.
fn supported(level: Level) -> bool {
    let base = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("gfni");
    match level {
        Level::Avx2 => base,
        Level::Avx512 => {
            base && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("vpclmulqdq")
        }
    }
}
