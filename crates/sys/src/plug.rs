//! Packets between two processes of this machine: a pair of sockets of packets (`AF_UNIX`, `SOCK_SEQPACKET`) for each line.
//!
//! Each packet is one message: a virtio-net header as TAP has it, and the packet. So checksums and segmentation may be left undone across it.
//! A line holds what its socket's buffer holds; a writer keeps what finds no room. Any thread may write to any line of a plug, one thread reads
//! from each. The other process may be hostile: nothing that it writes is believed before it has been looked at.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::frame::{Frame, HEADROOM, Pool, Segmentation};
use crate::queue::QueueStats;
use crate::tun::reader::{Packet, Reader};
use crate::vnet;

/// Longest packet, bytes: IP's longest, an Ethernet header and a tag.
const LONGEST: usize = 65_536 + 18;
/// Least bytes of a segment's payload. Less would be no packet but a flood.
const SEGMENT: u16 = 8;

/// The lines of a plug, as one process has them.
#[derive(Debug, Clone)]
pub struct Lines(Arc<[File]>);

impl Lines {
    /// Of descriptors that do not block.
    #[must_use]
    pub fn new(descriptors: Vec<OwnedFd>) -> Self {
        Self(descriptors.into_iter().map(File::from).collect())
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What to wait on.
    ///
    /// # Panics
    /// If there is no such line.
    #[must_use]
    pub fn fd(&self, line: usize) -> BorrowedFd<'_> {
        self.0[line].as_fd()
    }

    /// Writes a packet. Returns its bytes.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now. All others are for good: the other process is gone, or the packet makes no sense.
    ///
    /// # Panics
    /// If there is no such line.
    pub fn send(&self, line: usize, frame: &Frame) -> io::Result<usize> {
        vnet::send_to_socket(self.fd(line), frame)
    }

    /// Reads from a line.
    ///
    /// # Panics
    /// If there is no such line.
    #[must_use]
    pub fn receiver(&self, line: usize, frame_size: usize) -> Receiver {
        assert!(line < self.count() && frame_size > HEADROOM);
        Receiver { lines: self.clone(), line, reader: Reader::new(LONGEST, frame_size), ended: false }
    }
}

/// The reader of one line.
#[derive(Debug)]
pub struct Receiver {
    lines: Lines,
    line: usize,
    reader: Reader,
    ended: bool,
}

impl Receiver {
    /// The next packet; `None`: there is none now. What makes no sense is counted.
    pub fn next(&mut self, pool: &Pool, stats: &mut QueueStats) -> Option<Frame> {
        loop {
            let frame = match self.reader.next(&self.lines.0[self.line], pool, stats) {
                Packet::Read(frame) => frame,
                Packet::Nothing => return None,
                Packet::Ended => {
                    self.ended = true;
                    return None;
                }
            };
            if makes_sense(&frame) {
                return Some(frame);
            }
            stats.rx_frames -= 1;
            stats.rx_bytes -= frame.chain_len() as u64;
            stats.rx_bad += 1;
        }
    }

    /// Number of the line.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Whether the other process has closed it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Whether what was left undone could be done.
fn makes_sense(frame: &Frame) -> bool {
    let cut = frame.meta().segmentation != Segmentation::None;
    // Guard: `vnet::write(frame).is_some()` as `true` fails plug::tests::what_makes_no_sense
    // Guard: `(!cut || frame.meta().segment_size >= SEGMENT)` as `true` fails
    // plug::tests::what_makes_no_sense
    frame.chain_len() <= LONGEST
        && vnet::write(frame).is_some()
        && (!cut || frame.meta().segment_size >= SEGMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Checksum, FrameMemory, MemoryConfig};
    use std::io::Write;
    use std::os::unix::net::UnixDatagram;

    fn pool() -> Pool {
        let config =
            MemoryConfig { frames_per_home: 128, lock: false, huge_pages: false, ..MemoryConfig::default() };
        FrameMemory::new(&config).unwrap().attach(0).unwrap()
    }

    fn pair() -> (Lines, Lines) {
        let (a, b) = UnixDatagram::pair().unwrap();
        for end in [&a, &b] {
            end.set_nonblocking(true).unwrap();
        }
        (Lines::new(vec![a.into()]), Lines::new(vec![b.into()]))
    }

    #[test]
    fn packets_arrive_whole_and_a_full_line_keeps_the_rest_with_the_writer() {
        let pool = pool();
        let (near, far) = pair();
        let mut receiver = far.receiver(0, 2048);
        let mut stats = QueueStats::default();
        // In one piece, and in more than a frame holds.
        for len in [60usize, 1514, 9000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let mut frame = pool.alloc().unwrap();
            let mut rest = bytes.chunks(1500);
            assert!(frame.extend_from_slice(rest.next().unwrap()));
            for piece in rest {
                let mut more = pool.alloc().unwrap();
                assert!(more.extend_from_slice(piece));
                frame.append(more);
            }
            assert_eq!(near.send(0, &frame).unwrap(), len);
            let got = receiver.next(&pool, &mut stats).unwrap();
            assert_eq!(got.chunks().flatten().copied().collect::<Vec<u8>>(), bytes);
        }
        assert!(receiver.next(&pool, &mut stats).is_none() && !receiver.has_ended());
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&[7; 100]));
        let sent = (0..1_000_000).take_while(|_| near.send(0, &frame).is_ok()).count();
        assert!(sent > 1 && sent < 1_000_000, "{sent}");
        assert_eq!(near.send(0, &frame).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let read = std::iter::from_fn(|| receiver.next(&pool, &mut stats)).count();
        assert_eq!(read, sent);
    }

    /// Segments of no bytes, offloads that fit no headers, packets of no bytes.
    #[test]
    fn what_makes_no_sense_is_counted_and_goes_no_further() {
        let pool = pool();
        let (near, far) = pair();
        let mut receiver = far.receiver(0, 2048);
        let mut stats = QueueStats::default();
        let mut packet = [0u8; 80];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        (packet[23], packet[46]) = (6, 0x50);
        let mut file = &near.0[0];
        let mut wrote = 0;
        // Flags and kind of offload, then numbers in the processor's byte order: length of the headers, of a segment, where the sum begins and stands.
        let offloads = [34, 16];
        for ([flags, kind], [headers, segment], [start, at], packet, good) in [
            ([0, 0], [0, 0], [0, 0], &packet[..], true),
            ([1, 1], [54, 100], offloads, &packet[..], true),
            ([1, 1], [54, 0], offloads, &packet[..], false),
            ([1, 1], [54, 7], offloads, &packet[..], false),
            ([1, 5], [54, 100], offloads, &packet[..], false),
            ([1, 4], [54, 100], offloads, &packet[..20], false),
            ([1, 0], [0, 0], offloads, &packet[..20], false),
            ([0, 99], [0, 0], [0, 0], &packet[..], false),
            ([0, 0], [0, 0], [0, 0], &[][..], false),
        ] {
            let numbers = [headers, segment, start, at].map(u16::to_ne_bytes);
            let header = [&[flags, kind], numbers.as_flattened()].concat();
            file.write_all(&[&header, packet].concat()).unwrap();
            wrote += u64::from(!good);
            let got = receiver.next(&pool, &mut stats);
            assert_eq!((got.is_some(), stats.rx_bad), (good, wrote), "{header:?}");
            if let Some(frame) = got {
                assert_eq!(frame.meta().checksum == Checksum::Partial, header[0] == 1);
            }
        }
        assert_eq!(stats.rx_frames, 2);
    }
}
