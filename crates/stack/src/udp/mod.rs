//! UDP (RFC 768) in one lane: sockets, their tables, input and output.
//!
//! ```text
//!   input ▸ header, checksum ▸ table: connected? bound to the address? wildcard? any port? ▸ socket's queue ▸ wake
//!   send  ▸ header, checksum ▸ ip
//! ```
//!
//! A datagram stays in its frame from the link to the application, and an answer can be sent in the same frame. Sockets belong to their
//! lane: the same port may be bound once in every lane, and a lane's socket receives the datagrams that the flow hash sends to that lane.
//! A connected socket receives its datagrams in any lane of its host: the lane in which they arrive hands them over.

mod elsewhere;
mod home_port;
mod input;
mod key;
mod output;
mod socket;
mod table;

pub use elsewhere::UdpElsewhere;
pub use socket::{Bind, BindError, Datagram, SocketInfo, UdpHandle};

pub(crate) use home_port::FIRST as FIRST_HOME_PORT;
pub(crate) use input::{Outcome, is_intact, pseudo};

use crate::address::Endpoint;
use crate::packet::{IcmpErrorKind, IpInput};
use crate::queue::append_all;
use crate::rng::Rng;
use elsewhere::Siblings;
use flowlane_rss::Bucket;
use home_port::ScarcePorts;
use key::Key;
use socket::Socket;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::Waker;
use table::Table;

/// First of the ports chosen for an application that does not care (RFC 6335 section 6).
const EPHEMERAL_FIRST: u16 = 49_152;
/// How many of them are tried for a socket whose answers come to another lane, of which at most a half can be in use there.
const TRIES: usize = 64;

/// Limits of a lane's UDP.
#[derive(Debug, Clone, Copy)]
pub struct UdpConfig {
    /// Sockets of the lane.
    pub sockets: usize,
    /// Datagrams waiting in one socket, unless the socket says otherwise.
    pub socket_queue: usize,
    /// Datagrams waiting in all sockets of the lane together: bounds the frames that slow applications can hold.
    pub lane_queue: usize,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self { sockets: 1 << 20, socket_queue: 2048, lane_queue: 4096 }
    }
}

/// The UDP of a lane.
#[derive(Debug)]
pub(crate) struct Udp {
    config: UdpConfig,
    sockets: Vec<Socket>,
    free: Vec<u32>,
    table: Table,
    queued: usize,
    /// Destinations to which no port is left.
    scarce_ports: ScarcePorts,
    /// What the host's other lanes tell, if it has any.
    siblings: Option<Siblings>,
}

impl Udp {
    pub(crate) fn new(config: UdpConfig, seed: u64) -> Self {
        Self {
            config,
            sockets: Vec::new(),
            free: Vec::new(),
            table: Table::new(seed),
            queued: 0,
            scarce_ports: ScarcePorts::default(),
            siblings: None,
        }
    }

    /// The host's lanes tell one another about connected sockets from now on. Before the first socket is made.
    pub(crate) fn share(&mut self, elsewhere: Arc<UdpElsewhere>, here: Bucket) {
        self.siblings = Some(Siblings::new(elsewhere, here));
    }

    /// Makes a connected socket whose answers come to the lane of `home`.
    pub(crate) fn connect(
        &mut self,
        bind: Bind,
        home: Bucket,
        rng: &mut Rng,
    ) -> Result<UdpHandle, BindError> {
        let key = bind.key();
        let claimed = self.siblings.as_ref().map(|s| (s.elsewhere.clone(), s.here));
        let Some((elsewhere, here)) = claimed else { return self.bind(bind, rng) };
        // What this lane has itself is in use as well.
        elsewhere.claim(key, home, here)?;
        self.bind(bind, rng).inspect_err(|_| elsewhere.release(key, home, here))
    }

    /// A free ephemeral port for a socket whose answers come to another lane: a bounded number of random ones is tried.
    pub(crate) fn port_elsewhere(
        &self,
        home: impl Fn(u16) -> Bucket,
        local: IpAddr,
        remote: Endpoint,
        rng: &mut Rng,
    ) -> Option<u16> {
        let elsewhere = &self.siblings.as_ref()?.elsewhere;
        let span = u32::from(u16::MAX - EPHEMERAL_FIRST) + 1;
        (0..TRIES).map(|_| EPHEMERAL_FIRST + rng.below(span) as u16).find(|&port| {
            let key = elsewhere::ends(local, port, remote);
            elsewhere.is_free(&key, home(port))
        })
    }

