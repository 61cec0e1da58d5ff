//! What only sockets of the kernel have: the machine's own limits, and what they cost.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowlane::{
    Bind, Bucket, Connect, Failure, Host, Idle, Io, ListenError, ListenOptions, Runtime, SocketError, Steer,
    TcpListener, TcpStream, UdpSocket, now, sleep_until,
};
use flowlane_rss::{Flow, Protocol};
use flowlane_sys::kernel::socket;

use crate::bodies::{one_echo, wait_until_closed};
use crate::kit::{CLIENT, LANES, Over, PATIENCE, SERVER, finish, rss, rss_with_ports, start};
use crate::streams::{echo, there_and_back};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// One send and one receive for each message, in client and server: nothing is tried in vain.
#[test]
fn a_request_costs_one_read_and_one_write() {
    for over in Over::kernels() {
        const EACH: u64 = 500;
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            move || echo(server),
            move || async move {
                let stream = TcpStream::connect(server).await.map_err(|e| e.to_string())?;
                stream.set_nodelay(true).map_err(|e| e.to_string())?;
                let mut buffer = [0; 1000];
                for _ in 0..EACH {
                    assert_eq!(stream.write(&[7; 100]).await, Ok(100));
                    assert_eq!(stream.read(&mut buffer).await, Ok(100));
                }
                Ok(EACH)
            },
        );
        finish(&runtime, &said, EACH);
        wait_until_closed(&runtime.handle());
        let report = runtime.stop();
        let messages = EACH * LANES as u64;
        for (host, ends) in [(SERVER, LANES as u64), (CLIENT, 0)] {
            let kernel = report.kernel(host).unwrap();
            assert_eq!((kernel.writes, kernel.writes_in_vain), (messages, 0), "{kernel:?}");
            // The server also reads the end of each connection.
            assert_eq!((kernel.reads, kernel.reads_in_vain), (messages + ends, 0), "{kernel:?}");
            // One request to the ring receives all messages of a connection.
            let asked = if over.io() == Io::Uring { LANES as u64 } else { 0 };
            assert_eq!(kernel.ring_receives, asked, "{kernel:?}");
        }
        let worker = &report.workers[0];
        // Each message takes one wait for its sender and one for its receiver at most, and a few for the beginning and the end.
        assert!(
            worker.turns.sleeps <= 2 * messages + 200,
            "{} waits for {messages} messages",
            worker.turns.sleeps
        );
    }
}

