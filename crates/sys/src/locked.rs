//! Memory that the kernel does not swap out (`mlock(2)`): what is sent without copying is there when the card reads it.

use std::ops::{Deref, DerefMut};

/// Bytes that stay in memory, if that is allowed.
#[derive(Debug)]
pub struct LockedBytes {
    bytes: Box<[u8]>,
    locked: bool,
}

impl LockedBytes {
    /// So many zeros. Their pages are there from the start, and locked if the limit (`ulimit -l`) allows it.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len].into_boxed_slice();
        // SAFETY: the range is that of the bytes; locking changes none of them.
        let locked = len > 0 && unsafe { libc::mlock(bytes.as_ptr().cast(), len) } == 0;
        Self { bytes, locked }
    }

    /// Whether they are locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }
}

impl Deref for LockedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        if self.locked {
            // SAFETY: as in `new`. Neighbours on the first and the last page are unlocked, too, and otherwise as they were.
            unsafe { libc::munlock(self.bytes.as_ptr().cast(), self.bytes.len()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_bytes_are_bytes() {
        let mut bytes = LockedBytes::new(10_000);
        bytes[9_999] = 7;
        assert_eq!((bytes.len(), bytes[0], bytes[9_999]), (10_000, 0, 7));
        assert!(!LockedBytes::new(0).is_locked());
    }
}
