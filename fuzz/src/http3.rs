//! A stream of HTTP/3: the same heads, content and faults however it is cut; what was read of a head can be written and is then read as the
//! same; settings are taken or refused.

use flowlane_http::h3::{
    Block, Event, Fault, Fields, Kind, Most, Of, Reader, Settings, data, go_away, greeting, headers,
};

use crate::bytes::Bytes;

/// Most bytes of a head on the wire, and of its fields.
const LONGEST: usize = 2000;
const MOST: Most = Most { bytes: 4000, fields: 40 };

/// What a reader said, with content in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Head(Vec<u8>),
    Data(Vec<u8>),
    Trailers(Vec<u8>),
    Settings(Vec<u8>),
    GoAway(u64),
    Fault(Fault),
}

/// First byte: which stream, and whose heads. Then three bytes that choose the cuts. Then the stream.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let choice = bytes.u8();
    let cuts = [bytes.u8(), bytes.u8(), bytes.u8()].map(|cut| 1 + usize::from(cut));
    let of = if choice & 1 == 0 { Of::Message } else { Of::Control };
    let kind = if choice & 2 == 0 { Kind::Response } else { Kind::Request };
    let whole = read(of, &[usize::MAX / 2], bytes.0);
    assert_eq!(read(of, &[1], bytes.0), whole, "byte by byte");
    assert_eq!(read(of, &cuts, bytes.0), whole, "cut by {cuts:?}");
    for said in &whole {
        match said {
            Said::Head(block) => head(block, kind),
            Said::Trailers(block) => head(block, Kind::Trailers),
            Said::Settings(settings) => {
                let _ = Settings::read(settings);
            }
            Said::Data(_) | Said::GoAway(_) | Said::Fault(_) => {}
        }
    }
}

fn read(of: Of, cuts: &[usize], stream: &[u8]) -> Vec<Said> {
    let (mut reader, mut said, mut at) = (Reader::new(of, LONGEST), Vec::new(), 0usize);
    for cut in cuts.iter().cycle() {
        let end = stream.len().min(at.saturating_add(*cut));
        loop {
            let (used, event) = match reader.next(&stream[at..end]) {
                Ok(found) => found,
                Err(fault) => {
                    said.push(Said::Fault(fault));
                    return said;
                }
            };
            at += used;
            assert!(at <= end, "more was used than given");
            match event {
                None => break,
                Some(Event::Data(piece)) => match said.last_mut() {
                    Some(Said::Data(before)) => before.extend_from_slice(piece),
                    _ => said.push(Said::Data(piece.to_vec())),
                },
                Some(Event::Head(block)) => {
                    assert!(block.len() <= LONGEST, "a head longer than allowed");
                    said.push(Said::Head(block.to_vec()));
                }
                Some(Event::Trailers(block)) => said.push(Said::Trailers(block.to_vec())),
                Some(Event::Settings(settings)) => said.push(Said::Settings(settings.to_vec())),
                Some(Event::GoAway(id)) => said.push(Said::GoAway(id)),
            }
        }
        assert_eq!(at, end, "nothing is said before all is used");
        if at == stream.len() {
            break;
        }
    }
    if of == Of::Message {
        said.extend(reader.end().err().map(Said::Fault));
    }
    said
}

/// A head within its limits, which is the same when it was written and read again.
fn head(block: &[u8], kind: Kind) {
    let (mut fields, mut again, mut written) = (Fields::default(), Fields::default(), Block::new());
    if fields.read(block, kind, MOST).is_err() {
        return;
    }
    assert!(fields.iter().count() <= MOST.fields, "more fields than allowed");
    fields.iter().for_each(|(name, value)| written.field(name, value));
    let length: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(length <= MOST.bytes, "{length} bytes of fields");
    assert_eq!(again.read(written.bytes(), kind, MOST), Ok(()), "what was written is read");
    assert!(again.iter().eq(fields.iter()), "and is the same");
    assert_eq!((again.status(), again.content_length()), (fields.status(), fields.content_length()));
}

/// A message with an answer's head, with a request's, and a control stream.
pub(crate) fn inputs() -> Vec<Vec<u8>> {
    let message = |fields: &[(&str, &str)]| {
        let (mut block, mut stream) = (Block::new(), Vec::new());
        fields.iter().for_each(|(name, value)| block.field(name.as_bytes(), value.as_bytes()));
        headers(block.bytes(), &mut stream);
        data(5, &mut stream);
        stream.extend_from_slice(b"hello");
        block.clear();
        block.field(b"x-sum", b"1");
        headers(block.bytes(), &mut stream);
        stream
    };
    let answer =
        message(&[(":status", "200"), ("content-length", "5"), ("content-type", "text/plain"), ("x-y", "z")]);
    let request = message(&[
        (":method", "PUT"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/a?b"),
        ("te", "trailers"),
    ]);
    let mut control = greeting(65_536)[1..].to_vec();
    control.extend(go_away(8));
    [(0, answer), (2, request), (1, control)]
        .into_iter()
        .map(|(choice, stream)| [&[choice, 3, 0, 10][..], &stream].concat())
        .collect()
}
