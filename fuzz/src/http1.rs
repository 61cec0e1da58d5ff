//! A stream of HTTP/1 messages, from a client or a server: the same events however it is cut, in bounded memory, and what
//! is said about a head agrees with its fields.

use flowlane_http::h1::{
    Event, Fault, Framing, Kind, Limits, Reader, RequestReader, ResponseReader, request, response,
};

use crate::bytes::Bytes;

/// What a reader said, in pieces that do not depend on the cuts.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Head(String),
    Data(Vec<u8>),
    End,
    Fault(Fault),
}

/// First byte: which side, and limits. Then three bytes that choose the cuts. Then the stream.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let choice = bytes.u8();
    let cuts = [bytes.u8(), bytes.u8(), bytes.u8()].map(|cut| 1 + usize::from(cut));
    let stream = bytes.0;
    let limits = if choice & 2 == 0 { Limits { head: 96, fields: 4 } } else { Limits::default() };
    if choice & 1 == 0 {
        check(|| RequestReader::new(limits), &cuts, stream);
        heads(stream, &limits);
    } else {
        let to_head = choice & 4 != 0;
        check(
            || {
                let mut reader = ResponseReader::new(limits);
                if to_head {
                    reader.expect_no_body();
                }
                reader
            },
            &cuts,
            stream,
        );
    }
}

fn check<K: Kind>(reader: impl Fn() -> Reader<K>, cuts: &[usize], stream: &[u8]) {
    let whole = read(reader(), &[usize::MAX / 2], stream);
    assert_eq!(read(reader(), &[1], stream), whole, "byte by byte");
    assert_eq!(read(reader(), cuts, stream), whole, "cut by {cuts:?}");
    let faults = whole.iter().filter(|s| matches!(s, Said::Fault(_))).count();
    assert!(faults == 0 || faults == 1 && matches!(whole.last(), Some(Said::Fault(_))));
}

fn read<K: Kind>(mut reader: Reader<K>, cuts: &[usize], stream: &[u8]) -> Vec<Said> {
    let (mut said, mut at) = (Vec::new(), 0);
    for cut in cuts.iter().cycle() {
        let end = stream.len().min(at + cut);
        // Every event uses bytes or changes the state; two that do neither would never end.
        let mut empty = 0;
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
            empty = if used == 0 { empty + 1 } else { 0 };
            assert!(empty < 4, "no progress");
            match event {
                None => break,
                Some(Event::Head(head)) => said.push(Said::Head(format!("{head:?}"))),
                Some(Event::Interim(head)) => said.push(Said::Head(format!("interim {head:?}"))),
                Some(Event::Data(data)) => {
                    assert!(!data.is_empty());
                    match said.last_mut() {
                        Some(Said::Data(body)) => body.extend(data),
                        _ => said.push(Said::Data(data.to_vec())),
                    }
                }
                Some(Event::End) => said.push(Said::End),
            }
        }
        assert_eq!(at, end, "bytes are left and nothing is said about them");
        if end == stream.len() {
            match reader.finish() {
                Ok(None) => assert!(reader.is_between_messages()),
                Ok(Some(_)) => said.push(Said::End),
                Err(fault) => said.push(Said::Fault(fault)),
            }
            return said;
        }
    }
    said
}

/// A head by itself: its fields are those that httparse sees, and its meaning is theirs.
fn heads(stream: &[u8], limits: &Limits) {
    let _ = response(stream, limits);
    let Ok(Some((head, len))) = request(stream, limits) else { return };
    assert!(len <= stream.len() && len <= limits.head as usize);
    // A later minor version is read as 1.1 (RFC 9110 section 2.5), which httparse does not do by itself.
    let mut copy = stream.to_vec();
    let mut storage = [httparse::EMPTY_HEADER; 128];
    if httparse::Request::new(&mut storage).parse(stream) == Err(httparse::Error::Version) {
        let is_end = |b: &u8| matches!(b, b'\r' | b'\n');
        let begin = copy.iter().position(|b| !is_end(b)).unwrap_or(0);
        let end = copy[begin..].iter().position(is_end).map_or(copy.len(), |n| begin + n);
        copy[end - 1] = b'1';
    }
    let mut storage = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Request::new(&mut storage);
    let again = parsed.parse(&copy).expect("it was read before");
    assert_eq!(again, httparse::Status::Complete(len));
    let theirs: Vec<(&str, &[u8])> = parsed.headers.iter().map(|h| (h.name, h.value)).collect();
    let ours: Vec<(&str, &[u8])> = head.fields.collect();
    assert_eq!(ours, theirs);
    assert!(ours.len() <= usize::from(limits.fields));
    let has = |name: &str| ours.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    match head.framing {
        Framing::None => assert!(!has("transfer-encoding")),
        Framing::Length(n) => assert!(n > 0 && has("content-length") && !has("transfer-encoding")),
        Framing::Chunked => assert!(has("transfer-encoding") && !has("content-length")),
        Framing::UntilClose => panic!("a request has an end"),
    }
    assert!(!head.expects_continue || has("expect"));
    assert!(head.host.is_none() || has("host"));
}
