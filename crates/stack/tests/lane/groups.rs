//! Group membership and our own addresses on a link that others are on: what a switch, a querier and a rival see.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_stack::IpConfig;
use flowlane_stack::LaneEvent;
use flowlane_stack::stats::DropReason;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::igmp;
use flowlane_stack::wire::ipv6_ext::{router_alert, walk};
use flowlane_stack::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, GroupChange, IpProtocol, Ipv4Header, Ipv4Options,
    Ipv6Header, MacAddr, MldQuery, NdpMessage, NdpOptions,
};

use crate::net::{Host, Net, Plan, end, ip};
use crate::resolution::arp;
use crate::routers::listen;
use crate::strangers::{frame, ndp, v6};

const RIVAL: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const US_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const LINK_LOCAL: &str = "fe80::ff:fe00:2";

/// A host of four lanes, of which each has been told that the link is up.
fn up(config: IpConfig) -> Net {
    let us = Plan { ip: config, buckets: 4, ..Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]) };
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &us);
    for lane in &mut net.b.lanes {
        lane.link_up(net.now, &net.pool, 0);
    }
    net
}

fn quiet() -> IpConfig {
    IpConfig { dad_transmits: 0, ..IpConfig::default() }
}

fn give(net: &mut Net, packet: &[u8]) {
    let f = frame(net, packet);
    net.b.input(net.now, &net.pool, f);
}

