//! How answers end: by their length, by chunks, or with the stream, which over TLS has to say that it ends.

use flowlane::TcpStream;
use flowlane_http::tls::{Alpn, Identity, ServerTls, Trust};
use flowlane_load::http::{Checks, Pool, Request};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::kit::{Ran, ms, plan, pool, run, serve, target};

const REQUESTS: u64 = 6;

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, with: &'static [u8], says_so: bool) {
    let mut buffer = [0; 1024];
    if !matches!(stream.read(&mut buffer).await, Ok(1..)) {
        return;
    }
    let _ = stream.write_all(with).await;
    let _ = stream.flush().await;
    if says_so {
        let _ = stream.shutdown().await;
    }
}

/// Over TLS or not, a server that answers so and closes; whether it sends close_notify before.
fn ran(with: &'static [u8], tls: bool, says_so: bool) -> Ran {
    let identity = Identity::SelfSigned(vec!["10.0.0.1".into()]);
    let secure = ServerTls::new(&identity, Alpn::Http1).unwrap();
    let server = serve(move |stream: TcpStream| {
        let secure = secure.clone();
        async move {
            if !tls {
                answer(stream, with, says_so).await;
            } else if let Ok(stream) = secure.accept(stream).await {
                answer(stream, with, says_so).await;
            }
        }
    });
    let mut target = target("/x");
    if tls {
        (target.url.https, target.url.port) = (true, 443);
    }
    let checks = Checks { length: Some(5), ..Checks::default() };
    let requests = vec![Request { checks, ..Request::default() }];
    let pool = Pool {
        targets: vec![target],
        trust: Trust::Anybody,
        connections: 2,
        total_requests: Some(REQUESTS),
        // The server closes after each without saying so.
        requests_per_connection: Some(1),
        requests,
        ..pool()
    };
    run(plan(pool, ms(20_000)), &server)
}

const UNTIL_CLOSE: [&[u8]; 2] =
    [b"HTTP/1.0 200 OK\r\n\r\nhello", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"];

/// RFC 9112 §9.8: without close_notify anybody on the way may have cut it.
#[test]
fn what_ends_with_the_stream_is_whole_over_tls_only_if_tls_says_so() {
    for with in UNTIL_CLOSE {
        for (tls, says_so) in [(false, false), (false, true), (true, true)] {
            let ran = ran(with, tls, says_so);
            let c = ran.counts();
            assert_eq!((c.sent, c.answered, c.failed), (REQUESTS, REQUESTS, 0), "{tls} {says_so}: {c:?}");
        }
        let ran = ran(with, true, false);
        let c = ran.counts();
        assert_eq!((c.sent, c.answered, ran.errors("closed")), (REQUESTS, 0, REQUESTS), "{c:?}");
        assert!(c.errors["closed"].example.contains("close_notify"), "{c:?}");
    }
}

#[test]
fn what_says_its_length_is_whole_however_the_stream_ends() {
    for with in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        // A later minor version and a folded field change nothing.
        b"HTTP/1.2 200 OK\r\nContent-Length: 5\r\nServer: a\r\n b\r\n\r\nhello",
    ] {
        for (tls, says_so) in [(false, false), (true, false), (true, true)] {
            let ran = ran(with, tls, says_so);
            let c = ran.counts();
            assert_eq!((c.answered, c.failed), (REQUESTS, 0), "{tls} {says_so}: {c:?}");
        }
    }
    // Cut before its length or its last chunk.
    for with in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ] {
        for (tls, says_so) in [(false, false), (true, false), (true, true)] {
            let ran = ran(with, tls, says_so);
            assert_eq!((ran.counts().answered, ran.errors("closed")), (0, REQUESTS), "{:?}", ran.counts());
        }
    }
}
