//! Frames whose data are in a sender's block instead of their own buffer.
//!
//! Such a frame is used like any other: it is a slot of the pool, and its own buffer, otherwise unused, has the handle that keeps the block
//! alive. Writing to its data first copies them to the frame's own buffer, so code above this crate need not distinguish such frames.

use super::Frame;
use super::memory::{SHARED, Slot};
use crate::block::{Block, Hold};
use std::ptr::NonNull;

impl Frame {
    /// Makes `len` bytes of `block`, from byte `from` on, the data of this frame, which must be empty, without copying. `false`, without
    /// a change, if the block has fewer bytes, or they exceed the frame's capacity.
    #[must_use]
    pub fn share(&mut self, block: &mut Block, from: usize, len: usize) -> bool {
        let end = from.checked_add(len);
        if self.is_shared()
            || !self.is_empty()
            || len > self.capacity()
            || end.is_none_or(|end| end > block.len())
        {
            return false;
        }
        let (hold, start) = block.hold(from);
        let slot = self.slot_mut();
        // SAFETY: the frame owns its buffer, which has at least 2048 bytes and begins at a multiple of that, so there is
        // aligned room for the handle.
        unsafe { slot.buffer.cast::<Hold>().write(hold) };
        slot.buffer = start.cast_mut();
        (slot.offset, slot.len, slot.capacity) = (0, len as u32, len as u32);
        slot.home |= SHARED;
        true
    }

    /// Whether the data lie in a sender's block.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.slot().home & SHARED != 0
    }

    /// Copies the data into the frame's own buffer, if they are in a block. Writing to the data does so automatically.
    #[inline]
    pub fn own(&mut self) {
        if self.is_shared() {
            self.copy_home();
        }
    }

    /// [`Frame::own`] for every frame of the chain.
    pub fn own_chain(&mut self) {
        self.own();
        let mut next = self.slot().next;
        while let Some(slot) = next {
            // SAFETY: every slot of a chain belongs to the chain's head frame, which `&mut self` holds exclusively; the
            // handle made here is forgotten again.
            let mut frame = std::mem::ManuallyDrop::new(unsafe { Frame::from_slot(slot) });
            frame.own();
            next = frame.slot().next;
        }
    }

    #[cold]
    fn copy_home(&mut self) {
        let slot = self.slot_mut();
        let (from, n) = (slot.buffer.cast_const(), (slot.offset + slot.len) as usize);
        // SAFETY: the frame is shared, and its slot is this handle's alone.
        let hold = unsafe { part(NonNull::from(&mut *slot)) };
        // SAFETY: what was trimmed off the front and the data are `n` bytes of the block, which `hold` keeps alive and
        // unchanged; they are no more than the buffer's capacity (`share`). Block and buffer are different memory.
        unsafe { std::ptr::copy_nonoverlapping(from, slot.buffer, n) };
        drop(hold);
    }

    /// Lets go of the block, if there is one: the frame has its own buffer again, and no data.
    #[inline]
    pub(super) fn forget_shared(&mut self) {
        if self.is_shared() {
            // SAFETY: the frame is shared, and its slot is this handle's alone.
            drop(unsafe { part(self.slot) });
            self.slot_mut().len = 0;
        }
    }
}

/// Gives a slot its own buffer back and returns what kept the block alive. Offset and length stay.
///
/// # Safety
/// The caller has exclusive access to the slot, which is shared.
unsafe fn part(mut slot: NonNull<Slot>) -> Hold {
    // SAFETY: access is exclusive, and the region outlives its slots.
    let (s, region) = unsafe {
        let s = slot.as_mut();
        let region = &*s.region;
        (s, region)
    };
    debug_assert!(s.home & SHARED != 0, "not shared");
    // SAFETY: a buffer for each slot, by number.
    s.buffer = unsafe { region.base.as_ptr().add(region.index_of(slot) * region.frame_size) };
    s.capacity = region.frame_size as u32;
    s.home &= !SHARED;
    // SAFETY: `share` wrote the handle there, and the flag, cleared now, says that it has not been taken since.
    unsafe { s.buffer.cast::<Hold>().read() }
}

/// Lets go of the block of a slot that is being freed.
///
/// # Safety
/// As for `part`.
#[cold]
pub(super) unsafe fn release(slot: NonNull<Slot>) {
    // SAFETY: what the caller says.
    drop(unsafe { part(slot) });
}

