//! A worker's report: copies of its counters, taken between two turns.

use super::Worker;
use crate::link::pair::QuirkCounts;
use crate::stats::{Meeting, QueueReport, WorkerReport};
use crate::wake;

impl Worker {
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
            steering: self.hosts.iter().map(|h| h.stats).collect(),
            misdirected: self.misdirected.clone(),
            turns: self.turns.all,
            busy_turns: self.turns.busy,
            sleeps: self.turns.sleeps,
            time: self.steps.so_far(),
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
}
