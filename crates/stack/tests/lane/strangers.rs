//! Answers to strangers: who gets one, to whom nothing is ever sent, and that each kind of answer has a limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane_stack::stats::{DropReason, LaneStats};
use flowlane_stack::tcp;
use flowlane_stack::udp::{Bind, BindError};
use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header,
    Ipv4Options, Ipv6Header, MacAddr, NdpMessage, NdpOptions, SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions,
    UdpHeader, ipv6_ext,
};
use flowlane_stack::{Class, Connect, IpConfig, SendError};
use flowlane_sys::frame::Frame;
use proptest::prelude::*;

use crate::net::{Net, Plan, end, ip};
use crate::resolution::arp;

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const US_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const US_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

fn net() -> Net {
    net_with(IpConfig::default())
}

fn net_with(config: IpConfig) -> Net {
    let us = Plan { ip: config, ..Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]) };
    Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &us)
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Header {
        src,
        dst,
        protocol,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: payload.len() as u16,
        options: Ipv4Options::default(),
    };
    let mut packet = vec![0; 20];
    header.emit(&mut packet);
    [&packet[..], payload].concat()
}

pub(crate) fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let header =
        Ipv6Header { src, dst, next_header, hop_limit: 255, traffic_class: 0, flow_label: 0, payload_len };
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    [&packet[..], payload].concat()
}

pub(crate) fn echo_v6(src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut message = [0x5a; 16];
    Icmpv6Message::EchoRequest { ident: 7, seq: 1 }.emit(src, dst, &mut message);
    v6(src, dst, IpProtocol::ICMPV6, &message)
}

fn echo_v4(src: Ipv4Addr) -> Vec<u8> {
    let mut message = [0x5a; 16];
    Icmpv4Message::EchoRequest { ident: 7, seq: 1 }.emit(&mut message);
    v4(src, US_V4, IpProtocol::ICMP, &message)
}

fn udp_v4(src: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut datagram = [0; 12];
    // With a checksum: without one no datagram takes the fast path.
    let pseudo = Sum::pseudo_v4(src, US_V4, IpProtocol::UDP, 12);
    UdpHeader { src_port: 9, dst_port: port, len: 12, checksum: 0 }.emit_with_checksum(pseudo, &mut datagram);
    v4(src, US_V4, IpProtocol::UDP, &datagram)
}

fn tcp_v4(src: Ipv4Addr, port: u16, flags: TcpFlags) -> Vec<u8> {
    let header = TcpHeader {
        src_port: 9,
        dst_port: port,
        seq: SeqNum(1),
        ack: SeqNum(1),
        flags,
        window: 100,
        urgent: 0,
    };
    let mut segment = [0; 20];
    header.emit_with_checksum(
        &TcpOptions::default(),
        Sum::pseudo_v4(src, US_V4, IpProtocol::TCP, 20),
        &mut segment,
    );
    v4(src, US_V4, IpProtocol::TCP, &segment)
}

pub(crate) fn ndp(src: Ipv6Addr, dst: Ipv6Addr, message: &NdpMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(src, dst, &mut bytes);
    v6(src, dst, IpProtocol::ICMPV6, &bytes)
}

fn solicitation(src: Ipv6Addr, source: Option<MacAddr>) -> Vec<u8> {
    let options = NdpOptions { source, ..NdpOptions::default() };
    ndp(src, US_V6, &NdpMessage::NeighborSolicitation { target: US_V6, options })
}

/// An Ethernet frame from the peer: to our address, or the group's.
pub(crate) fn frame(net: &Net, packet: &[u8]) -> Frame {
    let v4 = packet[0] >> 4 == 4;
    let mut group = [0; 16];
    if !v4 && packet[24] == 0xff {
        group.copy_from_slice(&packet[24..40]);
    }
    let dst = if group[0] == 0xff { MacAddr::for_ipv6_multicast(group.into()) } else { US };
    let ethertype = if v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let mut frame = net.pool.alloc().unwrap();
    EthernetHeader { dst, src: PEER, ethertype, vlan: None }.emit(frame.push_back(14).unwrap());
    assert!(frame.extend_from_slice(packet));
    frame
}

