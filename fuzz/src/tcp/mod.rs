//! Two TCP engines on a wire that a fuzzer holds: it says who connects, writes, reads and closes, which packet arrives
//! when, twice, never or changed, what strangers send, and how time passes. Bytes are operations; see [`Op`].
//!
//! What always holds:
//!
//! * no panic;
//! * every segment that comes out can be read, its checksum is right unless it was left to the link, and it fits the MTU
//!   unless it is to be cut;
//! * an engine falls silent, and a timer does not stay due;
//! * connections, TIME-WAIT records and buffer memory stay within their bounds, and what a connection says of itself
//!   adds up;
//! * as long as nothing was forged or changed, bytes are read as they were written, and once the wire is whole
//!   again all of them arrive;
//! * in the end nothing is left: no connection, no memory, every frame back in the pool.

mod wire;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use std::net::Shutdown;

use flowlane_stack::PathMtus;
use flowlane_stack::packet::{Cx, IcmpError, IcmpErrorKind, Offload};
use flowlane_stack::rng::Rng;
use flowlane_stack::tcp::{
    Algorithm, BufferSize, ConnId, ConnectOptions, Ecn, FastOpen, FastOpenListen, FirstData, Keepalive,
    ListenOptions, ListenerId, RecvError, SendError, SocketOptions, SynCookies, Tcp, TcpConfig,
};
use flowlane_stack::time::Time;
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use crate::bytes::Bytes;
use wire::Wire;

const FRAMES: usize = 512;
const MTU: u16 = 1500;
const PORT: u16 = 80;
const CONNECTIONS: usize = 6;
const TIME_WAITS: usize = 3;

/// What one operation does; the low four bits of its first byte. The high four choose the engine and a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Begins a connection from one of four ports (one byte), with some data if Fast Open is on.
    Connect = 0,
    /// Writes (two bytes of length).
    Write = 1,
    /// Reads (two bytes of length); with nothing else, also a look ahead.
    Read = 2,
    /// Accepts what waits.
    Accept = 3,
    /// One byte says which packet on the wire arrives.
    Arrive = 4,
    /// Which is lost.
    Lose = 5,
    /// Which arrives and stays as well.
    Double = 6,
    /// Which arrives changed: then pairs of place and value.
    Change = 7,
    /// A segment nobody sent: flags, places relative to the last packet seen, window, length, options.
    Forge = 8,
    /// Two bytes of milliseconds pass.
    Wait = 9,
    /// Ends a direction, the connection, or everything at once (one byte).
    Close = 10,
    /// Options of a socket (two bytes).
    Options = 11,
    /// An ICMP error (two bytes) about a packet on the wire.
    Icmp = 12,
    /// Frames are kept from the pool, or given back.
    Hold = 13,
    /// Everything on the wire arrives, and what that leads to, for some rounds.
    Settle = 14,
    /// The listener is closed or opened.
    Listen = 15,
}

/// Bytes of one operation, for seeds.
#[must_use]
pub fn op(op: Op, high: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![op as u8 | high << 4];
    bytes.extend(rest);
    bytes
}

thread_local! {
    static POOL: Pool = {
        let config =
            MemoryConfig { frames_per_home: FRAMES, homes: 1, lock: false, huge_pages: false, ..Default::default() };
        FrameMemory::new(&config).map(|m| m.attach(0).expect("a home of its own")).expect("memory")
    };
}

/// Three bytes of configuration, then operations to the end of the input.
pub fn run(data: &[u8]) {
    POOL.with(|pool| {
        let free = pool.free();
        let mut bytes = Bytes(data);
        let mut net = Net::new(pool, [bytes.u8(), bytes.u8(), bytes.u8()]);
        // Looking at every connection costs more than an operation: now and then, and in the end.
        for steps in 1.. {
            if bytes.is_empty() {
                break;
            }
            net.step(&mut bytes);
            if steps % 4 == 0 {
                net.check();
            }
        }
        net.check();
        net.finish();
        drop(net);
        assert_eq!(pool.free(), free, "frames were lost");
    });
}

/// One end of a stream: an application with a handle.
#[derive(Debug)]
struct End {
    id: ConnId,
    /// Which connection: client's address and its number, so that both ends name the same bytes.
    written: u64,
    read: u64,
    /// The peer closed in order.
    over: bool,
    failed: bool,
    shut: bool,
    key: u16,
}

