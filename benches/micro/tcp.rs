//! Two TCP engines back to back in memory, both on one core.
//!
//! `bulk`: one stream, bytes a second, written by copy and read by copy: MSS 1460 with checksums computed and verified, and
//! with checksum and segmentation left to the link. `connection`: handshake, a 64-byte request and answer, and close on both
//! ends; each counts as one. `segment`: 64 bytes one way and 64 back on connections picked at random among few and among
//! very many; with the last acknowledgement that makes three segments. Up to 32 of them (8 of 10) are under way at once and
//! cross in bursts, as they do through a worker, which looks ahead in a burst; in `segment_alone` it is one at a time.
//! `flood`: one SYN answered with a cookie, and one acknowledgement answered with a reset, each from another stranger.
//!
//! Time is the processor time of this thread, not the clock's, so that figures from a busy machine mean something too.

use std::collections::VecDeque;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_main};
use flowlane_stack::PathMtus;
use flowlane_stack::packet::{Cx, IpInput, IpMeta, IpOutput, Offload};
use flowlane_stack::rng::Rng;
use flowlane_stack::tcp::{ConnId, ConnectOptions, ListenOptions, ListenerId, SynCookies, Tcp, TcpConfig};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{IpProtocol, SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions, Timestamps, tcp};
use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Nanoseconds this thread has run, from the scheduler.
struct CpuTime(WallTime);

