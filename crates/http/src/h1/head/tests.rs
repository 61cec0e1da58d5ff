//! Heads of messages: what is read, and each fault by its name.

use super::*;

fn ask(text: &str) -> Result<Request<'_>, Fault> {
    let (head, len) = request(text.as_bytes(), &Limits::default())?.expect("a whole head");
    assert_eq!(len, text.len());
    Ok(head)
}

fn answer(text: &str) -> Result<Response<'_>, Fault> {
    let (head, len) = response(text.as_bytes(), &Limits::default())?.expect("a whole head");
    assert_eq!(len, text.len());
    Ok(head)
}

#[test]
fn a_request_and_its_fields() {
    let head = ask("GET /a?b=c HTTP/1.1\r\nHost: x:80\r\nAccept:\t*/* \r\nEmpty:\r\n\r\n").unwrap();
    assert_eq!((head.method, head.target, head.version), ("GET", "/a?b=c", Version::Http11));
    assert_eq!(head.host, Some(&b"x:80"[..]));
    assert_eq!(head.framing, Framing::None);
    assert!(head.keep_alive && !head.expects_continue);
    let fields: Vec<_> = head.fields.collect();
    assert_eq!(fields, [("Host", &b"x:80"[..]), ("Accept", b"*/*"), ("Empty", b"")]);
    assert_eq!(head.fields.get("ACCEPT"), Some(&b"*/*"[..]));
    assert_eq!(head.fields.get("b"), None);
}

