//! The PROXY protocol: by hand, from one relay to another, and with HAProxy.

use super::*;
use flowlane_testnet::{Program, Scratch, eventually_or};

/// What a target gets of a client that sends this and ends its direction; `None` if the client is reset instead.
fn got(relay: &Relay, target: &Target, sent: &[u8]) -> Option<(String, SocketAddr)> {
    let mut client = relay.connect();
    let from = client.local_addr().unwrap();
    client.write_all(sent).unwrap();
    // It may have been reset already.
    let _ = client.shutdown(std::net::Shutdown::Write);
    // Either the target has a connection, or the client is reset.
    loop {
        if poll(&target.0, rustix::event::PollFlags::IN, Duration::from_millis(20)) {
            break;
        }
        if poll(&client, rustix::event::PollFlags::IN, Duration::from_millis(20)) {
            read_to_reset(&client);
            return None;
        }
    }
    let mut text = String::new();
    target.accept().read_to_string(&mut text).unwrap();
    Some((text, from))
}

#[test]
fn targets_are_told_who_the_client_is() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "--proxy-out v1");
    let (text, from) = got(&relay, &target, b"hello").unwrap();
    assert_eq!(text, format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nhello", from.port(), relay.port));
    let of = &relay.stop()["targets"][0];
    assert_eq!(of["to-target-bytes"], 5, "a header is none of the client's bytes: {of}");
}

#[test]
fn clients_tell_who_they_are_or_are_reset() {
    let target = Target::new();
    let relay = Relay::to(&[target.at()], "--proxy-in --proxy-out v1 --connect-timeout 500ms");
    let told = b"PROXY TCP6 2001:db8::1 2001:db8::2 1000 2000\r\n";
    let (text, _) = got(&relay, &target, &[&told[..], b"hello"].concat()).unwrap();
    assert_eq!(text.as_bytes(), [&told[..], b"hello"].concat());
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\x03\xe8\x07\xd0";
    let (text, _) = got(&relay, &target, &[&v2[..], b"hi"].concat()).unwrap();
    assert_eq!(text, "PROXY TCP4 192.0.2.1 198.51.100.2 1000 2000\r\nhi");
    // A check of health tells nothing: the connection's own ends count.
    let (text, from) = got(&relay, &target, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").unwrap();
    assert_eq!(text, format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", from.port(), relay.port));
    // Hostile input.
    assert_eq!(got(&relay, &target, b"GET / HTTP/1.1\r\n\r\n"), None);
    assert_eq!(got(&relay, &target, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"), None);
    assert_eq!(got(&relay, &target, b"PROXY TCP4"), None, "it ends before its header does");
    let mut slow = relay.connect();
    slow.write_all(b"PROXY ").unwrap();
    read_to_reset(&slow);
    let summary = relay.stop();
    let counts =
        ["proxy-malformed", "proxy-cut", "proxy-too-late"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 1], "{summary}");
    assert_eq!(summary["targets"][0]["connections"], 3, "{summary}");
}

/// HAProxy with a front and a back that are written like this.
fn haproxy(tag: &str, bind: &str, server: &str) -> (Program, Scratch) {
    let scratch = Scratch::new(&format!("haproxy-{tag}"));
    let file = scratch.path("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 30s\n timeout client 60s\n timeout server 60s\n\
         listen l\n bind {bind}\n server s {server}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-q").arg("-f").arg(&file).stdin(Stdio::null());
    (Program::start(command), scratch)
}

/// Waits until somebody listens.
fn until_it_listens(at: SocketAddr) {
    eventually_or(|| format!("{at} listens"), || TcpStream::connect(at).is_ok());
}

/// client ─▶ HAProxy ─ PROXY ─▶ relay ─ PROXY ─▶ HAProxy ─ PROXY 1 ─▶ target: it is told of the client at the beginning.
#[test]
fn with_haproxy_on_both_sides() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        flowlane_testnet::skipped("skipped, because there is no haproxy");
        return;
    }
    for (version, send) in [("v1", "send-proxy"), ("v2", "send-proxy-v2")] {
        let target = Target::new();
        let [front, back] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port())));
        let _back = haproxy(
            &format!("back{version}"),
            &format!("{back} accept-proxy"),
            &format!("{} send-proxy", target.at()),
        );
        until_it_listens(back);
        // Its listener has taken a connection without a header, which goes no further.
        let relay = Relay::to(&[back], &format!("--proxy-in --proxy-out {version}"));
        let _front = haproxy(
            &format!("front{version}"),
            &front.to_string(),
            &format!("127.0.0.1:{} {send}", relay.port),
        );
        until_it_listens(front);
        let mut client = connect(front);
        let from = client.local_addr().unwrap();
        client.write_all(b"through all of them").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        // The first that came only looked whether the front listens.
        let text = loop {
            let mut text = String::new();
            // That one may have been reset.
            if target.accept().read_to_string(&mut text).is_ok() && text.contains("through") {
                break text;
            }
        };
        assert_eq!(
            text,
            format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\nthrough all of them", from.port(), front.port()),
            "{version}"
        );
        let summary = relay.stop();
        assert_eq!(summary["proxy-malformed"], 0, "{summary}");
    }
}

/// A target that expects headers gets one with each check of its health, which says that the connection stands for no other.
#[test]
fn health_checks_have_a_header() {
    for (version, header) in [("v1", &b"PROXY UNKNOWN\r\n"[..]), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0")] {
        let target = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let relay =
            Relay::to(&[target.local_addr().unwrap()], &format!("--health 20ms --proxy-out {version}"));
        assert!(
            poll(&target, rustix::event::PollFlags::IN, Duration::from_secs(10)),
            "{version}: no check came"
        );
        let (mut check, _) = target.accept().unwrap();
        check.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut came = Vec::new();
        check.read_to_end(&mut came).unwrap();
        assert_eq!(came, header, "{version}");
        drop(check);
        relay.stop();
    }
}
