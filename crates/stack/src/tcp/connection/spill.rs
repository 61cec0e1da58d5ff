//! Received bytes that were copied out of their frames.
//!
//! A queue of bytes in blocks. Memory is allocated and freed block by block, so it follows the content: a reader that takes half of it
//! frees half of it.

use std::collections::VecDeque;

/// Smallest block.
const MIN: usize = 512;
/// Largest block.
const MAX: usize = 64 << 10;

/// A queue of bytes that knows what memory it holds.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    blocks: VecDeque<Vec<u8>>,
    /// Bytes at the front of the first block that are gone.
    gone: usize,
    len: usize,
    memory: usize,
}

impl Spill {
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory held in it.
    pub(crate) const fn memory(&self) -> usize {
        self.memory
    }

    fn room(&self) -> usize {
        self.blocks.back().map_or(0, |last| last.capacity() - last.len())
    }

    /// Size of the next block, for `rest` bytes: as large as all there is, so that memory is at most twice what is in the queue.
    fn next_block(memory: usize, rest: usize) -> usize {
        memory.max(rest).clamp(MIN, MAX)
    }

    /// Bytes of memory that `n` more bytes would take.
    pub(crate) fn growth(&self, n: usize) -> usize {
        let mut rest = n.saturating_sub(self.room());
        let mut more = 0;
        while rest > 0 {
            let block = Self::next_block(self.memory + more, rest);
            more += block;
            rest = rest.saturating_sub(block);
        }
        more
    }

    /// Appends bytes. Memory grows as [`Spill::growth`] says.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            if self.room() == 0 {
                let block = Vec::with_capacity(Self::next_block(self.memory, bytes.len()));
                self.memory += block.capacity();
                self.blocks.push_back(block);
            }
            let n = self.room().min(bytes.len());
            let Some(last) = self.blocks.back_mut() else { return };
            last.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
        }
    }

    /// Copies out what fits; how much. A block goes with its last byte.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(first) = self.blocks.front().filter(|_| done < into.len()) {
            let from = &first[self.gone..];
            let n = from.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&from[..n]);
            done += n;
            self.gone += n;
            if self.gone == first.len() {
                self.memory -= first.capacity();
                self.blocks.pop_front();
                self.gone = 0;
            }
        }
        self.len -= done;
        if self.len == 0 {
            // Its list of blocks is memory, too.
            *self = Self::default();
        }
        done
    }

    /// Copies without taking; how much.
    pub(crate) fn peek(&self, into: &mut [u8]) -> usize {
        let (mut done, mut gone) = (0, self.gone);
        for block in &self.blocks {
            let from = &block[core::mem::take(&mut gone)..];
            let n = from.len().min(into.len() - done);
            into[done..done + n].copy_from_slice(&from[..n]);
            done += n;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn behaves_as_a_queue_of_bytes() {
        let mut rng = Rng::new(5);
        let (mut spill, mut model) = (Spill::default(), VecDeque::new());
        for round in 0..5000u32 {
            if rng.below(2) == 0 {
                let most = if round % 100 < 50 { 3000 } else { 200_000 };
                let bytes: Vec<u8> = (0..rng.below(most)).map(|n| (n ^ round) as u8).collect();
                let will = spill.memory() + spill.growth(bytes.len());
                spill.push(&bytes);
                assert_eq!(spill.memory(), will);
                model.extend(&bytes);
            } else {
                let mut into = vec![0; rng.below(if round % 100 < 50 { 4000 } else { 300_000 }) as usize];
                let n = spill.peek(&mut into);
                let want: Vec<u8> = model.iter().take(into.len()).copied().collect();
                assert_eq!((n, &into[..n]), (want.len(), &want[..]));
                into.fill(0);
                assert_eq!((spill.read(&mut into), &into[..n]), (n, &want[..]));
                model.drain(..n);
            }
            let held: usize = spill.blocks.iter().map(Vec::capacity).sum();
            assert_eq!((spill.len, spill.memory(), spill.is_empty()), (model.len(), held, model.is_empty()));
            assert!(held <= 2 * model.len() + MIN + 2 * MAX, "{held} for {}", model.len());
        }
    }
}