/// With steering by hash every connection and every datagram reaches the lane of its flow's bucket, over both families and over a wildcard.
#[test]
fn the_lane_of_the_bucket_gets_what_arrives() {
    const EACH: usize = 100;
    for over in Over::all().into_iter().filter(|over| *over != Over::Pair) {
        let server = over.server();
        let (say, said) = mpsc::channel();
        let mut builder = Runtime::builder().workers(2).pin(false).io(over.io());
        let steering = rss_with_ports(2);
        let (judge, port, ip) = (steering.clone(), server.port(), server.ip());
        let host = Host::kernel("server", steering, move || {
            let (say, judge) = (say.clone(), judge.clone());
            async move {
                let here = flowlane::current().unwrap().bucket;
                // Dual for IPv4, so that its packets reach a socket of both families.
                let local = Some(ip).filter(IpAddr::is_ipv6);
                let listener = TcpListener::bind(local, port, ListenOptions::default()).unwrap();
                let socket = UdpSocket::bind(Bind { local_ip: local, ..Bind::port(port) }).unwrap();
                let (also, ours) = (say.clone(), judge.clone());
                let tcp = async move {
                    loop {
                        let stream = listener.accept().await.unwrap();
                        let (peer, local) = (stream.peer_addr(), stream.local_addr());
                        let bucket = ours.steer(&Flow::new(peer, local, Protocol::TCP)).bucket;
                        let _ = also.send((bucket, here));
                    }
                };
                flowlane::spawn(tcp).unwrap();
                let mut batch = Vec::new();
                loop {
                    socket.recv_batch(&mut batch, 64).await.unwrap();
                    for datagram in batch.drain(..) {
                        let (peer, local) = (datagram.source.into(), datagram.destination.into());
                        let steered = judge.steer(&Flow::new(peer, local, Protocol::UDP));
                        assert_eq!(steered.hash, datagram.frame().meta().hash);
                        let _ = say.send((steered.bucket, here));
                    }
                }
            }
        });
        builder.host(host.steer(Steer::Hash));
        let runtime = builder.start().unwrap();
        let (mut peers, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..EACH {
            streams.push(std::net::TcpStream::connect(server).unwrap());
            let peer = std::net::UdpSocket::bind((server.ip(), 0)).unwrap();
            peer.send_to(b"whose?", server).unwrap();
            peers.push(peer);
        }
        let mut hit = [0; LANES];
        for _ in 0..2 * EACH {
            let (bucket, lane) = said.recv_timeout(PATIENCE).unwrap();
            assert_eq!(bucket, lane, "{over:?}");
            hit[usize::from(lane.0)] += 1;
        }
        assert!(hit.iter().all(|n| *n > 0), "{hit:?}");
        assert_eq!(runtime.stop().kernel(0).unwrap().steering_refused, 0);
    }
}

/// When a lane closes its socket the others keep what they have, and what it had goes to some other; when it opens one again it gets it
/// back. A lane that moves takes its flows along.
#[test]
fn sockets_come_and_go_and_other_flows_stay() {
    for over in Over::kernels() {
        let server = over.server();
        let (say, said) = mpsc::channel();
        let (closed, close) = (Arc::new(AtomicUsize::new(0)), mpsc::channel::<()>());
        let mut builder = Runtime::builder().workers(2).pin(false).io(over.io());
        let (phase, done) = (closed.clone(), close.0);
        let host = Host::kernel("server", rss_with_ports(2), move || {
            let (say, phase, done) = (say.clone(), phase.clone(), done.clone());
            async move {
                let here = flowlane::current().unwrap().bucket.0;
                let bind = || {
                    UdpSocket::bind(Bind { local_ip: Some(LOOPBACK), ..Bind::port(server.port()) }).unwrap()
                };
                let mut socket = Some(bind());
                let mut batch = Vec::new();
                loop {
                    if here == 1 && phase.load(Ordering::SeqCst) == 1 && socket.take().is_some() {
                        let _ = done.send(());
                    }
                    if phase.load(Ordering::SeqCst) == 2 && socket.is_none() {
                        socket = Some(bind());
                        let _ = done.send(());
                    }
                    if let Some(socket) = &socket {
                        let _ = socket.try_recv_batch(&mut batch, 64).unwrap();
                    }
                    for datagram in batch.drain(..) {
                        let _ = say.send((datagram.source.port, here));
                    }
                    flowlane::yield_now().await;
                }
            }
        });
        builder.host(host.steer(Steer::Hash));
        let runtime = builder.start().unwrap();
        let peers: Vec<_> = (0..80).map(|_| std::net::UdpSocket::bind((LOOPBACK, 0)).unwrap()).collect();
        let ask = || -> std::collections::BTreeMap<u16, u16> {
            for peer in &peers {
                peer.send_to(b"whose?", server).unwrap();
            }
            peers.iter().map(|_| said.recv_timeout(PATIENCE).unwrap()).collect()
        };
        let before = ask();
        assert_eq!(before.values().collect::<std::collections::BTreeSet<_>>().len(), LANES);
        closed.store(1, Ordering::SeqCst);
        close.1.recv_timeout(PATIENCE).unwrap();
        let without = ask();
        for (peer, lane) in &without {
            assert!(
                before[peer] == *lane || before[peer] == 1 && *lane != 1,
                "{peer}: {} {lane}",
                before[peer]
            );
        }
        closed.store(2, Ordering::SeqCst);
        close.1.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ask(), before);
        let handle = runtime.handle();
        handle.move_lane(0, Bucket(2), 1 - handle.worker_of(0, Bucket(2)).unwrap()).unwrap();
        assert_eq!(ask(), before);
    }
}

/// A worker with nothing to do does nothing.
#[test]
fn an_idle_worker_sleeps() {
    for over in Over::kernels() {
        let mut builder = Runtime::builder().pin(false).io(over.io());
        let host = Host::kernel("idle", rss(1), || async {
            let _listener = TcpListener::bind(Some(LOOPBACK), 0, ListenOptions::default()).unwrap();
            std::future::pending::<()>().await;
        });
        builder.host(host);
        let runtime = builder.start().unwrap();
        let first = runtime.handle().report().workers[0].turns.all;
        for _ in 0..10 {
            let _ = runtime.handle().report();
        }
        let turns = runtime.handle().report().workers[0].turns.all - first;
        // Each report is a message that wakes it.
        assert!(turns <= 40, "{turns} turns for 11 messages");
    }
}

