//! From a description to running workers. Everything that can fail fails here, before the first thread runs.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Barrier, OnceLock, mpsc};

use flowlane_rss::Bucket;
use flowlane_stack::address::Prefix;
use flowlane_stack::packet::Offload;
use flowlane_stack::tcp::TcpConfig;
use flowlane_stack::time::Time;
use flowlane_stack::tunnel::{TunnelConfig, TunnelError};
use flowlane_stack::{InterfaceConfig, Lane, LaneConfig, Route};
use flowlane_sys::frame::{FrameMemory, MemoryConfig, MemoryError};

use super::handle::Runtime;
use super::host::Host;
use super::idle::Patience;
use super::lane_slot::{LaneCounters, LaneId, LaneSlot};
use super::moving::Moves;
use super::netisr::Netisr;
use super::shared::{Post, Shared};
use super::worker::{HostView, Idle, Port, Turns, Worker, lane_index};
use crate::context;
use crate::kernel::{KernelLane, Poller, Ports};
use crate::link::pair::{self, PairConfig};
use crate::link::{LinkInfo, Queue};
use crate::task::spawn_in;
use crate::wake::Wake;

/// Frames in a netisr ring (`net.isr.defaultqlimit` is 256; a burst here is larger).
pub(crate) const NETISR: usize = 1024;