/// Gives B a packet; the frames it answers with.
fn give(net: &mut Net, packet: &[u8]) -> Vec<Vec<u8>> {
    let f = frame(net, packet);
    net.b.input(net.now, &net.pool, f);
    net.b.output(net.now, &net.pool).iter().map(|f| f.data().to_vec()).collect()
}

fn drops(net: &Net, reason: DropReason) -> u64 {
    net.b.lanes[0].stats().drops.get(reason)
}

/// Everything that can become of a packet, counted.
fn outcomes(s: &LaneStats) -> u64 {
    s.drops.total()
        + s.udp.delivered
        + s.tcp.packets_received
        + s.ip.fragments
        + s.ip6.fragments
        + s.icmp.received
        + s.icmp6.received
}

/// A router without an address on our networks (RFC 5309) gets its answer, and no entry.
#[test]
fn who_is_not_on_our_networks_is_answered_all_the_same() {
    let mut net = net();
    let request = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: PEER,
        sender_ip: [192, 0, 2, 1].into(),
        target_mac: MacAddr::ZERO,
        target_ip: US_V4,
    };
    let f = arp(&net.pool, MacAddr::BROADCAST, &request);
    net.b.input(net.now, &net.pool, f);
    let out = net.b.output(net.now, &net.pool);
    let (reply, _) = ArpPacket::parse(&out[0].data()[14..]).unwrap();
    assert_eq!(out[0].data()[..6], PEER.0);
    assert_eq!((reply.operation, reply.sender_ip, reply.sender_mac), (ArpOperation::Reply, US_V4, US));
    assert_eq!((reply.target_ip, reply.target_mac), (request.sender_ip, PEER));
    for from in ["2001:db8:9::1", "fe80::9", "fd00::9"] {
        let out = give(&mut net, &solicitation(from.parse().unwrap(), Some(PEER)));
        assert_eq!(out.len(), 1, "{from}");
        assert_eq!(out[0][..6], PEER.0);
        assert_eq!(out[0][54], 136, "an advertisement");
    }
    let known: Vec<_> = net.b.lanes[0].neighbours().map(|(_, a, _)| a).collect();
    assert!(known.iter().all(|a| *a == ip("fe80::9") || *a == ip("fd00::9")), "{known:?}");
    // What cannot be anybody's is nobody's.
    for sender in [[10, 0, 0, 255], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1]] {
        let f = arp(&net.pool, MacAddr::BROADCAST, &ArpPacket { sender_ip: sender.into(), ..request });
        net.b.input(net.now, &net.pool, f);
        assert!(net.b.output(net.now, &net.pool).is_empty(), "{sender:?}");
    }
    assert_eq!(drops(&net, DropReason::ArpStranger), 4);
}

/// RFC 1122 section 3.2.1.3: an answer would go to everybody.
#[test]
fn packets_from_a_broadcast_address_are_refused_on_every_way() {
    let mut net = net();
    net.b.bind_all(7);
    let all: Ipv4Addr = [10, 0, 0, 255].into();
    for packet in [udp_v4(all, 7), udp_v4(all, 8), tcp_v4(all, 80, TcpFlags::SYN), echo_v4(all)] {
        let before = drops(&net, DropReason::BadSource);
        assert!(give(&mut net, &packet).is_empty());
        assert_eq!(drops(&net, DropReason::BadSource), before + 1);
    }
    assert_eq!(net.b.lanes[0].stats().udp.delivered, 0);
}

