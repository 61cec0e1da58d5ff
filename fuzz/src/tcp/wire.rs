//! What is on its way between the two engines, and the rules that hold for it.

use core::net::IpAddr;
use core::time::Duration;

use flowlane_stack::packet::{Cx, IpInput, IpMeta, IpOutput};
use flowlane_stack::tcp::{State, Tcp};
use flowlane_stack::wire::{IpProtocol, Sum, TcpHeader, tcp};
use flowlane_sys::frame::{Checksum, Frame, Pool, Segmentation};

use super::{CONNECTIONS, End, MOST, MTU, Net, TIME_WAITS};
use crate::bytes::Bytes;

/// Packets on the wire at most; the oldest is lost.
const ON_THE_WIRE: usize = 64;
/// Segments that an engine may have to say at once.
const TALK: usize = 20_000;

/// Both directions in one list.
#[derive(Debug, Default)]
pub(super) struct Wire {
    packets: Vec<Packet>,
    /// Header bytes of the last segment of each direction, for forgeries that nearly fit.
    last: [Option<[u8; 20]>; 2],
}

/// One packet for the engine `to`.
#[derive(Debug)]
pub(super) struct Packet {
    to: usize,
    frame: Frame,
    src: IpAddr,
    dst: IpAddr,
    traffic_class: u8,
}

fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> Sum {
    match (src, dst) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Sum::pseudo_v4(a, b, IpProtocol::TCP, len as u16),
        (IpAddr::V6(a), IpAddr::V6(b)) => Sum::pseudo_v6(a, b, IpProtocol::TCP, len as u32),
        _ => panic!("two families in one packet"),
    }
}

fn frame_of(pool: &Pool, bytes: &[u8]) -> Option<Frame> {
    let mut frame = pool.alloc()?;
    frame.extend_from_slice(bytes).then_some(frame)
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        self.frame.chunks().collect::<Vec<_>>().concat()
    }

    /// With `changes` of its bytes replaced, perhaps cut short or marked, and its checksum put right again.
    pub(super) fn changed(mut self, pool: &Pool, bytes: &mut Bytes<'_>, changes: usize) -> Packet {
        if changes == 0 {
            return self;
        }
        let mut all = self.bytes();
        for _ in 0..changes {
            let (at, value) = (usize::from(bytes.u8()), bytes.u8());
            match at {
                255 => all.truncate(usize::from(value)),
                254 => self.traffic_class = value,
                _ if at < all.len() => all[at] = value,
                _ => {}
            }
        }
        if all.len() >= 20 {
            tcp::fill_checksum(pseudo(self.src, self.dst, all.len()), &mut all);
        }
        if let Some(mut frame) = frame_of(pool, &all) {
            *frame.meta_mut() = *self.frame.meta();
            frame.meta_mut().checksum = Checksum::InPacket;
            self.frame = frame;
        }
        self
    }
}

impl Wire {
    fn index(&self, which: u8) -> Option<usize> {
        (!self.packets.is_empty()).then(|| usize::from(which) % self.packets.len())
    }

    pub(super) fn take(&mut self, which: u8) -> Option<Packet> {
        self.index(which).map(|at| self.packets.remove(at))
    }

    /// The same packet once more, if it fits one frame and there is one.
    pub(super) fn copy(&self, pool: &Pool, which: u8) -> Option<Packet> {
        let packet = &self.packets[self.index(which)?];
        let mut frame = frame_of(pool, &packet.bytes())?;
        *frame.meta_mut() = *packet.frame.meta();
        Some(Packet { frame, ..*packet })
    }

    /// The first bytes of a packet from `local` for an ICMP error.
    pub(super) fn quote(&self, which: u8, local: IpAddr) -> Option<[u8; 8]> {
        let packet = &self.packets[self.index(which)?];
        if packet.src != local { None } else { packet.frame.data().first_chunk::<8>().copied() }
    }

