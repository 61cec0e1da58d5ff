//! The bytes that connections carry: each byte depends on its position in the stream only.
//!
//! The pattern repeats after a prime number of bytes, so a piece that is duplicated or missing is detected whatever its length (segment,
//! buffer, page). Connections begin at different positions, so a piece of another connection is detected as well. Written bytes are a slice
//! of the pattern and read bytes are compared with one, so a connection needs no memory for them.

use std::sync::OnceLock;

use flowlane_stack::rng::Rng;

/// Longest slice, bytes.
pub const LONGEST: usize = 1 << 16;
/// Period of the pattern, bytes.
pub const PERIOD: usize = 65_521;

fn all() -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut rng = Rng::new(0x70a7_7e12);
        let once: Vec<u8> = (0..PERIOD).map(|_| rng.next_u64() as u8).collect();
        once.iter().cycle().take(PERIOD + LONGEST).copied().collect()
    })
}

/// `len` bytes, at most [`LONGEST`], from position `at` on.
#[inline]
#[must_use]
pub fn slice(at: u64, len: usize) -> &'static [u8] {
    let from = (at % PERIOD as u64) as usize;
    &all()[from..from + len.min(LONGEST)]
}

/// Whether `bytes` are those from position `at` on.
#[inline]
#[must_use]
pub fn matches(at: u64, bytes: &[u8]) -> bool {
    let mut at = at;
    bytes.chunks(LONGEST).all(|chunk| {
        let same = slice(at, chunk.len()) == chunk;
        at += chunk.len() as u64;
        same
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_alone_decides() {
        let whole: Vec<u8> = (0..200_000u64).map(|at| slice(at, 1)[0]).collect();
        assert!(matches(0, &whole));
        assert!(matches(777, &whole[777..]));
        for wrong in [1, 1460, 4096, 65_520, 65_522, 65_536] {
            assert!(!matches(wrong, &whole[..1000]), "{wrong} bytes missing are noticed");
        }
        let mut damaged = whole;
        damaged[150_000] ^= 1;
        assert!(!matches(0, &damaged));
    }
}
