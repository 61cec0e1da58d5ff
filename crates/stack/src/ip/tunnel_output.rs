//! Encapsulation: from a frame for an inner interface to an outer packet in the same frame.
//!
//! It is done when the frame is pulled: an inner frame waits in the lane's output queue like any other, and its turn is that of the outer
//! packet. The outer headers are written to the frame's headroom.
//!
//! * **Source port** of VXLAN and Geneve: made from the inner packet's flow hash, so that all of a flow goes one way, and
//!   flows are spread over the receiver's queues (RFC 7348 section 5). Fragments carry the hash of their whole packet.
//! * **MTU**: packets longer than the path to the far side allows are sent in outer fragments, made here; with the default MTU of the tunnel
//!   this never happens.
//! * **ECN** is copied out (RFC 6040 section 4.1), the rest of the traffic class is not: outer packets are of class 0.
//! * **DF** is set on outer IPv4 packets, and the path MTU from ICMP errors is kept (`path_mtu.rs`).

use flowlane_rss::{HashType, Rss};
use flowlane_sys::frame::{Checksum, Frame, Segmentation};

use super::Ip;
use crate::chain;
use crate::packet::{Cx, IpOutput};
use crate::path_mtu::PathMtus;
use crate::stats::DropReason;
use crate::steering::rss_flow;
use crate::tunnel::{LEAST_MTU, MAX_LEVEL, Tunnel, TunnelKind, ecn, gre};
use crate::udp;
use crate::wire::udp::{HEADER_LEN, UdpHeader, nonzero};
use crate::wire::{EtherType, GeneveHeader, IpProtocol, VxlanHeader, classify, classify_ip};

/// First of the outer source ports (RFC 7348 section 5: the dynamic ones).
const FIRST_PORT: u16 = 49_152;

impl Ip {
    /// Whether a frame from the output queue is for an inner interface.
    #[inline]
    pub(crate) fn is_inner(&self, frame: &Frame) -> bool {
        self.tunnels.is_tunnel(frame.meta().interface)
    }

    /// Whether a frame to be sent starts with an Ethernet header: all but those for tunnels that carry IP.
    pub(crate) fn carries_ethernet(&self, frame: &Frame) -> bool {
        self.tunnels.get(frame.meta().interface).is_none_or(|tunnel| tunnel.kind.is_ethernet())
    }

    /// Puts the outer headers in front of a frame for an inner interface and sends it: to the end of an output queue. What
    /// cannot go is dropped and counted.
    pub(crate) fn encapsulate(&mut self, cx: &mut Cx<'_>, rss: &Rss, mut frame: Frame) {
        let Some(tunnel) = self.tunnels.get(frame.meta().interface) else {
            return self.stats.drops.count(DropReason::NoRoute);
        };
        let Some(hop) = self.routes.hop(tunnel.remote) else {
            return self.stats.drops.count(DropReason::NoRoute);
        };
        if self.tunnels.level(hop.interface) >= tunnel.level {
            return self.stats.drops.count(DropReason::TunnelNested);
        }
        let ethernet = tunnel.kind.is_ethernet();
        let at = ecn::ip_at(frame.data(), ethernet);
        let class = at.map_or(0, |at| ecn::traffic_class(frame.data(), at) & ecn::MASK);
        if let Some(at) = at.filter(|_| frame.meta().checksum == Checksum::Partial) {
            complete(&mut frame, at);
        }
        let hash = flow_hash(rss, &frame, ethernet);
        let meta = frame.meta_mut();
        meta.checksum = Checksum::InPacket;
        meta.segmentation = Segmentation::None;
        (meta.hash, meta.hash_type) = (0, 0);
        meta.vlan = None;
        let len = frame.chain_len() as u64;
        let Some(protocol) = push_header(&tunnel, &mut frame, hash) else {
            return self.stats.drops.count(DropReason::NoHeadroom);
        };
        let out = IpOutput {
            frame,
            src: tunnel.local,
            dst: tunnel.remote,
            protocol: protocol.0,
            hop_limit: tunnel.hop_limit,
            traffic_class: class,
            dont_fragment: true,
        };
        // Counted where it fails.
        if self.send_to(cx, out, hop).is_ok() {
            self.stats.tunnel.sent += 1;
            self.stats.tunnel.sent_bytes += len;
        }
    }

    /// Fits the tunnels that have no MTU of their own to the interfaces they go over, the lower ones first.
    pub(crate) fn fit_tunnels(&mut self) {
        for level in 1..=MAX_LEVEL {
            for i in 0..self.interfaces.len() {
                let tunnel = self.tunnels.get(i as u8).filter(|t| t.follows_path && t.level == level);
                let Some((remote, overhead)) = tunnel.map(|t| (t.remote, t.overhead)) else { continue };
                let under =
                    self.routes.hop(remote).and_then(|hop| self.interfaces.get(usize::from(hop.interface)));
                if let Some(under) = under {
                    let fits = under.config.mtu.saturating_sub(overhead).max(LEAST_MTU);
                    self.interfaces[i].config.mtu = fits;
                }
            }
        }
    }

