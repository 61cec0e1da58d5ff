//! Buffers for [`TcpStream::send_zc`](crate::TcpStream::send_zc) that return to their pool when they may be used again.
//!
//! A pool belongs to the tasks of one lane or worker: create one in each. Its memory is allocated and locked once, so a send costs
//! neither. A buffer that is sent belongs to the stack until the send is over. Whoever waits for the send gets it back then; if nobody
//! does, it goes to the pool by itself.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use flowlane_sys::locked::LockedBytes;

/// A pool of buffers of one size. Cheap to clone: clones are the same pool.
#[derive(Debug, Clone)]
pub struct SendPool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    size: usize,
    count: usize,
    locked: bool,
    /// Taken for a moment with each buffer, by tasks of one worker as a rule.
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// The last one given back is taken first: it is in the caches.
    buffers: Vec<LockedBytes>,
    waiting: VecDeque<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SendPool {
    /// `count` buffers of `size` bytes.
    #[must_use]
    pub fn new(count: usize, size: usize) -> Self {
        let buffers: Vec<_> = (0..count).map(|_| LockedBytes::new(size)).collect();
        let locked = buffers.iter().all(LockedBytes::is_locked);
        let free = Mutex::new(Free { buffers, waiting: VecDeque::new() });
        Self(Arc::new(Shared { size, count, locked, free }))
    }

    /// Bytes of a buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Buffers in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Buffers that are not in use.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.lock().buffers.len()
    }

    /// Whether all of its memory could be locked (`ulimit -l`).
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.0.locked
    }

    /// A buffer, if one is free: with what was in it last, and with its whole length.
    #[must_use]
    pub fn try_take(&self) -> Option<PoolBuffer> {
        let bytes = self.0.lock().buffers.pop()?;
        Some(self.buffer(bytes))
    }

    /// Waits for a buffer. With a pool of no buffers that is for ever.
    pub fn take(&self) -> impl Future<Output = PoolBuffer> + Send {
        poll_fn(|cx| self.poll_take(cx))
    }

    fn poll_take(&self, cx: &Context<'_>) -> Poll<PoolBuffer> {
        let mut free = self.0.lock();
        match free.buffers.pop() {
            Some(bytes) => {
                drop(free);
                Poll::Ready(self.buffer(bytes))
            }
            None => {
                if !free.waiting.iter().any(|w| w.will_wake(cx.waker())) {
                    free.waiting.push_back(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    fn buffer(&self, bytes: LockedBytes) -> PoolBuffer {
        let len = bytes.len();
        PoolBuffer { bytes: Some(bytes), len, pool: self.0.clone() }
    }
}

/// A buffer of a [`SendPool`], to which it returns when it is dropped.
pub struct PoolBuffer {
    /// `None` only while it is dropped.
    bytes: Option<LockedBytes>,
    len: usize,
    pool: Arc<Shared>,
}

impl PoolBuffer {
    /// Only the first `len` bytes count from now on, or all of the buffer if it has fewer.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.pool.size);
    }
}

impl Deref for PoolBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().and_then(|bytes| bytes.get(..self.len)).unwrap_or_default()
    }
}

impl DerefMut for PoolBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.bytes.as_deref_mut().and_then(|bytes| bytes.get_mut(..len)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for PoolBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PoolBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Drop for PoolBuffer {
    fn drop(&mut self) {
        let mut free = self.pool.lock();
        free.buffers.extend(self.bytes.take());
        // All of them: one who is woken may have lost interest, and must not keep the others asleep.
        let waiting = std::mem::take(&mut free.waiting);
        drop(free);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_wake_who_waits() {
        let pool = SendPool::new(2, 5000);
        let (mut first, second) = (pool.try_take().unwrap(), pool.try_take().unwrap());
        assert!(pool.try_take().is_none() && pool.free() == 0);
        first[4999] = 9;
        first.set_len(10);
        assert_eq!((first.len(), second.len(), first.as_ref().len()), (10, 5000, 10));
        let mut waiting = std::pin::pin!(pool.take());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert_eq!(pool.0.lock().waiting.len(), 1);
        drop(first);
        assert!(pool.0.lock().waiting.is_empty());
        let Poll::Ready(again) = waiting.as_mut().poll(&mut cx) else { panic!("one is free") };
        assert_eq!((again.len(), again[4999]), (5000, 9), "whole again");
        drop((again, second));
        assert_eq!((pool.free(), pool.count(), pool.size()), (2, 2, 5000));
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = SendPool::new(1, 100);
        let buffer = pool.try_take().unwrap();
        drop(pool);
        assert_eq!(buffer.len(), 100);
    }
}
