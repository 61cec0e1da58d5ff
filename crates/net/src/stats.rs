//! Counters of a runtime, collected on request by messages to the workers, each of which copies its own plain counters. Between requests
//! there is no cost for the workers.

mod relay;
mod watched;

use std::collections::BTreeMap;

use flowlane_stack::stats::{Counter, Counters, Histogram, LaneStats};
use flowlane_stack::tcp::TcpSnapshot;
use flowlane_stack::time::Time;
use flowlane_stack::top::TopReport;
use flowlane_stack::udp::SocketInfo;
use serde::Serialize;

pub use self::relay::{RelayCounts, RelayStats, TargetStats};
pub use self::watched::{Derived, LongTask, LongTasks, PerfReport, Stall, StallCounts, WatchdogReport};
pub use crate::error::Failed;

use crate::kernel::{KernelSockets, KernelStats};
use crate::link::QueueStats;
use crate::link::pair::QuirkCounts;

/// Counters of one worker's netisr, named as `netstat -Q` names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NetisrStats {
    /// Frames sent to other workers.
    pub sent: u64,
    /// Frames for other workers that found the ring full.
    pub dropped: u64,
    /// Frames for a lane that is at no worker.
    pub no_lane: u64,
    /// Frames handed over by other workers.
    pub queued: u64,
    /// Most frames that waited in one ring at once.
    pub watermark: u64,
    /// Frames handled where they arrived.
    pub dispatched: u64,
    /// Frames handled in all.
    pub handled: u64,
}

/// Where the time of one worker went, nanoseconds since it began: each of them is in exactly one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StepTimes {
    /// Taking frames from links, and news of the kernel's sockets.
    pub receive: u64,
    /// Lanes: frames that came in, timers, and what they put out.
    pub stack: u64,
    /// Tasks of applications, with the calls they make.
    pub tasks: u64,
    /// What came from other workers, and messages.
    pub netisr: u64,
    /// Handing frames to links.
    pub transmit: u64,
    /// Turns that found nothing to do.
    pub looking: u64,
    /// Asleep, with the calls that sleep and wake.
    pub asleep: u64,
}

impl StepTimes {
    /// The steps' names, in the order of [`values`](Self::values).
    pub const NAMES: [&str; 7] = ["receive", "stack", "tasks", "netisr", "transmit", "looking", "asleep"];

    /// The times, in the order of [`NAMES`](Self::NAMES).
    #[must_use]
    pub fn values(&self) -> [u64; 7] {
        [self.receive, self.stack, self.tasks, self.netisr, self.transmit, self.looking, self.asleep]
    }

    /// All of the worker's time.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }

    /// Calls `f` with each time.
    pub fn each(&self, f: &mut dyn FnMut(Counter)) {
        f(Counter::count("receive-nanos", "nanoseconds spent taking frames from links", self.receive));
        f(Counter::count("stack-nanos", "nanoseconds spent in lanes", self.stack));
        f(Counter::count("tasks-nanos", "nanoseconds spent in tasks", self.tasks));
        f(Counter::count("netisr-nanos", "nanoseconds spent on what other workers sent", self.netisr));
        f(Counter::count("transmit-nanos", "nanoseconds spent handing frames to links", self.transmit));
        f(Counter::count("looking-nanos", "nanoseconds in turns that found nothing to do", self.looking));
        f(Counter::count("asleep-nanos", "nanoseconds asleep", self.asleep));
    }
}

/// Where one worker met others: doorbells, rings without room, frames that went home.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Meeting {
    /// Times it rang the doorbell of another worker.
    pub rung: u64,
    /// Of them, those that woke a sleeping worker, at the cost of a system call.
    pub woke: u64,
    /// Sleeps of its own that another thread ended.
    pub woken: u64,
    /// What it had for another worker and had to keep, because the ring was full and it must not be lost.
    pub waited: u64,
    /// Bursts cut short because a ring to another worker had no room for more.
    pub held_back: u64,
    /// Times one of its lanes began to wait for room on a link, or for a free frame.
    pub room_waits: u64,
    /// Frames of other workers that it sent back to their pools.
    pub frames_sent_home: u64,
    /// Frames of its own pool that came back from other threads.
    pub frames_came_home: u64,
}

