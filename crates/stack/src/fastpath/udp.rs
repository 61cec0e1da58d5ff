//! The fast path through the lane for nearly all datagrams: an untagged, unfragmented UDP datagram over IPv4 without options, in one frame,
//! for an address and a socket of ours, with correct checksums.
//!
//! One check of the first 42 bytes finds whether a frame is of that kind. Any other frame takes the slow path unchanged. Drops, counters
//! and answers are the same on both paths. On output the three headers are written at once if the next hop is the one used last.

use core::net::{IpAddr, Ipv4Addr};

use flowlane_sys::frame::{Checksum, Frame};

use crate::address::Endpoint;
use crate::ip::Ip;
use crate::packet::Offload;
use crate::path_mtu::PathMtus;
use crate::time::Time;
use crate::udp::{Datagram, Udp, UdpHandle};
use crate::wire::udp::{intact, nonzero};
use crate::wire::{IpProtocol, Sum};

/// Ethernet, IPv4 without options, UDP.
const HEADERS: usize = 14 + 20 + 8;
#[inline(always)]
fn be16(h: &[u8; HEADERS], at: usize) -> u16 {
    u16::from_be_bytes([h[at], h[at + 1]])
}

#[inline(always)]
fn be32(h: &[u8; HEADERS], at: usize) -> u32 {
    u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
}

/// The pieces of a lane that datagrams of the usual kind pass.
pub(crate) struct Datagrams<'a> {
    pub(crate) ip: &'a mut Ip,
    pub(crate) udp: &'a mut Udp,
    pub(crate) paths: &'a PathMtus,
    pub(crate) offload: Offload,
}

