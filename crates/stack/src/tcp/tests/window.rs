//! Windows: ours and the peer's, closed and reopened.

use super::*;

/// RFC 9293 §3.8.6.1, MUST-35 to MUST-37: a closed window is probed at growing intervals, as long as it is answered.
#[test]
fn a_closed_window_is_probed() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:1(0) ack 1 win 0");
    s.write(500);
    for at in [220, 640, 1480] {
        recv!(s, at, ". 0:0(0) ack 1");
        send!(s, at + 1, ". 1:1(0) ack 1 win 0");
    }
    assert_eq!(s.state(), State::Established);
    send!(s, 1600, ". 1:1(0) ack 1 win 5000");
    recv!(s, 1600, "P. 1:501(500) ack 1");
    assert_eq!(s.tcp.stats().window_probes_sent, 3);
}

/// A window that never opens and is not answered ends the connection.
#[test]
fn unanswered_probes_end_it() {
    let mut s = Scene::established(TcpConfig { retries: 4, ..Scene::config() });
    send!(s, 10, ". 1:1(0) ack 1 win 0");
    s.write(500);
    s.until(60_000);
    assert_eq!(s.state(), State::Closed);
    assert_eq!(s.tcp.stats().persist_drops, 1);
}

/// RFC 9293 §3.8.6.2.1 (MUST-38): a small window is not filled with small segments, until the timer says so.
#[test]
fn silly_window_of_the_peer() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:1(0) ack 1 win 100");
    s.write(500);
    s.quiet(219);
    recv!(s, 220, ". 1:101(100) ack 1");
}

/// RFC 9293 §3.8.6.2.2 (MUST-39): our window reopens in steps worth having, and never shrinks (SHLD-14).
#[test]
fn our_window_closes_and_reopens() {
    let mut config = Scene::config();
    config.recv_buffer = BufferSize { initial: 4380, max: 4380 };
    let mut s = Scene::established(config);
    for n in 0..4u32 {
        send!(s, 10, &format!(". {}:{}(1095) ack 1", 1 + n * 1095, 1096 + n * 1095));
    }
    s.until(11);
    assert!(s.texts().last().unwrap().1.contains("ack 4381 win 0"), "{:?}", s.texts());
    s.heard.clear();
    send!(s, 12, ". 4381:4382(1) ack 1");
    recv!(s, 12, ". 1:1(0) ack 4381 win 0");
    s.expect_read(500);
    s.quiet(100);
    s.expect_read(3880);
    recv!(s, 100, ". 1:1(0) ack 4381 win 4380");
}

