//! Compressed messages (RFC 7692) to our server, and to ones that do wrong.

use flowlane_http::server::Counter;
use flowlane_load::ws::{Kind, Payload, WsLoadConfig};

use super::kit::{Deflates, Far, config, offering, run};

fn asked(kind: Kind, size: usize) -> WsLoadConfig {
    let payload = Payload { kind, size, verify: true, words: true };
    WsLoadConfig { opening: offering(), payload, ..config() }
}

#[test]
fn messages_and_answers_are_compressed() {
    for (kind, size) in [(Kind::Text, 2000), (Kind::Binary, 64), (Kind::Text, 0), (Kind::Binary, 200_000)] {
        let ran = run(Far::Good, asked(kind, size));
        let c = ran.counts;
        assert_eq!((c.failed(), c.broken, c.deflating), (0, 0, c.connected), "{c:?} {:?}", ran.report.failed);
        assert_eq!((c.deflated, ran.server.get(Counter::WsDeflated)), (c.answered, c.messages), "{c:?}");
        if size >= 2000 {
            let each = c.bytes_written as usize / c.messages.max(1) as usize;
            assert!(each < size / 2 && each > size / 10, "{each} of {size} bytes: {c:?}");
        }
    }
}

/// Who agrees to nothing is sent messages as they are, and one that echoes fragments is heard.
#[test]
fn what_the_server_does_is_followed() {
    let ran = run(Far::Fragments, asked(Kind::Text, 300));
    let c = ran.counts;
    assert_eq!((c.failed(), c.deflating, c.deflated), (0, 0, 0), "{c:?}");
    for (far, fragmented) in [(Deflates::Well, false), (Deflates::Fragments, true)] {
        let ran = run(Far::Deflates(far), asked(Kind::Text, 300));
        let c = ran.counts;
        assert_eq!((c.failed(), c.broken, c.deflated), (0, 0, c.answered), "{far:?}: {c:?}");
        assert_eq!(c.fragmented, if fragmented { c.answered } else { 0 }, "{far:?}: {c:?}");
        assert!(c.answered > 20, "{far:?}: {c:?}");
    }
}

#[test]
fn answers_that_are_wrong_are_noticed() {
    let ran = run(Far::Deflates(Deflates::Short), asked(Kind::Text, 300));
    let c = ran.counts;
    assert!(c.wrong > 0 && c.wrong.abs_diff(c.answered / 10) <= 4, "{c:?}");
    assert_eq!((ran.errors("content"), c.broken), (c.wrong, 0), "{c:?}");
    for (how, kind) in [(Deflates::Garbage, "malformed"), (Deflates::Bomb, "too-long")] {
        let ran = run(Far::Deflates(how), asked(Kind::Text, 300));
        let c = ran.counts;
        assert!(c.broken > 0 && ran.errors(kind) > 0, "{how:?}: {c:?} {:?}", ran.report.failed);
        assert_eq!(c.wrong, 0, "{how:?}: {c:?}");
    }
}
