//! The table of callbacks, driven as packetdrill drives it: the main thread brings and takes packets and moves the clock, a
//! second thread makes the calls that wait.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod endings;
mod packets;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use flowlane_c::packetdrill::{Caller, Errno};
use flowlane_stack::wire::FastOpenOption;
use packets::{ACK, FIN, PSH, Peer, RST, SYN, URG};

const V4: (&str, &str, &str) =
    ("192.168.5.1/16|192.168.0.2|192.0.2.0/24", "192.168.5.1:8080", "192.0.2.1:40000");
const V6: (&str, &str, &str) =
    ("fd00:1::1/64|fd00:1::2|fd00:2::/64", "[fd00:1::1]:8080", "[fd00:2::1]:40000");
const MAPPED: (&str, &str, &str) =
    ("192.168.5.1/16|192.168.0.2|192.0.2.0/24", "[::ffff:192.168.5.1]:8080", "192.0.2.1:40000");

/// A listener and its peer.
fn listener((flags, local, remote): (&str, &str, &str)) -> (Caller, Peer, i32) {
    let caller = Caller::new(packetdrill_shim::make, flags);
    let local: SocketAddr = local.parse().unwrap();
    let domain = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = caller.socket(domain, libc::SOCK_STREAM, libc::IPPROTO_TCP).unwrap();
    caller.setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1_i32.to_ne_bytes()).unwrap();
    caller.bind(fd, local).unwrap();
    caller.listen(fd, 1).unwrap();
    let ip = match local.ip() {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(local.ip(), Into::into),
        ip => ip,
    };
    let peer = Peer::new(remote.parse().unwrap(), SocketAddr::new(ip, local.port()));
    (caller, peer, fd)
}

/// And a connection.
fn accepted(ends: (&str, &str, &str)) -> (Caller, Peer, i32, i32) {
    let (caller, mut peer, fd) = listener(ends);
    peer.shake(&caller);
    let (connection, from) = caller.accept(fd).unwrap();
    let from_ip = match from.ip() {
        std::net::IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(from.ip(), Into::into),
        ip => ip,
    };
    assert_eq!((from_ip, from.port()), (peer.own.ip(), peer.own.port()));
    (caller, peer, fd, connection)
}

fn whole_life(ends: (&str, &str, &str)) {
    let (caller, mut peer, listener, fd) = accepted(ends);
    // A read that waits: a second thread, which returns at the very moment at which the data comes.
    let begun = caller.now().unwrap();
    let caller = &caller;
    let (n, ended) = thread::scope(|s| {
        let (tell, told) = mpsc::channel();
        let reader = s.spawn(move || {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            let mut into = [0; 2000];
            let n = caller.read(fd, &mut into).unwrap();
            (n, caller.now().unwrap())
        });
        packets::until_asleep(&told.recv().unwrap());
        caller.usleep(100_000).unwrap();
        let at = caller.now().unwrap();
        peer.send(caller, ACK | PSH, 1000);
        let (n, ended) = reader.join().unwrap();
        assert!((at..at + 1000).contains(&ended), "the read ended at {ended}, the data came at {at}");
        (n, ended)
    });
    assert_eq!(n, 1000);
    assert!(ended - begun >= 100_000);
    peer.expect(caller, ACK, 0);
    // Data of ours.
    assert_eq!(caller.write(fd, &[0; 500]), Ok(500));
    peer.expect(caller, ACK | PSH, 500);
    peer.send(caller, ACK, 0);
    assert_eq!(caller.ioctl(fd, libc::TIOCOUTQ), Ok(0));
    // Both close.
    caller.close(fd).unwrap();
    peer.expect(caller, FIN | ACK, 0);
    peer.send(caller, FIN | ACK, 0);
    peer.expect(caller, ACK, 0);
    assert_eq!(caller.read(fd, &mut [0; 10]), Err(Errno(libc::EBADF)));
    caller.close(listener).unwrap();
}

#[test]
fn whole_life_v4() {
    whole_life(V4);
}

#[test]
fn whole_life_v6() {
    whole_life(V6);
}

#[test]
fn whole_life_of_ipv4_in_an_ipv6_socket() {
    whole_life(MAPPED);
}

/// The clock is the table's own: a minute of retransmissions costs no time, and comes out the same each time.
#[test]
fn time_is_virtual_and_the_same_each_time() {
    let run = || {
        let (caller, mut peer, _, fd) = accepted(V4);
        caller.write(fd, &[0; 100]).unwrap();
        let start = caller.now().unwrap();
        (0..8).map(|_| peer.expect(&caller, ACK | PSH, 100) - start).collect::<Vec<_>>()
    };
    let started = std::time::Instant::now();
    let times = run();
    assert!(times.last().is_some_and(|t| *t > 10_000_000), "{times:?}");
    assert_eq!(times, run());
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "it took {:?}", started.elapsed());
}

/// When nothing comes, waiting for a packet ends, with no packet.
#[test]
fn silence_is_bounded() {
    let (caller, mut peer, _, _) = accepted(V4);
    let before = caller.now().unwrap();
    assert_eq!(caller.netdev_receive().unwrap().0, Vec::<u8>::new());
    assert!(caller.now().unwrap() - before >= 12_000_000, "keep-alive scripts wait six seconds");
    peer.send(&caller, ACK | PSH, 10);
    peer.expect(&caller, ACK, 0);
}

