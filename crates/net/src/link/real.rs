//! The queues of the real links, seen as queues of any link: one adapter for all three.

use super::{Life, Queue, QueueStats};
use flowlane_sys::frame::{Frame, Pool};
use flowlane_sys::netdev::Interface;
use flowlane_sys::queue::LinkQueue;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A queue of `flowlane-sys`.
struct Real<Q> {
    /// Goes before the queue is closed.
    _open: Arc<()>,
    queue: Q,
}

/// The queues of a link on `interface` as its workers take them. `mtu` is the longest packet now, `most` the longest that they can
/// take.
pub(super) fn boxed<Q: LinkQueue + 'static>(
    interface: Interface,
    (mtu, most): (u16, u16),
    queues: Vec<Q>,
) -> (Life, Vec<Box<dyn Queue>>) {
    let (life, open) = Life::new(interface, mtu, most);
    let real = |queue| Box::new(Real { _open: open.clone(), queue }) as Box<dyn Queue>;
    (life, queues.into_iter().map(real).collect())
}

impl<Q: LinkQueue> Queue for Real<Q> {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        self.queue.receive(pool, into, max)
    }

    fn room(&mut self) -> usize {
        self.queue.room()
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        self.queue.transmit(frames)
    }

    fn flush(&mut self) -> bool {
        self.queue.flush()
    }

    fn ready(&mut self) -> bool {
        self.queue.ready()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.as_fd())
    }

    fn clear_error(&mut self) -> bool {
        self.queue.clear_error()
    }

    fn stats(&self) -> QueueStats {
        let s = self.queue.stats();
        QueueStats {
            rx_frames: s.rx_frames,
            rx_bytes: s.rx_bytes,
            rx_no_frame: s.rx_no_frame,
            rx_ring_full: s.rx_ring_full,
            rx_bad: s.rx_bad,
            rx_unfinished: s.rx_unfinished,
            tx_frames: s.tx_frames,
            tx_bytes: s.tx_bytes,
            tx_failed: s.tx_failed,
            tx_far_full: 0,
            system_calls: s.system_calls,
        }
    }
}

/// An MTU as the stack has it: 65,535 bytes and more are the longest packet of IP.
pub(super) fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}
