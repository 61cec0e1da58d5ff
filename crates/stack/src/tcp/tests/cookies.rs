//! SYN cookies (RFC 4987).

use super::*;

fn scene(mode: SynCookies) -> Scene {
    let mut s = Scene::new(TcpConfig { syn_cookies: mode, ..TcpConfig::default() });
    let options = ListenOptions { syn_backlog: 2, backlog: 100, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    s
}

/// Nothing is remembered, and yet the options survive in the timestamp.
#[test]
fn options_survive() {
    let mut s = scene(SynCookies::Always);
    send!(s, 0, "SEW 0:0(0) win 65000 <mss 1450,sackOK,TS 500 0,wscale 9>");
    let ts = s.clone_ts();
    recv!(s, 0, &format!("S.E 0:0(0) ack 1 <mss 1460,sackOK,TS {ts} 500,wscale 7>"));
    assert_eq!(s.tcp.connections(), 0);
    send!(s, 50, &format!("P. 1:11(10) ack 1 win 100 <TS 550 {ts}>"));
    s.accept();
    let info = s.info();
    assert_eq!((info.snd_mss, info.snd_wnd), (1440, 100 << 9));
    assert!(info.sack && info.timestamps && info.ecn);
    assert_eq!(info.window_scale, Some((7, 9)));
    s.expect_read(10);
    assert_eq!((s.tcp.stats().cookies_sent, s.tcp.stats().cookies_received), (1, 1));
}

/// RFC 9768 §5.1: what only the acknowledgement of an agreement on accurate ECN shows stands for it.
#[test]
fn accurate_ecn_survives() {
    for (syn, answer, ack, accurate) in [
        ("SEWA", "S.W", ".W", true),
        ("SEWA", "S.W", ".EA", true),
        ("S", "S.", ".", false),
        ("SEW", "S.", ".E", false),
    ] {
        let mut s =
            Scene::new(TcpConfig { ecn: Ecn::Accurate, syn_cookies: SynCookies::Always, ..Scene::config() });
        s.listener = Some(s.tcp.listen(None, OUR_PORT, ListenOptions::default()).unwrap());
        send!(s, 0, &format!("{syn} 0:0(0) win 65000 <mss 1450>"));
        s.until(0);
        let text = &s.heard[0].1;
        assert!(text.starts_with(&format!("{answer} 0:0(0)")), "{text}");
        assert_eq!(text.contains("ECN e1b 1 ceb 0 e0b 1"), accurate);
        send!(s, 1, &format!("{ack} 1:1(0) ack 1"));
        s.accept();
        assert_eq!(s.info().accurate_ecn.is_some(), accurate, "{syn} {ack}");
    }
}

/// Without timestamps only the segment size does.
#[test]
fn without_timestamps() {
    let mut s = scene(SynCookies::Always);
    send!(s, 0, "S 0:0(0) win 65000 <mss 600,sackOK,wscale 9>");
    recv!(s, 0, "S. 0:0(0) ack 1 <mss 1460>");
    send!(s, 1, ". 1:1(0) ack 1 win 100");
    s.accept();
    assert_eq!((s.info().snd_mss, s.info().snd_wnd, s.info().sack), (536, 100, false));
}

/// A guess is no cookie, and none is looked at when the listener has long stopped sending them.
#[test]
fn guesses_fail() {
    let mut s = scene(SynCookies::Always);
    send!(s, 0, "S 0:0(0) <mss 1460>");
    recv!(s, 0, "S. 0:0(0) ack 1 <mss 1460>");
    for guess in 2..200 {
        send!(s, 1, &format!(". 1:1(0) ack {guess}"));
    }
    send!(s, 1, ". 2:2(0) ack 1");
    assert_eq!((s.tcp.connections(), s.tcp.stats().cookies_bad), (0, 199));
    send!(s, 127_000, "S 7:7(0) <mss 1460>");
    s.drain();
    s.iss = Some(s.iss.unwrap());
    send!(s, 300_000, ". 8:8(0) ack 1");
    assert_eq!(s.tcp.connections(), 0);
}

/// A flood fills the backlog; cookies let the honest in.
#[test]
fn a_flood() {
    let mut s = scene(SynCookies::WhenFull);
    for port in 0..100 {
        s.peer_port = 1000 + port;
        send!(s, 0, "S 0:0(0) <mss 1460>");
    }
    s.drain();
    s.heard.clear();
    assert_eq!((s.tcp.connections(), s.tcp.stats().cookies_sent), (2, 98));
    s.peer_port = 7;
    send!(s, 0, "S 0:0(0) <mss 1460>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 1, ". 1:1(0) ack 1");
    s.accept();
    assert_eq!(s.state(), State::Established);
}

/// With cookies off the flood wins, and is counted.
#[test]
fn off() {
    let mut s = scene(SynCookies::Off);
    for port in 0..10 {
        s.peer_port = 1000 + port;
        send!(s, 0, "S 0:0(0) <mss 1460>");
    }
    assert_eq!(s.dropped(DropReason::SynBacklogFull), 8);
}

/// The answer to a cookie makes no connection that the accept queue has no room for.
#[test]
fn a_full_accept_queue_takes_no_cookie() {
    let mut s = Scene::new(TcpConfig { syn_cookies: SynCookies::Always, ..TcpConfig::default() });
    let options = ListenOptions { backlog: 1, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    let mut cookies = Vec::new();
    for port in 1..=3 {
        (s.peer_port, s.iss) = (port, None);
        send!(s, 0, "S 0:0(0) <mss 1460>");
        s.drain();
        cookies.push((port, s.iss));
    }
    for cookie in &cookies {
        (s.peer_port, s.iss) = *cookie;
        send!(s, 1, ". 1:1(0) ack 1");
    }
    assert_eq!((s.tcp.connections(), s.tcp.stats().cookies_received), (1, 1));
    assert_eq!(s.tcp.stats().listen_overflows, 2);
    // The peer sends its first data again when there is room, and that is enough.
    s.accept();
    (s.peer_port, s.iss) = cookies[2];
    send!(s, 500, "P. 1:11(10) ack 1");
    s.accept();
    s.expect_read(10);
}

/// Where no cookie was sent none is looked for: an acknowledgement out of nowhere is refused as any other.
#[test]
fn who_sends_no_cookies_takes_none() {
    let mut s = scene(SynCookies::WhenFull);
    s.iss = Some(0);
    send!(s, 0, ". 1:1(0) ack 77");
    recv!(s, 0, "R 77:77(0)");
    assert_eq!((s.tcp.stats().cookies_bad, s.dropped(DropReason::NotSyn)), (0, 1));
}
