//! The set of frames that the kernel holds.
//!
//! A frame passed to the kernel has no [`Frame`] any more; one bit represents it. An address returned by the kernel becomes a `Frame`
//! only if its bit is set, which clears the bit, so a fault of the kernel or a driver cannot give one buffer two owners. When the socket
//! is closed, the remaining bits name the frames to take back.

use super::socket::wait_released;
use crate::frame::{Frame, FrameMemory};

/// The frames of one memory that one socket's kernel side holds.
#[derive(Debug)]
pub(super) struct Held {
    bits: Box<[u64]>,
    memory: FrameMemory,
    shift: u32,
    count: usize,
    /// With zero-copy, the interface and queue to wait for before frames are taken back.
    wait_for: Option<(u32, u32)>,
}

impl Held {
    pub(super) fn new(memory: &FrameMemory) -> Self {
        let shift = memory.frame_size().trailing_zeros();
        let bits = vec![0; memory.count().div_ceil(64)].into();
        Self { bits, memory: memory.clone(), shift, count: 0, wait_for: None }
    }

    /// The card itself reads and writes the frames, on this queue of the interface of this index.
    pub(super) fn wait_for(&mut self, interface: u32, queue: u32) {
        self.wait_for = Some((interface, queue));
    }

    /// Whether these bytes lie in the memory.
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        let base = self.memory.region().base.as_ptr() as usize;
        (base..base + (self.memory.count() << self.shift)).contains(&(bytes.as_ptr() as usize))
    }

    /// Frames held now.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes a frame into the kernel's hands and returns the address of its buffer in the memory. A frame of another
    /// memory comes back.
    #[inline]
    pub(super) fn give(&mut self, frame: Frame) -> Result<u64, Frame> {
        let region = self.memory.region();
        let slot = frame.into_slot();
        // SAFETY: the slot was just taken out of its frame: it is ours to read, and to put back if it is foreign.
        let index = unsafe {
            if !std::ptr::eq(slot.as_ref().region, region) {
                return Err(Frame::from_slot(slot));
            }
            region.index_of(slot)
        };
        self.bits[index / 64] |= 1 << (index % 64);
        self.count += 1;
        Ok((index as u64) << self.shift)
    }

    /// Takes the frame whose buffer contains `address` back; `None` if the kernel does not hold it. Its data are
    /// where they were when it was given.
    #[inline]
    pub(super) fn take(&mut self, address: u64) -> Option<Frame> {
        let index = usize::try_from(address >> self.shift).ok()?;
        let word = self.bits.get_mut(index / 64)?;
        let bit = 1 << (index % 64);
        if *word & bit == 0 {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        // SAFETY: the bit was set by `give`, which took the only handle to this slot and forgot it; it is cleared now,
        // so this is the only handle again.
        Some(unsafe { Frame::from_slot(self.memory.region().slot(index)) })
    }

    fn take_all(&mut self) {
        for word in 0..self.bits.len() {
            while self.bits[word] != 0 {
                let index = word * 64 + self.bits[word].trailing_zeros() as usize;
                drop(self.take((index as u64) << self.shift));
            }
        }
    }
}

impl Drop for Held {
    /// Takes everything back. The socket is closed by now, so in copy mode the kernel touches none of it any more. A
    /// card in zero-copy mode lets go a little later; if it does not, the frames are lost, and with them their memory
    /// stays mapped: better lost than overwritten in another packet's hands.
    fn drop(&mut self) {
        if let Some((interface, queue)) = self.wait_for.take() {
            if !wait_released(interface, queue) {
                return;
            }
        }
        self.take_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::MemoryConfig;

    #[test]
    fn a_frame_comes_back_once_and_only_if_given() {
        let config =
            MemoryConfig { frames_per_home: 100, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let (memory, other) = (FrameMemory::new(&config).unwrap(), FrameMemory::new(&config).unwrap());
        let pool = memory.attach(0).unwrap();
        let mut held = Held::new(&memory);
        assert!(held.take(0).is_none());
        let addresses: Vec<u64> = (0..100).map(|_| held.give(pool.alloc().unwrap()).unwrap()).collect();
        assert!(pool.alloc().is_none());
        assert!(held.take(addresses[7] + 300).is_some(), "any address inside the buffer names it");
        assert!(held.take(addresses[7]).is_none(), "not twice");
        assert!(held.take(100 * 2048).is_none() && held.take(u64::MAX).is_none(), "not beyond the memory");
        assert_eq!(held.count(), 99);
        let foreign = other.attach(0).unwrap().alloc().unwrap();
        assert!(held.contains(pool.alloc().unwrap().data()) && !held.contains(foreign.data()));
        assert!(held.give(foreign).is_err(), "a frame of another memory is refused");
        drop(held);
        assert_eq!(pool.free(), 100);
    }
}
