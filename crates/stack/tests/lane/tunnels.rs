//! Tunnels between two hosts in memory: every kind, over both families, with 1, 2 and 8 lanes; nested, in fragments, full of
//! fragments, and badly made.

use std::collections::BTreeMap;
use std::net::IpAddr;

use flowlane_rss::UdpFields;
use flowlane_stack::stats::DropReason;
use flowlane_stack::tunnel::{TunnelConfig, TunnelKind};
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::{Malformed, classify};
use flowlane_sys::frame::Frame;

use crate::net::{Host, Net, Plan, end, ip};

const GRE: TunnelKind = TunnelKind::Gre { key: None, ethernet: false };
const KEYED: TunnelKind = TunnelKind::Gre { key: Some(77), ethernet: true };
const GENEVE_IP: TunnelKind = TunnelKind::Geneve { vni: 5, port: 6081, ethernet: false };

fn kinds() -> [TunnelKind; 6] {
    [TunnelKind::IpInIp, GRE, KEYED, TunnelKind::vxlan(7), TunnelKind::geneve(9), GENEVE_IP]
}

/// A tunnel between the hosts' addresses of a family, with 10.9.0.x and fd09::x inside, as host `me` has it.
fn tunnel(kind: TunnelKind, v6: bool, me: u8) -> TunnelConfig {
    let outside = |n: u8| -> IpAddr { ip(&if v6 { format!("fd00::{n}") } else { format!("10.0.0.{n}") }) };
    let mut t = TunnelConfig::new(kind, outside(me), outside(3 - me));
    t.addresses = vec![format!("10.9.0.{me}/24").parse().unwrap(), format!("fd09::{me}/64").parse().unwrap()];
    t
}

fn plans(kind: TunnelKind, v6: bool, buckets: usize) -> (Plan, Plan) {
    let plan = |me: u8, addresses: &[&'static str]| Plan {
        buckets,
        udp: UdpFields::Four,
        tunnels: vec![tunnel(kind, v6, me)],
        ..Plan::new(me, addresses)
    };
    (plan(1, &["10.0.0.1/24", "fd00::1/64"]), plan(2, &["10.0.0.2/24", "fd00::2/64"]))
}

fn net(kind: TunnelKind, v6: bool, buckets: usize) -> Net {
    let (a, b) = plans(kind, v6, buckets);
    Net::new(&a, &b)
}

fn sum(host: &Host, f: impl Fn(&flowlane_stack::stats::LaneStats) -> u64) -> u64 {
    host.lanes.iter().map(|l| f(&l.stats())).sum()
}

fn drops(net: &Net) -> u64 {
    sum(&net.a, |s| s.drops.total()) + sum(&net.b, |s| s.drops.total())
}

fn dropped(host: &Host, reason: DropReason) -> u64 {
    sum(host, |s| s.drops.get(reason))
}

/// Sends `each` datagrams of `size` bytes of `flows` flows through the tunnel and back; what came back, by flow.
fn exchange(net: &mut Net, inside: &str, flows: u16, each: u32, size: usize) -> BTreeMap<u16, Vec<u32>> {
    let servers = net.b.bind_all(7);
    let to = end(inside);
    let clients: Vec<_> = (0..flows)
        .map(|i| {
            let lane = usize::from(i) % net.a.lanes.len();
            let bind = Bind { remote: Some(to), ..Bind::default() };
            // Whichever lane: the port brings the answers home.
            (lane, net.a.lanes[lane].udp_bind(bind).unwrap())
        })
        .collect();
    let mut back: BTreeMap<u16, Vec<u32>> = BTreeMap::new();
    for turn in 0..each {
        for (lane, socket) in &clients {
            let mut payload = vec![turn as u8; size];
            payload[..4].copy_from_slice(&turn.to_be_bytes());
            net.a.lanes[*lane].udp_send(net.now, &net.pool, *socket, &payload, None, None).unwrap();
        }
        for _ in 0..20 {
            net.run();
            if net.b.echo(net.now, &net.pool, &servers) == 0 {
                break;
            }
        }
        for (flow, (lane, socket)) in clients.iter().enumerate() {
            while let Some(d) = net.a.lanes[*lane].udp_receive(*socket) {
                assert_eq!((d.len(), d.source), (size, to));
                let mut first = [0; 4];
                d.read(&mut first);
                back.entry(flow as u16).or_default().push(u32::from_be_bytes(first));
            }
        }
    }
    for (lane, socket) in clients {
        net.a.lanes[lane].udp_close(socket);
    }
    for (lane, socket) in net.b.lanes.iter_mut().zip(servers) {
        lane.udp_close(socket);
    }
    back
}

