//! The cost of a flood of segments from unknown peers to the established clients of a busy core.
//!
//! A server's lane answers requests as fast as it can; SYNs or acknowledgements of a flood arrive in between, at a rate per second of
//! server time. Only the server is timed: steering, Ethernet, IP, TCP, and the application's read and write. Clients and the flood's
//! source are not timed, and the cost of a card's driver is not included.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flowlane::wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum};
use flowlane::{Bucket, BucketMap, Endpoint, HashConfig, Indirection, Key, Rss, Time, Toeplitz};
use flowlane_stack::rng::Rng;
use flowlane_stack::steering::steer;
use flowlane_stack::tcp::{ConnId, ListenOptions, ListenerId};
use flowlane_stack::wire::{SeqNum, TcpFlags, TcpHeader, TcpOptions, Timestamps, tcp};
use flowlane_stack::{Class, Connect, InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use super::Common;
use super::machine::thread_time;
use super::table::Report;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 7;
/// Established clients, each with one request in flight.
const CLIENTS: usize = 64;
/// Bytes of a request and of its answer.
const SIZE: usize = 64;
/// Frames that a worker takes from a queue in one turn.
const BURST: usize = 64;
/// Prepared segments of the flood, each from another address and port.
const STRANGERS: usize = 1 << 16;

/// Kinds of flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    Syn,
    Ack,
}

pub(crate) fn rows(report: &mut Report, common: &Common) -> anyhow::Result<()> {
    let scenes = [
        ("SYNs", Flood::Syn, 100_000),
        ("SYNs", Flood::Syn, 1_000_000),
        ("acknowledgements", Flood::Ack, 100_000),
        ("acknowledgements", Flood::Ack, 1_000_000),
    ];
    // One pool: freeing frames of a second pool on the same thread takes the slow path of another thread's frames.
    let memory = MemoryConfig { frames_per_home: 8192, lock: false, ..MemoryConfig::default() };
    let pool = FrameMemory::new(&memory)?.attach(0)?;
    let mut quiet = Scene::new(&pool, Flood::Syn)?;
    let mut flooded = scenes.iter().map(|s| Scene::new(&pool, s.1)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut alone = Vec::new();
    let mut kept = vec![Vec::new(); scenes.len()];
    let mut cost = vec![Vec::new(); scenes.len()];
    for _ in 0..common.rounds {
        let undisturbed = quiet.round(common.round(), 0)?;
        alone.push(undisturbed.answers / 1e6);
        for (i, (_, _, rate)) in scenes.iter().enumerate() {
            let seen = flooded[i].round(common.round(), *rate)?;
            kept[i].push(100.0 * seen.answers / undisturbed.answers);
            // The part of a second that the answers did not take.
            let left = 1.0 - seen.answers / undisturbed.answers;
            cost[i].push((left / seen.strangers * 1e9).max(0.0));
        }
    }
    report.row("requests that a full core answers, server alone", "M/s", &alone, None);
    for (i, (what, kind, rate)) in scenes.iter().enumerate() {
        let rate = rate / 1000;
        report.row(format!("of these in a flood of {rate} 000 {what} a second"), "per cent", &kept[i], None);
        if rate > 100 {
            let each = if *kind == Flood::Syn { "a SYN" } else { "an acknowledgement" };
            report.row(format!("what {each} of it costs"), "ns", &cost[i], None);
        }
    }
    report.note(
        "floods: a second is one of the server's; drivers, clients and the flood's source are not timed",
    );
    Ok(())
}

/// Rates for each second of the server's time.
struct Seen {
    answers: f64,
    strangers: f64,
}

/// A server under a flood, and its clients.
struct Scene<'a> {
    pool: &'a Pool,
    rss: Arc<Rss>,
    server: Lane,
    client: Lane,
    clients: Vec<ConnId>,
    served: Vec<ConnId>,
    listener: ListenerId,
    strangers: Vec<Vec<u8>>,
    next: usize,
    now: Time,
    /// Answers to unknown peers.
    answered: u64,
    out: Vec<Frame>,
}

