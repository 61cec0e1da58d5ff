//! Datagrams longer than the MTU, through whole lanes: sent, received, echoed, and sent badly.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_rss::UdpFields;
use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::{IcmpErrorKind, Offload};
use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig, Verdict};
use flowlane_stack::stats::{DropReason, LaneStats};
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::ipv6_ext::walk;
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header, MacAddr, Sum,
};
use flowlane_stack::{Class, SendError};
use flowlane_sys::frame::Frame;

use crate::net::{Net, Plan, end, ip};

const SERVERS: [&str; 2] = ["10.0.0.2:7", "[fd00::2]:7"];

fn net() -> Net {
    let plan = |mac, addresses: &[&'static str]| Plan::new(mac, addresses);
    Net::new(&plan(1, &["10.0.0.1/24", "fd00::1/64"]), &plan(2, &["10.0.0.2/24", "fd00::2/64"]))
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8).collect()
}

fn drops(net: &Net) -> u64 {
    net.a.lanes.iter().chain(&net.b.lanes).map(|l| l.stats().drops.total()).sum()
}

/// An IPv4 or IPv6 fragment in its frame, from host A to host B.
struct Raw {
    v6: bool,
    id: u32,
    offset: u16,
    more: bool,
    protocol: IpProtocol,
    payload: Vec<u8>,
}

impl Raw {
    fn frame(&self, net: &Net) -> Frame {
        let mut f = net.pool.alloc().unwrap();
        assert!(f.extend_from_slice(&self.payload));
        let len = self.payload.len() as u16;
        if self.v6 {
            let part = Ipv6Fragment {
                next_header: self.protocol,
                offset: self.offset,
                more: self.more,
                identification: self.id,
            };
            part.emit(f.push_front(8).unwrap());
            Ipv6Header {
                src: "fd00::1".parse().unwrap(),
                dst: "fd00::2".parse().unwrap(),
                next_header: IpProtocol::FRAGMENT,
                hop_limit: 64,
                traffic_class: 0,
                flow_label: 0,
                payload_len: len + 8,
            }
            .emit(f.push_front(40).unwrap());
        } else {
            Ipv4Header {
                src: Ipv4Addr::new(10, 0, 0, 1),
                dst: Ipv4Addr::new(10, 0, 0, 2),
                protocol: self.protocol,
                ttl: 64,
                tos: 0,
                identification: self.id as u16,
                dont_fragment: false,
                more_fragments: self.more,
                fragment_offset: self.offset,
                payload_len: len,
                options: Ipv4Options::default(),
            }
            .emit(f.push_front(20).unwrap());
        }
        let ethertype = if self.v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let header = EthernetHeader { dst: mac(2), src: mac(1), ethertype, vlan: None };
        header.emit(f.push_front(14).unwrap());
        f
    }

    fn give(&self, net: &mut Net) {
        let f = self.frame(net);
        net.b.input(net.now, &net.pool, f);
    }
}

/// A UDP datagram from port 9 of A to port 7 of B, header and checksum included.
fn udp(v6: bool, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() + 8;
    let mut d = [&[0, 9, 0, 7][..], &(len as u16).to_be_bytes(), &[0, 0], payload].concat();
    let pseudo = if v6 {
        let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        Sum::pseudo_v6(a, b, IpProtocol::UDP, len as u32)
    } else {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        Sum::pseudo_v4(a, b, IpProtocol::UDP, len as u16)
    };
    flowlane_stack::wire::udp::fill_checksum(pseudo, &mut d);
    d
}

