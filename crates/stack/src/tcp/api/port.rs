//! Where the search for a local port begins (RFC 6056 §3.3.4, "double-hash port selection").
//!
//! A port that was given up a moment ago is the last to be taken again: the peer that closed first keeps the old
//! connection in TIME-WAIT, and knows the new one only by a later timestamp, of a millisecond, or a higher sequence number.
//! Where the search begins for one destination says nothing about another: it is a keyed hash of the addresses.
//!
//! A search that finds nothing has looked at every port, tens of thousands of them. So for a second it is known that this destination
//! has none left, or only some in TIME-WAIT, and ports that its connections give up meanwhile are handed out without a search.

use crate::tcp::Tcp;
use crate::tcp::table::Tuple;
use crate::time::Time;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

/// What the key is used for: different from all other uses of it.
const TAG_PORT: u64 = 4;

/// Counters that destinations share by hash (RFC 6056's `table`).
#[derive(Debug)]
pub(crate) struct PortTurns([u32; TURNS as usize]);

/// How many there are.
const TURNS: u8 = 64;

impl Default for PortTurns {
    fn default() -> Self {
        Self([0; TURNS as usize])
    }
}

/// A search for a port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortTurn {
    /// The number at which it begins.
    pub(crate) first: u32,
    /// Whose counter it is.
    counter: u8,
}

/// What a search for a port did not find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scarcity {
    /// One that is not in TIME-WAIT.
    TimeWait,
    /// Any.
    None,
}

/// A destination to which ports are scarce.
#[derive(Debug)]
struct Scarce {
    local: IpAddr,
    remote: SocketAddr,
    what: Scarcity,
    until: Time,
    /// Given up by connections to it since, in order.
    given_up: Vec<u16>,
}

/// Those of a lane.
#[derive(Debug, Default)]
pub(crate) struct ScarcePorts(Vec<Scarce>);

/// Destinations remembered, ports for each, and for how long.
const DESTINATIONS: usize = 16;
const GIVEN_UP: usize = 16;
const REMEMBERED: Duration = Duration::from_secs(1);

impl ScarcePorts {
    fn find(&self, local: IpAddr, remote: SocketAddr) -> Option<usize> {
        self.0.iter().position(|s| (s.local, s.remote) == (local, remote))
    }

    /// A connection has left the table: its port is free, or in TIME-WAIT.
    #[inline]
    pub(crate) fn given_up(&mut self, tuple: &Tuple) {
        if !self.0.is_empty() {
            self.keep(tuple);
        }
    }

    #[cold]
    fn keep(&mut self, tuple: &Tuple) {
        let Some(at) = self.find(tuple.local, SocketAddr::new(tuple.remote, tuple.remote_port)) else {
            return;
        };
        let scarce = &mut self.0[at];
        if scarce.what == Scarcity::TimeWait {
            // A search among those in TIME-WAIT finds it, too.
        } else if scarce.given_up.len() < GIVEN_UP {
            scarce.given_up.push(tuple.local_port);
        } else {
            // There are many again.
            self.0.swap_remove(at);
        }
    }
}

impl Tcp {
    /// What is known not to be found for a connection from `local` to `remote`.
    #[inline]
    pub(crate) fn scarcity_of_ports(
        &mut self,
        now: Time,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Option<Scarcity> {
        let scarce = &mut self.core.scarce_ports;
        if scarce.0.is_empty() {
            return None;
        }
        scarce.0.retain(|s| now < s.until);
        scarce.find(local, remote).map(|at| scarce.0[at].what)
    }

    /// A search has shown it.
    #[cold]
    pub(crate) fn note_scarcity(&mut self, now: Time, local: IpAddr, remote: SocketAddr, what: Scarcity) {
        let scarce = &mut self.core.scarce_ports;
        if let Some(at) = scarce.find(local, remote) {
            scarce.0.swap_remove(at);
        }
        if scarce.0.len() >= DESTINATIONS {
            scarce.0.remove(0);
        }
        scarce.0.push(Scarce { local, remote, what, until: now + REMEMBERED, given_up: Vec::new() });
    }

    /// Of a destination that has no port left: one that was given up meanwhile.
    #[cold]
    pub(crate) fn port_given_up(&mut self, now: Time, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let at = self.core.scarce_ports.find(local, remote)?;
        let list = core::mem::take(&mut self.core.scarce_ports.0[at].given_up);
        let free = |port: &u16| self.is_free(now, SocketAddr::new(local, *port), remote, true);
        let found = list.iter().position(free);
        self.ports_tried(found.map_or(list.len(), |at| at + 1) as u64);
        let scarce = &mut self.core.scarce_ports.0[at];
        scarce.given_up = list;
        found.map(|n| scarce.given_up.remove(n))
    }

    /// So many ports were looked at.
    pub(crate) fn ports_tried(&mut self, ports: u64) {
        self.core.stats.ports_tried += ports;
    }

    /// Where to look for a port of a connection from `local` to `remote`.
    pub(crate) fn port_turn(&self, local: IpAddr, remote: SocketAddr) -> PortTurn {
        let tuple = Tuple { local, remote: remote.ip(), local_port: 0, remote_port: remote.port() };
        let hash = tuple.keyed(&self.core.keyed, TAG_PORT, 1);
        let counter = (hash >> 32) as u8 % TURNS;
        PortTurn { first: (hash as u32).wrapping_add(self.port_turns.0[usize::from(counter)]), counter }
    }

    /// The port was found after passing over so many: the next search begins behind it.
    pub(crate) fn port_taken(&mut self, turn: PortTurn, passed: u32) {
        let counter = &mut self.port_turns.0[usize::from(turn.counter)];
        *counter = counter.wrapping_add(passed).wrapping_add(1);
    }
}