#[test]
fn every_kind_carries_both_families_over_both_with_any_number_of_lanes() {
    for kind in kinds() {
        for outer_v6 in [false, true] {
            for inside in ["10.9.0.2:7", "[fd09::2]:7"] {
                let want: BTreeMap<u16, Vec<u32>> = (0..16).map(|f| (f, (0..5).collect())).collect();
                for (lanes, size) in [(1, 4), (2, 4), (8, 4), (8, 1300), (1, 4000), (2, 4000), (8, 4000)] {
                    let mut net = net(kind, outer_v6, lanes);
                    // What is longer than the MTU inside leaves in fragments there.
                    let back = exchange(&mut net, inside, 16, 5, size);
                    let case =
                        format!("{kind:?}, outside v6 {outer_v6}, {inside}, {lanes} lanes, {size} bytes");
                    assert_eq!(back, want, "{case}");
                    assert_eq!(drops(&net), 0, "{case}");
                    let received = sum(&net.b, |s| s.tunnel.received);
                    assert!(received >= 16 * 5, "{case}: {received}");
                    assert_eq!(received, sum(&net.a, |s| s.tunnel.sent), "{case}");
                    let redirected = sum(&net.b, |s| s.tunnel.redirected);
                    // Fragments are hashed by their addresses, which may be of one bucket outside and inside.
                    assert!(
                        (redirected > 0) == (lanes > 1) || size == 4000,
                        "{case}: {redirected} of {received} moved"
                    );
                }
            }
        }
    }
}

#[test]
fn an_mtu_larger_than_the_way_makes_outer_fragments() {
    for kind in kinds() {
        for outer_v6 in [false, true] {
            let (mut a, mut b) = plans(kind, outer_v6, 4);
            a.tunnels[0].mtu = Some(1500);
            b.tunnels[0].mtu = Some(1500);
            let mut net = Net::new(&a, &b);
            assert_eq!(net.a.lanes[0].max_payload(ip("10.9.0.2")), Ok(1472));
            let back = exchange(&mut net, "10.9.0.2:7", 8, 4, 1472);
            assert_eq!(back, (0..8).map(|f| (f, (0..4).collect())).collect(), "{kind:?} {outer_v6}");
            let created =
                |s: &flowlane_stack::stats::LaneStats| s.ip.fragments_created + s.ip6.fragments_created;
            assert_eq!(sum(&net.a, created), 2 * 8 * 4);
            assert_eq!(drops(&net), 0, "{kind:?} {outer_v6}");
            // Fragments within fragments.
            let back = exchange(&mut net, "[fd09::2]:7", 3, 2, 5000);
            assert_eq!(back.values().map(Vec::len).sum::<usize>(), 6, "{kind:?} {outer_v6}");
            assert_eq!(drops(&net), 0, "{kind:?} {outer_v6}");
        }
    }
}

#[test]
fn checksums_left_to_the_link_are_finished_before_no_link_sees_them() {
    for kind in kinds() {
        let (mut a, mut b) = plans(kind, false, 2);
        a.offload.checksum = true;
        b.offload.checksum = true;
        let mut net = Net::new(&a, &b);
        for (inside, size) in [("10.9.0.2:7", 100), ("[fd09::2]:7", 101), ("10.9.0.2:7", 3000)] {
            assert_eq!(exchange(&mut net, inside, 4, 2, size).len(), 4, "{kind:?} {inside} {size}");
        }
        assert_eq!(drops(&net), 0, "{kind:?}");
    }
}

