//! Datagrams over everything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flowlane::{Bind, Endpoint, SendError, SocketError, UdpSocket, sleep, spawn};

use crate::kit::{CLIENT, LANES, Over, SERVER, finish, start};

fn bind(server: SocketAddr) -> UdpSocket {
    UdpSocket::bind(Bind { local_ip: Some(server.ip()), ..Bind::port(server.port()) }).unwrap()
}

async fn echo(server: SocketAddr) {
    answer(bind(server)).await;
}

async fn answer(socket: UdpSocket) {
    let mut batch = Vec::new();
    while socket.recv_batch(&mut batch, 64).await.is_ok() {
        socket.reply_batch(&mut batch).await.unwrap();
    }
}

/// Sends so many datagrams, some at a time, and reads them back; how many came.
async fn there_and_back(server: SocketAddr, count: u32) -> Result<u64, String> {
    let socket = UdpSocket::connect(server).map_err(|e| e.to_string())?;
    let (mut came, mut batch) = (0u32, Vec::new());
    for sent in (0..count).step_by(10) {
        for n in sent..sent + 10 {
            let payload = n.to_be_bytes().repeat(1 + n as usize % 300);
            socket.send(&payload).await.map_err(|e| format!("send {n}: {e}"))?;
        }
        while came < sent + 10 {
            let n = socket.recv_batch(&mut batch, 64).await.map_err(|e| format!("receive {came}: {e}"))?;
            assert_eq!(n, batch.len());
            for datagram in batch.drain(..) {
                let want = came.to_be_bytes().repeat(1 + came as usize % 300);
                if datagram.payload() != want || SocketAddr::from(datagram.source) != server {
                    return Err(format!("{came}: {} bytes from {:?}", datagram.len(), datagram.source));
                }
                came += 1;
            }
        }
    }
    Ok(u64::from(came))
}

#[test]
fn every_datagram_comes_back_in_order() {
    for over in Over::all() {
        let server = over.server();
        // A socket that joins takes over flows of those that are bound already, whose datagrams under way would be overtaken.
        let bound = Arc::new(AtomicUsize::new(0));
        let serves = bound.clone();
        let serve = move || {
            let serves = serves.clone();
            async move {
                let socket = bind(server);
                serves.fetch_add(1, Ordering::Release);
                answer(socket).await;
            }
        };
        let ask = move || {
            let bound = bound.clone();
            async move {
                while bound.load(Ordering::Acquire) < LANES {
                    flowlane::yield_now().await;
                }
                there_and_back(server, 2000).await
            }
        };
        let (runtime, said) = start(over, 2, serve, ask);
        finish(&runtime, &said, 2000);
        let report = runtime.stop();
        let (server, client) = (report.total(SERVER).udp, report.total(CLIENT).udp);
        assert!(client.sent >= 2000 && server.received == client.sent, "{over:?}");
        assert_eq!((server.sent, client.received), (client.sent, client.sent), "{over:?}");
        if let Some(kernel) = report.kernel(SERVER) {
            assert!(kernel.datagram_reads < kernel.datagrams_received, "in batches: {kernel:?}");
            assert_eq!((kernel.datagrams_dropped, kernel.datagrams_cut), (0, 0));
        }
    }
}

/// Longer than any frame: chained, there and back.
#[test]
fn a_long_datagram_comes_whole() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            move || echo(server),
            move || async move {
                let Ok(socket) = UdpSocket::connect(server) else { return Ok(40_000) };
                let long: Vec<u8> = (0..40_000u32).map(|n| (n / 7) as u8).collect();
                socket.send(&long).await.map_err(|e| e.to_string())?;
                let datagram = socket.recv().await.map_err(|e| e.to_string())?;
                let mut back = vec![0; 50_000];
                let n = datagram.read(&mut back);
                assert!(datagram.is_chained() && back[..n] == long, "{over:?}: {n} bytes");
                let most = if server.is_ipv4() { 65_507 } else { 65_527 };
                assert_eq!(
                    socket.try_send(&vec![0; most + 1], None, None),
                    Err(SocketError::Send(SendError::TooLong)),
                    "{over:?}"
                );
                Ok(n as u64)
            },
        );
        finish(&runtime, &said, 40_000);
    }
}

