//! The fast path through the lane for nearly all datagrams: an untagged, unfragmented UDP datagram over IPv4 without options, in one frame,
//! for an address and a socket of ours, with correct checksums.
//!
//! One check of the first 42 bytes finds whether a frame is of that kind. Any other frame takes the slow path unchanged. Drops, counters
//! and answers are the same on both paths. The way out is in [`udp_output`](super::udp_output).
//!
//! The payload is added up once: the sum that the checksum was verified with stays with the datagram, so that an answer with the same
//! payload need not add it up again.

use core::net::{IpAddr, Ipv4Addr};

use flowlane_sys::frame::{Checksum, Frame};

use crate::address::Endpoint;
use crate::ip::Ip;
use crate::packet::Offload;
use crate::path_mtu::PathMtus;
use crate::stats::LaneStats;
use crate::udp::{Datagram, Udp};
use crate::wire::{IpProtocol, Sum};

/// Ethernet, IPv4 without options, UDP.
pub(super) const HEADERS: usize = 14 + 20 + 8;

#[inline(always)]
fn be16(h: &[u8; HEADERS], at: usize) -> u16 {
    u16::from_be_bytes([h[at], h[at + 1]])
}

#[inline(always)]
fn be32(h: &[u8; HEADERS], at: usize) -> u32 {
    u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]])
}

/// A header of constant length within the others.
#[inline(always)]
fn part<const N: usize>(h: &[u8; HEADERS], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&h[at..at + N]);
    part
}

/// The pieces of a lane that datagrams of the usual kind pass.
pub(crate) struct Datagrams<'a> {
    pub(crate) ip: &'a mut Ip,
    pub(crate) udp: &'a mut Udp,
    pub(crate) paths: &'a PathMtus,
    pub(crate) offload: Offload,
}

/// What datagrams of a burst have in common, and what is counted of them until its end.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The socket of the datagram before, by slot. One whose headers differ from its headers in lengths, identifier and checksums at most need not
    /// be judged again.
    slot: Option<u32>,
    link: u8,
    datagrams: u64,
    /// Ethernet header, version and type of service.
    start: [u64; 2],
    /// Where a fragment lies, time to live and protocol; source, destination; ports.
    middle: u32,
    ends: [u32; 2],
    ports: u32,
    bytes: u64,
}

impl Run {
    /// Whether these headers differ from the ones before in lengths, identifier and checksums at most.
    #[inline(always)]
    fn goes_on(&self, h: &[u8; HEADERS]) -> bool {
        let start = (u64::from_ne_bytes(part(h, 0)) ^ self.start[0])
            | (u64::from_ne_bytes(part(h, 8)) ^ self.start[1]);
        let rest = (u32::from_ne_bytes(part(h, 20)) ^ self.middle)
            | (u32::from_ne_bytes(part(h, 26)) ^ self.ends[0])
            | (u32::from_ne_bytes(part(h, 30)) ^ self.ends[1])
            | (u32::from_ne_bytes(part(h, 34)) ^ self.ports);
        start | u64::from(rest) == 0
    }

    /// The next datagram is not of the same kind as the one before.
    #[inline]
    pub(crate) fn interrupt(&mut self) {
        self.slot = None;
    }

    /// The burst is over: its datagrams are counted.
    #[inline(always)]
    pub(crate) fn end(self, stats: &mut LaneStats) {
        stats.ethernet.received += self.datagrams;
        stats.ethernet.received_bytes += self.bytes;
        stats.ip.received += self.datagrams;
        stats.ip.delivered += self.datagrams;
        stats.udp.received += self.datagrams;
        stats.udp.delivered += self.datagrams;
    }
}

