//! A stream of WebSocket frames, from a client or a server: the same events however it is cut, messages within the limit, text that is UTF-8,
//! and what was read can be written and is then read as the same.

use flowlane_http::ws::{Event, Fault, Kind, MOST_CONTROL, Opcode, Reader, Side, frame, is_code};

use crate::bytes::Bytes;

/// What a reader said, in messages that do not depend on the cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Message(Kind, Vec<u8>),
    /// A compressed message.
    Deflated(Kind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// What had come of a message when the stream ended, or was found wrong.
    Begun(usize),
    Fault(Fault),
}

/// First byte: which side, the limit, and whether messages may be compressed. Then three bytes that choose the cuts. Then the stream.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let choice = bytes.u8();
    let cuts = [bytes.u8(), bytes.u8(), bytes.u8()].map(|cut| 1 + usize::from(cut));
    let side = if choice & 1 == 0 { Side::Client } else { Side::Server };
    let longest = if choice & 2 == 0 { 300 } else { 1 << 20 };
    let new = || Reader::new(side, longest).deflates(choice & 4 != 0);
    let whole = read(new(), longest, &[usize::MAX / 2], bytes.0);
    assert!(is_same(&read(new(), longest, &[1], bytes.0), &whole), "byte by byte");
    assert!(is_same(&read(new(), longest, &cuts, bytes.0), &whole), "cut by {cuts:?}");
    again(side, &new, longest, &whole);
}

/// The same, but for how much was told of a message in which something is wrong.
fn is_same(a: &[Said], b: &[Said]) -> bool {
    let without =
        |said: &[Said]| said.iter().filter(|s| !matches!(s, Said::Begun(_))).cloned().collect::<Vec<_>>();
    let wrong = a.iter().any(|said| matches!(said, Said::Fault(_)));
    a == b || wrong && without(a) == without(b)
}

fn read(mut reader: Reader, longest: u64, cuts: &[usize], stream: &[u8]) -> Vec<Said> {
    let (mut said, mut at) = (Vec::new(), 0usize);
    let (mut stream, mut message) = (stream.to_vec(), None::<(Kind, Vec<u8>)>);
    let len = stream.len();
    for cut in cuts.iter().cycle() {
        let end = len.min(at.saturating_add(*cut));
        loop {
            let (used, event) = match reader.next(&mut stream[at..end]) {
                Ok(found) => found,
                Err(fault) => {
                    said.extend(message.map(|(_, bytes)| Said::Begun(bytes.len())));
                    said.push(Said::Fault(fault));
                    assert_eq!(reader.next(&mut []), Err(fault), "a fault stays");
                    return said;
                }
            };
            assert!(used > 0 || event.is_none(), "an event has at least the last byte of a head");
            at += used;
            assert!(at <= end, "more was used than given");
            match event {
                None => break,
                Some(Event::Data { kind, bytes, first, last, deflated, .. }) => {
                    assert_eq!(first, message.is_none());
                    let (of, whole) = message.get_or_insert_with(|| (kind, Vec::new()));
                    assert_eq!(*of, kind);
                    whole.extend_from_slice(bytes);
                    assert!(whole.len() as u64 <= longest);
                    if last && let Some((kind, whole)) = message.take() {
                        assert!(deflated || kind == Kind::Binary || std::str::from_utf8(&whole).is_ok());
                        said.push(if deflated {
                            Said::Deflated(kind, whole)
                        } else {
                            Said::Message(kind, whole)
                        });
                    }
                }
                Some(Event::Ping(bytes)) => said.push(Said::Ping(bytes.to_vec())),
                Some(Event::Pong(bytes)) => said.push(Said::Pong(bytes.to_vec())),
                Some(Event::Close(code)) => {
                    assert!(code.is_none_or(is_code));
                    assert!(reader.is_over());
                    said.push(Said::Close(code));
                }
            }
        }
        assert_eq!(at, end, "bytes are left and nothing is said about them");
        if end == len {
            said.extend(message.map(|(_, bytes)| Said::Begun(bytes.len())));
            return said;
        }
    }
    said
}