fn cpu_time() -> u64 {
    // The scheduler brings its figure up to date when it is entered.
    std::thread::yield_now();
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

impl Measurement for CpuTime {
    type Intermediate = u64;
    type Value = Duration;

    fn start(&self) -> u64 {
        cpu_time()
    }

    fn end(&self, start: u64) -> Duration {
        Duration::from_nanos((cpu_time() - start).max(1))
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        self.0.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self.0.formatter()
    }
}

struct Pair {
    ends: [Tcp; 2],
    rng: Rng,
    paths: PathMtus,
    pool: Pool,
    now: Time,
    offload: Offload,
    listener: ListenerId,
    next: u32,
    burst: VecDeque<IpOutput>,
}

impl Pair {
    fn new(offload: Offload) -> Pair {
        Self::with(offload, &TcpConfig::default())
    }

    fn with(offload: Offload, config: &TcpConfig) -> Pair {
        let memory = MemoryConfig {
            frames_per_home: 8192,
            frame_size: 2048,
            homes: 1,
            huge_pages: false,
            lock: false,
            ..MemoryConfig::default()
        };
        let pool = FrameMemory::new(&memory).expect("memory").attach(0).expect("pool");
        let config = TcpConfig { max_connections: 1 << 21, ..config.clone() };
        let mut ends = [Tcp::new(config.clone(), [1, 2, 3]), Tcp::new(config, [4, 5, 6])];
        let options = ListenOptions { backlog: 1 << 20, syn_backlog: 1 << 20, ..ListenOptions::default() };
        let listener = ends[1].listen(None, 80, options).expect("a free port");
        Pair {
            ends,
            rng: Rng::new(1),
            paths: PathMtus::new(1),
            pool,
            now: Time::from_secs(10),
            offload,
            listener,
            next: 0,
            burst: VecDeque::new(),
        }
    }

    fn on<R>(&mut self, end: usize, what: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx {
            now: self.now,
            frames: &self.pool,
            rng: &mut self.rng,
            paths: &mut self.paths,
            offload: self.offload,
        };
        what(&mut self.ends[end], &mut cx)
    }

    /// Hands over everything there is to send, in bursts of at most 64.
    fn pump(&mut self) {
        let mut burst = std::mem::take(&mut self.burst);
        loop {
            let mut idle = true;
            for from in 0..2 {
                let mut cx = Cx {
                    now: self.now,
                    frames: &self.pool,
                    rng: &mut self.rng,
                    paths: &mut self.paths,
                    offload: self.offload,
                };
                while burst.len() < 64 {
                    let Some(out) = self.ends[from].poll_output(&mut cx) else { break };
                    burst.push_back(out);
                }
                let to = &self.ends[1 - from];
                if burst.len() > 1 && to.is_crowded() {
                    look_ahead(to, &burst);
                }
                while let Some(out) = burst.pop_front() {
                    idle = false;
                    let ip = IpMeta {
                        src: out.src,
                        dst: out.dst,
                        protocol: out.protocol,
                        hop_limit: out.hop_limit,
                        traffic_class: out.traffic_class,
                        header_len: 20,
                        interface: 0,
                        mtu: 1500,
                        unicast: true,
                    };
                    self.ends[1 - from].input(&mut cx, IpInput { frame: out.frame, ip });
                }
            }
            if idle {
                self.burst = burst;
                return;
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        for end in 0..2 {
            self.on(end, Tcp::on_timer);
        }
    }

    /// A client address and port never used before.
    fn fresh(&mut self) -> SocketAddr {
        self.next += 1;
        let ip = Ipv4Addr::from(0x0b00_0000 + self.next / 50_000);
        SocketAddr::new(ip.into(), 10_000 + (self.next % 50_000) as u16)
    }

    fn connect(&mut self) -> [ConnId; 2] {
        let local = self.fresh();
        let options = ConnectOptions::default();
        let a = self.on(0, |tcp, cx| tcp.connect(cx, local, SocketAddr::new(SERVER, 80), &options));
        self.pump();
        let b = self.ends[1].accept(self.listener).expect("listening").expect("a connection");
        [a.expect("connected"), b.id]
    }

    /// 64 bytes there, 64 back.
    fn ask(&mut self, [a, b]: [ConnId; 2]) {
        let mut buffer = [0; 64];
        assert_eq!(self.on(0, |tcp, cx| tcp.send(cx, a, &[1; 64])), Ok(64));
        self.pump_one();
        assert_eq!(self.on(1, |tcp, cx| tcp.recv(cx, b, &mut buffer)), Ok(64));
        assert_eq!(self.on(1, |tcp, cx| tcp.send(cx, b, &buffer)), Ok(64));
        self.pump();
        assert_eq!(self.on(0, |tcp, cx| tcp.recv(cx, a, &mut buffer)), Ok(64));
    }

    /// Request, answer and the answer's acknowledgement: three segments.
    fn exchange(&mut self, ids: [ConnId; 2]) {
        self.ask(ids);
        self.advance(Duration::from_millis(1));
        self.pump();
    }

    /// A segment from nobody, and its answer.
    fn stranger(&mut self, from: SocketAddr, flags: TcpFlags) {
        let header = TcpHeader {
            src_port: from.port(),
            dst_port: 80,
            seq: SeqNum(self.next),
            ack: SeqNum(self.next),
            flags,
            window: 65_000,
            urgent: 0,
        };
        let syn = flags == TcpFlags::SYN;
        let options = TcpOptions {
            mss: syn.then_some(1460),
            window_scale: syn.then_some(7),
            sack_permitted: syn,
            timestamps: syn.then_some(Timestamps { value: 1, echo: 0 }),
            ..TcpOptions::default()
        };
        let mut frame = self.pool.alloc().expect("a frame");
        let room = frame.push_back(tcp::HEADER_LEN + options.len()).expect("room");
        header.emit(&options, room);
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (from.ip(), SERVER) else { unreachable!("IPv4 only") };
        tcp::fill_checksum(Sum::pseudo_v4(src, dst, IpProtocol::TCP, frame.len() as u16), frame.data_mut());
        let ip = IpMeta {
            src: from.ip(),
            dst: SERVER,
            protocol: 6,
            hop_limit: 64,
            traffic_class: 0,
            header_len: 20,
            interface: 0,
            mtu: 1500,
            unicast: true,
        };
        self.on(1, |tcp, cx| tcp.input(cx, IpInput { frame, ip }));
        let answer = self.on(1, Tcp::poll_output);
        assert!(answer.is_some(), "a cookie or a reset");
    }

    /// As `exchange`, for several connections at once.
    fn exchanges(&mut self, all: &[[ConnId; 2]]) {
        let mut buffer = [0; 64];
        for [a, _] in all {
            self.ends[0].prefetch_id(*a);
        }
        for [a, _] in all {
            assert_eq!(self.on(0, |tcp, cx| tcp.send(cx, *a, &[1; 64])), Ok(64));
        }
        self.pump();
        for [_, b] in all {
            assert_eq!(self.on(1, |tcp, cx| tcp.recv(cx, *b, &mut buffer)), Ok(64));
            assert_eq!(self.on(1, |tcp, cx| tcp.send(cx, *b, &buffer)), Ok(64));
        }
        self.pump();
        for [a, _] in all {
            assert_eq!(self.on(0, |tcp, cx| tcp.recv(cx, *a, &mut buffer)), Ok(64));
        }
        self.advance(Duration::from_millis(1));
        self.pump();
    }

    /// One segment from the client to the server.
    fn pump_one(&mut self) {
        let mut cx = Cx {
            now: self.now,
            frames: &self.pool,
            rng: &mut self.rng,
            paths: &mut self.paths,
            offload: self.offload,
        };
        while let Some(out) = self.ends[0].poll_output(&mut cx) {
            let ip = IpMeta {
                src: out.src,
                dst: out.dst,
                protocol: out.protocol,
                hop_limit: out.hop_limit,
                traffic_class: out.traffic_class,
                header_len: 20,
                interface: 0,
                mtu: 1500,
                unicast: true,
            };
            self.ends[1].input(&mut cx, IpInput { frame: out.frame, ip });
        }
    }
}

/// What a worker does with a burst before it hands it to a lane of very many connections.
fn look_ahead(tcp: &Tcp, burst: &VecDeque<IpOutput>) {
    let mut expected = [None; 64];
    for (out, place) in burst.iter().zip(&mut expected) {
        let ports = out.frame.data();
        let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
        *place = Some(tcp.prefetch(SocketAddr::new(out.dst, port(2)), SocketAddr::new(out.src, port(0))));
    }
    for expected in expected.into_iter().flatten() {
        tcp.prefetch_connection(expected);
    }
}

fn bulk(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("bulk");
    const CHUNK: usize = 1 << 16;
    group.throughput(Throughput::Bytes(16 * CHUNK as u64));
    let plain = Offload::default();
    let full = Offload { checksum: true, segmentation: 65_000 };
    for (name, offload) in [("mss1460_checksums", plain), ("offload", full)] {
        group.bench_function(name, |bench| {
            let mut pair = Pair::new(offload);
            let [a, b] = pair.connect();
            let data = vec![7; CHUNK];
            let mut into = vec![0; CHUNK];
            let mut round = || {
                let mut left = 16 * CHUNK;
                while left > 0 {
                    let n = pair.on(0, |tcp, cx| tcp.send(cx, a, &data[..left.min(CHUNK)])).unwrap_or(0);
                    left -= n;
                    pair.pump();
                    while let Ok(n) = pair.on(1, |tcp, cx| tcp.recv(cx, b, &mut into)) {
                        black_box(&into[..n]);
                    }
                    pair.pump();
                    pair.advance(Duration::from_micros(20));
                }
            };
            for _ in 0..64 {
                round();
            }
            bench.iter(&mut round);
        });
    }
    group.finish();
}

fn connection(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("connection");
    group.throughput(Throughput::Elements(1));
    let mut pair = Pair::new(Offload::default());
    group.bench_function("request_answer_close", |bench| {
        bench.iter(|| {
            let ids = pair.connect();
            pair.ask(ids);
            pair.on(0, |tcp, cx| tcp.close(cx, ids[0])).expect("open");
            pair.pump();
            pair.on(1, |tcp, cx| tcp.close(cx, ids[1])).expect("open");
            pair.pump();
            pair.advance(Duration::from_micros(2));
        });
    });
    group.finish();
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
}

/// So many connections, each used once.
fn many(count: usize) -> (Pair, Vec<[ConnId; 2]>) {
    let config = TcpConfig { delayed_ack: Duration::ZERO, ..TcpConfig::default() };
    let mut pair = Pair::with(Offload::default(), &config);
    let mut ids = vec![pair.connect(); count];
    let before = resident();
    for ids in &mut ids[1..] {
        *ids = pair.connect();
    }
    for ids in &ids {
        pair.exchange(*ids);
    }
    if count >= 100_000 {
        let grown = resident() - before;
        println!("{count} connections, both ends: {} MiB, {} bytes an end", grown >> 20, grown / count / 2);
    }
    (pair, ids)
}

fn flood(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("flood");
    group.throughput(Throughput::Elements(1));
    for (name, flags) in [("syn_with_cookie", TcpFlags::SYN), ("ack", TcpFlags::ACK)] {
        let config = TcpConfig { syn_cookies: SynCookies::Always, ..TcpConfig::default() };
        let mut pair = Pair::with(Offload::default(), &config);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let from = pair.fresh();
                pair.stranger(from, flags);
            });
        });
    }
    group.finish();
}

