//! A lane's report: copies of its counters.

use super::LaneSlot;
use crate::stats::{CONNECTIONS_LOOKED_AT, LaneCounts, LaneReport, SOCKETS_SHOWN, ServiceFigures};

impl LaneSlot {
    /// What was counted for it so far, at this worker; with a list of its sockets, if that is wanted.
    pub(crate) fn report(&self, worker: usize, list: bool) -> LaneReport {
        let (shown, looked_at) = if list { (SOCKETS_SHOWN, CONNECTIONS_LOOKED_AT) } else { (0, 0) };
        let mut sockets = Vec::new();
        let mut socket_count = 0;
        self.lane.udp_sockets(&mut |info| {
            socket_count += 1;
            if sockets.len() < shown {
                sockets.push(info);
            }
        });
        let (mut connections, time_waits) = self.lane.tcp().counts();
        let mut stats = self.lane.stats();
        let (mut aligned, mut redirected) = (self.counters.aligned, self.counters.redirected);
        if let Some(kernel) = &self.kernel {
            connections += kernel.connections();
            socket_count += kernel.udp_sockets();
            kernel.stats.show_in(&mut stats);
            aligned += kernel.stats.aligned;
            redirected += kernel.stats.elsewhere;
        }
        let mut tcp = self.lane.tcp().snapshot(shown, looked_at);
        let mut kernel_sockets = self.kernel.as_ref().map(|k| k.list(shown)).unwrap_or_default();
        tcp.connections += kernel_sockets.connections;
        tcp.listeners += kernel_sockets.listeners;
        tcp.states.iter_mut().zip(kernel_sockets.states).for_each(|(sum, n)| *sum += n);
        for row in &mut kernel_sockets.rows {
            if let Some(remote) = row.remote {
                let (hash, kind) = self.lane.tcp_hash(row.local.into(), remote.into());
                row.flow = (hash, kind.as_u8());
            }
        }
        LaneReport {
            host: self.host,
            bucket: self.lane.bucket().0,
            worker,
            stats,
            kernel: self.kernel.as_ref().map(|k| k.stats),
            relay: self.relay.clone(),
            services: self.services(),
            counts: LaneCounts {
                aligned,
                redirected,
                task_runs: self.counters.task_runs,
                panics: self.counters.panics,
                moves: self.counters.moves,
                busy_nanos: self.counters.nanos,
                sockets: socket_count as u64,
                connections: connections as u64,
                time_waits: time_waits as u64,
            },
            failure: self.failure.clone(),
            sockets,
            tcp,
            kernel_sockets,
        }
    }

    /// The figures of the values that it owns.
    fn services(&self) -> Vec<ServiceFigures> {
        let mut services = Vec::new();
        for owned in self.owned.iter().filter_map(|place| place.0.as_deref()) {
            let mut figures = Vec::new();
            owned.figures(&mut |figure| figures.push(figure));
            if !figures.is_empty() {
                services.push(ServiceFigures { name: owned.name(), figures, shown: owned.shown() });
            }
        }
        services
    }
}