impl<'a> Scene<'a> {
    fn new(pool: &'a Pool, flood: Flood) -> anyhow::Result<Self> {
        let rss = Arc::new(Rss::from_parts(
            Toeplitz::new(&Key::MICROSOFT),
            HashConfig::default(),
            Indirection::new(128, 1)?,
            BucketMap::new(1, 1)?,
        ));
        let mut server = lane(&rss, SERVER, Some(CLIENT))?;
        let client = lane(&rss, CLIENT, None)?;
        let listener = server.tcp_listen(None, PORT, ListenOptions::default())?;
        let mut rng = Rng::new(7);
        let strangers = (0..STRANGERS).map(|n| stranger(flood, n as u32, &mut rng)).collect();
        let mut scene = Self {
            pool,
            rss,
            server,
            client,
            clients: Vec::new(),
            served: Vec::new(),
            listener,
            strangers,
            next: 0,
            now: Time::from_secs(1),
            answered: 0,
            out: Vec::new(),
        };
        for _ in 0..CLIENTS {
            scene.connect()?;
        }
        Ok(scene)
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let connect = Connect::to(Endpoint::new(SERVER.into(), PORT));
        self.clients.push(self.client.tcp_connect(self.now, self.pool, connect)?);
        for _ in 0..8 {
            let frames = self.client_burst();
            self.serve(frames)?;
            self.answer_client();
        }
        let accepted = self.server.tcp_mut().accept(self.listener)?.context("the connection did not come")?;
        self.served.push(accepted.id);
        Ok(())
    }

    /// Takes the frames that the clients send.
    fn client_burst(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while self.client.drain_output(self.now, self.pool, usize::MAX, &mut frames) > 0 {}
        frames
    }

    /// Hands the server's answers to the clients; answers to the flood are counted.
    fn answer_client(&mut self) {
        for mut frame in self.out.drain(..) {
            let to_client = frame.data().get(30..34).is_none_or(|dst| dst == CLIENT.octets());
            if to_client || frame.data()[12..14] != EtherType::IPV4.0.to_be_bytes() {
                arrived(&mut frame);
                let _ = steer(&self.rss, &mut frame);
                self.client.input(self.now, self.pool, frame, Class::Ethernet);
            } else {
                self.answered += 1;
            }
        }
    }

    /// The server's turns for these frames: the only timed part.
    fn serve(&mut self, frames: Vec<Frame>) -> anyhow::Result<(f64, u64)> {
        let (mut answers, mut buffer) = (0, [0; SIZE]);
        let begin = thread_time();
        let mut frames = frames.into_iter();
        while frames.len() > 0 {
            for mut frame in frames.by_ref().take(BURST) {
                let _ = steer(&self.rss, &mut frame);
                self.server.input_in_burst(self.now, self.pool, frame, Class::Ethernet);
            }
            self.server.end_burst(self.now, self.pool);
            while self.server.drain_output(self.now, self.pool, BURST, &mut self.out) > 0 {}
        }
        for id in &self.served {
            if let Ok(n @ 1..) =
                self.server.with_tcp(self.now, self.pool, |tcp, cx| tcp.recv(cx, *id, &mut buffer))
            {
                self.server.with_tcp(self.now, self.pool, |tcp, cx| tcp.send(cx, *id, &buffer[..n]))?;
                answers += 1;
            }
        }
        while self.server.poll_at().is_some_and(|at| at <= self.now) {
            self.server.on_timer(self.now, self.pool);
        }
        while self.server.drain_output(self.now, self.pool, BURST, &mut self.out) > 0 {}
        Ok((thread_time() - begin, answers))
    }

    /// Mixes `flood` segments of the flood into the requests.
    fn mixed(&mut self, requests: Vec<Frame>, flood: usize) -> anyhow::Result<Vec<Frame>> {
        let (mut all, each) = (Vec::with_capacity(requests.len() + flood), flood as f64 / CLIENTS as f64);
        let mut due = 0.0;
        for request in requests {
            all.push(request);
            due += each;
            while due >= 1.0 {
                due -= 1.0;
                let mut frame = self.pool.alloc().context("no frame is free")?;
                let ready = &self.strangers[self.next % STRANGERS];
                ensure!(frame.extend_from_slice(ready), "frames are too small");
                self.next += 1;
                all.push(frame);
            }
        }
        Ok(all)
    }