/// Descriptors that a runtime with kernel sockets would like to have.
const DESCRIPTORS: u64 = 1 << 20;

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Workers must be 1 to 64.
    #[error("{0} workers: must be from 1 to 64")]
    Workers(usize),
    /// More workers than processors to pin them to.
    #[error("{workers} workers but {cpus} processors: use at most {cpus}, or switch pinning off")]
    Processors {
        /// Workers wanted.
        workers: usize,
        /// Processors allowed.
        cpus: usize,
    },
    /// The host's steering was made for another number of workers.
    #[error("host '{host}': steering for {given} workers, but there are {workers}")]
    Steering {
        /// The host.
        host: String,
        /// Highest worker its bucket map names, plus one.
        given: usize,
        /// Workers of the runtime.
        workers: usize,
    },
    /// A host's interface has no link or too many, or a host on kernel sockets has one.
    #[error("host '{0}': as many links as interfaces are needed, and none on kernel sockets")]
    Links(String),
    /// More lanes than kernel sockets can be told apart in.
    #[error("{0} buckets in all: with kernel sockets at most 65536")]
    Lanes(usize),
    /// A tunnel that cannot work.
    #[error("host '{host}': tunnel {local} to {remote}: {error}")]
    Tunnel {
        /// The host.
        host: String,
        /// The tunnel's local address outside.
        local: IpAddr,
        /// The far side's.
        remote: IpAddr,
        /// What is wrong.
        error: TunnelError,
    },
    /// A link has fewer queues than there are workers.
    #[error("{link} has {queues} queues for {workers} workers: use at most {queues} workers")]
    Queues {
        /// The link.
        link: String,
        /// Its queues.
        queues: usize,
        /// Workers wanted.
        workers: usize,
    },
    /// Frame memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread or descriptor could not be made.
    #[error("starting a worker: {0}")]
    Thread(#[source] io::Error),
    /// No randomness from the kernel.
    #[error("the kernel gives no randomness: {0}")]
    Entropy(#[source] io::Error),
    /// A link could not be opened.
    #[error(transparent)]
    Link(#[from] crate::link::OpenError),
    /// Something else that the application does before the start failed.
    #[error("{0}")]
    Other(String),
}

/// A link that is opened when the runtime starts, once frame memory and the number of workers are known.
pub type OpenLink =
    Box<dyn FnOnce(&FrameMemory, usize) -> Result<(LinkInfo, Vec<Box<dyn Queue>>), StartError> + Send>;

/// What joins hosts to each other and to the world.
enum Wire {
    Pair { a: (usize, u8), b: (usize, u8), config: PairConfig },
    Link { host: usize, interface: u8, open: OpenLink },
}

/// Describes a runtime. Made by [`Runtime::builder`].
pub struct Builder {
    workers: usize,
    pin: bool,
    idle: Idle,
    memory: MemoryConfig,
    hosts: Vec<Host>,
    wires: Vec<Wire>,
    seed: Option<u64>,
    before_start: Option<Box<dyn FnOnce() -> Result<(), StartError> + Send>>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            workers: 1,
            pin: true,
            idle: Idle::default(),
            memory: MemoryConfig::default(),
            hosts: Vec::new(),
            wires: Vec::new(),
            seed: None,
            before_start: None,
        }
    }

    /// Number of workers; 1 by default.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Whether each worker is bound to a processor of its own; it is by default.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// What workers do when there is nothing to do.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// Frames for each worker.
    #[must_use]
    pub fn frames(mut self, frames_per_worker: usize) -> Self {
        self.memory.frames_per_home = frames_per_worker;
        self
    }

    /// Bytes of a frame's buffer: a power of two from 2048 to 65536.
    #[must_use]
    pub fn frame_size(mut self, bytes: usize) -> Self {
        self.memory.frame_size = bytes;
        self
    }

    /// Makes the lanes' randomness repeat from run to run: for tests, never for a network with strangers on it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Adds a host and returns its number.
    pub fn host(&mut self, host: Host) -> usize {
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// Joins interfaces of two hosts, each as (host, interface), by a wire in memory.
    pub fn pair(&mut self, a: (usize, u8), b: (usize, u8), config: PairConfig) {
        self.wires.push(Wire::Pair { a, b, config });
    }

    /// Joins an interface of a host to a link that is opened at the start.
    pub fn link(&mut self, host: usize, interface: u8, open: OpenLink) {
        self.wires.push(Wire::Link { host, interface, open });
    }

    /// Runs `f` once all links are open and before any packet is handled: the place to give up privileges.
    pub fn before_start(&mut self, f: impl FnOnce() -> Result<(), StartError> + Send + 'static) {
        self.before_start = Some(Box::new(f));
    }

    /// Opens the links and starts the workers.
    ///
    /// # Errors
    /// See [`StartError`]; then nothing is left behind.
    pub fn start(mut self) -> Result<Runtime, StartError> {
        let cpus = self.check()?;
        let memory = FrameMemory::new(&MemoryConfig { homes: self.workers, ..self.memory.clone() })?;
        let wakes: Vec<Arc<Wake>> = (0..self.workers)
            .map(|w| Wake::new(w).map(Arc::new))
            .collect::<Result<_, _>>()
            .map_err(StartError::Thread)?;
        let links = self.open_links(&memory, &wakes)?;
        if self.hosts.iter().any(|h| h.kernel) {
            // As many as this process may have. Running out of them is told when it happens.
            let _ = flowlane_sys::kernel::limits::descriptors(DESCRIPTORS);
        }
        if let Some(f) = self.before_start.take() {
            f()?;
        }
        let mut seeds = Seeds::new(self.seed)?;
        let owners: Vec<usize> = self
            .hosts
            .iter()
            .flat_map(|h| {
                (0..h.rss.buckets.len()).map(|b| usize::from(h.rss.buckets.worker_of(Bucket(b as u16)).0))
            })
            .collect();
        let posts = wakes
            .iter()
            .map(|wake| Post { inbox: crossbeam_queue::SegQueue::new(), wake: wake.clone() })
            .collect();
        let shared = Arc::new(Shared::new(posts, &owners));
        let plans = self.plan(&shared, links, &owners, &mut seeds)?;
        start_threads(plans, &memory, &shared, &cpus, &self.hosts)
    }

    /// Everything that can be wrong with the description itself. Returns the processors to pin workers to.
    fn check(&self) -> Result<Vec<usize>, StartError> {
        let workers = self.workers;
        if workers == 0 || workers > 64 {
            return Err(StartError::Workers(workers));
        }
        for host in &self.hosts {
            let map = &host.rss.buckets;
            let most = (0..map.len()).map(|b| map.worker_of(Bucket(b as u16)).0).max();
            let given = most.map_or(0, |w| usize::from(w) + 1);
            if given > workers {
                return Err(StartError::Steering { host: host.name.clone(), given, workers });
            }
        }
        let lanes = self.hosts.iter().map(|h| h.rss.buckets.len()).sum();
        if lanes > 1 << 16 && self.hosts.iter().any(|h| h.kernel) {
            return Err(StartError::Lanes(lanes));
        }
        if !self.pin {
            return Ok(Vec::new());
        }
        let allowed = rustix::thread::sched_getaffinity(None).map_err(|e| StartError::Thread(e.into()))?;
        let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|c| allowed.is_set(*c)).collect();
        if cpus.len() < workers {
            return Err(StartError::Processors { workers, cpus: cpus.len() });
        }
        Ok(cpus)
    }

    /// Opens every link; the result says which interface of which host each belongs to.
    fn open_links(&mut self, memory: &FrameMemory, wakes: &[Arc<Wake>]) -> Result<Links, StartError> {
        let mut links = Links::new();
        let mut add = |at: (usize, u8), info: LinkInfo, queues| {
            links.insert(at, (info, queues)).map_or(Ok(()), |_| Err(at.0))
        };
        for wire in std::mem::take(&mut self.wires) {
            let twice = match wire {
                Wire::Pair { a, b, config } => {
                    let rss = |at: (usize, u8)| self.hosts.get(at.0).map(|h| &h.rss);
                    let (Some(rss_a), Some(rss_b)) = (rss(a), rss(b)) else {
                        return Err(StartError::Links("?".into()));
                    };
                    let [end_a, end_b] = pair::open(&config, [rss_a, rss_b], wakes);
                    add(a, end_a.info, end_a.queues).and(add(b, end_b.info, end_b.queues))
                }
                Wire::Link { host, interface, open } => {
                    let (info, queues) = open(memory, self.workers)?;
                    if queues.len() < self.workers {
                        let (link, queues) = (info.name, queues.len());
                        return Err(StartError::Queues { link, queues, workers: self.workers });
                    }
                    add((host, interface), info, queues)
                }
            };
            twice.map_err(|h| StartError::Links(self.hosts.get(h).map_or("?".into(), |h| h.name.clone())))?;
        }
        for (h, host) in self.hosts.iter().enumerate() {
            let all = (0..host.interfaces.len()).all(|i| links.contains_key(&(h, i as u8)));
            let count = links.keys().filter(|k| k.0 == h).count();
            if !all || count != host.interfaces.len() || (count == 0) != host.kernel {
                return Err(StartError::Links(host.name.clone()));
            }
        }
        Ok(links)
    }

    /// Shares lanes and queues out among the workers.
    fn plan(
        &self,
        shared: &Arc<Shared>,
        links: Links,
        owners: &[usize],
        seeds: &mut Seeds,
    ) -> Result<Vec<Plan>, StartError> {
        let mut plans: Vec<Plan> = Netisr::mesh(self.workers, NETISR)
            .into_iter()
            .map(|netisr| Plan {
                netisr,
                ports: Vec::new(),
                hosts: Vec::new(),
                lanes: (0..owners.len()).map(|_| None).collect(),
                idle: self.idle,
                poller: None,
            })
            .collect();
        let mut infos: HashMap<(usize, u8), LinkInfo> = HashMap::new();
        let mut links: Vec<_> = links.into_iter().collect();
        links.sort_by_key(|(at, _)| *at);
        for ((host, link), (info, queues)) in links {
            for (q, queue) in queues.into_iter().enumerate() {
                let index = q as u16;
                let port = Port {
                    queue,
                    host,
                    link,
                    index,
                    output: Vec::with_capacity(256),
                    room: 0,
                    broken: false,
                };
                plans[q % self.workers].ports.push(port);
            }
            infos.insert((host, link), info);
        }
        if self.hosts.iter().any(|h| h.kernel) {
            for (plan, post) in plans.iter_mut().zip(&shared.posts) {
                plan.poller = Some(Poller::new(post.wake.fd()).map_err(StartError::Thread)?);
            }
        }
        let mut first_lane = 0;
        for (h, host) in self.hosts.iter().enumerate() {
            let listening = Arc::new(Ports::default());
            let interfaces = interfaces(h, host, &infos);
            let routes = routes(host);
            Lane::check_tunnels(&interfaces, &host.tunnels, &routes).map_err(|(i, error)| {
                let TunnelConfig { local, remote, .. } = host.tunnels[i];
                StartError::Tunnel { host: host.name.clone(), local, remote, error }
            })?;
            let buckets = host.rss.buckets.len();
            for plan in &mut plans {
                plan.hosts.push(view(host, first_lane, h, &plan.ports));
            }
            for b in 0..buckets {
                let bucket = Bucket(b as u16);
                let index = lane_index(first_lane, bucket);
                let lane = Lane::new(&LaneConfig {
                    bucket,
                    rss: host.rss.clone(),
                    interfaces: interfaces.clone(),
                    routes: routes.clone(),
                    tunnels: host.tunnels.clone(),
                    udp: host.udp,
                    tcp: self.bounded(&host.tcp, owners.len()),
                    reassembly: host.reassembly,
                    seed: seeds.next()?,
                });
                let plan = &mut plans[owners[index as usize]];
                let kernel = plan.poller.as_ref().filter(|_| host.kernel).map(|poller| {
                    Box::new(KernelLane::new(poller.epoll.clone(), index as u16, listening.clone()))
                });
                let slot = LaneSlot {
                    id: LaneId { runtime: shared.runtime, index },
                    host: h,
                    lane,
                    kernel,
                    sleepers: Default::default(),
                    counters: LaneCounters::default(),
                    touched: false,
                    parked: Vec::new(),
                };
                plan.lanes[index as usize] = Some(Box::new(slot));
            }
            first_lane += buckets as u32;
        }
        Ok(plans)
    }

    /// TCP as the host wants it, but with no more frames held by one lane than its share of half of a worker's: even
    /// if all lanes of all workers hold frames of one and the same, it can go on.
    fn bounded(&self, tcp: &TcpConfig, lanes: usize) -> TcpConfig {
        let share = self.memory.frames_per_home * self.memory.frame_size / 2 / lanes.max(1);
        TcpConfig { max_held: tcp.max_held.min(share), ..tcp.clone() }
    }
}

