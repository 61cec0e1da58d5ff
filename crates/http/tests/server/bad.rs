//! Bad input of each kind: answered, counted by name, and the connection ended.

use flowlane_http::h1::{Fault, Limits};
use flowlane_http::server::{Counter, Options};

use crate::kit::{Client, beside, get, say, status};

#[test]
fn each_fault_is_answered_and_counted() {
    let cases: Vec<(String, Fault)> = vec![
        ("nonsense\r\n\r\n".into(), Fault::BadStartLine),
        ("GET\r\n\r\n".into(), Fault::BadStartLine),
        ("GET / HTTP/3.0\r\n\r\n".into(), Fault::BadVersion),
        ("GET / HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n".into(), Fault::BadFieldName),
        ("GET / HTTP/1.1\r\nHost: \u{1}\r\n\r\n".into(), Fault::BadFieldValue),
        ("GET / HTTP/1.1\rX\r\n\r\n".into(), Fault::BadLineEnd),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(21)), Fault::TooManyFields),
        (format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2000)), Fault::HeadTooLong),
        (format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(2000)), Fault::HeadTooLong),
        (post("Content-Length: x"), Fault::BadLength),
        (post("Content-Length: 1\r\nContent-Length: 2"), Fault::ConflictingLengths),
        (post("Content-Length: 1\r\nTransfer-Encoding: chunked"), Fault::LengthAndCoding),
        (post("Transfer-Encoding: gzip"), Fault::UnknownCoding),
        (post("Transfer-Encoding: chunked") + "x\r\n", Fault::BadChunkSize),
        (post("Transfer-Encoding: chunked") + "fffffffffffffffff\r\n", Fault::ChunkTooLarge),
        (post("Transfer-Encoding: chunked") + "1\r\nab\r\n", Fault::BadChunkEnd),
        (post("Transfer-Encoding: chunked") + "1;" + &"x".repeat(2000), Fault::ExtensionsTooLong),
        (post("Transfer-Encoding: chunked") + "0\r\nA\r\n\r\n", Fault::BadTrailer),
        (post("Transfer-Encoding: chunked") + "0\r\nA: " + &"x".repeat(2000), Fault::TrailersTooLong),
        ("GET / HTTP/1.1\r\nHos".into(), Fault::EndInHead),
        (post("Content-Length: 10") + "abc", Fault::EndInBody),
    ];
    let expected = cases.clone();
    let options = Options { limits: Limits { head: 1024, fields: 20 }, http2: false, ..Options::default() };
    let (answers, counts) = beside(options, move || async move {
        let mut answers = Vec::new();
        for (bytes, fault) in cases {
            // A good request before it is answered all the same.
            let all = say(get("/size/3") + &bytes).await;
            let (first, last) = all.split_once("012").unwrap_or_else(|| panic!("{fault:?}: {all}"));
            assert_eq!(status(first), 200, "{fault:?}");
            assert!(last.contains("Connection: close"), "{fault:?}: {last}");
            answers.push(status(last));
        }
        answers
    });
    for ((_, fault), answered) in expected.iter().zip(&answers) {
        assert_eq!(*answered, fault.status(), "{fault:?}");
        let same = expected.iter().filter(|(_, f)| f == fault).count() as u64;
        assert_eq!(counts.fault(*fault), same, "{fault:?}");
    }
    assert_eq!(counts.errors(), expected.len() as u64);
    assert_eq!(counts.open(), 0);
}

fn post(fields: &str) -> String {
    format!("POST /size/1 HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n")
}

#[test]
fn hosts_are_needed_once() {
    let (_, counts) = beside(Options::default(), || async {
        for bad in ["", "Host: a\r\nHost: a\r\n"] {
            let answer = say(format!("GET / HTTP/1.1\r\n{bad}\r\n")).await;
            assert_eq!(status(&answer), 400, "{bad:?}");
        }
        assert_eq!(status(&say("GET / HTTP/1.0\r\n\r\n").await), 200);
    });
    assert_eq!(counts.get(Counter::NoHost), 2);
}

