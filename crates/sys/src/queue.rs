//! What the queues of all real links have in common, so that whoever uses them needs one way only.

use crate::frame::{Frame, Pool};
use crate::packet::OffloadSocket;
use std::os::fd::AsFd;

/// One queue pair of a link to the outside: packets in and out, and a descriptor to wait on for packets to come.
///
/// A queue never blocks. What it cannot take stays with the caller; what it had to drop is counted in [`QueueStats`].
pub trait LinkQueue: AsFd + Send {
    /// Appends up to `max` received packets to `into` and returns how many. Each is a frame of `pool`'s memory, or a
    /// chain of them, that starts at the Ethernet header; `meta().queue` is set.
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize;

    /// How many packets of one frame [`LinkQueue::transmit`] would take now.
    fn room(&mut self) -> usize;

    /// Takes packets from the front of `frames` while there is room; the others stay. Returns how many are done with.
    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize;

    /// Hands everything taken to the kernel and frees what it has finished with. `true` when nothing is left to hand
    /// over.
    fn flush(&mut self) -> bool;

    /// Whether packets wait.
    fn ready(&mut self) -> bool;

    /// Takes note of an error that the descriptor reports, such as an interface that was taken down, so that waiting for
    /// packets is possible again. `false` if it will report an error for ever: nothing will come any more, and whoever
    /// waits should leave it out.
    fn clear_error(&mut self) -> bool {
        crate::poll::take_error(self.as_fd())
    }

    /// Counters since opening; asks the kernel for its own.
    fn stats(&self) -> QueueStats;
}

/// Counters of one queue since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Packets received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Times that there was no free frame for a packet. AF_XDP has lost it then; in AF_PACKET's ring and in a TAP
    /// interface it waits, and is lost only if they fill.
    pub rx_no_frame: u64,
    /// Packets that found the receive ring full, as far as the kernel tells: it does not for TAP.
    pub rx_ring_full: u64,
    /// Packets that could not be delivered: too long for a slot or frame, or senseless.
    pub rx_bad: u64,
    /// Packets whose transport checksum the sender left to hardware that was never reached, and which were taken for that: on
    /// links that do not mark them. They are not lost.
    pub rx_unfinished: u64,
    /// Packets sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets refused for good: empty, too long, of another memory, chained where no chains are taken, or refused by
    /// the kernel.
    pub tx_failed: u64,
    /// System calls made.
    pub system_calls: u64,
}

/// Transmits packets of two ways in their order: what `put` takes (from the front, at most so many; how many it took) and
/// what goes past the ring by `send` (`false`: no room now). Before each of the latter the ring is emptied.
pub(crate) fn transmit_in_order<Q: LinkQueue>(
    queue: &mut Q,
    frames: &mut Vec<Frame>,
    put: impl Fn(&mut Q, &mut Vec<Frame>, usize) -> usize,
    send: impl Fn(&mut Q, &mut Frame) -> bool,
) -> usize {
    let mut done = 0;
    loop {
        let short = frames.iter().take_while(|frame| !OffloadSocket::takes(frame)).count();
        if short > 0 {
            let taken = put(queue, frames, short);
            done += taken;
            if taken < short {
                return done;
            }
        }
        let Some(long) = frames.first_mut() else { return done };
        if !queue.flush() || !send(queue, long) {
            return done;
        }
        frames.drain(..1);
        done += 1;
    }
}