/// Puts the fragments among `frames` together; the payloads of IP of what comes out.
fn reassembled(frames: Vec<Frame>) -> Vec<Vec<u8>> {
    let mut r = Reassembly::new(ReassemblyConfig::default(), 1);
    let mut out = Vec::new();
    for mut f in frames {
        assert!(f.trim_front(14));
        let fragment = if f.data()[0] >> 4 == 4 {
            let (h, range) = Ipv4Header::parse(f.data()).unwrap();
            if !h.is_fragment() {
                continue;
            }
            assert!(!h.dont_fragment);
            assert!(f.trim_front(range.start));
            let key = Key::v4(h.src, h.dst, h.protocol, h.identification);
            Fragment {
                frame: f,
                key,
                header_len: 20,
                offset: h.fragment_offset,
                more: h.more_fragments,
                ecn: 0,
            }
        } else {
            let (h, _) = Ipv6Header::parse(f.data()).unwrap();
            let upper = walk(f.data(), h.next_header).unwrap();
            let Some(part) = upper.fragment else { continue };
            assert!(f.trim_front(upper.offset));
            let key = Key::v6(h.src, h.dst, part.identification);
            Fragment { frame: f, key, header_len: 48, offset: part.offset, more: part.more, ecn: 0 }
        };
        if let Verdict::Whole(whole) =
            r.input(flowlane_stack::time::Time::ZERO, fragment, &mut LaneStats::default())
        {
            let header = if whole.data()[0] >> 4 == 4 { 20 } else { 40 };
            out.push(whole.chunks().collect::<Vec<_>>().concat()[header..].to_vec());
        }
    }
    out
}

#[test]
fn long_datagrams_go_there_and_come_back() {
    for server in SERVERS {
        for offload in [false, true] {
            let mut client = Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]);
            client.offload = Offload { checksum: offload, segmentation: 0 };
            let mut net = Net::new(&client, &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]));
            let free = net.pool.free();
            let echo = net.b.bind_all(7);
            let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
            let most = if server.starts_with('[') { 65_527 } else { 65_507 };
            for (i, len) in [1453, 1473, 1480, 2952, 3000, 20_000, 60_000, most].into_iter().enumerate() {
                let payload = bytes(len, i as u32);
                let to = Some(end(server));
                net.a.lanes[0].udp_send(net.now, &net.pool, socket, &payload, None, to).unwrap();
                net.run();
                if offload && len == 1453 && !server.starts_with('[') {
                    // Fits a packet, so its checksum was left to a link, which this wire is not.
                    continue;
                }
                let d = net.b.lanes[0].udp_receive(echo[0]).unwrap();
                assert_eq!(d.len(), len);
                assert_eq!(d.chunks().collect::<Vec<_>>().concat(), payload);
                let mut read = vec![0; len + 1];
                assert_eq!(d.read(&mut read), len);
                assert_eq!(read[..len], payload);
                net.b.lanes[0].udp_reply(net.now, &net.pool, echo[0], d).unwrap();
                net.run();
                let d = net.a.lanes[0].udp_receive(socket).unwrap();
                assert_eq!(d.chunks().collect::<Vec<_>>().concat(), payload);
            }
            net.run();
            assert_eq!(net.pool.free(), free);
            let stats = net.b.lanes[0].stats();
            let ip = if server.starts_with('[') { stats.ip6 } else { stats.ip };
            assert_eq!(
                (ip.reassembled, ip.fragmented),
                if server.starts_with('[') { (8, 8) } else { (7, 7) }
            );
            assert_eq!(ip.fragments, ip.fragments_created);
            if !offload {
                assert_eq!(drops(&net), 0);
            }
        }
    }
}

#[test]
fn what_is_longer_than_a_datagram_is_refused_by_name() {
    let mut net = net();
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    for (server, most) in SERVERS.into_iter().zip([65_507, 65_527]) {
        let to = Some(end(server));
        let send =
            |net: &mut Net, len| net.a.lanes[0].udp_send(net.now, &net.pool, socket, &vec![0; len], None, to);
        assert_eq!(send(&mut net, most + 1), Err(SendError::TooLong));
        assert_eq!(send(&mut net, 100_000), Err(SendError::TooLong));
        assert_eq!(send(&mut net, most), Ok(()));
    }
    assert_eq!(SendError::TooLong.to_string(), "longer than a datagram can be");
}

