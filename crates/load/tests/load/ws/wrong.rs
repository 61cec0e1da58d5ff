//! Servers that do wrong: what each costs the run, and under which name.

use std::time::Duration;

use flowlane_load::Phase;
use flowlane_load::ws::{Kind, Payload, WsLoadConfig};

use super::kit::{Far, config, run};

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn fragments_are_joined_and_pings_among_them_answered() {
    let ran = run(Far::Fragments, config());
    let c = ran.counts;
    assert_eq!((c.failed(), c.broken), (0, 0), "{c:?} {:?}", ran.report.failed);
    assert!(c.answered > 20, "{c:?}");
    assert_eq!((c.fragmented, c.pings), (c.answered, c.answered), "{c:?}");
}

#[test]
fn answers_that_are_not_the_message_are_wrong() {
    for far in [Far::Corrupts, Far::Repeats, Far::OtherKind, Far::Longer] {
        for verify in [true, false] {
            let payload = Payload { kind: Kind::Text, size: 200, verify, words: false };
            let ran = run(far, WsLoadConfig { payload, ..config() });
            let c = ran.counts;
            assert!(c.answered >= 100, "{far:?}: {c:?}");
            if verify {
                // Each connection's tenth answers.
                assert!(c.wrong.abs_diff(c.answered / 10) <= 4, "{far:?}: {c:?}");
                assert_eq!(ran.errors("content"), c.wrong, "{far:?}");
            } else {
                assert_eq!((c.wrong, c.failed()), (0, 0), "{far:?}: {c:?}");
            }
            assert_eq!(c.broken, 0, "{far:?}: {c:?}");
        }
    }
}

#[test]
fn what_nobody_asked_for_is_no_answer() {
    let ran = run(Far::Greets, config());
    let c = ran.counts;
    assert_eq!((c.unasked, c.failed(), c.broken), (4, 0, 0), "{c:?}");
    assert!(c.answered > 20, "{c:?}");
}

#[test]
fn answers_that_open_no_websocket_are_named() {
    const NO_KEY: &str = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n";
    const OTHER_KEY: &str = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    const NO_UPGRADE: &str = "HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: KEY\r\n\r\n";
    const DEFLATE: &str = "HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: KEY\r\n\
        Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    const FORBIDDEN: &str = "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n";
    for (answer, name, kind) in [
        (FORBIDDEN, "handshake-status", "status"),
        (NO_KEY, "handshake-bad-accept", "malformed"),
        (OTHER_KEY, "handshake-bad-accept", "malformed"),
        (NO_UPGRADE, "handshake-no-upgrade", "malformed"),
        (DEFLATE, "handshake-unasked", "malformed"),
        ("SSH-2.0-OpenSSH\r\n\r\n", "handshake-not-http", "malformed"),
    ] {
        let ran = run(Far::Answers(answer), config());
        let c = ran.counts;
        assert_eq!((c.connected, c.messages), (0, 0), "{name}: {c:?}");
        assert!(c.not_connected >= 4 && c.handshakes_failed == c.not_connected, "{name}: {c:?}");
        assert_eq!((ran.more(name), ran.errors(kind)), (c.not_connected, c.not_connected), "{name}");
        assert!(ran.failure.is_some(), "{name}");
    }
}

#[test]
fn interim_answers_may_precede_the_one() {
    let ran = run(
        Far::Answers(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\
             Sec-WebSocket-Accept: KEY\r\n\r\n",
        ),
        config(),
    );
    assert_eq!((ran.counts.connected, ran.counts.not_connected), (4, 0), "{:?}", ran.counts);
}

#[test]
fn a_handshake_without_an_answer_and_a_message_without_one_time_out() {
    let ran = run(Far::Mute, WsLoadConfig { timeout: SHORT, ..config() });
    let c = ran.counts;
    assert_eq!(
        (c.connected, ran.more("handshake-timeout"), ran.errors("timeout")),
        (0, c.not_connected, c.not_connected)
    );
    let phases = vec![Phase::hold(6 * SHORT)];
    let ran = run(Far::Silent, WsLoadConfig { timeout: SHORT, depth: 3, phases, ..config() });
    let c = ran.counts;
    assert!(c.timed_out >= 4 && c.answered == 0, "{c:?}");
    assert!(c.connected >= 8, "a connection without answers is given up for another: {c:?}");
    assert_eq!(ran.errors("timeout"), c.timed_out, "{c:?}");
}