impl Meeting {
    /// Calls `f` with each counter.
    pub fn each(&self, f: &mut dyn FnMut(Counter)) {
        f(Counter::count("rung", "times it rang another worker's doorbell", self.rung));
        f(Counter::count("woke", "of them, those that woke a sleeping worker", self.woke));
        f(Counter::count("woken", "sleeps that another thread ended", self.woken));
        f(Counter::count("waited", "what waited because a ring to another worker was full", self.waited));
        f(Counter::count(
            "held-back",
            "bursts cut short because a ring to another worker had no room",
            self.held_back,
        ));
        f(Counter::count(
            "room-waits",
            "times a lane began to wait for room on a link or for a free frame",
            self.room_waits,
        ));
        f(Counter::count(
            "frames-sent-home",
            "frames of other workers sent back to their pools",
            self.frames_sent_home,
        ));
        f(Counter::count(
            "frames-came-home",
            "frames that came back from other threads",
            self.frames_came_home,
        ));
    }
}

/// How the frames of one host arrived at one worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SteeringStats {
    /// Frames received.
    pub received: u64,
    /// Of them, whose bucket belonged to this worker.
    pub aligned: u64,
    /// Of them, handed to another worker.
    pub redirected: u64,
    /// Of those handed over, frames without a flow.
    pub redirected_no_flow: u64,
    /// Of those handed over, frames that came on the queue that the card's table names: their lane is at another worker.
    pub redirected_away: u64,
    /// Of those handed over, frames on a queue whose lane had moved a moment before.
    pub redirected_late: u64,
    /// Of them, those on another queue than their hash names: the delivered hash, or with a card's own table any correct hash.
    pub misdirected: u64,
    /// Of them, whose delivered hash was not that of the key and fields. It was computed then, and so are all later ones.
    pub foreign_hash: u64,
    /// Hashes taken as delivered.
    pub hash_delivered: u64,
    /// Hashes computed in software.
    pub hash_computed: u64,
    /// Frames without a flow.
    pub no_flow: u64,
}

impl SteeringStats {
    /// Adds the counters of another worker.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.aligned += other.aligned;
        self.redirected += other.redirected;
        self.redirected_no_flow += other.redirected_no_flow;
        self.redirected_away += other.redirected_away;
        self.redirected_late += other.redirected_late;
        self.misdirected += other.misdirected;
        self.foreign_hash += other.foreign_hash;
        self.hash_delivered += other.hash_delivered;
        self.hash_computed += other.hash_computed;
        self.no_flow += other.no_flow;
    }

    /// Calls `f` with each counter.
    pub fn each(&self, f: &mut dyn FnMut(Counter)) {
        f(Counter::count("received", "frames received", self.received));
        f(Counter::count(
            "aligned",
            "frames whose bucket belonged to the worker of their queue",
            self.aligned,
        ));
        f(Counter::count("redirected", "frames handed to another worker", self.redirected));
        f(Counter::count(
            "redirected-no-flow",
            "of those handed over, frames without a flow",
            self.redirected_no_flow,
        ));
        f(Counter::count(
            "redirected-away",
            "of those handed over, frames on the right queue of a lane that is elsewhere",
            self.redirected_away,
        ));
        f(Counter::count(
            "redirected-late",
            "of those handed over, frames of a lane that had just moved",
            self.redirected_late,
        ));
        f(Counter::count("misdirected", "frames on another queue than their hash names", self.misdirected));
        f(Counter::count(
            "foreign-hash",
            "frames whose delivered hash was not that of the key",
            self.foreign_hash,
        ));
        f(Counter::count("hash-delivered", "hashes taken as delivered", self.hash_delivered));
        f(Counter::count("hash-computed", "hashes computed in software", self.hash_computed));
        f(Counter::count("no-flow", "frames without a flow", self.no_flow));
    }

    /// Share of frames that arrived where they belong, 0 to 1; 1 when none arrived.
    #[must_use]
    pub fn alignment(&self) -> f64 {
        if self.received == 0 { 1.0 } else { self.aligned as f64 / self.received as f64 }
    }
}

/// A frame whose delivered hash named another queue than the one it arrived on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Misdirected {
    /// The flow, for people.
    pub flow: String,
    /// The hash as delivered.
    pub hash: u32,
    /// The queue that the hash selects.
    pub expected_queue: u16,
    /// The queue on which it arrived.
    pub queue: u16,
}

