//! A lane, as its sockets and tasks know it.

use std::sync::Arc;

use flowlane_rss::Bucket;
use flowlane_stack::time::Time;
use flowlane_sys::frame::Pool;

use super::ready::push_ready;
use super::{NotHere, with_here, with_lane};
use crate::lane::{LaneId, LaneSlot, Ready, SocketHandle};
use crate::shared::{Message, Shared};
use crate::worker_id;

/// A lane by name, and the way to the worker that holds it.
#[derive(Debug, Clone)]
pub(crate) struct LaneRef {
    id: LaneId,
    shared: Arc<Shared>,
}

impl LaneRef {
    pub(crate) fn new(id: LaneId, shared: Arc<Shared>) -> Self {
        Self { id, shared }
    }

    /// The lane whose task calls this.
    pub(crate) fn current() -> Result<Self, NotHere> {
        with_here(|here| {
            let lane = here.lane.as_ref().ok_or(NotHere)?;
            Ok(Self { id: lane.id, shared: here.shared.clone() })
        })
    }

    /// The lane of another bucket of the host whose task calls this; `None` if there is none.
    pub(crate) fn beside(bucket: Bucket) -> Option<Self> {
        let found = with_here(|here| {
            let slot = here.lane.as_ref().ok_or(NotHere)?;
            let (at, lanes) = (slot.lane.bucket(), slot.lane.rss().buckets.len());
            let first = slot.id.index - u32::from(at.0);
            let id = LaneId { index: first + u32::from(bucket.0), ..slot.id };
            Ok((usize::from(bucket.0) < lanes).then(|| Self { id, shared: here.shared.clone() }))
        });
        found.ok().flatten()
    }

    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    /// Does something with the lane, if it is the one lent to this thread.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut LaneSlot, Time, &Pool) -> R) -> Result<R, NotHere> {
        with_lane(self.id, f)
    }

    /// Closes a socket of the lane, wherever that is.
    pub(crate) fn close(&self, socket: SocketHandle) {
        if self.with(|slot, now, frames| slot.close(now, frames, socket)).is_err() {
            let lane = self.id.index;
            self.shared.send(self.shared.owner_of(lane), Message::Close { lane, socket });
        }
    }

    /// Puts tasks of the lane, when they are woken, where their worker finds them.
    pub(crate) fn scheduler(self) -> impl Fn(Ready) + Send + Sync + 'static {
        let shared = self.shared;
        move |ready| {
            let owner = shared.owner_of(ready.metadata().lane.index);
            if worker_id::is_worker(shared.runtime, owner) {
                push_ready(ready);
            } else {
                shared.send(owner, Message::Run(ready));
            }
        }
    }
}
