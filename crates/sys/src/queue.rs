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

    /// How often each fault that the link makes on purpose happened, in the link's own order; `None` for links that make none.
    fn quirks(&self) -> Option<&[u64]> {
        None
    }
}

macro_rules! queue_stats {
    ($($(#[doc = $doc:literal])+ $field:ident: $name:literal;)+) => {
        /// Counters of one queue pair since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct QueueStats {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl QueueStats {
            /// What each counter is, in words, in the order of [`QueueStats::each`].
            pub const WORDS: &'static [&'static str] = &[$(concat!($($doc),+)),+];


            /// Calls `f` with the name of every counter, lower case and joined by hyphens, and its value.
            pub fn each(&self, f: &mut dyn FnMut(&'static str, u64)) {
                $(f($name, self.$field);)+
            }
        }
    };
}

queue_stats! {
    /// Packets received.
    rx_frames: "rx-frames";
    /// Bytes received.
    rx_bytes: "rx-bytes";
    /// Times that there was no free frame for a packet. AF_XDP has lost it then; in AF_PACKET's ring and in a TAP
    /// interface it waits, and is lost only if they fill.
    rx_no_frame: "rx-no-frame";
    /// Packets lost because the receive ring was full, as far as the link reports it; a TAP interface does not.
    rx_ring_full: "rx-ring-full";
    /// Packets that could not be delivered: too long for a slot or frame, cut short, or senseless.
    rx_bad: "rx-bad";
    /// Packets whose transport checksum the sender left to hardware that was never reached, and which were taken for that: on
    /// links that do not mark them (AF_XDP in generic mode or on a veth). They are not lost.
    rx_unfinished: "rx-unfinished";
    /// Packets sent.
    tx_frames: "tx-frames";
    /// Bytes sent.
    tx_bytes: "tx-bytes";
    /// Packets refused for good: empty, too long, of another memory, chained where no chains are taken, or refused by
    /// the kernel or a device that is down.
    tx_failed: "tx-failed";
    /// Packets that found the far side's receive queue full, for links that see the far side.
    tx_far_full: "tx-far-full";
    /// System calls made for this queue.
    system_calls: "system-calls";
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
