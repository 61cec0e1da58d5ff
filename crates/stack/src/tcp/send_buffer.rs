//! The bytes an application has written and the peer has not acknowledged.
//!
//! ```text
//!      SND.UNA          SND.NXT           end
//!         │  in flight     │   not sent    │
//!         └────────────────┴───────────────┘   a ring that doubles as it fills and is given back when idle
//! ```
//!
//! Bytes are copied in once and copied out into a frame for each transmission: frames have one owner, and the link
//! keeps them until they are on the wire.

/// A ring of bytes, its size a power of two or nothing.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    ring: Box<[u8]>,
    head: usize,
    len: usize,
}

/// Smallest ring: a request, or a short answer. Very many connections may have one on its way at once.
const MIN: usize = 512;

impl SendBuffer {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory held.
    pub(crate) const fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Memory it would hold with `more` bytes in it.
    pub(crate) fn capacity_with(&self, more: usize) -> usize {
        (self.len + more).max(MIN).next_power_of_two().max(self.ring.len())
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let capacity = self.capacity_with(bytes.len());
        if capacity > self.ring.len() {
            self.grow(capacity);
        }
        let at = (self.head + self.len) & (capacity - 1);
        let first = bytes.len().min(capacity - at);
        self.ring[at..at + first].copy_from_slice(&bytes[..first]);
        self.ring[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.len += bytes.len();
    }

    #[cold]
    fn grow(&mut self, capacity: usize) {
        let mut ring = vec![0; capacity].into_boxed_slice();
        let (a, b) = self.slices(0, self.len);
        ring[..a.len()].copy_from_slice(a);
        ring[a.len()..a.len() + b.len()].copy_from_slice(b);
        self.ring = ring;
        self.head = 0;
    }

    /// `len` bytes from `offset` on, in up to two pieces; fewer if the buffer ends before.
    #[inline]
    pub(crate) fn slices(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.len.saturating_sub(offset));
        if len == 0 {
            return (&[], &[]);
        }
        let at = (self.head + offset) & (self.ring.len() - 1);
        let first = len.min(self.ring.len() - at);
        (&self.ring[at..at + first], &self.ring[..len - first])
    }

    /// Drops `n` bytes from the front.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.len, "more acknowledged than was sent");
        let n = n.min(self.len);
        self.len -= n;
        // An empty ring starts again at its front, where the caches are warm.
        self.head = if self.len == 0 { 0 } else { (self.head + n) & (self.ring.len() - 1) };
    }

    /// Empties it; gives the memory back if it is more than `keep`.
    pub(crate) fn reset(&mut self, keep: usize) {
        self.head = 0;
        self.len = 0;
        if self.ring.len() > keep {
            self.ring = Box::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    #[test]
    fn behaves_as_a_queue_of_bytes() {
        let mut rng = Rng::new(3);
        let (mut ring, mut model) = (SendBuffer::default(), VecDeque::new());
        for round in 0..2000u32 {
            if rng.below(2) == 0 {
                let bytes: Vec<u8> = (0..rng.below(3000)).map(|n| (n ^ round) as u8).collect();
                ring.push(&bytes);
                model.extend(&bytes);
            } else {
                let n = rng.below(4000) as usize % (model.len() + 1);
                ring.consume(n);
                model.drain(..n);
            }
            assert_eq!(ring.len(), model.len());
            let offset = rng.below(1000) as usize;
            let (a, b) = ring.slices(offset, 500);
            let want: Vec<u8> = model.iter().skip(offset).take(500).copied().collect();
            assert_eq!([a, b].concat(), want);
        }
    }
}