    /// Lanes tell one another about connected sockets.
    pub(crate) fn is_shared(&self) -> bool {
        self.siblings.is_some()
    }

    /// The ends of a connected socket of ours.
    pub(crate) fn connected(&self, handle: UdpHandle) -> Option<(IpAddr, u16, Endpoint)> {
        let key = self.get(handle)?.key;
        Some((key.local_ip?, key.local_port, key.remote?))
    }

    /// A connected socket, whose answers come to the lane of `home`, is closed.
    pub(crate) fn release(&self, (local, port, remote): (IpAddr, u16, Endpoint), home: Bucket) {
        if let Some(siblings) = &self.siblings {
            siblings.elsewhere.release(elsewhere::ends(local, port, remote), home, siblings.here);
        }
    }

    /// Whether a connected socket of this lane has these ends.
    pub(crate) fn is_connected(&self, local: Endpoint, remote: Endpoint) -> bool {
        self.table.contains(&elsewhere::ends(local.ip, local.port, remote), &self.sockets)
    }

    /// The other lane whose connected socket a packet is for that comes in with these ends.
    #[inline]
    pub(crate) fn elsewhere(&mut self, local: Endpoint, remote: Endpoint) -> Option<Bucket> {
        self.siblings.as_mut().filter(|s| !s.are_none())?.find(local, remote)
    }

    /// As [`Udp::elsewhere`], for a packet whose data is a datagram.
    #[inline]
    pub(crate) fn datagram_elsewhere(&mut self, packet: &IpInput) -> Option<Bucket> {
        if self.siblings.as_ref().is_none_or(Siblings::are_none) {
            return None;
        }
        let ports = packet.frame.data().first_chunk::<4>()?;
        let port = |i: usize| u16::from_be_bytes([ports[i], ports[i + 1]]);
        self.elsewhere(Endpoint::new(packet.ip.dst, port(2)), Endpoint::new(packet.ip.src, port(0)))
    }

    /// Makes a socket.
    pub(crate) fn bind(&mut self, bind: Bind, rng: &mut Rng) -> Result<UdpHandle, BindError> {
        // Guard: `self.sockets.len() - self.free.len() >= self.config.sockets` as `false` fails
        // lane/sockets_of_a_lane
        if self.sockets.len() - self.free.len() >= self.config.sockets {
            return Err(BindError::TooManySockets);
        }
        let mut bind = bind;
        if bind.local_port == 0 && !bind.any_port {
            bind.local_port = self.ephemeral(&bind, rng).ok_or(BindError::NoPort)?;
        }
        let key = bind.key();
        if self.table.contains(&key, &self.sockets) {
            return Err(BindError::InUse);
        }
        let slot = self.free.pop().unwrap_or(self.sockets.len() as u32);
        let generation = self.sockets.get(slot as usize).map_or(0, |s| s.generation);
        let socket = Socket::new(generation, key, bind.queue.unwrap_or(self.config.socket_queue));
        if slot as usize == self.sockets.len() {
            self.sockets.push(socket);
        } else {
            self.sockets[slot as usize] = socket;
        }
        self.table.insert(slot, &self.sockets);
        Ok(UdpHandle { slot, generation })
    }

    /// Whether a socket is bound to just this.
    pub(crate) fn is_taken(&self, bind: &Bind) -> bool {
        self.table.contains(&bind.key(), &self.sockets)
    }

    /// No other lane has a socket with these ends, whose answers come to this lane.
    fn is_free_here(&self, bind: &Bind) -> bool {
        self.siblings.as_ref().is_none_or(|s| s.elsewhere.is_free(&bind.key(), s.here))
    }

    /// A free ephemeral port for `bind`: random, with a bounded number of tries, then in order.
    fn ephemeral(&self, bind: &Bind, rng: &mut Rng) -> Option<u16> {
        let span = u32::from(u16::MAX - EPHEMERAL_FIRST) + 1;
        let start = rng.below(span);
        (0..span)
            .map(|i| EPHEMERAL_FIRST + ((start + i) % span) as u16)
            .find(|&port| !self.table.contains(&Bind { local_port: port, ..*bind }.key(), &self.sockets))
    }

    /// Closes a socket and frees what waits in it. `false` if the handle is stale.
    pub(crate) fn close(&mut self, handle: UdpHandle) -> bool {
        if self.get(handle).is_none() {
            return false;
        }
        self.table.remove(handle.slot, &self.sockets);
        let socket = &mut self.sockets[handle.slot as usize];
        socket.generation = socket.generation.wrapping_add(1);
        self.queued -= socket.queue.len();
        socket.queue = Default::default();
        socket.close();
        let Key { local_ip, local_port, remote } = socket.key;
        self.scarce_ports.given_up(local_ip, local_port, remote);
        self.free.push(handle.slot);
        true
    }

