//! How connections end, and what is told of them: as Linux does where RFC 9293 leaves it open.

use super::*;

/// `TCP_INFO`'s 32-bit field at this place.
fn field(info: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(info[at..at + 4].try_into().unwrap())
}

/// A reset after the peer's FIN is a broken pipe; what was read before is the end of the stream all the same.
#[test]
fn a_reset_behind_the_peers_fin() {
    let (caller, mut peer, _, fd) = accepted(V4);
    peer.send(&caller, FIN | ACK, 0);
    peer.expect(&caller, ACK, 0);
    peer.send(&caller, RST | ACK, 0);
    assert_eq!(caller.read(fd, &mut [0; 10]), Ok(0));
    let told = caller.getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, 4).unwrap();
    assert_eq!(told, libc::EPIPE.to_ne_bytes());
}

/// Once a failed attempt has been told, the socket is as before it, and may try again.
#[test]
fn a_failed_attempt_leaves_a_socket() {
    let (flags, _, remote) = V4;
    let remote: SocketAddr = remote.parse().unwrap();
    let caller = Caller::new(packetdrill_shim::make, flags);
    let fd = caller.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).unwrap();
    assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EINPROGRESS)));
    Peer::answering(remote, &caller.netdev_receive().unwrap().0).send(&caller, RST | ACK, 0);
    assert_eq!(caller.connect(fd, remote), Err(Errno(libc::ECONNREFUSED)));
    assert_eq!(caller.read(fd, &mut [0; 10]), Err(Errno(libc::ENOTCONN)));
    assert_eq!(caller.write(fd, b"x"), Err(Errno(libc::EPIPE)));
    assert_eq!(caller.connect(fd, remote), Err(Errno(libc::EINPROGRESS)));
    let mut peer = Peer::answering(remote, &caller.netdev_receive().unwrap().0);
    peer.send(&caller, SYN | ACK, 0);
    peer.expect(&caller, ACK, 0);
    assert_eq!(caller.connect(fd, remote), Ok(()));
}

/// Data for a socket that was shut down both ways is refused; after `SHUT_RD` alone it is still taken.
#[test]
fn data_for_a_socket_that_is_shut() {
    let (caller, mut peer, _, fd) = accepted(V4);
    caller.shutdown(fd, libc::SHUT_RD).unwrap();
    peer.send(&caller, ACK | PSH, 10);
    peer.expect(&caller, ACK, 0);
    assert_eq!(caller.read(fd, &mut [0; 100]), Ok(10));
    caller.shutdown(fd, libc::SHUT_WR).unwrap();
    peer.expect(&caller, FIN | ACK, 0);
    peer.send(&caller, ACK, 0);
    peer.send(&caller, ACK | PSH, 10);
    let (packet, _) = caller.netdev_receive().unwrap();
    assert_eq!(packet[33], 4, "a reset without ACK");
}

/// What has passed is counted as Linux counts it.
#[test]
fn segments_and_bytes_are_counted() {
    let (caller, mut peer, _, fd) = accepted(V4);
    let info = || caller.getsockopt(fd, libc::SOL_TCP, libc::TCP_INFO, 320).unwrap();
    assert_eq!([136, 140, 152, 156].map(|at| field(&info(), at)), [0, 2, 0, 0]);
    caller.write(fd, &[0; 500]).unwrap();
    peer.expect(&caller, ACK | PSH, 500);
    peer.expect(&caller, ACK | PSH, 500);
    peer.send(&caller, ACK | PSH, 100);
    peer.expect(&caller, ACK, 0);
    // Segments out and in, with data in and out; bytes acknowledged, received, sent, sent again.
    assert_eq!([136, 140, 152, 156].map(|at| field(&info(), at)), [3, 3, 1, 2]);
    assert_eq!([120, 128, 200, 208].map(|at| field(&info(), at)), [500, 100, 1000, 500]);
    caller.shutdown(fd, libc::SHUT_WR).unwrap();
    peer.expect(&caller, FIN | ACK, 0);
    peer.send(&caller, FIN | ACK, 0);
    peer.expect(&caller, ACK, 0);
    assert_eq!((info()[0], field(&info(), 120)), (7, 501), "in TIME-WAIT the socket is closed");
}

/// An address that is taken cannot be bound, unless both say so and nobody listens there.
#[test]
fn an_address_in_use() {
    let (caller, _, listener, accepted) = accepted(V4);
    let local: SocketAddr = V4.1.parse().unwrap();
    let other = |reuse: bool| {
        let fd = caller.socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        caller.setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &i32::from(reuse).to_ne_bytes()).unwrap();
        let bound = caller.bind(fd, local);
        caller.close(fd).unwrap();
        bound
    };
    assert_eq!(other(true), Err(Errno(libc::EADDRINUSE)), "somebody listens");
    caller.close(listener).unwrap();
    assert_eq!(other(false), Err(Errno(libc::EADDRINUSE)), "a connection is there");
    assert_eq!(other(true), Ok(()));
    caller.close(accepted).unwrap();
    assert_eq!(other(false), Ok(()));
}

/// `IP_TTL` and `IPV6_UNICAST_HOPS` are in the header of what is sent from then on, -1 is the lane's own again.
#[test]
fn the_hop_limit_of_a_socket() {
    for (ends, level, name, at) in
        [(V4, libc::IPPROTO_IP, libc::IP_TTL, 8), (V6, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, 7)]
    {
        let (caller, mut peer, _, fd) = accepted(ends);
        for (told, shown) in [(None, 64), (Some(255), 255), (Some(-1), 64)] {
            if let Some(hops) = told {
                caller.setsockopt(fd, level, name, &i32::to_ne_bytes(hops)).unwrap();
            }
            assert_eq!(caller.getsockopt(fd, level, name, 4).unwrap(), i32::to_ne_bytes(shown));
            assert_eq!(caller.write(fd, &[0; 10]), Ok(10));
            let (packet, _) = caller.netdev_receive().unwrap();
            assert_eq!(i32::from(packet[at]), shown);
            peer.take(&packet);
            peer.send(&caller, ACK, 0);
        }
        assert_eq!(caller.setsockopt(fd, level, name, &i32::to_ne_bytes(0)), Err(Errno(libc::EINVAL)));
    }
}

/// A FIN behind what was asked waits for ours, as in Linux.
#[test]
fn a_farewell_waits_for_ours() {
    let (caller, mut peer, _, fd) = accepted(V4);
    peer.send(&caller, ACK | PSH, 100);
    peer.expect(&caller, ACK, 0);
    assert_eq!(caller.read(fd, &mut [0; 100]), Ok(100));
    let begun = caller.now().unwrap();
    peer.send(&caller, FIN | ACK, 0);
    let at = peer.expect(&caller, ACK, 0);
    assert!((35_000..45_000).contains(&(at - begun)), "{}", at - begun);
}
