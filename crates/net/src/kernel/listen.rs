//! Listeners: one socket for each lane, all on the same address and port.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use flowlane_stack::tcp::{ListenError, ListenOptions};
use flowlane_stack::time::Time;
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::select;
use flowlane_sys::kernel::socket::{self, errno};

use super::arrival::judge;
use super::reserve::Reserve;
use super::slab::{Flags, SocketId};
use super::steer::{Bound, Families, Steering};
use super::{KernelLane, KernelStats, errors};
use crate::error::SocketError;
use crate::zone;

/// A listener that found no descriptor tries again after that time.
const AGAIN: Duration = Duration::from_millis(100);

/// What the lanes of a host listen on, so that they share a port with each other and with nobody else:
/// `SO_REUSEPORT` alone would share it with every process of the same user. The sockets of a port stand in the order of their numbers in
/// the kernel ([`super::steer`]).
#[derive(Debug)]
pub(crate) struct Ports {
    taken: Mutex<HashMap<(Kind, SocketAddr), Vec<Bound>>>,
    pub(crate) steering: Steering,
    /// The zone of the host's own link-local address; 0 if none was named.
    pub(super) zone: u32,
    pub(super) reserve: Reserve,
}

/// Of connections or of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Tcp,
    Udp,
}

/// The ports, held.
type Taken<'a> = MutexGuard<'a, HashMap<(Kind, SocketAddr), Vec<Bound>>>;

impl Ports {
    pub(crate) fn new(steering: Steering, zone: u32) -> Self {
        Self { taken: Mutex::default(), steering, zone, reserve: Reserve::default() }
    }

    fn lock(&self) -> Taken<'_> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane is gone.
    pub(super) fn release_all(&self, lane: u16) {
        self.lock().retain(|_, sockets| {
            while let Some(at) = sockets.iter().position(|s| s.lane == lane) {
                sockets.swap_remove(at);
            }
            !sockets.is_empty()
        });
    }
}

impl KernelLane {
    /// Closes a socket that may be one of several on a port, and has the kernel told how the others are numbered now. Other lanes open
    /// and close theirs before or after that, so that numbers here and there agree.
    pub(super) fn release(&mut self, id: SocketId, fd: OwnedFd) {
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        let ours = |s: &Bound| s.lane == self.lane && s.slot == id.slot;
        let found = ports.iter().find_map(|(key, sockets)| Some((*key, sockets.iter().position(ours)?)));
        if let Some((key, at)) = found
            && let Some(sockets) = ports.get_mut(&key)
        {
            sockets.swap_remove(at);
            aim(&self.ports.steering, &mut self.stats, fd.as_fd(), key, sockets);
            if sockets.is_empty() {
                ports.remove(&key);
            }
        }
        self.stop_listening(id, &fd);
        drop(fd);
    }

    /// Notes a socket of this lane on a port.
    fn take_port(&mut self, ports: &mut Taken<'_>, key: (Kind, SocketAddr), id: SocketId) {
        let sockets = ports.entry(key).or_default();
        sockets.push(Bound { lane: self.lane, slot: id.slot, worker: self.worker, ids: 0 });
        if let Some(socket) = self.sockets.get(id) {
            aim(&self.ports.steering, &mut self.stats, socket.fd(), key, sockets);
        }
    }

    /// The lane has come to another worker: what arrives on that one's processor is for it now.
    pub(super) fn take_ports_along(&mut self) {
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        for (key, sockets) in ports.iter_mut() {
            let Some(ours) = sockets.iter_mut().find(|s| s.lane == self.lane) else { continue };
            ours.worker = self.worker;
            let slot = ours.slot;
            if let Some(socket) = self.sockets.in_slot(slot) {
                aim(&self.ports.steering, &mut self.stats, socket.fd(), *key, sockets);
            }
        }
    }
}