struct Host {
    tcp: Tcp,
    ip: IpAddr,
    ends: Vec<End>,
    listener: Option<ListenerId>,
    config: TcpConfig,
}

struct Net<'a> {
    pool: &'a Pool,
    hosts: [Host; 2],
    wire: Wire,
    rng: Rng,
    paths: PathMtus,
    now: Time,
    offload: Offload,
    held: Vec<Frame>,
    fast_open: FastOpen,
    /// Something was forged or changed, or an end was thrown away: streams may be broken.
    broken: bool,
    /// Room for what is read, and for a look at it before.
    room: [Vec<u8>; 2],
}

/// Longest write and read.
const MOST: usize = 20_000;
/// After so many bytes a stream says the same again.
const PERIOD: usize = 65_521;

/// `len` bytes of the stream that a host writes, from byte `n` on: each stream begins at a place of its own in bytes that
/// were made once.
fn stream(host: usize, key: u16, n: u64, len: usize) -> &'static [u8] {
    static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let byte = |n: usize| ((n % PERIOD) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        (0..PERIOD + MOST).map(byte).collect()
    });
    let at = (n % PERIOD as u64) as usize + usize::from(key) * 977 + host * 30_011;
    &bytes[at % PERIOD..][..len]
}

fn config(choice: u8) -> TcpConfig {
    let small = BufferSize { initial: 4000, max: 9000 };
    TcpConfig {
        timestamps: choice & 1 == 0,
        sack: choice & 2 == 0,
        window_scaling: choice & 4 == 0,
        ecn: if choice & 8 == 0 { Ecn::Request } else { Ecn::Off },
        congestion: match choice & 24 {
            0 | 8 => Algorithm::Cubic,
            16 => Algorithm::Prague,
            _ => Algorithm::NewReno,
        },
        syn_cookies: if choice & 32 == 0 { SynCookies::WhenFull } else { SynCookies::Always },
        recv_buffer: if choice & 64 == 0 { small } else { TcpConfig::default().recv_buffer },
        send_buffer: if choice & 64 == 0 { small } else { TcpConfig::default().send_buffer },
        max_memory: if choice & 128 == 0 { 1 << 20 } else { 24_000 },
        max_connections: CONNECTIONS,
        max_time_wait: TIME_WAITS,
        max_replies: 8,
        max_out_of_order: 12,
        retries: 6,
        ..TcpConfig::default()
    }
}

impl<'a> Net<'a> {
    fn new(pool: &'a Pool, [a, b, both]: [u8; 3]) -> Self {
        let ip: [IpAddr; 2] = if both & 1 == 0 {
            [Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into()]
        } else {
            [
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
            ]
        };
        let host = |n: usize, choice: u8| {
            let config = config(choice);
            let tcp = Tcp::new(config.clone(), [n as u64 + 1, 2, 3]);
            Host { tcp, ip: ip[n], ends: Vec::new(), listener: None, config }
        };
        let segmentation = if both & 4 == 0 { 0 } else { 10_000 };
        let mut net = Self {
            pool,
            hosts: [host(0, a), host(1, b)],
            wire: Wire::default(),
            rng: Rng::new(7),
            paths: PathMtus::new(7),
            now: Time::from_secs(1000),
            offload: Offload { checksum: both & 2 != 0, segmentation },
            held: Vec::new(),
            fast_open: match both >> 3 & 3 {
                0 => FastOpen::Off,
                1 => FastOpen::NoCookie,
                _ => FastOpen::Cookie,
            },
            broken: false,
            room: [vec![0; MOST], vec![0; MOST]],
        };
        net.listen(1);
        net
    }