/// Version 2 reports among frames: source, and record type and group of each record.
fn mld_reports(frames: &[Vec<u8>]) -> Vec<(Ipv6Addr, Vec<(u8, Ipv6Addr)>)> {
    let mut all = Vec::new();
    for f in frames.iter().filter(|f| f[12..14] == [0x86, 0xdd]) {
        let (header, range) = Ipv6Header::parse(&f[14..]).unwrap();
        let packet = &f[14..14 + range.end];
        let upper = walk(packet, header.next_header).unwrap();
        let message = &packet[upper.offset..];
        if message[0] != 143 {
            continue;
        }
        assert!(upper.router_alert, "RFC 3810 section 5");
        assert_eq!((header.hop_limit, header.dst), (1, "ff02::16".parse().unwrap()));
        assert_eq!(f[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
        let record = |r: &[u8]| (r[0], Ipv6Addr::from(<[u8; 16]>::try_from(&r[4..20]).unwrap()));
        all.push((header.src, message[8..].chunks(20).map(record).collect()));
    }
    all
}

fn kinds(frames: &[Vec<u8>], kind: u8) -> Vec<Ipv6Addr> {
    let all = frames.iter().filter(|f| f[12..14] == [0x86, 0xdd] && f[20] == 58 && f[54] == kind);
    all.map(|f| Ipv6Addr::from(<[u8; 16]>::try_from(&f[62..78]).unwrap())).collect()
}

fn mld_query(group: Ipv6Addr, version: u8, ms: u64, src: Ipv6Addr, alert: bool) -> Vec<u8> {
    let dst = if group.is_unspecified() { ALL_NODES } else { group };
    let query = MldQuery {
        group,
        max_response: Duration::from_millis(ms),
        version,
        robustness: 2,
        interval: Duration::from_secs(125),
        sources: 0,
    };
    let mut message = [0; 28];
    let len = query.emit(src, dst, &[], &mut message);
    let mut packet = if alert {
        let body = [&router_alert(IpProtocol::ICMPV6)[..], &message[..len]].concat();
        v6(src, dst, IpProtocol::HOP_BY_HOP, &body)
    } else {
        v6(src, dst, IpProtocol::ICMPV6, &message[..len])
    };
    packet[7] = 1;
    packet
}

fn igmp_query(group: Ipv4Addr, version: u8, ms: u64) -> Vec<u8> {
    let mut message = [0; 12];
    let more = (2, Duration::from_secs(125));
    let len = igmp::emit_query(group, Duration::from_millis(ms), version, more, &[], &mut message);
    let dst = if group.is_unspecified() { [224, 0, 0, 1].into() } else { group };
    let header = Ipv4Header {
        src: [10, 0, 0, 1].into(),
        dst,
        protocol: IpProtocol::IGMP,
        ttl: 1,
        tos: 0xc0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: len as u16,
        options: Ipv4Options { router_alert: true, ..Ipv4Options::default() },
    };
    let mut packet = vec![0; header.header_len()];
    header.emit(&mut packet);
    [&packet[..], &message[..len]].concat()
}

fn give_v4_group(net: &mut Net, packet: &[u8]) {
    let dst = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
    let mut f = net.pool.alloc().unwrap();
    let dst = MacAddr::for_ipv4_multicast(dst);
    EthernetHeader { dst, src: RIVAL, ethertype: EtherType::IPV4, vlan: None }.emit(f.push_back(14).unwrap());
    assert!(f.extend_from_slice(packet));
    net.b.input(net.now, &net.pool, f);
}

/// IGMP messages among frames.
fn igmp_of(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let v4 = frames.iter().filter(|f| f[12..14] == [8, 0] && f[23] == 2);
    v4.map(|f| f[14 + usize::from(f[14] & 15) * 4..].to_vec()).collect()
}

/// RFC 4861 section 7.2.1, RFC 3810 section 6.1: a switch that snoops lets nothing through to who has not said this.
#[test]
fn solicited_node_groups_are_reported_twice_when_the_link_comes_up() {
    let mut net = up(quiet());
    let out = listen(&mut net, Duration::from_secs(3));
    let reports = mld_reports(&out);
    assert_eq!(reports.len(), 2, "one lane speaks, and says it again");
    let groups = ["ff02::1:ff00:2"].map(|g| (4, g.parse().unwrap()));
    for (src, records) in reports {
        assert_eq!(src, LINK_LOCAL.parse::<Ipv6Addr>().unwrap());
        assert_eq!(records, groups, "that of both addresses, and not all nodes");
    }
    let advertised = kinds(&out, 136);
    assert_eq!(advertised.len(), 4, "two addresses, twice each: {advertised:?}");
    let arps: Vec<_> = out.iter().filter(|f| f[12..14] == [8, 6]).collect();
    assert_eq!(arps.len(), 2);
    let (announced, _) = ArpPacket::parse(&arps[0][14..]).unwrap();
    assert_eq!((announced.sender_ip, announced.target_ip), ([10, 0, 0, 2].into(), [10, 0, 0, 2].into()));
    assert_eq!(arps[0][..6], [0xff; 6]);
    // Back after it was down.
    for lane in &mut net.b.lanes {
        lane.link_up(net.now, &net.pool, 0);
    }
    let again = listen(&mut net, Duration::from_secs(3));
    assert_eq!((mld_reports(&again).len(), kinds(&again, 136).len()), (2, 4));
}

/// The querier's packet may come to any lane; the answer comes once, in time, and for what any lane joined.
#[test]
fn queries_are_answered_for_all_lanes_by_one() {
    let mut net = up(quiet());
    let group: Ipv6Addr = "ff15::7".parse().unwrap();
    for lane in [1, 3] {
        assert!(net.b.lanes[lane].join(net.now, &net.pool, 0, group.into()));
    }
    let joined = listen(&mut net, Duration::from_secs(5));
    assert!(mld_reports(&joined).iter().flat_map(|r| &r.1).any(|r| *r == (4, group)));
    for host in 1..20u16 {
        let src = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, host);
        give(&mut net, &mld_query(Ipv6Addr::UNSPECIFIED, 2, 1000, src, true));
        let reports = mld_reports(&listen(&mut net, Duration::from_secs(1)));
        assert_eq!(reports.len(), 1, "from {src}");
        assert_eq!(reports[0].1.len(), 2);
        assert!(reports[0].1.contains(&(2, group)));
    }
    give(&mut net, &mld_query(group, 2, 1000, ROUTER, true));
    assert_eq!(mld_reports(&listen(&mut net, Duration::from_secs(1)))[0].1, [(2, group)]);
    assert!(net.b.lanes[1].leave(net.now, &net.pool, 0, group.into()));
    assert!(mld_reports(&listen(&mut net, Duration::from_secs(3))).is_empty(), "lane 3 is in it still");
    assert!(net.b.lanes[3].leave(net.now, &net.pool, 0, group.into()));
    let left = mld_reports(&listen(&mut net, Duration::from_secs(3)));
    assert_eq!(left.iter().map(|r| r.1.clone()).collect::<Vec<_>>(), [[(3, group)], [(3, group)]]);
}

#[test]
fn an_older_querier_is_answered_in_its_own_format() {
    let mut net = up(quiet());
    let (group, v4_group): (Ipv6Addr, Ipv4Addr) = ("ff15::7".parse().unwrap(), [239, 1, 2, 3].into());
    net.b.lanes[2].join(net.now, &net.pool, 0, group.into());
    net.b.lanes[2].join(net.now, &net.pool, 0, v4_group.into());
    listen(&mut net, Duration::from_secs(5));
    give(&mut net, &mld_query(group, 1, 1000, ROUTER, true));
    let out = listen(&mut net, Duration::from_secs(1));
    let report = out.iter().find(|f| f[62] == 131).expect("a report of version 1");
    assert_eq!(report[38..54], group.octets(), "to the group itself");
    net.b.lanes[2].leave(net.now, &net.pool, 0, group.into());
    let out = listen(&mut net, Duration::from_secs(1));
    assert!(out.iter().any(|f| f[62] == 132 && f[38..54] == "ff02::2".parse::<Ipv6Addr>().unwrap().octets()));
    for (version, kind) in [(1, 0x12), (2, 0x16)] {
        give_v4_group(&mut net, &igmp_query(v4_group, version, 1000));
        let said = igmp_of(&listen(&mut net, Duration::from_secs(11)));
        assert_eq!(said.iter().map(|m| m[0]).collect::<Vec<_>>(), [kind], "version {version}");
        assert_eq!(said[0][4..8], v4_group.octets());
    }
    net.b.lanes[2].leave(net.now, &net.pool, 0, v4_group.into());
    assert_eq!(igmp_of(&listen(&mut net, Duration::from_secs(1)))[0][0], 0x17);
    // The older querier is gone for long enough.
    listen(&mut net, Duration::from_secs(300));
    net.b.lanes[2].join(net.now, &net.pool, 0, v4_group.into());
    assert_eq!(igmp_of(&listen(&mut net, Duration::from_secs(3)))[0][..1], [0x22]);
}

#[test]
fn igmp_queries_of_version_3_are_answered_within_their_time() {
    let mut net = up(quiet());
    let group: Ipv4Addr = [239, 1, 2, 3].into();
    net.b.lanes[1].join(net.now, &net.pool, 0, group.into());
    let said = igmp_of(&listen(&mut net, Duration::from_secs(5)));
    let mut joined = [0; 16];
    igmp::emit_v3_report(&[(group, GroupChange::Join)], &mut joined);
    assert_eq!(said, [joined, joined]);
    for asked in [Ipv4Addr::UNSPECIFIED, group] {
        give_v4_group(&mut net, &igmp_query(asked, 3, 2000));
        let said = igmp_of(&listen(&mut net, Duration::from_secs(2)));
        let mut listening = [0; 16];
        igmp::emit_v3_report(&[(group, GroupChange::Listening)], &mut listening);
        assert_eq!(said, [listening], "{asked}");
    }
}

/// Queries that break the rules have no effect, and any number of good ones costs a bounded number of answers.
#[test]
fn hostile_queries_are_bounded() {
    let mut net = up(quiet());
    listen(&mut net, Duration::from_secs(5));
    let stranger: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for bad in [
        mld_query(Ipv6Addr::UNSPECIFIED, 2, 0, stranger, true),
        mld_query(Ipv6Addr::UNSPECIFIED, 2, 0, ROUTER, false),
        mld_query(US_V6, 2, 0, ROUTER, true),
    ] {
        let dropped = |net: &Net| {
            let all = net.b.lanes.iter().map(|l| l.stats().drops);
            all.map(|d| {
                d.get(DropReason::GroupQueryInvalid)
                    + d.get(DropReason::NoGroup)
                    + d.get(DropReason::NotOurAddress)
            })
            .sum::<u64>()
        };
        let before = dropped(&net);
        give(&mut net, &bad);
        assert!(mld_reports(&listen(&mut net, Duration::from_secs(1))).is_empty());
        assert_eq!(dropped(&net), before + 1);
    }
    let mut answers = 0;
    for _ in 0..5000 {
        give(&mut net, &mld_query(Ipv6Addr::UNSPECIFIED, 2, 0, ROUTER, true));
        answers += mld_reports(&listen(&mut net, Duration::ZERO)).len();
    }
    assert!(answers <= 100, "{answers} in no time");
    let limited: u64 = net.b.lanes.iter().map(|l| l.stats().drops.get(DropReason::GroupQueryLimited)).sum();
    assert!(limited > 4000, "{limited}");
}

/// Where the link keeps queries from us nothing is forgotten either.
#[test]
fn without_a_querier_everything_is_reported_now_and_then() {
    let mut net = up(quiet());
    listen(&mut net, Duration::from_secs(5));
    let reports = mld_reports(&listen(&mut net, Duration::from_secs(500)));
    assert_eq!(reports.len(), 4, "every 125 s");
    assert_eq!(reports[0].1[0].0, 2);
}

/// A packet that goes out while our address is being probed asks for its neighbour in a way that the neighbour answers: with our
/// Ethernet address (RFC 4861 section 4.3). A solicitation without it is not answered by Linux.
#[test]
fn neighbours_are_asked_while_an_address_is_probed() {
    let mut net = up(IpConfig::default());
    let lane = &mut net.b.lanes[0];
    let s = lane.udp_bind(Bind::default()).unwrap();
    lane.udp_send(net.now, &net.pool, s, b"?", None, Some(end("[fd00::9]:7"))).unwrap();
    let out = listen(&mut net, Duration::ZERO);
    let asked: Vec<_> =
        out.iter().filter(|f| f[20] == 58 && f[54] == 135 && f[22..38] == US_V6.octets()).collect();
    assert_eq!(asked.len(), 1, "{out:?}");
    assert_eq!(asked[0][14 + 40 + 24..], [1, 1, 2, 0, 0, 0, 0, 2], "source link-layer address");
}

/// A neighbour whose entry has run out is asked in a frame to it alone, and by its group's address: asked by its own it may leave its Ethernet
/// address out of the answer (RFC 4861 section 7.2.4), as Linux does.
#[test]
fn a_neighbour_is_asked_again_by_its_group_in_a_frame_to_it() {
    let mut net = up(quiet());
    let him: Ipv6Addr = "fd00::9".parse().unwrap();
    let asked_when_sending = |net: &mut Net| {
        let lane = &mut net.b.lanes[0];
        let s = lane.udp_bind(Bind::default()).unwrap();
        lane.udp_send(net.now, &net.pool, s, b"?", None, Some(end("[fd00::9]:7"))).unwrap();
        let out = listen(net, Duration::ZERO);
        out.into_iter().filter(|f| f[20] == 58 && f[54] == 135).collect::<Vec<_>>()
    };
    assert_eq!(asked_when_sending(&mut net).len(), 1);
    let options = NdpOptions { target: Some(RIVAL), ..NdpOptions::default() };
    let answer = NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: true,
        overrides: true,
        target: him,
        options,
    };
    give(&mut net, &ndp(him, US_V6, &answer));
    net.b.settle(net.now, &net.pool);
    listen(&mut net, Duration::from_secs(31));
    let asked = asked_when_sending(&mut net);
    assert_eq!(asked.len(), 1, "its entry has run out");
    assert_eq!(asked[0][..6], RIVAL.0, "in a frame to it");
    assert_eq!(asked[0][38..54], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 9], "by its group");
}

