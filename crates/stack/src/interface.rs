//! Interfaces: the addresses of a host on a link.
//!
//! The configuration is the same in every lane of a host and does not change while packets flow. Which multicast
//! groups are joined does, and each lane keeps its own list.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::{AddressSet, Prefix};
use crate::packet::Offload;
use crate::wire::MacAddr;
use crate::wire::ipv6::solicited_node;

/// One interface of a host.
#[derive(Debug, Clone)]
pub struct InterfaceConfig {
    /// Our Ethernet address on it.
    pub mac: MacAddr,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Our addresses, each with the network it is on.
    pub addresses: Vec<Prefix>,
    /// Networks of which every address is ours: ARP and NDP are answered for them, packets to them taken. A load
    /// generator's clients live here.
    pub claimed: Vec<Prefix>,
    /// 802.1Q VLAN of all traffic on this interface; `None` for untagged.
    pub vlan: Option<u16>,
    /// Offloads of the link for outgoing packets.
    pub offload: Offload,
}

impl InterfaceConfig {
    /// Untagged Ethernet with packets of up to 1500 bytes, nothing left to the link, and no claimed networks.
    #[must_use]
    pub fn new(mac: MacAddr, addresses: Vec<Prefix>) -> Self {
        Self { mac, mtu: 1500, addresses, claimed: Vec::new(), vlan: None, offload: Offload::default() }
    }
}

/// Kind of an address, relative to our interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Ours alone.
    Unicast,
    /// A broadcast address of a network we are on, or the limited one.
    Broadcast,
    /// A multicast group we are in.
    Multicast,
    /// A multicast group we are not in.
    OtherGroup,
    /// The address of another host.
    Other,
}

/// An interface inside a lane.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) config: InterfaceConfig,
    /// Link-local IPv6 address made from the Ethernet address (RFC 4291 appendix A).
    pub(crate) link_local: Ipv6Addr,
    /// First configured IPv4 address: nearly every packet is for it.
    primary_v4: Option<Ipv4Addr>,
    /// The same as a number, if traffic on this interface is untagged: what the fast path compares with.
    pub(crate) fast: Option<u32>,
    /// Whether packets have an Ethernet header. Without one there is a single other host and no address resolution.
    pub(crate) ethernet: bool,
    local: AddressSet,
    broadcasts: Vec<Ipv4Addr>,
    /// Addresses that no received packet may have as its source: our own, and the broadcast addresses of our networks.
    not_sources: AddressSet,
    /// Addresses of ours that are being probed: not yet ours for good.
    pub(crate) optimistic: Vec<IpAddr>,
    /// Others are on the link, and our addresses are announced there.
    pub(crate) announced: bool,
    /// The router that a server of addresses named: it is on the link, in whichever network.
    pub(crate) router: Option<Ipv4Addr>,
    groups: hashbrown::HashSet<IpAddr, foldhash::fast::FixedState>,
}

