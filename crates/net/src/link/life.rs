//! The interface under a real link, and its changes while the link is open.

use std::any::Any;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
pub use flowlane_sys::netdev::watch::LinkState;
use flowlane_sys::netdev::watch::LinkWatch;

use crate::events;

/// The interface that a link uses, as long as the link is open.
#[derive(Debug, Clone)]
pub struct Life {
    interface: Interface,
    /// Something that the queues hold while they are open.
    open: Weak<dyn Any + Send + Sync>,
    mtu: Arc<AtomicU16>,
    most: u16,
}

impl Life {
    /// The life of queues on `interface`, each of which holds `open` until it is closed. `mtu` is the longest packet now, `most`
    /// the longest that the queues can ever send and receive; 65,535 bytes and more are the longest packet of IP.
    pub(super) fn new(
        interface: Interface,
        (mtu, most): (u32, u32),
        open: Weak<dyn Any + Send + Sync>,
    ) -> Self {
        let most = short(most);
        Self { interface, open, mtu: Arc::new(AtomicU16::new(short(mtu).min(most))), most }
    }

    /// Longest IP packet that is sent, bytes. It follows the interface's MTU, as far as the queues allow, while [`News`] is being read.
    #[inline]
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// Listens to news of the interface from now on. Has to be called in the network namespace of the interface.
    ///
    /// # Errors
    /// The system has no socket for it.
    pub fn watch(&self) -> Result<News, Error> {
        Ok(News { watch: LinkWatch::new(&self.interface)?, life: self.clone() })
    }
}

/// An MTU as the stack has it.
fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
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
    life: Life,
}

impl News {
    /// Longest IP packet that is sent, bytes, after the news so far.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.life.mtu()
    }

    /// Waits for the next change. `None` when there will be none: the interface has been removed, which was reported before, or was
    /// removed with the link, as a TAP interface created for it.
    pub fn wait(&mut self) -> Option<LinkState> {
        let state = self.watch.wait(None)?;
        if let LinkState::Mtu(bytes) = state {
            let mtu = short(bytes).min(self.life.most);
            self.life.mtu.store(mtu, Ordering::Relaxed);
        }
        // The last queue gives up its hold before it closes.
        let open = self.life.open.strong_count() > 0;
        if open {
            events::link_changed(self.life.interface.name(), state, self.life.mtu());
        }
        open.then_some(state)
    }
}
