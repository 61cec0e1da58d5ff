//! ESTABLISHED: data both ways, acknowledgements, reassembly.

use super::*;

/// RFC 9293 §3.8.6.3 (MUST-58, MUST-59) and policy: the first segments are acknowledged at once; later every second full one.
#[test]
fn acknowledgements_are_quick_then_delayed() {
    let mut s = Scene::established(Scene::config());
    let mut at = 1;
    for _ in 0..16 {
        send!(s, 10, &format!(". {at}:{}(1000) ack 1", at + 1000));
        at += 1000;
        recv!(s, 10, &format!(". 1:1(0) ack {at}"));
        s.expect_read(1000);
    }
    send!(s, 20, &format!(". {at}:{}(1000) ack 1", at + 1000));
    s.quiet(59);
    recv!(s, 60, &format!(". 1:1(0) ack {}", at + 1000));
    at += 1000;
    send!(s, 70, &format!(". {at}:{}(1000) ack 1", at + 1000));
    s.quiet(71);
    send!(s, 72, &format!(". {}:{}(1000) ack 1", at + 1000, at + 2000));
    recv!(s, 72, &format!(". 1:1(0) ack {}", at + 2000));
    assert_eq!(s.tcp.stats().delayed_acks_sent, 1);
}

/// An answer carries the acknowledgement.
#[test]
fn answers_carry_acknowledgements() {
    let mut s = Scene::established(Scene::config());
    s.until(10);
    for n in 0..5u32 {
        let at = 1 + n * 100;
        s.speak(10, &format!("P. {at}:{}(100) ack {at}", at + 100));
        let mut into = [0; 200];
        let id = s.id.unwrap();
        assert_eq!(s.with(|tcp, cx| tcp.recv(cx, id, &mut into)), Ok(100));
        s.write(100);
        recv!(s, 10, &format!("P. {at}:{}(100) ack {}", at + 100, at + 100));
    }
    s.quiet(15);
}

/// RFC 9293 §3.4, MUST-60: PSH where a write ends; segments full before.
#[test]
fn a_write_is_cut_into_segments() {
    let mut s = Scene::established(Scene::config());
    s.write(2500);
    recv!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, "P. 1001:2001(1000) ack 1");
    recv!(s, 10, "P. 2001:2501(500) ack 1");
    send!(s, 20, ". 1:1(0) ack 2501");
    assert_eq!(s.info().unacknowledged, 0);
    s.quiet(2000);
}

/// RFC 6928: ten segments, then two more for each acknowledged (RFC 5681 §3.1).
#[test]
fn initial_window_and_slow_start() {
    let mut s = Scene::established(Scene::config());
    s.write(30_000);
    // PSH where a millisecond's worth is out, and where it ends the burst: the peer need not wait for more.
    for n in 0..10 {
        let push = if n % 2 == 1 { "P" } else { "" };
        recv!(s, 10, &format!("{push}. {}:{}(1000) ack 1", 1 + n * 1000, 1001 + n * 1000));
    }
    s.quiet(15);
    send!(s, 20, ". 1:1(0) ack 2001");
    for n in 10..14 {
        let push = if n % 2 == 1 { "P" } else { "" };
        recv!(s, 20, &format!("{push}. {}:{}(1000) ack 1", 1 + n * 1000, 1001 + n * 1000));
    }
    s.quiet(21);
}

/// RFC 9438 §5.8, RFC 7661: a window that is not used does not grow; in slow start half of it is use enough.
#[test]
fn an_unused_window_does_not_grow() {
    let mut s = Scene::established(Scene::config());
    s.write(6000);
    s.until(10);
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 2001");
    assert_eq!(s.info().cwnd, 12_000);
    send!(s, 20, ". 1:1(0) ack 4001");
    send!(s, 20, ". 1:1(0) ack 6001");
    assert_eq!(s.info().cwnd, 12_000, "six segments are not more than half of twelve");
}

/// RFC 7323 §2: without window scaling a window above 65535 cannot be shown, and reading makes no updates of it.
#[test]
fn reading_is_not_announced_when_it_cannot_be_shown() {
    let config = TcpConfig {
        recv_buffer: BufferSize { initial: 270_000, max: 1 << 20 },
        window_scaling: false,
        ..Scene::config()
    };
    let mut s = Scene::established(config);
    send!(s, 20, "P. 1:1001(1000) ack 1");
    recv!(s, 20, ". 1:1(0) ack 1001 win 65535");
    s.expect_read(1000);
    s.quiet(500);
}

