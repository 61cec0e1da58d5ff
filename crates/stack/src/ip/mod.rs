//! The IP layer of a lane, both families, with what lies below it: Ethernet, ARP and neighbour discovery.
//!
//! ```text
//!   in:   ethernet ▸ arp | v4 | v6 ▸ transport           (lane.rs calls the steps)
//!   out:  transport ▸ route ▸ header ▸ neighbour ▸ ethernet ▸ output queue
//! ```
//!
//! All output of a lane passes [`Ip::send`] and waits in a bounded queue of its interface until the worker pulls it.

mod addresses;
mod arp;
mod chained;
mod config;
mod dhcp;
mod ethernet;
mod fragment_input;
mod fragment_output;
mod given;
mod icmp;
mod icmp_v4;
mod icmp_v6;
mod limit;
mod line;
mod membership;
mod mtu;
mod multicast;
mod ndp;
mod next_hop;
mod output;
mod queues;
mod routers;
mod slaac;
mod tunnel_input;
mod tunnel_output;
mod v4;
mod v6;

pub use config::{IpConfig, Slaac};
pub use given::AddressNews;
pub use output::SendError;
pub use routers::RouterNews;

pub(crate) use fragment_output::longest_payload;
pub(crate) use line::Line;
pub(crate) use next_hop::NextHop;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::collections::VecDeque;

use flowlane_sys::frame::Frame;

use crate::address::Prefix;
use crate::interface::{Interface, InterfaceConfig};
use crate::neighbour::{Ask, Neighbours};
use crate::packet::{Cx, IpInput};
use crate::reassembly::{Reassembly, ReassemblyConfig};
use crate::rng::Rng;
use crate::route::{Route, Routes};
use crate::stats::{DropReason, LaneStats};
use crate::time::Time;
use crate::tunnel::{TunnelConfig, Tunnels};
use crate::wire::{MacAddr, Malformed};

use fragment_output::Identify;
use limit::Limit;

/// Frames in the output queue of an interface.
const OUTPUT: usize = 2048;
/// More of them for requests to neighbours, ICMP, and segments that have their turn, when datagrams have filled it.
const RESERVE: usize = 64;
/// Messages of routers believed, a second and lane.
const ROUTER_MESSAGES: u32 = 20;
/// Neighbours' answers passed on to the other lanes, a second and lane.
const ANSWERS: u32 = 1000;

/// A message from a lane to the host's other lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaneEvent {
    /// A neighbour's Ethernet address.
    Neighbour {
        /// Interface of the host.
        interface: u8,
        /// The neighbour.
        address: IpAddr,
        /// Its Ethernet address.
        mac: MacAddr,
        /// Whether to create an entry: the neighbour requested our address. Otherwise it answered a request, and only the lane that sent
        /// it needs the entry.
        create: bool,
    },
    /// A socket of a lane joined a multicast group, or left it: for the lane that speaks for the host.
    Group {
        /// Interface of the host.
        interface: u8,
        /// The group.
        group: IpAddr,
        /// Bucket of the lane.
        bucket: u16,
        /// Joined; left otherwise.
        joined: bool,
    },
    /// An address of ours has been probed, and no other host has it.
    AddressReady {
        /// Interface of the host.
        interface: u8,
        /// The address.
        address: IpAddr,
    },
    /// Another host has an address of ours: it is no longer used.
    AddressDuplicate {
        /// Interface of the host.
        interface: u8,
        /// The address.
        address: IpAddr,
        /// Whose it is.
        mac: MacAddr,
    },
    /// The host has an address more, or one that is used less gladly from now on.
    AddressGiven {
        /// Interface of the host.
        interface: u8,
        /// The address with its network.
        prefix: Prefix,
        /// Whether other addresses are preferred as a source (RFC 4862 section 5.5.4).
        deprecated: bool,
        /// When it ends, unless it is renewed; `Time::MAX` for never.
        until: Time,
    },
    /// The host does not have an address any more: what used it ends.
    AddressTaken {
        /// Interface of the host.
        interface: u8,
        /// The address.
        address: IpAddr,
    },
    /// The default router of IPv4 on an interface that has been given its address; `None`: it has none.
    RouterGiven {
        /// Interface of the host.
        interface: u8,
        /// The router.
        router: Option<Ipv4Addr>,
    },
    /// Longest packet of IPv4 on the link of an interface, as its server of addresses has it.
    LinkMtu {
        /// Interface of the host.
        interface: u8,
        /// Bytes.
        mtu: u16,
    },
    /// A router has advertised itself.
    Router(RouterNews),
    /// A router knows a better first hop than itself.
    Redirect {
        /// Interface of the host.
        interface: u8,
        /// For packets to this destination.
        destination: Ipv6Addr,
        /// The better first hop; the destination itself if that is on the link.
        target: Ipv6Addr,
    },
    /// The way to a host is narrower than the link it begins on.
    PathMtu {
        /// The host.
        to: IpAddr,
        /// Longest packet, bytes.
        mtu: u16,
    },
}

