//! Floods of SYNs and of acknowledgements: established connections lose nothing, memory stays where it was.

use super::*;
use crate::wire::{SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions, tcp};

impl Scene {
    /// A segment from anywhere.
    fn stranger(&mut self, flags: TcpFlags, n: u32) {
        let header = TcpHeader {
            src_port: 1024 + (n % 60_000) as u16,
            dst_port: self.our_port,
            seq: SeqNum(n.wrapping_mul(2_654_435_761)),
            ack: SeqNum(n.wrapping_mul(40_503)),
            flags,
            window: 1000,
            urgent: 0,
        };
        let options = TcpOptions { mss: flags.contains(TcpFlags::SYN).then_some(1460), ..Default::default() };
        let mut frame = self.pool.alloc().expect("a frame");
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).unwrap();
        header.emit(&options, room);
        let src = Ipv4Addr::from(0x0b00_0000 + n / 60_000 + n % 251 * 1000);
        let IpAddr::V4(dst) = US else { panic!() };
        tcp::fill_checksum(Sum::pseudo_v4(src, dst, TCP, frame.len() as u16), frame.data_mut());
        let ip = IpMeta {
            src: src.into(),
            dst: US,
            protocol: TCP.0,
            hop_limit: 64,
            traffic_class: 0,
            header_len: 20,
            interface: 0,
            mtu: 1500,
            unicast: true,
        };
        self.with(|tcp, cx| tcp.input(cx, IpInput { frame, ip }));
    }

    /// What goes out is thrown away, except to the peer: how many segments that were.
    fn answer_strangers(&mut self) -> usize {
        let mut count = 0;
        while let Some(out) = self.with(Tcp::poll_output) {
            if out.dst == PEER {
                self.heard.push_back((self.millis(), String::new(), out));
            } else {
                count += 1;
            }
        }
        count
    }
}

fn flood(config: TcpConfig, flags: TcpFlags) -> Scene {
    let mut s = Scene::established(config);
    let free = s.pool.free();
    let mut at = 10;
    let (mut most, mut answers) = (0, 0);
    for round in 0..200u32 {
        for n in 0..500 {
            s.stranger(flags, round * 500 + n);
        }
        answers += s.answer_strangers();
        // The established connection goes on as if nothing were: a segment each way a round.
        at += 10;
        let seq = 1 + round * 100;
        s.now = Time::from_millis(100_000 + at);
        while s.tcp.next_deadline().is_some_and(|due| due <= s.now) {
            s.with(Tcp::on_timer);
            answers += s.answer_strangers();
        }
        let ack = 1 + round * 100;
        s.speak(at, &format!("P. {seq}:{}(100) ack {ack}", seq + 100));
        s.answer_strangers();
        s.heard.clear();
        s.read = u64::from(seq) - 1;
        let id = s.id.unwrap();
        let mut into = [0; 200];
        assert_eq!(s.with(|tcp, cx| tcp.recv(cx, id, &mut into)), Ok(100));
        let bytes: Vec<u8> = (s.written..s.written + 100).map(byte).collect();
        assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &bytes)), Ok(100));
        s.written += 100;
        s.answer_strangers();
        assert!(!s.heard.is_empty(), "the answer goes out in its round");
        s.heard.clear();
        most = most.max(s.tcp.connections());
        assert!(free - s.pool.free() < 2000, "{} frames", free - s.pool.free());
    }
    println!("{answers} answers to 100000 segments, {most} connections at most");
    assert_eq!(s.state(), State::Established);
    assert_eq!(s.info().backoff, 0);
    let stats = *s.tcp.stats();
    // Only what strangers were told is told again.
    let repeated = (stats.packets_retransmitted, stats.retransmit_timeouts);
    assert_eq!(
        repeated,
        (stats.syncache_retransmitted, stats.syncache_retransmitted),
        "nothing of it was late"
    );
    assert!(most <= 1 + ListenOptions::default().syn_backlog as usize);
    s
}