/// RFC 4862 section 5.4, RFC 5227: every address is asked for once and then announced; until then it is in use, but does not
/// push others out (RFC 4429).
#[test]
fn addresses_are_probed_and_then_announced() {
    let mut net = up(IpConfig::default());
    let asked = ndp(
        ROUTER,
        US_V6,
        &NdpMessage::NeighborSolicitation {
            target: US_V6,
            options: NdpOptions { source: Some(RIVAL), ..NdpOptions::default() },
        },
    );
    let overrides = |frames: &[Vec<u8>]| {
        let f = frames.iter().find(|f| f[20] == 58 && f[54] == 136).expect("an answer");
        f[58] & 0x20 != 0
    };
    give(&mut net, &asked);
    assert!(!overrides(&listen(&mut net, Duration::ZERO)), "optimistic");
    let out = listen(&mut net, Duration::from_secs(1));
    let probed: Vec<_> = out.iter().filter(|f| f[20] == 58 && f[54] == 135).collect();
    assert_eq!(probed.len(), 2);
    for p in probed {
        assert_eq!(p[22..38], [0; 16], "from nobody");
        assert_eq!(p.len(), 14 + 40 + 24, "without options");
        assert_eq!(p[38..50], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "to the solicited-node group");
    }
    let arps: Vec<_> =
        out.iter().filter(|f| f[12..14] == [8, 6]).map(|f| ArpPacket::parse(&f[14..]).unwrap().0).collect();
    assert_eq!(arps.len(), 1);
    assert!(arps[0].sender_ip.is_unspecified() && arps[0].target_ip == Ipv4Addr::new(10, 0, 0, 2));
    let out = listen(&mut net, Duration::from_secs(4));
    assert_eq!(kinds(&out, 136).len(), 4, "both announced twice");
    assert_eq!(out.iter().filter(|f| f[12..14] == [8, 6]).count(), 2);
    assert!(mld_reports(&out).iter().any(|r| r.0 == LINK_LOCAL.parse::<Ipv6Addr>().unwrap()));
    give(&mut net, &asked);
    assert!(overrides(&listen(&mut net, Duration::ZERO)));
}

