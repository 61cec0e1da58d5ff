//! Every endpoint, and how connections are kept.

use std::time::{Duration, Instant};

use flowlane_http::server::{Counter, Options};

use crate::kit::{Client, beside, field, get, say, status};

#[test]
fn sizes_fixed_and_in_chunks() {
    let (_, counts) = beside(Options::default(), || async {
        let mut client = Client::connect().await;
        for n in [0_usize, 1, 600, 16384, 16385, 65536, 300_000] {
            client.write(get(&format!("/size/{n}"))).await;
            let (head, body) = client.answer().await;
            assert_eq!((status(&head), body.len()), (200, n), "{head}");
            assert!(body.iter().zip((0..64).cycle()).all(|(b, i)| i == 63 || *b == b'0' + i % 10));
            assert!(field(&head, "Date").is_some_and(|d| d.ends_with(" GMT")), "{head}");
        }
        for (target, n) in [("/size/5?chunked", 5), ("/size?size=70000", 70000)] {
            client.write(get(target)).await;
            let head = client.until("\r\n\r\n").await;
            assert_eq!(field(&head, "Transfer-Encoding"), Some("chunked"));
            assert_eq!(field(&head, "Content-Length"), None);
            let mut received = 0;
            loop {
                let line = client.until("\r\n").await;
                let len = usize::from_str_radix(line.trim_end(), 16).unwrap();
                assert!(len <= 65536, "as the original's chunks");
                client.exactly(len).await;
                assert_eq!(client.exactly(2).await, b"\r\n");
                received += len;
                if len == 0 {
                    break;
                }
            }
            assert_eq!(received, n);
        }
        client.write(get("/line")).await;
        client.until("\r\n\r\n").await;
        assert_eq!(client.until("0\r\n\r\n").await, "8\r\nfoobar\r\n\r\n".repeat(16) + "0\r\n\r\n");
    });
    assert_eq!(counts.get(Counter::Requests), 10);
    assert_eq!(counts.get(Counter::Success), 10);
    assert_eq!(counts.get(Counter::Connections), 1);
    assert_eq!(counts.errors(), 0, "{counts:?}");
}

