//! What ought not to come: RFC 5961, RFC 9293 §3.10.7 in every state, nonsense of every kind.

use super::*;
use crate::wire::TcpFlags;

/// RFC 5961 §3.2: only a reset at exactly RCV.NXT resets; one in the window is challenged; one outside is dropped.
#[test]
fn resets_must_be_exact() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "R 2:2(0)");
    recv!(s, 10, ". 1:1(0) ack 1");
    send!(s, 20, "R 999999:999999(0)");
    send!(s, 20, "R -5:-5(0)");
    s.quiet(30);
    assert_eq!(s.state(), State::Established);
    send!(s, 40, "R 1:1(0)");
    assert_eq!(s.state(), State::Closed);
    assert_eq!(s.dropped(DropReason::ResetNotExact), 1);
    assert_eq!(s.dropped(DropReason::OutOfWindow), 2);
}

/// RFC 5961 §3.2: SEG.SEQ = RCV.NXT + RCV.WND is outside the window already, and a reset there is not even challenged.
#[test]
fn a_reset_at_the_right_edge_is_outside() {
    let config = TcpConfig { window_scaling: false, ..Scene::config() };
    let mut s = Scene::established(config);
    send!(s, 20, "R 65536:65536(0)");
    s.quiet(30);
    send!(s, 600, "R 65535:65535(0)");
    recv!(s, 600, ". 1:1(0) ack 1");
    assert_eq!(s.state(), State::Established);
}

/// RFC 5961 §4.2: a SYN, wherever it lies, is challenged.
#[test]
fn syns_are_challenged() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "S 2:2(0)");
    recv!(s, 10, ". 1:1(0) ack 1");
    send!(s, 1000, "S 500000:500000(0)");
    recv!(s, 1000, ". 1:1(0) ack 1");
    assert_eq!(s.state(), State::Established);
    assert_eq!(s.dropped(DropReason::SynInWindow), 2);
    assert_eq!(s.tcp.stats().challenge_acks_sent, 2);
}

/// RFC 5961 §5.2: acknowledgements of the future and of the far past are challenged, and their data dropped.
#[test]
fn acknowledgements_must_be_near() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "P. 1:11(10) ack 100");
    recv!(s, 10, ". 1:1(0) ack 1");
    send!(s, 1000, "P. 1:11(10) ack -100000");
    recv!(s, 1000, ". 1:1(0) ack 1");
    assert_eq!(s.dropped(DropReason::AckOutOfRange), 2);
    assert_eq!(s.read_result(), Err(RecvError::WouldBlock));
}

/// RFC 5961 §7: one connection is challenged once an interval. (The lane's limit: `guards`.)
#[test]
fn challenges_are_limited() {
    let mut s = Scene::established(TcpConfig { challenge_acks_per_second: 4, ..Scene::config() });
    for _ in 0..100 {
        send!(s, 10, "R 2:2(0)");
    }
    recv!(s, 10, ". 1:1(0) ack 1");
    s.quiet(20);
    assert_eq!(s.tcp.stats().challenge_acks_limited, 99);
}

/// An ACK without ACK, no flags at all, and every other combination in every state: no panic, no reset of ours without cause.
#[test]
fn every_combination_of_flags() {
    for bits in 0..512u16 {
        for state in 0..6 {
            let mut s = Scene::established(Scene::config());
            match state {
                1 => s.shutdown(),
                2 => send!(s, 10, "F. 1:1(0) ack 1"),
                3 => s.close(),
                4 => {
                    s.shutdown();
                    send!(s, 10, "F. 1:1(0) ack 1");
                }
                5 => {
                    s.close();
                    send!(s, 10, "F. 1:1(0) ack 2");
                }
                _ => {}
            }
            s.until(20);
            s.heard.clear();
            for (seq, len, ack) in
                [(1i64, 0u32, 1i64), (2, 0, 2), (2, 50, 1), (-9, 20, 0), (70_000_000, 7, 900_000)]
            {
                let (mut header, options, _) = s.parse(&format!(". {seq}:{seq}(0) ack {ack}"));
                header.flags = TcpFlags(bits);
                let mut frame = s.pool.alloc().unwrap();
                header.emit(&options, frame.push_back(20).unwrap());
                assert!(frame.extend_from_slice(&vec![7; len as usize]));
                frame.meta_mut().checksum = flowlane_sys::frame::Checksum::Verified;
                s.give(frame);
                s.drain();
                if s.tcp.connections() > 0 {
                    let _ = s.read_result();
                }
            }
            s.until(100_000);
        }
    }
}

/// Cut at every length, and with every data offset.
#[test]
fn cut_segments() {
    let mut s = Scene::established(Scene::config());
    let (header, mut options, _) = s.parse("P. 1:1(0) ack 1");
    options.mss = Some(1000);
    let mut whole = [0; 64];
    let len = header.emit(&options, &mut whole) + 30;
    for cut in 0..len {
        for offset in 0..16 {
            let mut bytes = whole;
            bytes[12] = bytes[12] & 15 | offset << 4;
            let mut frame = s.pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&bytes[..cut]));
            s.give(frame);
        }
    }
    s.quiet(10);
    assert_eq!(s.dropped(DropReason::Short), 20 * 16);
    assert!(s.dropped(DropReason::BadHeaderLength) > 0);
    assert!(s.dropped(DropReason::BadChecksum) > 0);
    assert_eq!(s.state(), State::Established);
}

