//! Whole messages in any cutting of their bytes.

use super::*;
use crate::h1::{RequestReader, ResponseReader};

/// What a reader said, pieces of a body put together.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Head(String),
    Interim(String),
    Data(Vec<u8>),
    End,
    Fault(Fault),
}

/// Everything that a reader says of `bytes` given in pieces of these sizes, again and again, and then of the end.
fn read<K: Kind>(mut reader: Reader<K>, bytes: &[u8], cuts: &[usize]) -> Vec<Said> {
    let (mut said, mut at) = (Vec::new(), 0);
    for cut in cuts.iter().cycle() {
        let end = bytes.len().min(at + cut);
        loop {
            assert!(reader.held.capacity() <= 2 * reader.limits.head as usize);
            let (used, event) = match reader.next(&bytes[at..end]) {
                Ok(found) => found,
                Err(fault) => {
                    said.push(Said::Fault(fault));
                    return said;
                }
            };
            at += used;
            assert!(at <= end);
            match event {
                None => break,
                Some(Event::Head(head)) => said.push(Said::Head(format!("{head:?}"))),
                Some(Event::Interim(head)) => said.push(Said::Interim(format!("{head:?}"))),
                Some(Event::Data(data)) => match said.last_mut() {
                    Some(Said::Data(body)) => body.extend(data),
                    _ => said.push(Said::Data(data.to_vec())),
                },
                Some(Event::End) => said.push(Said::End),
            }
        }
        assert_eq!(at, end, "without an event everything was used");
        if end == bytes.len() {
            match reader.finish() {
                Ok(None) => {}
                Ok(Some(_)) => said.push(Said::End),
                Err(fault) => said.push(Said::Fault(fault)),
            }
            return said;
        }
    }
    unreachable!("a cycle of no sizes")
}

/// xorshift: the cuts are the same in every run.
fn random(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    (*seed >> 33) as usize
}

fn any_cut<K: Kind>(bytes: &[u8], reader: impl Fn() -> Reader<K>) -> Vec<Said> {
    let whole = read(reader(), bytes, &[usize::MAX / 2]);
    for cut in 1..40 {
        assert_eq!(read(reader(), bytes, &[cut]), whole, "{cut} bytes at a time");
    }
    let mut seed = 0x1234_5678_9abc_def1;
    for round in 0..300 {
        let cuts: Vec<usize> = (0..64).map(|_| 1 + random(&mut seed) % (1 + round)).collect();
        assert_eq!(read(reader(), bytes, &cuts), whole, "cuts {cuts:?}");
    }
    whole
}

const LIMITS: Limits = Limits { head: 256, fields: 10 };

fn requests(bytes: &[u8]) -> Vec<Said> {
    any_cut(bytes, || RequestReader::new(LIMITS))
}

fn responses(bytes: &[u8]) -> Vec<Said> {
    any_cut(bytes, || ResponseReader::new(LIMITS))
}

fn kinds(said: &[Said]) -> String {
    said.iter()
        .map(|s| match s {
            Said::Head(_) => "head ".to_owned(),
            Said::Interim(_) => "interim ".to_owned(),
            Said::Data(data) => format!("{} ", String::from_utf8_lossy(data)),
            Said::End => "end ".to_owned(),
            Said::Fault(fault) => format!("{} ", fault.name()),
        })
        .collect()
}

#[test]
fn pipelined_requests_of_every_framing() {
    let bytes = b"\r\n\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
        POST /2 HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody\
        PUT /3 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n\r\n\
        HEAD /4 HTTP/1.0\n\n\r\n";
    let said = requests(bytes);
    assert_eq!(kinds(&said), "head end head body end head abcde end head end ");
    assert!(matches!(&said[9 - 1], Said::Head(head) if head.contains("/4") && head.contains("Http10")));
}

#[test]
fn responses_of_every_framing() {
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody\
        HTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n\
        HTTP/1.1 200 OK\r\n\r\nuntil the end";
    assert_eq!(
        kinds(&responses(bytes)),
        "interim interim head body end head end head end head x end head until the end end "
    );
}

