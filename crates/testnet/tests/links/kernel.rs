//! Kernel sockets on interfaces of their own: short paths, broadcasts, link-local addresses.

use crate::common::skip;
use flowlane::{
    HashConfig, Host, KernelStats, Key, ListenOptions, Rss, Runtime, Steer, TcpListener, UdpFields, UdpSocket,
};
use flowlane_testnet::Namespace;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream as TcpConnection, UdpSocket as Peer};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 7007;
const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// Sends every datagram back that comes to the port, to whichever address.
async fn echoing() {
    let socket = UdpSocket::on_port(PORT).unwrap();
    let mut batch = Vec::new();
    loop {
        socket.recv_batch(&mut batch, 64).await.unwrap();
        socket.reply_batch(&mut batch).await.unwrap();
    }
}

/// An echo on every address of a namespace, one worker.
fn echo() -> Runtime {
    let mut builder = Runtime::builder().pin(false);
    builder.host(Host::kernel("echo", Arc::new(Rss::new(Key::MICROSOFT, 1)), echoing));
    builder.start().unwrap()
}

/// A pair of interfaces in one namespace: the echo has the addresses of one of them.
fn in_namespace(label: &str, work: impl FnOnce(&Namespace) + Send) -> Option<KernelStats> {
    if skip() {
        return None;
    }
    let namespace = Namespace::new(&format!("fl-k{label}-{}", std::process::id())).unwrap();
    namespace.ip("link add v0 type veth peer name v1").unwrap();
    namespace.ip("addr add 10.9.0.1/24 brd + dev v0").unwrap();
    namespace.ip("addr add fe80::9/64 dev v0 nodad").unwrap();
    for name in ["v0", "v1"] {
        namespace.ip(&format!("link set {name} up")).unwrap();
    }
    namespace.owns("fe80::9".parse().unwrap());
    let runtime = namespace.run(echo).unwrap();
    namespace.run(|| work(&namespace)).unwrap();
    runtime.stop().kernel(0)
}

/// What is longer than the path's MTU is never merged, but goes in fragments; what is not goes on as before.
#[test]
fn datagrams_longer_than_the_mtu_go_one_by_one() {
    let stats = in_namespace("mtu", |namespace| {
        namespace.ip("link set lo mtu 1400").unwrap();
        let peer = Peer::bind("10.9.0.1:0").unwrap();
        peer.connect(("10.9.0.1", PORT)).unwrap();
        peer.set_read_timeout(PATIENCE).unwrap();
        let mut buffer = [0; 4096];
        for (round, size) in [1200, 1390, 3000, 1200].into_iter().enumerate() {
            // Until there was a batch: how many of them the echo reads at once is its own affair.
            for n in 0..2000u32 {
                let payload = n.to_be_bytes().repeat(size / 4);
                peer.send(&payload).unwrap();
                if n % 20 == 19 {
                    for m in n - 19..=n {
                        let len = peer.recv(&mut buffer).unwrap();
                        assert_eq!(buffer[..len], m.to_be_bytes().repeat(size / 4), "round {round}: {m}");
                    }
                }
            }
        }
    });
    let Some(stats) = stats else { return };
    assert_eq!((stats.datagrams_received, stats.datagrams_sent, stats.lost()), (8000, 8000, 0), "{stats:?}");
    assert!(stats.merged_sent > 0, "{stats:?}");
    // Once for each length that was refused and not for each datagram: 3000 at least, and 1390 with its headers.
    assert!((1..=16).contains(&stats.merging_refused), "{stats:?}");
}

/// Nobody can answer from a broadcast address; the answer comes from an address of the interface.
#[test]
fn a_broadcast_is_answered() {
    let stats = in_namespace("cast", |_| {
        let peer = Peer::bind("10.9.0.1:0").unwrap();
        peer.set_broadcast(true).unwrap();
        peer.set_read_timeout(PATIENCE).unwrap();
        peer.send_to(b"anybody?", ("10.9.0.255", PORT)).unwrap();
        let mut buffer = [0; 16];
        let (len, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"anybody?"[..], SocketAddr::from(([10, 9, 0, 1], PORT))));
    });
    assert!(stats.is_none_or(|stats| stats.datagrams_dropped == 0), "{stats:?}");
}