/// RFC 9293 §3.10.7.1: what belongs to nobody is refused, except resets.
#[test]
fn segments_for_nobody() {
    let mut s = Scene::new(Scene::config());
    s.iss = Some(0);
    send!(s, 0, "S 0:0(0)");
    recv!(s, 0, "R. 0:0(0) ack 1");
    send!(s, 0, ". 5:25(20) ack 77");
    recv!(s, 0, "R 77:77(0)");
    send!(s, 0, "R 5:5(0)");
    send!(s, 0, "R. 5:5(0) ack 5");
    s.quiet(10);
    assert_eq!(s.dropped(DropReason::NoConnection), 2);
    assert_eq!(s.dropped(DropReason::ResetForNobody), 2);
}

/// MUST-57: nothing to or from a broadcast or multicast address.
#[test]
fn only_unicast() {
    let mut s = Scene::listen(Scene::config());
    let (header, options, _) = s.parse("S 0:0(0)");
    for (src, unicast) in [
        (PEER, false),
        (IpAddr::V4(Ipv4Addr::BROADCAST), true),
        (IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), true),
    ] {
        let mut frame = s.pool.alloc().unwrap();
        header.emit(&options, frame.push_back(20).unwrap());
        frame.meta_mut().checksum = flowlane_sys::frame::Checksum::Verified;
        let ip = IpMeta {
            src,
            dst: US,
            protocol: 6,
            hop_limit: 1,
            traffic_class: 0,
            header_len: 20,
            interface: 0,
            mtu: 1500,
            unicast,
        };
        s.with(|tcp, cx| tcp.input(cx, IpInput { frame, ip }));
    }
    s.quiet(10);
    assert_eq!(s.dropped(DropReason::NotUnicast), 3);
}

/// Out-of-order segments are bounded in number; everything beyond is dropped by name and the connection lives.
#[test]
fn the_reassembly_queue_is_bounded() {
    let mut s = Scene::established(TcpConfig { max_out_of_order: 10, ..Scene::config() });
    for n in 0..50u32 {
        let at = 101 + n * 20;
        send!(s, 10, &format!(". {at}:{}(10) ack 1", at + 10));
    }
    s.drain();
    assert_eq!(s.dropped(DropReason::ReassemblyFull), 40);
    send!(s, 20, ". 1:1001(1000) ack 1");
    s.drain();
    s.expect_read(1000);
}

/// The lane's memory limit: reading ends, nothing breaks.
#[test]
fn the_lane_is_bounded() {
    let most = 64 << 10;
    let mut s = Scene::established(TcpConfig { max_memory: most, ..Scene::config() });
    let id = s.id.unwrap();
    let bytes: Vec<u8> = (0..100_000).map(byte).collect();
    assert!(s.with(|tcp, cx| tcp.send(cx, id, &bytes)).is_ok_and(|n| n < most));
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &bytes)), Err(SendError::WouldBlock));
    for n in 0..20u32 {
        s.speak(10, &format!(". {}:{}(500) ack 1", 2001 + n * 500, 2501 + n * 500));
    }
    assert!(s.dropped(DropReason::LaneMemory) > 0);
    assert!(s.tcp.buffer_memory() + s.tcp.fixed_memory() <= most);
}

/// Replies to strangers are bounded.
#[test]
fn replies_are_bounded() {
    let mut s = Scene::new(TcpConfig { max_replies: 8, ..Scene::config() });
    for _ in 0..20 {
        s.iss = Some(0);
        let (header, options, _) = s.parse("S 0:0(0)");
        let mut frame = s.pool.alloc().unwrap();
        header.emit(&options, frame.push_back(20).unwrap());
        frame.meta_mut().checksum = flowlane_sys::frame::Checksum::Verified;
        s.give(frame);
    }
    assert_eq!(s.dropped(DropReason::RepliesFull), 12);
}

/// An old SYN is answered, and is no duplicate to be reported, whether PAWS or its number shows that it is old.
#[test]
fn an_old_syn_is_no_duplicate() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) <mss 1000,sackOK,TS 100 0>");
    s.drain();
    let (_, text, _) = s.heard.pop_front().unwrap();
    let ours: u32 = text.split("TS ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    send!(s, 10, &format!(". 1:1(0) ack 1 <TS 150 {ours}>"));
    s.accept();
    send!(s, 20, "S 0:0(0) <mss 1000,sackOK,TS 100 0>");
    s.drain();
    let (_, text, _) = s.heard.pop_front().unwrap();
    assert!(text.starts_with(". 1:1(0) ack 1") && !text.contains("sack"), "{text}");
    assert_eq!(s.state(), State::Established);
}
