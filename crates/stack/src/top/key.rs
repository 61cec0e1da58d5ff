//! Which flow a frame belongs to, as a key of five words, and how many packets and bytes it stands for.
//!
//! The key has our end first: a packet and its answer have the same key. Fragments have no ports: all fragments between two addresses are
//! one flow of their own. Only UDP, TCP and fragments are counted; over IPv6 a fragment's protocol is behind headers that only the first
//! fragment has, so it is that of the fragment header.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Add;

use flowlane_sys::frame::{Frame, Segmentation};

use crate::address::Endpoint;
use crate::wire::flow::{Addresses, Flow, classify, classify_ip};
use crate::wire::{EtherType, IpProtocol};

const V6: u64 = 1;
const FRAGMENT: u64 = 2;

/// Two addresses, two ports, protocol and family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Key {
    /// IPv4: ours and the peer's in the first word. IPv6: two words each.
    addresses: [u64; 4],
    /// Our port, the peer's, protocol, flags.
    rest: u64,
}

/// What one frame adds to its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Weight {
    /// Packets on the wire: those that the link cuts it into, or merged into it.
    pub(crate) packets: u64,
    /// Their bytes from the IP header on.
    pub(crate) octets: u64,
}

impl Weight {
    pub(crate) const NONE: Self = Self { packets: 0, octets: 0 };
}

impl Add for Weight {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, octets: self.octets + other.octets }
    }
}

impl Key {
    pub(crate) const NONE: Self = Self { addresses: [0; 4], rest: 0 };

    /// The key of a packet; `received`: its destination is our end. `None` for what is not counted.
    #[inline]
    fn of(flow: &Flow, received: bool) -> Option<Self> {
        let counted = flow.protocol == IpProtocol::UDP || flow.protocol == IpProtocol::TCP;
        if !(counted || flow.fragment && flow.is_ipv6()) {
            return None;
        }
        let (mut ours, mut peers) = flow.ports.unwrap_or((0, 0));
        if received {
            (ours, peers) = (peers, ours);
        }
        let mut flags = if flow.fragment { FRAGMENT } else { 0 };
        let addresses = match flow.addresses {
            Addresses::V4 { src, dst } => {
                let (ours, peers) = if received { (dst, src) } else { (src, dst) };
                let word = |a| u64::from(u32::from_be_bytes(a));
                [word(ours) << 32 | word(peers), 0, 0, 0]
            }
            Addresses::V6 { src, dst } => {
                flags |= V6;
                let (ours, peers) = if received { (dst, src) } else { (src, dst) };
                let words = |a| {
                    let bits = u128::from_be_bytes(a);
                    [(bits >> 64) as u64, bits as u64]
                };
                let ([a, b], [c, d]) = (words(ours), words(peers));
                [a, b, c, d]
            }
        };
        let ports = u64::from(ours) << 48 | u64::from(peers) << 32;
        Some(Self { addresses, rest: ports | u64::from(flow.protocol.0) << 8 | flags })
    }

    /// Whether both are the same: of IPv4, two words are compared.
    #[inline]
    pub(crate) fn is(&self, other: &Self) -> bool {
        // Guard: `(self.rest & V6 == 0 || self.addresses[1..] == other.addresses[1..])` as `true` fails
        // top::tests::flows_in_turn_are_told_apart
        self.rest == other.rest
            && self.addresses[0] == other.addresses[0]
            && (self.rest & V6 == 0 || self.addresses[1..] == other.addresses[1..])
    }

    /// Its hash, which nobody who does not know the seed can aim at.
    #[inline]
    pub(crate) fn hash(&self, seed: [u64; 2]) -> u64 {
        let [a, b, c, d] = self.addresses;
        let mut hash = folded(a ^ seed[0], self.rest ^ seed[1]);
        if self.rest & V6 != 0 {
            hash = folded(hash ^ b, c ^ seed[0]);
            hash = folded(hash ^ d, seed[1] | 1);
        }
        // A second round, since the first leaves the low bits of a product to its low bits.
        folded(hash, 0x9e37_79b9_7f4a_7c15)
    }

    /// IP protocol.
    pub(crate) fn protocol(&self) -> IpProtocol {
        IpProtocol((self.rest >> 8) as u8)
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.rest & FRAGMENT != 0
    }

