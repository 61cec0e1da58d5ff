//! A lane driven by its caller, without workers, tasks or threads: for callers with their own event loop, such as C libraries.
//!
//! ```text
//!   loop {  turn: receive ▸ lane ▸ timers ▸ output ▸ flush        sockets, by handle: `lane`
//!           wait: until a packet comes, a timer is due, or the caller's time is over  }
//! ```
//!
//! All flows belong to this lane, so there is no steering. Sockets are those of [`Lane`], by handle; the caller checks their readiness
//! after each turn.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane_rss::{Bucket, BucketMap, HashConfig, Indirection, Key, Rss, Toeplitz};
use flowlane_stack::address::Prefix;
use flowlane_stack::packet::Offload;
use flowlane_stack::reassembly::ReassemblyConfig;
use flowlane_stack::tcp::TcpConfig;
use flowlane_stack::time::Time;
use flowlane_stack::udp::UdpConfig;
use flowlane_stack::{Class, InterfaceConfig, IpConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{Frame, FrameMemory, MemoryConfig, Pool};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::entropy;
use crate::link::Queue;
use crate::{Interface, OpenLink, StartError};

/// Frames taken from one queue in one turn.
const BURST: usize = 64;
/// How long until a link that took nothing is asked again.
const RETRY: Duration = Duration::from_millis(1);

/// Configuration of the lane of a poll loop.
#[derive(Debug, Clone, Default)]
pub struct PollConfig {
    /// Its addresses.
    pub interface: Interface,
    /// Routers for everything else, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// IP.
    pub ip: IpConfig,
    /// UDP.
    pub udp: UdpConfig,
    /// TCP.
    pub tcp: TcpConfig,
    /// Reassembly of fragments.
    pub reassembly: ReassemblyConfig,
    /// Frames; its number of homes is of no consequence.
    pub memory: MemoryConfig,
}

/// A lane, its link and its clock.
pub struct PollLoop {
    lane: Lane,
    queues: Vec<Box<dyn Queue>>,
    frames: Pool,
    /// What the link has not taken yet.
    output: Vec<Frame>,
    burst: Vec<Frame>,
    epoch: Instant,
    now: Time,
}

impl std::fmt::Debug for PollLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollLoop").field("queues", &self.queues.len()).finish_non_exhaustive()
    }
}