#[test]
fn hosts_are_hosts() {
    let bad = ["a b/c@d", "a b", "u@h", "a/b", "x:y", "x:65536", "[::1", "a?b", "\"a\""];
    let (_, counts) = beside(Options::default(), move || async move {
        for host in bad {
            let answer = say(format!("GET /size/1 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            assert_eq!(status(&answer), 400, "{host:?}");
        }
        for host in ["", "x", "x:80", "10.0.0.1:80", "[2001:db8::1]:8080", "a_b.example"] {
            let answer = say(format!("GET /size/1 HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            assert_eq!(status(&answer), 200, "{host:?}");
        }
        // The whole URL as a target (RFC 9112 §3.2.2), which names its host itself.
        for (target, expected) in [
            ("http://x/size/1", 200),
            ("http://x:80/size/1?a", 200),
            ("http://u@x/size/1", 400),
            ("http://a\"b/size/1", 400),
            ("http:///size/1", 400),
            ("size/1", 400),
        ] {
            let answer = say(format!("GET {target} HTTP/1.1\r\nHost: y\r\n\r\n")).await;
            assert_eq!(status(&answer), expected, "{target:?}");
        }
        // A line that goes on in the next one (RFC 9112 §5.2).
        let folded = "GET /size/1 HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n";
        assert_eq!(status(&say(folded).await), 400);
    });
    assert_eq!(counts.get(Counter::BadHost), bad.len() as u64);
}

#[test]
fn bodies_that_are_too_long() {
    let options = Options { max_body: 1000, ..Options::default() };
    let (_, counts) = beside(options, || async {
        assert_eq!(status(&say(post("Content-Length: 1001") + &"x".repeat(1001)).await), 413);
        let chunks = format!("64\r\n{}\r\n", "x".repeat(100)).repeat(20);
        assert_eq!(status(&say(post("Transfer-Encoding: chunked") + &chunks).await), 413);
        let good =
            format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(1000));
        assert_eq!(status(&say(good).await), 200);
    });
    assert_eq!(counts.get(Counter::BodyTooLong), 2);
}

#[test]
fn a_refused_peer_that_goes_on_sending_can_read_why() {
    let (_, counts) = beside(Options::default(), || async {
        let mut client = Client::connect().await;
        // Everything is sent before anything is read: a reset would lose the answer.
        client.write("GET / HTTP/1.1\r\nBad Name: x\r\n\r\n".to_owned() + &"x".repeat(100_000)).await;
        assert_eq!(status(&client.until("\r\n\r\n").await), 400);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.rest().await;
    });
    assert_eq!(counts.fault(Fault::BadFieldName), 1);
}

#[test]
fn connections_beyond_the_limit() {
    let options = Options { connections_per_lane: 2, ..Options::default() };
    let (answered, counts) = beside(options, || async {
        let mut clients = Vec::new();
        for _ in 0..40 {
            clients.push(Client::connect().await);
        }
        let mut answered = 0;
        for client in &mut clients {
            let _ = client.stream.write_all(get("/size/1").as_bytes()).await;
            let mut one = [0; 1];
            answered += usize::from(matches!(client.stream.read(&mut one).await, Ok(1)));
        }
        answered
    });
    assert!((2..=8).contains(&answered), "{answered} answered by four lanes of two");
    assert_eq!(counts.get(Counter::TooMany), 40 - answered as u64);
}

#[test]
fn resets_are_counted() {
    let (_, counts) = beside(Options::default(), || async {
        let mut client = Client::connect().await;
        client.write(get("/size/1")).await;
        client.answer().await;
        client.stream.abort().unwrap();
        // The next one is accepted in whatever lane; the reset was sent before it.
        for _ in 0..8 {
            say(get("/size/1")).await;
        }
    });
    assert_eq!(counts.get(Counter::Lost), 1);
}