/// Without room for all fragments nothing is sent, and the sender can try again.
#[test]
fn either_all_fragments_are_queued_or_none() {
    let mut net = net();
    net.b.bind_all(7);
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    let to = Some(end("10.0.0.2:7"));
    let lane = &mut net.a.lanes[0];
    lane.udp_send(net.now, &net.pool, socket, b"who are you", None, to).unwrap();
    net.run();
    let lane = &mut net.a.lanes[0];
    while lane.output_len() < 2048 - 20 {
        lane.udp_send(net.now, &net.pool, socket, b"x", None, to).unwrap();
    }
    let long = vec![0; 21 * 1480];
    assert_eq!(lane.udp_send(net.now, &net.pool, socket, &long, None, to), Err(SendError::Full));
    assert_eq!(lane.output_len(), 2048 - 20);
    assert_eq!(lane.stats().ip.fragments_created, 0);
    assert_eq!(lane.udp_send(net.now, &net.pool, socket, &long[..10 * 1480], None, to), Ok(()));
    // Nor without enough frames.
    let hoard: Vec<_> = std::iter::from_fn(|| net.pool.alloc()).collect();
    drop(lane.poll_output(net.now, &net.pool));
    let before = lane.output_len();
    assert_eq!(lane.udp_send(net.now, &net.pool, socket, &long[..4000], None, to), Err(SendError::NoFrame));
    assert_eq!(lane.output_len(), before);
    drop(hoard);
}

/// The same flows, long and short datagrams mixed, with 1, 2 and 8 lanes and UDP on two and on four fields: the same
/// datagrams for each flow, all in one lane.
#[test]
fn the_number_of_lanes_changes_nothing_but_where() {
    let mut results = Vec::new();
    for buckets in [1, 2, 8] {
        for udp in [UdpFields::Two, UdpFields::Four] {
            let mut client = Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]);
            client.claimed = vec!["10.1.0.0/16", "fd00:1::/32"];
            let mut server = Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]);
            (server.buckets, server.udp) = (buckets, udp);
            let mut net = Net::new(&client, &server);
            let sinks = net.b.bind_all(7);
            let socket = net.a.lanes[0].udp_bind(Bind { any_port: true, ..Bind::default() }).unwrap();
            let mut got: BTreeMap<Endpoint, Vec<Vec<u8>>> = BTreeMap::new();
            let mut lane_of = BTreeMap::new();
            for round in 0..3u32 {
                for flow in 0..60u32 {
                    let v6 = flow % 2 == 0;
                    let source = if v6 {
                        IpAddr::V6(Ipv6Addr::from(0xfd00_0001_u128 << 96 | u128::from(flow / 4)))
                    } else {
                        IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + flow / 4))
                    };
                    let source = Endpoint::new(source, 1000 + flow as u16);
                    let payload = bytes(1 + (flow * 97 + round * 1700) as usize % 5000, flow + round);
                    let to = end(SERVERS[usize::from(v6)]);
                    net.a.lanes[0]
                        .udp_send(net.now, &net.pool, socket, &payload, Some(source), Some(to))
                        .unwrap();
                    net.run();
                }
                for (lane, d) in net.b.receive_all(&sinks) {
                    assert_eq!(*lane_of.entry(d.source).or_insert(lane), lane, "a flow keeps to its lane");
                    let home = net.b.lanes[lane].reply_bucket(d.destination, d.source);
                    assert_eq!(usize::from(home.0), lane, "and it is the lane of its hash");
                    assert_ne!(d.hash_type(), 0);
                    got.entry(d.source).or_default().push(d.chunks().collect::<Vec<_>>().concat());
                }
            }
            assert_eq!(got.len(), 60);
            assert_eq!(drops(&net), 0);
            let elsewhere: u64 = net.b.lanes.iter().map(|l| l.stats().ip.reassembled_elsewhere).sum();
            let moved = buckets > 1 && udp == UdpFields::Four;
            assert_eq!(
                elsewhere > 0,
                moved,
                "{buckets} {udp:?}: only ports can say that it belongs elsewhere"
            );
            results.push(got);
        }
    }
    assert!(results.windows(2).all(|w| w[0] == w[1]));
}