/// A link-local address is one of an interface: answers leave by it, from the address that was asked.
#[test]
fn a_link_local_address_is_answered_by_its_interface() {
    let mut asked = 0;
    let mut answer = None;
    let stats = in_namespace("local", |_| {
        let index = flowlane_sys::netdev::Interface::find("v0").unwrap().index();
        let us: Ipv6Addr = "fe80::9".parse().unwrap();
        let peer = Peer::bind(SocketAddrV6::new(us, 0, 0, index)).unwrap();
        peer.set_read_timeout(PATIENCE).unwrap();
        let mut buffer = [0; 16];
        // Nobody promises that a datagram arrives; an answer that we cannot send is counted.
        while answer.is_none() && asked < 3 {
            asked += 1;
            peer.send_to(b"near", SocketAddrV6::new(us, PORT, 0, index)).unwrap();
            answer = peer.recv_from(&mut buffer).ok().map(|(len, from)| (buffer[..len].to_vec(), from));
        }
        let from = SocketAddr::from(SocketAddrV6::new(us, PORT, 0, index));
        assert!(answer.is_none() || answer == Some((b"near".to_vec(), from)), "{answer:?}");
    });
    let Some(stats) = stats else { return };
    assert!(answer.is_some() && stats.datagrams_dropped == 0, "asked {asked} times: {stats:?}");
}

/// Connections, half of them from each of two processors.
const CONNECTIONS: u64 = 10_000;

/// Connections that were accepted on the processor on which they arrived, and the others. Workers are bound to processors 0 and 1, and so
/// are the clients, so that each handshake is handled by the processor of its client.
fn aligned(client: &Namespace, server: &Namespace, ip: &str, steer: Steer) -> (u64, u64) {
    let runtime = server
        .run(|| {
            let mut builder = Runtime::builder().workers(2).cpus(vec![0, 1]);
            let main = || async {
                let listener =
                    TcpListener::bind(None, PORT, ListenOptions { backlog: 4096, ..Default::default() })
                        .unwrap();
                let mut buffer = [0; 16];
                loop {
                    let stream = listener.accept().await.unwrap();
                    let n = stream.read(&mut buffer).await.unwrap();
                    stream.write_all(&buffer[..n]).await.unwrap();
                }
            };
            builder.host(Host::kernel("server", Arc::new(Rss::new(Key::MICROSOFT, 2)), main).steer(steer));
            builder.start().unwrap()
        })
        .unwrap();
    let address: SocketAddr = (ip.parse::<std::net::IpAddr>().unwrap(), PORT).into();
    // Refused: so that no handshake waits for an answer to ARP, which releases it on the processor where the answer arrives.
    client.run(|| assert!(TcpConnection::connect((address.ip(), 9)).is_err())).unwrap();
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            scope.spawn(move || {
                let _inside = client.enter().unwrap();
                flowlane_sys::affinity::pin_to(cpu).unwrap();
                for n in 0..CONNECTIONS / 2 {
                    let mut stream = TcpConnection::connect(address).unwrap();
                    stream.set_read_timeout(PATIENCE).unwrap();
                    stream.write_all(&n.to_be_bytes()).unwrap();
                    let mut back = [0; 8];
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(back, n.to_be_bytes());
                    // No record of it stays to use up ports.
                    flowlane_sys::kernel::options::set_reset_on_close(stream.as_fd(), true).unwrap();
                }
            });
        }
    });
    let report = runtime.stop();
    let stats = report.kernel(0).unwrap();
    assert_eq!((stats.accepted, stats.steering_refused), (CONNECTIONS, 0), "{stats:?}");
    assert_eq!(stats.aligned + stats.elsewhere, CONNECTIONS, "{stats:?}");
    // The reasons are those of the sum, and without a program there is only one.
    let reasons = stats.elsewhere_thread
        + stats.elsewhere_unsteered
        + stats.elsewhere_no_worker
        + stats.elsewhere_sender
        + stats.elsewhere_rps
        + stats.elsewhere_interrupt;
    assert_eq!(reasons, stats.elsewhere, "{stats:?}");
    if steer == Steer::None {
        assert_eq!(stats.elsewhere_unsteered, stats.elsewhere, "{stats:?}");
    }
    (stats.aligned, stats.elsewhere)
}

