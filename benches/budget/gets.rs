//! Gets of memcached over our own stack, in memory: a server of one lane and its clients over a pair link, the whole path.
//!
//! ```sh
//! cargo run --release -p flowlane-benches --bin gets                        # a worker each end; gets a second, and the time of each worker for one
//! cargo run --release -p flowlane-benches --bin gets -- --depth 1           # one request under way on each connection
//! cargo run --release -p flowlane-benches --bin gets -- --udp
//! cargo run --release -p flowlane-benches --bin gets -- --exactly 100000    # so many, both ends on one worker: for counting instructions
//! cargo run --release -p flowlane-benches --bin gets -- --exactly 5000000 --lanes 2 --at-home   # each connection asks for keys of its lane
//! ```
//!
//! Keys have 32 bytes and are drawn evenly from 100 000, values 100 (`--value`). `--connections` (16) have `--depth` (16) gets under way each: a client writes
//! so many at once, and again when all are answered. Over UDP each get is a datagram. Options of the link: `--mtu` (1500), `--offload` (no checksums, and
//! segments of up to 64 KiB, as between a virtual machine and its host). `--turns` (5) of `--seconds` (2). What a worker's thread had of a processor is by
//! `/proc/self/task/*/schedstat`. With `--lanes` the server has so many, each with a worker, or all on the one of `--exactly`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flowlane::{
    Bucket, BucketMap, HashConfig, Host, Idle, Indirection, Interface, Key, PairConfig, Rss, Runtime,
    TcpListener, TcpStream, Toeplitz, UdpFields, UdpSocket, Worker,
};
use flowlane_memcached::map::LaneMap;
use flowlane_memcached::server::{Options, Server};

const KEYS: u64 = 100_000;
const SERVER: &str = "10.0.0.1:11211";
/// The header of a datagram: a request's number, and that it is the only one.
const HEADER: [u8; 8] = [0, 7, 0, 0, 0, 1, 0, 0];

/// What is asked.
#[derive(Debug, Clone)]
struct Plan {
    connections: u64,
    depth: usize,
    value: usize,
    udp: bool,
    mtu: u16,
    offload: bool,
    lanes: usize,
    /// Each connection asks for keys of the lane that it is in.
    at_home: bool,
    /// Gets in all.
    exactly: Option<u64>,
}

impl Plan {
    /// Bytes of an answer: a line with the key, the value, and the end.
    fn answer(&self) -> usize {
        format!("VALUE key:{:028} 0 {}\r\n\r\nEND\r\n", 0, self.value).len() + self.value
    }

