//! `bench reassembly`: reassembly in memory on one core, with few and with many pending datagrams, through a whole lane against whole
//! packets, and in a flood of first fragments from invented addresses.
//!
//! Only the reassembly or the lane is timed: frames are filled before, in batches, and freed after.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use flowlane::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum, UdpHeader, udp,
};
use flowlane::{Bind, Bucket, BucketMap, HashConfig, Indirection, Key as RssKey, Rss, Toeplitz};
use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig, Verdict};
use flowlane_stack::rng::Rng;
use flowlane_stack::stats::LaneStats;
use flowlane_stack::time::Time;
use flowlane_stack::udp::{UdpConfig, UdpHandle};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use super::Common;
use super::kernel_fragments::KernelFragments;
use super::table::Report;

const BATCH: usize = 256;
const PAYLOAD: usize = 64;
const UNIT: &str = "million fragments a second";
const PENDING: [u32; 2] = [10, 100_000];
const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let mut report = Report::new("reassembly");
    let config = MemoryConfig { frames_per_home: 110_000, lock: false, ..Default::default() };
    let pool = FrameMemory::new(&config)?.attach(0)?;
    for v6 in [false, true] {
        let [mut few, mut many] = [Pile::new(&pool, v6, PENDING[0])?, Pile::new(&pool, v6, PENDING[1])?];
        let mut rates: [Vec<f64>; 2] = Default::default();
        for _ in 0..common.rounds {
            rates[0].push(1e3 / few.round(&pool, common.round())?);
            rates[1].push(1e3 / many.round(&pool, common.round())?);
        }
        let name = |pending| format!("IPv{}, {pending} pending", if v6 { 6 } else { 4 });
        report.row(name(PENDING[0]), UNIT, &rates[0], None);
        report.row(name(PENDING[1]), UNIT, &rates[1], Some(("with 10", &rates[0])));
        let each = many.r.footprint() as f64 / f64::from(PENDING[1]);
        report.row("bookkeeping for each of them", "bytes a pending datagram", &[each], None);
    }
    beside_the_kernel(common, &pool, &mut report)?;
    through_a_lane(common, &pool, &mut report)?;
    report.note("a fragment is timed from its parsed header to the finished chain; a lane's packets from Ethernet to the socket");
    report.note("a flood fragment's cost is what a whole packet costs more when one comes before each");
    Ok(report)
}

/// A reassembler with pending datagrams.
struct Pile {
    r: Reassembly,
    stats: LaneStats,
    v6: bool,
    next: u32,
}

impl Pile {
    fn new(pool: &Pool, v6: bool, pending: u32) -> anyhow::Result<Self> {
        let config = ReassemblyConfig {
            datagrams: 200_000,
            fragments: 200_000,
            bytes: 1 << 30,
            ..ReassemblyConfig::default()
        };
        let seed = flowlane::entropy::random_u64().context("the kernel gives no randomness")?;
        let mut this = Self { r: Reassembly::new(config, seed), stats: LaneStats::default(), v6, next: 0 };
        for i in 0..pending {
            let fragment = this.fragment(pool, 0x0b_0000 + i % 10_000, i / 10_000, 0)?;
            this.r.input(Time::ZERO, fragment, &mut this.stats);
        }
        anyhow::ensure!(this.r.pending() == pending as usize, "not all stay pending");
        Ok(this)
    }

    /// Half of a datagram from a network, as IP passes it on.
    fn fragment(&self, pool: &Pool, net: u32, id: u32, half: usize) -> anyhow::Result<Fragment> {
        let mut frame = pool.alloc().context("no frame is free")?;
        frame.reset(64);
        anyhow::ensure!(frame.extend_from_slice(&[half as u8; PAYLOAD]), "frames are too small");
        let key = if self.v6 {
            let src = Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(net) << 64 | 1);
            Key::v6(src, Ipv6Addr::LOCALHOST, id)
        } else {
            Key::v4(Ipv4Addr::from(net << 8 | 1), US, IpProtocol::UDP, id as u16)
        };
        let header_len = if self.v6 { 48 } else { 20 };
        if half == 0 {
            header(&mut frame, self.v6);
        }
        Ok(Fragment { frame, key, header_len, offset: (half * PAYLOAD) as u16, more: half == 0, ecn: 0 })
    }

    /// Nanoseconds per fragment.
    fn round(&mut self, pool: &Pool, time: Duration) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let (mut spent, mut count) = (Duration::ZERO, 0u64);
        while begin.elapsed() < time {
            let mut batch = Vec::with_capacity(BATCH);
            for i in 0..BATCH as u32 {
                let n = self.next.wrapping_add(i / 2);
                batch.push(self.fragment(pool, 0xac_1000 + n % 256, n / 256, i as usize % 2)?);
            }
            self.next = self.next.wrapping_add(BATCH as u32 / 2);
            let mut whole = Vec::with_capacity(BATCH / 2);
            let start = Instant::now();
            for fragment in batch.drain(..) {
                if let Verdict::Whole(chain) = self.r.input(Time::ZERO, fragment, &mut self.stats) {
                    whole.push(chain);
                }
            }
            spent += start.elapsed();
            count += BATCH as u64;
            anyhow::ensure!(whole.len() == BATCH / 2, "not all datagrams were put together");
        }
        Ok(spent.as_nanos() as f64 / count as f64)
    }
}