/// One lane as its worker reports it.
#[derive(Debug, Clone)]
pub struct LaneReport {
    /// Host, by order of configuration.
    pub host: usize,
    /// The lane's bucket.
    pub bucket: u16,
    /// The worker that holds it.
    pub worker: usize,
    /// Counters of the stack; in a lane of kernel sockets those of its words that fit them.
    pub stats: LaneStats,
    /// Counters of the kernel sockets, in a lane that uses them.
    pub kernel: Option<KernelStats>,
    /// Counters of a relay, in a lane that is one.
    pub relay: Option<Box<RelayCounts>>,
    /// Frames that arrived on a queue of the lane's own worker.
    pub aligned: u64,
    /// Frames that another worker handed over.
    pub redirected: u64,
    /// Times a task of the lane ran.
    pub task_runs: u64,
    /// Tasks that panicked.
    pub panics: u64,
    /// How the lane's first task failed, if it did: the lane no longer serves.
    pub failure: Option<Failed>,
    /// Times the lane moved.
    pub moves: u64,
    /// Time that workers spent on the lane, nanoseconds: of each turn a share, by the frames and tasks of the lane in it.
    pub busy_nanos: u64,
    /// Its UDP sockets, at most [`SOCKETS_SHOWN`]; none in a report of [`Handle::counters`](crate::Handle::counters).
    pub sockets: Vec<SocketInfo>,
    /// How many sockets there are.
    pub socket_count: usize,
    /// Its TCP connections, those being closed included.
    pub connections: usize,
    /// Its TCP connections in TIME-WAIT.
    pub time_waits: usize,
    /// Its TCP listeners and connections, at most [`SOCKETS_SHOWN`], and how many there are in which state. No rows in a report of
    /// [`Handle::counters`](crate::Handle::counters).
    pub tcp: TcpSnapshot,
    /// The same of its kernel sockets, in a lane that uses them.
    pub kernel_sockets: KernelSockets,
}

impl LaneReport {
    /// Calls `f` with what the runtime counts of the lane, beside the counters of the stack ([`LaneReport::stats`]).
    pub fn each(&self, f: &mut dyn FnMut(Counter)) {
        f(Counter::count("aligned", "frames that came in on a queue of the lane's own worker", self.aligned));
        f(Counter::count("redirected", "frames that another worker handed over", self.redirected));
        f(Counter::count("task-runs", "times a task ran", self.task_runs));
        f(Counter::count("panics", "tasks that panicked", self.panics));
        f(Counter::count("moves", "times the lane moved", self.moves));
        f(Counter::count("busy-nanos", "nanoseconds that workers spent on the lane", self.busy_nanos));
        f(Counter::gauge("sockets", "UDP sockets", self.socket_count as u64));
        f(Counter::gauge("connections", "TCP connections", self.connections as u64));
        f(Counter::gauge("time-waits", "TCP connections in TIME-WAIT", self.time_waits as u64));
    }
}

/// The flows of one lane with most packets and bytes ([`Handle::top_flows`](crate::Handle::top_flows)).
#[derive(Debug, Clone)]
pub struct LaneTop {
    /// Host, by order of configuration.
    pub host: usize,
    /// The lane's bucket.
    pub bucket: u16,
    /// The worker that holds it.
    pub worker: usize,
    /// When, on the runtime's clock.
    pub at: Time,
    /// Its flows; `None` if it does not keep them.
    pub top: Option<TopReport>,
}

/// Sockets listed in one lane's report.
pub const SOCKETS_SHOWN: usize = 1024;

/// Places in which the TCP connections that a report lists are searched for: a lane with very many does not stop for longer.
pub const CONNECTIONS_LOOKED_AT: usize = 16_384;

/// Changes of a card whose table steers a host and can be changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CardReport {
    /// The host, by order of configuration.
    pub host: usize,
    /// Slots of its table that were changed because their lane had moved.
    pub slots_moved: u64,
    /// Changes that the card, or its driver, did not take.
    pub refused: u64,
    /// Times that another program had changed its table, and lanes were moved to the workers of their queues.
    pub followed: u64,
    /// Times that its settings were set again because packets arrived on other queues.
    pub set_again: u64,
    /// Why packets arrived on other queues, as last found out.
    pub strayed: Option<Strayed>,
}

/// Why packets came on other queues than hash and table of a card name, as far as its driver shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strayed {
    /// Another program has set another table.
    Table,
    /// Another program has set another key.
    Key,
    /// Another program has set another hash function or transform.
    Function,
    /// Another program has chosen other fields to hash.
    Fields,
    /// The table has another number of slots.
    Slots,
    /// The driver shows what it should, but the card had lost it: it was set again.
    Forgotten,
    /// The driver shows what it should, and setting it again did not help.
    AnotherRule,
    /// The settings cannot be read or set any more.
    Unreachable,
}

