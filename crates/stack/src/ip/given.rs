//! Addresses that a host gets and loses while it runs: by DHCP, or from prefixes that routers advertise.
//!
//! The lane of bucket 0 decides, and tells the others by events, so that all lanes have the same addresses. A new address is probed and
//! announced as those of the start are ([`addresses`](super::addresses)). What an address is lost with ends by name: connections fail
//! with [`AddressLost`](crate::tcp::Failure::AddressLost), and sockets bound to it are closed.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;
use std::task::Waker;

use super::membership::OWN;
use super::{Ip, LaneEvent};
use crate::address::Prefix;
use crate::rng::Rng;
use crate::route::Route;
use crate::time::Time;
use crate::wire::ipv6::solicited_node;

/// News that wait for who reads them; older ones go first.
const NEWS: usize = 32;
/// The least MTU that a server of addresses may name, bytes: what any host takes (RFC 791).
const LEAST_MTU: u16 = 576;

/// What became of an address of ours, for the client of a server of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressNews {
    /// It has been probed, and nobody else has it.
    Ready {
        /// Interface of the host.
        interface: u8,
        /// The address.
        address: IpAddr,
    },
    /// The link of an interface is up, for the first time or again.
    LinkUp {
        /// Interface of the host.
        interface: u8,
    },
    /// Somebody else has it: it is no longer used.
    Duplicate {
        /// Interface of the host.
        interface: u8,
        /// The address.
        address: IpAddr,
    },
}

/// What a lane knows of addresses that come and go.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// Somebody reads the news.
    listens: bool,
    news: VecDeque<AddressNews>,
    wakers: Vec<Waker>,
    /// Addresses whose connections and sockets have still to end.
    lost: Vec<IpAddr>,
    /// Default routers that were given, and the ways to them.
    routes: Vec<Route>,
}

impl Given {
    pub(super) fn tell(&mut self, news: AddressNews) {
        if self.listens {
            if self.news.len() >= NEWS {
                self.news.pop_front();
            }
            self.news.push_back(news);
        }
        self.wake();
    }

    pub(super) fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// What uses an address has to end.
    pub(super) fn lose(&mut self, address: IpAddr) {
        if !self.lost.contains(&address) {
            self.lost.push(address);
        }
    }
}

impl Ip {
    /// Gives the host an address more, on behalf of all its lanes.
    pub(crate) fn give_address(
        &mut self,
        now: Time,
        rng: &mut Rng,
        interface: u8,
        prefix: Prefix,
        (deprecated, until): (bool, Time),
    ) {
        let Some(known) = self.interfaces.get(usize::from(interface)) else { return };
        let (address, announced) = (prefix.address(), known.announced);
        let new = !known.own_addresses().any(|a| a == address);
        self.put_address(interface, prefix, deprecated);
        self.events.push_back(LaneEvent::AddressGiven { interface, prefix, deprecated, until });
        if !new {
            return;
        }
        if announced {
            self.begin_to_probe(now, interface, address, rng);
            if let IpAddr::V6(a) = address {
                self.membership.enter(now, interface, IpAddr::V6(solicited_node(a)), OWN);
            }
        } else {
            // A link in memory has nobody who could have it.
            self.events.push_back(LaneEvent::AddressReady { interface, address });
            self.given.tell(AddressNews::Ready { interface, address });
        }
    }

    /// Takes an address from the host, on behalf of all its lanes.
    pub(crate) fn take_address(&mut self, now: Time, interface: u8, address: IpAddr) {
        let Some(known) = self.interfaces.get(usize::from(interface)) else { return };
        if !known.own_addresses().any(|a| a == address) {
            return;
        }
        self.duplicate(interface, address);
        if let IpAddr::V6(a) = address {
            let group = solicited_node(a);
            if !self.interfaces[usize::from(interface)].is_member(group) {
                self.membership.exit(now, interface, IpAddr::V6(group), OWN);
            }
        }
        self.events.push_back(LaneEvent::AddressTaken { interface, address });
    }

