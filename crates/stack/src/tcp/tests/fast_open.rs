//! Fast Open at a listener (RFC 7413).

use super::*;

const KEY: [u8; 16] = [7; 16];
const NEXT: [u8; 16] = [8; 16];

impl Scene {
    fn listen_fast(mut config: TcpConfig, fast_open: FastOpenListen) -> Scene {
        config.fast_open_keys = Some(FastOpenKeys::new(KEY));
        let mut s = Scene::new(config);
        let options = ListenOptions { fast_open: Some(fast_open), ..ListenOptions::default() };
        s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
        s
    }

    /// The cookie that a peer gets, by a handshake that comes to nothing.
    fn cookie(&mut self, ms: u64) -> String {
        self.peer_port += 1;
        send!(self, ms, "S 0:0(0) <mss 1000,FO>");
        self.drain();
        let (_, text, _) = self.heard.pop_front().expect("an answer");
        send!(self, ms, "R 1:1(0)");
        self.peer_port += 1;
        text.split("FO ").nth(1).expect("a cookie").trim_end_matches('>').to_owned()
    }

    /// A SYN with `len` bytes and a cookie.
    fn syn(&mut self, ms: u64, len: u32, cookie: &str) {
        send!(self, ms, &format!("S 0:{len}({len}) win 20000 <mss 1000,sackOK,{cookie}>"));
    }

    /// An ICMP error about what we sent with this number.
    fn error(&mut self, seq: u32, kind: IcmpErrorKind) {
        let mut quoted = [0; 8];
        quoted[..2].copy_from_slice(&OUR_PORT.to_be_bytes());
        quoted[2..4].copy_from_slice(&self.peer_port.to_be_bytes());
        quoted[4..].copy_from_slice(&self.iss.unwrap().wrapping_add(seq).to_be_bytes());
        let error = IcmpError { local: US, remote: PEER, protocol: 6, quoted, kind };
        self.with(|tcp, cx| tcp.icmp_error(cx, &error));
        self.drain();
    }

    fn pending(&self) -> usize {
        self.tcp.fast_open_pending(self.listener.unwrap()).unwrap()
    }

    /// An early connection with `len` bytes, accepted.
    fn early(fast_open: FastOpenListen, len: u32) -> Scene {
        let mut s = Scene::listen_fast(Scene::config(), fast_open);
        let cookie = s.cookie(0);
        s.syn(10, len, &format!("FO {cookie}"));
        recv!(s, 10, &format!("S. 0:0(0) ack {} win 65535 <mss 1460,sackOK>", len + 1));
        s.accept();
        s
    }
}

fn usual() -> FastOpenListen {
    FastOpenListen::default()
}

/// §4.1.2, §4.2.1: whoever brings its cookie is heard and answered before the handshake is over.
#[test]
fn a_cookie_is_given_and_then_data_taken() {
    let mut s = Scene::early(usual(), 300);
    let info = s.info();
    assert_eq!((info.state, info.syn_data), (State::SynReceived, true));
    assert_eq!(s.pending(), 1);
    s.expect_read(300);
    s.write(100);
    recv!(s, 10, "P. 1:101(100) ack 301");
    send!(s, 20, ". 301:301(0) ack 101 win 20000");
    assert_eq!((s.state(), s.info().outstanding, s.pending()), (State::Established, 0, 0));
    assert_eq!(s.info().rtt, Some(Duration::from_millis(10)));
    let stats = s.tcp.stats();
    assert_eq!((stats.fast_open_cookies_asked, stats.fast_open_passive), (1, 1));
    s.quiet(1000);
}

/// No data in the SYN, and yet ours may go out at once.
#[test]
fn a_cookie_alone_opens_too() {
    let mut s = Scene::early(usual(), 0);
    assert!(!s.info().syn_data);
    s.write(5000);
    for at in [1, 1001, 2001, 3001] {
        recv!(s, 10, &format!(". {at}:{}(1000) ack 1", at + 1000));
    }
    recv!(s, 10, "P. 4001:5001(1000) ack 1");
    send!(s, 15, ". 1:101(100) ack 5001");
    s.expect_read(100);
}