    /// How often a connection asks; for ever if it is not said.
    fn rounds(&self) -> u64 {
        self.exactly.map_or(u64::MAX, |gets| gets / self.connections / self.depth as u64)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |name: &str| arguments.iter().any(|a| a == name);
    let value = |name: &str, otherwise: u64| {
        let at = arguments.iter().position(|a| a == name);
        at.map_or(otherwise, |at| arguments[at + 1].parse().unwrap())
    };
    let plan = Plan {
        connections: value("--connections", 16),
        depth: value("--depth", 16) as usize,
        value: value("--value", 100) as usize,
        udp: given("--udp"),
        mtu: value("--mtu", 1500) as u16,
        offload: given("--offload"),
        lanes: value("--lanes", 1) as usize,
        at_home: given("--at-home"),
        exactly: given("--exactly").then(|| value("--exactly", 0)),
    };
    if plan.exactly.is_some() {
        let running = Running::start(&plan, 1);
        let before = workers()[0];
        running.wait();
        let gets = running.done.load(Relaxed);
        return println!(
            "{gets} gets, {:.0} ns of both ends for each",
            (workers()[0] - before) / gets as f64
        );
    }
    let (turns, turn) = (value("--turns", 5) as usize, Duration::from_secs(value("--seconds", 2)));
    println!("{plan:?}");
    let mut all: Vec<[f64; 3]> = (0..turns).map(|_| measure(&plan, turn)).collect();
    let mut show = |at: usize, what: &str| {
        all.sort_by(|a, b| a[at].total_cmp(&b[at]));
        println!("{what}: {:.0} ({:.0} to {:.0})", all[turns / 2][at], all[0][at], all[turns - 1][at]);
    };
    show(0, "gets a second");
    show(1, "ns of the server's worker for a get");
    show(2, "ns of the clients' worker for a get");
}

/// Gets a second, and nanoseconds of each worker for one.
fn measure(plan: &Plan, turn: Duration) -> [f64; 3] {
    let running = Running::start(plan, plan.lanes + 1);
    // The first come before their memory is there.
    std::thread::sleep(turn / 4);
    let (before, began, busy) = (running.done.load(Relaxed), Instant::now(), workers());
    std::thread::sleep(turn);
    let (gets, took) = ((running.done.load(Relaxed) - before) as f64, began.elapsed().as_secs_f64());
    let now = workers();
    let each = |at: usize| (now[at] - busy[at]) / gets;
    let result = [gets / took, (0..plan.lanes).map(each).sum(), each(plan.lanes)];
    drop(running.runtime.stop());
    result
}

struct Running {
    runtime: Runtime,
    done: Arc<AtomicU64>,
    ended: mpsc::Receiver<()>,
    clients: u64,
}

impl Running {
    /// Both ends, once all keys are there. The server has the first worker.
    fn start(plan: &Plan, workers: usize) -> Self {
        let server = Server::new(Options { udp_port: 11211, ..Options::default() }, plan.lanes).unwrap();
        // Who sleeps has to be woken, which is not what is measured; of one worker idle looks would be counted.
        let idle = if workers == 1 { Idle::Adaptive(Duration::ZERO) } else { Idle::Spin };
        let mut builder = Runtime::builder().workers(workers).idle(idle).frames(16_384);
        let serving = move || {
            let server = server.clone();
            async move {
                let lane = Arc::new(server.begin()?);
                let listener = TcpListener::bind(None, 11211, Server::listen_options())?;
                let (socket, datagrams) = (UdpSocket::on_port(11211)?, lane.clone());
                let _ = flowlane::spawn(async move { datagrams.serve_datagrams(socket, |_| {}).await });
                lane.serve(listener, |_| {}).await
            }
        };
        let lanes: Vec<usize> = (0..plan.lanes).map(|lane| lane.min(workers - 1)).collect();
        let server = Host::new("server", on(&lanes, workers), serving).interface(at("10.0.0.1/24"));
        let server = builder.host(server);
        let done: Arc<AtomicU64> = Arc::default();
        let ((end, ended), (filled, fill)) = (mpsc::channel(), mpsc::channel());
        let (asked, counting) = (plan.clone(), done.clone());
        let asking = move || {
            let (plan, done, end, filled) = (asked.clone(), counting.clone(), end.clone(), filled.clone());
            async move {
                store(plan.value).await;
                filled.send(()).unwrap();
                let requests = Arc::new(requests(plan.udp));
                for n in 0..plan.connections {
                    let (plan, requests, random) = (plan.clone(), requests.clone(), n << 32 | 7);
                    let client = Client { plan, requests, keys: Vec::new(), random };
                    let (done, end) = (done.clone(), end.clone());
                    let _ = flowlane::spawn(async move {
                        client.ask(&done).await;
                        let _ = end.send(());
                    });
                }
            }
        };
        let client = Host::new("client", on(&[workers - 1], workers), asking).interface(at("10.0.0.2/24"));
        let client = builder.host(client);
        let link = PairConfig {
            mtu: plan.mtu,
            checksum_offload: plan.offload,
            segmentation_offload: plan.offload,
            ..PairConfig::default()
        };
        builder.pair((client, 0), (server, 0), link);
        let runtime = builder.start().unwrap();
        fill.recv().unwrap();
        Self { runtime, done, ended, clients: plan.connections }
    }

    fn wait(&self) {
        (0..self.clients).for_each(|_| self.ended.recv().unwrap());
    }
}

/// Lanes on these workers.
fn on(lanes: &[usize], workers: usize) -> Arc<Rss> {
    let mut map = BucketMap::new(lanes.len(), workers).unwrap();
    for (lane, worker) in lanes.iter().enumerate() {
        map.assign(Bucket(lane as u16), Worker(*worker as u16));
    }
    let table = Indirection::new(128, lanes.len()).unwrap();
    let config = HashConfig::with_udp(UdpFields::Four);
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), config, table, map))
}

fn at(address: &str) -> Interface {
    Interface { addresses: vec![address.parse().unwrap()], ..Interface::default() }
}

/// Nanoseconds of processor time that each worker's thread has had.
fn workers() -> Vec<f64> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |thread: std::io::Result<std::fs::DirEntry>| {
        let path = thread.unwrap().path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let counted = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let time: f64 = counted.split_whitespace().next()?.parse().ok()?;
        name.starts_with("flowlane").then_some((name, time))
    };
    let mut all: Vec<(String, f64)> = threads.filter_map(of).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().map(|(_, time)| time).collect()
}