/// RFC 1122 section 3.2.1.8: a source route could make answers take a way that no filter watches.
#[test]
fn packets_with_a_source_route_are_refused() {
    for kind in [131, 137] {
        let mut net = net();
        net.b.bind_all(7);
        let plain = udp_v4([10, 0, 0, 1].into(), 7);
        let mut packet = [&plain[..20], &[kind, 7, 4, 10, 0, 0, 9, 0], &plain[20..]].concat();
        packet[0] = 0x47;
        packet[3] += 8;
        packet[10..12].fill(0);
        let sum = flowlane_stack::wire::checksum::checksum(&packet[..28]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        assert!(give(&mut net, &packet).is_empty());
        assert_eq!((drops(&net, DropReason::SourceRoute), net.b.lanes[0].stats().udp.delivered), (1, 0));
        give(&mut net, &plain);
        assert_eq!(net.b.lanes[0].stats().udp.delivered, 1);
    }
}

/// What another lane has put together and hands over is no fragment any more, or two lanes could hand it to and fro.
#[test]
fn what_comes_from_another_lane_is_no_fragment() {
    let mut net = net();
    let mut packet = udp_v4([10, 0, 0, 1].into(), 7);
    packet[6] = 0x20;
    packet[10..12].fill(0);
    let sum = flowlane_stack::wire::checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = net.pool.alloc().unwrap();
    assert!(frame.extend_from_slice(&packet));
    net.b.lanes[0].input(net.now, &net.pool, frame, Class::IpDirect);
    assert_eq!((drops(&net, DropReason::FragmentNested), net.b.lanes[0].stats().ip.delivered), (1, 0));
}

#[test]
fn nothing_is_sent_to_the_unspecified_address() {
    let mut plan = Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    for gateway in ["10.0.0.1", "fd00::1"] {
        plan.gateway = Some(gateway);
        let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &plan);
        let s = net.b.bind_all(7)[0];
        for to in ["0.0.0.0:9", "[::]:9"] {
            let lane = &mut net.b.lanes[0];
            let sent = lane.udp_send(net.now, &net.pool, s, b"?", None, Some(end(to)));
            assert_eq!(sent, Err(SendError::Unspecified), "{to}");
            assert!(lane.tcp_connect(net.now, &net.pool, Connect::to(end(to))).is_err(), "{to}");
            let bound = lane.udp_bind(Bind { remote: Some(end(to)), ..Bind::default() });
            assert_eq!(bound, Err(BindError::NoRoute), "{to}");
        }
        let nobody = Ipv6Addr::UNSPECIFIED;
        assert!(give(&mut net, &echo_v6(nobody, US_V6)).is_empty());
        // Where the fixed header names options, the protocol is known only behind them.
        let mut datagram = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &[0, 9, 0, 7, 0, 8, 0, 0]].concat();
        let pseudo = Sum::pseudo_v6(nobody, US_V6, IpProtocol::UDP, 8);
        let sum = pseudo.add_bytes(&datagram[8..]).finish();
        datagram[14..16].copy_from_slice(&sum.to_be_bytes());
        assert!(give(&mut net, &v6(nobody, US_V6, IpProtocol::HOP_BY_HOP, &datagram)).is_empty());
        assert!(net.b.lanes[0].udp_receive(s).is_none());
        assert_eq!(drops(&net, DropReason::BadSource), 2);
        assert!(net.b.output(net.now, &net.pool).is_empty());
    }
}

