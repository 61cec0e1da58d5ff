use super::*;
use crate::ws::frame;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// What came, in words; messages joined.
fn read(side: Side, longest: u64, bytes: &[u8], cut: usize) -> (Vec<String>, Option<Fault>) {
    let (mut reader, mut said, mut message) = (Reader::new(side, longest), Vec::new(), Vec::new());
    for piece in bytes.chunks(cut) {
        let (mut piece, mut at) = (piece.to_vec(), 0);
        loop {
            match reader.next(&mut piece[at..]) {
                Err(fault) => return (said, Some(fault)),
                Ok((used, event)) => {
                    at += used;
                    match event {
                        None => break,
                        Some(Event::Data { kind, bytes, first, last, .. }) => {
                            assert_eq!(first, message.is_empty());
                            // So that an empty piece is seen.
                            message.push(bytes.to_vec());
                            if last {
                                let whole = std::mem::take(&mut message).concat();
                                said.push(format!("{kind:?} {}", String::from_utf8_lossy(&whole)));
                            }
                        }
                        Some(Event::Ping(bytes)) => {
                            said.push(format!("ping {}", String::from_utf8_lossy(bytes)));
                        }
                        Some(Event::Pong(bytes)) => {
                            said.push(format!("pong {}", String::from_utf8_lossy(bytes)));
                        }
                        Some(Event::Close(code)) => said.push(format!("close {code:?}")),
                    }
                }
            }
        }
        assert_eq!(at, piece.len());
    }
    (said, None)
}

/// The same however it is cut.
fn check(side: Side, bytes: &[u8], said: &[&str], fault: Option<Fault>) {
    for cut in [1, 2, 3, 5, 7, usize::MAX] {
        let (found, ended) = read(side, 1000, bytes, cut.min(bytes.len().max(1)));
        assert_eq!(
            (found.iter().map(String::as_str).collect::<Vec<_>>(), ended),
            (said.to_vec(), fault),
            "{cut}"
        );
    }
}

