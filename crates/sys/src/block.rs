//! Memory that one writer fills from front to back and that many may read: what a sender keeps until it is acknowledged.
//!
//! ```text
//!    0                        filled              capacity
//!    ├────────────────────────┼─────────────────────┤
//!    │  written: never again  │  the writer's alone │
//!    └────────────────────────┴─────────────────────┘
//!       ▲ frames refer to parts of it ([`Frame::share`])
//! ```
//!
//! A packet whose payload is in a block has no copy of it: its frames refer to the block and keep it alive, whichever thread drops them.
//! Written bytes do not change while a frame refers to them, which makes reading them safe; only a block without references can be emptied
//! and filled again.
//!
//! A block may also consist of bytes that an application gave away. Their owner is dropped with the last reference, and its `Drop` is
//! application code, possibly in the middle of handling an acknowledgement. A thread that handles packets therefore sets such owners aside
//! ([`keep_owners`]) and drops them where a panic does no harm ([`drop_owners`]).
//!
//! [`Frame::share`]: crate::frame::Frame::share

use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes that are written through shared handles, and not there before.
type Memory = [UnsafeCell<MaybeUninit<u8>>];

/// A handle that keeps bytes alive, and where they are.
#[derive(Clone)]
pub(crate) enum Hold {
    /// A block's own memory.
    Block(Arc<Memory>),
    /// Bytes that an application gave away to be sent.
    Owner(Owner),
}

type Shared = Arc<dyn Lender>;

/// Lends its bytes to be sent from where they are.
pub trait Lender: Send + Sync {
    /// The bytes: the same ones, at the same place, until it is dropped.
    fn bytes(&self) -> &[u8];

    /// The connection has ended, and not all of the bytes were acknowledged. They may still be in use until this is dropped.
    fn cut_off(&self) {}
}

/// Who lends and does not ask what became of it.
struct Plain<T>(T);

impl<T: AsRef<[u8]> + Send + Sync> Lender for Plain<T> {
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

thread_local! {
    /// Parts of owners that this thread let go of; `None` where they are dropped at once.
    static LATER: RefCell<Option<Vec<Shared>>> = const { RefCell::new(None) };
}

/// A reference to bytes that an application gave away; `None` only while it is dropped.
#[derive(Clone)]
pub(crate) struct Owner(Option<Shared>);

impl Drop for Owner {
    #[inline]
    fn drop(&mut self) {
        let Some(owner) = self.0.take() else { return };
        // Whether others have a part, too, is known only when this one is let go: so all are put aside.
        let mut owner = Some(owner);
        let _ = LATER.try_with(|later| {
            if let Ok(Some(later)) = later.try_borrow_mut().as_deref_mut().map(Option::as_mut) {
                later.extend(owner.take());
            }
        });
        // Here only if it was not put aside.
        drop(owner);
    }
}

/// From now on this thread does not drop owners of released bytes, but keeps them for [`drop_owners`].
pub fn keep_owners() {
    LATER.with_borrow_mut(|later| {
        later.get_or_insert_default();
    });
}

/// Drops the owners that this thread has kept, one by one. Returns the payloads of those that panicked.
pub fn drop_owners() -> Vec<Box<dyn Any + Send>> {
    let owners = LATER.with_borrow_mut(|later| match later {
        Some(later) if !later.is_empty() => std::mem::take(later),
        _ => Vec::new(),
    });
    let drop_one = |owner| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop::<Shared>(owner)));
    owners.into_iter().filter_map(|owner| drop_one(owner).err()).collect()
}

/// Ends the effect of [`keep_owners`], and drops the owners kept.
pub fn stop_keeping_owners() -> Vec<Box<dyn Any + Send>> {
    let panics = drop_owners();
    LATER.set(None);
    panics
}

// SAFETY: a block's memory is written by the one `Block` only, through `&mut`, and only where it was not filled before or
// while nobody else holds it; everybody else reads only what was filled when they got their part of it. So bytes that are
// read are not written at the same time, on whatever threads that happens, and the count of holders is atomic. An owner is
// `Send` and `Sync` itself.
unsafe impl Send for Hold {}
// SAFETY: as above; a shared reference allows nothing but cloning and reading.
unsafe impl Sync for Hold {}

