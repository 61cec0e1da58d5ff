//! What framing costs, without any network: nanoseconds for a message, beside httparse alone on the same bytes.
//!
//! `cargo bench -p flowlane-http --bench framing`. With an argument, one case so many times, for counting instructions:
//! `valgrind --tool=callgrind target/release/deps/framing-* --only requests 100000`.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

use std::hint::black_box;
use std::time::Instant;

use flowlane_http::h1::{Event, Limits, RequestReader, ResponseReader};

const REQUEST: &[u8] =
    b"GET /size/600 HTTP/1.1\r\nHost: 10.11.2.1:8080\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: flowlane\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: application/octet-stream\r\nContent-Length: 600\r\n\r\n";
/// Messages in one buffer, as pipelining brings them.
const BATCH: usize = 64;

/// A case: its name, and what does so many messages.
type Case = (&'static str, Box<dyn Fn(usize) -> u64>);

fn requests(n: usize) -> u64 {
    let bytes = REQUEST.repeat(BATCH);
    let mut reader = RequestReader::new(Limits::default());
    let mut seen = 0;
    for _ in 0..n / BATCH {
        let mut at = 0;
        while let (used, Some(event)) = reader.next(black_box(&bytes[at..])).unwrap() {
            at += used;
            seen += u64::from(matches!(event, Event::Head(head) if head.keep_alive));
        }
    }
    seen
}

fn requests_httparse(n: usize) -> u64 {
    let bytes = REQUEST.repeat(BATCH);
    let mut seen = 0;
    for _ in 0..n / BATCH {
        let mut at = 0;
        while at < bytes.len() {
            let mut headers = [httparse::EMPTY_HEADER; 16];
            let mut request = httparse::Request::new(&mut headers);
            at += request.parse(black_box(&bytes[at..])).unwrap().unwrap();
            seen += u64::from(request.method == Some("GET"));
        }
    }
    seen
}

fn responses(body: &'static [u8], head: Vec<u8>) -> impl Fn(usize) -> u64 {
    move |n| {
        let bytes = [&head[..], body].concat().repeat(BATCH);
        let mut reader = ResponseReader::new(Limits::default());
        let mut seen = 0;
        for _ in 0..n / BATCH {
            let mut at = 0;
            while let (used, Some(event)) = reader.next(black_box(&bytes[at..])).unwrap() {
                at += used;
                seen += u64::from(matches!(event, Event::End));
            }
        }
        seen
    }
}

fn main() {
    let body: &'static [u8] = vec![b'x'; 600].leak();
    let chunks = [b"12c\r\n", &body[..300], b"\r\n12c\r\n", &body[..300], b"\r\n0\r\n\r\n"].concat();
    let text = String::from_utf8(RESPONSE.to_vec()).unwrap();
    let chunked = text.replace("Content-Length: 600", "Transfer-Encoding: chunked").into_bytes();
    let cases: [Case; 4] = [
        ("requests", Box::new(requests)),
        ("requests, httparse alone", Box::new(requests_httparse)),
        ("responses", Box::new(responses(body, RESPONSE.to_vec()))),
        ("responses in chunks", Box::new(responses(chunks.leak(), chunked))),
    ];
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == "--only") {
        let n = arguments[at + 2].parse().unwrap();
        let (_, case) = cases.iter().find(|(name, _)| *name == arguments[at + 1]).unwrap();
        println!("{}", case(n));
        return;
    }
    const N: usize = BATCH * 4000;
    for (name, case) in &cases {
        let mut times: Vec<f64> = (0..15)
            .map(|_| {
                let began = Instant::now();
                assert_eq!(case(N), N as u64);
                began.elapsed().as_nanos() as f64 / N as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{name:26} {:7.1} ns each (from {:.1} to {:.1})", times[7], times[0], times[14]);
    }
}
