//! Packets that wait, in the order in which they leave: a ring of bytes.
//!
//! Each packet lies in one piece behind 16 bytes of bookkeeping, so it can be written with one call. Where the rest of the ring's end is too
//! short for a packet it is left empty, and the packet goes to the beginning. The memory is zeroed by the kernel when it is first touched,
//! so a ring that is never full costs no more than it holds.
//!
//! ```text
//!   │ bytes of the packet, 4 │ queue, 2 │ 0, 2 │ due, 8 │ packet, to a multiple of 8 │
//! ```

const HEAD: usize = 16;
/// In place of a length: nothing more up to the end.
const SKIP: u32 = u32::MAX;

/// The ring.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: Vec<u8>,
    /// The first packet, and where the next is put.
    head: usize,
    tail: usize,
    /// Bytes in use, with those that are left empty.
    used: usize,
    len: usize,
}

impl Held {
    /// Gives it at least so many bytes. What it holds stays.
    pub(super) fn grow(&mut self, limit: usize) {
        let limit = limit.next_multiple_of(8);
        if limit <= self.bytes.len() {
            return;
        }
        let mut grown = Self { bytes: vec![0; limit], ..Self::default() };
        while let Some((due, queue, packet)) = self.pop() {
            grown.push(due, queue, packet);
        }
        *self = grown;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that a packet takes, and those that are left empty before it.
    #[inline]
    fn need(&self, len: usize) -> (usize, usize) {
        let need = HEAD + len.next_multiple_of(8);
        let end = self.bytes.len() - self.tail;
        (need, if end < need { end } else { 0 })
    }

    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        let (need, skip) = self.need(len);
        // Guard: `self.used + skip + need <= self.bytes.len()` as `true` fails impair::held
        self.used + skip + need <= self.bytes.len()
    }

    /// Adds a packet; `false` if there is no room.
    pub(super) fn push(&mut self, due: u64, queue: u16, packet: &[u8]) -> bool {
        if !self.has_room(packet.len()) {
            return false;
        }
        let (need, skip) = self.need(packet.len());
        if skip > 0 {
            self.bytes[self.tail..self.tail + 4].copy_from_slice(&SKIP.to_ne_bytes());
            self.tail = 0;
        }
        let place = &mut self.bytes[self.tail..self.tail + need];
        place[..4].copy_from_slice(&(packet.len() as u32).to_ne_bytes());
        place[4..6].copy_from_slice(&queue.to_ne_bytes());
        place[8..16].copy_from_slice(&due.to_ne_bytes());
        place[HEAD..HEAD + packet.len()].copy_from_slice(packet);
        self.tail = (self.tail + need) % self.bytes.len();
        self.used += skip + need;
        self.len += 1;
        true
    }

    /// Where the first packet is, past what was left empty.
    #[inline]
    fn first(&self) -> usize {
        if number(&self.bytes, self.head) == SKIP { 0 } else { self.head }
    }

    /// When the first leaves.
    #[inline]
    pub(super) fn due(&self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let at = self.first() + 8;
        self.bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Gives each packet, the first one first, another time to leave: what `again` makes of the time that it has and the packet.
    ///
    /// Times must not fall from one packet to the next.
    pub(super) fn retime(&mut self, mut again: impl FnMut(u64, &[u8]) -> u64) {
        let mut at = self.head;
        for _ in 0..self.len {
            at = if number(&self.bytes, at) == SKIP { 0 } else { at };
            let len = number(&self.bytes, at) as usize;
            let (head, packet) = self.bytes[at..at + HEAD + len].split_at_mut(HEAD);
            let mut due = [0; 8];
            due.copy_from_slice(&head[8..]);
            let due = again(u64::from_ne_bytes(due), packet);
            head[8..].copy_from_slice(&due.to_ne_bytes());
            at = (at + HEAD + len.next_multiple_of(8)) % self.bytes.len();
        }
    }

    /// Takes the first: when it leaves, its queue, the packet.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, u16, &[u8])> {
        let due = self.due()?;
        let at = self.first();
        if at != self.head {
            self.used -= self.bytes.len() - self.head;
        }
        let len = number(&self.bytes, at) as usize;
        let queue = u16::from_ne_bytes([self.bytes[at + 4], self.bytes[at + 5]]);
        let need = HEAD + len.next_multiple_of(8);
        self.head = (at + need) % self.bytes.len();
        self.used -= need;
        self.len -= 1;
        Some((due, queue, &self.bytes[at + HEAD..at + HEAD + len]))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_stack::rng::Rng;
    use std::collections::VecDeque;

    /// Against a queue that cannot be wrong, with sizes that meet every end of the ring.
    #[test]
    fn it_is_a_queue_of_bounded_bytes() {
        let mut rng = Rng::new(7);
        for limit in [64, 72, 4096, 10_000] {
            let (mut ring, mut model) = (Held::default(), VecDeque::new());
            ring.grow(limit);
            let mut refused = 0;
            for step in 0..20_000u64 {
                if rng.below(2) == 0 {
                    let packet = vec![step as u8; 1 + rng.below(limit as u32 / 2 - 24) as usize];
                    let room = ring.has_room(packet.len());
                    assert_eq!(ring.push(step, step as u16, &packet), room);
                    if room {
                        model.push_back((step, step as u16, packet));
                    } else {
                        refused += 1;
                        assert!(!model.is_empty(), "an empty ring of {limit} holds any of half its size");
                    }
                } else {
                    let got = ring.pop().map(|(due, queue, packet)| (due, queue, packet.to_vec()));
                    assert_eq!(got, model.pop_front());
                }
                assert_eq!(ring.len(), model.len());
                assert_eq!(ring.due(), model.front().map(|first| first.0));
                let inside: usize = model.iter().map(|(_, _, p)| HEAD + p.len()).sum();
                assert!(inside <= limit);
            }
            assert!(refused > 0, "it was full at times");
            let mut left: Vec<_> = model.iter().cloned().collect();
            let mut seen = Vec::new();
            ring.retime(|due, packet| {
                seen.push((due, packet.to_vec()));
                due + 7
            });
            assert_eq!(seen, left.iter().map(|(due, _, packet)| (*due, packet.clone())).collect::<Vec<_>>());
            left.iter_mut().for_each(|one| one.0 += 7);
            ring.grow(3 * limit);
            for one in left {
                assert_eq!(ring.pop().map(|(due, queue, packet)| (due, queue, packet.to_vec())), Some(one));
            }
            assert!(ring.pop().is_none());
        }
    }

    #[test]
    fn one_without_memory_holds_nothing() {
        let mut ring = Held::default();
        assert!(!ring.push(1, 2, &[3]) && ring.pop().is_none() && ring.due().is_none());
        ring.retime(|_, _| unreachable!("it holds nothing"));
    }
}