    /// Gives the host its default router of IPv4, on behalf of all its lanes.
    pub(crate) fn give_router(&mut self, interface: u8, router: Option<Ipv4Addr>) {
        self.put_router(interface, router);
        self.events.push_back(LaneEvent::RouterGiven { interface, router });
    }

    /// Limits packets on a link, on behalf of all lanes of the host.
    pub(crate) fn give_mtu(&mut self, interface: u8, mtu: u16) {
        self.limit_mtu(interface, mtu);
        self.events.push_back(LaneEvent::LinkMtu { interface, mtu });
    }

    pub(super) fn limit_mtu(&mut self, interface: u8, mtu: u16) {
        let now = self.interfaces.get(usize::from(interface)).map_or(0, |i| i.config.mtu);
        if (LEAST_MTU..now).contains(&mtu) {
            self.set_mtu(interface, mtu);
        }
    }

    /// This lane has an address more.
    pub(super) fn put_address(&mut self, index: u8, prefix: Prefix, deprecated: bool) {
        let probes = self.config.dad_transmits > 0;
        let Some(interface) = self.interfaces.get_mut(usize::from(index)) else { return };
        let new = !interface.own_addresses().any(|a| a == prefix.address());
        interface.take_up(prefix, deprecated);
        if new && interface.announced && probes {
            interface.optimistic.push(prefix.address());
        }
        self.routes.put(Route { prefix: prefix.network(), gateway: None, interface: index });
        self.last_hop = None;
        self.forbid_all_sources();
    }

    /// This lane has another default router of IPv4, or none.
    pub(super) fn put_router(&mut self, interface: u8, router: Option<Ipv4Addr>) {
        for route in self.given.routes.extract_if_on(interface) {
            self.routes.remove(&route);
        }
        self.last_hop = None;
        if let Some(known) = self.interfaces.get_mut(usize::from(interface)) {
            known.router = router;
        }
        let (Some(router), Some(any)) = (router, Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)) else {
            return;
        };
        // The way to the router is its own: it need be in none of our networks, as in clouds whose addresses are networks of one.
        let router = IpAddr::V4(router);
        let ways = [
            Route { prefix: Prefix::host(router), gateway: None, interface },
            Route { prefix: any, gateway: Some(router), interface },
        ];
        for way in ways {
            self.routes.put(way);
            self.given.routes.push(way);
        }
    }

    /// What became of addresses since the last call.
    pub(crate) fn address_news(&mut self) -> Option<AddressNews> {
        self.given.listens = true;
        self.given.news.pop_front()
    }

    /// Wakes `waker` at the next news of an address, or a datagram of DHCP.
    pub(crate) fn wake_on_address(&mut self, waker: &Waker) {
        if !self.given.wakers.iter().any(|w| w.will_wake(waker)) {
            self.given.wakers.push(waker.clone());
        }
    }

    pub(super) fn wake_address(&mut self) {
        self.given.wake();
    }

    /// Addresses whose connections and sockets have to end now.
    pub(crate) fn take_lost(&mut self) -> Vec<IpAddr> {
        core::mem::take(&mut self.given.lost)
    }

    pub(crate) fn has_lost(&self) -> bool {
        !self.given.lost.is_empty()
    }

    /// Whether the host has an address of a family, beyond the link-local one, that is its own beyond doubt.
    pub(crate) fn has_address(&self, v4: bool) -> bool {
        self.interfaces.iter().any(|i| {
            let mut of_family = i.config.addresses.iter().map(Prefix::address).filter(|a| a.is_ipv4() == v4);
            of_family.any(|a| !i.is_optimistic(a))
        })
    }
}

/// Routes of one interface, taken out of the others.
trait OnInterface {
    fn extract_if_on(&mut self, interface: u8) -> Vec<Route>;
}

impl OnInterface for Vec<Route> {
    fn extract_if_on(&mut self, interface: u8) -> Vec<Route> {
        let (gone, kept) = core::mem::take(self).into_iter().partition(|r| r.interface == interface);
        *self = kept;
        gone
    }
}
