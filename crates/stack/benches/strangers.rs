//! What a stranger's segment costs a lane: a SYN that is answered with a cookie, an acknowledgement answered with a reset (`ack`), or one that is not,
//! since the resets of the second are used up, as in a flood (`limited`).
//!
//! `cargo bench -p flowlane-stack --bench strangers -- syn 200000` (or `ack`, `limited`) prints processor time for each. Everything
//! repeats exactly, so that `valgrind --tool=callgrind` on the same program with two different counts gives the
//! instructions of one to the last.
#![allow(missing_docs, reason = "a program")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use flowlane_rss::{Bucket, Key, Rss};
use flowlane_stack::rng::Rng;
use flowlane_stack::steering::steer;
use flowlane_stack::tcp::{ListenOptions, SynCookies, TcpConfig};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, SeqNum, Sum, TcpFlags,
    TcpHeader, TcpOptions, Timestamps, tcp,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 7;
const BURST: usize = 64;
const STRANGERS: usize = 1 << 12;

const fn mac(of: Ipv4Addr) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, of.octets()[3]])
}

fn lane(resets_per_second: u32) -> Lane {
    let interface = InterfaceConfig::new(mac(SERVER), vec![format!("{SERVER}/24").parse().unwrap()]);
    let all = "0.0.0.0/0".parse().unwrap();
    let mut lane = Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: Arc::new(Rss::new(Key::MICROSOFT, 1)),
        interfaces: vec![interface],
        routes: vec![Route { prefix: all, gateway: Some(IpAddr::V4(GATEWAY)), interface: 0 }],
        tunnels: vec![],
        ip: Default::default(),
        udp: Default::default(),
        tcp: TcpConfig { syn_cookies: SynCookies::Always, resets_per_second, ..TcpConfig::default() },
        reassembly: Default::default(),
        seed: [1, 2, 3, 4],
    });
    lane.tcp_listen(None, PORT, ListenOptions::default()).unwrap();
    lane
}

/// Who has the gateway's address: the answer to the lane's question.
fn introduce(lane: &mut Lane, pool: &Pool, now: Time) {
    let mut arp = Vec::new();
    arp.extend_from_slice(&mac(SERVER).0);
    arp.extend_from_slice(&mac(GATEWAY).0);
    arp.extend_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    arp.extend_from_slice(&mac(GATEWAY).0);
    arp.extend_from_slice(&GATEWAY.octets());
    arp.extend_from_slice(&mac(SERVER).0);
    arp.extend_from_slice(&SERVER.octets());
    let mut frame = pool.alloc().unwrap();
    assert!(frame.extend_from_slice(&arp));
    lane.input(now, pool, frame, Class::Ethernet);
}

fn stranger(syn: bool, n: u32, rng: &mut Rng) -> Vec<u8> {
    let src = Ipv4Addr::from(0x0b00_0000 + rng.below(1 << 24));
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
    EthernetHeader { dst: mac(SERVER), src: mac(GATEWAY), ethertype: EtherType::IPV4, vlan: None }
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

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let limited = args.iter().any(|a| a == "limited");
    let syn = !limited && !args.iter().any(|a| a == "ack");
    let count = args.iter().find_map(|a| a.parse().ok()).unwrap_or(100_000_usize);
    let rss = Rss::new(Key::MICROSOFT, 1);
    let memory = MemoryConfig { frames_per_home: 1024, lock: false, ..Default::default() };
    let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
    let mut rng = Rng::new(7);
    let strangers: Vec<_> = (0..STRANGERS).map(|n| stranger(syn, n as u32, &mut rng)).collect();
    let mut lane = lane(if limited { 0 } else { u32::MAX });
    let mut now = Time::from_secs(1);
    let mut out: Vec<Frame> = Vec::with_capacity(2 * BURST);
    let mut burst = |lane: &mut Lane, now: Time, first: usize, frames: usize| {
        for n in 0..frames {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(&strangers[(first + n) % STRANGERS]));
            let _ = steer(&rss, &mut frame);
            lane.input_in_burst(now, &pool, frame, Class::Ethernet);
        }
        lane.end_burst(now, &pool);
        while lane.drain_output(now, &pool, BURST, &mut out) > 0 {}
        let answered = out.len();
        out.clear();
        answered
    };
    // The lane asks for its gateway, and hears.
    if !limited {
        burst(&mut lane, now, 0, 1);
        introduce(&mut lane, &pool, now);
        burst(&mut lane, now, 1, 1);
    }
    let begin = Instant::now();
    let (mut done, mut answered) = (0, 0);
    while done < count {
        answered += burst(&mut lane, now, done, BURST);
        done += BURST;
        now = Time::from_nanos(now.as_nanos() + 20_000);
    }
    assert_eq!(answered, if limited { 0 } else { done }, "each is answered, or none");
    println!("{done} of strangers: {:?} each", begin.elapsed() / done as u32);
}