    /// Longest IP packet on an interface, bytes: of a tunnel, as long as the way to its far side allows.
    pub(crate) fn interface_mtu(&self, paths: &PathMtus, interface: u8) -> u16 {
        let mtu = self.interfaces.get(usize::from(interface)).map_or(0, |i| i.config.mtu);
        match self.tunnels.get(interface) {
            Some(tunnel) if tunnel.follows_path && !paths.is_empty() => match paths.get(tunnel.remote) {
                Some(path) => mtu.min(path.saturating_sub(tunnel.overhead).max(LEAST_MTU)),
                None => mtu,
            },
            _ => mtu,
        }
    }
}

/// Puts everything between the outer IP header and the inner packet in front; says what it is.
fn push_header(tunnel: &Tunnel, frame: &mut Frame, hash: u32) -> Option<IpProtocol> {
    match tunnel.kind {
        TunnelKind::IpInIp => Some(match version(frame) {
            4 => IpProtocol::IPV4,
            _ => IpProtocol::IPV6,
        }),
        TunnelKind::Gre { key, ethernet } => {
            let header = gre(key, tunnel.checksum, inner_type(frame, ethernet));
            let chained = frame.is_chained();
            header.emit(frame.push_front(header.header_len())?);
            if chained && tunnel.checksum {
                frame.data_mut().get_mut(4..6)?.fill(0);
                let sum = chain::sum(frame).finish();
                frame.data_mut().get_mut(4..6)?.copy_from_slice(&sum.to_be_bytes());
            }
            Some(IpProtocol::GRE)
        }
        TunnelKind::Vxlan { vni, port } => {
            VxlanHeader { vni }.emit(frame.push_front(crate::wire::vxlan::HEADER_LEN)?);
            push_udp(tunnel, frame, source_port(hash), port)
        }
        TunnelKind::Geneve { vni, port, ethernet } => {
            let header = GeneveHeader { protocol: inner_type(frame, ethernet), vni, control: false };
            header.emit(frame.push_front(crate::wire::geneve::HEADER_LEN)?);
            push_udp(tunnel, frame, source_port(hash), port)
        }
    }
}

fn push_udp(tunnel: &Tunnel, frame: &mut Frame, src_port: u16, dst_port: u16) -> Option<IpProtocol> {
    let len = frame.chain_len() + HEADER_LEN;
    // What the length field cannot say cannot be sent.
    let header = UdpHeader { src_port, dst_port, len: u16::try_from(len).ok()?, checksum: 0 };
    header.emit(frame.push_front(HEADER_LEN)?);
    if tunnel.checksum {
        let sum = udp::pseudo(tunnel.local, tunnel.remote, len);
        let checksum = nonzero(sum.combine(chain::sum(frame), 0).finish());
        frame.data_mut().get_mut(6..8)?.copy_from_slice(&checksum.to_be_bytes());
    }
    Some(IpProtocol::UDP)
}

fn version(frame: &Frame) -> u8 {
    frame.data().first().map_or(0, |b| b >> 4)
}

fn inner_type(frame: &Frame, ethernet: bool) -> EtherType {
    match (ethernet, version(frame)) {
        (true, _) => EtherType::TRANSPARENT_ETHERNET,
        (false, 4) => EtherType::IPV4,
        (false, _) => EtherType::IPV6,
    }
}

/// One of 16384 ports. The multiplication mixes, so that the low bits, which choose the receiver's queue by way of its own
/// hash, depend on all of the hash.
fn source_port(hash: u32) -> u16 {
    FIRST_PORT + (hash.wrapping_mul(0x9e37_79b1) >> 18) as u16
}

/// The hash of a frame's flow: as its sender attached it, or computed.
fn flow_hash(rss: &Rss, frame: &Frame, ethernet: bool) -> u32 {
    if frame.meta().hash_type != HashType::None.as_u8() {
        return frame.meta().hash;
    }
    let flow = if ethernet { classify(frame.data()).flow() } else { classify_ip(frame.data()) };
    flow.map_or(0, |flow| rss.transmit_hash(&rss_flow(&flow)).0)
}

/// Computes a transport checksum that was left to the link: no link will see it. The IP packet begins at `at`.
fn complete(frame: &mut Frame, at: usize) {
    let Some(h) = frame.data().get(at..).and_then(<[u8]>::first_chunk::<20>) else { return };
    let (header_len, protocol) = match h[0] >> 4 {
        4 => (usize::from(h[0] & 15) * 4, h[9]),
        _ => (crate::wire::ipv6::HEADER_LEN, h[6]),
    };
    let field = match IpProtocol(protocol) {
        IpProtocol::UDP => 6,
        IpProtocol::TCP => 16,
        _ => return,
    };
    let start = at + header_len;
    if !frame.trim_front(start) {
        return;
    }
    // The field holds the sum of the pseudo-header, which so gets into the sum of everything.
    let checksum = chain::sum(frame).finish();
    let checksum = if field == 6 { nonzero(checksum) } else { checksum };
    if let Some(field) = frame.data_mut().get_mut(field..field + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    // The bytes were there a moment ago.
    let _ = frame.push_front(start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_are_dynamic_ones_and_spread() {
        let mut ports: Vec<u16> = (0..4096u32).map(|i| source_port(i << 3)).collect();
        assert!(ports.iter().all(|p| *p >= 49_152));
        ports.sort_unstable();
        ports.dedup();
        assert!(ports.len() > 3500, "{}", ports.len());
    }
}
