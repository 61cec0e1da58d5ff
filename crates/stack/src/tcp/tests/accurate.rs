//! Accurate explicit congestion notification (RFC 9768). In dialogues `A`, `W` and `E` are the bits of ACE from the highest to the lowest:
//! `AE` is 5, with which r.cep begins.

use super::*;

const SYN: &str = "0:0(0) win 65000 <mss 1000,sackOK>";
const FULL: &str = "ECN e1b 1 ceb 0 e0b 1";

fn config() -> TcpConfig {
    TcpConfig { ecn: Ecn::Accurate, ..Scene::config() }
}

/// ESTABLISHED by a passive open in accurate mode, after 10 ms.
pub(super) fn server(config: TcpConfig) -> Scene {
    let mut s = Scene::listen(config);
    send!(s, 0, &format!("SEWA {SYN}"));
    s.drain();
    s.heard.clear();
    send!(s, 10, &format!(".W 1:1(0) ack 1 <{FULL}>"));
    s.accept();
    assert!(s.accurate().sends_ect);
    s
}

/// The same without the options that follow a handshake.
fn settled() -> Scene {
    let mut s = server(config());
    for n in 0..3 {
        s.write(10);
        send!(s, 20 + n, &format!(".EA 1:1(0) ack {}", 11 + 10 * n));
    }
    s.heard.clear();
    s
}

impl Scene {
    fn accurate(&self) -> AccurateEcn {
        self.info().accurate_ecn.expect("accurate ECN")
    }

    fn marks(&self) -> u32 {
        self.accurate().delivered.ce_packets
    }

    fn fields(&self) -> Vec<u8> {
        self.heard.iter().map(|(_, _, out)| out.traffic_class & 3).collect()
    }
}

/// Table 2 from the server, with each ECN field of the SYN: what it answers, and which mode it is in. It asks for nothing itself.
#[test]
fn every_syn() {
    let accurate = ["W", "EW", "A", "WA"];
    for ecn in [Ecn::Accurate, Ecn::AccurateRequest, Ecn::AccurateAccept, Ecn::Accept, Ecn::Off] {
        for bits in 0..8u8 {
            for (field, answer) in accurate.iter().enumerate() {
                let mut s = Scene::listen(TcpConfig { ecn, ..Scene::config() });
                let flags: String =
                    "AWE".chars().zip([4, 2, 1]).filter(|(_, bit)| bits & bit != 0).map(|(c, _)| c).collect();
                s.ecn = field as u8;
                send!(s, 0, &format!("S{flags} {SYN}"));
                s.ecn = 0;
                let knows = matches!(ecn, Ecn::Accurate | Ecn::AccurateRequest | Ecn::AccurateAccept);
                let classic = if knows { bits == 3 } else { ecn == Ecn::Accept && bits & 3 == 3 };
                let is_accurate = knows && bits != 0 && bits != 3;
                let want = if is_accurate {
                    *answer
                } else if classic {
                    "E"
                } else {
                    ""
                };
                s.drain();
                assert!(
                    s.heard[0].1.starts_with(&format!("S.{want} 0:0(0)")),
                    "{ecn:?} {bits} {}",
                    s.heard[0].1
                );
                assert_eq!(s.heard[0].1.contains(FULL), is_accurate);
                send!(s, 10, if is_accurate { ".W 1:1(0) ack 1" } else { ". 1:1(0) ack 1" });
                s.accept();
                assert_eq!(
                    (s.info().ecn, s.info().accurate_ecn.is_some()),
                    (is_accurate || classic, is_accurate)
                );
            }
        }
    }
}