/// A sleeping worker wakes when a sleeper is due, not when the kernel finds it convenient.
#[test]
fn sleepers_are_woken_on_time() {
    let kernels = Over::kernels();
    let each = kernels.iter().flat_map(|over| [Idle::default(), Idle::Spin].map(|idle| (over.io(), idle)));
    for (io, idle) in each {
        let (say, said) = mpsc::channel();
        let mut builder = Runtime::builder().pin(false).idle(idle).io(io);
        builder.host(Host::kernel("sleeper", rss(1), move || {
            let say = say.clone();
            async move {
                let mut best = Duration::MAX;
                for _ in 0..50 {
                    let due = now().unwrap() + Duration::from_micros(700);
                    sleep_until(due).await;
                    let woken = flowlane::precise_now().unwrap();
                    assert!(woken >= due, "too early");
                    // The best of several, since other processes want the processor too.
                    best = best.min(woken.saturating_duration_since(due));
                }
                let _ = say.send(best);
            }
        }));
        let runtime = builder.start().unwrap();
        for _ in 0..LANES {
            let best = said.recv_timeout(PATIENCE).unwrap();
            assert!(best < Duration::from_micros(200), "{best:?} late");
        }
        drop(runtime);
    }
}

// Long: hundreds of moves, each waited for, under load.
#[test]
fn lanes_move_under_load_and_no_byte_is_lost() {
    for over in Over::kernels() {
        // How often a busy machine moves in the time of one transfer is its own affair.
        let mut moves = 0;
        for _ in 0..20 {
            moves += moves_during_transfers(over);
            if moves > 50 {
                break;
            }
        }
        assert!(moves > 50, "only {moves} moves");
    }
}

/// Moves lanes while each of them sends bytes there and back; how often.
fn moves_during_transfers(over: Over) -> u32 {
    const EACH: usize = 10_000_000;
    let server = over.server();
    let (runtime, said) = start(over, 2, move || echo(server), move || there_and_back(server, EACH));
    let handle = runtime.handle();
    let (mut moves, mut done) = (0u32, 0);
    let mut random = 0x1234_5678_9abc_def1u64;
    while done < LANES {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let host = if random >> 63 == 0 { SERVER } else { CLIENT };
        let bucket = Bucket((random >> 40) as u16 % LANES as u16);
        handle.move_lane(host, bucket, 1 - handle.worker_of(host, bucket).unwrap()).unwrap();
        moves += 1;
        while let Ok(result) = said.try_recv() {
            assert_eq!(result, Ok(EACH as u64));
            done += 1;
        }
    }
    let kernel = runtime.stop().kernel(SERVER).unwrap();
    assert_eq!((kernel.errors, kernel.ended_badly), (0, 0));
    moves
}

/// What another process listens on is not shared with it, though both would allow it.
#[test]
fn a_port_of_somebody_else_is_refused() {
    for over in Over::kernels() {
        let mine = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
        let taken = mine.local_addr().unwrap();
        let (runtime, said) = start(
            over,
            1,
            || async {},
            move || async move {
                let listen = |port| TcpListener::bind(Some(LOOPBACK), port, ListenOptions::default());
                assert!(matches!(listen(taken.port()), Err(SocketError::Listen(ListenError::InUse))));
                let foreign = TcpListener::bind(Some([192, 0, 2, 1].into()), 0, ListenOptions::default());
                assert!(matches!(foreign, Err(SocketError::Listen(ListenError::NotOurAddress))));
                // Port 0 takes a free one, and tells which.
                let any = listen(0).map_err(|e| e.to_string())?;
                let at = any.local_addr().map_err(|e| e.to_string())?;
                assert!(at.port() != 0 && at.ip() == LOOPBACK);
                assert!(TcpStream::connect(at).await.is_ok());
                Ok(0)
            },
        );
        finish(&runtime, &said, 0);
    }
}

