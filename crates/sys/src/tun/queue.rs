//! One queue of a TAP link: what happens for every packet.

use super::Tap;
use super::reader::{Packet, Reader};
use crate::frame::{Frame, Pool};
use crate::queue::{Queue, QueueStats, transmit_each};
use crate::vnet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

/// The value of [`room`](Queue::room), since there is no ring with a fill level.
const ROOM: usize = 256;

/// One descriptor of a TAP interface.
#[derive(Debug)]
pub struct TapQueue {
    /// Goes before the descriptor is closed, and with the last of them the interface.
    open: Arc<()>,
    file: File,
    queue: u16,
    reader: Reader,
    stats: QueueStats,
    tap: Arc<Tap>,
}

impl TapQueue {
    pub(super) fn new(open: Arc<()>, file: File, queue: u16, reader: Reader, tap: Arc<Tap>) -> Self {
        Self { open, file, queue, reader, stats: QueueStats::default(), tap }
    }

    /// Number of this queue.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Gone once the last queue of the link is about to close.
    #[must_use]
    pub fn open(&self) -> Weak<()> {
        Arc::downgrade(&self.open)
    }

    /// The interface.
    #[must_use]
    pub fn tap(&self) -> &Tap {
        &self.tap
    }
}

impl Queue for TapQueue {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut count = 0;
        while count < max {
            let Packet::Read(mut frame) = self.reader.next(&self.file, pool, &mut self.stats) else { break };
            frame.meta_mut().queue = self.queue;
            into.push(frame);
            count += 1;
        }
        count
    }

    /// Number of packets that [`TapQueue::transmit`] takes at most: a constant.
    fn room(&mut self) -> usize {
        ROOM
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let file = self.file.as_fd();
        transmit_each(frames, &mut self.stats, |frame| vnet::send(file, frame))
    }

    /// Everything is written at once: always `true`.
    fn flush(&mut self) -> bool {
        true
    }

    /// Whether packets wait. Costs a system call.
    fn ready(&mut self) -> bool {
        self.stats.system_calls += 1;
        crate::poll::wait_readable(&[self.file.as_fd()], Some(0)).is_ok_and(|n| n > 0)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    /// An error means that the interface has been removed, and is permanent.
    fn clear_error(&mut self) -> bool {
        false
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
