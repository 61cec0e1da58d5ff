//! Multicast groups that sockets join while a link is open, for the card's filters and the programs that select packets.

use std::net::IpAddr;
use std::sync::Arc;

use flowlane_sys::error::Error;

type Join = dyn Fn(IpAddr) -> Result<(), Error> + Send + Sync;

/// How a link is told of a group.
#[derive(Clone)]
pub struct Groups(Arc<Join>);

impl Groups {
    pub(super) fn new(join: impl Fn(IpAddr) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(join))
    }

    /// Lets packets to `group` through until the link is closed; again is no error. An address of one host is taken, too, and its
    /// packets are then the kernel's as well where the link can give it a copy: with AF_PACKET, not with AF_XDP.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join(&self, group: IpAddr) -> Result<(), Error> {
        (self.0)(group)
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Groups")
    }
}

impl PartialEq for Groups {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Groups {}
