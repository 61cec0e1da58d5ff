//! The tasks that are ready to run on this thread.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::lane::Ready;

thread_local! {
    static READY: RefCell<VecDeque<Ready>> = const { RefCell::new(VecDeque::new()) };
    /// Tasks begun in this turn, which have not run yet.
    static FRESH: RefCell<VecDeque<Ready>> = const { RefCell::new(VecDeque::new()) };
}

/// Puts a task into this thread's queue.
#[inline]
pub(crate) fn push_ready(ready: Ready) {
    READY.with_borrow_mut(|queue| queue.push_back(ready));
}

/// Puts a task that was begun by one which is running now where it runs in the same turn.
#[inline]
pub(crate) fn push_fresh(ready: Ready) {
    FRESH.with_borrow_mut(|queue| queue.push_back(ready));
}

/// The next task begun in this turn.
#[inline]
pub(crate) fn pop_fresh() -> Option<Ready> {
    FRESH.with_borrow_mut(VecDeque::pop_front)
}

/// Puts tasks begun in this turn that did not get to run behind those of the next.
pub(crate) fn defer_fresh() {
    FRESH.with_borrow_mut(|fresh| {
        if !fresh.is_empty() {
            READY.with_borrow_mut(|queue| queue.append(fresh));
        }
    });
}

/// The next task of this thread.
#[inline]
pub(crate) fn pop_ready() -> Option<Ready> {
    READY.with_borrow_mut(VecDeque::pop_front)
}

/// Tasks in this thread's queue.
#[inline]
pub(crate) fn ready_len() -> usize {
    READY.with_borrow(VecDeque::len)
}

/// Takes a lane's tasks out of this thread's queue, in order.
pub(crate) fn take_ready_of(lane: u32) -> Vec<Ready> {
    READY.with_borrow_mut(|queue| {
        let (of_lane, others): (VecDeque<_>, VecDeque<_>) =
            queue.drain(..).partition(|r| r.metadata().lane.index == lane);
        *queue = others;
        of_lane.into()
    })
}
