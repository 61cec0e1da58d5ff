//! A worker's pool: its own free frames, and batches of foreign frames to return.
//!
//! The pool belongs to the thread that attached it. Dropping a frame on that thread finds the pool by a thread-local pointer and pushes
//! the frame to a list. Foreign frames are collected by home, and [`PARCEL`] of them are returned with one atomic operation. On a thread
//! without a pool each frame is returned singly.

use super::home::ReturnStack;
use super::memory::{FrameMemory, Region, SHARED, Slot};
use super::{Frame, HEADROOM, Meta};
use std::cell::Cell;
use std::ptr::{NonNull, null};
use std::sync::atomic::Ordering;

/// Foreign frames collected before they are sent home together.
const PARCEL: u32 = 32;

thread_local! {
    static LOCAL: Cell<*const Inner> = const { Cell::new(null()) };
}

/// Why a pool could not be attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no such home.
    NoSuchHome,
    /// Another pool holds this home.
    Taken,
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoSuchHome => "frame pool: no such home",
            Self::Taken => "frame pool: the home is held by another pool",
        })
    }
}

impl std::error::Error for AttachError {}

/// Counters of one pool since it was attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// Frames handed out.
    pub allocated: u64,
    /// Requests that found no frame.
    pub exhausted: u64,
    /// Frames of other homes sent back to them.
    pub sent_home: u64,
    /// Frames returned by other threads.
    pub came_home: u64,
    /// Free frames now.
    pub free: u64,
    /// Frames of this home, wherever they are.
    pub all: u64,
}

struct Parcel {
    first: Cell<Option<NonNull<Slot>>>,
    last: Cell<Option<NonNull<Slot>>>,
    len: Cell<u32>,
}

struct Inner {
    region: *const Region,
    home: u16,
    free: Cell<Option<NonNull<Slot>>>,
    free_len: Cell<u64>,
    parcels: Box<[Parcel]>,
    allocated: Cell<u64>,
    exhausted: Cell<u64>,
    sent_home: Cell<u64>,
    came_home: Cell<u64>,
}

/// The frames of one worker. Stays on the thread that attached it.
pub struct Pool {
    /// Owned. A pointer and not a `Box`, because the thread-local pointer of this thread may name the same memory, and moving
    /// a `Box` claims that nobody else has a way to it. It also keeps the pool from being `Send`.
    inner: NonNull<Inner>,
    memory: FrameMemory,
}

impl Pool {
    pub(super) fn attach(memory: FrameMemory, home: usize) -> Result<Self, AttachError> {
        let region = memory.region();
        let place = region.homes.get(home).ok_or(AttachError::NoSuchHome)?;
        if place.attached.swap(true, Ordering::Acquire) {
            return Err(AttachError::Taken);
        }
        let parcels = region
            .homes
            .iter()
            .map(|_| Parcel { first: Cell::new(None), last: Cell::new(None), len: Cell::new(0) })
            .collect();
        let inner = NonNull::from(Box::leak(Box::new(Inner {
            region,
            home: home as u16,
            free: Cell::new(None),
            free_len: Cell::new(0),
            parcels,
            allocated: Cell::new(0),
            exhausted: Cell::new(0),
            sent_home: Cell::new(0),
            came_home: Cell::new(0),
        })));
        LOCAL.with(|local| {
            if local.get().is_null() {
                local.set(inner.as_ptr());
            }
        });
        let pool = Self { inner, memory };
        pool.inner().collect();
        pool.inner().came_home.set(0);
        Ok(pool)
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: made by `attach` and freed by `drop` only; nobody makes a reference to it that allows changes.
        unsafe { self.inner.as_ref() }
    }

    /// A frame with [`HEADROOM`] bytes before its (empty) data and fresh metadata; `None` when there is none free.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Frame> {
        let mut slot = self.alloc_slot()?;
        // SAFETY: the slot was just taken off the free list: it is nobody else's.
        unsafe {
            let s = slot.as_mut();
            s.offset = HEADROOM as u32;
            s.len = 0;
            s.meta = Meta::default();
            Some(Frame::from_slot(slot))
        }
    }

    /// A free slot as it stands, with no `next`.
    #[inline]
    pub(crate) fn alloc_slot(&self) -> Option<NonNull<Slot>> {
        self.inner().alloc_slot()
    }

    /// Sends incomplete parcels home. A worker calls this when it is about to sleep.
    pub fn flush(&self) {
        for home in 0..self.inner().parcels.len() {
            self.inner().send_parcel(home);
        }
    }

    /// Frames free in this pool now, without those on their way back from other threads.
    #[must_use]
    pub fn free(&self) -> usize {
        self.inner().free_len.get() as usize
    }

    /// Takes the frames that other threads have returned. Allocating a frame does so only if none is left, so call this before judging by
    /// [`Pool::free`] that frames are few.
    pub fn gather(&self) {
        self.inner().collect();
    }

    /// The memory this pool draws from.
    #[must_use]
    pub fn memory(&self) -> &FrameMemory {
        &self.memory
    }

    /// Counters since the pool was attached.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let inner = self.inner();
        let region = self.memory.region();
        PoolStats {
            allocated: inner.allocated.get(),
            exhausted: inner.exhausted.get(),
            sent_home: inner.sent_home.get(),
            came_home: inner.came_home.get(),
            free: inner.free_len.get(),
            all: (region.count / region.homes.len()) as u64,
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("home", &self.inner().home).field("stats", &self.stats()).finish()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            if std::ptr::eq(local.get(), self.inner.as_ptr()) {
                local.set(null());
            }
        });
        self.flush();
        let inner = self.inner();
        let home = &self.memory.region().homes[inner.home as usize];
        while let Some(mut slot) = inner.free.get() {
            // SAFETY: a slot on the free list is this pool's alone, and goes back to its home, which the pool's memory keeps.
            unsafe {
                inner.free.set(slot.as_mut().next.take());
                ReturnStack::push(&raw const home.returned, slot, slot);
            }
        }
        home.attached.store(false, Ordering::Release);
        // SAFETY: leaked by `attach`; the thread-local pointer named it no longer than until the top of this function, and no
        // reference made by `inner` is used after this.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

