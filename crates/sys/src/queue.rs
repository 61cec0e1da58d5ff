//! A queue pair of a link: the common trait of all links.

use crate::frame::{Frame, Pool};
use crate::packet::OffloadSocket;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One queue pair of a link: packets in and out.
///
/// A queue never blocks. Packets that it has no room for stay with the caller; dropped packets are counted in [`QueueStats`].
pub trait Queue: Send {
    /// Appends up to `max` received packets to `into` and returns how many. Each is a frame of `pool`'s memory, or a
    /// chain of them, that starts at the Ethernet header; `meta().queue` is set, the hash if the link has one.
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize;

    /// How many packets of one frame [`Queue::transmit`] would take now.
    fn room(&mut self) -> usize;

    /// Takes packets from the front of `frames` while there is room; the others stay. Returns how many are done with.
    /// Nothing need leave before [`Queue::flush`].
    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize;

    /// Hands everything taken to the other side, and frees what that side has finished with. `true` when nothing taken is left to
    /// hand over, so that a later packet of another queue cannot overtake it here.
    fn flush(&mut self) -> bool;

    /// Whether packets may be waiting: the last look before sleep.
    fn ready(&mut self) -> bool;

    /// What to wait on for packets to come; `None` for links in memory, which wake the worker themselves.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Takes note of an error that the descriptor reports, such as an interface that was taken down, so that waiting for
    /// packets is possible again. `false` if it will report an error for ever: nothing will come any more, and whoever
    /// waits should leave it out.
    fn clear_error(&mut self) -> bool {
        self.fd().is_none_or(crate::poll::take_error)
    }

    /// Whether what could be received waits as long as need be, as a file does: then no more is taken at once than the rings to
    /// other workers can hold.
    fn waits(&self) -> bool {
        false
    }

    /// Counters since opening, including the kernel's.
    fn stats(&self) -> QueueStats;

    /// Where the frames are that the other side has of this queue; `None` for links that take packets by copying them.
    fn outstanding(&self) -> Option<Outstanding> {
        None
    }

    /// How often each fault that the link makes on purpose happened, in the link's own order; `None` for links that make none.
    fn quirks(&self) -> Option<&[u64]> {
        None
    }
}

crate::figures! {
    /// Counters of one queue pair since it was opened.
    pub struct QueueStats {
        rx_frames: count "packets received";
        rx_bytes: count "bytes received";
        rx_no_frame: count "times that there was no free frame for a packet. AF_XDP has lost it then; in AF_PACKET's ring and in a TAP \
            interface it waits, and is lost only if they fill";
        rx_ring_full: count "packets lost because the receive ring was full, as far as the link reports it; a TAP interface does not";
        rx_bad: count "packets that could not be delivered: too long for a slot or frame, cut short, or senseless";
        rx_unfinished: count "packets whose transport checksum the sender left to hardware that was never reached, and which were taken for \
            that: on links that do not mark them (AF_XDP in generic mode or on a veth). They are not lost";
        tx_frames: count "packets sent";
        tx_bytes: count "bytes sent";
        tx_failed: count "packets refused for good: empty, too long, of another memory, chained where no chains are taken, or refused by the \
            kernel or a device that is down";
        tx_far_full: count "packets that found the far side's receive queue full, for links that see the far side";
        system_calls: count "system calls made for this queue";
    }
}

/// Frames of one queue pair in the hands of kernel and card, by where they are. Each frame is in one of these places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// In the fill ring: the driver has not taken them yet.
    pub posted: u64,
    /// With the driver, for packets that will come.
    pub receiving: u64,
    /// In the receive ring: packets that have come.
    pub received: u64,
    /// In the transmit ring: the driver has not taken them yet.
    pub queued: u64,
    /// With the driver, being sent.
    pub sending: u64,
    /// In the completion ring: sent, and about to be free.
    pub sent: u64,
}

impl Outstanding {
    /// Names of the places, in the order of [`Self::values`].
    pub const NAMES: [&'static str; 6] = ["posted", "receiving", "received", "queued", "sending", "sent"];

    /// Sorts `held` frames, of which `filled` were given for receiving, by what the rings hold. The kernel goes on while they are looked at, so
    /// the rings are believed only as far as there are frames: the places always add up to `held`.
    #[must_use]
    pub fn of(held: u64, filled: u64, [fill, receive, transmit, completion]: [u32; 4]) -> Self {
        let filled = filled.min(held);
        let received = u64::from(receive).min(filled);
        let posted = u64::from(fill).min(filled - received);
        let given = held - filled;
        let sent = u64::from(completion).min(given);
        let queued = u64::from(transmit).min(given - sent);
        let (receiving, sending) = (filled - received - posted, given - sent - queued);
        Self { posted, receiving, received, queued, sending, sent }
    }

    /// The numbers of frames.
    #[must_use]
    pub fn values(&self) -> [u64; 6] {
        let Self { posted, receiving, received, queued, sending, sent } = *self;
        [posted, receiving, received, queued, sending, sent]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

/// Has the kernel send what the transmit ring of this socket holds, without waiting. The number of its error, if there is one.
pub(crate) fn send_ring(socket: BorrowedFd<'_>) -> Option<i32> {
    // SAFETY: no data and no address are passed.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if sent < 0 { io::Error::last_os_error().raw_os_error() } else { None }
}

/// Transmits packets from the front of `frames` by a system call each, with their tags in the data. `send` returns a packet's bytes. A packet for
/// which it has no room stays with those behind it; one that it refuses for good is counted and gone. Returns how many are done with.
pub fn transmit_each(
    frames: &mut Vec<Frame>,
    stats: &mut QueueStats,
    mut send: impl FnMut(&mut Frame) -> io::Result<usize>,
) -> usize {
    let mut done = 0;
    for frame in frames.iter_mut() {
        if let Some(tag) = frame.meta().vlan {
            frame.insert_tag(0x8100, tag);
        }
        stats.system_calls += 1;
        match send(frame) {
            Ok(n) => {
                stats.tx_frames += 1;
                stats.tx_bytes += n as u64;
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => break,
            Err(_) => stats.tx_failed += 1,
        }
        done += 1;
    }
    frames.drain(..done);
    done
}

/// Transmits packets of two ways in their order: what `put` takes (from the front, at most so many; how many it took) and
/// what goes past the ring by `send` (`false`: no room now). Before each of the latter the ring is emptied.
pub(crate) fn transmit_in_order<Q: Queue>(
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

#[cfg(test)]
mod tests {
    use super::Outstanding;

    #[test]
    fn every_frame_is_in_one_place() {
        let all = Outstanding::of(2100, 2048, [2000, 8, 30, 2]);
        assert_eq!(all.values(), [2000, 40, 8, 30, 20, 2]);
        assert_eq!(all.total(), 2100);
        // The kernel went on while the rings were looked at: a frame seen in two rings counts once.
        for rings in [[2048, 2048, 52, 52], [u32::MAX; 4], [0; 4]] {
            assert_eq!(Outstanding::of(2100, 2048, rings).total(), 2100, "{rings:?}");
        }
        assert_eq!(Outstanding::of(5, 9, [9, 0, 0, 0]).values(), [5, 0, 0, 0, 0, 0]);
    }
}
