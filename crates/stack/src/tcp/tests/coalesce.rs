//! Segments of one flow that come in one burst.

use super::*;

fn joined(s: &Scene) -> u64 {
    s.tcp.stats().coalesced_received
}

/// Segments in a row are one to input, and get one acknowledgement.
#[test]
fn a_run_is_acknowledged_once() {
    let mut s = Scene::established(Scene::config());
    s.burst(
        10,
        &[
            ". 1:1001(1000) ack 1",
            ". 1001:2001(1000) ack 1",
            ". 2001:3001(1000) ack 1",
            "P. 3001:3501(500) ack 1",
        ],
    );
    recv!(s, 10, ". 1:1(0) ack 3501");
    s.quiet(10);
    s.expect_read(3500);
    assert_eq!(joined(&s), 3);
    let stats = s.tcp.stats();
    assert_eq!((stats.in_sequence_packets, stats.in_sequence_bytes, stats.packets_received), (4, 3500, 6));
    assert_eq!(stats.merged_received, 0, "the link joined nothing");
}

/// Switched off, each is handled by itself.
#[test]
fn it_can_be_switched_off() {
    let mut s = Scene::established(TcpConfig { coalesce: false, ..Scene::config() });
    s.burst(10, &[". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 1"]);
    recv!(s, 10, ". 1:1(0) ack 2001");
    s.expect_read(2000);
    assert_eq!(joined(&s), 0);
}

/// PSH ends a run: the next segment begins another.
#[test]
fn a_push_ends_a_run() {
    let mut s = Scene::established(Scene::config());
    s.burst(
        10,
        &[
            ". 1:1001(1000) ack 1",
            "P. 1001:2001(1000) ack 1",
            ". 2001:3001(1000) ack 1",
            ". 3001:4001(1000) ack 1",
        ],
    );
    s.drain();
    s.expect_read(4000);
    assert_eq!(joined(&s), 2);
}

/// The FIN of the last one counts, be it with data or without.
#[test]
fn a_fin_may_be_the_last() {
    for last in ["F. 1001:2001(1000) ack 1", "F. 1001:1001(0) ack 1"] {
        let mut s = Scene::established(Scene::config());
        s.burst(10, &[". 1:1001(1000) ack 1", last]);
        let end = if last.contains("(0)") { 1000 } else { 2000 };
        recv!(s, 10, &format!(". 1:1(0) ack {}", end + 2));
        s.expect_read(end);
        assert_eq!(s.read_result(), Ok(0));
        assert_eq!((s.state(), joined(&s)), (State::CloseWait, 1));
    }
}

/// What differs in what its header says to the connection is not joined.
#[test]
fn only_the_same_is_joined() {
    for other in [
        ". 1001:2001(1000) ack 1 win 64000",
        "U. 1001:2001(1000) ack 1 urg 5",
        "E. 1001:2001(1000) ack 1",
        "W. 1001:2001(1000) ack 1",
        ". 1001:2001(1000) ack 1 <TS 5 0>",
    ] {
        let mut s = Scene::established(Scene::config());
        s.burst(10, &[". 1:1001(1000) ack 1", other, "P. 2001:3001(1000) ack 1"]);
        s.drain();
        s.expect_read(3000);
        assert_eq!(joined(&s), 0, "{other}");
    }
}

/// What lies beyond the window does not become part of a run: it is dropped under its name, and answered.
#[test]
fn what_is_beyond_the_window_goes_alone() {
    let mut s = Scene::established(TcpConfig {
        recv_buffer: BufferSize { initial: 1460, max: 1460 },
        ..Scene::config()
    });
    let sent: Vec<_> = (0..4).map(|n| format!(". {}:{}(730) ack 1", 1 + n * 730, 731 + n * 730)).collect();
    s.burst(10, &sent.iter().map(String::as_str).collect::<Vec<_>>());
    s.drain();
    s.expect_read(1460);
    assert_eq!((joined(&s), s.tcp.stats().after_window_bytes), (1, 1460));
    assert_eq!(s.dropped(DropReason::OutOfWindow), 1);
}

