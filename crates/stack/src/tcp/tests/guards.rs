//! Lines that a whole suite once did without noticing: each is a guard, and each test here fails without its line.

use super::*;

/// RFC 5961 §7: challenges are limited for all connections of a lane together, with a limit that is drawn anew each second.
#[test]
fn the_lanes_challenges_are_limited() {
    let mut s = Scene::listen(TcpConfig { challenge_acks_per_second: 4, ..Scene::config() });
    for port in 0..30 {
        s.peer_port = 1000 + port;
        send!(s, 0, "S 0:0(0) <mss 1000>");
        s.drain();
        send!(s, 0, ". 1:1(0) ack 1");
    }
    s.heard.clear();
    assert_eq!(s.tcp.connections(), 30);
    let mut sent = 0;
    for second in 1..4 {
        for port in 0..30 {
            s.peer_port = 1000 + port;
            send!(s, second * 1000 + 10, "R 2:2(0)");
        }
        let challenges = s.tcp.stats().challenge_acks_sent - sent;
        sent += challenges;
        assert!((2..=5).contains(&challenges), "{challenges} in second {second}");
        s.drain();
        assert_eq!(s.heard.len() as u64, sent);
    }
    assert_eq!(s.tcp.stats().challenge_acks_limited, 90 - sent);
}

/// RFC 9293 §3.4.1, MUST-8: the same addresses and ports begin at another number later: one more for each four microseconds.
#[test]
fn initial_numbers_follow_the_clock() {
    let mut s = Scene::listen(Scene::config());
    let mut numbers = Vec::new();
    for ms in [0, 40, 1000] {
        send!(s, ms, "S 0:0(0) <mss 1000>");
        s.drain();
        numbers.push(s.iss.unwrap());
        s.heard.clear();
        send!(s, ms, "R 1:1(0)");
        assert_eq!(s.tcp.connections(), 0);
    }
    assert_eq!(numbers[1].wrapping_sub(numbers[0]), 40_000 / 4);
    assert_eq!(numbers[2].wrapping_sub(numbers[0]), 1_000_000 / 4);
}

/// RFC 9293 §3.10.7.4, SND.WL1: the window of a segment that was sent before the one that told the window last is old news.
/// (An older acknowledgement, SND.WL2, never gets so far.)
#[test]
fn an_overtaken_segment_does_not_bring_its_window() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, ". 11:21(10) ack 1 win 3000");
    assert_eq!(s.info().snd_wnd, 3000);
    send!(s, 21, ". 1:11(10) ack 1 win 60000");
    assert_eq!(s.info().snd_wnd, 3000);
    s.drain();
    s.heard.clear();
    s.write(9000);
    assert_eq!(s.texts().len(), 3, "what fits the window: {:?}", s.texts());
    // The next in order is news.
    send!(s, 22, ". 21:31(10) ack 1 win 5000");
    assert_eq!(s.info().snd_wnd, 5000);
}

/// RFC 9293 §3.10.7.4: of a segment that reaches beyond the window the rest is not here yet, and so neither is its FIN.
#[test]
fn a_fin_beyond_the_window_is_not_taken() {
    let mut config = Scene::config();
    config.recv_buffer = BufferSize { initial: 1460, max: 1460 };
    let mut s = Scene::established(config);
    send!(s, 10, ". 1:1001(1000) ack 1");
    s.drain();
    s.heard.clear();
    send!(s, 11, "F. 1001:1961(960) ack 1");
    assert_eq!(s.tcp.stats().after_window_bytes, 500);
    assert_eq!(s.state(), State::Established);
    s.drain();
    assert!(s.texts()[0].1.contains("ack 1461 "), "{:?}", s.texts());
    s.expect_read(1460);
    assert_eq!(s.read_result(), Err(RecvError::WouldBlock));
    send!(s, 12, "F. 1461:1961(500) ack 1");
    s.expect_read(500);
    assert_eq!((s.read_result(), s.state()), (Ok(0), State::CloseWait));
}

/// RFC 4987 §3.6: a cookie is good for the 64 seconds of its period and the next, also where the listener still sends them.
#[test]
fn an_old_cookie_is_none() {
    let config = TcpConfig { syn_cookies: SynCookies::Always, ..Scene::config() };
    for (later, taken) in [(60_000, 1), (140_000, 0), (64_000 * 31, 0)] {
        let mut s = Scene::listen(config.clone());
        send!(s, 0, "S 0:0(0) <mss 1460>");
        s.drain();
        let iss = s.iss;
        // Somebody else keeps the listener at it.
        s.peer_port = 7;
        send!(s, later, "S 0:0(0) <mss 1460>");
        s.drain();
        (s.peer_port, s.iss) = (PEER_PORT, iss);
        send!(s, later, ". 1:1(0) ack 1");
        assert_eq!((s.tcp.connections(), s.tcp.stats().cookies_bad), (taken, 1 - taken as u64), "{later}");
    }
}

/// RFC 7323 §4.3: what is echoed is the timestamp of the segment that the acknowledgement is about, not of one that came
/// early: the peer would measure too short a time.
#[test]
fn an_early_segment_does_not_move_the_timestamp() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1012,sackOK,TS 1000 0>");
    let ts = s.clone_ts();
    s.heard.clear();
    send!(s, 0, &format!(". 1:1(0) ack 1 <TS 1001 {ts}>"));
    s.accept();
    send!(s, 10, &format!(". 101:201(100) ack 1 <TS 1020 {ts}>"));
    recv!(s, 10, &format!(". 1:1(0) ack 1 <TS {} 1001,sack 101:201>", ts.wrapping_add(10)));
    // Sent before it and come after it: no old duplicate, and the one to be echoed.
    send!(s, 20, &format!(". 1:101(100) ack 1 <TS 1010 {ts}>"));
    recv!(s, 20, &format!(". 1:1(0) ack 201 <TS {} 1010>", ts.wrapping_add(20)));
    assert_eq!(s.dropped(DropReason::Paws), 0);
}

/// RFC 9293 §3.10.7.4, RFC 5961 §5.2: an acknowledgement of what was never sent is answered and nothing of it is believed.
#[test]
fn an_acknowledgement_of_the_future_is_refused() {
    let mut s = Scene::established(Scene::config());
    s.write(1000);
    s.heard.clear();
    send!(s, 20, "P. 1:11(10) ack 1002 win 7");
    assert_eq!((s.info().outstanding, s.info().snd_wnd), (1000, 65_000));
    assert_eq!(s.read_result(), Err(RecvError::WouldBlock));
    assert_eq!((s.dropped(DropReason::AckOutOfRange), s.tcp.stats().acks_for_unsent), (1, 1));
    recv!(s, 20, ". 1001:1001(0) ack 1");
}

/// RFC 5681 §3.1, equation 4: a loss or a timeout with one segment under way leaves a threshold of two.
#[test]
fn the_threshold_is_two_segments_at_least() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno] {
        let mut s = Scene::established(TcpConfig { congestion, initial_window: 1, ..Scene::config() });
        s.write(1000);
        s.until(2000);
        assert_eq!((s.info().cwnd, s.info().ssthresh), (1000, 2000), "{congestion:?}");
    }
}