impl KernelLane {
    /// Has datagrams of a shared port go to the lane that their connection ID names, which has so many bytes.
    pub(crate) fn steer_by_id(&mut self, id: SocketId, length: u8) -> Result<(), SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        for (key, sockets) in ports.iter_mut() {
            let ours = |s: &&mut Bound| s.lane == self.lane && s.slot == id.slot;
            let Some(ours) = sockets.iter_mut().find(ours) else { continue };
            ours.ids = length;
            aim(&self.ports.steering, &mut self.stats, socket.fd(), *key, sockets);
        }
        Ok(())
    }

    /// Listens on a port of one address, or of all of both families; port 0 takes a free one.
    pub(crate) fn listen(
        &mut self,
        local: Option<IpAddr>,
        port: u16,
        options: &ListenOptions,
    ) -> Result<SocketId, SocketError> {
        let Some(ip) = local else {
            let dual = self.listen_on(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), options);
            return match dual {
                // No IPv6 here.
                Err(
                    SocketError::Kernel(errno::EAFNOSUPPORT)
                    | SocketError::Listen(ListenError::NotOurAddress),
                ) => self.listen_on(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), options),
                done => done,
            };
        };
        self.listen_on(zone::ours(ip, port, self.ports.zone), options)
    }

    fn listen_on(&mut self, address: SocketAddr, options: &ListenOptions) -> Result<SocketId, SocketError> {
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        let fd = self.shared(&ports, Kind::Tcp, address).map_err(|e| errors::listen(&e))?;
        super::options::apply(fd.as_fd(), address.is_ipv4(), &self.told(&options.socket))?;
        if let Some(fast_open) = &options.fast_open {
            super::options::apply_fast_open(fd.as_fd(), fast_open).map_err(|e| errors::listen(&e))?;
        }
        socket::listen(fd.as_fd(), options.backlog).map_err(|e| errors::listen(&e))?;
        let address = socket::local_address(fd.as_fd()).map_err(|e| errors::other(&e))?;
        if !std::mem::replace(&mut self.reserves, true) {
            self.ports.reserve.grow(self.epoll.as_fd());
        }
        let family = if address.is_ipv4() { Flags::V4 } else { Flags::empty() };
        let id = self.insert(fd, Flags::LISTENER | family)?;
        self.take_port(&mut ports, (Kind::Tcp, address), id);
        Ok(id)
    }

    /// Accepts from a Unix socket that listens, as other lanes do: whoever comes first gets a connection.
    pub(crate) fn listen_at_path(&mut self, listener: BorrowedFd<'_>) -> Result<SocketId, SocketError> {
        let again = listener.try_clone_to_owned();
        let fd = again.and_then(|fd| self.ports.reserve.leaves(fd, self.epoll.as_fd()));
        let fd = fd.map_err(|e| errors::listen(&e))?;
        if !std::mem::replace(&mut self.reserves, true) {
            self.ports.reserve.grow(self.epoll.as_fd());
        }
        self.insert(fd, Flags::LISTENER | Flags::PATH)
    }

    /// A socket on an address that the host's other lanes may have too, and nobody else.
    fn shared(&self, ports: &Taken<'_>, kind: Kind, address: SocketAddr) -> io::Result<OwnedFd> {
        if address.port() != 0 {
            match ports.get(&(kind, address)) {
                Some(lanes) if lanes.iter().any(|l| l.lane == self.lane) => {
                    return Err(io::Error::from_raw_os_error(errno::EADDRINUSE));
                }
                Some(_) => {}
                // The first of the host's lanes finds out whether the port is somebody else's.
                None => drop(bound(kind, address, false)?),
            }
        }
        self.ports.reserve.leaves(bound(kind, address, true)?, self.epoll.as_fd())
    }

    /// A UDP socket on a port that the host's other lanes may have too, and its address.
    pub(super) fn bind_shared(
        &mut self,
        address: SocketAddr,
        flags: Flags,
        prepare: impl FnOnce(&OwnedFd, &mut KernelStats) -> io::Result<()>,
    ) -> Result<(SocketId, SocketAddr), SocketError> {
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        let fd = self.shared(&ports, Kind::Udp, address).map_err(|e| errors::bind(&e))?;
        prepare(&fd, &mut self.stats).map_err(|e| errors::bind(&e))?;
        let address = socket::local_address(fd.as_fd()).map_err(|e| errors::other(&e))?;
        let id = self.insert(fd, flags)?;
        self.take_port(&mut ports, (Kind::Udp, address), id);
        Ok((id, address))
    }

    /// The address of a listener.
    pub(crate) fn local_address(&self, id: SocketId) -> Result<SocketAddr, SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        socket::local_address(socket.fd()).map_err(|e| errors::other(&e))
    }

    /// The next connection of a listener, with its peer.
    pub(crate) fn accept(&mut self, id: SocketId) -> Result<Option<(SocketId, SocketAddr)>, SocketError> {
        loop {
            let listener = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
            if !listener.flags.has(Flags::READABLE) {
                return Ok(None);
            }
            let family = if listener.flags.has(Flags::V4) { Flags::V4 } else { Flags::empty() };
            let at_path = listener.flags.has(Flags::PATH);
            let accepted = match self.accepted_by_ring(id) {
                Some(accepted) => accepted,
                None => {
                    let listener = self.sockets.get(id).ok_or(SocketError::Closed)?;
                    socket::accept(listener.fd())
                }
            };
            let e = match accepted {
                Ok((fd, peer)) => {
                    let Some(fd) = self.unless_owed(fd) else { continue };
                    if !at_path {
                        judge(self.cpu, &self.ports.steering, &mut self.stats, fd.as_fd(), 1);
                    }
                    let id = self.insert_accepted(fd, Flags::STREAM | Flags::WRITABLE | family)?;
                    self.stats.accepted += 1;
                    if !at_path {
                        self.flow_begins(id, peer, false);
                    }
                    return Ok(Some((id, peer)));
                }
                Err(e) => e,
            };
            match e.raw_os_error().unwrap_or(0) {
                errno::EAGAIN => {
                    if let Some(listener) = self.sockets.get_mut(id) {
                        listener.flags.clear(Flags::READABLE);
                    }
                    self.accept_again(id);
                    return Ok(None);
                }
                // Connections that were closed a moment ago still have theirs.
                errno::EMFILE | errno::ENFILE if self.settle() => {}
                errno::EMFILE | errno::ENFILE => {
                    if !self.refuse_one(id)? {
                        return Ok(None);
                    }
                }
                // The kernel hands over errors of the connection itself; and a signal is no reason to stop.
                errno::ECONNABORTED
                | errno::EINTR
                | errno::EPROTO
                | errno::EPERM
                | errno::ENETDOWN
                | errno::EHOSTUNREACH
                | errno::ENETUNREACH
                | errno::EHOSTDOWN
                | errno::ETIMEDOUT => {
                    self.stats.errors += 1;
                }
                _ => {
                    self.stats.errors += 1;
                    return Err(errors::other(&e));
                }
            }
        }
    }

    /// Without descriptors a connection would wait in the queue until its peer loses patience. Rather it is accepted with the
    /// [reserve](super::reserve), and reset. `false` if none waits, or if not even that is to be had, because another thread opened something
    /// in its place: then the next socket that this lane closes, the next connection, or the end of [`AGAIN`] is the occasion to look again.
    fn refuse_one(&mut self, id: SocketId) -> Result<bool, SocketError> {
        let listener = self.sockets.get_mut(id).ok_or(SocketError::Closed)?;
        // The kernel asks for a descriptor before it looks whether a connection waits.
        let taken = if self.ports.reserve.open() {
            socket::accept(listener.fd())
        } else {
            Err(io::Error::from_raw_os_error(errno::EMFILE))
        };
        let refused = taken.is_ok();
        match taken {
            Ok((fd, _)) => self.refuse(&fd),
            Err(e) => {
                listener.flags.clear(Flags::READABLE);
                self.starved |= e.raw_os_error() != Some(errno::EAGAIN);
                self.accept_without(id);
            }
        }
        self.ports.reserve.fill(self.epoll.as_fd());
        Ok(refused)
    }

    /// Has a connection reset when it is closed, for want of a descriptor.
    fn refuse(&mut self, fd: &OwnedFd) {
        let _ = options::set_reset_on_close(fd.as_fd(), true);
        self.stats.no_descriptor += 1;
    }

    /// A connection that was accepted, unless another lane's reserve is open: then it is reset.
    fn unless_owed(&mut self, fd: OwnedFd) -> Option<OwnedFd> {
        if !self.ports.reserve.is_owed() {
            return Some(fd);
        }
        self.refuse(&fd);
        drop(fd);
        self.ports.reserve.fill(self.epoll.as_fd());
        None
    }

    /// A descriptor is free again: listeners that found none try again.
    #[cold]
    pub(super) fn fed(&mut self) {
        (self.starved, self.again) = (false, None);
        self.ports.reserve.fill(self.epoll.as_fd());
        for socket in self.sockets.iter_mut().filter(|s| s.flags.has(Flags::LISTENER)) {
            socket.flags.set(Flags::READABLE);
            socket.wake(Flags::READABLE);
        }
    }

    /// As if a connection waited and no descriptor had been free, for tests; `false` as long as none waits.
    #[cfg(test)]
    pub(crate) fn starve(&mut self, id: SocketId) -> bool {
        let listener = self.sockets.get_mut(id).expect("a listener");
        let waits = listener.flags.has(Flags::READABLE);
        listener.flags.clear(Flags::READABLE);
        self.starved = waits;
        waits
    }

    /// Has listeners that found no descriptor try again, once it is [time](KernelLane::tries_again_at).
    pub(crate) fn try_again(&mut self, now: Time) {
        if self.again.is_some_and(|at| now >= at) {
            self.fed();
        }
    }

    /// When somebody has to be woken to [try again](KernelLane::try_again): said once, after a listener found no descriptor.
    pub(crate) fn tries_again_at(&mut self, now: Time) -> Option<Time> {
        let first = self.starved && self.again.is_none();
        first.then(|| *self.again.insert(now + AGAIN))
    }

    /// Wakes `waker` when a connection waits to be accepted.
    pub(crate) fn wake_on_accept(&mut self, id: SocketId, waker: &Waker) -> Result<(), SocketError> {
        self.sockets.get_mut(id).ok_or(SocketError::Closed)?.wait_to_read(waker);
        Ok(())
    }

    /// How many connections wait to be accepted; handshakes under way the kernel does not tell.
    pub(crate) fn backlog(&self, id: SocketId) -> Result<(usize, usize), SocketError> {
        let socket = self.sockets.get(id).ok_or(SocketError::Closed)?;
        let info = options::tcp_info(socket.fd()).map_err(|e| errors::other(&e))?;
        Ok((info.unacked as usize + self.unaccepted(id.slot), 0))
    }
}

