//! In which order items leave when there is no room: SIEVE for each size class (Y. Zhang and others, NSDI 2024).
//!
//! New items come to the head of a queue. A hand goes from its end towards its head: an item that was asked for since the hand last passed stays where
//! it is and loses its mark, the next one without a mark leaves. At the head the hand goes on at the end. So what is asked for once, as in
//! a scan, leaves soon, and what is asked for often stays without being moved: asking for it sets a mark and nothing else.
//!
//! Beside a segmented LRU of two queues and beside the policy of `quick_cache` it kept more of what was asked for later (`benches/store.rs`).

use super::slab::{Id, NONE, Slab, State, USED};

/// Items that the hand passes for one victim: each that stays was paid for by who asked for it.
const TRIES: u32 = 256;

/// The queue of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    head: Id,
    tail: Id,
    /// Where the hand stands; none: before the end.
    hand: Id,
    len: u32,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self { head: NONE, tail: NONE, hand: NONE, len: 0 }
    }

    /// Items in the queue.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The item at which the hand stands, if there is any.
    pub(crate) fn next(&self) -> Option<Id> {
        [self.hand, self.tail].into_iter().find(|id| *id != NONE)
    }

    /// The item at the queue's end, which came first.
    pub(crate) fn oldest(&self) -> Option<Id> {
        Some(self.tail).filter(|id| *id != NONE)
    }

    /// A new item.
    pub(crate) fn insert(&mut self, slab: &mut Slab, id: Id) {
        let next = std::mem::replace(&mut self.head, id);
        self.len += 1;
        if next == NONE {
            self.tail = id;
        } else {
            slab.meta_mut(next).prev = id;
        }
        let meta = slab.meta_mut(id);
        (meta.prev, meta.next, meta.state) = (NONE, next, State::Item);
    }

    /// An item goes.
    pub(crate) fn remove(&mut self, slab: &mut Slab, id: Id) {
        let meta = *slab.meta(id);
        if self.hand == id {
            self.hand = meta.prev;
        }
        if meta.prev == NONE {
            self.head = meta.next;
        } else {
            slab.meta_mut(meta.prev).next = meta.next;
        }
        if meta.next == NONE {
            self.tail = meta.prev;
        } else {
            slab.meta_mut(meta.next).prev = meta.prev;
        }
        self.len -= 1;
    }

    /// The item that should leave now. It stays until it is removed.
    pub(crate) fn victim(&mut self, slab: &mut Slab) -> Option<Id> {
        for _ in 0..TRIES {
            let id = self.next()?;
            self.hand = id;
            let meta = slab.meta_mut(id);
            if meta.marks & USED == 0 {
                break;
            }
            meta.marks &= !USED;
            self.hand = meta.prev;
        }
        self.next()
    }
}