impl Interface {
    pub(crate) fn new(config: InterfaceConfig, seed: u64) -> Self {
        let link_local = config.mac.link_local();
        let own = config.addresses.iter().map(|p| Prefix::host(p.address()));
        let local = own.chain(config.claimed.iter().copied()).chain([Prefix::host(IpAddr::V6(link_local))]);
        let primary_v4 = first_v4(&config);
        let mut this = Self {
            link_local,
            ethernet: true,
            primary_v4,
            fast: primary_v4.filter(|_| config.vlan.is_none()).map(u32::from),
            not_sources: AddressSet::default(),
            optimistic: Vec::new(),
            announced: false,
            router: None,
            local: AddressSet::new(local),
            broadcasts: config.addresses.iter().filter_map(Prefix::broadcast).collect(),
            groups: hashbrown::HashSet::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            config,
        };
        this.forbid_sources(&[]);
        this.groups.insert(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)));
        this.groups.insert(IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)));
        this
    }

    /// An interface whose packets begin with their IP header.
    pub(crate) fn without_ethernet(config: InterfaceConfig, seed: u64) -> Self {
        // The fast path knows Ethernet only.
        Self { ethernet: false, fast: None, ..Self::new(config, seed) }
    }

    /// Our addresses, one by one: those configured and the link-local one, without claimed networks.
    pub(crate) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let link_local = Some(self.link_local).filter(|a| !a.is_unspecified()).map(IpAddr::V6);
        self.config.addresses.iter().map(Prefix::address).chain(link_local)
    }

    /// Whether an address of ours is being probed still.
    #[inline]
    pub(crate) fn is_optimistic(&self, address: IpAddr) -> bool {
        self.optimistic.contains(&address)
    }

    /// An address is ours from now on, behind those that we have; again: it stands behind the others. [`Interface::forbid_sources`] has
    /// to follow.
    pub(crate) fn take_up(&mut self, prefix: Prefix, deprecated: bool) {
        let known = self.config.addresses.iter().position(|p| p.address() == prefix.address());
        match known {
            Some(at) if deprecated => {
                let known = self.config.addresses.remove(at);
                self.config.addresses.push(known);
            }
            Some(at) => self.config.addresses[at] = prefix,
            None => self.config.addresses.push(prefix),
        }
        self.addresses_changed();
    }

    /// An address is not ours any more. [`Interface::forbid_sources`] has to follow.
    pub(crate) fn give_up(&mut self, address: IpAddr) {
        self.optimistic.retain(|a| *a != address);
        self.config.addresses.retain(|p| p.address() != address);
        if address == IpAddr::V6(self.link_local) {
            self.link_local = Ipv6Addr::UNSPECIFIED;
        }
        self.addresses_changed();
    }

    /// What is known by our addresses, made anew.
    fn addresses_changed(&mut self) {
        let own = self.own_addresses().map(Prefix::host).collect::<Vec<_>>();
        self.local = AddressSet::new(own.into_iter().chain(self.config.claimed.iter().copied()));
        self.broadcasts = self.config.addresses.iter().filter_map(Prefix::broadcast).collect();
        self.primary_v4 = first_v4(&self.config);
        // The fast path knows untagged Ethernet only.
        let fast = self.primary_v4.filter(|_| self.ethernet && self.config.vlan.is_none());
        self.fast = fast.map(u32::from);
    }

    /// What `address` is to this interface.
    #[inline]
    pub(crate) fn destination(&self, address: IpAddr) -> Destination {
        match address {
            IpAddr::V4(a) => {
                if self.primary_v4 == Some(a) {
                    return Destination::Unicast;
                }
                if a.is_multicast() {
                    return self.group(address);
                }
                if a.is_broadcast() || self.broadcasts.contains(&a) {
                    return Destination::Broadcast;
                }
            }
            IpAddr::V6(a) => {
                if a.is_multicast() {
                    return self.group_v6(a);
                }
            }
        }
        if self.local.contains(address) { Destination::Unicast } else { Destination::Other }
    }

    /// Whether `address` is one of our own.
    #[inline]
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.local.contains(address)
    }

    /// Whether a packet from this IPv4 address would claim to be from us or from everybody (RFC 1122 section 3.2.1.3).
    #[inline]
    pub(crate) fn is_no_source_v4(&self, address: u32) -> bool {
        self.not_sources.contains_v4(address)
    }

    /// Directed broadcast addresses of the interface's networks.
    pub(crate) fn broadcasts(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.broadcasts.iter().copied()
    }

    /// Also takes no packets from these broadcast addresses, which are other interfaces'.
    pub(crate) fn forbid_sources(&mut self, broadcasts: &[Ipv4Addr]) {
        let all = self.broadcasts.iter().chain(broadcasts).map(|a| Prefix::host(IpAddr::V4(*a)));
        self.not_sources = self.local.with(all);
    }

    /// Whether packets to this IPv4 address are for everybody on the link.
    #[inline]
    pub(crate) fn is_broadcast_v4(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.broadcasts.contains(&address)
    }

    /// Whether `address` is on one of our networks, ours or not.
    pub(crate) fn is_on_link(&self, address: IpAddr) -> bool {
        let link_local = matches!(address, IpAddr::V6(a) if a.is_unicast_link_local());
        let router = self.router.is_some_and(|router| IpAddr::V4(router) == address);
        link_local
            || router
            || self.config.addresses.iter().chain(&self.config.claimed).any(|p| p.contains(address))
    }

    fn group(&self, address: IpAddr) -> Destination {
        if self.groups.contains(&address) { Destination::Multicast } else { Destination::OtherGroup }
    }

    /// Solicited-node groups of our addresses (RFC 4291 section 2.7.1) need no entry: the target decides.
    fn group_v6(&self, a: Ipv6Addr) -> Destination {
        let s = a.segments();
        if s[..6] == [0xff02, 0, 0, 0, 0, 1] && s[6] >> 8 == 0xff {
            return Destination::Multicast;
        }
        self.group(IpAddr::V6(a))
    }

    /// Whether we are in a group: all nodes, the solicited-node groups of our addresses (not of claimed networks), and those
    /// joined.
    pub(crate) fn is_member(&self, group: Ipv6Addr) -> bool {
        let solicits = |a: IpAddr| matches!(a, IpAddr::V6(a) if solicited_node(a) == group);
        self.groups.contains(&IpAddr::V6(group)) || self.own_addresses().any(solicits)
    }

    /// Joins a group; `false` if it was joined already.
    pub(crate) fn join(&mut self, group: IpAddr) -> bool {
        self.groups.insert(group)
    }

    /// Leaves a group; `false` if it was not joined.
    pub(crate) fn leave(&mut self, group: IpAddr) -> bool {
        self.groups.remove(&group)
    }

    /// The address to send from when the application does not say: of the destination's network, else the first of
    /// its family (RFC 6724 rules 1, 2 and 8, as far as they matter with a handful of addresses).
    pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        if let IpAddr::V6(d) = destination {
            let group_local = d.is_multicast() && d.segments()[0] & 0xf == 2;
            if d.is_unicast_link_local() || group_local {
                return Some(IpAddr::V6(self.link_local)).filter(|a| !a.is_unspecified());
            }
        }
        let family = |p: &&Prefix| p.address().is_ipv4() == destination.is_ipv4();
        let mut of_family = self.config.addresses.iter().filter(family);
        of_family
            .clone()
            .find(|p| p.contains(destination))
            .or_else(|| of_family.next())
            .map(Prefix::address)
            .or_else(|| {
                self.config.claimed.iter().find(family).and_then(|p| p.nth(u128::from(p.count() > 2)))
            })
    }
}

