//! What all threads of a runtime share: inboxes, doorbells, and who holds which lane. Nothing here is written per
//! packet.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crossbeam_queue::SegQueue;
use flowlane_stack::time::Time;

use super::message::Message;
use crate::wake::Wake;

/// How a worker is reached.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) inbox: SegQueue<Message>,
    pub(crate) wake: Arc<Wake>,
}

/// What all threads of a runtime share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of this runtime in the process.
    pub(crate) runtime: u32,
    pub(crate) posts: Vec<Post>,
    /// Which worker holds each lane. Written when a lane has arrived; while it is on its way, messages go to whom it
    /// left, who passes them on.
    owners: Vec<AtomicU32>,
    epoch: Instant,
    /// Lanes move one at a time.
    pub(crate) moving: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(posts: Vec<Post>, owners: &[usize]) -> Self {
        static RUNTIMES: AtomicU32 = AtomicU32::new(0);
        Self {
            runtime: RUNTIMES.fetch_add(1, Ordering::Relaxed),
            posts,
            owners: owners.iter().map(|w| AtomicU32::new(*w as u32)).collect(),
            epoch: Instant::now(),
            moving: Mutex::new(()),
        }
    }

    /// The runtime's clock: nanoseconds since it was made, never zero.
    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1)
    }

    /// Puts a message into a worker's inbox and wakes it.
    pub(crate) fn send(&self, worker: usize, message: Message) {
        if let Some(post) = self.posts.get(worker) {
            post.inbox.push(message);
            post.wake.ring();
        }
    }

    /// Which worker holds a lane, as far as is known here.
    #[inline]
    pub(crate) fn owner_of(&self, lane: u32) -> usize {
        self.owners.get(lane as usize).map_or(usize::MAX, |o| o.load(Ordering::Acquire) as usize)
    }

    /// Worker: `lane` is here now.
    pub(crate) fn set_owner(&self, lane: u32, worker: usize) {
        if let Some(owner) = self.owners.get(lane as usize) {
            owner.store(worker as u32, Ordering::Release);
        }
    }
}
