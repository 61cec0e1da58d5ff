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
    /// A destination that it leads to, which is no broadcast or multicast address.
    to: Option<Ipv4Addr>,
}

impl NextHop {
    pub(crate) fn new(now: Time, interface: u8, address: Ipv4Addr, mac: MacAddr) -> Self {
        Self { interface, address, mac, until: now + GRANTED, to: None }
    }

    /// Whether it is this hop, and still taken for granted.
    #[inline]
    pub(crate) fn leads_to(&self, now: Time, hop: Hop) -> bool {
        self.interface == hop.interface && hop.address == IpAddr::V4(self.address) && self.is_granted(now)
    }

    /// Whether it is known to lead to one host, `destination`.
    #[inline]
    pub(crate) fn is_way_to(&self, destination: Ipv4Addr) -> bool {
        self.to == Some(destination)
    }

    /// It leads to this host. Whatever changes routes or addresses forgets the next hop.
    #[inline]
    pub(crate) fn note_way_to(&mut self, destination: Ipv4Addr) {
        self.to = Some(destination);
    }

    /// The neighbour table need not be asked yet.
    #[inline]
    pub(crate) fn is_granted(&self, now: Time) -> bool {
        now < self.until
    }
}
