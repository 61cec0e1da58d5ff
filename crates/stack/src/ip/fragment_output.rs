//! Output of fragments: fragmenting packets longer than the MTU (RFC 791 section 3.2, RFC 8200 section 4.5).
//!
//! Every protocol but TCP, which cuts its own segments, may hand down packets longer than the MTU. They are cut here, at
//! the source: over IPv4 without DF, over IPv6 with a fragment header in each piece. Either all fragments go or none.
//!
//! ```text
//!   chain:      [udp | 1472] [1480] [1480] [300]        as the sender laid it out, or as it was received
//!   fragments:  [ip | udp | 1472]  [ip | 1480]  [ip | 1480]  [ip | 300]
//! ```
//!
//! Where the frames of the chain have the length of the fragments, each becomes a fragment as it stands: a datagram
//! that came in fragments and is sent back is not copied. Otherwise the bytes are copied into frames that do.
//!
//! **Identification** (RFC 7739 section 5.3): a keyed hash of source and destination, plus a counter of the destination's slot in a small
//! table. An off-path attacker cannot predict the next number, and packets to the attacker reveal nothing about those to other hosts.
//! Each lane has its own keys, so two lanes that send to one destination choose numbers independently. For IPv6 a collision has a chance
//! of 2^-32; for IPv4 the checksum detects wrong reassembly, as it must anyway (RFC 4963).

use core::net::IpAddr;

use flowlane_sys::frame::{Checksum, Frame, Pool, Segmentation};

use super::{Ip, OUTPUT, SendError};
use crate::address::number;
use crate::chain;
use crate::packet::{Cx, IpOutput};
use crate::path_mtu::PathMtus;
use crate::rng::{Keyed, Rng};
use crate::route::Hop;
use crate::stats::DropReason;
use crate::wire::ipv6_ext::FRAGMENT_HEADER_LEN;
use crate::wire::{IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header, ethernet, ipv4, ipv6, udp};

/// Counters of identifications.
const COUNTERS: usize = 1024;
/// Longest payload of a packet, bytes, by the size of the length fields.
const LONGEST: usize = 65_535;
/// Where the checksum stands in a UDP header.
const UDP_CHECKSUM_AT: usize = 6;

/// Identifications of fragmented packets.
#[derive(Debug)]
pub(crate) struct Identify {
    keyed: Keyed,
    counters: Box<[u32]>,
}

impl Identify {
    pub(super) fn new(seeds: [u64; 2]) -> Self {
        let mut rng = Rng::new(seeds[0] ^ seeds[1].rotate_left(29));
        let keyed = Keyed::new(rng.next_u64(), rng.next_u64());
        Self { keyed, counters: (0..COUNTERS).map(|_| rng.next_u32()).collect() }
    }

    /// The next number for packets from `src` to `dst`.
    fn next(&mut self, src: IpAddr, dst: IpAddr) -> u32 {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&number(src).to_be_bytes());
        bytes[16..].copy_from_slice(&number(dst).to_be_bytes());
        let hash = self.keyed.hash(&bytes);
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        (hash as u32).wrapping_add(*counter)
    }
}

/// How a packet is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    /// Bytes of payload in each fragment but the last.
    each: usize,
    /// How many fragments.
    count: usize,
}

impl Cut {
    /// For `len` bytes of payload where packets may have `mtu` bytes and a frame can take `room`.
    fn new(ipv4: bool, mtu: u16, len: usize, room: usize) -> Option<Self> {
        let headers = if ipv4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN + FRAGMENT_HEADER_LEN };
        let each = usize::from(mtu).saturating_sub(headers).min(room) & !7;
        if each == 0 { None } else { Some(Self { each, count: len.div_ceil(each) }) }
    }
}

impl Ip {
    /// Whether a packet of `len` bytes of payload finds room in the output queue, with all its fragments.
    #[inline]
    pub(crate) fn has_room_for(&self, paths: &PathMtus, dst: IpAddr, len: usize) -> bool {
        // Short enough for any link: nothing to look up.
        if len + ipv6::HEADER_LEN <= ipv6::MIN_MTU {
            return self.has_room(self.output_interface(dst));
        }
        let interface = self.output_interface(dst);
        let Some(mtu) = self.mtu_to(paths, dst) else { return self.has_room(interface) };
        // Frames may be smaller than the MTU, never smaller than the least MTU of IPv6.
        let count = Cut::new(dst.is_ipv4(), mtu, len, ipv6::MIN_MTU).map_or(1, |cut| cut.count);
        self.output_len_of(interface) + count <= OUTPUT
    }

