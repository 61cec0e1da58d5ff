//! Packets that are longer than one frame, and those that are longer than a slot of the ring.
//!
//! A packet longer than a frame becomes a chain. One longer than a slot is cut there by the kernel, which keeps it whole in the
//! socket's receive buffer (`PACKET_COPY_THRESH`) and marks the slot (`TP_STATUS_COPY`). The two are in the same order, so each
//! marked slot is one `readv`. A slot that was cut and is not marked found the receive buffer full: that packet is lost.

use super::ring::Received;
use crate::frame::{Frame, Pool};
use crate::vnet::{self, PIECES};
use std::io::{Error, ErrorKind, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Frames of a chain at most. Of the smallest they hold nearly 96 KB.
const FRAMES: usize = PIECES - 1;

/// Why a slot gives no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missed {
    /// No frames are free now. The packet waits.
    NoFrame,
    /// The receive buffer for long packets was full. The packet is lost.
    BufferFull,
    /// Longer than a chain, empty, or not what the slot said.
    Bad,
}

/// The packet of a slot of `socket`'s ring, and its virtio-net header. The slot may be given back afterwards, unless no frames are free.
#[inline]
pub(super) fn take(
    packet: &Received<'_>,
    socket: BorrowedFd<'_>,
    pool: &Pool,
) -> Result<(Frame, [u8; vnet::LEN]), Missed> {
    if packet.whole > packet.bytes.len() {
        return read(packet, socket, pool);
    }
    if packet.bytes.is_empty() {
        return Err(Missed::Bad);
    }
    let mut frame = pool.alloc().ok_or(Missed::NoFrame)?;
    if frame.extend_from_slice(packet.bytes) {
        return Ok((frame, packet.header));
    }
    let mut frames = Frames::new(pool, packet.bytes.len())?;
    let mut rest = packet.bytes;
    for frame in frames.each() {
        let (here, there) = rest.split_at(frame.len());
        frame.data_mut().copy_from_slice(here);
        rest = there;
    }
    frames.chain().map(|frame| (frame, packet.header)).ok_or(Missed::Bad)
}

/// Reads the packet that a slot was too short for.
#[inline(never)]
fn read(
    packet: &Received<'_>,
    socket: BorrowedFd<'_>,
    pool: &Pool,
) -> Result<(Frame, [u8; vnet::LEN]), Missed> {
    if packet.status & libc::TP_STATUS_COPY == 0 {
        return Err(Missed::BufferFull);
    }
    let mut header = [0; vnet::LEN];
    let mut frames = match Frames::new(pool, packet.whole) {
        Ok(frames) => frames,
        Err(Missed::Bad) => {
            // It must go, or the next marked slot would get it.
            let _ = scatter(socket, &mut header, std::iter::empty());
            return Err(Missed::Bad);
        }
        Err(other) => return Err(other),
    };
    match scatter(socket, &mut header, frames.each().map(Frame::data_mut)) {
        Ok(n) if n == vnet::LEN + packet.whole => frames.chain().map(|f| (f, header)).ok_or(Missed::Bad),
        _ => Err(Missed::Bad),
    }
}

