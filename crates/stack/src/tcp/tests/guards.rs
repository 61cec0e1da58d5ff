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

/// RFC 2018 §3: a block that begins before what is acknowledged, or ends behind what was sent, is nothing that the peer has. Nothing
/// of it is believed: a liar would have our segments counted as arrived.
#[test]
fn blocks_that_cannot_be_are_not_believed() {
    let mut s = Scene::established(Scene::config());
    s.write(10_000);
    send!(s, 20, ". 1:1(0) ack 2001");
    for block in ["2001:20001", "3001:10002", "1:6001", "1001:9001"] {
        send!(s, 21, &format!(". 1:1(0) ack 2001 <sack 5001:5001,sack {block}>"));
        assert_eq!((s.info().segments.sacked, s.info().sacked), (0, 0), "{block}");
    }
    send!(s, 22, ". 1:1(0) ack 2001 <sack 9001:10001>");
    assert_eq!(s.info().segments.sacked, 1);
}

/// RFC 6298 §3, Karn's rule: an acknowledgement of something that was sent again measures nothing, not even by what it
/// acknowledges with it, which has waited behind the hole.
#[test]
fn what_waited_behind_a_retransmission_measures_nothing() {
    let mut s = Scene::established(TcpConfig { sack: false, ..Scene::config() });
    s.write(2000);
    s.until(220);
    assert_eq!(s.info().retransmits, 1);
    send!(s, 230, ". 1:1(0) ack 2001");
    assert_eq!((s.info().rtt, s.tcp.stats().rtt_samples), (Some(Duration::from_millis(10)), 1));
}

/// Established, with timestamps; the timestamp of our SYN-ACK.
fn with_timestamps() -> (Scene, u32) {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1012,sackOK,TS 100 0,wscale 0>");
    let ts = s.clone_ts();
    send!(s, 10, &format!(". 1:1(0) ack 1 win 65000 <TS 110 {ts}>"));
    s.accept();
    s.heard.clear();
    (s, ts)
}

/// RFC 7323 §4.1: an echo of a timestamp that we have not sent yet measures nothing. A part of a segment is acknowledged, so that
/// only the echo could tell.
#[test]
fn an_echo_of_the_future_measures_nothing() {
    let (mut s, ts) = with_timestamps();
    s.write(1000);
    let samples = s.tcp.stats().rtt_samples;
    send!(s, 30, &format!(". 1:1(0) ack 401 <TS 130 {}>", ts.wrapping_add(5000)));
    assert_eq!((s.info().outstanding, s.tcp.stats().rtt_samples), (600, samples));
    send!(s, 31, &format!(". 1:1(0) ack 501 <TS 131 {}>", ts.wrapping_add(10)));
    assert_eq!((s.info().outstanding, s.tcp.stats().rtt_samples), (500, samples + 1));
    assert!(s.info().rtt.unwrap() < Duration::from_millis(20), "{:?}", s.info().rtt);
}

/// What a block had told of was measured then: the acknowledgement that comes when the stream is whole brings no new bytes.
#[test]
fn what_was_told_before_is_not_measured_again() {
    let (mut s, ts) = with_timestamps();
    s.write(1000);
    let first = ts.wrapping_add(10);
    send!(s, 20, &format!(". 1:1(0) ack 1 <TS 120 {first},sack 1:1001>"));
    let samples = s.tcp.stats().rtt_samples;
    assert_eq!(s.info().sacked, 1000);
    send!(s, 200, &format!(". 1:1(0) ack 1001 <TS 300 {first}>"));
    assert_eq!((s.info().outstanding, s.tcp.stats().rtt_samples), (0, samples));
}

/// RFC 5681 §3.1: "for the second and subsequent timeouts of the same segment the threshold stays": one reduction for one window.
#[test]
fn a_second_timeout_does_not_reduce_again() {
    let config = TcpConfig { sack: false, congestion: Algorithm::NewReno, ..Scene::config() };
    let mut s = Scene::established(config);
    s.write(10_000);
    for at in [220, 640, 1480] {
        s.until(at);
        assert_eq!((s.info().ssthresh, s.info().cwnd), (5000, 1000), "at {at}");
    }
    assert_eq!(s.tcp.stats().retransmit_timeouts, 3);
}

/// RFC 9293 §3.8.6: a peer that takes its window back, behind what is out already, is sent nothing new.
#[test]
fn nothing_new_goes_behind_a_window_that_was_taken_back() {
    let mut s = Scene::established(Scene::config());
    s.write(5000);
    send!(s, 20, ". 1:1(0) ack 1001 win 2000");
    s.heard.clear();
    s.write(5000);
    s.until(25);
    assert!(s.heard.is_empty(), "{:?}", s.texts());
    send!(s, 26, ". 1:1(0) ack 5001 win 2000");
    s.until(26);
    assert_eq!(s.texts().len(), 2, "{:?}", s.texts());
}

