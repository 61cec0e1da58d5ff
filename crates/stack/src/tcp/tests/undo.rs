//! Reductions that turn out to be needless (RFC 3522, RFC 3708, RFC 4015).

use super::*;

fn config() -> TcpConfig {
    TcpConfig { congestion: Algorithm::NewReno, ..Scene::config() }
}

/// Ten segments are out, and the first was deemed lost and sent again.
fn one_sent_again() -> Scene {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(15);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1 <sack 1001:4001>");
    recv!(s, 20, ". 1:1001(1000) ack 1");
    assert_eq!((s.info().ssthresh, s.info().loss_state), (5000, LossState::Recovery));
    s
}

/// A D-SACK for all that was sent again: nothing was lost.
#[test]
fn everything_arrived_twice() {
    let mut s = one_sent_again();
    send!(s, 30, ". 1:1(0) ack 9001 <sack 1:1001>");
    assert_eq!((s.info().cwnd, s.info().ssthresh), (10_000, u32::MAX));
    assert_eq!(s.info().loss_state, LossState::Open);
    s.write(11_000);
    s.drain();
    assert_eq!(s.info().outstanding, 10_000);
}

/// It may come when nothing is outstanding, even overtaken by a later acknowledgement, and once only.
#[test]
fn everything_arrived_twice_and_long_ago() {
    let mut s = one_sent_again();
    send!(s, 30, ". 1:1(0) ack 10001");
    s.write(1000);
    send!(s, 40, ". 1:1(0) ack 11001");
    assert_eq!((s.info().outstanding, s.info().ssthresh), (0, 5000));
    send!(s, 41, ". 1:1(0) ack 10001 <sack 1:1001>");
    assert_eq!((s.info().cwnd, s.info().ssthresh), (10_000, u32::MAX));
    send!(s, 42, ". 1:1(0) ack 11001 <sack 1:1001>");
    assert_eq!((s.info().cwnd, s.info().ssthresh), (10_000, u32::MAX));
    assert_eq!(s.tcp.stats().dsacks_received, 2);
}

/// It is awaited for a timeout, and then an idle connection is as small as any.
#[test]
fn nothing_came_twice() {
    let mut s = one_sent_again();
    send!(s, 30, ". 1:1(0) ack 10001");
    assert!(!s.tcp.all_idle_for_test());
    s.quiet(2000);
    assert!(s.tcp.all_idle_for_test());
    send!(s, 2001, ". 1:1(0) ack 10001 <sack 1:1001>");
    assert_eq!(s.info().ssthresh, 5000);
}

/// A D-SACK for something older says nothing about this episode, nor does one while more than it tells of was sent again.
#[test]
fn not_everything_arrived_twice() {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(15);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1001");
    send!(s, 20, ". 1:1(0) ack 1001 <sack 2001:3001>");
    send!(s, 20, ". 1:1(0) ack 1001 <sack 4001:10001,sack 2001:3001>");
    s.drain();
    assert_eq!(s.info().retransmits, 2);
    send!(s, 30, ". 1:1(0) ack 1001 <sack 1:1001,sack 4001:10001,sack 2001:3001>");
    send!(s, 30, ". 1:1(0) ack 4001 <sack 1001:2001,sack 4001:10001>");
    assert_eq!(s.info().loss_state, LossState::Recovery);
    assert!(s.info().ssthresh < 10_000);
}