type Links = HashMap<(usize, u8), (LinkInfo, Vec<Box<dyn Queue>>)>;

/// What one worker starts with: all of it can be sent to its thread.
struct Plan {
    netisr: Netisr,
    ports: Vec<Port>,
    hosts: Vec<HostView>,
    lanes: Vec<Option<Box<LaneSlot>>>,
    idle: Idle,
    poller: Option<Poller>,
}

fn interfaces(h: usize, host: &Host, infos: &HashMap<(usize, u8), LinkInfo>) -> Vec<InterfaceConfig> {
    host.interfaces
        .iter()
        .enumerate()
        .filter_map(|(i, interface)| {
            let info = infos.get(&(h, i as u8))?;
            Some(InterfaceConfig {
                mac: info.mac,
                mtu: info.mtu,
                addresses: interface.addresses.clone(),
                claimed: interface.claimed.clone(),
                vlan: interface.vlan,
                offload: Offload { checksum: info.checksum_offload, segmentation: info.segmentation },
            })
        })
        .collect()
}

fn routes(host: &Host) -> Vec<Route> {
    host.gateways
        .iter()
        .filter_map(|gateway| {
            let any = if gateway.is_ipv4() { "0.0.0.0" } else { "::" };
            let prefix = Prefix::new(any.parse().ok()?, 0)?;
            let links = host.interfaces.iter().map(|i| &i.addresses);
            let mut all = links.chain(host.tunnels.iter().map(|t| &t.addresses));
            let interface = all.position(|a| a.iter().any(|p| p.contains(*gateway))).unwrap_or(0);
            Some(Route { prefix, gateway: Some(*gateway), interface: interface as u8 })
        })
        .collect()
}

