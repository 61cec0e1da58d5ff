//! Connections between hosts: there and back, each in the lane of its bucket.

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::time::Duration;

use flowlane_rss::UdpFields;
use flowlane_stack::Connect;
use flowlane_stack::tcp::{
    Accepted, ConnId, ConnectError, DropReason, Failure, ListenError, ListenOptions, ListenerId, RecvError,
    State,
};

use flowlane_stack::udp::Bind;

use crate::net::{Host, Net, Plan, end, ip};

fn hosts(buckets: usize) -> Net {
    let plan = |mac, addresses: &[&'static str]| Plan { buckets, ..Plan::new(mac, addresses) };
    Net::new(&plan(1, &["10.0.0.1/24", "fd00::1/64"]), &plan(2, &["10.0.0.2/24", "fd00::2/64"]))
}

impl Host {
    /// A listener on `port` in every lane.
    pub(crate) fn listen_all(&mut self, port: u16) -> Vec<ListenerId> {
        let listen = |l: &mut flowlane_stack::Lane| l.tcp_listen(None, port, ListenOptions::default());
        self.lanes.iter_mut().map(|l| listen(l).unwrap()).collect()
    }

    /// Every connection that waits, with the number of its lane.
    pub(crate) fn accept_all(&mut self, listeners: &[ListenerId]) -> Vec<(usize, Accepted)> {
        let mut all = Vec::new();
        for (i, (lane, listener)) in self.lanes.iter_mut().zip(listeners).enumerate() {
            while let Some(accepted) = lane.tcp_mut().accept(*listener).unwrap() {
                all.push((i, accepted));
            }
        }
        all
    }
}

impl Net {
    pub(crate) fn connect(&mut self, lane: usize, to: &str) -> Result<ConnId, ConnectError> {
        self.a.lanes[lane].tcp_connect(self.now, &self.pool, Connect::to(end(to)))
    }

    fn say(&mut self, client: bool, lane: usize, id: ConnId, bytes: &[u8]) {
        let host = if client { &mut self.a } else { &mut self.b };
        assert_eq!(
            host.lanes[lane].with_tcp(self.now, &self.pool, |tcp, cx| tcp.send(cx, id, bytes)),
            Ok(bytes.len())
        );
        self.run();
    }

    pub(crate) fn hear(&mut self, client: bool, lane: usize, id: ConnId) -> Result<Vec<u8>, RecvError> {
        let host = if client { &mut self.a } else { &mut self.b };
        let mut into = vec![0; 1 << 16];
        let n = host.lanes[lane].with_tcp(self.now, &self.pool, |tcp, cx| tcp.recv(cx, id, &mut into))?;
        into.truncate(n);
        self.run();
        Ok(into)
    }
}

#[test]
fn handshake_echo_and_close_in_both_families() {
    for (server, local) in [("10.0.0.2:7", "10.0.0.1"), ("[fd00::2]:7", "fd00::1")] {
        let mut net = hosts(1);
        let free = net.pool.free();
        let listeners = net.b.listen_all(7);
        let client = net.connect(0, server).unwrap();
        net.run();
        let [(_, accepted)] = net.b.accept_all(&listeners)[..] else { panic!("one connection") };
        let info = net.a.lanes[0].tcp().info(client).unwrap();
        assert_eq!((info.state, info.local), (State::Established, accepted.remote));
        assert_eq!((accepted.local, accepted.remote.ip()), (server.parse().unwrap(), ip(local)));
        assert_eq!((info.hash_type, accepted.hash_type), (info.hash_type.max(1), info.hash_type));
        net.say(true, 0, client, b"hello");
        assert_eq!(net.hear(false, 0, accepted.id).unwrap(), b"hello");
        assert_eq!(net.hear(false, 0, accepted.id), Err(RecvError::WouldBlock));
        net.say(false, 0, accepted.id, b"world");
        assert_eq!(net.hear(true, 0, client).unwrap(), b"world");
        net.a.lanes[0]
            .with_tcp(net.now, &net.pool, |tcp, cx| tcp.shutdown(cx, client, Shutdown::Write))
            .unwrap();
        net.run();
        assert_eq!(net.hear(false, 0, accepted.id).unwrap(), b"", "the end of the stream");
        net.b.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.close(cx, accepted.id)).unwrap();
        net.run();
        assert_eq!(net.hear(true, 0, client).unwrap(), b"");
        net.a.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.close(cx, client)).unwrap();
        net.pass(Duration::from_secs(1));
        assert_eq!(net.a.lanes[0].tcp().counts(), (0, 1), "who closed first remembers");
        assert_eq!(net.b.lanes[0].tcp().counts(), (0, 0));
        net.pass(Duration::from_secs(70));
        assert_eq!(net.a.lanes[0].tcp().counts(), (0, 0));
        assert_eq!(net.pool.free(), free);
        let (a, b) = (net.a.lanes[0].stats(), net.b.lanes[0].stats());
        assert_eq!(a.drops.total() + b.drops.total(), 0);
        assert_eq!((a.tcp.connection_requests, b.tcp.connection_accepts, a.tcp.resets_sent), (1, 1, 0));
        assert_eq!(a.tcp.packets_sent, b.tcp.packets_received);
    }
}

