//! The stack to which other threads return a worker's frames.
//!
//! A Treiber stack of what is linked through itself. Others push one node or a whole list with one compare-and-swap, the
//! owner takes everything with one swap, so there is no ABA problem.
//!
//! Invariant: a push accesses neither the stack nor a node after its compare-and-swap has succeeded, because the thread that takes the
//! nodes may then free both. Therefore [`ReturnStack::push`] takes a pointer: a reference as an argument would promise that its target
//! lives until the function returns.

use std::ptr::{NonNull, null_mut};

use crate::sync::{AtomicPtr, Ordering};

/// What can be linked into a list.
pub(crate) trait Linked {
    /// Sets what follows in the list.
    ///
    /// # Safety
    /// The caller owns what `this` points to.
    unsafe fn set_next(this: NonNull<Self>, next: Option<NonNull<Self>>);
}

/// The stack.
pub(crate) struct ReturnStack<N> {
    first: AtomicPtr<N>,
}

impl<N: Linked> ReturnStack<N> {
    /// An empty stack.
    pub(crate) fn new() -> Self {
        Self { first: AtomicPtr::new(null_mut()) }
    }

    /// Pushes a list of nodes, linked from `first` to `last`.
    ///
    /// # Safety
    /// `this` is a stack that lives at least until somebody has taken the nodes. The caller owns every node of the list, and
    /// gives them up.
    #[inline]
    pub(crate) unsafe fn push(this: *const Self, first: NonNull<N>, last: NonNull<N>) {
        // SAFETY: nobody has taken the nodes yet.
        let mut head = unsafe { (*this).first.load(Ordering::Relaxed) };
        loop {
            // SAFETY: `last` is still the caller's until the exchange below succeeds, and the stack lives until then.
            let pushed = unsafe {
                N::set_next(last, NonNull::new(head));
                // Release: whoever takes the nodes sees all that was written to them.
                (*this).first.compare_exchange_weak(
                    head,
                    first.as_ptr(),
                    Ordering::Release,
                    Ordering::Relaxed,
                )
            };
            match pushed {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes the whole list: the last that was pushed comes first.
    #[inline]
    pub(crate) fn take(&self) -> Option<NonNull<N>> {
        if self.first.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // Acquire: pairs with every push whose nodes are in the list, since each follows the one before by the exchange.
        NonNull::new(self.first.swap(null_mut(), Ordering::Acquire))
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{Arc, UnsafeCell};
    use loom::thread;

    /// A node as loom watches it: it finds every access that is not ordered after the one before.
    struct Node {
        next: UnsafeCell<Option<NonNull<Node>>>,
        value: UnsafeCell<u32>,
    }

    impl Linked for Node {
        unsafe fn set_next(this: NonNull<Self>, next: Option<NonNull<Self>>) {
            // SAFETY: the caller owns it.
            unsafe { this.as_ref() }.next.with_mut(|at| unsafe { *at = next });
        }
    }

    /// The stack, with a cell that stands for the rest of the region it is part of.
    struct Region {
        home: ReturnStack<Node>,
        rest: UnsafeCell<u32>,
    }

    // SAFETY: as the frames' region; that it is so is what the tests below are about.
    unsafe impl Send for Region {}
    // SAFETY: as above.
    unsafe impl Sync for Region {}

    fn node(value: u32) -> NonNull<Node> {
        let node = Node { next: UnsafeCell::new(None), value: UnsafeCell::new(value) };
        NonNull::from(Box::leak(Box::new(node)))
    }

    /// Frees a list and says what was in it.
    fn free(mut next: Option<NonNull<Node>>) -> Vec<u32> {
        let mut values = Vec::new();
        while let Some(at) = next {
            // SAFETY: taken from the stack, so nobody else's, and leaked from a box.
            let node = unsafe { Box::from_raw(at.as_ptr()) };
            node.value.with(|at| values.push(unsafe { *at }));
            next = node.next.with(|at| unsafe { *at });
        }
        values
    }

    fn push(region: &Region, list: &[u32]) {
        let nodes: Vec<_> = list.iter().map(|value| node(*value)).collect();
        for pair in nodes.windows(2) {
            // SAFETY: still ours.
            unsafe { Node::set_next(pair[0], Some(pair[1])) };
        }
        region.rest.with(|_| ());
        // SAFETY: ours, and given up; the region lives to the end of the model.
        unsafe { ReturnStack::push(&raw const region.home, nodes[0], nodes[list.len() - 1]) };
    }

    /// Two workers push, one node and a parcel, while the owner takes: nothing is lost, doubled or read too early.
    #[test]
    fn loom_returned_nodes_come_once_and_whole() {
        loom::model(|| {
            let region = Arc::new(Region { home: ReturnStack::new(), rest: UnsafeCell::new(0) });
            let (one, two) = (region.clone(), region.clone());
            let one = thread::spawn(move || push(&one, &[1]));
            let two = thread::spawn(move || push(&two, &[2, 3]));
            let mut values = free(region.home.take());
            one.join().unwrap();
            two.join().unwrap();
            values.extend(free(region.home.take()));
            values.sort_unstable();
            assert_eq!(values, [1, 2, 3]);
        });
    }

    /// Who has counted all nodes back may free the region: whatever the pushers did to it before is over.
    #[test]
    fn loom_all_nodes_back_means_that_nobody_is_left() {
        loom::model(|| {
            let region = Arc::new(Region { home: ReturnStack::new(), rest: UnsafeCell::new(0) });
            let theirs = region.clone();
            let other = thread::spawn(move || push(&theirs, &[1]));
            push(&region, &[2]);
            let mut back = free(region.home.take()).len();
            back += free(region.home.take()).len();
            if back == 2 {
                region.rest.with_mut(|at| unsafe { *at = 1 });
            }
            other.join().unwrap();
            back += free(region.home.take()).len();
            assert_eq!(back, 2);
        });
    }
}
