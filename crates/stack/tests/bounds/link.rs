//! What strangers on a link can make the layers below TCP keep: each is sent a hundred times its bound.
//!
//! The numbers are those of the table "Memory" in `docs/conformance/ip.md`. The least says that the flood came as far as the bound;
//! a frame counts with its whole buffer, however little is in it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_stack::IpConfig;
use flowlane_stack::stats::DropReason;
use flowlane_stack::tunnel::{TunnelConfig, TunnelKind};
use flowlane_stack::udp::{Bind, UdpConfig};
use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, Icmpv4Message, Icmpv6Message, IpProtocol,
    Ipv6Fragment, Ipv6Header, MacAddr, MldQuery, NdpMessage, NdpOptions, PrefixInformation, VxlanHeader,
    igmp,
};

use crate::host::{Host, THEIR_MAC, US_MAC, US_V4, US_V6, stranger_v4, stranger_v6, udp, v4, v6};
use crate::kit::{FRAME, my_turn};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const WHOLE: (u16, u16, bool) = (0, 0, false);

fn fragment_v6(n: u32, offset: u16, payload: &[u8]) -> Vec<u8> {
    let part = Ipv6Fragment { next_header: IpProtocol::UDP, offset, more: true, identification: n };
    let mut header = [0; 8];
    part.emit(&mut header);
    // A few of each network, since one network alone has a share only.
    let src = Ipv6Addr::new(0x2001, 0xdb8, (n >> 16) as u16, n as u16 / 4, 0, 0, 0, n as u16);
    v6(src, US_V6, IpProtocol::FRAGMENT, &[&header[..], payload].concat())
}

/// Fragments of datagrams that never become whole, each from another sender: 1024 of either family together.
#[test]
fn fragments() {
    let _turn = my_turn();
    for (name, first, second) in [("IPv4", true, true), ("IPv6", false, false), ("both", true, false)] {
        let mut host = Host::new(|_| {});
        for n in 0..102_400 {
            let v4_turn = if n % 2 == 0 { first } else { second };
            let packet = match v4_turn {
                true => v4(stranger_v4(n), IpProtocol::UDP, (n as u16, 0, true), &[7; 16]),
                false => fragment_v6(n, 0, &[7; 16]),
            };
            host.give(&packet);
        }
        let drops = host.lane.stats().drops;
        let gone = [DropReason::FragmentEvicted, DropReason::FragmentSourceFull, DropReason::FragmentFlood];
        let gone = gone.map(|reason| drops.get(reason));
        assert!(gone.iter().sum::<u64>() > 100_000, "{gone:?}");
        host.check(name, (1000 * FRAME, 3 << 20));
    }
}

/// Datagrams that were given up because their fragments overlap are remembered for a while, without their fragments.
#[test]
fn overlapping_fragments() {
    let _turn = my_turn();
    let mut host = Host::new(|_| {});
    for n in 0..102_400 {
        for offset in [0, 8] {
            let packet = match n % 2 {
                0 => v4(stranger_v4(n), IpProtocol::UDP, (n as u16, offset, true), &[7; 16]),
                _ => fragment_v6(n, offset, &[7; 16]),
            };
            host.give(&packet);
        }
    }
    assert!(host.lane.stats().drops.get(DropReason::FragmentOverlap) > 1000);
    host.check("overlaps", (64 << 10, 256 << 10));
}

fn arp_request(n: u32) -> Vec<u8> {
    let request = ArpPacket {
        operation: ArpOperation::Request,
        sender_mac: THEIR_MAC,
        sender_ip: stranger_v4(n),
        target_mac: MacAddr::ZERO,
        target_ip: US_V4,
    };
    let mut packet = vec![0; 28];
    request.emit(&mut packet);
    packet
}

fn ndp(src: Ipv6Addr, dst: Ipv6Addr, message: &NdpMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.len()];
    message.emit(src, dst, &mut bytes);
    v6(src, dst, IpProtocol::ICMPV6, &bytes)
}