    /// A segment like the last one in a direction, with other flags, numbers a little off, any window, options and
    /// payload.
    pub(super) fn forge(&self, pool: &Pool, bytes: &mut Bytes<'_>, ip: [IpAddr; 2]) -> Option<Packet> {
        let choice = bytes.u8();
        let to = usize::from(choice & 1);
        let mut header = self.last[to]?;
        let word = |h: &[u8; 20], at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        header[13] = bytes.u8();
        let off = [bytes.u16() as i16, bytes.u16() as i16].map(|n| i32::from(n) as u32);
        let stretch = if choice & 2 == 0 { 0 } else { 8 };
        for (at, off) in [(4, off[0]), (8, off[1])] {
            let moved = word(&header, at).wrapping_add(off << stretch);
            header[at..at + 4].copy_from_slice(&moved.to_be_bytes());
        }
        header[14..16].copy_from_slice(&bytes.u16().to_be_bytes());
        let options = bytes.take(usize::from(choice >> 4) * 4 % 44).to_vec();
        let words = options.len().div_ceil(4);
        header[12] = if choice & 4 == 0 { (5 + words as u8) << 4 } else { choice };
        let len = usize::from(bytes.u16()) % 1500;
        let mut all = header.to_vec();
        all.extend(&options);
        all.resize(20 + words * 4 + len, 7);
        tcp::fill_checksum(pseudo(ip[1 - to], ip[to], all.len()), &mut all);
        let frame = frame_of(pool, &all)?;
        Some(Packet { to, frame, src: ip[1 - to], dst: ip[to], traffic_class: choice >> 6 })
    }

    fn put(&mut self, from: usize, out: IpOutput) {
        if let Some(header) = out.frame.data().first_chunk::<20>() {
            self.last[1 - from] = Some(*header);
        }
        if self.packets.len() >= ON_THE_WIRE {
            self.packets.remove(0);
        }
        let IpOutput { frame, src, dst, traffic_class, .. } = out;
        self.packets.push(Packet { to: 1 - from, frame, src, dst, traffic_class });
    }
}

/// What an engine puts out can be read, is intact and fits.
fn check_output(out: &IpOutput) {
    let whole: Vec<u8>;
    let bytes = if out.frame.is_chained() {
        whole = out.frame.chunks().collect::<Vec<_>>().concat();
        &whole
    } else {
        out.frame.data()
    };
    assert!(TcpHeader::parse(bytes).is_ok(), "sent {bytes:02x?}");
    let meta = out.frame.meta();
    if meta.checksum == Checksum::InPacket {
        assert!(tcp::intact(pseudo(out.src, out.dst, bytes.len()), bytes), "a wrong checksum");
    }
    let header = if out.src.is_ipv4() { 20 } else { 40 };
    let cut = meta.segmentation != Segmentation::None;
    assert!(cut || bytes.len() + header <= usize::from(MTU), "sent {} bytes", bytes.len());
    assert!(!cut || meta.segment_size > 0 && bytes.len() <= 65_535 - header);
}

