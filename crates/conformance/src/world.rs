//! The lane with its clock, its link and its sockets. Nothing here waits.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz};
use flowlane_stack::address::Prefix;
use flowlane_stack::packet::Offload;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::time::Time;
use flowlane_stack::udp::UdpConfig;
use flowlane_stack::{Class, InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};

use crate::counts::Counters;
use crate::descriptor::Descriptor;
use crate::flags::Network;
use crate::link::{self, OUR_MAC};
use crate::sysctl::{Settings, Source};

/// The lane and everything around it.
#[derive(Debug)]
pub(crate) struct World {
    network: Network,
    source: Source,
    pub(crate) settings: Settings,
    memory: FrameMemory,
    /// Frames for packets that do not fit into the usual ones: scripts send what a link would not carry.
    large: FrameMemory,
    lane: Option<Lane>,
    now: Time,
    /// Packets that have left, and when.
    outbox: VecDeque<(Vec<u8>, Time)>,
    /// Something happened that a sleeper may wait for.
    changed: bool,
    pub(crate) descriptors: BTreeMap<i32, Descriptor>,
    pub(crate) counters: Counters,
}

/// The lane's clock starts here, so that no difference to an earlier time is negative.
const START: Time = Time::from_secs(1000);
/// Frames of the pool. packetdrill locks all memory, so there are few; a script sends some hundred packets.
const FRAMES: usize = 1024;
const FRAME: usize = 2048;
/// Enough for any IP packet but the very largest.
const LARGE_FRAMES: usize = 32;
const LARGE_FRAME: usize = 65_536;
/// Longest packet that fits a usual frame, Ethernet header and headroom taken off.
const FITS: usize = FRAME - 256;
/// Threads that may call, each with frames of its own. packetdrill has two.
const THREADS: usize = 4;
/// Packets that may wait to be looked at.
const OUTBOX: usize = 16_384;

impl World {
    /// A world without sockets.
    pub(crate) fn new(network: Network, source: Source) -> Result<Self, String> {
        let frames = |frames_per_home, frame_size| {
            let config = MemoryConfig {
                frames_per_home,
                frame_size,
                homes: THREADS,
                huge_pages: false,
                lock: false,
                ..MemoryConfig::default()
            };
            FrameMemory::new(&config).map_err(|e| e.to_string())
        };
        let (memory, large) = (frames(FRAMES, FRAME)?, frames(LARGE_FRAMES, LARGE_FRAME)?);
        let settings = source.read();
        Ok(Self {
            network,
            source,
            settings,
            memory,
            large,
            lane: None,
            now: START,
            outbox: VecDeque::new(),
            changed: false,
            descriptors: BTreeMap::new(),
            counters: Counters::default(),
        })
    }

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Reads the namespace's settings again.
    pub(crate) fn refresh(&mut self) {
        self.settings = self.source.read();
        if let Some(lane) = &mut self.lane {
            lane.tcp_mut().configure(self.settings.tcp.clone());
        }
    }

    /// Makes an address ours, if no lane stands yet: the one that a script binds to may differ from that of the flags.
    pub(crate) fn claim(&mut self, address: IpAddr) {
        if self.lane.is_some() || address.is_unspecified() {
            return;
        }
        if !self.network.local.iter().any(|p| p.address() == address) {
            self.network.local.push(Prefix::host(address));
        }
    }

    /// The lane, made when it is first needed, with the time and the frames to call it with.
    pub(crate) fn lane(&mut self) -> (&mut Lane, Time, Rc<Pool>) {
        if self.lane.is_none() {
            self.settings = self.source.read();
        }
        let lane = self.lane.get_or_insert_with(|| new_lane(&self.network, &self.settings));
        (lane, self.now, pool_of(&self.memory))
    }

    /// Whether the lane has been needed yet.
    pub(crate) fn has_lane(&self) -> bool {
        self.lane.is_some()
    }

