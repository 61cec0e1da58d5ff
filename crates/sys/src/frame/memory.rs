//! The memory of all frames of a runtime: one mapping, its slots, and the homes that freed frames return to.
//!
//! Each home is a stack to which every thread may push (see `home`). A push accesses nothing of the region after the slot is visible to
//! others, so the mapping can be freed safely once all frames are back. The region is always accessed through the one pointer that was
//! created when its box was leaked, and is freed by it.

use super::home::{Linked, ReturnStack};
use super::meta::Meta;
use super::pool::{AttachError, Pool};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::numa;
use crate::sync::CachePadded;

/// Bookkeeping of one buffer: one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// Free: the next free slot. In use: the next frame of the chain.
    pub(crate) next: Option<NonNull<Slot>>,
    pub(crate) buffer: *mut u8,
    pub(crate) region: *const Region,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) capacity: u32,
    pub(crate) home: u16,
    pub(crate) meta: Meta,
}

const _: () = assert!(size_of::<Slot>() <= 128);

/// In `Slot::home`: the data lie in a sender's block, and the slot's own buffer holds what keeps that alive.
pub(crate) const SHARED: u16 = 1 << 15;

impl Linked for Slot {
    #[inline]
    unsafe fn set_next(this: NonNull<Self>, next: Option<NonNull<Self>>) {
        // SAFETY: the caller owns the slot.
        unsafe { (*this.as_ptr()).next = next };
    }
}

/// Where the frames of one worker return to when others free them.
pub(crate) struct Home {
    pub(crate) returned: ReturnStack<Slot>,
    pub(crate) attached: AtomicBool,
}

/// One mapping and its slots.
pub(crate) struct Region {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: usize,
    pub(crate) frame_size: usize,
    slots: NonNull<Slot>,
    slot_bytes: usize,
    pub(crate) count: usize,
    pub(crate) homes: Box<[CachePadded<Home>]>,
    report: MemoryReport,
    node: Option<u32>,
}

// SAFETY: the fields are constant after construction except the homes, which are atomic; slots and buffers are only
// reached through the one handle that owns each.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Slot number `index`.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> NonNull<Slot> {
        debug_assert!(index < self.count);
        // SAFETY: index < count, so the result is inside the slots' mapping.
        unsafe { self.slots.add(index) }
    }

    /// Number of a slot of this region.
    #[inline]
    pub(crate) fn index_of(&self, slot: NonNull<Slot>) -> usize {
        (slot.addr().get() - self.slots.addr().get()) / size_of::<Slot>()
    }
}

/// How much frame memory to make, and how.
#[derive(Debug, Clone)]
pub struct MemoryConfig {
    /// Frames for each home.
    pub frames_per_home: usize,
    /// Bytes of one buffer: a power of two from 2048 to 65536.
    pub frame_size: usize,
    /// Homes: one for each worker, 1 to 1024.
    pub homes: usize,
    /// Try huge pages first.
    pub huge_pages: bool,
    /// Try to lock the memory against being paged out.
    pub lock: bool,
    /// Memory of this NUMA node, if it has enough: that of the card. `None`: of the node that touches it first.
    pub node: Option<u32>,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { frames_per_home: 8192, frame_size: 2048, homes: 1, huge_pages: true, lock: true, node: None }
    }
}

/// The memory actually obtained for a [`MemoryConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// The memory is in huge pages of the pool reserved by the administrator.
    pub huge_pages: bool,
    /// The memory is locked.
    pub locked: bool,
}

/// Why frame memory could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The frame size is not a power of two from 2048 to 65536.
    FrameSize(usize),
    /// No homes or more than 1024, no frames, or more memory than can be addressed.
    Count,
    /// The kernel refused the mapping.
    Map(io::Error),
}

impl std::fmt::Display for MemoryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FrameSize(n) => write!(f, "frame size {n}: must be a power of two from 2048 to 65536"),
            Self::Count => write!(f, "frame memory: from 1 to 1024 homes and at least one frame each"),
            Self::Map(e) => write!(f, "frame memory: the kernel refused to map it: {e}"),
        }
    }
}

