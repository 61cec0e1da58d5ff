//! Router discovery and redirects (RFC 4861 sections 6.3 and 8).
//!
//! A host on a shared link solicits routers and uses their advertisements: default routes, on-link prefixes, and an MTU that is smaller
//! than the link's. Configured routes take precedence; an advertised router is used for other destinations. No addresses are made from
//! prefixes. A redirect is accepted from the current router of its destination only.
//!
//! The lane that receives a message checks it and forwards it to the other lanes, so all lanes have the same state and expire it
//! themselves. Memory is bounded and messages are rate-limited. A host on the link can claim to be a router, as it can by ARP, but it
//! cannot exhaust memory or time.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::{Inbound, Ip, LaneEvent};
use crate::address::Prefix;
use crate::packet::{Cx, IpInput};
use crate::route::{Hop, Routes};
use crate::stats::DropReason;
use crate::time::Time;
use crate::wire::MacAddr;
use crate::wire::ipv6::MIN_MTU;
use crate::wire::ndp::{MAX_PREFIXES, NdpMessage, NdpOptions};

/// Routers remembered, of all interfaces.
const ROUTERS: usize = 8;
/// Prefixes remembered.
const PREFIXES: usize = 16;
/// Redirects remembered; beyond it the oldest is forgotten.
const REDIRECTS: usize = 256;
/// For how long a redirect is followed.
const REDIRECTED: Duration = Duration::from_secs(600);
/// Questions for routers (`MAX_RTR_SOLICITATIONS`), and between two (`RTR_SOLICITATION_INTERVAL`).
const SOLICITATIONS: u8 = 3;
const INTERVAL: Duration = Duration::from_secs(4);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The content of a router advertisement, for all lanes of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterNews {
    /// Interface of the host.
    pub interface: u8,
    /// The router's link-local address.
    pub router: Ipv6Addr,
    /// Seconds for which it is a default router; 0 if it is none.
    pub lifetime: u16,
    /// The link's MTU, if included.
    pub mtu: Option<u16>,
    /// On-link prefixes, with their lifetime in seconds; all ones means infinite.
    pub prefixes: [Option<(Prefix, u32)>; MAX_PREFIXES],
    /// Prefixes under which a host may make itself an address, with its valid and its preferred lifetime, as before.
    pub autonomous: [Option<(Prefix, u32, u32)>; MAX_PREFIXES],
}

/// What a lane has learnt from routers.
#[derive(Debug)]
pub(super) struct Routers {
    routers: Vec<(u8, Ipv6Addr, Time)>,
    prefixes: Vec<(u8, Prefix, Time)>,
    redirects: HashMap<Ipv6Addr, (Hop, Time), FixedState>,
    /// Their destinations in order of age.
    ages: VecDeque<(Time, Ipv6Addr)>,
    /// By interface.
    mtus: Vec<(u8, u16)>,
    /// Interfaces on which routers are asked for: how often still, and when.
    asking: Vec<(u8, u8, Time)>,
}

impl Routers {
    /// The next hop towards `destination`: as redirected, as configured, as advertised.
    #[inline]
    pub(super) fn lead(&self, routes: &Routes, destination: IpAddr) -> Option<Hop> {
        if let Some(hop) = self.redirect(destination) {
            return Some(hop);
        }
        routes.hop(destination).or_else(|| match destination.is_unspecified() {
            true => None,
            false => self.hop(destination),
        })
    }

    /// Where packets go that no configured route leads.
    #[cold]
    fn hop(&self, destination: IpAddr) -> Option<Hop> {
        let on_link =
            self.prefixes.iter().filter(|(_, p, _)| p.contains(destination)).max_by_key(|(_, p, _)| p.len());
        if let Some((interface, ..)) = on_link {
            return Some(Hop { interface: *interface, address: destination });
        }
        let router = self.routers.first().filter(|_| destination.is_ipv6())?;
        Some(Hop { interface: router.0, address: IpAddr::V6(router.1) })
    }

    /// The better way to a destination that a router has told of.
    #[inline]
    fn redirect(&self, destination: IpAddr) -> Option<Hop> {
        let IpAddr::V6(to) = destination else { return None };
        if self.redirects.is_empty() { None } else { self.redirects.get(&to).map(|r| r.0) }
    }