fn first_v4(config: &InterfaceConfig) -> Option<Ipv4Addr> {
    config.addresses.iter().find_map(|p| match p.address() {
        IpAddr::V4(a) => Some(a),
        IpAddr::V6(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        let config = InterfaceConfig {
            claimed: vec!["10.9.0.0/16".parse().unwrap()],
            ..InterfaceConfig::new(
                MacAddr([2, 0, 0, 0, 0, 1]),
                vec!["10.1.0.1/24".parse().unwrap(), "fd00::1/64".parse().unwrap()],
            )
        };
        Interface::new(config, 1)
    }

    #[test]
    fn every_kind_of_destination() {
        let mut i = interface();
        let kind = |i: &Interface, a: &str| i.destination(a.parse().unwrap());
        assert_eq!(kind(&i, "10.1.0.1"), Destination::Unicast);
        assert_eq!(kind(&i, "10.9.255.255"), Destination::Unicast, "claimed networks have no broadcast");
        assert_eq!(kind(&i, "10.1.0.255"), Destination::Broadcast);
        assert_eq!(kind(&i, "255.255.255.255"), Destination::Broadcast);
        assert_eq!(kind(&i, "10.1.0.2"), Destination::Other);
        assert_eq!(kind(&i, "224.0.0.1"), Destination::Multicast);
        assert_eq!(kind(&i, "239.1.2.3"), Destination::OtherGroup);
        assert_eq!(kind(&i, "fd00::1"), Destination::Unicast);
        assert_eq!(kind(&i, "fe80::ff:fe00:1"), Destination::Unicast);
        assert_eq!(kind(&i, "ff02::1:ff00:1"), Destination::Multicast);
        assert_eq!(kind(&i, "ff02::fb"), Destination::OtherGroup);
        assert!(i.join("239.1.2.3".parse().unwrap()));
        assert_eq!(kind(&i, "239.1.2.3"), Destination::Multicast);
        assert!(i.leave("239.1.2.3".parse().unwrap()));
        assert_eq!(kind(&i, "239.1.2.3"), Destination::OtherGroup);
    }

    #[test]
    fn sources_are_of_the_destinations_network() {
        let i = interface();
        let source = |d: &str| i.source_for(d.parse().unwrap()).map(|a| a.to_string());
        assert_eq!(source("10.1.0.7").as_deref(), Some("10.1.0.1"));
        assert_eq!(source("8.8.8.8").as_deref(), Some("10.1.0.1"));
        assert_eq!(source("2001:db8::1").as_deref(), Some("fd00::1"));
        assert_eq!(source("fe80::9").as_deref(), Some("fe80::ff:fe00:1"));
        assert_eq!(source("ff02::fb").as_deref(), Some("fe80::ff:fe00:1"));
    }
}