/// Writes the IP header in front of a first fragment, which becomes the datagram's.
fn header(frame: &mut Frame, v6: bool) {
    let len = if v6 { 48 } else { 20 };
    if let Some(bytes) = frame.push_front(len) {
        bytes[..len].fill(0);
        if v6 {
            (bytes[0], bytes[6], bytes[7], bytes[40]) = (0x60, 44, 64, 17);
        } else {
            (bytes[0], bytes[8], bytes[9]) = (0x45, 64, 17);
        }
    }
    // Written just before.
    let _ = frame.trim_front(len);
}

/// The same datagrams through the kernel, alternating with ours.
fn beside_the_kernel(common: &Common, pool: &Pool, report: &mut Report) -> anyhow::Result<()> {
    let Some(mut kernel) = KernelFragments::open(2 * PAYLOAD)? else {
        report.note("the kernel was not measured: a raw socket takes CAP_NET_RAW");
        return Ok(());
    };
    let mut pile = Pile::new(pool, false, PENDING[0])?;
    let mut rows: [Vec<f64>; 3] = Default::default();
    for _ in 0..common.rounds {
        rows[0].push(1e3 / pile.round(pool, common.round())?);
        rows[1].push(1e3 / kernel.round(2, common.round())?);
        rows[2].push(1e3 / kernel.round(1, common.round())?);
    }
    let [ours, fragments, whole] = rows;
    report.row("IPv4, 10 pending, in turn with the kernel", UNIT, &ours, Some(("the kernel", &fragments)));
    report.row("the kernel, over loopback", UNIT, &fragments, None);
    report.row("the kernel, datagrams in one packet", "million packets a second", &whole, None);
    report.note(
        "the kernel's figures hold a system call and loopback for every packet, and the receiver's read",
    );
    Ok(())
}

/// Kinds of packets.
#[derive(Clone, Copy)]
enum Packet {
    Whole,
    Half(usize),
    Invented,
}

/// A lane with one socket.
struct OneLane {
    lane: Lane,
    socket: UdpHandle,
    datagram: Vec<u8>,
    rng: Rng,
    now: Time,
    id: u16,
}

fn through_a_lane(common: &Common, pool: &Pool, report: &mut Report) -> anyhow::Result<()> {
    let mut lane = OneLane::new()?;
    let mut rows: [Vec<f64>; 3] = Default::default();
    for _ in 0..common.rounds {
        rows[0].push(lane.round(pool, common.round(), |_| Packet::Whole)?);
        rows[1].push(lane.round(pool, common.round(), |i| Packet::Half(i % 2))?);
        let mixed = |i: usize| if i.is_multiple_of(2) { Packet::Invented } else { Packet::Whole };
        rows[2].push(lane.round(pool, common.round(), mixed)?);
    }
    let [whole, halves, mixed] = rows;
    let flood: Vec<f64> = mixed.iter().zip(&whole).map(|(m, w)| (2.0 * m - w).max(0.0)).collect();
    let peer = Some(("a whole packet", &whole[..]));
    report.row("a whole packet through a lane", "ns a packet", &whole, None);
    report.row("a fragment of two through a lane", "ns a fragment", &halves, peer);
    report.row("an invented fragment in a flood of them", "ns a fragment", &flood, peer);
    let completed: Vec<f64> =
        (0..common.rounds).map(|_| lane.completed(pool)).collect::<anyhow::Result<_>>()?;
    report.row(
        "fragmented datagrams complete in a flood of a million a second",
        "per cent",
        &completed,
        None,
    );
    Ok(())
}