impl Inner {
    #[inline]
    fn alloc_slot(&self) -> Option<NonNull<Slot>> {
        let mut head = self.free.get();
        if head.is_none() {
            self.collect();
            head = self.free.get();
        }
        let Some(mut slot) = head else {
            self.exhausted.set(self.exhausted.get() + 1);
            return None;
        };
        // SAFETY: a slot on the free list is this pool's alone.
        self.free.set(unsafe { slot.as_mut().next.take() });
        self.free_len.set(self.free_len.get() - 1);
        self.allocated.set(self.allocated.get() + 1);
        Some(slot)
    }

    /// Takes what other threads have sent home.
    #[cold]
    fn collect(&self) {
        // SAFETY: the pool holds the memory, so the region lives.
        let region = unsafe { &*self.region };
        let Some(first) = region.homes[self.home as usize].returned.take() else { return };
        let mut last = first;
        let mut n = 1;
        // SAFETY: slots taken from the return stack are this pool's alone.
        unsafe {
            while let Some(next) = last.as_ref().next {
                last = next;
                n += 1;
            }
            last.as_mut().next = self.free.get();
        }
        self.free.set(Some(first));
        self.free_len.set(self.free_len.get() + n);
        self.came_home.set(self.came_home.get() + n);
    }

    /// # Safety
    /// The caller owns `slot` and gives it up.
    #[inline]
    unsafe fn put(&self, mut slot: NonNull<Slot>) {
        // SAFETY: the slot is ours now.
        let s = unsafe { slot.as_mut() };
        if s.home == self.home {
            s.next = self.free.get();
            self.free.set(Some(slot));
            self.free_len.set(self.free_len.get() + 1);
            return;
        }
        let home = s.home as usize;
        let parcel = &self.parcels[home];
        s.next = parcel.first.get();
        if parcel.first.replace(Some(slot)).is_none() {
            parcel.last.set(Some(slot));
        }
        parcel.len.set(parcel.len.get() + 1);
        if parcel.len.get() >= PARCEL {
            self.send_parcel(home);
        }
    }

    fn send_parcel(&self, home: usize) {
        let parcel = &self.parcels[home];
        if let (Some(first), Some(last)) = (parcel.first.take(), parcel.last.take()) {
            self.sent_home.set(self.sent_home.get() + u64::from(parcel.len.replace(0)));
            // SAFETY: the pool holds the memory, so the region lives; the parcel's slots are this pool's to give.
            unsafe { ReturnStack::push(&raw const (&(*self.region).homes)[home].returned, first, last) };
        }
    }
}

/// A frame from this thread's pool if that draws from `region`.
pub(super) fn alloc_here(region: *const Region) -> Option<Frame> {
    let local = LOCAL.with(Cell::get);
    // SAFETY: `local` is null or names a pool of this thread that is alive.
    let inner = unsafe { local.as_ref() }.filter(|inner| std::ptr::eq(inner.region, region))?;
    // SAFETY: the slot was just taken off the free list: it is nobody else's.
    inner.alloc_slot().map(|slot| unsafe { Frame::from_slot(slot) })
}

/// Frees a slot and the chain behind it.
///
/// # Safety
/// The caller holds the only handle to `slot` (and with it its chain) and gives it up.
// A call, so that whoever drops a frame in a case that hardly occurs keeps its registers.
#[inline(never)]
pub(super) unsafe fn release(mut slot: NonNull<Slot>) {
    let local = LOCAL.with(Cell::get);
    // SAFETY: `local` is null or names a pool of this thread that is alive (its drop clears the pointer).
    let inner = unsafe { local.as_ref() };
    // SAFETY: the caller owns the slot.
    let s = unsafe { slot.as_mut() };
    match inner {
        // Nearly all: a frame of this thread's own, alone. In a block it would have another home.
        Some(inner) if s.next.is_none() && s.home == inner.home && std::ptr::eq(inner.region, s.region) => {
            s.next = inner.free.get();
            inner.free.set(Some(slot));
            inner.free_len.set(inner.free_len.get() + 1);
        }
        // SAFETY: as the caller says.
        _ => unsafe { release_any(slot) },
    }
}

/// [`release`] of any slot.
///
/// # Safety
/// As for [`release`].
#[inline(never)]
unsafe fn release_any(slot: NonNull<Slot>) {
    let mut next = Some(slot);
    while let Some(mut slot) = next {
        // SAFETY: the caller owns the slot; it is read before it is given up.
        let (region, shared) = unsafe {
            let s = slot.as_mut();
            next = s.next.take();
            (s.region, s.home & SHARED != 0)
        };
        if shared {
            // SAFETY: as above.
            unsafe { super::shared::release(slot) };
        }
        let local = LOCAL.with(Cell::get);
        // SAFETY: `local` is null or names a pool of this thread that is alive (its drop clears the pointer). The
        // region outlives its frames, and the slot is ours to give.
        unsafe {
            if !local.is_null() && std::ptr::eq((*local).region, region) {
                (*local).put(slot);
            } else {
                let home = slot.as_ref().home as usize;
                ReturnStack::push(&raw const (&(*region).homes)[home].returned, slot, slot);
            }
        }
    }
}