/// Namespaces of a server, 10.9.1.1, and a client, 10.9.1.2, joined by a veth of two queues; `None` where processors 0 and 1 are not to be had.
fn veth_of_two_queues(label: &str) -> Option<(Namespace, Namespace)> {
    if skip() {
        return None;
    }
    if !flowlane_sys::affinity::allowed_cpus().starts_with(&[0, 1]) {
        flowlane_testnet::skipped("it needs processors 0 and 1");
        return None;
    }
    let name = |end: &str| format!("fl-{label}{end}-{}", std::process::id());
    let (server, client) = (Namespace::new(&name("s")).unwrap(), Namespace::new(&name("c")).unwrap());
    let queues = "numtxqueues 2 numrxqueues 2";
    server
        .ip(&format!("link add v0 {queues} type veth peer name v1 {queues} netns {}", client.name()))
        .unwrap();
    for (namespace, link, address) in [(&server, "v0", "10.9.1.1/24"), (&client, "v1", "10.9.1.2/24")] {
        namespace.ip(&format!("addr add {address} dev {link}")).unwrap();
        namespace.ip(&format!("link set {link} up")).unwrap();
    }
    Some((server, client))
}

/// Steered by processor, every connection is accepted and served where it arrived: over a veth of two queues, and over the loopback.
/// Without the program it is a matter of chance.
// Long: chance is told from steering by many connections, over each kind of interface.
#[test]
fn connections_are_served_where_they_arrive() {
    let Some((server, client)) = veth_of_two_queues("s") else { return };
    for (from, ip) in [(&client, "10.9.1.1"), (&server, "127.0.0.1"), (&server, "::1")] {
        let (with, without) =
            (aligned(from, &server, ip, Steer::Cpu), aligned(from, &server, ip, Steer::None));
        eprintln!("{ip}: aligned {} of {CONNECTIONS} by processor, {} without a program", with.0, without.0);
        assert_eq!(with, (CONNECTIONS, 0), "{ip}");
        assert!((CONNECTIONS / 5..CONNECTIONS / 5 * 4).contains(&without.0), "{ip}: {without:?}");
    }
}

/// Answers that arrived on the processor of the lane that connected, of `CONNECTS` in each lane. The server's lanes have connections by the same
/// rule as the client's, and each worker answers from its own processor.
fn answers_at_home(client: &Namespace, server: &Namespace, home: bool) -> u64 {
    const CONNECTS: u64 = 200;
    let rss = || Arc::new(Rss::new(Key::symmetric(), 2));
    let start = |host: Host| {
        let mut builder = Runtime::builder().workers(2).cpus(vec![0, 1]);
        builder.host(host);
        builder.start().unwrap()
    };
    let echo = || async {
        let listener = TcpListener::on_port(PORT).unwrap();
        loop {
            let stream = listener.accept().await.unwrap();
            let mut byte = [0];
            if stream.read(&mut byte).await == Ok(1) {
                stream.write_all(&byte).await.unwrap();
                // Until the peer has looked where that arrived.
                let _ = stream.read(&mut byte).await;
            }
        }
    };
    let serving = server.run(|| start(Host::kernel("server", rss(), echo).steer(Steer::Hash))).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let main = move || {
        let say = say.clone();
        async move {
            let mut at_home = 0;
            for _ in 0..CONNECTS {
                let stream = flowlane::TcpStream::connect(([10, 9, 1, 1], PORT).into()).await.unwrap();
                stream.write_all(b"x").await.unwrap();
                assert_eq!(stream.read(&mut [0]).await, Ok(1));
                let arrival = stream.arrival().unwrap().unwrap();
                at_home += u64::from(arrival.processor == arrival.worker);
                stream.abort().unwrap();
            }
            say.send(at_home).unwrap();
        }
    };
    let buckets = rss().buckets.len();
    let asking = client.run(|| start(Host::kernel("client", rss(), main).home_ports(home))).unwrap();
    let total: u64 = (0..buckets).map(|_| said.recv_timeout(Duration::from_secs(60)).unwrap()).sum();
    let stats = asking.stop().kernel(0).unwrap();
    let made = CONNECTS * buckets as u64;
    assert_eq!((stats.connected, stats.home_ports), (made, if home { made } else { 0 }), "{stats:?}");
    drop(serving.stop());
    total * 100 / made
}

