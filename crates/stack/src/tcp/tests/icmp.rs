//! ICMP errors and path MTU (RFC 5927, RFC 1191, RFC 4821).

use super::*;

impl Scene {
    pub(super) fn icmp(&mut self, seq: u32, kind: IcmpErrorKind) {
        let seq = self.iss.unwrap().wrapping_add(seq).to_be_bytes();
        let (a, b) = (self.our_port.to_be_bytes(), self.peer_port.to_be_bytes());
        let quoted = [a[0], a[1], b[0], b[1], seq[0], seq[1], seq[2], seq[3]];
        let error = crate::packet::IcmpError { local: US, remote: PEER, protocol: 6, quoted, kind };
        self.with(|tcp, cx| tcp.icmp_error(cx, &error));
        self.drain();
    }
}

/// Only an error that quotes something in flight counts.
#[test]
fn quoted_numbers_must_be_in_flight() {
    let mut s = Scene::established(Scene::config());
    s.icmp(1, IcmpErrorKind::PacketTooBig(600));
    s.write(1000);
    s.icmp(1001, IcmpErrorKind::PacketTooBig(600));
    s.icmp(0, IcmpErrorKind::PacketTooBig(600));
    assert_eq!(s.info().pmtu, 1500);
    assert_eq!(s.tcp.stats().icmp_ignored, 3);
}

/// RFC 1191 §6.1: what was too big goes again at once, smaller; no congestion is implied.
#[test]
fn packet_too_big() {
    let mut s = Scene::established(Scene::config());
    s.write(2000);
    s.until(10);
    s.heard.clear();
    s.icmp(1, IcmpErrorKind::PacketTooBig(640));
    let sent: Vec<_> = s.texts().iter().map(|(_, t)| t.split(" ack").next().unwrap().to_string()).collect();
    assert_eq!(sent, [". 1:601(600)", ". 601:1001(400)", ". 1001:1601(600)", "P. 1601:2001(400)"]);
    assert_eq!((s.info().pmtu, s.info().ssthresh), (640, u32::MAX));
    assert_eq!(s.tcp.stats().pmtu_lowered, 1);
}

/// A link that becomes narrower is like a path that does, for all connections, and is forgotten when it grows.
#[test]
fn a_narrower_link() {
    let mut s = Scene::established(Scene::config());
    s.write(2000);
    s.until(10);
    s.heard.clear();
    for mtu in [640, 9000] {
        s.with(|tcp, cx| tcp.narrow(cx, |_, _| Some(mtu)));
        s.drain();
    }
    let sent: Vec<_> = s.texts().iter().map(|(_, t)| t.split(" ack").next().unwrap().to_string()).collect();
    assert_eq!(sent, [". 1:601(600)", ". 601:1001(400)", ". 1001:1601(600)", "P. 1601:2001(400)"]);
    assert_eq!((s.info().pmtu, s.info().ssthresh), (640, u32::MAX));
}

/// RFC 8201 §5.2: the next connection to that host knows, for ten minutes; what it announces is not changed by it.
#[test]
fn the_next_connection_knows_the_path() {
    let mut s = Scene::established(Scene::config());
    s.write(1000);
    s.icmp(1, IcmpErrorKind::PacketTooBig(640));
    send!(s, 20, "R 1:1(0)");
    for (start, size, announced) in [(1000, 600, 640), (700_000, 1000, 1500)] {
        (s.peer_port, s.written, s.iss) = (s.peer_port + 1, 0, None);
        s.until(start);
        s.heard.clear();
        send!(s, start, "S 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
        s.drain();
        assert!(s.texts()[0].1.contains("<mss 1460,"), "{:?}", s.texts());
        s.heard.clear();
        send!(s, start + 10, ". 1:1(0) ack 1 win 65000");
        s.accept();
        s.write(1000);
        assert_eq!((s.info().snd_mss, s.info().pmtu), (size, announced));
        assert_eq!(s.texts().len(), if size == 600 { 2 } else { 1 });
        send!(s, start + 20, "R 1:1(0)");
    }
}

/// An absurd MTU is not believed, an old router's silence is answered with the next plateau.
#[test]
fn absurd_and_missing_values() {
    let mut s = Scene::established(Scene::config());
    s.write(1000);
    s.icmp(1, IcmpErrorKind::PacketTooBig(0));
    assert_eq!(s.info().pmtu, 1492);
    s.icmp(1, IcmpErrorKind::PacketTooBig(68));
    assert_eq!(s.info().pmtu, 552);
}

/// RFC 1122 §4.2.3.9, RFC 5461: hard errors end an attempt, not a connection.
#[test]
fn unreachable() {
    let mut s = Scene::connecting(Scene::config());
    recv!(s, 0, "S 0:0(0)");
    s.icmp(0, IcmpErrorKind::HostUnreachable);
    assert_eq!(s.state(), State::SynSent);
    s.icmp(0, IcmpErrorKind::PortUnreachable);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Refused)));

    let mut s = Scene::established(TcpConfig { retries: 1, ..Scene::config() });
    s.write(10);
    s.icmp(1, IcmpErrorKind::PortUnreachable);
    s.icmp(1, IcmpErrorKind::HostUnreachable);
    assert_eq!(s.state(), State::Established);
    s.until(100_000);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Unreachable)));
}

/// RFC 4821 §7.7: big segments that vanish again and again are made smaller; after ten minutes the old size is tried.
#[test]
fn black_hole() {
    let mut config = TcpConfig { sack: false, black_hole_mss: 512, ..Scene::config() };
    config.black_hole_retries = 2;
    let mut s = Scene::established(config);
    s.write(1000);
    for at in [10, 220, 640] {
        recv!(s, at, "P. 1:1001(1000) ack 1");
    }
    recv!(s, 1480, ". 1:513(512) ack 1");
    send!(s, 1500, ". 1:1(0) ack 513");
    recv!(s, 1500, "P. 513:1001(488) ack 1");
    send!(s, 1510, ". 1:1(0) ack 1001");
    assert_eq!((s.info().snd_mss, s.tcp.stats().black_hole_activations), (512, 1));
    s.until(700_000);
    s.write(10);
    send!(s, 700_010, ". 1:1(0) ack 1011");
    assert_eq!(s.info().snd_mss, 1000);
}

/// RFC 1191 §3: an error never makes packets larger, whatever it says, and is no news then.
#[test]
fn no_error_widens_the_path() {
    let mut s = Scene::established(Scene::config());
    s.write(1000);
    s.icmp(1, IcmpErrorKind::PacketTooBig(640));
    for mtu in [640, 1000, 9000] {
        s.icmp(1, IcmpErrorKind::PacketTooBig(mtu));
        assert_eq!((s.info().pmtu, s.info().snd_mss, s.tcp.stats().pmtu_lowered), (640, 600, 1), "{mtu}");
    }
}
