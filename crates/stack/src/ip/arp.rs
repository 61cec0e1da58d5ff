//! ARP input and output (RFC 826).
//!
//! Requests for all our addresses are answered, claimed networks included, whatever the sender's address, since a router may have no
//! address on our networks. The sender's own address is used if it is on our networks: an existing entry is updated, and a host that
//! requests our address gets an entry, since it is about to send. No other packet creates an entry, so other hosts cannot fill the table.
//! Answers are rate-limited.

use core::net::{IpAddr, Ipv4Addr};

use flowlane_sys::frame::Frame;

use super::{Inbound, Ip};
use crate::packet::Cx;
use crate::stats::DropReason;
use crate::wire::arp::PACKET_LEN;
use crate::wire::{ArpOperation, ArpPacket, EtherType, MacAddr};

impl Ip {
    /// Takes in a packet whose data starts at the ARP header.
    pub(super) fn arp(&mut self, cx: &mut Cx<'_>, frame: &Frame) -> Inbound {
        let (arp, _) = match ArpPacket::parse(frame.data()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.malformed(reason),
        };
        let index = frame.meta().interface;
        let interface = &self.interfaces[usize::from(index)];
        let sender = IpAddr::V4(arp.sender_ip);
        let for_us = interface.is_local(IpAddr::V4(arp.target_ip));
        match arp.operation {
            ArpOperation::Request => self.stats.arp.requests_received += 1,
            ArpOperation::Reply => self.stats.arp.replies_received += 1,
        }
        if interface.is_local(sender) {
            // Our own, brought back by the link, is nobody's claim.
            if arp.sender_mac == interface.config.mac {
                return self.drop(DropReason::AddressConflict);
            }
            return self.conflict(cx, index, sender, arp.sender_mac);
        }
        if arp.sender_ip.is_unspecified() {
            let target = IpAddr::V4(arp.target_ip);
            if interface.is_optimistic(target) {
                if arp.sender_mac == interface.config.mac {
                    return self.drop(DropReason::ArpNotForUs);
                }
                // Two probe at once: neither has it (RFC 5227 section 2.1.1).
                return self.conflict(cx, index, target, arp.sender_mac);
            }
            // A probe (RFC 5227): answered, so that the prober keeps away, but nothing is learnt.
            return match (for_us && arp.sender_mac.is_unicast(), arp.operation) {
                (true, ArpOperation::Request) => self.arp_reply(cx, index, &arp),
                _ => self.drop(DropReason::ArpNotForUs),
            };
        }
        let possible = arp.sender_mac.is_unicast()
            && arp.sender_mac != MacAddr::ZERO
            && !arp.sender_ip.is_multicast()
            && !arp.sender_ip.is_loopback()
            && !interface.is_no_source_v4(u32::from(arp.sender_ip))
            && !arp.sender_ip.is_broadcast();
        let on_link = interface.is_on_link(sender);
        if !possible {
            return self.drop(DropReason::ArpStranger);
        }
        if !for_us {
            let reason = if on_link { DropReason::ArpNotForUs } else { DropReason::ArpStranger };
            return self.drop(reason);
        }
        match (arp.operation, on_link) {
            (ArpOperation::Request, true) => {
                self.learn(cx, (index, sender), arp.sender_mac, true);
                self.arp_reply(cx, index, &arp)
            }
            // A router without an address on our networks: it gets its answer, and nothing is learnt.
            (ArpOperation::Request, false) => self.arp_reply(cx, index, &arp),
            (ArpOperation::Reply, true) => {
                self.learn(cx, (index, sender), arp.sender_mac, false);
                Inbound::Done
            }
            (ArpOperation::Reply, false) => self.drop(DropReason::ArpStranger),
        }
    }

    fn arp_reply(&mut self, cx: &mut Cx<'_>, interface: u8, request: &ArpPacket) -> Inbound {
        if !self.limits.replies.take(cx.now) {
            self.stats.arp.replies_limited += 1;
            return self.drop(DropReason::ArpLimited);
        }
        let mac = self.interfaces[usize::from(interface)].config.mac;
        let reply = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.stats.arp.replies_sent += 1;
        self.send_arp(cx, interface, &reply, request.sender_mac);
        Inbound::Done
    }

    /// Asks who has `target`: everybody, or the one who had it.
    pub(super) fn arp_request(&mut self, cx: &mut Cx<'_>, index: u8, target: Ipv4Addr, at: Option<MacAddr>) {
        let interface = &self.interfaces[usize::from(index)];
        let Some(IpAddr::V4(sender_ip)) = interface.source_for(IpAddr::V4(target)) else { return };
        let request = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: interface.config.mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip: target,
        };
        self.stats.arp.requests_sent += 1;
        self.send_arp(cx, index, &request, at.unwrap_or(MacAddr::BROADCAST));
    }

    pub(super) fn send_arp(&mut self, cx: &mut Cx<'_>, interface: u8, arp: &ArpPacket, to: MacAddr) {
        let Some(mut frame) = cx.frames.alloc() else {
            self.stats.drops.count(DropReason::NoFrame);
            return;
        };
        if let Some(bytes) = frame.push_back(PACKET_LEN) {
            arp.emit(bytes);
            self.put_typed(frame, interface, to, EtherType::ARP);
        }
    }
}
