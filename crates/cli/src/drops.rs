//! Every packet that was dropped on purpose or for want of something, by reason, out of a runtime's report: by the stack, by
//! TCP, by the link, on the way between workers and while a lane moved.

use std::collections::BTreeMap;

use flowlane::TcpDropReason;
use flowlane::stack_stats::{Counters, LaneStats};
use flowlane::stats::{Report, WorkerReport};

/// What was dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The reason, for machines.
    pub(crate) name: String,
    /// Words for people, to follow the number.
    pub(crate) text: String,
    pub(crate) count: u64,
}

/// The counters of a link's queue that tell of lost packets: name, words and value.
fn of_queue(q: &flowlane::link::QueueStats) -> [(&'static str, &'static str, u64); 5] {
    [
        ("link-queue-full", "found the far side's receive queue full", q.tx_far_full),
        ("link-no-frame", "times the link had no free frame for a packet", q.rx_no_frame),
        ("link-ring-full", "found the link's receive ring or buffer full", q.rx_ring_full),
        ("link-bad", "came over the link too long, cut short or senseless", q.rx_bad),
        ("link-refused", "to be sent were refused by the link", q.tx_failed),
    ]
}

/// What the stack dropped in a lane, TCP included.
pub(crate) fn of_lane(stats: &LaneStats) -> u64 {
    stats.drops.total() + TcpDropReason::ALL.iter().map(|reason| stats.tcp.dropped(*reason)).sum::<u64>()
}

/// What a worker dropped in all.
pub(crate) fn of_worker(worker: &WorkerReport) -> u64 {
    let links: u64 = worker.queues.iter().flat_map(|q| of_queue(&q.stats)).map(|(_, _, n)| n).sum();
    let lanes: u64 = worker.lanes.iter().map(|lane| of_lane(&lane.stats)).sum();
    lanes + links + worker.netisr.dropped + worker.move_overflow
}

/// What a host dropped, by reason; those without any are left out.
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
    for (name, text, count) in counted.queues(host).flat_map(|q| of_queue(&q.stats)) {
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

/// What was dropped on the way between workers and while lanes moved; reasons without any are left out.
pub(crate) fn of_runtime(counted: &Report) -> Vec<Dropped> {
    let sum = |f: fn(&WorkerReport) -> u64| counted.workers.iter().map(f).sum();
    let all = [
        ("netisr:ring-full", "found the ring to another worker full", sum(|w| w.netisr.dropped)),
        (
            "move:too-many-waited",
            "came for a lane that moved, behind too many others",
            sum(|w| w.move_overflow),
        ),
    ];
    let some = all.into_iter().filter(|(_, _, count)| *count > 0);
    some.map(|(name, text, count)| Dropped { name: name.to_owned(), text: text.to_owned(), count }).collect()
}

/// Dropped packets by `host:reason`; reasons without any are left out.
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

    /// A drop in any place shows in every sum and list.
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
        let worker = WorkerReport {
            worker: 0,
            lanes: Vec::new(),
            queues: vec![QueueReport { host: 0, link: 0, stats, quirks: None }],
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
        assert_eq!(of_worker(&worker), 127);
        let report = Report { workers: vec![worker] };
        let all: u64 = of_host(&report, 0).iter().chain(&of_runtime(&report)).map(|d| d.count).sum();
        assert_eq!(all, 127);
        assert_eq!(by_reason(&report, &[("us", 0)]).values().sum::<u64>(), 127);
    }
}
