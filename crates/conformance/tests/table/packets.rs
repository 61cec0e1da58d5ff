//! A peer that makes and reads packets.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use flowlane_c::packetdrill::Caller;
use flowlane_stack::wire::{FastOpenOption, SeqNum, Sum, TcpFlags, TcpHeader, TcpOptions, tcp};

pub(crate) const FIN: TcpFlags = TcpFlags::FIN;
pub(crate) const SYN: TcpFlags = TcpFlags::SYN;
pub(crate) const RST: TcpFlags = TcpFlags::RST;
pub(crate) const PSH: TcpFlags = TcpFlags::PSH;
pub(crate) const ACK: TcpFlags = TcpFlags::ACK;
pub(crate) const URG: TcpFlags = TcpFlags::URG;

/// The other end of one connection.
pub(crate) struct Peer {
    pub(crate) own: SocketAddr,
    theirs: SocketAddr,
    next: SeqNum,
    received: SeqNum,
    /// Goes with our SYN-ACK.
    pub(crate) cookie: Option<FastOpenOption>,
}

impl Peer {
    pub(crate) fn new(own: SocketAddr, theirs: SocketAddr) -> Self {
        Self { own, theirs, next: SeqNum(5000), received: SeqNum(0), cookie: None }
    }

    /// The one that a SYN is meant for.
    pub(crate) fn answering(own: SocketAddr, syn: &[u8]) -> Self {
        let (header, source, len) = read(syn);
        assert!(header.flags.contains(SYN));
        let theirs = SocketAddr::new(source, header.src_port);
        Self { own, theirs, next: SeqNum(5000), received: header.seq + 1 + len as u32, cookie: None }
    }

    /// Three-way handshake.
    pub(crate) fn shake(&mut self, caller: &Caller) {
        self.send(caller, SYN, 0);
        let (packet, _) = caller.netdev_receive().unwrap();
        let (header, _, _) = read(&packet);
        assert!(header.flags.contains(SYN) && header.flags.contains(ACK), "{header:?}");
        assert_eq!(header.ack, self.next);
        self.received = header.seq + 1;
        self.send(caller, ACK, 0);
    }

    /// Sends a segment with so many zeros.
    pub(crate) fn send(&mut self, caller: &Caller, flags: TcpFlags, len: usize) {
        let options = TcpOptions {
            mss: flags.contains(SYN).then_some(1000),
            fast_open: self.cookie.filter(|_| flags.contains(SYN)),
            ..TcpOptions::default()
        };
        let header = TcpHeader {
            src_port: self.own.port(),
            dst_port: self.theirs.port(),
            seq: self.next,
            ack: if flags.contains(ACK) { self.received } else { SeqNum(0) },
            flags,
            window: 32_000,
            urgent: if flags.contains(URG) { len as u16 } else { 0 },
        };
        let mut segment = vec![0; tcp::HEADER_LEN + options.len() + len];
        header.emit(&options, &mut segment);
        let sum = match (self.own.ip(), self.theirs.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                Sum::pseudo_v4(a, b, flowlane_stack::wire::IpProtocol::TCP, segment.len() as u16)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                Sum::pseudo_v6(a, b, flowlane_stack::wire::IpProtocol::TCP, segment.len() as u32)
            }
            _ => panic!("one family"),
        };
        tcp::fill_checksum(sum, &mut segment);
        caller.netdev_send(&[self.ip_header(segment.len()), segment].concat()).unwrap();
        let control = u32::from(flags.contains(SYN)) + u32::from(flags.contains(FIN));
        self.next += len as u32 + control;
    }

    fn ip_header(&self, len: usize) -> Vec<u8> {
        match (self.own.ip(), self.theirs.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let mut h = vec![0; 20];
                h[0] = 0x45;
                h[2..4].copy_from_slice(&((len + 20) as u16).to_be_bytes());
                (h[8], h[9]) = (255, 6);
                h[12..16].copy_from_slice(&a.octets());
                h[16..20].copy_from_slice(&b.octets());
                let sum: u32 = h.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(c[1])).sum();
                let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                h[10..12].copy_from_slice(&sum.to_be_bytes());
                h
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mut h = vec![0; 40];
                h[0] = 0x60;
                h[4..6].copy_from_slice(&(len as u16).to_be_bytes());
                (h[6], h[7]) = (6, 255);
                h[8..24].copy_from_slice(&a.octets());
                h[24..40].copy_from_slice(&b.octets());
                h
            }
            _ => panic!("one family"),
        }
    }

    /// The next segment, which has these flags and so much data, and when it left.
    pub(crate) fn expect(&mut self, caller: &Caller, flags: TcpFlags, len: usize) -> i64 {
        let (packet, at) = caller.netdev_receive().unwrap();
        assert!(!packet.is_empty(), "no packet came");
        let (header, source, found) = read(&packet);
        assert_eq!((header.flags, found), (flags, len), "{header:?}");
        assert_eq!(source, self.theirs.ip());
        assert_eq!(header.ack, self.next, "it acknowledges everything");
        self.take(&packet);
        at
    }

    /// Has this packet.
    pub(crate) fn take(&mut self, packet: &[u8]) {
        let (header, _, len) = read(packet);
        let end = header.seq + len as u32 + u32::from(header.flags.contains(FIN));
        self.received = self.received.max(end);
    }
}

/// Header, source address and length of the data.
fn read(packet: &[u8]) -> (TcpHeader, IpAddr, usize) {
    let (source, segment) = match packet[0] >> 4 {
        4 => (IpAddr::from(<[u8; 4]>::try_from(&packet[12..16]).unwrap()), &packet[20..]),
        _ => (IpAddr::from(<[u8; 16]>::try_from(&packet[8..24]).unwrap()), &packet[40..]),
    };
    let (header, data) = TcpHeader::parse(segment).unwrap();
    (header, source, data.len())
}

/// Waits until a thread, named by what `/proc/thread-self` said to it, sleeps: how packetdrill finds out that a call waits.
pub(crate) fn until_asleep(thread: &Path) {
    let stat = Path::new("/proc").join(thread).join("stat");
    let asleep = || {
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
    };
    let begun = Instant::now();
    while !asleep() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the call does not sleep");
        std::thread::yield_now();
    }
}