impl Datagrams<'_> {
    /// Delivers a datagram of the usual kind; gives any other frame back.
    #[inline]
    pub(crate) fn fast_input(self, mut frame: Frame) -> Result<(), Frame> {
        let meta = frame.meta();
        let link = meta.interface;
        let plain = meta.vlan.is_none() && !frame.is_chained();
        let trusted = meta.checksum != Checksum::InPacket;
        let len = frame.len();
        let (Some(interface), Some(h)) =
            (self.ip.interfaces.get(usize::from(link)), frame.data().first_chunk::<HEADERS>())
        else {
            return Err(frame);
        };
        let (total, udp_len) = (usize::from(be16(h, 16)), usize::from(be16(h, 38)));
        let (src, dst) = (be32(h, 26), be32(h, 30));
        let usual = plain
            && h[0..6] == interface.config.mac.0
            && be32(h, 12) >> 8 == 0x08_0045
            && be16(h, 20) & 0x3fff == 0
            && h[23] == IpProtocol::UDP.0
            && interface.fast == Some(dst)
            && total + 14 == len
            && udp_len + 20 == total
            && udp_len >= 8
            && be16(h, 40) != 0
            && (1..224).contains(&h[26])
            && h[26] != 127
            && (self.ip.tunnels.is_empty()
                || !self.ip.tunnels.takes_port(be16(h, 36), IpAddr::V4(dst.into())))
            && !interface.is_no_source_v4(src);
        if !usual {
            return Err(frame);
        }
        let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
        let (sport, dport) = (be16(h, 34), be16(h, 36));
        let mut ip = [0; 20];
        ip.copy_from_slice(&h[14..34]);
        let sound = Sum::EMPTY.add_header(&ip).is_intact()
            && (trusted
                || intact(Sum::pseudo_v4(src, dst, IpProtocol::UDP, udp_len as u16), &frame.data()[34..]));
        let slot = if sound { self.udp.lookup_v4(dst, dport, src, sport) } else { None };
        let Some(slot) = slot.filter(|slot| self.udp.takes(*slot)) else { return Err(frame) };
        let stats = &mut self.ip.stats;
        stats.ethernet.received += 1;
        stats.ethernet.received_bytes += len as u64;
        stats.ip.received += 1;
        stats.ip.delivered += 1;
        stats.udp.received += 1;
        let traffic_class = ip[1];
        // The headers were read from these bytes.
        let _ = frame.trim_front(HEADERS);
        let datagram = Datagram {
            frame,
            source: Endpoint::new(IpAddr::V4(src), sport),
            destination: Endpoint::new(IpAddr::V4(dst), dport),
            traffic_class,
            interface: link,
        };
        self.udp.deliver(slot, datagram, stats);
        Ok(())
    }

    /// Answers a datagram in its own frame over the next hop used last; gives it back if that does not fit.
    #[inline]
    pub(crate) fn fast_reply(self, now: Time, handle: UdpHandle, datagram: Datagram) -> Result<(), Datagram> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (datagram.destination.ip, datagram.source.ip) else {
            return Err(datagram);
        };
        let (sport, dport) = (datagram.destination.port, datagram.source.port);
        let ends = (src, sport, dst, dport);
        let Datagram { frame, source, destination, traffic_class, interface } = datagram;
        let Datagrams { ip, udp, paths, offload } = self;
        let out = Datagrams { ip: &mut *ip, udp, paths, offload };
        match out.fast_output(now, handle, frame, ends) {
            Ok(()) => {
                ip.stats.udp.sent_on_original += 1;
                Ok(())
            }
            Err(frame) => Err(Datagram { frame, source, destination, traffic_class, interface }),
        }
    }

    /// Sends a payload over the next hop used last; gives it back if that is another, or anything else is unusual.
    #[inline]
    pub(crate) fn fast_output(
        self,
        now: Time,
        handle: UdpHandle,
        mut frame: Frame,
        (src, sport, dst, dport): (Ipv4Addr, u16, Ipv4Addr, u16),
    ) -> Result<(), Frame> {
        let Some(hop) = self.ip.last_hop.filter(|hop| hop.is_granted(now)) else { return Err(frame) };
        let interface = &self.ip.interfaces[usize::from(hop.interface)];
        let len = frame.len();
        let total = len + 28;
        let usual = interface.fast == Some(u32::from(src))
            && self.ip.routes.leads_to(dst, hop.interface, hop.address)
            && total <= usize::from(interface.config.mtu)
            && !frame.is_chained()
            && self.ip.has_room(hop.interface)
            && (self.paths.is_empty() || self.paths.get(dst.into()).is_none())
            && self.udp.is_open(handle);
        if !usual {
            return Err(frame);
        }
        let udp_len = (len + 8) as u16;
        let pseudo = Sum::pseudo_v4(src, dst, IpProtocol::UDP, udp_len);
        let (checksum, state) = if self.offload.checksum {
            (pseudo.fold(), Checksum::Partial)
        } else {
            let ports = u32::from(sport) << 16 | u32::from(dport);
            let sum = pseudo.add_u32(ports).add_u16(udp_len).add_bytes(frame.data());
            (nonzero(sum.finish()), Checksum::InPacket)
        };
        let from = interface.config.mac;
        let meta = frame.meta_mut();
        meta.interface = hop.interface;
        meta.vlan = None;
        meta.checksum = state;
        let Some(room) = frame.push_front(HEADERS).and_then(|b| b.first_chunk_mut::<HEADERS>()) else {
            return Err(frame);
        };
        room[0..6].copy_from_slice(&hop.mac.0);
        room[6..12].copy_from_slice(&from.0);
        room[12..34].copy_from_slice(&ipv4(total as u16, src, dst));
        room[34..36].copy_from_slice(&sport.to_be_bytes());
        room[36..38].copy_from_slice(&dport.to_be_bytes());
        room[38..40].copy_from_slice(&udp_len.to_be_bytes());
        room[40..42].copy_from_slice(&checksum.to_be_bytes());
        self.udp.count_sent(handle);
        let stats = &mut self.ip.stats;
        stats.udp.sent += 1;
        stats.ip.sent += 1;
        self.ip.queue(frame);
        Ok(())
    }
}

/// EtherType and IPv4 header of a datagram that is never fragmented (so without identifier, RFC 6864), TTL 64.
#[inline(always)]
fn ipv4(total: u16, src: Ipv4Addr, dst: Ipv4Addr) -> [u8; 22] {
    let (s, d) = (u32::from(src), u32::from(dst));
    let sum =
        0x4500u32 + 0x4000 + 0x4011 + u32::from(total) + (s >> 16) + (s & 0xffff) + (d >> 16) + (d & 0xffff);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    let mut h = [0x08, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    h[4..6].copy_from_slice(&total.to_be_bytes());
    h[12..14].copy_from_slice(&checksum.to_be_bytes());
    h[14..18].copy_from_slice(&src.octets());
    h[18..22].copy_from_slice(&dst.octets());
    h
}
