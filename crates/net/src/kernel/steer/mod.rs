//! Which lane's socket gets what arrives on a port that all lanes have.
//!
//! Without a word of ours the kernel picks one by a hash of its own: neither of the processor on which a packet arrived nor of its bucket.
//! A host says otherwise ([`Steer`]), and each of its ports gets a program ([`program`]) that runs in the kernel and needs no privilege.
//! The program names sockets by number, so it is made anew whenever a lane opens or closes one, or moves to another worker: flows of lanes
//! that stay keep them. Between the two system calls (the socket is closed, the program is there) a packet of the lane whose socket took
//! the closed one's number may reach another lane.
//!
//! An established connection has a socket of its own; no program is asked about it. Of QUIC, whose connections share a socket, datagrams name
//! their lane, and the program follows that first where the [socket says so](crate::UdpSocket::steer_by_connection_id).

mod near;
pub(super) mod program;

use std::sync::{Arc, OnceLock};

use flowlane_rss::{Bucket, HomePorts, Protocol, Rss};
use flowlane_sys::kernel::select::Instruction;

use program::Linear;
use program::named::Named;

/// How the kernel is told which lane gets a new connection, or a datagram. For hosts made by [`Host::kernel`](crate::Host::kernel).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steer {
    /// The kernel chooses, by a hash of its own.
    #[default]
    None,
    /// The lane of the flow's bucket, as the host's [`Rss`] has it. The hash is computed in the kernel.
    Hash,
    /// A lane of the worker that is bound to the processor on which the packet arrived; of a processor without a worker, one of the nearest.
    /// Among the lanes of a worker a flow keeps to one. [`Steer::Hash`] is used where workers are not bound to processors.
    Cpu,
}

/// A lane's socket on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) lane: u16,
    pub(super) slot: u32,
    /// The worker that holds the lane.
    pub(super) worker: u16,
    /// Bytes of the connection IDs that name lanes in its datagrams; 0 if none do.
    pub(super) ids: u8,
}

/// How the sockets of a host are steered.
#[derive(Debug)]
pub(crate) struct Steering {
    by: Steer,
    /// What was asked for.
    wanted: Steer,
    rss: Arc<Rss>,
    /// Index of the host's first lane.
    first_lane: u16,
    /// The processor of each worker; none if they are not bound.
    cpus: Vec<usize>,
    /// Of each processor, the worker that is nearest.
    near: Vec<u16>,
    /// RPS spreads the packets of the card near which the workers are.
    rps: bool,
    /// Outgoing connections take a port whose answers hash to their lane.
    home: bool,
    /// The hash of each protocol as a program computes it; `None` if it cannot.
    linear: [OnceLock<Option<Linear>>; 2],
}

impl Steering {
    pub(crate) fn new(by: Steer, rss: Arc<Rss>, first_lane: u16, cpus: &[usize], workers: usize) -> Self {
        let bound = cpus.len() >= workers;
        let wanted = by;
        // Guard: `by == Steer::Cpu && !bound` as `false` fails kernel::steer
        let by = if by == Steer::Cpu && !bound { Steer::Hash } else { by };
        let near = if by == Steer::Cpu { near::workers(cpus) } else { Vec::new() };
        let cpus = if bound { cpus.to_vec() } else { Vec::new() };
        Self { by, wanted, rss, first_lane, cpus, near, rps: false, home: false, linear: Default::default() }
    }

    /// The processor of a worker, if it is bound to one and there are others.
    pub(super) fn cpu_of(&self, worker: usize) -> Option<u32> {
        (self.cpus.len() > 1).then(|| self.cpus.get(worker).map(|cpu| *cpu as u32))?
    }

    /// Whether the card near which the workers are spreads its packets by RPS.
    pub(crate) fn with_rps(self, rps: bool) -> Self {
        Self { rps, ..self }
    }

    /// Whether outgoing connections take a port whose answers hash to their lane.
    pub(crate) fn with_home_ports(self, home: bool) -> Self {
        Self { home, ..self }
    }

    /// The ports of a lane's outgoing connections, if they are to be its own.
    pub(super) fn home_ports(&self, lane: u16) -> Option<HomePorts> {
        let slots = self.rss.slots_of_bucket(Bucket(lane - self.first_lane));
        self.home.then(|| HomePorts::new(&self.rss, &slots))
    }

    pub(super) fn has_rps(&self) -> bool {
        self.rps
    }

    pub(super) fn is_by_processor(&self) -> bool {
        self.by == Steer::Cpu
    }

    /// Whether a worker is bound to this processor.
    pub(super) fn serves(&self, processor: u32) -> bool {
        self.cpus.contains(&(processor as usize))
    }

    /// How it is done, in words for people.
    pub(crate) fn words(&self) -> String {
        let words = match (self.by, self.wanted) {
            (Steer::None, _) => "kernel sockets",
            (Steer::Hash, Steer::Cpu) => {
                "kernel sockets steered by hash since workers are not bound to processors (too few are free)"
            }
            (Steer::Hash, _) => "kernel sockets steered by hash",
            (Steer::Cpu, _) => "kernel sockets steered by processor",
        };
        words.to_owned()
    }

    /// The program for these sockets, in the order of their numbers; `None` if the kernel chooses.
    pub(super) fn program(
        &self,
        tcp: bool,
        families: Families,
        sockets: &[Bound],
    ) -> Option<Vec<Instruction>> {
        if self.by == Steer::None || sockets.is_empty() {
            return None;
        }
        let number = |bucket: Bucket| {
            let lane = self.first_lane + bucket.0;
            let number = sockets.iter().position(|s| s.lane == lane);
            number.map_or(u32::MAX, |number| number as u32)
        };
        let ids = sockets.iter().map(|s| s.ids).max().filter(|length| *length > 0);
        let named = ids.map(|length| {
            let lanes = 0..self.rss.buckets.len();
            Named::new(length, lanes.map(|lane| number(Bucket(lane as u16))).collect())
        });
        let named = named.as_ref();
        if self.by == Steer::Cpu {
            let mut lanes = vec![Vec::new(); self.cpus.len()];
            for (number, socket) in sockets.iter().enumerate() {
                if let Some(lanes) = lanes.get_mut(usize::from(socket.worker)) {
                    lanes.push(number as u32);
                }
            }
            return Some(program::by_processor(families, &self.near, &lanes, named));
        }
        let protocol = if tcp { Protocol::TCP } else { Protocol::UDP };
        let linear =
            self.linear[usize::from(tcp)].get_or_init(|| Linear::of(&self.rss, protocol)).as_ref()?;
        let slots: Vec<u32> = self.rss.table.slots().iter().map(|bucket| number(*bucket)).collect();
        Some(program::by_hash(families, linear, &slots, named))
    }
}

/// Families of the packets that reach a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    /// Of a socket bound to this address.
    pub(super) fn of(ip: std::net::IpAddr) -> Self {
        Self { v4: ip.is_ipv4() || ip.is_unspecified(), v6: ip.is_ipv6() }
    }
}
