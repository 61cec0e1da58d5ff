//! What the table of the largest flows and records of flows cost a packet: datagrams of so many flows in turn, which come to a lane that has no
//! socket for them.
//!
//! `cargo bench -p flowlane-stack --bench top -- FLOWS LARGEST RECORDS PACKETS` prints processor time for each packet; LARGEST is the size of the
//! table, 0 for none; RECORDS is how many records may wait, 0 for none, and nobody takes them; FLOWS 0: each packet is of a new flow. Everything
//! repeats exactly, so that callgrind on the same program with two different counts gives the instructions of a packet to the last
//! (`benches/top.sh`).
#![allow(missing_docs, reason = "a program")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on ends")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane_rss::{Bucket, Key, Rss};
use flowlane_stack::time::Time;
use flowlane_stack::top::TopConfig;
use flowlane_stack::wire::MacAddr;
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

const SERVER: [u8; 4] = [10, 0, 0, 1];

fn lane() -> Lane {
    Lane::new(&LaneConfig::new(
        Bucket(0),
        Arc::new(Rss::new(Key::MICROSOFT, 1)),
        vec![InterfaceConfig::new(MacAddr([2; 6]), vec!["10.0.0.1/8".parse().unwrap()])],
        [1, 2, 3, 4],
    ))
}

/// An Ethernet frame with an empty datagram, padded to the least length.
fn datagram() -> [u8; 60] {
    let mut bytes = [0; 60];
    bytes[..12].fill(2);
    bytes[12..34]
        .copy_from_slice(&[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 0, 10, 0, 0, 1]);
    bytes[30..34].copy_from_slice(&SERVER);
    bytes[34..42].copy_from_slice(&[4, 0, 0, 7, 0, 8, 0, 0]);
    bytes
}

/// Another peer's: the checksum of the header is made up for.
fn from(bytes: &mut [u8; 60], peer: u32) {
    bytes[27..30].copy_from_slice(&peer.to_be_bytes()[1..]);
    bytes[24..26].fill(0);
    let mut sum: u32 =
        bytes[14..34].chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [flows, largest, records, packets] = numbers[..] else {
        println!("top: FLOWS LARGEST RECORDS PACKETS");
        return;
    };
    let memory = MemoryConfig { frames_per_home: 64, lock: false, huge_pages: false, ..Default::default() };
    let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
    let (mut lane, mut bytes, mut out) = (lane(), datagram(), Vec::new());
    if largest > 0 {
        lane.watch_top(Some(&TopConfig {
            flows: largest as usize,
            ..TopConfig::new([0x1234_5678_9abc_def1, 77])
        }));
    }
    let (now, began) = (Time::from_secs(1), Instant::now());
    lane.watch_flows(now, records as usize, None, Duration::from_secs(15));
    for n in 0..packets {
        from(&mut bytes, 256 + n % if flows == 0 { 1 << 23 } else { flows });
        let mut frame = pool.alloc().unwrap();
        assert!(frame.extend_from_slice(&bytes));
        lane.input(now, &pool, frame, Class::Ethernet);
        // The first are answered by ICMP, as many as its limit allows.
        if n % 16 == 0 {
            lane.drain_output(now, &pool, 64, &mut out);
            out.clear();
        }
    }
    let each = began.elapsed().as_nanos() as f64 / f64::from(packets.max(1));
    let udp = lane.stats().udp;
    println!(
        "{each:.1} ns a packet, {} dropped for want of a socket, {} flows made room, {} records lost",
        udp.no_socket, udp.flow_records_no_room, udp.flow_records_lost
    );
}