/// Stores all keys. Nothing is allocated for each: what that takes differs from run to run.
async fn store(value: usize) {
    let stream = loop {
        if let Ok(stream) = TcpStream::connect(SERVER.parse().unwrap()).await {
            break stream;
        }
        flowlane::yield_now().await;
    };
    let mut sets = Vec::with_capacity(100 * (value + 64));
    for from in (0..KEYS).step_by(100) {
        sets.clear();
        for n in from..from + 100 {
            write!(sets, "set key:{n:028} 0 0 {value}\r\n{n:0value$}\r\n").unwrap();
        }
        stream.write_all(&sets).await.unwrap();
        let (mut answers, mut len) = ([0; 800], 0);
        while len < answers.len() {
            len += stream.read(&mut answers[len..]).await.unwrap();
        }
    }
}

/// What the server says of its lanes, and of that of this connection.
async fn lanes(stream: &TcpStream) -> LaneMap {
    stream.write_all(b"stats lanes\r\n").await.unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    while !said.ends_with(b"END\r\n") {
        let n = stream.read(&mut some).await.unwrap();
        said.extend_from_slice(&some[..n]);
    }
    String::from_utf8(said).unwrap().parse().unwrap()
}

/// All requests, one after another.
fn requests(udp: bool) -> Vec<u8> {
    let mut all = Vec::with_capacity(KEYS as usize * 64);
    for n in 0..KEYS {
        all.extend_from_slice(if udp { &HEADER } else { &[] });
        write!(all, "get key:{n:028}\r\n").unwrap();
    }
    all
}

/// One connection, or one socket. Requests are ready, and all answers are of one length: what is measured at this end is the stack.
struct Client {
    plan: Plan,
    requests: Arc<Vec<u8>>,
    /// Those that it asks for, if not for all.
    keys: Vec<u64>,
    random: u64,
}

impl Client {
    async fn ask(self, done: &AtomicU64) {
        if self.plan.udp { self.ask_by_datagrams(done).await } else { self.ask_over_a_stream(done).await }
    }

    /// The request for a key drawn evenly (Knuth's generator).
    fn request(&mut self) -> &[u8] {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let of = if self.keys.is_empty() { KEYS } else { self.keys.len() as u64 };
        let n = ((self.random >> 33) * of) >> 31;
        let n = self.keys.get(n as usize).copied().unwrap_or(n);
        let each = self.requests.len() / KEYS as usize;
        &self.requests[n as usize * each..][..each]
    }

    async fn ask_over_a_stream(mut self, done: &AtomicU64) {
        let stream = TcpStream::connect(SERVER.parse().unwrap()).await.unwrap();
        let _ = stream.set_nodelay(true);
        if self.plan.at_home {
            let map = lanes(&stream).await;
            let is_here = |n: &u64| map.lane_of(format!("key:{n:028}").as_bytes()) == map.here;
            self.keys = (0..KEYS).filter(is_here).collect();
        }
        let (depth, each) = (self.plan.depth, self.plan.answer());
        let (mut request, mut answer) = (Vec::new(), vec![0; depth * each]);
        for _ in 0..self.plan.rounds() {
            request.clear();
            (0..depth).for_each(|_| request.extend_from_slice(self.request()));
            if stream.write_all(&request).await.is_err() {
                return;
            }
            let mut came = 0;
            while came < answer.len() {
                match stream.read(&mut answer[came..]).await {
                    Ok(n) if n > 0 => came += n,
                    _ => return,
                }
            }
            answer.chunks(each).for_each(check);
            done.fetch_add(depth as u64, Relaxed);
        }
    }

    async fn ask_by_datagrams(mut self, done: &AtomicU64) {
        let socket = UdpSocket::connect(SERVER.parse().unwrap()).unwrap();
        let (depth, mut came) = (self.plan.depth, Vec::new());
        for _ in 0..self.plan.rounds() {
            for _ in 0..depth {
                if socket.send(self.request()).await.is_err() {
                    return;
                }
            }
            while came.len() < depth {
                let most = depth - came.len();
                if socket.recv_batch(&mut came, most).await.is_err() {
                    return;
                }
            }
            came.drain(..).for_each(|datagram| check(&datagram.payload()[HEADER.len()..]));
            done.fetch_add(depth as u64, Relaxed);
        }
    }
}

/// Each is a hit, and in its place.
fn check(answer: &[u8]) {
    assert!(answer.starts_with(b"VALUE key:") && answer.ends_with(b"\r\nEND\r\n"));
}
