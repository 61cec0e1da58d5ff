//! Short connections between kernel sockets: what the kernel is not asked twice, and what must not be lost or late for it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::os::fd::{OwnedFd, RawFd};

use flowlane::Io;
use flowlane::relay::RelayConfig;
use rustix::net::sockopt::{set_tcp_cork, tcp_nodelay};
use rustix::net::{SendFlags, getsockname, send};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use super::streams::{connect, kernel};
use crate::traffic::PATIENCE;

fn accept(target: &KernelListener) -> KernelStream {
    let (stream, _) = target.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn read_to_end(mut from: &KernelStream) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

/// The last bytes come with the end of the stream, in one segment: they are read by one call, and so is the request.
#[test]
fn the_end_comes_with_the_last_bytes() {
    const CONNECTIONS: u64 = 10;
    let target = KernelListener::bind("127.0.0.1:0").unwrap();
    let (relaying, at) = kernel(Io::Epoll, RelayConfig::to(target.local_addr().unwrap()));
    for _ in 0..CONNECTIONS {
        let mut client = connect(at);
        client.write_all(&[1; 64]).unwrap();
        let mut server = accept(&target);
        server.read_exact(&mut [0; 64]).unwrap();
        set_tcp_cork(&server, true).unwrap();
        server.write_all(&[2; 600]).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&client), [2; 600]);
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_end(&server).is_empty());
    }
    let (counts, report) = relaying.stop();
    let (of, kernel) = (counts.targets[0].1, report.kernel(0).unwrap());
    assert_eq!((of.connections, of.to_target_bytes, of.to_client_bytes), (10, 640, 6000));
    assert_eq!((of.client_resets, of.target_resets, of.lost), (0, 0, 0));
    // A request, an answer, and the client's end, which comes alone. An acknowledgement that comes between the answer and the end may have
    // one of them looked at too early.
    assert!((30..=32).contains(&kernel.reads), "{kernel:?}");
    assert_eq!(kernel.writes, 2 * CONNECTIONS);
}

/// A read stops short before an urgent byte, which is no end, though the end has come.
#[test]
fn nothing_behind_an_urgent_byte_is_lost() {
    let target = KernelListener::bind("127.0.0.1:0").unwrap();
    let (relaying, at) = kernel(Io::Epoll, RelayConfig::to(target.local_addr().unwrap()));
    for _ in 0..50 {
        let mut client = connect(at);
        client.write_all(b"?").unwrap();
        let mut server = accept(&target);
        set_tcp_cork(&server, true).unwrap();
        server.write_all(&[1; 1000]).unwrap();
        send(&server, b"!", SendFlags::OOB).unwrap();
        server.write_all(&[2; 1000]).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        let got = read_to_end(&client);
        assert!(got == [[1; 1000], [2; 1000]].concat(), "{} bytes", got.len());
    }
    assert_eq!(relaying.stop().0.targets[0].1.to_client_bytes, 100_000);
}

/// The relay's own end of a connection with a target: another descriptor of the same socket.
fn end_at(address: SocketAddr) -> OwnedFd {
    let us = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    let fds = numbers.filter_map(|number| pidfd_getfd(&us, number, PidfdGetfdFlags::empty()).ok());
    let mut ends =
        fds.filter(|fd| getsockname(fd).is_ok_and(|name| SocketAddr::try_from(name) == Ok(address)));
    ends.next().expect("the relay has it")
}

/// The first piece of a stream waits for nothing, so that a connection of one request is spared the option; a second piece must not wait for the
/// first to be acknowledged.
#[test]
fn small_pieces_do_not_wait_for_one_another() {
    let target = KernelListener::bind("127.0.0.1:0").unwrap();
    let (relaying, at) = kernel(Io::Epoll, RelayConfig::to(target.local_addr().unwrap()));
    let mut client = connect(at);
    client.write_all(b"1").unwrap();
    let mut server = accept(&target);
    let mut byte = [0];
    server.read_exact(&mut byte).unwrap();
    let end = end_at(server.peer_addr().unwrap());
    assert!(!tcp_nodelay(&end).unwrap());
    client.write_all(b"2").unwrap();
    server.read_exact(&mut byte).unwrap();
    assert!(tcp_nodelay(&end).unwrap());
    drop((client, server, end));
    relaying.stop();
}
