//! What a flood of fragments costs: `fragment_flood PACKETS FRAGMENTS` gives a lane so many whole packets and so many
//! beginnings of datagrams from invented addresses, mixed evenly, and ends.
//!
//! To be run under `valgrind --tool=callgrind`, which counts instructions: the difference of two runs is the cost of what
//! the second had more, whatever else the machine does. Making a frame is a copy of a template, alike for both kinds.
//! Every sixteenth whole packet's sender also sends a datagram in two fragments, whose fate is printed: floods must not
//! keep it from completing. Time passes as at a million flood fragments a second.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz};
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::rng::Rng;
use flowlane_stack::time::Time;
use flowlane_stack::udp::{Bind, UdpConfig};
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum, UdpHeader, udp,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};

const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// A frame of IP payload `bytes`.
fn template(src: Ipv4Addr, id: u16, at: (u16, bool), bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 34];
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    EthernetHeader { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4, vlan: None }.emit(&mut frame);
    let header = Ipv4Header {
        src,
        dst: US,
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: 0,
        identification: id,
        dont_fragment: false,
        more_fragments: at.1,
        fragment_offset: at.0,
        payload_len: bytes.len() as u16,
        options: Ipv4Options::default(),
    };
    header.emit(&mut frame[14..]);
    frame.extend(bytes);
    frame
}

fn datagram(len: usize) -> Vec<u8> {
    let mut d = vec![0x5a; len + 8];
    UdpHeader { src_port: 9, dst_port: 7, len: len as u16 + 8, checksum: 0 }.emit(&mut d);
    udp::fill_checksum(Sum::pseudo_v4(PEER, US, IpProtocol::UDP, len as u16 + 8), &mut d);
    d
}

struct World {
    lane: Lane,
    pool: Pool,
    now: Time,
}

impl World {
    fn give(&mut self, bytes: &[u8]) {
        let Some(mut frame) = self.pool.alloc() else { panic!("the lane holds all frames") };
        assert!(frame.extend_from_slice(bytes));
        self.lane.input(self.now, &self.pool, frame, Class::Ethernet);
    }
}

fn lane(strangers: Option<u32>) -> Lane {
    let table = Indirection::new(128, 1).unwrap_or_else(|e| panic!("{e}"));
    let map = BucketMap::new(1, 1).unwrap_or_else(|e| panic!("{e}"));
    let rss = Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map);
    let mut reassembly = ReassemblyConfig::default();
    reassembly.strangers = strangers.unwrap_or(reassembly.strangers);
    Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(rss),
        interfaces: vec![InterfaceConfig::new(
            MacAddr([2, 0, 0, 0, 0, 2]),
            "10.0.0.2/24".parse().into_iter().collect(),
        )],
        routes: vec![],
        tunnels: vec![],
        ip: Default::default(),
        udp: UdpConfig::default(),
        tcp: Default::default(),
        reassembly,
        seed: [1, 2, 3, 4],
    })
}

fn main() {
    let mut numbers =
        std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap_or_else(|e| panic!("{a}: {e}")));
    let (packets, fragments) = (numbers.next().unwrap_or(100_000), numbers.next().unwrap_or(100_000));
    let config = MemoryConfig { frames_per_home: 4096, lock: false, huge_pages: false, ..Default::default() };
    let memory = FrameMemory::new(&config).unwrap_or_else(|e| panic!("{e}"));
    let pool = memory.attach(0).unwrap_or_else(|e| panic!("{e}"));
    let mut w = World { lane: lane(numbers.next().map(|n| n as u32)), pool, now: Time::from_secs(1) };
    let socket = w.lane.udp_bind(Bind::port(7)).unwrap_or_else(|e| panic!("{e}"));
    let d = datagram(120);
    let whole = template(PEER, 0, (0, false), &d);
    let mut invented = template(PEER, 0, (0, true), &d[..64]);
    let mut rng = Rng::new(3);
    let (mut flood, mut halves, mut received) = (0, 0_u64, 0);
    for n in 0..packets.max(1) {
        if n < packets {
            w.give(&whole);
        }
        // Evenly mixed; all of them at once if there are no packets.
        while flood * packets.max(1) < (n + 1) * fragments {
            flood += 1;
            let (src, id) = (0x0b00_0000 | rng.next_u32() >> 8, rng.next_u32() as u16);
            invented[26..30].copy_from_slice(&src.to_be_bytes());
            invented[18..20].copy_from_slice(&id.to_be_bytes());
            invented[24..26].fill(0);
            let sum = flowlane_stack::wire::checksum::checksum(&invented[14..34]);
            invented[24..26].copy_from_slice(&sum.to_be_bytes());
            w.give(&invented);
            w.now += Duration::from_micros(1);
        }
        if n % 16 == 0 {
            halves += 1;
            w.give(&template(PEER, halves as u16, (0, true), &d[..64]));
        } else if n % 16 == 8 {
            // Eight whole packets, and as much of the flood, have come in between.
            w.give(&template(PEER, halves as u16, (64, false), &d[64..]));
        }
        while w.lane.udp_receive(socket).is_some() {
            received += 1;
        }
    }
    let stats = w.lane.stats();
    println!("{packets} whole packets and {fragments} fragments of a flood");
    println!(
        "{received} datagrams received; {} of {halves} put together of two fragments",
        stats.ip.reassembled
    );
    println!("{} fragments dropped, {} of them at a glance", stats.drops.total(), {
        stats.drops.get(flowlane_stack::stats::DropReason::FragmentFlood)
    });
}