/// With home ports answers over a veth of two queues arrive where they are read; without, where chance has it.
#[test]
fn answers_come_to_the_lane_that_connected() {
    let Some((server, client)) = veth_of_two_queues("h") else { return };
    let (with, without) = (answers_at_home(&client, &server, true), answers_at_home(&client, &server, false));
    eprintln!("answers at home: {with} % with home ports, {without} % without");
    assert!(with >= 99, "{with} %");
    assert!((20..80).contains(&without), "{without} %");
}

/// Of datagrams: the share of looks at sockets, each of which is looked at once or twice, that found its last datagram on the processor of its lane.
fn datagrams_at_home(client: &Namespace, server: &Namespace, home: bool) -> u64 {
    const SOCKETS: u64 = 50;
    /// Every sixteenth read is looked at.
    const ASKED: u64 = 17;
    let rss = || {
        let mut rss = Rss::new(Key::symmetric(), 2);
        rss.config = HashConfig::with_udp(UdpFields::Four);
        Arc::new(rss)
    };
    let start = |host: Host| {
        let mut builder = Runtime::builder().workers(2).cpus(vec![0, 1]);
        builder.host(host);
        builder.start().unwrap()
    };
    let serving = server.run(|| start(Host::kernel("server", rss(), echoing).steer(Steer::Hash))).unwrap();
    let (say, said) = std::sync::mpsc::channel();
    let main = move || {
        let say = say.clone();
        async move {
            let mut came = Vec::new();
            for _ in 0..SOCKETS {
                let socket = UdpSocket::connect(([10, 9, 1, 1], PORT).into()).unwrap();
                for _ in 0..ASKED {
                    socket.try_send(b"x", None, None).unwrap();
                    assert_eq!(socket.recv_batch(&mut came, 1).await, Ok(1));
                    came.clear();
                }
            }
            say.send(()).unwrap();
        }
    };
    let buckets = rss().buckets.len();
    let asking = client.run(|| start(Host::kernel("client", rss(), main).home_ports(home))).unwrap();
    for _ in 0..buckets {
        said.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    let stats = asking.stop().kernel(0).unwrap();
    let made = SOCKETS * buckets as u64;
    assert_eq!((stats.home_ports, stats.ports_elsewhere), (if home { made } else { 0 }, 0), "{stats:?}");
    let looks = stats.aligned + stats.elsewhere;
    assert!(looks >= made, "{stats:?}");
    drop(serving.stop());
    stats.aligned * 100 / looks
}

/// So do answers to datagrams.
#[test]
fn answers_to_datagrams_come_to_the_lane_that_asked() {
    let Some((server, client)) = veth_of_two_queues("u") else { return };
    let (with, without) =
        (datagrams_at_home(&client, &server, true), datagrams_at_home(&client, &server, false));
    eprintln!("answers to datagrams at home: {with} % with home ports, {without} % without");
    assert!(with >= 99, "{with} %");
    assert!((20..80).contains(&without), "{without} %");
}