impl Datagrams<'_> {
    /// Delivers a datagram of the usual kind; gives any other frame back.
    #[inline(always)]
    pub(crate) fn fast_input(self, mut frame: Frame, run: &mut Run) -> Result<(), Frame> {
        let meta = frame.meta();
        let link = meta.interface;
        if meta.vlan.is_some() || frame.is_chained() {
            return Err(frame);
        }
        let trusted = meta.checksum != Checksum::InPacket;
        let len = frame.len();
        let Some((h, payload)) = frame.data().split_first_chunk::<HEADERS>() else { return Err(frame) };
        let slot = match run.slot {
            // Guard: `run.goes_on(h)` as `true` fails fastpath::tests::what_follows_in_a_burst
            Some(slot) if run.goes_on(h) && link == run.link => slot,
            _ => match begin_run(self.ip, self.udp, h, link, run) {
                Some(slot) => slot,
                None => return Err(frame),
            },
        };
        let (total, udp_len) = (usize::from(be16(h, 16)), usize::from(be16(h, 38)));
        // Guard: `total + 14 != len || udp_len + 20 != total` as `false` fails
        // fastpath::tests::what_follows_in_a_burst
        if total + 14 != len || udp_len + 20 != total || udp_len < 8 || be16(h, 40) == 0 {
            return Err(frame);
        }
        let (src, dst) = (Ipv4Addr::from(part::<4>(h, 26)), Ipv4Addr::from(part::<4>(h, 30)));
        let ip: [u8; 20] = part(h, 14);
        // Guard: `!Sum::EMPTY.add_header(&ip).is_intact()` as `false` fails
        // fastpath::tests::what_follows_in_a_burst
        if !Sum::EMPTY.add_header(&ip).is_intact() {
            return Err(frame);
        }
        // The payload is added up on its own, where that is to be done: its sum is kept.
        let mut sum = 0;
        if !trusted {
            let header: [u8; 8] = part(h, 34);
            let pseudo = Sum::pseudo_v4(src, dst, IpProtocol::UDP, udp_len as u16);
            let of_payload = Sum::EMPTY.add_bytes(payload);
            // Guard: `!pseudo.add_header(&header).combine(of_payload, 0).is_intact()` as `false` fails
            // fastpath::tests::what_follows_in_a_burst
            if !pseudo.add_header(&header).combine(of_payload, 0).is_intact() {
                return Err(frame);
            }
            sum = of_payload.kept();
        }
        let (sport, dport, traffic_class) = (be16(h, 34), be16(h, 36), ip[1]);
        let Some(place) = self.udp.place(slot) else { return Err(frame) };
        run.datagrams += 1;
        run.bytes += len as u64;
        // The headers were read from these bytes.
        let _ = frame.trim_front(HEADERS);
        place.put(Datagram {
            frame,
            source: Endpoint::new(IpAddr::V4(src), sport),
            destination: Endpoint::new(IpAddr::V4(dst), dport),
            traffic_class,
            interface: link,
            sum,
        });
        Ok(())
    }
}

/// The socket for a datagram with headers of the usual kind, which are those of a run from now on. Not inlined, so that what is kept of the run stays
/// in memory, where it is compared.
#[inline(never)]
fn begin_run(ip: &Ip, udp: &Udp, h: &[u8; HEADERS], link: u8, run: &mut Run) -> Option<u32> {
    let slot = socket_of(ip, udp, h, link)?;
    (run.slot, run.link) = (Some(slot), link);
    run.start = [u64::from_ne_bytes(part(h, 0)), u64::from_ne_bytes(part(h, 8))];
    run.ends = [u32::from_ne_bytes(part(h, 26)), u32::from_ne_bytes(part(h, 30))];
    (run.middle, run.ports) = (u32::from_ne_bytes(part(h, 20)), u32::from_ne_bytes(part(h, 34)));
    Some(slot)
}

/// The socket for a datagram with headers of the usual kind. Lengths and checksums are not looked at.
#[inline(always)]
fn socket_of(ip: &Ip, udp: &Udp, h: &[u8; HEADERS], link: u8) -> Option<u32> {
    let interface = ip.interfaces.get(usize::from(link))?;
    let (src, dst) = (be32(h, 26), be32(h, 30));
    // Guard: `!interface.is_no_source_v4(src)` as `true` fails lane/packets_from_a_broadcast_address
    let usual = h[0..6] == interface.config.mac.0
        && be32(h, 12) >> 8 == 0x08_0045
        && be16(h, 20) & 0x3fff == 0
        && h[23] == IpProtocol::UDP.0
        && interface.fast == Some(dst)
        && (1..224).contains(&h[26])
        && h[26] != 127
        && (ip.tunnels.is_empty() || !ip.tunnels.takes_port(be16(h, 36), IpAddr::V4(dst.into())))
        && !interface.is_no_source_v4(src);
    if !usual {
        return None;
    }
    udp.lookup_v4(dst.into(), be16(h, 36), src.into(), be16(h, 34))
}