/// §3.1: the option is answered in the form in which it came.
#[test]
fn the_form_of_the_draft_is_known() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    let cookie = s.cookie(0);
    send!(s, 10, "S 0:0(0) <mss 1000,FOEXP>");
    recv!(s, 10, &format!("S. 0:0(0) ack 1 win 65535 <mss 1460,FOEXP {cookie}>"));
    s.peer_port += 1;
    s.syn(20, 10, &format!("FOEXP {cookie}"));
    recv!(s, 20, "S. 0:0(0) ack 11 win 65535 <mss 1460,sackOK>");
}

/// §4.2.1: a cookie that is not ours is answered with one that is, and the data is left to be sent again.
#[test]
fn a_wrong_cookie_brings_the_right_one() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    let cookie = s.cookie(0);
    for wrong in ["0011223344556677", "00112233", "00112233445566778899aabbccddeeff"] {
        s.peer_port += 1;
        s.syn(10, 300, &format!("FO {wrong}"));
        recv!(s, 10, &format!("S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,FO {cookie}>"));
        assert_eq!(s.tcp.accept(s.listener.unwrap()), Ok(None));
    }
    send!(s, 20, "P. 1:301(300) ack 1");
    s.accept();
    s.expect_read(300);
    assert!(!s.info().syn_data);
    assert_eq!(s.tcp.stats().fast_open_passive_refused, 3);
    // The cookie of another address.
    let other = Scene::listen_fast(
        Scene::config(),
        FastOpenListen { keys: Some(FastOpenKeys::new(NEXT)), ..usual() },
    )
    .cookie(0);
    assert_ne!(other, cookie);
}

/// §4.1.2: keys change; cookies of the former one are good and replaced, older ones are not.
#[test]
fn keys_rotate() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    let old = s.cookie(0);
    let keys = FastOpenKeys::new(KEY).rotate(NEXT);
    let told = FastOpenListen { keys: Some(keys), ..usual() };
    s.tcp.set_listen_fast_open(s.listener.unwrap(), Some(told)).unwrap();
    let new = s.cookie(5);
    assert_ne!(old, new);
    s.syn(10, 50, &format!("FO {old}"));
    recv!(s, 10, &format!("S. 0:0(0) ack 51 win 65535 <mss 1460,sackOK,FO {new}>"));
    assert_eq!(s.tcp.stats().fast_open_former_keys, 1);
    let told = FastOpenListen { keys: Some(keys.rotate([9; 16])), ..usual() };
    s.tcp.set_listen_fast_open(s.listener.unwrap(), Some(told)).unwrap();
    s.peer_port += 1;
    s.syn(20, 50, &format!("FO {old}"));
    s.drain();
    assert!(s.heard.pop_front().unwrap().1.starts_with("S. 0:0(0) ack 1 win"));
}

/// §5.1: so many at once; then Fast Open is as if it were off, until handshakes are over.
#[test]
fn the_number_of_early_connections_is_bounded() {
    let mut s = Scene::early(FastOpenListen { pending: 1, ..usual() }, 10);
    let (first, cookie) = (s.peer_port, {
        // Not by way of the listener: it has no room to answer.
        Scene::listen_fast(Scene::config(), usual()).cookie(0)
    });
    s.peer_port += 1;
    s.syn(20, 10, &format!("FO {cookie}"));
    recv!(s, 20, "S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK>");
    assert_eq!(s.tcp.stats().fast_open_overflows, 1);
    let iss = s.iss;
    s.peer_port = first;
    s.iss = None;
    s.syn(25, 10, &format!("FO {cookie}"));
    recv!(s, 25, "S. 0:0(0) ack 11");
    send!(s, 30, ". 11:11(0) ack 1");
    assert_eq!(s.pending(), 0);
    (s.peer_port, s.iss) = (first + 2, iss);
    s.syn(40, 10, &format!("FO {cookie}"));
    recv!(s, 40, "S. 0:0(0) ack 11");
}

/// §5.1: a reset does not make room for a minute: a flood of forged SYNs makes the owners of the addresses send them.
#[test]
fn resets_count_for_a_minute() {
    let mut s = Scene::early(FastOpenListen { pending: 1, ..usual() }, 10);
    let cookie = Scene::listen_fast(Scene::config(), usual()).cookie(0);
    send!(s, 20, "R 11:11(0)");
    assert_eq!((s.pending(), s.tcp.stats().fast_open_passive_resets), (1, 1));
    s.expect_read(10);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Reset)));
    s.close();
    for (ms, ack) in [(59_000, 1), (60_020, 11)] {
        s.peer_port += 1;
        s.syn(ms, 10, &format!("FO {cookie}"));
        recv!(s, ms, &format!("S. 0:0(0) ack {ack}"));
        send!(s, ms + 1, &format!(". {ack}:{ack}(0) ack 1"));
    }
}