/// A finished datagram leaves as a class of its own and is not looked at twice.
#[test]
fn what_is_put_together_for_another_lane_goes_there_directly() {
    let mut server = Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]);
    (server.buckets, server.udp) = (2, UdpFields::Four);
    for v6 in [false, true] {
        let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]), &server);
        let sinks = net.b.bind_all(7);
        let home = net.b.lanes[0].reply_bucket(end(SERVERS[usize::from(v6)]), {
            Endpoint::new(if v6 { ip("fd00::1") } else { ip("10.0.0.1") }, 9)
        });
        let (home, other) = (usize::from(home.0), 1 - usize::from(home.0));
        let d = udp(v6, &bytes(100, 1));
        for (offset, part) in [(0, &d[..56]), (56, &d[56..])] {
            let raw =
                Raw { v6, id: 1, offset, more: offset == 0, protocol: IpProtocol::UDP, payload: part.into() };
            let frame = raw.frame(&net);
            net.b.lanes[other].input(net.now, &net.pool, frame, Class::Ethernet);
        }
        let r = net.b.lanes[other].poll_redirect().unwrap();
        assert_eq!((usize::from(r.bucket.0), r.class), (home, Class::IpDirect));
        assert!(r.frame.is_chained());
        net.b.lanes[home].input(net.now, &net.pool, r.frame, r.class);
        let got = net.b.lanes[home].udp_receive(sinks[home]).unwrap();
        assert_eq!(got.chunks().collect::<Vec<_>>().concat(), bytes(100, 1));
        let ip = |lane: usize| {
            let s = net.b.lanes[lane].stats();
            if v6 { s.ip6 } else { s.ip }
        };
        assert_eq!((ip(other).received, ip(other).reassembled, ip(other).reassembled_elsewhere), (2, 1, 1));
        assert_eq!((ip(home).received, ip(home).delivered), (0, 1));
    }
}

/// `ping -s 60000`, and a ping in fragments that would have fitted one frame.
#[test]
fn long_echo_requests_are_answered_in_full() {
    for v6 in [false, true] {
        for len in [100, 1400, 9000, 60_000] {
            let mut net = net();
            // So that the answer knows where to go.
            let known = net.a.lanes[0].udp_bind(Bind::port(1)).unwrap();
            let socket = net.b.lanes[0].udp_bind(Bind::default()).unwrap();
            let back = end(if v6 { "[fd00::1]:1" } else { "10.0.0.1:1" });
            net.b.lanes[0].udp_send(net.now, &net.pool, socket, b"", None, Some(back)).unwrap();
            net.run();
            assert!(net.a.lanes[0].udp_receive(known).is_some());
            let free = net.pool.free();
            let mut ping = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 1];
            ping.extend(bytes(len, 1));
            let pseudo = if v6 {
                let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
                Sum::pseudo_v6(a, b, IpProtocol::ICMPV6, ping.len() as u32)
            } else {
                Sum::EMPTY
            };
            let sum = pseudo.add_bytes(&ping).finish().to_be_bytes();
            ping[2..4].copy_from_slice(&sum);
            let protocol = if v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
            let step = if len > 1400 { 1400 } else { 64 };
            for at in (0..ping.len()).step_by(step) {
                let to = ping.len().min(at + step);
                let payload = ping[at..to].to_vec();
                Raw { v6, id: 1, offset: at as u16, more: to < ping.len(), protocol, payload }.give(&mut net);
            }
            let mut out = net.b.output(net.now, &net.pool);
            let answer = if len <= 1400 {
                assert_eq!(out.len(), 1);
                out.pop().unwrap().data()[14 + if v6 { 40 } else { 20 }..].to_vec()
            } else {
                reassembled(out).pop().unwrap()
            };
            assert_eq!((answer[0], answer.len()), (if v6 { 129 } else { 0 }, ping.len()));
            assert_eq!(answer[4..], ping[4..]);
            assert!(pseudo.add_bytes(&answer).is_intact());
            assert_eq!(net.pool.free(), free);
            assert_eq!(drops(&net), 0);
        }
    }
}

