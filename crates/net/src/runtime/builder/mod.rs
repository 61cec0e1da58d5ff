//! Builds running workers from a description. All errors are found here, before the first thread runs.
//!
//! The description and the order of things are here; [`links`] opens the links, [`named`] is what those by name want; [`plan`] shares
//! lanes and queues out, [`threads`] makes workers of that.

mod links;
mod named;
mod plan;
mod processors;
mod threads;

pub use links::LinkId;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use flowlane_rss::Bucket;
use flowlane_sys::frame::{FrameMemory, MemoryConfig};

use super::first_task::Mains;
use super::handle::{Handle, Runtime};
use super::host::Host;
use super::idle::Idle;
use super::worker::Watched;
use crate::capture::CaptureOptions;
use crate::card::{Access, Surroundings};
use crate::error::StartError;
use crate::events;
use crate::kernel::{Io, Poller, Steer, Steering};
use crate::shared::{Post, Shared};
use crate::wake::Wake;
use links::{Attached, Wire};
use plan::Seeds;
use processors::Near;

/// Frames in a netisr ring (`net.isr.defaultqlimit` is 256; a burst here is larger).
pub(crate) const NETISR: usize = 1024;

/// Descriptors that a runtime with kernel sockets would like to have.
const DESCRIPTORS: u64 = 1 << 20;

/// Describes a runtime. Made by [`Runtime::builder`].
pub struct Builder {
    workers: usize,
    pin: bool,
    cpus: Option<Vec<usize>>,
    near: Option<Near>,
    /// How long waits for kernel sockets poll their cards' queues.
    busy_poll: Option<Duration>,
    io: Io,
    /// RPS spreads that card's packets.
    rps: bool,
    idle: Idle,
    watched: Watched,
    memory: MemoryConfig,
    tcp_memory: Option<usize>,
    hosts: Vec<Host>,
    wires: Vec<Wire>,
    /// Links of all wires.
    links: usize,
    attached: Vec<Attached>,
    /// Links whose cards can be changed.
    cards: Vec<(usize, Box<dyn Access>)>,
    seed: Option<u64>,
    before_start: Option<Box<dyn FnOnce() -> Result<(), StartError> + Send>>,
    in_workers: Option<InWorkers>,
    captures: Vec<CaptureOptions>,
}