impl Strayed {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Table,
        Self::Key,
        Self::Function,
        Self::Fields,
        Self::Slots,
        Self::Forgotten,
        Self::AnotherRule,
        Self::Unreachable,
    ];

    /// The cause in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Table => "another program changed the card's table",
            Self::Key => "another program changed the card's key: a restart takes it",
            Self::Function => "another program changed the card's hash function: a restart takes it",
            Self::Fields => "another program changed the fields that the card hashes: a restart takes them",
            Self::Slots => "the number of slots of the card's table changed: a restart takes it",
            Self::Forgotten => "the card had lost its settings, which were set again",
            Self::AnotherRule => "the card follows another rule than it shows: 'flowlane rss learn' finds it",
            Self::Unreachable => "the card's settings cannot be read or set any more",
        }
    }
}

/// What was done to balance the load of workers ([`rebalance`](crate::rebalance)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RebalanceCounts {
    /// Periods whose loads were read and judged.
    pub rounds: u64,
    /// Periods that were not, because a worker did not answer.
    pub unanswered: u64,
    /// Lanes moved.
    pub moves: u64,
    /// Moves that did not come about: refused, or given up because a worker did not answer.
    pub failed: u64,
}

/// One queue of a link as its worker reports it.
#[derive(Debug, Clone)]
pub struct QueueReport {
    /// Host, by order of configuration: the first that has an interface on the link.
    pub host: usize,
    /// Interface of the host.
    pub interface: u8,
    /// Number of the queue within the link. `None` at a worker without a queue of it, for drops because the link is dead.
    pub queue: Option<u16>,
    /// The queue's counters.
    pub stats: QueueStats,
    /// Faults made on purpose.
    pub quirks: Option<QuirkCounts>,
}

/// How the frames of one host arrived on one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueArrivals {
    /// Host, by order of configuration.
    pub host: usize,
    /// Interface of the host: the first on the queue's link.
    pub interface: u8,
    /// Number of the queue within the link.
    pub queue: u16,
    /// Whether a card's own table steers the host, so that every frame should come on the queue of its lane.
    pub by_card: bool,
    /// The counters.
    pub stats: SteeringStats,
}

/// Counters of one worker.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Number of the worker.
    pub worker: usize,
    /// Its lanes.
    pub lanes: Vec<LaneReport>,
    /// Its queues.
    pub queues: Vec<QueueReport>,
    /// Its netisr.
    pub netisr: NetisrStats,
    /// How frames of each host arrived.
    pub steering: Vec<SteeringStats>,
    /// The same for each of its queues.
    pub arrivals: Vec<QueueArrivals>,
    /// The first few frames that arrived on a wrong queue.
    pub misdirected: Vec<Misdirected>,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns that found something to do.
    pub busy_turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Where its time went.
    pub time: StepTimes,
    /// Lanes, at this worker or another, whose frames come on its queues, and which need it awake for that.
    pub needed_by: u64,
    /// Tasks that held it for longer than they may.
    pub long_tasks: LongTasks,
    /// What processor and kernel counted for its thread, if that was asked for.
    pub perf: Option<Box<PerfReport>>,
    /// Where it met other workers.
    pub meeting: Meeting,
    /// Frames free in its pool.
    pub frames_free: u64,
    /// Requests for a frame that found none.
    pub frames_exhausted: u64,
    /// Frames handed out.
    pub frames_allocated: u64,
    /// Panics of what applications gave away to be sent, when it was dropped.
    pub panics: u64,
    /// Frames dropped while a lane moved because too many waited for it.
    pub move_overflow: u64,
}

impl WorkerReport {
    /// Calls `f` with what the worker counts of itself and of its netisr.
    pub fn each(&self, f: &mut dyn FnMut(Counter)) {
        f(Counter::count("turns", "turns of its loop", self.turns));
        f(Counter::count("busy-turns", "turns that found something to do", self.busy_turns));
        f(Counter::count("sleeps", "times it slept", self.sleeps));
        f(Counter::gauge("needed-by", "lanes whose frames come on its queues", self.needed_by));
        self.time.each(f);
        self.meeting.each(f);
        self.long_tasks.each(f);
        if let Some(perf) = &self.perf {
            perf.each(f);
        }
        f(Counter::gauge("frames-free", "frames free in its pool", self.frames_free));
        f(Counter::count("frames-exhausted", "requests for a frame that found none", self.frames_exhausted));
        f(Counter::count("frames-allocated", "frames handed out", self.frames_allocated));
        f(Counter::count("panics", "panics of what was given away to be sent", self.panics));
        f(Counter::count("move-overflow", "frames dropped while a lane moved", self.move_overflow));
        f(Counter::count("netisr-sent", "frames sent to other workers", self.netisr.sent));
        f(Counter::count(
            "netisr-dropped",
            "frames for others that found the ring full",
            self.netisr.dropped,
        ));
        f(Counter::count("netisr-no-lane", "frames for a lane that is at no worker", self.netisr.no_lane));
        f(Counter::count("netisr-queued", "frames that came from other workers", self.netisr.queued));
        f(Counter::peak("netisr-watermark", "most frames that waited in one ring", self.netisr.watermark));
        f(Counter::count("netisr-dispatched", "frames handled where they arrived", self.netisr.dispatched));
        f(Counter::count("netisr-handled", "frames handled in all", self.netisr.handled));
    }
}

