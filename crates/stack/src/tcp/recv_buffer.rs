//! What has arrived and the application has not read.
//!
//! Frames in order, as they came: nothing is copied until the application asks, and an application that takes frames
//! never copies. Two bounds hold: payload bytes by the advertised window, and buffer memory by a multiple of it, so
//! that tiny segments cannot tie up whole frames. Tiny segments are moved into the frame before them instead.

use super::Seq;
use super::reassembly_queue::ReassemblyQueue;
use flowlane_sys::frame::Frame;
use std::collections::VecDeque;

/// Receive side of a connection with data.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    pub(crate) queue: VecDeque<Frame>,
    /// Bytes of payload in `queue`.
    pub(crate) queued: u32,
    /// Bytes of buffer memory in `queue`.
    pub(crate) held: usize,
    pub(crate) early: ReassemblyQueue,
    /// A block to be reported as received twice (RFC 2883).
    pub(crate) dsack: Option<(Seq, Seq)>,
    /// Where the peer's FIN is, if it has come.
    pub(crate) fin: Option<Seq>,
}

impl Inflow {
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.early.is_empty() && self.dsack.is_none() && self.fin.is_none()
    }

    /// Buffer memory of everything.
    pub(crate) fn memory(&self) -> usize {
        self.held + self.early.held
    }

    /// Appends payload in order. Small payload goes into the last frame's tailroom.
    pub(crate) fn push(&mut self, frame: Frame) {
        self.queued += frame.len() as u32;
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
                break;
            }
        }
        done
    }

    /// Takes the first frame.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        let frame = self.queue.pop_front()?;
        self.queued -= frame.len() as u32;
        self.held -= frame.capacity();
        Some(frame)
    }

    /// Ready for another connection.
    pub(crate) fn reset(&mut self) {
        let mut queue = core::mem::take(self).queue;
        queue.clear();
        queue.shrink_to(64);
        self.queue = queue;
    }
}
