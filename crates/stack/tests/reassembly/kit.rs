//! Fragments for the tests, and what came of them.

use std::net::{Ipv4Addr, Ipv6Addr};

use flowlane_stack::reassembly::{Fragment, Key, Reassembly, ReassemblyConfig, Verdict};
use flowlane_stack::stats::{IpStats, LaneStats};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{IpProtocol, Ipv4Header, Ipv4Options, Ipv6Fragment, Ipv6Header, checksum};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

pub(crate) fn pool(frames: usize) -> Pool {
    let config =
        MemoryConfig { frames_per_home: frames, lock: false, huge_pages: false, ..Default::default() };
    FrameMemory::new(&config).unwrap().attach(0).unwrap()
}

/// A datagram's name: family, number of the source host, identification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) v6: bool,
    pub(crate) host: u32,
    pub(crate) id: u16,
}

impl Name {
    fn v4_ends(self) -> (Ipv4Addr, Ipv4Addr) {
        (Ipv4Addr::from(0x0a00_0000 + self.host), Ipv4Addr::new(192, 168, 0, 1))
    }

    /// Hosts 256 apart are on networks of their own, as with IPv4.
    fn v6_ends(self) -> (Ipv6Addr, Ipv6Addr) {
        let net = u128::from(self.host >> 8) << 64 | u128::from(self.host & 255);
        (Ipv6Addr::from(0xfd00_u128 << 112 | net), "fd01::1".parse().unwrap())
    }

    pub(crate) fn key(self) -> Key {
        if self.v6 {
            let (src, dst) = self.v6_ends();
            Key::v6(src, dst, self.id.into())
        } else {
            let (src, dst) = self.v4_ends();
            Key::v4(src, dst, IpProtocol::UDP, self.id)
        }
    }
}

/// A fragment of `name` as it comes from the link.
pub(crate) fn fragment(pool: &Pool, name: Name, offset: u16, bytes: &[u8], more: bool, ecn: u8) -> Fragment {
    let mut frame: Frame = pool.alloc().unwrap();
    assert!(frame.extend_from_slice(bytes));
    let header_len = if name.v6 {
        let (src, dst) = name.v6_ends();
        let part =
            Ipv6Fragment { next_header: IpProtocol::UDP, offset, more, identification: name.id.into() };
        part.emit(frame.push_front(8).unwrap());
        Ipv6Header {
            src,
            dst,
            next_header: IpProtocol::FRAGMENT,
            hop_limit: 64,
            traffic_class: 0x28 | ecn,
            flow_label: 0x12345,
            payload_len: bytes.len() as u16 + 8,
        }
        .emit(frame.push_front(40).unwrap());
        48
    } else {
        let (src, dst) = name.v4_ends();
        Ipv4Header {
            src,
            dst,
            protocol: IpProtocol::UDP,
            ttl: 64,
            tos: 0x28 | ecn,
            identification: name.id,
            dont_fragment: false,
            more_fragments: more,
            fragment_offset: offset,
            payload_len: bytes.len() as u16,
            options: Ipv4Options::default(),
        }
        .emit(frame.push_front(20).unwrap());
        20
    };
    assert!(frame.trim_front(header_len));
    Fragment { frame, key: name.key(), header_len: header_len as u16, offset, more, ecn }
}

/// The payload of a whole datagram, after its header was checked.
pub(crate) fn payload(name: Name, whole: &Frame) -> Vec<u8> {
    let bytes = whole.chunks().collect::<Vec<_>>().concat();
    let range = if name.v6 {
        let (header, range) = Ipv6Header::parse(&bytes).unwrap();
        assert_eq!((header.src, header.dst), name.v6_ends());
        assert_eq!((header.next_header, header.flow_label), (IpProtocol::UDP, 0x12345));
        range
    } else {
        assert_eq!(checksum::checksum(&bytes[..20]), 0, "the header's checksum is right again");
        let (header, range) = Ipv4Header::parse(&bytes).unwrap();
        assert!(!header.is_fragment());
        assert_eq!((header.src, header.dst), name.v4_ends());
        range
    };
    assert_eq!(range.end, bytes.len());
    bytes[range].to_vec()
}

pub(crate) fn ecn(name: Name, whole: &Frame) -> u8 {
    let h = whole.data();
    if name.v6 { h[1] >> 4 & 3 } else { h[1] & 3 }
}

/// A reassembler with its surroundings.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    pub(crate) r: Reassembly,
    pub(crate) stats: LaneStats,
    pub(crate) now: Time,
    frames: usize,
    /// Fragments given to it, and those of them that left in whole datagrams.
    pub(crate) given: u64,
    pub(crate) used: u64,
}

impl Bench {
    pub(crate) fn new(config: ReassemblyConfig, frames: usize) -> Self {
        Self {
            pool: pool(frames),
            r: Reassembly::new(config, 7),
            stats: LaneStats::default(),
            now: Time::from_secs(1),
            frames,
            given: 0,
            used: 0,
        }
    }

    pub(crate) fn give(&mut self, f: Fragment) -> Verdict {
        self.given += 1;
        let verdict = self.r.input(self.now, f, &mut self.stats);
        if let Verdict::Whole(frame) = &verdict {
            self.used += frame.chunks().count() as u64;
        }
        verdict
    }

    /// Gives a fragment; the payload if that completes its datagram.
    pub(crate) fn put(&mut self, name: Name, offset: u16, bytes: &[u8], more: bool) -> Option<Vec<u8>> {
        let f = fragment(&self.pool, name, offset, bytes, more, 0);
        match self.give(f) {
            Verdict::Whole(frame) => Some(payload(name, &frame)),
            Verdict::Held | Verdict::Dropped => None,
        }
    }

    pub(crate) fn ip(&self) -> IpStats {
        let mut sum = self.stats.ip;
        flowlane_stack::stats::Figures::add(&mut sum, &self.stats.ip6);
        sum
    }

    /// What always holds: every fragment is somewhere, and so is every frame.
    pub(crate) fn check(&self) {
        let ip = self.ip();
        let gone = self.used + ip.fragments_dropped + ip.fragments_timeout + ip.fragments_overflow;
        assert_eq!(self.given, gone + self.r.fragments() as u64, "every fragment is accounted for");
        assert_eq!(self.stats.drops.total(), gone - self.used, "and every drop has a reason");
        assert_eq!(self.pool.free() + self.r.fragments(), self.frames);
        assert_eq!(self.r.bytes(), self.r.fragments() * 2048);
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

impl Bench {
    /// Which reasons were counted, for messages.
    pub(crate) fn reasons(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        let drops = &self.stats.drops;
        flowlane_stack::stats::Figures::each(drops, &mut |c| {
            if c.value > 0 {
                all.push((c.name, c.value));
            }
        });
        all
    }
}