/// RFC 4443 section 4.2: from an address of ours that fits the asker's.
#[test]
fn a_ping_to_all_nodes_is_answered() {
    let mut net = net();
    for (from, source) in [("fe80::9", "fe80::ff:fe00:2"), ("fd00::1", "fd00::2")] {
        let from: Ipv6Addr = from.parse().unwrap();
        give(&mut net, &solicitation(from, Some(PEER)));
        for group in [ALL_NODES, "ff02::1:ff00:2".parse().unwrap()] {
            let out = give(&mut net, &echo_v6(from, group));
            assert_eq!(out.len(), 1, "{from} {group}");
            let (header, payload) = Ipv6Header::parse(&out[0][14..]).unwrap();
            assert_eq!((header.src, header.dst), (source.parse().unwrap(), from));
            let message = Icmpv6Message::parse(header.src, header.dst, &out[0][14..][payload]).unwrap().0;
            assert_eq!(message, Icmpv6Message::EchoReply { ident: 7, seq: 1 });
        }
        assert!(
            give(&mut net, &echo_v6(from, "ff02::1:ff00:77".parse().unwrap())).is_empty(),
            "another's group"
        );
    }
    // A wide group could make many of us answer somebody far away.
    let wide: IpAddr = ip("ff0e::7");
    net.b.lanes[0].join(net.now, &net.pool, 0, wide);
    net.b.output(net.now, &net.pool);
    assert!(give(&mut net, &echo_v6("fd00::1".parse().unwrap(), "ff0e::7".parse().unwrap())).is_empty());
    assert_eq!(drops(&net, DropReason::IcmpBroadcast), 3);
}

/// As SECURITY.md says: each kind of answer to a stranger has a limit of its own, and what it suppresses is counted.
#[test]
fn every_answer_to_strangers_has_a_limit() {
    const MANY: u64 = 3000;
    let config = IpConfig {
        icmp_errors_per_second: 50,
        echo_replies_per_second: 60,
        neighbour_requests_per_second: 70,
        neighbour_replies_per_second: 80,
        ..IpConfig::default()
    };
    let mut net = net_with(config);
    let from = Ipv4Addr::new(10, 0, 0, 1);
    let request = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: PEER,
        sender_ip: from,
        target_mac: MacAddr::ZERO,
        target_ip: US_V4,
    };
    // The peer is known before anything is counted.
    let f = arp(&net.pool, MacAddr::BROADCAST, &request);
    net.b.input(net.now, &net.pool, f);
    net.b.output(net.now, &net.pool);
    let mut most = |packet: &dyn Fn(u64) -> Vec<u8>, limit: u64| {
        // Another second: every budget is whole.
        net.now += std::time::Duration::from_secs(2);
        let sent = (0..MANY).map(|n| give(&mut net, &packet(n)).len() as u64).sum::<u64>();
        assert!(sent <= limit && sent >= limit / 2, "{sent} answers, {limit} allowed");
        net.b.lanes[0].stats()
    };
    let s = most(&|_| udp_v4(from, 9), 50);
    assert_eq!(s.icmp.errors_limited, MANY - 50);
    let s = most(&|_| echo_v4(from), 60);
    assert_eq!((s.icmp.echoes_limited, s.drops.get(DropReason::EchoLimited)), (MANY - 60, MANY - 60));
    let s = most(&|_| solicitation("fd00::1".parse().unwrap(), Some(PEER)), 80);
    assert_eq!((s.arp.replies_limited, s.drops.get(DropReason::ArpLimited)), (MANY - 80, MANY - 80));
    // Answers to neighbours that nobody knows: a question for each, were there no limit.
    let s = most(&|n| tcp_v4([10, 0, 0, 3 + (n % 250) as u8].into(), 80, TcpFlags::SYN), 70);
    assert!(s.arp.requests_limited > 0, "{:?}", s.arp);
    let before = s.tcp.resets_limited;
    let s = most(&|_| tcp_v4(from, 80, TcpFlags::SYN), 1500);
    assert_eq!(s.tcp.resets_sent + s.tcp.resets_limited, 2 * MANY);
    assert!(s.tcp.resets_limited - before >= MANY - 1500);
    assert_eq!(s.tcp.dropped(tcp::DropReason::NoConnection), 2 * MANY);
}

