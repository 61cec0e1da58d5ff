//! Routes: the interface and next hop of a destination.
//!
//! Networks of the interfaces' own addresses are on-link; other destinations use the gateway of the longest matching route. Routes are
//! few and configured by people, so they are searched linearly in order of prefix length; most packets match the first.

use core::net::{IpAddr, Ipv4Addr};

use crate::address::Prefix;
use crate::interface::InterfaceConfig;

/// One route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// The next hop; `None` if the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the interface.
    pub interface: u8,
}

/// Where the next hop of a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Interface to send on.
    pub interface: u8,
    /// Whose Ethernet address is wanted.
    pub address: IpAddr,
}

/// The routes of a host, longest first.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    v4: Vec<Route>,
    v6: Vec<Route>,
    /// `v4` as numbers, in the same order.
    plain: Vec<Plain>,
}

/// An IPv4 route as numbers.
#[derive(Debug, Clone)]
struct Plain {
    network: u32,
    mask: u32,
    gateway: Option<Ipv4Addr>,
    interface: u8,
}

impl Routes {
    /// The networks of `interfaces` and `more` routes.
    pub(crate) fn new(interfaces: &[InterfaceConfig], more: &[Route]) -> Self {
        let mut routes = Self::default();
        for (i, config) in interfaces.iter().enumerate() {
            let local: Prefix = Prefix::LINK_LOCAL;
            for prefix in config.addresses.iter().copied().chain([local]) {
                routes.add(Route { prefix, gateway: None, interface: i as u8 });
            }
        }
        for route in more {
            routes.add(*route);
        }
        routes.plain = routes.v4.iter().filter_map(Plain::new).collect();
        routes
    }

    /// A route more. One that is there already stays once.
    pub(crate) fn put(&mut self, route: Route) {
        self.remove(&route);
        self.add(route);
        self.plain = self.v4.iter().filter_map(Plain::new).collect();
    }

    /// A route less.
    pub(crate) fn remove(&mut self, route: &Route) {
        let family = if route.prefix.address().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        family.retain(|r| r != route);
        self.plain = self.v4.iter().filter_map(Plain::new).collect();
    }

    fn add(&mut self, route: Route) {
        let family = if route.prefix.address().is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let at = family.partition_point(|r| r.prefix.len() >= route.prefix.len());
        family.insert(at, route);
    }

    /// Whether packets to `destination` go to the neighbour `hop` on `interface`.
    #[inline]
    pub(crate) fn leads_to(&self, destination: Ipv4Addr, interface: u8, hop: Ipv4Addr) -> bool {
        let n = u32::from(destination);
        match self.plain.iter().find(|r| n & r.mask == r.network) {
            Some(r) => r.interface == interface && r.gateway.unwrap_or(destination) == hop,
            None => false,
        }
    }

    /// Whether `address` is a router of ours on `interface`.
    pub(crate) fn is_gateway(&self, interface: u8, address: IpAddr) -> bool {
        let family = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        family.iter().any(|r| r.interface == interface && r.gateway == Some(address))
    }

    /// The next hop towards `destination`; `None` without a route, and for the unspecified address, which no packet may be
    /// sent to (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.2). Multicast and broadcast go out of the first
    /// interface unless a route says otherwise.
    #[inline]
    #[must_use]
    pub fn hop(&self, destination: IpAddr) -> Option<Hop> {
        if destination.is_unspecified() {
            return None;
        }
        let family = if destination.is_ipv4() { &self.v4 } else { &self.v6 };
        for route in family {
            if route.prefix.contains(destination) {
                return Some(Hop {
                    interface: route.interface,
                    address: route.gateway.unwrap_or(destination),
                });
            }
        }
        let group = match destination {
            IpAddr::V4(a) => a.is_multicast() || a.is_broadcast(),
            IpAddr::V6(a) => a.is_multicast(),
        };
        group.then_some(Hop { interface: 0, address: destination })
    }
}

impl Plain {
    fn new(route: &Route) -> Option<Self> {
        let IpAddr::V4(address) = route.prefix.address() else { return None };
        let gateway = match route.gateway {
            Some(IpAddr::V4(gateway)) => Some(gateway),
            Some(IpAddr::V6(_)) => return None,
            None => None,
        };
        let mask = u32::MAX.checked_shl(32 - u32::from(route.prefix.len())).unwrap_or(0);
        Some(Self { network: u32::from(address) & mask, mask, gateway, interface: route.interface })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MacAddr;

    #[test]
    fn the_longest_prefix_wins() {
        let on = |addresses: &[&str]| {
            InterfaceConfig::new(
                MacAddr([2, 0, 0, 0, 0, 1]),
                addresses.iter().map(|s| s.parse().unwrap()).collect(),
            )
        };
        let via = |prefix: &str, gateway: &str, interface| Route {
            prefix: prefix.parse().unwrap(),
            gateway: Some(gateway.parse().unwrap()),
            interface,
        };
        let routes = Routes::new(
            &[on(&["10.1.0.1/24"]), on(&["10.2.0.1/16", "fd00::1/64"])],
            &[via("0.0.0.0/0", "10.1.0.254", 0), via("10.1.0.128/25", "10.2.0.9", 1)],
        );
        let hop = |a: &str| routes.hop(a.parse().unwrap()).map(|h| (h.interface, h.address.to_string()));
        assert_eq!(hop("10.1.0.5"), Some((0, "10.1.0.5".into())));
        assert_eq!(hop("10.1.0.200"), Some((1, "10.2.0.9".into())));
        assert_eq!(hop("10.2.9.9"), Some((1, "10.2.9.9".into())));
        assert_eq!(hop("8.8.8.8"), Some((0, "10.1.0.254".into())));
        assert_eq!(hop("fd00::9"), Some((1, "fd00::9".into())));
        assert_eq!(hop("2001:db8::1"), None);
        assert_eq!(hop("ff02::1"), Some((0, "ff02::1".into())));
        assert_eq!(hop("fe80::1"), Some((0, "fe80::1".into())));
    }
}
