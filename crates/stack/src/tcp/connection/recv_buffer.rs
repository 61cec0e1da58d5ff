//! Received data that the application has not read.
//!
//! Frames in order, as received: nothing is copied until the application reads, and an application that takes frames never copies. There
//! are two bounds: payload bytes by the advertised window, and buffer memory by a multiple of it, so that tiny segments cannot occupy
//! whole frames. Tiny segments are copied into the frame before them instead.
//!
//! Frames are few and shared by all lanes of a worker, which without a free frame can neither receive nor send. So a lane keeps only a
//! limited number ([`TcpConfig::max_held`](crate::tcp::TcpConfig)); beyond that payload is copied to memory and its frame is freed. This does
//! not happen to applications that keep up with their peers.

use crate::tcp::Seq;
use crate::tcp::connection::ack_policy::Answer;
use crate::tcp::connection::reassembly_queue::ReassemblyQueue;
use crate::tcp::connection::spill::Spill;
use flowlane_sys::frame::{Frame, Pool};
use std::collections::VecDeque;

/// Frames that a spare receive side has room for in its list.
const LEAST_LIST: usize = 64;

/// What a receive side holds, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Holds {
    /// All buffer memory.
    pub(crate) memory: usize,
    /// Frames alone.
    pub(crate) frames: usize,
}

/// Receive side of a connection with data.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    queue: VecDeque<Frame>,
    /// Payload behind that of `queue`, copied because too many frames were held.
    spill: Spill,
    /// Bytes of payload in `queue` and `spill`.
    queued: u32,
    /// Bytes of buffer memory in `queue`.
    held: usize,
    pub(crate) early: ReassemblyQueue,
    /// A block to be reported as received twice (RFC 2883).
    dsack: Option<(Seq, Seq)>,
    /// Where the peer's FIN is, if it has come.
    fin: Option<Seq>,
    /// Acknowledgements that are still to go out, one for each segment.
    owed: VecDeque<Answer>,
    /// What is in it was taken although the lane had no memory left.
    spare: bool,
}

impl Inflow {
    /// Bytes of payload in order.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    /// Bytes of frames that they are in.
    #[inline]
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Bytes of memory of what was copied.
    #[cfg(test)]
    pub(crate) fn copied_memory(&self) -> usize {
        self.spill.memory()
    }

    /// A block that is to be reported as received twice.
    #[inline]
    pub(crate) const fn twice(&self) -> Option<(Seq, Seq)> {
        self.dsack
    }

    /// This block was received twice; `None` if nothing was.
    pub(crate) fn note_twice(&mut self, block: Option<(Seq, Seq)>) {
        self.dsack = block;
    }

    /// The block to be reported as received twice, once.
    pub(crate) fn take_twice(&mut self) -> Option<(Seq, Seq)> {
        self.dsack.take()
    }

    /// Where the peer's FIN is, if it has come.
    #[inline]
    pub(crate) const fn fin(&self) -> Option<Seq> {
        self.fin
    }

    /// The peer's FIN has come, with this number; perhaps before data that is still missing.
    pub(crate) fn note_fin(&mut self, at: Option<Seq>) {
        self.fin = at;
    }

    /// The stream is whole up to the FIN: there is nothing left to tell of.
    pub(crate) fn is_whole(&mut self) {
        (self.fin, self.dsack) = (None, None);
    }

    /// There is nothing of which a SACK option would tell.
    #[inline]
    pub(crate) fn has_no_blocks(&self) -> bool {
        self.dsack.is_none() && self.fin.is_none() && self.early.is_empty()
    }

    /// Acknowledgements that are still to go out, one for each segment.
    pub(crate) fn owed(&self) -> &VecDeque<Answer> {
        &self.owed
    }

    /// One more.
    pub(crate) fn owe(&mut self, answer: Answer) {
        self.owed.push_back(answer);
    }

    /// The first of them has gone out; whether it was the last.
    pub(crate) fn gave_answer(&mut self) -> bool {
        self.owed.pop_front();
        let last = self.owed.is_empty();
        if last {
            // Guard: no `self.owed = VecDeque::new();` fails answers::they_are_bounded
            self.owed = VecDeque::new();
        }
        last
    }

    /// What is in it was taken although the lane had no memory left.
    #[inline]
    pub(crate) const fn is_spare(&self) -> bool {
        self.spare
    }

