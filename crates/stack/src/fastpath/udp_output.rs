//! The fast path out of the lane for nearly all datagrams: over IPv4, in one frame, from the address that nearly all are for, to a
//! neighbour whose Ethernet address was used last, or by it.
//!
//! What is the same for all datagrams of a batch is found out once ([`Way`]): the next hop, the interface, its queue and the room in it,
//! and the headers but for what differs. The payload of an answer is added up only if it may have changed since its checksum was verified
//! (RFC 1624: a checksum follows from the sums of its pieces).

use core::net::{IpAddr, Ipv4Addr};
use std::vec::Drain;

use flowlane_sys::frame::{Checksum, Frame};

use super::udp::{Datagrams, HEADERS};
use crate::ip::{Line, NextHop};
use crate::packet::Offload;
use crate::path_mtu::PathMtus;
use crate::time::Time;
use crate::udp::{Datagram, Udp, UdpHandle};
use crate::wire::udp::nonzero;
use crate::wire::{IpProtocol, MacAddr, Sum};

/// Version and length, DF, TTL 64 and protocol of the IPv4 header: what is the same in all, as 16-bit words.
const CONSTANT: u32 = 0x4500 + 0x4000 + 0x4011;

/// Our port, and the other end.
type Ends = (u16, Ipv4Addr, u16);

/// The headers of a datagram that the way takes. Those of the next are the same if length and ends are.
struct Head {
    bytes: [u8; HEADERS],
    /// Bytes of payload; more than a frame has if there are no headers yet.
    len: usize,
    ends: Ends,
    /// Sum of what the checksum covers besides the payload; the folded sum of the pseudo-header alone.
    sum: Sum,
    partial: u16,
}

/// The way of the next hop used last.
struct Way<'a> {
    hop: NextHop,
    line: Line<'a>,
    paths: &'a PathMtus,
    offload: Offload,
    /// Of the checksums of what is sent.
    state: Checksum,
    ours: Ipv4Addr,
    head: Head,
    /// Bytes of the frames sent.
    bytes: u64,
}

impl Head {
    /// Not inlined, so that the headers are made in one place in memory, from which they are copied at once.
    #[inline(never)]
    fn make(&mut self, (from, to): (&MacAddr, &MacAddr), ours: Ipv4Addr, ends: Ends, len: usize) {
        let (sport, dst, dport) = ends;
        let (total, udp_len) = ((len + 28) as u16, (len + 8) as u16);
        let pseudo = Sum::pseudo_v4(ours, dst, IpProtocol::UDP, udp_len);
        let h = &mut self.bytes;
        h[0..6].copy_from_slice(&to.0);
        h[6..12].copy_from_slice(&from.0);
        h[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        // Never fragmented, so without an identifier (RFC 6864 section 4.1).
        h[16..24].copy_from_slice(&(u64::from(total) << 48 | 0x4000_4011).to_be_bytes());
        let sum = CONSTANT + u32::from(total) + halves(ours) + halves(dst);
        h[24..26].copy_from_slice(&folded(sum).to_be_bytes());
        h[26..30].copy_from_slice(&ours.octets());
        h[30..34].copy_from_slice(&dst.octets());
        h[34..36].copy_from_slice(&sport.to_be_bytes());
        h[36..38].copy_from_slice(&dport.to_be_bytes());
        h[38..40].copy_from_slice(&udp_len.to_be_bytes());
        self.partial = pseudo.fold();
        self.sum = pseudo.add_u32(u32::from(sport) << 16 | u32::from(dport)).add_u16(udp_len);
        (self.len, self.ends) = (len, ends);
    }
}

impl<'a> Way<'a> {
    #[inline(always)]
    fn of<'b: 'a>(datagrams: Datagrams<'b>, now: Time) -> Option<(Self, &'a mut Udp)> {
        let Datagrams { ip, udp, paths, offload } = datagrams;
        let hop = ip.last_hop.filter(|hop| hop.is_granted(now))?;
        let line = ip.line(hop.interface)?;
        let ours = Ipv4Addr::from(line.interface.fast?);
        let way = Self {
            hop,
            line,
            paths,
            offload,
            state: if offload.checksum { Checksum::Partial } else { Checksum::InPacket },
            ours,
            head: Head {
                bytes: [0; HEADERS],
                len: usize::MAX,
                ends: (0, Ipv4Addr::UNSPECIFIED, 0),
                sum: Sum::EMPTY,
                partial: 0,
            },
            bytes: 0,
        };
        Some((way, udp))
    }

    /// Whether a payload can leave between these ends without a second look; then its headers are ready. There has to be room in the queue,
    /// too.
    #[inline(always)]
    fn takes(&mut self, frame: &Frame, src: Ipv4Addr, ends: Ends) -> bool {
        // Guard: `(frame.len() == self.head.len && ends == self.head.ends)` as `self.head.len != usize::MAX`
        // fails fastpath::tests::answers_of_a_batch
        src == self.ours
            && !frame.is_chained()
            && frame.headroom() >= HEADERS
            && ((frame.len() == self.head.len && ends == self.head.ends) || self.begins(frame.len(), ends))
    }