/// The rest of a frame after Ethernet and IP.
#[derive(Debug)]
pub(crate) enum Inbound {
    /// Answered, delivered or dropped.
    Done,
    /// For a transport of ours.
    Transport(IpInput),
    /// A reassembled packet, its data from the IP header on: to be steered again, and then taken in as it is.
    Whole(Frame),
    /// The inner packet of a tunnel, from the inner Ethernet header on if `ethernet`, else from the inner IP header: to be steered by its
    /// own flow.
    Inner { frame: Frame, ethernet: bool },
    /// For the lane that speaks for the host.
    Speaker(IpInput),
    /// An error about a packet that one of our transports sent, with the message that brought it.
    Error(crate::packet::IcmpError, IpInput),
}

/// What is limited, each in events a second.
#[derive(Debug)]
struct Limits {
    /// ICMP errors sent.
    errors: Limit,
    /// Echo requests answered.
    echoes: Limit,
    /// Answers of neighbours passed on to other lanes.
    answers: Limit,
    /// Questions for neighbours that are not known.
    requests: Limit,
    /// Answers to questions for us.
    replies: Limit,
    /// Advertisements and redirects.
    routers: Limit,
    /// Queries for groups.
    queries: Limit,
    /// Answers to those.
    reports: Limit,
}

impl Limits {
    fn new(config: &IpConfig) -> Self {
        let a_second = |rate| Limit::new(rate, Duration::from_secs(1));
        Self {
            errors: a_second(config.icmp_errors_per_second),
            echoes: a_second(config.echo_replies_per_second),
            answers: a_second(ANSWERS),
            requests: a_second(config.neighbour_requests_per_second),
            replies: a_second(config.neighbour_replies_per_second),
            routers: a_second(ROUTER_MESSAGES),
            queries: a_second(config.group_reports_per_second),
            reports: a_second(config.group_reports_per_second),
        }
    }
}

/// The IP layer of one lane.
#[derive(Debug)]
pub(crate) struct Ip {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) stats: LaneStats,
    pub(crate) reassembly: Reassembly,
    pub(crate) tunnels: Tunnels,
    identify: Identify,
    /// Used while a packet is cut into fragments.
    pieces: Vec<Frame>,
    output: queues::Queues,
    /// The next hop used last, for the fast path out.
    pub(crate) last_hop: Option<NextHop>,
    events: VecDeque<LaneEvent>,
    limits: Limits,
    config: IpConfig,
    /// The lane's bucket.
    bucket: u16,
    /// This lane speaks for the host where one must: it probes, announces and reports.
    speaks: bool,
    membership: membership::Membership,
    own: addresses::OwnAddresses,
    routers: routers::Routers,
    given: given::Given,
    dhcp: dhcp::Waiting,
    slaac: slaac::Autoconf,
    /// Who sent the last frame to a group.
    group_source: MacAddr,
}

