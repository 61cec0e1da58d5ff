//! The bytes an application has written and the peer has not acknowledged.
//!
//! ```text
//!      SND.UNA          SND.NXT           end
//!         │  in flight     │   not sent    │
//!      ┌──┴───────────┬────┴─────────┬─────┴───┐
//!      │    block     │    block     │  block  │   blocks that grow as there is more, and go back to the lane one by one
//!      └──────────────┴──────────────┴─────────┘
//! ```
//!
//! Bytes are copied in once, or given away by the application and not copied at all. A segment for segmentation offload refers to them in
//! place; any other has a copy in its frame, since most links need a packet in one piece. The lane reuses the block returned last, which
//! is in the caches, and nothing is copied or cleared when a buffer grows.

use flowlane_sys::block::{Block, OwnedBytes};
use std::collections::VecDeque;

/// Smallest block: a request, or a short answer. Very many connections may have one on its way at once.
const MIN: usize = 512;
/// Largest block.
const MAX: usize = 64 << 10;
/// Sizes of blocks, powers of two.
const SIZES: usize = (MAX / MIN).ilog2() as usize + 1;
/// Bytes of blocks that a lane keeps for later.
const SPARE: usize = 4 << 20;

/// A lane's blocks that are in no send buffer.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Empty ones by size, the last given back at the end.
    spare: [Vec<Block>; SIZES],
    spare_bytes: usize,
    /// Acknowledged, but there are still frames that refer to them: sent again needlessly, waiting for a link, or in the
    /// hands of a receiver in this process.
    retired: VecDeque<Block>,
}

impl Blocks {
    fn take(&mut self, size: usize) -> Block {
        match self.spare[class(size)].pop() {
            Some(block) => {
                self.spare_bytes -= size;
                block
            }
            None => Block::new(size as u32),
        }
    }

    /// Takes a block back. Returns the bytes of buffer memory that are free by that: none yet if a frame refers to it, but
    /// then perhaps those of another, to which none does any more.
    pub(crate) fn give(&mut self, block: Block) -> usize {
        let freed = self.look_again();
        freed + self.keep(block)
    }

    fn keep(&mut self, mut block: Block) -> usize {
        let size = block.capacity();
        if block.is_owned() {
            // Whoever else needs it keeps it.
            return size;
        }
        if !block.clear() {
            self.retired.push_back(block);
            return 0;
        }
        if self.spare_bytes + size <= SPARE {
            self.spare_bytes += size;
            self.spare[class(size)].push(block);
        }
        size
    }

    /// Looks whether the blocks retired longest are free now; the bytes of those that are.
    #[inline]
    pub(crate) fn look_again(&mut self) -> usize {
        if self.retired.is_empty() { 0 } else { self.look_at_retired() }
    }

    fn look_at_retired(&mut self) -> usize {
        let mut freed = 0;
        while let Some(block) = self.retired.pop_front() {
            let more = self.keep(block);
            freed += more;
            if more == 0 {
                // It went to the end: another's turn next time, so that one that is held for long is in nobody's way.
                break;
            }
        }
        freed
    }
}

const fn class(size: usize) -> usize {
    (size / MIN).ilog2() as usize
}

/// A queue of bytes in blocks.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    blocks: VecDeque<Block>,
    /// Bytes at the front of the first block that are gone.
    gone: usize,
    len: usize,
    capacity: usize,
}

impl SendBuffer {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory held in it.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that can be added without more memory.
    pub(crate) fn room(&self) -> usize {
        self.blocks.back().map_or(0, Block::room)
    }

    /// Memory it would hold with `more` bytes in it.
    pub(crate) fn capacity_with(&self, more: usize) -> usize {
        let (size, count) = self.blocks_for(more);
        self.capacity + size * count
    }