/// Bytes that an application gives away, to be sent in place. Cheap to clone and to split: the bytes are shared, and their owner is dropped
/// with the last reference.
#[derive(Clone)]
pub struct OwnedBytes {
    owner: Shared,
    start: *const u8,
    len: usize,
}

// SAFETY: the bytes are only read, and their owner, which is `Send` and `Sync`, is kept.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// All bytes of `owner`: a `Vec<u8>`, a `&'static [u8]`, an `Arc<[u8]>`, `bytes::Bytes`, a mapped file.
    #[must_use]
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::lent(Plain(owner))
    }

    /// All bytes of `owner`, which is told if they do not all arrive.
    #[must_use]
    pub fn lent(owner: impl Lender + 'static) -> Self {
        let owner: Shared = Arc::new(owner);
        // The owner stays where it is and is only ever borrowed until it is dropped, so a slice that it lends now is good for
        // as long.
        let bytes = owner.bytes();
        let (start, len) = (bytes.as_ptr(), bytes.len());
        Self { owner, start, len }
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: part of what the owner lent in `new`; the owner is kept and nobody can change it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Takes the first `n` bytes off, all if there are fewer, and returns them.
    #[must_use]
    pub fn split_to(&mut self, n: usize) -> Self {
        let n = n.min(self.len);
        let first = Self { len: n, ..self.clone() };
        // SAFETY: at most the end of the bytes.
        self.start = unsafe { self.start.add(n) };
        self.len -= n;
        first
    }
}

impl std::fmt::Debug for OwnedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A block of memory, seen by its writer.
pub struct Block {
    memory: Hold,
    start: *mut u8,
    filled: u32,
    capacity: u32,
    /// Somebody may refer to it.
    shared: bool,
}

// SAFETY: `start` points into `memory`, which may go anywhere.
unsafe impl Send for Block {}