impl Net<'_> {
    /// Everything the engines have to say goes onto the wire.
    pub(super) fn transmit(&mut self) {
        for host in 0..2 {
            let mut count = 0;
            while let Some(out) = self.on(host, Tcp::poll_output) {
                check_output(&out);
                self.wire.put(host, out);
                count += 1;
                assert!(count < TALK, "an engine that does not stop talking");
            }
        }
    }

    /// Arrives alone.
    pub(super) fn arrive(&mut self, packet: Packet) {
        self.give(packet, Tcp::input);
    }

    fn give(&mut self, packet: Packet, how: fn(&mut Tcp, &mut Cx<'_>, IpInput)) {
        let ip = IpMeta {
            src: packet.src,
            dst: packet.dst,
            protocol: IpProtocol::TCP.0,
            hop_limit: 64,
            traffic_class: packet.traffic_class,
            header_len: if packet.src.is_ipv4() { 20 } else { 40 },
            interface: 0,
            mtu: MTU,
            unicast: true,
        };
        crate::count::one_more();
        self.on(packet.to, |tcp, cx| how(tcp, cx, IpInput { frame: packet.frame, ip }));
    }

    /// What is on the wire arrives, in order, as one burst at each end.
    pub(super) fn all_arrive(&mut self) {
        for packet in std::mem::take(&mut self.wire.packets) {
            self.give(packet, Tcp::input_in_burst);
        }
        for host in 0..2 {
            self.on(host, Tcp::end_burst);
        }
        self.transmit();
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now += duration;
        for host in 0..2 {
            for round in 0.. {
                if self.hosts[host].tcp.next_deadline().is_none_or(|at| at > self.now) {
                    break;
                }
                self.on(host, Tcp::on_timer);
                assert!(round < 100_000, "a timer that stays due");
            }
        }
    }

    /// What holds between any two operations.
    pub(super) fn check(&self) {
        for host in &self.hosts {
            let (tcp, config) = (&host.tcp, &host.config);
            assert!(tcp.connections() <= CONNECTIONS, "{} connections", tcp.connections());
            assert!(tcp.time_waits() <= TIME_WAITS, "{} TIME-WAIT records", tcp.time_waits());
            // One segment in order is taken whatever the lane holds, for each connection.
            let most = config.max_memory + CONNECTIONS * (64 << 10);
            assert!(tcp.buffer_memory() <= most, "{} bytes of buffers", tcp.buffer_memory());
            for (id, info) in tcp.list() {
                assert!(info.in_flight <= info.outstanding + 1, "{info:?}");
                assert!(info.sacked + info.lost <= info.outstanding + 1, "{info:?}");
                assert!(info.state == State::Closed || info.cwnd > 0, "{info:?}");
                assert!(id.as_u64() >> 32 <= u64::from(u32::MAX));
            }
        }
    }

    /// The wire is whole again: if nothing was broken, every byte arrives. Then all is closed and forgotten.
    pub(super) fn finish(&mut self) {
        self.held.clear();
        if !self.broken {
            self.bring_over();
        }
        for host in 0..2 {
            for End { id, .. } in std::mem::take(&mut self.hosts[host].ends) {
                assert!(self.on(host, |tcp, cx| tcp.close(cx, id)).is_ok());
            }
            if let Some(listener) = self.hosts[host].listener.take() {
                assert!(self.on(host, |tcp, cx| tcp.close_listener(cx, listener)).is_ok());
            }
        }
        self.transmit();
        // Nothing is heard any more: time alone must end everything. A lane that is short of memory looks for it many times a
        // second, so time passes in seconds.
        for _ in 0..3000 {
            self.wire.packets.clear();
            let next = self.hosts.iter().filter_map(|h| h.tcp.next_deadline()).min();
            let Some(next) = next else { break };
            self.wait(next.saturating_duration_since(self.now).max(Duration::from_secs(1)));
            self.transmit();
        }
        self.wire.packets.clear();
        // The last of them are gone, and with them what they held of send buffers: seen when the lanes look next.
        for host in 0..2 {
            self.on(host, Tcp::on_timer);
        }
        for host in &self.hosts {
            let left: Vec<_> = host.tcp.list().collect();
            assert!(left.is_empty(), "for ever: {left:?}");
            assert_eq!((host.tcp.time_waits(), host.tcp.buffer_memory()), (0, 0));
        }
    }

    /// Reads at both ends, with a whole wire, until all that was written has come.
    fn bring_over(&mut self) {
        for _ in 0..4000 {
            self.all_arrive();
            for host in 0..2 {
                self.accept(host);
                for n in 0..self.hosts[host].ends.len() {
                    let end = &self.hosts[host].ends[n];
                    let ready = self.hosts[host].tcp.readiness(end.id).is_ok_and(|ready| ready.readable);
                    if ready && !end.over && !end.failed {
                        self.read(host, n, MOST);
                    }
                }
            }
            self.transmit();
            if self.wire.packets.is_empty() {
                if self.all_read() {
                    return;
                }
                // Round trips of many seconds on the bad wire make timeouts of minutes.
                let next = self.hosts.iter().filter_map(|h| h.tcp.next_deadline()).min();
                let left = next.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.now));
                self.wait(left.max(Duration::from_millis(100)));
                self.transmit();
            }
        }
        let ends: Vec<_> = self.hosts.iter().map(|h| (&h.ends, h.tcp.list().collect::<Vec<_>>())).collect();
        panic!("bytes that never come: {ends:#?}");
    }

    /// Whether each stream whose two ends are known has come over, and its end if it was ended. What failed, as when an
    /// end gave up during a long silence, does not count.
    fn all_read(&self) -> bool {
        (0..2).all(|host| {
            self.hosts[host].ends.iter().all(|end| {
                let mut others = self.hosts[1 - host].ends.iter().filter(|o| o.key == end.key);
                let twins = self.hosts[host].ends.iter().filter(|o| o.key == end.key).count();
                match (others.next(), others.next(), twins) {
                    (Some(o), None, 1) => {
                        end.failed || o.failed || o.read == end.written && (!end.shut || o.over)
                    }
                    _ => true,
                }
            })
        })
    }
}
