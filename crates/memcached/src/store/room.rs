//! Memory for what comes: chunks are found, items leave, pages change their class, and the table gets its segments.
//!
//! A class that has no free chunk drops the item that leaves next by its [order](super::order). Now and then it looks whether another class holds
//! items that nobody has used for twice as long; then it takes a page from that one, with all items on it. So memory follows the sizes
//! that clients store. A class without items takes a page at once.

use super::slab::{ACTIVE, FETCHED, Id, LARGEST, NONE, PAGE, State};
use super::table::SEGMENT_BYTES;
use super::{Store, size_of_item};

/// Evictions between two comparisons of classes.
const COMPARE: u32 = 64;
/// Items, or pages, that may leave for one chunk.
const LEAVE: u32 = 16;

impl Store {
    /// Bytes that may still be taken from the allocator.
    fn room(&self) -> usize {
        self.limits.memory.saturating_sub(self.slab.bytes() + self.table.bytes())
    }

    /// Bytes that may be taken for a page of this class: the table will want its part for the items on it.
    fn room_for_page(&self, class: usize) -> usize {
        let places = self.slab.places() + self.slab.classes()[class].places as usize;
        let table = (places * size_of::<Id>()).next_multiple_of(SEGMENT_BYTES);
        self.room().saturating_sub(table.saturating_sub(self.table.bytes()))
    }

    /// Chunks for so many bytes, chained; the first has the state `Taken`, the others `More`. `None`: there is no memory, and nothing is taken.
    pub(super) fn take_chunks(&mut self, bytes: usize) -> Option<Id> {
        let first = self.take_chunk(bytes.min(LARGEST))?;
        let (mut last, mut left) = (first, bytes.saturating_sub(LARGEST));
        while left > 0 {
            let Some(id) = self.take_chunk(left.min(LARGEST)) else {
                self.give_chunks(first);
                return None;
            };
            self.slab.meta_mut(last).more = id;
            self.slab.meta_mut(id).prev = first;
            (last, left) = (id, left.saturating_sub(LARGEST));
        }
        // Until now all were `Taken`, so that no page of theirs could be emptied.
        let mut id = self.slab.meta(first).more;
        while id != NONE {
            let meta = self.slab.meta_mut(id);
            (meta.state, id) = (State::More, meta.more);
        }
        Some(first)
    }

    fn take_chunk(&mut self, bytes: usize) -> Option<Id> {
        let class = self.slab.class_for(bytes);
        for _ in 0..LEAVE {
            if let Some(id) = self.slab.take(class, self.room_for_page(class)) {
                return Some(id);
            }
            if !self.make_room(class) {
                break;
            }
        }
        self.classes[class].out_of_memory += 1;
        None
    }

    /// Gives the chunks of an item back.
    pub(super) fn give_chunks(&mut self, first: Id) {
        let mut id = first;
        while id != NONE {
            let more = self.slab.meta(id).more;
            self.slab.give(id);
            id = more;
        }
    }

    /// Has something leave, so that the class may find a chunk. `false`: nothing can.
    fn make_room(&mut self, class: usize) -> bool {
        self.evictions += 1;
        let victim = self.orders[class].victim(&mut self.slab);
        // A page of the pool that is too dear for this class makes room for what comes with another one.
        let Some(victim) = victim else { return self.slab.shrink() || self.take_page_for(class, 0) };
        let age = self.now.saturating_sub(self.slab.meta(victim).time);
        if self.evictions.is_multiple_of(COMPARE) && self.take_page_for(class, age.saturating_mul(2).max(1)) {
            return true;
        }
        self.evict(victim);
        true
    }

