//! A server and a client that is written by hand, over a link in memory; and a server on kernel sockets.

use std::future::Future;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use flowlane::stats::{Report, ServiceFigures};
use flowlane::{
    Bind, Bucket, BucketMap, HashConfig, Host, Indirection, Interface, Key, PairConfig, Rss, Runtime,
    TcpListener, TcpStream, Toeplitz, UdpFields, UdpSocket, block_on, current,
};
use flowlane_memcached::server::{Options, Server};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SERVER: &str = "10.0.0.1:11211";

/// So many lanes on as many workers, at most two.
pub(crate) fn rss(lanes: usize) -> (Arc<Rss>, usize) {
    let workers = lanes.min(2);
    let map = BucketMap::new(lanes, workers).unwrap();
    let table = Indirection::new(128, lanes).unwrap();
    let config = HashConfig::with_udp(UdpFields::Two);
    (Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, map)), workers)
}

fn serving(
    server: &Server,
    bind: Option<Ipv4Addr>,
    port: u16,
    say: mpsc::Sender<()>,
) -> impl Fn() -> Served + Send + Sync + use<> {
    let server = server.clone();
    move || {
        let (server, say) = (server.clone(), say.clone());
        Box::pin(async move {
            let lane = server.begin().unwrap();
            let listener = TcpListener::bind(bind.map(Into::into), port, Server::listen_options()).unwrap();
            let bind = Bind { local_ip: bind.map(Into::into), ..Bind::port(port) };
            let socket = UdpSocket::bind(bind).unwrap();
            let _ = say.send(());
            drop(say);
            let lane = Arc::new(lane);
            let datagrams = lane.clone();
            flowlane::spawn(async move { datagrams.serve_datagrams(socket, |_| {}).await }).unwrap();
            let _ = lane.serve(listener, |_| {}).await;
        })
    }
}

type Served = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs `body` in a lane of a host beside the server, which has so many lanes, while these move between workers; its result, and what the
/// server counted.
pub(crate) fn beside<R, F>(
    options: Options,
    lanes: usize,
    body: impl FnOnce() -> F + Send + 'static,
) -> (R, Report)
where
    R: Send + 'static,
    F: Future<Output = R> + Send + 'static,
{
    let (rss, workers) = rss(lanes);
    let on = |address: &str| Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() };
    let server = Server::new(Options { udp_port: 11211, ..options }, lanes).unwrap();
    let mut builder = Runtime::builder().workers(workers).pin(false);
    let (begun, _begins) = mpsc::channel();
    let host = Host::new("server", rss.clone(), serving(&server, None, 11211, begun));
    let host = builder.host(host.interface(on("10.0.0.1/24")));
    let (say, said) = mpsc::channel();
    let body = Arc::new(Mutex::new(Some((say, body))));
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
    builder.pair((asking, 0), (host, 0), PairConfig::default());
    let runtime = builder.start().unwrap();
    let until = Instant::now() + PATIENCE;
    let mut turn = 0;
    let result = loop {
        match said.try_recv() {
            Ok(result) => break result,
            Err(mpsc::TryRecvError::Disconnected) => panic!("the client's task panicked"),
            Err(mpsc::TryRecvError::Empty) => assert!(Instant::now() < until, "the client never ended"),
        }
        // Meanwhile the server's lanes go round, with their stores.
        let (lane, worker) = (turn % lanes, turn / lanes % workers);
        block_on(runtime.handle().begin_move(host, Bucket(lane as u16), worker).unwrap()).unwrap();
        turn += 1;
    };
    (result, runtime.stop())
}

/// A figure of the server's host.
pub(crate) fn figure(report: &Report, name: &str) -> u64 {
    let services: Vec<ServiceFigures> = report.services(0);
    let mut figures = services.iter().flat_map(|service| &service.figures);
    figures.find(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure {name}")).value
}

/// A server on kernel sockets of 127.0.0.1, and its port, while `body` runs.
pub(crate) fn on_kernel_sockets<R>(options: Options, lanes: usize, body: impl FnOnce(u16) -> R) -> R {
    let (server, runtime, port) = begin_on_kernel_sockets(options, lanes);
    let result = body(port);
    drop((server, runtime.stop()));
    result
}

/// The same while its lanes move between workers; and what it counted.
pub(crate) fn among_moving_lanes<R: Send>(
    options: Options,
    lanes: usize,
    body: impl FnOnce(u16) -> R + Send,
) -> (R, Report) {
    let (_server, runtime, port) = begin_on_kernel_sockets(options, lanes);
    let workers = lanes.min(2);
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(|| body(port));
        let mut turn = 0;
        while !running.is_finished() {
            let (lane, worker) = (turn % lanes, turn / lanes % workers);
            block_on(runtime.handle().begin_move(0, Bucket(lane as u16), worker).unwrap()).unwrap();
            turn += 1;
        }
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    (result, runtime.stop())
}

/// A server on a free port of 127.0.0.1 that all its lanes listen on.
pub(crate) fn begin_on_kernel_sockets(options: Options, lanes: usize) -> (Server, Runtime, u16) {
    let (rss, workers) = rss(lanes);
    let port = flowlane_testnet::free_port();
    let server = Server::new(options, lanes).unwrap();
    let mut builder = Runtime::builder().workers(workers).pin(false);
    let (begun, begins) = mpsc::channel();
    builder.host(Host::kernel("server", rss, serving(&server, Some(Ipv4Addr::LOCALHOST), port, begun)));
    let runtime = builder.start().unwrap();
    (0..lanes).for_each(|_| begins.recv_timeout(PATIENCE).expect("a lane did not begin"));
    (server, runtime, port)
}

/// A connection that is written to and read from by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    got: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect() -> Self {
        Self { stream: TcpStream::connect(SERVER.parse().unwrap()).await.unwrap(), got: Vec::new() }
    }

    pub(crate) async fn write(&self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads once; `false` at the end of the connection, however it comes.
    pub(crate) async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 16];
        let n = self.stream.read(&mut buffer).await.unwrap_or(0);
        self.got.extend(&buffer[..n]);
        n > 0
    }

    /// So many bytes.
    pub(crate) async fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.got.len() < n {
            assert!(self.more().await, "ended after {} of {n} bytes", self.got.len());
        }
        let rest = self.got.split_off(n);
        std::mem::replace(&mut self.got, rest)
    }

    /// Sends a request and expects an answer.
    pub(crate) async fn says(&mut self, request: &str, expected: &str) {
        self.write(request).await;
        let said = self.exactly(expected.len()).await;
        assert_eq!(String::from_utf8_lossy(&said), expected, "{request:?}");
    }

    /// Sends a request that is answered with one line; the line.
    pub(crate) async fn line(&mut self, request: &str) -> String {
        self.write(request).await;
        loop {
            if let Some(end) = self.got.iter().position(|b| *b == b'\n') {
                let rest = self.got.split_off(end + 1);
                return String::from_utf8(std::mem::replace(&mut self.got, rest)).unwrap();
            }
            assert!(self.more().await, "ended without an answer");
        }
    }

    /// Everything until the peer ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.got)
    }
}
