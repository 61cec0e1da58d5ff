//! Decapsulation: from an outer packet for us to the inner one, in the same frame.
//!
//! All checks come before headers are removed: the sender, the tunnel's header, and that the type of the inner packet is one that the
//! tunnel carries. The inner packet is not checked here, since it passes through all of IP again.

use flowlane_sys::frame::{Checksum, Frame};

use super::{Inbound, Ip};
use crate::chain;
use crate::packet::{Cx, IcmpErrorKind, IpInput};
use crate::stats::DropReason;
use crate::tunnel::{Key, Tunnel, ecn, in_udp};
use crate::udp;
use crate::wire::udp::{HEADER_LEN, UdpHeader};
use crate::wire::{EtherType, GeneveHeader, GreHeader, IpProtocol, Quote, VxlanHeader};

/// What stands behind the outer headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    V4,
    V6,
    Ethernet,
    Other,
}

impl From<EtherType> for Inner {
    fn from(kind: EtherType) -> Self {
        match kind {
            EtherType::IPV4 => Self::V4,
            EtherType::IPV6 => Self::V6,
            EtherType::TRANSPARENT_ETHERNET => Self::Ethernet,
            _ => Self::Other,
        }
    }
}

impl Ip {
    /// Whether a packet for us is a UDP datagram to a tunnel.
    #[inline]
    pub(crate) fn is_tunnel_udp(&self, packet: &IpInput) -> bool {
        if self.tunnels.is_empty() || packet.ip.protocol != IpProtocol::UDP.0 {
            return false;
        }
        let port = packet.frame.data().get(2..4).map(|p| u16::from_be_bytes([p[0], p[1]]));
        port.is_some_and(|port| self.tunnels.takes_port(port, packet.ip.dst))
    }

    /// Takes in a packet of IP in IP or GRE.
    pub(crate) fn tunnelled(&mut self, cx: &Cx<'_>, packet: IpInput) -> Inbound {
        let packet = Self::gather_outer(cx, packet);
        let (id, inner, header_len) = match IpProtocol(packet.ip.protocol) {
            IpProtocol::GRE => match GreHeader::parse(packet.frame.data()) {
                Ok((header, payload)) => (header.key, header.protocol.into(), payload.start),
                Err(reason) => return self.malformed(reason),
            },
            IpProtocol::IPV4 => (None, Inner::V4, 0),
            _ => (None, Inner::V6, 0),
        };
        // Both families in one tunnel: it is found under IPv4's number.
        let shape =
            if packet.ip.protocol == IpProtocol::GRE.0 { IpProtocol::GRE.0 } else { IpProtocol::IPV4.0 };
        let key = Key { shape: shape.into(), id, local: packet.ip.dst, remote: packet.ip.src };
        self.decapsulate(packet, &key, inner, header_len)
    }

    /// Takes in a UDP datagram for which [`Ip::is_tunnel_udp`] said yes.
    pub(crate) fn tunnelled_udp(&mut self, cx: &Cx<'_>, packet: IpInput) -> Inbound {
        let mut packet = Self::gather_outer(cx, packet);
        self.stats.udp.received += 1;
        let (header, payload) = match UdpHeader::parse_first(packet.frame.data(), packet.frame.chain_len()) {
            Ok(parsed) => parsed,
            Err(reason) => {
                self.stats.udp.bad_length += 1;
                return self.malformed(reason);
            }
        };
        packet.frame.truncate_chain(payload.end);
        if header.has_no_checksum() {
            self.stats.udp.no_checksum += 1;
        } else if packet.frame.meta().checksum == Checksum::InPacket && !udp::is_intact(&packet) {
            self.stats.udp.bad_checksum += 1;
            return self.drop(DropReason::UdpChecksum);
        }
        let body = packet.frame.data().get(HEADER_LEN..).unwrap_or_default();
        let vxlan = self.tunnels.ports.contains(&(header.dst_port, packet.ip.dst, true));
        let parsed = if vxlan {
            VxlanHeader::parse(body).map(|(h, range)| (h.vni, Inner::Ethernet, range.start, false))
        } else {
            GeneveHeader::parse(body).map(|(h, range)| (h.vni, h.protocol.into(), range.start, h.control))
        };
        let (vni, inner, header_len) = match parsed {
            Ok((_, _, _, true)) => return self.drop(DropReason::TunnelControl),
            Ok((vni, inner, len, _)) => (vni, inner, len),
            Err(reason) => return self.malformed(reason),
        };
        let shape = in_udp(header.dst_port);
        let key = Key { shape, id: Some(vni), local: packet.ip.dst, remote: packet.ip.src };
        if header.has_no_checksum() && packet.ip.src.is_ipv6() {
            // RFC 6935 section 5: only for tunnels that agreed to it.
            match self.tunnels.find(&key) {
                Some((_, tunnel)) if tunnel.checksum => return self.drop(DropReason::UdpNoChecksum),
                _ => {}
            }
        }
        self.decapsulate(packet, &key, inner, HEADER_LEN + header_len)
    }