    /// How many of `wanted` bytes can be added if memory may grow by `free`, where all of them cannot.
    #[cold]
    pub(crate) fn fits(&self, wanted: usize, free: usize) -> usize {
        let few = [wanted.min(free), wanted.min(free / 2)];
        let n = few.into_iter().find(|n| self.capacity_with(*n) - self.capacity <= free).unwrap_or(0);
        // What is taken for them may have room for more.
        let (size, count) = self.blocks_for(n);
        wanted.min(self.room() + size * count)
    }

    /// Blocks needed for `more` bytes: how large and how many. Memory doubles as it fills, up to the largest block; a buffer
    /// in long use keeps to blocks of at least a quarter of what it holds.
    fn blocks_for(&self, more: usize) -> (usize, usize) {
        let rest = more.saturating_sub(self.room());
        if rest == 0 {
            return (0, 0);
        }
        if self.capacity == 0 && rest <= MIN {
            return (MIN, 1);
        }
        let target = (self.len + more).next_power_of_two();
        let size = rest.max(target.saturating_sub(self.capacity)).max(target / 4);
        let size = size.max(MIN).next_power_of_two().min(MAX);
        (size, rest.div_ceil(size))
    }

    /// Appends bytes. Memory grows as [`SendBuffer::capacity_with`] says.
    pub(crate) fn push(&mut self, mut bytes: &[u8], blocks: &mut Blocks) {
        let (size, count) = self.blocks_for(bytes.len());
        self.len += bytes.len();
        if let Some(last) = self.blocks.back_mut() {
            bytes = &bytes[last.push(bytes)..];
        }
        for _ in 0..count {
            let mut block = blocks.take(size);
            bytes = &bytes[block.push(bytes)..];
            self.blocks.push_back(block);
            self.capacity += size;
        }
        debug_assert!(bytes.is_empty(), "blocks too small");
    }

    /// Appends an application's bytes, less than 4 GiB, without copying them; they count as memory until they are acknowledged.
    pub(crate) fn push_owned(&mut self, bytes: OwnedBytes) {
        self.len += bytes.len();
        self.capacity += bytes.len();
        self.blocks.push_back(Block::owned(bytes));
    }

    /// Where byte `offset` lies, which is one of the buffer: number of the block and place in it.
    #[inline]
    fn find(&self, offset: usize) -> (usize, usize) {
        if self.blocks.len() == 1 { (0, offset + self.gone) } else { self.find_among_many(offset) }
    }

    fn find_among_many(&self, offset: usize) -> (usize, usize) {
        // New data are at the end, and so is most of what is asked for.
        if offset >= self.len / 2 {
            let mut begins = self.len;
            for (n, block) in self.blocks.iter().enumerate().rev() {
                if n == 0 {
                    return (0, offset + self.gone);
                }
                begins -= block.len();
                if offset >= begins {
                    return (n, offset - begins);
                }
            }
        }
        let mut at = offset + self.gone;
        for (n, block) in self.blocks.iter().enumerate() {
            if at < block.len() {
                return (n, at);
            }
            at -= block.len();
        }
        (self.blocks.len(), 0)
    }

    /// `len` bytes from `offset` on, if they are in one piece, as nearly always.
    #[inline]
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Option<&[u8]> {
        if len == 0 || offset >= self.len {
            return None;
        }
        let (n, at) = self.find(offset);
        self.blocks.get(n)?.data().get(at..at + len)
    }

    /// `len` bytes from `offset` on, piece by piece; fewer if the buffer ends before.
    #[inline]
    pub(crate) fn slices(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let mut left = len.min(self.len.saturating_sub(offset));
        let (first, mut at) = if left == 0 { (0, 0) } else { self.find(offset) };
        self.blocks.iter().skip(first).map_while(move |block| {
            if left == 0 {
                return None;
            }
            let from = core::mem::take(&mut at);
            let n = left.min(block.len() - from);
            left -= n;
            Some(&block.data()[from..from + n])
        })
    }

    /// In how many blocks `len` bytes from `offset` on lie.
    pub(crate) fn parts(&self, offset: usize, len: usize) -> usize {
        if len == 0 || offset + len > self.len {
            return 0;
        }
        self.find(offset + len - 1).0 - self.find(offset).0 + 1
    }

