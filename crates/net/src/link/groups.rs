//! Multicast groups that sockets join while a link is open, for the card's filters and the programs that select packets.

use std::net::IpAddr;
use std::sync::Arc;

use flowlane_sys::error::Error;

type Join = dyn Fn(IpAddr) -> Result<(), Error> + Send + Sync;
type Claim = dyn Fn(IpAddr, bool) -> Result<(), Error> + Send + Sync;

/// How a link is told of a group.
#[derive(Clone)]
pub struct Groups(Arc<Join>, Option<Arc<Claim>>);

impl Groups {
    pub(super) fn new(join: impl Fn(IpAddr) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        Self(Arc::new(join), None)
    }

    /// With how the link is told of an address that it takes alone from then on, or no longer.
    pub(super) fn claiming(
        self,
        claim: impl Fn(IpAddr, bool) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self(self.0, Some(Arc::new(claim)))
    }

    /// Takes packets to an address from now on, and keeps them from the kernel, or leaves them to it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn claim(&self, address: IpAddr, ours: bool) -> Result<(), Error> {
        self.1.as_ref().map_or(Ok(()), |claim| claim(address, ours))
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
