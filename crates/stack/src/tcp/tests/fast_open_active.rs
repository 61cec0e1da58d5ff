//! Fast Open when we connect (RFC 7413).

use super::*;

/// Where a dialogue's next connection comes from.
const FIRST_PORT: u16 = 20_000;

impl Scene {
    fn client(config: TcpConfig) -> Scene {
        let mut s = Scene::new(config);
        s.our_port = FIRST_PORT;
        s
    }

    /// Begins a connection with `len` bytes; how many went with the SYN.
    fn open(&mut self, ms: u64, how: FastOpen, len: u64, rest_follows: bool) -> usize {
        self.until(ms);
        self.our_port += 1;
        self.iss = None;
        let (local, remote) = (SocketAddr::new(self.our_ip, self.our_port), SocketAddr::new(PEER, PEER_PORT));
        let socket = SocketOptions { fast_open: how, ..SocketOptions::default() };
        let options = ConnectOptions { socket, ..ConnectOptions::default() };
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        let data = FirstData { bytes: &bytes, rest_follows };
        let (id, taken) = self.with(|tcp, cx| tcp.connect_with(cx, local, remote, &options, data)).unwrap();
        (self.id, self.written, self.read) = (Some(id), taken as u64, 0);
        self.drain();
        taken
    }

    /// The connection goes without a word.
    fn forget(&mut self) {
        let id = self.id.unwrap();
        self.with(|tcp, cx| tcp.abort(cx, id)).unwrap();
        self.drain();
        self.heard.clear();
    }

    /// A client that has a cookie, `abcd1234`, of a peer whose segments hold `mss` bytes.
    fn with_cookie(config: TcpConfig, mss: u16) -> Scene {
        let mut s = Scene::client(config);
        assert_eq!(s.open(0, FastOpen::Cookie, 100, false), 0, "nothing goes without a cookie");
        recv!(s, 0, "S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,FO>");
        send!(s, 10, &format!("S. 0:0(0) ack 1 win 5000 <mss {mss},FO abcd1234>"));
        recv!(s, 10, ". 1:1(0) ack 1");
        s.forget();
        s
    }
}

const SYN_WITH: &str = "<mss 1460,sackOK,wscale 7,FO abcd1234>";
const PLAIN: &str = "<mss 1460,sackOK,wscale 7>";

/// §4.1.3, §4.2.2: a cookie is asked for, kept, and opens the next connection; data fills what the peer's segments hold, options
/// taken off.
#[test]
fn data_goes_with_a_known_cookie() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    assert_eq!(s.open(20, FastOpen::Cookie, 2000, false), 960);
    recv!(s, 20, &format!("S 0:960(960) win 65535 {SYN_WITH}"));
    send!(s, 30, "S. 0:0(0) ack 961 win 5000 <mss 1000,sackOK>");
    recv!(s, 30, ". 961:961(0) ack 1");
    let info = s.info();
    assert_eq!((info.state, info.syn_data, info.outstanding), (State::Established, true, 0));
    assert_eq!((info.rtt, info.retransmits), (Some(Duration::from_millis(10)), 0));
    s.write(50);
    recv!(s, 30, "P. 961:1011(50) ack 1");
    let stats = s.tcp.stats();
    assert_eq!((stats.fast_open_active, stats.fast_open_cookies_received), (1, 1));
    assert_eq!((s.tcp.fast_open_peers(), stats.fast_open_active_refused), (1, 0));
}

