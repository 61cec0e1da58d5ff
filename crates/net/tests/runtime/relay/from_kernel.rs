//! Clients on kernel sockets, and targets over a link of ours.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, UdpSocket as KernelSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use flowlane::relay::{Relay, RelayConfig};
use flowlane::{Bind, SocketError, TcpListener, UdpFields, UdpSocket};

use super::datagrams::echo;
use super::streams::{back, byte, connect};
use super::{BUCKETS, Relaying, each_io, peer};
use crate::traffic::PATIENCE;

const CLIENTS: usize = 16;
const EACH: usize = 300_000;

/// A port that nobody has.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn here(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Relays what comes to this port of the kernel's, in the lane that calls it, which says so when it listens.
async fn accept(relay: Relay, port: u16, say: mpsc::Sender<()>) -> Result<(), SocketError> {
    let listener = TcpListener::bind_by_kernel(Some(here(port).ip()), port, Relay::listen_options())?;
    let _ = say.send(());
    relay.serve(listener).await
}

/// Every byte comes back, connections are accepted in the lanes of their flows, and each side is counted where it is.
#[test]
fn connections() {
    for io in each_io() {
        let port = free_port();
        let (say, said) = mpsc::channel();
        let serve = move |relay| accept(relay, port, say.clone());
        let relaying =
            Relaying::from_kernel(io, RelayConfig::to(peer(81)), UdpFields::Two, serve, || async {
                let listener = TcpListener::on_port(81)?;
                loop {
                    let stream = listener.accept().await?;
                    let _ = flowlane::spawn(back(stream));
                }
            });
        (0..BUCKETS).for_each(|_| said.recv_timeout(PATIENCE).unwrap());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|i| {
                thread::spawn(move || {
                    let mut stream = connect(here(port));
                    let sent: Vec<u8> = (i..i + EACH).map(byte).collect();
                    let mut writer = stream.try_clone().unwrap();
                    let copy = sent.clone();
                    let writing = thread::spawn(move || {
                        writer.write_all(&copy).unwrap();
                        writer.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut got = Vec::new();
                    stream.read_to_end(&mut got).unwrap();
                    writing.join().unwrap();
                    assert!(got == sent, "{io:?}: {} bytes", got.len());
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        let (counts, report) = relaying.stop();
        let (target, much) = (counts.targets[0].1, (CLIENTS * EACH) as u64);
        assert_eq!(
            (target.connections, target.to_target_bytes, target.to_client_bytes, target.copied_bytes),
            (CLIENTS as u64, much, much, 2 * much),
            "{io:?}"
        );
        assert_eq!((target.client_resets, target.target_resets, target.lost, target.open), (0, 0, 0, 0));
        let kernel = report.kernel(0).unwrap();
        assert_eq!((kernel.accepted, kernel.connecting), (CLIENTS as u64, 0), "{io:?}");
        let lanes = report.workers.iter().flat_map(|w| &w.lanes);
        let accepting = lanes.filter(|l| l.kernel.is_some_and(|kernel| kernel.accepted > 0)).count();
        assert!(accepting > 1, "{io:?}: {accepting} lanes");
    }
}

/// A client that resets resets its target, and a target its client.
#[test]
fn resets() {
    for io in each_io() {
        let port = free_port();
        let (say, said) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let serve = move |relay| accept(relay, port, say.clone());
        let relaying =
            Relaying::from_kernel(io, RelayConfig::to(peer(81)), UdpFields::Two, serve, move || {
                let tell = tell.clone();
                async move {
                    let listener = TcpListener::on_port(81)?;
                    loop {
                        let stream = listener.accept().await?;
                        let tell = tell.clone();
                        let _ = flowlane::spawn(async move {
                            // What the client sends first says who is to end it.
                            let mut first = [0];
                            let _ = stream.read(&mut first).await;
                            if first == *b"t" {
                                let _ = stream.abort();
                                return;
                            }
                            let _ = stream.write_all(b"x").await;
                            let _ = tell.send(stream.read(&mut first).await.is_err());
                        });
                    }
                }
            });
        (0..BUCKETS).for_each(|_| said.recv_timeout(PATIENCE).unwrap());
        let mut stream = connect(here(port));
        stream.write_all(b"t").unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let mut stream = connect(here(port));
        stream.write_all(b"c").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        assert!(told.recv_timeout(PATIENCE).unwrap(), "{io:?}");
        let (counts, _) = relaying.stop();
        let target = counts.targets[0].1;
        assert_eq!((target.client_resets, target.target_resets, target.connections), (1, 1, 2), "{io:?}");
    }
}

#[test]
fn datagrams() {
    let port = free_port();
    let (say, said) = mpsc::channel();
    let serve = move |relay: Relay| {
        let say = say.clone();
        async move {
            let bind = Bind { local_ip: Some(here(port).ip()), ..Bind::port(port) };
            let socket = UdpSocket::bind_by_kernel(bind)?;
            let _ = say.send(());
            relay.serve_datagrams(socket, |_| {}).await
        }
    };
    let relaying =
        Relaying::from_kernel(each_io()[0], RelayConfig::to(peer(81)), UdpFields::Four, serve, || {
            echo(81, b'a')
        });
    (0..BUCKETS).for_each(|_| said.recv_timeout(PATIENCE).unwrap());
    let clients: Vec<KernelSocket> = (0..CLIENTS)
        .map(|_| {
            let socket = KernelSocket::bind("127.0.0.1:0").unwrap();
            socket.connect(here(port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            socket
        })
        .collect();
    let mut seen = BTreeSet::new();
    for round in 0..5 {
        for (i, client) in clients.iter().enumerate() {
            let sent: Vec<u8> = (0..100 + 80 * i).map(|at| byte(at + i + 31 * round)).collect();
            let mut buffer = [0; 2000];
            // The first of a flow may go while our stack asks for its neighbour.
            let got = (0..60).find_map(|_| {
                client.send(&sent).unwrap();
                client.recv(&mut buffer).ok()
            });
            assert_eq!(got, Some(sent.len()));
            assert!(buffer[0] == b'a' && buffer[1..sent.len()] == sent[1..]);
            seen.insert(client.local_addr().unwrap());
        }
    }
    let (counts, report) = relaying.stop();
    assert_eq!(counts.targets[0].1.connections, seen.len() as u64);
    assert!(report.kernel(0).unwrap().datagrams_received >= 5 * CLIENTS as u64);
}
