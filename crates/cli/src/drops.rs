//! Dropped packets by reason, from a runtime's report: dropped by the stack, by TCP, by the link, at kernel sockets, between workers,
//! and while a lane moved.

use std::collections::BTreeMap;

use flowlane::stack_stats::Counters;
use flowlane::stats::{LaneReport, Report, WorkerReport};
use flowlane::{KernelStats, TcpDropReason};

/// The packets dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The reason, for machines.
    pub(crate) name: String,
    /// The reason in words, printed after the number.
    pub(crate) text: String,
    pub(crate) count: u64,
}

/// The counters of a link's queue that count lost packets: name, words and value.
fn of_queue(q: &flowlane::link::QueueStats) -> [(&'static str, &'static str, u64); 5] {
    [
        ("link-queue-full", "found the far side's receive queue full", q.tx_far_full),
        ("link-no-frame", "times the link had no free frame for a packet", q.rx_no_frame),
        ("link-ring-full", "found the link's receive ring or buffer full", q.rx_ring_full),
        ("link-bad", "received from the link were too long, truncated or malformed", q.rx_bad),
        ("link-refused", "to be sent were refused by the link", q.tx_failed),
    ]
}

/// The counters of kernel sockets that count losses: name, words and value. Packets that the kernel drops are counted by the kernel
/// (`nstat`).
fn of_sockets(k: &KernelStats) -> [(&'static str, &'static str, u64); 3] {
    [
        ("kernel-unsendable", "datagrams that the kernel refused to send", k.datagrams_dropped),
        ("kernel-no-frame", "datagrams dropped since no frame was free for their end", k.datagrams_cut),
        ("kernel-no-descriptor", "connections for which no descriptor was free", k.no_descriptor),
    ]
}

/// Packets that a lane dropped, in the stack (TCP included) or at kernel sockets.
pub(crate) fn of_lane(lane: &LaneReport) -> u64 {
    let segments = TcpDropReason::ALL.iter().map(|reason| lane.stats.tcp.dropped(*reason));
    let sockets = lane.kernel.iter().flat_map(of_sockets).map(|(_, _, n)| n);
    lane.stats.drops.total() + segments.chain(sockets).sum::<u64>()
}

/// All packets that a worker dropped.
pub(crate) fn of_worker(worker: &WorkerReport) -> u64 {
    let links: u64 = worker.queues.iter().flat_map(|q| of_queue(&q.stats)).map(|(_, _, n)| n).sum();
    let lanes: u64 = worker.lanes.iter().map(of_lane).sum();
    lanes + links + worker.netisr.dropped + worker.move_overflow
}

/// Packets that a host dropped, by reason; zero counts are left out.
pub(crate) fn of_host(counted: &Report, host: usize) -> Vec<Dropped> {
    let total = counted.total(host);
    let mut all = Vec::new();
    total.drops.each(&mut |c| {
        all.push(Dropped { name: c.name.to_owned(), text: c.text.to_owned(), count: c.value });
    });
    for reason in TcpDropReason::ALL {
        let name = format!("tcp-{}", reason.name().replace('_', "-"));
        let text = format!("segments: {}", reason.name().replace('_', " "));
        all.push(Dropped { name, text, count: total.tcp.dropped(*reason) });
    }
    let mut links: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    let sockets = counted.kernel(host);
    let sockets = sockets.iter().flat_map(of_sockets);
    for (name, text, count) in counted.queues(host).flat_map(|q| of_queue(&q.stats)).chain(sockets) {
        links.entry(name).or_insert((text, 0)).1 += count;
    }
    let links = links.into_iter().map(|(name, (text, count))| Dropped {
        name: name.to_owned(),
        text: text.to_owned(),
        count,
    });
    all.extend(links);
    all.retain(|d| d.count > 0);
    all
}

/// Packets dropped between workers and while lanes moved; zero counts are left out.
pub(crate) fn of_runtime(counted: &Report) -> Vec<Dropped> {
    let sum = |f: fn(&WorkerReport) -> u64| counted.workers.iter().map(f).sum();
    let all = [
        ("netisr:ring-full", "found the ring to another worker full", sum(|w| w.netisr.dropped)),
        (
            "move:too-many-waited",
            "arrived for a moving lane that already held too many",
            sum(|w| w.move_overflow),
        ),
    ];
    let some = all.into_iter().filter(|(_, _, count)| *count > 0);
    some.map(|(name, text, count)| Dropped { name: name.to_owned(), text: text.to_owned(), count }).collect()
}

/// Dropped packets by `host:reason`; zero counts are left out.
pub(crate) fn by_reason(counted: &Report, hosts: &[(&str, usize)]) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    for (name, host) in hosts {
        for d in of_host(counted, *host) {
            *drops.entry(format!("{name}:{}", d.name)).or_default() += d.count;
        }
    }
    drops.extend(of_runtime(counted).into_iter().map(|d| (d.name, d.count)));
    drops
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane::link::QueueStats;
    use flowlane::stats::{NetisrStats, QueueReport};

    /// Every drop counter is part of every sum and list.
    #[test]
    fn nothing_is_hidden() {
        let stats = QueueStats {
            rx_no_frame: 1,
            rx_ring_full: 2,
            rx_bad: 4,
            tx_failed: 8,
            tx_far_full: 16,
            ..QueueStats::default()
        };
        let kernel = KernelStats {
            datagrams_dropped: 128,
            datagrams_cut: 256,
            no_descriptor: 512,
            // Nothing lost.
            reads_in_vain: 1 << 20,
            ..KernelStats::default()
        };
        let lane = LaneReport {
            host: 0,
            bucket: 0,
            worker: 0,
            stats: Default::default(),
            kernel: Some(kernel),
            aligned: 0,
            redirected: 0,
            task_runs: 0,
            panics: 0,
            failure: None,
            moves: 0,
            busy_nanos: 0,
            sockets: Vec::new(),
            socket_count: 0,
            connections: 0,
            time_waits: 0,
            tcp: Default::default(),
        };
        let worker = WorkerReport {
            worker: 0,
            lanes: vec![lane],
            queues: vec![QueueReport { host: 0, interface: 0, queue: Some(0), stats, quirks: None }],
            netisr: NetisrStats { dropped: 32, ..NetisrStats::default() },
            steering: Vec::new(),
            misdirected: Vec::new(),
            turns: 0,
            busy_turns: 0,
            sleeps: 0,
            frames_free: 0,
            frames_exhausted: 0,
            frames_allocated: 0,
            panics: 0,
            move_overflow: 64,
        };
        assert_eq!(of_worker(&worker), 1023);
        let report = Report { workers: vec![worker], ..Report::default() };
        let all: u64 = of_host(&report, 0).iter().chain(&of_runtime(&report)).map(|d| d.count).sum();
        assert_eq!(all, 1023);
        assert_eq!(by_reason(&report, &[("us", 0)]).values().sum::<u64>(), 1023);
    }
}
