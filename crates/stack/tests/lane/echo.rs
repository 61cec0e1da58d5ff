//! Datagrams there and back.

use std::collections::BTreeMap;

use flowlane_rss::UdpFields;
use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::stats::DropReason;
use flowlane_stack::udp::{Bind, BindError, UdpConfig};
use flowlane_stack::{Lane, SendError};

use crate::net::{Net, Plan, end, ip};

fn v4() -> Net {
    Net::new(&Plan::new(1, &["10.0.0.1/24"]), &Plan::new(2, &["10.0.0.2/24"]))
}

#[test]
fn a_datagram_goes_there_and_comes_back_in_both_families() {
    for (server, local) in [("10.0.0.2:7", "10.0.0.1"), ("[fd00::2]:7", "fd00::1")] {
        let mut net = Net::new(
            &Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]),
            &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]),
        );
        let echo = net.b.bind_all(7);
        let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
        let (_, port) = net.a.lanes[0].udp_local(socket).unwrap();
        assert!(port >= 49152, "an ephemeral port");
        let payloads: [&[u8]; 4] = [b"", b"x", b"hello", &[7; 1400]];
        for p in payloads {
            net.a.lanes[0].udp_send(net.now, &net.pool, socket, p, None, Some(end(server))).unwrap();
        }
        net.run();
        assert_eq!(net.b.echo(net.now, &net.pool, &echo), 4);
        net.run();
        for p in payloads {
            let d = net.a.lanes[0].udp_receive(socket).unwrap();
            assert_eq!(d.payload(), p);
            assert_eq!((d.source, d.destination), (end(server), Endpoint::new(ip(local), port)));
        }
        assert_eq!(net.a.lanes[0].stats().drops.total() + net.b.lanes[0].stats().drops.total(), 0);
        let udp = net.b.lanes[0].stats().udp;
        assert_eq!((udp.received, udp.delivered, udp.sent, udp.sent_on_original), (4, 4, 4, 4));
    }
}

#[test]
fn every_frame_goes_back_to_the_pool() {
    let mut net = v4();
    let free = net.pool.free();
    let echo = net.b.bind_all(7);
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    for _ in 0..1000 {
        net.a.lanes[0].udp_send(net.now, &net.pool, socket, b"x", None, Some(end("10.0.0.2:7"))).unwrap();
        net.run();
        net.b.echo(net.now, &net.pool, &echo);
        net.run();
        assert!(net.a.lanes[0].udp_receive(socket).is_some());
    }
    assert_eq!(net.pool.free(), free);
}

