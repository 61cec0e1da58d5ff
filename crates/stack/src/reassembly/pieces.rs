//! The pieces of the datagrams: each datagram's fragments in order of their offset.
//!
//! All pieces of a lane stand in one slab of 16 bytes each; a datagram's pieces are a list through it. What is held
//! never overlaps, so a datagram is whole when the bytes held are as many as it has, and a new piece needs to be
//! compared with its two neighbours only. Fragments come in order or, from some senders, last one first: both ends
//! are found at once, and the walk in between is bounded by the pieces a datagram may have.

use flowlane_sys::frame::Frame;

use super::list::NONE;

/// A fragment's payload and where it belongs.
#[derive(Debug)]
struct Piece {
    frame: Option<Frame>,
    offset: u16,
    len: u16,
    /// The next piece of the datagram, or the next free place.
    next: u32,
}

/// A datagram's pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pieces {
    head: u32,
    tail: u32,
    /// How many.
    pub(super) count: u16,
    /// Their bytes together.
    pub(super) bytes: u32,
}

impl Pieces {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE, count: 0, bytes: 0 };
}

/// What a new piece is to those held.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It fits behind this piece; `NONE` for the front.
    After(u32),
    /// The very same bytes are held already.
    Duplicate,
    /// Some of its bytes are held already, and it is no duplicate.
    Overlap,
}

/// The slab of all pieces of a lane.
#[derive(Debug)]
pub(super) struct PieceSlab {
    pieces: Vec<Piece>,
    free: u32,
    /// Used while a chain is built.
    scratch: Vec<Frame>,
}

impl PieceSlab {
    pub(super) fn new() -> Self {
        Self { pieces: Vec::new(), free: NONE, scratch: Vec::new() }
    }

    /// Where `frame`, `len` bytes of payload at `offset`, belongs.
    #[inline]
    pub(super) fn place(&self, of: &Pieces, offset: u16, len: u16, frame: &Frame) -> Place {
        let (start, end) = (u32::from(offset), u32::from(offset) + u32::from(len));
        if of.head == NONE {
            return Place::After(NONE);
        }
        let tail = &self.pieces[of.tail as usize];
        if start >= u32::from(tail.offset) + u32::from(tail.len) {
            return Place::After(of.tail);
        }
        let mut before = NONE;
        let mut at = of.head;
        // The tail ends beyond `start`, so the walk stops at it at the latest.
        while at != NONE {
            let piece = &self.pieces[at as usize];
            let (its_start, its_end) =
                (u32::from(piece.offset), u32::from(piece.offset) + u32::from(piece.len));
            if its_start >= end {
                return Place::After(before);
            }
            if its_end > start {
                let same = piece.offset == offset && piece.len == len && piece.holds(frame);
                return if same { Place::Duplicate } else { Place::Overlap };
            }
            before = at;
            at = piece.next;
        }
        Place::After(before)
    }

    /// Where the last piece held ends.
    #[inline]
    pub(super) fn end(&self, of: &Pieces) -> u32 {
        match self.pieces.get(of.tail as usize) {
            Some(tail) => u32::from(tail.offset) + u32::from(tail.len),
            None => 0,
        }
    }

    /// Puts a piece where [`place`](PieceSlab::place) said.
    #[inline]
    pub(super) fn insert(&mut self, of: &mut Pieces, after: u32, offset: u16, len: u16, frame: Frame) {
        let next = if after == NONE { of.head } else { self.pieces[after as usize].next };
        let piece = Piece { frame: Some(frame), offset, len, next };
        let at = if self.free == NONE {
            self.pieces.push(piece);
            self.pieces.len() as u32 - 1
        } else {
            let at = self.free;
            let place = &mut self.pieces[at as usize];
            self.free = place.next;
            *place = piece;
            at
        };
        if after == NONE {
            of.head = at;
        } else {
            self.pieces[after as usize].next = at;
        }
        if next == NONE {
            of.tail = at;
        }
        of.count += 1;
        of.bytes += u32::from(len);
    }

    /// Takes all pieces out and frees them but the first of the datagram, if it is there.
    pub(super) fn clear(&mut self, of: &mut Pieces) -> Option<Frame> {
        let mut first = None;
        let mut at = std::mem::replace(of, Pieces::EMPTY).head;
        while at != NONE {
            let (frame, offset, next) = self.take(at);
            if offset == 0 {
                first = frame;
            }
            at = next;
        }
        first
    }

    /// Takes all pieces out, as one chain in order, with `last` put behind `after`.
    #[inline]
    pub(super) fn finish(&mut self, of: &mut Pieces, after: u32, last: Frame) -> Option<Frame> {
        let mut at = std::mem::replace(of, Pieces::EMPTY).head;
        let mut last = Some(last);
        if after == NONE {
            self.scratch.extend(last.take());
        }
        while at != NONE {
            let this = at;
            let (frame, _, next) = self.take(at);
            self.scratch.extend(frame);
            if this == after {
                self.scratch.extend(last.take());
            }
            at = next;
        }
        // From the back, so that each link costs the same however long the chain.
        let mut chain = self.scratch.pop()?;
        while let Some(mut frame) = self.scratch.pop() {
            frame.append(chain);
            chain = frame;
        }
        Some(chain)
    }

    #[inline]
    fn take(&mut self, at: u32) -> (Option<Frame>, u16, u32) {
        let piece = &mut self.pieces[at as usize];
        let taken = (piece.frame.take(), piece.offset, piece.next);
        piece.next = self.free;
        self.free = at;
        taken
    }

    /// Bytes of the slab itself.
    pub(super) fn footprint(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }
}

impl Piece {
    /// Whether the bytes are those of `other`, of the same length.
    fn holds(&self, other: &Frame) -> bool {
        let Some(frame) = &self.frame else { return false };
        if frame.is_chained() || other.is_chained() {
            return frame.chunks().flatten().eq(other.chunks().flatten());
        }
        frame.data() == other.data()
    }
}

const _: () = assert!(size_of::<Piece>() == 16);
