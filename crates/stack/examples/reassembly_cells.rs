//! Flowlane's reassembly, timed cell by cell; the peer of `benches/dpdk/ip_frag.c`.
//!
//! Prints "CELL NANOSECONDS" per fragment, the median of the samples. Datagrams come in two fragments, [`BATCH`]
//! fragments at a time, from 256 networks. Timed is what a stack does with a fragment once Ethernet is off: read the IP
//! header, look the datagram up, keep the fragment or finish the chain. Filling the frames and freeing the chains is
//! not timed, as for the peer. Cells:
//!
//! * `pairs`: both fragments of a datagram, one after the other; `mixed`: all first ones of the batch, then all second.
//! * `/10`, `/100000`: so many other datagrams are pending meanwhile.
//!
//! `benches/dpdk/reassembly.sh` runs both programs in turn.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig, Verdict};
use flowlane_stack::stats::LaneStats;
use flowlane_stack::time::Time;
use flowlane_stack::wire::ipv6_ext::walk;
use flowlane_stack::wire::{IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

const BATCH: usize = 256;
const PAYLOAD: usize = 64;
const SAMPLES: usize = 9;
const BATCHES: usize = 1500;
const FRAMES: usize = 110_000;

/// Fragment `half` of datagram `id` from network `net`, its data from the IP header on.
fn fill(pool: &Pool, v6: bool, net: u32, id: u32, half: usize) -> Frame {
    let Some(mut f) = pool.alloc() else { panic!("too few frames") };
    assert!(f.push_back(PAYLOAD).is_some());
    let (offset, more) = ((half * PAYLOAD) as u16, half == 0);
    if v6 {
        let src = Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(net) << 64 | 1);
        let part = Ipv6Fragment { next_header: IpProtocol::UDP, offset, more, identification: id };
        f.push_front(8).map(|b| part.emit(b));
        let header = Ipv6Header {
            src,
            dst: Ipv6Addr::LOCALHOST,
            next_header: IpProtocol::FRAGMENT,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: PAYLOAD as u16 + 8,
        };
        f.push_front(40).map(|b| header.emit(b));
    } else {
        let header = Ipv4Header {
            src: Ipv4Addr::from(net << 8 | 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
            protocol: IpProtocol::UDP,
            ttl: 64,
            tos: 0,
            identification: id as u16,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            payload_len: PAYLOAD as u16,
            options: Ipv4Options::default(),
        };
        f.push_front(20).map(|b| header.emit(b));
    }
    f
}

/// Reads the header and puts the fragment among its kin.
#[inline]
fn take(r: &mut Reassembly, stats: &mut LaneStats, now: Time, v6: bool, mut frame: Frame) -> Option<Frame> {
    let fragment = if v6 {
        let (h, _) = Ipv6Header::parse(frame.data()).ok()?;
        let upper = walk(frame.data(), h.next_header).ok()?;
        let part = upper.fragment?;
        assert!(frame.trim_front(upper.offset));
        let key = Key::v6(h.src, h.dst, part.identification);
        let (offset, more) = (part.offset, part.more);
        Fragment { frame, key, header_len: upper.offset as u16, offset, more, ecn: h.traffic_class }
    } else {
        let (h, payload) = Ipv4Header::parse_trusted(frame.data()).ok()?;
        assert!(frame.trim_front(payload.start));
        let key = Key::v4(h.src, h.dst, h.protocol, h.identification);
        let (offset, more) = (h.fragment_offset, h.more_fragments);
        Fragment { frame, key, header_len: payload.start as u16, offset, more, ecn: h.tos }
    };
    match r.input(now, fragment, stats) {
        Verdict::Whole(whole) => Some(whole),
        Verdict::Held | Verdict::Dropped => None,
    }
}

fn cell(name: &str, v6: bool, mixed: bool, pending: u32, pool: &Pool) {
    let config =
        ReassemblyConfig { datagrams: 200_000, fragments: 200_000, bytes: 1 << 30, ..Default::default() };
    let mut r = Reassembly::new(config, 0x1234_5678);
    let mut stats = LaneStats::default();
    let now = Time::from_secs(1);
    for i in 0..pending {
        let frame = fill(pool, v6, 0x0b_0000 + i % 10_000, i / 10_000, 0);
        assert!(take(&mut r, &mut stats, now, v6, frame).is_none());
    }
    let mut next = 0u32;
    let mut samples = Vec::new();
    for sample in 0..SAMPLES + 2 {
        let mut spent = 0;
        for _ in 0..BATCHES {
            let mut batch = Vec::with_capacity(BATCH);
            for i in 0..BATCH {
                let (datagram, half) =
                    if mixed { (i % (BATCH / 2), i / (BATCH / 2)) } else { (i / 2, i % 2) };
                let n = next.wrapping_add(datagram as u32);
                batch.push(fill(pool, v6, 0xac_1000 + n % 256, n / 256, half));
            }
            next = next.wrapping_add(BATCH as u32 / 2);
            let mut whole = Vec::with_capacity(BATCH / 2);
            let start = Instant::now();
            for frame in batch.drain(..) {
                whole.extend(take(&mut r, &mut stats, now, v6, frame));
            }
            spent += start.elapsed().as_nanos();
            assert_eq!(whole.len(), BATCH / 2);
        }
        if sample >= 2 {
            samples.push(spent as f64 / (BATCHES * BATCH) as f64);
        }
    }
    samples.sort_by(f64::total_cmp);
    println!("{name}/{pending} {:.4}", samples[SAMPLES / 2]);
}

fn main() {
    let config =
        MemoryConfig { frames_per_home: FRAMES, lock: false, huge_pages: false, ..Default::default() };
    let memory = FrameMemory::new(&config).unwrap_or_else(|e| panic!("{e}"));
    let pool = memory.attach(0).unwrap_or_else(|e| panic!("{e}"));
    for pending in [10, 100_000] {
        cell("v4-pairs", false, false, pending, &pool);
        cell("v4-mixed", false, true, pending, &pool);
        cell("v6-pairs", true, false, pending, &pool);
        cell("v6-mixed", true, true, pending, &pool);
    }
}