/// Off unless it is asked for: data in a SYN is not taken and the option not answered (RFC 9293 §3.10.7.2 would let us keep it).
#[test]
fn off_by_default() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:300(300) <mss 1000,FO 0011223344556677>");
    recv!(s, 0, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    assert_eq!(s.tcp.accept(s.listener.unwrap()), Ok(None));
    s.peer_port += 1;
    send!(s, 5, "S 0:0(0) <mss 1000,FO>");
    recv!(s, 5, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
}

/// Data without a cookie only where that is wanted.
#[test]
fn without_cookies() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    send!(s, 0, "S 0:300(300) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    let mut s = Scene::listen_fast(Scene::config(), FastOpenListen { no_cookie: true, ..usual() });
    send!(s, 0, "S 0:300(300) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 301 win 65535 <mss 1460>");
    s.accept();
    s.expect_read(300);
    s.peer_port += 1;
    send!(s, 5, "S 0:0(0) <mss 1000>");
    recv!(s, 5, "S. 0:0(0) ack 1");
    assert_eq!(s.tcp.accept(s.listener.unwrap()), Ok(None), "nothing to open early for");
}

/// A SYN-ACK that was lost comes again, alone: what was sent behind it waits for the handshake.
#[test]
fn only_the_syn_ack_is_repeated() {
    let mut s = Scene::early(usual(), 10);
    s.write(100);
    recv!(s, 10, "P. 1:101(100) ack 11");
    // The peer's SYN again, as it comes the second time: without data.
    send!(s, 500, "S 0:0(0) win 20000 <mss 1000,sackOK>");
    recv!(s, 500, "S. 0:0(0) ack 11 win 65535 <mss 1460,sackOK>");
    recv!(s, 1010, "S. 0:0(0) ack 11");
    recv!(s, 3010, "S. 0:0(0) ack 11");
    send!(s, 3100, ". 11:11(0) ack 1 win 20000");
    assert_eq!(s.state(), State::Established);
    // RFC 6298 §5.7: three seconds, since nothing has been measured.
    recv!(s, 6100, "P. 1:101(100) ack 11");
}

/// A handshake that never ends is given up, and the application told.
#[test]
fn an_early_connection_times_out() {
    let mut s = Scene::listen_fast(TcpConfig { synack_retries: 1, ..Scene::config() }, usual());
    let cookie = s.cookie(0);
    s.syn(10, 10, &format!("FO {cookie}"));
    recv!(s, 10, "S. 0:0(0) ack 11");
    s.accept();
    recv!(s, 1010, "S. 0:0(0) ack 11");
    s.quiet(4000);
    s.expect_read(10);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
    assert_eq!(s.pending(), 0);
    s.close();
    assert_eq!(s.tcp.connections(), 0);
}

/// Under a flood, SYNs get SYN cookies and their data is not looked at.
#[test]
fn syn_cookies_come_first() {
    let config = TcpConfig { syn_cookies: SynCookies::Always, ..Scene::config() };
    let cookie = Scene::listen_fast(Scene::config(), usual()).cookie(0);
    let mut s = Scene::listen_fast(config, usual());
    s.syn(0, 10, &format!("FO {cookie}"));
    recv!(s, 0, "S. 0:0(0) ack 1 win 65535 <mss 1460>");
    assert_eq!((s.tcp.connections(), s.pending()), (0, 0));
    send!(s, 10, "P. 1:11(10) ack 1");
    s.accept();
    s.expect_read(10);
}

/// A peer that resets before anybody has accepted leaves the data that it had sent.
#[test]
fn a_reset_before_accept_leaves_the_data() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    let cookie = s.cookie(0);
    s.syn(10, 10, &format!("FO {cookie}"));
    recv!(s, 10, "S. 0:0(0) ack 11");
    send!(s, 20, "R. 11:11(0) ack 1");
    s.accept();
    s.expect_read(10);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Reset)));
    s.close();
    assert_eq!(s.tcp.connections(), 0);
}