/// Datagrams that are sent together come one by one, with their bytes and in order, whatever their length, and so do the answers, whose
/// lengths change in the middle of a batch. Kernel sockets merge them on both ways.
#[test]
fn what_is_sent_together_comes_apart() {
    // Two in a frame, one in a frame, one longer than a frame, two in a message.
    const SIZES: [usize; 6] = [1, 700, 1200, 3000, 30_000, 1472];
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            move || echo(server),
            move || async move {
                let socket = UdpSocket::connect(server).map_err(|e| e.to_string())?;
                assert_eq!(socket.try_send_segments(b"x", 0, None, None), Err(SendError::TooLong.into()));
                let (mut batch, mut came) = (Vec::new(), 0u64);
                for size in SIZES {
                    let count = if size > 2000 { 5 } else { 100 };
                    // The last is shorter, where that is possible.
                    let last = size.div_ceil(2);
                    let all: Vec<u8> = (0..(count - 1) * size + last).map(|n| (n % 253) as u8).collect();
                    let mut sent = 0;
                    while sent * size < all.len() {
                        match socket.try_send_segments(&all[sent * size..], size, None, None) {
                            Ok(n) => sent += n,
                            Err(SocketError::Send(SendError::Full)) => flowlane::yield_now().await,
                            Err(e) => return Err(format!("{size}: {e}")),
                        }
                    }
                    assert_eq!(sent, count, "{size}");
                    let mut wanted = all.chunks(size);
                    while wanted.len() > 0 {
                        // Fewer than a message has.
                        let n = socket.recv_batch(&mut batch, 7).await.map_err(|e| e.to_string())?;
                        assert!((1..=7).contains(&n) && n == batch.len());
                        for datagram in batch.drain(..) {
                            let mut whole = vec![0; datagram.len()];
                            datagram.read(&mut whole);
                            assert_eq!(Some(&whole[..]), wanted.next(), "{over:?}, {size}");
                            came += 1;
                        }
                    }
                }
                Ok(came)
            },
        );
        finish(&runtime, &said, 410);
        let report = runtime.stop();
        let Some(kernel) = report.kernel(SERVER) else { continue };
        assert_eq!((kernel.datagrams_received, kernel.datagrams_sent), (1640, 1640), "{kernel:?}");
        assert!(kernel.merged_received > 0 && kernel.merged_sent > 0, "{kernel:?}");
        assert!(kernel.datagram_reads < 400 && kernel.datagram_writes < 400, "{kernel:?}");
        assert_eq!(kernel.merging_refused, 0);
        assert_eq!(kernel.lost(), 0);
    }
}

/// The kernel says which datagrams carry congestion marks, and when they came if it is asked to.
#[test]
fn a_datagram_comes_with_what_is_known_of_it() {
    let over = Over::Kernel([127, 0, 0, 1].into());
    let (runtime, said) = start(
        over,
        1,
        || async {},
        || async {
            let ours = Bind { local_ip: Some([127, 0, 0, 1].into()), ..Bind::default() };
            let socket = UdpSocket::bind(ours).map_err(|e| e.to_string())?;
            let there = SocketAddr::from(([127, 0, 0, 1], socket.local().unwrap().1));
            let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let tos = flowlane_sys::kernel::options::Number::TOS;
            flowlane_sys::kernel::options::set(std::os::fd::AsFd::as_fd(&peer), tos, 3).unwrap();
            peer.send_to(b"one", there).unwrap();
            let one = socket.recv().await.map_err(|e| e.to_string())?;
            assert_eq!((one.traffic_class & 3, one.frame().meta().timestamp), (3, 0));
            socket.set_timestamps(true).unwrap();
            peer.send_to(b"two", there).unwrap();
            let two = socket.recv().await.map_err(|e| e.to_string())?;
            // Time stamps are of the day.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            let came = std::time::Duration::from_nanos(two.frame().meta().timestamp);
            assert!(now.saturating_sub(came) < crate::kit::PATIENCE, "{came:?} {now:?}");
            socket.set_timestamps(false).unwrap();
            peer.send_to(b"three", there).unwrap();
            assert_eq!(socket.recv().await.map_err(|e| e.to_string())?.frame().meta().timestamp, 0);
            Ok(0)
        },
    );
    finish(&runtime, &said, 0);
}

