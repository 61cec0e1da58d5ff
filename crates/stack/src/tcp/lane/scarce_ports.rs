//! Destinations that have hardly a local port left: see `api/port.rs`.

use crate::tcp::table::Tuple;
use crate::time::Time;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

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

    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// A connection has left the table: its port is free, or in TIME-WAIT.
    #[cold]
    pub(crate) fn given_up(&mut self, tuple: &Tuple) {
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

    /// What is known not to be found for a connection from `local` to `remote`.
    #[inline]
    pub(crate) fn what(&mut self, now: Time, local: IpAddr, remote: SocketAddr) -> Option<Scarcity> {
        if self.0.is_empty() {
            return None;
        }
        self.0.retain(|s| now < s.until);
        self.find(local, remote).map(|at| self.0[at].what)
    }

    /// A search has shown it.
    pub(crate) fn note(&mut self, now: Time, local: IpAddr, remote: SocketAddr, what: Scarcity) {
        if let Some(at) = self.find(local, remote) {
            self.0.swap_remove(at);
        }
        if self.0.len() >= DESTINATIONS {
            self.0.remove(0);
        }
        self.0.push(Scarce { local, remote, what, until: now + REMEMBERED, given_up: Vec::new() });
    }

    /// The ports that connections to a scarce destination have given up, to be put back.
    pub(crate) fn take_given_up(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Vec<u16>> {
        let at = self.find(local, remote)?;
        Some(core::mem::take(&mut self.0[at].given_up))
    }

    /// Puts back those that are left.
    pub(crate) fn put_back(&mut self, local: IpAddr, remote: SocketAddr, given_up: Vec<u16>) {
        if let Some(at) = self.find(local, remote) {
            self.0[at].given_up = given_up;
        }
    }
}