#[cfg(test)]
mod tests {
    use super::super::{FrameMemory, HEADROOM, MemoryConfig, Meta, Pool};
    use super::*;

    fn pool() -> Pool {
        let config =
            MemoryConfig { frames_per_home: 4, lock: false, huge_pages: false, ..MemoryConfig::default() };
        FrameMemory::new(&config).unwrap().attach(0).unwrap()
    }

    fn block() -> Block {
        let mut block = Block::new(8192);
        // Few steps, for Miri's sake.
        let bytes = (0..251).collect::<Vec<u8>>().repeat(24);
        assert_eq!(block.push(&bytes[..6000]), 6000);
        block
    }

    #[test]
    fn data_are_the_blocks_until_they_are_changed() {
        let (pool, mut block) = (pool(), block());
        let mut frame = pool.alloc().unwrap();
        assert!(!frame.share(&mut block, 5000, 1001), "not written");
        assert!(!frame.share(&mut block, 0, 2049), "more than its own buffer could take");
        assert!(!frame.share(&mut block, usize::MAX, 2), "no such place");
        assert!(!frame.is_shared());
        assert!(frame.share(&mut block, 1000, 2048));
        assert!(!frame.share(&mut block, 0, 1), "not twice");
        assert_eq!(frame.data(), &block.data()[1000..3048]);
        assert_eq!((frame.headroom(), frame.tailroom(), frame.capacity()), (0, 0, 2048));
        assert!(frame.push_front(1).is_none() && frame.push_back(1).is_none());
        assert!(!block.clear());
        // What was trimmed is still in front.
        assert!(frame.trim_front(10));
        frame.truncate(100);
        frame.data_mut()[0] = 0xee;
        assert!(!frame.is_shared(), "its own now");
        assert_eq!(block.data()[1010], (1010 % 251) as u8, "the block is as it was");
        assert_eq!(frame.data()[1..], block.data()[1011..1110]);
        assert_eq!(frame.push_front(10).unwrap()[..10], block.data()[1000..1010]);
        assert!(frame.push_back(5).is_some());
        assert!(block.clear());
    }

    #[test]
    fn growing_a_shortened_one_does_not_write_into_the_block() {
        let (pool, mut block) = (pool(), block());
        let mut frame = pool.alloc().unwrap();
        assert!(frame.share(&mut block, 0, 500));
        frame.truncate(100);
        assert!(frame.extend_from_slice(&[0xff; 50]));
        assert_eq!(block.data()[100], 100);
        assert_eq!((frame.data()[99], frame.data()[100], frame.len()), (99, 0xff, 150));
        let mut frame = pool.alloc().unwrap();
        assert!(frame.share(&mut block, 0, 500) && frame.trim_front(20));
        frame.push_front(4).unwrap()[..4].fill(0xdd);
        assert_eq!(block.data()[16], 16);
        assert_eq!((frame.data()[3], frame.data()[4]), (0xdd, 20));
    }

    #[test]
    fn frames_come_back_as_they_were_from_wherever_they_end() {
        let (pool, mut block) = (pool(), block());
        for round in 0..3 {
            let mut head = pool.alloc().unwrap();
            assert_eq!((head.headroom(), head.capacity(), head.is_shared()), (HEADROOM, 2048, false));
            for n in 0..3 {
                let mut frame = pool.alloc().unwrap();
                assert!(frame.share(&mut block, n * 100, 100));
                frame.meta_mut().hash = 7;
                head.append(frame);
            }
            assert!(!block.clear());
            match round {
                0 => drop(head),
                1 => std::thread::spawn(move || drop(head)).join().unwrap(),
                _ => {
                    head.own_chain();
                    assert!(block.clear());
                    assert_eq!(head.chunks().nth(2).unwrap()[..3], [100, 101, 102]);
                    drop(head);
                }
            }
            assert!(round == 2 || block.clear());
            block.push(&(0..=255).collect::<Vec<u8>>().repeat(24)[..6000]);
            pool.gather();
            assert_eq!(pool.free(), 4);
        }
    }

    #[test]
    fn starting_anew_lets_go() {
        let (pool, mut block) = (pool(), block());
        let mut frame = pool.alloc().unwrap();
        assert!(frame.share(&mut block, 0, 500));
        frame.reset(HEADROOM);
        assert!(!frame.is_shared() && block.clear());
        assert_eq!(
            (frame.headroom(), frame.tailroom(), *frame.meta()),
            (HEADROOM, 2048 - HEADROOM, Meta::default())
        );
    }
}