/// Has the kernel choose among these sockets as the host wants it; `fd` is one of them.
fn aim(
    steering: &Steering,
    stats: &mut KernelStats,
    fd: BorrowedFd<'_>,
    (kind, address): (Kind, SocketAddr),
    sockets: &[Bound],
) {
    let families = Families::of(address.ip());
    let Some(program) = steering.program(kind == Kind::Tcp, families, sockets) else { return };
    if select::attach(fd, &program).is_err() {
        stats.steering_refused += 1;
        // The programs of many lanes are long. Better by the flow than not at all.
        let without: Vec<Bound> = sockets.iter().map(|s| Bound { ids: 0, ..*s }).collect();
        if without != sockets
            && let Some(program) = steering.program(kind == Kind::Tcp, families, &without)
        {
            stats.steering_refused += u64::from(select::attach(fd, &program).is_err());
        }
    }
}

/// A socket bound to an address, alone or with others of its kind.
fn bound(kind: Kind, address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let v4 = address.is_ipv4();
    let fd = match kind {
        Kind::Tcp => socket::tcp(v4)?,
        Kind::Udp => socket::udp(v4)?,
    };
    if kind == Kind::Tcp {
        // Connections that ended a moment ago are no obstacle. Among datagrams this would share the port with strangers.
        options::set(fd.as_fd(), Number::REUSE_ADDRESS, 1)?;
    }
    if shared {
        options::set(fd.as_fd(), Number::REUSE_PORT, 1)?;
    }
    if !v4 {
        let only = !address.ip().is_unspecified();
        options::set(fd.as_fd(), Number::V6_ONLY, i32::from(only))?;
    }
    socket::bind(fd.as_fd(), address)?;
    Ok(fd)
}
