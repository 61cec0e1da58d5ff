//! A host of two lanes that is told anything in any order: frames raw, frames almost right, time, sockets, a pool
//! that runs dry. Bytes are operations; see [`Op`].
//!
//! What always holds:
//!
//! * no panic;
//! * every frame that goes in has an outcome with a name: dropped for a reason, delivered to a socket, read by
//!   ARP or ICMP, kept as a fragment, or passed on to the other lane;
//! * every frame that comes out can be read by our own parsers, its checksums are right and it respects the MTU;
//! * everything delivered is received, once;
//! * when all has been received and every timer has run out, every frame is back in the pool.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::sync::Arc;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz, UdpFields};
use flowlane_stack::address::{Endpoint, Prefix};
use flowlane_stack::packet::Offload;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::stats::LaneStats;
use flowlane_stack::steering::steer;
use flowlane_stack::time::Time;
use flowlane_stack::tunnel::{MAX_LEVEL, TunnelConfig, TunnelKind};
use flowlane_stack::udp::{Bind, UdpConfig, UdpHandle};
use flowlane_stack::wire::{
    ArpPacket, EtherType, EthernetHeader, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Header, Ipv6Header,
    ipv6_ext, tcp, udp,
};
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use crate::bytes::Bytes;
use crate::seeds::{OUR_MAC, PEER_V4, PEER_V6, US_V4, US_V6, VLAN, fix_checksums, packets};

const FRAMES: usize = 128;
const MTU: u16 = 1500;

/// What one operation does; chosen by the low four bits of its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// A frame: two bytes of length, then its bytes.
    Raw = 0,
    /// One of the packets of [`packets`], by number; then changes as `changed` reads them, then checksums put right.
    Packet = 1,
    /// The same, with whatever checksum the changes leave.
    Damaged = 2,
    /// The same without its Ethernet header, as from another lane.
    Direct = 3,
    /// Two bytes: milliseconds pass.
    Wait = 4,
    /// A socket: one byte says of what kind, two its port.
    Bind = 5,
    /// A socket is closed.
    Close = 6,
    /// A socket's datagrams are received; some are answered.
    Receive = 7,
    /// A datagram is sent: where to, two bytes of length.
    Send = 8,
    /// A group is joined or left.
    Group = 9,
    /// What waits to be sent is taken and looked at.
    Output = 10,
    /// What waits to be sent comes back to us.
    Reflect = 11,
    /// Frames are kept from the pool, or given back.
    Hold = 12,
}

/// Bytes of one operation, for seeds.
#[must_use]
pub fn op(op: Op, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![op as u8];
    bytes.extend(rest);
    bytes
}

thread_local! {
    /// One pool for all runs of a thread: mapping memory costs more than a run.
    static POOL: Pool = {
        let config =
            MemoryConfig { frames_per_home: FRAMES, homes: 1, lock: false, huge_pages: false, ..Default::default() };
        FrameMemory::new(&config).map(|m| m.attach(0).expect("a home of its own")).expect("memory")
    };
    /// What lanes hash with, for each choice of what of UDP is hashed: its tables take longer to make than an input to run.
    static RSS: [Arc<Rss>; 2] = [UdpFields::Four, UdpFields::Two].map(|fields| {
        let table = Indirection::new(128, 2).expect("two buckets");
        let map = BucketMap::new(2, 1).expect("one worker");
        let hash = Toeplitz::new(&Key::MICROSOFT);
        Arc::new(Rss::from_parts(hash, HashConfig::with_udp(fields), table, map))
    });
}

/// One byte of configuration, then operations to the end of the input.
pub fn run(data: &[u8]) {
    POOL.with(|pool| {
        let free = pool.free();
        let mut bytes = Bytes(data);
        let mut host = Host::new(bytes.u8());
        while !bytes.is_empty() {
            host.step(pool, &mut bytes);
        }
        host.finish(pool);
        assert_eq!(pool.free(), free, "frames were lost");
    });
}

struct Host {
    lanes: [Lane; 2],
    rss: Arc<Rss>,
    sockets: Vec<(usize, UdpHandle)>,
    now: Time,
    vlan: Option<u16>,
    held: Vec<Frame>,
    received: u64,
}