    /// The same bytes, all of which are there, as parts of blocks of at most `most` bytes each, the last first. `with` is given a
    /// block, a place in it and a length, until it says `false`.
    pub(crate) fn parts_from_back(
        &mut self,
        offset: usize,
        len: usize,
        most: usize,
        mut with: impl FnMut(&mut Block, usize, usize) -> bool,
    ) -> bool {
        let mut left = len.min(self.len.saturating_sub(offset));
        if left == 0 {
            return true;
        }
        let (mut n, at) = self.find(offset + left - 1);
        let mut end = at + 1;
        loop {
            let here = left.min(most).min(end);
            if !with(&mut self.blocks[n], end - here, here) {
                return false;
            }
            left -= here;
            end -= here;
            if left == 0 {
                return true;
            }
            if end == 0 {
                n -= 1;
                end = self.blocks[n].len();
            }
        }
    }

    /// Drops `n` bytes from the front; the bytes of memory that are free by that, as of [`Blocks::give`].
    #[inline]
    pub(crate) fn consume(&mut self, n: usize, blocks: &mut Blocks) -> usize {
        debug_assert!(n <= self.len, "more acknowledged than was sent");
        let n = n.min(self.len);
        self.len -= n;
        self.gone += n;
        let mut freed = 0;
        while let Some(first) = self.blocks.front().map(Block::len).filter(|len| *len <= self.gone) {
            // The last may have room for more.
            if self.blocks.len() == 1 && self.len == 0 && self.room() > 0 {
                break;
            }
            self.gone -= first;
            if let Some(block) = self.blocks.pop_front() {
                self.capacity -= block.capacity();
                freed += blocks.give(block);
            }
        }
        freed
    }

    /// Empties it; the bytes of memory that are free by that, as of [`Blocks::give`].
    #[inline]
    pub(crate) fn reset(&mut self, blocks: &mut Blocks) -> usize {
        if self.blocks.is_empty() { 0 } else { self.give_all(blocks) }
    }