/// An echo from before the retransmission: the original was only late, whether a timer or acknowledgements had given it up.
#[test]
fn the_original_was_late() {
    let mut s = Scene::listen(TcpConfig { timestamps: true, ..config() });
    send!(s, 0, "S 0:0(0) win 65000 <mss 1012,sackOK,TS 100 0,wscale 0>");
    s.drain();
    let stamp =
        |text: &str| -> u32 { text.split("TS ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap() };
    let ours = stamp(&s.heard.pop_front().unwrap().1);
    send!(s, 10, &format!(". 1:1(0) ack 1 win 65000 <TS 110 {ours}>"));
    s.accept();
    s.write(5000);
    s.until(1000);
    assert_eq!((s.info().loss_state, s.info().cwnd), (LossState::Loss, 1000));
    let first = stamp(&s.heard.pop_front().unwrap().1);
    send!(s, 1001, &format!(". 1:1(0) ack 1001 win 65000 <TS 120 {first}>"));
    assert_eq!((s.info().loss_state, s.info().cwnd, s.info().ssthresh), (LossState::Open, 10_000, u32::MAX));
    assert_eq!(s.info().lost, 0);
    // The same with an echo of the retransmission: it was needed.
    s.heard.clear();
    send!(s, 1002, &format!(". 1:1(0) ack 5001 win 65000 <TS 121 {first}>"));
    s.write(5000);
    s.until(6000);
    let last = stamp(&s.heard.back().unwrap().1);
    send!(s, 6001, &format!(". 1:1(0) ack 6001 win 65000 <TS 130 {last}>"));
    assert_eq!(s.info().loss_state, LossState::Loss);
    assert!(s.info().ssthresh < 10_000);
}

/// Five segments are out, a tail probe and a timeout have fired, and more waits to be sent.
fn timed_out() -> Scene {
    let mut s = Scene::established(config());
    s.write(5000);
    s.until(239);
    s.heard.clear();
    recv!(s, 240, ". 1:1001(1000) ack 1");
    assert_eq!((s.info().cwnd, s.info().loss_state), (1000, LossState::Loss));
    s.write(5000);
    s
}

/// F-RTO (RFC 5682): what was sent once arrives after the timeout, so the timeout came too early. Nothing more is sent again.
#[test]
fn the_timeout_came_too_early() {
    let mut s = timed_out();
    send!(s, 250, ". 1:1(0) ack 2001");
    assert_eq!((s.info().cwnd, s.info().ssthresh), (10_000, u32::MAX));
    assert_eq!(s.info().loss_state, LossState::Open);
    recv!(s, 250, ". 5001:6001(1000) ack 1");
    // One at a time: the first acknowledgement may be for the retransmission, so new data is sent and tells (step 2b).
    let mut s = timed_out();
    send!(s, 250, ". 1:1(0) ack 1001");
    recv!(s, 250, ". 5001:6001(1000) ack 1");
    recv!(s, 250, ". 6001:7001(1000) ack 1");
    s.quiet(251);
    send!(s, 252, ". 1:1(0) ack 2001");
    assert_eq!((s.info().cwnd, s.info().ssthresh), (10_000, u32::MAX));
    recv!(s, 252, ". 7001:8001(1000) ack 1");
    assert_eq!(s.info().retransmits, 2);
}

/// The loss was real: the new data is told of as behind a hole (step 3a), and what is lost is sent again in slow start.
#[test]
fn the_timeout_was_right() {
    let mut s = timed_out();
    send!(s, 250, ". 1:1(0) ack 1001");
    recv!(s, 250, ". 5001:6001(1000) ack 1");
    recv!(s, 250, ". 6001:7001(1000) ack 1");
    send!(s, 260, ". 1:1(0) ack 1001 <sack 5001:6001>");
    recv!(s, 260, ". 1001:2001(1000) ack 1");
    send!(s, 260, ". 1:1(0) ack 1001 <sack 5001:7001>");
    recv!(s, 260, ". 2001:3001(1000) ack 1");
    send!(s, 270, ". 1:1(0) ack 2001 <sack 5001:7001>");
    assert_eq!((s.info().cwnd, s.info().loss_state), (2500, LossState::Loss));
    // A duplicate at once: nothing new is tried (step 2a).
    let mut s = timed_out();
    send!(s, 250, ". 1:1(0) ack 1");
    send!(s, 260, ". 1:1(0) ack 1001");
    recv!(s, 260, ". 1001:2001(1000) ack 1");
    recv!(s, 260, ". 2001:3001(1000) ack 1");
    s.quiet(261);
}

/// F-RTO needs new data, or room for it, to learn anything. Without, what is lost is sent again at the first acknowledgement.
#[test]
fn nothing_new_can_be_sent() {
    for window in [65_000, 5000] {
        let mut s = Scene::established(config());
        s.write(5000);
        s.until(239);
        s.heard.clear();
        recv!(s, 240, ". 1:1001(1000) ack 1");
        if window == 5000 {
            s.write(5000);
        }
        send!(s, 250, &format!(". 1:1(0) ack 1001 win {}", window - 1000));
        recv!(s, 250, ". 1001:2001(1000) ack 1");
        assert_eq!(s.info().loss_state, LossState::Loss, "window {window}");
    }
}

/// Nothing has been sent again yet: a D-SACK tells of a copy that the network made, and what was lost is lost.
#[test]
fn nothing_was_sent_again() {
    let mut s = Scene::established(config());
    s.write(10_000);
    s.until(15);
    s.heard.clear();
    let twice = ". 1:1(0) ack 1 <sack 1001:2001,sack 1001:4001>";
    s.burst(20, &[". 1:1(0) ack 1 <sack 1001:4001>", twice]);
    assert_eq!(s.tcp.stats().dsacks_received, 1);
    assert_eq!((s.info().ssthresh, s.info().loss_state), (5000, LossState::Recovery));
    recv!(s, 20, ". 1:1001(1000) ack 1");
}
