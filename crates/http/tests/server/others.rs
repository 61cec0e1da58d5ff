//! Clients that others wrote: hyper's, with HTTP/1 and HTTP/2, inside TLS and not.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use flowlane::{TcpStream, spawn};
use flowlane_http::server::{Counter, Counts, Options, Timeouts};
use flowlane_http::tls::{Alpn, ClientOptions, ClientTls, Identity, ServerTls, Stream, Trust};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use crate::kit::{Client, SERVER, all_ended, beside, beside_with};

#[derive(Clone)]
struct InLane;

impl<F> hyper::rt::Executor<F> for InLane
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(spawn(future));
    }
}

type Sender =
    Box<dyn FnMut(Request<Full<Bytes>>) -> Pin<Box<dyn Future<Output = Response<Bytes>> + Send>> + Send>;

async fn whole(
    answer: impl Future<Output = hyper::Result<Response<hyper::body::Incoming>>>,
) -> Response<Bytes> {
    let (head, body) = answer.await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

pub(crate) async fn connect(tls: Option<ClientTls>) -> Stream<TcpStream> {
    let stream = TcpStream::connect(SERVER.parse().unwrap()).await.unwrap();
    match tls {
        None => Stream::Plain(stream),
        Some(tls) => tls.connect(stream, ClientTls::name("10.0.0.1").unwrap()).await.unwrap(),
    }
}

async fn sender(tls: Option<ClientTls>, two: bool) -> Sender {
    let stream = TokioIo::new(connect(tls).await);
    if two {
        let (requests, connection) = http2::handshake(InLane, stream).await.unwrap();
        spawn(async { drop(connection.await) }).unwrap();
        Box::new(move |request| {
            let mut requests = requests.clone();
            Box::pin(async move { whole(requests.send_request(request)).await })
        })
    } else {
        let (mut requests, connection) = http1::handshake(stream).await.unwrap();
        spawn(async { drop(connection.await) }).unwrap();
        Box::new(move |request| {
            let answer = requests.send_request(request);
            Box::pin(whole(answer))
        })
    }
}

/// The same questions, however they are carried.
async fn ask(tls: Option<ClientTls>, two: bool) {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut send = sender(tls, two).await;
    let request = |method: &str, path: &str, body: Bytes| {
        let uri = if two { format!("{scheme}://10.0.0.1{path}") } else { path.to_owned() };
        Request::builder().method(method).uri(uri).header("host", "10.0.0.1").body(Full::new(body)).unwrap()
    };
    for n in [0, 1, 600, 300_000] {
        for query in ["", "?chunked"] {
            let answer = send(request("GET", &format!("/size/{n}{query}"), Bytes::new())).await;
            assert_eq!((answer.status().as_u16(), answer.body().len()), (200, n));
            assert_eq!(answer.headers().contains_key("content-length"), query.is_empty(), "{answer:?}");
        }
    }
    assert_eq!(send(request("GET", "/line", Bytes::new())).await.body().len(), 128);
    assert_eq!(send(request("GET", "/status/418", Bytes::new())).await.status(), 418);
    assert_eq!(send(request("GET", "/delay/10?size=3", Bytes::new())).await.body(), "012");
    let head = send(request("HEAD", "/size/77", Bytes::new())).await;
    assert_eq!((head.headers()["content-length"].to_str().unwrap(), head.body().len()), ("77", 0));
    let body = Bytes::from(vec![b'x'; 200_000]);
    assert!(send(request("POST", "/echo", body.clone())).await.body() == &body, "another body");
    assert_eq!(send(request("PUT", "/size/1", body)).await.body(), "0");
}

/// A file that goes with whoever reads it.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn tls() -> (ServerTls, impl Fn(Alpn) -> ClientTls + Send + 'static) {
    let server =
        ServerTls::new(&Identity::for_addresses(&["10.0.0.1".parse().unwrap()]), Alpn::Both).unwrap();
    let file = std::env::temp_dir().join(format!(
        "flowlane-others-{}-{:p}.pem",
        std::process::id(),
        &raw const server
    ));
    std::fs::write(&file, server.certificate_pem()).unwrap();
    let file = Removed(file);
    let clients = move |alpn| {
        let trust = Trust::File(file.0.clone());
        ClientTls::new(&ClientOptions { trust, alpn, ..ClientOptions::default() }).unwrap()
    };
    (server, clients)
}