    #[inline(never)]
    fn give_all(&mut self, blocks: &mut Blocks) -> usize {
        let mut freed = 0;
        while let Some(block) = self.blocks.pop_front() {
            // Guard: no `block.cut_off();` fails send_buffer::tests::somebodys_bytes_that_are_given_up
            block.cut_off();
            freed += blocks.give(block);
        }
        (self.gone, self.len, self.capacity) = (0, 0, 0);
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    #[test]
    fn behaves_as_a_queue_of_bytes() {
        let mut rng = Rng::new(3);
        let (mut buffer, mut model) = (SendBuffer::default(), VecDeque::new());
        let mut blocks = Blocks::default();
        let mut memory = 0;
        for round in 0..3000u32 {
            if rng.below(2) == 0 {
                let most = if round % 100 < 50 { 3000 } else { 200_000 };
                let bytes: Vec<u8> = (0..rng.below(most)).map(|n| (n ^ round) as u8).collect();
                let will = buffer.capacity_with(bytes.len());
                memory += will - buffer.capacity();
                buffer.push(&bytes, &mut blocks);
                assert_eq!(buffer.capacity(), will);
                model.extend(&bytes);
            } else {
                let n = rng.below(if round % 100 < 50 { 4000 } else { 300_000 }) as usize % (model.len() + 1);
                memory -= buffer.consume(n, &mut blocks);
                model.drain(..n);
            }
            assert_eq!((buffer.len(), buffer.capacity()), (model.len(), memory));
            assert!(buffer.capacity() <= 2 * buffer.len().next_power_of_two().max(MIN) + 2 * MAX);
            let offset = rng.below(model.len() as u32 + 100) as usize;
            let len = rng.below(70_000) as usize;
            let want: Vec<u8> = model.iter().skip(offset).take(len).copied().collect();
            assert!(buffer.slices(offset, len).collect::<Vec<_>>().concat() == want);
            assert!(buffer.slice(offset, len).is_none_or(|bytes| bytes == want));
            let mut parts = Vec::new();
            assert!(buffer.parts_from_back(offset, len, 1000, |block, at, n| {
                assert!(n > 0 && n <= 1000);
                parts.push(block.data()[at..at + n].to_vec());
                true
            }));
            parts.reverse();
            assert!(parts.concat() == want);
        }
        memory -= buffer.reset(&mut blocks);
        assert_eq!((memory, buffer.capacity(), buffer.len()), (0, 0, 0));
        assert!(blocks.spare_bytes <= SPARE && blocks.spare_bytes > 0);
    }

    #[test]
    fn somebodys_bytes_lie_among_copied_ones() {
        let (mut buffer, mut blocks) = (SendBuffer::default(), Blocks::default());
        let mut model = Vec::new();
        let mut memory = 0;
        for n in 0..20u8 {
            let bytes = vec![n; 100 * usize::from(n)];
            buffer.push(&[b'-'; 30], &mut blocks);
            buffer.push_owned(OwnedBytes::new(bytes.clone()));
            model.extend_from_slice(&[b'-'; 30]);
            model.extend(bytes);
        }
        memory += buffer.capacity();
        assert!(buffer.slices(0, usize::MAX).collect::<Vec<_>>().concat() == model);
        let mut at = 0;
        for n in [1, 29, 131, 500, 7777, 3000] {
            memory -= buffer.consume(n, &mut blocks);
            at += n;
            assert_eq!(buffer.slices(0, 900).collect::<Vec<_>>().concat(), model[at..at + 900]);
            assert_eq!(buffer.slices(5000, 77).collect::<Vec<_>>().concat(), model[at + 5000..at + 5077]);
            assert_eq!(buffer.capacity(), memory);
        }
        assert_eq!(memory - buffer.reset(&mut blocks), 0);
        assert!(blocks.retired.is_empty());
    }

    #[test]
    fn somebodys_bytes_that_are_given_up_are_told_so() {
        use flowlane_sys::block::Lender;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU32, Ordering};
        struct Told(Arc<AtomicU32>);
        impl Lender for Told {
            fn bytes(&self) -> &[u8] {
                &[1; 5000]
            }
            fn cut_off(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (mut buffer, mut blocks) = (SendBuffer::default(), Blocks::default());
        let told: [Arc<AtomicU32>; 3] = Default::default();
        for told in &told {
            buffer.push_owned(OwnedBytes::lent(Told(told.clone())));
        }
        // All of the first, and all but a byte of the second.
        buffer.consume(9999, &mut blocks);
        buffer.reset(&mut blocks);
        assert_eq!(told.each_ref().map(|told| told.load(Ordering::Relaxed)), [0, 1, 1]);
        assert_eq!(told.each_ref().map(Arc::strong_count), [1; 3]);
    }

    #[test]
    fn memory_counts_until_the_last_frame_is_gone() {
        let config =
            MemoryConfig { frames_per_home: 4, lock: false, huge_pages: false, ..MemoryConfig::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let (mut buffer, mut blocks) = (SendBuffer::default(), Blocks::default());
        buffer.push(&[5; 1024], &mut blocks);
        let mut frame = pool.alloc().unwrap();
        assert!(buffer.parts_from_back(0, 1024, 2048, |block, at, n| frame.share(block, at, n)));
        assert_eq!(buffer.consume(1024, &mut blocks), 0, "the frame still has it");
        assert_eq!((buffer.capacity(), blocks.look_again()), (0, 0));
        buffer.push(&[6; 1024], &mut blocks);
        assert_eq!(frame.data(), [5; 1024], "another block");
        drop(frame);
        assert_eq!(buffer.consume(1024, &mut blocks), 2048, "its own, and that of before");
        assert_eq!(blocks.spare_bytes, 2048);
    }
}
