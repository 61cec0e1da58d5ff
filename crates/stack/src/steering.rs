//! From a frame to its bucket: the first thing that happens to it.
//!
//! A hash that came with the frame is used only if it is of exactly the type that the configuration would compute for
//! this packet; otherwise the hash is computed in software and put into the frame's metadata. Frames without a flow
//! (ARP, and whatever is not IP) belong to bucket 0.

use flowlane_rss::{Bucket, Flow, HashType, Protocol, Rss};
use flowlane_sys::frame::{Frame, Meta};

use crate::wire::flow::{Classified, classify, classify_ip};
use crate::wire::{self, IpProtocol};

/// Where the bucket of frames without a flow is.
pub const NO_FLOW: Bucket = Bucket(0);

/// How a frame's bucket was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashSource {
    /// By the hash that came with the frame.
    Delivered,
    /// By a hash computed in software.
    Computed,
    /// The frame has no flow.
    None,
}

/// Finds the bucket of a frame whose data starts at the Ethernet header; leaves hash and type in its metadata.
#[inline]
pub fn steer(rss: &Rss, frame: &mut Frame) -> (Bucket, HashSource) {
    if let Some(bucket) = by_card(rss, frame) {
        return (bucket, HashSource::Delivered);
    }
    match classify(frame.data()) {
        Classified::Ip(flow) => by_flow(rss, &rss_flow(&flow), frame.meta_mut()),
        Classified::Other(_) | Classified::Short => no_flow(frame.meta_mut()),
    }
}

/// As [`steer`], for a frame whose data starts at the IP header and whose hash, if any, is of something else: a
/// tunnel's inner packet, a reassembled datagram.
#[inline]
pub fn steer_ip(rss: &Rss, frame: &mut Frame) -> (Bucket, HashSource) {
    let flow = classify_ip(frame.data());
    let meta = frame.meta_mut();
    meta.hash_type = 0;
    match flow {
        Some(flow) => by_flow(rss, &rss_flow(&flow), meta),
        None => no_flow(meta),
    }
}

/// The bucket of a plain UDP datagram over IPv4 whose hash came with it and is of the right type: most frames on a card
/// with RSS. The same answer as the long way gives, from fewer looks.
#[inline]
fn by_card(rss: &Rss, frame: &Frame) -> Option<Bucket> {
    let meta = frame.meta();
    let h = frame.data().first_chunk::<42>()?;
    let plain = h[12..15] == [8, 0, 0x45] && h[23] == 17 && h[20] & 0x3f == 0 && h[21] == 0;
    let wanted = if rss.config.udp_ipv4 { HashType::UdpIpv4 } else { HashType::Ipv4 };
    let on = rss.config.udp_ipv4 || rss.config.ipv4;
    (plain && on && meta.hash_type == wanted.as_u8()).then(|| rss.bucket_of(meta.hash))
}

#[inline]
fn by_flow(rss: &Rss, flow: &Flow, meta: &mut Meta) -> (Bucket, HashSource) {
    let delivered = HashType::from_u8(meta.hash_type).unwrap_or(HashType::None);
    if delivered != HashType::None && rss.config.accepts(delivered, flow) {
        return (rss.bucket_of(meta.hash), HashSource::Delivered);
    }
    let (hash, kind) = rss.software_hash(flow);
    meta.hash = hash;
    meta.hash_type = kind.as_u8();
    if kind == HashType::None {
        (NO_FLOW, HashSource::None)
    } else {
        (rss.bucket_of(hash), HashSource::Computed)
    }
}

#[cold]
fn no_flow(meta: &mut Meta) -> (Bucket, HashSource) {
    meta.hash = 0;
    meta.hash_type = 0;
    (NO_FLOW, HashSource::None)
}

/// The flow as the hash sees it. TCP and UDP without readable ports hash as their addresses do.
#[inline]
#[must_use]
pub fn rss_flow(flow: &wire::Flow) -> Flow {
    let (src_port, dst_port) = flow.ports.unwrap_or((0, 0));
    let ported = matches!(flow.protocol, IpProtocol::TCP | IpProtocol::UDP);
    Flow {
        src: flow.addresses.src(),
        dst: flow.addresses.dst(),
        src_port,
        dst_port,
        protocol: Protocol(flow.protocol.0),
        fragment: flow.fragment || (ported && flow.ports.is_none()),
    }
}
