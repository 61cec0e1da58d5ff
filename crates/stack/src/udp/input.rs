//! UDP input: from an IP packet to a socket's queue.

use core::net::IpAddr;

use flowlane_sys::frame::{Checksum, Frame};

use super::socket::Socket;
use super::{Datagram, Udp};
use crate::address::Endpoint;
use crate::chain;
use crate::packet::{IcmpError, IcmpErrorKind, IpInput};
use crate::stats::{DropReason, LaneStats};
use crate::wire::udp::{HEADER_LEN, UdpHeader, intact};
use crate::wire::{IpProtocol, Malformed, Sum};

/// What became of a datagram.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Delivered, or dropped and counted.
    Done,
    /// No socket has the port: to be answered by an ICMP error.
    Unreachable(IpInput),
}

/// Where a datagram that has come is put.
pub(crate) struct Place<'a> {
    socket: &'a mut Socket,
    /// Datagrams in all sockets of the lane.
    queued: &'a mut usize,
}

impl Place<'_> {
    /// Puts the datagram there, and wakes the task that waits for it.
    #[inline(always)]
    pub(crate) fn put(self, datagram: Datagram) {
        let meta = datagram.frame.meta();
        self.socket.hash = meta.hash;
        self.socket.hash_type = meta.hash_type;
        self.socket.received += 1;
        *self.queued += 1;
        self.socket.queue.push_back(datagram);
        self.socket.wake();
    }
}

impl Udp {
    /// Takes in a datagram.
    #[inline]
    pub(crate) fn input(&mut self, mut packet: IpInput, stats: &mut LaneStats) -> Outcome {
        stats.udp.received += 1;
        let Ok(header) = self.check(&mut packet, stats) else { return Outcome::Done };
        let source = Endpoint::new(packet.ip.src, header.src_port);
        let destination = Endpoint::new(packet.ip.dst, header.dst_port);
        let Some(slot) = self.table.lookup(destination, source, &self.sockets) else {
            stats.drops.count(DropReason::UdpNoSocket);
            if !packet.ip.unicast {
                stats.udp.no_socket_broadcast += 1;
                return Outcome::Done;
            }
            stats.udp.no_socket += 1;
            return Outcome::Unreachable(packet);
        };
        let Some(place) = self.place(slot) else {
            self.sockets[slot as usize].dropped += 1;
            stats.udp.full_socket += 1;
            stats.drops.count(DropReason::UdpSocketFull);
            return Outcome::Done;
        };
        let mut frame = packet.frame;
        // The header was parsed from these bytes, so they are there.
        let _ = frame.trim_front(HEADER_LEN);
        let (traffic_class, interface) = (packet.ip.traffic_class, packet.ip.interface);
        stats.udp.delivered += 1;
        place.put(Datagram { frame, source, destination, traffic_class, interface, sum: 0 });
        Outcome::Done
    }

    /// A place for another datagram in a socket's queue, if the socket and the lane have room.
    #[inline(always)]
    pub(crate) fn place(&mut self, slot: u32) -> Option<Place<'_>> {
        let socket = &mut self.sockets[slot as usize];
        // Guard: `socket.queue.len() < socket.limit as usize` as `true` fails
        // bounds/link::datagrams_that_nobody_reads
        // Guard: `self.queued < self.config.lane_queue` as `true` fails
        // bounds/link::datagrams_that_nobody_reads
        let room = socket.queue.len() < socket.limit as usize && self.queued < self.config.lane_queue;
        room.then_some(Place { socket, queued: &mut self.queued })
    }

    /// Header, length and checksum.
    #[inline]
    pub(crate) fn check(&self, packet: &mut IpInput, stats: &mut LaneStats) -> Result<UdpHeader, ()> {
        let (header, payload) = match UdpHeader::parse_first(packet.frame.data(), packet.frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => {
                let counter = match reason {
                    Malformed::UdpShort => &mut stats.udp.incomplete_header,
                    _ => &mut stats.udp.bad_length,
                };
                *counter += 1;
                stats.drops.count_malformed(reason);
                return Err(());
            }
        };
        // IP may carry more bytes than UDP says: padding that belongs to nobody.
        packet.frame.truncate_chain(payload.end);
        if header.has_no_checksum() {
            stats.udp.no_checksum += 1;
            // RFC 8200 section 8.1: a receiver must discard them.
            if packet.ip.src.is_ipv6() {
                stats.drops.count(DropReason::UdpNoChecksum);
                return Err(());
            }
        } else if packet.frame.meta().checksum == Checksum::InPacket
            && !whole(pseudo(packet.ip.src, packet.ip.dst, header.len.into()), &packet.frame)
        {
            stats.udp.bad_checksum += 1;
            stats.drops.count(DropReason::UdpChecksum);
            return Err(());
        }
        Ok(header)
    }

    /// An ICMP error about a datagram of ours. A connected socket learns of it (RFC 1122 section 4.1.3.3); errors
    /// about datagrams of unconnected sockets say nothing about the socket. `false` if no socket sent it.
    pub(crate) fn icmp_error(&mut self, error: &IcmpError) -> bool {
        let port = |i: usize| u16::from_be_bytes([error.quoted[i], error.quoted[i + 1]]);
        let local = Endpoint::new(error.local, port(0));
        let remote = Endpoint::new(error.remote, port(2));
        let Some(slot) = self.table.lookup(local, remote, &self.sockets) else { return false };
        let socket = &mut self.sockets[slot as usize];
        if socket.key.remote.is_some() && !matches!(error.kind, IcmpErrorKind::PacketTooBig(_)) {
            socket.error = Some(error.kind);
            socket.wake();
        }
        true
    }
}

/// Whether a datagram is intact, be it in one frame or several.
#[inline]
fn whole(pseudo: Sum, frame: &Frame) -> bool {
    if frame.is_chained() {
        pseudo.combine(chain::sum(frame), 0).is_intact()
    } else {
        intact(pseudo, frame.data())
    }
}

/// Whether a datagram's checksum is right.
pub(crate) fn is_intact(packet: &IpInput) -> bool {
    whole(pseudo(packet.ip.src, packet.ip.dst, packet.frame.chain_len()), &packet.frame)
}

/// The pseudo-header's sum for a datagram of `len` bytes.
#[inline]
pub(crate) fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(s), IpAddr::V4(d)) => Sum::pseudo_v4(s, d, IpProtocol::UDP, len as u16),
        (IpAddr::V6(s), IpAddr::V6(d)) => Sum::pseudo_v6(s, d, IpProtocol::UDP, len as u32),
        // A packet has one family; a mixed pair cannot be sent and would fail the checksum.
        _ => Sum::EMPTY,
    }
}