/// Every lane listens on every address; a connection is accepted in the lane that its flow hash names, the client's in
/// the lane that began it, and each carries its own bytes.
#[test]
fn connections_live_in_the_lanes_of_their_buckets() {
    let mut net = hosts(8);
    let listeners = net.b.listen_all(80);
    let mut clients = Vec::new();
    for n in 0..64 {
        let to = if n % 2 == 0 { "10.0.0.2:80" } else { "[fd00::2]:80" };
        clients.push((n % 8, net.connect(n % 8, to).unwrap()));
    }
    net.run();
    let accepted = net.b.accept_all(&listeners);
    assert_eq!(accepted.len(), 64);
    let lanes: BTreeSet<usize> = accepted.iter().map(|(lane, _)| *lane).collect();
    assert!(lanes.len() > 4, "{lanes:?}");
    for (lane, c) in &accepted {
        let bucket = net.b.lanes[*lane].tcp_reply_bucket(c.local.into(), c.remote.into());
        assert_eq!(usize::from(bucket.0), *lane);
        net.say(false, *lane, c.id, c.remote.to_string().as_bytes());
    }
    for (lane, id) in clients {
        let info = net.a.lanes[lane].tcp().info(id).unwrap();
        assert_eq!(info.state, State::Established);
        assert_eq!(net.hear(true, lane, id).unwrap(), info.local.to_string().into_bytes());
    }
    let redirected: usize = net.a.lanes.iter().map(|l| l.stats().drops.total() as usize).sum();
    assert_eq!(redirected, 0);
}

#[test]
fn a_port_nobody_listens_on_is_refused() {
    for to in ["10.0.0.2:81", "[fd00::2]:81"] {
        let mut net = hosts(2);
        net.b.listen_all(80);
        let client = net.connect(1, to).unwrap();
        net.run();
        let lane = &mut net.a.lanes[1];
        assert!(lane.tcp().readiness(client).unwrap().closed);
        assert_eq!(lane.tcp_mut().take_failure(client), Ok(Some(Failure::Refused)));
        lane.with_tcp(net.now, &net.pool, |tcp, cx| tcp.close(cx, client)).unwrap();
        assert_eq!(lane.tcp().counts(), (0, 0));
        assert!(lane.tcp().info(client).is_err(), "a handle that was given up");
        let refused: u64 = net.b.lanes.iter().map(|l| l.stats().tcp.dropped(DropReason::NoConnection)).sum();
        assert_eq!(refused, 1);
    }
}

#[test]
fn what_cannot_be_bound_or_connected_says_why() {
    let mut net = hosts(8);
    let options = ListenOptions::default();
    let lane = &mut net.a.lanes[0];
    lane.tcp_listen(Some(ip("10.0.0.1")), 80, options).unwrap();
    lane.tcp_listen(None, 80, options).unwrap();
    assert_eq!(lane.tcp_listen(None, 80, options), Err(ListenError::InUse));
    assert_eq!(lane.tcp_listen(None, 0, options), Err(ListenError::PortZero));
    assert_eq!(lane.tcp_listen(Some(ip("10.0.0.9")), 80, options), Err(ListenError::NotOurAddress));
    let mut connect = |c: Connect| lane.tcp_connect(net.now, &net.pool, c);
    let to = Connect::to(end("10.0.0.2:80"));
    assert_eq!(connect(Connect::to(end("192.0.2.1:80"))), Err(ConnectError::NoRoute));
    assert_eq!(connect(Connect::to(end("10.0.0.2:0"))), Err(ConnectError::BadAddress));
    assert_eq!(connect(Connect { local_ip: Some(ip("10.0.0.9")), ..to }), Err(ConnectError::NotOurAddress));
    let by_port: Vec<_> =
        (2000..2064).map(|port| connect(Connect { local_port: port, ..to })).filter(Result::is_ok).collect();
    assert!((1..32).contains(&by_port.len()), "some ports bring the replies here, most elsewhere");
    for port in 2000..2064 {
        let again = connect(Connect { local_port: port, ..to });
        assert!(matches!(again, Err(ConnectError::InUse | ConnectError::OtherLane(_))), "a four-tuple once");
    }
}