/// Closing before the handshake is over: FIN goes out, and what unread data deserves.
#[test]
fn closing_early() {
    let mut s = Scene::early(usual(), 10);
    s.expect_read(10);
    s.write(50);
    s.close();
    recv!(s, 10, "P. 1:51(50) ack 11");
    recv!(s, 10, "F. 51:51(0) ack 11");
    send!(s, 20, "F. 11:11(0) ack 52");
    recv!(s, 20, ". 52:52(0) ack 12");
    assert_eq!((s.tcp.connections(), s.tcp.time_waits()), (0, 1));
    let mut s = Scene::early(usual(), 10);
    s.close();
    recv!(s, 10, "R. 1:1(0) ack 11");
    assert_eq!((s.tcp.connections(), s.pending()), (0, 0));
}

/// Whoever was not accepted when the listener closes is reset.
#[test]
fn closing_the_listener_resets() {
    let mut s = Scene::listen_fast(Scene::config(), usual());
    let cookie = s.cookie(0);
    s.syn(10, 10, &format!("FO {cookie}"));
    recv!(s, 10, "S. 0:0(0) ack 11");
    let listener = s.listener.unwrap();
    s.with(|tcp, cx| tcp.close_listener(cx, listener)).unwrap();
    recv!(s, 10, "R. 1:1(0) ack 11");
    assert_eq!(s.tcp.connections(), 0);
}

/// Reading what the SYN brought is not announced: the window of the SYN-ACK stands.
#[test]
fn reading_early_data_is_no_news() {
    let mut s = Scene::early(usual(), 1000);
    s.expect_read(1000);
    send!(s, 20, ". 1001:1001(0) ack 1");
    s.quiet(1000);
}

/// Data of a SYN and Nagle's algorithm: the SYN-ACK is no small segment to wait for.
#[test]
fn the_first_answer_does_not_wait() {
    let mut s = Scene::early(usual(), 10);
    s.write(10);
    recv!(s, 10, "P. 1:11(10) ack 11");
    s.write(10);
    s.quiet(15);
    send!(s, 20, ". 11:11(0) ack 11");
    recv!(s, 20, "P. 11:21(10) ack 11");
}

/// What was too big for the path goes again in smaller pieces, before the handshake is over, and the SYN-ACK does not.
#[test]
fn early_data_too_big_for_the_path() {
    let mut s = Scene::early(usual(), 10);
    s.write(1000);
    recv!(s, 10, "P. 1:1001(1000) ack 11");
    s.error(1, IcmpErrorKind::PacketTooBig(640));
    recv!(s, 10, ". 1:601(600) ack 11");
    recv!(s, 10, "P. 601:1001(400) ack 11");
    s.quiet(900);
    recv!(s, 1010, "S. 0:0(0) ack 11");
    send!(s, 1020, ". 11:11(0) ack 1001");
    assert_eq!((s.state(), s.info().unacknowledged), (State::Established, 0));
}

/// RFC 5461 §4.1: an error that says that the peer cannot be reached ends a handshake nobody knows of; with Fast Open its data
/// can still be read. Of a connection that is in use it ends nothing.
#[test]
fn unreachable_peers() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1000>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    s.error(0, IcmpErrorKind::PortUnreachable);
    assert_eq!(s.tcp.connections(), 1, "says nothing about the peer's SYN");
    s.error(5000, IcmpErrorKind::HostUnreachable);
    assert_eq!(s.tcp.connections(), 1, "not about anything in flight");
    s.error(0, IcmpErrorKind::HostUnreachable);
    assert_eq!(s.tcp.connections(), 0);
    send!(s, 10, ". 1:1(0) ack 1");
    recv!(s, 10, "R 1:1(0)");

    let mut s = Scene::listen_fast(Scene::config(), usual());
    let cookie = s.cookie(0);
    s.syn(10, 10, &format!("FO {cookie}"));
    recv!(s, 10, "S. 0:0(0) ack 11");
    s.error(0, IcmpErrorKind::HostUnreachable);
    s.accept();
    s.expect_read(10);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Unreachable)));

    let mut s = Scene::early(usual(), 10);
    s.error(0, IcmpErrorKind::HostUnreachable);
    assert_eq!(s.state(), State::SynReceived);
}
