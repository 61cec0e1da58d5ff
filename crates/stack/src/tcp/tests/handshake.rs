//! Opening: CLOSED, LISTEN, SYN-SENT, SYN-RECEIVED.

use super::*;

/// RFC 9293 §3.5, figure 6, passive side; RFC 7323 §2.2, §3.2; RFC 2018 §2: options in the usual order.
#[test]
fn passive_open_agrees_on_options() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 65535 <mss 1400,sackOK,TS 100 0,wscale 9>");
    let ts = s.clone_ts();
    recv!(s, 0, &format!("S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS {ts} 100,wscale 7>"));
    send!(s, 20, &format!(". 1:1(0) ack 1 win 100 <TS 120 {ts}>"));
    s.accept();
    let info = s.info();
    assert_eq!(info.state, State::Established);
    assert_eq!((info.snd_wnd, info.window_scale), (100 << 9, Some((7, 9))));
    assert!(info.sack && info.timestamps && !info.ecn);
    assert_eq!((info.hash, info.hash_type), (0xabcd, 2));
    assert_eq!(info.rtt, Some(Duration::from_millis(20)));
    assert_eq!(info.cwnd, 10 * (1400 - 12));
    s.quiet(1000);
}

/// RFC 9293 §3.7.1, MUST-15: without an MSS option 536; without the others, none of them.
#[test]
fn a_plain_peer_gets_plain_segments() {
    let mut s = Scene::listen(TcpConfig::default());
    send!(s, 0, "S 0:0(0) win 4000");
    recv!(s, 0, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    send!(s, 0, ". 1:1(0) ack 1 win 4000");
    s.accept();
    s.write(600);
    recv!(s, 0, ". 1:537(536) ack 1 <>");
}

/// RFC 9293 §3.5, figure 6, active side.
#[test]
fn active_open() {
    let mut s = Scene::connecting(Scene::config());
    recv!(s, 0, "S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7>");
    assert_eq!(s.state(), State::SynSent);
    send!(s, 30, "S. 0:0(0) ack 1 win 5000 <mss 1460,sackOK,wscale 2>");
    recv!(s, 30, ". 1:1(0) ack 1 win 1024");
    let info = s.info();
    assert_eq!((info.state, info.snd_wnd), (State::Established, 5000));
    assert_eq!(info.window_scale, Some((7, 2)));
    assert_eq!(s.tcp.stats().connection_requests, 1);
}

/// RFC 9293 §3.5, figure 7 (MUST-10): simultaneous open.
#[test]
fn simultaneous_open() {
    let mut s = Scene::connecting(Scene::config());
    recv!(s, 0, "S 0:0(0)");
    send!(s, 10, "S 0:0(0) win 5000 <mss 1000>");
    assert_eq!(s.state(), State::SynReceived);
    recv!(s, 10, "S. 0:0(0) ack 1");
    send!(s, 20, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
    assert_eq!(s.state(), State::Established);
    s.write(100);
    recv!(s, 20, "P. 1:101(100) ack 1");
}

/// RFC 9293 §3.10.7.3, fourth step: what is in the SYN that crosses ours is there once the connection is, its FIN too.
#[test]
fn data_in_a_syn_that_crosses_ours() {
    for (flags, fin) in [("S", 0), ("SF", 1)] {
        let mut s = Scene::connecting(Scene::config());
        recv!(s, 0, "S 0:0(0)");
        send!(s, 10, &format!("{flags} 0:300(300) win 5000 <mss 1000,sackOK>"));
        recv!(s, 10, "S. 0:0(0) ack 1");
        assert_eq!(s.read_result(), Err(RecvError::WouldBlock), "not before it is established");
        send!(s, 20, "S. 0:0(0) ack 1 win 5000 <mss 1000,sackOK>");
        // The stream that is whole has nothing more to report.
        let report = if fin == 1 { "" } else { "sack 0:1" };
        recv!(s, 20, &format!(". 1:1(0) ack {} <{report}>", 301 + fin));
        s.expect_read(300);
        assert_eq!(s.state(), if fin == 1 { State::CloseWait } else { State::Established });
    }
    // Of a connection that is refused instead nothing stays.
    let mut s = Scene::connecting(Scene::config());
    send!(s, 10, "S 0:300(300) win 5000 <mss 1000,sackOK>");
    assert!(s.tcp.buffer_memory() > 0);
    send!(s, 20, "R 1:1(0)");
    assert_eq!((s.state(), s.tcp.buffer_memory()), (State::Closed, 0));
}

/// RFC 9293 §3.10.7.3, second step: a reset that acknowledges our SYN refuses.
#[test]
fn refused() {
    let mut s = Scene::connecting(Scene::config());
    recv!(s, 0, "S 0:0(0)");
    send!(s, 5, "R 0:0(0)");
    assert_eq!(s.state(), State::SynSent, "no acknowledgement, no effect");
    send!(s, 5, "R. 0:0(0) ack 7");
    assert_eq!(s.state(), State::SynSent, "not our SYN");
    send!(s, 10, "R. 0:0(0) ack 1");
    assert_eq!(s.state(), State::Closed);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Refused)));
    s.quiet(5000);
}