/// Connections from chosen addresses and ports: many addresses need nothing but to be ours.
#[test]
fn source_addresses_are_chosen() {
    for over in Over::kernels() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            2,
            move || echo(server),
            move || async move {
                for last in 1..100u8 {
                    let ip = IpAddr::from([127, 3, 2, last]);
                    let from = Connect { local_ip: Some(ip), ..Connect::to(server.into()) };
                    let stream = TcpStream::connect_with(from, None).await.map_err(|e| e.to_string())?;
                    assert_eq!(stream.local_addr().ip(), ip);
                    assert_eq!(stream.peer_addr(), server);
                }
                let lane = flowlane::current().unwrap().bucket.0;
                let chosen = Connect { local_port: server.port() + 10 + lane, ..Connect::to(server.into()) };
                let stream = TcpStream::connect_with(chosen, None).await.map_err(|e| e.to_string())?;
                assert_eq!(stream.local_addr(), SocketAddr::new(LOOPBACK, server.port() + 10 + lane));
                let again = TcpStream::connect_with(chosen, None).await.map(|_| ());
                assert!(
                    matches!(again, Err(SocketError::Connect(flowlane::ConnectError::InUse))),
                    "{again:?}"
                );
                let foreign = Connect { local_ip: Some([192, 0, 2, 1].into()), ..Connect::to(server.into()) };
                let refused = TcpStream::connect_with(foreign, None).await.map(|_| ());
                assert_eq!(refused, Err(SocketError::Connect(flowlane::ConnectError::NotOurAddress)));
                Ok(0)
            },
        );
        finish(&runtime, &said, 0);
    }
}

/// A server whose queue is full does not answer; whoever connects loses patience after the time he gave.
#[test]
fn a_connection_that_nobody_answers_times_out() {
    let deaf = socket::tcp(true).unwrap();
    socket::bind(deaf.as_fd(), SocketAddr::new(LOOPBACK, 0)).unwrap();
    socket::listen(deaf.as_fd(), 0).unwrap();
    let server = socket::local_address(deaf.as_fd()).unwrap();
    let over = Over::Kernel(LOOPBACK);
    let (runtime, said) = start(
        over,
        1,
        || async {},
        move || async move {
            let mut held = Vec::new();
            loop {
                let patience = Some(Duration::from_millis(50));
                match TcpStream::connect_with(Connect::to(server.into()), patience).await {
                    Ok(stream) if held.len() < 100 => held.push(stream),
                    Ok(_) => return Err("a hundred connections that nobody accepts".into()),
                    Err(e) => {
                        assert_eq!(e, SocketError::Connection(Failure::TimedOut));
                        return Ok(0);
                    }
                }
            }
        },
    );
    finish(&runtime, &said, 0);
    let report = runtime.stop();
    assert!(report.lanes(CLIENT).iter().all(|l| l.counts.connections == 0), "given up is closed");
}

/// A host on kernel sockets and one on a link of ours, on the same workers.
#[test]
fn both_backends_share_workers() {
    let over = Over::Pair;
    let (at, by_kernel) = (over.server(), Over::Kernel(LOOPBACK).server());
    // The client of the pair reaches its server by the wire, and a kernel host in the same process runs beside it.
    let (say, said_too) = mpsc::channel();
    let (runtime, said) = crate::kit::start_with(
        over,
        2,
        move || echo(at),
        move || async move {
            for n in 0..50u8 {
                one_echo(at, &[n; 100]).await?;
            }
            Ok(50)
        },
        |builder| {
            builder.host(Host::kernel("kernel", rss(2), move || {
                let say = say.clone();
                async move {
                    flowlane::spawn(echo(by_kernel)).unwrap();
                    flowlane::yield_now().await;
                    let mut result = Ok(50);
                    for n in 0..50u8 {
                        if let Err(e) = one_echo(by_kernel, &[n; 100]).await {
                            result = Err(e);
                        }
                    }
                    let _ = say.send(result);
                }
            }));
        },
    );
    finish(&runtime, &said, 50);
    for _ in 0..LANES {
        assert_eq!(said_too.recv_timeout(PATIENCE).unwrap(), Ok(50));
    }
}