fn solicitation(n: u32) -> Vec<u8> {
    let options = NdpOptions { source: Some(THEIR_MAC), ..NdpOptions::default() };
    ndp(stranger_v6(n), US_V6, &NdpMessage::NeighborSolicitation { target: US_V6, options })
}

/// Everybody on the link asks for us: 4096 neighbours are known.
#[test]
fn neighbours() {
    let _turn = my_turn();
    let mut host = Host::new(|_| {});
    for n in 0..409_600 {
        host.give(&if n % 2 == 0 { arp_request(n) } else { solicitation(n) });
    }
    assert_eq!(host.lane.neighbours().count(), 4096);
    host.check("neighbours", (256 << 10, 1 << 20));
}

fn echo_request(n: u32) -> Vec<u8> {
    let mut message = [0x5a; 64];
    Icmpv4Message::EchoRequest { ident: 7, seq: 1 }.emit(&mut message);
    v4(stranger_v4(n), IpProtocol::ICMP, WHOLE, &message)
}

/// Strangers who do not answer when they are asked for: 1024 answers wait for them, and the questions are bounded.
#[test]
fn neighbours_who_never_answer() {
    let _turn = my_turn();
    let any = IpConfig {
        neighbour_requests_per_second: u32::MAX,
        echo_replies_per_second: u32::MAX,
        ..IpConfig::default()
    };
    let mut host = Host::new(|config| config.ip = any);
    for n in 0..409_600 {
        host.give(&echo_request(n));
        if n % 100 == 0 {
            host.tick();
        }
    }
    assert!(host.lane.stats().drops.get(DropReason::NeighbourQueueFull) > 100_000);
    host.check("unanswered", (1024 * FRAME, 4 << 20));
}

/// Routers, or who says he is one, tell of ever more narrow ways: 1024 are remembered.
#[test]
fn narrow_ways() {
    let _turn = my_turn();
    let mut host = Host::new(|_| {});
    host.lane.udp_bind(Bind::port(9)).unwrap();
    for n in 0..102_400 {
        let packet = if n % 2 == 0 {
            let mut quoted = v4(US_V4, IpProtocol::UDP, WHOLE, &[0, 9, 0, 7, 0, 8, 0, 0]);
            quoted[16..20].copy_from_slice(&stranger_v4(n).octets());
            quoted[10..12].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(&quoted[..20]);
            quoted[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut message = [&[0; 8][..], &quoted].concat();
            Icmpv4Message::Unreachable { code: 4, mtu: 600 }.emit(&mut message);
            v4(stranger_v4(n), IpProtocol::ICMP, WHOLE, &message)
        } else {
            let quoted = v6(US_V6, stranger_v6(n), IpProtocol::UDP, &[0, 9, 0, 7, 0, 8, 0, 0]);
            let mut message = [&[0; 8][..], &quoted].concat();
            Icmpv6Message::PacketTooBig { mtu: 1300 }.emit(stranger_v6(n), US_V6, &mut message);
            v6(stranger_v6(n), US_V6, IpProtocol::ICMPV6, &message)
        };
        host.give(&packet);
    }
    let narrow = |ip: IpAddr| host.lane.max_payload(ip).unwrap() < 1400;
    assert!(narrow(stranger_v4(102_398).into()) && narrow(stranger_v6(102_399).into()));
    assert!(!narrow(stranger_v4(100_000).into()));
    host.check("narrow ways", (32 << 10, 256 << 10));
}

/// Applications that do not read: 4096 datagrams wait in all sockets of a lane, and no more than one socket may have in one.
#[test]
fn datagrams_that_nobody_reads() {
    let _turn = my_turn();
    for (sockets, waiting) in [(10, 4096), (1, 2048)] {
        let mut host = Host::new(|_| {});
        for port in 0..sockets {
            host.lane.udp_bind(Bind::port(100 + port)).unwrap();
        }
        for n in 0..409_600u32 {
            host.give(&udp(stranger_v4(n % 1000), 100 + n as u16 % sockets, &[1]));
        }
        let full = host.lane.stats().drops.get(DropReason::UdpSocketFull);
        assert_eq!(full, 409_600 - waiting as u64);
        host.check("datagrams", (waiting * FRAME, waiting * (FRAME + 256) + (64 << 10)));
    }
}

/// A bound that an application chose holds as well.
#[test]
fn datagrams_of_a_short_queue() {
    let _turn = my_turn();
    let mut host = Host::new(|config| config.udp = UdpConfig { lane_queue: 64, ..UdpConfig::default() });
    host.lane.udp_bind(Bind::port(100)).unwrap();
    for n in 0..6400 {
        host.give(&udp(stranger_v4(n), 100, &[1; 1000]));
    }
    host.check("short queue", (64 * FRAME, 64 * FRAME + (64 << 10)));
}

fn advertisement(router: Ipv6Addr, n: u32) -> Vec<u8> {
    let prefix = |m: u16| {
        let prefix = Ipv6Addr::new(0x2001, 0xdb8, (n >> 16) as u16, n as u16, m, 0, 0, 0);
        Some(PrefixInformation {
            prefix,
            prefix_len: 80,
            on_link: true,
            autonomous: true,
            valid_lifetime: u32::MAX,
            preferred_lifetime: u32::MAX,
        })
    };
    let options = NdpOptions { prefixes: [0, 1, 2, 3].map(prefix), ..NdpOptions::default() };
    let message = NdpMessage::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        lifetime: u16::MAX,
        reachable_time: 0,
        retrans_timer: 0,
        options,
    };
    ndp(router, ALL_NODES, &message)
}