/// A flood that leaves no question for others does not keep a router from being asked for.
#[test]
fn routers_are_asked_for_beyond_the_limit() {
    let config = IpConfig { neighbour_requests_per_second: 0, ..IpConfig::default() };
    let plan = Plan { ip: config, gateway: Some("10.0.0.1"), ..Plan::new(2, &["10.0.0.2/24"]) };
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &plan);
    let s = net.b.bind_all(7)[0];
    let mut asked = |to: &str| {
        net.b.lanes[0].udp_send(net.now, &net.pool, s, b"?", None, Some(end(to))).unwrap();
        net.b.output(net.now, &net.pool).len()
    };
    assert_eq!((asked("10.0.0.9:9"), asked("8.8.8.8:9")), (0, 1));
    assert_eq!(net.b.lanes[0].stats().arp.requests_limited, 1);
}

/// Extension headers in any order, of any content, with any protocol behind them.
fn chain() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let header = (
        prop::sample::select(vec![0u8, 43, 44, 60]),
        prop::collection::vec(any::<u8>(), 6),
        prop::sample::select(vec![0u8, 0, 0, 1, 200]),
        any::<bool>(),
    );
    (prop::collection::vec(header, 0..10), any::<u8>(), prop::collection::vec(any::<u8>(), 0..48)).prop_map(
        |(headers, last, payload)| {
            let mut next = last;
            let mut bytes = payload;
            for (kind, content, len, padded) in headers.into_iter().rev() {
                let mut header = vec![next, if kind == 44 { 0 } else { len }];
                header.extend(if padded { vec![1, 4, 0, 0, 0, 0] } else { content });
                bytes = [header, bytes].concat();
                next = kind;
            }
            (next, bytes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_chain_of_headers_has_an_outcome((next, bytes) in chain(), to_group in any::<bool>()) {
        let mut net = net();
        let dst = if to_group { ALL_NODES } else { US_V6 };
        let before = outcomes(&net.b.lanes[0].stats());
        give(&mut net, &v6("fd00::1".parse().unwrap(), dst, IpProtocol(next), &bytes));
        prop_assert!(outcomes(&net.b.lanes[0].stats()) > before, "next header {next}, {bytes:02x?}");
    }
}

/// Every protocol of either family, every kind of ICMP and of IGMP message, to us and to groups.
#[test]
fn every_protocol_and_every_kind_of_message_has_an_outcome() {
    let mut net = net();
    net.b.bind_all(7);
    let mut check = |packet: Vec<u8>, what: &str| {
        let before = net.b.lanes[0].stats();
        give(&mut net, &packet);
        let after = net.b.lanes[0].stats();
        assert!(outcomes(&after) > outcomes(&before), "{what}");
    };
    let (src4, src6) = (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
    for n in 0..=255u8 {
        for payload in [&[][..], &[n; 4], &[n; 40]] {
            if n != 2 {
                check(v4(src4, US_V4, IpProtocol(n), payload), &format!("IPv4 protocol {n}"));
            }
            check(v6(src6, US_V6, IpProtocol(n), payload), &format!("IPv6 next header {n}"));
            check(v6(src6, ALL_NODES, IpProtocol(n), payload), &format!("IPv6 next header {n} to all"));
        }
        for dst in [US_V6, ALL_NODES] {
            for len in [8, 24, 48] {
                let mut message = vec![0; len];
                message[0] = n;
                let sum =
                    Sum::pseudo_v6(src6, dst, IpProtocol::ICMPV6, len as u32).add_bytes(&message).finish();
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                check(v6(src6, dst, IpProtocol::ICMPV6, &message), &format!("ICMPv6 type {n} to {dst}"));
                let alert = ipv6_ext::router_alert(IpProtocol::ICMPV6);
                let message = [&alert[..], &message].concat();
                check(
                    v6(src6, dst, IpProtocol::HOP_BY_HOP, &message),
                    &format!("ICMPv6 type {n} with options"),
                );
            }
        }
        let mut message = [0; 32];
        message[0] = n;
        let sum = Sum::EMPTY.add_bytes(&message).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        check(v4(src4, US_V4, IpProtocol::ICMP, &message), &format!("ICMP type {n}"));
    }
}