/// A connection knows the processor on which it arrives, and why that is not its worker's.
#[test]
fn a_connection_knows_where_it_arrives() {
    if !flowlane_sys::affinity::allowed_cpus().starts_with(&[0, 1]) {
        return flowlane_testnet::skipped("skipped, because it needs processors 0 and 1");
    }
    let server = Over::Kernel(LOOPBACK).server();
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().workers(2).cpus(vec![0, 1]);
    let host = Host::kernel("server", rss(2), move || {
        let say = say.clone();
        async move {
            let listener =
                TcpListener::bind(Some(server.ip()), server.port(), ListenOptions::default()).unwrap();
            loop {
                let stream = listener.accept().await.unwrap();
                let mut one = [0];
                for _ in 0..2 {
                    assert_eq!(stream.read(&mut one).await, Ok(1));
                    say.send((stream.arrival().unwrap().unwrap(), stream.flow().unwrap())).unwrap();
                }
            }
        }
    });
    builder.host(host.steer(Steer::Cpu));
    let runtime = builder.start().unwrap();
    let rounds = std::thread::spawn(move || {
        for cpu in [0u32, 1] {
            flowlane_sys::affinity::pin_to(cpu as usize).unwrap();
            let mut stream = std::net::TcpStream::connect(server).unwrap();
            std::io::Write::write_all(&mut stream, b"x").unwrap();
            let (arrival, (hash, kind, _)) = said.recv_timeout(PATIENCE).unwrap();
            assert_eq!((arrival.processor, arrival.worker, arrival.queue), (cpu, cpu, 0));
            assert_eq!(arrival.elsewhere, None);
            assert_ne!((hash, kind), (0, flowlane::HashType::None));
            // The client goes elsewhere, and with it the processor that its packets arrive on.
            flowlane_sys::affinity::pin_to(1 - cpu as usize).unwrap();
            std::io::Write::write_all(&mut stream, b"y").unwrap();
            let (arrival, _) = said.recv_timeout(PATIENCE).unwrap();
            assert_eq!((arrival.processor, arrival.worker), (1 - cpu, cpu));
            assert_eq!(arrival.elsewhere, Some(flowlane::Elsewhere::Sender));
        }
    });
    rounds.join().unwrap();
    let stats = runtime.stop().kernel(0).unwrap();
    assert_eq!((stats.aligned, stats.elsewhere), (2, 0), "judged when it was accepted: {stats:?}");
}

/// Every connection begins at a port whose answers hash to the lane that made it, over both families; a port that the program chooses is left alone.
#[test]
fn connections_begin_where_their_answers_come() {
    const EACH: u64 = 100;
    for over in Over::all().into_iter().filter(|over| *over != Over::Pair) {
        let server = over.server();
        let (say, said) = mpsc::channel();
        let ports: [u16; LANES] = std::array::from_fn(|_| crate::kit::free_port(server.ip()));
        let mut builder = Runtime::builder().workers(2).pin(false).io(over.io());
        let client = Host::kernel("client", rss(2), move || {
            let say = say.clone();
            async move {
                let (mut kept, rss) = (Vec::new(), rss(2));
                for _ in 0..EACH {
                    let stream = TcpStream::connect(server).await.unwrap();
                    let (local, peer) = (stream.local_addr(), stream.peer_addr());
                    let steered = rss.steer(&Flow::new(peer, local, Protocol::TCP));
                    assert_eq!(steered.bucket, flowlane::current().unwrap().bucket, "{local}");
                    kept.push(stream);
                }
                let port = ports[usize::from(flowlane::current().unwrap().bucket.0)];
                let chosen = Connect { local_port: port, ..Connect::to(server.into()) };
                let chosen = TcpStream::connect_with(chosen, None).await.map(|s| s.local_addr().port());
                say.send((chosen, port)).unwrap();
            }
        });
        builder.host(Host::kernel("server", rss(2), move || echo(server)));
        builder.host(client.home_ports(true));
        let runtime = builder.start().unwrap();
        for _ in 0..LANES {
            let (chosen, port) = said.recv_timeout(PATIENCE).unwrap();
            assert_eq!(chosen, Ok(port), "{over:?}");
        }
        let stats = runtime.stop().kernel(1).unwrap();
        assert_eq!((stats.home_ports, stats.ports_elsewhere), (EACH * LANES as u64, 0), "{stats:?}");
    }
}