    fn learn_redirect(&mut self, now: Time, destination: Ipv6Addr, hop: Hop) {
        let until = now + REDIRECTED;
        self.ages.retain(|(_, to)| *to != destination);
        if self.ages.len() >= REDIRECTS {
            if let Some((_, oldest)) = self.ages.pop_front() {
                self.redirects.remove(&oldest);
            }
        }
        self.ages.push_back((until, destination));
        self.redirects.insert(destination, (hop, until));
    }

    pub(super) fn new(seed: u64) -> Self {
        Self {
            routers: Vec::new(),
            prefixes: Vec::new(),
            redirects: HashMap::with_hasher(FixedState::with_seed(seed)),
            ages: VecDeque::new(),
            mtus: Vec::new(),
            asking: Vec::new(),
        }
    }

    /// Asks for routers on an interface from now on.
    pub(super) fn ask(&mut self, now: Time, interface: u8) {
        self.asking.retain(|a| a.0 != interface);
        self.asking.push((interface, SOLICITATIONS, now));
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        let known = self.routers.iter().map(|r| r.2).chain(self.prefixes.iter().map(|p| p.2));
        let redirects = self.ages.front().map(|r| r.0);
        known.chain(redirects).chain(self.asking.iter().map(|a| a.2)).filter(|at| *at < Time::MAX).min()
    }

    fn expire(&mut self, now: Time) {
        self.routers.retain(|r| r.2 > now);
        self.prefixes.retain(|p| p.2 > now);
        while self.ages.front().is_some_and(|r| r.0 <= now) {
            if let Some((_, to)) = self.ages.pop_front() {
                self.redirects.remove(&to);
            }
        }
    }

    fn learn(&mut self, now: Time, news: &RouterNews) {
        let interface = news.interface;
        self.asking.retain(|a| a.0 != interface);
        let at = self.routers.iter().position(|r| (r.0, r.1) == (interface, news.router));
        let until = now + Duration::from_secs(news.lifetime.into());
        match (at, news.lifetime) {
            (Some(i), 0) => {
                self.routers.remove(i);
                self.ages.clear();
                self.redirects.clear();
            }
            (Some(i), _) => self.routers[i].2 = until,
            (None, 1..) if self.routers.len() < ROUTERS => self.routers.push((interface, news.router, until)),
            (None, _) => {}
        }
        for (prefix, valid) in news.prefixes.iter().flatten() {
            let until =
                if *valid == u32::MAX { Time::MAX } else { now + Duration::from_secs((*valid).into()) };
            let known = |p: &&mut (u8, Prefix, Time)| (p.0, p.1) == (interface, *prefix);
            if let Some(known) = self.prefixes.iter_mut().find(known) {
                known.2 = until;
            } else if *valid > 0 && self.prefixes.len() < PREFIXES {
                self.prefixes.push((interface, *prefix, until));
            }
        }
        self.prefixes.retain(|p| p.2 > now);
        if let Some(mtu) = news.mtu {
            self.mtus.retain(|m| m.0 != interface);
            self.mtus.push((interface, mtu));
        }
    }
}

impl Ip {
    /// The next hop towards `destination`: as redirected, as configured, as advertised.
    #[inline]
    pub(crate) fn hop(&self, destination: IpAddr) -> Option<Hop> {
        self.routers.lead(&self.routes, destination)
    }

    /// Whether an address can be a neighbour's: of a configured network, or of an advertised one.
    pub(super) fn is_on_link(&self, link: u8, address: IpAddr) -> bool {
        self.interfaces[usize::from(link)].is_on_link(address)
            || self.routers.prefixes.iter().any(|(i, p, _)| *i == link && p.contains(address))
    }

    /// The MTU that a router names for an interface.
    #[inline]
    pub(super) fn advertised_mtu(&self, interface: u8) -> u16 {
        self.routers.mtus.iter().find(|m| m.0 == interface).map_or(u16::MAX, |m| m.1)
    }