/// Duplicate acknowledgements are not to be swallowed: each segment out of order is answered, in a burst too, as a sender
/// without SACK counts them.
#[test]
fn what_is_out_of_order_goes_alone() {
    let mut s = Scene::established(Scene::config());
    s.burst(10, &[". 1001:2001(1000) ack 1", ". 2001:3001(1000) ack 1", ". 3001:4001(1000) ack 1"]);
    assert_eq!(joined(&s), 0);
    for end in [2001, 3001, 4001] {
        recv!(s, 10, &format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
    }
    s.burst(11, &[". 1:501(500) ack 1", ". 501:1001(500) ack 1", ". 4001:5001(1000) ack 1"]);
    s.drain();
    s.expect_read(5000);
    assert_eq!(s.tcp.stats().out_of_order_packets, 3);
}

/// What the later segments of a burst acknowledge counts.
#[test]
fn an_acknowledgement_within_a_burst_counts() {
    let mut s = Scene::established(Scene::config());
    s.write(2000);
    s.until(10);
    s.burst(10, &[". 1:1001(1000) ack 1", ". 1001:2001(1000) ack 2001", ". 2001:3001(1000) ack 2001"]);
    assert_eq!((s.info().outstanding, joined(&s)), (0, 1));
    s.expect_read(3000);
}

/// A segment whose checksum is wrong is dropped before it could be joined, and what follows it is out of order.
#[test]
fn a_bad_checksum_breaks_the_run() {
    let mut s = Scene::established(Scene::config());
    s.until(10);
    for (n, from) in [1, 1001, 2001].into_iter().enumerate() {
        let mut frame = s.frame(&format!(". {from}:{}(1000) ack 1", from + 1000));
        if n == 1 {
            frame.data_mut()[100] ^= 4;
        }
        let packet = IpInput { frame, ip: s.meta() };
        s.with(|tcp, cx| tcp.input_in_burst(cx, packet));
    }
    s.with(Tcp::end_burst);
    assert_eq!((joined(&s), s.dropped(DropReason::BadChecksum)), (0, 1));
    recv!(s, 10, ". 1:1(0) ack 1001 <>");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 2001:3001>");
    s.expect_read(1000);
}

/// ECN: marked and unmarked segments are not joined; the marks of a marked run all count.
#[test]
fn marks_are_kept_apart() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "SEW 0:0(0) win 65000 <mss 1000,sackOK,wscale 0>");
    recv!(s, 0, "S.E 0:0(0) ack 1");
    send!(s, 10, ". 1:1(0) ack 1");
    s.accept();
    s.until(10);
    for (from, ecn) in [(1, 2), (1001, 2), (2001, 3), (3001, 3)] {
        s.ecn = ecn;
        let packet =
            IpInput { frame: s.frame(&format!(". {from}:{}(1000) ack 1", from + 1000)), ip: s.meta() };
        s.with(|tcp, cx| tcp.input_in_burst(cx, packet));
    }
    s.with(Tcp::end_burst);
    recv!(s, 10, ".E 1:1(0) ack 4001");
    let stats = s.tcp.stats();
    assert_eq!((stats.coalesced_received, stats.ecn_ce, stats.ecn_ect0), (2, 2, 2));
}

