//! What sockets and tasks have of their worker: the lane that is lent to its thread, and the queue of tasks that are ready.
//!
//! A worker lends a lane to its thread while the lane's tasks run, and takes it back afterwards. Sockets and timers
//! hold a [`LaneRef`], which finds the lane here; used on another lane or thread they find that it is not there and say so.

pub(crate) mod budget;
mod lane_ref;
mod ready;

pub(crate) use lane_ref::LaneRef;
pub(crate) use ready::{defer_fresh, pop_fresh, pop_ready, push_fresh, push_ready, ready_len, take_ready_of};

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use crate::error::SocketError;
use crate::lane::{LaneId, LaneSlot};
use crate::shared::Shared;
use crate::worker_id;

/// What a worker's thread has at hand.
struct Here {
    lane: Option<Box<LaneSlot>>,
    now: Time,
    frames: Rc<Pool>,
    shared: Arc<Shared>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The lane is not the one whose task is running here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotHere;

impl From<NotHere> for SocketError {
    fn from(_: NotHere) -> Self {
        Self::WrongLane
    }
}

/// Makes this thread that of a worker.
pub(crate) fn begin(worker: usize, frames: Rc<Pool>, shared: Arc<Shared>) {
    worker_id::set(Some((shared.runtime, worker)));
    HERE.set(Some(Here { lane: None, now: Time::ZERO, frames, shared }));
}

/// Ends what [`begin`] began. Tasks that were ready and never ran are dropped.
pub(crate) fn end() {
    while pop_ready().is_some() {}
    worker_id::set(None);
    HERE.take();
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

/// Does something with what this thread has at hand, if it is a worker's and nobody else does.
#[inline]
fn with_here<R>(f: impl FnOnce(&mut Here) -> Result<R, NotHere>) -> Result<R, NotHere> {
    HERE.with(|here| {
        let Ok(mut here) = here.try_borrow_mut() else { return Err(NotHere) };
        here.as_mut().map_or(Err(NotHere), f)
    })
}

/// Does something with a lane, if it is the one lent to this thread.
#[inline]
pub(crate) fn with_lane<R>(
    id: LaneId,
    f: impl FnOnce(&mut LaneSlot, Time, &Pool) -> R,
) -> Result<R, NotHere> {
    with_here(|here| match &mut here.lane {
        Some(lane) if lane.id == id => Ok(f(lane, here.now, &here.frames)),
        _ => Err(NotHere),
    })
}

/// Does something with whichever lane is lent to this thread.
pub(crate) fn with_current<R>(f: impl FnOnce(&mut LaneSlot, Time) -> R) -> Result<R, NotHere> {
    with_here(|here| here.lane.as_mut().map(|lane| f(lane, here.now)).ok_or(NotHere))
}

/// The time right now on the runtime's clock, if a lane is lent to this thread.
pub(crate) fn clock() -> Result<Time, NotHere> {
    with_here(|here| here.lane.as_ref().map(|_| here.shared.now()).ok_or(NotHere))
}
