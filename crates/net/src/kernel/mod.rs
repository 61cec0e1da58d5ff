//! Kernel sockets behind the socket types of a lane.
//!
//! A host made by [`Host::kernel`](crate::Host::kernel) has no interfaces and no stack of ours: its lanes have kernel sockets. Everything
//! else is the same: one lane for each bucket, with its tasks, timers and statistics, and lanes that move.
//!
//! ```text
//!   worker ── poller: one epoll ─ events ─▶ lane ─ slab of sockets: readable? writable? ─▶ wake the task
//!   task ── TcpStream ─▶ lane ─▶ send, recv: only when the last event said that it will not be in vain
//! ```
//!
//! * A socket is registered once, edge-triggered, for all events; readiness is kept in the slab. A read or write that transfers less than
//!   requested means that the next event must be awaited, so no system call is made in vain: a request costs one send and one receive.
//! * A connection that was accepted is registered when a task first waits for it. One that is answered and closed before never is.
//! * A listener of a lane is a socket with `SO_REUSEPORT`: the kernel spreads connections over the lanes, by a hash of its own or as the
//!   host says ([`steer`]), and a connection stays in the lane that accepted it.
//! * A connection can leave its lane for another of the host ([`depart`]).
//! * When a lane moves, its sockets are taken out of one epoll instance and put into another: two system calls each.

mod arrival;
mod connect;
mod counted;
mod datagrams;
mod depart;
mod errors;
mod flows;
mod home;
mod listen;
mod opening;
mod options;
mod poller;
mod reserve;
mod ring;
mod rows;
mod slab;
mod splice;
mod standing;
mod stats;
mod steer;
mod stream;
mod top;
mod zerocopy;

pub use arrival::{Arrival, Elsewhere};
pub(crate) use datagrams::Lost;
pub(crate) use depart::Travelling;
pub(crate) use listen::Ports;
pub use poller::Io;
pub(crate) use poller::{News, Poller};
pub use rows::{KernelRow, KernelSockets, KernelUdpRow};
pub(crate) use slab::SocketId;
pub use stats::KernelStats;
pub use steer::Steer;
pub(crate) use steer::Steering;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::task::Waker;

use flowlane_stack::tcp::{Algorithm, SocketOptions};
use flowlane_stack::time::Time;
use flowlane_sys::kernel::epoll::{Epoll, Event};
use flowlane_sys::kernel::pipe::Pipe;
use flowlane_sys::kernel::zerocopy::ZeroCopy;

use crate::error::SocketError;
use slab::{Flags, Slab};

/// The sockets of one lane.
#[derive(Debug)]
pub(crate) struct KernelLane {
    /// Of the worker that holds the lane.
    epoll: Arc<Epoll>,
    /// If it has a ring as well.
    ring: Option<Box<ring::RingSide>>,
    /// Index of the lane, the upper part of its tokens.
    lane: u16,
    /// The worker that holds it, and the processor of that one, if it is bound to it and there are several.
    worker: u16,
    cpu: Option<u32>,
    sockets: Slab,
    /// The lane has a stack of ours, too, whose sockets programs get unless they ask for these.
    beside: bool,
    /// Congestion control of its connections, if it is not to be the kernel's.
    congestion: Option<Algorithm>,
    /// Who wait for the end of a connection: few.
    closed: HashMap<u32, Waker>,
    udp: datagrams::Udp,
    /// By slot, what connections send without copying it ([`zerocopy`]).
    zero_copy: HashMap<u32, ZeroCopy>,
    /// Closed connections whose memory the kernel still reads.
    lingering: usize,
    /// Where connections of this lane begin, if their answers are to come here.
    home: Option<Box<home::Home>>,
    /// Records of its flows, if somebody asked for them.
    flows: Option<Box<flows::Flows>>,
    /// What the host's lanes listen on.
    ports: Arc<Ports>,
    /// Whether one of the host's descriptors [in reserve](reserve) is there for this lane.
    reserves: bool,
    /// Not even the reserve was there: connections may wait until a descriptor is free.
    starved: bool,
    /// When that is tried again, if nothing is an occasion before; somebody is woken then.
    again: Option<Time>,
    /// Empty, for whoever relays between two connections.
    pipes: Vec<Pipe>,
    pub(crate) stats: KernelStats,
}

