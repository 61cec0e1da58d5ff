//! A worker's report: copies of its counters, taken between two turns.

use super::{HostView, Worker};
use crate::stats::{Meeting, PoolCounts, QueueArrivals, WorkerReport};
use crate::wake;

impl Worker {
    /// Lanes, here or elsewhere, whose frames come on this worker's queues: they need it awake.
    fn needed_by(&self) -> u64 {
        let is_ours = |queue| self.ports.of_queue(queue).next().is_some();
        // Buckets of a host without a link here have no queue here.
        let is_here = |h| self.ports.iter().any(|port| port.doors().serve(h));
        let hosts = self.hosts.iter().enumerate().filter(|(h, _)| is_here(*h));
        hosts.map(|(_, host)| host.buckets_on(is_ours)).sum::<usize>() as u64
    }

    /// What this worker counted so far; with a list of sockets and connections, which takes time, if that is wanted.
    pub(super) fn report(&mut self, sockets: bool) -> WorkerReport {
        // What others have returned is free, though it is taken back only when nothing else is left.
        self.frames.gather();
        let pool = self.frames.stats();
        let rings = wake::rings();
        WorkerReport {
            worker: self.index,
            lanes: self.lanes.iter().map(|slot| slot.report(self.index, sockets)).collect(),
            queues: self.ports.report(),
            netisr: self.netisr.stats,
            steering: self.hosts.iter().map(HostView::arrived).collect(),
            arrivals: self.arrivals(),
            misdirected: self.hosts.examples(),
            turns: self.meter.turns(),
            time: self.meter.times(),
            needed_by: self.needed_by(),
            long_tasks: self.meter.long_tasks(),
            perf: self.meter.perf(),
            meeting: Meeting {
                rung: rings.rung,
                woke: rings.woke,
                waited: self.netisr.waited,
                frames_sent_home: pool.sent_home,
                frames_came_home: pool.came_home,
                ..self.meter.meeting()
            },
            pool: PoolCounts {
                frames: pool.all,
                frames_free: pool.free,
                frames_exhausted: pool.exhausted,
                frames_allocated: pool.allocated,
                panics: self.meter.panics(),
                move_overflow: self.moves.overflow,
            },
        }
    }

    /// How frames arrived on each queue here, for each host that is on its link.
    fn arrivals(&self) -> Vec<QueueArrivals> {
        let mut all = Vec::new();
        for (p, port) in self.ports.iter().enumerate() {
            let Some(queue) = port.index() else { continue };
            for (host, of) in self.hosts.iter().enumerate() {
                let Some(door) = port.doors().all().find(|door| door.host == host) else { continue };
                let (stats, by_card) = of.arrived_on(p);
                all.push(QueueArrivals { host, interface: door.interface, queue, by_card, stats });
            }
        }
        all
    }
}