    /// A payload of UDP in frames: one, or as many as there will be fragments. Fails with `NoFrame`, `NoRoute`,
    /// `TooLong` or `TooBig`.
    #[inline]
    pub(crate) fn udp_payload(
        &self,
        paths: &PathMtus,
        pool: &Pool,
        payload: &[u8],
        dst: IpAddr,
    ) -> Result<Frame, SendError> {
        let mut frame = pool.alloc().ok_or(SendError::NoFrame)?;
        // Short enough for any link: nothing to look up.
        if payload.len() + udp::HEADER_LEN + ipv6::HEADER_LEN <= ipv6::MIN_MTU
            && frame.extend_from_slice(payload)
        {
            return Ok(frame);
        }
        self.long_udp_payload(paths, pool, frame, payload, dst)
    }

    fn long_udp_payload(
        &self,
        paths: &PathMtus,
        pool: &Pool,
        mut frame: Frame,
        payload: &[u8],
        dst: IpAddr,
    ) -> Result<Frame, SendError> {
        if payload.len() > longest_payload(dst.is_ipv4()) {
            return Err(SendError::TooLong);
        }
        let mtu = self.mtu_to(paths, dst).ok_or(SendError::NoRoute)?;
        let header = if dst.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN } + udp::HEADER_LEN;
        if payload.len() + header <= usize::from(mtu) && frame.extend_from_slice(payload) {
            return Ok(frame);
        }
        let cut = Cut::new(dst.is_ipv4(), mtu, payload.len() + udp::HEADER_LEN, chain::room(&frame));
        let each = cut.ok_or(SendError::TooBig(mtu))?.each;
        drop(frame);
        chain::spread(pool, payload, each - udp::HEADER_LEN, each).ok_or(SendError::NoFrame)
    }

    /// Whether a packet is longer than the MTU and is to be cut here.
    #[inline]
    pub(super) fn is_to_be_cut(&self, paths: &PathMtus, out: &IpOutput, hop: Hop) -> bool {
        let header = if out.dst.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        out.frame.chain_len() + header > usize::from(self.mtu_on(paths, hop.interface, out.dst))
            && out.protocol != IpProtocol::TCP.0
            && out.frame.meta().segmentation == Segmentation::None
            && out.src.is_ipv4() == out.dst.is_ipv4()
    }

    /// A packet in a chain of frames, in one frame if it needs no cutting and fits: most links send one frame best.
    #[cold]
    pub(super) fn unchained(&mut self, cx: &Cx<'_>, out: IpOutput, hop: Hop) -> IpOutput {
        if out.frame.meta().segmentation != Segmentation::None || self.is_to_be_cut(cx.paths, &out, hop) {
            return out;
        }
        let frame = chain::gather(cx.frames, out.frame).unwrap_or_else(|chain| chain);
        IpOutput { frame, ..out }
    }

    /// Cuts a packet and sends the fragments to the next hop.
    #[cold]
    pub(super) fn send_fragments(
        &mut self,
        cx: &mut Cx<'_>,
        out: IpOutput,
        hop: Hop,
    ) -> Result<(), SendError> {
        let mtu = self.mtu_on(cx.paths, hop.interface, out.dst);
        let IpOutput { mut frame, src, dst, .. } = out;
        let len = frame.chain_len();
        let ipv4 = dst.is_ipv4();
        if len > if ipv4 { LONGEST - ipv4::HEADER_LEN } else { LONGEST } {
            return Err(self.cannot_fragment(ipv4, SendError::TooLong));
        }
        let Some(cut) = Cut::new(ipv4, mtu, len, chain::room(&frame)) else {
            return Err(self.cannot_fragment(ipv4, SendError::TooBig(mtu)));
        };
        if self.output_len_of(hop.interface) + cut.count > OUTPUT {
            self.stats.drops.count(DropReason::OutputFull);
            return Err(SendError::Full);
        }
        finish_checksum(&mut frame, out.protocol);
        let id = self.identify.next(src, dst);
        let header =
            Header { src, dst, id, protocol: out.protocol, hop_limit: out.hop_limit, tos: out.traffic_class };
        // All pieces are made before the first is sent.
        let mut pieces = std::mem::take(&mut self.pieces);
        let made = take_apart(cx.frames, frame, cut, &mut pieces) && header.push_all(&mut pieces);
        if made {
            for piece in pieces.drain(..) {
                self.hand_to_hop(cx, hop, dst, piece);
            }
        }
        pieces.clear();
        self.pieces = pieces;
        if !made {
            self.stats.drops.count(DropReason::NoFrame);
            return Err(SendError::NoFrame);
        }
        let ip = if ipv4 { &mut self.stats.ip } else { &mut self.stats.ip6 };
        ip.sent += 1;
        ip.fragmented += 1;
        ip.fragments_created += cut.count as u64;
        Ok(())
    }

    fn cannot_fragment(&mut self, ipv4: bool, error: SendError) -> SendError {
        let ip = if ipv4 { &mut self.stats.ip } else { &mut self.stats.ip6 };
        ip.cannot_fragment += 1;
        self.stats.drops.count(DropReason::TooBig);
        error
    }
}

