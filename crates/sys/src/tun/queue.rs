//! One queue of a TAP link: what happens for every packet.

use super::Tap;
use crate::frame::{Frame, Meta, Pool};
use crate::queue::{Queue, QueueStats};
use crate::vnet::{self, PIECES};
use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Read};
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
    /// Frames to read into: the first with headroom, then as many full ones as the longest packet needs. Grown to
    /// their whole length, ready.
    waiting: Vec<Frame>,
    overflow: usize,
    stats: QueueStats,
    tap: Arc<Tap>,
}

impl TapQueue {
    pub(super) fn new(open: Arc<()>, file: File, queue: u16, overflow: usize, tap: Arc<Tap>) -> Self {
        Self { open, file, queue, waiting: Vec::new(), overflow, stats: QueueStats::default(), tap }
    }

    fn read(&mut self, header: &mut [u8; vnet::LEN]) -> std::io::Result<usize> {
        if let [only] = &mut self.waiting[..] {
            return self.file.read_vectored(&mut [IoSliceMut::new(header), IoSliceMut::new(only.data_mut())]);
        }
        let pieces = self.waiting.len() + 1;
        let mut buffers =
            std::iter::once(&mut header[..]).chain(self.waiting.iter_mut().map(Frame::data_mut));
        let mut slices: [IoSliceMut<'_>; PIECES] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        self.file.read_vectored(&mut slices[..pieces.min(PIECES)])
    }

    /// Sees to it that the next read has frames. `false` if the pool is empty.
    fn stock(&mut self, pool: &Pool) -> bool {
        while self.waiting.len() <= self.overflow {
            let Some(mut frame) = pool.alloc() else {
                self.stats.rx_no_frame += 1;
                return false;
            };
            if !self.waiting.is_empty() {
                frame.reset(0);
            }
            let all = frame.tailroom();
            let _ = frame.push_back(all);
            self.waiting.push(frame);
        }
        true
    }

    /// Takes the frames that `len` bytes were read into, as one packet.
    fn take(&mut self, len: usize) -> Option<Frame> {
        let mut ends = 0;
        let used = self
            .waiting
            .iter()
            .take_while(|f| {
                let begins = ends;
                ends += f.len();
                begins < len
            })
            .count();
        let mut left = len;
        let mut packet: Option<Frame> = None;
        for mut frame in self.waiting.drain(..used) {
            frame.truncate(left);
            left -= frame.len();
            *frame.meta_mut() = Meta::default();
            match packet.as_mut() {
                None => packet = Some(frame),
                Some(head) => head.append(frame),
            }
        }
        // What is left over was for the rest of a packet; the first has to have headroom.
        self.waiting.clear();
        packet
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
        while count < max && self.stock(pool) {
            let mut header = [0; vnet::LEN];
            self.stats.system_calls += 1;
            let read = match self.read(&mut header) {
                Ok(n) if n > vnet::LEN => n - vnet::LEN,
                Ok(_) => {
                    self.stats.rx_bad += 1;
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let Some(mut frame) = self.take(read) else { break };
            *frame.meta_mut() = Meta { queue: self.queue, ..Meta::default() };
            if vnet::read(header, frame.meta_mut()) {
                self.stats.rx_frames += 1;
                self.stats.rx_bytes += read as u64;
                into.push(frame);
                count += 1;
            } else {
                self.stats.rx_bad += 1;
            }
        }
        count
    }

    /// Number of packets that [`TapQueue::transmit`] takes at most: a constant.
    fn room(&mut self) -> usize {
        ROOM
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let mut done = 0;
        for frame in frames.iter_mut() {
            if let Some(tag) = frame.meta().vlan {
                frame.insert_tag(0x8100, tag);
            }
            self.stats.system_calls += 1;
            match vnet::send(self.file.as_fd(), frame) {
                Ok(n) => {
                    self.stats.tx_frames += 1;
                    self.stats.tx_bytes += n as u64;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(_) => self.stats.tx_failed += 1,
            }
            done += 1;
        }
        frames.drain(..done);
        done
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
