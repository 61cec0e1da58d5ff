//! The heap: how much of it is in use, and giving back what is not.
//!
//! An allocator keeps freed memory for reuse; after a burst that may be most of the process's memory. [`trim`] returns it to the system.
//! [`Counting`] is for tests that measure memory use instead of relying on the code's own counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns unused memory to the system. `true` if there was any; `false` also if the allocator has no such call. Costs about a
/// millisecond for each few thousand free pieces, and other threads that allocate may wait for it.
pub fn trim() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the call takes no pointers, may be made at any time on any thread, and changes no memory that is in use.
        unsafe { libc::malloc_trim(0) != 0 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        false
    }
}

/// The system's allocator, counting the requested bytes that are allocated. For use as `#[global_allocator]` of a test; one per program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

impl Counting {
    /// Bytes allocated now.
    #[must_use]
    pub fn in_use() -> usize {
        IN_USE.load(Ordering::Relaxed)
    }

    /// The most that were allocated at any moment since this was called last.
    #[must_use]
    pub fn most() -> usize {
        MOST.swap(Self::in_use(), Ordering::Relaxed)
    }

    fn count(size: usize) {
        let now = IN_USE.fetch_add(size, Ordering::Relaxed) + size;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may be there while it is moved.
        Self::count(size);
        // SAFETY: as the caller promises.
        let new = unsafe { System.realloc(at, layout, size) };
        IN_USE.fetch_sub(if new.is_null() { size } else { layout.size() }, Ordering::Relaxed);
        new
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let layout = Layout::from_size_align(1000, 8).unwrap();
        let before = Counting::in_use();
        // SAFETY: each layout is that of the memory, which is freed once, and not read.
        unsafe {
            let at = Counting.alloc(layout);
            assert_eq!(Counting::in_use() - before, 1000);
            let at = Counting.realloc(at, layout, 5000);
            assert_eq!(Counting::in_use() - before, 5000);
            assert!(Counting::most() >= before + 6000);
            Counting.dealloc(at, Layout::from_size_align(5000, 8).unwrap());
            let zeroed = Counting.alloc_zeroed(layout);
            assert_eq!((*zeroed, Counting::in_use() - before), (0, 1000));
            Counting.dealloc(zeroed, layout);
        }
        assert_eq!(Counting::in_use(), before);
    }

    /// What was freed among what was not goes back to the system.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn memory_is_given_back() {
        let resident = || -> usize {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        // Pieces too small to be mapped one by one; every hundredth stays.
        let mut pieces: Vec<_> = (0..3200).map(|_| Some(vec![1u8; 32 << 10])).collect();
        let full = resident();
        pieces.iter_mut().enumerate().filter(|(n, _)| n % 100 != 0).for_each(|(_, piece)| *piece = None);
        trim();
        let after = resident();
        assert!(full > after + (60 << 20), "{full} and then {after} bytes");
        drop(pieces);
    }
}
