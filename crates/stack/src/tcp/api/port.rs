//! Start of the search for a local port (RFC 6056 §3.3.4, "double-hash port selection").
//!
//! The port released last is reused last: a peer that closed first keeps the old connection in TIME-WAIT, and recognises a new one only
//! by a later timestamp (in milliseconds) or a higher sequence number. The start for one destination reveals nothing about another: it is
//! a keyed hash of the addresses.
//!
//! A search that finds nothing has tried every port, tens of thousands. So for a second its result is kept: the destination has no free
//! port, or only some in TIME-WAIT. Ports that its connections release meanwhile are used without a search.

use crate::tcp::Tcp;
use crate::tcp::lane::scarce_ports::Scarcity;
use crate::tcp::table::Tuple;
use crate::time::Time;
use core::net::{IpAddr, SocketAddr};

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

impl Tcp {
    /// What is known not to be found for a connection from `local` to `remote`.
    #[inline]
    pub(crate) fn scarcity_of_ports(
        &mut self,
        now: Time,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Option<Scarcity> {
        self.core.scarce_ports.what(now, local, remote)
    }

    /// A search has shown it.
    #[cold]
    pub(crate) fn note_scarcity(&mut self, now: Time, local: IpAddr, remote: SocketAddr, what: Scarcity) {
        self.core.scarce_ports.note(now, local, remote, what);
    }

    /// Of a destination that has no port left: one that was given up meanwhile.
    #[cold]
    pub(crate) fn port_given_up(&mut self, now: Time, local: IpAddr, remote: SocketAddr) -> Option<u16> {
        let mut list = self.core.scarce_ports.take_given_up(local, remote)?;
        let free = |port: &u16| self.is_free(now, SocketAddr::new(local, *port), remote, true);
        let found = list.iter().position(free);
        self.ports_tried(found.map_or(list.len(), |at| at + 1) as u64);
        let port = found.map(|n| list.remove(n));
        self.core.scarce_ports.put_back(local, remote, list);
        port
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
        // Guard: `.wrapping_add(1)` as `.wrapping_add(0)` fails lane/tcp::a_port_that_was
        let counter = &mut self.port_turns.0[usize::from(turn.counter)];
        *counter = counter.wrapping_add(passed).wrapping_add(1);
    }
}
