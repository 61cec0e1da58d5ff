//! Duplicate address detection: probing, announcing and defending our addresses (RFC 4862 section 5.4, RFC 4429, RFC 5227).
//!
//! Service starts at once. While an address is being probed it is optimistic (RFC 4429): packets to it are accepted and requests for it
//! are answered, but without the override flag, so other hosts' entries stay. Neighbours are solicited as usual, which departs from RFC
//! 4429 section
//! 3.2. A host that has the address objects within a second after the last probe; then we stop using it, and every lane and the runtime are
//! notified. Otherwise it is announced twice, to update the caches of other hosts.
//!
//! ```text
//!   link up ──▶ probe (0 to 1 s later) ──1 s──▶ ... ──1 s──▶ announce ──1 s──▶ announce ──▶ ours
//!                  └────── somebody has it, or probes it, too ──▶ not used
//! ```
//!
//! IPv4 addresses are probed in the same way, by ARP from `0.0.0.0`. The lane of bucket 0 sends probes and announcements; every lane
//! keeps the list of optimistic addresses, since an objection may arrive in any lane. Claimed networks are not probed or announced, since
//! they can be of any size. A host that claims an address later is answered by an announcement, at most one per [`DEFEND`] in each lane.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use super::membership::OWN;
use super::{Inbound, Ip, LaneEvent};
use crate::address::Prefix;
use crate::packet::Cx;
use crate::rng::Rng;
use crate::route::Route;
use crate::stats::DropReason;
use crate::time::Time;
use crate::wire::ipv6::solicited_node;
use crate::wire::ndp::{NdpMessage, NdpOptions};
use crate::wire::{ArpOperation, ArpPacket, MacAddr};

pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The first probe is sent within this time (`MAX_RTR_SOLICITATION_DELAY`), milliseconds.
const DELAY: u32 = 1000;
/// From a probe to the next or to the end (`RETRANS_TIMER`), and between announcements.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often an address is announced (`ANNOUNCE_NUM`).
const ANNOUNCEMENTS: u8 = 2;
/// Between two defences of an address (`DEFEND_INTERVAL`).
const DEFEND: Duration = Duration::from_secs(10);
/// Solicited-node groups of claimed networks that are reported, of each network: beyond it they cannot all be.
const CLAIMED_GROUPS: u128 = 256;

/// An address on its way to being ours.
#[derive(Debug)]
struct Coming {
    interface: u8,
    address: IpAddr,
    probes: u8,
    announcements: u8,
    at: Time,
}

/// State of duplicate address detection in a lane.
#[derive(Debug, Default)]
pub(super) struct OwnAddresses {
    coming: Vec<Coming>,
    defend_at: Time,
}

impl OwnAddresses {
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.coming.iter().map(|c| c.at).min()
    }
}

impl Ip {
    /// An interface's link is up, and others are on it: see [`crate::Lane::link_up`].
    pub(crate) fn link_up(&mut self, cx: &mut Cx<'_>, index: u8) {
        let probes = self.config.dad_transmits;
        let Some(interface) = self.interfaces.get_mut(usize::from(index)).filter(|i| i.ethernet) else {
            return;
        };
        let addresses: Vec<IpAddr> = interface.own_addresses().collect();
        interface.announced = true;
        if probes > 0 {
            interface.optimistic.clone_from(&addresses);
        }
        self.given.tell(super::AddressNews::LinkUp { interface: index });
        if !self.speaks {
            return;
        }
        let now = cx.now;
        self.own.coming.retain(|c| c.interface != index);
        for address in &addresses {
            self.begin_to_probe(now, index, *address, cx.rng);
        }
        for group in self.solicited_groups(index) {
            self.membership.enter(now, index, IpAddr::V6(group), OWN);
        }
        self.membership.say_all(now, index);
    }

    /// An address is probed and announced from now on.
    pub(super) fn begin_to_probe(&mut self, now: Time, interface: u8, address: IpAddr, rng: &mut Rng) {
        let probes = self.config.dad_transmits;
        let delay = if probes > 0 { rng.below(DELAY) } else { 0 };
        let at = now + Duration::from_millis(delay.into());
        self.own.coming.push(Coming { interface, address, probes, announcements: ANNOUNCEMENTS, at });
    }

