//! Connected sockets in other lanes than those that their answers come to.

use flowlane_rss::UdpFields;
use flowlane_stack::address::Endpoint;
use flowlane_stack::packet::IcmpErrorKind;
use flowlane_stack::stats::DropReason;
use flowlane_stack::udp::{Bind, BindError, UdpHandle};

use crate::net::{Net, Plan, end};

const FAMILIES: [(&str, &str, &str); 2] =
    [("10.0.0.1/24", "10.0.0.2/24", "10.0.0.2:7"), ("fd00::1/64", "fd00::2/64", "[fd00::2]:7")];

/// A client with so many lanes, and a server with one.
fn net(lanes: usize, udp: UdpFields, ours: &'static str, theirs: &'static str) -> Net {
    let mut client = Plan::new(1, &[ours]);
    (client.buckets, client.udp) = (lanes, udp);
    Net::new(&client, &Plan::new(2, &[theirs]))
}

fn to(server: &str, local_port: u16) -> Bind {
    Bind { remote: Some(end(server)), local_port, ..Bind::default() }
}

/// The lane that the answers to a socket come to.
fn home(net: &Net, lane: usize, socket: UdpHandle) -> usize {
    let lane = &net.a.lanes[lane];
    let (ip, port) = lane.udp_local(socket).unwrap();
    let remote = lane.udp_remote(socket).unwrap();
    usize::from(lane.reply_bucket(Endpoint::new(ip.unwrap(), port), remote).0)
}

/// Each socket asks, in the lane it is in, and gets its own answer and no other.
fn ask_all(net: &mut Net, echo: &[UdpHandle], sockets: &[(usize, UdpHandle)], size: usize) {
    for (n, (lane, socket)) in sockets.iter().enumerate() {
        let payload = vec![n as u8; size];
        net.a.lanes[*lane].udp_send(net.now, &net.pool, *socket, &payload, None, None).unwrap();
    }
    net.run();
    assert_eq!(net.b.echo(net.now, &net.pool, echo), sockets.len());
    net.run();
    for (n, (lane, socket)) in sockets.iter().enumerate() {
        let answer = net.a.lanes[*lane].udp_receive(*socket).unwrap();
        let mut payload = vec![0; answer.len()];
        answer.read(&mut payload);
        assert_eq!(payload, vec![n as u8; size], "socket {n}");
        assert!(net.a.lanes[*lane].udp_receive(*socket).is_none());
    }
}

fn drops(net: &Net) -> u64 {
    net.a.lanes.iter().chain(&net.b.lanes).map(|lane| lane.stats().drops.total()).sum()
}

/// Any lane, any port, both families, hashed on ports or not; also in fragments. A second time after all were closed, each from the
/// next lane.
#[test]
fn every_lane_gets_its_answers() {
    for (ours, theirs, server) in FAMILIES {
        for (lanes, fields) in
            [1, 2, 4, 8].into_iter().flat_map(|n| [(n, UdpFields::Two), (n, UdpFields::Four)])
        {
            let mut net = net(lanes, fields, ours, theirs);
            let echo = net.b.bind_all(7);
            let (mut asked, mut away) = (0, 0);
            for round in 0..2 {
                let mut sockets = Vec::new();
                for i in 0..lanes {
                    let lane = (i + round) % lanes;
                    for port in [0, 2000 + i as u16, 3000 + i as u16] {
                        sockets.push((lane, net.a.lanes[lane].udp_bind(to(server, port)).unwrap()));
                    }
                }
                for size in [1, 1400, 4000] {
                    ask_all(&mut net, &echo, &sockets, size);
                }
                asked += 3 * sockets.len() as u64;
                let far = sockets.iter().filter(|(lane, socket)| home(&net, *lane, *socket) != *lane).count();
                away += 3 * far as u64;
                for (lane, socket) in sockets {
                    assert!(net.a.lanes[lane].udp_close(socket));
                }
            }
            let sum = |f: fn(&flowlane_stack::stats::LaneStats) -> u64| {
                net.a.lanes.iter().map(|lane| f(&lane.stats())).sum::<u64>()
            };
            assert_eq!(sum(|s| s.udp.elsewhere), away, "{lanes} lanes, {fields:?}");
            assert!(lanes == 1 || away > 0, "none was elsewhere");
            assert_eq!((sum(|s| s.udp.received), sum(|s| s.udp.delivered)), (asked, asked));
            // Over IPv6 there are neighbours' messages besides.
            assert!(sum(|s| s.ip.delivered) == asked || server.starts_with('['));
            assert_eq!(drops(&net), 0);
        }
    }
}