    fn on<R>(&mut self, host: usize, what: impl FnOnce(&mut Tcp, &mut Cx<'_>) -> R) -> R {
        let (rng, paths) = (&mut self.rng, &mut self.paths);
        let mut cx = Cx { now: self.now, frames: self.pool, rng, paths, offload: self.offload };
        what(&mut self.hosts[host].tcp, &mut cx)
    }

    fn listen(&mut self, host: usize) {
        let told = FastOpenListen { pending: 2, no_cookie: self.fast_open == FastOpen::NoCookie, keys: None };
        let fast_open = (self.fast_open != FastOpen::Off).then_some(told);
        let options = ListenOptions { backlog: 3, syn_backlog: 2, fast_open, ..ListenOptions::default() };
        self.hosts[host].listener = self.hosts[host].tcp.listen(None, PORT, options).ok();
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let first = bytes.u8();
        let (host, n) = (usize::from(first >> 7), usize::from(first >> 4 & 7));
        match first & 15 {
            0 => self.connect(host, bytes.u8()),
            1 => {
                let len = bytes.u16();
                self.write(host, n, usize::from(len) % MOST);
            }
            2 => {
                let len = bytes.u16();
                self.read(host, n, 1 + usize::from(len) % MOST);
            }
            3 => self.accept(host),
            4..=7 => {
                let which = bytes.u8();
                let changes = if first & 15 == 7 { n + 1 } else { 0 };
                self.broken |= changes > 0;
                let packet = match first & 15 {
                    5 => return drop(self.wire.take(which)),
                    6 => self.wire.copy(self.pool, which),
                    _ => self.wire.take(which),
                };
                if let Some(packet) = packet {
                    self.arrive(packet.changed(self.pool, bytes, changes));
                }
            }
            8 => {
                self.broken = true;
                if let Some(packet) = self.wire.forge(self.pool, bytes, [self.hosts[0].ip, self.hosts[1].ip])
                {
                    self.arrive(packet);
                }
            }
            9 => self.wait(Duration::from_millis(bytes.u16().into())),
            10 => self.close(host, n, bytes.u8()),
            11 => self.options(host, n, bytes.u8(), bytes.u8()),
            12 => self.icmp(host, bytes),
            13 if n == 0 => self.held.clear(),
            13 => self.held.extend(std::iter::from_fn(|| self.pool.alloc()).take(n * 60)),
            14 => (0..=n).for_each(|_| self.all_arrive()),
            _ => match self.hosts[host].listener.take() {
                None => self.listen(host),
                Some(listener) => {
                    // What nobody accepted is reset.
                    self.broken = true;
                    assert!(self.on(host, |tcp, cx| tcp.close_listener(cx, listener)).is_ok());
                }
            },
        }
        self.transmit();
    }

    fn connect(&mut self, host: usize, which: u8) {
        let port = 1000 + u16::from(which & 3) + 10 * host as u16;
        let (local, remote) =
            (SocketAddr::new(self.hosts[host].ip, port), SocketAddr::new(self.hosts[1 - host].ip, PORT));
        let socket = SocketOptions { fast_open: self.fast_open, ..SocketOptions::default() };
        let options = ConnectOptions { mtu: MTU, socket, ..ConnectOptions::default() };
        let first = stream(host, port, 0, usize::from(which >> 2) * 30);
        let data = FirstData { bytes: first, rest_follows: which & 4 != 0 };
        if let Ok((id, taken)) = self.on(host, |tcp, cx| tcp.connect_with(cx, local, remote, &options, data))
        {
            self.hosts[host].ends.push(End { written: taken as u64, ..End::new(id, port) });
        }
    }

    fn accept(&mut self, host: usize) {
        let Some(listener) = self.hosts[host].listener else { return };
        while let Ok(Some(accepted)) = self.hosts[host].tcp.accept(listener) {
            self.hosts[host].ends.push(End::new(accepted.id, accepted.remote.port()));
        }
    }

    fn write(&mut self, host: usize, n: usize, len: usize) {
        let Some(at) = self.pick(host, n) else { return };
        let (id, key, from) = {
            let end = &self.hosts[host].ends[at];
            (end.id, end.key, end.written)
        };
        let bytes = stream(host, key, from, len);
        let result = self.on(host, |tcp, cx| tcp.send_with(cx, id, bytes, len.is_multiple_of(7)));
        let end = &mut self.hosts[host].ends[at];
        match result {
            Ok(n) => end.written += n as u64,
            Err(SendError::Failed(_)) => end.failed = true,
            Err(SendError::Stale) => panic!("a handle that was not given up is stale"),
            Err(_) => {}
        }
    }

    fn read(&mut self, host: usize, n: usize, len: usize) {
        let Some(at) = self.pick(host, n) else { return };
        let (id, key, from) = {
            let end = &self.hosts[host].ends[at];
            (end.id, end.key, end.read)
        };
        let [mut ahead, mut got] = std::mem::take(&mut self.room);
        let peeked = self.hosts[host].tcp.peek(id, &mut ahead[..len]);
        let result = self.on(host, |tcp, cx| tcp.recv(cx, id, &mut got[..len]));
        assert_eq!(peeked, result, "a look and a read say the same");
        let broken = self.broken;
        let end = &mut self.hosts[host].ends[at];
        match result {
            Ok(0) => end.over = true,
            Ok(n) => {
                assert_eq!(ahead[..n], got[..n]);
                assert!(!end.over, "bytes after the end");
                assert!(broken || got[..n] == *stream(1 - host, key, from, n), "wrong bytes");
                end.read += n as u64;
            }
            Err(RecvError::Failed(_)) => end.failed = true,
            Err(RecvError::Stale) => panic!("a handle that was not given up is stale"),
            Err(_) => {}
        }
        self.room = [ahead, got];
    }

    fn pick(&self, host: usize, n: usize) -> Option<usize> {
        let ends = self.hosts[host].ends.len();
        (ends > 0).then(|| n % ends)
    }

    fn close(&mut self, host: usize, n: usize, how: u8) {
        let Some(at) = self.pick(host, n) else { return };
        let id = self.hosts[host].ends[at].id;
        match how & 3 {
            0 => {
                self.hosts[host].ends[at].shut = true;
                assert!(self.on(host, |tcp, cx| tcp.shutdown(cx, id, Shutdown::Write)).is_ok());
                return;
            }
            1 => assert!(self.on(host, |tcp, cx| tcp.close(cx, id)).is_ok()),
            2 => assert!(self.on(host, |tcp, cx| tcp.abort(cx, id)).is_ok()),
            _ => {
                self.broken = true;
                assert!(self.on(host, |tcp, cx| tcp.shutdown(cx, id, Shutdown::Both)).is_ok());
                return;
            }
        }
        // Unread bytes are lost with it, and ports are used again.
        self.broken = true;
        self.hosts[host].ends.swap_remove(at);
        assert!(self.hosts[host].tcp.info(id).is_err(), "a handle that was given up");
    }

    fn options(&mut self, host: usize, n: usize, a: u8, b: u8) {
        let Some(at) = self.pick(host, n) else { return };
        let id = self.hosts[host].ends[at].id;
        let millis = |n: u8| Duration::from_millis(u64::from(n) * 40);
        let options = SocketOptions {
            nodelay: a & 1 != 0,
            cork: a & 2 != 0,
            keepalive: (a & 4 != 0).then(|| Keepalive {
                idle: millis(b),
                interval: millis(b / 2),
                probes: 2,
            }),
            user_timeout: (a & 8 != 0).then(|| millis(b)),
            linger: (a & 16 != 0).then(|| millis(b)),
            recv_buffer: (a & 32 != 0).then(|| u32::from(b) << 6),
            send_buffer: (a & 64 != 0).then(|| u32::from(b) << 6),
            tos: b,
            ..SocketOptions::default()
        };
        // An impatient end may give up while the wire is bad.
        self.broken |= a & 12 != 0;
        assert!(self.on(host, |tcp, cx| tcp.set_options(cx, id, &options)).is_ok());
        assert!(self.hosts[host].tcp.options(id).is_ok_and(|o| o.nodelay == options.nodelay));
    }

    fn icmp(&mut self, host: usize, bytes: &mut Bytes<'_>) {
        let (which, kind) = (bytes.u8(), bytes.u8());
        let Some(quoted) = self.wire.quote(which, self.hosts[host].ip) else { return };
        let kind = match kind & 7 {
            0 => IcmpErrorKind::PortUnreachable,
            1 => IcmpErrorKind::HostUnreachable,
            2 => IcmpErrorKind::Prohibited,
            3 => IcmpErrorKind::TimeExceeded,
            _ => IcmpErrorKind::PacketTooBig(u16::from(kind) << 3),
        };
        self.broken = true;
        let (local, remote) = (self.hosts[host].ip, self.hosts[1 - host].ip);
        let error = IcmpError { local, remote, protocol: 6, quoted, kind };
        self.on(host, |tcp, cx| tcp.icmp_error(cx, &error));
    }
}

impl End {
    fn new(id: ConnId, key: u16) -> Self {
        Self { id, written: 0, read: 0, over: false, failed: false, shut: false, key }
    }
}