    /// When something is due.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.lane.as_ref().and_then(Lane::poll_at)
    }

    /// The clock goes to `time`, and what is due then happens.
    pub(crate) fn pass(&mut self, time: Time) {
        self.now = self.now.max(time);
        let Some(lane) = &mut self.lane else { return };
        if lane.poll_at().is_some_and(|due| due <= self.now) {
            lane.on_timer(self.now, &pool_of(&self.memory));
            self.changed = true;
            self.flush();
        }
    }

    /// Whether something happened since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// An IP packet arrives.
    pub(crate) fn input(&mut self, packet: &[u8]) -> bool {
        let from = if packet.len() <= FITS { &self.memory } else { &self.large };
        let frame = link::wrap(&pool_of(from), packet);
        let Some(frame) = frame else { return false };
        self.counters.came(packet, self.now);
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        lane.input(now, pool, frame, Class::Ethernet);
        self.flush();
        true
    }

    /// Takes what the lane wants to send. Questions for Ethernet addresses are answered on the spot.
    pub(crate) fn flush(&mut self) {
        self.flush_lane();
        self.follow_all();
    }

    /// Every socket's send side knows what has been sent and acknowledged.
    fn follow_all(&mut self) {
        if self.lane.is_none() {
            return;
        }
        let sockets: Vec<i32> = self.descriptors.keys().copied().collect();
        for fd in sockets {
            self.follow(fd);
        }
    }

    fn flush_lane(&mut self) {
        if !self.lane.as_ref().is_some_and(Lane::has_output) {
            return;
        }
        let pool = pool_of(&self.memory);
        // An answer may release packets, whose neighbour is known then: bounded all the same.
        for _ in 0..OUTBOX {
            let Some(lane) = &mut self.lane else { return };
            let Some(frame) = lane.poll_output(self.now, &pool) else { return };
            self.left(frame, &pool);
        }
    }

    fn left(&mut self, frame: Frame, pool: &Pool) {
        let bytes: Vec<u8> = frame.chunks().flatten().copied().collect();
        drop(frame);
        if let Some(answer) = link::answer(pool, &bytes) {
            if let Some(lane) = &mut self.lane {
                lane.input(self.now, pool, answer, Class::Ethernet);
            }
        } else if let Some(packet) = link::unwrap(&bytes)
            && self.outbox.len() < OUTBOX
        {
            self.counters.left(packet);
            self.outbox.push_back((packet.to_vec(), self.now));
        }
    }

    /// The next packet that has left.
    pub(crate) fn take_packet(&mut self) -> Option<(Vec<u8>, Time)> {
        self.outbox.pop_front()
    }
}

thread_local! {
    /// The pools that this thread has attached.
    static POOLS: RefCell<Vec<Rc<Pool>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread's pool of these frames.
///
/// # Panics
/// If more threads call than packetdrill has; the table turns that into an error of the call.
fn pool_of(memory: &FrameMemory) -> Rc<Pool> {
    POOLS.with_borrow_mut(|pools| {
        if let Some(pool) = pools.iter().find(|pool| pool.memory().is_same(memory)) {
            return pool.clone();
        }
        let pool = (0..THREADS).find_map(|home| memory.attach(home).ok()).map(Rc::new);
        let pool = pool.expect("no more threads than packetdrill has");
        pools.push(pool.clone());
        pool
    })
}

fn new_lane(network: &Network, settings: &Settings) -> Lane {
    let interface = InterfaceConfig {
        mac: OUR_MAC,
        mtu: network.mtu,
        addresses: network.local.clone(),
        claimed: Vec::new(),
        vlan: None,
        offload: Offload::default(),
    };
    let routes = network.gateways.iter().filter_map(|gateway| {
        let all: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        Some(Route { prefix: Prefix::new(all, 0)?, gateway: Some(*gateway), interface: 0 })
    });
    Lane::new(&LaneConfig {
        bucket: Bucket(0),
        rss: one_bucket(),
        interfaces: vec![interface],
        routes: routes.collect(),
        tunnels: Vec::new(),
        ip: Default::default(),
        udp: UdpConfig::default(),
        tcp: settings.tcp.clone(),
        reassembly: ReassemblyConfig::default(),
        // Not secret: the same script must give the same packets.
        seed: [1, 2, 3, 4],
    })
}

/// Everything belongs to the one lane.
fn one_bucket() -> Arc<Rss> {
    let table = Indirection::new(128, 1).expect("a power of two of slots, one bucket");
    let map = BucketMap::new(1, 1).expect("one bucket, one worker");
    Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map))
}

/// Microseconds since 1970 of the lane's time zero: some day, always the same.
const EPOCH_MICROS: i64 = 1_700_000_000_000_000;

/// A time as `gettimeofday` says it.
pub(crate) fn of_day(time: Time) -> i64 {
    EPOCH_MICROS + i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 2)
}

/// A time so many milliseconds from now; `None` for negative ones: no limit.
pub(crate) fn after_ms(now: Time, ms: i32) -> Option<Time> {
    u64::try_from(ms).ok().map(|ms| now + Duration::from_millis(ms))
}
