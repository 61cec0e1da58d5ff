//! Reads packets with their header, one a call, into frames.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut, Read};

use crate::frame::{Frame, HEADROOM, Meta, Pool};
use crate::queue::QueueStats;
use crate::vnet::{self, PIECES};

/// What there is to read from.
pub(crate) enum Packet {
    /// A packet.
    Read(Frame),
    /// Nothing now, or no frame for it.
    Nothing,
    /// Nothing any more.
    Ended,
}

/// Frames to read into: the first with headroom, then as many full ones as the longest packet needs. Grown to their whole length, ready.
#[derive(Debug)]
pub(crate) struct Reader {
    waiting: Vec<Frame>,
    overflow: usize,
}

impl Reader {
    /// For packets of up to `longest` bytes in frames of `frame_size`.
    pub(crate) fn new(longest: usize, frame_size: usize) -> Self {
        let overflow = longest.saturating_sub(frame_size - HEADROOM).div_ceil(frame_size);
        Self { waiting: Vec::new(), overflow }
    }

    /// Reads the next packet that makes sense; those that do not are counted.
    pub(crate) fn next(&mut self, mut from: &File, pool: &Pool, stats: &mut QueueStats) -> Packet {
        while self.stock(pool, stats) {
            let mut header = [0; vnet::LEN];
            stats.system_calls += 1;
            let read = match self.read(&mut from, &mut header) {
                Ok(0) => return Packet::Ended,
                Ok(n) if n > vnet::LEN => n - vnet::LEN,
                Ok(_) => {
                    stats.rx_bad += 1;
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Packet::Nothing,
                Err(_) => return Packet::Ended,
            };
            let Some(mut frame) = self.take(read) else { return Packet::Nothing };
            *frame.meta_mut() = Meta::default();
            if vnet::read(header, frame.meta_mut()) {
                stats.rx_frames += 1;
                stats.rx_bytes += read as u64;
                return Packet::Read(frame);
            }
            stats.rx_bad += 1;
        }
        Packet::Nothing
    }

    fn read(&mut self, from: &mut &File, header: &mut [u8; vnet::LEN]) -> io::Result<usize> {
        if let [only] = &mut self.waiting[..] {
            return from.read_vectored(&mut [IoSliceMut::new(header), IoSliceMut::new(only.data_mut())]);
        }
        let pieces = self.waiting.len() + 1;
        let mut buffers =
            std::iter::once(&mut header[..]).chain(self.waiting.iter_mut().map(Frame::data_mut));
        let mut slices: [IoSliceMut<'_>; PIECES] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        from.read_vectored(&mut slices[..pieces.min(PIECES)])
    }

    /// Sees to it that the next read has frames. `false` if the pool is empty.
    fn stock(&mut self, pool: &Pool, stats: &mut QueueStats) -> bool {
        while self.waiting.len() <= self.overflow {
            let Some(mut frame) = pool.alloc() else {
                stats.rx_no_frame += 1;
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
}
