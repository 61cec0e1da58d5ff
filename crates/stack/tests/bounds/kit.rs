//! A lane's TCP, strangers who speak to it, and what all of it keeps.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flowlane_stack::PathMtus;
use flowlane_stack::packet::{Cx, IpInput, IpMeta, IpOutput, Offload};
use flowlane_stack::rng::Rng;
use flowlane_stack::tcp::{ConnId, DropReason, ListenOptions, ListenerId, Tcp, TcpConfig};
use flowlane_stack::time::Time;
use flowlane_stack::wire::{SeqNum, TcpFlags, TcpHeader, TcpOptions};
use flowlane_sys::frame::{Checksum, Frame, FrameMemory, MemoryConfig, Pool};
use flowlane_sys::heap::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The heap is everybody's: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn my_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Bytes beyond a bound that any lane may take: spare boxes and blocks, tables that double, lists that double, one packet.
pub(crate) const BESIDE: usize = 8 << 20;
/// Payload of a full segment.
pub(crate) const FULL: u32 = 1460;

/// Bytes that a frame costs: buffer and slot.
pub(crate) const FRAME: usize = 2048 + 128;

/// A stranger's end of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stranger {
    /// The next number that we send.
    iss: SeqNum,
    /// What the stranger expects next.
    ack: SeqNum,
    /// First unacknowledged number of the stranger's.
    pub(crate) una: SeqNum,
    /// Where the window ends.
    pub(crate) right: SeqNum,
    pub(crate) established: bool,
    pub(crate) reset: bool,
    /// It acknowledges nothing.
    pub(crate) deaf: bool,
    /// Bytes of ours that came.
    pub(crate) heard: u64,
}

pub(crate) struct World {
    pub(crate) tcp: Tcp,
    pub(crate) pool: Pool,
    rng: Rng,
    paths: PathMtus,
    pub(crate) now: Time,
    frames: usize,
    heap: usize,
    most: usize,
    pub(crate) listener: ListenerId,
    pub(crate) strangers: Vec<Stranger>,
}

/// Address and port of stranger `n`.
fn place(n: usize) -> (IpAddr, u16) {
    (IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + (n / 50_000) as u32)), 1024 + (n % 50_000) as u16)
}

impl World {
    /// A lane of `frames` frames, half of which may hold data, as a worker's runtime would have it.
    pub(crate) fn new(max_memory: usize, frames: usize, options: ListenOptions) -> Self {
        let memory =
            MemoryConfig { frames_per_home: frames, huge_pages: false, lock: false, ..Default::default() };
        let pool = FrameMemory::new(&memory).unwrap().attach(0).unwrap();
        let heap = Counting::in_use();
        let config = TcpConfig { max_memory, max_held: frames * 2048 / 2, ..TcpConfig::default() };
        let mut tcp = Tcp::new(config, [1, 2, 3]);
        let listener = tcp.listen(None, 80, options).unwrap();
        World {
            tcp,
            pool,
            rng: Rng::new(7),
            paths: PathMtus::new(7),
            now: Time::from_secs(100),
            frames,
            heap,
            most: 0,
            listener,
            strangers: Vec::new(),
        }
    }

    pub(crate) fn with<R>(&mut self, what: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        let Self { tcp, rng, paths, pool, now, .. } = self;
        what(tcp, &mut Cx { now: *now, frames: pool, rng, paths, offload: Offload::default() })
    }

    /// What the lane holds now: heap and frames. The test's own memory is taken off.
    pub(crate) fn held(&self) -> usize {
        let own = self.strangers.capacity() * size_of::<Stranger>();
        (Counting::in_use() - self.heap).saturating_sub(own) + (self.frames - self.pool.free()) * FRAME
    }

    /// The most of that so far.
    pub(crate) fn most(&mut self) -> usize {
        self.most = self.most.max(self.held());
        self.most
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.tcp.stats().dropped(reason)
    }

    /// A segment of stranger `n`, with `len` bytes of payload at `seq`; more than a frame holds is a chain, as offloads of links
    /// make them.
    fn segment(&self, n: usize, flags: TcpFlags, seq: SeqNum, len: u32) -> Frame {
        let s = &self.strangers[n];
        let syn = flags.contains(TcpFlags::SYN);
        let header = TcpHeader {
            src_port: place(n).1,
            dst_port: 80,
            seq,
            ack: if syn { SeqNum(0) } else { s.ack },
            flags,
            window: 1000,
            urgent: 0,
        };
        let options = TcpOptions {
            mss: syn.then_some(FULL as u16),
            sack_permitted: syn,
            window_scale: syn.then_some(7),
            ..TcpOptions::default()
        };
        let mut frame = self.pool.alloc().expect("a frame for what comes in");
        header.emit(&options, frame.push_back(20 + options.len()).unwrap());
        let mut left = len as usize;
        let n = left.min(frame.tailroom());
        frame.push_back(n).unwrap().fill(n as u8);
        left -= n;
        while left > 0 {
            let mut next = self.pool.alloc().expect("a frame for what comes in");
            next.reset(0);
            let n = left.min(2048);
            next.push_back(n).unwrap().fill(n as u8);
            left -= n;
            frame.append(next);
        }
        frame.meta_mut().checksum = Checksum::Verified;
        if len > FULL {
            frame.meta_mut().segment_size = FULL as u16;
        }
        frame
    }

    fn put(&mut self, n: usize, frame: Frame, burst: bool) {
        let ip = IpMeta {
            src: place(n).0,
            dst: US,
            protocol: 6,
            hop_limit: 60,
            traffic_class: 0,
            header_len: 20,
            interface: 0,
            mtu: 1500,
            unicast: true,
        };
        let packet = IpInput { frame, ip };
        if burst {
            self.with(|tcp, cx| tcp.input_in_burst(cx, packet));
        } else {
            self.with(|tcp, cx| tcp.input(cx, packet));
        }
    }

