//! Processor time of the server for a request, ours and Debian's memcached in turns, on kernel sockets over loopback.
//!
//! ```sh
//! cargo bench -p flowlane-memcached --bench server                 # one worker and one thread
//! cargo bench -p flowlane-memcached --bench server -- --workers 2
//! ```
//!
//! The client is this program: connections of one thread, each with one request under way, keys of 32 bytes drawn evenly from 100 000, values of 100 bytes. It writes
//! to all of its connections, then reads from all. So it is no measure of latency, and it is slower than `mc-crusher`. What is
//! compared is the time that the server's process used, by `/proc/PID/stat`, to the requests that it answered.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on panics")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::{Host, Key, Rss, Runtime, TcpListener};
use flowlane_memcached::server::{Options, Server};

const CONNECTIONS: usize = 64;
const KEYS: u64 = 100_000;
const TURNS: usize = 5;
const TURN: Duration = Duration::from_secs(2);

fn serve(port: u16, workers: usize) {
    let rss = flowlane::BucketMap::new(workers, workers).map(|map| {
        let table = flowlane::Indirection::new(128, workers).unwrap();
        let config = flowlane::HashConfig::with_udp(flowlane::UdpFields::Two);
        Rss::from_parts(flowlane::Toeplitz::new(&Key::MICROSOFT), config, table, map)
    });
    let server = Server::new(Options { port, workers, ..Options::default() }, workers).unwrap();
    let main = move || {
        let server = server.clone();
        async move {
            let lane = server.begin()?;
            let listener =
                TcpListener::bind(Some(Ipv4Addr::LOCALHOST.into()), port, Server::listen_options())?;
            lane.serve(listener, |_| {}).await
        }
    };
    let mut builder = Runtime::builder().workers(workers).pin(false);
    builder.host(Host::kernel("server", Arc::new(rss.unwrap()), main));
    drop(builder.start().unwrap().join());
}

/// A server's process, which ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Ticks of processor time so far.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

fn start(command: &mut Command, port: u16) -> Running {
    let running = Running(command.stdin(Stdio::null()).spawn().unwrap());
    let until = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(Instant::now() < until, "no server on port {port}");
        std::thread::yield_now();
    }
    running
}

struct Client {
    streams: Vec<TcpStream>,
    seed: u64,
    get: u64,
}

impl Client {
    fn new(port: u16, get: u64) -> Self {
        let connect = || {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        };
        let mut client = Self {
            streams: (0..CONNECTIONS).map(|_| connect()).collect(),
            seed: 88_172_645_463_325_252,
            get,
        };
        let mut all = Vec::new();
        (0..KEYS).for_each(|n| set(&mut all, n));
        let mut stream = client.streams[0].try_clone().unwrap();
        let fill = std::thread::spawn(move || stream.write_all(&all).unwrap());
        let mut stored = vec![0; 8 * KEYS as usize];
        client.streams[0].read_exact(&mut stored).unwrap();
        fill.join().unwrap();
        client
    }

    fn below(&mut self, n: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % n
    }

    /// Asks on every connection and reads all answers; how many.
    fn round(&mut self) -> u64 {
        let mut gets = [false; CONNECTIONS];
        let mut request = Vec::with_capacity(256);
        for (i, is_get) in gets.iter_mut().enumerate() {
            request.clear();
            *is_get = self.below(100) < self.get;
            let n = self.below(KEYS);
            if *is_get {
                request.extend_from_slice(format!("get key:{n:028}\r\n").as_bytes());
            } else {
                set(&mut request, n);
            }
            self.streams[i].write_all(&request).unwrap();
        }
        let mut answer = [0; 256];
        for (i, is_get) in gets.iter().enumerate() {
            let wanted: &[u8] = if *is_get { b"END\r\n" } else { b"STORED\r\n" };
            let mut len = 0;
            while !answer[..len].ends_with(wanted) {
                len += self.streams[i].read(&mut answer[len..]).unwrap();
            }
        }
        CONNECTIONS as u64
    }
}

fn set(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(format!("set key:{n:028} 0 0 100\r\n{n:0100}\r\n").as_bytes());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name)?;
        arguments.get(at + 1)?.parse::<usize>().ok()
    };
    let workers = value("--workers").unwrap_or(1);
    if let Some(port) = value("--serve") {
        return serve(port as u16, workers);
    }
    println!("{CONNECTIONS} connections, one request each under way, {TURNS} turns of {TURN:?} each");
    for get in [90, 50] {
        let mut costs = [Vec::new(), Vec::new()];
        for turn in 0..TURNS {
            for (which, costs) in costs.iter_mut().enumerate() {
                let port = 23_000 + (turn * 2 + which) as u16;
                let threads = workers.to_string();
                let mut command = if which == 0 {
                    let mut own = Command::new(std::env::current_exe().unwrap());
                    own.args(["--serve", &port.to_string(), "--workers", &threads]);
                    own
                } else {
                    let mut peer = Command::new("memcached");
                    peer.args([
                        "-u",
                        "nobody",
                        "-U",
                        "0",
                        "-l",
                        "127.0.0.1",
                        "-t",
                        &threads,
                        "-p",
                        &port.to_string(),
                    ]);
                    peer
                };
                let server = start(&mut command, port);
                let mut client = Client::new(port, get);
                let (before, began, mut requests) = (server.ticks(), Instant::now(), 0);
                while began.elapsed() < TURN {
                    requests += client.round();
                }
                // A tick is a hundredth of a second.
                let nanos = (server.ticks() - before) as f64 * 1e7;
                costs.push((nanos / requests as f64, requests as f64 / began.elapsed().as_secs_f64()));
            }
        }
        for (name, costs) in ["flowlane", "memcached"].into_iter().zip(&mut costs) {
            costs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (least, middle, most) = (costs[0], costs[TURNS / 2], costs[TURNS - 1]);
            println!(
                "{get} % get, {name:>9}: {:.0} ns of the server a request ({:.0} to {:.0}), {:.0} requests/s",
                middle.0, least.0, most.0, middle.1
            );
        }
    }
}