fn segment(c: &mut Criterion<CpuTime>) {
    for count in [10usize, 10_000, 1_000_000] {
        let (mut made, mut rng) = (None, Rng::new(5));
        let at_once = (count * 4 / 5).min(32);
        let mut group = c.benchmark_group("segment");
        group.sample_size(20).throughput(Throughput::Elements(3 * at_once as u64));
        group.bench_function(format!("connections_{count}"), |bench| {
            let (pair, ids) = made.get_or_insert_with(|| many(count));
            let mut picked = Vec::new();
            bench.iter(|| {
                // Different ones: those picked are swapped to the front.
                picked.clear();
                for n in 0..at_once {
                    let at = n + rng.below((count - n) as u32) as usize;
                    ids.swap(n, at);
                    picked.push(ids[n]);
                }
                pair.exchanges(&picked);
            });
        });
        group.finish();
        let mut group = c.benchmark_group("segment_alone");
        group.sample_size(20).throughput(Throughput::Elements(3));
        group.bench_function(format!("connections_{count}"), |bench| {
            let (pair, ids) = made.get_or_insert_with(|| many(count));
            bench.iter(|| pair.exchange(ids[rng.below(count as u32) as usize]));
        });
        group.finish();
    }
}

#[allow(missing_docs, reason = "made by the macro")]
mod group {
    use super::{bulk, connection, flood, segment};
    criterion::criterion_group! {
        name = benches;
        config = criterion::Criterion::default().with_measurement(super::CpuTime(super::WallTime));
        targets = bulk, connection, flood, segment
    }
}
use group::benches;
criterion_main!(benches);
