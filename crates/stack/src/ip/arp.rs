//! ARP input and output (RFC 826).
//!
//! Every address of ours is answered for, claimed networks included. What others say of themselves is believed when
//! they are on our networks: existing entries follow it, and whoever asks for us gets an entry, since he is about to
//! send. Nothing else makes an entry, so strangers cannot fill the table.

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
        let link = frame.meta().link;
        let interface = &self.interfaces[usize::from(link)];
        let sender = IpAddr::V4(arp.sender_ip);
        let for_us = interface.is_local(IpAddr::V4(arp.target_ip));
        match arp.operation {
            ArpOperation::Request => self.stats.arp.requests_received += 1,
            ArpOperation::Reply => self.stats.arp.replies_received += 1,
        }
        if interface.is_local(sender) {
            self.stats.arp.conflicts += 1;
            return self.drop(DropReason::AddressConflict);
        }
        if arp.sender_ip.is_unspecified() {
            // A probe (RFC 5227): answered, so that the prober keeps away, but nothing is learnt.
            if for_us && arp.operation == ArpOperation::Request {
                self.arp_reply(cx, link, &arp);
            }
            return Inbound::Done;
        }
        let believable = interface.is_on_link(sender)
            && arp.sender_mac.is_unicast()
            && arp.sender_mac != MacAddr::ZERO
            && !arp.sender_ip.is_multicast();
        if !believable {
            return self.drop(DropReason::ArpStranger);
        }
        let create = for_us && arp.operation == ArpOperation::Request;
        if for_us {
            self.learn(cx, (link, sender), arp.sender_mac, create);
        }
        match (for_us, arp.operation) {
            (true, ArpOperation::Request) => self.arp_reply(cx, link, &arp),
            (true, ArpOperation::Reply) => {}
            (false, _) => return self.drop(DropReason::ArpNotForUs),
        }
        Inbound::Done
    }

    fn arp_reply(&mut self, cx: &mut Cx<'_>, link: u8, request: &ArpPacket) {
        let mac = self.interfaces[usize::from(link)].config.mac;
        let reply = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        };
        self.stats.arp.replies_sent += 1;
        self.send_arp(cx, link, &reply, request.sender_mac);
    }

    /// Asks who has `target`: everybody, or the one who had it.
    pub(super) fn arp_request(&mut self, cx: &mut Cx<'_>, link: u8, target: Ipv4Addr, at: Option<MacAddr>) {
        let interface = &self.interfaces[usize::from(link)];
        let Some(IpAddr::V4(sender_ip)) = interface.source_for(IpAddr::V4(target)) else { return };
        let request = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: interface.config.mac,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip: target,
        };
        self.stats.arp.requests_sent += 1;
        self.send_arp(cx, link, &request, at.unwrap_or(MacAddr::BROADCAST));
    }

    fn send_arp(&mut self, cx: &mut Cx<'_>, link: u8, arp: &ArpPacket, to: MacAddr) {
        let Some(mut frame) = cx.frames.alloc() else {
            self.stats.drops.count(DropReason::NoFrame);
            return;
        };
        if let Some(bytes) = frame.push_back(PACKET_LEN) {
            arp.emit(bytes);
            self.put_typed(frame, link, to, EtherType::ARP);
        }
    }
}