/// Everything that can become of a packet, counted.
fn outcomes(s: &LaneStats) -> u64 {
    s.drops.total()
        + s.udp.delivered
        + s.tcp.packets_received
        + s.ip.fragments
        + s.ip6.fragments
        + s.arp.requests_received
        + s.arp.replies_received
        + s.icmp.received
        + s.icmp6.received
        + s.tunnel.received
}

impl Host {
    fn new(choice: u8) -> Self {
        let vlan = (choice & 2 != 0).then_some(VLAN);
        let rss = RSS.with(|rss| rss[usize::from(choice & 1)].clone());
        let prefix = |address, len| Prefix::new(address, len).expect("a prefix");
        let interface = InterfaceConfig {
            mac: OUR_MAC,
            mtu: MTU,
            addresses: vec![prefix(US_V4.into(), 24), prefix(US_V6.into(), 64)],
            claimed: if choice & 4 == 0 {
                vec![]
            } else {
                vec![prefix(Ipv4Addr::new(10, 0, 9, 0).into(), 24)]
            },
            vlan,
            offload: Offload::default(),
        };
        let lane = |bucket: u16| {
            Lane::new(&LaneConfig {
                bucket: Bucket(bucket),
                rss: rss.clone(),
                interfaces: vec![interface.clone()],
                routes: vec![],
                tunnels: if choice & 8 == 0 { vec![] } else { tunnels() },
                ip: Default::default(),
                udp: UdpConfig::default(),
                tcp: Default::default(),
                reassembly: ReassemblyConfig { datagrams: 8, fragments: 32, ..ReassemblyConfig::default() },
                seed: [bucket.into(), 2, 3, 4],
            })
        };
        Self {
            lanes: [lane(0), lane(1)],
            rss,
            sockets: Vec::new(),
            now: Time::from_secs(1),
            vlan,
            held: Vec::new(),
            received: 0,
        }
    }