/// RFC 9293 §3.10.7.3, first step: an acknowledgement of something else is answered with a reset; the attempt goes on.
#[test]
fn an_old_connection_answers_our_syn() {
    let mut s = Scene::connecting(Scene::config());
    recv!(s, 0, "S 0:0(0)");
    send!(s, 5, ". 300:300(0) ack 100");
    recv!(s, 5, "R 100:100(0)");
    send!(s, 8, ". 300:300(0) ack 100");
    recv!(s, 8, "R 100:100(0)");
    // RFC 6298 §5: whoever says so, the SYN comes again when its time is over.
    s.quiet(999);
    recv!(s, 1000, "S 0:0(0)");
    send!(s, 1010, "S. 0:0(0) ack 1 <mss 1000>");
    recv!(s, 1010, ". 1:1(0) ack 1");
}

/// A peer in TIME-WAIT refuses a SYN whose timestamp is older than the earlier connection's (RFC 7323 §5.3): it forgets that by our reset, and
/// the SYN comes again a moment later. So it does once, and for nothing else that a stranger might say.
#[test]
fn a_syn_refused_for_its_timestamp_comes_again_soon() {
    let mut s = Scene::connecting(TcpConfig::default());
    let ts = s.clone_ts();
    s.heard.clear();
    // As the kernel's TIME-WAIT answers; again, which moves nothing.
    for ms in [5, 8] {
        send!(s, ms, &format!(". 300:300(0) ack 100 <TS 7 {}>", ts.wrapping_add(50_000)));
        recv!(s, ms, "R 100:100(0)");
    }
    recv!(s, 10, &format!("S 0:0(0) <mss 1460,sackOK,TS {} 0,wscale 7>", ts.wrapping_add(10)));
    send!(s, 12, &format!(". 300:300(0) ack 100 <TS 7 {}>", ts.wrapping_add(50_000)));
    recv!(s, 12, "R 100:100(0)");
    s.quiet(2009);
    for other in ["S. 300:300(0) ack 100", ". 300:301(1) ack 100", "F. 300:300(0) ack 100"] {
        let mut s = Scene::connecting(TcpConfig::default());
        let ts = s.clone_ts();
        s.heard.clear();
        send!(s, 5, &format!("{other} <TS 7 {}>", ts.wrapping_add(50_000)));
        recv!(s, 5, "R 100:100(0)");
        s.quiet(999);
    }
    // Its own timestamp is no reason to refuse it.
    let mut s = Scene::connecting(TcpConfig::default());
    let ts = s.clone_ts();
    s.heard.clear();
    send!(s, 5, &format!(". 300:300(0) ack 100 <TS 7 {ts}>"));
    recv!(s, 5, "R 100:100(0)");
    s.quiet(999);
}

/// The resets of a lane to strangers are limited; the one that a connection of ours waits for is not one of these.
#[test]
fn connections_that_begin_end_what_peers_remember_beyond_the_limit() {
    let mut s = Scene::connecting(TcpConfig { resets_per_second: 0, ..TcpConfig::default() });
    let ts = s.clone_ts();
    s.heard.clear();
    send!(s, 5, &format!(". 300:300(0) ack 100 <TS 7 {}>", ts.wrapping_add(50_000)));
    recv!(s, 5, "R 100:100(0)");
    send!(s, 6, &format!(". 300:300(0) ack 100 <TS 7 {}>", ts.wrapping_add(50_000)));
    s.quiet(9);
    assert_eq!(s.tcp.stats().resets_limited, 1);
}

/// RFC 6298 §2.1, §5.5: one second, doubling; gives up after the configured number.
#[test]
fn syn_is_repeated_and_given_up() {
    let mut s = Scene::connecting(TcpConfig { syn_retries: 3, ..Scene::config() });
    for at in [0, 1000, 3000, 7000] {
        recv!(s, at, "S 0:0(0)");
    }
    s.quiet(14_999);
    assert_eq!(s.state(), State::SynSent);
    s.quiet(15_001);
    assert_eq!(s.state(), State::Closed);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
}