    #[inline]
    pub(crate) fn set_spare(&mut self, spare: bool) {
        self.spare = spare;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.spill.is_empty()
            && self.early.is_empty()
            && self.dsack.is_none()
            && self.fin.is_none()
            && self.owed.is_empty()
    }

    /// Memory of everything: buffers, lists and the box. The list of `queue` takes eight bytes for each of its frames.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        INFLOW
            + self.held
            + self.early.held
            + self.early.lists
            + self.spill.memory()
            + self.owed.capacity() * size_of::<Answer>()
    }

    /// Nothing waits in it, neither for the reader nor for its turn.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued == 0 && self.early.is_empty()
    }

    /// Bytes of memory that `frame` and its chain, of which `len` bytes are payload, would take if they were pushed now.
    pub(crate) fn growth(&self, frame: &Frame, len: usize, copy: bool) -> usize {
        if copy || !self.spill.is_empty() {
            return self.spill.growth(len);
        }
        let joins = !frame.is_chained() && len * 4 <= frame.capacity();
        match self.queue.back() {
            Some(last) if joins && last.tailroom() >= len => 0,
            _ => frame.chunks().count() * frame.capacity(),
        }
    }

    /// Memory of everything, and of that the frames' alone.
    pub(crate) fn holds(&self) -> Holds {
        Holds { memory: self.memory(), frames: self.held + self.early.held }
    }

    /// Appends payload in order. Small payload goes into the last frame's tailroom; with `copy`, and behind what was
    /// copied, none stays in its frame.
    pub(crate) fn push(&mut self, frame: Frame, copy: bool) {
        self.queued += frame.len() as u32;
        if copy || !self.spill.is_empty() {
            self.spill.push(frame.data());
            return;
        }
        if frame.len() * 4 <= frame.capacity() {
            if let Some(last) = self.queue.back_mut() {
                if last.extend_from_slice(frame.data()) {
                    return;
                }
            }
        }
        self.held += frame.capacity();
        self.queue.push_back(frame);
    }

    /// Copies out what fits.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let Some(frame) = self.queue.front_mut() else { break };
            let n = frame.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&frame.data()[..n]);
            done += n;
            if n == frame.len() {
                self.held -= frame.capacity();
                self.queue.pop_front();
            } else if !frame.trim_front(n) {
                break;
            }
        }
        if self.queue.is_empty() && !self.spill.is_empty() {
            done += self.spill.read(&mut into[done..]);
        }
        self.queued -= done as u32;
        done
    }

    /// Copies without taking.
    pub(crate) fn peek(&self, into: &mut [u8]) -> usize {
        let mut done = 0;
        for frame in &self.queue {
            let n = frame.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&frame.data()[..n]);
            done += n;
            if done == into.len() {
                return done;
            }
        }
        done + self.spill.peek(&mut into[done..])
    }

    /// Takes the first frame, or one of `pool` with the first of what was copied.
    pub(crate) fn take(&mut self, pool: &Pool) -> Option<Frame> {
        let frame = match self.queue.pop_front() {
            Some(frame) => {
                self.held -= frame.capacity();
                frame
            }
            None if self.spill.is_empty() => return None,
            None => {
                let mut frame = pool.alloc()?;
                let room = frame.tailroom();
                let mut bytes = [0; 2048];
                let n = self.spill.read(&mut bytes[..room.min(2048)]);
                // It fits: no more was read than there is room for.
                let _ = frame.extend_from_slice(&bytes[..n]);
                frame
            }
        };
        self.queued -= frame.len() as u32;
        Some(frame)
    }

    /// Forgets what was not read.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
        self.spill = Spill::default();
        (self.queued, self.held) = (0, 0);
    }

    /// Ready for another connection.
    pub(crate) fn reset(&mut self) {
        // Nothing in it, as nearly always: all there is to forget is memory.
        if self.is_idle() && self.queue.capacity() <= LEAST_LIST && self.early.lists == 0 {
            (self.queued, self.held) = (0, 0);
            return;
        }
        let mut queue = core::mem::take(self).queue;
        queue.clear();
        queue.shrink_to(LEAST_LIST);
        self.queue = queue;
    }
}

/// Bytes of a receive side beside what is counted as it grows.
pub(crate) const INFLOW: usize = size_of::<Inflow>() + 192;
