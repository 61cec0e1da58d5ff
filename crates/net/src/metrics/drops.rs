//! Every way in which a packet is lost, with its layer, its reason and its count: dropped by the stack, by TCP, by a link, at kernel
//! sockets, between workers, or while a lane moved.
//!
//! Every view that shows drops takes them from here: `stat`, summaries of runs, `/metrics`, `top`.

use flowlane_stack::stats::DropReason;
use flowlane_stack::tcp::DropReason as TcpDropReason;
use flowlane_stack::wire::Malformed;

use crate::kernel::KernelStats;
use crate::link::QueueStats;
use crate::stats::{LaneReport, RelayStats, Report, WorkerReport};

/// The packets dropped for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Who dropped them: `stack`, `malformed` (the stack, because it could not read them), `tcp`, `link`, `kernel`, `relay` (connections and datagrams), `netisr` or `move`.
    pub layer: &'static str,
    /// Why, for machines.
    pub reason: &'static str,
    /// Why, in words for people; for some the reason again.
    pub text: &'static str,
    /// How many.
    pub count: u64,
}

impl Dropped {
    const fn new(layer: &'static str, reason: &'static str, text: &'static str, count: u64) -> Self {
        Self { layer, reason, text, count }
    }
}

/// The figures of a link's queue that count lost packets, each with its reason and words for people.
pub const LOST_BY_LINKS: [(&str, &str, &str); 5] = [
    ("tx-far-full", "queue-full", "found the far side's receive queue full"),
    ("rx-no-frame", "no-frame", "times the link had no free frame for a packet"),
    ("rx-ring-full", "ring-full", "found the link's receive ring or buffer full"),
    ("rx-bad", "bad", "received from the link were too long, truncated or malformed"),
    ("tx-failed", "refused", "to be sent were refused by the link"),
];

/// The counters of a link's queue that count lost packets.
#[must_use]
pub fn of_queue(q: &QueueStats) -> [Dropped; 5] {
    LOST_BY_LINKS.map(|(name, reason, text)| {
        let count = QueueStats::FIELDS.iter().zip(q.values()).find(|(field, _)| **field == name);
        Dropped::new("link", reason, text, count.map_or(0, |(_, count)| count))
    })
}

/// The counters of kernel sockets that count losses. Packets that the kernel drops before they reach a socket are counted by the kernel
/// (`nstat`).
#[must_use]
pub fn of_sockets(k: &KernelStats) -> [Dropped; 4] {
    let kernel = |reason, text, count| Dropped::new("kernel", reason, text, count);
    [
        kernel("socket-full", "datagrams that the kernel dropped at a full socket", k.datagrams_overflown),
        kernel("unsendable", "datagrams that the kernel refused to send", k.datagrams_dropped),
        kernel("no-frame", "datagrams dropped since no frame was free for their end", k.datagrams_cut),
        kernel("no-descriptor", "connections for which no descriptor was free", k.no_descriptor),
    ]
}

/// The counters of a relay that count connections and datagrams of clients that were not relayed.
#[must_use]
pub fn of_relay(r: &RelayStats) -> [Dropped; 7] {
    let relay = |reason, text, count| Dropped::new("relay", reason, text, count);
    [
        relay("no-target", "connections and datagrams for which no target was up", r.no_target),
        relay("unreached", "connections and datagrams that no target took", r.unreached),
        relay("too-many", "connections and datagrams beyond as many as a lane may have", r.too_many),
        relay("no-room", "datagrams that found no room to be sent", r.no_room),
        relay("proxy-malformed", "connections with a malformed PROXY header", r.proxy_malformed),
        relay("proxy-too-late", "connections whose PROXY header did not come in time", r.proxy_too_late),
        relay("proxy-cut", "connections that ended before their PROXY header did", r.proxy_cut),
    ]
}

/// Packets that a lane dropped, in the stack (TCP included) or at kernel sockets.
#[must_use]
pub fn of_lane(lane: &LaneReport) -> u64 {
    let segments = TcpDropReason::ALL.iter().map(|reason| lane.stats.tcp.dropped(*reason));
    let sockets = lane.kernel.iter().flat_map(of_sockets).map(|d| d.count);
    let relayed = lane.relay.iter().flat_map(|counts| of_relay(&counts.relay)).map(|d| d.count);
    lane.stats.drops.total() + segments.chain(sockets).chain(relayed).sum::<u64>()
}

/// All packets that a worker dropped.
#[must_use]
pub fn of_worker(worker: &WorkerReport) -> u64 {
    let links: u64 = worker.queues.iter().flat_map(|q| of_queue(&q.stats)).map(|d| d.count).sum();
    let lanes: u64 = worker.lanes.iter().map(of_lane).sum();
    let between: u64 = between_workers(worker).iter().map(|d| d.count).sum();
    lanes + links + between
}

/// Packets that a worker dropped on their way to another one.
#[must_use]
pub fn between_workers(w: &WorkerReport) -> [Dropped; 3] {
    [
        Dropped::new("netisr", "ring-full", "found the ring to another worker full", w.netisr.dropped),
        Dropped::new("netisr", "no-lane", "were for a lane that is at no worker", w.netisr.no_lane),
        Dropped::new(
            "move",
            "too-many-waited",
            "arrived for a moving lane that already held too many",
            w.pool.move_overflow,
        ),
    ]
}

/// Packets that a host dropped: every reason that there is, also those that are 0.
#[must_use]
pub fn of_host(report: &Report, host: usize) -> Vec<Dropped> {
    let total = report.total(host);
    let mut all = Vec::new();
    for reason in DropReason::ALL {
        all.push(Dropped::new("stack", reason.name(), reason.text(), total.drops.get(*reason)));
    }
    // Some of these have a name that a reason above has, too.
    for reason in Malformed::ALL {
        all.push(Dropped::new("malformed", reason.name(), reason.name(), total.drops.get_malformed(*reason)));
    }
    for reason in TcpDropReason::ALL {
        all.push(Dropped::new("tcp", reason.name(), reason.name(), total.tcp.dropped(*reason)));
    }
    let mut links = of_queue(&QueueStats::default());
    for queue in report.queues(host) {
        for (sum, more) in links.iter_mut().zip(of_queue(&queue.stats)) {
            sum.count += more.count;
        }
    }
    all.extend(links);
    all.extend(of_sockets(&report.kernel(host).unwrap_or_default()));
    all.extend(report.relay(host).iter().flat_map(|counts| of_relay(&counts.relay)));
    all
}

/// Packets dropped between workers and while lanes moved: every reason, also those that are 0.
#[must_use]
pub fn of_runtime(report: &Report) -> Vec<Dropped> {
    let mut sums: Vec<Dropped> = Vec::new();
    for worker in &report.workers {
        let here = between_workers(worker);
        if sums.is_empty() {
            sums.extend(here);
        } else {
            sums.iter_mut().zip(here).for_each(|(sum, more)| sum.count += more.count);
        }
    }
    sums
}