/// RFC 7323 §4.3, §5.3: a segment whose acknowledgement is refused does not move TS.Recent, or one forged segment would make
/// PAWS drop all that the peer sends.
#[test]
fn refused_segments_do_not_move_the_timestamp() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,TS 700 0>");
    send!(s, 10, ". 1:1(0) ack 1 win 65000 <TS 710 0>");
    s.accept();
    s.heard.clear();
    send!(s, 20, ". 1:1(0) ack 9999 win 65000 <TS 200000 0>");
    s.until(20);
    s.heard.clear();
    send!(s, 30, "P. 1:101(100) ack 1 win 65000 <TS 720 0>");
    s.until(30);
    let (_, text, _) = s.heard.pop_front().expect("an acknowledgement");
    assert!(text.contains("ack 101") && text.contains(" 720>"), "{text}");
    s.expect_read(100);
}

/// RFC 7323 §5.5: after 24 days of silence a peer's clock may have gone round, and its older timestamp is believed.
#[test]
fn a_timestamp_is_forgotten_after_24_days() {
    const DAY: u64 = 24 * 3600 * 1000;
    for (days, taken) in [(23, 0), (25, 100)] {
        let mut s = Scene::listen(TcpConfig::default());
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK,TS 700 0>");
        send!(s, 10, ". 1:1(0) ack 1 win 65000 <TS 710 0>");
        s.accept();
        s.heard.clear();
        send!(s, days * DAY, "P. 1:101(100) ack 1 win 65000 <TS 600 0>");
        assert_eq!(s.dropped(DropReason::Paws), u64::from(taken == 0), "{days}");
        s.expect_read(taken);
    }
}

/// A request that begins a conversation is no answer: acknowledgements stay quick.
#[test]
fn a_request_does_not_end_quick_acknowledgements() {
    let mut s = Scene::established(Scene::config());
    s.write(500);
    recv!(s, 10, "P. 1:501(500) ack 1");
    send!(s, 20, ". 1:1(0) ack 501");
    send!(s, 20, "P. 1:101(100) ack 501");
    recv!(s, 20, ". 501:501(0) ack 101");
}

/// RFC 9293 §3.10.7.4, seventh step; RFC 2018 §4: holes are reported, newest range first, and closed.
#[test]
fn reassembly_and_selective_acknowledgements() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 2001:3001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 2001:3001>");
    send!(s, 10, ". 4001:5001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 4001:5001,sack 2001:3001>");
    assert_eq!(s.read_result(), Err(RecvError::WouldBlock));
    send!(s, 10, ". 3001:4001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 2001:5001>");
    send!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 2001:5001>");
    send!(s, 10, ". 1001:2001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 5001 <>");
    s.expect_read(5000);
    assert_eq!(s.tcp.buffers_for_test(), 0);
}

/// RFC 2883 §4: what came twice is reported once.
#[test]
fn duplicates_are_reported() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <>");
    send!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 1:1001>");
    send!(s, 10, ". 2001:3001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 2001:3001>");
    send!(s, 10, ". 2001:3001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 2001:3001,sack 2001:3001>");
    assert_eq!(s.tcp.stats().dsacks_sent, 2);
}

/// Overlaps: what was received first stays, nothing is delivered twice.
#[test]
fn overlapping_segments() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 501:1501(1000) ack 1");
    send!(s, 10, ". 1001:1301(300) ack 1");
    send!(s, 10, ". 1201:2001(800) ack 1");
    send!(s, 10, ". 1:701(700) ack 1");
    s.expect_read(2000);
    assert_eq!(s.read_result(), Err(RecvError::WouldBlock));
}