/// §4.1.3: a cookie is for the pair of our address and the peer's. From another address one is asked for, and each goes on with
/// its own, the peer's segment size included.
#[test]
fn each_of_our_addresses_has_a_cookie() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.our_ip = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
    assert!(!s.tcp.fast_open_ready(s.now, s.our_ip, PEER, FastOpen::Cookie));
    assert_eq!(s.open(20, FastOpen::Cookie, 2000, false), 0, "the other address's cookie is not sent");
    recv!(s, 20, "S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,FO>");
    send!(s, 30, "S. 0:0(0) ack 1 win 5000 <mss 1400,FO 00112233>");
    recv!(s, 30, ". 1:1(0) ack 1");
    s.forget();
    assert!(s.tcp.fast_open_ready(s.now, s.our_ip, PEER, FastOpen::Cookie));
    assert_eq!(s.open(40, FastOpen::Cookie, 2000, false), 1360);
    recv!(s, 40, "S 0:1360(1360) win 65535 <mss 1460,sackOK,wscale 7,FO 00112233>");
    s.forget();
    s.our_ip = US;
    assert_eq!(s.open(50, FastOpen::Cookie, 2000, false), 960);
    recv!(s, 50, &format!("S 0:960(960) win 65535 {SYN_WITH}"));
    let stats = s.tcp.stats();
    assert_eq!((s.tcp.fast_open_peers(), stats.fast_open_cookies_received), (2, 2));
}

/// Without the wish for it, a SYN is as it ever was.
#[test]
fn off_by_default() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    assert_eq!(s.open(20, FastOpen::Off, 100, false), 0);
    recv!(s, 20, &format!("S 0:0(0) win 65535 {PLAIN}"));
}

/// §4.2.2: what the SYN-ACK does not acknowledge is sent again at once, behind the SYN.
#[test]
fn refused_data_is_sent_again() {
    let mut s = Scene::with_cookie(Scene::config(), 1400);
    assert_eq!(s.open(20, FastOpen::Cookie, 2000, false), 1360);
    recv!(s, 20, &format!("S 0:1360(1360) win 65535 {SYN_WITH}"));
    send!(s, 30, "S. 0:0(0) ack 1 win 5000 <mss 1000,sackOK,FO 00112233>");
    recv!(s, 30, ". 1:1001(1000) ack 1");
    recv!(s, 30, "P. 1001:1361(360) ack 1");
    let info = s.info();
    assert_eq!((info.syn_data, info.retransmits), (false, 2));
    send!(s, 40, ". 1:1(0) ack 1361 win 5000");
    assert_eq!((s.info().outstanding, s.tcp.stats().fast_open_active_refused), (0, 1));
    s.quiet(1000);
    s.forget();
    s.open(1000, FastOpen::Cookie, 10, false);
    recv!(s, 1000, "S 0:10(10) win 65535 <mss 1460,sackOK,wscale 7,FO 00112233>");
}

/// A part of it may have been taken.
#[test]
fn partly_taken_data() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 500, false);
    recv!(s, 20, &format!("S 0:500(500) win 65535 {SYN_WITH}"));
    send!(s, 25, "S. 0:0(0) ack 600 win 5000 <mss 1000>");
    recv!(s, 25, "R 600:600(0)");
    recv!(s, 1020, &format!("S 0:0(0) win 65535 {PLAIN}"));
    send!(s, 1030, "S. 0:0(0) ack 101 win 5000 <mss 1000>");
    recv!(s, 1030, "P. 101:501(400) ack 1");
    send!(s, 1040, ". 1:1(0) ack 501 win 5000");
    assert_eq!(s.info().unacknowledged, 0);
    assert!(!s.info().syn_data);
}

/// §4.1.3.1: the second SYN has neither option nor data, in case something on the way dislikes them.
#[test]
fn a_repeated_syn_is_plain() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 500, false);
    recv!(s, 20, &format!("S 0:500(500) win 65535 {SYN_WITH}"));
    recv!(s, 1020, &format!("S 0:0(0) win 65535 {PLAIN}"));
    send!(s, 1030, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
    recv!(s, 1030, "P. 1:501(500) ack 1");
    s.forget();
    // A request is left out the second time, too, but its answer is kept.
    s.tcp.forget_fast_open_peers();
    s.open(1100, FastOpen::Cookie, 0, false);
    recv!(s, 1100, "S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,FO>");
    recv!(s, 2100, &format!("S 0:0(0) win 65535 {PLAIN}"));
    send!(s, 2110, "S. 0:0(0) ack 1 win 5000 <mss 1000,FO abcd1234>");
    recv!(s, 2110, ". 1:1(0) ack 1");
    s.forget();
    s.open(2200, FastOpen::Cookie, 5, false);
    recv!(s, 2200, &format!("S 0:5(5) win 65535 {SYN_WITH}"));
}

