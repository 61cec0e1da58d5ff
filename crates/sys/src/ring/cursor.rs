//! The two ends of a ring with one producer and one consumer.
//!
//! ```text
//!            consumer position          producer position
//!                   │                          │
//!   ──────┬─────────▼──────────────────────────▼──────────
//!    free │  ready to be consumed              │  free
//!   ──────┴────────────────────────────────────┴──────────
//! ```
//!
//! Each end keeps its own position and a cached copy of the other's, so the shared line of the other end is read
//! only when the cache says "full" or "empty". AF_XDP lays its rings out in just this way (producer and consumer
//! words in a shared mapping), so the same cursor serves them: implement `Positions` over the mapping.

use crate::sync::{AtomicU32, Ordering};

/// Where the two positions of a ring live. `Producer` stores the one, `Consumer` the other; both read both.
///
/// The type is of this crate's atomics, which are loom's under `--cfg loom`.
pub(crate) trait Positions {
    /// Next position to be produced; written by the producer.
    fn produced(&self) -> &AtomicU32;
    /// Next position to be consumed; written by the consumer.
    fn consumed(&self) -> &AtomicU32;
}

/// Positions produced and not consumed, from a fresh look by whoever.
pub(crate) fn between(positions: &impl Positions) -> u32 {
    let consumed = positions.consumed().load(Ordering::Acquire);
    positions.produced().load(Ordering::Acquire).wrapping_sub(consumed)
}

/// The producing end.
#[derive(Debug)]
pub(crate) struct Producer<P> {
    positions: P,
    capacity: u32,
    /// Next position to fill. Ahead of the shared one until `publish`.
    at: u32,
    consumed: u32,
}

impl<P: Positions> Producer<P> {
    /// Starts at the shared position.
    pub(crate) fn new(positions: P, capacity: u32) -> Self {
        let at = positions.produced().load(Ordering::Relaxed);
        let consumed = positions.consumed().load(Ordering::Acquire);
        Self { positions, capacity, at, consumed }
    }

    /// Free slots, looking at the consumer's position only if fewer than `wanted` are known to be free.
    #[inline]
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let known = self.capacity - self.at.wrapping_sub(self.consumed);
        if known >= wanted {
            return known;
        }
        // Acquire: the consumer has finished with the slots before it gave them back.
        self.consumed = self.positions.consumed().load(Ordering::Acquire);
        self.capacity - self.at.wrapping_sub(self.consumed)
    }

    /// The next position to fill; the caller made sure of `room` and fills it before `publish`.
    #[inline]
    pub(crate) fn advance(&mut self) -> u32 {
        let at = self.at;
        self.at = at.wrapping_add(1);
        at
    }

    /// Makes everything filled visible to the consumer.
    #[inline]
    pub(crate) fn publish(&self) {
        // Release: the slots are written before they are announced.
        self.positions.produced().store(self.at, Ordering::Release);
    }

    /// The next position to fill.
    #[inline]
    pub(crate) fn end(&self) -> u32 {
        self.at
    }

    /// Positions filled and not yet consumed, from a fresh look.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        self.consumed = self.positions.consumed().load(Ordering::Acquire);
        self.at.wrapping_sub(self.consumed)
    }

    pub(crate) fn positions(&self) -> &P {
        &self.positions
    }
}

/// The consuming end.
#[derive(Debug)]
pub(crate) struct Consumer<P> {
    positions: P,
    /// Next position to read. Ahead of the shared one until `release`.
    at: u32,
    produced: u32,
}

impl<P: Positions> Consumer<P> {
    /// Starts at the shared position.
    pub(crate) fn new(positions: P) -> Self {
        let at = positions.consumed().load(Ordering::Relaxed);
        let produced = positions.produced().load(Ordering::Acquire);
        Self { positions, at, produced }
    }

    /// Slots ready to be read, looking at the producer's position only if fewer than `wanted` are known to be ready.
    #[inline]
    pub(crate) fn ready(&mut self, wanted: u32) -> u32 {
        let known = self.produced.wrapping_sub(self.at);
        if known >= wanted {
            return known;
        }
        // Acquire: pairs with `publish`.
        self.produced = self.positions.produced().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.at)
    }

    /// The next position to read; the caller made sure that it is `ready`.
    #[inline]
    pub(crate) fn advance(&mut self) -> u32 {
        let at = self.at;
        self.at = at.wrapping_add(1);
        at
    }

    /// Gives everything read back to the producer.
    #[inline]
    pub(crate) fn release(&self) {
        // Release: the slots have been read before they may be written again.
        self.positions.consumed().store(self.at, Ordering::Release);
    }

    pub(crate) fn positions(&self) -> &P {
        &self.positions
    }
}