/// RFC 9293 §3.8.6.1 (MUST-34): a peer that shrinks its window is survived.
#[test]
fn a_shrinking_window() {
    let mut s = Scene::established(Scene::config());
    s.write(4000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 1001 win 500");
    s.write(1000);
    s.until(700);
    send!(s, 701, ". 1:1(0) ack 4001 win 9000");
    s.until(6000);
    assert!(s.texts().iter().any(|(_, t)| t.contains("4001:5001")), "{:?}", s.texts());
}

/// A receiver that reads fast gets a greater buffer.
#[test]
fn the_receive_buffer_grows() {
    let mut s = Scene::established(Scene::config());
    let before = s.info().recv_buffer;
    let mut at = 1u32;
    for round in 0..20u64 {
        s.until(100 + round * 12);
        for _ in 0..150 {
            s.speak(100 + round * 12, &format!(". {at}:{}(1000) ack 1", at.wrapping_add(1000)));
            at = at.wrapping_add(1000);
            s.expect_read(1000);
        }
    }
    assert!(s.info().recv_buffer > before, "{} {before}", s.info().recv_buffer);
}

/// Data beyond the window is cut off and counted.
#[test]
fn data_beyond_the_window() {
    let mut config = Scene::config();
    config.recv_buffer = BufferSize { initial: 1460, max: 1460 };
    let mut s = Scene::established(config);
    send!(s, 10, ". 1001:1861(860) ack 1");
    s.drain();
    send!(s, 10, ". 1:1001(1000) ack 1");
    s.expect_read(1460);
    assert_eq!(s.tcp.stats().after_window_bytes, 400);
}

/// The peer's retransmission acknowledges something new: its window counts, or the right edge would move beyond what the
/// peer allowed.
#[test]
fn a_retransmission_that_acknowledges_brings_its_window() {
    let mut s = Scene::established(Scene::config());
    s.write(3000);
    send!(s, 20, ". 1001:2001(1000) ack 1 win 5000");
    assert_eq!(s.info().snd_wnd, 5000);
    send!(s, 21, ". 1:1001(1000) ack 2001 win 3000");
    assert_eq!((s.info().snd_wnd, s.info().outstanding), (3000, 1000));
    // An old acknowledgement does not.
    send!(s, 22, ". 1:1(0) ack 1001 win 9000");
    assert_eq!(s.info().snd_wnd, 3000);
}

/// RFC 9293 §3.8.6.1, MUST-37: data that a shrunk window keeps out is tried for as long as the peer answers.
#[test]
fn a_window_shut_on_data_in_flight() {
    let mut s = Scene::established(TcpConfig { retries: 3, sack: false, ..Scene::config() });
    s.write(1000);
    for at in (20..200_000).step_by(500) {
        send!(s, at, ". 1:1(0) ack 1 win 0");
    }
    assert_eq!(s.state(), State::Established);
    s.heard.clear();
    send!(s, 200_001, ". 1:1(0) ack 1 win 9000");
    s.until(400_000);
    assert!(s.texts().iter().any(|(_, t)| t.starts_with("P. 1:1001(1000)")), "{:?}", s.texts());
}

/// RFC 5681 §4.1: an idle window is reduced when transmission begins again, not while the peer's window is shut.
#[test]
fn a_shut_window_is_no_reason_to_restart() {
    let mut s = Scene::established(Scene::config());
    s.write(10_000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 10001 win 0");
    let cwnd = s.info().cwnd;
    s.write(30_000);
    s.until(4000);
    assert!(s.texts().iter().all(|(_, text)| text.contains("(0)")), "{:?}", s.texts());
    assert_eq!(s.info().cwnd, cwnd);
    s.heard.clear();
    send!(s, 4000, ". 1:1(0) ack 10001");
    s.until(4000);
    assert_eq!(s.texts().len(), 10, "the initial window: {:?}", s.texts());
}

/// RFC 7323 §2.2: the window of a SYN is not scaled; it is whole segments, timestamps taken off where they are agreed on.
#[test]
fn the_first_window_is_whole_segments() {
    let config =
        TcpConfig { recv_buffer: BufferSize { initial: 65_536, max: 1 << 20 }, ..TcpConfig::default() };
    let mut s = Scene::listen(config.clone());
    send!(s, 0, "S 0:0(0) <mss 1460,sackOK,TS 7 0,wscale 7>");
    s.drain();
    assert!(s.texts()[0].1.contains("win 65160 "), "{:?}", s.texts());
    s.heard.clear();
    let mut s = Scene::connecting(config);
    s.drain();
    assert!(s.texts()[0].1.contains("win 64240 "), "{:?}", s.texts());
    s.heard.clear();
    let mut s = Scene::established(TcpConfig { window_scaling: false, ..Scene::config() });
    s.write(1);
    recv!(s, 10, "P. 1:2(1) ack 1 win 65535");
}

/// A buffer of a size that was asked for needs no greater shift than shows it.
#[test]
fn a_fixed_buffer_bounds_the_shift() {
    let mut s = Scene::new(Scene::config());
    let socket = SocketOptions { recv_buffer: Some(20_000), ..SocketOptions::default() };
    let options = ListenOptions { socket, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    send!(s, 0, "S 0:0(0) <mss 1000,wscale 7>");
    recv!(s, 0, "S. 0:0(0) ack 1 win 18980 <mss 1460,wscale 0>");
}
