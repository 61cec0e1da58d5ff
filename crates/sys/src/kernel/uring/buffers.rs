//! Memory that the kernel receives into: buffers of one size, provided by a ring that it takes them from.
//!
//! ```text
//!   ring of entries  ┌───┬───┬───┬───┐   each names a buffer that the kernel may write; it takes them in order
//!                    └─┬─┴─┬─┴───┴───┘
//!   memory   ┌────────┬▼───────┬▼───────┬────────┐
//!            │ lent 0 │   1    │   2    │ lent 3 │   lent: named by a completion, and not given back: only read, here
//!            └────────┴────────┴────────┴────────┘
//! ```
//!
//! Invariant: `lent[b]` is 0 while the kernel may write buffer `b`, and else the bytes that it has written there.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// Whole pages of memory of our own.
#[derive(Debug)]
struct Pages {
    at: NonNull<u8>,
    len: usize,
}

impl Pages {
    fn new(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anybody has.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, len })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing refers to it any more: its owner says so by dropping it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// The buffers of one ring.
#[derive(Debug)]
pub(super) struct Buffers {
    entries: Pages,
    memory: Pages,
    size: usize,
    /// Of each buffer: bytes in it that are lent out, 0 while the kernel has it.
    lent: Vec<u32>,
    /// How many the kernel has.
    provided: usize,
    /// Entries that the kernel has been told of, modulo 2^16.
    tail: u16,
}

// SAFETY: the memory belongs to this value alone, and is touched by whoever has it.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count` buffers of `size` bytes, a power of two each, none provided yet.
    pub(super) fn new(count: u16, size: usize) -> io::Result<Self> {
        let number = usize::from(count);
        if !count.is_power_of_two() || !size.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let entries = Pages::new(number * size_of::<BufRingEntry>())?;
        let memory = Pages::new(number * size)?;
        Ok(Self { entries, memory, size, lent: vec![1; number], provided: 0, tail: 0 })
    }

    /// Where the kernel finds the ring of entries.
    pub(super) fn address(&self) -> u64 {
        self.entries.at.as_ptr() as u64
    }

    pub(super) fn count(&self) -> u16 {
        self.lent.len() as u16
    }

    /// Provides all of them.
    pub(super) fn provide_all(&mut self) {
        for id in 0..self.count() {
            self.give_back(id);
        }
    }

    /// The kernel has said that it wrote `len` bytes into a buffer. `false`: it has no such buffer.
    pub(super) fn lend(&mut self, id: u16, len: u32) -> bool {
        match self.lent.get_mut(usize::from(id)) {
            // Guard: `*lent == 0 && len as usize <= self.size` as `true` fails kernel::uring::buffers
            Some(lent) if *lent == 0 && len as usize <= self.size => *lent = len,
            _ => return false,
        }
        self.provided -= 1;
        true
    }

    /// How many the kernel has.
    pub(super) fn provided(&self) -> usize {
        self.provided
    }

    /// The bytes of a buffer that is lent; of others none.
    pub(super) fn bytes(&self, id: u16) -> &[u8] {
        let len = self.lent.get(usize::from(id)).copied().unwrap_or(0) as usize;
        // SAFETY: the buffer lies within the memory, since `lent` has a place for it, and `len` within the buffer, as `lend` has checked. The kernel writes
        // buffers only while they are provided, when `len` is 0. Pages of a new mapping are zeros, so all bytes are initialised.
        unsafe { std::slice::from_raw_parts(self.memory.at.as_ptr().add(usize::from(id) * self.size), len) }
    }

    /// Gives a buffer that is lent to the kernel. One that it has stays there.
    pub(super) fn give_back(&mut self, id: u16) {
        match self.lent.get_mut(usize::from(id)) {
            Some(lent) if *lent != 0 => *lent = 0,
            _ => return,
        }
        self.provided += 1;
        let index = usize::from(self.tail) & (self.lent.len() - 1);
        let entries = self.entries.at.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the index is below the number of entries, for which there is room. The kernel reads an entry only after it was told of it, and there
        // are never more entries than buffers, so this one it has read. The buffer is within the memory. The tail lies in the first entry,
        // in bytes that nothing else uses, and is aligned as a `u16`.
        unsafe {
            let entry = &mut *entries.add(index);
            entry.set_addr(self.memory.at.as_ptr().add(usize::from(id) * self.size) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(entries).cast_mut().cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }

    /// Never frees the memory: the kernel may still write it.
    pub(super) fn leak(self) {
        let Self { entries, memory, .. } = self;
        std::mem::forget((entries, memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_either_the_kernels_or_lent() {
        let mut buffers = Buffers::new(4, 64).unwrap();
        assert!(!buffers.lend(0, 5), "it was never provided");
        buffers.provide_all();
        assert_eq!(buffers.tail, 4);
        assert!(buffers.bytes(2).is_empty() && buffers.lend(2, 5) && !buffers.lend(2, 5));
        assert_eq!((buffers.bytes(2), buffers.provided()), (&[0; 5][..], 3));
        assert!(!buffers.lend(4, 1) && !buffers.lend(1, 65), "not so many, not so long");
        assert!(buffers.bytes(4).is_empty());
        buffers.give_back(2);
        buffers.give_back(2);
        buffers.give_back(4);
        assert_eq!((buffers.tail, buffers.provided(), buffers.bytes(2).len()), (5, 4, 0), "once");
        for (count, size) in [(3, 64), (4, 65), (0, 64)] {
            assert!(Buffers::new(count, size).is_err());
        }
    }
}
