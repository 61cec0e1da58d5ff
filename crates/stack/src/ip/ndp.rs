//! Neighbour discovery (RFC 4861): solicitations and advertisements.
//!
//! Router discovery is in [`routers`](super::routers), duplicate address detection in
//! [`addresses`](super::addresses).

use core::net::{IpAddr, Ipv6Addr};

use super::addresses::ALL_NODES;
use super::{Inbound, Ip};
use crate::packet::{Cx, IpInput, IpOutput};
use crate::stats::DropReason;
use crate::wire::ipv6::solicited_node;
use crate::wire::ndp::{NdpMessage, NdpOptions};
use crate::wire::{IpProtocol, MacAddr};

/// Hop limit of neighbour discovery: a message that was not forwarded has this value (RFC 4861 section 3.1).
const HOP_LIMIT: u8 = 255;

impl Ip {
    /// Takes in a message whose checksum is right.
    pub(super) fn ndp(&mut self, cx: &mut Cx<'_>, packet: &IpInput) -> Inbound {
        let message = match NdpMessage::parse(packet.frame.data()) {
            Ok((message, _)) => message,
            Err(reason) => return self.malformed(reason),
        };
        if packet.ip.hop_limit != HOP_LIMIT {
            return self.drop(DropReason::NdpInvalid);
        }
        let claim = matches!(message, NdpMessage::NeighborAdvertisement { .. });
        if !claim && self.interfaces[usize::from(packet.ip.interface)].is_local(packet.ip.src) {
            return self.drop(DropReason::BadSource);
        }
        match message {
            NdpMessage::NeighborSolicitation { target, options } => {
                self.solicitation(cx, packet, target, &options)
            }
            NdpMessage::NeighborAdvertisement { solicited, overrides, target, options, .. } => {
                let trusted = solicited || overrides;
                self.advertisement(cx, packet, target, &options, trusted)
            }
            NdpMessage::RouterAdvertisement { .. } | NdpMessage::Redirect { .. } => {
                self.router_message(cx, packet, &message)
            }
            NdpMessage::RouterSolicitation { .. } => self.drop(DropReason::IcmpUnhandled),
        }
    }

    /// RFC 4861 section 7.2.3 and 7.2.4.
    fn solicitation(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &IpInput,
        target: Ipv6Addr,
        options: &NdpOptions,
    ) -> Inbound {
        self.stats.arp.requests_received += 1;
        let link = packet.ip.interface;
        let probe = packet.ip.src == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        // A probe for duplicates goes to the solicited-node group and gives no address of its own.
        let group = packet.ip.dst == IpAddr::V6(solicited_node(target));
        if probe && (options.source.is_some() || !group) {
            return self.drop(DropReason::NdpInvalid);
        }
        let interface = &self.interfaces[usize::from(link)];
        if !interface.is_local(IpAddr::V6(target)) {
            return self.drop(DropReason::ArpNotForUs);
        }
        let (src, mac) = (packet.ip.src, interface.config.mac);
        let optimistic = interface.is_optimistic(IpAddr::V6(target));
        if probe && optimistic {
            if self.group_source == mac {
                return self.drop(DropReason::ArpNotForUs);
            }
            // Two probe at once: neither has it (RFC 4862 section 5.4.3).
            return self.conflict(cx, link, IpAddr::V6(target), self.group_source);
        }
        let on_link = self.is_on_link(link, src);
        let theirs = options.source.filter(|_| !probe);
        if theirs.is_some_and(|mac| !mac.is_unicast() || mac == MacAddr::ZERO) {
            return self.drop(DropReason::ArpStranger);
        }
        if !self.limits.replies.take(cx.now) {
            self.stats.arp.replies_limited += 1;
            return self.drop(DropReason::ArpLimited);
        }
        let directly = match (theirs, probe) {
            (_, true) => Some((link, None)),
            (Some(mac), false) if on_link => {
                self.learn(cx, (link, src), mac, true);
                Some((link, Some(mac)))
            }
            // Who is not on our networks gets his answer where he says he is, and nothing is learnt of him.
            (Some(mac), false) => Some((link, Some(mac))),
            (None, false) => None,
        };
        let dst = if probe { IpAddr::V6(ALL_NODES) } else { src };
        let reply = NdpMessage::NeighborAdvertisement {
            router: false,
            solicited: !probe,
            // Of an address that is only probed others may know better (RFC 4429 section 3.3).
            overrides: !optimistic,
            target,
            options: NdpOptions { target: Some(mac), ..NdpOptions::default() },
        };
        self.stats.arp.replies_sent += 1;
        self.send_ndp(cx, target, dst, &reply, directly);
        Inbound::Done
    }