    /// Stranger `n` sends `len` bytes at `offset` from what is not acknowledged.
    pub(crate) fn send(&mut self, n: usize, offset: u32, len: u32) {
        self.say(n, offset, len, false);
    }

    /// The same within a burst, which [`World::end_burst`] ends.
    pub(crate) fn send_in_burst(&mut self, n: usize, offset: u32, len: u32) {
        self.say(n, offset, len, true);
    }

    fn say(&mut self, n: usize, offset: u32, len: u32, burst: bool) {
        let frame = self.segment(n, TcpFlags::ACK, self.strangers[n].una + offset, len);
        self.put(n, frame, burst);
        self.most();
    }

    pub(crate) fn end_burst(&mut self) {
        self.with(Tcp::end_burst);
        self.most();
    }

    /// Stranger `n` ends its stream.
    pub(crate) fn finish(&mut self, n: usize) {
        let frame = self.segment(n, TcpFlags::ACK | TcpFlags::FIN, self.strangers[n].una, 0);
        self.put(n, frame, false);
    }

    /// A further stranger's SYN, with data of Fast Open.
    pub(crate) fn send_syn(&mut self, data: u32) -> usize {
        let n = self.strangers.len();
        let iss = SeqNum(n as u32 ^ 0xffff_fff0);
        self.strangers.push(Stranger { una: iss + 1, right: iss + 1, ..Stranger::default() });
        let frame = self.segment(n, TcpFlags::SYN, iss, data);
        self.put(n, frame, false);
        self.most();
        n
    }

    /// Everything that the lane sends, to the strangers, who acknowledge.
    pub(crate) fn hear(&mut self) {
        let mut answers = Vec::new();
        while let Some(out) = self.with(Tcp::poll_output) {
            self.most = self.most.max(self.held());
            if let Some(n) = self.take(&out) {
                answers.push(n);
            }
            drop(out);
            if answers.len() > 64 {
                self.answer(&mut answers);
            }
        }
        self.answer(&mut answers);
    }

    fn answer(&mut self, answers: &mut Vec<usize>) {
        for n in answers.drain(..) {
            let frame = self.segment(n, TcpFlags::ACK, self.strangers[n].una, 0);
            self.put(n, frame, false);
        }
    }

    /// Whom a segment was for, if there is something to acknowledge.
    fn take(&mut self, out: &IpOutput) -> Option<usize> {
        let IpAddr::V4(dst) = out.dst else { panic!("IPv4 only") };
        let (header, data) = TcpHeader::parse(out.frame.data()).unwrap();
        let n = (dst.to_bits() - 0x0b00_0000) as usize * 50_000 + usize::from(header.dst_port) - 1024;
        let s = &mut self.strangers[n];
        if header.flags.contains(TcpFlags::RST) {
            s.reset = true;
            return None;
        }
        let syn = header.flags.contains(TcpFlags::SYN);
        if syn {
            s.iss = header.seq;
            s.ack = header.seq + 1;
            s.una = s.una.max(header.ack);
            s.right = header.ack + u32::from(header.window);
            let new = !s.established;
            s.established = true;
            return (new && !s.deaf).then_some(n);
        }
        s.una = s.una.max(header.ack);
        s.right = header.ack + (u32::from(header.window) << shift());
        let len =
            (out.frame.chain_len() - data.start) as u32 + u32::from(header.flags.contains(TcpFlags::FIN));
        s.heard += u64::from(len);
        if !s.deaf && len > 0 && header.seq == s.ack {
            s.ack = header.seq + len;
            return Some(n);
        }
        None
    }

    /// So many strangers whose handshakes are over, and whom the application accepted.
    pub(crate) fn connect(&mut self, count: usize) -> Vec<(usize, ConnId)> {
        let mut all = Vec::new();
        for _ in 0..count {
            let n = self.send_syn(0);
            self.hear();
            if let Some(accepted) = self.tcp.accept(self.listener).unwrap() {
                all.push((n, accepted.id));
            }
        }
        all
    }

    /// Lets time pass, event by event.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.hear();
        while let Some(next) = self.tcp.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.with(Tcp::on_timer);
            self.hear();
            self.most();
        }
        self.now = end;
    }

    /// How much stranger `n` may send.
    pub(crate) fn window(&self, n: usize) -> u32 {
        let s = &self.strangers[n];
        if s.right > s.una { s.right.since(s.una) } else { 0 }
    }

    pub(crate) fn window_total(&self) -> u64 {
        (0..self.strangers.len()).map(|n| u64::from(self.window(n))).sum()
    }

    /// Reads all there is; how much.
    pub(crate) fn read(&mut self, id: ConnId) -> usize {
        let mut buffer = [0; 8192];
        let mut all = 0;
        while let Ok(n) = self.with(|tcp, cx| tcp.recv(cx, id, &mut buffer)) {
            if n == 0 {
                break;
            }
            all += n;
        }
        all
    }

    /// All that was measured is within `bound`.
    pub(crate) fn check(&mut self, bound: usize) {
        let most = self.most();
        let (books, fixed) = (self.tcp.buffer_memory(), self.tcp.fixed_memory());
        println!("bound {bound}, most {most}, now {}, books {books} + {fixed}", self.held());
        assert!(
            most <= bound,
            "{most} bytes held where {bound} are allowed; the books say {books} + {fixed}"
        );
    }
}

/// What a lane with the default receive buffer shifts its windows by.
fn shift() -> u8 {
    7
}

pub(crate) fn many() -> ListenOptions {
    ListenOptions { backlog: 1 << 20, syn_backlog: 1 << 20, ..ListenOptions::default() }
}
