//! A lane on a link with hostile others: what all layers of it keep, by measurement.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, Ipv6Header, MacAddr, Sum, UdpHeader,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};
use flowlane_sys::heap::Counting;

use crate::kit::FRAME;

pub(crate) const US_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(crate) const THEIR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const US_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const US_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// More than any bound lets a lane keep.
const FRAMES: usize = 8192;

pub(crate) struct Host {
    pub(crate) lane: Lane,
    pub(crate) pool: Pool,
    pub(crate) now: Time,
    heap: usize,
    most: usize,
}

impl Host {
    /// The only lane of its host, on `10.0.0.2/8` and `fd00::2/64`.
    pub(crate) fn new(change: impl FnOnce(&mut LaneConfig)) -> Self {
        Self::of_buckets(1, change)
    }

    /// The lane of bucket 0 of so many.
    pub(crate) fn of_buckets(buckets: usize, change: impl FnOnce(&mut LaneConfig)) -> Self {
        let table = Indirection::new(128, buckets).unwrap();
        let map = BucketMap::new(buckets, 1).unwrap();
        let hash = HashConfig::with_udp(UdpFields::Two);
        let addresses = ["10.0.0.2/8", "fd00::2/64"].map(|a| a.parse().unwrap());
        let interface = InterfaceConfig::new(US_MAC, addresses.to_vec());
        let mut config = LaneConfig {
            bucket: Bucket(0),
            rss: Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), hash, table, map)),
            interfaces: vec![interface],
            routes: vec![],
            tunnels: vec![],
            ip: Default::default(),
            udp: Default::default(),
            tcp: Default::default(),
            reassembly: Default::default(),
            seed: [1, 2, 3, 4],
        };
        change(&mut config);
        let memory =
            MemoryConfig { frames_per_home: FRAMES, huge_pages: false, lock: false, ..Default::default() };
        let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
        let lane = Lane::new(&config);
        Self { lane, pool, now: Time::from_secs(100), heap: Counting::in_use(), most: 0 }
    }

    /// Bytes held now beyond what the lane began with: heap and frames.
    pub(crate) fn held(&self) -> usize {
        Counting::in_use().saturating_sub(self.heap) + (FRAMES - self.pool.free()) * FRAME
    }

    pub(crate) fn look(&mut self) {
        self.most = self.most.max(self.held());
    }

    /// A packet from the link, for us or for a group; an ARP packet for everybody.
    pub(crate) fn frame(&self, packet: &[u8]) -> Frame {
        let (dst, ethertype) = match packet[0] >> 4 {
            4 => (US_MAC, EtherType::IPV4),
            6 if packet[24] == 0xff => {
                let group: [u8; 16] = packet[24..40].try_into().unwrap();
                (MacAddr::for_ipv6_multicast(group.into()), EtherType::IPV6)
            }
            6 => (US_MAC, EtherType::IPV6),
            _ => (MacAddr::BROADCAST, EtherType::ARP),
        };
        let mut frame = self.pool.alloc().expect("a frame for what comes in");
        EthernetHeader { dst, src: THEIR_MAC, ethertype, vlan: None }.emit(frame.push_back(14).unwrap());
        assert!(frame.extend_from_slice(packet));
        frame
    }

    /// The lane gets a packet, and does what it would do in a runtime: others hear of what it learnt, and what it sends leaves.
    pub(crate) fn give(&mut self, packet: &[u8]) {
        self.give_only(packet);
        while let Some(frame) = self.lane.poll_output(self.now, &self.pool) {
            drop(frame);
        }
    }

    /// The lane gets a packet, and the link takes nothing.
    pub(crate) fn give_only(&mut self, packet: &[u8]) {
        let frame = self.frame(packet);
        self.lane.input(self.now, &self.pool, frame, Class::Ethernet);
        self.look();
        while self.lane.poll_event().is_some() {}
    }

    /// A millisecond goes by.
    pub(crate) fn tick(&mut self) {
        self.now += std::time::Duration::from_millis(1);
        if self.lane.poll_at().is_some_and(|at| at <= self.now) {
            self.lane.on_timer(self.now, &self.pool);
        }
    }

    /// No more was ever held than `bound` bytes, and `least` of them: the flood came as far as the bound.
    pub(crate) fn check(&mut self, what: &str, (least, bound): (usize, usize)) {
        self.look();
        println!("{what}: {} bytes at most, {} now", self.most, self.held());
        assert!(self.most <= bound, "{what}: {} bytes held where {bound} are allowed", self.most);
        assert!(self.most >= least, "{what}: {} bytes: the bound was not reached", self.most);
    }
}

/// Stranger `n` of a great many.
pub(crate) fn stranger_v4(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a01_0000 + n)
}

/// Stranger `n` of a great many.
pub(crate) fn stranger_v6(n: u32) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(US_V6) + 0x1_0000 + u128::from(n))
}

/// An IPv4 packet to us; `part` is identification, offset and whether more follows.
pub(crate) fn v4(
    src: Ipv4Addr,
    protocol: IpProtocol,
    (identification, fragment_offset, more_fragments): (u16, u16, bool),
    payload: &[u8],
) -> Vec<u8> {
    let header = Ipv4Header {
        src,
        dst: US_V4,
        protocol,
        ttl: 255,
        tos: 0,
        identification,
        dont_fragment: false,
        more_fragments,
        fragment_offset,
        payload_len: payload.len() as u16,
        options: Ipv4Options::default(),
    };
    let mut packet = vec![0; 20];
    header.emit(&mut packet);
    [&packet[..], payload].concat()
}

/// An IPv6 packet.
pub(crate) fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u16;
    let header =
        Ipv6Header { src, dst, next_header, hop_limit: 255, traffic_class: 0, flow_label: 0, payload_len };
    let mut packet = vec![0; 40];
    header.emit(&mut packet);
    [&packet[..], payload].concat()
}

/// A datagram to a port of ours.
pub(crate) fn udp(src: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    datagram.extend_from_slice(payload);
    let len = datagram.len() as u16;
    let pseudo = Sum::pseudo_v4(src, US_V4, IpProtocol::UDP, len);
    UdpHeader { src_port: 9, dst_port: port, len, checksum: 0 }.emit_with_checksum(pseudo, &mut datagram);
    v4(src, IpProtocol::UDP, (0, 0, false), &datagram)
}
