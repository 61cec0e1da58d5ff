//! Lists threaded through a slab: first in, first out, and out of the middle in constant time.
//!
//! The members stand in a `Vec` and name each other by index, so a list costs eight bytes a member and no allocation.
//! Which of a member's links a list uses is given with every call; a member may be in several lists at once.

/// No member.
pub(super) const NONE: u32 = u32::MAX;

/// A member's neighbours in one list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    prev: u32,
    next: u32,
}

impl Link {
    pub(super) const ALONE: Self = Self { prev: NONE, next: NONE };
}

/// A list: its ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    /// The member that has been in the list longest.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        if self.head == NONE { None } else { Some(self.head) }
    }

    /// Puts member `at`, which is not in the list, at its end.
    #[inline]
    pub(super) fn push<T>(&mut self, slab: &mut [T], at: u32, link: impl Fn(&mut T) -> &mut Link) {
        *link(&mut slab[at as usize]) = Link { prev: self.tail, next: NONE };
        if self.tail == NONE {
            self.head = at;
        } else {
            link(&mut slab[self.tail as usize]).next = at;
        }
        self.tail = at;
    }

    /// Takes member `at`, which is in the list, out of it.
    #[inline]
    pub(super) fn remove<T>(&mut self, slab: &mut [T], at: u32, link: impl Fn(&mut T) -> &mut Link) {
        let Link { prev, next } = std::mem::replace(link(&mut slab[at as usize]), Link::ALONE);
        if prev == NONE {
            self.head = next;
        } else {
            link(&mut slab[prev as usize]).next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            link(&mut slab[next as usize]).prev = prev;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::VecDeque;

    #[test]
    fn it_does_what_a_queue_does() {
        let mut slab = vec![Link::ALONE; 32];
        let (mut list, mut model, mut rng) = (List::EMPTY, VecDeque::new(), Rng::new(3));
        for _ in 0..20_000 {
            let at = rng.below(32);
            match model.iter().position(|&m| m == at) {
                Some(place) => {
                    model.remove(place);
                    list.remove(&mut slab, at, |l| l);
                }
                None => {
                    model.push_back(at);
                    list.push(&mut slab, at, |l| l);
                }
            }
            assert_eq!(list.first(), model.front().copied());
            let mut walked = Vec::new();
            let mut next = list.head;
            while next != NONE {
                walked.push(next);
                next = slab[next as usize].next;
            }
            assert_eq!(walked, Vec::from(model.clone()));
        }
    }
}