    fn step(&mut self, pool: &Pool, bytes: &mut Bytes<'_>) {
        let first = bytes.u8();
        let high = usize::from(first >> 4);
        match first & 15 {
            0 => {
                let len = usize::from(bytes.u16()) % 1800;
                self.input(pool, bytes.take(len));
            }
            1 => {
                let mut packet = changed(bytes, high);
                fix_checksums(&mut packet);
                self.input(pool, &packet);
            }
            2 => self.input(pool, &changed(bytes, high)),
            3 => {
                let mut packet = changed(bytes, high);
                fix_checksums(&mut packet);
                let at = packet.len().min(14);
                if let Some(frame) = frame(pool, &packet[at..]) {
                    self.give(pool, high & 1, frame, Class::IpDirect);
                }
            }
            4 => self.wait(pool, Duration::from_millis(bytes.u16().into())),
            5 => self.bind(bytes, high & 1),
            6 => {
                if let Some((lane, socket)) = self.socket(high) {
                    self.receive(pool, lane, socket, false);
                    assert!(self.lanes[lane].udp_close(socket));
                    assert!(!self.lanes[lane].udp_close(socket), "closed twice");
                    self.sockets.retain(|s| *s != (lane, socket));
                }
            }
            7 => {
                if let Some((lane, socket)) = self.socket(high) {
                    self.receive(pool, lane, socket, high & 1 == 1);
                }
            }
            8 => self.send(pool, bytes, high),
            9 => {
                let group: IpAddr = if high & 1 == 0 {
                    Ipv4Addr::new(239, 0, 0, 1).into()
                } else {
                    Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 1).into()
                };
                let lane = &mut self.lanes[high >> 3];
                let _ = if high & 2 == 0 {
                    lane.join(self.now, pool, 0, group)
                } else {
                    lane.leave(self.now, pool, 0, group)
                };
            }
            10 => drop(self.output(pool)),
            11 => {
                for mut frame in self.output(pool) {
                    if frame.len() >= 12 {
                        frame.data_mut()[..6].copy_from_slice(&OUR_MAC.0);
                    }
                    self.steer(pool, frame);
                }
            }
            12 => {
                if high == 0 {
                    self.held.clear();
                } else {
                    self.held.extend(std::iter::from_fn(|| pool.alloc()).take(high * 16));
                }
            }
            _ => {}
        }
        self.settle(pool);
    }

    /// Takes in bytes as a card and a worker would.
    fn input(&mut self, pool: &Pool, bytes: &[u8]) {
        if let Some(frame) = frame(pool, bytes) {
            self.steer(pool, frame);
        }
    }

    fn steer(&mut self, pool: &Pool, mut frame: Frame) {
        frame.meta_mut().interface = 0;
        frame.meta_mut().hash_type = 0;
        frame.meta_mut().checksum = Default::default();
        let (bucket, _) = steer(&self.rss, &mut frame);
        self.give(pool, bucket.0.into(), frame, Class::Ethernet);
    }

    /// One frame into one lane, which must say what became of it.
    fn give(&mut self, pool: &Pool, lane: usize, frame: Frame, class: Class) {
        let lane = &mut self.lanes[lane];
        let before = outcomes(&lane.stats());
        let (igmp, mut start) = (is_igmp(frame.data(), class), [0; 64]);
        let n = frame.len().min(64);
        start[..n].copy_from_slice(&frame.data()[..n]);
        crate::count::one_more();
        lane.input(self.now, pool, frame, class);
        let mut redirect = lane.poll_redirect();
        let counted = redirect.is_some() || igmp || outcomes(&lane.stats()) > before;
        assert!(counted, "a frame without an outcome: {:02x?}", &start[..n]);
        let mut times = 0;
        while let Some(r) = redirect {
            times += 1;
            let other = usize::from(r.bucket.0);
            assert!(other < 2);
            let before = outcomes(&self.lanes[other].stats());
            let igmp = is_igmp(r.frame.data(), r.class);
            self.lanes[other].input(self.now, pool, r.frame, r.class);
            redirect = self.lanes[other].poll_redirect();
            let counted = outcomes(&self.lanes[other].stats()) > before || igmp;
            assert!(counted || redirect.is_some(), "a redirected frame without an outcome");
        }
        // Out of fragments, out of a tunnel, out of fragments within it, out of a tunnel within it, ...
        assert!(times <= 1 + 2 * usize::from(MAX_LEVEL), "redirected {times} times");
    }

    /// What one lane learnt is told to the other.
    fn settle(&mut self, pool: &Pool) {
        for i in 0..2 {
            while let Some(event) = self.lanes[i].poll_event() {
                self.lanes[1 - i].tell(self.now, event);
            }
            while let Some(r) = self.lanes[i].poll_redirect() {
                self.lanes[usize::from(r.bucket.0)].input(self.now, pool, r.frame, r.class);
            }
        }
    }

    fn wait(&mut self, pool: &Pool, duration: Duration) {
        self.now += duration;
        for lane in &mut self.lanes {
            for round in 0.. {
                if lane.poll_at().is_none_or(|at| at > self.now) {
                    break;
                }
                lane.on_timer(self.now, pool);
                assert!(round < 10_000, "a timer that stays due");
            }
        }
    }

    fn bind(&mut self, bytes: &mut Bytes<'_>, lane: usize) {
        if self.sockets.len() >= 16 {
            return;
        }
        let kind = bytes.u8();
        let port = bytes.u16();
        let local_ip: Option<IpAddr> = match kind & 3 {
            0 => None,
            1 => Some(US_V4.into()),
            2 => Some(US_V6.into()),
            _ => Some(PEER_V4.into()),
        };
        let remote = (kind & 4 != 0)
            .then(|| Endpoint::new(if kind & 3 == 2 { PEER_V6.into() } else { PEER_V4.into() }, 9));
        let any_port = kind & 8 != 0;
        let bind = Bind {
            local_ip,
            local_port: if any_port { 0 } else { port },
            remote: remote.filter(|_| !any_port),
            any_port,
            queue: Some(1 + usize::from(kind >> 4)),
        };
        if let Ok(socket) = self.lanes[lane].udp_bind(bind) {
            self.sockets.push((lane, socket));
        }
    }

    fn socket(&self, choice: usize) -> Option<(usize, UdpHandle)> {
        if self.sockets.is_empty() { None } else { Some(self.sockets[choice % self.sockets.len()]) }
    }

    fn receive(&mut self, pool: &Pool, lane: usize, socket: UdpHandle, answer: bool) {
        let lane = &mut self.lanes[lane];
        let mut batch = Vec::new();
        while lane.udp_receive_batch(socket, &mut batch, 64) > 0 {
            self.received += batch.len() as u64;
            if answer {
                let _ = lane.udp_reply_batch(self.now, pool, socket, &mut batch.drain(..));
            }
            batch.clear();
        }
        let _ = lane.udp_take_error(socket);
    }

    fn send(&mut self, pool: &Pool, bytes: &mut Bytes<'_>, choice: usize) {
        let to = bytes.u8();
        let len = usize::from(bytes.u16()) % 2100;
        let Some((lane, socket)) = self.socket(choice) else { return };
        let ip: IpAddr = match to & 7 {
            0 => PEER_V4.into(),
            1 => PEER_V6.into(),
            2 => Ipv4Addr::new(10, 0, 0, to).into(),
            3 => Ipv4Addr::BROADCAST.into(),
            4 => Ipv4Addr::new(239, 0, 0, 1).into(),
            5 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).into(),
            6 if to & 64 != 0 => Ipv4Addr::new(10, 0, 20 + (to >> 3 & 7), 9).into(),
            6 => Ipv4Addr::new(8, 8, 8, 8).into(),
            _ => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, to.into()).into(),
        };
        let destination = (to & 128 == 0).then_some(Endpoint::new(ip, 9));
        let _ = self.lanes[lane].udp_send(self.now, pool, socket, &vec![to; len], None, destination);
    }

    /// Takes what the lanes want to send, and looks at it.
    fn output(&mut self, pool: &Pool) -> Vec<Frame> {
        self.settle(pool);
        let mut all = Vec::new();
        for lane in &mut self.lanes {
            while let Some(frame) = lane.poll_output(self.now, pool) {
                if frame.is_chained() {
                    check_output(&frame.chunks().collect::<Vec<_>>().concat(), self.vlan);
                } else {
                    check_output(frame.data(), self.vlan);
                }
                all.push(frame);
            }
        }
        all
    }

    /// Receives everything, lets every timer run out.
    fn finish(mut self, pool: &Pool) {
        self.held.clear();
        for _ in 0..200 {
            let idle = self.output(pool).is_empty() && self.lanes.iter().all(|l| l.poll_at().is_none());
            if idle {
                break;
            }
            self.wait(pool, Duration::from_secs(1));
        }
        drop(self.output(pool));
        for (lane, socket) in self.sockets.clone() {
            self.receive(pool, lane, socket, false);
        }
        let delivered: u64 = self.lanes.iter().map(|l| l.stats().udp.delivered).sum();
        assert_eq!(delivered, self.received, "delivered and received differ");
    }
}

