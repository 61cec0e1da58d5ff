//! A server that is stopped: what was asked is answered, everybody is told in order, and who takes too long is reset. On our own
//! stack and on the kernel's sockets, with HTTP/1 and HTTP/2, inside TLS and not.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane::{Host, Interface, Key, PairConfig, Rss, Runtime, TcpListener, TcpStream, current};
use flowlane_http::server::{Counter, Options, Server};
use flowlane_http::tls::{Alpn, ClientTls, Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::frames::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, Two, fields, frame, window,
};
use crate::kit::{PATIENCE, field, get};
use crate::others::tls;

/// What the lane in which a test runs is given.
struct Asking {
    server: Server,
    at: SocketAddr,
    tls: Option<ClientTls>,
}

/// Runs `body` beside a server, over a link in memory and over the kernel's loopback, inside TLS and not.
fn everywhere<F>(body: impl Fn(Asking) -> F + Clone + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    for (kernel, secret) in [(false, false), (false, true), (true, false), (true, true)] {
        let (server, clients) = tls();
        let client = clients(Alpn::Http1);
        let options = Options { tls: secret.then_some(server), ..Options::default() };
        let body = body.clone();
        beside(kernel, options, move |server, at| body(Asking { server, at, tls: secret.then_some(client) }));
    }
}

fn beside<F>(kernel: bool, options: Options, body: impl FnOnce(Server, SocketAddr) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let server = Server::new(options, rss.buckets.len()).unwrap();
    let at: Arc<OnceLock<SocketAddr>> = Arc::default();
    let (own, bound) = (server.clone(), at.clone());
    let serve = move || {
        let (server, bound) = (own.clone(), bound.clone());
        async move {
            // The first of the kernel's lanes takes a port, the others listen there, too.
            let port = bound.get().map_or(if kernel { 0 } else { 80 }, SocketAddr::port);
            let local = if kernel { [127, 0, 0, 1] } else { [10, 0, 0, 1] };
            let listener = TcpListener::bind(Some(local.into()), port, Server::listen_options())?;
            bound.get_or_init(|| listener.local_addr().unwrap());
            server.serve(listener).await
        }
    };
    let (say, said) = mpsc::channel();
    let once = Arc::new(Mutex::new(Some((say, body))));
    let own = server.clone();
    let ask = move || {
        let (once, server, at) = (once.clone(), own.clone(), at.clone());
        async move {
            if current().unwrap().bucket.0 == 0 {
                let (say, body) = once.lock().unwrap().take().unwrap();
                body(server, *at.get().expect("the server's lanes begin first")).await;
                say.send(()).unwrap();
            }
        }
    };
    let mut builder = Runtime::builder().pin(false);
    if kernel {
        builder.host(Host::kernel("server", rss.clone(), serve));
        builder.host(Host::kernel("client", rss, ask));
    } else {
        let on = |at: &str| Interface { addresses: vec![at.parse().unwrap()], ..Interface::default() };
        let server = builder.host(Host::new("server", rss.clone(), serve).interface(on("10.0.0.1/24")));
        let client = builder.host(Host::new("client", rss, ask).interface(on("10.0.0.2/24")));
        builder.pair((server, 0), (client, 0), PairConfig::default());
    }
    let runtime = builder.start().unwrap();
    said.recv_timeout(PATIENCE).expect("the client's task panicked, or never ended");
    let report = runtime.stop();
    assert!(report.failures().is_empty(), "{:?}", report.failures());
    assert_eq!((server.total().open(), server.total().errors()), (0, 0), "{:?}", server.total());
}

impl Asking {
    async fn connect(&self) -> Stream<TcpStream> {
        let stream = TcpStream::connect(self.at).await.unwrap();
        match &self.tls {
            None => Stream::Plain(stream),
            Some(tls) => tls.connect(stream, ClientTls::name("10.0.0.1").unwrap()).await.unwrap(),
        }
    }

