//! One queue of a TAP link: what happens for every packet.

use super::{Tap, vnet};
use crate::frame::{Frame, Meta, Pool};
use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Pieces of one packet at most, its header included: 64 KiB in the smallest frames, and some.
const PIECES: usize = 48;
/// Packets that [`TapQueue::room`] promises: there is no ring to ask.
const ROOM: usize = 256;

/// Counters of one queue since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TapStats {
    /// Packets received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Times that a packet had to wait in the kernel because there was no free frame.
    pub rx_no_frame: u64,
    /// Packets that make no sense.
    pub rx_bad: u64,
    /// Packets sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the kernel refused for good.
    pub tx_failed: u64,
    /// System calls made.
    pub system_calls: u64,
}

/// One descriptor of a TAP interface.
#[derive(Debug)]
pub struct TapQueue {
    file: File,
    queue: u16,
    /// Frames to read into: the first with headroom, then as many full ones as the longest packet needs. Grown to
    /// their whole length, ready.
    waiting: Vec<Frame>,
    overflow: usize,
    stats: TapStats,
    tap: Arc<Tap>,
}

impl TapQueue {
    pub(super) fn new(file: File, queue: u16, overflow: usize, tap: Arc<Tap>) -> Self {
        Self { file, queue, waiting: Vec::new(), overflow, stats: TapStats::default(), tap }
    }

    /// Reads up to `max` packets into frames of `pool`, appends them to `into`, and returns how many. A packet longer
    /// than a frame comes as a chain.
    pub fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
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

    /// How many packets [`TapQueue::transmit`] would take now: it asks nobody.
    pub fn room(&mut self) -> usize {
        ROOM
    }

    /// Writes packets from the front of `frames`; returns how many are done with. They stay when the kernel has no room.
    pub fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let mut done = 0;
        for frame in frames.iter_mut() {
            if let Some(tag) = frame.meta().vlan {
                frame.insert_tag(0x8100, tag);
            }
            self.stats.system_calls += 1;
            match self.write(frame) {
                Ok(n) => {
                    self.stats.tx_frames += 1;
                    self.stats.tx_bytes += n.saturating_sub(vnet::LEN) as u64;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(_) => self.stats.tx_failed += 1,
            }
            done += 1;
        }
        frames.drain(..done);
        done
    }

    fn write(&self, frame: &Frame) -> std::io::Result<usize> {
        let header = vnet::write(frame).ok_or(ErrorKind::InvalidInput)?;
        let mut file = &self.file;
        if !frame.is_chained() {
            return file.write_vectored(&[IoSlice::new(&header), IoSlice::new(frame.data())]);
        }
        let mut chunks = frame.chunks();
        let slices: [IoSlice<'_>; PIECES] = std::array::from_fn(|i| {
            IoSlice::new(if i == 0 { &header } else { chunks.next().unwrap_or_default() })
        });
        if chunks.next().is_some() {
            return Err(ErrorKind::InvalidInput.into());
        }
        file.write_vectored(&slices)
    }

    /// Everything is written at once: always `true`.
    pub fn flush(&mut self) -> bool {
        true
    }

    /// Whether packets wait. Costs a system call.
    pub fn ready(&mut self) -> bool {
        self.stats.system_calls += 1;
        crate::poll::wait_readable(&[self.file.as_fd()], Some(0)).is_ok_and(|n| n > 0)
    }

    /// Number of this queue.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Counters since opening.
    #[must_use]
    pub fn stats(&self) -> TapStats {
        self.stats
    }

    /// The interface.
    #[must_use]
    pub fn tap(&self) -> &Tap {
        &self.tap
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
