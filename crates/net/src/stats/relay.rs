//! What a relay counts: of itself, and of each of its targets. Each lane has its own counters.

use flowlane_stack::stats::{Counter, Counters, Kind};
use serde::Serialize;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $kind:ident, $slug:literal, $text:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub struct $name {
            $(#[doc = concat!($text, ".")] pub $field: u64,)+
        }

        impl Counters for $name {
            fn each(&self, f: &mut dyn FnMut(Counter)) {
                $(f(Counter { name: $slug, text: $text, kind: Kind::$kind, value: self.$field });)+
            }

            fn add(&mut self, other: &Self) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

counters! {
    /// Counters of a relay.
    RelayStats {
        accepted: Count, "accepted", "clients' connections accepted, or flows begun or refused";
        open: Gauge, "open", "of them, those that have not ended";
        no_target: Count, "no-target", "connections reset because no target was up";
        unreached: Count, "unreached", "connections reset, datagrams dropped: no target took them";
        too_many: Count, "too-many", "connections reset, datagrams dropped: too many in the lane";
        stopped: Count, "stopped", "connections and flows ended by the end of the service";
        no_pipe: Count, "no-pipe", "times bytes were copied because no pipe could be had";
        no_room: Count, "no-room", "datagrams dropped because there was no room to send them";
        proxy_malformed: Count, "proxy-malformed", "connections reset because of a malformed PROXY header";
        proxy_too_late: Count, "proxy-too-late", "connections reset because no PROXY header came in time";
        proxy_cut: Count, "proxy-cut", "connections that ended before their PROXY header did";
    }
}

counters! {
    /// Counters of one target.
    TargetStats {
        up: Gauge, "up", "1 while the target is up, by its health checks if there are any";
        connections: Count, "connections", "connections relayed, or flows of UDP";
        open: Gauge, "open", "of them, those that have not ended";
        to_target_bytes: Count, "to-target-bytes", "bytes relayed to the target";
        to_client_bytes: Count, "to-client-bytes", "bytes relayed to clients";
        to_target_datagrams: Count, "to-target-datagrams", "datagrams relayed to the target";
        to_client_datagrams: Count, "to-client-datagrams", "datagrams relayed to clients";
        spliced_bytes: Count, "spliced-bytes", "of connections' bytes, those that passed through pipes";
        copied_bytes: Count, "copied-bytes", "of connections' bytes, those that were copied";
        refused: Count, "refused", "connections or datagrams (ICMP) that the target refused";
        timed_out: Count, "timed-out", "connection attempts that took too long";
        unreachable: Count, "unreachable", "connections or datagrams that found no way to the target";
        no_descriptor: Count, "no-descriptor", "connections or flows for which no descriptor was free";
        connect_failed: Count, "connect-failed", "connections or flows that could not begin for other reasons";
        client_resets: Count, "client-resets", "connections that the client reset";
        target_resets: Count, "target-resets", "connections that the target reset, flows that left it";
        lost: Count, "lost", "connections of which one end no longer answered";
        idle_ended: Count, "idle-ended", "connections and flows ended because nothing passed";
        checks: Count, "checks", "health checks";
        checks_failed: Count, "checks-failed", "health checks that failed";
        went_down: Count, "went-down", "times the target was found down";
        came_up: Count, "came-up", "times the target was found up again";
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
