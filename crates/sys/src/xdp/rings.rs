//! The four rings of an AF_XDP socket, as the kernel maps them.
//!
//! | ring | we | entries |
//! |---|---|---|
//! | fill | produce | addresses of free buffers to receive into |
//! | receive | consume | descriptors of packets |
//! | transmit | produce | descriptors of packets |
//! | completion | consume | addresses of buffers that were sent |
//!
//! Each is a mapping with a producer and a consumer word, a word of flags and a power of two of entries. The arithmetic
//! is that of [`crate::ring::cursor`]; here are only the mapping and the entries.

use crate::error::{Error, Result};
use crate::ring::cursor::{Consumer, Positions, Producer};
use crate::sync::AtomicU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering;

/// One mapped ring of entries of type `T`. Unmapped on drop; the mapping keeps the socket open.
#[derive(Debug)]
pub(super) struct Ring<T> {
    base: NonNull<u8>,
    bytes: usize,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    entries: std::marker::PhantomData<T>,
}

// SAFETY: a ring is the only handle to its mapping on this side; moving it to another thread moves all access.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps a ring of `capacity` entries, the size it was given by `setsockopt`.
    fn map(socket: BorrowedFd<'_>, capacity: u32, offsets: libc::xdp_ring_offset, page: u64) -> Result<Self> {
        let bytes = offsets.desc as usize + capacity as usize * size_of::<T>();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page as libc::off_t,
            )
        };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => {
                Ok(Self { base, bytes, offsets, mask: capacity - 1, entries: std::marker::PhantomData })
            }
            _ => Err(Error::last("mapping an AF_XDP ring", "CAP_NET_RAW")),
        }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie inside the mapping and are aligned; the kernel and we touch these words
        // only atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset as usize).cast()) }
    }

    fn entry(&self, position: u32) -> *mut T {
        let index = (position & self.mask) as usize;
        // SAFETY: index is below the capacity, so the entry is inside the mapping.
        unsafe { self.base.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(index) }
    }

    /// Whether the kernel waits for a system call to look at this ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T: Copy> Positions for Ring<T> {
    #[inline]
    fn produced(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference into it outlives the ring.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Puts one entry; the caller made sure of room.
#[inline]
pub(super) fn put<T: Copy>(ring: &mut Producer<Ring<T>>, value: T) {
    let at = ring.advance();
    // SAFETY: between `room` and `publish` the entry is ours alone; the pointer is inside the mapping.
    unsafe { ring.positions().entry(at).write(value) };
}

/// Takes one entry; the caller made sure that one is ready.
#[inline]
pub(super) fn take<T: Copy>(ring: &mut Consumer<Ring<T>>) -> T {
    let at = ring.advance();
    // SAFETY: between `ready` and `release` the kernel leaves the entry alone; any bytes are a valid descriptor.
    unsafe { ring.positions().entry(at).read() }
}

/// All four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) fill: Producer<Ring<u64>>,
    pub(super) completion: Consumer<Ring<u64>>,
    pub(super) receive: Consumer<Ring<libc::xdp_desc>>,
    pub(super) transmit: Producer<Ring<libc::xdp_desc>>,
}

/// Sets a ring's or another number option of an AF_XDP socket.
pub(super) fn set_option<T>(socket: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> std::io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is readable for its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Reads an option that is plain data; as much of it as the kernel knows, the rest stays zero.
///
/// # Safety
/// All zeros, and whatever the kernel writes for this option, are values of `T`.
pub(super) unsafe fn get_option<T>(socket: BorrowedFd<'_>, level: i32, name: i32) -> std::io::Result<T> {
    // SAFETY: the caller says that zeros are a value; the kernel writes at most `len` bytes.
    unsafe {
        let mut value: T = std::mem::zeroed();
        let mut len = size_of::<T>() as libc::socklen_t;
        if libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) == 0 {
            Ok(value)
        } else {
            Err(std::io::Error::last_os_error())
        }
    }
}

impl Rings {
    /// Gives the socket its rings, `entries` each (a power of two), and maps them.
    pub(super) fn new(socket: BorrowedFd<'_>, entries: u32) -> Result<Self> {
        for (name, option) in [
            ("fill", libc::XDP_UMEM_FILL_RING),
            ("completion", libc::XDP_UMEM_COMPLETION_RING),
            ("receive", libc::XDP_RX_RING),
            ("transmit", libc::XDP_TX_RING),
        ] {
            set_option(socket, libc::SOL_XDP, option, &entries).map_err(|e| {
                Error::from_io(e, format!("AF_XDP {name} ring of {entries} entries"), "CAP_NET_RAW")
            })?;
        }
        // SAFETY: the offsets are plain numbers.
        let offsets: libc::xdp_mmap_offsets =
            unsafe { get_option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
                .map_err(|e| Error::from_io(e, "asking for the AF_XDP ring offsets", "CAP_NET_RAW"))?;
        let fill = Ring::map(socket, entries, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = Ring::map(socket, entries, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let receive = Ring::map(socket, entries, offsets.rx, libc::XDP_PGOFF_RX_RING as u64)?;
        let transmit = Ring::map(socket, entries, offsets.tx, libc::XDP_PGOFF_TX_RING as u64)?;
        Ok(Self {
            fill: Producer::new(fill, entries),
            completion: Consumer::new(completion),
            receive: Consumer::new(receive),
            transmit: Producer::new(transmit, entries),
        })
    }
}
