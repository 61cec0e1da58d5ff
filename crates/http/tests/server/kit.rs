//! A server and a client that is written by hand, over a link in memory.

use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flowlane::{
    Host, Interface, Key, PairConfig, Rss, Runtime, SocketError, TcpListener, TcpStream, current,
};
use flowlane_http::server::{Counts, Options, Server};

pub(crate) const SERVER: &str = "10.0.0.1:80";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LANES: usize = 4;

/// Runs `body` in a lane of a host beside the server; its result, and what the server counted.
pub(crate) fn beside<R, F>(options: Options, body: impl FnOnce() -> F + Send + 'static) -> (R, Counts)
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    beside_with(options, |_| body())
}

/// As [`beside`], with the server, which may count an end after the peer has seen it.
pub(crate) fn beside_with<R, F>(
    options: Options,
    body: impl FnOnce(Server) -> F + Send + 'static,
) -> (R, Counts)
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 2));
    let lanes = rss.buckets.len();
    assert_eq!(lanes, LANES);
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let server = Server::new(options, lanes).unwrap();
    let mut builder = Runtime::builder().workers(2).pin(false);
    let own = server.clone();
    let serving = Host::new("server", rss.clone(), move || {
        let server = own.clone();
        async move {
            let listener = TcpListener::bind(None, 80, Server::listen_options()).unwrap();
            let _ = server.serve(listener).await;
        }
    });
    let serving = builder.host(serving.interface(on("10.0.0.1/24")));
    let (say, said) = mpsc::channel();
    let asked = server.clone();
    let body = Arc::new(Mutex::new(Some((say, move || body(asked)))));
    let asking = Host::new("client", rss, move || {
        let body = body.clone();
        async move {
            if current().unwrap().bucket.0 == 0 {
                let (say, body) = body.lock().unwrap().take().unwrap();
                let _ = say.send(body().await);
            }
        }
    });
    let asking = builder.host(asking.interface(on("10.0.0.2/24")));
    builder.pair((asking, 0), (serving, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let result = said.recv_timeout(PATIENCE).expect("the client's task panicked, or never ended");
    drop(runtime.stop());
    (result, server.total())
}

/// Waits until all connections have ended, which peers may see before the server has counted it.
pub(crate) async fn all_ended(server: &Server) {
    while server.total().open() > 0 {
        flowlane::sleep(Duration::from_millis(1)).await;
    }
}

/// A connection that is written to and read from by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) got: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect() -> Self {
        Self { stream: TcpStream::connect(SERVER.parse().unwrap()).await.unwrap(), got: Vec::new() }
    }

    pub(crate) async fn write(&self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads once; `false` at the end.
    pub(crate) async fn more(&mut self) -> Result<bool, SocketError> {
        let mut buffer = vec![0; 1 << 16];
        let n = self.stream.read(&mut buffer).await?;
        self.got.extend(&buffer[..n]);
        Ok(n > 0)
    }

    /// Everything up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = find(&self.got, end.as_bytes()) {
                let rest = self.got.split_off(at + end.len());
                return text(std::mem::replace(&mut self.got, rest));
            }
            if !self.more().await.unwrap() {
                panic!("ended before {end:?}: {:?}", text(self.got.clone()));
            }
        }
    }

    /// So many bytes.
    pub(crate) async fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.got.len() < n {
            assert!(self.more().await.unwrap(), "ended after {} of {n} bytes", self.got.len());
        }
        let rest = self.got.split_off(n);
        std::mem::replace(&mut self.got, rest)
    }

    /// An answer with a length: its head, its body.
    pub(crate) async fn answer(&mut self) -> (String, Vec<u8>) {
        let head = self.until("\r\n\r\n").await;
        let len = field(&head, "Content-Length").map_or(0, |v| v.parse().unwrap());
        let body = self.exactly(len).await;
        (head, body)
    }

    /// Waits until the peer ends the stream, whatever it says before.
    pub(crate) async fn gone(&mut self) {
        while self.more().await.unwrap_or(false) {}
    }

    /// Everything until the peer ends the stream, properly or not.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await.unwrap_or(false) {}
        text(std::mem::take(&mut self.got))
    }
}

/// Sends all this, ends the sending, and reads to the end.
pub(crate) async fn say(bytes: impl AsRef<[u8]>) -> String {
    let mut client = Client::connect().await;
    client.write(bytes).await;
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.rest().await
}

/// The value of a header field in an answer.
pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(": ")?;
        n.eq_ignore_ascii_case(name).then_some(value)
    })
}

pub(crate) fn status(answer: &str) -> u16 {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|s| s.parse().ok());
    status.unwrap_or_else(|| panic!("no answer of HTTP/1.1: {answer:?}"))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// A request without a body.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n")
}