#[test]
fn identifications_differ_and_cannot_be_told_from_one_another() {
    let mut plan = Plan::new(1, &["10.0.0.1/24"]);
    plan.gateway = Some("10.0.0.2");
    let mut server = Plan::new(2, &["10.0.0.2/24"]);
    server.claimed = vec!["10.9.0.0/16"];
    let mut net = Net::new(&plan, &server);
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    net.a.lanes[0].udp_send(net.now, &net.pool, socket, b"", None, Some(end("10.9.0.1:7"))).unwrap();
    net.run();
    let mut ids: BTreeMap<IpAddr, Vec<u16>> = BTreeMap::new();
    for i in 0..50 * 8 {
        let to = Endpoint::new(ip(&format!("10.9.0.{}", i % 50 + 1)), 7);
        net.a.lanes[0].udp_send(net.now, &net.pool, socket, &[0; 2000], None, Some(to)).unwrap();
        for f in net.a.output(net.now, &net.pool) {
            let (h, _) = Ipv4Header::parse(&f.data()[14..]).unwrap();
            assert!(!h.dont_fragment);
            if h.fragment_offset == 0 {
                ids.entry(h.dst.into()).or_default().push(h.identification);
            } else {
                assert_eq!(ids[&IpAddr::V4(h.dst)].last(), Some(&h.identification));
            }
        }
    }
    for list in ids.values() {
        assert_eq!(list.iter().collect::<std::collections::BTreeSet<_>>().len(), 8, "no number twice");
    }
    let first: Vec<u16> = ids.values().map(|l| l[0]).collect();
    let near = first.windows(2).filter(|w| w[0].abs_diff(w[1]) < 64).count();
    assert!(near < 5, "neighbours' numbers are strangers: {first:?}");
}

#[test]
fn a_datagram_that_does_not_complete_is_told_to_its_sender_if_its_first_fragment_came() {
    for (v6, secs) in [(false, 30), (true, 60)] {
        let mut net = net();
        let server = if v6 { "[fd00::2]:7" } else { "10.0.0.2:7" };
        let bind = Bind { remote: Some(end(server)), local_port: 9, ..Bind::default() };
        let socket = net.a.lanes[0].udp_bind(bind).unwrap();
        let d = udp(v6, &[1; 40]);
        let give = |net: &mut Net, id, offset: u16, more, bytes: &[u8]| {
            Raw { v6, id, offset, more, protocol: IpProtocol::UDP, payload: bytes.to_vec() }.give(net);
        };
        give(&mut net, 1, 0, true, &d[..16]);
        give(&mut net, 2, 16, true, &d[16..32]);
        give(&mut net, 3, 0, true, &d[..16]);
        give(&mut net, 3, 8, true, &d[8..24]);
        net.pass(Duration::from_millis(secs * 1000 - 1));
        assert_eq!(net.a.lanes[0].udp_take_error(socket), None);
        net.pass(Duration::from_millis(2));
        // One error: not for the datagram without beginning, not for the one whose fragments overlapped.
        assert_eq!(net.a.lanes[0].udp_take_error(socket), Some(IcmpErrorKind::TimeExceeded));
        let stats = net.b.lanes[0].stats();
        let (icmp, ip) = if v6 { (stats.icmp6, stats.ip6) } else { (stats.icmp, stats.ip) };
        assert_eq!((icmp.errors_sent, ip.fragments_timeout), (1, 2));
        assert_eq!(stats.drops.get(DropReason::FragmentTimeout), 2);
        assert_eq!(stats.drops.get(DropReason::FragmentOverlap), 2);
    }
}

/// No error is sent about an error that came in fragments and did not complete (RFC 1122 section 3.2.2).
#[test]
fn no_errors_about_errors() {
    for (v6, protocol, kind) in [(false, IpProtocol::ICMP, 3), (true, IpProtocol::ICMPV6, 1)] {
        let mut net = net();
        let mut payload = vec![0; 64];
        payload[0] = kind;
        Raw { v6, id: 1, offset: 0, more: true, protocol, payload }.give(&mut net);
        net.pass(Duration::from_secs(61));
        let stats = net.b.lanes[0].stats();
        assert_eq!(stats.drops.get(DropReason::FragmentTimeout), 1);
        assert_eq!((stats.icmp.errors_sent, stats.icmp6.errors_sent), (0, 0));
    }
}

