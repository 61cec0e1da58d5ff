//! Output of a worker that has no queue of a link, sent by one that has.
//!
//! A link may have fewer queues than there are workers, and a queue belongs to one worker. The other workers have a [`RelayQueue`] for
//! the link, which puts their output into a ring to the worker of a queue; that worker sends it before the output of its own lanes.
//!
//! A frame counts as handed over only when the link has taken it, so that a lane that moves waits for it ([`Queue::flush`]).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane_sys::frame::{Frame, Pool};
use flowlane_sys::queue::{Queue, QueueStats};
use flowlane_sys::ring::spsc::{self, Receiver, Sender};

use crate::wake::Wake;

/// Frames that wait in the ring.
const CAPACITY: usize = 1024;

/// A link to a worker that has no queue of it.
pub(crate) struct RelayQueue {
    ring: Sender<Frame>,
    wake: Arc<Wake>,
    /// Frames put into the ring, and how many of them the link has taken.
    sent: u64,
    taken: Arc<AtomicU64>,
    unpublished: bool,
}

/// What comes from a [`RelayQueue`], at the worker that has a queue.
#[derive(Debug)]
pub(crate) struct Relay {
    ring: Receiver<Frame>,
    /// Frames taken out of the ring, and how many of them the sender knows of.
    received: u64,
    told: u64,
    taken: Arc<AtomicU64>,
}

/// Both ends. `wake` is the doorbell of the worker that has a queue.
pub(crate) fn relay(wake: Arc<Wake>) -> (RelayQueue, Relay) {
    let (sender, receiver) = spsc::ring(CAPACITY);
    let taken = Arc::new(AtomicU64::new(0));
    let near = RelayQueue { ring: sender, wake, sent: 0, taken: taken.clone(), unpublished: false };
    (near, Relay { ring: receiver, received: 0, told: 0, taken })
}

impl Relay {
    /// Moves up to `room` frames into `output`, and returns how many.
    pub(crate) fn receive(&mut self, room: usize, output: &mut Vec<Frame>) -> usize {
        let n = self.ring.ready().min(room);
        for _ in 0..n {
            let Some(frame) = self.ring.pop() else { break };
            output.push(frame);
            self.received += 1;
        }
        if n > 0 {
            self.ring.release();
        }
        n
    }

    /// Whether this is the other end of a queue.
    pub(crate) fn is_of(&self, queue: &RelayQueue) -> bool {
        Arc::ptr_eq(&self.taken, &queue.taken)
    }

    /// Whether frames wait.
    pub(crate) fn ready(&mut self) -> bool {
        self.ring.ready() > 0
    }

    /// All that was received has been handed over by the link.
    #[inline]
    pub(crate) fn handed_over(&mut self) {
        if self.told != self.received {
            self.told = self.received;
            self.taken.store(self.received, Ordering::Release);
        }
    }
}

impl RelayQueue {
    /// Another worker has the other end now, and `wake` is its doorbell. It is rung for what waits.
    pub(crate) fn repoint(&mut self, wake: Arc<Wake>) {
        self.wake = wake;
        self.wake.ring();
    }
}

impl Queue for RelayQueue {
    fn receive(&mut self, _: &Pool, _: &mut Vec<Frame>, _: usize) -> usize {
        0
    }

    fn room(&mut self) -> usize {
        CAPACITY.saturating_sub(self.ring.pending())
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let n = self.room().min(frames.len());
        for frame in frames.drain(..n) {
            // There is room for it.
            let _ = self.ring.push(frame);
        }
        self.sent += n as u64;
        self.unpublished |= n > 0;
        n
    }

    fn flush(&mut self) -> bool {
        if std::mem::take(&mut self.unpublished) {
            self.ring.publish();
            self.wake.ring();
        }
        // Guard: `self.taken.load(Ordering::Acquire) == self.sent` as `true` fails runtime::relay
        self.taken.load(Ordering::Acquire) == self.sent
    }

    fn ready(&mut self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// What is sent is counted by the queue that sends it.
    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    /// A frame is handed over when the link has taken it: a lane that moves must not overtake what it left behind.
    #[test]
    fn what_waits_is_not_handed_over() {
        let config = MemoryConfig {
            frames_per_home: 2 * CAPACITY,
            lock: false,
            huge_pages: false,
            ..MemoryConfig::default()
        };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let (mut near, mut far) = relay(Arc::new(Wake::new(0, 1).unwrap()));
        let mut frames: Vec<Frame> = (0..CAPACITY + 1).map(|_| pool.alloc().unwrap()).collect();
        assert!(near.flush() && !far.ready());
        assert_eq!((near.room(), near.transmit(&mut frames), frames.len()), (CAPACITY, CAPACITY, 1));
        assert_eq!((near.room(), near.transmit(&mut frames)), (0, 0), "the rest stays with the caller");
        assert!(!near.flush() && far.ready());
        let mut output = Vec::new();
        assert_eq!((far.receive(10, &mut output), output.len()), (10, 10));
        assert_eq!(near.transmit(&mut frames), 1, "there is room again");
        assert_eq!(far.receive(usize::MAX, &mut output), CAPACITY - 10, "the last was not flushed yet");
        far.handed_over();
        assert!(!near.flush());
        assert_eq!(far.receive(usize::MAX, &mut output), 1);
        assert!(!near.flush(), "taken out of the ring is not handed over");
        far.handed_over();
        assert!(near.flush());
    }
}