impl KernelLane {
    pub(crate) fn new(epoll: Arc<Epoll>, lane: u16, worker: usize, ports: Arc<Ports>) -> Self {
        Self {
            epoll,
            ring: None,
            lane,
            worker: worker as u16,
            cpu: ports.steering.cpu_of(worker),
            sockets: Slab::default(),
            beside: false,
            congestion: None,
            closed: HashMap::new(),
            udp: datagrams::Udp::default(),
            zero_copy: HashMap::new(),
            lingering: 0,
            home: None,
            flows: None,
            ports,
            reserves: false,
            starved: false,
            again: None,
            pipes: Vec::new(),
            stats: KernelStats::default(),
        }
    }

    /// Whose connections have this congestion control, unless their sockets are told of another.
    pub(crate) fn with_congestion(mut self, congestion: Option<Algorithm>) -> Self {
        self.congestion = congestion;
        self
    }

    /// What a new socket is told.
    fn told(&self, options: &SocketOptions) -> SocketOptions {
        SocketOptions { congestion: options.congestion.or(self.congestion), ..*options }
    }

    /// In a lane with a stack of ours.
    pub(crate) fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Whether the lane has a stack of ours, too.
    pub(crate) fn is_beside(&self) -> bool {
        self.beside
    }

    /// Connections open, those being made included.
    pub(crate) fn connections(&self) -> usize {
        self.sockets.iter().filter(|(_, s)| s.flags.has(Flags::STREAM)).count()
    }

    /// UDP sockets open.
    pub(crate) fn udp_sockets(&self) -> usize {
        self.udp.len()
    }

    /// Registers a socket and takes it in.
    fn insert(&mut self, fd: OwnedFd, flags: Flags) -> Result<SocketId, SocketError> {
        let id = self.sockets.next_id();
        let for_ring = self.is_for_ring(flags);
        let watched = for_ring && flags.has(Flags::CONNECTING);
        let registered = match (for_ring, watched) {
            (false, _) => self.epoll.add(fd.as_fd(), self.token(id)),
            (true, true) => self.epoll.add_writable(fd.as_fd(), self.token(id)),
            (true, false) => Ok(()),
        };
        if let Err(e) = registered {
            self.stats.errors += 1;
            return Err(errors::other(&e));
        }
        self.sockets.insert(fd, flags);
        self.place(id, for_ring, watched);
        Ok(id)
    }

    /// Takes in a connection that was accepted. It is registered at the first wait.
    fn insert_accepted(&mut self, fd: OwnedFd, flags: Flags) -> Result<SocketId, SocketError> {
        if self.ring.is_some() {
            return self.insert(fd, flags);
        }
        let id = self.sockets.next_id();
        self.sockets.insert(fd, flags | Flags::UNWATCHED);
        Ok(id)
    }

    /// Registers a connection, if that has not been done. What has come before is reported by the registration.
    #[inline]
    fn watch_accepted(&mut self, id: SocketId) -> Result<(), SocketError> {
        let token = self.token(id);
        let Some(socket) = self.sockets.get_mut(id).filter(|socket| socket.is_unwatched()) else {
            return Ok(());
        };
        match self.epoll.add(socket.fd(), token) {
            Ok(()) => {
                socket.flags.clear(Flags::UNWATCHED);
                Ok(())
            }
            Err(e) => {
                self.stats.errors += 1;
                Err(errors::other(&e))
            }
        }
    }

    /// What epoll says about a socket: lane, generation, slot.
    fn token(&self, id: SocketId) -> u64 {
        u64::from(self.lane) << 48 | u64::from(id.generation as u16) << 32 | u64::from(id.slot)
    }