    /// An outer packet that came in fragments, in one frame if it fits: from here on it is like any other.
    #[inline]
    fn gather_outer(cx: &Cx<'_>, packet: IpInput) -> IpInput {
        if !packet.frame.is_chained() {
            return packet;
        }
        let frame = chain::gather(cx.frames, packet.frame).unwrap_or_else(|chain| chain);
        IpInput { frame, ip: packet.ip }
    }

    /// Takes the outer headers off: the frame's data starts behind the outer IP header, and `header_len` bytes before the
    /// inner packet.
    fn decapsulate(&mut self, packet: IpInput, key: &Key, inner: Inner, header_len: usize) -> Inbound {
        let IpInput { mut frame, ip } = packet;
        let Some((interface, tunnel)) = self.tunnels.find(key) else {
            return self.drop(DropReason::TunnelUnknown);
        };
        if self.tunnels.level(ip.interface) >= tunnel.level {
            return self.drop(DropReason::TunnelNested);
        }
        // The header was parsed from these bytes.
        let _ = frame.trim_front(header_len);
        let ethernet = tunnel.kind.is_ethernet();
        if !carries(&tunnel, inner, &frame) {
            return self.drop(DropReason::TunnelPayload);
        }
        if let Some(at) = ecn::ip_at(frame.data(), ethernet) {
            let class = ecn::traffic_class(frame.data(), at);
            match ecn::leave(class, ip.traffic_class) {
                Some(ecn) if ecn == class & ecn::MASK => {}
                Some(ecn) => {
                    ecn::set(&mut frame, at, ecn);
                    self.stats.tunnel.marked += 1;
                }
                None => return self.drop(DropReason::TunnelEcn),
            }
        }
        self.stats.tunnel.received += 1;
        self.stats.tunnel.received_bytes += frame.chain_len() as u64;
        let meta = frame.meta_mut();
        meta.interface = interface;
        // Of the outer packet, all of it.
        meta.vlan = None;
        (meta.hash, meta.hash_type) = (0, 0);
        if meta.checksum == Checksum::Verified {
            meta.checksum = Checksum::InPacket;
        }
        Inbound::Inner { frame, ethernet }
    }

    /// An ICMP error about a packet that a tunnel of ours sent; `false` if none did.
    pub(crate) fn tunnel_error(&mut self, cx: &mut Cx<'_>, quote: &Quote, kind: IcmpErrorKind) -> bool {
        let shape = match quote.protocol {
            IpProtocol::IPV4 | IpProtocol::IPV6 => u32::from(IpProtocol::IPV4.0),
            IpProtocol::GRE => u32::from(IpProtocol::GRE.0),
            IpProtocol::UDP => match quote.start {
                Some([_, _, a, b, ..]) => in_udp(u16::from_be_bytes([a, b])),
                None => return false,
            },
            _ => return false,
        };
        // The identifier is not always quoted.
        let ours = |k: &Key| k.shape == shape && k.local == quote.src && k.remote == quote.dst;
        if !self.tunnels.by_key.iter().any(|(k, _)| ours(k)) {
            return false;
        }
        self.stats.tunnel.errors += 1;
        if let IcmpErrorKind::PacketTooBig(mtu) = kind {
            self.path_too_small(cx, quote.dst, mtu);
        }
        true
    }
}

/// Whether a tunnel carries what its packet says is inside, and that is what it says.
fn carries(tunnel: &Tunnel, inner: Inner, frame: &Frame) -> bool {
    let version = frame.data().first().map_or(0, |b| b >> 4);
    match (tunnel.kind.is_ethernet(), inner) {
        (true, Inner::Ethernet) => true,
        (false, Inner::V4) => version == 4,
        (false, Inner::V6) => version == 6,
        _ => false,
    }
}
