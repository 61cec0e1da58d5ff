//! Work in memory whose instructions are counted: `budget WHAT TIMES` does it so often and ends. The script `run` beside this counts.
//!
//! Everything repeats exactly: no clock, no thread, one seed.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{
    Bucket, BucketMap, Form, HashConfig, HomePorts, Indirection, Key, Protocol, Rss, Toeplitz,
};
use flowlane_stack::time::Time;
use flowlane_stack::udp::Bind;
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum, UdpHeader, udp,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn rss(slots: usize, buckets: usize) -> Rss {
    let table = Indirection::new(slots, buckets).unwrap();
    let map = BucketMap::new(buckets, 1).unwrap();
    Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map)
}

/// Hashes of IPv4 tuples with ports, one at a time, in the form that every processor has.
fn hash(times: u64) {
    let hasher = Toeplitz::with_form(&Key::MICROSOFT, Form::Table).unwrap();
    let mut tuple = [10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 80];
    for n in 0..times {
        tuple[8..10].copy_from_slice(&(n as u16).to_be_bytes());
        black_box(hasher.hash12(black_box(&tuple)));
    }
}

/// Source ports whose replies come home to one bucket of eight, half of them in use; each is given back.
fn home_port(times: u64) {
    let rss = rss(128, 8);
    let home = HomePorts::new(&rss, &rss.slots_of_bucket(Bucket(3)));
    let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let ports = home.to(IpAddr::V4(PEER), remote, Protocol::TCP).unwrap();
    let mut free = ports.all_free(1..=u16::MAX);
    let mut random = 7_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 32) as u32
    };
    for _ in 0..ports.len() / 2 {
        ports.pick(next(), &mut free);
    }
    for _ in 0..times {
        let port = ports.pick(next(), &mut free).unwrap();
        assert!(ports.release(black_box(port), &mut free));
    }
}

fn frame(id: u16, (offset, more): (u16, bool), payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 34];
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    EthernetHeader { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4, vlan: None }.emit(&mut frame);
    let header = Ipv4Header {
        src: PEER,
        dst: US,
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: 0,
        identification: id,
        dont_fragment: false,
        more_fragments: more,
        fragment_offset: offset,
        payload_len: payload.len() as u16,
        options: Ipv4Options::default(),
    };
    header.emit(&mut frame[14..]);
    frame.extend(payload);
    frame
}

/// Datagrams of 120 bytes in two fragments, from Ethernet to the socket.
fn fragment_pair(times: u64) {
    let mut lane = Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(rss(128, 1)),
        interfaces: vec![InterfaceConfig::new(
            MacAddr([2, 0, 0, 0, 0, 2]),
            vec!["10.0.0.2/24".parse().unwrap()],
        )],
        routes: vec![],
        tunnels: vec![],
        ip: Default::default(),
        udp: Default::default(),
        tcp: Default::default(),
        reassembly: Default::default(),
        seed: [1, 2, 3, 4],
    });
    let config = MemoryConfig { frames_per_home: 1024, lock: false, huge_pages: false, ..Default::default() };
    let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
    let socket = lane.udp_bind(Bind::port(7)).unwrap();
    let mut datagram = vec![0x5a; 128];
    UdpHeader { src_port: 9, dst_port: 7, len: 128, checksum: 0 }.emit(&mut datagram);
    udp::fill_checksum(Sum::pseudo_v4(PEER, US, IpProtocol::UDP, 128), &mut datagram);
    // Made before it begins, as many as differ: a datagram is over before its number comes again.
    let pairs: Vec<[Vec<u8>; 2]> = (0..64)
        .map(|id| [frame(id, (0, true), &datagram[..64]), frame(id, (64, false), &datagram[64..])])
        .collect();
    let mut now = Time::from_secs(1);
    let mut received = 0;
    for n in 0..times {
        for bytes in &pairs[n as usize % pairs.len()] {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(bytes));
            lane.input(now, &pool, frame, Class::Ethernet);
        }
        while lane.udp_receive(socket).is_some() {
            received += 1;
        }
        now += Duration::from_micros(10);
    }
    assert_eq!(received, times, "each was put together");
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let Some(times) = words.next().and_then(|times| times.parse().ok()) else {
        eprintln!("usage: budget hash|home-port|fragment-pair TIMES");
        return ExitCode::from(2);
    };
    match what.as_str() {
        "hash" => hash(times),
        "home-port" => home_port(times),
        "fragment-pair" => fragment_pair(times),
        _ => {
            eprintln!("budget: there is no '{what}'; there are: hash, home-port, fragment-pair");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