/// Table 2 from the client, tables 3: each answer and each ECN field of the SYN-ACK.
#[test]
fn every_syn_ack() {
    for bits in 0..8u8 {
        for (field, told) in ["W", "EW", "A", "WA"].iter().enumerate() {
            let mut s = Scene::connecting(config());
            recv!(s, 0, "SEWA 0:0(0)");
            let flags: String =
                "AWE".chars().zip([4, 2, 1]).filter(|(_, bit)| bits & bit != 0).map(|(c, _)| c).collect();
            s.ecn = field as u8;
            send!(s, 10, &format!("S.{flags} 0:0(0) ack 1 win 5000 <mss 1000,sackOK,{FULL}>"));
            s.ecn = 0;
            let is_accurate = matches!(bits, 2..=6);
            assert_eq!(
                (s.info().ecn, s.info().accurate_ecn.is_some()),
                (is_accurate || bits == 1, is_accurate),
                "{bits}"
            );
            if !is_accurate {
                recv!(s, 10, ". 1:1(0) ack 1 <>");
                continue;
            }
            recv!(s, 10, &format!(".{told} 1:1(0) ack 1 <{FULL}>"));
            // 2: as it was sent; 5: reserved, as if it were that.
            assert_eq!(s.accurate().sends_ect, matches!(bits, 2 | 5), "{bits}");
            assert_eq!((s.accurate().received.ce_packets, s.marks()), (u32::from(field == 3), 0));
            s.write(100);
            let want = if field == 3 { "P.WA" } else { "P.EA" };
            recv!(s, 10, &format!("{want} 1:101(100) ack 1 <{FULL}>"));
        }
    }
}

/// Table 4: each value in the acknowledgement of the SYN-ACK.
#[test]
fn every_acknowledgement_of_the_syn_ack() {
    for bits in 0..8u8 {
        let mut s = Scene::listen(config());
        send!(s, 0, &format!("SEWA {SYN}"));
        s.drain();
        s.heard.clear();
        let flags: String =
            "AWE".chars().zip([4, 2, 1]).filter(|(_, bit)| bits & bit != 0).map(|(c, _)| c).collect();
        send!(s, 10, &format!(".{flags} 1:1(0) ack 1"));
        s.accept();
        let got = s.accurate();
        assert_eq!(got.delivered.ce_packets, u32::from(bits == 6), "{bits}");
        assert_eq!((got.heeds, got.sends_ect), (bits != 0, matches!(bits, 1 | 2 | 5 | 7)), "{bits}");
        // A SYN-ACK with CE counts as lost.
        assert_eq!(s.info().cwnd, if bits == 6 { 1000 } else { 10_000 });
    }
}

/// §3.2.2.1 note 1, §3.2.2.3: what the handshake shows is counted.
#[test]
fn a_server_that_is_told_nothing() {
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    s.drain();
    send!(s, 10, ". 1:1(0) ack 1");
    s.accept();
    assert_eq!(s.tcp.stats().accecn_stopped, 1);
    s.heard.clear();
    s.write(1000);
    assert!(s.fields().iter().all(|field| *field == 0) && !s.heard.is_empty());
    // Feedback is none, but ours goes on.
    send!(s, 20, ".WA 1:1(0) ack 1001");
    assert_eq!((s.marks(), s.tcp.stats().ecn_reductions), (0, 0));
    s.heard.clear();
    s.ecn = 3;
    send!(s, 30, ".EA 1:501(500) ack 1001");
    recv!(s, 30, ".WA 1001:1001(0) ack 501 <ECN e1b 1 ceb 500 e0b 1>");
}

/// §3.2.2.3: a SYN that arrived with a mark it did not have.
#[test]
fn a_syn_that_was_changed() {
    for (answer, cwnd) in [("A", 10_000), ("WA", 1000)] {
        let mut s = Scene::connecting(config());
        s.heard.clear();
        send!(s, 10, &format!("S.{answer} 0:0(0) ack 1 win 50000 <mss 1000,sackOK>"));
        s.heard.clear();
        assert_eq!((s.accurate().sends_ect, s.info().cwnd), (false, cwnd));
        s.write(1000);
        assert!(s.fields().iter().all(|field| *field == 0) && !s.heard.is_empty());
        // It is still obliged to heed marks.
        send!(s, 20, ".WA 1:1(0) ack 1001");
        assert_eq!((s.marks(), s.tcp.stats().ecn_reductions), (1, 1));
    }
}