    /// As [`Way::takes`], for the answer to a datagram.
    #[inline(always)]
    fn takes_reply(&mut self, datagram: &Datagram) -> bool {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (datagram.destination.ip, datagram.source.ip) else {
            return false;
        };
        self.takes(&datagram.frame, src, (datagram.destination.port, dst, datagram.source.port))
    }

    /// Makes the headers for a payload of `len` bytes between these ends, if the way leads there and takes as much.
    #[inline(always)]
    fn begins(&mut self, len: usize, ends: Ends) -> bool {
        let dst = ends.1;
        let config = &self.line.interface.config;
        let takes = len + 28 <= usize::from(config.mtu)
            && self.line.routes.leads_to(dst, self.hop.interface, self.hop.address)
            && (self.paths.is_empty() || self.paths.get(dst.into()).is_none());
        if !takes {
            return false;
        }
        self.head.make((&config.mac, &self.hop.mac), self.ours, ends, len);
        true
    }

    /// Sends a payload that the way [takes](Self::takes). `sum`: that of the payload, if it is known.
    #[inline(always)]
    fn send(&mut self, mut frame: Frame, sum: u32) {
        let len = frame.len();
        // What the field holds where the link adds the rest: the headers have it.
        let mut checksum = self.head.partial;
        if !self.offload.checksum {
            let head = self.head.sum;
            let sum = if sum == 0 { head.add_bytes(frame.data()) } else { head.add_kept(sum) };
            checksum = nonzero(sum.finish());
        }
        let meta = frame.meta_mut();
        meta.interface = self.hop.interface;
        meta.vlan = None;
        meta.checksum = self.state;
        // There is that much headroom.
        let Some(room) = frame.push_front(HEADERS).and_then(|b| b.first_chunk_mut::<HEADERS>()) else {
            return;
        };
        *room = self.head.bytes;
        room[40..42].copy_from_slice(&checksum.to_be_bytes());
        self.line.push(frame);
        self.bytes += (len + HEADERS) as u64;
    }

    /// So many are sent: they are counted.
    #[inline(always)]
    fn end(self, udp: &mut Udp, handle: UdpHandle, sent: u64) {
        self.line.sent(sent, self.bytes);
        udp.count_sent(handle, sent);
    }
}

/// The two 16-bit words of an address.
#[inline(always)]
fn halves(address: Ipv4Addr) -> u32 {
    let n = u32::from(address);
    (n >> 16) + (n & 0xffff)
}

/// The checksum of words that were added up to `sum`.
#[inline(always)]
fn folded(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

impl Datagrams<'_> {
    /// Answers datagrams of a batch in their own frames, in order, up to the first that has to take the slow path; returns how many.
    #[inline]
    pub(crate) fn fast_replies(self, now: Time, handle: UdpHandle, batch: &mut Drain<'_, Datagram>) -> usize {
        let Some((mut way, udp)) = Way::of(self, now) else { return 0 };
        let before = batch.len();
        // Guard: `way.line.room()` as `usize::MAX` fails fastpath::tests::a_batch_that_finds_no_room
        let most = if udp.is_open(handle) { batch.len().min(way.line.room()) } else { 0 };
        for _ in 0..most {
            if !batch.as_slice().first().is_some_and(|next| way.takes_reply(next)) {
                break;
            }
            let Some(Datagram { frame, sum, .. }) = batch.next() else { break };
            way.send(frame, sum);
        }
        let sent = before - batch.len();
        way.line.sent_on_original(sent as u64);
        way.end(udp, handle, sent as u64);
        sent
    }

    /// Answers a datagram in its own frame; gives it back if it has to take the slow path.
    #[inline]
    pub(crate) fn fast_reply(self, now: Time, handle: UdpHandle, datagram: Datagram) -> Result<(), Datagram> {
        let Some((mut way, udp)) = Way::of(self, now) else { return Err(datagram) };
        if way.line.room() == 0 || !udp.is_open(handle) || !way.takes_reply(&datagram) {
            return Err(datagram);
        }
        way.send(datagram.frame, datagram.sum);
        way.line.sent_on_original(1);
        way.end(udp, handle, 1);
        Ok(())
    }

    /// Sends a payload over the next hop used last; gives it back if that is another, or anything else is unusual.
    #[inline]
    pub(crate) fn fast_output(
        self,
        now: Time,
        handle: UdpHandle,
        frame: Frame,
        (src, sport, dst, dport): (Ipv4Addr, u16, Ipv4Addr, u16),
    ) -> Result<(), Frame> {
        let Some((mut way, udp)) = Way::of(self, now) else { return Err(frame) };
        if way.line.room() == 0 || !way.takes(&frame, src, (sport, dst, dport)) || !udp.is_open(handle) {
            return Err(frame);
        }
        way.send(frame, 0);
        way.end(udp, handle, 1);
        Ok(())
    }
}