/// A group of counters as names and numbers.
pub type CounterMap = BTreeMap<&'static str, u64>;

/// All groups of a lane's counters by name.
#[must_use]
pub fn counter_groups(stats: &LaneStats) -> BTreeMap<&'static str, CounterMap> {
    let mut groups = BTreeMap::new();
    stats.groups(&mut |name, group| {
        let mut map = CounterMap::new();
        group.each(&mut |c| {
            // Two reasons for drops may have one name: one must not hide the other.
            *map.entry(c.name).or_default() += c.value;
        });
        groups.insert(name, map);
    });
    groups
}

/// Counters of a runtime, from all workers.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Every worker that answered.
    pub workers: Vec<WorkerReport>,
    /// Cards whose tables can be changed.
    pub cards: Vec<CardReport>,
    /// What was done to balance the load of workers.
    pub rebalance: Box<RebalanceCounts>,
    /// What a watchdog counted, if there is or was one.
    pub watchdog: Option<Box<WatchdogReport>>,
}

impl Report {
    /// Adds lanes that no worker held at its end.
    pub(crate) fn add_lanes(&mut self, lanes: Vec<LaneReport>) {
        for lane in lanes {
            let at = self.workers.iter().position(|w| w.worker == lane.worker).unwrap_or(0);
            // Where no worker has reported nobody expects lanes.
            if let Some(worker) = self.workers.get_mut(at) {
                worker.lanes.push(lane);
            }
        }
    }

    /// The lanes of a host, in order of bucket.
    #[must_use]
    pub fn lanes(&self, host: usize) -> Vec<&LaneReport> {
        let mut lanes: Vec<_> =
            self.workers.iter().flat_map(|w| &w.lanes).filter(|l| l.host == host).collect();
        lanes.sort_by_key(|l| l.bucket);
        lanes
    }

    /// The counters of a host's lanes, summed.
    #[must_use]
    pub fn total(&self, host: usize) -> LaneStats {
        let mut total = LaneStats::default();
        for lane in self.lanes(host) {
            total.add(&lane.stats);
        }
        total
    }

    /// The counters of a host's kernel sockets, summed; `None` for a host that has none.
    #[must_use]
    pub fn kernel(&self, host: usize) -> Option<KernelStats> {
        let mut total: Option<KernelStats> = None;
        for stats in self.lanes(host).iter().filter_map(|l| l.kernel) {
            total.get_or_insert_default().add(&stats);
        }
        total
    }

    /// The counters of a host's relay, summed; `None` for a host that is none.
    #[must_use]
    pub fn relay(&self, host: usize) -> Option<RelayCounts> {
        let mut total: Option<RelayCounts> = None;
        for counts in self.lanes(host).iter().filter_map(|l| l.relay.as_deref()) {
            total.get_or_insert_default().add(counts);
        }
        total
    }

    /// Samples of TCP's round-trip times in a host's lanes.
    #[must_use]
    pub fn rtts(&self, host: usize) -> Histogram {
        let mut all = Histogram::default();
        for lane in self.lanes(host) {
            all.add(&lane.tcp.rtts);
        }
        all
    }

    /// Lanes whose first task panicked or ended with an error: host, bucket and how.
    #[must_use]
    pub fn failures(&self) -> Vec<(usize, u16, &Failed)> {
        let lanes = self.workers.iter().flat_map(|w| &w.lanes);
        lanes.filter_map(|l| Some((l.host, l.bucket, l.failure.as_ref()?))).collect()
    }

    /// How a host's frames arrived, over all workers.
    #[must_use]
    pub fn steering(&self, host: usize) -> SteeringStats {
        let mut total = SteeringStats::default();
        for s in self.workers.iter().filter_map(|w| w.steering.get(host)) {
            total.add(s);
        }
        total
    }

    /// A host's queues.
    pub fn queues(&self, host: usize) -> impl Iterator<Item = &QueueReport> {
        self.workers.iter().flat_map(|w| &w.queues).filter(move |q| q.host == host)
    }
}