    /// Something happened to a socket.
    #[inline]
    pub(crate) fn on_event(&mut self, event: Event) {
        let (slot, generation) = (event.token as u32, (event.token >> 32) as u16);
        let Some(mut socket) = self.sockets.at(slot, generation) else { return };
        let mut event = event;
        if socket.flags.has(Flags::ZERO_COPY) {
            if event.failed() && self.on_completions(slot, event.hung_up()) {
                return;
            }
            let Some(same) = self.sockets.at(slot, generation) else { return };
            (socket, event) = (same, event.without_completions());
        }
        let mut now = Flags::empty();
        if event.readable() {
            now = now | Flags::READABLE;
        }
        if event.writable() {
            now = now | Flags::WRITABLE;
            socket.flags.clear(Flags::CONNECTING);
        }
        if event.ended() {
            now = now | Flags::ENDED;
        }
        if event.has_all() && socket.flags.has(Flags::STREAM) {
            now = now | Flags::HAS_ALL;
        }
        if event.over() {
            now = now | Flags::OVER;
        }
        if event.failed() {
            now = now | Flags::FAILED;
        }
        if self.ring.is_some() {
            now = self.told_by_epoll(slot, now);
        }
        let Some(socket) = self.sockets.at(slot, generation) else { return };
        socket.flags.set(now);
        socket.wake(now);
        if now.has(Flags::OVER)
            && !self.closed.is_empty()
            && let Some(waker) = self.closed.remove(&slot)
        {
            waker.wake();
        }
    }

    /// Closes a socket. One that is closed already stays so.
    pub(crate) fn close(&mut self, id: SocketId) {
        self.flow_ends(id);
        let Some(socket) = self.sockets.remove(id) else { return };
        let stream = socket.flags.has(Flags::STREAM);
        let zero_copy = socket.flags.has(Flags::ZERO_COPY);
        let (fd, wakers) = socket.apart();
        if stream {
            self.stats.closed += 1;
            if zero_copy {
                self.let_go(id, &fd);
                self.close_when_complete(id.slot, fd);
            } else {
                self.close_stream(id, fd);
            }
        } else {
            self.release(id, fd);
            self.udp.forget(id.slot);
        }
        let closed = if self.closed.is_empty() { None } else { self.closed.remove(&id.slot) };
        // Wakers last: dropping one may drop a task, and with it other sockets.
        drop((wakers, closed));
        if self.starved {
            self.settle();
            self.fed();
        }
    }

    /// The lane leaves its worker: no more events from there. Its requests to a ring have ended ([`Poller::release`]).
    pub(crate) fn leave(&mut self) {
        self.take_along();
        for (_, socket) in self.sockets.iter() {
            // Nothing can be wrong with it but that it is gone already, or was never there.
            let _ = self.epoll.remove(socket.fd());
        }
    }

    /// The lane has come to a worker. Registering reports what is ready now, so nothing is missed in between.
    pub(crate) fn enter(&mut self, epoll: Arc<Epoll>, worker: usize) {
        self.epoll = epoll;
        (self.worker, self.cpu) = (worker as u16, self.ports.steering.cpu_of(worker));
        self.take_ports_along();
        let all: Vec<SocketId> = self.sockets.iter().map(|(id, _)| id).collect();
        for id in all {
            let token = self.token(id);
            let registered = match (self.register_anew(id), self.sockets.get(id)) {
                (None, Some(socket)) if socket.is_unwatched() => Ok(()),
                (None, Some(socket)) => self.epoll.add(socket.fd(), token),
                (done, _) => done.unwrap_or(Ok(())),
            };
            self.stats.errors += u64::from(registered.is_err());
        }
    }
}

impl Drop for KernelLane {
    fn drop(&mut self) {
        self.take_last_completions();
        // What was asked for is about descriptors that are closed next.
        self.settle();
        self.end_all();
        self.settle();
        self.ports.release_all(self.lane);
    }
}