/// One `readv` into the header and the pieces.
fn scatter<'a>(
    socket: BorrowedFd<'_>,
    header: &'a mut [u8; vnet::LEN],
    pieces: impl Iterator<Item = &'a mut [u8]>,
) -> std::io::Result<usize> {
    let mut count = 0;
    let mut all = std::iter::once(&mut header[..]).chain(pieces).inspect(|_| count += 1);
    let mut slices: [IoSliceMut<'_>; PIECES] =
        std::array::from_fn(|_| IoSliceMut::new(all.next().unwrap_or_default()));
    drop(all);
    // An error that the interface left behind (it went down) is told once, in place of the packet.
    for _ in 0..4 {
        // SAFETY: an `IoSliceMut` is an `iovec`, and each is writable for its length; `count` is at most their number.
        let n = unsafe { libc::readv(socket.as_raw_fd(), slices.as_mut_ptr().cast(), count) };
        if let Ok(n) = usize::try_from(n) {
            return Ok(n);
        }
        let error = Error::last_os_error();
        if error.kind() == ErrorKind::WouldBlock {
            return Err(error);
        }
    }
    Err(ErrorKind::Other.into())
}

/// The frames of a chain to be, each grown to what it is to hold: the first with headroom, the others full.
pub(super) struct Frames {
    frames: [Option<Frame>; FRAMES],
    count: usize,
}

impl Frames {
    /// Frames for a packet of `len` bytes.
    pub(super) fn new(pool: &Pool, len: usize) -> Result<Self, Missed> {
        let mut this = Self { frames: [const { None }; FRAMES], count: 0 };
        let mut left = len;
        while left > 0 {
            let place = this.frames.get_mut(this.count).ok_or(Missed::Bad)?;
            let mut frame = pool.alloc().ok_or(Missed::NoFrame)?;
            if this.count > 0 {
                frame.reset(0);
            }
            let here = left.min(frame.tailroom());
            if here == 0 || frame.push_back(here).is_none() {
                return Err(Missed::Bad);
            }
            left -= here;
            *place = Some(frame);
            this.count += 1;
        }
        Ok(this)
    }

    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Frame> {
        self.frames[..self.count].iter_mut().flatten()
    }

    /// All of them as one packet; `None` if there are none.
    pub(super) fn chain(mut self) -> Option<Frame> {
        let mut chain: Option<Frame> = None;
        // From the end: putting a chain behind a frame that has none costs nothing.
        for place in self.frames[..self.count].iter_mut().rev() {
            if let Some(mut frame) = place.take() {
                if let Some(tail) = chain.take() {
                    frame.append(tail);
                }
                chain = Some(frame);
            }
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{FrameMemory, HEADROOM, MemoryConfig};

    fn memory(frames: usize) -> FrameMemory {
        let config = MemoryConfig {
            frames_per_home: frames,
            lock: false,
            huge_pages: false,
            ..MemoryConfig::default()
        };
        FrameMemory::new(&config).unwrap()
    }

    fn nowhere() -> std::fs::File {
        std::fs::File::open("/dev/null").unwrap()
    }

    fn received(bytes: &[u8]) -> Received<'_> {
        Received { status: 0, whole: bytes.len(), vlan: (0, 0), header: [7; vnet::LEN], bytes }
    }

    #[test]
    fn a_packet_longer_than_a_frame_becomes_a_chain() {
        use std::os::fd::AsFd;
        let memory = memory(8);
        let pool = memory.attach(0).unwrap();
        let null = nowhere();
        let one = memory.frame_size() - HEADROOM;
        for len in [1, one, one + 1, one + memory.frame_size(), one + 2 * memory.frame_size() + 1] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let (frame, header) = take(&received(&bytes), null.as_fd(), &pool).unwrap();
            assert_eq!(header, [7; vnet::LEN]);
            assert_eq!(frame.headroom(), HEADROOM);
            assert_eq!(frame.chunks().collect::<Vec<_>>().concat(), bytes, "{len}");
            let used = if len <= one { 1 } else { 1 + (len - one).div_ceil(memory.frame_size()) };
            assert_eq!(frame.chunks().count(), used);
        }
        assert_eq!(pool.free(), 8);
        let bytes = vec![0; 20_000];
        assert_eq!(take(&received(&bytes), null.as_fd(), &pool).unwrap_err(), Missed::NoFrame);
        assert_eq!(take(&received(&[]), null.as_fd(), &pool).unwrap_err(), Missed::Bad);
        let lost = Received { whole: 2000, ..received(&bytes[..1000]) };
        assert_eq!(take(&lost, null.as_fd(), &pool).unwrap_err(), Missed::BufferFull);
        assert_eq!(pool.free(), 8, "what was not used is free again");
    }
}