    /// Takes a page from the class whose next item to leave has been unused for longest, and for longer than `age` seconds.
    fn take_page_for(&mut self, class: usize, age: u32) -> bool {
        let classes = self.slab.classes().len();
        for other in (0..classes).filter(|other| *other != class) {
            if self.slab.release_empty(other) {
                self.counts.pages_moved += 1;
                return true;
            }
        }
        let oldest = |order: &super::order::Order| {
            order.next().map(|id| (self.now.saturating_sub(self.slab.meta(id).time), id))
        };
        let others = self.orders.iter().enumerate().filter(|(n, _)| *n != class);
        let found = others.filter_map(|(n, order)| Some((oldest(order)?, n))).max();
        let Some(((found_age, id), donor)) = found else { return false };
        if found_age < age || !self.empty_page(donor, id) {
            return false;
        }
        self.counts.pages_moved += 1;
        true
    }

    /// Evicts all items that have a chunk on the page of `id`, so that the page goes to the pool.
    fn empty_page(&mut self, class: usize, id: Id) -> bool {
        let mut list = std::mem::take(&mut self.list);
        let can = self.slab.page_mates(id, &mut list);
        if can {
            for id in &list {
                match self.slab.state(*id) {
                    State::Item => self.evict(*id),
                    State::More => {
                        let owner = self.slab.meta(*id).prev;
                        self.evict(owner);
                    }
                    // Gone with another chunk of its item.
                    State::Free | State::Taken => {}
                }
            }
            self.slab.release_empty(class);
        }
        self.list = list;
        can
    }

    /// Drops an item for want of memory, or because it is dead anyway.
    fn evict(&mut self, id: Id) {
        let meta = *self.slab.meta(id);
        if !self.lives(&meta) {
            self.count_dead(id);
            self.remove(id);
            return;
        }
        let unfetched = u64::from(meta.marks & FETCHED == 0);
        let active = u64::from(meta.marks & ACTIVE != 0);
        let class = &mut self.classes[self.slab.class_of(id)];
        class.evicted += 1;
        class.evicted_nonzero += u64::from(meta.expires != 0);
        class.evicted_unfetched += unfetched;
        class.evicted_active += active;
        class.evicted_time = u64::from(self.now.saturating_sub(meta.time));
        self.counts.evictions += 1;
        self.counts.evicted_unfetched += unfetched;
        self.counts.evicted_active += active;
        self.remove(id);
    }

    /// Puts an item whose chunks and fields are there into table and order.
    pub(super) fn link(&mut self, id: Id) {
        if self.table.wants_segment() {
            self.grow_table();
        }
        self.table.insert(&mut self.slab, id);
        let class = self.slab.class_of(id);
        self.orders[class].insert(&mut self.slab, id);
        let size = size_of_item(self.slab.meta(id)) as u64;
        self.classes[class].requested += size;
        self.counts.bytes += size;
        self.counts.curr_items += 1;
        self.counts.total_items += 1;
        self.counts.allocated_bytes = (self.slab.bytes() + self.table.bytes()) as u64;
    }

    /// Takes an item out of everything.
    pub(super) fn remove(&mut self, id: Id) {
        let class = self.slab.class_of(id);
        let size = size_of_item(self.slab.meta(id)) as u64;
        self.classes[class].requested -= size;
        self.counts.bytes -= size;
        self.counts.curr_items -= 1;
        self.table.remove(&mut self.slab, id);
        self.orders[class].remove(&mut self.slab, id);
        self.give_chunks(id);
    }

    /// Another segment for the table, for which a page goes if need be. Without it chains grow longer.
    #[cold]
    fn grow_table(&mut self) {
        const { assert!(SEGMENT_BYTES <= PAGE, "a page is enough for a segment") };
        if self.room() < SEGMENT_BYTES && !self.slab.shrink() {
            let most = self.slab.classes().iter().enumerate().max_by_key(|(_, class)| class.pages);
            let Some((class, _)) = most else { return };
            let Some(next) = self.orders[class].next() else { return };
            if !self.empty_page(class, next) || !self.slab.shrink() {
                return;
            }
        }
        if self.room() >= SEGMENT_BYTES {
            self.table.add_segment();
        }
    }
}