    /// The solicited-node groups of our addresses (RFC 4291 section 2.8), and of claimed networks as far as they are small.
    fn solicited_groups(&self, index: u8) -> Vec<Ipv6Addr> {
        let interface = &self.interfaces[usize::from(index)];
        let claimed = interface.config.claimed.iter().filter(|p| p.address().is_ipv6());
        let claimed = claimed.flat_map(|p| (0..p.count().min(CLAIMED_GROUPS)).filter_map(|n| p.nth(n)));
        let all = interface.own_addresses().chain(claimed);
        let mut groups: Vec<Ipv6Addr> = all
            .filter_map(|a| match a {
                IpAddr::V6(a) => Some(solicited_node(a)),
                IpAddr::V4(_) => None,
            })
            .collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Probes and announcements that are due.
    pub(super) fn own_addresses_due(&mut self, cx: &mut Cx<'_>) {
        while let Some(i) = self.own.coming.iter().position(|c| c.at <= cx.now) {
            let c = &mut self.own.coming[i];
            c.at = cx.now + INTERVAL;
            let (interface, address) = (c.interface, c.address);
            if c.probes > 0 {
                c.probes -= 1;
                self.probe(cx, interface, address);
                continue;
            }
            c.announcements -= 1;
            let (first, last) = (c.announcements + 1 == ANNOUNCEMENTS, c.announcements == 0);
            if last {
                self.own.coming.swap_remove(i);
            }
            if first {
                self.ready(interface, address);
                self.events.push_back(LaneEvent::AddressReady { interface, address });
                self.given.tell(super::AddressNews::Ready { interface, address });
                if address == IpAddr::V6(self.interfaces[usize::from(interface)].link_local) {
                    // Reports had no source before (RFC 3590 section 4).
                    self.membership.say_all(cx.now, interface);
                    if self.config.follow_routers {
                        self.routers.ask(cx.now, interface);
                        self.routers_due(cx);
                    }
                }
            }
            self.announce(cx, interface, address);
        }
    }

    /// Asks who has an address that is to be ours.
    fn probe(&mut self, cx: &mut Cx<'_>, interface: u8, address: IpAddr) {
        self.stats.arp.probes_sent += 1;
        match address {
            IpAddr::V4(target_ip) => {
                let probe = ArpPacket {
                    operation: ArpOperation::Request,
                    sender_mac: self.interfaces[usize::from(interface)].config.mac,
                    sender_ip: Ipv4Addr::UNSPECIFIED,
                    target_mac: MacAddr::ZERO,
                    target_ip,
                };
                self.send_arp(cx, interface, &probe, MacAddr::BROADCAST);
            }
            IpAddr::V6(target) => {
                let message = NdpMessage::NeighborSolicitation { target, options: NdpOptions::default() };
                let group = IpAddr::V6(solicited_node(target));
                self.send_ndp(cx, Ipv6Addr::UNSPECIFIED, group, &message, Some((interface, None)));
            }
        }
    }

    /// Tells everybody where an address of ours is (RFC 4861 section 7.2.6, RFC 5227 section 3).
    fn announce(&mut self, cx: &mut Cx<'_>, interface: u8, address: IpAddr) {
        self.stats.arp.announcements_sent += 1;
        let mac = self.interfaces[usize::from(interface)].config.mac;
        match address {
            IpAddr::V4(ip) => {
                let announcement = ArpPacket {
                    operation: ArpOperation::Request,
                    sender_mac: mac,
                    sender_ip: ip,
                    target_mac: MacAddr::ZERO,
                    target_ip: ip,
                };
                self.send_arp(cx, interface, &announcement, MacAddr::BROADCAST);
            }
            IpAddr::V6(target) => {
                let message = NdpMessage::NeighborAdvertisement {
                    router: false,
                    solicited: false,
                    overrides: true,
                    target,
                    options: NdpOptions { target: Some(mac), ..NdpOptions::default() },
                };
                self.send_ndp(cx, target, IpAddr::V6(ALL_NODES), &message, Some((interface, None)));
            }
        }
    }

    /// Another host claims or probes an address of ours.
    pub(super) fn conflict(
        &mut self,
        cx: &mut Cx<'_>,
        interface: u8,
        address: IpAddr,
        mac: MacAddr,
    ) -> Inbound {
        self.stats.arp.conflicts += 1;
        if self.interfaces[usize::from(interface)].is_optimistic(address) {
            self.duplicate(interface, address);
            self.events.push_back(LaneEvent::AddressDuplicate { interface, address, mac });
            self.given.tell(super::AddressNews::Duplicate { interface, address });
            self.slaac_duplicate(cx.now, interface, address, cx.rng);
        } else if self.interfaces[usize::from(interface)].announced
            && self.interfaces[usize::from(interface)].own_addresses().any(|a| a == address)
            && self.own.defend_at <= cx.now
        {
            self.own.defend_at = cx.now + DEFEND;
            self.announce(cx, interface, address);
        }
        self.drop(DropReason::AddressConflict)
    }

    /// An address is ours beyond doubt.
    pub(super) fn ready(&mut self, index: u8, address: IpAddr) {
        if let Some(interface) = self.interfaces.get_mut(usize::from(index)) {
            interface.optimistic.retain(|a| *a != address);
        }
    }

    /// An address is another's: it is not used any more.
    pub(super) fn duplicate(&mut self, index: u8, address: IpAddr) {
        let Some(interface) = self.interfaces.get_mut(usize::from(index)) else { return };
        let network = interface.config.addresses.iter().find(|p| p.address() == address).map(|p| p.network());
        if !interface.own_addresses().any(|a| a == address) {
            return;
        }
        interface.give_up(address);
        self.given.lose(address);
        let still = |n: &Prefix| interface.config.addresses.iter().any(|p| p.network() == *n);
        if let Some(prefix) = network.filter(|n| !still(n)) {
            self.routes.remove(&Route { prefix, gateway: None, interface: index });
        }
        self.last_hop = None;
        self.own.coming.retain(|c| (c.interface, c.address) != (index, address));
        self.forbid_all_sources();
    }

    /// No interface takes packets from its own addresses, nor from what is a broadcast address of any.
    pub(super) fn forbid_all_sources(&mut self) {
        let broadcasts: Vec<_> =
            self.interfaces.iter().flat_map(crate::interface::Interface::broadcasts).collect();
        self.interfaces.iter_mut().for_each(|interface| interface.forbid_sources(&broadcasts));
    }
}