/// RFC 6093: urgent data is delivered in line. RFC 9293 §3.8.5 (MUST-31, MUST-32, MUST-33): the mark is told when it comes where
/// none was pending and when it moves on, and how far away it is.
#[test]
fn urgent_data_is_in_line_and_its_mark_is_told() {
    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    let woken = std::sync::Arc::new(Woken::default());
    let waker = core::task::Waker::from(woken.clone());
    let wait = |s: &mut Scene| s.tcp.register(id, Interest::Urgent, &waker).unwrap();
    let times = || woken.0.load(std::sync::atomic::Ordering::Relaxed);
    wait(&mut s);
    assert_eq!(s.tcp.urgent_mark(id), Ok(None));
    send!(s, 10, "PU. 1:11(10) ack 1 urg 5");
    assert_eq!((s.tcp.urgent_mark(id), times()), (Ok(Some(5)), 1));
    wait(&mut s);
    send!(s, 10, "PU. 11:21(10) ack 1 urg 0");
    send!(s, 10, "U. 21:21(0) ack 1 urg 0");
    assert_eq!(times(), 2, "the last is");
    assert_eq!(s.tcp.urgent_mark(id), Ok(Some(20)));
    // It may reach beyond what has come.
    wait(&mut s);
    send!(s, 10, "U. 21:21(0) ack 1 urg 60000");
    assert_eq!((s.tcp.urgent_mark(id), times()), (Ok(Some(60_020)), 3));
    wait(&mut s);
    for urgent in [60_000, 59_999, 1] {
        s.speak(10, &format!("U. 21:21(0) ack 1 urg {urgent}"));
        assert_eq!((s.tcp.urgent_mark(id), times()), (Ok(Some(60_020)), 3), "no news");
    }
    s.expect_read(20);
    assert_eq!(s.tcp.urgent_mark(id), Ok(Some(60_000)));
    for n in 0..60 {
        s.speak(20, &format!(". {}:{}(1000) ack 1", n * 1000 + 21, n * 1000 + 1021));
        s.expect_read(1000);
    }
    assert_eq!(s.tcp.urgent_mark(id), Ok(Some(0)), "at the mark");
    send!(s, 30, "P. 60021:60022(1) ack 1");
    s.expect_read(1);
    assert_eq!(s.tcp.urgent_mark(id), Ok(None), "beyond it");
    // Who waits is told of the end, too, and nothing is kept.
    wait(&mut s);
    send!(s, 40, "F. 60022:60022(0) ack 1");
    assert!(s.tcp.register(id, Interest::Urgent, &waker).is_ok());
    assert!(times() >= 4);
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A batch that the link merged counts as its segments.
#[test]
fn merged_segments_are_acknowledged_at_once() {
    let mut s = Scene::established(Scene::config());
    s.until(10);
    for _ in 0..2 {
        let (header, options, _) = s.parse(&format!("P. {}:0(0) ack 1", s.read + 1));
        let mut frame = s.pool.alloc().unwrap();
        header.emit(&options, frame.push_back(20).unwrap());
        let payload: Vec<u8> = (s.read..s.read + 6000).map(byte).collect();
        assert!(frame.extend_from_slice(&payload[..1500]));
        for part in payload[1500..].chunks(1500) {
            let mut next = s.pool.alloc().unwrap();
            next.reset(0);
            assert!(next.extend_from_slice(part));
            frame.append(next);
        }
        let meta = frame.meta_mut();
        meta.checksum = flowlane_sys::frame::Checksum::Verified;
        meta.segmentation = flowlane_sys::frame::Segmentation::TcpV4;
        meta.segment_size = 1000;
        s.give(frame);
        s.expect_read(6000);
        let ack = s.read + 1;
        recv!(s, 10, &format!(". 1:1(0) ack {ack}"));
    }
    assert_eq!(s.tcp.stats().merged_received, 10);
    assert_eq!(s.tcp.stats().in_sequence_packets, 12);
}

/// Zero-copy reading gives the frames as they came.
#[test]
fn frames_are_handed_over() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 1:1001(1000) ack 1");
    send!(s, 10, "FP. 1001:2001(1000) ack 1");
    let id = s.id.unwrap();
    for _ in 0..2 {
        let frame = s.with(|tcp, cx| tcp.recv_frame(cx, id)).unwrap().unwrap();
        assert_eq!(frame.len(), 1000);
    }
    assert!(s.with(|tcp, cx| tcp.recv_frame(cx, id)).unwrap().is_none());
}

