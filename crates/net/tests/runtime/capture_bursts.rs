//! Captures of bursts: segments of one flow that no capture wants are joined as if there were none, those that one wants are in its file one by
//! one, and what is dropped is said of the right one.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowlane::capture::{CaptureOptions, CaptureStatus};
use flowlane::link::{LinkInfo, Queue, QueueStats};
use flowlane::stats::Report;
use flowlane::wire::{
    ArpOperation, ArpPacket, EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv4Options, MacAddr, SeqNum,
    TcpFlags, TcpHeader, TcpOptions,
};
use flowlane::{Handle, Host, Interface, Key, Runtime, TcpDropReason, TcpListener, UdpFields, spawn};
use flowlane_sys::frame::{Checksum, Frame, Pool};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::traffic::{PATIENCE, rss};

const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THEM: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OURS: [u8; 4] = [10, 0, 0, 1];
const THEIRS: [u8; 4] = [10, 0, 0, 2];
/// Payload of a segment.
const SIZE: u32 = 100;
/// A stranger's first sequence number.
const ISS: SeqNum = SeqNum(u32::MAX - 300);

/// A link that brings a burst as it was put in, and keeps what leaves.
#[derive(Clone, Default)]
struct Bursts {
    come: Arc<Mutex<VecDeque<Vec<Vec<u8>>>>>,
    gone: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Queue for Bursts {
    fn receive(&mut self, pool: &Pool, into: &mut Vec<Frame>, max: usize) -> usize {
        let Some(burst) = self.come.lock().unwrap().pop_front() else { return 0 };
        assert!(burst.len() <= max, "a burst that is cut in two is another");
        for bytes in &burst {
            let mut frame = pool.alloc().unwrap();
            assert!(frame.extend_from_slice(bytes));
            frame.meta_mut().checksum = Checksum::Verified;
            into.push(frame);
        }
        burst.len()
    }

    fn room(&mut self) -> usize {
        64
    }

    fn transmit(&mut self, frames: &mut Vec<Frame>) -> usize {
        let mut gone = self.gone.lock().unwrap();
        gone.extend(frames.iter().map(|frame| frame.data().to_vec()));
        frames.drain(..).count()
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn ready(&mut self) -> bool {
        !self.come.lock().unwrap().is_empty()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn stats(&self) -> QueueStats {
        QueueStats::default()
    }
}

/// A stranger's end of a connection.
struct Stranger {
    /// The server's.
    port: u16,
    seq: SeqNum,
    ack: SeqNum,
    /// Bytes that the server must have read.
    sent: Vec<u8>,
}

impl Stranger {
    fn segment(&self, flags: TcpFlags, ack: SeqNum, payload: &[u8]) -> Vec<u8> {
        let tcp = TcpHeader {
            src_port: 1000,
            dst_port: self.port,
            seq: self.seq,
            ack,
            flags,
            window: 1000,
            urgent: 0,
        };
        let ip = Ipv4Header {
            src: THEIRS.into(),
            dst: OURS.into(),
            protocol: IpProtocol::TCP,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            payload_len: 20 + payload.len() as u16,
            options: Ipv4Options::default(),
        };
        let mut bytes = vec![0; 54];
        EthernetHeader { dst: US, src: THEM, ethertype: EtherType::IPV4, vlan: None }.emit(&mut bytes);
        ip.emit(&mut bytes[14..]);
        tcp.emit(&TcpOptions::default(), &mut bytes[34..]);
        bytes.extend(payload);
        bytes
    }

    /// The next data.
    fn data(&mut self) -> Vec<u8> {
        let payload: Vec<u8> =
            (0..SIZE).map(|n| (self.sent.len() as u32 + n).to_le_bytes()[0] ^ self.port as u8).collect();
        let segment = self.segment(TcpFlags::ACK, self.ack, &payload);
        self.sent.extend(payload);
        self.seq += SIZE;
        segment
    }

    /// Data where the next belong, with an acknowledgement of what was never sent: they are dropped.
    fn liar(&self) -> Vec<u8> {
        self.segment(TcpFlags::ACK, self.ack + 5000, &[b'!'; SIZE as usize])
    }
}

struct Net {
    handle: Handle,
    host: usize,
    bursts: Bursts,
    given: u64,
    joined: u64,
    dir: PathBuf,
}

impl Net {
    /// What workers say when this holds.
    fn until(&self, what: &str, mut holds: impl FnMut(&Report) -> bool) -> Report {
        let began = Instant::now();
        loop {
            // Each look is an answer of the worker, and wakes it.
            let report = self.handle.report();
            if holds(&report) {
                return report;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {report:?}");
        }
    }

    /// The lane has a burst; so many of its segments were joined to the one before.
    fn burst(&mut self, frames: Vec<Vec<u8>>) -> u64 {
        self.given += frames.len() as u64;
        self.bursts.come.lock().unwrap().push_back(frames);
        let report = self.until("a burst", |report| report.total(self.host).ethernet.received >= self.given);
        let joined = report.total(self.host).tcp.coalesced_received;
        joined - std::mem::replace(&mut self.joined, joined)
    }

    fn connect(&mut self, port: u16) -> Stranger {
        let mut stranger = Stranger { port, seq: ISS, ack: SeqNum(0), sent: Vec::new() };
        self.burst(vec![stranger.segment(TcpFlags::SYN, SeqNum(0), &[])]);
        let gone = self.bursts.gone.clone();
        self.until("a SYN's answer", |_| {
            let gone = gone.lock().unwrap();
            let answer = gone.iter().rev().filter_map(|frame| tcp_of(frame)).find(|tcp| tcp.src_port == port);
            stranger.ack = answer.map_or(stranger.ack, |tcp| tcp.seq + 1);
            answer.is_some_and(|tcp| tcp.flags.contains(TcpFlags::SYN))
        });
        stranger.seq = ISS + 1;
        self.burst(vec![stranger.segment(TcpFlags::ACK, stranger.ack, &[])]);
        stranger
    }

    /// A capture that all workers have begun.
    fn capture(&self, name: &str, flow: &str, drops_only: bool) -> (u64, PathBuf) {
        let path = self.dir.join(name);
        let mut options = CaptureOptions::new(&path);
        (options.flow, options.drops_only) = (Some(flow.parse().unwrap()), drops_only);
        let number = self.handle.capture(&options).unwrap();
        let _ = self.handle.report();
        (number, path)
    }

    /// Its end: what came in and was captured, and what the capture says of itself.
    fn end(&self, (number, path): (u64, PathBuf)) -> (Vec<Taken>, CaptureStatus) {
        let status = self.handle.stop_capture(number).unwrap();
        let all = read(&path);
        assert_eq!((all.len() as u64, status.missed), (status.frames, 0), "{status:?}");
        assert!(all.is_sorted_by_key(|taken| taken.time), "{all:?}");
        (all.into_iter().filter(|taken| !taken.what.starts_with("sent")).collect(), status)
    }
}

/// A frame in a file.
#[derive(Debug, Clone)]
struct Taken {
    time: Duration,
    port: u16,
    seq: SeqNum,
    what: String,
}

fn tcp_of(frame: &[u8]) -> Option<TcpHeader> {
    (frame.get(23) == Some(&6)).then(|| TcpHeader::parse(&frame[34..]).unwrap().0)
}

fn read(path: &Path) -> Vec<Taken> {
    let mut reader = PcapNgReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        let tcp = tcp_of(&packet.data).unwrap();
        let comment = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => text.split(';').next().map(str::to_owned),
            _ => None,
        });
        all.push(Taken { time: packet.timestamp, port: tcp.dst_port, seq: tcp.seq, what: comment.unwrap() });
    }
    all
}

/// Of a stranger's data from segment `first` on, what a capture of it says: received, in order.
fn received(stranger: &Stranger, segments: std::ops::Range<u32>) -> Vec<(u16, SeqNum, String)> {
    segments.map(|n| (stranger.port, ISS + 1 + n * SIZE, "received".to_owned())).collect()
}

fn plain(taken: &[Taken]) -> Vec<(u16, SeqNum, String)> {
    taken.iter().map(|taken| (taken.port, taken.seq, taken.what.clone())).collect()
}

/// A server of one lane that reads a stream on port 80 and one on port 81, and what it has read of each.
fn start() -> (Runtime, Net, [Arc<Mutex<Vec<u8>>>; 2]) {
    let dir = std::env::temp_dir().join(format!("flowlane-{}-bursts", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let heard: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
    let mut builder = Runtime::builder().workers(1).pin(false).seed(1).frames(512);
    let hears = heard.clone();
    let main = move || {
        let hears = hears.clone();
        async move {
            for (port, heard) in [80, 81].into_iter().zip(hears) {
                let listener = TcpListener::on_port(port).unwrap();
                let _ = spawn(async move {
                    let stream = listener.accept().await.unwrap();
                    let mut bytes = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut bytes).await {
                        heard.lock().unwrap().extend(&bytes[..n]);
                    }
                });
            }
            std::future::pending::<()>().await;
        }
    };
    let interface = Interface { addresses: vec!["10.0.0.1/24".parse().unwrap()], ..Interface::default() };
    let host = builder
        .host(Host::new("server", rss(Key::MICROSOFT, 1, 1, UdpFields::Two), main).interface(interface));
    let bursts = Bursts::default();
    let queue = bursts.clone();
    let open =
        move |_: &_, _| Ok((LinkInfo::new("bursts", US, 1500, 1), vec![Box::new(queue) as Box<dyn Queue>]));
    builder.link(host, 0, Box::new(open));
    let runtime = builder.start().unwrap();
    let net = Net { handle: runtime.handle(), host, bursts, given: 0, joined: 0, dir };
    (runtime, net, heard)
}

impl Net {
    /// The server learns our address from our question for its own.
    fn tell_address(&mut self) {
        let arp = ArpPacket {
            operation: ArpOperation::Request,
            sender_mac: THEM,
            sender_ip: THEIRS.into(),
            target_mac: MacAddr([0; 6]),
            target_ip: OURS.into(),
        };
        let mut bytes = vec![0; 60];
        EthernetHeader { dst: MacAddr::BROADCAST, src: THEM, ethertype: EtherType::ARP, vlan: None }
            .emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        self.burst(vec![bytes]);
    }
}

#[test]
fn captures_of_bursts_have_what_they_want_and_leave_the_rest_alone() {
    let (runtime, mut net, heard) = start();
    net.tell_address();
    let (mut a, mut b) = (net.connect(80), net.connect(81));

    // A burst of which the captures want nothing is joined.
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (all, drops) = (net.capture("all", "tcp *:81", false), net.capture("drops", "tcp *:81", true));
    assert_eq!(net.burst((0..8).map(|_| a.data()).collect()), 7);
    // Of this one they want some: others are joined between them, and no drop is taken for that of another. A's lie is held until B's data
    // come, and is dropped then.
    let burst = vec![
        a.data(),
        a.data(),
        a.data(),
        b.data(),
        a.data(),
        a.data(),
        b.liar(),
        a.liar(),
        b.data(),
        a.data(),
        a.data(),
        b.data(),
    ];
    assert_eq!(net.burst(burst), 4);
    let dropped = net.handle.report().total(net.host).tcp;
    let ((all, status), (drops, of_drops)) = (net.end(all), net.end(drops));
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let lie = (81, ISS + 1 + SIZE, "dropped: tcp ack_out_of_range".to_owned());
    let mut expected = received(&b, 0..3);
    expected.insert(1, lie.clone());
    assert_eq!(plain(&all), expected);
    assert_eq!(plain(&drops), [lie]);
    assert_eq!((status.dropped, of_drops.dropped, of_drops.frames), (1, 1, 1));
    assert_eq!(dropped.dropped(TcpDropReason::AckOutOfRange), 2);
    // A clock that is set meanwhile may be a little off.
    let slack = Duration::from_secs(1);
    assert!(
        all.iter().all(|taken| taken.time + slack >= began && taken.time <= ended + slack),
        "{began:?} {all:?} {ended:?}"
    );

    // Captures begin and end between the bursts of two streams: each has what came in its time, and what nobody wants is joined.
    let mut four = |net: &mut Net| {
        let burst = vec![a.data(), a.data(), b.data(), b.data()];
        net.burst(burst)
    };
    let of_b = net.capture("b", "tcp *:81", false);
    assert_eq!(four(&mut net), 1);
    let of_a = net.capture("a", "tcp *:80", false);
    assert_eq!(four(&mut net), 0);
    let (of_b, _) = net.end(of_b);
    assert_eq!(four(&mut net), 1);
    let (of_a, _) = net.end(of_a);
    assert_eq!(four(&mut net), 2);
    // Before, A had sent 15 segments, and B three.
    assert_eq!(plain(&of_b), received(&b, 3..7));
    assert_eq!(plain(&of_a), received(&a, 17..21));

    // Captured or not, joined or not: the application has every byte, in order.
    for (stranger, heard) in [a, b].iter().zip(&heard) {
        net.until("all bytes", |_| heard.lock().unwrap().len() >= stranger.sent.len());
        assert_eq!(*heard.lock().unwrap(), stranger.sent);
    }
    let _ = runtime.stop();
    std::fs::remove_dir_all(&net.dir).unwrap();
}