#[test]
fn closes_are_counted_by_their_codes_and_the_connection_is_opened_again() {
    for (code, name) in [
        (Some(1001), "closed-1001"),
        (Some(1011), "closed-1011"),
        (Some(4000), "closed-other"),
        (None, "closed-without-code"),
    ] {
        let ran = run(Far::Closes(5, code), config());
        let c = ran.counts;
        assert!(c.closed_by_server > 4 && c.answered >= 5 * c.closed_by_server, "{c:?}");
        assert_eq!((ran.more(name), c.lost), (c.closed_by_server, c.closed_by_server), "{name}: {c:?}");
        assert_eq!(ran.errors("closed"), c.lost, "{name}");
    }
    let ran = run(Far::Ends(5), config());
    let c = ran.counts;
    assert!(c.broken > 4 && c.closed_by_server == 0, "{c:?}");
    assert_eq!(ran.errors("closed"), c.lost, "{c:?}");
}

/// Frames that are wrong end the connection, in bounded memory, with the name of what is wrong.
#[test]
fn hostile_frames_end_the_connection() {
    for (bytes, again, kind, words) in [
        (&b"\x82\x84\0\0\0\0abcd"[..], false, "malformed", "with a mask"),
        (b"\x82\x7f\x80\0\0\0\0\0\0\0", false, "malformed", "2^63"),
        (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", false, "too-long", "longer than the limit"),
        // Endless: a message begins again and again, and each fragment has bytes, or none.
        (b"\x02\x00", true, "malformed", "within another"),
        (b"\x89\x00\x81\x01\xff", false, "malformed", "UTF-8"),
        (b"\xc2\x00", false, "malformed", "reserved"),
        (b"\x88\x01x", false, "malformed", "code that is none"),
    ] {
        let ran = run(Far::Says(bytes, again), config());
        let c = ran.counts;
        assert!(c.broken >= 4 && c.answered == 0 && c.lost == c.messages, "{words}: {c:?}");
        assert_eq!(ran.errors(kind), c.lost, "{words}: {:?}", ran.report.total.counts.errors);
        let example = &ran.report.total.counts.errors[kind].example;
        assert!(example.contains(words), "{words}: {example}");
    }
}

#[test]
fn fragments_without_end_are_refused() {
    /// A message that begins, and 2047 fragments of 512 bytes, or of none, without an end.
    fn endless(len: u16) -> &'static [u8] {
        let mut bytes = vec![0x02, 0x00];
        for _ in 0..2100 {
            bytes.extend_from_slice(&[0x00, 126]);
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(len), 7);
        }
        bytes.leak()
    }
    let payload = Payload { kind: Kind::Binary, size: 10, verify: false, words: false };
    let phases = vec![Phase::hold(Duration::from_millis(500))];
    let config = WsLoadConfig { payload, phases, connections: 1, ..config() };
    let ran = run(Far::Says(endless(512), false), config.clone());
    assert!(ran.errors("too-long") > 0 && ran.counts.answered == 0, "{:?}", ran.counts);
    let empty: &'static [u8] = b"\x02\x00".iter().copied().chain([0; 4000]).collect::<Vec<u8>>().leak();
    let ran = run(Far::Says(empty, false), config);
    assert!(ran.errors("malformed") > 0 && ran.counts.answered == 0, "{:?}", ran.counts);
    assert!(ran.report.total.counts.errors["malformed"].example.contains("without a byte"));
}

#[test]
fn a_close_frame_without_an_answer_is_not_waited_for_longer_than_the_timeout() {
    let ran = run(Far::KeepsOpen, WsLoadConfig { timeout: SHORT, ..config() });
    let c = ran.counts;
    assert_eq!((c.unclosed, c.closed, c.failed()), (4, 0, 0), "{c:?}");
}