/// More than any window at once; the reader takes it as it comes.
#[test]
fn a_megabyte_arrives_whole() {
    let mut net = hosts(2);
    let listeners = net.b.listen_all(9);
    let client = net.connect(0, "10.0.0.2:9").unwrap();
    net.run();
    let (lane, server) = net.b.accept_all(&listeners)[0];
    let data: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < data.len() {
        sent += net.a.lanes[0]
            .with_tcp(net.now, &net.pool, |tcp, cx| tcp.send(cx, client, &data[sent..]))
            .unwrap_or(0);
        net.run();
        while let Ok(bytes) = net.hear(false, lane, server.id) {
            got.extend(bytes);
        }
        net.pass(Duration::from_millis(1));
    }
    assert!(got == data);
    assert_eq!(net.a.lanes[0].stats().tcp.packets_retransmitted, 0);
}

/// Without a frame nothing is sent, and nothing is forgotten.
#[test]
fn output_waits_for_frames() {
    let mut net = Net::new(
        &Plan { udp: UdpFields::Four, ..Plan::new(1, &["10.0.0.1/24"]) },
        &Plan::new(2, &["10.0.0.2/24"]),
    );
    let listeners = net.b.listen_all(9);
    let client = net.connect(0, "10.0.0.2:9").unwrap();
    net.run();
    let (_, server) = net.b.accept_all(&listeners)[0];
    let lane = &mut net.a.lanes[0];
    let hoard: Vec<_> = std::iter::from_fn(|| net.pool.alloc()).collect();
    assert_eq!(lane.with_tcp(net.now, &net.pool, |tcp, cx| tcp.send(cx, client, b"later")), Ok(5));
    assert!(lane.poll_output(net.now, &net.pool).is_none());
    assert!(lane.has_output());
    drop(hoard);
    net.run();
    assert!(!net.a.lanes[0].has_output());
    assert_eq!(net.hear(false, 0, server.id).unwrap(), b"later");
}

/// Which protocol a frame over IPv4 carries.
fn protocol(frame: &flowlane_sys::frame::Frame) -> u8 {
    frame.data()[23]
}

/// Datagrams that fill the output queue and a connection with much to say take turns, whichever way the lane is asked.
#[test]
fn datagrams_and_segments_take_turns() {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    for one_by_one in [true, false] {
        let mut net = hosts(1);
        let listeners = net.b.listen_all(9);
        let client = net.connect(0, "10.0.0.2:9").unwrap();
        net.run();
        let (_, server) = net.b.accept_all(&listeners)[0];
        // A window of more than a hundred segments.
        for _ in 0..6 {
            while net.a.lanes[0]
                .with_tcp(net.now, &net.pool, |tcp, cx| tcp.send(cx, client, &[1; 10_000]))
                .is_ok()
            {}
            net.run();
            while net.hear(false, 0, server.id).is_ok() {}
        }
        let (now, lane) = (net.now, &mut net.a.lanes[0]);
        let socket = lane.udp_bind(Bind::port(5)).unwrap();
        let flood = |lane: &mut flowlane_stack::Lane| {
            while lane.udp_send(now, &net.pool, socket, &[2; 20], None, Some(end("10.0.0.2:9"))).is_ok() {}
        };
        flood(lane);
        assert!(lane.output_len() >= 1024, "the queue is full: {}", lane.output_len());
        while lane.with_tcp(now, &net.pool, |tcp, cx| tcp.send(cx, client, &[1; 10_000])).is_ok() {}
        let mut out = Vec::new();
        for _ in 0..50 {
            let before = out.len();
            if one_by_one {
                out.extend(lane.poll_output(now, &net.pool));
            } else {
                lane.drain_output(now, &net.pool, 1, &mut out);
            }
            assert_eq!(out.len(), before + 1);
            // Whoever sends datagrams fills the room at once.
            flood(lane);
        }
        lane.drain_output(now, &net.pool, 50, &mut out);
        let count = |wanted: u8| out.iter().filter(|f| protocol(f) == wanted).count();
        assert_eq!((count(UDP), count(TCP)), (50, 50), "{one_by_one}");
        assert_eq!(lane.stats().drops.total(), 0);
        // The other way: a datagram between segments waits for one of them.
        for frame in out.drain(..) {
            net.b.input(now, &net.pool, frame);
        }
        net.run();
        while net.hear(false, 0, server.id).is_ok() {}
        let (now, lane) = (net.now, &mut net.a.lanes[0]);
        while lane.with_tcp(now, &net.pool, |tcp, cx| tcp.send(cx, client, &[1; 10_000])).is_ok() {}
        lane.udp_send(now, &net.pool, socket, &[2; 20], None, Some(end("10.0.0.2:9"))).unwrap();
        lane.drain_output(now, &net.pool, 2, &mut out);
        assert_eq!(out.iter().filter(|f| protocol(f) == UDP).count(), 1);
        assert_eq!(out.len(), 2);
    }
}

