//! Socket options and what `info` shows.

use super::*;

/// Options are kept, returned and inherited from the listener.
#[test]
fn options_are_inherited() {
    let mut s = Scene::new(Scene::config());
    let socket = SocketOptions {
        nodelay: true,
        tos: 0x48,
        hop_limit: Some(255),
        recv_buffer: Some(10_000),
        max_segment: Some(700),
        congestion: Some(Algorithm::NewReno),
        ..SocketOptions::default()
    };
    let options = ListenOptions { socket, ..ListenOptions::default() };
    s.listener = Some(s.tcp.listen(None, OUR_PORT, options).unwrap());
    send!(s, 0, "S 0:0(0) <mss 1000,sackOK>");
    recv!(s, 0, "S. 0:0(0) ack 1 win 9800 <mss 700,sackOK>");
    send!(s, 1, ". 1:1(0) ack 1");
    s.accept();
    assert_eq!(s.tcp.options(s.id.unwrap()), Ok(socket));
    s.write(1000);
    assert_eq!((s.heard[0].2.traffic_class, s.heard[0].2.hop_limit), (0x48, 255));
    recv!(s, 1, ". 1:701(700) ack 1");
    assert_eq!(s.info().recv_buffer, 10_000);
    s.set(|options| options.hop_limit = Some(0));
    s.heard.clear();
    s.write(1);
    assert_eq!(s.heard[0].2.hop_limit, 1);
}

/// Options of a SYN that make no sense end the list and nothing else (MUST-7).
#[test]
fn absurd_values_are_bounded() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 1>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 1, ". 1:1(0) ack 1");
    s.accept();
    assert_eq!(s.info().snd_mss, 48);
}

/// A segment size of nothing says nothing (RFC 9293 §3.7.1, MUST-15).
#[test]
fn a_segment_size_of_zero_is_none() {
    let mut s = Scene::listen(Scene::config());
    send!(s, 0, "S 0:0(0) <mss 0>");
    recv!(s, 0, "S. 0:0(0) ack 1");
    send!(s, 1, ". 1:1(0) ack 1");
    s.accept();
    assert_eq!(s.info().snd_mss, 536);
}

/// IPv6: segment sizes follow the longer header.
#[test]
fn ipv6() {
    let mut s = Scene::new(TcpConfig::default());
    let local: SocketAddr = "[fd00::1]:1".parse().unwrap();
    let remote: SocketAddr = "[fd00::2]:2".parse().unwrap();
    let id = s.with(|tcp, cx| tcp.connect(cx, local, remote, &ConnectOptions::default())).unwrap();
    assert_eq!(s.tcp.info(id).unwrap().rcv_mss, 1440);
    let out = s.with(super::super::Tcp::poll_output).unwrap();
    assert!(!out.dont_fragment);
    assert_eq!(out.src, local.ip());
}
