//! Frames: the buffers packets live in, from the receive ring to the transmit ring.
//!
//! ```text
//!  FrameMemory   one mapping a runtime: `count` buffers of `frame_size` bytes, registered once with AF_XDP
//!    │ attach(home)          home 0            home 1       one home a worker
//!    ▼                     ┌─────────┐       ┌─────────┐
//!  Pool  ◀── local list ── │ returns │       │ returns │    frames freed elsewhere come back here in batches
//!    │ alloc               └─────────┘       └─────────┘
//!    ▼
//!  Frame   an owned handle of 8 bytes; dropping it frees the buffer
//!
//!   0        offset           offset + len       capacity
//!   ┌────────────┬──────────────────┬───────────────┐
//!   │  headroom  │       data       │   tailroom    │
//!   └────────────┴──────────────────┴───────────────┘
//! ```
//!
//! A `Frame` cannot be cloned, so a buffer has one owner at a time and is never shared between cores. Metadata
//! ([`Meta`]) sits beside the buffers, one cache line a frame, not in them: buffers are a power of two apart and
//! their first lines would fall into the same few cache sets.
//!
//! Frames form chains ([`Frame::append`]) for jumbo packets, segmentation offload and reassembled datagrams. With segmentation offload the
//! payload stays where the sender wrote it: such frames refer to a [`Block`](crate::block::Block).
//!
//! Invariants: a buffer is in exactly one place (a free list, a `Frame`, or a ring of AF_XDP) and returns to the home it came from. The
//! memory is unmapped only when every frame is back.

mod home;
mod memory;
mod meta;
mod pool;
mod shared;
#[cfg(test)]
mod tests;

pub use memory::{FrameMemory, MemoryConfig, MemoryError, MemoryReport};
pub use meta::{Checksum, Meta, Segmentation};
pub use pool::{AttachError, Pool, PoolStats};

use memory::Slot;
use std::ptr::NonNull;

/// Bytes kept free before the data of a new frame, for headers to be put in front.
///
/// 256 is also where the kernel puts a packet in AF_XDP memory (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;

/// A packet's buffer, owned. Dropping it returns the buffer to the pool it came from.
///
/// Eight bytes; `Option<Frame>` too.
pub struct Frame {
    slot: NonNull<Slot>,
}

// SAFETY: a Frame is the only handle to its slot and buffer (it cannot be cloned and the pool hands a slot out
// once), so moving it moves exclusive access; freeing from any thread is synchronised by the home's return stack.
unsafe impl Send for Frame {}
// SAFETY: through a shared reference only reads of the slot and the buffer are possible.
unsafe impl Sync for Frame {}

impl Frame {
    #[inline]
    fn slot(&self) -> &Slot {
        // SAFETY: the slot lives as long as its region, which outlives every frame (see `memory`), and this frame
        // has exclusive access, lent here for the length of the borrow of `self`.
        unsafe { self.slot.as_ref() }
    }

    #[inline]
    fn slot_mut(&mut self) -> &mut Slot {
        // SAFETY: as in `slot`; `&mut self` makes the access exclusive.
        unsafe { self.slot.as_mut() }
    }