#[test]
fn tunnels_within_tunnels() {
    let stack = |me: u8| {
        let mut list = vec![tunnel(TunnelKind::vxlan(1), false, me)];
        for (i, kind) in [GRE, TunnelKind::geneve(3), TunnelKind::IpInIp].into_iter().enumerate() {
            let under = |n: u8| ip(&format!("10.{}.0.{n}", 9 + i));
            let mut t = TunnelConfig::new(kind, under(me), under(3 - me));
            t.addresses = vec![format!("10.{}.0.{me}/24", 10 + i).parse().unwrap()];
            list.push(t);
        }
        list
    };
    let (mut a, mut b) = plans(TunnelKind::IpInIp, false, 4);
    (a.tunnels, b.tunnels) = (stack(1), stack(2));
    let mut net = Net::new(&a, &b);
    let overhead = 50 + 24 + 50 + 20;
    assert_eq!(net.a.lanes[0].max_payload(ip("10.12.0.2")), Ok(1472 - overhead));
    for size in [10, 1472 - overhead, 5000] {
        let back = exchange(&mut net, "10.12.0.2:7", 4, 3, size);
        assert_eq!(back, (0..4).map(|f| (f, (0..3).collect())).collect(), "{size}");
    }
    assert_eq!(drops(&net), 0);
}

/// The frames of A's datagrams to B through the tunnel, once all neighbours are known.
fn outer_frames(net: &mut Net, flows: u16) -> Vec<Frame> {
    exchange(net, "10.9.0.2:7", 1, 1, 4);
    let lane = &mut net.a.lanes[0];
    for i in 0..flows {
        let socket = lane.udp_bind(Bind::port(1000 + i)).unwrap();
        lane.udp_send(net.now, &net.pool, socket, &[1; 64], None, Some(end("10.9.0.2:7"))).unwrap();
    }
    net.a.output(net.now, &net.pool)
}

#[test]
fn the_source_port_outside_is_that_of_the_flow_inside() {
    for (kind, outer_v6) in [(TunnelKind::vxlan(7), false), (TunnelKind::geneve(7), true), (GENEVE_IP, false)]
    {
        let mut net = net(kind, outer_v6, 1);
        let ports = |frames: Vec<Frame>| -> Vec<u16> {
            frames.iter().map(|f| classify(f.data()).flow().unwrap().ports.unwrap().0).collect()
        };
        let first = ports(outer_frames(&mut net, 200));
        let mut different = first.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 190, "{kind:?}: {} of 200", different.len());
        // The next receiver's lanes all get some.
        let far = crate::net::rss(8, UdpFields::Four);
        let buckets: std::collections::BTreeSet<u16> = first
            .iter()
            .map(|p| {
                let flow = flowlane_rss::Flow {
                    src: net_addr(outer_v6, 1),
                    dst: net_addr(outer_v6, 2),
                    src_port: *p,
                    dst_port: 4789,
                    protocol: flowlane_rss::Protocol(17),
                    fragment: false,
                };
                far.steer(&flow).bucket.0
            })
            .collect();
        assert_eq!(buckets.len(), 8, "{kind:?}");
        // The same flow takes the same port again, whole or in fragments.
        let lane = &mut net.a.lanes[0];
        let socket = lane.udp_bind(Bind::port(2000)).unwrap();
        for size in [10, 10, 5000] {
            let to = Some(end("10.9.0.2:7"));
            lane.udp_send(net.now, &net.pool, socket, &vec![1; size], None, to).unwrap();
        }
        let same = ports(net.a.output(net.now, &net.pool));
        assert_eq!(same.len(), 6);
        assert!(same.iter().all(|p| *p == same[0]), "{same:?}");
    }
}

fn net_addr(v6: bool, n: u8) -> IpAddr {
    ip(&if v6 { format!("fd00::{n}") } else { format!("10.0.0.{n}") })
}