/// RFC 6056 §3.3.4: a port that was given up comes again when the others had their turn. The server that closes first keeps
/// each connection in TIME-WAIT, and would refuse a new one of the same millisecond on the same port.
#[test]
fn a_port_that_was_given_up_is_the_last_to_come_again() {
    for peer in ["10.0.0.2", "[fd00::2]"] {
        ports_come_in_turn(peer);
    }
}

fn ports_come_in_turn(peer: &str) {
    let mut net = hosts(1);
    let listeners = net.b.listen_all(80);
    let mut ports = BTreeSet::new();
    for n in 0..3000 {
        let client = net.connect(0, &format!("{peer}:80")).unwrap();
        net.run();
        let [(_, accepted)] = net.b.accept_all(&listeners)[..] else { panic!("connection {n} waits") };
        assert!(ports.insert(accepted.remote.port()), "port {} again after {n}", accepted.remote.port());
        net.b.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.close(cx, accepted.id)).unwrap();
        net.run();
        net.a.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.close(cx, client)).unwrap();
        net.run();
        assert_eq!(net.a.lanes[0].tcp().counts(), (0, 0), "the client remembers nothing");
    }
    assert_eq!(net.b.lanes[0].tcp().counts(), (0, 3000));
    // Another destination begins elsewhere, and its order is another lane's and host's own.
    let first = |net: &mut Net, to: &str| {
        let id = net.connect(0, to).unwrap();
        net.a.lanes[0].tcp().info(id).unwrap().local.port()
    };
    let near = |a: u16, b: u16| a.abs_diff(b) < 64;
    let others = ["2]:81", "2]:82", "2]:83", "3]:81"].map(|end| match peer.strip_suffix("2]") {
        Some(start) => format!("{start}{end}"),
        None => format!("10.0.0.{}", end.replace(']', "")),
    });
    let [one, two, three, four] = others.map(|to| first(&mut net, &to));
    let together = [near(one, two), near(two, three), near(three, four)].iter().filter(|near| **near).count();
    assert!(together < 2, "{one} {two} {three} {four}");
}

/// Every port whose replies come to this lane is in use for one destination. That is said by name, and not looked for anew each
/// time; a port that is given up is found at once, and other destinations know nothing of it.
#[test]
fn a_destination_without_a_free_port_is_refused_at_little_cost() {
    for peer in ["10.0.0.2", "[fd00::2]"] {
        let to = format!("{peer}:80");
        let mut net = hosts(8);
        let mut all = Vec::new();
        let connect = |net: &mut Net, to: &str| {
            let tried = net.a.lanes[0].stats().tcp.ports_tried;
            let result = net.connect(0, to);
            (result, net.a.lanes[0].stats().tcp.ports_tried - tried)
        };
        let error = loop {
            match connect(&mut net, &to).0 {
                Ok(id) => all.push(id),
                Err(error) => break error,
            }
        };
        assert_eq!(error, ConnectError::NoPort, "{peer}, after {}", all.len());
        assert!(all.len() > 65_536 / 8 - 300, "{}", all.len());
        let tried: u64 = (0..1000).map(|_| connect(&mut net, &to).1).sum();
        assert!(tried <= 8, "{tried} ports looked at to refuse 1000 connections");
        assert_eq!(connect(&mut net, &to).0, Err(ConnectError::NoPort));
        connect(&mut net, &format!("{peer}:81")).0.unwrap();
        for n in [7, 3000, 5000] {
            let port = net.a.lanes[0].tcp().info(all[n]).unwrap().local.port();
            net.a.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.abort(cx, all[n])).unwrap();
            let (id, tried) = connect(&mut net, &to);
            all[n] = id.unwrap();
            assert_eq!((net.a.lanes[0].tcp().info(all[n]).unwrap().local.port(), tried), (port, 1));
            assert_eq!(connect(&mut net, &to).0, Err(ConnectError::NoPort));
        }
        // Many at once are looked for again.
        for id in all.drain(..100) {
            net.a.lanes[0].with_tcp(net.now, &net.pool, |tcp, cx| tcp.abort(cx, id)).unwrap();
        }
        for _ in 0..100 {
            connect(&mut net, &to).0.unwrap();
        }
        assert_eq!(connect(&mut net, &to).0, Err(ConnectError::NoPort));
    }
}