    /// Bytes of data in this frame, without the rest of its chain.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slot().len as usize
    }

    /// Whether the frame holds no data.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slot().len == 0
    }

    /// Bytes of the whole buffer: headroom, data and tailroom.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slot().capacity as usize
    }

    /// Free bytes before the data.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.slot().offset as usize
    }

    /// Free bytes after the data.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        let slot = self.slot();
        (slot.capacity - slot.offset - slot.len) as usize
    }

    /// The data of this frame, without the rest of its chain.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let slot = self.slot();
        // SAFETY: offset + len <= capacity always holds (every change below keeps it), the buffer is mapped and
        // initialised (fresh mappings are zeroed), and nobody else has access to it; or it is a sender's block, of which
        // so many bytes were written and are not written again before this frame lets go of it (see `shared`).
        unsafe { std::slice::from_raw_parts(slot.buffer.add(slot.offset as usize), slot.len as usize) }
    }

    /// The data of this frame, to change in place.
    #[inline]
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [u8] {
        self.own();
        let slot = self.slot_mut();
        // SAFETY: as in `data`; `&mut self` makes the access exclusive, and the buffer is the frame's own.
        unsafe { std::slice::from_raw_parts_mut(slot.buffer.add(slot.offset as usize), slot.len as usize) }
    }

    /// The packet's metadata.
    #[inline]
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.slot().meta
    }

    /// The packet's metadata, mutable.
    #[inline]
    #[must_use]
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.slot_mut().meta
    }

    /// Grows the data by `n` bytes at its front and returns all of the data; `None`, and no change, if the headroom
    /// is smaller. The new bytes hold whatever was there before.
    #[inline]
    #[must_use]
    pub fn push_front(&mut self, n: usize) -> Option<&mut [u8]> {
        let slot = self.slot_mut();
        if n > slot.offset as usize {
            return None;
        }
        slot.offset -= n as u32;
        slot.len += n as u32;
        Some(self.data_mut())
    }

    /// Takes `n` bytes off the front of the data; they become headroom. `false`, and no change, if there are fewer.
    #[inline]
    #[must_use]
    pub fn trim_front(&mut self, n: usize) -> bool {
        let slot = self.slot_mut();
        if n > slot.len as usize {
            return false;
        }
        slot.offset += n as u32;
        slot.len -= n as u32;
        true
    }

    /// Shortens the data to `len` bytes; no effect if it is already that short.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let slot = self.slot_mut();
        if len < slot.len as usize {
            slot.len = len as u32;
        }
    }

    /// Grows the data by `n` bytes at its end and returns the new bytes; `None`, and no change, if the tailroom is
    /// smaller. The new bytes hold whatever was there before.
    #[inline]
    #[must_use]
    pub fn push_back(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let slot = self.slot_mut();
        let old = slot.len as usize;
        slot.len += n as u32;
        Some(&mut self.data_mut()[old..])
    }

    /// Appends `bytes`; `false`, and no change, if the tailroom is smaller.
    #[inline]
    #[must_use]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> bool {
        match self.push_back(bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Empties the frame and moves the start of its data to `headroom` (at most the capacity).
    #[inline]
    pub fn reset(&mut self, headroom: usize) {
        self.forget_shared();
        let slot = self.slot_mut();
        slot.offset = (headroom as u64).min(u64::from(slot.capacity)) as u32;
        slot.len = 0;
    }

    /// A new, empty frame of the same memory with the same headroom and metadata, from this thread's pool; `None`
    /// when it has none free or draws from other memory.
    #[must_use]
    pub fn like(other: &Frame) -> Option<Frame> {
        let mut frame = pool::alloc_here(other.slot().region)?;
        frame.reset(other.headroom());
        *frame.meta_mut() = *other.meta();
        Some(frame)
    }

    /// Puts `tail` (with its own chain) at the end of this frame's chain. Cost grows with the chain's length.
    pub fn append(&mut self, tail: Frame) {
        let mut last = self.slot;
        // SAFETY: every slot of a chain belongs to the chain's head frame, which `&mut self` holds exclusively, and
        // `tail`'s ownership moves into the chain: it is forgotten, not dropped.
        unsafe {
            while let Some(next) = last.as_ref().next {
                last = next;
            }
            last.as_mut().next = Some(tail.slot);
        }
        std::mem::forget(tail);
    }

    /// Takes the rest of the chain off this frame.
    #[inline]
    #[must_use]
    pub fn take_next(&mut self) -> Option<Frame> {
        self.slot_mut().next.take().map(|slot| Frame { slot })
    }

    /// Whether more frames follow in this one's chain.
    #[inline]
    #[must_use]
    pub fn is_chained(&self) -> bool {
        self.slot().next.is_some()
    }

    /// The data of every frame of the chain, in order.
    #[must_use]
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks { next: Some(self.slot), frame: std::marker::PhantomData }
    }

    /// Bytes of data in the whole chain. Cost grows with the chain's length; one frame is one comparison.
    #[inline]
    #[must_use]
    pub fn chain_len(&self) -> usize {
        if self.is_chained() { self.chunks().map(<[u8]>::len).sum() } else { self.len() }
    }

    /// Shortens the data of the whole chain to `len` bytes, freeing frames that then hold nothing; no effect if it is
    /// already that short. One frame is one comparison.
    #[inline]
    pub fn truncate_chain(&mut self, len: usize) {
        if self.is_chained() {
            self.truncate_links(len);
        } else {
            self.truncate(len);
        }
    }

    fn truncate_links(&mut self, len: usize) {
        let mut at = self.slot;
        let mut left = len;
        // SAFETY: every slot of a chain belongs to the chain's head frame, which `&mut self` holds exclusively.
        let tail = unsafe {
            loop {
                let slot = at.as_mut();
                let Some(next) = slot.next.filter(|_| left > slot.len as usize) else {
                    slot.len = (slot.len as usize).min(left) as u32;
                    break slot.next.take();
                };
                left -= slot.len as usize;
                at = next;
            }
        };
        // The rest of the chain is nobody's now: dropping a frame of it frees them all.
        drop(tail.map(|slot| Frame { slot }));
    }

    /// The handle as a bare slot, for rings that hand buffers to the kernel. Undone by `from_slot`.
    #[inline]
    pub(crate) fn into_slot(self) -> NonNull<Slot> {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }

    /// # Safety
    /// `slot` came from `into_slot` or a free list and no other handle to it exists.
    #[inline]
    pub(crate) unsafe fn from_slot(slot: NonNull<Slot>) -> Self {
        Self { slot }
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this was the only handle to the slot, and it is gone after this call.
        unsafe { pool::release(self.slot) }
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("chained", &self.is_chained())
            .field("meta", self.meta())
            .finish()
    }
}

/// Iterator over the data of a chain. Made by [`Frame::chunks`].
#[derive(Debug)]
pub struct Chunks<'a> {
    next: Option<NonNull<Slot>>,
    frame: std::marker::PhantomData<&'a Frame>,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let slot = self.next?;
        // SAFETY: the chain is borrowed for 'a, so no slot of it can be freed or changed; offset + len <= capacity.
        unsafe {
            let slot = slot.as_ref();
            self.next = slot.next;
            Some(std::slice::from_raw_parts(slot.buffer.add(slot.offset as usize), slot.len as usize))
        }
    }
}