#[test]
fn errors_are_those_of_the_kernel() {
    let (caller, mut peer, listener, fd) = accepted(V4);
    caller.fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK).unwrap();
    assert_eq!(caller.fcntl(fd, libc::F_GETFL, 0), Ok(libc::O_RDWR | libc::O_NONBLOCK));
    assert_eq!(caller.fcntl(listener, libc::F_GETFL, 0), Ok(libc::O_RDWR));
    assert_eq!(caller.read(fd, &mut [0; 10]), Err(Errno(libc::EAGAIN)));
    assert_eq!(caller.poll(fd, libc::POLLIN | libc::POLLOUT, 0), Ok(libc::POLLOUT));
    assert_eq!(caller.poll(fd, libc::POLLIN, 100), Ok(0), "a wait of the main thread moves the clock itself");
    assert_eq!(caller.write(listener, b"x"), Err(Errno(libc::EPIPE)));
    assert_eq!(caller.read(listener, &mut [0; 1]), Err(Errno(libc::ENOTCONN)));
    assert_eq!(caller.close(12_345), Err(Errno(libc::EBADF)));
    assert_eq!(caller.socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), Err(Errno(libc::EAFNOSUPPORT)));
    peer.send(&caller, RST | ACK, 0);
    assert_eq!(caller.poll(fd, libc::POLLIN, 0), Ok(libc::POLLIN | libc::POLLERR | libc::POLLHUP));
    assert_eq!(caller.write(fd, b"x"), Err(Errno(libc::ECONNRESET)));
    assert_eq!(caller.write(fd, b"x"), Err(Errno(libc::EPIPE)));
    assert_eq!(caller.read(fd, &mut [0; 10]), Ok(0));
}

/// Of `asm-generic/sockios.h`.
const SIOCATMARK: u64 = 0x8905;

/// `POLLPRI` and `SIOCATMARK`: the mark is before the last urgent byte, which is read in line.
#[test]
fn the_urgent_mark() {
    let (caller, mut peer, _, fd) = accepted(V4);
    assert_eq!(caller.poll(fd, libc::POLLPRI, 0), Ok(0));
    peer.send(&caller, ACK | PSH | URG, 10);
    assert_eq!(caller.poll(fd, libc::POLLPRI, 0), Ok(libc::POLLPRI));
    assert_eq!(caller.ioctl(fd, SIOCATMARK), Ok(0));
    assert_eq!(caller.read(fd, &mut [0; 9]), Ok(9));
    assert_eq!(caller.ioctl(fd, SIOCATMARK), Ok(1));
    assert_eq!(caller.read(fd, &mut [0; 9]), Ok(1));
    assert_eq!(caller.ioctl(fd, SIOCATMARK), Ok(0));
    assert_eq!(caller.poll(fd, libc::POLLPRI, 0), Ok(0));
}

#[test]
fn options_are_kept_and_told() {
    let (caller, _, listener, fd) = accepted(V4);
    let int = |fd, level, name| {
        let bytes = caller.getsockopt(fd, level, name, 4).unwrap();
        i32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    };
    let set = |fd, level, name, value: i32| caller.setsockopt(fd, level, name, &value.to_ne_bytes());
    assert_eq!(int(fd, libc::SOL_TCP, libc::TCP_MAXSEG), 1000);
    assert_eq!(int(listener, libc::SOL_SOCKET, libc::SO_ACCEPTCONN), 1);
    for (level, name, value, told) in [
        (libc::SOL_TCP, libc::TCP_NODELAY, 1, 1),
        (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, 3000, 3000),
        (libc::SOL_TCP, libc::TCP_KEEPIDLE, 5, 5),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, 1),
        (libc::SOL_SOCKET, libc::SO_SNDBUF, 20_000, 40_000),
        (libc::SOL_IP, libc::IP_TOS, 0x10, 0x10),
    ] {
        set(fd, level, name, value).unwrap();
        assert_eq!(int(fd, level, name), told, "{level} {name}");
    }
    assert_eq!(set(fd, libc::SOL_TCP, libc::TCP_KEEPCNT, 0), Err(Errno(libc::EINVAL)));
    // What nothing heeds is refused, as what is not known: nobody is told that it is so.
    for (level, name) in [
        (libc::SOL_TCP, 9999),
        (libc::SOL_TCP, libc::TCP_DEFER_ACCEPT),
        (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
        (libc::SOL_TCP, libc::TCP_REPAIR),
        (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
        (libc::SOL_SOCKET, libc::SO_DONTROUTE),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
        (libc::SOL_IP, libc::IP_RECVERR),
        (libc::SOL_IP, libc::IP_TRANSPARENT),
    ] {
        assert_eq!(set(fd, level, name, 1), Err(Errno(libc::ENOPROTOOPT)), "{level} {name}");
    }
    assert_eq!(set(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 0), Err(Errno(libc::ENOPROTOOPT)));
    assert_eq!(
        set(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        Err(Errno(libc::ENOPROTOOPT))
    );
    assert_eq!(set(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO), Ok(()));
    assert_eq!(set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1), Ok(()));
    let info = caller.getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, 104).unwrap();
    assert_eq!((info.len(), info[0]), (104, 1), "ESTABLISHED");
    let cwnd = u32::from_ne_bytes(info[80..84].try_into().unwrap());
    assert_eq!(cwnd, 10);
    // Keep-alive is at work: a probe after five seconds.
    let before = caller.now().unwrap();
    let (probe, at) = caller.netdev_receive().unwrap();
    assert!(!probe.is_empty() && (4_900_000..5_200_000).contains(&(at - before)), "{}", at - before);
}