/// §3.2.2.3: the same of a SYN-ACK.
#[test]
fn a_syn_ack_that_was_changed() {
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    s.drain();
    send!(s, 10, ".A 1:1(0) ack 1");
    s.accept();
    assert!(!s.accurate().sends_ect && s.accurate().heeds);
    assert_eq!(s.tcp.stats().accecn_stopped, 1);
}

/// §3.1.4.1: accurate ECN is asked for twice, and then not at all. An answer to what was asked for first counts (§3.1.5).
#[test]
fn syns_fall_back() {
    let mut s = Scene::connecting(config());
    for (at, flags) in [(0, "SEWA"), (1000, "SEWA"), (3000, "S"), (7000, "S")] {
        recv!(s, at, &format!("{flags} 0:0(0)"));
    }
    send!(s, 7100, "S.W 0:0(0) ack 1 win 5000 <mss 1000>");
    assert!(s.accurate().sends_ect);
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::AccurateRequest, ..Scene::config() });
    recv!(s, 0, "SEW 0:0(0)");
    recv!(s, 1000, "S 0:0(0)");
    let mut s = Scene::connecting(TcpConfig { ecn: Ecn::AccurateAccept, ..Scene::config() });
    recv!(s, 0, "S 0:0(0)");
}

/// §3.2.3.2.2, §3.1.5: without the option, then without flags; a server that said none of its packets may be marked says so of none.
#[test]
fn syn_acks_fall_back() {
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    recv!(s, 0, &format!("S.W 0:0(0) ack 1 win 65535 <mss 1460,sackOK,{FULL}>").replace(" win 65535", ""));
    recv!(s, 1000, "S.W 0:0(0) ack 1 <mss 1460,sackOK>");
    let mut once = s.accurate_after("W", 1100);
    once.write(100);
    assert_eq!(once.fields().last(), Some(&2));
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    s.until(2999);
    s.heard.clear();
    recv!(s, 3000, "S. 0:0(0) ack 1 <mss 1460,sackOK>");
    recv!(s, 7000, "S. 0:0(0) ack 1 <mss 1460,sackOK>");
    let mut twice = s.accurate_after("W", 7100);
    twice.write(100);
    assert_eq!(twice.fields().last(), Some(&0));
}

impl Scene {
    fn accurate_after(mut self, ace: &str, ms: u64) -> Scene {
        send!(self, ms, &format!(".{ace} 1:1(0) ack 1"));
        self.accept();
        assert!(self.accurate().heeds);
        self
    }
}

/// §3.1.5: the SYN-ACK tells of the latest SYN; a SYN without flags is answered, and forbids ECT; one that asks for classic ECN resets.
#[test]
fn both_kinds_in_one_handshake() {
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    recv!(s, 0, "S.W 0:0(0) ack 1");
    s.ecn = 3;
    send!(s, 100, &format!("SEWA {SYN}"));
    s.ecn = 0;
    recv!(s, 100, "S.WA 0:0(0) ack 1 <mss 1460,sackOK>");
    let mut s = Scene::listen(config());
    send!(s, 0, &format!("SEWA {SYN}"));
    recv!(s, 0, "S.W 0:0(0) ack 1");
    send!(s, 100, &format!("S {SYN}"));
    recv!(s, 100, "S.W 0:0(0) ack 1 <mss 1460,sackOK>");
    send!(s, 200, ".W 1:1(0) ack 1");
    s.accept();
    assert!(!s.accurate().sends_ect && s.accurate().heeds);
    for (first, second) in [("SEWA", "SEW"), ("SEW", "SEWA")] {
        let mut s = Scene::listen(config());
        send!(s, 0, &format!("{first} {SYN}"));
        s.drain();
        s.heard.clear();
        send!(s, 100, &format!("{second} {SYN}"));
        recv!(s, 100, "R. 1:1(0) ack 1");
        assert_eq!(s.tcp.connections(), 0);
    }
}