/// RFC 6298 §2.1: the SYN-ACK too; a half-open connection is forgotten.
#[test]
fn syn_ack_is_repeated_and_forgotten() {
    let mut s = Scene::listen(TcpConfig { synack_retries: 2, ..Scene::config() });
    send!(s, 0, "S 0:0(0) <mss 1000>");
    for at in [0, 1000, 3000] {
        recv!(s, at, "S. 0:0(0) ack 1");
    }
    s.quiet(7001);
    assert_eq!(s.tcp.connections(), 0);
    assert_eq!(s.tcp.backlog(s.listener.unwrap()), Ok((0, 0)));
    assert_eq!(s.tcp.stats().syncache_stale, 1);
}

/// The peer's SYN again: our SYN-ACK was lost.
#[test]
fn a_repeated_syn_gets_the_same_answer() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    let iss = s.iss;
    send!(s, 300, "S 0:0(0) <mss 1000>");
    recv!(s, 300, "S. 0:0(0) ack 1");
    assert_eq!(s.iss, iss);
    assert_eq!(s.tcp.connections(), 1);
}

/// RFC 9293 §3.10.7.4, fifth step: an acknowledgement of anything but our SYN is refused, the handshake stays.
#[test]
fn wrong_acknowledgement_in_syn_received() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 5, ". 1:1(0) ack 9");
    recv!(s, 5, "R 9:9(0)");
    send!(s, 9, ". 1:1(0) ack 1");
    s.accept();
}

/// RFC 9293 §3.10.7.4, second step: a reset takes a passive handshake back to LISTEN.
#[test]
fn reset_in_syn_received() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 5, "R 1:1(0)");
    assert_eq!(s.tcp.connections(), 0);
    s.quiet(3000);
}

/// Data may come with the acknowledgement of the SYN-ACK.
#[test]
fn data_with_the_third_segment() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 9, "P. 1:101(100) ack 1");
    s.accept();
    s.expect_read(100);
    recv!(s, 9, ". 1:1(0) ack 101");
}

/// RFC 6528, RFC 7323 §7.1: nothing about one connection's numbers tells another's.
#[test]
fn initial_numbers_differ_by_tuple() {
    let mut s = Scene::listen(TcpConfig::default());
    let mut numbers = Vec::new();
    for port in 0..20 {
        s.peer_port = PEER_PORT + port;
        send!(s, 0, "S 0:0(0) <mss 1000,TS 1 0>");
        numbers.push(s.iss_of_last());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 20);
    let spread = numbers.windows(2).filter(|w| w[1] - w[0] > 1 << 16).count();
    assert!(spread > 15, "{numbers:?}");
}

/// A stale handle is an error, never another connection.
#[test]
fn stale_handles() {
    let mut s = Scene::established(Scene::config());
    let old = s.id.unwrap();
    s.with(|tcp, cx| tcp.abort(cx, old)).unwrap();
    recv!(s, 10, "R. 1:1(0) ack 1");
    send!(s, 20, "S 0:0(0) <mss 1000>");
    recv!(s, 20, "S. 0:0(0) ack 1");
    send!(s, 30, ". 1:1(0) ack 1");
    s.accept();
    assert_ne!(s.id, Some(old));
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, old, b"x")), Err(SendError::Stale));
    assert_eq!(s.with(|tcp, cx| tcp.recv(cx, old, &mut [0])), Err(RecvError::Stale));
    assert_eq!(s.with(|tcp, cx| tcp.close(cx, old)), Err(StaleError));
    assert_eq!(s.tcp.info(old), Err(StaleError));
}

/// The four-tuple of a living connection cannot be opened again.
#[test]
fn connect_refuses_nonsense() {
    let mut s = Scene::connecting(Scene::config());
    let (us, peer) = (SocketAddr::new(US, OUR_PORT), SocketAddr::new(PEER, PEER_PORT));
    let options = ConnectOptions::default();
    let mut try_it = |local, remote| s.with(|tcp, cx| tcp.connect(cx, local, remote, &options));
    assert_eq!(try_it(us, peer), Err(ConnectError::InUse));
    let broadcast = SocketAddr::new(Ipv4Addr::BROADCAST.into(), 1);
    assert_eq!(try_it(us, broadcast), Err(ConnectError::BadAddress));
    assert_eq!(try_it(us, SocketAddr::new(PEER, 0)), Err(ConnectError::BadAddress));
    assert_eq!(try_it(us, "[::1]:1".parse().unwrap()), Err(ConnectError::BadAddress));
}

impl Scene {
    /// Our timestamp in the next segment heard.
    pub(super) fn clone_ts(&mut self) -> u32 {
        self.drain();
        let text = &self.heard.front().expect("a segment").1;
        let from = text.find("TS ").unwrap() + 3;
        text[from..].split(' ').next().unwrap().parse().unwrap()
    }

    fn iss_of_last(&mut self) -> u32 {
        self.drain();
        self.iss.unwrap()
    }
}

