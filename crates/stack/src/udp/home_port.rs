//! The local port of a connected socket: one whose answers arrive in this lane.
//!
//! A search that finds nothing has tried every port whose answers arrive here, thousands. So its result is kept until a socket of this
//! destination is closed; the ports of closed sockets are used without a search.

use core::cell::Cell;
use core::net::IpAddr;

use flowlane_rss::{Bucket, HomePorts, Protocol};

use super::{Bind, BindError, Udp};
use crate::address::Endpoint;

/// Ports below this belong to services (RFC 6335 section 6).
pub(crate) const FIRST: u16 = 1024;

/// Destinations remembered, and ports for each.
const DESTINATIONS: usize = 16;
const GIVEN_UP: usize = 16;

/// A destination, for datagrams from one of our addresses, to which every port is in use.
#[derive(Debug)]
struct Scarce {
    local: IpAddr,
    remote: Endpoint,
    /// Given up by its sockets since.
    given_up: Vec<u16>,
}

/// Those of a lane.
#[derive(Debug, Default)]
pub(super) struct ScarcePorts(Vec<Scarce>);

impl ScarcePorts {
    fn find(&self, local: IpAddr, remote: Endpoint) -> Option<usize> {
        self.0.iter().position(|s| (s.local, s.remote) == (local, remote))
    }

    /// A search has found nothing.
    #[cold]
    fn note(&mut self, local: IpAddr, remote: Endpoint) {
        if self.0.len() >= DESTINATIONS {
            self.0.remove(0);
        }
        self.0.push(Scarce { local, remote, given_up: Vec::new() });
    }

    /// A socket bound to this is closed.
    pub(super) fn given_up(&mut self, local: Option<IpAddr>, port: u16, remote: Option<Endpoint>) {
        if self.0.is_empty() {
            return;
        }
        let (Some(local), Some(remote)) = (local, remote) else { return };
        let Some(at) = self.find(local, remote) else { return };
        if self.0[at].given_up.len() < GIVEN_UP {
            self.0[at].given_up.push(port);
        } else {
            // There are many again.
            self.0.swap_remove(at);
        }
    }
}

impl Udp {
    /// A free local port, of those of `home`, for datagrams from `local` to `remote`; and how many were tried. `other` says whose lane
    /// the answers come to if not ours; `random` where the search begins.
    pub(crate) fn home_port(
        &mut self,
        home: &HomePorts,
        random: u32,
        (local, remote): (IpAddr, Endpoint),
        other: impl FnOnce() -> Bucket,
    ) -> (Result<u16, BindError>, u64) {
        let Ok(ports) = home.to(local, remote.into(), Protocol::UDP) else {
            // Datagrams that are not hashed go to no lane in particular.
            return (Err(BindError::NoRoute), 0);
        };
        if ports.is_empty() {
            return (Err(BindError::OtherLane(other())), 0);
        }
        let (udp, tried) = (&*self, Cell::new(0));
        let used = |port: u16| {
            tried.set(tried.get() + 1);
            let bind =
                Bind { local_ip: Some(local), local_port: port, remote: Some(remote), ..Bind::default() };
            // Guard: `!udp.is_free_here(&bind)` as `false` fails lane/elsewhere::a_port_that_another_lane_has
            port < FIRST || udp.is_taken(&bind) || !udp.is_free_here(&bind)
        };
        let known = self.scarce_ports.find(local, remote);
        let found = match known {
            // What was given up may be out of reach, or somebody has bound it by its number.
            Some(at) => {
                let given_up = &self.scarce_ports.0[at].given_up;
                given_up.iter().copied().find(|port| ports.contains(*port) && !used(*port))
            }
            None => ports.pick_unused(random, used).map(|(port, _)| port),
        };
        let tried = tried.get();
        match (found, known) {
            (Some(port), Some(at)) => self.scarce_ports.0[at].given_up.retain(|other| *other != port),
            // Guard: `self.scarce_ports.note(local, remote)` as `{}` fails lane/echo::a_lane_whose_ports
            (None, None) => self.scarce_ports.note(local, remote),
            _ => {}
        }
        (found.ok_or(BindError::NoPort), tried)
    }
}