/// §3.1.2: in a simultaneous open each is as if only the other had asked.
#[test]
fn both_ask_at_once() {
    for (theirs, ours, ecn, accurate) in
        [("SEWA", "S.W", true, true), ("SEW", "S.E", true, false), ("S", "S.", false, false)]
    {
        let mut s = Scene::connecting(config());
        s.heard.clear();
        send!(s, 10, &format!("{theirs} 0:0(0) win 5000 <mss 1000>"));
        recv!(s, 10, &format!("{ours} 0:0(0) ack 1"));
        send!(s, 20, &format!("{ours} 0:0(0) ack 1 win 5000 <mss 1000>"));
        assert_eq!(
            (s.state(), s.info().ecn, s.info().accurate_ecn.is_some()),
            (State::Established, ecn, accurate)
        );
        assert_eq!(s.tcp.stats().accecn_marks, 0);
    }
}

/// §3.2.2.1: only a bare acknowledgement tells how the SYN-ACK arrived, so it goes before data that waits; and one for each SYN-ACK.
#[test]
fn a_bare_acknowledgement_before_data() {
    let mut s = Scene::connecting(config());
    s.heard.clear();
    s.ecn = 3;
    send!(s, 10, &format!("S.W 0:0(0) ack 1 win 5000 <mss 1000,sackOK,{FULL}>"));
    s.ecn = 0;
    s.write(100);
    recv!(s, 10, &format!(".WA 1:1(0) ack 1 <{FULL}>"));
    recv!(s, 10, &format!("P.WA 1:101(100) ack 1 <{FULL}>"));
    // Again, and differently.
    send!(s, 20, "S.W 0:0(0) ack 1 win 5000 <mss 1000,sackOK>");
    s.until(20);
    assert!(s.heard.back().unwrap().1.starts_with(".W 101:101(0)"), "{:?}", s.texts());
}

/// §3.2.2.2: however many SYN-ACKs come with CE, one counts.
#[test]
fn syn_acks_with_ce_count_once() {
    let mut s = Scene::connecting(config());
    s.heard.clear();
    s.ecn = 3;
    for at in [10, 1000, 2000] {
        send!(s, at, "S.W 0:0(0) ack 1 win 5000 <mss 1000,sackOK>");
        s.until(at);
        assert!(s.heard.pop_back().unwrap().1.starts_with(".WA 1:1(0)"));
        assert_eq!(s.accurate().received.ce_packets, 1);
    }
    // Nor does one that comes late take back what came since.
    send!(s, 2100, ".EA 1:101(100) ack 1");
    send!(s, 2200, "S.W 0:0(0) ack 1 win 5000 <mss 1000,sackOK>");
    assert_eq!(s.accurate().received.ce_packets, 2);
}

/// §3.2.2.5.1, §3.2.3.3: data with CE behind data without is acknowledged at once; what changed is told.
#[test]
fn a_change_to_ce_is_told_at_once() {
    let mut s = settled();
    let at = |n: u32| 101 + 100 * n;
    // A conversation: acknowledgements wait.
    send!(s, 29, ".EA 1:101(100) ack 31");
    s.write(10);
    s.until(29);
    s.heard.clear();
    s.ecn = 2;
    for (n, (field, want)) in
        [(2, None), (3, Some("WA")), (2, None), (3, Some("EWA")), (1, None), (3, Some(""))]
            .into_iter()
            .enumerate()
    {
        let n = n as u32;
        s.ecn = field;
        let now = 30 + u64::from(n);
        send!(s, now, &format!(".EA {}:{}(100) ack 41", at(n), at(n + 1)));
        s.until(now);
        match want {
            None => assert!(s.heard.is_empty(), "{n} {:?}", s.texts()),
            Some(bits) => {
                let got = s.heard.pop_front().unwrap().1;
                let bits: String = "EWA".chars().filter(|c| bits.contains(*c)).collect();
                assert!(got.starts_with(&format!(".{bits} 41:41(0) ack {}", at(n + 1))), "{got}");
                assert!(got.contains("ECN "), "{got}");
                s.heard.clear();
            }
        }
    }
    let got = s.accurate().received;
    assert_eq!((got.ce_packets, got.ce_bytes, got.ect0_bytes, got.ect1_bytes), (3, 300, 200, 100));
}

