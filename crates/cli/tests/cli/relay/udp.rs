//! `serve relay --udp`: flows, the source of answers, limits, targets that refuse.

use super::*;
use flowlane_testnet::eventually;
use rustix::event::PollFlags;
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::mpsc::channel;

const LOCAL: [u8; 4] = [127, 0, 0, 1];

fn start(targets: &[SocketAddr], more: &str) -> Relay {
    let port = free_port();
    let to: String = targets.iter().map(|t| format!("--to {t} ")).collect();
    let workers = if more.contains("--workers") { "" } else { "--workers 2" };
    let arguments = format!("serve relay --udp {to} --port {port} {workers} --no-pin --json {more}");
    Relay { program: serving(&[], &arguments), port }
}

/// A client; datagrams of nobody else come to it.
fn client(relay: &Relay, ip: [u8; 4]) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((LOCAL, 0))).unwrap();
    socket.connect((std::net::IpAddr::from(ip), relay.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Asks until there is an answer.
fn ask(client: &UdpSocket, what: &[u8]) -> Vec<u8> {
    let (until, mut buffer) = (Instant::now() + PATIENCE, [0; 2000]);
    loop {
        client.send(what).unwrap();
        if poll(client, PollFlags::IN, Duration::from_millis(100)) {
            let n = client.recv(&mut buffer).unwrap();
            return buffer[..n].to_vec();
        }
        assert!(Instant::now() < until, "no answer");
    }
}

/// Where nobody is yet. Clients and flows have ports of other addresses of the loopback, so that none of them takes this one meanwhile.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 9], free_port()))
}

/// A target that sends everything back, with its mark in front.
struct Echo {
    at: SocketAddr,
    stop: std::sync::mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<HashSet<SocketAddr>>>,
}

impl Echo {
    fn new(at: SocketAddr, mark: u8) -> Self {
        let socket = UdpSocket::bind(at).unwrap();
        let (at, (stop, stopped)) = (socket.local_addr().unwrap(), channel());
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut seen) = (vec![mark; 1 << 16], HashSet::new());
            while stopped.try_recv().is_err() {
                if poll(&socket, PollFlags::IN, Duration::from_millis(20)) {
                    let (n, from) = socket.recv_from(&mut buffer[1..]).unwrap();
                    seen.insert(from);
                    socket.send_to(&buffer[..=n], from).unwrap();
                }
            }
            seen
        });
        Self { at, stop, thread: Some(thread) }
    }

    fn any(mark: u8) -> Self {
        Self::new((LOCAL, 0).into(), mark)
    }

    /// From where datagrams came.
    fn stop(mut self) -> HashSet<SocketAddr> {
        self.stop.send(()).unwrap();
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Descriptors of the relay that are sockets.
fn sockets(relay: &Relay) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", relay.program.id())).unwrap();
    all.filter(|fd| {
        let to = std::fs::read_link(fd.as_ref().unwrap().path());
        to.is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

/// Every flow has one socket and one target, every byte comes back, and from the address that was asked.
#[test]
fn many_flows_through_two_targets_and_back() {
    let targets = [Echo::any(b'a'), Echo::any(b'b')];
    let relay = start(&[targets[0].at, targets[1].at], "");
    let asked = |i: usize| [127, 0, 0, 1 + (i % 3) as u8];
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let socket = UdpSocket::bind(SocketAddr::from((LOCAL, 0))).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            (socket, Digest::new(), Digest::new(), None)
        })
        .collect();
    let (mut clients, mut buffer) = (clients, vec![0; 1 << 16]);
    let (mut bytes, sizes) = (0, [0, 1, 100, 1400, 9000]);
    for round in 0..10 {
        let size = sizes[round % sizes.len()];
        // So few at once that even the targets' sockets have room for all.
        for (begin, some) in clients.chunks_mut(5).enumerate() {
            for (i, (socket, sent, ..)) in some.iter_mut().enumerate() {
                let payload: Vec<u8> = (0..size).map(|at| (at * 7 + i * 31 + round * 131) as u8).collect();
                sent.add(&payload);
                let to = (std::net::IpAddr::from(asked(begin * 5 + i)), relay.port);
                socket.send_to(&payload, to).unwrap();
                bytes += size;
            }
            for (i, (socket, _, got, mark)) in some.iter_mut().enumerate() {
                let (n, from) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!(from, SocketAddr::from((asked(begin * 5 + i), relay.port)));
                assert_eq!(*mark.get_or_insert(buffer[0]), buffer[0], "a flow keeps its target");
                got.add(&buffer[1..n]);
            }
        }
    }
    for (_, sent, got, _) in &clients {
        assert_eq!(sent.value(), got.value());
    }
    let (summary, service) = relay.stop_for("summary");
    assert_eq!((&service["dropped"], &service["received"]), (&0.into(), &4000.into()), "{service}");
    let seen = targets.map(Echo::stop);
    let mut flows = 0;
    for (i, seen) in seen.iter().enumerate() {
        let of = &summary["targets"][i];
        let connections = of["connections"].as_u64().unwrap();
        assert_eq!((seen.len() as u64, connections > 40), (connections, true), "{summary}");
        assert_eq!(of["to-target-datagrams"], connections * 10, "{summary}");
        assert_eq!(of["to-client-datagrams"], connections * 10, "{summary}");
        flows += connections;
    }
    let sum = |name: &str| (0..2).map(|i| summary["targets"][i][name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (flows, sum("to-target-bytes"), sum("to-client-bytes")),
        (200, bytes as u64, bytes as u64 + 2000)
    );
    assert_eq!((&summary["accepted"], &summary["stopped"]), (&200.into(), &200.into()), "{summary}");
}

/// A flow that is quiet ends, its socket is closed, and the same client is served anew.
#[test]
fn flows_that_are_quiet_end() {
    let target = Echo::any(b'a');
    let relay = start(&[target.at], "--idle-timeout 500ms");
    let before = sockets(&relay);
    let clients: Vec<_> = (0..50).map(|_| client(&relay, LOCAL)).collect();
    clients.iter().for_each(|c| assert_eq!(ask(c, b"x"), b"ax"));
    let live = client(&relay, LOCAL);
    // What passes keeps a flow, unless this thread had to wait for a processor for longer than that.
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    eventually("sockets are closed", || {
        assert_eq!(ask(&live, b"z"), b"az");
        longest = longest.max(last.elapsed());
        last = Instant::now();
        sockets(&relay) <= before + 1
    });
    clients.iter().for_each(|c| assert_eq!(ask(c, b"y"), b"ay"));
    eventually("all sockets are closed", || sockets(&relay) == before);
    let summary = relay.stop();
    let of = &summary["targets"][0];
    assert_eq!(of["idle-ended"], of["connections"], "{summary}");
    let kept = longest < Duration::from_millis(400);
    assert!(of["connections"] == 101 || !kept, "{summary}, and at most {longest:?} between two datagrams");
    assert_eq!(summary["stopped"], 0, "{summary}");
    target.stop();
}

#[test]
fn a_lane_has_only_so_many_flows() {
    let target = Echo::any(b'a');
    let relay = start(&[target.at], "--max-connections 2 --workers 1 --buckets 1");
    let clients = [0; 3].map(|_| client(&relay, LOCAL));
    assert_eq!(ask(&clients[0], b"0"), b"a0");
    assert_eq!(ask(&clients[1], b"1"), b"a1");
    // One that is dropped makes no room for the next.
    (0..3).for_each(|_| _ = clients[2].send(b"2").unwrap());
    // Those that have a place keep it; these come after the other's.
    assert_eq!(ask(&clients[0], b"0"), b"a0");
    assert_eq!(ask(&clients[1], b"1"), b"a1");
    assert!(!poll(&clients[2], PollFlags::IN, Duration::ZERO));
    let (summary, service) = relay.stop_for("summary");
    assert_eq!((&summary["too-many"], &summary["stopped"]), (&3.into(), &2.into()), "{summary}");
    assert_eq!(
        (&service["drops"]["relay-too-many"], &service["dropped"]),
        (&3.into(), &3.into()),
        "{service}"
    );
    assert_eq!(target.stop().len(), 2);
}

/// Nobody is at the only target; then somebody is. The flow stays what it is.
#[test]
fn a_target_that_refuses_and_comes_back() {
    let at = nobody();
    let relay = start(&[at], "--workers 1");
    let client = client(&relay, LOCAL);
    for _ in 0..10 {
        client.send(b"x").unwrap();
        poll(&client, PollFlags::IN, Duration::from_millis(10));
    }
    let target = Echo::new(at, b'a');
    assert_eq!(ask(&client, b"y"), b"ay");
    let summary = relay.stop();
    let of = &summary["targets"][0];
    assert_eq!((&of["connections"], &of["target-resets"]), (&1.into(), &0.into()), "{summary}");
    assert!((1..=10).contains(&of["refused"].as_u64().unwrap()), "{summary}");
    assert_eq!(target.stop().len(), 1);
}

/// One of two targets refuses: its flows go to the other, and new flows come to it again when it is back.
#[test]
fn flows_go_to_another_target_if_one_refuses() {
    let gone = nobody();
    for balance in ["hash", "least"] {
        let there = Echo::any(b'a');
        let relay = start(&[gone, there.at], &format!("--balance {balance}"));
        let clients: Vec<_> = (0..20).map(|_| client(&relay, LOCAL)).collect();
        clients.iter().for_each(|c| assert_eq!(ask(c, b"x"), b"ax"));
        let back = Echo::new(gone, b'b');
        eventually("new flows come to it", || ask(&client(&relay, LOCAL), b"y") == b"by");
        let summary = relay.stop();
        let of = &summary["targets"][0];
        assert!(of["refused"].as_u64() >= Some(1) && of["target-resets"].as_u64() >= Some(1), "{summary}");
        assert!(summary["targets"][1]["connections"].as_u64() >= Some(20), "{summary}");
        for target in [back, there] {
            target.stop();
        }
    }
}

/// Datagrams of one flow that come at once go at once.
#[test]
fn a_burst_of_one_flow_comes_back_in_order() {
    let target = Echo::any(b'a');
    let relay = start(&[target.at], "");
    let client = client(&relay, LOCAL);
    for n in 0..100_u8 {
        client.send(&[n; 300]).unwrap();
    }
    let mut buffer = [0; 400];
    for n in 0..100 {
        let got = client.recv(&mut buffer).unwrap();
        assert_eq!((got, buffer[0], buffer[1], buffer[300]), (301, b'a', n, n));
    }
    let of = &relay.stop()["targets"][0];
    assert_eq!((&of["connections"], &of["to-client-bytes"]), (&1.into(), &30_100.into()), "{of}");
    target.stop();
}
