//! A bounded ring from one thread to one other.

use super::cursor::{Consumer, Positions, Producer};
use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

struct Shared<T> {
    produced: CachePadded<AtomicU32>,
    consumed: CachePadded<AtomicU32>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is reached by the producer only while it is free and by the consumer only while it is ready; the
// positions' release/acquire pairs order the hand-over. So values only move from one thread to the other.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Drop for Shared<T> {
    /// Both ends are gone: what was announced after the receiver had ended is dropped here.
    fn drop(&mut self) {
        let mut at = self.consumed.load(Ordering::Relaxed);
        while at != self.produced.load(Ordering::Relaxed) {
            let slot = &self.slots[at as usize & (self.slots.len() - 1)];
            // SAFETY: announced and not taken, and nobody else is left.
            drop(slot.with(|p| unsafe { (*p).assume_init_read() }));
            at = at.wrapping_add(1);
        }
    }
}

/// Both ends hold the ring through this.
struct Handle<T>(Arc<Shared<T>>);

impl<T> Positions for Handle<T> {
    #[inline]
    fn produced(&self) -> &AtomicU32 {
        &self.0.produced.0
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        &self.0.consumed.0
    }
}

/// Makes a ring of at least `capacity` slots (rounded up to a power of two, 2 to 2^31).
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.clamp(2, 1 << 31).next_power_of_two();
    let shared = Arc::new(Shared {
        produced: CachePadded(AtomicU32::new(0)),
        consumed: CachePadded(AtomicU32::new(0)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let sender = Sender { cursor: Producer::new(Handle(shared.clone()), capacity as u32) };
    (sender, Receiver { cursor: Consumer::new(Handle(shared)), mask: capacity as u32 - 1 })
}

/// The producing end of a ring. Made by [`ring`].
pub struct Sender<T> {
    cursor: Producer<Handle<T>>,
}

impl<T: Send> Sender<T> {
    /// Puts `value` into the ring without announcing it yet: call [`Sender::publish`] after the last of a batch.
    ///
    /// # Errors
    /// Gives `value` back when the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.cursor.room(1) == 0 {
            return Err(value);
        }
        let at = self.cursor.advance();
        let slots = &self.cursor.positions().0.slots;
        let slot = &slots[at as usize & (slots.len() - 1)];
        slot.with_mut(|p| {
            // SAFETY: `room` said that the consumer has finished with this slot, and nobody else produces.
            unsafe { (*p).write(value) };
        });
        Ok(())
    }

    /// Makes everything pushed visible to the receiver.
    #[inline]
    pub fn publish(&mut self) {
        self.cursor.publish();
    }

    /// Values in the ring that the receiver has not taken yet.
    #[must_use]
    pub fn pending(&mut self) -> usize {
        self.cursor.pending() as usize
    }
}

impl<T> Drop for Sender<T> {
    /// Announces what was pushed, so that nothing is lost with the sender.
    fn drop(&mut self) {
        self.cursor.publish();
    }
}

/// The consuming end of a ring. Made by [`ring`].
pub struct Receiver<T> {
    cursor: Consumer<Handle<T>>,
    mask: u32,
}

impl<T: Send> Receiver<T> {
    /// Values that are ready now.
    #[inline]
    #[must_use]
    pub fn ready(&mut self) -> usize {
        self.cursor.ready(u32::MAX) as usize
    }

    /// Takes the next value without giving its slot back yet: call [`Receiver::release`] after the last of a batch.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.cursor.ready(1) == 0 {
            return None;
        }
        let at = self.cursor.advance();
        let slot = &self.cursor.positions().0.slots[(at & self.mask) as usize];
        // SAFETY: `ready` said that the producer has written this slot, each position is read once.
        Some(slot.with(|p| unsafe { (*p).assume_init_read() }))
    }

    /// Gives the slots of everything taken back to the sender.
    #[inline]
    pub fn release(&mut self) {
        self.cursor.release();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        while self.cursor.ready(1) > 0 {
            let at = self.cursor.advance();
            let slot = &self.cursor.positions().0.slots[(at & self.mask) as usize];
            // SAFETY: as in `pop`.
            drop(slot.with(|p| unsafe { (*p).assume_init_read() }));
        }
        // What is pushed after this is dropped with the sender.
        self.cursor.release();
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