impl std::error::Error for MemoryError {}

/// The frames of a runtime. Cheap to clone; the mapping lives until the last clone, pool and frame are gone.
#[derive(Clone)]
pub struct FrameMemory {
    owner: Arc<Owner>,
}

impl FrameMemory {
    /// Maps the memory and puts every frame into its home.
    ///
    /// # Errors
    /// A size or count out of range, or the kernel's refusal. Huge pages and locking are wishes: what became of
    /// them is in [`FrameMemory::report`].
    pub fn new(config: &MemoryConfig) -> Result<Self, MemoryError> {
        reap();
        let size = config.frame_size;
        if !size.is_power_of_two() || !(2048..=65536).contains(&size) {
            return Err(MemoryError::FrameSize(size));
        }
        if config.homes == 0 || config.homes > 1024 || config.frames_per_home == 0 {
            return Err(MemoryError::Count);
        }
        let count = config.frames_per_home.checked_mul(config.homes).ok_or(MemoryError::Count)?;
        let bytes = count.checked_mul(size).ok_or(MemoryError::Count)?;
        let slot_bytes = count.checked_mul(size_of::<Slot>()).ok_or(MemoryError::Count)?;
        let (base, mapped, huge_pages) = map(bytes, config.huge_pages).map_err(MemoryError::Map)?;
        let (slots, slot_mapped, _) = match map(slot_bytes, false) {
            Ok(m) => m,
            Err(e) => {
                // SAFETY: mapped just above and not handed out.
                unsafe { libc::munmap(base.as_ptr().cast(), mapped) };
                return Err(MemoryError::Map(e));
            }
        };
        if let Some(node) = config.node {
            numa::prefer(base, mapped, node);
            numa::prefer(slots, slot_mapped, node);
        }
        // SAFETY: both ranges are our own fresh mappings.
        let locked = config.lock
            && unsafe {
                libc::mlock(base.as_ptr().cast(), bytes) == 0
                    && libc::mlock(slots.as_ptr().cast(), slot_bytes) == 0
            };
        let homes = (0..config.homes)
            .map(|_| CachePadded(Home { returned: ReturnStack::new(), attached: AtomicBool::new(false) }))
            .collect();
        let region = NonNull::from(Box::leak(Box::new(Region {
            base,
            bytes: mapped,
            frame_size: size,
            slots: slots.cast(),
            slot_bytes: slot_mapped,
            count,
            homes,
            report: MemoryReport { huge_pages, locked },
            node: config.node,
        })));
        // SAFETY: just made, and all its slots are still to be written.
        unsafe { fill(region, config.frames_per_home) };
        Ok(Self { owner: Arc::new(Owner { region }) })
    }

    /// The pool of one home, for the thread that calls this.
    ///
    /// # Errors
    /// The home does not exist or another pool holds it.
    pub fn attach(&self, home: usize) -> Result<Pool, AttachError> {
        Pool::attach(self.clone(), home)
    }

    /// Whether `other` is the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }

    /// Number of homes.
    #[must_use]
    pub fn homes(&self) -> usize {
        self.region().homes.len()
    }

    /// Number of frames in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.region().count
    }

    /// The NUMA node that it was to come from.
    pub(crate) fn node(&self) -> Option<u32> {
        self.region().node
    }

    /// Bytes of one buffer.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.region().frame_size
    }

    /// Whether the memory got huge pages and is locked.
    #[must_use]
    pub fn report(&self) -> MemoryReport {
        self.region().report
    }

    #[inline]
    pub(crate) fn region(&self) -> &Region {
        // SAFETY: the region is freed only after the last `Owner` is gone (see `Owner::drop`), and `self` holds one.
        unsafe { self.owner.region.as_ref() }
    }
}

impl std::fmt::Debug for FrameMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameMemory")
            .field("frames", &self.count())
            .field("frame_size", &self.frame_size())
            .field("homes", &self.homes())
            .field("report", &self.report())
            .finish()
    }
}