/// §3.2.2.5.1: acknowledgements with CE are acknowledged, but not before the third.
#[test]
fn marks_on_acknowledgements() {
    let mut s = settled();
    s.ecn = 3;
    for n in 0..2 {
        send!(s, 40 + n, ".EA 1:1(0) ack 31");
        s.quiet(40 + n);
    }
    send!(s, 42, ".EA 1:1(0) ack 31");
    recv!(s, 42, ". 31:31(0) ack 1 <ECN e1b 1 ceb 0 e0b 1>");
}

/// §3.2.2.2, RFC 3168 §6.1.2: packets that arrived with CE reduce the window, once a round; nothing says CWR.
#[test]
fn marks_reduce_the_window() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno] {
        let mut s = server(TcpConfig { congestion, ..config() });
        s.write(10_000);
        s.heard.clear();
        s.write(20_000);
        let aces = ["EA", "WA", "WA", "EWA", "", "E", "W", "EW", "A", "EA"];
        for (n, ace) in aces.iter().enumerate() {
            send!(s, 20, &format!(".{ace} 1:1(0) ack {}", 1 + (n + 1) * 988));
        }
        s.until(20);
        assert_eq!((s.marks(), s.tcp.stats().accecn_marks, s.tcp.stats().ecn_reductions), (8, 8, 1));
        assert_eq!(s.info().loss_state, LossState::Reduced);
        assert!(s.texts().iter().all(|(_, text)| text.contains("EA ")), "{:?}", s.texts());
    }
}

/// BBR's data is not ECN-capable, and marks change nothing of its model; it feeds back as any.
#[test]
fn bbr_does_not_respond() {
    let mut s = server(TcpConfig { congestion: Algorithm::Bbr, ..config() });
    s.heard.clear();
    s.write(1000);
    assert!(s.fields().iter().all(|field| *field == 0) && !s.heard.is_empty());
    send!(s, 20, ".WA 1:1(0) ack 1001");
    assert_eq!((s.marks(), s.tcp.stats().ecn_reductions), (1, 0));
    s.ecn = 3;
    s.heard.clear();
    send!(s, 30, ".WA 1:1001(1000) ack 1001");
    s.until(30);
    assert!(s.heard[0].1.starts_with(".WA "), "{:?}", s.texts());
}

/// Appendix A.1: what acknowledges nothing new and is not newer by its timestamp is not heeded.
#[test]
fn what_is_superseded() {
    let mut s = settled();
    s.write(1000);
    send!(s, 40, ".WA 1:1(0) ack 31");
    assert_eq!(s.marks(), 0);
    send!(s, 41, ".WA 1:1(0) ack 1031");
    assert_eq!(s.marks(), 1);
    s.write(2000);
    send!(s, 50, ".EWA 1:1(0) ack 2019");
    // Overtaken, though its block is news.
    send!(s, 51, ".WA 1:1(0) ack 1031 <sack 2019:3007>");
    assert_eq!(s.marks(), 2);
    // With timestamps an acknowledgement of nothing new may be newer.
    let mut s = Scene::listen(TcpConfig { timestamps: true, ..config() });
    send!(s, 0, "SEWA 0:0(0) win 65000 <mss 1000,sackOK,TS 1 0>");
    s.drain();
    send!(s, 10, ".W 1:1(0) ack 1 <TS 2 0>");
    s.accept();
    s.write(100);
    send!(s, 20, ".WA 1:1(0) ack 1 <TS 2 0>");
    assert_eq!(s.marks(), 0);
    send!(s, 20, ".WA 1:1(0) ack 1 <TS 3 0>");
    assert_eq!(s.marks(), 1);
}

