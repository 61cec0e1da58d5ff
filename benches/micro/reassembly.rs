//! Nanoseconds per fragment of datagrams in two fragments: through the reassembler alone, through a whole lane from
//! Ethernet to the socket, and of whole packets while beginnings from invented addresses come in between.
//!
//! For the comparison with DPDK see `benches/dpdk/reassembly.sh`.

#![allow(clippy::unwrap_used, reason = "a bench that cannot be set up stops")]
#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key as RssKey, Rss, Toeplitz};
use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig};
use flowlane_stack::rng::Rng;
use flowlane_stack::stats::LaneStats;
use flowlane_stack::time::Time;
use flowlane_stack::udp::{Bind, UdpConfig, UdpHandle};
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum, UdpHeader,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

const BATCH: usize = 256;

fn pool() -> Pool {
    let config = MemoryConfig { frames_per_home: 8192, lock: false, huge_pages: false, ..Default::default() };
    FrameMemory::new(&config).unwrap().attach(0).unwrap()
}

/// Payload of IP `bytes` in a frame for the lane: `None` offset for a whole packet.
fn frame(pool: &Pool, src: u32, id: u16, at: Option<(u16, bool)>, bytes: &[u8]) -> Frame {
    let mut f = pool.alloc().unwrap();
    assert!(f.extend_from_slice(bytes));
    let (offset, more) = at.unwrap_or((0, false));
    let header = Ipv4Header {
        src: Ipv4Addr::from(src),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: 0,
        identification: id,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        payload_len: bytes.len() as u16,
        options: Ipv4Options::default(),
    };
    header.emit(f.push_front(20).unwrap());
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    EthernetHeader { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4, vlan: None }
        .emit(f.push_front(14).unwrap());
    f
}

/// A datagram of `len` bytes with header and checksum, from `src` to the lane.
fn datagram(src: u32, len: usize) -> Vec<u8> {
    let mut d = vec![0x5a; len + 8];
    let header = UdpHeader { src_port: 9, dst_port: 7, len: len as u16 + 8, checksum: 0 };
    header.emit(&mut d);
    let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::new(10, 0, 0, 2));
    let sum = Sum::pseudo_v4(src, dst, IpProtocol::UDP, len as u16 + 8);
    flowlane_stack::wire::udp::fill_checksum(sum, &mut d);
    d
}

fn lane() -> (Lane, UdpHandle) {
    let rss = Rss::from_parts(
        Toeplitz::new(&RssKey::MICROSOFT),
        HashConfig::default(),
        Indirection::new(128, 1).unwrap(),
        BucketMap::new(1, 1).unwrap(),
    );
    let interface = InterfaceConfig::new(MacAddr([2, 0, 0, 0, 0, 2]), vec!["10.0.0.2/24".parse().unwrap()]);
    let mut lane = Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(rss),
        interfaces: vec![interface],
        routes: vec![],
        tunnels: Vec::new(),
        ip: Default::default(),
        udp: UdpConfig::default(),
        tcp: Default::default(),
        reassembly: ReassemblyConfig::default(),
        seed: [1, 2, 3, 4],
    });
    let socket = lane.udp_bind(Bind::port(7)).unwrap();
    (lane, socket)
}

fn alone(c: &mut Criterion) {
    let pool = pool();
    let mut group = c.benchmark_group("reassembly");
    group.throughput(Throughput::Elements(1));
    group.bench_function("alone", |b| {
        let mut r = Reassembly::new(ReassemblyConfig::default(), 1);
        let mut stats = LaneStats::default();
        let mut id = 0u16;
        b.iter_custom(|n| {
            let mut spent = Duration::ZERO;
            for _ in 0..n.div_ceil(BATCH as u64) {
                let batch: Vec<Fragment> = (0..BATCH)
                    .map(|i| {
                        id = id.wrapping_add((i.is_multiple_of(2)).into());
                        let offset = if i.is_multiple_of(2) { 0 } else { 64 };
                        let mut frame = frame(&pool, 0x0a00_0001, id, Some((offset, offset == 0)), &[0; 64]);
                        assert!(frame.trim_front(34));
                        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
                        let key = Key::v4(a, b, IpProtocol::UDP, id);
                        Fragment { frame, key, header_len: 20, offset, more: offset == 0, ecn: 0 }
                    })
                    .collect();
                let mut out = Vec::with_capacity(BATCH);
                let start = Instant::now();
                for f in batch {
                    out.push(r.input(Time::ZERO, f, &mut stats));
                }
                spent += start.elapsed();
            }
            spent * n as u32 / (n.div_ceil(BATCH as u64) * BATCH as u64) as u32
        });
    });
    group.finish();
}

/// Gives `n` packets, made by `make` in batches, to the lane and empties the socket; the time of both.
fn through_lane(n: u64, mut make: impl FnMut(usize) -> Frame, count: fn(usize) -> bool) -> Duration {
    let pool = pool();
    let (mut lane, socket) = lane();
    let (mut spent, mut counted) = (Duration::ZERO, 0u64);
    while counted < n {
        let batch: Vec<Frame> = (0..BATCH).map(&mut make).collect();
        counted += (0..BATCH).filter(|&i| count(i)).count() as u64;
        let start = Instant::now();
        for f in batch {
            lane.input(Time::ZERO, &pool, f, Class::Ethernet);
        }
        while let Some(d) = lane.udp_receive(socket) {
            drop(d);
        }
        spent += start.elapsed();
    }
    assert_eq!(lane.stats().udp.bad_checksum, 0);
    Duration::from_secs_f64(spent.as_secs_f64() * n as f64 / counted as f64)
}

fn lanes(c: &mut Criterion) {
    let mut group = c.benchmark_group("lane");
    group.throughput(Throughput::Elements(1));
    let d = datagram(0x0a00_0001, 120);
    let frames = pool();
    let mut id = 0u16;
    group.bench_function("fragment of two", |b| {
        b.iter_custom(|n| {
            let make = |i: usize| {
                id = id.wrapping_add((i.is_multiple_of(2)).into());
                let (at, part) =
                    if i.is_multiple_of(2) { ((0, true), &d[..64]) } else { ((64, false), &d[64..]) };
                frame(&frames, 0x0a00_0001, id, Some(at), part)
            };
            through_lane(n, make, |_| true)
        });
    });
    group.bench_function("whole packet", |b| {
        b.iter_custom(|n| through_lane(n, |_| frame(&frames, 0x0a00_0001, 0, None, &d), |_| true));
    });
    let mut rng = Rng::new(3);
    // What is counted is whole packets: the rest of the time is what the flood costs them.
    group.bench_function("whole packet, each with an invented fragment", |b| {
        b.iter_custom(|n| {
            let make = |i: usize| {
                if i.is_multiple_of(2) {
                    return frame(&frames, 0x0a00_0001, 0, None, &d);
                }
                let (src, id) = (0x0b00_0000 | rng.next_u32() >> 8, rng.next_u32() as u16);
                frame(&frames, src, id, Some((0, true)), &d[..64])
            };
            through_lane(n, make, |i| i.is_multiple_of(2))
        });
    });
    group.finish();
}

criterion_group!(benches, alone, lanes);
criterion_main!(benches);
