//! A bounded ring from any number of threads to one, with one order.
//!
//! A producer reserves a run of positions with one compare-and-swap, fills its slots and marks each as full; the
//! consumer takes slots in order and stops at the first that is not marked yet. If one push returned before another
//! began, its values come out first, whoever pushed them: two rings side by side could not promise that.

use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

struct Slot<T> {
    /// Position + 1 once the value of that position is in place.
    full: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    reserved: CachePadded<AtomicU32>,
    consumed: CachePadded<AtomicU32>,
    slots: Box<[Slot<T>]>,
}

// SAFETY: a slot belongs to the producer that reserved its position until `full` is set, then to the consumer until
// `consumed` passes it. Values only move between threads.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Drop for Shared<T> {
    /// All ends are gone: what was pushed after the receiver had ended is dropped here.
    fn drop(&mut self) {
        let mut at = self.consumed.load(Ordering::Relaxed);
        loop {
            let slot = &self.slots[at as usize & (self.slots.len() - 1)];
            at = at.wrapping_add(1);
            if slot.full.load(Ordering::Relaxed) != at {
                return;
            }
            // SAFETY: announced and not taken, and nobody else is left.
            drop(slot.value.with(|p| unsafe { (*p).assume_init_read() }));
        }
    }
}

/// Makes a ring of at least `capacity` slots (rounded up to a power of two, 2 to 2^30).
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.clamp(2, 1 << 30).next_power_of_two();
    let slot = |_| Slot { full: AtomicU32::new(0), value: UnsafeCell::new(MaybeUninit::uninit()) };
    let shared = Arc::new(Shared {
        reserved: CachePadded(AtomicU32::new(0)),
        consumed: CachePadded(AtomicU32::new(0)),
        slots: (0..capacity).map(slot).collect(),
    });
    (Sender { shared: shared.clone() }, Receiver { shared, at: 0 })
}

/// A producing end. Clone it for every producer.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Send> Sender<T> {
    /// Pushes up to `n` values from `values`, as many as there is room for, and returns how many went in. `values`
    /// is asked for exactly that many; it must have at least `n`.
    ///
    /// # Panics
    /// If `values` runs out before `n`.
    #[inline]
    pub fn push_from(&self, n: usize, mut values: impl FnMut() -> T) -> usize {
        let capacity = self.shared.slots.len() as u32;
        let wanted = n.min(capacity as usize) as u32;
        let mut start = self.shared.reserved.load(Ordering::Relaxed);
        let count = loop {
            // Acquire: the consumer has emptied the slots before it gave them back.
            let used = start.wrapping_sub(self.shared.consumed.load(Ordering::Acquire));
            // `start` may be stale and older than `consumed`: then `used` wraps to a huge number. Look again.
            let count = capacity.saturating_sub(used).min(wanted);
            if count == 0 {
                let now = self.shared.reserved.load(Ordering::Relaxed);
                if now == start {
                    return 0;
                }
                start = now;
                continue;
            }
            match self.shared.reserved.compare_exchange_weak(
                start,
                start.wrapping_add(count),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break count,
                Err(now) => start = now,
            }
        };
        for i in 0..count {
            let at = start.wrapping_add(i);
            let slot = &self.shared.slots[(at & (capacity - 1)) as usize];
            let value = values();
            slot.value.with_mut(|p| {
                // SAFETY: the position is reserved by this call alone, and its slot was consumed before.
                unsafe { (*p).write(value) };
            });
            // Release: the value is in place before it is announced.
            slot.full.store(at.wrapping_add(1), Ordering::Release);
        }
        count as usize
    }

    /// Values for which there is room now; other producers may take some of it first.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        let reserved = self.shared.reserved.load(Ordering::Relaxed);
        // Relaxed: a guess, and `push_from` looks again. One that is stale is too small, or wraps and counts as none.
        let used = reserved.wrapping_sub(self.shared.consumed.load(Ordering::Relaxed));
        self.shared.slots.len().saturating_sub(used as usize)
    }

    /// Pushes one value.
    ///
    /// # Errors
    /// Gives it back when the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        #[expect(clippy::expect_used, reason = "asked for at most once, since n is 1")]
        let pushed = self.push_from(1, || value.take().expect("one value"));
        if pushed == 1 {
            return Ok(());
        }
        match value {
            Some(value) => Err(value),
            None => Ok(()),
        }
    }
}

/// The consuming end.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    at: u32,
}

impl<T: Send> Receiver<T> {
    /// Whether a value is ready now.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let slot = &self.shared.slots[self.at as usize & (self.shared.slots.len() - 1)];
        // Acquire: pairs with the producer's release.
        slot.full.load(Ordering::Acquire) == self.at.wrapping_add(1)
    }

    /// Takes the next value without giving its slot back yet: call [`Receiver::release`] after the last of a batch.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let slot = &self.shared.slots[self.at as usize & (self.shared.slots.len() - 1)];
        if slot.full.load(Ordering::Acquire) != self.at.wrapping_add(1) {
            return None;
        }
        self.at = self.at.wrapping_add(1);
        // SAFETY: the slot was announced for this position, which is read once.
        Some(slot.value.with(|p| unsafe { (*p).assume_init_read() }))
    }

    /// Gives the slots of everything taken back to the senders.
    #[inline]
    pub fn release(&mut self) {
        self.shared.consumed.store(self.at, Ordering::Release);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        loop {
            let slot = &self.shared.slots[self.at as usize & (self.shared.slots.len() - 1)];
            if slot.full.load(Ordering::Acquire) != self.at.wrapping_add(1) {
                break;
            }
            self.at = self.at.wrapping_add(1);
            // SAFETY: as in `pop`.
            drop(slot.value.with(|p| unsafe { (*p).assume_init_read() }));
        }
        // What is pushed after this is dropped with the last sender.
        self.shared.consumed.store(self.at, Ordering::Release);
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