/// Tiny segments share frames, so that they cannot tie up the pool.
#[test]
fn tiny_segments_share_frames() {
    let mut s = Scene::established(Scene::config());
    let free = s.pool.free();
    for n in 0..1000 {
        send!(s, 10, &format!(". {}:{}(1) ack 1", n + 1, n + 2));
        s.drain();
        s.heard.clear();
    }
    assert!(free - s.pool.free() < 4, "{}", free - s.pool.free());
    s.expect_read(1000);
}

/// Frames in which data waits are bounded; beyond that it is copied, and comes in order whichever way it is read.
#[test]
fn beyond_so_many_frames_data_is_copied() {
    let mut s = Scene::established(TcpConfig { max_held: 3 * 2048, ..Scene::config() });
    s.heard.clear();
    let free = s.pool.free();
    for n in 0..20 {
        send!(s, 10, &format!(". {}:{}(1000) ack 1", n * 1000 + 1, n * 1000 + 1001));
        s.drain();
    }
    s.heard.clear();
    assert!(free - s.pool.free() <= 4, "{} frames", free - s.pool.free());
    assert_eq!(s.info().readable, 20_000);
    s.expect_read(10_500);
    // Frames and copies mixed, and out of order once frames are free again.
    send!(s, 20, ". 21001:22001(1000) ack 1");
    send!(s, 20, ". 20001:21001(1000) ack 1");
    s.drain();
    s.expect_read(9_000);
    let id = s.id.unwrap();
    let mut left = 2_500;
    while left > 0 {
        let frame = s.with(|tcp, cx| tcp.recv_frame(cx, id)).unwrap().unwrap();
        assert!(frame.data().iter().enumerate().all(|(i, b)| *b == byte(s.read + i as u64)));
        s.read += frame.len() as u64;
        left -= frame.len();
    }
    assert_eq!(s.with(|tcp, cx| tcp.recv_frame(cx, id)).unwrap_err(), RecvError::WouldBlock);
    s.heard.clear();
    assert_eq!((s.tcp.core.held_for_test(), s.pool.free()), (0, free), "all frames are home");
}

/// RFC 7323 §4.3, §5.3: timestamps are echoed and protect against old segments.
#[test]
fn timestamps_echo_and_protect() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65000 <mss 1012,TS 1000 0>");
    let ts = s.clone_ts();
    s.heard.clear();
    send!(s, 0, &format!(". 1:1(0) ack 1 <TS 1001 {ts}>"));
    s.accept();
    send!(s, 10, &format!("P. 1:101(100) ack 1 <TS 1010 {ts}>"));
    recv!(s, 10, &format!(". 1:1(0) ack 101 <TS {} 1010>", ts.wrapping_add(10)));
    send!(s, 20, &format!("P. 101:201(100) ack 1 <TS 1009 {ts}>"));
    recv!(s, 20, &format!(". 1:1(0) ack 101 <TS {} 1010>", ts.wrapping_add(20)));
    assert_eq!(s.dropped(DropReason::Paws), 1);
    s.write(2000);
    recv!(s, 20, &format!(". 1:1001(1000) ack 101 <TS {} 1010>", ts.wrapping_add(20)));
}

/// Writes without a look at the output in between; `true`: a record ends (`MSG_EOR`).
fn write_at_once(s: &mut Scene, writes: &[(u64, bool)]) {
    let id = s.id.unwrap();
    for &(n, ends) in writes {
        let bytes: Vec<u8> = (s.written..s.written + n).map(byte).collect();
        s.written += n;
        s.with(|tcp, cx| {
            assert_eq!(tcp.send(cx, id, &bytes), Ok(n as usize));
            if ends {
                tcp.end_record(id).unwrap();
            }
        });
    }
    s.drain();
}

/// What is written behind the end of a record shares no segment with what was before it, and no segment within waits for more;
/// sent again it is the same segment.
#[test]
fn records_share_no_segment() {
    let mut s = Scene::established(Scene::config());
    write_at_once(&mut s, &[(400, true), (400, true), (400, true), (1000, false)]);
    for n in 0..3 {
        recv!(s, 10, &format!("P. {}:{}(400) ack 1", 1 + n * 400, 401 + n * 400));
    }
    recv!(s, 10, "P. 1201:2201(1000) ack 1");
    s.quiet(15);
    send!(s, 20, ". 1:1(0) ack 401 <sack 801:2201>");
    s.until(100);
    assert_eq!(s.texts().len(), 1);
    assert!(s.heard[0].1.starts_with("P. 401:801(400)"), "{:?}", s.texts());
}

