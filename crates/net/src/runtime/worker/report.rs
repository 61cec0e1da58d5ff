//! A worker's report: copies of its counters, taken between two turns.

use super::{HostView, Worker};
use crate::link::pair::QuirkCounts;
use crate::stats::{Meeting, QueueArrivals, QueueReport, WorkerReport};
use crate::wake;

impl Worker {
    /// Lanes, here or elsewhere, whose frames come on this worker's queues: they need it awake.
    fn needed_by(&self) -> u64 {
        let is_ours = |queue: &&u16| self.ports.iter().any(|port| port.index == Some(**queue));
        // Buckets of a host without a link here have no queue here.
        let of_host = |(h, host): (usize, &super::HostView)| {
            let here = self.ports.iter().any(|port| port.doors.all().any(|door| door.host == h));
            if here { host.queue_of.iter().filter(is_ours).count() } else { 0 }
        };
        self.hosts.iter().enumerate().map(of_host).sum::<usize>() as u64
    }

    /// What this worker counted so far; with a list of sockets and connections, which takes time, if that is wanted.
    pub(super) fn report(&mut self, sockets: bool) -> WorkerReport {
        let pool = self.frames.stats();
        let rings = wake::rings();
        WorkerReport {
            worker: self.index,
            lanes: self.lanes.iter().flatten().map(|slot| slot.report(self.index, sockets)).collect(),
            queues: self
                .ports
                .iter()
                .filter(|p| p.index.is_some() || p.dropped > 0)
                .map(|p| {
                    let mut stats = p.queue.stats();
                    stats.tx_failed += p.dropped;
                    QueueReport {
                        host: p.doors.first().host,
                        interface: p.doors.first().interface,
                        queue: p.index,
                        stats,
                        quirks: p.queue.quirks().and_then(QuirkCounts::of),
                    }
                })
                .collect(),
            netisr: self.netisr.stats,
            steering: self.hosts.iter().map(HostView::arrived).collect(),
            arrivals: self.arrivals(),
            misdirected: self.misdirected.clone(),
            turns: self.turns.all,
            busy_turns: self.turns.busy,
            sleeps: self.turns.sleeps,
            time: self.steps.so_far(),
            needed_by: self.needed_by(),
            long_tasks: self.over.report(),
            perf: self.perf.as_ref().map(|perf| Box::new(perf.report())),
            meeting: Meeting {
                rung: rings.rung,
                woke: rings.woke,
                woken: self.turns.woken,
                waited: self.netisr.waited,
                held_back: self.turns.held_back,
                room_waits: self.turns.room_waits,
                frames_sent_home: pool.sent_home,
                frames_came_home: pool.came_home,
            },
            frames_free: pool.free,
            frames_exhausted: pool.exhausted,
            frames_allocated: pool.allocated,
            panics: self.panics,
            move_overflow: self.moves.overflow,
        }
    }

    /// How frames arrived on each queue here, for each host that is on its link.
    fn arrivals(&self) -> Vec<QueueArrivals> {
        let mut all = Vec::new();
        for (p, port) in self.ports.iter().enumerate() {
            let Some(queue) = port.index else { continue };
            for (host, of) in self.hosts.iter().enumerate() {
                let Some(door) = port.doors.all().find(|door| door.host == host) else { continue };
                all.push(QueueArrivals {
                    host,
                    interface: door.interface,
                    queue,
                    by_card: of.of_card,
                    stats: of.stats[p],
                });
            }
        }
        all
    }
}