#[test]
fn a_response_to_head_has_no_body() {
    let mut reader = ResponseReader::new(LIMITS);
    reader.expect_no_body();
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(kinds(&read(reader, bytes, &[7])), "head end head x end ");
}

#[test]
fn streams_that_end_early() {
    assert_eq!(kinds(&requests(b"")), "");
    assert_eq!(kinds(&requests(b"\r\n")), "");
    assert_eq!(kinds(&requests(b"GET / HT")), "end-in-head ");
    // What is wrong in a line is not said before the line is whole, however it comes.
    assert_eq!(kinds(&requests(b"GET / HTTP/1.1\r\nA\x01")), "end-in-head ");
    assert_eq!(kinds(&requests(b"GET / HTTP/1.1\r\n\r\n\x01")), "head end end-in-head ");
    assert_eq!(kinds(&requests(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbod")), "head bod end-in-body ");
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_eq!(kinds(&responses(chunked)), "head abc end-in-body ");
}

#[test]
fn faults_end_the_reading() {
    for (bytes, said) in [
        (&b"GET / HTTP/1.1\r\nA\x01: b\r\n\r\n"[..], "bad-field-name "),
        (b"GET / HTTP/1.1\r\n\r\n\x01\r\n", "head end bad-start-line "),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab", "head a bad-chunk-end "),
    ] {
        assert_eq!(kinds(&requests(bytes)), said);
    }
    assert_eq!(kinds(&responses(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")), "switching-protocols ");
    let many = [&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(11), b"\r\n"].concat();
    assert_eq!(kinds(&requests(&many)), "too-many-fields ");
    let long = [&b"GET / HTTP/1.1\r\nA: "[..], &[b'x'; 300], b"\r\n\r\n"].concat();
    assert_eq!(kinds(&requests(&long)), "head-too-long ");
    let line = [b'x'; 300];
    assert_eq!(kinds(&requests(&line)), "head-too-long ");
}

#[test]
fn a_head_may_be_as_long_as_allowed_and_no_longer() {
    for (len, said) in [(256, "head end "), (257, "head-too-long ")] {
        let fixed = b"GET / HTTP/1.1\r\nA: \r\n\r\n".len();
        let bytes = [&b"GET / HTTP/1.1\r\nA: "[..], &vec![b'x'; len - fixed], b"\r\n\r\n"].concat();
        assert_eq!(bytes.len(), len);
        assert_eq!(kinds(&requests(&bytes)), said, "{len} bytes");
    }
}

#[test]
fn no_memory_is_held_between_messages_and_in_bodies() {
    let mut reader = RequestReader::new(LIMITS);
    assert_eq!(reader.next(b"GET / HTTP").unwrap(), (10, None));
    assert!(reader.held.capacity() > 0 && !reader.is_between_messages());
    assert!(matches!(reader.next(b"/1.1\r\n\r\n"), Ok((8, Some(Event::Head(_))))));
    assert_eq!(reader.next(b"").unwrap(), (0, Some(Event::End)));
    assert_eq!(reader.held.capacity(), 0);
    assert!(reader.is_between_messages());
    assert_eq!(reader.next(b"").unwrap(), (0, None));
}

/// RFC 9110 §15.2: interim answers are passed over, but not for ever. The next request may have as many.
#[test]
fn interim_responses_have_an_end() {
    let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let good = interim.repeat(usize::from(MOST_INTERIM)) + "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for cut in [1, 7, 100_000] {
        let said = read(ResponseReader::new(Limits::default()), good.repeat(2).as_bytes(), &[cut]);
        assert_eq!(said.len(), 2 * (usize::from(MOST_INTERIM) + 2), "{:?}", said.last());
        let bad = interim.repeat(usize::from(MOST_INTERIM) + 1);
        let said = read(ResponseReader::new(Limits::default()), bad.as_bytes(), &[cut]);
        assert_eq!(said.last(), Some(&Said::Fault(Fault::TooManyInterim)));
    }
}