/// Home has a socket on the port, too, which is for everybody else's datagrams.
#[test]
fn a_connected_socket_elsewhere_goes_before_a_wildcard_at_home() {
    let mut net = net(4, UdpFields::Two, "10.0.0.1/24", "10.0.0.2/24");
    let wild = net.a.bind_all(2000);
    let echo = net.b.bind_all(7);
    let sockets: Vec<_> =
        (0..3).map(|lane| (lane, net.a.lanes[lane].udp_bind(to("10.0.0.2:7", 2000)))).collect();
    // One has these ends; the others are told so.
    let sockets: Vec<_> = sockets.into_iter().filter_map(|(lane, s)| Some((lane, s.ok()?))).collect();
    assert_eq!(sockets.len(), 1);
    for _ in 0..3 {
        ask_all(&mut net, &echo, &sockets, 20);
    }
    assert!(net.a.receive_all(&wild).is_empty());
    let (lane, socket) = sockets[0];
    net.a.lanes[lane].udp_close(socket);
    net.b.lanes[0].udp_send(net.now, &net.pool, echo[0], b"all", None, Some(end("10.0.0.1:2000"))).unwrap();
    net.run();
    assert_eq!(net.a.receive_all(&wild).len(), 1, "the wildcard at home");
}

#[test]
fn no_two_lanes_have_the_same_ends() {
    for lane in 0..4 {
        let mut net = net(4, UdpFields::Two, "10.0.0.1/24", "10.0.0.2/24");
        let first = net.a.lanes[lane].udp_bind(to("10.0.0.2:7", 2000)).unwrap();
        for other in 0..4 {
            assert_eq!(net.a.lanes[other].udp_bind(to("10.0.0.2:7", 2000)), Err(BindError::InUse));
        }
        net.a.lanes[lane].udp_close(first);
        assert!(net.a.lanes[3 - lane].udp_bind(to("10.0.0.2:7", 2000)).is_ok(), "closed, it is free again");
    }
}

/// After the socket is closed its datagrams are refused, by the lane that they come to.
#[test]
fn a_closed_socket_gets_nothing() {
    for (ours, theirs, server) in FAMILIES {
        let mut net = net(4, UdpFields::Two, ours, theirs);
        let echo = net.b.bind_all(7);
        for lane in 0..4 {
            let socket = net.a.lanes[lane].udp_bind(to(server, 2000)).unwrap();
            ask_all(&mut net, &echo, &[(lane, socket)], 10);
            net.a.lanes[lane].udp_send(net.now, &net.pool, socket, b"late", None, None).unwrap();
            net.run();
            net.a.lanes[lane].udp_close(socket);
            assert_eq!(net.b.echo(net.now, &net.pool, &echo), 1);
            net.run();
        }
        let refused: u64 = net.a.lanes.iter().map(|l| l.stats().drops.get(DropReason::UdpNoSocket)).sum();
        assert_eq!(refused, 4);
        let away = net.a.lanes.iter().map(|l| l.stats().udp.elsewhere).sum::<u64>();
        assert_eq!(away, 3, "one was at home");
    }
}