/// §3.2.3.3: with two blocks or fewer the option takes what is left; a third makes room for what changed, and two never do.
#[test]
fn what_stands_beside_blocks() {
    let mut s = Scene::listen(TcpConfig { timestamps: true, ..config() });
    send!(s, 0, "SEWA 0:0(0) win 65000 <mss 1000,sackOK,TS 1 0>");
    s.drain();
    send!(s, 10, ".W 1:1(0) ack 1 <TS 2 0>");
    s.accept();
    let heard = |s: &mut Scene, at: u64, field: u8, from: u32| {
        s.heard.clear();
        s.ecn = field;
        send!(s, at, &format!(".EA {from}:{}(1000) ack 1 <TS 2 0>", from + 1000));
        s.until(at);
        let text = s.heard.pop_front().unwrap().1;
        let list = text.split_once('<').unwrap().1.trim_end_matches('>').to_owned();
        list.split_once(',').unwrap().1.to_owned()
    };
    assert_eq!(heard(&mut s, 20, 1, 1001), "ECN e1b 1001 ceb 0 e0b 1,sack 1001:2001");
    assert_eq!(heard(&mut s, 30, 1, 3001), "ECN e1b 2001 ceb 0,sack 3001:4001,sack 1001:2001");
    assert_eq!(heard(&mut s, 40, 3, 5001), "ECN e1b 2001 ceb 1000,sack 5001:6001,sack 3001:4001");
    assert_eq!(heard(&mut s, 50, 2, 7001), "ECN e0b 1001 ceb 1000,sack 7001:8001,sack 5001:6001");
    // Both ECTs need all three fields, for which there is no room.
    s.until(60);
    for (field, from) in [(1, 9001), (2, 11_001)] {
        s.ecn = field;
        let frame = s.frame(&format!(".EA {from}:{}(1000) ack 1 <TS 2 0>", from + 1000));
        s.give(frame);
    }
    s.drain();
    let text = &s.heard.back().unwrap().1;
    assert!(text.matches("sack").count() == 3 && !text.contains("ECN"), "{text}");
}

/// §3.2.3.2.2: where what an option acknowledged comes again twice, no more is sent.
#[test]
fn options_that_are_never_heard() {
    let mut s = settled();
    s.ecn = 2;
    send!(s, 40, ".EA 1:1001(1000) ack 31");
    recv!(s, 40, ".EA 31:31(0) ack 1001 <ECN e1b 1 ceb 0 e0b 1001>");
    send!(s, 90, ".EA 1:1001(1000) ack 31");
    recv!(s, 90, ".EA 31:31(0) ack 1001 <ECN e1b 1 ceb 0 e0b 2001,sack 1:1001>");
    send!(s, 140, ".EA 1:1001(1000) ack 31");
    recv!(s, 140, ".EA 31:31(0) ack 1001 <sack 1:1001>");
    send!(s, 190, ".EA 1001:2001(1000) ack 31");
    recv!(s, 190, ".EA 31:31(0) ack 2001 <>");
}

/// Full segments of new data leave room for the option when it is due, and are whole when it is not.
#[test]
fn data_leaves_room_for_the_option() {
    let mut s = settled();
    s.write(5000);
    let sizes: Vec<bool> = s.texts().iter().map(|(_, text)| text.contains("ECN")).collect();
    assert_eq!(sizes, [false; 5], "{:?}", s.texts());
    s.heard.clear();
    s.ecn = 2;
    send!(s, 24, ".EA 1:501(500) ack 5031");
    s.write(2000);
    let texts = s.texts();
    assert!(
        texts[0].1.starts_with(".EA 5031:6019(988) ack 501") && texts[0].1.contains("e0b 501"),
        "{texts:?}"
    );
    assert!(
        texts[1].1.starts_with(".EA 6019:7019(1000) ack 501") && !texts[1].1.contains("ECN"),
        "{texts:?}"
    );
}

/// A link that cuts a batch says CWR in its first segment only: where that is a bit of ACE, segments go one by one.
#[test]
fn no_batches_whose_flags_would_change() {
    for (marks, whole) in [(0u32, true), (1, false), (2, false), (3, true)] {
        let mut s = settled();
        s.offload.segmentation = 65_000;
        s.ecn = 3;
        for n in 0..marks {
            send!(s, 40, &format!(".EA {}:{}(100) ack 31", 1 + 100 * n, 101 + 100 * n));
        }
        s.until(50);
        s.heard.clear();
        s.write(5000);
        assert_eq!(s.heard.len() == 1 || s.heard.len() == 2, whole, "{marks} {:?}", s.texts());
    }
}