/// The last segment of a record with nothing behind it obeys Nagle: it may be the last of all.
#[test]
fn an_open_end_obeys_nagle() {
    let mut s = Scene::established(Scene::config());
    write_at_once(&mut s, &[(400, true)]);
    recv!(s, 10, "P. 1:401(400) ack 1");
    write_at_once(&mut s, &[(300, true)]);
    s.quiet(12);
    write_at_once(&mut s, &[(100, false)]);
    recv!(s, 12, "P. 401:701(300) ack 1");
    s.quiet(15);
    send!(s, 20, ". 1:1(0) ack 701");
    recv!(s, 20, "P. 701:801(100) ack 1");
}

/// PSH ends every write that is worth a burst, of half of the peer's window, not only the last one.
#[test]
fn large_writes_end_with_push() {
    let config = TcpConfig { send_buffer: BufferSize { initial: 1 << 20, max: 1 << 20 }, ..Scene::config() };
    let mut s = Scene::established(config);
    write_at_once(&mut s, &[(33_500, false), (100, false), (33_000, false)]);
    let mut pushed = Vec::new();
    for round in 2..8 {
        let texts: Vec<String> = s.heard.drain(..).map(|(_, text, _)| text).collect();
        for text in texts {
            let end: u32 = text.split([':', '(']).nth(1).unwrap().parse().unwrap();
            pushed.extend(text.starts_with('P').then_some(end));
            send!(s, round * 10, &format!(". 1:1(0) ack {end}"));
        }
    }
    assert!(pushed.contains(&34_001), "the segment with the end of the second write: {pushed:?}");
    assert_eq!(pushed.last(), Some(&66_601));
}

/// RFC 2883 §4.2: what is received twice in part is reported by that part, in the middle of a hole and at its end.
#[test]
fn partial_duplicates_are_reported() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, ". 2001:3001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 2001:3001>");
    send!(s, 10, ". 2501:3501(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 2501:3001,sack 2001:3501>");
    send!(s, 10, ". 5001:6001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 5001:6001,sack 2001:3501>");
    send!(s, 10, ". 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1001 <sack 5001:6001,sack 2001:3501>");
    send!(s, 10, ". 1001:2401(1400) ack 1");
    recv!(s, 10, ". 1:1(0) ack 3501 <sack 2001:2401,sack 5001:6001>");
    s.expect_read(3500);
}

/// A FIN that comes early is reported as the number that it takes; the report ends with the stream.
#[test]
fn an_early_fin_alone_is_reported() {
    let mut s = Scene::established(Scene::config());
    send!(s, 10, "F. 1001:1001(0) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1 <sack 1001:1002>");
    send!(s, 10, "P. 1:1001(1000) ack 1");
    recv!(s, 10, ". 1:1(0) ack 1002 <>");
    s.expect_read(1000);
    assert_eq!(s.read_result(), Ok(0));
}

/// Who answers within the time of a delayed acknowledgement converses: the next request waits for its answer, and is
/// acknowledged alone when there is none (RFC 9293 §3.8.6.3).
#[test]
fn an_answer_begins_a_conversation() {
    let mut s = Scene::established(Scene::config());
    send!(s, 20, "P. 1:101(100) ack 1");
    recv!(s, 20, ". 1:1(0) ack 101");
    s.expect_read(100);
    s.write(50);
    recv!(s, 20, "P. 1:51(50) ack 101");
    send!(s, 40, "P. 101:201(100) ack 51");
    s.expect_read(100);
    recv!(s, 80, ". 51:51(0) ack 201");
    send!(s, 100, "P. 201:301(100) ack 51");
    recv!(s, 100, ". 51:51(0) ack 301");
}

/// The application may say whether acknowledgements wait.
#[test]
fn quick_acknowledgements_on_demand() {
    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    s.tcp.quick_ack(id, false).unwrap();
    send!(s, 20, "P. 1:101(100) ack 1");
    s.quiet(30);
    s.tcp.quick_ack(id, true).unwrap();
    recv!(s, 30, ". 1:1(0) ack 101");
    send!(s, 40, "P. 101:201(100) ack 1");
    recv!(s, 40, ". 1:1(0) ack 201");
}