fn events(host: &mut Host) -> Vec<LaneEvent> {
    host.lanes.iter_mut().flat_map(|l| std::iter::from_fn(|| l.poll_event())).collect()
}

/// Whoever has the address says so, or probes it at the same time: no lane uses it, and the runtime hears of it.
#[test]
fn an_address_that_somebody_has_is_not_used() {
    let advertised = |target| NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: false,
        overrides: true,
        target,
        options: NdpOptions { target: Some(RIVAL), ..NdpOptions::default() },
    };
    let probed = |target| NdpMessage::NeighborSolicitation { target, options: NdpOptions::default() };
    let group: Ipv6Addr = "ff02::1:ff00:2".parse().unwrap();
    let link_local: Ipv6Addr = LINK_LOCAL.parse().unwrap();
    for (packet, address) in [
        (Some(ndp(US_V6, ALL_NODES, &advertised(US_V6))), IpAddr::V6(US_V6)),
        (Some(ndp(Ipv6Addr::UNSPECIFIED, group, &probed(US_V6))), IpAddr::V6(US_V6)),
        (Some(ndp(Ipv6Addr::UNSPECIFIED, group, &probed(link_local))), link_local.into()),
        (None, ip("10.0.0.2")),
    ] {
        let mut net = up(IpConfig::default());
        let f = match &packet {
            Some(packet) => frame(&net, packet),
            None => arp(
                &net.pool,
                MacAddr([2, 0, 0, 0, 0, 2]),
                &ArpPacket {
                    operation: ArpOperation::Reply,
                    sender_mac: RIVAL,
                    sender_ip: [10, 0, 0, 2].into(),
                    target_mac: MacAddr([2, 0, 0, 0, 0, 2]),
                    target_ip: [0, 0, 0, 0].into(),
                },
            ),
        };
        net.b.input(net.now, &net.pool, f);
        let told = events(&mut net.b);
        let want = LaneEvent::AddressDuplicate { interface: 0, address, mac: RIVAL };
        assert_eq!(told, [want], "{address}");
        for lane in &mut net.b.lanes {
            lane.tell(net.now, want);
            assert!(!lane.is_local(address), "{address}");
            assert!(lane.udp_bind(Bind { local_ip: Some(address), ..Bind::port(7) }).is_err());
        }
        let out = listen(&mut net, Duration::from_secs(5));
        let said = out.iter().filter(|f| f[12..14] == [8, 6] && f[28..32] == [10, 0, 0, 2]).count();
        let claims = kinds(&out, 136).iter().filter(|a| IpAddr::V6(**a) == address).count();
        assert_eq!(if address.is_ipv4() { said } else { claims }, 0, "{address} is announced");
    }
}