    /// Our end, and the peer's.
    pub(crate) fn ends(&self) -> (Endpoint, Endpoint) {
        let [a, b, c, d] = self.addresses;
        let (ours, peers): (IpAddr, IpAddr) = if self.rest & V6 != 0 {
            let v6 = |hi, lo| Ipv6Addr::from_bits(u128::from(hi) << 64 | u128::from(lo));
            (v6(a, b).into(), v6(c, d).into())
        } else {
            (Ipv4Addr::from_bits((a >> 32) as u32).into(), Ipv4Addr::from_bits(a as u32).into())
        };
        (Endpoint::new(ours, (self.rest >> 48) as u16), Endpoint::new(peers, (self.rest >> 32) as u16))
    }
}

#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Key and bytes of a frame as nearly all are: Ethernet, IPv4 without options and no fragment, UDP or TCP, and one packet. `None` for others.
#[inline(always)]
pub(crate) fn plain(frame: &Frame, received: bool) -> Option<(Key, u64)> {
    let h = frame.data().first_chunk::<42>()?;
    // Guard: `frame.meta().segmentation == Segmentation::None` as `true` fails
    // top::tests::weights_are_those_of_the_wire
    let one = half(h, 20) & 0x3fff == 0 && frame.meta().segmentation == Segmentation::None;
    if word(h, 12) >> 8 != u32::from(EtherType::IPV4.0) << 8 | 0x45 || !one {
        return None;
    }
    let protocol = whole_header(frame, h[23], 34)?;
    // Source and destination are ours and the peer's of what is sent; of what has come, the other way round.
    let addresses = u64::from(word(h, 26)) << 32 | u64::from(word(h, 30));
    let ports = word(h, 34);
    // Guard: `addresses.rotate_left(32)` as `addresses` fails
    // top::tests::the_short_way_agrees_with_the_long_one
    let (addresses, ports) =
        if received { (addresses.rotate_left(32), ports.rotate_left(16)) } else { (addresses, ports) };
    let key =
        Key { addresses: [addresses, 0, 0, 0], rest: u64::from(ports) << 32 | u64::from(protocol.0) << 8 };
    Some((key, octets_of(frame, usize::from(half(h, 16)))))
}

/// As [`plain`], of IPv6 with no other header between.
#[inline(always)]
pub(crate) fn plain_v6(frame: &Frame, received: bool) -> Option<(Key, u64)> {
    let h = frame.data().first_chunk::<62>()?;
    // Guard: `word(h, 12) >> 12 == u32::from(EtherType::IPV6.0) << 4 | 6` as `true` fails lane::flows::tests
    let v6 = word(h, 12) >> 12 == u32::from(EtherType::IPV6.0) << 4 | 6;
    // Guard: `frame.meta().segmentation != Segmentation::None` as `false` fails
    // top::tests::weights_are_those_of_the_wire
    if !v6 || frame.meta().segmentation != Segmentation::None {
        return None;
    }
    let protocol = whole_header(frame, h[20], 54)?;
    let long = |i: usize| u64::from(word(h, i)) << 32 | u64::from(word(h, i + 4));
    let (src, dst, ports) = ([long(22), long(30)], [long(38), long(46)], word(h, 54));
    let (ours, peers, ports) = if received { (dst, src, ports.rotate_left(16)) } else { (src, dst, ports) };
    let key = Key {
        addresses: [ours[0], ours[1], peers[0], peers[1]],
        rest: u64::from(ports) << 32 | u64::from(protocol.0) << 8 | V6,
    };
    Some((key, octets_of(frame, 40 + usize::from(half(h, 18)))))
}

#[inline(always)]
fn half<const N: usize>(h: &[u8; N], i: usize) -> u16 {
    u16::from_be_bytes([h[i], h[i + 1]])
}

#[inline(always)]
fn word<const N: usize>(h: &[u8; N], i: usize) -> u32 {
    u32::from_be_bytes([h[i], h[i + 1], h[i + 2], h[i + 3]])
}

