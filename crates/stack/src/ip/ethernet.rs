//! Ethernet: the first header of input and the last of output.

use core::net::IpAddr;

use flowlane_sys::frame::Frame;

use super::{Inbound, Ip, OUTPUT, RESERVE};
use crate::interface::Destination;
use crate::packet::Cx;
use crate::stats::DropReason;
use crate::wire::{EtherType, EthernetHeader, MacAddr, VlanTag};

/// The VLAN identifier within a tag.
const VID: u16 = 0x0fff;

/// The VLAN that a frame came from; `None` for one that came from no network an interface can be on: it has two tags, or one of
/// 802.1ad. A tag is in the packet, or beside it (`beside`) when the link took the outermost off. Priority tags (VID 0) count as
/// untagged.
#[inline]
fn vlan(header: &EthernetHeader, beside: Option<u16>) -> Option<Option<u16>> {
    let id = |tci: u16| Some(tci & VID).filter(|vid| *vid != 0);
    let Some(tag) = header.vlan else { return Some(beside.and_then(id)) };
    let only = beside.and_then(id).is_none() && tag.tpid == EtherType::VLAN && !header.ethertype.is_tag();
    only.then(|| id(tag.tci))
}

impl Ip {
    /// Takes in a frame whose data starts at the Ethernet header.
    #[inline]
    pub(crate) fn input(&mut self, cx: &mut Cx<'_>, mut frame: Frame) -> Inbound {
        self.stats.ethernet.received += 1;
        self.stats.ethernet.received_bytes += frame.chain_len() as u64;
        let (header, payload) = match EthernetHeader::parse(frame.data()) {
            Ok(parsed) => parsed,
            Err(reason) => return self.malformed(reason),
        };
        if header.dst.is_multicast() {
            self.group_source = header.src;
        }
        let index = usize::from(frame.meta().interface);
        let Some(interface) = self.interfaces.get(index) else {
            return self.drop(DropReason::OtherHost);
        };
        if header.dst != interface.config.mac && !header.dst.is_multicast() {
            self.stats.ethernet.other_host += 1;
            return self.drop(DropReason::OtherHost);
        }
        if vlan(&header, frame.meta().vlan) != Some(interface.config.vlan) {
            return self.drop(DropReason::VlanMismatch);
        }
        // The header was parsed from these bytes, so they are there.
        let _ = frame.trim_front(payload.start);
        match header.ethertype {
            EtherType::IPV4 => self.v4(cx, frame, header.dst),
            EtherType::IPV6 => self.v6(cx, frame, header.dst),
            EtherType::ARP => self.arp(cx, &frame),
            _ => {
                self.stats.ethernet.unknown_type += 1;
                self.drop(DropReason::UnknownEtherType)
            }
        }
    }

    /// Takes in a packet of a tunnel whose data starts at the IP header.
    pub(crate) fn input_ip(&mut self, cx: &mut Cx<'_>, frame: Frame) -> Inbound {
        let Some(interface) = self.interfaces.get(usize::from(frame.meta().interface)) else {
            return self.drop(DropReason::OtherHost);
        };
        // As if it came to us alone.
        let to = interface.config.mac;
        match frame.data().first().map(|b| b >> 4) {
            Some(4) => self.v4(cx, frame, to),
            _ => self.v6(cx, frame, to),
        }
    }

    /// Takes in a frame whose Ethernet header another lane has checked and taken off.
    pub(crate) fn input_direct(&mut self, cx: &mut Cx<'_>, frame: Frame) -> Inbound {
        if usize::from(frame.meta().interface) >= self.interfaces.len() {
            return self.drop(DropReason::OtherHost);
        }
        match frame.data().first().map(|b| b >> 4) {
            Some(4) => self.direct_v4(cx, frame),
            _ => self.direct_v6(cx, frame),
        }
    }

    /// Puts the Ethernet header in front of an IP packet for `dst` and the frame into the output queue.
    #[inline]
    pub(super) fn put_ethernet(&mut self, frame: Frame, interface: u8, dst: MacAddr) {
        let ethertype = match frame.data().first().map(|b| b >> 4) {
            Some(4) => EtherType::IPV4,
            _ => EtherType::IPV6,
        };
        self.put_typed(frame, interface, dst, ethertype);
    }

    /// As `put_ethernet`, for any type of payload.
    #[inline]
    pub(super) fn put_typed(&mut self, mut frame: Frame, interface: u8, dst: MacAddr, ethertype: EtherType) {
        if !self.interfaces[usize::from(interface)].ethernet {
            frame.meta_mut().interface = interface;
            return self.queue(frame);
        }
        let config = &self.interfaces[usize::from(interface)].config;
        let header = EthernetHeader { dst, src: config.mac, ethertype, vlan: config.vlan.map(VlanTag::new) };
        let meta = frame.meta_mut();
        meta.interface = interface;
        meta.vlan = None;
        let Some(bytes) = frame.push_front(header.header_len()) else {
            self.stats.drops.count(DropReason::NoHeadroom);
            return;
        };
        header.emit(bytes);
        self.queue(frame);
    }

    #[inline]
    pub(crate) fn queue(&mut self, frame: Frame) {
        if self.output_len_of(frame.meta().interface) >= OUTPUT + RESERVE {
            self.stats.drops.count(DropReason::OutputFull);
            return;
        }
        self.stats.ethernet.sent += 1;
        self.stats.ethernet.sent_bytes += frame.chain_len() as u64;
        self.output.push(frame);
    }

    /// What an IP destination is to the interface it came in on, dropping what is not for us.
    #[inline]
    pub(super) fn for_us(
        &mut self,
        interface: u8,
        dst: IpAddr,
        link_dst: MacAddr,
    ) -> Result<bool, DropReason> {
        match self.interfaces[usize::from(interface)].destination(dst) {
            // A packet for one of us in a frame for all would let a broadcast storm answer itself (RFC 1122 3.3.6).
            Destination::Unicast if link_dst.is_multicast() => Err(DropReason::NotOurAddress),
            Destination::Unicast => Ok(true),
            Destination::Broadcast | Destination::Multicast => Ok(false),
            Destination::OtherGroup => Err(DropReason::NoGroup),
            Destination::Other => Err(DropReason::NotOurAddress),
        }
    }
}