/// Nobody listens: the error comes to the lane of the flow, and to the socket. An error about a socket that is closed goes nowhere.
#[test]
fn an_error_reaches_a_socket_elsewhere() {
    for (ours, theirs, server) in FAMILIES {
        let mut net = net(4, UdpFields::Two, ours, theirs);
        for lane in 0..4 {
            let socket = net.a.lanes[lane].udp_bind(to(server, 2000)).unwrap();
            for closed in [false, true] {
                net.a.lanes[lane].udp_send(net.now, &net.pool, socket, b"?", None, None).unwrap();
                net.a.settle(net.now, &net.pool);
                if closed {
                    let out = net.a.output(net.now, &net.pool);
                    assert!(net.a.lanes[lane].udp_close(socket));
                    out.into_iter().for_each(|f| net.b.input(net.now, &net.pool, f));
                }
                net.run();
                let error = net.a.lanes[lane].udp_take_error(socket);
                assert_eq!(error, (!closed).then_some(IcmpErrorKind::PortUnreachable), "lane {lane}");
            }
        }
        let lost: u64 = net.a.lanes.iter().map(|l| l.stats().drops.get(DropReason::IcmpUnrelated)).sum();
        assert_eq!(lost, 4);
    }
}

/// So many may stand elsewhere; home itself has no such bound, and one that is closed makes room.
#[test]
fn sockets_elsewhere_are_bounded() {
    let mut net = net(2, UdpFields::Two, "10.0.0.1/24", "10.0.0.2/24");
    let near = net.a.lanes[0].udp_bind(to("10.0.0.2:7", 999)).unwrap();
    let (home, far) = if home(&net, 0, near) == 0 { (0, 1) } else { (1, 0) };
    net.a.lanes[0].udp_close(near);
    let mut sockets: Vec<_> =
        (0..4096).map(|n| net.a.lanes[far].udp_bind(to("10.0.0.2:7", 1000 + n)).unwrap()).collect();
    let more = net.a.lanes[far].udp_bind(to("10.0.0.2:7", 6000)).unwrap_err();
    assert!(matches!(more, BindError::TooManyElsewhere(_)), "{more}");
    assert!(net.a.lanes[far].udp_bind(to("10.0.0.2:7", 0)).is_err());
    assert!(net.a.lanes[home].udp_bind(to("10.0.0.2:7", 6000)).is_ok());
    net.a.lanes[far].udp_close(sockets.pop().unwrap());
    sockets.push(net.a.lanes[far].udp_bind(to("10.0.0.2:7", 0)).unwrap());
    let echo = net.b.bind_all(7);
    ask_all(&mut net, &echo, &[(far, sockets[0]), (far, sockets[4095])], 9);
}

/// Home finds no port for itself that a socket elsewhere has already.
#[test]
fn a_port_that_another_lane_has_is_not_chosen_at_home() {
    let mut net = net(64, UdpFields::Four, "10.0.0.1/24", "10.0.0.2/24");
    let probe = |port| Endpoint::new(crate::net::ip("10.0.0.1"), port);
    let at_zero = |net: &Net, port| net.a.lanes[0].reply_bucket(probe(port), end("10.0.0.2:7")).0 == 0;
    // Another lane has nearly all that come to lane 0.
    let ports: Vec<u16> = (1024..=65_535).filter(|&port| at_zero(&net, port)).collect();
    for port in &ports[10..] {
        net.a.lanes[5].udp_bind(to("10.0.0.2:7", *port)).unwrap();
    }
    let mut chosen = Vec::new();
    for _ in 0..10 {
        let lane = &mut net.a.lanes[0];
        let socket = lane.udp_bind(to("10.0.0.2:7", 0)).unwrap();
        chosen.push(lane.udp_local(socket).unwrap().1);
    }
    chosen.sort_unstable();
    assert_eq!(chosen, ports[..10]);
    assert_eq!(net.a.lanes[0].udp_bind(to("10.0.0.2:7", 0)), Err(BindError::NoPort));
}
