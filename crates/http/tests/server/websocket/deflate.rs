//! Compressed messages (RFC 7692): what is agreed on, what comes back, and what is wrong.

use flowlane_http::server::{Counter, Options};
use flowlane_http::ws::deflate::{self, OFFER};
use flowlane_http::ws::{Fault, Kind, Opcode, Reader, Side, frame};

use super::{Heard, KEY, Peer, faults};
use crate::kit::{all_ended, beside_with};

/// A client that makes this offer.
async fn offering(offer: &str) -> (Peer, String) {
    let (mut peer, head) = Peer::open_with(None, &format!("Sec-WebSocket-Extensions: {offer}\r\n")).await;
    peer.reader = Reader::new(Side::Server, 1 << 30).deflates(true);
    (peer, head)
}

fn options() -> Options {
    Options { ws_deflate: true, max_message: 1 << 16, ..Options::default() }
}

fn compressed(opcode: Opcode, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    deflate::write(&mut out, opcode, message, KEY);
    out
}

fn plain(message: &[u8]) -> Vec<u8> {
    deflate::read(Kind::Binary, message, 1 << 20, <[u8]>::to_vec).unwrap()
}

#[test]
fn messages_go_back_as_they_came() {
    let (_, counts) = beside_with(options(), |server| async move {
        let (mut peer, head) = offering("permessage-deflate; client_max_window_bits").await;
        assert!(head.contains(&format!("Sec-WebSocket-Extensions: {OFFER}\r\n")), "{head}");
        // RFC 7692 §7.2.3.1: "Hello".
        let mut bytes = b"\xc1\x87\0\0\0\0\xf2\x48\xcd\xc9\xc9\x07\x00".to_vec();
        // §7.2.3.1: the same in fragments, of which the first one says that it is compressed; a ping is among them.
        bytes.extend_from_slice(b"\x41\x83\0\0\0\0\xf2\x48\xcd");
        frame::write(&mut bytes, Opcode::Ping, b"now", KEY);
        bytes.extend_from_slice(b"\x80\x84\0\0\0\0\xc9\xc9\x07\x00");
        // One that is not.
        frame::write(&mut bytes, Opcode::Binary, b"plain", KEY);
        bytes.extend(compressed(Opcode::Binary, &[7; 50_000]));
        bytes.extend(compressed(Opcode::Text, b""));
        peer.write(&bytes).await;
        let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
        assert_eq!(peer.hear().await, Heard::Deflated(hello.to_vec()));
        assert_eq!(peer.hear().await, Heard::Pong(b"now".to_vec()));
        assert_eq!(peer.hear().await, Heard::Deflated(hello.to_vec()));
        assert_eq!(peer.hear().await, Heard::Data(b"plain".to_vec()));
        let Heard::Deflated(long) = peer.hear().await else { panic!("not compressed") };
        assert!(plain(&long) == [7; 50_000] && long.len() < 1000, "{} bytes", long.len());
        assert_eq!(peer.hear().await, Heard::Deflated(vec![0]));
        drop(peer);
        all_ended(&server).await;
        assert_eq!(server.memory(), 0);
    });
    let told = [Counter::WsText, Counter::WsBinary, Counter::WsDeflated].map(|counter| counts.get(counter));
    assert_eq!((told, faults(&counts)), ([3, 2, 4], 0), "{counts:?}");
}

/// What the window that a client asked for does not reach over goes back as it is.
#[test]
fn small_windows_are_kept_to() {
    beside_with(options(), |_| async move {
        let (mut peer, head) = offering("permessage-deflate; server_max_window_bits=9").await;
        assert!(head.contains(&format!("{OFFER}; server_max_window_bits=9\r\n")), "{head}");
        for (len, small) in [(512, true), (513, false)] {
            peer.write(&compressed(Opcode::Binary, &vec![7; len])).await;
            let (mut came, mut deflated) = (Vec::new(), false);
            while came.len() < len {
                match peer.hear().await {
                    Heard::Deflated(bytes) => (came, deflated) = (plain(&bytes), true),
                    Heard::Data(bytes) => came.extend(bytes),
                    other => panic!("{other:?}"),
                }
            }
            assert!(came == vec![7; len] && deflated == small, "{len}");
        }
    });
}

#[test]
fn messages_that_are_wrong_are_answered_with_their_code() {
    let bomb = compressed(Opcode::Binary, &[0; (1 << 16) + 1]);
    for (bytes, code, fault) in [
        (b"\xc2\x81\0\0\0\0\xff".to_vec(), 1007, Some(Fault::Deflate)),
        (compressed(Opcode::Text, b"\xff\xff"), 1007, Some(Fault::Utf8)),
        (bomb.clone(), 1009, Some(Fault::TooLong)),
        (b"\xc9\x80\0\0\0\0".to_vec(), 1002, Some(Fault::Reserved)),
        // The lane has less memory than that.
        (bomb, 1013, None),
    ] {
        let memory = if fault.is_some() { Options::default().memory } else { 64 << 10 };
        let (_, counts) = beside_with(Options { memory, ..options() }, move |server| async move {
            let (mut peer, _) = offering(OFFER).await;
            peer.write(&bytes).await;
            assert_eq!(peer.hear().await, Heard::Close(Some(code)), "{fault:?}");
            assert_eq!(peer.hear().await, Heard::End, "{fault:?}");
            drop(peer);
            all_ended(&server).await;
        });
        let counted = fault.map_or(counts.get(Counter::NoMemory), |fault| counts.ws_fault(fault));
        assert_eq!((counted, counts.errors()), (1, 1), "{fault:?} {counts:?}");
    }
}

/// A server that was not told to agrees to nothing, nor does one that is offered nothing.
#[test]
fn nothing_is_compressed_that_was_not_agreed_on() {
    for (ws_deflate, offer) in [(false, OFFER), (true, "x-webkit-deflate-frame")] {
        let (_, counts) = beside_with(Options { ws_deflate, ..options() }, move |_| async move {
            let (mut peer, head) = offering(offer).await;
            assert!(!head.contains("Extensions"), "{head}");
            peer.write(&compressed(Opcode::Text, b"Hello")).await;
            assert_eq!(peer.hear().await, Heard::Close(Some(1002)));
        });
        assert_eq!(counts.ws_fault(Fault::Reserved), 1, "{counts:?}");
    }
}
