//! The answers of all workers.

use std::collections::BTreeMap;

use flowlane_stack::stats::{Figures, Histogram, LaneStats};

use super::{
    CardReport, LaneReport, QueueReport, RebalanceCounts, RelayCounts, ServiceFigures, SteeringStats,
    WatchdogReport, WorkerReport,
};
use crate::error::Failed;
use crate::kernel::KernelStats;

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
    /// What other programs changed of the cards under AF_XDP links while they were open: the last changes.
    pub changed: Vec<String>,
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

    /// The figures of values that a host's lanes own, summed by name.
    #[must_use]
    pub fn services(&self, host: usize) -> Vec<ServiceFigures> {
        let mut all: Vec<ServiceFigures> = Vec::new();
        for one in self.lanes(host).iter().flat_map(|l| &l.services) {
            match all.iter_mut().find(|sum| sum.name == one.name) {
                Some(sum) => sum.add(one),
                None => all.push(one.clone()),
            }
        }
        all
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