/// RFC 9293 §3.10.4, SYN-SENT: "delete the TCB and return error: closing responses to any queued SENDs, or RECEIVEs". A stream that
/// never was has no end that could be read.
#[test]
fn who_gives_up_a_handshake_gets_an_error() {
    let mut s = Scene::connecting(Scene::config());
    s.heard.clear();
    s.shutdown();
    let gone = Failure::GivenUp;
    assert_eq!(s.read_result(), Err(RecvError::Failed(gone)));
    let id = s.id.unwrap();
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, b"x")), Err(SendError::Failed(gone)));
    assert_eq!(s.state(), State::Closed);
    let mut buffer = [0];
    assert_eq!(s.tcp.peek(id, &mut buffer), Err(RecvError::Failed(gone)));
    assert!(s.with(|tcp, cx| tcp.recv_frame(cx, id)).is_err());
    s.quiet(100);
    s.close();
    assert_eq!(s.tcp.connections(), 0);
}

/// RFC 7323 §2.2: who did not offer to scale windows takes no scale, whatever the other side says.
#[test]
fn a_scale_that_nobody_asked_for_is_none() {
    let config = TcpConfig { window_scaling: false, ..Scene::config() };
    let mut s = Scene::connecting(config.clone());
    recv!(s, 0, "S 0:0(0) win 65535 <mss 1460,sackOK>");
    send!(s, 10, "S. 0:0(0) ack 1 win 5000 <mss 1000,wscale 7>");
    send!(s, 11, ". 1:1(0) ack 1 win 4000");
    assert_eq!((s.info().snd_wnd, s.info().window_scale), (4000, None));
    let mut s = Scene::listen(config);
    send!(s, 0, "S 0:0(0) win 5000 <mss 1000,wscale 7>");
    recv!(s, 0, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    send!(s, 11, ". 1:1(0) ack 1 win 4000");
    s.accept();
    assert_eq!((s.info().snd_wnd, s.info().window_scale), (4000, None));
}

/// RFC 6928 §2: one SYN that comes late may have been sent again too soon; after two the path is taken for a bad one, and one
/// segment goes out (RFC 5681 §3.1).
#[test]
fn one_segment_after_two_lost_syns() {
    for (repeats, segments) in [(0, 10), (1, 10), (2, 1)] {
        let mut s = Scene::connecting(Scene::config());
        let last = [0, 1000, 3000][repeats];
        send!(s, last + 10, "S. 0:0(0) ack 1 win 65000 <mss 1000,sackOK>");
        s.heard.clear();
        s.write(20_000);
        assert_eq!((s.info().cwnd, s.heard.len()), (segments * 1000, segments as usize), "{repeats}");
        let mut s = Scene::listen(Scene::config());
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK>");
        send!(s, last + 10, ". 1:1(0) ack 1 win 65000");
        s.accept();
        assert_eq!(s.info().cwnd, segments * 1000, "SYN-ACK, {repeats}");
    }
}

/// RFC 6298 §3, Karn's rule, and §5.7: which of several SYNs was answered nobody knows, so the answer measures nothing.
#[test]
fn a_syn_that_was_sent_again_measures_nothing() {
    for (repeats, samples) in [(0, 1), (1, 0)] {
        let mut s = Scene::connecting(Scene::config());
        send!(s, repeats * 1000 + 10, "S. 0:0(0) ack 1 win 65000 <mss 1000,sackOK>");
        assert_eq!((s.tcp.stats().rtt_samples, s.info().rtt.is_some()), (samples, samples > 0), "{repeats}");
        let mut s = Scene::listen(Scene::config());
        send!(s, 0, "S 0:0(0) win 65000 <mss 1000,sackOK>");
        send!(s, repeats * 1000 + 10, ". 1:1(0) ack 1 win 65000");
        assert_eq!(s.tcp.stats().rtt_samples, samples, "SYN-ACK, {repeats}");
    }
}

/// RFC 9293 §3.10.7.4, second step, MUST-11: in SYN-RECEIVED a reset tells who opened that it was refused, and takes who waited
/// back to waiting.
#[test]
fn a_reset_ends_both_kinds_of_opening() {
    let mut s = Scene::connecting(Scene::config());
    send!(s, 10, "S 0:0(0) win 5000 <mss 1000>");
    assert_eq!(s.state(), State::SynReceived);
    send!(s, 20, "R 1:1(0)");
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Refused)));
    let mut s = Scene::listen(Scene::config());
    for at in [0, 10] {
        send!(s, at, "S 0:0(0) <mss 1000>");
        recv!(s, at, "S. 0:0(0) ack 1");
        assert_eq!(s.tcp.backlog(s.listener.unwrap()), Ok((0, 1)));
        send!(s, at + 5, "R 1:1(0)");
        assert_eq!((s.tcp.connections(), s.tcp.backlog(s.listener.unwrap())), (0, Ok((0, 0))));
    }
}