/// So does every connected socket of datagrams; and a port that is chosen is left alone and may serve several peers.
#[test]
fn datagrams_begin_where_their_answers_come() {
    const EACH: u64 = 50;
    for over in Over::all().into_iter().filter(|over| *over != Over::Pair) {
        let (server, second) = (over.server(), over.server());
        let (say, said) = mpsc::channel();
        let ports: [u16; LANES] = std::array::from_fn(|_| crate::kit::free_port(server.ip()));
        let mut builder = Runtime::builder().workers(2).pin(false).io(over.io());
        let client = Host::kernel("client", rss_with_ports(2), move || {
            let say = say.clone();
            async move {
                let (here, rss) = (flowlane::current().unwrap().bucket, rss_with_ports(2));
                let mut kept = Vec::new();
                for n in 0..EACH {
                    let local_ip = Some(server.ip()).filter(|_| n % 2 == 0);
                    let bind = Bind { local_ip, remote: Some(server.into()), ..Bind::default() };
                    let socket = UdpSocket::bind(bind).unwrap();
                    let (ip, port) = socket.local().unwrap();
                    let local = SocketAddr::new(ip.unwrap(), port);
                    let steered = rss.steer(&Flow::new(server, local, Protocol::UDP));
                    assert_eq!(steered.bucket, here, "{local}");
                    kept.push(socket);
                }
                let port = ports[usize::from(here.0)];
                let chosen = [server, second].map(|peer| {
                    let bind = Bind { local_port: port, remote: Some(peer.into()), ..Bind::default() };
                    UdpSocket::bind(bind).map(|socket| (socket.local().unwrap().1, socket))
                });
                say.send(chosen.map(|chosen| chosen.map(|(of, _)| of == port))).unwrap();
            }
        });
        builder.host(client.home_ports(true));
        let runtime = builder.start().unwrap();
        for _ in 0..LANES {
            assert_eq!(said.recv_timeout(PATIENCE).unwrap(), [Ok(true), Ok(true)], "{over:?}");
        }
        let stats = runtime.stop().kernel(0).unwrap();
        assert_eq!((stats.home_ports, stats.ports_elsewhere), (EACH * LANES as u64, 0), "{stats:?}");
    }
}

/// Sockets to one peer from one address of ours have ports of their own: otherwise one of them would get the other's answers.
#[test]
fn connected_sockets_of_datagrams_share_no_port() {
    // So many that a dozen would share one by chance.
    const EACH: usize = 200;
    let descriptors = flowlane_sys::kernel::limits::descriptors(2048).unwrap();
    assert!(descriptors >= 2048, "the limit of descriptors is {descriptors}");
    let server = Over::Kernel(LOOPBACK).server();
    let (say, said) = mpsc::channel();
    let mut builder = Runtime::builder().workers(1).pin(false);
    builder.host(Host::kernel("client", rss(1), move || {
        let say = say.clone();
        async move {
            let bind = || Bind { local_ip: Some(LOOPBACK), remote: Some(server.into()), ..Bind::default() };
            let sockets: Vec<_> = (0..EACH).map(|_| UdpSocket::bind(bind()).unwrap()).collect();
            let ports: Vec<u16> = sockets.iter().map(|socket| socket.local().unwrap().1).collect();
            say.send((ports, sockets)).unwrap();
        }
    }));
    let runtime = builder.start().unwrap();
    let all: Vec<_> = (0..LANES).map(|_| said.recv_timeout(PATIENCE).unwrap()).collect();
    let ports: std::collections::BTreeSet<u16> = all.iter().flat_map(|(ports, _)| ports).copied().collect();
    assert_eq!(ports.len(), EACH * LANES);
    drop(runtime.stop());
}

/// Polling before sleeping changes nothing but the waiting; a time that no kernel takes is refused at the start.
#[test]
fn workers_poll_before_they_sleep() {
    let server = Over::Kernel(LOOPBACK).server();
    let start = |time| {
        let (say, said) = mpsc::channel();
        let mut builder = Runtime::builder().workers(1).pin(false).busy_poll(time);
        builder.host(Host::kernel("server", rss(1), move || echo(server)));
        builder.host(Host::kernel("client", rss(1), move || {
            let say = say.clone();
            async move { say.send(one_echo(server, &[3; 5000]).await).unwrap() }
        }));
        builder.start().map(|runtime| (runtime, said))
    };
    match start(Duration::from_micros(50)) {
        Ok((_runtime, said)) => {
            for _ in 0..LANES {
                assert_eq!(said.recv_timeout(PATIENCE).unwrap(), Ok(()));
            }
        }
        Err(e) => {
            assert!(e.to_string().contains("Linux 6.9"), "{e}");
            return flowlane_testnet::skipped(format_args!("skipped, because {e}"));
        }
    }
    let error = start(Duration::from_secs(100_000)).map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("busy polling: ") && error.contains("too long"), "{error}");
}
