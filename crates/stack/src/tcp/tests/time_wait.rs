//! TIME-WAIT (RFC 9293 §3.6.1, RFC 6191, RFC 1337).

use super::*;

fn waiting(config: TcpConfig) -> Scene {
    let mut s = Scene::established(config);
    s.close();
    recv!(s, 10, "F. 1:1(0) ack 1");
    send!(s, 20, "F. 1:1(0) ack 2");
    recv!(s, 20, ". 2:2(0) ack 2");
    assert_eq!(s.tcp.time_waits(), 1);
    s
}

/// A retransmitted FIN is acknowledged and the time starts anew.
#[test]
fn a_repeated_fin() {
    let mut s = waiting(Scene::config());
    send!(s, 30_000, "F. 1:1(0) ack 2");
    recv!(s, 30_000, ". 2:2(0) ack 2");
    s.quiet(60_100);
    assert_eq!(s.tcp.time_waits(), 1);
    s.quiet(90_001);
    assert_eq!(s.tcp.time_waits(), 0);
}

/// RFC 9293 §3.10.7.4, fifth step: what acknowledges nothing is dropped.
#[test]
fn a_segment_without_acknowledgement_is_dropped() {
    let mut s = waiting(Scene::config());
    send!(s, 30, "F 2:2(0)");
    s.quiet(40);
    assert_eq!(s.tcp.time_waits(), 1);
}

/// RFC 1337: resets do not end it.
#[test]
fn resets_are_ignored() {
    let mut s = waiting(Scene::config());
    send!(s, 30, "R 2:2(0)");
    s.quiet(40);
    assert_eq!(s.tcp.time_waits(), 1);
}

/// Unless its sender asks for a new connection: it resets what we answered its SYN, exactly.
#[test]
fn a_peer_that_begins_anew_may_end_it() {
    let mut s = waiting(Scene::config());
    send!(s, 100, "S -100:-100(0) <mss 1000>");
    recv!(s, 100, ". 2:2(0) ack 2");
    send!(s, 101, "R 3:3(0)");
    s.quiet(102);
    assert_eq!((s.tcp.time_waits(), s.tcp.stats().time_wait_reset), (1, 0));
    send!(s, 102, "R 2:2(0)");
    assert_eq!((s.tcp.time_waits(), s.tcp.stats().time_wait_reset), (0, 1));
    send!(s, 107, "S -100:-100(0) <mss 1000>");
    recv!(s, 107, "S. 0:0(0) ack 4294967197");
}

/// RFC 6191 §2: a SYN beyond the old numbers begins a new connection; an old one does not.
#[test]
fn a_newer_syn_reuses_it() {
    let mut s = waiting(Scene::config());
    send!(s, 100, "S -100:-100(0) <mss 1000>");
    recv!(s, 100, ". 2:2(0) ack 2");
    let old = s.iss.unwrap();
    send!(s, 200, "S 100:100(0) <mss 1000>");
    recv!(s, 200, "S. 0:0(0) ack 101");
    assert!(s.iss.unwrap().wrapping_sub(old) < 1 << 20);
    assert_eq!((s.tcp.time_waits(), s.tcp.stats().time_wait_reused), (0, 1));
}

/// The oldest give way when there are too many.
#[test]
fn bounded() {
    let mut s = Scene::listen(TcpConfig { max_time_wait: 3, ..Scene::config() });
    for port in 0..10 {
        s.peer_port = 100 + port;
        s.speak(0, "S 0:0(0) <mss 1000>");
        s.drain();
        s.speak(0, ". 1:1(0) ack 1");
        s.accept();
        s.close();
        s.speak(0, "F. 1:1(0) ack 2");
        s.drain();
    }
    assert_eq!(s.tcp.time_waits(), 3);
    assert_eq!(s.tcp.stats().time_wait_overflow, 7);
    s.until(61_000);
    assert_eq!(s.tcp.time_waits(), 0);
}

/// A reset that acknowledges something is a reset, too: none is answered, or two ends could go on for ever.
#[test]
fn resets_are_not_answered() {
    let mut s = waiting(Scene::config());
    send!(s, 30, "R. 99:99(0) ack 2");
    send!(s, 31, "R. 2:2(0) ack 2");
    s.quiet(40);
    assert_eq!(s.tcp.time_waits(), 1);
}

/// An acknowledgement that is where it should be, as that of our FIN sent again, needs no answer.
#[test]
fn a_plain_acknowledgement_is_not_answered() {
    let mut s = waiting(Scene::config());
    send!(s, 30, ". 2:2(0) ack 2");
    s.quiet(40);
    // Elsewhere it is told where we are.
    send!(s, 50, ". 90:90(0) ack 2");
    recv!(s, 50, ". 2:2(0) ack 2");
}

/// RFC 6191 §2: with timestamps a newer one begins a new connection whatever its number, and an older one does not.
#[test]
fn timestamps_tell_a_new_connection_from_an_old_segment() {
    for (seq, stamp, reused) in [(-5000, 101, 1), (5000, 99, 0), (5000, 100, 1), (-5000, 100, 0)] {
        let mut s = Scene::listen(TcpConfig::default());
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,TS 100 0>");
        s.drain();
        send!(s, 10, ". 1:1(0) ack 1 <TS 100 0>");
        s.accept();
        s.close();
        send!(s, 20, "F. 1:1(0) ack 2 <TS 100 0>");
        s.drain();
        assert_eq!(s.tcp.time_waits(), 1);
        send!(s, 30, &format!("S {seq}:{seq}(0) <mss 1000,TS {stamp} 0>"));
        assert_eq!(s.tcp.stats().time_wait_reused, reused, "SYN at {seq} with {stamp}");
    }
}

/// RFC 6191 §2: the new connection begins beyond all numbers of the old one, and the greatest window.
#[test]
fn a_new_connection_begins_beyond_the_old_one() {
    let mut s = waiting(Scene::config());
    let old = s.iss.unwrap();
    send!(s, 200, "S 100:100(0) <mss 1000>");
    s.drain();
    assert_eq!(s.iss.unwrap().wrapping_sub(old), 2 + 64_001);
}
