//! A worker's report: copies of its counters, taken between two turns.

use super::worker::Worker;
use crate::link::pair::QuirkCounts;
use crate::stats::{CONNECTIONS_LOOKED_AT, LaneReport, QueueReport, SOCKETS_SHOWN, WorkerReport};

impl Worker {
    /// Everything this worker counted so far.
    pub(super) fn report(&self) -> WorkerReport {
        let pool = self.frames.stats();
        WorkerReport {
            worker: self.index,
            lanes: self.lanes.iter().flatten().map(|slot| self.report_lane(slot)).collect(),
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
            frames_free: pool.free,
            frames_exhausted: pool.exhausted,
            frames_allocated: pool.allocated,
            panics: self.panics,
            move_overflow: self.moves.overflow,
        }
    }

    fn report_lane(&self, slot: &super::lane_slot::LaneSlot) -> LaneReport {
        let mut sockets = Vec::new();
        let mut socket_count = 0;
        slot.lane.udp_sockets(&mut |info| {
            socket_count += 1;
            if sockets.len() < SOCKETS_SHOWN {
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
            sockets,
            socket_count,
            connections,
            time_waits,
            tcp: slot.lane.tcp_snapshot(SOCKETS_SHOWN, CONNECTIONS_LOOKED_AT),
        }
    }
}