#[test]
fn statuses_heads_and_options() {
    let (_, counts) = beside(Options::default(), || async {
        let mut client = Client::connect().await;
        for code in [200, 204, 302, 304, 404, 503, 599] {
            client.write(get(&format!("/status/{code}"))).await;
            let (head, body) = client.answer().await;
            assert_eq!(status(&head), code);
            assert_eq!(body.is_empty(), matches!(code, 204 | 304), "{head}");
        }
        client
            .write(
                "HEAD /size/1000 HTTP/1.1\r\nHost: x\r\n\r\nHEAD /size/7?chunked HTTP/1.1\r\nHost: x\r\n\r\n",
            )
            .await;
        let head = client.until("\r\n\r\n").await;
        assert_eq!(field(&head, "content-length"), Some("1000"));
        let head = client.until("\r\n\r\n").await;
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
        client.write("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let head = client.until("\r\n\r\n").await;
        assert!(field(&head, "allow").is_some_and(|a| a.contains("GET")));
        client.write("BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert_eq!(status(&client.answer().await.0), 501);
        client.write(get("/")).await;
        assert!(String::from_utf8(client.answer().await.1).unwrap().contains("/size/N"));
    });
    assert_eq!(counts.get(Counter::Success), 6);
    assert_eq!(counts.get(Counter::Redirection), 2);
    assert_eq!(counts.get(Counter::ClientError), 1);
    assert_eq!(counts.get(Counter::ServerError), 3);
}

#[test]
fn bodies_come_back_from_echo_and_are_read_elsewhere() {
    beside(Options::default(), || async {
        let mut client = Client::connect().await;
        let body: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
        let head = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        let (reading, writing) = flowlane::spawn({
            let mut reader = Client {
                stream: flowlane::TcpStream::connect(crate::kit::SERVER.parse().unwrap()).await.unwrap(),
                got: vec![],
            };
            let body = body.clone();
            async move {
                // Sent and read in turns, so that nobody's buffers have to hold it all.
                reader.write(head).await;
                let mut sent = 0;
                let answer = reader.until("\r\n\r\n").await;
                assert_eq!(field(&answer, "content-length"), Some("200000"));
                while sent < body.len() {
                    let piece = &body[sent..body.len().min(sent + 10_000)];
                    reader.write(piece).await;
                    assert_eq!(reader.exactly(piece.len()).await, piece);
                    sent += piece.len();
                }
                (true, true)
            }
        })
        .unwrap()
        .await
        .unwrap();
        assert!(reading && writing);
        client
            .write("PUT /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            .await;
        let head = client.until("\r\n\r\n").await;
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
        assert_eq!(client.until("0\r\n\r\n").await, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        client.write("POST /size/3 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12345").await;
        assert_eq!(client.answer().await.1, b"012");
        client.write(get("/echo")).await;
        assert_eq!(client.answer().await.1, b"");
    });
}

#[test]
fn delays_and_the_order_of_answers() {
    beside(Options::default(), || async {
        let mut client = Client::connect().await;
        let began = Instant::now();
        client.write(get("/delay/50") + &get("/size/1") + &get("/delay/50?size=9")).await;
        assert_eq!(client.answer().await.1, b"foobar\r\n");
        assert!(began.elapsed() >= Duration::from_millis(50));
        assert_eq!(client.answer().await.1, b"0");
        assert_eq!(client.answer().await.1.len(), 9);
        assert!(began.elapsed() >= Duration::from_millis(100), "one after the other");
    });
}

#[test]
fn a_thousand_requests_in_one_write() {
    let (_, counts) = beside(Options::default(), || async {
        let mut client = Client::connect().await;
        let all: String = (0..1000).map(|i| get(&format!("/size/{i}"))).collect();
        client.write(all).await;
        for i in 0..1000 {
            assert_eq!(client.answer().await.1.len(), i);
        }
    });
    assert_eq!(counts.get(Counter::Requests), 1000);
}

#[test]
fn connections_are_kept_as_both_sides_want() {
    let (_, counts) = beside(Options { requests_per_connection: 3, ..Options::default() }, || async {
        let mut client = Client::connect().await;
        client.write(get("/size/1").repeat(5)).await;
        let all = client.rest().await;
        assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 3, "{all}");
        assert_eq!(all.matches("Connection: close").count(), 1, "{all}");

        let mut client = Client::connect().await;
        client.write("GET /size/1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(client.rest().await.contains("Connection: close"));

        let mut client = Client::connect().await;
        client.write("GET /size/1 HTTP/1.0\r\n\r\n").await;
        assert!(client.rest().await.ends_with("Connection: close\r\n\r\n0"));

        let mut client = Client::connect().await;
        client.write("GET /size/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert!(client.answer().await.0.contains("Connection: keep-alive"));
        client.write("GET /size/4?chunked HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        let all = client.rest().await;
        assert!(all.ends_with("\r\n\r\n0123") && !all.contains("chunked"), "{all}");

        // A client that has nothing more to say still gets its answers.
        assert_eq!(say(get("/size/2") + &get("/delay/20")).await.matches("200 OK").count(), 2);
        assert_eq!(say("").await, "");
    });
    assert_eq!(counts.errors(), 0, "{counts:?}");
    assert_eq!(counts.open(), 0);
}

#[test]
fn a_body_is_asked_for() {
    beside(Options { max_body: 100, ..Options::default() }, || async {
        let mut client = Client::connect().await;
        let head = |target: &str, len: usize| {
            format!(
                "PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len}\r\nExpect: 100-continue\r\n\r\n"
            )
        };
        client.write(head("/echo", 3)).await;
        assert_eq!(client.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.write("abc").await;
        assert_eq!(client.answer().await.1, b"abc");
        client.write(head("/nowhere", 3)).await;
        let all = client.rest().await;
        assert!(status(&all) == 404 && all.contains("Connection: close"), "{all}");
        let mut client = Client::connect().await;
        client.write(head("/echo", 101)).await;
        assert_eq!(status(&client.rest().await), 413);
    });
}