/// A run is no longer than a batch, and stays inside the window.
#[test]
fn runs_are_bounded() {
    let mut s = Scene::established(Scene::config());
    let texts: Vec<String> =
        (0..100).map(|n| format!(". {}:{}(1000) ack 1", n * 1000 + 1, n * 1000 + 1001)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    s.burst(10, &texts);
    s.drain();
    // 65 of the window's 65 were within it.
    s.expect_read(65_000);
    assert_eq!(joined(&s), 64);
    assert_eq!(s.tcp.stats().after_window_packets, 35);
}

/// A flood of flows in one burst finds no more runs than there may be, and every segment arrives.
#[test]
fn many_flows_in_one_burst() {
    let mut s = Scene::listen(Scene::config());
    let mut ids = Vec::new();
    for n in 0..20 {
        s.peer_port = 1000 + n;
        s.iss = None;
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000>");
        s.drain();
        s.heard.clear();
        send!(s, 0, ". 1:1(0) ack 1");
        s.accept();
        ids.push((s.id.unwrap(), s.iss));
    }
    for part in 0..3 {
        for (n, (_, iss)) in ids.iter().enumerate() {
            (s.peer_port, s.iss) = (1000 + n as u16, *iss);
            let frame = s.frame(&format!(". {}:{}(100) ack 1", part * 100 + 1, part * 100 + 101));
            let packet = IpInput { frame, ip: s.meta() };
            s.with(|tcp, cx| tcp.input_in_burst(cx, packet));
        }
    }
    s.with(Tcp::end_burst);
    assert_eq!(joined(&s), 8 * 2);
    for (id, _) in ids {
        (s.id, s.read) = (Some(id), 0);
        let mut into = [0; 400];
        assert_eq!(s.with(|tcp, cx| tcp.recv(cx, id, &mut into)), Ok(300));
        assert!(into[..300].iter().enumerate().all(|(at, b)| *b == byte(at as u64)));
    }
}

/// What a connection was told of: counters that do not depend on how many acknowledgements there were.
fn facts(s: &Scene) -> Vec<u64> {
    let t = s.tcp.stats();
    let mut facts = vec![
        t.packets_received,
        t.in_sequence_packets,
        t.in_sequence_bytes,
        t.out_of_order_packets,
        t.out_of_order_bytes,
        t.duplicate_packets,
        t.duplicate_bytes,
        t.partly_duplicate_packets,
        t.partly_duplicate_bytes,
        t.ecn_ce,
        t.ecn_ect0,
        t.challenge_acks_sent,
        t.dsacks_sent,
    ];
    facts.extend(t.drops.0);
    facts
}

/// Bursts at random: in order, out of order, again, cut in other places, with PSH, FIN, other windows, other timestamps and
/// marks. An engine that joins and one that does not read the same bytes and acknowledge the same, burst by burst.
#[test]
fn joined_equals_unjoined() {
    let mut total = 0;
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let config = TcpConfig { timestamps: rng.below(2) == 0, ..TcpConfig::default() };
        let mut scenes = [true, false].map(|coalesce| {
            let mut s = Scene::listen(TcpConfig { coalesce, ..config.clone() });
            send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,TS 7 0,wscale 0>");
            s.drain();
            s.heard.clear();
            send!(s, 10, ". 1:1(0) ack 1 <TS 8 100000>");
            s.accept();
            s
        });
        let (mut next, mut ms, mut over) = (1u32, 10, false);
        for _ in 0..6 {
            // Each burst begins when all that came before has been acknowledged.
            ms += 100;
            let mut burst = Vec::new();
            let (mut window, mut ts) = (65_000, 100 + ms);
            for _ in 0..1 + rng.below(12) {
                let len = [1000, 1000, 1000, 400, 1][rng.below(5) as usize];
                let from = match rng.below(12) {
                    0 => next + 500,
                    1 => next.saturating_sub(700).max(1),
                    _ => next,
                };
                window -= u32::from(rng.below(10) == 0);
                ts += u64::from(rng.below(10) == 0);
                let fin = rng.below(60) == 0 && from >= next && !over;
                let flags = match (fin, rng.below(12)) {
                    (true, _) => "FP.",
                    (_, 0) => "P.",
                    (_, 1) => "U.",
                    (_, 2) => "W.",
                    _ => ".",
                };
                let len = if over { 0 } else { len };
                let text =
                    format!("{flags} {from}:{}({len}) ack 1 win {window} <TS {ts} 100000>", from + len);
                burst.push((text, [0, 0, 0, 2, 3][rng.below(5) as usize]));
                if from <= next {
                    next = next.max(from + len);
                }
                over |= fin;
            }
            for s in &mut scenes {
                s.until(ms);
                for (text, ecn) in &burst {
                    s.ecn = *ecn;
                    let packet = IpInput { frame: s.frame(text), ip: s.meta() };
                    s.with(|tcp, cx| tcp.input_in_burst(cx, packet));
                }
                s.with(Tcp::end_burst);
                let mut into = vec![0; 100_000];
                let id = s.id.unwrap();
                while let Ok(n @ 1..) = s.with(|tcp, cx| tcp.recv(cx, id, &mut into)) {
                    for (at, b) in into[..n].iter().enumerate() {
                        assert_eq!(*b, byte(s.read + at as u64), "seed {seed}");
                    }
                    s.read += n as u64;
                }
                s.until(ms + 90);
            }
            let [a, b] = &scenes;
            assert_eq!(a.read, b.read, "seed {seed}: {burst:?}");
            assert_eq!(facts(a), facts(b), "seed {seed}: {burst:?}");
            assert_eq!(a.state(), b.state(), "seed {seed}: {burst:?}");
            // The last acknowledgement says the same, options included; the window but for its unit, since how often it was
            // shown before, each time rounded, is not the same.
            let last = |s: &Scene| s.heard.back().map(|(_, text, _)| text.clone()).unwrap_or_default();
            let window = |text: &str| {
                let digits = text.split_once(" win ").map(|(_, rest)| rest.split(' ').next().unwrap());
                digits.map_or(0, |digits| digits.parse::<i64>().unwrap())
            };
            let strip = |text: String| {
                let text = text.replace(&format!(" win {} ", window(&text)), " ");
                text.split("TS ")
                    .map(|p| p.split_once(' ').map_or(p, |(_, r)| r).to_owned())
                    .collect::<String>()
            };
            assert!((window(&last(a)) - window(&last(b))).abs() <= 1, "seed {seed}: {burst:?}");
            assert_eq!(strip(last(a)), strip(last(b)), "seed {seed}: {burst:?}");
        }
        total += joined(&scenes[0]);
        assert_eq!(joined(&scenes[1]), 0);
    }
    assert!(total > 4000, "{total}");
}

/// RFC 9768 §3.2.2: segments whose ACE is the same are joined, and those whose ACE differs are not.
#[test]
fn counters_of_accurate_ecn_are_kept_apart() {
    let mut s = Scene::listen(TcpConfig { ecn: Ecn::Accurate, ..Scene::config() });
    send!(s, 0, "SEWA 0:0(0) win 65000 <mss 1000,sackOK>");
    s.drain();
    send!(s, 10, ".W 1:1(0) ack 1");
    s.accept();
    s.write(10);
    s.burst(
        20,
        &[
            ".EA 1:101(100) ack 1",
            ".EA 101:201(100) ack 1",
            ".WA 201:301(100) ack 1",
            "P.WA 301:401(100) ack 1",
        ],
    );
    assert_eq!(s.tcp.stats().coalesced_received, 2);
    s.expect_read(400);
}
