//! Copies of frames on their way from a worker to the writer: chunks of fixed size that go round.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, Segmentation};

/// Bytes of frames in a chunk.
const BYTES: usize = 64 << 10;
/// Frames in a chunk.
const RECORDS: usize = 512;
/// Chunks of a worker: 5 MB with the records.
const CHUNKS: usize = 64;

/// Largest part of a frame that is kept.
pub(crate) const LARGEST: usize = BYTES;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It came, and its lane took it.
    Received,
    /// It was given to a link.
    Sent,
    /// It came and was dropped: by whom, and why.
    Dropped(&'static str, &'static str),
}

/// One frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Nanoseconds since 1970.
    pub(crate) time: u64,
    pub(crate) kind: Kind,
    /// Number of the interface in the file.
    pub(crate) interface: u32,
    pub(crate) host: u16,
    pub(crate) bucket: u16,
    /// Receive queue; for what is sent that of the port.
    pub(crate) queue: Option<u16>,
    pub(crate) hash: u32,
    pub(crate) hash_type: u8,
    /// Payload bytes of each packet that a link cuts it into, or merged into it; 0 for one packet.
    pub(crate) segment: u16,
    /// Bytes of the frame, and those of them that are here.
    pub(crate) length: u32,
    pub(crate) kept: u32,
}

/// Frames, one behind the other.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: Vec<u8>,
    /// When its first frame was put in.
    pub(crate) since: Time,
}

/// Bytes of the Ethernet header, of zeros but for its type, in front of a packet that has none.
pub(crate) const EMPTY_HEADER: usize = 14;

impl Chunk {
    fn new() -> Self {
        Self { records: Vec::with_capacity(RECORDS), bytes: Vec::with_capacity(BYTES), since: Time::ZERO }
    }

    /// Whether another frame of so many bytes fits.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.records.len() < RECORDS && self.bytes.len() + bytes <= BYTES
    }

    /// Appends up to `snap` bytes of a frame, its tag put back where it belongs. How many bytes the frame has, and how many were kept.
    pub(crate) fn copy(&mut self, frame: &Frame, snap: usize, ethernet: bool) -> (u32, u32) {
        let begin = self.bytes.len();
        let tag = frame.meta().vlan.filter(|_| ethernet);
        let mut all = 0;
        if !ethernet {
            // A file has one link type, since libpcap reads no other: a packet without a link's header gets an empty one.
            let is_v6 = frame.data().first().is_some_and(|first| first >> 4 == 6);
            self.bytes.extend([0; 12]);
            self.bytes.extend(if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
            all += EMPTY_HEADER;
        }
        for chunk in frame.chunks() {
            all += chunk.len();
            let room = snap.saturating_sub(self.bytes.len() - begin);
            self.bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        if let (Some(tag), true) = (tag, self.bytes.len() - begin >= 12) {
            all += 4;
            let at = begin + 12;
            let [high, low] = tag.to_be_bytes();
            // What is behind it makes room; `snap` stays the bound.
            let behind = self.bytes.len().min(begin + snap.saturating_sub(4));
            self.bytes.truncate(behind.max(at));
            self.bytes.splice(at..at, [0x81, 0, high, low]);
            self.bytes.truncate(begin + snap.max(12));
        }
        (all as u32, (self.bytes.len() - begin) as u32)
    }

    /// As it was before the last frame was copied.
    pub(crate) fn take_back(&mut self, kept: u32) {
        self.bytes.truncate(self.bytes.len() - kept as usize);
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
    }
}

/// Payload bytes of the packets that a frame stands for.
pub(crate) fn segment_of(frame: &Frame) -> u16 {
    let meta = frame.meta();
    if meta.segmentation == Segmentation::None { 0 } else { meta.segment_size }
}

/// The chunks of one worker.
#[derive(Debug)]
pub(crate) struct Ring {
    full: ArrayQueue<Chunk>,
    empty: ArrayQueue<Chunk>,
    /// Frames for which there was no room.
    lost: AtomicU64,
}

impl Ring {
    pub(crate) fn new() -> Self {
        let empty = ArrayQueue::new(CHUNKS);
        for _ in 0..CHUNKS {
            let _ = empty.push(Chunk::new());
        }
        Self { full: ArrayQueue::new(CHUNKS), empty, lost: AtomicU64::new(0) }
    }

    /// Worker: an empty chunk, if there is one.
    pub(crate) fn fresh(&self) -> Option<Chunk> {
        self.empty.pop()
    }

    /// Worker: a chunk for the writer. There are no more chunks than find room.
    pub(crate) fn put(&self, chunk: Chunk) {
        let _ = self.full.push(chunk);
    }

    /// Worker: a frame found no room.
    pub(crate) fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Writer: the next chunk.
    pub(crate) fn take(&self) -> Option<Chunk> {
        self.full.pop()
    }

    /// Writer: a chunk that has been written.
    pub(crate) fn give_back(&self, mut chunk: Chunk) {
        chunk.clear();
        let _ = self.empty.push(chunk);
    }

    /// Frames that found no room so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
