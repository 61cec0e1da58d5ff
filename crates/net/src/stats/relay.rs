//! What a relay counts: of itself, and of each of its targets. Each lane has its own counters.

use flowlane_stack::stats::Figures;
use flowlane_sys::figures;

figures! {
    /// Counters of a relay.
    pub struct RelayStats {
        accepted: count "clients' connections accepted, or flows begun or refused";
        open: gauge "of them, those that have not ended";
        no_target: count "connections reset because no target was up";
        unreached: count "connections reset, datagrams dropped: no target took them";
        too_many: count "connections reset, datagrams dropped: too many in the lane";
        stopped: count "connections and flows ended by the end of the service";
        no_pipe: count "times bytes were copied because no pipe could be had";
        no_room: count "datagrams dropped because there was no room to send them";
        proxy_malformed: count "connections reset because of a malformed PROXY header";
        proxy_too_late: count "connections reset because no PROXY header came in time";
        proxy_cut: count "connections that ended before their PROXY header did";
    }
}

figures! {
    /// Counters of one target.
    pub struct TargetStats {
        up: gauge "1 while the target is up, by its health checks if there are any";
        connections: count "connections relayed, or flows of UDP";
        open: gauge "of them, those that have not ended";
        to_target_bytes: count "bytes relayed to the target";
        to_client_bytes: count "bytes relayed to clients";
        to_target_datagrams: count "datagrams relayed to the target";
        to_client_datagrams: count "datagrams relayed to clients";
        spliced_bytes: count "of connections' bytes, those that passed through pipes";
        copied_bytes: count "of connections' bytes, those that were copied";
        refused: count "connections or datagrams (ICMP) that the target refused";
        timed_out: count "connection attempts that took too long";
        unreachable: count "connections or datagrams that found no way to the target";
        no_descriptor: count "connections or flows for which no descriptor was free";
        connect_failed: count "connections or flows that could not begin for other reasons";
        client_resets: count "connections that the client reset";
        target_resets: count "connections that the target reset, flows that left it";
        lost: count "connections of which one end no longer answered";
        idle_ended: count "connections and flows ended because nothing passed";
        checks: count "health checks";
        checks_failed: count "health checks that failed";
        went_down: count "times the target was found down";
        came_up: count "times the target was found up again";
    }
}

impl TargetStats {
    /// Connection attempts that failed, for whatever reason.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.refused + self.timed_out + self.unreachable + self.no_descriptor + self.connect_failed
    }
}

/// The counters of a relay and of its targets, in one lane or in all lanes of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayCounts {
    /// Of the relay.
    pub relay: RelayStats,
    /// Of each target, by its name.
    pub targets: Vec<(String, TargetStats)>,
}

impl RelayCounts {
    /// Adds the counters of another lane of the host.
    pub fn add(&mut self, other: &Self) {
        self.relay.add(&other.relay);
        for (at, (name, stats)) in other.targets.iter().enumerate() {
            match self.targets.get_mut(at) {
                Some((_, sum)) => sum.add(stats),
                None => self.targets.push((name.clone(), *stats)),
            }
        }
    }
}