/// What the link brings back of ours is no rival.
#[test]
fn our_own_probes_do_not_frighten_us() {
    let mut net = up(IpConfig::default());
    for bytes in listen(&mut net, Duration::from_secs(1)) {
        let mut f = net.pool.alloc().unwrap();
        assert!(f.extend_from_slice(&bytes));
        net.b.input(net.now, &net.pool, f);
    }
    assert!(!events(&mut net.b).iter().any(|e| matches!(e, LaneEvent::AddressDuplicate { .. })));
    assert!(net.b.lanes.iter().all(|l| l.is_local(ip("fd00::2")) && l.is_local(ip("10.0.0.2"))));
}

/// An address that is ours for good is defended, but not without end.
#[test]
fn a_rival_is_answered_once_in_a_while() {
    let mut net = up(quiet());
    listen(&mut net, Duration::from_secs(5));
    for _ in 0..100 {
        let claim = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: RIVAL,
            sender_ip: [10, 0, 0, 2].into(),
            target_mac: MacAddr::ZERO,
            target_ip: [10, 0, 0, 2].into(),
        };
        let f = arp(&net.pool, MacAddr::BROADCAST, &claim);
        net.b.input(net.now, &net.pool, f);
    }
    let out = listen(&mut net, Duration::from_secs(9));
    assert_eq!(out.iter().filter(|f| f[12..14] == [8, 6]).count(), 1);
    assert!(net.b.lanes[0].is_local(ip("10.0.0.2")));
    assert_eq!(end("10.0.0.2:1").ip, ip("10.0.0.2"));
}
