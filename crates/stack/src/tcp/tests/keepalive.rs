//! Keep-alive (RFC 9293 §3.8.4, MUST-24 to MUST-29).

use super::*;

fn on(s: &mut Scene) {
    s.set(|o| {
        o.keepalive =
            Some(Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 });
    });
}

/// Off unless asked for.
#[test]
fn off_by_default() {
    let mut s = Scene::established(Scene::config());
    s.quiet(100_000_000);
}

/// A silent peer is probed; an answer is enough.
#[test]
fn an_answering_peer_lives() {
    let mut s = Scene::established(Scene::config());
    on(&mut s);
    recv!(s, 10_010, ". 0:0(0) ack 1");
    send!(s, 10_020, ". 1:1(0) ack 1");
    recv!(s, 20_020, ". 0:0(0) ack 1");
    send!(s, 20_030, ". 1:1(0) ack 1");
    assert_eq!(s.state(), State::Established);
    assert_eq!(s.tcp.stats().keepalive_probes_sent, 2);
}

/// A dead one is given up.
#[test]
fn a_dead_peer_is_dropped() {
    let mut s = Scene::established(Scene::config());
    on(&mut s);
    for at in [10_010, 12_010, 14_010] {
        recv!(s, at, ". 0:0(0) ack 1");
    }
    recv!(s, 16_010, "R. 1:1(0) ack 1");
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
    assert_eq!(s.tcp.stats().keepalive_drops, 1);
}

/// The peer's probes are answered.
#[test]
fn probes_are_answered() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10_000, ". 0:0(0) ack 1");
    recv!(s, 10_000, ". 1:1(0) ack 1");
    send!(s, 20_000, ". 0:1(1) ack 1");
    s.until(20_000);
    assert_eq!(s.heard.len(), 1);
}

/// No pause at all between probes would be a timer that is always due.
#[test]
fn probes_without_a_pause_have_one() {
    let mut s = Scene::established(Scene::config());
    let none = Keepalive { idle: Duration::ZERO, interval: Duration::ZERO, probes: 3 };
    s.set(|options| options.keepalive = Some(none));
    s.write(100);
    recv!(s, 10, "P. 1:101(100) ack 1");
    send!(s, 15, ". 1:1(0) ack 101");
    for at in [25, 35, 45] {
        recv!(s, at, ". 100:100(0) ack 1");
    }
    recv!(s, 55, "R. 101:101(0) ack 1");
    assert_eq!(s.state(), State::Closed);
}

/// MUST-24: while data is on its way its own timers watch, and no probe is sent.
#[test]
fn no_probe_while_data_is_on_its_way() {
    let mut s = Scene::established(Scene::config());
    on(&mut s);
    s.write(10);
    s.until(60_000);
    assert!(s.texts().iter().all(|(_, text)| text.starts_with("P. 1:11(10)")), "{:?}", s.texts());
    assert_eq!((s.tcp.stats().keepalive_timeouts, s.state()), (0, State::Established));
}