impl OneLane {
    fn new() -> anyhow::Result<Self> {
        let (table, map) = (Indirection::new(128, 1)?, BucketMap::new(1, 1)?);
        let rss = Rss::from_parts(Toeplitz::new(&RssKey::MICROSOFT), HashConfig::default(), table, map);
        let interface = InterfaceConfig {
            mac: MacAddr([2, 0, 0, 0, 0, 2]),
            mtu: 1500,
            addresses: vec!["10.0.0.2/24".parse()?],
            claimed: vec![],
            vlan: None,
            offload: Default::default(),
        };
        let mut lane = Lane::new(&LaneConfig {
            bucket: Bucket(0),
            rss: Arc::new(rss),
            interfaces: vec![interface],
            routes: vec![],
            tunnels: vec![],
            ip: Default::default(),
            udp: UdpConfig::default(),
            tcp: Default::default(),
            reassembly: ReassemblyConfig::default(),
            seed: [1, 2, 3, 4],
        });
        let socket = lane.udp_bind(Bind::port(7))?;
        let mut datagram = vec![0x5a; 128];
        UdpHeader { src_port: 9, dst_port: 7, len: 128, checksum: 0 }.emit(&mut datagram);
        udp::fill_checksum(Sum::pseudo_v4(PEER, US, IpProtocol::UDP, 128), &mut datagram);
        Ok(Self { lane, socket, datagram, rng: Rng::new(3), now: Time::from_secs(1), id: 0 })
    }

    fn frame(&mut self, pool: &Pool, packet: Packet) -> anyhow::Result<Frame> {
        let (mut src, mut at, mut bytes) = (PEER, (0, false), &self.datagram[..]);
        match packet {
            Packet::Whole => {}
            Packet::Half(half) => {
                self.id = self.id.wrapping_add(u16::from(half == 0));
                (at, bytes) = ((half as u16 * 64, half == 0), &bytes[half * 64..half * 64 + 64]);
            }
            Packet::Invented => {
                src = Ipv4Addr::from(0x0b00_0000 | self.rng.next_u32() >> 8);
                (at, bytes) = ((0, true), &bytes[..64]);
            }
        }
        let mut f = pool.alloc().context("no frame is free")?;
        anyhow::ensure!(f.extend_from_slice(bytes), "frames are too small");
        let header = Ipv4Header {
            src,
            dst: US,
            protocol: IpProtocol::UDP,
            ttl: 64,
            tos: 0,
            identification: self.id,
            dont_fragment: false,
            more_fragments: at.1,
            fragment_offset: at.0,
            payload_len: bytes.len() as u16,
            options: Ipv4Options::default(),
        };
        header.emit(f.push_front(20).context("no headroom")?);
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        EthernetHeader { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4, vlan: None }
            .emit(f.push_front(14).context("no headroom")?);
        Ok(f)
    }

    /// Nanoseconds per packet of the kinds that `kind` names.
    fn round(&mut self, pool: &Pool, time: Duration, kind: impl Fn(usize) -> Packet) -> anyhow::Result<f64> {
        let begin = Instant::now();
        let (mut spent, mut count) = (Duration::ZERO, 0u64);
        while begin.elapsed() < time {
            let batch: Vec<Frame> =
                (0..BATCH).map(|i| self.frame(pool, kind(i))).collect::<anyhow::Result<_>>()?;
            // A million packets a second.
            self.now += Duration::from_micros(BATCH as u64);
            let start = Instant::now();
            for frame in batch {
                self.lane.input(self.now, pool, frame, Class::Ethernet);
            }
            while let Some(datagram) = self.lane.udp_receive(self.socket) {
                drop(datagram);
            }
            spent += start.elapsed();
            count += BATCH as u64;
        }
        Ok(spent.as_nanos() as f64 / count as f64)
    }

    /// Share of datagrams in two fragments that are reassembled although ten milliseconds of a flood arrive in between, in percent.
    fn completed(&mut self, pool: &Pool) -> anyhow::Result<f64> {
        const DATAGRAMS: u64 = 20;
        // Their network is a known one.
        for half in [0, 1] {
            let frame = self.frame(pool, Packet::Half(half))?;
            self.lane.input(self.now, pool, frame, Class::Ethernet);
        }
        let before = self.lane.stats().ip.reassembled;
        for _ in 0..DATAGRAMS {
            let frame = self.frame(pool, Packet::Half(0))?;
            self.lane.input(self.now, pool, frame, Class::Ethernet);
            let id = self.id;
            for _ in 0..10_000 {
                self.now += Duration::from_micros(1);
                self.id = self.id.wrapping_add(1);
                let frame = self.frame(pool, Packet::Invented)?;
                self.lane.input(self.now, pool, frame, Class::Ethernet);
            }
            self.id = id;
            let frame = self.frame(pool, Packet::Half(1))?;
            self.lane.input(self.now, pool, frame, Class::Ethernet);
            while self.lane.udp_receive(self.socket).is_some() {}
        }
        Ok(100.0 * (self.lane.stats().ip.reassembled - before) as f64 / DATAGRAMS as f64)
    }
}
