//! How links are opened when a runtime starts: what opens them, and what they are opened with.

use std::sync::Arc;

use flowlane_rss::Rss;
use flowlane_sys::frame::FrameMemory;

use super::{LinkInfo, Queue};
use crate::error::StartError;
use crate::wake::Wake;

/// An open link: its properties, and its queues by number. Queue `q` goes to worker `q % workers`
/// ([`worker_of_queue`](crate::worker_of_queue)).
pub type Opened = (LinkInfo, Vec<Box<dyn Queue>>);

/// Opens a link when the runtime starts, once frame memory and the number of workers are known.
pub type OpenLink = Box<dyn FnOnce(&FrameMemory, usize) -> Result<Opened, StartError> + Send>;

/// Opens several links at once when the runtime starts, such as both ends of a pair.
pub type OpenWire = Box<dyn FnOnce(&Opening<'_>) -> Result<Vec<Opened>, StartError> + Send>;

/// Parameters for opening links.
#[derive(Debug)]
pub struct Opening<'a> {
    memory: &'a FrameMemory,
    wakes: &'a [Arc<Wake>],
    steering: Vec<Option<Arc<Rss>>>,
}

impl<'a> Opening<'a> {
    /// `steering`: of each link that is opened, how the host on it is steered.
    pub(crate) fn new(
        memory: &'a FrameMemory,
        wakes: &'a [Arc<Wake>],
        steering: Vec<Option<Arc<Rss>>>,
    ) -> Self {
        Self { memory, wakes, steering }
    }

    /// The frames of all workers.
    #[must_use]
    pub fn memory(&self) -> &FrameMemory {
        self.memory
    }

    /// Number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.wakes.len()
    }

    /// How the host on one of the links that are opened here is steered: of the first interface, if there are several. `None` if there
    /// is none.
    #[must_use]
    pub fn steering(&self, link: usize) -> Option<&Arc<Rss>> {
        self.steering.get(link)?.as_ref()
    }

    /// The doorbell of the worker that serves a queue: for links in memory, which have no descriptor to wait on.
    #[must_use]
    pub fn doorbell(&self, queue: usize) -> Doorbell {
        Doorbell(self.wakes[queue % self.wakes.len()].clone())
    }
}

/// Wakes the worker that serves a queue.
#[derive(Debug, Clone)]
pub struct Doorbell(Arc<Wake>);

impl Doorbell {
    /// Call it after putting a frame where the worker polls. Costs a memory fence, and a system call only if the worker sleeps and has
    /// not been woken yet.
    #[inline]
    pub fn ring(&self) {
        self.0.ring();
    }
}
