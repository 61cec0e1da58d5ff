//! What is under a real link, an interface or a port of a switch, and its changes while the link is open.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
pub use flowlane_sys::netdev::watch::LinkState;
use flowlane_sys::netdev::watch::LinkWatch;

use crate::events;

/// The interface that a link uses, or its connection to a switch, as long as the link is open.
#[derive(Debug, Clone)]
pub struct Life {
    under: Under,
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
        Self {
            under: Under::Interface(interface),
            open,
            mtu: Arc::new(AtomicU16::new(short(mtu).min(most))),
            most,
        }
    }

    /// The name that the interface had when the link was opened, and the one that it has now, if that is another.
    pub(crate) fn renamed(&self) -> Option<(&str, String)> {
        let Under::Interface(opened) = &self.under else { return None };
        let now = Interface::numbered(opened.index())?;
        (now.name() != opened.name()).then(|| (opened.name(), now.name().to_owned()))
    }

    /// The life of a plug of a switch.
    pub(super) fn plugged(connection: Arc<Connection>, mtu: u16, open: Weak<dyn Any + Send + Sync>) -> Self {
        Self { under: Under::Plug(connection), open, mtu: Arc::new(AtomicU16::new(mtu)), most: mtu }
    }

    /// Longest IP packet that is sent, bytes. It follows the interface's MTU, as far as the queues allow, while [`News`] is being read.
    #[inline]
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// The interface; `None` for a plug of a switch.
    pub(crate) fn interface(&self) -> Option<&Interface> {
        match &self.under {
            Under::Interface(interface) => Some(interface),
            Under::Plug(_) => None,
        }
    }

    /// Waits until packets pass, for so long at most; whether they do.
    pub(super) fn comes_up(&self, limit: Duration) -> bool {
        let Under::Interface(interface) = &self.under else { return true };
        let Ok(mut watch) = LinkWatch::new(interface) else { return true };
        let end = Instant::now() + limit;
        let mut state = watch.now();
        while state != LinkState::Up {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state == LinkState::Gone {
                return false;
            }
            state = match watch.wait(Some(left.as_nanos() as u64)) {
                None | Some(LinkState::Mtu(_)) => watch.now(),
                Some(state) => state,
            };
        }
        true
    }

    /// Listens to news of the interface from now on. Has to be called in the network namespace of the interface.
    ///
    /// # Errors
    /// The system has no socket for it.
    pub fn watch(&self) -> Result<News, Error> {
        let source = match &self.under {
            Under::Interface(interface) => Source::Interface(LinkWatch::new(interface)?),
            Under::Plug(connection) => Source::Plug(Some(connection.clone())),
        };
        Ok(News { source, life: self.clone() })
    }
}

/// The connection of a plug of a switch (`plug.rs`). Closing it unplugs.
#[derive(Debug)]
pub(crate) struct Connection(OwnedFd);

impl Connection {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What is under a link.
#[derive(Debug, Clone)]
enum Under {
    Interface(Interface),
    Plug(Arc<Connection>),
}

impl Under {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Interface(one), Self::Interface(other)) => one == other,
            (Self::Plug(one), Self::Plug(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Interface(interface) => interface.name(),
            Self::Plug(_) => "switch",
        }
    }
}

/// An MTU as the stack has it.
fn short(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

impl PartialEq for Life {
    fn eq(&self, other: &Self) -> bool {
        self.under.is(&other.under) && self.open.ptr_eq(&other.open)
    }
}

impl Eq for Life {}

/// News of a link's interface.
#[derive(Debug)]
pub struct News {
    source: Source,
    life: Life,
}

#[derive(Debug)]
enum Source {
    Interface(LinkWatch),
    /// Until its end has been reported.
    Plug(Option<Arc<Connection>>),
}

impl Source {
    fn wait(&mut self) -> Option<LinkState> {
        match self {
            Self::Interface(watch) => watch.wait(None),
            Self::Plug(connection) => {
                // Nothing is ever said on it: what there is to read is its end.
                let connection = connection.take()?;
                while flowlane_sys::poll::wait_readable(&[connection.as_fd()], None).is_ok_and(|n| n == 0) {}
                Some(LinkState::Gone)
            }
        }
    }
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
        let state = self.source.wait()?;
        if let LinkState::Mtu(bytes) = state {
            let mtu = short(bytes).min(self.life.most);
            self.life.mtu.store(mtu, Ordering::Relaxed);
        }
        // The last queue gives up its hold before it closes.
        let open = self.life.open.strong_count() > 0;
        if open {
            events::link_changed(self.life.under.name(), state, self.life.mtu());
        }
        open.then_some(state)
    }
}