fn view(host: &Host, first_lane: u32, h: usize, ports: &[Port]) -> HostView {
    let owner = |b: usize| host.rss.buckets.worker_of(Bucket(b as u16)).0;
    let owners: Vec<u16> = (0..host.rss.buckets.len()).map(owner).collect();
    HostView {
        rss: host.rss.clone(),
        first_lane,
        queue_of: owners.clone(),
        owners,
        ports: (0..host.interfaces.len())
            .filter_map(|i| ports.iter().position(|p| p.host == h && usize::from(p.link) == i))
            .collect(),
        stats: Default::default(),
        crowded: false,
    }
}

fn start_threads(
    plans: Vec<Plan>,
    memory: &FrameMemory,
    shared: &Arc<Shared>,
    cpus: &[usize],
    hosts: &[Host],
) -> Result<Runtime, StartError> {
    let mut threads = Vec::new();
    let (failed, failures) = mpsc::channel();
    let together = Arc::new(Barrier::new(plans.len()));
    let workers = plans.len();
    let go: Arc<OnceLock<bool>> = Arc::new(OnceLock::new());
    for (index, plan) in plans.into_iter().enumerate() {
        let (memory, shared, failed) = (memory.clone(), shared.clone(), failed.clone());
        let cpu = cpus.get(index).copied();
        let mains: Vec<_> = hosts.iter().map(|h| h.main.clone()).collect();
        let (together, go) = (together.clone(), go.clone());
        let body = move || {
            let pool = pin(cpu).and_then(|()| memory.attach(index).map_err(io::Error::other));
            let (pool, error) = match pool {
                Ok(pool) => (Some(pool), None),
                Err(e) => (None, Some(e)),
            };
            let _ = failed.send(error);
            // All or none: a worker that could not begin would leave the others waiting for it.
            if let (Some(pool), true) = (pool, *go.wait()) {
                work(index, plan, Rc::new(pool), shared, &mains, &together);
            }
        };
        let thread = std::thread::Builder::new().name(format!("flowlane-{index}")).spawn(body);
        threads.push(thread.map_err(StartError::Thread)?);
    }
    drop(failed);
    let error = failures.into_iter().take(workers).flatten().next();
    // Nobody else sets it.
    let _ = go.set(error.is_none());
    match error {
        Some(e) => {
            for thread in threads {
                let _ = thread.join();
            }
            Err(StartError::Thread(e))
        }
        None => Ok(Runtime::new(shared.clone(), threads, hosts)),
    }
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The life of a worker's thread.
fn work(
    index: usize,
    plan: Plan,
    frames: Rc<flowlane_sys::frame::Pool>,
    shared: Arc<Shared>,
    mains: &[Arc<dyn Fn() -> super::host::Main + Send + Sync>],
    together: &Barrier,
) {
    context::begin(index, frames.clone(), shared.clone());
    flowlane_sys::kernel::limits::exact_timers();
    for slot in plan.lanes.iter().flatten() {
        spawn_in(slot.id, shared.clone(), mains[slot.host]());
    }
    let lanes = plan.lanes.len();
    let mut worker = Worker {
        index,
        shared,
        frames,
        ports: plan.ports,
        hosts: plan.hosts,
        lanes: plan.lanes,
        touched: Vec::with_capacity(lanes),
        spare: Vec::with_capacity(lanes),
        deadlines: vec![Time::MAX; lanes],
        next_deadline: Time::MAX,
        netisr: plan.netisr,
        moves: Moves::default(),
        idle: plan.idle,
        patience: Patience::default(),
        now: Time::ZERO,
        turns: Turns::default(),
        misdirected: Vec::new(),
        burst: Vec::with_capacity(256),
        parcels: Vec::with_capacity(256),
        in_burst: false,
        stopping: false,
        idle_turn: true,
        poller: plan.poller,
    };
    // Every lane's first task has run, and bound its sockets, before anyone handles a packet.
    worker.run_tasks();
    together.wait();
    worker.run();
    drop(worker);
    context::end();
}

/// Where the lanes' seeds come from.
struct Seeds {
    fixed: Option<flowlane_stack::rng::Rng>,
}

impl Seeds {
    fn new(seed: Option<u64>) -> Result<Self, StartError> {
        Ok(Self { fixed: seed.map(flowlane_stack::rng::Rng::new) })
    }

    fn next(&mut self) -> Result<[u64; 4], StartError> {
        if let Some(rng) = &mut self.fixed {
            return Ok(std::array::from_fn(|_| rng.next_u64()));
        }
        let mut seed = [0; 4];
        for word in &mut seed {
            *word = crate::entropy::random_u64().map_err(StartError::Entropy)?;
        }
        Ok(seed)
    }
}
