//! Explicit congestion notification (RFC 3168 §6.1).

use super::*;

fn agreed() -> Scene {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "SEW 0:0(0) win 65000 <mss 1000,sackOK>");
    recv!(s, 0, "S.E 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1");
    s.accept();
    assert!(s.info().ecn);
    s
}

/// ECT(0) on new data, not on acknowledgements and retransmissions.
#[test]
fn data_is_marked_capable() {
    let mut s = agreed();
    s.write(1000);
    assert_eq!(s.heard[0].2.traffic_class, 2);
    s.heard.clear();
    send!(s, 11, ". 1:1001(1000) ack 1");
    s.until(60);
    assert_eq!(s.heard[0].2.traffic_class, 0);
    s.heard.clear();
    s.until(2000);
    assert!(s.heard.iter().all(|(_, _, out)| out.traffic_class == 0) && !s.heard.is_empty());
}

/// CE is echoed until the sender has reacted.
#[test]
fn marks_are_echoed() {
    let mut s = agreed();
    s.ecn = 3;
    send!(s, 20, ". 1:1001(1000) ack 1");
    recv!(s, 20, ".E 1:1(0) ack 1001");
    s.ecn = 2;
    send!(s, 21, ". 1001:2001(1000) ack 1");
    recv!(s, 21, ".E 1:1(0) ack 2001");
    send!(s, 22, ".W 2001:3001(1000) ack 1");
    recv!(s, 22, ". 1:1(0) ack 3001");
}

/// An echo reduces the window once a round, and the next data says so.
#[test]
fn echoes_reduce_the_window() {
    let mut s = agreed();
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    s.write(20_000);
    for n in 1..=10 {
        send!(s, 20, &format!(".E 1:1(0) ack {}", 1 + n * 1000));
    }
    s.until(20);
    assert_eq!(s.tcp.stats().ecn_reductions, 1);
    assert_eq!(s.info().ssthresh, 7000);
    let texts = s.texts();
    assert!(texts[0].1.starts_with(".W "), "{texts:?}");
    assert!(texts[1..].iter().all(|(_, t)| !t.starts_with(".W")));
}

/// Asked for by us, agreed or not; not asked again when the SYN is lost (§6.1.1.1).
#[test]
fn asking() {
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::Request, ..Scene::config() });
    recv!(s, 0, "SEW 0:0(0)");
    recv!(s, 1000, "S 0:0(0)");
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::Request, ..Scene::config() });
    recv!(s, 0, "SEW 0:0(0)");
    send!(s, 10, "S.E 0:0(0) ack 1 <mss 1000>");
    assert!(s.info().ecn);
    let mut s = Scene::listen(TcpConfig { ecn: Ecn::Off, ..Scene::config() });
    send!(s, 0, "SEW 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
}

/// RFC 3168 §6.1.1, in a simultaneous open: ECN is agreed on if both ask for it.
#[test]
fn both_ask_at_once() {
    for (ecn, theirs, ours) in
        [(Ecn::Request, "SEW", "S.E"), (Ecn::Request, "S", "S."), (Ecn::Accept, "SEW", "S.")]
    {
        let mut s = Scene::connecting(TcpConfig { ecn, ..Scene::config() });
        s.heard.clear();
        send!(s, 10, &format!("{theirs} 0:0(0) win 5000 <mss 1000>"));
        recv!(s, 10, &format!("{ours} 0:0(0) ack 1"));
        send!(s, 20, &format!("{ours} 0:0(0) ack 1 win 5000 <mss 1000>"));
        assert_eq!((s.state(), s.info().ecn), (State::Established, ours == "S.E"));
    }
}

/// RFC 3168 §6.1.1: ECE and CWR both in a SYN-ACK are no agreement: a peer that echoes all bits of our SYN knows nothing of it.
#[test]
fn an_echo_of_our_flags_is_no_agreement() {
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::Request, ..Scene::config() });
    recv!(s, 0, "SEW 0:0(0)");
    send!(s, 10, "S.EW 0:0(0) ack 1 <mss 1000>");
    assert_eq!((s.state(), s.info().ecn), (State::Established, false));
}

/// RFC 3168 §6.1.2, RFC 5681 §3.2: a loss in the round in which an echo has reduced the window reduces it no further.
#[test]
fn a_mark_and_a_loss_are_one_reduction() {
    let mut s = Scene::listen(TcpConfig { congestion: Algorithm::NewReno, ..Scene::config() });
    send!(s, 0, "SEW 0:0(0) win 65000 <mss 1000,sackOK>");
    s.drain();
    send!(s, 10, ". 1:1(0) ack 1");
    s.accept();
    s.write(10_000);
    s.until(10);
    send!(s, 20, ".E 1:1(0) ack 2001");
    assert_eq!((s.info().ssthresh, s.info().loss_state), (5000, LossState::Reduced));
    send!(s, 20, ". 1:1(0) ack 2001 <sack 3001:6001>");
    assert_eq!((s.info().ssthresh, s.info().loss_state), (5000, LossState::Recovery));
}

/// RFC 3168 §6.1.2: an echo on the acknowledgement of all that was out reduces the window as any other, and the next data says so.
#[test]
fn an_echo_on_the_last_acknowledgement() {
    let mut s = agreed();
    s.write(1000);
    assert_eq!(s.info().cwnd, 10_000);
    s.heard.clear();
    send!(s, 20, ".E 1:1(0) ack 1001");
    assert_eq!(s.tcp.stats().ecn_reductions, 1);
    let after = s.info();
    assert_eq!((after.cwnd, after.ssthresh, after.loss_state), (7000, 7000, LossState::Open));
    s.write(1000);
    recv!(s, 20, "P.W 1001:2001(1000) ack 1");
    send!(s, 30, ". 1:1(0) ack 2001");
    assert_eq!((s.info().loss_state, s.tcp.stats().ecn_reductions), (LossState::Open, 1));
    s.write(500);
    recv!(s, 30, "P. 2001:2501(500) ack 1");
    send!(s, 40, ".E 1:1(0) ack 2501");
    assert_eq!(s.tcp.stats().ecn_reductions, 2);
}
