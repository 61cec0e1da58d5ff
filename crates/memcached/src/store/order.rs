//! In which order items leave when there is no room: a segmented LRU for each size class, as memcached has.
//!
//! Two queues: new items come to the first, *probation*, and leave at its end, unless they were asked for twice since they came; those go to the
//! second, *protected*. That holds at most [`PROTECTED`] of a class; what comes to its end and was asked for since stays, and the rest
//! goes back to probation. So an item that is asked for once, as in a scan, never displaces one that is asked for often.
//!
//! Asking for an item sets a mark and moves nothing; queues change only when something leaves. One eviction looks at a bounded number of items.

use super::slab::{ACTIVE, Id, NONE, Slab, State};

/// Tenths of a class's items that the protected queue may hold.
const PROTECTED: u64 = 8;
/// Items looked at for one victim: each that stays was paid for by who asked for it.
const TRIES: u32 = 256;
/// Items looked at for each that comes to the protected queue.
const TRIMS: u32 = 16;

#[derive(Debug, Clone, Copy)]
struct Queue {
    head: Id,
    tail: Id,
    len: u32,
}

/// The two queues of a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    probation: Queue,
    protected: Queue,
}

impl Order {
    pub(crate) fn new() -> Self {
        let empty = Queue { head: NONE, tail: NONE, len: 0 };
        Self { probation: empty, protected: empty }
    }

    /// Items in each queue.
    pub(crate) fn lens(&self) -> [u32; 2] {
        [self.probation.len, self.protected.len]
    }

    /// The ends of the queues: the items that leave next.
    pub(crate) fn tails(&self) -> [Id; 2] {
        [self.probation.tail, self.protected.tail]
    }

    /// A new item.
    pub(crate) fn insert(&mut self, slab: &mut Slab, id: Id) {
        self.put(slab, id, State::Probation);
    }

    /// An item goes.
    pub(crate) fn remove(&mut self, slab: &mut Slab, id: Id) {
        let meta = *slab.meta(id);
        let queue = if meta.state == State::Protected { &mut self.protected } else { &mut self.probation };
        if meta.prev == NONE {
            queue.head = meta.next;
        } else {
            slab.meta_mut(meta.prev).next = meta.next;
        }
        if meta.next == NONE {
            queue.tail = meta.prev;
        } else {
            slab.meta_mut(meta.next).prev = meta.prev;
        }
        queue.len -= 1;
    }

    /// The item that should leave now. It stays until it is removed.
    pub(crate) fn victim(&mut self, slab: &mut Slab) -> Option<Id> {
        for _ in 0..TRIES {
            let id = self.probation.tail;
            if id == NONE {
                break;
            }
            if slab.meta(id).marks & ACTIVE == 0 {
                return Some(id);
            }
            slab.meta_mut(id).marks &= !ACTIVE;
            self.shift(slab, id, State::Protected);
            self.trim(slab);
        }
        [self.probation.tail, self.protected.tail].into_iter().find(|id| *id != NONE)
    }

    /// Keeps the protected queue within its share.
    fn trim(&mut self, slab: &mut Slab) {
        for _ in 0..TRIMS {
            let all = u64::from(self.probation.len) + u64::from(self.protected.len);
            if u64::from(self.protected.len) * 10 <= all * PROTECTED {
                return;
            }
            let id = self.protected.tail;
            let active = slab.meta(id).marks & ACTIVE != 0;
            slab.meta_mut(id).marks &= !ACTIVE;
            self.shift(slab, id, if active { State::Protected } else { State::Probation });
        }
    }

    /// To the head of a queue.
    fn shift(&mut self, slab: &mut Slab, id: Id, to: State) {
        self.remove(slab, id);
        self.put(slab, id, to);
    }

    fn put(&mut self, slab: &mut Slab, id: Id, to: State) {
        let queue = if to == State::Protected { &mut self.protected } else { &mut self.probation };
        let next = std::mem::replace(&mut queue.head, id);
        queue.len += 1;
        if next == NONE {
            queue.tail = id;
        } else {
            slab.meta_mut(next).prev = id;
        }
        let meta = slab.meta_mut(id);
        (meta.prev, meta.next, meta.state) = (NONE, next, to);
    }
}