/// A socket on every address answers from the one that was asked.
#[test]
fn a_wildcard_answers_from_the_address_that_was_asked() {
    let over = Over::Kernel([127, 0, 0, 1].into());
    let port = over.server().port();
    let all = move || async move {
        let socket = UdpSocket::on_port(port).unwrap();
        assert_eq!(socket.local(), Ok((None, port)));
        let mut batch = Vec::new();
        while socket.recv_batch(&mut batch, 64).await.is_ok() {
            socket.reply_batch(&mut batch).await.unwrap();
        }
    };
    let (runtime, said) = start(over, 2, all, move || async move {
        let ours = Bind { local_ip: Some([127, 0, 0, 1].into()), ..Bind::default() };
        let socket = UdpSocket::bind(ours).map_err(|e| e.to_string())?;
        let mut buffer = [0; 16];
        for last in 2..30u8 {
            let there = SocketAddr::from(([127, 0, 0, last], port));
            socket.send_to(&[last], there).await.map_err(|e| e.to_string())?;
            assert_eq!(socket.recv_from(&mut buffer).await, Ok((1, there)));
            assert_eq!(buffer[0], last);
        }
        let other = Endpoint::new([127, 0, 0, 9].into(), socket.local().unwrap().1);
        assert_eq!(
            socket.try_send(b"x", Some(other), Some(Endpoint::new([127, 0, 0, 1].into(), port))),
            Err(SocketError::Send(SendError::NoSource)),
            "bound to another address"
        );
        Ok(0)
    });
    finish(&runtime, &said, 0);
}

#[test]
fn what_cannot_be_done_says_so() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            || async {},
            move || async move {
                let bind = || UdpSocket::on_port(server.port());
                let first = bind().map_err(|e| e.to_string())?;
                assert!(matches!(bind(), Err(SocketError::Bind(flowlane::BindError::InUse))), "{over:?}");
                assert_eq!(first.local(), Ok((None, server.port())));
                assert_eq!(
                    first.try_send(b"x", None, None),
                    Err(SocketError::Send(SendError::NoDestination)),
                    "{over:?}"
                );
                let waiting = spawn(async move { first.recv().await.map(|_| ()) }).unwrap();
                sleep(std::time::Duration::from_millis(1)).await;
                waiting.abort();
                sleep(std::time::Duration::from_millis(1)).await;
                bind().map_err(|e| format!("the port is free again: {e}"))?;
                let any = UdpSocket::bind(Bind { any_port: true, ..Bind::default() }).map(|_| ());
                match over {
                    Over::Pair => assert_eq!(any, Ok(())),
                    Over::Kernel(_) | Over::Ring(_) => {
                        assert!(matches!(any, Err(SocketError::Unsupported(_))));
                    }
                }
                Ok(0)
            },
        );
        finish(&runtime, &said, 0);
    }
}

/// The network's answer to a connected socket: nobody is there.
#[test]
fn a_closed_port_is_reported() {
    for over in Over::all() {
        let server = over.server();
        let (runtime, said) = start(
            over,
            1,
            || async {},
            move || async move {
                let Ok(socket) = UdpSocket::connect(server) else { return Ok(0) };
                socket.send(b"anybody?").await.map_err(|e| e.to_string())?;
                let told = socket.recv().await.map(|_| ());
                assert!(matches!(told, Err(SocketError::Network(_))), "{over:?}: {told:?}");
                Ok(0)
            },
        );
        finish(&runtime, &said, 0);
    }
}