/// RFC 6455 §5.7
#[test]
fn the_examples_of_the_standard() {
    let hello = b"\x81\x05Hello";
    check(Side::Server, hello, &["Text Hello"], None);
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    check(Side::Client, masked, &["Text Hello"], None);
    check(Side::Server, b"\x01\x03Hel\x80\x02lo", &["Text Hello"], None);
    check(Side::Server, b"\x89\x05Hello", &["ping Hello"], None);
    check(Side::Client, b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", &["pong Hello"], None);
    let long = [&b"\x82\x7e\x01\x00"[..], &[b'x'; 256]].concat();
    check(Side::Server, &long, &[&format!("Binary {}", "x".repeat(256))], None);
    let long = [&b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"[..], &[b'x'; 65536]].concat();
    let whole = (vec![format!("Binary {}", "x".repeat(65536))], None);
    for cut in [1, 1000, long.len()] {
        assert_eq!(read(Side::Server, 1 << 16, &long, cut), whole);
    }
}

#[test]
fn control_frames_come_between_fragments() {
    let mut bytes = Vec::new();
    frame::head(&mut bytes, Opcode::Text, false, 2, None);
    bytes.extend_from_slice("ä".as_bytes());
    frame::write(&mut bytes, Opcode::Ping, b"now", None);
    frame::head(&mut bytes, Opcode::Continuation, false, 0, None);
    frame::write(&mut bytes, Opcode::Pong, b"", None);
    frame::write(&mut bytes, Opcode::Continuation, b"", None);
    frame::write(&mut bytes, Opcode::Binary, b"", None);
    frame::close(&mut bytes, Some(1000), "done", None);
    bytes.extend_from_slice(b"\xff\xffwhat follows is skipped");
    check(Side::Server, &bytes, &["ping now", "pong ", "Text ä", "Binary ", "close Some(1000)"], None);
}

#[test]
fn masks_go_on_over_cuts_and_begin_anew_with_each_frame() {
    let mut bytes = Vec::new();
    frame::write(&mut bytes, Opcode::Text, "grüße, in zwei Teilen".as_bytes(), Some(KEY));
    frame::write(&mut bytes, Opcode::Ping, b"odd", Some([1, 2, 3, 4]));
    frame::write(&mut bytes, Opcode::Binary, b"again", Some(KEY));
    frame::close(&mut bytes, None, "", Some(KEY));
    check(
        Side::Client,
        &bytes,
        &["Text grüße, in zwei Teilen", "ping odd", "Binary again", "close None"],
        None,
    );
}

#[test]
fn what_is_wrong_is_named() {
    let oversized = [&b"\x82\x7f\x80"[..], &[0; 7]].concat();
    for (bytes, fault) in [
        (&b"\xc1\x00"[..], Fault::Reserved),
        (b"\x83\x00", Fault::Opcode),
        (b"\x8b\x00", Fault::Opcode),
        (b"\x81\x85aaaaHello", Fault::Masked),
        (b"\x09\x00", Fault::FragmentedControl),
        (b"\x89\x7e\x00\x80", Fault::LongControl),
        (b"\x82\x7e\x00\x7d", Fault::Length),
        (b"\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", Fault::Length),
        (&oversized, Fault::Length),
        (b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", Fault::TooLong),
        (b"\x82\x7e\x03\xe9", Fault::TooLong),
        (b"\x80\x00", Fault::Continuation),
        (b"\x88\x01\x03", Fault::Close),
        (b"\x88\x02\x03\xed", Fault::Close),
        (b"\x88\x03\x03\xe8\xff", Fault::Utf8),
        (b"\x81\x02\xc3\xc3", Fault::Utf8),
        (b"\x81\x01\xc3", Fault::Utf8),
    ] {
        check(Side::Server, bytes, &[], Some(fault));
    }
    check(Side::Client, b"\x81\x05Hello", &[], Some(Fault::Unmasked));
    check(Side::Server, b"\x01\x01a\x81\x00", &[], Some(Fault::Interleaved));
}

/// RFC 7692 §6: the first frame of a message says that it is compressed; what it carries is not looked at.
#[test]
fn compressed_messages_are_said_to_be_so() {
    let said = |bytes: &[u8]| {
        let (mut reader, mut said, mut at) = (Reader::new(Side::Server, 100).deflates(true), Vec::new(), 0);
        let mut bytes = bytes.to_vec();
        loop {
            match reader.next(&mut bytes[at..]) {
                Err(fault) => return (said, Some(fault)),
                Ok((_, None)) => return (said, None),
                Ok((used, Some(event))) => {
                    at += used;
                    if let Event::Data { deflated, last, fragmented, .. } = event {
                        said.push((deflated, last, fragmented));
                    }
                }
            }
        }
    };
    let not_utf8 = b"\xc1\x02\xff\xff\x81\x02ok\x42\x01a\x89\x00\x80\x01b";
    let all = vec![(true, true, false), (false, true, false), (true, false, false), (true, true, true)];
    assert_eq!(said(not_utf8), (all, None));
    for wrong in [&b"\x42\x01a\xc0\x01b"[..], b"\xc9\x00", b"\xc8\x00", b"\xa1\x00", b"\x91\x00"] {
        assert_eq!(said(wrong).1, Some(Fault::Reserved), "{wrong:x?}");
    }
    assert_eq!(said(b"\x81\x02\xff\xff").1, Some(Fault::Utf8), "one that is not compressed");
}

/// The sum of the fragments is what is limited, and fragments without a byte end as well.
#[test]
fn messages_without_end_end() {
    let endless = b"\x00\x64".iter().copied().chain([7; 100]).collect::<Vec<_>>();
    let bytes = [&b"\x02\x00"[..], &endless.repeat(11)].concat();
    check(Side::Server, &bytes, &[], Some(Fault::TooLong));
    let bytes = [&b"\x01\x00"[..], &b"\x00\x00".repeat(usize::from(EMPTY))].concat();
    check(Side::Server, &bytes, &[], Some(Fault::EmptyFragments));
    // A fault stays one.
    let mut reader = Reader::new(Side::Server, 10);
    assert_eq!(reader.next(&mut [0xc1, 0]), Err(Fault::Reserved));
    assert_eq!(reader.next(&mut [0x81, 0]), Err(Fault::Reserved));
}