/// §4.1.3.1: after losses the peer is not bothered for a while.
#[test]
fn losses_pause_it() {
    let pause = Duration::from_secs(100);
    let mut s = Scene::with_cookie(TcpConfig { fast_open_pause: pause, ..Scene::config() }, 1000);
    for at in [100, 5000] {
        s.open(at, FastOpen::Cookie, 10, false);
        recv!(s, at, &format!("S 0:10(10) win 65535 {SYN_WITH}"));
        recv!(s, at + 1000, &format!("S 0:0(0) win 65535 {PLAIN}"));
        send!(s, at + 1010, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
        recv!(s, at + 1010, "P. 1:11(10) ack 1");
        s.forget();
    }
    assert_eq!(s.open(50_000, FastOpen::Cookie, 10, false), 0);
    recv!(s, 50_000, &format!("S 0:0(0) win 65535 {PLAIN}"));
    assert_eq!(s.tcp.stats().fast_open_paused, 1);
    s.forget();
    assert_eq!(s.open(106_011, FastOpen::Cookie, 10, false), 10);
    recv!(s, 106_011, &format!("S 0:10(10) win 65535 {SYN_WITH}"));
}

/// §4.1.3.1: "no response at all, i.e., connection timeout".
#[test]
fn an_unanswered_attempt_pauses_it() {
    let mut s = Scene::with_cookie(TcpConfig { syn_retries: 1, ..Scene::config() }, 1000);
    s.open(100, FastOpen::Cookie, 10, false);
    recv!(s, 100, &format!("S 0:10(10) win 65535 {SYN_WITH}"));
    recv!(s, 1100, &format!("S 0:0(0) win 65535 {PLAIN}"));
    s.quiet(10_000);
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::TimedOut)));
    s.forget();
    s.open(20_000, FastOpen::Cookie, 10, false);
    recv!(s, 20_000, &format!("S 0:0(0) win 65535 {PLAIN}"));
}

