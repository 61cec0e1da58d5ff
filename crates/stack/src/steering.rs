//! From a frame to its bucket: the first step for a received frame.
//!
//! A delivered hash is used only if its type is exactly the one that the configuration would compute for this packet; otherwise the hash
//! is computed in software and stored in the frame's metadata. Frames without a flow (ARP and other frames that are not IP) belong to
//! bucket 0.

use flowlane_rss::{Bucket, Flow, HashType, Protocol, Rss};
use flowlane_sys::frame::{Frame, Meta};

use crate::wire::flow::{Classified, classify, classify_ip};
use crate::wire::{self, IpProtocol};

/// Where the bucket of frames without a flow is.
pub const NO_FLOW: Bucket = Bucket(0);

/// How a frame's bucket was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashSource {
    /// By the hash delivered with the frame.
    Delivered,
    /// By a hash computed in software.
    Computed,
    /// The frame has no flow.
    None,
}

/// Finds the bucket of a frame whose data starts at the Ethernet header; leaves hash and type in its metadata.
#[inline(always)]
pub fn steer(rss: &Rss, frame: &mut Frame) -> (Bucket, HashSource) {
    if let Some(bucket) = Glance::new(rss).bucket(frame) {
        return (bucket, HashSource::Delivered);
    }
    by_headers(rss, frame)
}

/// As [`steer`], whatever the frame is.
#[inline(never)]
fn by_headers(rss: &Rss, frame: &mut Frame) -> (Bucket, HashSource) {
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

/// What is the same for all frames of a burst, to steer plain UDP datagrams and TCP segments over IPv4 whose hash came with them and is of the
/// right type: most frames on a card with RSS. The same answers as the long way gives, from fewer looks.
#[derive(Debug)]
pub struct Glance<'a> {
    rss: &'a Rss,
    /// Number of the hash type that is used of a datagram, and of a segment; 0 for none.
    udp: u8,
    tcp: u8,
}

impl<'a> Glance<'a> {
    /// For frames of hosts that are steered like this.
    #[inline(always)]
    #[must_use]
    pub fn new(rss: &'a Rss) -> Self {
        let number = |with_ports: bool, kind: HashType| match (rss.takes_delivered_hashes(), with_ports) {
            (true, true) => kind.as_u8(),
            (true, false) if rss.config.ipv4 => HashType::Ipv4.as_u8(),
            _ => 0,
        };
        let (udp, tcp) = (rss.config.udp_ipv4, rss.config.tcp_ipv4);
        Self { rss, udp: number(udp, HashType::UdpIpv4), tcp: number(tcp, HashType::TcpIpv4) }
    }

    /// The bucket of a frame whose data starts at the Ethernet header, if that can be told like this.
    #[inline(always)]
    #[must_use]
    pub fn bucket(&self, frame: &Frame) -> Option<Bucket> {
        let meta = frame.meta();
        let h = frame.data().first_chunk::<42>()?;
        let wanted = match h[23] {
            UDP => self.udp,
            // A header that is cut off has no ports.
            TCP if frame.len() >= 54 => self.tcp,
            _ => 0,
        };
        let plain = h[12..15] == [8, 0, 0x45] && h[20] & 0x3f == 0 && h[21] == 0;
        (plain && wanted != 0 && meta.hash_type == wanted).then(|| self.rss.bucket_of(meta.hash))
    }
}

const UDP: u8 = IpProtocol::UDP.0;
const TCP: u8 = IpProtocol::TCP.0;

#[inline]
fn by_flow(rss: &Rss, flow: &Flow, meta: &mut Meta) -> (Bucket, HashSource) {
    let delivered = HashType::from_u8(meta.hash_type).unwrap_or(HashType::None);
    if delivered != HashType::None && rss.accepts(delivered, flow) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::{HashConfig, Key};
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    /// A hash that came with a frame, of any type, under every configuration, of segments and datagrams whole, in pieces and
    /// cut off: the glance at the headers says what looking at all of them says.
    #[test]
    fn a_glance_says_what_the_long_way_says() {
        let memory = MemoryConfig { frames_per_home: 4, lock: false, ..Default::default() };
        let pool = FrameMemory::new(&memory).expect("memory").attach(0).expect("a pool");
        let mut glances = 0;
        for bits in 0..8u32 {
            let mut rss = Rss::new(Key::MICROSOFT, 2);
            rss.config = HashConfig {
                ipv4: bits & 1 > 0,
                tcp_ipv4: bits & 2 > 0,
                udp_ipv4: bits & 4 > 0,
                ..HashConfig::with_udp(flowlane_rss::UdpFields::Four)
            };
            let kinds =
                [HashType::None, HashType::Ipv4, HashType::TcpIpv4, HashType::UdpIpv4, HashType::TcpIpv6];
            for n in 0..3 * 3 * 4 * kinds.len() {
                let (protocol, fragment) = ([6, 17, 1][n % 3], [0u16, 0x2000, 7][n / 3 % 3]);
                let (len, kind) = ([42, 53, 54, 80][n / 9 % 4], kinds[n / 36].as_u8());
                let mut bytes = vec![0u8; len];
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
                bytes[23] = protocol;
                bytes[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 4, 5, 0, 80]);
                let mut frame = pool.alloc().expect("a frame");
                assert!(frame.extend_from_slice(&bytes));
                (frame.meta_mut().hash, frame.meta_mut().hash_type) = (0x55, kind);
                glances += usize::from(Glance::new(&rss).bucket(&frame).is_some());
                let Classified::Ip(flow) = classify(&bytes) else { unreachable!("IPv4") };
                let mut meta = *frame.meta();
                let long = by_flow(&rss, &rss_flow(&flow), &mut meta);
                let short = steer(&rss, &mut frame);
                assert_eq!(short, long, "{bits} {protocol} {fragment:x} {len} {kind}");
                assert_eq!(
                    (frame.meta().hash, frame.meta().hash_type),
                    (meta.hash, meta.hash_type),
                    "{bits} {protocol} {fragment:x} {len} {kind}"
                );
            }
        }
        assert!(glances > 10, "{glances}");
    }
}
