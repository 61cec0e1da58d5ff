//! A link for benchmarks: every receive returns a full burst of datagrams of many flows, with the hash that a card would deliver; sent
//! frames are counted and freed.
//!
//! It runs on the measured worker, so the generator's cost is part of the figure; it is small (a copy of the datagram and a few stores).
//! With `flowlane bench udp --packets` an instruction counter can separate it: [`generate`](Source::generate) is a function of its own.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flowlane::link::{LinkInfo, Queue, QueueStats};
use flowlane::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, Sum,
    UdpHeader,
};
use flowlane::{Endpoint, HashType, Rss};
use flowlane_sys::frame::{Frame, Pool};

pub(crate) const SERVER: [u8; 4] = [10, 0, 0, 1];
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const GATEWAY: [u8; 4] = [10, 0, 0, 2];
const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;

/// The fields that differ between flows.
#[derive(Clone, Copy)]
struct Flow {
    bytes: [u8; 28],
    hash: u32,
}

pub(crate) struct Source {
    template: Vec<u8>,
    flows: Vec<Flow>,
    hash_type: u8,
    next: usize,
    left: u64,
    greeted: bool,
    stats: QueueStats,
    returned: Arc<AtomicU64>,
}

/// Source of flow `i`: behind the gateway, so that no neighbour entry for each is needed.
pub(crate) fn client(i: usize) -> Endpoint {
    let ip = std::net::Ipv4Addr::from(0x0b00_0000 + i as u32);
    Endpoint::new(ip.into(), 1024 + (i % 60_000) as u16)
}

impl Source {
    /// Datagrams of `size` bytes of payload to port `port` from `flows` flows, `packets` in all if given. `returned` counts frames that the
    /// host sends.
    pub(crate) fn link(
        rss: &Rss,
        flows: usize,
        size: usize,
        port: u16,
        packets: Option<u64>,
        returned: Arc<AtomicU64>,
    ) -> (LinkInfo, Box<dyn Queue>) {
        let info = LinkInfo::new("bench", SERVER_MAC, 9000, 1).delivers_hash(true);
        let mut hash_type = HashType::None;
        let mut template = Vec::new();
        let flows = (0..flows)
            .map(|i| {
                template = datagram(client(i), port, size);
                let std::net::IpAddr::V4(ip) = client(i).ip else { unreachable!("clients are IPv4") };
                let flow = flowlane::Flow::new(
                    (ip, client(i).port).into(),
                    (std::net::Ipv4Addr::from(SERVER), port).into(),
                    flowlane::Protocol::UDP,
                );
                let (hash, kind) = rss.software_hash(&flow);
                hash_type = kind;
                let mut bytes = [0; 28];
                bytes.copy_from_slice(&template[14..HEADERS]);
                Flow { bytes, hash }
            })
            .collect();
        let source = Self {
            template,
            flows,
            hash_type: hash_type.as_u8(),
            next: 0,
            left: packets.unwrap_or(u64::MAX),
            greeted: false,
            stats: QueueStats::default(),
            returned,
        };
        (info, Box::new(source))
    }

    /// Generates one burst.
    #[inline(never)]
    fn generate(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let mut n = 0;
        while n < max && self.left > 0 {
            let Some(mut frame) = pool.alloc() else { break };
            if !frame.extend_from_slice(&self.template) {
                break;
            }
            let flow = &self.flows[self.next];
            self.next += 1;
            if self.next == self.flows.len() {
                self.next = 0;
            }
            frame.data_mut()[14..HEADERS].copy_from_slice(&flow.bytes);
            let meta = frame.meta_mut();
            meta.hash = flow.hash;
            meta.hash_type = self.hash_type;
            into.push(frame);
            self.left -= 1;
            n += 1;
        }
        n
    }

    /// Sends an ARP request for the host's Ethernet address, from which the host learns the gateway's.
    fn greet(&mut self, pool: &Pool, into: &mut Vec<Frame>) {
        self.greeted = true;
        let Some(mut frame) = pool.alloc() else { return };
        let arp = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: GATEWAY_MAC,
            sender_ip: GATEWAY.into(),
            target_mac: MacAddr::ZERO,
            target_ip: SERVER.into(),
        };
        if let Some(bytes) = frame.push_back(28) {
            arp.emit(bytes);
        }
        let header = EthernetHeader {
            dst: MacAddr::BROADCAST,
            src: GATEWAY_MAC,
            ethertype: EtherType::ARP,
            vlan: None,
        };
        if let Some(bytes) = frame.push_front(14) {
            header.emit(bytes);
            into.push(frame);
        }
    }
}

/// A whole frame, from the Ethernet header on.
fn datagram(from: Endpoint, port: u16, size: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; HEADERS + size];
    let std::net::IpAddr::V4(src) = from.ip else { unreachable!("clients are IPv4") };
    let ethernet =
        EthernetHeader { dst: SERVER_MAC, src: GATEWAY_MAC, ethertype: EtherType::IPV4, vlan: None };
    ethernet.emit(&mut bytes);
    let ip = Ipv4Header {
        src,
        dst: SERVER.into(),
        protocol: IpProtocol::UDP,
        ttl: 64,
        tos: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        payload_len: (8 + size) as u16,
        options: Ipv4Options::default(),
    };
    ip.emit(&mut bytes[14..]);
    let udp = UdpHeader { src_port: from.port, dst_port: port, len: (8 + size) as u16, checksum: 0 };
    udp.emit(&mut bytes[34..]);
    let pseudo = Sum::pseudo_v4(src, SERVER.into(), IpProtocol::UDP, (8 + size) as u16);
    flowlane::wire::udp::fill_checksum(pseudo, &mut bytes[34..]);
    bytes
}

impl Queue for Source {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        if !self.greeted {
            self.greet(pool, into);
            return into.len();
        }
        let n = self.generate(pool, into, max);
        self.stats.rx_frames += n as u64;
        n
    }

    fn room(&mut self) -> usize {
        usize::MAX
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let n = frames.len();
        frames.clear();
        self.stats.tx_frames += n as u64;
        // One writer: a load and a store instead of an atomic addition.
        self.returned.store(self.stats.tx_frames, Ordering::Relaxed);
        n
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        self.left > 0
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        self.stats
    }
}
