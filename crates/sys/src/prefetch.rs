//! Prefetching memory.
//!
//! In a lane with a million connections each one is in no cache. Code that knows the next connections in advance prefetches them here, so
//! that several memory accesses overlap.

/// Asks for the cache lines of `value`; a wish, without effect on anything but time.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_front(value, size_of_val(value));
}

/// Asks for the cache lines of the first `len` bytes of `value`.
#[inline(always)]
pub fn prefetch_front<T: ?Sized>(value: &T, len: usize) {
    let size = size_of_val(value).min(len);
    let start = core::ptr::from_ref(value).cast::<u8>();
    let mut at = 0;
    while at < size {
        line(start.wrapping_add(at));
        at += 64;
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn line(at: *const u8) {
    // SAFETY: a prefetch reads nothing that a program could see and never faults, whatever the address.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn line(_at: *const u8) {}

/// Asks the kernel to back the memory of `values`, whatever its length, with huge pages where it can: fewer walks through page
/// tables for memory used at random. Small memory is left alone, and so is everything if the kernel will not.
pub fn prefer_huge_pages<T>(values: &mut Vec<T>) {
    const HUGE: usize = 2 << 20;
    let start = (values.as_mut_ptr() as usize).next_multiple_of(HUGE);
    let end = (values.as_mut_ptr() as usize + values.capacity() * size_of::<T>()) & !(HUGE - 1);
    if start < end && !cfg!(miri) {
        // SAFETY: the range lies within an allocation that is borrowed for this call, and MADV_HUGEPAGE changes how it is
        // backed, never what it holds. A refusal is as good as a yes.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_time_changes() {
        let mut values = vec![7u64; 1 << 20];
        prefer_huge_pages(&mut values);
        values.iter().for_each(prefetch);
        prefetch(&values[..]);
        prefetch::<[u8]>(&[]);
        prefer_huge_pages(&mut Vec::<u8>::new());
        assert!(values.iter().all(|v| *v == 7));
    }
}