#[test]
fn connecting_and_being_refused() {
    for (flags, local, remote) in [V4, V6] {
        let caller = Caller::new(packetdrill_shim::make, flags);
        let (local, remote): (SocketAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let domain = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let fd = caller.socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EINPROGRESS)));
        let (syn, _) = caller.netdev_receive().unwrap();
        let mut peer = Peer::answering(remote, &syn);
        peer.send(&caller, RST | ACK, 0);
        assert_eq!(caller.connect(fd, remote), Err(Errno(libc::ECONNREFUSED)));
        // The same with an answer.
        let fd = caller.socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EINPROGRESS)));
        assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EALREADY)));
        let (syn, _) = caller.netdev_receive().unwrap();
        let mut peer = Peer::answering(remote, &syn);
        peer.send(&caller, SYN | ACK, 0);
        peer.expect(&caller, ACK, 0);
        assert_eq!(caller.connect(fd, remote), Ok(()));
        assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EISCONN)));
        caller.close(fd).unwrap();
    }
}

/// A cookie, and then data with the SYN, as the namespace's settings allow it.
#[test]
fn data_with_the_syn() {
    const MSG_FASTOPEN: i32 = libc::MSG_FASTOPEN;
    let settings = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap_or_default();
    let allowed = settings.trim().parse::<u32>().map_or(true, |bits| bits & 1 != 0);
    for (flags, local, remote) in [V4, V6] {
        let caller = Caller::new(packetdrill_shim::make, flags);
        let (local, remote): (SocketAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let domain = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let socket = || caller.socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
        let fd = socket();
        let first = caller.sendto(fd, &[0; 100], MSG_FASTOPEN, remote);
        if !allowed {
            assert_eq!(first, Err(Errno(libc::EOPNOTSUPP)));
            continue;
        }
        assert_eq!(first, Err(Errno(libc::EINPROGRESS)), "no cookie is known");
        assert_eq!(caller.sendto(fd, &[0; 100], MSG_FASTOPEN, remote), Err(Errno(libc::EALREADY)));
        let (syn, _) = caller.netdev_receive().unwrap();
        let mut peer = Peer::answering(remote, &syn);
        peer.cookie = FastOpenOption::cookie(&[7; 8], false);
        peer.send(&caller, SYN | ACK, 0);
        peer.expect(&caller, ACK, 0);
        caller.close(fd).unwrap();
        peer.expect(&caller, FIN | ACK, 0);
        // Now it is: what the peer's segments hold goes, options taken off.
        let fd = socket();
        assert_eq!(caller.sendto(fd, &[0; 2000], MSG_FASTOPEN, remote), Ok(960));
        let (syn, _) = caller.netdev_receive().unwrap();
        assert_eq!(syn[syn.len() - 960..], [0; 960]);
        let mut peer = Peer::answering(remote, &syn);
        peer.send(&caller, SYN | ACK, 0);
        peer.expect(&caller, ACK, 0);
        let options = caller.getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, 104).unwrap()[5];
        assert_eq!(options & 32, 32, "TCPI_OPT_SYN_DATA");
        // `connect` promises, and the first write goes with the SYN.
        let fd = socket();
        caller.setsockopt(fd, libc::SOL_TCP, 30, &1_i32.to_ne_bytes()).unwrap();
        assert_eq!(caller.connect(fd, remote), Ok(()));
        assert_eq!(caller.poll(fd, libc::POLLOUT, 0), Ok(libc::POLLOUT));
        assert_eq!(caller.write(fd, &[0; 50]), Ok(50));
        let (syn, _) = caller.netdev_receive().unwrap();
        let mut peer = Peer::answering(remote, &syn);
        peer.send(&caller, RST | ACK, 0);
        assert_eq!(caller.write(fd, &[0; 50]), Err(Errno(libc::ECONNREFUSED)));
    }
}

#[test]
fn garbage_from_the_network_is_survived() {
    let (caller, mut peer, _, fd) = accepted(V4);
    for packet in [&[][..], &[0x45], &[0; 40], &[0xff; 1500], &[0x60; 60], &[0x45; 65_535]] {
        caller.netdev_send(packet).unwrap();
    }
    // More than a link would carry, in one packet.
    peer.send(&caller, ACK | PSH, 10_000);
    assert_eq!(caller.read(fd, &mut [0; 20_000]), Ok(10_000));
}
