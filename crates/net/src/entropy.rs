//! Randomness from the kernel, for keys and seeds.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`.
///
/// # Errors
/// When the kernel has none to give.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += getrandom(&mut bytes[done..], GetRandomFlags::empty())?;
    }
    Ok(())
}

/// A random number.
///
/// # Errors
/// When the kernel has no randomness to give.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
