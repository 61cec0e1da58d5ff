//! A worker's report: copies of its counters, taken between two turns.

use super::Worker;
use crate::lane::LaneSlot;
use crate::link::pair::QuirkCounts;
use crate::stats::{CONNECTIONS_LOOKED_AT, LaneReport, Meeting, QueueReport, SOCKETS_SHOWN, WorkerReport};
use crate::wake;

impl Worker {
    /// What this worker counted so far; with a list of sockets and connections, which takes time, if that is wanted.
    pub(super) fn report(&mut self, sockets: bool) -> WorkerReport {
        let pool = self.frames.stats();
        let rings = wake::rings();
        WorkerReport {
            worker: self.index,
            lanes: self.lanes.iter().flatten().map(|slot| self.report_lane(slot, sockets)).collect(),
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

    fn report_lane(&self, slot: &LaneSlot, list: bool) -> LaneReport {
        let (shown, looked_at) = if list { (SOCKETS_SHOWN, CONNECTIONS_LOOKED_AT) } else { (0, 0) };
        let mut sockets = Vec::new();
        let mut socket_count = 0;
        slot.lane.udp_sockets(&mut |info| {
            socket_count += 1;
            if sockets.len() < shown {
                sockets.push(info);
            }
        });
        let (mut connections, time_waits) = slot.lane.tcp_counts();
        let mut stats = slot.lane.stats();
        if let Some(kernel) = &slot.kernel {
            connections += kernel.connections();
            socket_count += kernel.udp_sockets();
            kernel.stats.show_in(&mut stats);
        }
        LaneReport {
            host: slot.host,
            bucket: slot.lane.bucket().0,
            worker: self.index,
            stats,
            kernel: slot.kernel.as_ref().map(|k| k.stats),
            aligned: slot.counters.aligned,
            redirected: slot.counters.redirected,
            task_runs: slot.counters.task_runs,
            panics: slot.counters.panics,
            failure: slot.failure.clone(),
            moves: slot.counters.moves,
            busy_nanos: slot.counters.nanos,
            sockets,
            socket_count,
            connections,
            time_waits,
            tcp: slot.lane.tcp_snapshot(shown, looked_at),
        }
    }
}