    /// A connection on which this was said.
    async fn said(&self, words: &str) -> Stream<TcpStream> {
        let mut stream = self.connect().await;
        stream.write_all(words.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// Until so many requests have come.
    async fn asked(&self, requests: u64) {
        while self.server.total().get(Counter::Requests) < requests {
            flowlane::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops the server. What comes of it.
    async fn stop(&self, grace: Duration) -> JoinHandle<usize> {
        let server = self.server.clone();
        let stopping = std::thread::spawn(move || server.stop_within(grace));
        // Until it listens no more. Inside TLS this would count as handshakes that failed.
        while self.tls.is_none() && TcpStream::connect(self.at).await.is_ok() {
            flowlane::sleep(Duration::from_millis(1)).await;
        }
        stopping
    }
}

/// Without blocking the lane, in which the server may run as well.
async fn result<T>(of: JoinHandle<T>) -> T {
    while !of.is_finished() {
        flowlane::sleep(Duration::from_millis(1)).await;
    }
    of.join().unwrap()
}

/// An answer with a length.
async fn answer(stream: &mut Stream<TcpStream>) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let mut body = vec![0; field(&head, "Content-Length").unwrap().parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// A proper end: inside TLS with its goodbye.
async fn end(mut stream: Stream<TcpStream>) {
    assert_eq!(stream.read(&mut [0; 10]).await.expect("a proper end"), 0);
}

/// A request of which half the body has come.
fn half(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhello")
}

#[test]
fn what_was_asked_is_answered_and_all_are_told() {
    everywhere(|it| async move {
        let mut idle = it.said(&get("/size/1")).await;
        assert_eq!(field(&answer(&mut idle).await.0, "Connection"), None);
        let silent = it.connect().await;
        let mut busy = it.said(&half("/size/3")).await;
        let mut delayed = it.said(&get("/delay/1?size=4")).await;
        assert_eq!(answer(&mut delayed).await.1.len(), 4);
        it.asked(3).await;
        let stopping = it.stop(PATIENCE).await;
        for stream in [idle, silent, delayed] {
            end(stream).await;
        }
        assert!(!stopping.is_finished(), "a request is not answered");
        busy.write_all(b"world").await.unwrap();
        busy.flush().await.unwrap();
        let (head, body) = answer(&mut busy).await;
        assert_eq!((field(&head, "Connection"), body.len()), (Some("close"), 3), "{head}");
        end(busy).await;
        assert_eq!(result(stopping).await, 0, "nobody was reset");
    });
}

#[test]
fn streams_that_were_begun_end_before_their_connection() {
    everywhere(|it| async move {
        if it.tls.is_some() {
            return;
        }
        let mut client = Two { stream: it.connect().await };
        let begun = frame(HEADERS, END_HEADERS, 1, &fields("/echo"));
        client.write([PREFACE, &window(1 << 16), &begun].concat()).await;
        let mut idle = Two { stream: it.connect().await };
        idle.write([PREFACE, &window(1 << 16)].concat()).await;
        client.until(HEADERS).await;
        let stopping = it.stop(PATIENCE).await;
        for (client, busy) in [(&mut idle, false), (&mut client, true)] {
            let mut last = None;
            let mut echoed = Vec::new();
            while let Some(got) = client.frame().await {
                match got.kind {
                    // That we know of the end, which may now be final.
                    PING if got.flags == 0 => client.write(frame(PING, 1, 0, &got.payload)).await,
                    GOAWAY => {
                        assert_eq!(got.reason(), 0);
                        if busy && last.is_none() {
                            client.write(frame(DATA, END_STREAM, 1, b"hello")).await;
                        }
                        last = Some(got);
                    }
                    DATA => echoed.extend(got.payload),
                    _ => {}
                }
            }
            assert_eq!(echoed, if busy { &b"hello"[..] } else { b"" });
            let last = last.expect("a goodbye");
            assert_eq!(last.payload[..4], [0, 0, 0, u8::from(busy)], "which streams were taken");
        }
        drop((idle, client));
        assert_eq!(result(stopping).await, 0, "nobody was reset");
    });
}

#[test]
fn who_takes_longer_than_the_grace_is_reset() {
    everywhere(|it| async move {
        let mut slow = it.said(&half("/size/3")).await;
        it.asked(1).await;
        let server = it.server.clone();
        let stopping = std::thread::spawn(move || server.stop_within(Duration::from_millis(20)));
        let mut byte = [0];
        assert!(slow.read(&mut byte).await.is_err(), "{byte:?}");
        assert_eq!(result(stopping).await, 1);
    });
}