/// Who says he is a router, again and again: eight routers, sixteen prefixes, 256 redirects. As fast as they are listened to.
#[test]
fn routers_and_redirects() {
    let _turn = my_turn();
    let mut host = Host::new(|config| config.ip = IpConfig { dad_transmits: 0, ..IpConfig::default() });
    host.lane.link_up(host.now, &host.pool, 0);
    for n in 0..3200 {
        for _ in 0..60 {
            host.tick();
        }
        let router = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, n as u16);
        host.give(&advertisement(if n == 0 { ROUTER } else { router }, n));
    }
    host.check("advertisements", (1 << 10, 128 << 10));
    for n in 0..25_600u32 {
        for _ in 0..60 {
            host.tick();
        }
        let destination = Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, (n >> 16) as u16, n as u16);
        let message =
            NdpMessage::Redirect { target: destination, destination, options: NdpOptions::default() };
        host.give(&ndp(ROUTER, US_V6, &message));
    }
    assert_eq!(host.lane.stats().drops.get(DropReason::RouterLimited), 0);
    host.check("redirects", (8 << 10, 128 << 10));
}

/// Queries for groups, any number of them with any number of sources, are answered or not, and leave nothing behind.
#[test]
fn queries_for_groups() {
    let _turn = my_turn();
    let any = IpConfig { group_reports_per_second: u32::MAX, dad_transmits: 0, ..IpConfig::default() };
    let mut host = Host::new(|config| config.ip = any);
    host.lane.link_up(host.now, &host.pool, 0);
    host.lane.join(host.now, &host.pool, 0, IpAddr::from([239, 1, 2, 3]));
    for n in 0..102_400u32 {
        let mut message = [0; 64];
        let packet = if n % 2 == 0 {
            let group = Ipv4Addr::from(0xef00_0000 + n);
            let len = igmp::emit_query(
                group,
                Duration::from_secs(3000),
                3,
                (2, Duration::from_secs(125)),
                &[stranger_v4(n); 8],
                &mut message,
            );
            // With the option that a router looks at.
            let mut packet = v4(stranger_v4(1), IpProtocol::IGMP, WHOLE, &message[..len]);
            packet[8] = 1;
            packet[16..20].copy_from_slice(&group.octets());
            packet[10..12].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet
        } else {
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, (n >> 16) as u16, n as u16);
            let query = MldQuery {
                group,
                max_response: Duration::from_secs(3000),
                version: 2,
                robustness: 2,
                interval: Duration::from_secs(125),
                sources: 0,
            };
            let len = query.emit(ROUTER, group, &[], &mut message);
            let alert = flowlane_stack::wire::ipv6_ext::router_alert(IpProtocol::ICMPV6);
            let mut packet =
                v6(ROUTER, group, IpProtocol::HOP_BY_HOP, &[&alert[..], &message[..len]].concat());
            packet[7] = 1;
            packet
        };
        host.give(&packet);
        if n % 16 == 0 {
            host.tick();
        }
    }
    host.check("queries", (0, 64 << 10));
}

