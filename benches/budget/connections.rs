//! What a short connection costs in the stack alone: two lanes, a clock that stands where it is told to, no threads, tasks
//! or links. Handshake, 64 bytes there and back, close; both ends.
//!
//! `cargo run --release -p flowlane-benches --bin connections -- 200000` prints processor time and segments for each connection.
//! `connections 0 SEGMENTS` sends so many segments of 1460 bytes over one connection instead.
//! Everything repeats exactly, so that `valgrind --tool=callgrind` on the same program with two different counts gives
//! the instructions of one connection to the last.
#![allow(missing_docs, reason = "a program")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane_rss::{Bucket, Key, Rss};
use flowlane_stack::address::Endpoint;
use flowlane_stack::steering::steer;
use flowlane_stack::tcp::{ConnId, ListenOptions, ListenerId, TcpConfig};
use flowlane_stack::time::Time;
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{Class, Connect, InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

const AT_ONCE: usize = 64;
const REQUEST: [u8; 64] = [7; 64];
/// The client's addresses: 10.0.128.0/17.
const CLIENTS: u32 = 0x0a00_8000;

fn lane(me: u8, claimed: &[&str], gateway: Option<IpAddr>) -> Lane {
    let interface = InterfaceConfig {
        claimed: claimed.iter().map(|c| c.parse().unwrap()).collect(),
        ..InterfaceConfig::new(MacAddr([2, 0, 0, 0, 0, me]), vec![format!("10.0.0.{me}/24").parse().unwrap()])
    };
    Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(Rss::new(Key::MICROSOFT, 1)),
        interfaces: vec![interface],
        // The client is the router to its clients: otherwise the server would ask for each of them.
        routes: gateway
            .into_iter()
            .map(|g| Route { prefix: "0.0.0.0/0".parse().unwrap(), gateway: Some(g), interface: 0 })
            .collect(),
        tunnels: vec![],
        ip: Default::default(),
        udp: Default::default(),
        tcp: TcpConfig { max_time_wait: 1 << 18, ..TcpConfig::default() },
        reassembly: Default::default(),
        seed: [1, 2, 3, me.into()],
    })
}

struct Pair {
    lanes: [Lane; 2],
    rss: Rss,
    pool: Pool,
    now: Time,
    listener: ListenerId,
    frames: Vec<Frame>,
    segments: u64,
    begun: u32,
}

impl Pair {
    fn new() -> Self {
        let memory = MemoryConfig { frames_per_home: 4096, lock: false, ..Default::default() };
        let mut lanes = [lane(1, &["10.0.128.0/17"], None), lane(2, &[], Some([10, 0, 0, 1].into()))];
        let listener = lanes[1].tcp_listen(None, 7, ListenOptions::default()).unwrap();
        Self {
            lanes,
            // Both hosts have one bucket that matters: half of all flows are the other's, and not begun.
            rss: Rss::new(Key::MICROSOFT, 1),
            pool: FrameMemory::new(&memory).unwrap().attach(0).unwrap(),
            now: Time::from_secs(1),
            listener,
            frames: Vec::with_capacity(1024),
            segments: 0,
            begun: 0,
        }
    }

    /// Carries what one lane has to send to the other, as a worker does; whether there was anything.
    fn carry(&mut self, from: usize) -> bool {
        self.lanes[from].drain_output(self.now, &self.pool, usize::MAX, &mut self.frames);
        let any = !self.frames.is_empty();
        self.segments += self.frames.len() as u64;
        let to = &mut self.lanes[1 - from];
        for mut frame in self.frames.drain(..) {
            frame.meta_mut().interface = 0;
            let _ = steer(&self.rss, &mut frame);
            to.input_in_burst(self.now, &self.pool, frame, Class::Ethernet);
        }
        to.end_burst(self.now, &self.pool);
        any
    }

    fn step(&mut self, from: usize) {
        self.now = Time::from_nanos(self.now.as_nanos() + 20_000);
        self.carry(from);
        for lane in &mut self.lanes {
            lane.on_timer(self.now, &self.pool);
        }
    }

    fn connect(&mut self) -> ConnId {
        loop {
            self.begun += 1;
            let from = Ipv4Addr::from(CLIENTS + self.begun % 30_000 + 1);
            let connect = Connect {
                local_ip: Some(from.into()),
                ..Connect::to(Endpoint::new(Ipv4Addr::new(10, 0, 0, 2).into(), 7))
            };
            if let Ok(id) = self.lanes[0].tcp_connect(self.now, &self.pool, connect) {
                return id;
            }
        }
    }