fn frame(pool: &Pool, bytes: &[u8]) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    frame.extend_from_slice(bytes).then_some(frame)
}

/// IGMP has no counters of its own: what is read is answered or ignored, and only IP has counted it.
fn is_igmp(bytes: &[u8], class: Class) -> bool {
    let packet = match (class, EthernetHeader::parse(bytes)) {
        (Class::Ethernet | Class::InnerEthernet, Ok((header, payload)))
            if header.ethertype == EtherType::IPV4 =>
        {
            &bytes[payload]
        }
        (Class::IpDirect | Class::InnerIp, _) => bytes,
        _ => return false,
    };
    Ipv4Header::parse_trusted(packet).is_ok_and(|(ip, _)| ip.protocol == IpProtocol::IGMP)
}

/// One of the good packets, by number, with up to `changes` bytes of it replaced and perhaps cut short.
fn changed(bytes: &mut Bytes<'_>, changes: usize) -> Vec<u8> {
    let mut packet = packets(|all| all[usize::from(bytes.u8()) % all.len()].clone());
    for _ in 0..changes {
        let (at, value) = (usize::from(bytes.u8()), bytes.u8());
        if at == 255 {
            packet.truncate(usize::from(value));
        } else if at < packet.len() {
            packet[at] = value;
        }
    }
    packet
}