/// A link that takes nothing: 2048 answers wait for it, and 64 more of some kinds.
#[test]
fn answers_that_no_link_takes() {
    let _turn = my_turn();
    let any = IpConfig { echo_replies_per_second: u32::MAX, ..IpConfig::default() };
    let mut host = Host::new(|config| config.ip = any);
    host.give(&arp_request(1));
    for _ in 0..211_200 {
        host.give_only(&echo_request(1));
    }
    host.check("output", (2048 * FRAME, 2112 * FRAME + (128 << 10)));
}

fn vxlan(inner: &[u8], ethertype: EtherType) -> Vec<u8> {
    let mut payload = vec![0; 8 + 14];
    VxlanHeader { vni: 7 }.emit(&mut payload);
    EthernetHeader { dst: MacAddr::BROADCAST, src: THEIR_MAC, ethertype, vlan: None }.emit(&mut payload[8..]);
    payload.extend_from_slice(inner);
    udp(Ipv4Addr::new(10, 0, 0, 1), 4789, &payload)
}

/// What comes through a tunnel stands under the same bounds: its neighbours, and what is for another lane and is not fetched.
#[test]
fn what_comes_through_a_tunnel() {
    let _turn = my_turn();
    let tunnel = || {
        let far = IpAddr::from([10, 0, 0, 1]);
        let mut tunnel = TunnelConfig::new(TunnelKind::vxlan(7), US_V4.into(), far);
        tunnel.addresses = vec!["10.0.0.2/8".parse().unwrap()];
        tunnel.mac = Some(US_MAC);
        tunnel
    };
    let mut host = Host::new(|config| {
        config.interfaces[0].addresses = vec!["10.0.0.2/30".parse().unwrap()];
        config.tunnels = vec![tunnel()];
    });
    for n in 0..409_600 {
        host.give(&vxlan(&arp_request(n), EtherType::ARP));
    }
    assert_eq!(host.lane.neighbours().count(), 4096);
    host.check("neighbours in a tunnel", (256 << 10, 1 << 20));
    // A thread has one pool at a time.
    drop(host);
    let mut host = Host::of_buckets(8, |config| {
        config.interfaces[0].addresses = vec!["10.0.0.2/30".parse().unwrap()];
        config.tunnels = vec![tunnel()];
    });
    for n in 0..117_000 {
        host.give(&vxlan(&echo_request(n), EtherType::IPV4));
    }
    assert!(host.lane.stats().drops.get(DropReason::RedirectFull) > 90_000);
    host.check("redirected", (1024 * FRAME, 1024 * FRAME + (256 << 10)));
}

/// The header of a packet says nothing that the tests above rely on being read wrongly.
#[test]
fn the_packets_are_good() {
    let _turn = my_turn();
    let mut host = Host::new(|_| {});
    let socket = host.lane.udp_bind(Bind::port(7)).unwrap();
    host.give(&udp(stranger_v4(1), 7, b"x"));
    assert_eq!(host.lane.udp_receive(socket).map(|d| d.payload().to_vec()), Some(b"x".to_vec()));
    let (header, _) = Ipv6Header::parse(&solicitation(3)).unwrap();
    assert_eq!((header.src, header.dst), (stranger_v6(3), US_V6));
    host.give(&echo_request(1));
    assert_eq!(host.lane.stats().icmp.echo_replies_sent, 1);
}