impl PollLoop {
    /// Opens a link ([`LinkSpec::open`](crate::link::LinkSpec::open)) and makes the lane, both for the calling thread alone.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(open: OpenLink, config: &PollConfig) -> Result<Self, StartError> {
        let memory = FrameMemory::new(&MemoryConfig { homes: 1, ..config.memory.clone() })?;
        let (info, queues) = open(&memory, 1)?;
        if queues.is_empty() {
            return Err(StartError::NoQueue(info.name));
        }
        let frames = memory.attach(0).map_err(|e| StartError::Thread(io::Error::other(e)))?;
        let mut seed = [0; 4];
        for word in &mut seed {
            *word = entropy::random_u64().map_err(StartError::Entropy)?;
        }
        let Interface { addresses, claimed, vlan } = config.interface.clone();
        let offload = Offload { checksum: info.checksum_offload, segmentation: info.segmentation };
        let interface = InterfaceConfig { mac: info.mac, mtu: info.mtu, addresses, claimed, vlan, offload };
        let lane = Lane::new(&LaneConfig {
            bucket: Bucket(0),
            rss: one_bucket()?,
            interfaces: vec![interface],
            routes: config.gateways.iter().filter_map(|gateway| default_route(*gateway)).collect(),
            tunnels: Vec::new(),
            ip: config.ip,
            udp: config.udp,
            tcp: config.tcp.clone(),
            reassembly: config.reassembly,
            seed,
        });
        let epoch = Instant::now();
        let mut poll_loop = Self {
            lane,
            queues,
            frames,
            output: Vec::new(),
            burst: Vec::new(),
            epoch,
            now: Time::from_nanos(1),
        };
        if info.life.is_some() {
            // Others are on the link: addresses are announced there.
            let Self { lane, frames, now, .. } = &mut poll_loop;
            lane.link_up(*now, frames, 0);
        }
        Ok(poll_loop)
    }

    /// The lane, with further arguments of its functions: the time of the last turn, and frames. Output of these calls is sent in the
    /// next turn.
    pub fn lane(&mut self) -> (&mut Lane, Time, &Pool) {
        (&mut self.lane, self.now, &self.frames)
    }

    /// Does all pending work, without waiting. `true` if a packet was received or sent, or a timer fired.
    pub fn turn(&mut self) -> bool {
        self.now = Time::from_nanos(self.epoch.elapsed().as_nanos() as u64 + 1);
        let mut busy = self.receive();
        if self.lane.poll_at().is_some_and(|due| due <= self.now) {
            self.lane.on_timer(self.now, &self.frames);
            busy = true;
        }
        // All flows are this lane's: what it would hand over, as a reassembled datagram, comes back to it.
        while let Some(redirect) = self.lane.poll_redirect() {
            self.lane.input(self.now, &self.frames, redirect.frame, redirect.class);
        }
        // News for other lanes, of which there are none.
        while self.lane.poll_event().is_some() {}
        busy | self.send()
    }

    fn receive(&mut self) -> bool {
        let mut busy = false;
        for queue in &mut self.queues {
            let n = queue.receive(&self.frames, &mut self.burst, BURST);
            busy |= n > 0;
            for mut frame in self.burst.drain(..) {
                frame.meta_mut().interface = 0;
                self.lane.input_in_burst(self.now, &self.frames, frame, Class::Ethernet);
            }
            if n > 0 {
                self.lane.end_burst(self.now, &self.frames);
            }
        }
        busy
    }

    /// One queue is enough to send on.
    fn send(&mut self) -> bool {
        let queue = &mut self.queues[0];
        let room = queue.room().saturating_sub(self.output.len());
        self.lane.drain_output(self.now, &self.frames, room, &mut self.output);
        let taken = if self.output.is_empty() { 0 } else { queue.transmit(&mut self.output) };
        for queue in &mut self.queues {
            queue.flush();
        }
        taken > 0
    }

    /// When the next turn is due without a packet; `None`: not before one comes.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let passed = Duration::from_nanos(self.now.as_nanos());
        let timer =
            self.lane.poll_at().map(|due| Duration::from_nanos(due.as_nanos()).saturating_sub(passed));
        let waits = !self.output.is_empty() || self.lane.has_output();
        [timer, waits.then_some(RETRY)].into_iter().flatten().min()
    }

    /// Descriptors that become readable when a packet arrives, for loops that wait for other descriptors as well. Links in memory have
    /// none.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().filter_map(|queue| queue.fd())
    }

    /// Waits until a turn is due: a packet comes, a timer, or `most` is over.
    ///
    /// # Errors
    /// The system call's.
    pub fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        if self.queues.iter_mut().any(|queue| queue.ready()) {
            return Ok(());
        }
        let most = [most, self.next_deadline()].into_iter().flatten().min();
        let timeout = most.map(|time| Timespec {
            tv_sec: time.as_secs().min(3600) as i64,
            tv_nsec: i64::from(time.subsec_nanos()) as _,
        });
        let mut fds: Vec<PollFd<'_>> =
            self.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        drop(fds);
        for queue in &mut self.queues {
            // An interface that was taken down reports an error once.
            queue.clear_error();
        }
        Ok(())
    }
}

fn default_route(gateway: IpAddr) -> Option<Route> {
    let any: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    Some(Route { prefix: Prefix::new(any, 0)?, gateway: Some(gateway), interface: 0 })
}

/// Everything belongs to the one lane.
fn one_bucket() -> Result<Arc<Rss>, StartError> {
    let wrong = |e: &dyn std::fmt::Display| StartError::Other(e.to_string());
    let table = Indirection::new(Indirection::DEFAULT_SLOTS, 1).map_err(|e| wrong(&e))?;
    let map = BucketMap::new(1, 1).map_err(|e| wrong(&e))?;
    Ok(Arc::new(Rss::from_parts(Toeplitz::new(&Key::MICROSOFT), HashConfig::default(), table, map)))
}