/// Begins what a worker's thread carries, and keeps it.
type InWorkers = Arc<dyn Fn(usize) -> Box<dyn Any> + Send + Sync>;

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Describes a new runtime.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    fn new() -> Self {
        Self {
            workers: 1,
            pin: true,
            cpus: None,
            near: None,
            busy_poll: None,
            io: Io::default(),
            rps: false,
            idle: Idle::default(),
            watched: Watched::default(),
            memory: MemoryConfig::default(),
            tcp_memory: None,
            hosts: Vec::new(),
            wires: Vec::new(),
            links: 0,
            attached: Vec::new(),
            cards: Vec::new(),
            seed: None,
            before_start: None,
            in_workers: None,
            captures: Vec::new(),
        }
    }

    /// Number of workers; 1 by default.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Whether workers with a queue of a link are bound to processors; they are by default.
    ///
    /// Each worker gets a processor that no other instance has bound a worker to, near the card if there is one ([`Builder::near_card`]).
    /// With fewer of those than workers nothing is bound, nor for kernel sockets alone that are not [steered by processor](crate::Steer).
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Binds worker `i` to processor `cpus[i]`, whatever others are bound to, and for kernel sockets as well.
    #[must_use]
    pub fn cpus(mut self, cpus: Vec<usize>) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Binds workers near a card, if workers are bound and no processors are listed: each to the processor that handles the interrupt of
    /// its first queue, or else to one of the card's NUMA node, as far as these are free. Frames are from memory of that node. Call it
    /// before the start, with the interface of the link and the first of its served queues; of several interfaces the first counts.
    pub fn near_card(&mut self, interface: &str, first_queue: u32) {
        if self.near.is_none() {
            let around = Surroundings::read(Path::new("/"), interface);
            self.memory.node = around.node;
            self.rps =
                around.receive.iter().any(|queue| queue.rps.as_ref().is_some_and(|cpus| !cpus.is_empty()));
            self.near = Some(Near::of(&around, first_queue));
        }
    }

    /// Has workers poll the cards' queues of their kernel sockets for so long before they sleep: shorter waits for processor time. Needs Linux
    /// 6.9, otherwise the start fails. What comes by no card's queue, as over the loopback, is not polled. No time at all looks once, from Linux 6.13
    /// on: enough where the card's interrupts wait while workers are busy (`irq-suspend-timeout` of its NAPIs, `flowlane serve --suspend-irqs`).
    #[must_use]
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.busy_poll = Some(time);
        self
    }

    /// By what connections of kernel sockets are served: `epoll` by default. What is faster for which work: `docs/kernel.md`.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// What idle workers do.
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// Time for which a task may hold its worker before it is named in reports ([`WorkerReport::long_tasks`]): a millisecond by default, which is
    /// a tick of the timer wheel. Zero names none.
    ///
    /// [`WorkerReport::long_tasks`]: crate::stats::WorkerReport::long_tasks
    #[must_use]
    pub fn task_budget(mut self, budget: Duration) -> Self {
        self.watched.task_budget = budget;
        self
    }

    /// Whether events of processor and kernel are counted for each worker ([`WorkerReport::perf`]): cycles, instructions, cache misses, page faults
    /// and others. They are not by default. What cannot be counted is missing in reports, with the reason.
    ///
    /// [`WorkerReport::perf`]: crate::stats::WorkerReport::perf
    #[must_use]
    pub fn perf_events(mut self, counted: bool) -> Self {
        self.watched.perf = counted;
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

    /// As [`Builder::frame_size`], unless it is larger already: for links that want each packet in one frame.
    pub fn frames_of(&mut self, bytes: usize) {
        self.memory.frame_size = self.memory.frame_size.max(bytes);
    }

    /// As [`Builder::frames`], unless there are more already: for links with many queues, each of which keeps frames of its own.
    pub fn frames_at_least(&mut self, frames_per_worker: usize) {
        self.memory.frames_per_home = self.memory.frames_per_home.max(frames_per_worker);
    }

    /// Workers, as they were given by [`Builder::workers`].
    fn worker_count(&self) -> usize {
        self.workers
    }

    /// Bytes that TCP may keep for strangers in all lanes of all hosts together: buffers, connections and what belongs to them. A quarter
    /// of the machine's memory by default. Every lane gets an equal share, 1 MiB at least, or what [`TcpConfig::max_memory`] of its
    /// host says, if that is less.
    ///
    /// [`TcpConfig::max_memory`]: crate::TcpConfig::max_memory
    #[must_use]
    pub fn tcp_memory(mut self, bytes: usize) -> Self {
        self.tcp_memory = Some(bytes);
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

    /// Runs `f` once all links are open and before any packet is handled: the place to give up privileges.
    pub fn before_start(&mut self, f: impl FnOnce() -> Result<(), StartError> + Send + 'static) {
        self.before_start = Some(Box::new(f));
    }

    /// Captures from before the first packet is handled; the number of the capture, as of one that [`Handle::capture`] starts. Its file is
    /// made after [`Builder::before_start`]. If the start fails, the file is removed.
    pub fn capture(&mut self, options: CaptureOptions) -> u64 {
        self.captures.push(options);
        self.captures.len() as u64 - 1
    }

    /// Calls `f` on the thread of each worker, with its number, before its lanes start, and keeps the result until the thread ends: for
    /// libraries that need a context on their thread.
    ///
    /// With a tokio runtime beside this one, tokio's timers and I/O work in lanes:
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use flowlane::{Host, Key, Rss, Runtime};
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    /// let tokio: &'static _ = Box::leak(Box::new(runtime.handle().clone()));
    /// std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    /// let mut builder = Runtime::builder().in_workers(|_| tokio.enter());
    /// builder.host(Host::kernel("host", Arc::new(Rss::new(Key::MICROSOFT, 1)), || async {
    ///     tokio::time::sleep(Duration::from_millis(1)).await;
    ///     // This runs on tokio's thread, and not in the lane.
    ///     assert_eq!(tokio::spawn(async { 5 }).await?, 5);
    ///     Ok::<_, tokio::task::JoinError>(())
    /// }));
    /// builder.start().unwrap().join().unwrap();
    /// ```
    #[must_use]
    pub fn in_workers<G: 'static>(mut self, f: impl Fn(usize) -> G + Send + Sync + 'static) -> Self {
        self.in_workers = Some(Arc::new(move |worker| Box::new(f(worker))));
        self
    }

    /// Opens the links and starts the workers.
    ///
    /// # Errors
    /// See [`StartError`]; then nothing is left behind.
    pub fn start(self) -> Result<Runtime, StartError> {
        self.start_by(threads::thread)
    }

    /// As [`Builder::start`], with threads made by `thread`.
    fn start_by(
        mut self,
        thread: impl FnMut(usize, threads::Body) -> io::Result<JoinHandle<()>>,
    ) -> Result<Runtime, StartError> {
        let cpus = self.check()?;
        let memory = FrameMemory::new(&MemoryConfig { homes: self.workers, ..self.memory.clone() })?;
        let number = Shared::number();
        let wakes: Vec<Arc<Wake>> = (0..self.workers)
            .map(|w| Wake::new(number, w).map(Arc::new))
            .collect::<Result<_, _>>()
            .map_err(StartError::Thread)?;
        let mut links = self.open_links(&memory, &wakes)?;
        if self.hosts.iter().any(Host::has_kernel_sockets) {
            // As many as this process may have. Running out of them is told when it happens.
            let _ = flowlane_sys::kernel::limits::descriptors(DESCRIPTORS);
        }
        if let Some(f) = self.before_start.take() {
            f()?;
        }
        let (rings, by) = self.rings()?;
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
        let shared = Arc::new(Shared::new(number, posts, &owners));
        let mut named = links.named(&self.hosts);
        for (host, named) in self.hosts.iter().zip(&mut named).filter(|(host, _)| host.has_kernel_sockets()) {
            if host.kernel {
                named.push(Steering::new(host.steer, host.rss.clone(), 0, &cpus, self.workers).words());
            }
            named.extend(by.clone());
            named.extend(self.busy_poll.map(Poller::polls));
        }
        let steered = links.take_cards(&self.hosts, self.workers);
        let watched = links.watched();
        let plans = self.plan(&shared, links, &owners, &mut seeds, &cpus, rings)?;
        let common =
            threads::Common { shared, cards: Arc::default(), mains: Arc::new(Mains::new(owners.len())) };
        let handle = Handle::new(common.shared.clone(), common.cards.clone(), &self.hosts, named);
        let captures = handle.capture_all(&self.captures)?;
        let start = threads::Start {
            memory: &memory,
            common,
            cpus: &cpus,
            hosts: &self.hosts,
            in_workers: self.in_workers.as_ref(),
            handle,
        };
        let runtime =
            start.workers(plans, thread)?.with_cards(steered, watched).map_err(StartError::Thread)?;
        self.ask_for_addresses(&runtime)?;
        captures.go_on();
        events::started(self.workers, owners.len());
        Ok(runtime)
    }

    /// Begins the clients of hosts that have their addresses by DHCP.
    fn ask_for_addresses(&self, runtime: &Runtime) -> Result<(), StartError> {
        for (h, host) in self.hosts.iter().enumerate() {
            let Some(config) = host.dhcp.clone().filter(|_| !host.kernel) else { continue };
            runtime.begin_dhcp(h, config).map_err(|e| StartError::Other(e.to_string()))?;
        }
        Ok(())
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
        if lanes > 1 << 16 && self.hosts.iter().any(Host::has_kernel_sockets) {
            return Err(StartError::Lanes(lanes));
        }
        if let Some(cpus) = &self.cpus {
            return processors::given(cpus, workers);
        }
        // Kernel sockets alone need no processors, unless they are chosen by them.
        let by_cpu = self.near.is_some() || self.hosts.iter().any(|h| h.kernel && h.steer == Steer::Cpu);
        if !self.pin || self.wires.is_empty() && !by_cpu {
            return Ok(Vec::new());
        }
        let near = self.near.clone().unwrap_or_default();
        processors::choose(workers, &near).map_err(StartError::Thread)
    }
}
