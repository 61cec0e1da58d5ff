//! Faults of a pair link and its card, for tests: each happens to one frame in N, from a seed, and is counted, so that a test can compare
//! the count with the counter of the code that detects the fault.

use flowlane_stack::rng::Rng;
use flowlane_sys::frame::Frame;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quirk {
    /// The frame is put on the queue after the right one; the hash is right (the ixgbe fault).
    WrongQueue,
    /// The frame comes without hash.
    NoHash,
    /// The hash is that of another key, though of the right type.
    ForeignKey,
    /// The frame is lost.
    Drop,
    /// The frame comes twice.
    Duplicate,
    /// The frame is overtaken by those behind it in the same flush.
    Reorder,
    /// One bit of the payload is flipped.
    Corrupt,
    /// The frame comes only with the next flush after this one.
    Delay,
}

impl Quirk {
    /// Every kind with its name for machines.
    pub const NAMES: [(Self, &str); 8] = [
        (Self::WrongQueue, "wrong-queue"),
        (Self::NoHash, "no-hash"),
        (Self::ForeignKey, "foreign-key"),
        (Self::Drop, "drop"),
        (Self::Duplicate, "duplicate"),
        (Self::Reorder, "reorder"),
        (Self::Corrupt, "corrupt"),
        (Self::Delay, "delay"),
    ];
}

const KINDS: [Quirk; 8] = [
    Quirk::WrongQueue,
    Quirk::NoHash,
    Quirk::ForeignKey,
    Quirk::Drop,
    Quirk::Duplicate,
    Quirk::Reorder,
    Quirk::Corrupt,
    Quirk::Delay,
];

/// Which faults happen how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quirks {
    /// One frame in so many; 0 is never. Indexed by [`Quirk`].
    one_in: [u32; KINDS.len()],
    seed: u64,
}

impl Quirks {
    /// No faults; `seed` decides which frames are hit by those added.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { one_in: [0; KINDS.len()], seed }
    }

    /// Lets `quirk` happen to one frame in `one_in`; 0 switches it off.
    #[must_use]
    pub fn with(mut self, quirk: Quirk, one_in: u32) -> Self {
        self.one_in[quirk as usize] = one_in;
        self
    }

    pub(super) fn start(&self, queue: u64) -> Option<Box<State>> {
        let any = self.one_in.iter().any(|n| *n > 0);
        any.then(|| {
            Box::new(State {
                one_in: self.one_in,
                rng: Rng::new(self.seed ^ queue << 32),
                counts: QuirkCounts::default(),
                last: Vec::new(),
                delayed: Vec::new(),
            })
        })
    }
}

/// How often each fault happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuirkCounts([u64; KINDS.len()]);

impl QuirkCounts {
    /// The counts that a queue of a pair reports; `None` for those of another link.
    pub(crate) fn of(counts: &[u64]) -> Option<Self> {
        counts.try_into().ok().map(Self)
    }

    /// As [`Queue::quirks`](crate::link::Queue::quirks) gives them.
    pub(super) fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// How often `quirk` happened.
    #[must_use]
    pub fn get(&self, quirk: Quirk) -> u64 {
        self.0[quirk as usize]
    }

    /// Adds the counts of another queue.
    pub fn add(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a += b;
        }
    }
}

/// The faults of one transmitting queue.
#[derive(Debug)]
pub(super) struct State {
    one_in: [u32; KINDS.len()],
    rng: Rng,
    pub(super) counts: QuirkCounts,
    /// Frames to be put behind all others of this flush.
    last: Vec<(usize, Frame)>,
    /// Frames to be sent with a later flush, and whether it is the next.
    delayed: Vec<(usize, Frame, bool)>,
}

impl State {
    fn hit(&mut self, quirk: Quirk) -> bool {
        let n = self.one_in[quirk as usize];
        let hit = n > 0 && self.rng.below(n) == 0;
        self.counts.0[quirk as usize] += u64::from(hit);
        hit
    }

    /// Stages `frame` for `queue`, or does to it what the dice say.
    pub(super) fn apply(&mut self, mut frame: Frame, queue: usize, staged: &mut [Vec<Frame>]) {
        if self.hit(Quirk::Drop) {
            return;
        }
        if self.hit(Quirk::NoHash) {
            frame.meta_mut().hash_type = 0;
        }
        if frame.meta().hash_type != 0 && self.hit(Quirk::ForeignKey) {
            frame.meta_mut().hash ^= self.rng.next_u32() | 1;
        }
        // Behind Ethernet, IP and UDP headers of either family.
        if frame.len() > 64 && self.hit(Quirk::Corrupt) {
            let at = 62 + self.rng.below(frame.len() as u32 - 62) as usize;
            let bit = self.rng.below(8);
            frame.data_mut()[at] ^= 1 << bit;
        }
        let queue =
            if staged.len() > 1 && self.hit(Quirk::WrongQueue) { (queue + 1) % staged.len() } else { queue };
        if self.hit(Quirk::Duplicate) {
            // A copy needs a frame of its own; where none is free the fault does not happen.
            match copy(&frame) {
                Some(twin) => staged[queue].push(twin),
                None => self.counts.0[Quirk::Duplicate as usize] -= 1,
            }
        }
        if self.hit(Quirk::Reorder) {
            self.last.push((queue, frame));
        } else if self.hit(Quirk::Delay) {
            self.delayed.push((queue, frame, false));
        } else {
            staged[queue].push(frame);
        }
    }

    /// Whether a frame is held back for a later flush.
    pub(super) fn holds(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Adds what was held back.
    pub(super) fn release(&mut self, staged: &mut [Vec<Frame>]) {
        for (queue, frame) in self.last.drain(..) {
            staged[queue].push(frame);
        }
        let mut still = Vec::new();
        for (queue, frame, due) in self.delayed.drain(..) {
            if due {
                staged[queue].push(frame);
            } else {
                still.push((queue, frame, true));
            }
        }
        self.delayed = still;
    }
}

fn copy(frame: &Frame) -> Option<Frame> {
    let mut twin = Frame::like(frame)?;
    if !twin.extend_from_slice(frame.data()) {
        return None;
    }
    for chunk in frame.chunks().skip(1) {
        let mut next = Frame::like(frame)?;
        next.reset(0);
        if !next.extend_from_slice(chunk) {
            return None;
        }
        twin.append(next);
    }
    Some(twin)
}