/// Writes all that is whole, each message as one frame, and reads it again.
fn again(side: Side, new: &dyn Fn() -> Reader, longest: u64, said: &[Said]) {
    let key = (side == Side::Client).then_some([7, 0, 255, 90]);
    let (mut bytes, mut written) = (Vec::new(), Vec::new());
    for said in said {
        match said {
            Said::Message(kind, whole) => frame::write(&mut bytes, (*kind).into(), whole, key),
            Said::Deflated(kind, whole) => {
                let begin = bytes.len();
                frame::write(&mut bytes, (*kind).into(), whole, key);
                bytes[begin] |= 0x40;
            }
            Said::Ping(payload) | Said::Pong(payload) => {
                assert!(payload.len() <= MOST_CONTROL);
                let opcode = if matches!(said, Said::Ping(_)) { Opcode::Ping } else { Opcode::Pong };
                frame::write(&mut bytes, opcode, payload, key);
            }
            Said::Close(code) => frame::close(&mut bytes, *code, "", key),
            Said::Begun(_) | Said::Fault(_) => continue,
        }
        written.push(said.clone());
    }
    assert_eq!(read(new(), longest, &[5, 1, 300], &bytes), written);
}

/// Conversations of both sides, with each kind of frame, and each kind of fault.
#[must_use]
pub fn inputs() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (choice, key) in [
        (2, Some([1, 2, 3, 200])),
        (3, None),
        (0, Some([0, 0, 0, 9])),
        (1, None),
        (6, Some([7; 4])),
        (5, None),
    ] {
        let begin = [choice, 2, 0, 9];
        let mut good = begin.to_vec();
        frame::head(&mut good, Opcode::Text, false, 0, key);
        frame::write(&mut good, Opcode::Ping, b"now", key);
        frame::write(&mut good, Opcode::Continuation, "grüße".as_bytes(), key);
        frame::write(&mut good, Opcode::Pong, b"", key);
        for len in [0, 125, 126, 300] {
            frame::write(&mut good, Opcode::Binary, &vec![b'x'; len], key);
        }
        if choice & 4 != 0 {
            let at = good.len();
            frame::write(&mut good, Opcode::Text, b"\xf2\x48\xcd\xc9\xc9\x07\x00", key);
            good[at] |= 0x40;
        }
        frame::close(&mut good, Some(1001), "leaving", key);
        all.push(good);
        let masked = u8::from(key.is_some()) << 7;
        let wrong: [(u8, u8, &[u8]); 9] = [
            (0xc1, 0, b""),
            (0x83, 0, b""),
            (0x09, 0, b""),
            (0x89, 126, b"\0\x7e"),
            (0x82, 126, b"\0\x7d"),
            (0x82, 127, b"\x80\0\0\0\0\0\0\0"),
            (0x80, 0, b""),
            (0x88, 1, b"x"),
            (0x81, 2, b"\xc3\xc3"),
        ];
        for (first, len, rest) in wrong {
            let mut input = [&begin[..], &[0x01, masked]].concat();
            let key = if key.is_some() { &[0; 4][..] } else { &[] };
            input.extend_from_slice(key);
            input.extend_from_slice(&[0x80, masked]);
            input.extend_from_slice(key);
            // The length comes before the mask, a payload behind it.
            let (length, payload) = if len > 125 { (rest, &[][..]) } else { (&[][..], rest) };
            input.extend_from_slice(&[first, masked | len]);
            input.extend_from_slice(length);
            input.extend_from_slice(key);
            input.extend_from_slice(payload);
            all.push(input);
        }
    }
    let mut long = vec![3, 200, 77, 255];
    frame::write(&mut long, Opcode::Binary, &[b'x'; 65_536], None);
    all.push(long);
    all
}