/// RFC 9293 §3.8.6.2.2, MUST-39: an acknowledgement that goes out anyway does not move the right edge by less than a step either.
#[test]
fn small_steps_of_our_window_are_not_shown() {
    let recv_buffer = BufferSize { initial: 4380, max: 4380 };
    let mut s = Scene::established(TcpConfig { window_scaling: false, recv_buffer, ..Scene::config() });
    for n in 0..14u32 {
        let at = 1 + n * 100;
        send!(s, 10, &format!(". {at}:{}(100) ack 1", at + 100));
        s.expect_read(100);
        recv!(s, 10, &format!(". 1:1(0) ack {} win {}", at + 100, 4380 - (n + 1) * 100));
    }
    send!(s, 10, ". 1401:1501(100) ack 1");
    s.expect_read(100);
    s.heard.clear();
    send!(s, 20, ". 1501:1502(1) ack 1");
    s.until(70);
    assert!(s.texts()[0].1.contains(" win 438") || s.texts()[0].1.contains(" win 437"), "{:?}", s.texts());
}

/// SHLD-14: what was promised holds, although the worker's frames have run short since.
#[test]
fn a_promised_window_is_not_taken_back() {
    let mut s = Scene::established(TcpConfig { window_scaling: false, ..Scene::config() });
    let _hoard: Vec<_> = std::iter::from_fn(|| s.pool.alloc()).take(4096 - 400).collect();
    send!(s, 20, ". 1:1001(1000) ack 1");
    recv!(s, 20, ". 1:1(0) ack 1001 win 64535");
    s.expect_read(1000);
    send!(s, 21, ". 1001:1101(100) ack 1");
    recv!(s, 21, ". 1:1(0) ack 1101 win 64435");
}

/// An acknowledgement that was noted shows the window as the peer knows it: measured from a later number it would move the right
/// edge back.
#[test]
fn a_noted_answer_shows_the_window_that_was_promised() {
    let recv_buffer = BufferSize { initial: 65_535, max: 65_535 };
    let mut s = Scene::established(TcpConfig { window_scaling: false, recv_buffer, ..Scene::config() });
    s.burst(20, &[". 1001:2001(1000) ack 1", ". 1:1001(1000) ack 1"]);
    recv!(s, 20, ". 1:1(0) ack 1 win 64240 <sack 1001:2001>");
    recv!(s, 20, ". 1:1(0) ack 2001 win 62240 <>");
}

/// A window that stays shut unanswered is probed as often as data is sent again, and half as often for nobody.
#[test]
fn a_shut_window_is_probed_longer_for_somebody() {
    for (detached, probes) in [(false, 8), (true, 4)] {
        let mut s = Scene::established(TcpConfig { retries: 8, ..Scene::config() });
        send!(s, 10, ". 1:1(0) ack 1 win 0");
        s.write(500);
        if detached {
            s.close();
        }
        s.until(4_000_000);
        assert_eq!((s.tcp.stats().window_probes_sent, s.tcp.stats().persist_drops), (probes, 1));
    }
}

/// Merged packets of which all but the last byte is old leave single bytes in whole frames, and no room behind them: buffers
/// hold no more than four windows and 64 KiB of that.
#[test]
fn single_bytes_at_the_end_of_frames_are_bounded() {
    const WINDOW: u32 = 4096;
    let recv_buffer = BufferSize { initial: WINDOW, max: WINDOW };
    let mut s = Scene::established(TcpConfig { recv_buffer, ..Scene::config() });
    let free = s.pool.free();
    for n in 0..200i64 {
        let from = n + 2 - 3048;
        let mut frame = s.frame(&format!(". {from}:{}(1000) ack 1", from + 1000));
        let mut rest = s.pool.alloc().unwrap();
        rest.reset(0);
        let last = byte(n as u64);
        rest.push_back(2048).unwrap().fill(last);
        frame.append(rest);
        frame.meta_mut().checksum = flowlane_sys::frame::Checksum::Verified;
        s.give(frame);
        s.drain();
        s.heard.clear();
    }
    let held = (free - s.pool.free()) * 2048;
    assert!((32 << 10..=4 * WINDOW as usize + (68 << 10)).contains(&held), "{held} bytes");
    assert!(s.dropped(DropReason::BufferFull) > 100, "{}", s.dropped(DropReason::BufferFull));
    let read = s.info().readable;
    s.expect_read(read.into());
}

/// RFC 2018 §4: a segment with data reports as many blocks as there is room for behind its data.
#[test]
fn blocks_go_with_data_as_far_as_they_fit() {
    for (len, blocks) in [(1000, 0), (989, 0), (988, 1), (981, 1), (980, 2), (100, 2)] {
        let (mut s, ts) = with_timestamps();
        send!(s, 20, &format!(". 1001:2001(1000) ack 1 win 65000 <TS 120 {ts}>"));
        send!(s, 20, &format!(". 3001:4001(1000) ack 1 win 65000 <TS 120 {ts}>"));
        s.until(20);
        s.heard.clear();
        s.write(len);
        s.until(20);
        let (_, text, _) = s.heard.pop_front().expect("a segment");
        assert!(text.contains(&format!("({len})")), "{text}");
        assert_eq!(text.matches("sack ").count(), blocks, "{text}");
    }
}