struct Owner {
    region: NonNull<Region>,
}

// SAFETY: `Region` is Send and Sync; the owner only decides when it is freed.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        ORPHANS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Orphan { region: self.region, missing: None });
        reap();
    }
}

/// A region without owner whose frames are perhaps not all back.
struct Orphan {
    region: NonNull<Region>,
    /// Frames still out; `None` before the first count.
    missing: Option<usize>,
}

// SAFETY: as for `Owner`.
unsafe impl Send for Orphan {}

static ORPHANS: Mutex<Vec<Orphan>> = Mutex::new(Vec::new());

/// Frees the regions without an owner whose frames are all back.
fn reap() {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    orphans.retain_mut(|orphan| {
        // SAFETY: an orphan's region is freed only below, and leaves the list with that.
        let region = unsafe { orphan.region.as_ref() };
        let mut missing = orphan.missing.unwrap_or(region.count);
        for home in &region.homes {
            let mut next = home.returned.take();
            while let Some(slot) = next {
                // SAFETY: a slot in a return stack is free and nobody else's.
                next = unsafe { slot.as_ref().next };
                missing -= 1;
            }
        }
        orphan.missing = Some(missing);
        if missing == 0 {
            // SAFETY: no owner, no pool (pools hold an owner) and no frame is left, and whoever pushed the last
            // frame has finished with the region when its push became visible.
            unsafe {
                let region = Box::from_raw(orphan.region.as_ptr());
                libc::munmap(region.base.as_ptr().cast(), region.bytes);
                libc::munmap(region.slots.as_ptr().cast(), region.slot_bytes);
            }
        }
        missing > 0
    });
}

/// Writes every slot and links each home's share into its return stack.
///
/// # Safety
/// The region is the one that `region` was made for by leaking its box, it is not shared yet, and none of its slots is in use.
unsafe fn fill(at: NonNull<Region>, per_home: usize) {
    // SAFETY: the region is there, as the caller says.
    let region = unsafe { at.as_ref() };
    for (h, home) in region.homes.iter().enumerate() {
        let mut first = None;
        let mut last = None;
        for i in (h * per_home..(h + 1) * per_home).rev() {
            let slot = region.slot(i);
            // SAFETY: the slot is inside the mapping and not yet shared; writing does not read the old bytes.
            unsafe {
                slot.as_ptr().write(Slot {
                    next: first,
                    buffer: region.base.as_ptr().add(i * region.frame_size),
                    region: at.as_ptr(),
                    offset: 0,
                    len: 0,
                    capacity: region.frame_size as u32,
                    home: h as u16,
                    meta: Meta::default(),
                });
            }
            last.get_or_insert(slot);
            first = Some(slot);
        }
        if let (Some(first), Some(last)) = (first, last) {
            // SAFETY: the list was just built and is nobody else's.
            unsafe { ReturnStack::push(&raw const home.returned, first, last) };
        }
    }
}

/// Maps `bytes` of zeroed memory, with huge pages if wished and possible: address, mapped length, whether huge.
fn map(bytes: usize, huge: bool) -> io::Result<(NonNull<u8>, usize, bool)> {
    const HUGE: usize = 2 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    if huge {
        let rounded = bytes.next_multiple_of(HUGE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe { libc::mmap(null_mut(), rounded, protection, flags | libc::MAP_HUGETLB, -1, 0) };
        if at != libc::MAP_FAILED {
            if let Some(base) = NonNull::new(at.cast()) {
                return Ok((base, rounded, true));
            }
        }
    }
    // SAFETY: as above.
    let at = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let Some(base) = NonNull::new(at.cast::<u8>()) else {
        return Err(io::Error::other("mapped at address zero"));
    };
    if huge && !cfg!(miri) {
        // SAFETY: the range is our own mapping; advice only.
        unsafe { libc::madvise(base.as_ptr().cast::<c_void>(), bytes, libc::MADV_HUGEPAGE) };
    }
    Ok((base, bytes, false))
}