/// A peer that does not know the option may know the draft's; asked once.
#[test]
fn the_form_of_the_draft_is_tried_once() {
    let mut s = Scene::client(Scene::config());
    for (ms, option) in [(0, "FO"), (100, "FOEXP"), (200, "FO"), (300, "FO")] {
        s.open(ms, FastOpen::Cookie, 10, false);
        recv!(s, ms, &format!("S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,{option}>"));
        send!(s, ms + 10, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
        recv!(s, ms + 10, ". 1:1(0) ack 1");
        s.forget();
    }
    s.tcp.forget_fast_open_peers();
    for (ms, option, answer) in
        [(400, "FO", ""), (500, "FOEXP", ",FOEXP 1234"), (600, "FOEXP", ",FOEXP 12345678")]
    {
        s.open(ms, FastOpen::Cookie, 0, false);
        recv!(s, ms, &format!("S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,{option}>"));
        // The second answer is too short to be a cookie.
        send!(s, ms + 10, &format!("S. 0:0(0) ack 1 win 5000 <mss 1000{answer}>"));
        recv!(s, ms + 10, ". 1:1(0) ack 1");
        s.forget();
        if ms == 500 {
            s.tcp.forget_fast_open_peers();
            s.open(550, FastOpen::Cookie, 0, false);
            s.heard.clear();
            send!(s, 560, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
            s.forget();
        }
    }
    s.open(700, FastOpen::Cookie, 8, false);
    recv!(s, 700, "S 0:8(8) win 65535 <mss 1460,sackOK,wscale 7,FOEXP 12345678>");
}

/// Where no cookie is needed, none is sent, and one that comes unasked not kept.
#[test]
fn without_cookies() {
    let mut s = Scene::client(Scene::config());
    assert_eq!(s.open(0, FastOpen::NoCookie, 3000, false), 1420);
    recv!(s, 0, &format!("S 0:1420(1420) win 65535 {PLAIN}"));
    send!(s, 10, "S. 0:0(0) ack 1421 win 5000 <mss 1000,FO abcd1234>");
    recv!(s, 10, ". 1421:1421(0) ack 1");
    assert!(s.info().syn_data);
    s.forget();
    s.open(20, FastOpen::Cookie, 10, false);
    recv!(s, 20, "S 0:0(0) win 65535 <mss 1460,sackOK,wscale 7,FO>");
}

/// A writer that waits for the rest lets its data bring the acknowledgement, and converses from then on.
#[test]
fn the_rest_brings_the_acknowledgement() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    assert_eq!(s.open(20, FastOpen::Cookie, 2000, true), 960);
    recv!(s, 20, &format!("S 0:960(960) win 65535 {SYN_WITH}"));
    send!(s, 30, "S. 0:0(0) ack 961 win 5000 <mss 1000,sackOK>");
    s.quiet(40);
    s.write(500);
    recv!(s, 40, "P. 961:1461(500) ack 1");
    send!(s, 50, "P. 1:101(100) ack 1461 win 5000");
    recv!(s, 90, ". 1461:1461(0) ack 101");
    // If it does not come after all, the acknowledgement goes alone.
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 2000, true);
    recv!(s, 20, &format!("S 0:960(960) win 65535 {SYN_WITH}"));
    send!(s, 30, "S. 0:0(0) ack 961 win 5000 <mss 1000,sackOK>");
    recv!(s, 70, ". 961:961(0) ack 1");
}

/// Both connect at once, both with data: neither takes the other's SYN for an answer to its data, and it is not repeated in ours.
#[test]
fn simultaneous_open() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 500, false);
    recv!(s, 20, &format!("S 0:500(500) win 65535 {SYN_WITH}"));
    send!(s, 25, "S 0:300(300) win 5000 <mss 1000,sackOK,wscale 2,FO 87654321>");
    recv!(s, 25, "S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,wscale 7>");
    send!(s, 30, "S. 0:0(0) ack 501 win 5000 <mss 1000,sackOK,wscale 2,FO 12345678>");
    assert_eq!((s.state(), s.info().outstanding, s.info().syn_data), (State::Established, 0, true));
    recv!(s, 30, ". 501:501(0) ack 301 win 1022 <sack 0:1>");
    s.expect_read(300);
    send!(s, 40, "P. 301:601(300) ack 501");
    s.expect_read(300);
}

/// A SYN that is too big for the path is sent again at once, without its data and with what the path takes.
#[test]
fn a_syn_too_big_for_the_path() {
    let mut s = Scene::with_cookie(Scene::config(), 1460);
    assert_eq!(s.open(20, FastOpen::Cookie, 2000, false), 1420);
    recv!(s, 20, &format!("S 0:1420(1420) win 65535 {SYN_WITH}"));
    let mut quoted = [0; 8];
    quoted[..2].copy_from_slice(&s.our_port.to_be_bytes());
    quoted[2..4].copy_from_slice(&PEER_PORT.to_be_bytes());
    quoted[4..].copy_from_slice(&s.iss.unwrap().to_be_bytes());
    let kind = IcmpErrorKind::PacketTooBig(840);
    let error = IcmpError { local: US, remote: PEER, protocol: 6, quoted, kind };
    s.until(30);
    s.with(|tcp, cx| tcp.icmp_error(cx, &error));
    // A second report says nothing new.
    s.with(|tcp, cx| tcp.icmp_error(cx, &error));
    recv!(s, 30, "S 0:0(0) win 65535 <mss 800,sackOK,wscale 7>");
    send!(s, 40, "S. 0:0(0) ack 1 win 5000 <mss 1460,sackOK>");
    recv!(s, 40, ". 1:801(800) ack 1");
    recv!(s, 40, "P. 801:1421(620) ack 1");
}