fn check(counts: &Counts, connections: u64, two: bool) {
    assert_eq!(counts.get(Counter::Requests), 14 * connections);
    assert_eq!(counts.get(Counter::Connections), connections);
    assert_eq!(counts.get(Counter::Http2), if two { connections } else { 0 });
    assert_eq!(counts.answers(), 14 * connections);
    assert_eq!(counts.get(Counter::ClientError), connections, "the teapot");
    assert_eq!(counts.errors(), 0, "{counts:?}");
}

#[test]
fn http1_and_http2_on_cleartext() {
    let (_, counts) = beside(Options::default(), || ask(None, false));
    check(&counts, 1, false);
    let (_, counts) = beside(Options::default(), || ask(None, true));
    check(&counts, 1, true);
}

#[test]
fn http1_and_http2_inside_tls() {
    for (alpn, two) in [(Alpn::Http1, false), (Alpn::Both, true)] {
        let (server, clients) = tls();
        let client = clients(alpn);
        let options = Options { tls: Some(server), ..Options::default() };
        let (_, counts) = beside(options, move || async move {
            ask(Some(client.clone()), two).await;
            ask(Some(client), two).await;
        });
        check(&counts, 2, two);
        assert_eq!(counts.get(Counter::Handshakes), 2);
        assert_eq!(counts.get(Counter::Resumed), 1, "the second time they know each other");
    }
}

#[test]
fn many_streams_at_once() {
    let (_, counts) = beside(Options::default(), || async {
        let stream = TokioIo::new(connect(None).await);
        let (requests, connection) = http2::handshake(InLane, stream).await.unwrap();
        spawn(async { drop(connection.await) }).unwrap();
        let asked: Vec<_> = (0..500_usize)
            .map(|n| {
                let mut requests = requests.clone();
                spawn(async move {
                    let request =
                        Request::get(format!("http://x/size/{}", n * 10)).body(Empty::<Bytes>::new());
                    whole(requests.send_request(request.unwrap())).await.body().len()
                })
                .unwrap()
            })
            .collect();
        for (n, answer) in asked.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap(), n * 10);
        }
    });
    assert_eq!(counts.get(Counter::Requests), 500);
}

#[test]
fn what_is_no_tls_and_no_http2() {
    let (server, _) = tls();
    let (_, counts) = beside(Options { tls: Some(server), ..Options::default() }, || async {
        let mut client = Client::connect().await;
        client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        client.gone().await;
    });
    assert_eq!(counts.get(Counter::HandshakeFailed), 1);
    let (_, counts) = beside_with(Options::default(), |server| async move {
        let mut client = Client::connect().await;
        client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthis is no frame at all, is it").await;
        client.gone().await;
        drop(client);
        // It is counted when our end has come, too.
        all_ended(&server).await;
    });
    assert_eq!(counts.get(Counter::Http2Failed), 1);
}

#[test]
fn idle_http2_connections_and_slow_handshakes_are_ended() {
    let soon = Duration::from_millis(60);
    let timeouts = Timeouts { head: soon, idle: soon, body: soon, write: soon };
    let (_, counts) = beside(Options { timeouts, ..Options::default() }, || async {
        let stream = TokioIo::new(connect(None).await);
        let (mut requests, connection) = http2::handshake(InLane, stream).await.unwrap();
        let ended = spawn(async { connection.await.is_ok() }).unwrap();
        let request = Request::get("http://x/size/1").body(Empty::<Bytes>::new()).unwrap();
        whole(requests.send_request(request)).await;
        assert!(ended.await.unwrap(), "told to go, properly");
    });
    assert_eq!(counts.get(Counter::IdleTimeout), 1);
    assert_eq!(counts.errors(), 0, "{counts:?}");
    // One that asks and gives no room for the answer: the answer is given up, and then the connection for being idle.
    let (_, counts) = beside(Options { timeouts, ..Options::default() }, || async {
        let stream = TokioIo::new(connect(None).await);
        let mut builder = http2::Builder::new(InLane);
        let (mut requests, connection) =
            builder.initial_stream_window_size(1).handshake(stream).await.unwrap();
        let ended = spawn(async { connection.await.is_ok() }).unwrap();
        let request = Request::get("http://x/size/100000").body(Full::new(Bytes::new())).unwrap();
        let answer = requests.send_request(request).await.unwrap();
        assert!(ended.await.unwrap(), "told to go, properly");
        drop(answer);
    });
    assert_eq!((counts.get(Counter::WriteTimeout), counts.get(Counter::IdleTimeout)), (1, 1));
    let (server, _) = tls();
    let (_, counts) = beside(Options { timeouts, tls: Some(server), ..Options::default() }, || async {
        Client::connect().await.gone().await;
    });
    assert_eq!(counts.get(Counter::HeadTimeout), 1);
}