impl Block {
    /// An empty block of `capacity` bytes, at most 4 GiB. Its memory is not cleared first.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        // SAFETY: a cell of a byte that need not be initialised is one whatever is in it.
        let memory: Arc<Memory> = unsafe { Arc::new_uninit_slice(capacity as usize).assume_init() };
        let start = UnsafeCell::raw_get(memory.as_ptr()).cast::<u8>();
        Self { memory: Hold::Block(memory), start, filled: 0, capacity, shared: false }
    }

    /// A full block of an application's bytes; the first 4 GiB of them.
    #[must_use]
    pub fn owned(bytes: OwnedBytes) -> Self {
        let len = u32::try_from(bytes.len).unwrap_or(u32::MAX);
        let start = bytes.start.cast_mut();
        Self {
            memory: Hold::Owner(Owner(Some(bytes.owner))),
            start,
            filled: len,
            capacity: len,
            shared: false,
        }
    }

    /// Whether its bytes are an application's, and not memory that can be filled again.
    #[inline]
    #[must_use]
    pub fn is_owned(&self) -> bool {
        matches!(self.memory, Hold::Owner(_))
    }

    /// Tells an application whose bytes these are that not all of them were acknowledged, and none will be any more.
    pub fn cut_off(&self) {
        if let Hold::Owner(Owner(Some(owner))) = &self.memory {
            owner.cut_off();
        }
    }

    /// Bytes that can be written in all.
    #[inline]
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Bytes written.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled as usize
    }

    /// Whether nothing has been written.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Bytes that can still be written.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        (self.capacity - self.filled) as usize
    }

    /// Writes as many of `bytes` as there is room for; how many.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room());
        // SAFETY: `n` bytes from `filled` on are inside the memory, and nobody refers to what is not filled (see `hold`),
        // so this handle, held exclusively, is the only one that touches them; there are none in a block of somebody's bytes,
        // which is full. `bytes` is no part of them: a slice of this block borrows it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(self.filled as usize), n) };
        self.filled += n as u32;
        n
    }

    /// The written bytes.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        // SAFETY: so many bytes have been written, and are not written again while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start, self.filled as usize) }
    }

    /// Empties it for reuse. `false`, without a change, while frames refer to it, and for an application's bytes.
    pub fn clear(&mut self) -> bool {
        let Hold::Block(memory) = &self.memory else { return false };
        if self.shared {
            if Arc::strong_count(memory) > 1 {
                return false;
            }
            // What the last of them read was read before it let go.
            fence(Ordering::Acquire);
            self.shared = false;
        }
        self.filled = 0;
        true
    }

    /// A handle that keeps the memory alive, and where byte `at` is.
    #[inline]
    pub(crate) fn hold(&mut self, at: usize) -> (Hold, *const u8) {
        debug_assert!(at <= self.len());
        self.shared = true;
        // SAFETY: at most the end of the memory.
        (self.memory.clone(), unsafe { self.start.add(at) })
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block")
            .field("filled", &self.filled)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_stays_and_a_block_in_use_is_not_emptied() {
        let mut block = Block::new(10);
        assert_eq!((block.push(b"abcdef"), block.room()), (6, 4));
        assert_eq!(block.push(b"ghijkl"), 4);
        assert_eq!((block.data(), block.room()), (&b"abcdefghij"[..], 0));
        let (hold, start) = block.hold(2);
        assert!(!block.clear(), "somebody refers to it");
        // SAFETY: `hold` keeps the memory alive, and what was written is not written again.
        assert_eq!(unsafe { std::slice::from_raw_parts(start, 3) }, b"cde");
        drop(hold);
        assert!(block.clear() && block.is_empty());
        assert_eq!(block.push(b"xyz"), 3);
        assert_eq!(block.data(), b"xyz");
    }

    #[test]
    fn memory_outlives_its_writer_on_another_thread() {
        struct Part(Hold, *const u8);
        // SAFETY: the pointer is into what the handle keeps.
        unsafe impl Send for Part {}
        let mut block = Block::new(4096);
        block.push(&[7; 4000]);
        let (hold, start) = block.hold(0);
        let part = Part(hold, start);
        drop(block);
        let sum = std::thread::spawn(move || {
            let part = part;
            let Part(hold, start) = &part;
            assert!(matches!(hold, Hold::Block(_)));
            // SAFETY: the handle keeps the memory alive; 4000 bytes were written.
            unsafe { std::slice::from_raw_parts(*start, 4000) }.iter().map(|b| u32::from(*b)).sum::<u32>()
        });
        assert_eq!(sum.join().unwrap(), 28_000);
    }

    #[test]
    fn a_thread_that_handles_packets_drops_owners_where_a_panic_harms_nobody() {
        struct Bad(#[expect(dead_code, reason = "counts")] Arc<()>);
        impl AsRef<[u8]> for Bad {
            fn as_ref(&self) -> &[u8] {
                b"bytes"
            }
        }
        impl Drop for Bad {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("an owner's own"));
            }
        }
        std::thread::spawn(|| {
            keep_owners();
            let alive = Arc::new(());
            let mut block = Block::owned(OwnedBytes::new(Bad(alive.clone())));
            let (hold, _) = block.hold(0);
            drop(block);
            assert!(drop_owners().is_empty(), "a frame has a part");
            drop(hold);
            assert_eq!(Arc::strong_count(&alive), 2, "kept");
            let panics = drop_owners();
            assert_eq!(panics.len(), 1);
            assert_eq!(panics[0].downcast_ref(), Some(&"an owner's own"));
            assert_eq!(Arc::strong_count(&alive), 1);
            drop(Block::owned(OwnedBytes::new(Bad(alive.clone()))));
            assert_eq!(stop_keeping_owners().len(), 1);
            drop(Block::owned(OwnedBytes::new(vec![1])));
            assert!(LATER.with_borrow(Option::is_none));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn somebodys_bytes_are_dropped_with_the_last_part() {
        struct Told(Vec<u8>, #[expect(dead_code, reason = "counts")] Arc<()>);
        impl AsRef<[u8]> for Told {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let alive = Arc::new(());
        let mut bytes = OwnedBytes::new(Told(b"hello world".to_vec(), alive.clone()));
        let first = bytes.split_to(6);
        assert_eq!((first.data(), bytes.data()), (&b"hello "[..], &b"world"[..]));
        let mut block = Block::owned(bytes);
        assert_eq!((block.len(), block.room(), block.push(b"x")), (5, 0, 0));
        assert!(block.is_owned() && !block.clear());
        let (hold, start) = block.hold(1);
        drop((block, first));
        // SAFETY: `hold` keeps the bytes.
        assert_eq!(unsafe { std::slice::from_raw_parts(start, 4) }, b"orld");
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(hold);
        assert_eq!(Arc::strong_count(&alive), 1);
        let mut few = OwnedBytes::new("abc");
        assert_eq!((few.split_to(9).data(), few.is_empty()), (&b"abc"[..], true));
    }
}