    /// Takes in an advertisement or a redirect whose hop limit and checksum are right.
    pub(super) fn router_message(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &IpInput,
        message: &NdpMessage,
    ) -> Inbound {
        let link = packet.ip.interface;
        let followed = self.config.follow_routers && self.interfaces[usize::from(link)].announced;
        if !followed {
            return self.drop(DropReason::IcmpUnhandled);
        }
        let IpAddr::V6(router) = packet.ip.src else { return self.drop(DropReason::NdpInvalid) };
        // RFC 4861 sections 6.1.2 and 8.1.
        if !router.is_unicast_link_local() {
            return self.drop(DropReason::NdpInvalid);
        }
        if !self.limits.routers.take(cx.now) {
            return self.drop(DropReason::RouterLimited);
        }
        match *message {
            NdpMessage::RouterAdvertisement { lifetime, options, .. } => {
                self.advertised(cx, link, router, lifetime, &options)
            }
            NdpMessage::Redirect { target, destination, .. } => {
                let to = IpAddr::V6(destination);
                let direct = target == destination;
                let hop = self.hop(to).filter(|_| packet.ip.unicast);
                let from_hop = hop == Some(Hop { interface: link, address: packet.ip.src });
                if !from_hop || !(direct || target.is_unicast_link_local()) || self.is_local(to) {
                    return self.drop(DropReason::NdpInvalid);
                }
                let event = LaneEvent::Redirect { interface: link, destination, target };
                self.told_by_router(cx.now, &event);
                self.events.push_back(event);
                Inbound::Done
            }
            _ => self.drop(DropReason::IcmpUnhandled),
        }
    }

    fn advertised(
        &mut self,
        cx: &mut Cx<'_>,
        link: u8,
        router: Ipv6Addr,
        lifetime: u16,
        options: &NdpOptions,
    ) -> Inbound {
        let own = self.interfaces[usize::from(link)].config.mtu;
        let mtu = options.mtu.and_then(|mtu| u16::try_from(mtu).ok());
        let (mut prefixes, mut autonomous) = ([None; MAX_PREFIXES], [None; MAX_PREFIXES]);
        let places = prefixes.iter_mut().zip(&mut autonomous);
        for ((place, made), info) in places.zip(options.prefixes.iter().flatten()) {
            let prefix = Prefix::new(IpAddr::V6(info.prefix), info.prefix_len).map(Prefix::network);
            let plain =
                !info.prefix.is_unicast_link_local() && !info.prefix.is_multicast() && info.prefix_len > 0;
            let prefix = prefix.filter(|_| plain);
            *place = prefix.filter(|_| info.on_link).map(|p| (p, info.valid_lifetime));
            let lifetimes = (info.valid_lifetime, info.preferred_lifetime);
            *made = prefix.filter(|_| info.autonomous).map(|p| (p, lifetimes.0, lifetimes.1));
        }
        let news = RouterNews {
            interface: link,
            router,
            lifetime,
            mtu: mtu.filter(|mtu| usize::from(*mtu) >= MIN_MTU && *mtu <= own),
            prefixes,
            autonomous,
        };
        let event = LaneEvent::Router(news);
        self.told_by_router(cx.now, &event);
        self.slaac_learn(cx.now, &news, cx.rng);
        self.events.push_back(event);
        Inbound::Done
    }

    /// What this lane, or another, heard from a router.
    pub(super) fn told_by_router(&mut self, now: Time, event: &LaneEvent) {
        match *event {
            LaneEvent::Router(ref news) => self.routers.learn(now, news),
            LaneEvent::Redirect { interface, destination, target } => {
                let hop = Hop { interface, address: IpAddr::V6(target) };
                self.routers.learn_redirect(now, destination, hop);
            }
            _ => {}
        }
    }

    /// Forgets what is over, and asks for routers where none has been heard.
    pub(super) fn routers_due(&mut self, cx: &mut Cx<'_>) {
        self.routers.expire(cx.now);
        while let Some(i) = self.routers.asking.iter().position(|a| a.2 <= cx.now) {
            let (link, left, _) = self.routers.asking[i];
            self.routers.asking[i] = (link, left - 1, cx.now + INTERVAL);
            if left <= 1 {
                self.routers.asking.swap_remove(i);
            }
            let interface = &self.interfaces[usize::from(link)];
            let src = interface.link_local;
            if src.is_unspecified() {
                continue;
            }
            let options = NdpOptions { source: Some(interface.config.mac), ..NdpOptions::default() };
            let message = NdpMessage::RouterSolicitation { options };
            let to = MacAddr::for_ipv6_multicast(ALL_ROUTERS);
            self.send_ndp(cx, src, IpAddr::V6(ALL_ROUTERS), &message, Some((link, Some(to))));
        }
    }
}