/// A reset refuses the connection and its data.
#[test]
fn refused() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 500, false);
    recv!(s, 20, &format!("S 0:500(500) win 65535 {SYN_WITH}"));
    send!(s, 30, "R. 0:0(0) ack 1");
    assert_eq!(s.read_result(), Err(RecvError::Failed(Failure::Refused)));
    let id = s.id.unwrap();
    assert_eq!(s.with(|tcp, cx| tcp.send(cx, id, b"x")), Err(SendError::Failed(Failure::Refused)));
    s.quiet(5000);
    s.close();
    assert_eq!((s.tcp.connections(), s.tcp.buffer_memory()), (0, 0));
}

/// What went with the SYN is delivered, also if the application has closed since.
#[test]
fn closing_before_the_answer() {
    for whole in [false, true] {
        let mut s = Scene::with_cookie(Scene::config(), 1000);
        s.open(20, FastOpen::Cookie, 500, false);
        recv!(s, 20, &format!("S 0:500(500) win 65535 {SYN_WITH}"));
        if whole {
            s.close();
        } else {
            s.shutdown();
        }
        s.quiet(25);
        send!(s, 30, "S. 0:0(0) ack 1 win 5000 <mss 1000>");
        recv!(s, 30, "P. 1:501(500) ack 1");
        recv!(s, 30, "F. 501:501(0) ack 1");
        send!(s, 40, "F. 1:1(0) ack 502");
        recv!(s, 40, ". 502:502(0) ack 2");
        assert_eq!(s.tcp.time_waits(), 1);
    }
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 0, false);
    recv!(s, 20, &format!("S 0:0(0) win 65535 {SYN_WITH}"));
    s.close();
    assert_eq!(s.tcp.connections(), 0, "without data there is nothing to deliver");
}

/// Data with the SYN-ACK, and even the end of the stream.
#[test]
fn the_answer_comes_with_the_syn_ack() {
    let mut s = Scene::with_cookie(Scene::config(), 1000);
    s.open(20, FastOpen::Cookie, 100, false);
    recv!(s, 20, &format!("S 0:100(100) win 65535 {SYN_WITH}"));
    send!(s, 30, "SF. 0:400(400) ack 101 win 5000 <mss 1000>");
    recv!(s, 30, ". 101:101(0) ack 402");
    s.expect_read(400);
    assert_eq!((s.read_result(), s.state()), (Ok(0), State::CloseWait));
}

/// RFC 7323 §3.2: what a SYN-ACK echoes must be a timestamp that we sent; otherwise it answers somebody else's SYN.
#[test]
fn a_foreign_echo_is_refused() {
    let mut s = Scene::client(TcpConfig::default());
    s.open(0, FastOpen::Cookie, 0, false);
    let ts = s.clone_ts();
    recv!(s, 0, &format!("S 0:0(0) win 65535 <mss 1460,sackOK,TS {ts} 0,wscale 7,FO>"));
    for wrong in [ts.wrapping_sub(1), ts.wrapping_add(11)] {
        send!(s, 10, &format!("S. 0:0(0) ack 1 win 5000 <mss 1000,TS 5 {wrong}>"));
        recv!(s, 10, "R 1:1(0)");
    }
    assert_eq!(s.state(), State::SynSent);
    s.quiet(900);
    send!(s, 900, &format!("S. 0:0(0) ack 1 win 5000 <mss 1000,TS 5 {ts}>"));
    assert_eq!(s.state(), State::Established);
}