    /// RFC 4861 section 7.2.5.
    fn advertisement(
        &mut self,
        cx: &mut Cx<'_>,
        packet: &IpInput,
        target: Ipv6Addr,
        options: &NdpOptions,
        trusted: bool,
    ) -> Inbound {
        self.stats.arp.replies_received += 1;
        let link = packet.ip.interface;
        let interface = &self.interfaces[usize::from(link)];
        if interface.is_local(IpAddr::V6(target)) {
            let theirs = options.target.unwrap_or(self.group_source);
            if theirs == interface.config.mac {
                return self.drop(DropReason::AddressConflict);
            }
            return self.conflict(cx, link, IpAddr::V6(target), theirs);
        }
        let on_link = self.is_on_link(link, IpAddr::V6(target));
        match options.target {
            Some(mac) if trusted && mac.is_unicast() && on_link => {
                self.learn(cx, (link, IpAddr::V6(target)), mac, false);
                Inbound::Done
            }
            _ => self.drop(DropReason::NdpInvalid),
        }
    }

    /// Asks who has `target`: its solicited-node group, or the one who had it. He is asked by the group's address, too, in a frame to him
    /// alone (RFC 6085): asked by his own he may leave his Ethernet address out (RFC 4861 section 7.2.4), as Linux does, and the lane that
    /// gets the answer may not know it.
    pub(super) fn solicit(&mut self, cx: &mut Cx<'_>, link: u8, target: Ipv6Addr, at: Option<MacAddr>) {
        let interface = &self.interfaces[usize::from(link)];
        let Some(IpAddr::V6(src)) = interface.source_for(IpAddr::V6(target)) else { return };
        // With our Ethernet address also while `src` is being probed, which RFC 4429 section 3.2 forbids: Linux does not answer
        // who leaves it out (RFC 4861 section 4.3), and every outgoing packet would wait for the end of the probes.
        let options = NdpOptions { source: Some(interface.config.mac), ..NdpOptions::default() };
        // Guard: `solicited_node(target)` as `target` fails lane/groups::a_neighbour_is_asked_again
        let dst = solicited_node(target);
        self.stats.arp.requests_sent += 1;
        let message = NdpMessage::NeighborSolicitation { target, options };
        self.send_ndp(cx, src, IpAddr::V6(dst), &message, Some((link, at)));
    }

    /// Sends a message; `directly` on a link to an Ethernet address without asking for it.
    pub(super) fn send_ndp(
        &mut self,
        cx: &mut Cx<'_>,
        src: Ipv6Addr,
        dst: IpAddr,
        message: &NdpMessage,
        directly: Option<(u8, Option<MacAddr>)>,
    ) {
        let IpAddr::V6(to) = dst else { return };
        let Some(mut frame) = cx.frames.alloc() else {
            self.stats.drops.count(DropReason::NoFrame);
            return;
        };
        let Some(bytes) = frame.push_back(message.len()) else { return };
        message.emit(src, to, bytes);
        let out = IpOutput {
            frame,
            src: IpAddr::V6(src),
            dst,
            protocol: IpProtocol::ICMPV6.0,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            dont_fragment: true,
        };
        match directly {
            // Asking the next hop's address for its own address would go round in circles.
            Some((link, Some(mac))) => self.send_directly(out, link, mac),
            Some((link, None)) => self.send_directly(out, link, MacAddr::for_ipv6_multicast(to)),
            None => {
                // Counted where it fails; an answer that is lost is asked for again.
                let _ = self.send(cx, out);
            }
        }
    }
}
