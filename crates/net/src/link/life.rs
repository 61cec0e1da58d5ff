//! The interface under a real link, and news of it while the link is open.

use std::sync::{Arc, Weak};

use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
pub use flowlane_sys::netdev::watch::LinkState;
use flowlane_sys::netdev::watch::LinkWatch;

/// The interface that a link uses, as long as the link is open.
#[derive(Debug, Clone)]
pub struct Life {
    interface: Interface,
    open: Weak<()>,
}

impl Life {
    /// The life of queues on `interface`, and what each of them holds on to while it is open.
    pub(super) fn new(interface: Interface) -> (Self, Arc<()>) {
        let open = Arc::new(());
        (Self { interface, open: Arc::downgrade(&open) }, open)
    }

    /// Listens to news of the interface from now on. Has to be called in the network namespace of the interface.
    ///
    /// # Errors
    /// The system has no socket for it.
    pub fn watch(&self) -> Result<News, Error> {
        Ok(News { watch: LinkWatch::new(&self.interface)?, open: self.open.clone() })
    }
}

impl PartialEq for Life {
    fn eq(&self, other: &Self) -> bool {
        self.interface == other.interface && self.open.ptr_eq(&other.open)
    }
}

impl Eq for Life {}

/// News of a link's interface.
#[derive(Debug)]
pub struct News {
    watch: LinkWatch,
    open: Weak<()>,
}

impl News {
    /// Waits for the next change. `None` when there will be none: the interface is gone, which was told before, or
    /// went when the link was closed, as a TAP interface does that was made for it.
    pub fn wait(&mut self) -> Option<LinkState> {
        let state = self.watch.wait(None)?;
        // The last queue gives up its hold before it closes.
        (self.open.strong_count() > 0).then_some(state)
    }
}