/// UDP, or TCP whose whole fixed header is there; UDP's is in any case.
#[inline]
fn whole_header(frame: &Frame, protocol: u8, at: usize) -> Option<IpProtocol> {
    let protocol = IpProtocol(protocol);
    // Guard: `frame.data().len() >= at + 20` as `true` fails
    // top::tests::the_short_way_agrees_with_the_long_one
    let whole = protocol == IpProtocol::UDP || protocol == IpProtocol::TCP && frame.data().len() >= at + 20;
    whole.then_some(protocol)
}

/// Bytes from the IP header on of a frame with Ethernet, whose header says so many: no padding, and no more than there are.
#[inline]
fn octets_of(frame: &Frame, said: usize) -> u64 {
    // Guard: `said + 14 <= frame.data().len()` as `true` fails
    // top::tests::the_short_way_agrees_with_the_long_one
    let octets = if said + 14 <= frame.data().len() { said } else { said.min(frame.chain_len() - 14) };
    octets as u64
}

/// Whether a frame's header says TCP: of IPv4 also behind options, of IPv6 where no other header is between.
#[inline]
pub(crate) fn is_tcp(data: &[u8]) -> bool {
    let Some(h) = data.first_chunk::<34>() else { return false };
    let ethertype = half(h, 12);
    let v4 = ethertype == EtherType::IPV4.0 && h[23] == IpProtocol::TCP.0;
    v4 || ethertype == EtherType::IPV6.0 && h[20] == IpProtocol::TCP.0
}

/// As a lane counts a frame that starts at the Ethernet header.
#[cfg(test)]
pub(crate) fn counted(frame: &Frame, ethernet: bool, received: bool) -> Option<(Key, Weight)> {
    let short = plain(frame, received).or_else(|| plain_v6(frame, received)).filter(|_| ethernet);
    let short = short.map(|(key, octets)| (key, Weight { packets: 1, octets }));
    short.or_else(|| look_closely(frame, ethernet, received))
}

/// Key and weight of any frame; `ethernet`: its data starts at the Ethernet header, else at the IP header. `None` for what is not counted.
pub(crate) fn look_closely(frame: &Frame, ethernet: bool, received: bool) -> Option<(Key, Weight)> {
    let data = frame.data();
    let flow = if ethernet { classify(data).flow() } else { classify_ip(data) }?;
    Some((Key::of(&flow, received)?, weight(frame, &flow)))
}

#[inline]
fn weight(frame: &Frame, flow: &Flow) -> Weight {
    let (data, at) = (frame.data(), usize::from(flow.l3_offset));
    // Both were found there when the frame was classified.
    let half = |i: usize| {
        data.get(at + i..at + i + 2).map_or(0, |two| usize::from(two[0]) << 8 | usize::from(two[1]))
    };
    let there = frame.chain_len().saturating_sub(at);
    // Ethernet pads short frames; what a header claims beyond the frame is not there.
    let said = if flow.is_ipv6() { 40 + half(4) } else { half(2) };
    // Guard: `said.min(there)` as `said` fails top::tests::weights_are_those_of_the_wire
    let octets = if frame.meta().segmentation == Segmentation::None { said.min(there) } else { there };
    match merged(frame, flow, octets) {
        Some((packets, headers)) => {
            Weight { packets, octets: octets as u64 + (packets - 1) * headers as u64 }
        }
        None => Weight { packets: 1, octets: octets as u64 },
    }
}

/// Of a frame that a link cuts or merged: how many packets it stands for, and the bytes of headers that each of them has.
#[inline]
fn merged(frame: &Frame, flow: &Flow, octets: usize) -> Option<(u64, usize)> {
    let meta = frame.meta();
    if meta.segmentation == Segmentation::None || meta.segment_size == 0 {
        return None;
    }
    let (data, at) = (frame.data(), usize::from(flow.l3_offset));
    let ip = if flow.is_ipv6() { 40 } else { usize::from(data.get(at)? & 0x0f) * 4 };
    let transport = match meta.segmentation {
        Segmentation::Udp => 8,
        _ => usize::from(data.get(at + ip + 12)? >> 4) * 4,
    };
    let payload = octets.saturating_sub(ip + transport);
    Some((payload.div_ceil(usize::from(meta.segment_size)).max(1) as u64, ip + transport))
}