    #[inline]
    fn get(&self, handle: UdpHandle) -> Option<&Socket> {
        // Guard: `s.generation == handle.generation` as `true` fails udp lane/net lane/echo
        self.sockets.get(handle.slot as usize).filter(|s| s.open && s.generation == handle.generation)
    }

    #[inline]
    fn get_mut(&mut self, handle: UdpHandle) -> Option<&mut Socket> {
        self.sockets.get_mut(handle.slot as usize).filter(|s| s.open && s.generation == handle.generation)
    }

    /// Whether the handle names an open socket.
    pub(crate) fn is_open(&self, handle: UdpHandle) -> bool {
        self.get(handle).is_some()
    }

    /// The next datagram.
    #[inline]
    pub(crate) fn receive(&mut self, handle: UdpHandle) -> Option<Datagram> {
        let datagram = self.get_mut(handle)?.queue.pop_front()?;
        self.queued -= 1;
        Some(datagram)
    }

    /// Moves up to `max` datagrams that wait in a socket to `into`.
    #[inline]
    pub(crate) fn receive_batch(&mut self, handle: UdpHandle, into: &mut Vec<Datagram>, max: usize) -> usize {
        let Some(socket) = self.get_mut(handle) else { return 0 };
        let n = socket.queue.len().min(max);
        match n {
            0 => return 0,
            1 => into.extend(socket.queue.pop_front()),
            _ if n == socket.queue.len() => append_all(&mut socket.queue, into),
            _ => into.extend(socket.queue.drain(..n)),
        }
        self.queued -= n;
        n
    }

    /// The socket for a datagram over IPv4, if the quick tables know it.
    #[inline(always)]
    pub(crate) fn lookup_v4(&self, local: Ipv4Addr, lport: u16, remote: Ipv4Addr, rport: u16) -> Option<u32> {
        if let Some(siblings) = self.siblings.as_ref().filter(|s| !s.are_none()) {
            // Guard: `siblings.may_have(Endpoint::new(local.into(), lport), Endpoint::new(remote.into(),
            // rport))` as `false` fails lane/elsewhere::a_connected_socket_elsewhere_goes_before
            if siblings.may_have(Endpoint::new(local.into(), lport), Endpoint::new(remote.into(), rport)) {
                return None;
            }
        }
        self.table.lookup_v4(local, lport, remote, rport)
    }

    /// Counts datagrams sent from an open socket.
    #[inline]
    pub(crate) fn count_sent(&mut self, handle: UdpHandle, datagrams: u64) {
        if let Some(socket) = self.get_mut(handle) {
            socket.sent += datagrams;
        }
    }

    /// An error that ICMP reported for a connected socket since the last call.
    pub(crate) fn take_error(&mut self, handle: UdpHandle) -> Option<IcmpErrorKind> {
        self.get_mut(handle)?.error.take()
    }

    /// Wakes `waker` when the socket gets a datagram, an error, or is closed.
    #[inline]
    pub(crate) fn wake_on_receive(&mut self, handle: UdpHandle, waker: &Waker) {
        if let Some(socket) = self.get_mut(handle) {
            socket.arm(waker);
        }
    }

    /// The socket's own address and port.
    pub(crate) fn local(&self, handle: UdpHandle) -> Option<(Option<IpAddr>, u16)> {
        self.get(handle).map(|s| (s.key.local_ip, s.key.local_port))
    }

    /// The peer of a connected socket.
    pub(crate) fn remote(&self, handle: UdpHandle) -> Option<Endpoint> {
        self.get(handle)?.key.remote
    }

    /// Open sockets that are bound to an address.
    pub(crate) fn bound_to(&self, address: IpAddr) -> Vec<UdpHandle> {
        let bound = |(_, s): &(usize, &Socket)| s.open && s.key.local_ip == Some(address);
        let handle = |(slot, s): (usize, &Socket)| UdpHandle { slot: slot as u32, generation: s.generation };
        self.sockets.iter().enumerate().filter(bound).map(handle).collect()
    }

    /// Calls `f` for every open socket.
    pub(crate) fn each(&self, f: &mut dyn FnMut(SocketInfo)) {
        for (slot, socket) in self.sockets.iter().enumerate().filter(|(_, s)| s.open) {
            f(socket.info(slot as u32));
        }
    }
}
