//! Memory that a lane keeps for peers that do not read, and the limit of each connection.
//!
//! A peer that sends requests and does not read makes the server keep answers. The bytes that a lane keeps for all its connections are
//! counted here, and should stay below its share of [`super::Options::memory`].
//!
//! No connection is refused: each may keep a quarter of the free bytes, at least [`LEAST`] and at most [`MOST`]. So the allowance shrinks
//! as memory fills, and a peer that reads always makes progress. The bound of a lane is its share plus [`LEAST`] bytes for each further
//! connection. (The rule is that of switches with a shared buffer: dynamic thresholds, A. Choudhury and E. Hahne 1998.)

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Lane;

/// Bytes that a connection may always keep.
pub(crate) const LEAST: usize = 4 << 10;
/// Most bytes that a connection may keep.
pub(crate) const MOST: usize = 256 << 10;

/// The bytes that a lane keeps. Only the worker that holds the lane writes.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicU64,
    share: u64,
}

impl Memory {
    /// A lane's memory with this share, bytes.
    pub(crate) fn new(share: u64) -> Self {
        Self { used: AtomicU64::new(0), share }
    }

    /// Bytes that one connection may keep now.
    #[inline]
    pub(crate) fn allowance(&self) -> usize {
        let free = self.share.saturating_sub(self.used.load(Relaxed));
        usize::try_from(free / 4).unwrap_or(MOST).clamp(LEAST, MOST)
    }

    /// Bytes of the share that nobody keeps.
    pub(crate) fn free(&self) -> usize {
        usize::try_from(self.share.saturating_sub(self.used.load(Relaxed))).unwrap_or(usize::MAX)
    }

    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        self.used.store(self.used.load(Relaxed) + bytes as u64, Relaxed);
    }

    #[inline]
    pub(crate) fn sub(&self, bytes: usize) {
        self.used.store(self.used.load(Relaxed).saturating_sub(bytes as u64), Relaxed);
    }

    /// Bytes kept now.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

/// The bytes that one holder keeps of a lane's memory; released when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    lane: Lane,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(lane: Lane) -> Self {
        Self { lane, bytes: 0 }
    }

    /// Sets the current number of bytes.
    #[inline]
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            let memory = self.lane.memory();
            memory.add(bytes);
            memory.sub(self.bytes);
            self.bytes = bytes;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_taken_the_less_each_gets() {
        let memory = Memory::new(1 << 20);
        assert_eq!(memory.allowance(), MOST);
        // Connections that all take what they may.
        let mut before = MOST;
        for _ in 0..100 {
            let may = memory.allowance();
            assert!(may <= before && may >= LEAST);
            memory.add(may);
            before = may;
        }
        assert_eq!(before, LEAST);
        assert!(memory.used() <= (1 << 20) + 100 * LEAST as u64, "{}", memory.used());
        memory.sub(usize::try_from(memory.used()).unwrap());
        assert_eq!((memory.used(), memory.allowance()), (0, MOST));
    }
}
