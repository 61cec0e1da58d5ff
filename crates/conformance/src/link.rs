//! Between packetdrill's IP packets and the lane's Ethernet frames: a link with one neighbour who answers to every address.

use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, IpProtocol, Ipv6Header, MacAddr, NdpMessage,
    NdpOptions, arp, ethernet, ipv6,
};
use flowlane_sys::frame::{Frame, Pool};

/// The lane's interface.
pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Everybody else.
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const IGMP: u8 = 2;
/// Multicast listener discovery and neighbour discovery: what packetdrill's own tunnel would not show either.
const LINK_LOCAL_ICMPV6: [u8; 10] = [130, 131, 132, 133, 134, 135, 136, 137, 141, 143];
const NEIGHBOR_SOLICITATION: u8 = 135;

/// Puts an IP packet into a frame behind an Ethernet header. `None`: no frame, or none so large.
pub(crate) fn wrap(pool: &Pool, packet: &[u8]) -> Option<Frame> {
    let ethertype = match packet.first()? >> 4 {
        4 => EtherType::IPV4,
        6 => EtherType::IPV6,
        _ => return None,
    };
    frame(pool, ethertype, packet)
}

fn frame(pool: &Pool, ethertype: EtherType, payload: &[u8]) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    let header = EthernetHeader { dst: OUR_MAC, src: PEER_MAC, ethertype, vlan: None };
    header.emit(frame.push_back(ethernet::HEADER_LEN)?);
    frame.extend_from_slice(payload).then_some(frame)
}

/// The IP packet in a frame that leaves, unless it is the link's own business.
pub(crate) fn unwrap(bytes: &[u8]) -> Option<&[u8]> {
    let (header, payload) = EthernetHeader::parse(bytes).ok()?;
    let packet = &bytes[payload];
    let seen = match header.ethertype {
        EtherType::IPV4 => packet.get(9) != Some(&IGMP),
        EtherType::IPV6 => !packet.get(6..).is_some_and(is_link_local_icmpv6),
        _ => false,
    };
    seen.then_some(packet)
}

/// From an IPv6 header's next-header field on: is it about neighbours or listeners, hop-by-hop options before it or not?
fn is_link_local_icmpv6(rest: &[u8]) -> bool {
    const AFTER_HEADER: usize = ipv6::HEADER_LEN - 6;
    let kind = match rest.first() {
        Some(&58) => rest.get(AFTER_HEADER),
        Some(&0) if rest.get(AFTER_HEADER) == Some(&58) => rest.get(AFTER_HEADER + 8),
        _ => None,
    };
    kind.is_some_and(|kind| LINK_LOCAL_ICMPV6.contains(kind))
}

/// The neighbour's answer, if a frame that leaves asks for an Ethernet address.
pub(crate) fn answer(pool: &Pool, bytes: &[u8]) -> Option<Frame> {
    let (header, payload) = EthernetHeader::parse(bytes).ok()?;
    let packet = &bytes[payload];
    match header.ethertype {
        EtherType::ARP => answer_arp(pool, packet),
        EtherType::IPV6 => answer_solicitation(pool, packet),
        _ => None,
    }
}

fn answer_arp(pool: &Pool, packet: &[u8]) -> Option<Frame> {
    let (asked, _) = ArpPacket::parse(packet).ok()?;
    if asked.operation != ArpOperation::Request || asked.is_probe() || asked.is_announcement() {
        return None;
    }
    let reply = ArpPacket {
        operation: ArpOperation::Reply,
        sender_mac: PEER_MAC,
        sender_ip: asked.target_ip,
        target_mac: asked.sender_mac,
        target_ip: asked.sender_ip,
    };
    let mut bytes = [0; arp::PACKET_LEN];
    reply.emit(&mut bytes);
    frame(pool, EtherType::ARP, &bytes)
}

fn answer_solicitation(pool: &Pool, packet: &[u8]) -> Option<Frame> {
    let (ip, payload) = Ipv6Header::parse(packet).ok()?;
    let message = &packet[payload];
    if ip.next_header != IpProtocol::ICMPV6 || message.first() != Some(&NEIGHBOR_SOLICITATION) {
        return None;
    }
    let (NdpMessage::NeighborSolicitation { target, .. }, _) = NdpMessage::parse(message).ok()? else {
        return None;
    };
    let options = NdpOptions { target: Some(PEER_MAC), ..NdpOptions::default() };
    let advertisement =
        NdpMessage::NeighborAdvertisement { router: true, solicited: true, overrides: true, target, options };
    let len = advertisement.len();
    let mut bytes = vec![0; ipv6::HEADER_LEN + len];
    let header = Ipv6Header {
        src: target,
        dst: ip.src,
        next_header: IpProtocol::ICMPV6,
        hop_limit: 255,
        traffic_class: 0,
        flow_label: 0,
        payload_len: len as u16,
    };
    header.emit(&mut bytes);
    advertisement.emit(target, ip.src, &mut bytes[ipv6::HEADER_LEN..]);
    frame(pool, EtherType::IPV6, &bytes)
}