    /// So many connections from beginning to end, at the same time.
    fn round(&mut self, ours: &mut Vec<ConnId>, theirs: &mut Vec<ConnId>) {
        let mut buffer = [0; 1024];
        ours.clear();
        theirs.clear();
        for _ in 0..AT_ONCE {
            ours.push(self.connect());
        }
        self.step(0);
        self.step(1);
        let (now, pool) = (self.now, &self.pool);
        for id in &*ours {
            assert_eq!(self.lanes[0].with_tcp(now, pool, |tcp, cx| tcp.send(cx, *id, &REQUEST)), Ok(64));
        }
        self.step(0);
        let (now, pool) = (self.now, &self.pool);
        while let Some(accepted) = self.lanes[1].tcp_mut().accept(self.listener).unwrap() {
            let n =
                self.lanes[1].with_tcp(now, pool, |tcp, cx| tcp.recv(cx, accepted.id, &mut buffer)).unwrap();
            assert_eq!(
                self.lanes[1].with_tcp(now, pool, |tcp, cx| tcp.send(cx, accepted.id, &buffer[..n])),
                Ok(64)
            );
            theirs.push(accepted.id);
        }
        self.step(1);
        let (now, pool) = (self.now, &self.pool);
        for id in &*ours {
            assert_eq!(self.lanes[0].with_tcp(now, pool, |tcp, cx| tcp.recv(cx, *id, &mut buffer)), Ok(64));
            self.lanes[0].with_tcp(now, pool, |tcp, cx| tcp.close(cx, *id)).unwrap();
        }
        self.step(0);
        let (now, pool) = (self.now, &self.pool);
        for id in &*theirs {
            assert_eq!(self.lanes[1].with_tcp(now, pool, |tcp, cx| tcp.recv(cx, *id, &mut buffer)), Ok(0));
            self.lanes[1].with_tcp(now, pool, |tcp, cx| tcp.close(cx, *id)).unwrap();
        }
        self.step(1);
        self.step(0);
        assert_eq!(self.lanes[1].tcp().list().count(), 0, "all are over");
    }
}

/// Segments of 1460 bytes over one connection, sixteen at a time, written and read by copy.
fn bulk(pair: &mut Pair, segments: usize) {
    const BURST: usize = 16;
    let (data, mut buffer) = (vec![7; BURST * 1460], vec![0; BURST * 1460]);
    let ours = pair.connect();
    while pair.carry(0) | pair.carry(1) {}
    let theirs = pair.lanes[1].tcp_mut().accept(pair.listener).unwrap().unwrap().id;
    let mut left = segments * 1460;
    while left > 0 {
        let sent = pair.lanes[0]
            .with_tcp(pair.now, &pair.pool, |tcp, cx| tcp.send(cx, ours, &data[..left.min(data.len())]))
            .unwrap_or(0);
        left -= sent;
        pair.step(0);
        let mut read = 0;
        while let Ok(n @ 1..) =
            pair.lanes[1].with_tcp(pair.now, &pair.pool, |tcp, cx| tcp.recv(cx, theirs, &mut buffer))
        {
            read += n;
        }
        pair.step(1);
        assert!(sent > 0 || read > 0, "nothing moves");
    }
    println!("{segments} segments");
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let count = numbers.next().unwrap_or(100_000_usize);
    let mut pair = Pair::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // Neighbours, and what grows.
    for _ in 0..20 {
        pair.connect();
        while pair.carry(0) | pair.carry(1) {}
    }
    while let Ok(Some(accepted)) = pair.lanes[1].tcp_mut().accept(pair.listener) {
        pair.lanes[1].with_tcp(pair.now, &pair.pool, |tcp, cx| tcp.abort(cx, accepted.id)).unwrap();
    }
    while pair.carry(0) | pair.carry(1) {}
    if let Some(segments) = numbers.next() {
        return bulk(&mut pair, segments);
    }
    pair.segments = 0;
    let rounds = count.div_ceil(AT_ONCE);
    let begin = Instant::now();
    for _ in 0..rounds {
        pair.round(&mut ours, &mut theirs);
    }
    let each = begin.elapsed() / (rounds * AT_ONCE) as u32;
    let segments = pair.segments as f64 / (rounds * AT_ONCE) as f64;
    println!("{} connections: {segments} segments each, {each:?} each, {} a second", rounds * AT_ONCE, {
        (Duration::from_secs(1).as_nanos() / each.as_nanos().max(1)) as u64
    });
}