/// The same flows with 1, 2 and 8 lanes: the same bytes for each flow, and each flow in one lane.
#[test]
fn the_number_of_lanes_changes_nothing_but_where() {
    let mut results = Vec::new();
    for buckets in [1, 2, 8] {
        for udp in [UdpFields::Two, UdpFields::Four] {
            let mut client = Plan::new(1, &["10.0.0.1/24"]);
            client.claimed = vec!["10.1.0.0/16"];
            let mut server = Plan::new(2, &["10.0.0.2/24"]);
            server.gateway = Some("10.0.0.1");
            (server.buckets, server.udp) = (buckets, udp);
            let mut net = Net::new(&client, &server);
            let echo = net.b.bind_all(7);
            let socket = net.a.lanes[0].udp_bind(Bind { any_port: true, ..Bind::default() }).unwrap();
            let mut back: BTreeMap<Endpoint, Vec<Vec<u8>>> = BTreeMap::new();
            let mut lane_of = BTreeMap::new();
            for round in 0..5u32 {
                for flow in 0..200u32 {
                    let source = Endpoint::new(
                        std::net::Ipv4Addr::from(0x0a01_0000 + flow * 7).into(),
                        1000 + (flow * 13) as u16,
                    );
                    let payload = [flow.to_be_bytes(), round.to_be_bytes()].concat();
                    net.a.lanes[0]
                        .udp_send(net.now, &net.pool, socket, &payload, Some(source), Some(end("10.0.0.2:7")))
                        .unwrap();
                }
                net.run();
                for (lane, d) in net.b.receive_all(&echo) {
                    assert_eq!(*lane_of.entry(d.source).or_insert(lane), lane, "a flow keeps to its lane");
                    let source = d.source;
                    net.b.lanes[lane].udp_reply(net.now, &net.pool, echo[lane], d).unwrap();
                    let expected = net.b.lanes[lane].reply_bucket(end("10.0.0.2:7"), source);
                    assert_eq!(usize::from(expected.0), lane);
                }
                net.run();
                while let Some(d) = net.a.lanes[0].udp_receive(socket) {
                    back.entry(d.destination).or_default().push(d.payload().to_vec());
                }
            }
            assert_eq!(back.len(), 200);
            let used = lane_of.values().collect::<std::collections::BTreeSet<_>>().len();
            assert_eq!(used, buckets, "200 flows reach every lane");
            results.push(back);
        }
    }
    assert!(results.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn a_closed_port_is_told_to_the_sender_and_the_telling_is_limited() {
    for server in ["10.0.0.2:9", "[fd00::2]:9"] {
        let mut net = Net::new(
            &Plan::new(1, &["10.0.0.1/24", "fd00::1/64"]),
            &Plan::new(2, &["10.0.0.2/24", "fd00::2/64"]),
        );
        let lane = &mut net.a.lanes[0];
        let socket = lane.udp_bind(Bind { remote: Some(end(server)), ..Bind::default() }).unwrap();
        lane.udp_send(net.now, &net.pool, socket, b"anybody?", None, None).unwrap();
        net.run();
        assert_eq!(net.a.lanes[0].udp_take_error(socket), Some(IcmpErrorKind::PortUnreachable));
        assert_eq!(net.a.lanes[0].udp_take_error(socket), None);
        for _ in 0..1000 {
            net.a.lanes[0].udp_send(net.now, &net.pool, socket, b"?", None, None).unwrap();
        }
        net.run();
        let stats = net.b.lanes[0].stats();
        let icmp = if server.starts_with('[') { stats.icmp6 } else { stats.icmp };
        assert_eq!((icmp.errors_sent, icmp.errors_limited), (200, 801));
        assert_eq!(stats.drops.get(DropReason::UdpNoSocket), 1001);
        assert_eq!(stats.udp.no_socket, 1001);
    }
}

/// The error's outer addresses are a router's: its bucket is not that of the flow it is about.
#[test]
fn an_error_from_elsewhere_reaches_the_lane_of_its_flow() {
    let mut client = Plan::new(1, &["10.0.0.1/24"]);
    (client.buckets, client.gateway) = (8, Some("10.0.0.2"));
    client.udp = UdpFields::Four;
    // The "router" has the far address too and answers from it; what matters is that many flows' errors spread.
    let mut router = Plan::new(2, &["10.0.0.2/24"]);
    router.claimed = vec!["192.168.0.0/16"];
    let mut net = Net::new(&client, &router);
    for i in 0..64u16 {
        let remote = Endpoint::new(ip(&format!("192.168.{i}.1")), 9);
        let lane = usize::from(i % 8);
        let bind = Bind { remote: Some(remote), ..Bind::default() };
        let socket = net.a.lanes[lane].udp_bind(bind).unwrap();
        net.a.lanes[lane].udp_send(net.now, &net.pool, socket, b"?", None, None).unwrap();
        net.run();
        assert_eq!(net.a.lanes[lane].udp_take_error(socket), Some(IcmpErrorKind::PortUnreachable), "{i}");
    }
}

#[test]
fn connected_sockets_get_ports_whose_answers_come_home() {
    let mut client = Plan::new(1, &["10.0.0.1/24"]);
    (client.buckets, client.udp) = (8, UdpFields::Four);
    let mut net = Net::new(&client, &Plan::new(2, &["10.0.0.2/24"]));
    let echo = net.b.bind_all(7);
    let bind = Bind { remote: Some(end("10.0.0.2:7")), ..Bind::default() };
    let sockets: Vec<_> = net.a.lanes.iter_mut().map(|l| l.udp_bind(bind).unwrap()).collect();
    for (lane, socket) in net.a.lanes.iter_mut().zip(&sockets) {
        lane.udp_send(net.now, &net.pool, *socket, b"home", None, None).unwrap();
    }
    net.run();
    assert_eq!(net.b.echo(net.now, &net.pool, &echo), 8);
    net.run();
    for (lane, socket) in net.a.lanes.iter_mut().zip(&sockets) {
        assert_eq!(lane.udp_receive(*socket).unwrap().payload(), b"home");
    }
    // Hashed on addresses alone, all answers come to one bucket; lanes that tell one another nothing say which.
    (client.udp, client.shared) = (UdpFields::Two, false);
    let mut host = client.host();
    let results: Vec<_> = host.lanes.iter_mut().map(|l| l.udp_bind(bind)).collect();
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    let home = results.iter().position(Result::is_ok).unwrap();
    for r in results.iter().filter_map(|r| r.as_ref().err()) {
        assert_eq!(*r, BindError::OtherLane(flowlane_rss::Bucket(home as u16)));
    }
}

/// Other lanes have free ports, but their answers would not come here.
#[test]
fn a_lane_whose_ports_are_all_in_use_says_so() {
    for (ours, peer) in [("10.0.0.1/24", "10.0.0.2:7"), ("fd00::1/64", "[fd00::2]:7")] {
        let mut plan = Plan::new(1, &[ours]);
        (plan.buckets, plan.udp) = (64, UdpFields::Four);
        let mut host = plan.host();
        let bind = Bind { remote: Some(end(peer)), ..Bind::default() };
        let mut sockets = Vec::new();
        let error = loop {
            match host.lanes[0].udp_bind(bind) {
                Ok(socket) => sockets.push(socket),
                Err(error) => break error,
            }
        };
        assert_eq!(error, BindError::NoPort, "{peer}, after {}", sockets.len());
        assert!(sockets.len() > 65_536 / 64 - 100, "{}", sockets.len());
        let lane = &mut host.lanes[0];
        let tried = |lane: &Lane| lane.stats().udp.ports_tried;
        let before = tried(lane);
        for _ in 0..1000 {
            assert_eq!(lane.udp_bind(bind), Err(BindError::NoPort));
        }
        assert!(tried(lane) - before <= 8, "{} looked at for 1000 refusals", tried(lane) - before);
        // What is given up comes again at once, and other destinations know nothing of it.
        for n in [7, 500, 900] {
            let port = lane.udp_local(sockets[n]).unwrap().1;
            lane.udp_close(sockets[n]);
            let before = tried(lane);
            sockets[n] = lane.udp_bind(bind).unwrap();
            assert_eq!((lane.udp_local(sockets[n]).unwrap().1, tried(lane) - before), (port, 1));
            assert_eq!(lane.udp_bind(bind), Err(BindError::NoPort));
        }
        lane.udp_bind(Bind { remote: Some(Endpoint { port: 8, ..end(peer) }), ..bind }).unwrap();
        // One that was given up and bound by its number since is not handed out.
        let port = lane.udp_local(sockets[1]).unwrap().1;
        lane.udp_close(sockets[1]);
        sockets[1] = lane.udp_bind(Bind { local_port: port, ..bind }).unwrap();
        assert_eq!(lane.udp_bind(bind), Err(BindError::NoPort));
        // Many at once are looked for again.
        for socket in sockets.drain(..100) {
            lane.udp_close(socket);
        }
        for _ in 0..100 {
            lane.udp_bind(bind).unwrap();
        }
        assert_eq!(lane.udp_bind(bind), Err(BindError::NoPort));
    }
}

#[test]
fn the_most_specific_socket_gets_the_datagram() {
    let mut net = v4();
    let b = &mut net.b.lanes[0];
    let wildcard = b.udp_bind(Bind::port(7)).unwrap();
    let bound = b.udp_bind(Bind { local_ip: Some(ip("10.0.0.2")), ..Bind::port(7) }).unwrap();
    let connected = b
        .udp_bind(Bind {
            local_ip: Some(ip("10.0.0.2")),
            remote: Some(end("10.0.0.1:5000")),
            ..Bind::port(7)
        })
        .unwrap();
    let any = b.udp_bind(Bind { any_port: true, ..Bind::default() }).unwrap();
    assert_eq!(b.udp_bind(Bind::port(7)), Err(BindError::InUse));
    assert_eq!(
        b.udp_bind(Bind { local_ip: Some(ip("10.0.0.9")), ..Bind::port(8) }),
        Err(BindError::NotOurAddress)
    );
    let socket = net.a.lanes[0].udp_bind(Bind::port(5000)).unwrap();
    let other = net.a.lanes[0].udp_bind(Bind::port(5001)).unwrap();
    let mut send = |from, to| {
        net.a.lanes[0].udp_send(net.now, &net.pool, from, b"x", None, Some(end(to))).unwrap();
        net.run();
    };
    send(socket, "10.0.0.2:7");
    send(other, "10.0.0.2:7");
    send(other, "10.0.0.2:99");
    let b = &mut net.b.lanes[0];
    assert!(b.udp_receive(connected).is_some() && b.udp_receive(connected).is_none());
    assert!(b.udp_receive(bound).is_some() && b.udp_receive(bound).is_none());
    assert!(b.udp_receive(any).is_some() && b.udp_receive(any).is_none());
    assert!(b.udp_receive(wildcard).is_none());
    assert!(b.udp_close(bound));
    assert!(!b.udp_close(bound), "a handle dies with its socket");
    let again = b.udp_bind(Bind::port(8)).unwrap();
    assert!(!b.udp_is_open(bound) && b.udp_is_open(again));
    let mut send = |from, to| {
        net.a.lanes[0].udp_send(net.now, &net.pool, from, b"x", None, Some(end(to))).unwrap();
        net.run();
    };
    send(other, "10.0.0.2:7");
    assert!(net.b.lanes[0].udp_receive(wildcard).is_some());
}

#[test]
fn full_queues_drop_the_newest_and_count_it() {
    let mut server = Plan::new(2, &["10.0.0.2/24"]);
    server.limits = UdpConfig { socket_queue: 10, lane_queue: 15, ..UdpConfig::default() };
    let mut net = Net::new(&Plan::new(1, &["10.0.0.1/24"]), &server);
    let first = net.b.bind_all(7)[0];
    let second = net.b.bind_all(8)[0];
    let socket = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    for port in [7, 8] {
        for i in 0..20u8 {
            let to = Some(Endpoint::new(ip("10.0.0.2"), port));
            net.a.lanes[0].udp_send(net.now, &net.pool, socket, &[i], None, to).unwrap();
        }
        net.run();
    }
    let b = &mut net.b.lanes[0];
    let drain = |b: &mut flowlane_stack::Lane, s| {
        std::iter::from_fn(|| b.udp_receive(s)).map(|d| d.payload()[0]).collect::<Vec<_>>()
    };
    assert_eq!(drain(b, first), (0..10).collect::<Vec<_>>());
    assert_eq!(drain(b, second), (0..5).collect::<Vec<_>>(), "the lane's limit");
    assert_eq!(b.stats().drops.get(DropReason::UdpSocketFull), 25);
    let mut dropped = Vec::new();
    b.udp_sockets(&mut |s| dropped.push((s.local_port, s.received, s.dropped)));
    assert_eq!(dropped, [(7, 10, 10), (8, 5, 15)]);
}

#[test]
fn what_cannot_be_sent_says_why() {
    let mut net = v4();
    let lane = &mut net.a.lanes[0];
    let s = lane.udp_bind(Bind::default()).unwrap();
    let mut send = |payload: &[u8], source, to| {
        lane.udp_send(net.now, &net.pool, s, payload, source, to).map_err(|e| e.to_string())
    };
    assert_eq!(send(b"x", None, None).unwrap_err(), SendError::NoDestination.to_string());
    assert_eq!(send(b"x", None, Some(end("8.8.8.8:1"))).unwrap_err(), SendError::NoRoute.to_string());
    assert_eq!(
        send(b"x", Some(end("9.9.9.9:1")), Some(end("10.0.0.2:1"))).unwrap_err(),
        SendError::NoSource.to_string()
    );
    assert_eq!(
        send(&[0; 65_508], None, Some(end("10.0.0.2:1"))).unwrap_err(),
        SendError::TooLong.to_string()
    );
    assert!(send(&[0; 1472], None, Some(end("10.0.0.2:1"))).is_ok());
    lane.udp_close(s);
    assert_eq!(
        lane.udp_send(net.now, &net.pool, s, b"", None, Some(end("10.0.0.2:1"))),
        Err(SendError::Closed)
    );
}

#[test]
fn tagged_hosts_talk_and_untagged_ones_are_not_heard() {
    let tagged = |mac, a: &'static str, vlan| Plan { vlan, ..Plan::new(mac, &[a]) };
    let mut net = Net::new(&tagged(1, "10.0.0.1/24", Some(100)), &tagged(2, "10.0.0.2/24", Some(100)));
    let echo = net.b.bind_all(7);
    let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    net.a.lanes[0].udp_send(net.now, &net.pool, s, b"in", None, Some(end("10.0.0.2:7"))).unwrap();
    net.run();
    assert_eq!(net.b.echo(net.now, &net.pool, &echo), 1);
    net.run();
    assert!(net.a.lanes[0].udp_receive(s).is_some());
    let mut net = Net::new(&tagged(1, "10.0.0.1/24", Some(100)), &tagged(2, "10.0.0.2/24", None));
    let s = net.a.lanes[0].udp_bind(Bind::default()).unwrap();
    net.a.lanes[0].udp_send(net.now, &net.pool, s, b"in", None, Some(end("10.0.0.2:7"))).unwrap();
    net.run();
    assert_eq!(net.b.lanes[0].stats().drops.get(DropReason::VlanMismatch), 1);
}

#[test]
fn groups_and_broadcasts_are_heard_by_those_who_want_them() {
    let mut net = v4();
    let heard = net.b.bind_all(5353)[0];
    let s = net.a.lanes[0].udp_bind(Bind::port(5353)).unwrap();
    let group = ip("224.1.2.3");
    let send = |net: &mut Net, to: &str| {
        net.a.lanes[0].udp_send(net.now, &net.pool, s, b"all", None, Some(end(to))).unwrap();
        net.run();
        net.b.lanes[0].udp_receive(heard).is_some()
    };
    assert!(send(&mut net, "10.0.0.255:5353"));
    assert!(send(&mut net, "255.255.255.255:5353"));
    assert!(!send(&mut net, "224.1.2.3:5353"));
    assert_eq!(net.b.lanes[0].stats().drops.get(DropReason::NoGroup), 1);
    assert!(net.b.lanes[0].join(net.now, &net.pool, 0, group));
    assert!(send(&mut net, "224.1.2.3:5353"));
    assert!(net.b.lanes[0].leave(net.now, &net.pool, 0, group));
    assert!(!send(&mut net, "224.1.2.3:5353"));
}

/// A lane has no more sockets than it is told, and one that is closed makes room for another.
#[test]
fn sockets_of_a_lane_are_bounded() {
    let limits = UdpConfig { sockets: 2, ..UdpConfig::default() };
    let plan = Plan { limits, ..Plan::new(1, &["10.0.0.1/24"]) };
    let lane = &mut plan.host().lanes[0];
    let first = lane.udp_bind(Bind::port(7)).unwrap();
    lane.udp_bind(Bind::port(8)).unwrap();
    assert_eq!(lane.udp_bind(Bind::port(9)), Err(BindError::TooManySockets));
    lane.udp_close(first);
    assert!(lane.udp_bind(Bind::port(9)).is_ok());
    assert_eq!(lane.udp_bind(Bind::default()), Err(BindError::TooManySockets));
}