/// The table of `docs/fragments.md`: each fault has its counter, and IPv6 tells the sender of those it must.
#[test]
fn each_fault_has_its_own_counter() {
    use DropReason::{FragmentInvalid, FragmentNested, FragmentTiny, FragmentTooLong};
    let udp17 = IpProtocol::UDP;
    let (tcp, options, fragment) = (IpProtocol::TCP, IpProtocol::DESTINATION_OPTIONS, IpProtocol::FRAGMENT);
    let nested = vec![17, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
    let cases = [
        (false, 8, true, udp17, vec![], FragmentInvalid, 0),
        (false, 8, false, udp17, vec![], FragmentInvalid, 0),
        (false, 0, true, udp17, vec![0; 12], FragmentInvalid, 0),
        (false, 65_528, false, udp17, vec![0; 8], FragmentTooLong, 0),
        (false, 65_504, false, udp17, vec![0; 16], FragmentTooLong, 0),
        (false, 0, true, tcp, vec![0; 16], FragmentTiny, 0),
        (true, 8, true, udp17, vec![], FragmentInvalid, 1),
        (true, 0, true, udp17, vec![0; 12], FragmentInvalid, 1),
        (true, 65_528, false, udp17, vec![0; 8], FragmentTooLong, 1),
        (true, 0, true, tcp, vec![0; 16], FragmentTiny, 1),
        (true, 0, true, options, vec![17, 1, 1, 12, 0, 0, 0, 0], FragmentTiny, 1),
        (true, 0, true, options, vec![17, 0, 1, 4, 0, 0, 0, 0], FragmentTiny, 1),
        (true, 0, true, fragment, nested, FragmentNested, 0),
    ];
    for (v6, offset, more, protocol, payload, reason, told) in cases {
        let mut net = net();
        Raw { v6, id: 1, offset, more, protocol, payload }.give(&mut net);
        let stats = net.b.lanes[0].stats();
        assert_eq!(stats.drops.get(reason), 1, "{reason:?} {offset} {more}");
        assert_eq!(stats.drops.total(), 1);
        let ip = if v6 { stats.ip6 } else { stats.ip };
        assert_eq!((ip.fragments, ip.fragments_dropped), (1, 1));
        assert_eq!(stats.icmp6.errors_sent, told, "{reason:?}");
        assert_eq!(net.b.lanes[0].poll_at().is_some(), told == 1, "only the sender's address is waited for");
    }
}

/// RFC 6946: a fragment that is the whole datagram has nothing to do with others of its identification.
#[test]
fn atomic_fragments_are_handled_alone() {
    let mut net = net();
    let sink = net.b.bind_all(7)[0];
    let d = udp(true, &[3; 40]);
    let give = |net: &mut Net, offset: u16, more, part: &[u8]| {
        Raw { v6: true, id: 5, offset, more, protocol: IpProtocol::UDP, payload: part.to_vec() }.give(net);
    };
    give(&mut net, 0, true, &d[..16]);
    give(&mut net, 0, false, &d);
    assert_eq!(net.b.lanes[0].udp_receive(sink).unwrap().payload(), [3; 40]);
    give(&mut net, 16, false, &d[16..]);
    assert_eq!(net.b.lanes[0].udp_receive(sink).unwrap().len(), 40);
    let ip6 = net.b.lanes[0].stats().ip6;
    assert_eq!((ip6.atomic_fragments, ip6.fragments, ip6.reassembled), (1, 2, 1));
    assert_eq!(drops(&net), 0);
}

/// Headers before the fragment header stay, those behind it are read after reassembly.
#[test]
fn extension_headers_on_either_side_of_the_fragment_header() {
    let mut net = net();
    let sink = net.b.bind_all(7)[0];
    let behind = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(true, &bytes(90, 1))].concat();
    for (offset, part) in [(48u16, &behind[48..]), (0, &behind[..48])] {
        let raw = Raw {
            v6: true,
            id: 5,
            offset,
            more: offset == 0,
            protocol: IpProtocol::DESTINATION_OPTIONS,
            payload: part.to_vec(),
        };
        let plain = raw.frame(&net);
        // A hop-by-hop header between the fixed header and the fragment header.
        let mut all = plain.data().to_vec();
        all.splice(54..54, [44, 0, 1, 4, 0, 0, 0, 0]);
        all[20] = 0;
        let len = u16::from_be_bytes([all[18], all[19]]) + 8;
        all[18..20].copy_from_slice(&len.to_be_bytes());
        let mut f = net.pool.alloc().unwrap();
        assert!(f.extend_from_slice(&all));
        net.b.input(net.now, &net.pool, f);
    }
    let d = net.b.lanes[0].udp_receive(sink).unwrap();
    assert_eq!(d.chunks().collect::<Vec<_>>().concat(), bytes(90, 1));
    assert_eq!(drops(&net), 0);
}

