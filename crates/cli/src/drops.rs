//! Dropped packets by reason, as the summaries of runs show them: made from the list of every reason ([`flowlane::metrics::drops`]).

use std::collections::BTreeMap;

use flowlane::metrics::drops;
use flowlane::stats::Report;

/// The packets dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The reason, for machines.
    pub(crate) name: String,
    /// The reason in words, printed after the number.
    pub(crate) text: String,
    pub(crate) count: u64,
}

/// Packets that a lane or a worker dropped.
pub(crate) use flowlane::metrics::drops::{of_lane, of_worker};

/// Packets that a host dropped, by reason; zero counts are left out.
pub(crate) fn of_host(counted: &Report, host: usize) -> Vec<Dropped> {
    let some = drops::of_host(counted, host).into_iter().filter(|d| d.count > 0);
    some.map(|d| {
        let (name, text) = match d.layer {
            "stack" | "malformed" => (d.reason.to_owned(), d.text.to_owned()),
            "tcp" => (
                format!("tcp-{}", d.reason.replace('_', "-")),
                format!("segments: {}", d.text.replace('_', " ")),
            ),
            layer => (format!("{layer}-{}", d.reason), d.text.to_owned()),
        };
        Dropped { name, text, count: d.count }
    })
    .collect()
}

/// Packets dropped between workers and while lanes moved; zero counts are left out.
pub(crate) fn of_runtime(counted: &Report) -> Vec<Dropped> {
    let some = drops::of_runtime(counted).into_iter().filter(|d| d.count > 0);
    let named = some.map(|d| (format!("{}:{}", d.layer, d.reason), d));
    named.map(|(name, d)| Dropped { name, text: d.text.to_owned(), count: d.count }).collect()
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
    use flowlane::KernelStats;
    use flowlane::link::QueueStats;
    use flowlane::stats::{LaneReport, NetisrStats, PoolCounts, QueueReport, WorkerReport};

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
            datagrams_overflown: 2048,
            // Nothing lost.
            reads_in_vain: 1 << 20,
            ..KernelStats::default()
        };
        let lane = LaneReport {
            host: 0,
            bucket: 0,
            worker: 0,
            stats: Default::default(),
            counts: Default::default(),
            kernel: Some(kernel),
            relay: None,
            services: Vec::new(),
            failure: None,
            sockets: Vec::new(),
            tcp: Default::default(),
            kernel_sockets: Default::default(),
        };
        let worker = WorkerReport {
            needed_by: 0,
            long_tasks: Default::default(),
            perf: None,
            worker: 0,
            lanes: vec![lane],
            queues: vec![QueueReport {
                host: 0,
                interface: 0,
                queue: Some(0),
                stats,
                outstanding: None,
                quirks: None,
            }],
            netisr: NetisrStats { dropped: 32, no_lane: 1024, ..NetisrStats::default() },
            steering: Vec::new(),
            arrivals: Vec::new(),
            misdirected: Vec::new(),
            turns: Default::default(),
            time: Default::default(),
            meeting: Default::default(),
            pool: PoolCounts { move_overflow: 64, ..PoolCounts::default() },
        };
        assert_eq!(of_worker(&worker), 4095);
        let report = Report { workers: vec![worker], ..Report::default() };
        let all: u64 = of_host(&report, 0).iter().chain(&of_runtime(&report)).map(|d| d.count).sum();
        assert_eq!(all, 4095);
        assert_eq!(by_reason(&report, &[("us", 0)]).values().sum::<u64>(), 4095);
    }
}