/// A tunnel of every kind to the peer, and one within another. Inside we have our own addresses once more.
fn tunnels() -> Vec<TunnelConfig> {
    let v4 = |kind| TunnelConfig::new(kind, US_V4.into(), PEER_V4.into());
    let within = |n: u8| -> (IpAddr, IpAddr) {
        (Ipv4Addr::new(10, 0, n, 2).into(), Ipv4Addr::new(10, 0, n, 1).into())
    };
    let (local, remote) = within(22);
    let all = [
        v4(TunnelKind::IpInIp),
        TunnelConfig::new(TunnelKind::IpInIp, US_V6.into(), PEER_V6.into()),
        TunnelConfig {
            checksum: Some(true),
            mtu: Some(1500),
            ..v4(TunnelKind::Gre { key: Some(1), ethernet: false })
        },
        v4(TunnelKind::vxlan(5)),
        TunnelConfig::new(TunnelKind::geneve(5), US_V6.into(), PEER_V6.into()),
        TunnelConfig::new(TunnelKind::Gre { key: None, ethernet: true }, local, remote),
    ];
    let inside = |(i, t): (usize, TunnelConfig)| {
        let own = Ipv4Addr::new(10, 0, 20 + i as u8, 2);
        TunnelConfig {
            mac: Some(OUR_MAC),
            addresses: Prefix::new(own.into(), 24).into_iter().collect(),
            claimed: vec![Prefix::host(US_V4.into()), Prefix::host(US_V6.into())],
            ..t
        }
    };
    all.into_iter().enumerate().map(inside).collect()
}

fn check_output(bytes: &[u8], vlan: Option<u16>) {
    let Ok((ethernet, payload)) = EthernetHeader::parse(bytes) else { panic!("sent {bytes:02x?}") };
    assert_eq!(ethernet.vlan.map(|t| t.vid()), vlan);
    assert_eq!(ethernet.src, OUR_MAC);
    assert!(payload.len() <= usize::from(MTU), "sent a packet of {} bytes", payload.len());
    let packet = &bytes[payload];
    match ethernet.ethertype {
        EtherType::ARP => assert!(ArpPacket::parse(packet).is_ok(), "sent {packet:02x?}"),
        EtherType::IPV4 => {
            let Ok((ip, range)) = Ipv4Header::parse(packet) else { panic!("sent {packet:02x?}") };
            if ip.is_fragment() {
                return;
            }
            let payload = &packet[range];
            let pseudo = ip.pseudo_sum(payload.len() as u16);
            match ip.protocol {
                // A tunnel's, without checksum (RFC 7348 section 5).
                IpProtocol::UDP if payload[2..4] == [0x12, 0xb5] && payload[6..8] == [0, 0] => {}
                IpProtocol::UDP => assert!(udp::intact(pseudo, payload), "sent {packet:02x?}"),
                IpProtocol::TCP => assert!(tcp::intact(pseudo, payload), "sent {packet:02x?}"),
                IpProtocol::ICMP => assert!(Icmpv4Message::parse(payload).is_ok(), "sent {packet:02x?}"),
                _ => {}
            }
        }
        EtherType::IPV6 => {
            let Ok((ip, range)) = Ipv6Header::parse(packet) else { panic!("sent {packet:02x?}") };
            let packet = &packet[..range.end];
            let Ok(upper) = ipv6_ext::walk(packet, ip.next_header) else { panic!("sent {packet:02x?}") };
            if upper.fragment.is_some_and(|f| !f.is_atomic()) {
                return;
            }
            let payload = &packet[upper.offset..];
            let pseudo = ip.pseudo_sum(upper.protocol, payload.len() as u32);
            match upper.protocol {
                IpProtocol::UDP => assert!(udp::intact(pseudo, payload), "sent {packet:02x?}"),
                IpProtocol::TCP => assert!(tcp::intact(pseudo, payload), "sent {packet:02x?}"),
                IpProtocol::ICMPV6 => {
                    assert!(Icmpv6Message::parse(ip.src, ip.dst, payload).is_ok(), "sent {packet:02x?}");
                }
                _ => {}
            }
        }
        other => panic!("sent a frame of type {other}"),
    }
}