/// Wrong checksums and lengths of what is in several frames are noticed as of what is in one.
#[test]
fn a_damaged_datagram_is_not_delivered() {
    for v6 in [false, true] {
        for (at, reason) in [(70, Some(DropReason::UdpChecksum)), (5, None)] {
            let mut net = net();
            let sink = net.b.bind_all(7)[0];
            let mut d = udp(v6, &bytes(99, 1));
            d[at] ^= 0x40;
            for (offset, part) in [(0, &d[..56]), (56, &d[56..])] {
                let raw = Raw {
                    v6,
                    id: 1,
                    offset,
                    more: offset == 0,
                    protocol: IpProtocol::UDP,
                    payload: part.into(),
                };
                raw.give(&mut net);
            }
            assert!(net.b.lanes[0].udp_receive(sink).is_none());
            let stats = net.b.lanes[0].stats();
            assert_eq!(stats.drops.total(), 1);
            match reason {
                Some(reason) => assert_eq!(stats.drops.get(reason), 1),
                None => assert_eq!(stats.udp.bad_length + stats.udp.bad_checksum, 1),
            }
        }
    }
}

/// A datagram to a port that nobody has: the error quotes the reassembled packet's beginning.
#[test]
fn a_closed_port_is_told_about_long_datagrams_too() {
    for server in SERVERS {
        let mut net = net();
        let bind = Bind { remote: Some(end(server)), ..Bind::default() };
        let socket = net.a.lanes[0].udp_bind(bind).unwrap();
        net.a.lanes[0].udp_send(net.now, &net.pool, socket, &[0; 5000], None, None).unwrap();
        net.run();
        assert_eq!(net.a.lanes[0].udp_take_error(socket), Some(IcmpErrorKind::PortUnreachable));
    }
}

/// A flood of beginnings from invented hosts: whole packets are all delivered, so are datagrams in two fragments, and
/// the frames held stay within the limit.
#[test]
fn a_flood_of_fragments_does_not_keep_others_out() {
    let mut net = net();
    let sink = net.b.bind_all(7)[0];
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    let to = Some(end("10.0.0.2:7"));
    net.a.lanes[0].udp_send(net.now, &net.pool, socket, b"hello", None, to).unwrap();
    net.run();
    assert!(net.b.lanes[0].udp_receive(sink).is_some());
    let mut rng = flowlane_stack::rng::Rng::new(9);
    let raw =
        Raw { v6: false, id: 1, offset: 0, more: true, protocol: IpProtocol::UDP, payload: vec![0; 64] };
    let template = raw.frame(&net).data().to_vec();
    let flood = |net: &mut Net, rng: &mut flowlane_stack::rng::Rng, n: usize| {
        for _ in 0..n {
            let mut bytes = template.clone();
            bytes[26..30].copy_from_slice(&(0x0b00_0000 | rng.next_u32() >> 8).to_be_bytes());
            bytes[18..20].copy_from_slice(&(rng.next_u32() as u16).to_be_bytes());
            bytes[24..26].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(&bytes[14..34]);
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            let mut f = net.pool.alloc().expect("the flood leaves frames for others");
            assert!(f.extend_from_slice(&bytes));
            net.b.input(net.now, &net.pool, f);
        }
    };
    for round in 0..300usize {
        let (whole, long) = (bytes(200, round as u32), bytes(2500, round as u32));
        net.a.lanes[0].udp_send(net.now, &net.pool, socket, &whole, None, to).unwrap();
        net.a.lanes[0].udp_send(net.now, &net.pool, socket, &long, None, to).unwrap();
        for f in net.a.output(net.now, &net.pool) {
            flood(&mut net, &mut rng, 100);
            net.b.input(net.now, &net.pool, f);
        }
        for want in [whole, long] {
            let d = net.b.lanes[0].udp_receive(sink).unwrap();
            assert_eq!(d.chunks().collect::<Vec<_>>().concat(), want);
        }
        net.now += Duration::from_millis(1);
    }
    let stats = net.b.lanes[0].stats();
    assert_eq!(stats.ip.fragments_overflow, stats.drops.get(DropReason::FragmentEvicted));
    // Most of it goes at a glance, once there is no room.
    let glanced = stats.drops.get(DropReason::FragmentFlood);
    assert!(glanced > 40_000, "{glanced}");
    assert!(stats.ip.fragments_overflow + glanced > 80_000);
}
