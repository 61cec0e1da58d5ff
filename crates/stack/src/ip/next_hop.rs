//! The next hop used last, with which output on the fast path needs no table lookup.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use crate::route::Hop;
use crate::time::Time;
use crate::wire::MacAddr;

/// Time after which the neighbour table is consulted again.
const GRANTED: Duration = Duration::from_millis(500);

/// The next hop used last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextHop {
    pub(crate) interface: u8,
    pub(crate) address: Ipv4Addr,
    pub(crate) mac: MacAddr,
    until: Time,
}

impl NextHop {
    pub(crate) fn new(now: Time, interface: u8, address: Ipv4Addr, mac: MacAddr) -> Self {
        Self { interface, address, mac, until: now + GRANTED }
    }

    /// Whether it is this hop, and still taken for granted.
    #[inline]
    pub(crate) fn leads_to(&self, now: Time, hop: Hop) -> bool {
        self.interface == hop.interface && hop.address == IpAddr::V4(self.address) && self.is_granted(now)
    }

    /// The neighbour table need not be asked yet.
    #[inline]
    pub(crate) fn is_granted(&self, now: Time) -> bool {
        now < self.until
    }
}