#[test]
fn empty_lines_before_a_head() {
    let head = ask("\r\n\nGET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert_eq!(head.fields.collect::<Vec<_>>(), [("Host", &b"x"[..])]);
}

#[test]
fn whether_the_connection_is_kept() {
    let kept = |text: &str| ask(text).unwrap().keep_alive;
    assert!(kept("GET / HTTP/1.1\r\n\r\n"));
    assert!(!kept("GET / HTTP/1.0\r\n\r\n"));
    assert!(kept("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    assert!(!kept("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n"));
    assert!(!kept("GET / HTTP/1.1\r\nconnection: keep-alive, ,close\r\n\r\n"));
    assert!(kept("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n"));
    assert!(!answer("HTTP/1.1 200 OK\r\n\r\n").unwrap().keep_alive);
    assert!(answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().keep_alive);
    assert!(!answer("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().keep_alive);
    assert!(answer("HTTP/1.1 204 No Content\r\n\r\n").unwrap().keep_alive);
}

#[test]
fn hosts() {
    assert_eq!(ask("GET / HTTP/1.1\r\n\r\n").unwrap().host, None);
    assert_eq!(ask("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n").unwrap().host, None);
    assert_eq!(ask("GET / HTTP/1.1\r\nHost:\r\n\r\n").unwrap().host, Some(&b""[..]));
}

#[test]
fn framing_of_requests() {
    let framing = |fields: &str| ask(&format!("POST / HTTP/1.1\r\n{fields}\r\n")).map(|head| head.framing);
    assert_eq!(framing(""), Ok(Framing::None));
    assert_eq!(framing("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
    assert_eq!(framing("Content-Length: 0\r\n"), Ok(Framing::None));
    assert_eq!(framing("Content-Length: 5\r\ncontent-length: 5, 5\r\n"), Ok(Framing::Length(5)));
    assert_eq!(framing("Content-Length: 5, 6\r\n"), Err(Fault::ConflictingLengths));
    assert_eq!(framing("Content-Length: 5\r\nContent-Length: 6\r\n"), Err(Fault::ConflictingLengths));
    for bad in ["", "-1", "+1", "0x10", "5 5", "5,", "18446744073709551616", "1_000"] {
        assert_eq!(framing(&format!("Content-Length: {bad}\r\n")), Err(Fault::BadLength), "{bad}");
    }
    assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Ok(Framing::Chunked));
    assert_eq!(framing("Transfer-Encoding: , chunked ,\r\n"), Ok(Framing::Chunked));
    for bad in ["gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "identity", "", "xchunked"] {
        assert_eq!(framing(&format!("Transfer-Encoding: {bad}\r\n")), Err(Fault::UnknownCoding), "{bad}");
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(framing(twice), Err(Fault::UnknownCoding));
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(framing(both), Err(Fault::LengthAndCoding));
    let old = ask("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(old, Err(Fault::UnknownCoding));
}

#[test]
fn framing_of_responses() {
    let framing = |status: &str, fields: &str| {
        answer(&format!("HTTP/1.1 {status}\r\n{fields}\r\n").into_boxed_str()).map(|head| head.framing)
    };
    assert_eq!(framing("200 OK", "Content-Length: 5\r\n"), Ok(Framing::Length(5)));
    assert_eq!(framing("200", ""), Ok(Framing::UntilClose));
    assert_eq!(framing("204 No Content", "Content-Length: 5\r\n"), Ok(Framing::None));
    assert_eq!(framing("304 Not Modified", "Transfer-Encoding: chunked\r\n"), Ok(Framing::None));
    assert_eq!(framing("100 Continue", ""), Ok(Framing::None));
    assert_eq!(framing("200 OK", "Transfer-Encoding: gzip\r\n"), Err(Fault::UnknownCoding));
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(framing("200 OK", both), Ok(Framing::Chunked));
    let text = format!("HTTP/1.1 200 OK\r\n{both}\r\n");
    assert!(!answer(&text).unwrap().keep_alive, "after both lengths the connection cannot be trusted");
}

#[test]
fn expectations() {
    let expects = |text: &str| ask(text).unwrap().expects_continue;
    let body = "Content-Length: 1\r\nExpect: 100-Continue\r\n\r\n";
    assert!(expects(&format!("PUT / HTTP/1.1\r\n{body}")));
    assert!(!expects(&format!("PUT / HTTP/1.0\r\n{body}")));
    assert!(!expects("PUT / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"), "there is no body to wait with");
}

#[test]
fn each_fault_by_name() {
    for (text, fault) in [
        ("GET\r\n\r\n", Fault::BadStartLine),
        ("GE T / HTTP/1.1\r\n\r\n", Fault::BadVersion),
        ("GET  / HTTP/1.1\r\n\r\n", Fault::BadStartLine),
        ("G\u{1}T / HTTP/1.1\r\n\r\n", Fault::BadStartLine),
        ("GET / HTTP/2.0\r\n\r\n", Fault::BadVersion),
        ("GET / HTTP/1.1\rX\r\n\r\n", Fault::BadLineEnd),
        ("GET / HTTP/1.1\r\nA B: c\r\n\r\n", Fault::BadFieldName),
        ("GET / HTTP/1.1\r\nA : c\r\n\r\n", Fault::BadFieldName),
        ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", Fault::BadFieldName),
        ("GET / HTTP/1.1\r\nA: \u{1}\r\n\r\n", Fault::BadFieldValue),
    ] {
        assert_eq!(ask(text), Err(fault), "{text:?}");
    }
    for (text, fault) in [
        ("HTTP/1.1 20x OK\r\n\r\n", Fault::BadStatus),
        ("HTTP/1.1 099 OK\r\n\r\n", Fault::BadStatus),
        ("HTTP/3.1 200 OK\r\n\r\n", Fault::BadVersion),
        ("200 OK\r\n\r\n", Fault::BadVersion),
    ] {
        assert_eq!(answer(text), Err(fault), "{text:?}");
    }
}

#[test]
fn limits_hold() {
    let limits = Limits { head: 40, fields: 2 };
    let two = b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\n\r\n";
    assert!(request(two, &limits).unwrap().is_some());
    let three = b"GET / HTTP/1.1\r\nA: b\r\nC: d\r\nE: f\r\n\r\n";
    assert_eq!(request(three, &limits), Err(Fault::TooManyFields));
    let long = b"GET /0123456789012345678901234567890123456789 HTTP/1.1\r\n\r\n";
    assert_eq!(request(long, &limits), Err(Fault::HeadTooLong));
    assert_eq!(request(&long[..40], &limits), Err(Fault::HeadTooLong));
    assert_eq!(request(&long[..39], &limits), Ok(None));
}

/// RFC 9112 §5.2: a client reads the line break of a folded field as space; a server refuses it.
#[test]
fn a_folded_field_of_an_answer_is_a_space() {
    let bytes = b"HTTP/1.1 200 OK\r\nServer: a\r\n b\r\nContent-Length:\r\n 5\r\nX: y\r\n\r\nhello";
    let (head, len) = response(bytes, &Limits { head: 1024, fields: 16 }).unwrap().unwrap();
    assert_eq!((head.framing, len), (Framing::Length(5), bytes.len() - 5));
    assert_eq!(head.fields.get("x"), Some(&b"y"[..]));
    assert_eq!(head.fields.get("server"), Some(&b"a"[..]));
    let asked = b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n";
    assert!(request(asked, &Limits { head: 1024, fields: 16 }).is_err());
}

/// After the line break is a space, a length is no number and a coding has no name.
#[test]
fn a_length_or_coding_that_is_folded_in_the_middle_is_refused() {
    for (field, fault) in [
        ("Content-Length: 1\r\n 2", Fault::BadLength),
        ("Content-Length: 12,\r\n 13", Fault::ConflictingLengths),
        ("Transfer-Encoding: chun\r\n ked", Fault::UnknownCoding),
        ("Transfer-Encoding: gzip,\r\n\tchunked", Fault::UnknownCoding),
    ] {
        assert_eq!(answer(&format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n")), Err(fault), "{field:?}");
    }
    let folded = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive,\r\n close\r\n\r\n";
    assert!(!answer(folded).unwrap().keep_alive);
}

/// RFC 9110 §2.5: a later minor version is as the highest one that is known.
#[test]
fn later_minor_versions_are_as_1_1() {
    for minor in 2..=9 {
        let text = format!("\r\nPOST /a?b HTTP/1.{minor}\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        let head = ask(&text).unwrap();
        assert_eq!((head.method, head.target, head.version), ("POST", "/a?b", Version::Http11));
        assert_eq!((head.host, head.framing, head.keep_alive), (Some(&b"x"[..]), Framing::Chunked, true));
        assert_eq!(head.fields.get("host"), Some(&b"x"[..]));
        let text = format!("HTTP/1.{minor} 200 OK\r\nContent-Length: 3\r\n\r\n");
        let head = answer(&text).unwrap();
        assert_eq!((head.status, head.version, head.keep_alive), (200, Version::Http11, true));
        assert_eq!((head.framing, head.fields.get("content-length")), (Framing::Length(3), Some(&b"3"[..])));
    }
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/1.x", "HTTP/1.", "http/1.2"] {
        let text = format!("GET / {version}\r\n\r\n");
        assert_eq!(request(text.as_bytes(), &Limits::default()), Err(Fault::BadVersion), "{version}");
    }
    // What is not there yet is waited for, by both.
    assert_eq!(request(b"GET / HTTP/1.2\r\nHost: x\r\n", &Limits::default()), Ok(None));
    assert_eq!(response(b"HTTP/1.2 200 OK\r\n", &Limits::default()), Ok(None));
    // Faults of the rest are the same.
    assert_eq!(ask("GET / HTTP/1.2\r\nA B: c\r\n\r\n"), Err(Fault::BadFieldName));
}