/// Recomputes the header checksum of the IPv4 packet in a frame.
fn mend_v4(frame: &mut Frame) {
    let h = &mut frame.data_mut()[14..34];
    h[10..12].fill(0);
    let sum = flowlane_stack::wire::checksum::checksum(h);
    h[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Gives B a good packet of a tunnel over IPv4, changed; what B then counted is checked by `counted`. Nothing may arrive.
fn bad(kind: TunnelKind, what: &str, change: impl Fn(&mut Frame), counted: impl Fn(&Host) -> u64) {
    let mut net = net(kind, false, 2);
    let mut frame = outer_frames(&mut net, 1).remove(0);
    let sockets: Vec<_> = net.b.lanes.iter_mut().map(|l| l.udp_bind(Bind::port(99)).unwrap()).collect();
    let before = (sum(&net.b, |s| s.drops.total()), sum(&net.b, |s| s.udp.delivered), counted(&net.b));
    change(&mut frame);
    mend_v4(&mut frame);
    net.b.input(net.now, &net.pool, frame);
    net.b.settle(net.now, &net.pool);
    let after = (sum(&net.b, |s| s.drops.total()), sum(&net.b, |s| s.udp.delivered), counted(&net.b));
    assert_eq!(after, (before.0 + 1, before.1, before.2 + 1), "{kind:?}: {what}");
    assert!(net.b.receive_all(&sockets).is_empty());
}

fn malformed(reason: Malformed) -> impl Fn(&Host) -> u64 {
    move |h| sum(h, |s| s.drops.get_malformed(reason))
}

fn reason(reason: DropReason) -> impl Fn(&Host) -> u64 {
    move |h| dropped(h, reason)
}

/// Sets the length of the outer packet to its header and `len` bytes; of UDP, too, if asked.
fn cut(len: u16, udp: bool) -> impl Fn(&mut Frame) {
    move |f| {
        f.data_mut()[16..18].copy_from_slice(&(20 + len).to_be_bytes());
        if udp {
            f.data_mut()[38..40].copy_from_slice(&len.to_be_bytes());
        }
    }
}

fn flip(at: usize, bits: u8) -> impl Fn(&mut Frame) {
    move |f| f.data_mut()[at] ^= bits
}

/// Offsets: Ethernet 14, IPv4 20, so that the tunnel begins at 34, and in UDP at 42.
#[test]
fn bad_packets_of_every_kind_are_dropped_by_name() {
    use DropReason::*;
    let (vxlan, geneve) = (TunnelKind::vxlan(7), TunnelKind::geneve(9));
    for kind in kinds() {
        bad(kind, "from a stranger", flip(29, 8), reason(TunnelUnknown));
    }
    for kind in [vxlan, geneve] {
        bad(kind, "another network", flip(48, 1), reason(TunnelUnknown));
        for len in 8..16 {
            bad(kind, "its header cut", cut(len, true), malformed(Malformed::TunnelShort));
        }
        bad(kind, "UDP cut", cut(7, false), malformed(Malformed::UdpShort));
        bad(kind, "UDP longer than IP", flip(38, 1), malformed(Malformed::UdpLength));
        bad(kind, "a wrong checksum of UDP", flip(40, 1), reason(UdpChecksum));
        bad(kind, "half of the inner Ethernet", cut(20, true), malformed(Malformed::EthernetShort));
        bad(kind, "half of the inner IP", cut(40, true), malformed(Malformed::Ipv4Short));
        bad(kind, "another inner Ethernet address", flip(55, 1), reason(OtherHost));
        bad(kind, "an inner tag", |f| f.data_mut()[62..64].copy_from_slice(&[0x81, 0]), reason(VlanMismatch));
    }
    bad(vxlan, "without its flag", flip(42, 8), malformed(Malformed::TunnelUnsupported));
    bad(geneve, "another version", flip(42, 0x40), malformed(Malformed::TunnelUnsupported));
    bad(geneve, "critical options", flip(43, 0x40), malformed(Malformed::TunnelUnsupported));
    bad(geneve, "a control message", flip(43, 0x80), reason(TunnelControl));
    bad(geneve, "options beyond the end", flip(42, 0x3f), malformed(Malformed::TunnelShort));
    bad(
        geneve,
        "IP where Ethernet should be",
        |f| f.data_mut()[44..46].copy_from_slice(&[8, 0]),
        reason(TunnelPayload),
    );
    bad(
        GENEVE_IP,
        "Ethernet where IP should be",
        |f| f.data_mut()[44..46].copy_from_slice(&[0x65, 0x58]),
        reason(TunnelPayload),
    );
    bad(
        GENEVE_IP,
        "IPv6 that is IPv4",
        |f| f.data_mut()[44..46].copy_from_slice(&[0x86, 0xdd]),
        reason(TunnelPayload),
    );
    for len in 0..4 {
        bad(GRE, "its header cut", cut(len, false), malformed(Malformed::TunnelShort));
    }
    for len in 4..8 {
        bad(KEYED, "its key cut", cut(len, false), malformed(Malformed::TunnelShort));
    }
    bad(GRE, "an empty packet", cut(4, false), reason(TunnelPayload));
    bad(GRE, "routing", flip(34, 0x40), malformed(Malformed::TunnelUnsupported));
    bad(GRE, "another version", flip(35, 1), malformed(Malformed::TunnelUnsupported));
    bad(GRE, "a checksum that is none", flip(34, 0x80), malformed(Malformed::TunnelChecksum));
    bad(GRE, "a protocol that nobody knows", flip(36, 0x40), reason(TunnelPayload));
    bad(GRE, "a key where none is", flip(34, 0x20), reason(TunnelUnknown));
    bad(KEYED, "another key", flip(41, 1), reason(TunnelUnknown));
    bad(TunnelKind::IpInIp, "an empty packet", cut(0, false), reason(TunnelPayload));
    bad(TunnelKind::IpInIp, "IPv6 that is IPv4", flip(23, 4 ^ 41), reason(TunnelPayload));
    bad(TunnelKind::IpInIp, "half a header", cut(10, false), malformed(Malformed::Ipv4Short));
    bad(TunnelKind::IpInIp, "a bad checksum inside", flip(44, 1), malformed(Malformed::Ipv4Checksum));
}

#[test]
fn congestion_outside_is_told_inside() {
    for kind in kinds() {
        let at = 34
            + match kind {
                TunnelKind::IpInIp => 0,
                GRE => 4,
                KEYED => 8 + 14,
                GENEVE_IP => 16,
                _ => 16 + 14,
            };
        let set_inner = |f: &mut Frame, class: u8| {
            let h = &mut f.data_mut()[at..at + 20];
            h[1] = class;
            h[10..12].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(h);
            h[10..12].copy_from_slice(&sum.to_be_bytes());
        };
        bad(kind, "CE outside, no ECN inside", flip(15, 3), reason(DropReason::TunnelEcn));
        for (inner, outer, want) in [(0xb8, 2, 0xb8), (0xba, 0x2b, 0xbb), (2, 1, 1), (1, 0, 1), (3, 0, 3)] {
            let mut net = net(kind, false, 1);
            let mut frame = outer_frames(&mut net, 1).remove(0);
            net.b.lanes[0].udp_sockets(&mut |_| {});
            set_inner(&mut frame, inner);
            frame.data_mut()[15] = outer;
            mend_v4(&mut frame);
            let before = sum(&net.b, |s| s.udp.delivered);
            let sockets =
                net.b.lanes[0].udp_bind(Bind { local_ip: Some(ip("10.9.0.2")), ..Bind::port(7) }).unwrap();
            net.b.input(net.now, &net.pool, frame);
            assert_eq!(sum(&net.b, |s| s.udp.delivered), before + 1, "{kind:?} {inner} {outer}");
            let got = net.b.lanes[0].udp_receive(sockets).unwrap();
            assert_eq!(got.traffic_class, want, "{kind:?}: {inner} in {outer}");
        }
    }
}

#[test]
fn a_tunnel_does_not_end_inside_of_itself() {
    let (a, mut b) = plans(TunnelKind::IpInIp, false, 1);
    // Inside there is an address that the outside has, too.
    b.tunnels[0].claimed = vec!["10.0.0.2/32".parse().unwrap()];
    let mut net = Net::new(&a, &b);
    let mut frame = outer_frames(&mut net, 1).remove(0);
    // Once more around it what is around it already.
    let outer = frame.data()[..34].to_vec();
    let len = (frame.len() - 14 + 20) as u16;
    assert!(frame.trim_front(14));
    frame.push_front(34).unwrap()[..34].copy_from_slice(&outer);
    frame.data_mut()[16..18].copy_from_slice(&len.to_be_bytes());
    mend_v4(&mut frame);
    let before = dropped(&net.b, DropReason::TunnelNested);
    net.b.input(net.now, &net.pool, frame);
    assert_eq!(dropped(&net.b, DropReason::TunnelNested), before + 1);
}

#[test]
fn over_ipv6_a_checksum_is_wanted_unless_both_sides_agree() {
    for (given, want) in [(None, true), (Some(true), true), (Some(false), false)] {
        let (mut a, mut b) = plans(TunnelKind::vxlan(7), true, 1);
        (a.tunnels[0].checksum, b.tunnels[0].checksum) = (given, given);
        let mut net = Net::new(&a, &b);
        let frame = outer_frames(&mut net, 1).remove(0);
        assert_eq!(frame.data()[14 + 40 + 6..14 + 40 + 8] != [0, 0], want);
        net.b.input(net.now, &net.pool, frame);
        assert_eq!(dropped(&net.b, DropReason::UdpNoChecksum), 0);
        let mut without = outer_frames_again(&mut net);
        without.data_mut()[14 + 40 + 6..14 + 40 + 8].fill(0);
        net.b.input(net.now, &net.pool, without);
        assert_eq!(dropped(&net.b, DropReason::UdpNoChecksum), u64::from(want));
    }
}

fn outer_frames_again(net: &mut Net) -> Frame {
    let lane = &mut net.a.lanes[0];
    let socket = lane.udp_bind(Bind::port(3000)).unwrap();
    lane.udp_send(net.now, &net.pool, socket, &[1; 64], None, Some(end("10.9.0.2:7"))).unwrap();
    net.a.output(net.now, &net.pool).remove(0)
}

#[test]
fn a_socket_of_any_port_does_not_get_a_tunnels_packets() {
    let mut net = net(TunnelKind::vxlan(7), false, 1);
    let any =
        net.b.lanes[0].udp_bind(Bind { local_ip: Some(ip("10.0.0.2")), any_port: true, ..Bind::default() });
    let any = any.unwrap();
    let back = exchange(&mut net, "10.9.0.2:7", 2, 2, 10);
    assert_eq!(back.len(), 2);
    assert!(net.b.lanes[0].udp_receive(any).is_none());
}

#[test]
fn icmp_goes_through_tunnels_too() {
    for kind in kinds() {
        let mut net = net(kind, false, 4);
        exchange(&mut net, "10.9.0.2:7", 1, 1, 4);
        // Nobody has the port: an error comes back inside.
        assert_eq!(sum(&net.a, |s| s.icmp.errors_sent), 0, "{kind:?}");
        let socket = net.b.lanes[0].udp_bind(Bind::port(55)).unwrap();
        let to = Some(end("10.9.0.1:4444"));
        net.b.lanes[0].udp_send(net.now, &net.pool, socket, &[5; 40], None, to).unwrap();
        net.run();
        assert_eq!(sum(&net.a, |s| s.icmp.errors_sent), 1, "{kind:?}");
        // Once where it came in, and once more in the lane of the socket if that is another.
        assert!((1..=2).contains(&sum(&net.b, |s| s.icmp.errors_received)), "{kind:?}");
    }
}

#[test]
fn connections_run_through_tunnels() {
    for kind in kinds() {
        for lanes in [1, 8] {
            let mut net = net(kind, false, lanes);
            let listeners = net.b.listen_all(9);
            let text: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
            for lane in 0..lanes {
                let client = net.connect(lane, "10.9.0.2:9").unwrap();
                net.run();
                let (at, server) = net.b.accept_all(&listeners)[0];
                let (mut sent, mut heard) = (0, Vec::new());
                while heard.len() < text.len() {
                    let (now, pool) = (net.now, &net.pool);
                    if sent < text.len() {
                        sent += net.a.lanes[lane]
                            .with_tcp(now, pool, |tcp, cx| tcp.send(cx, client, &text[sent..]))
                            .unwrap_or(0);
                    }
                    net.run();
                    let before = heard.len();
                    heard.extend(net.hear(false, at, server.id).unwrap_or_default());
                    if heard.len() == before {
                        net.pass(std::time::Duration::from_millis(50));
                    }
                }
                assert!(heard == text, "{kind:?}, {lanes} lanes");
            }
            assert_eq!(drops(&net), 0, "{kind:?}, {lanes} lanes");
        }
    }
}

#[test]
fn a_narrower_way_makes_the_inside_smaller() {
    for kind in kinds() {
        let mut net = net(kind, false, 2);
        let frame = outer_frames(&mut net, 1).remove(0);
        let before = net.a.lanes[1].max_payload(ip("10.9.0.2")).unwrap();
        let error = crate::path_mtu::too_big(&net, &frame, 1400);
        net.a.input(net.now, &net.pool, error);
        net.a.settle(net.now, &net.pool);
        assert_eq!(sum(&net.a, |s| s.tunnel.errors), 1, "{kind:?}");
        for lane in &net.a.lanes {
            assert_eq!(lane.max_payload(ip("10.9.0.2")), Ok(before - 100), "{kind:?}");
            assert_eq!(lane.max_payload(ip("10.0.0.2")), Ok(1372), "{kind:?}");
        }
        assert_eq!(drops(&net), 0, "{kind:?}");
    }
}