#[test]
fn of_syns() {
    let s = flood(Scene::config(), TcpFlags::SYN);
    let stats = s.tcp.stats();
    assert!(stats.cookies_sent > 20_000, "{}", stats.cookies_sent);
    // Answers are bounded by what may wait, not by what comes.
    let counted = stats.cookies_sent + stats.syncache_added + s.dropped(DropReason::BacklogFull);
    assert_eq!(counted, 100_000 + 1, "every SYN has an outcome");
}

#[test]
fn of_acknowledgements() {
    let s = flood(Scene::config(), TcpFlags::ACK);
    let stats = s.tcp.stats();
    assert_eq!(s.tcp.connections(), 1);
    assert_eq!(s.dropped(DropReason::NotSyn) + s.dropped(DropReason::BadCookie), 100_000);
    assert!(stats.resets_sent <= 100_000);
}

/// The same on the connection's own port and address: guesses in the dark cost at most a challenge each, and those are
/// limited.
#[test]
fn of_blind_guesses() {
    let config = TcpConfig { challenge_acks_per_second: 10, ..Scene::config() };
    let mut s = Scene::established(config);
    for n in 0..50_000u32 {
        let seq = i64::from(n.wrapping_mul(2_654_435_761) as i32);
        let flags = ["R", "S", ".", "F.", "P."][n as usize % 5];
        s.speak(10, &format!("{flags} {}:{}(0) ack {}", 200_000 + seq.abs(), 200_000 + seq.abs(), n % 7));
        s.heard.clear();
    }
    assert_eq!(s.state(), State::Established);
    assert!(s.tcp.stats().challenge_acks_sent <= 20);
    assert_eq!(s.tcp.buffers_for_test(), 0);
    send!(s, 20, "P. 1:101(100) ack 1");
    s.expect_read(100);
}

/// A full queue of answers to strangers stands in nobody's way, even on a link with room for little.
#[test]
fn answers_and_connections_take_turns() {
    let mut s = Scene::established(Scene::config());
    let id = s.id.unwrap();
    for n in 0..1000 {
        s.stranger(TcpFlags::ACK, n);
    }
    let bytes: Vec<u8> = (0..5000).map(byte).collect();
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, &bytes)), Ok(5000));
    let first: Vec<_> = (0..8).filter_map(|_| s.with(Tcp::poll_output)).map(|out| out.dst == PEER).collect();
    assert_eq!(first.iter().filter(|ours| **ours).count(), 4, "{first:?}");
    s.answer_strangers();
}

/// A lane with half-open clients keeps so many answers and no more, sends nothing back to any of them, and is to other strangers what
/// it always was.
#[test]
fn answers_to_half_open_clients_are_bounded_and_get_no_answer() {
    let mut s = Scene::new(Scene::config());
    s.tcp.half_open(true);
    let (us, peer) = (SocketAddr::new(US, OUR_PORT), SocketAddr::new(PEER, PEER_PORT));
    assert!(s.with(|tcp, cx| tcp.send_syn(cx, us, peer, 77, 1460)));
    assert_eq!((s.answer_strangers(), s.heard.len()), (0, 1), "the SYN");
    let free = s.pool.free();
    for n in 0..20_000 {
        s.stranger(TcpFlags::SYN | TcpFlags::ACK, n);
    }
    assert_eq!((s.answer_strangers(), s.pool.free()), (0, free));
    let mut heard = Vec::new();
    assert_eq!((s.tcp.syn_answers(&mut heard), heard.len()), (20_000 - (1 << 14), 1 << 14));
    assert!(heard.iter().all(|h| !h.refused && h.local == us));
    assert_eq!(heard[3].ack, 3 * 40_503);
    s.stranger(TcpFlags::RST | TcpFlags::ACK, 7);
    heard.clear();
    assert_eq!((s.tcp.syn_answers(&mut heard), heard[0].refused), (0, true));
    s.stranger(TcpFlags::ACK, 5);
    assert_eq!(s.answer_strangers(), 1, "a reset");
    assert_eq!(s.tcp.syn_answers(&mut heard), 0);
    // One that is not quiet resets whoever answers.
    s.tcp.half_open(false);
    s.stranger(TcpFlags::SYN | TcpFlags::ACK, 1);
    heard.clear();
    s.tcp.syn_answers(&mut heard);
    assert_eq!((s.answer_strangers(), heard.len()), (1, 1));
}
