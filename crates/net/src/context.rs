//! What a task can reach from where it runs: its own lane, and nothing else.
//!
//! A worker lends a lane to its thread while the lane's tasks run, and takes it back afterwards. Sockets and timers
//! are handles that find the lane here; used on another lane or thread they find that it is not there and say so.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use crate::runtime::lane_slot::{LaneId, LaneSlot};
use crate::runtime::shared::Shared;
use crate::task::Ready;

/// What a worker's thread has at hand.
struct Here {
    lane: Option<Box<LaneSlot>>,
    now: Time,
    frames: Rc<Pool>,
    shared: Arc<Shared>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
    static WORKER: Cell<Option<(u32, usize)>> = const { Cell::new(None) };
    static READY: RefCell<VecDeque<Ready>> = const { RefCell::new(VecDeque::new()) };
    /// Tasks begun in this turn, which have not run yet.
    static FRESH: RefCell<VecDeque<Ready>> = const { RefCell::new(VecDeque::new()) };
}

/// The lane is not the one whose task is running here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotHere;

/// Makes this thread that of a worker.
pub(crate) fn begin(worker: usize, frames: Rc<Pool>, shared: Arc<Shared>) {
    WORKER.set(Some((shared.runtime, worker)));
    HERE.set(Some(Here { lane: None, now: Time::ZERO, frames, shared }));
}

/// Ends what [`begin`] began. Tasks that were ready and never ran are dropped.
pub(crate) fn end() {
    loop {
        let ready = READY.with_borrow_mut(VecDeque::pop_front);
        if ready.is_none() {
            break;
        }
    }
    WORKER.set(None);
    HERE.take();
}

/// Number of the worker whose thread this is.
#[inline]
pub(crate) fn worker() -> Option<usize> {
    WORKER.get().map(|(_, worker)| worker)
}

/// Whether this is the thread of that worker of that runtime.
#[inline]
pub(crate) fn is_worker(runtime: u32, worker: usize) -> bool {
    WORKER.get() == Some((runtime, worker))
}

/// Lends a lane to this thread.
pub(crate) fn enter(lane: Box<LaneSlot>, now: Time) {
    HERE.with_borrow_mut(|here| {
        if let Some(here) = here {
            here.lane = Some(lane);
            here.now = now;
        }
    });
}

/// Takes the lent lane back.
pub(crate) fn leave() -> Option<Box<LaneSlot>> {
    HERE.with_borrow_mut(|here| here.as_mut().and_then(|h| h.lane.take()))
}

/// Does something with a lane, if it is the one lent to this thread.
#[inline]
pub(crate) fn with_lane<R>(
    id: LaneId,
    f: impl FnOnce(&mut LaneSlot, Time, &Pool) -> R,
) -> Result<R, NotHere> {
    HERE.with(|here| {
        let Ok(mut here) = here.try_borrow_mut() else { return Err(NotHere) };
        let Some(here) = here.as_mut() else { return Err(NotHere) };
        match &mut here.lane {
            Some(lane) if lane.id == id => Ok(f(lane, here.now, &here.frames)),
            _ => Err(NotHere),
        }
    })
}

/// Does something with whichever lane is lent to this thread.
pub(crate) fn with_current<R>(f: impl FnOnce(&mut LaneSlot, Time, &Arc<Shared>) -> R) -> Result<R, NotHere> {
    HERE.with(|here| {
        let Ok(mut here) = here.try_borrow_mut() else { return Err(NotHere) };
        let Some(here) = here.as_mut() else { return Err(NotHere) };
        match &mut here.lane {
            Some(lane) => Ok(f(lane, here.now, &here.shared)),
            None => Err(NotHere),
        }
    })
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
            queue.drain(..).partition(|r| r.metadata().index == lane);
        *queue = others;
        of_lane.into()
    })
}