impl Ip {
    pub(crate) fn new(
        links: &[InterfaceConfig],
        tunnels: &[TunnelConfig],
        routes: &[Route],
        reassembly: ReassemblyConfig,
        config: &IpConfig,
        bucket: u16,
        seeds: [u64; 2],
    ) -> Self {
        let (tunnels, inner) = Tunnels::new(links, tunnels, routes);
        let configs: Vec<_> = links.iter().cloned().chain(inner).collect();
        let interface = |(i, config): (usize, &InterfaceConfig)| match tunnels.carries_ethernet(i) {
            true => Interface::new(config.clone(), seeds[0]),
            false => Interface::without_ethernet(config.clone(), seeds[0]),
        };
        let mut interfaces: Vec<Interface> = configs.iter().enumerate().map(interface).collect();
        let broadcasts: Vec<_> = interfaces.iter().flat_map(Interface::broadcasts).collect();
        for interface in &mut interfaces {
            interface.forbid_sources(&broadcasts);
        }
        Self {
            routes: Routes::new(&configs, routes),
            interfaces,
            tunnels,
            neighbours: Neighbours::new(seeds[1]),
            stats: LaneStats::default(),
            reassembly: Reassembly::new(reassembly, seeds[1].rotate_left(17)),
            identify: Identify::new(seeds),
            pieces: Vec::new(),
            output: queues::Queues::new(configs.len()),
            last_hop: None,
            events: VecDeque::new(),
            limits: Limits::new(config),
            config: *config,
            bucket,
            speaks: bucket == 0,
            membership: membership::Membership::default(),
            own: addresses::OwnAddresses::default(),
            routers: routers::Routers::new(seeds[1].rotate_left(29)),
            given: given::Given::default(),
            dhcp: dhcp::Waiting::default(),
            slaac: slaac::Autoconf::default(),
            group_source: MacAddr::ZERO,
        }
    }

    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) -> Inbound {
        self.stats.drops.count(reason);
        Inbound::Done
    }

    #[inline]
    pub(crate) fn malformed(&mut self, reason: Malformed) -> Inbound {
        self.stats.drops.count_malformed(reason);
        Inbound::Done
    }

    pub(crate) fn poll_event(&mut self) -> Option<LaneEvent> {
        self.events.pop_front()
    }

    /// Takes in a neighbour that was seen on the link. An answer comes to the lane of its own flow, if it has one, or
    /// to bucket 0; whichever lane asked learns of it from here.
    pub(crate) fn learn(&mut self, cx: &mut Cx<'_>, at: (u8, IpAddr), mac: MacAddr, create: bool) {
        let news = self.take_neighbour(cx.now, at, mac, create, cx.rng);
        // An answer that is no news here is news to the lane that asked. Limited, since anyone may send answers
        // without end.
        let share = news || (!create && self.limits.answers.take(cx.now));
        if share && self.events.len() < 64 {
            self.events.push_back(LaneEvent::Neighbour { interface: at.0, address: at.1, mac, create });
        }
    }

    /// Takes in a neighbour that another lane tells of.
    pub(crate) fn told(&mut self, now: Time, event: LaneEvent, rng: &mut Rng) {
        match event {
            LaneEvent::Neighbour { interface, address, mac, create } => {
                self.take_neighbour(now, (interface, address), mac, create, rng);
            }
            LaneEvent::Group { .. } => self.told_group(now, event),
            LaneEvent::AddressReady { interface, address } => {
                self.ready(interface, address);
                self.given.tell(AddressNews::Ready { interface, address });
            }
            LaneEvent::AddressDuplicate { interface, address, .. } => {
                self.duplicate(interface, address);
                self.given.tell(AddressNews::Duplicate { interface, address });
                self.slaac_duplicate(now, interface, address, rng);
            }
            LaneEvent::AddressGiven { interface, prefix, deprecated, .. } => {
                self.put_address(interface, prefix, deprecated);
            }
            LaneEvent::AddressTaken { interface, address } => {
                self.duplicate(interface, address);
            }
            LaneEvent::RouterGiven { interface, router } => self.put_router(interface, router),
            LaneEvent::LinkMtu { interface, mtu } => self.limit_mtu(interface, mtu),
            LaneEvent::Router(ref news) => {
                self.told_by_router(now, &event);
                self.slaac_learn(now, news, rng);
            }
            LaneEvent::Redirect { .. } => self.told_by_router(now, &event),
            // The lane takes it in: all its transports share what is known of paths.
            LaneEvent::PathMtu { .. } => {}
        }
    }

    fn take_neighbour(
        &mut self,
        now: Time,
        at: (u8, IpAddr),
        mac: MacAddr,
        create: bool,
        rng: &mut Rng,
    ) -> bool {
        self.last_hop = None;
        let (news, waiting) = self.neighbours.learn(now, at, mac, create, rng, &mut self.stats.arp);
        for frame in waiting {
            self.put_ethernet(frame, at.0, mac);
        }
        news
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let all = [
            self.neighbours.next_deadline(),
            self.reassembly.next_deadline(),
            self.membership.next_deadline(),
            self.own.next_deadline(),
            self.routers.next_deadline(),
            self.slaac.next_deadline(),
        ];
        all.into_iter().flatten().min()
    }

    /// Repeats requests for neighbours that did not answer, and gives up on them and on datagrams whose fragments did
    /// not all come.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.reassembly_timeouts(cx);
        self.own_addresses_due(cx);
        self.routers_due(cx);
        self.slaac_due(cx);
        self.groups_due(cx);
        while let Some(due) = self.neighbours.due(cx.now, &mut self.stats.arp) {
            match due {
                Ok(ask) => self.ask(cx, ask),
                Err(given_up) => {
                    for _ in given_up {
                        self.stats.drops.count(DropReason::NoNeighbour);
                    }
                }
            }
        }
    }

    /// Asks the link who has an address.
    fn ask(&mut self, cx: &mut Cx<'_>, ask: Ask) {
        // Who answered before is asked again by itself, and a router leads to many; both are few.
        let limited = ask.at.is_none() && !self.routes.is_gateway(ask.interface, ask.address);
        if limited && !self.limits.requests.take(cx.now) {
            self.stats.arp.requests_limited += 1;
            return;
        }
        match ask.address {
            IpAddr::V4(target) => self.arp_request(cx, ask.interface, target, ask.at),
            IpAddr::V6(target) => self.solicit(cx, ask.interface, target, ask.at),
        }
    }
}