/// Longest payload of a UDP datagram, bytes.
pub(crate) fn longest_payload(ipv4: bool) -> usize {
    LONGEST - udp::HEADER_LEN - if ipv4 { ipv4::HEADER_LEN } else { 0 }
}

/// Computes a checksum that was left to the link: no link sees a fragmented packet whole.
fn finish_checksum(frame: &mut Frame, protocol: u8) {
    let partial = std::mem::replace(&mut frame.meta_mut().checksum, Checksum::InPacket) == Checksum::Partial;
    if partial && protocol == IpProtocol::UDP.0 {
        // The field holds the sum of the pseudo-header, which so gets into the sum of everything.
        let checksum = udp::nonzero(chain::sum(frame).finish());
        if let Some(field) = frame.data_mut().get_mut(UDP_CHECKSUM_AT..UDP_CHECKSUM_AT + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// Makes the pieces of a chain, in frames of their own and with the chain's metadata. `false` for want of frames.
fn take_apart(pool: &Pool, mut chain: Frame, cut: Cut, pieces: &mut Vec<Frame>) -> bool {
    let meta = *chain.meta();
    let fits = chain.chunks().take(cut.count - 1).all(|c| c.len() == cut.each)
        && chain
            .chunks()
            .skip(cut.count - 1)
            .map(<[u8]>::len)
            .eq([chain.chain_len() - (cut.count - 1) * cut.each]);
    if fits {
        loop {
            let rest = chain.take_next();
            *chain.meta_mut() = meta;
            pieces.push(chain);
            match rest {
                Some(next) => chain = next,
                None => return true,
            }
        }
    }
    for mut bytes in chain.chunks() {
        while !bytes.is_empty() {
            let room = match pieces.last_mut() {
                Some(last) if last.len() < cut.each => last,
                _ => {
                    let Some(mut frame) = pool.alloc() else { return false };
                    *frame.meta_mut() = meta;
                    pieces.push(frame);
                    continue;
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(cut.each - room.len()));
            if !room.extend_from_slice(now) {
                return false;
            }
            bytes = later;
        }
    }
    true
}

/// What the headers of all fragments of a packet have in common.
struct Header {
    src: IpAddr,
    dst: IpAddr,
    id: u32,
    protocol: u8,
    hop_limit: u8,
    tos: u8,
}

impl Header {
    /// Puts headers in front of all pieces. `false` if one has no room for them.
    fn push_all(&self, pieces: &mut [Frame]) -> bool {
        let link = ethernet::HEADER_LEN + ethernet::TAG_LEN;
        let last = pieces.len().saturating_sub(1);
        let mut offset = 0;
        for (i, piece) in pieces.iter_mut().enumerate() {
            let len = piece.len();
            if self.push(piece, offset, i < last).is_none() || piece.headroom() < link {
                return false;
            }
            offset += len as u16;
        }
        true
    }

    fn push(&self, piece: &mut Frame, offset: u16, more: bool) -> Option<()> {
        let len = piece.len();
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = Ipv4Header {
                    src,
                    dst,
                    protocol: IpProtocol(self.protocol),
                    ttl: self.hop_limit,
                    tos: self.tos,
                    identification: self.id as u16,
                    dont_fragment: false,
                    more_fragments: more,
                    fragment_offset: offset,
                    payload_len: len as u16,
                    options: Ipv4Options::default(),
                };
                header.emit(piece.push_front(ipv4::HEADER_LEN)?);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let next_header = IpProtocol(self.protocol);
                let part = Ipv6Fragment { next_header, offset, more, identification: self.id };
                part.emit(piece.push_front(FRAGMENT_HEADER_LEN)?);
                let header = Ipv6Header {
                    src,
                    dst,
                    next_header: IpProtocol::FRAGMENT,
                    hop_limit: self.hop_limit,
                    traffic_class: self.tos,
                    flow_label: 0,
                    payload_len: (len + FRAGMENT_HEADER_LEN) as u16,
                };
                header.emit(piece.push_front(ipv6::HEADER_LEN)?);
            }
            // A packet has one family; this was seen to before.
            _ => return None,
        }
        Some(())
    }
}