    /// A round of requests and answers, with `rate` flood segments per second of server time.
    fn round(&mut self, time: Duration, rate: u32) -> anyhow::Result<Seen> {
        let (begin, mut spent, mut answers, first) = (Instant::now(), 0.0, 0, self.next);
        let mut buffer = [1; SIZE];
        while begin.elapsed() < time {
            for id in &self.clients {
                self.client.with_tcp(self.now, self.pool, |tcp, cx| tcp.send(cx, *id, &buffer))?;
            }
            let requests = self.client_burst();
            let due = (spent * f64::from(rate)) as usize - (self.next - first);
            let frames = self.mixed(requests, due.min(4 * CLIENTS))?;
            let (took, n) = self.serve(frames)?;
            spent += took;
            answers += n;
            self.now += Duration::from_nanos(1).max(Duration::from_secs_f64(took));
            self.answer_client();
            for id in &self.clients {
                let n = self.client.with_tcp(self.now, self.pool, |tcp, cx| tcp.recv(cx, *id, &mut buffer));
                ensure!(n == Ok(SIZE), "a client got no answer: {n:?}");
            }
            while self.client.poll_at().is_some_and(|at| at <= self.now) {
                self.client.on_timer(self.now, self.pool);
            }
        }
        ensure!(rate == 0 || self.answered > 0, "the flood was not heard");
        Ok(Seen { answers: answers as f64 / spent, strangers: (self.next - first) as f64 / spent })
    }
}

/// Makes a frame look as just received: clears its metadata.
fn arrived(frame: &mut Frame) {
    let meta = frame.meta_mut();
    (meta.interface, meta.hash_type, meta.checksum) = (0, 0, Default::default());
}

fn mac(of: Ipv4Addr) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, of.octets()[3]])
}

fn lane(rss: &Arc<Rss>, ip: Ipv4Addr, gateway: Option<Ipv4Addr>) -> anyhow::Result<Lane> {
    let interface = InterfaceConfig {
        mac: mac(ip),
        mtu: 1500,
        addresses: vec![format!("{ip}/24").parse()?],
        claimed: vec![],
        vlan: None,
        offload: Default::default(),
    };
    let everywhere = "0.0.0.0/0".parse()?;
    let route =
        |gateway: Ipv4Addr| Route { prefix: everywhere, gateway: Some(IpAddr::V4(gateway)), interface: 0 };
    Ok(Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: rss.clone(),
        interfaces: vec![interface],
        routes: gateway.map(route).into_iter().collect(),
        tunnels: vec![],
        ip: Default::default(),
        udp: Default::default(),
        tcp: Default::default(),
        reassembly: Default::default(),
        seed: std::array::from_fn(|i| u64::from(ip.to_bits()) + i as u64),
    }))
}

/// A frame of the flood.
fn stranger(flood: Flood, n: u32, rng: &mut Rng) -> Vec<u8> {
    let src = Ipv4Addr::from(0x0b00_0000 + rng.below(1 << 24));
    let syn = flood == Flood::Syn;
    let options = TcpOptions {
        mss: syn.then_some(1460),
        window_scale: syn.then_some(7),
        sack_permitted: syn,
        timestamps: Some(Timestamps { value: n, echo: 0 }),
        ..TcpOptions::default()
    };
    let header = TcpHeader {
        src_port: 1024 + (n % 60_000) as u16,
        dst_port: PORT,
        seq: SeqNum(rng.next_u32()),
        ack: SeqNum(if syn { 0 } else { rng.next_u32() }),
        flags: if syn { TcpFlags::SYN } else { TcpFlags::ACK },
        window: 65_000,
        urgent: 0,
    };
    let len = tcp::HEADER_LEN + options.len();
    let mut frame = vec![0; 34 + len];
    EthernetHeader { dst: mac(SERVER), src: mac(CLIENT), ethertype: EtherType::IPV4, vlan: None }
        .emit(&mut frame);
    let ip = Ipv4Header {
        src,
        dst: SERVER,
        protocol: IpProtocol::TCP,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: len as u16,
        options: Ipv4Options::default(),
    };
    ip.emit(&mut frame[14..]);
    header.emit(&options, &mut frame[34..]);
    tcp::fill_checksum(Sum::pseudo_v4(src, SERVER, IpProtocol::TCP, len as u16), &mut frame[34..]);
    frame
}
