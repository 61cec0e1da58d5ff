//! Reassembly by itself: fragments of a few datagrams in any order, of any length and anywhere, under limits so tight
//! that everything happens, with time passing.
//!
//! What must hold: every fragment is held, delivered or counted under a reason; what is held stays within the limits;
//! every frame is somewhere; a datagram that is delivered is as long as its header says and made of bytes that were sent;
//! when time has run out nothing is left.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig, Verdict};
use flowlane_stack::stats::{Figures, LaneStats};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use crate::bytes::Bytes;

const FRAMES: usize = 64;

/// The first four bytes are the limits, then come operations of four bytes: which datagram, where, how long, what else.
pub fn run(data: &[u8]) {
    let mut bytes = Bytes(data);
    let config = ReassemblyConfig {
        datagrams: usize::from(bytes.u8() % 10),
        fragments: usize::from(bytes.u8() % 20),
        bytes: usize::from(bytes.u8() % 24) * 2048,
        per_datagram: usize::from(bytes.u8() % 8),
        ..ReassemblyConfig::default()
    };
    let memory =
        MemoryConfig { frames_per_home: FRAMES, lock: false, huge_pages: false, ..Default::default() };
    let pool = FrameMemory::new(&memory).expect("memory").attach(0).expect("its only home");
    let mut r = Reassembly::new(config, 3);
    let (mut stats, mut now) = (LaneStats::default(), Time::ZERO);
    let (mut given, mut used) = (0, 0);
    while !bytes.is_empty() {
        let [name, at, len, rest] = [bytes.u8(), bytes.u8(), bytes.u8(), bytes.u8()];
        if name >= 250 {
            now += Duration::from_millis(u64::from(at) * 300);
            while r.expire(now, &mut stats).is_some() {}
        } else {
            let f = fragment(&pool, name % 16, u16::from(at % 32) * 8, len % 128, rest);
            given += 1;
            if let Verdict::Whole(whole) = r.input(now, f, &mut stats) {
                used += whole.chunks().count() as u64;
                check(&whole);
            }
        }
        let held = r.fragments();
        assert_eq!(given, used + stats.drops.total() + held as u64, "every fragment is somewhere");
        assert!(held <= config.fragments && r.pending() <= config.datagrams && r.bytes() <= config.bytes);
        assert_eq!(pool.free() + held, FRAMES);
    }
    let mut ip = stats.ip;
    ip.add(&stats.ip6);
    assert_eq!(stats.drops.total(), ip.fragments_dropped + ip.fragments_overflow + ip.fragments_timeout);
    while r.expire(Time::MAX, &mut stats).is_some() {}
    assert_eq!((r.pending(), r.fragments(), r.bytes(), r.next_deadline()), (0, 0, 0, None));
}

/// The bytes of a datagram: mostly the same for each place, so that duplicates happen.
fn fragment(pool: &Pool, name: u8, offset: u16, len: u8, rest: u8) -> Fragment {
    let mut frame = pool.alloc().expect("fewer are held than there are");
    let more = rest & 1 == 1;
    // Only the last may end off a multiple of eight; an empty one is refused.
    let len = if more { u16::from(len) & !7 } else { u16::from(len) };
    let data: Vec<u8> = (offset..offset + len).map(|i| i as u8 ^ u8::from(rest > 240)).collect();
    assert!(frame.extend_from_slice(&data));
    let (host, id, ecn) = (name & 3, name >> 2 & 1, rest >> 1 & 3);
    let (header_len, key) = if name & 8 != 0 {
        let (src, dst) = (Ipv6Addr::new(0xfd00, 0, 0, host.into(), 0, 0, 0, 1), Ipv6Addr::LOCALHOST);
        let part = Ipv6Fragment { next_header: IpProtocol::UDP, offset, more, identification: id.into() };
        part.emit(frame.push_front(8).expect("headroom"));
        let header = Ipv6Header {
            src,
            dst,
            next_header: IpProtocol::FRAGMENT,
            hop_limit: 1,
            traffic_class: ecn,
            flow_label: 0,
            payload_len: len + 8,
        };
        header.emit(frame.push_front(40).expect("headroom"));
        (48, Key::v6(src, dst, id.into()))
    } else {
        let (src, dst) = (Ipv4Addr::new(10, 0, host, 1), Ipv4Addr::LOCALHOST);
        let header = Ipv4Header {
            src,
            dst,
            protocol: IpProtocol::UDP,
            ttl: 1,
            tos: ecn,
            identification: id.into(),
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            payload_len: len,
            options: Ipv4Options::default(),
        };
        header.emit(frame.push_front(20).expect("headroom"));
        (20, Key::v4(src, dst, IpProtocol::UDP, id.into()))
    };
    assert!(frame.trim_front(header_len));
    Fragment { frame, key, header_len: header_len as u16, offset, more, ecn }
}

fn check(whole: &Frame) {
    let bytes = whole.chunks().collect::<Vec<_>>().concat();
    let payload = if bytes[0] >> 4 == 4 {
        let (header, payload) = Ipv4Header::parse(&bytes).expect("a good header");
        assert!(!header.is_fragment());
        payload
    } else {
        let (header, payload) = Ipv6Header::parse(&bytes).expect("a good header");
        assert_eq!(header.next_header, IpProtocol::UDP);
        payload
    };
    assert_eq!(payload.end, bytes.len());
    for (i, byte) in bytes[payload].iter().enumerate() {
        assert!(byte ^ i as u8 <= 1, "byte {i} was never sent");
    }
}
