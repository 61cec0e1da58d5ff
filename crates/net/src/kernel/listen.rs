//! Listeners: one socket for each lane, all on the same address and port.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use flowlane_stack::tcp::{ListenError, ListenOptions};
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

use super::slab::{Flags, SocketId};
use super::{KernelLane, errors};
use crate::socket::SocketError;

/// What the lanes of a host listen on, so that they share a port with each other and with nobody else:
/// `SO_REUSEPORT` alone would share it with every process of the same user.
#[derive(Debug, Default)]
pub(crate) struct Ports(Mutex<HashMap<SocketAddr, Vec<Listening>>>);

/// A lane's listener: the lane, its socket, whether datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listening {
    lane: u16,
    slot: u32,
}

impl Ports {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<Listening>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lane has closed what may have been a listener.
    pub(super) fn release(&self, lane: u16, slot: u32) {
        self.lock().retain(|_, lanes| {
            lanes.retain(|l| (l.lane, l.slot) != (lane, slot));
            !lanes.is_empty()
        });
    }

    /// A lane is gone.
    pub(super) fn release_all(&self, lane: u16) {
        self.lock().retain(|_, lanes| {
            lanes.retain(|l| l.lane != lane);
            !lanes.is_empty()
        });
    }
}

impl KernelLane {
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
        self.listen_on(SocketAddr::new(ip, port), options)
    }

    fn listen_on(&mut self, address: SocketAddr, options: &ListenOptions) -> Result<SocketId, SocketError> {
        let ports = self.ports.clone();
        let mut ports = ports.lock();
        match ports.get(&address).filter(|_| address.port() != 0) {
            Some(lanes) if lanes.iter().any(|l| l.lane == self.lane) => return Err(ListenError::InUse.into()),
            Some(_) => {}
            // The first of the host's lanes finds out whether the port is somebody else's.
            None if address.port() != 0 => drop(bound(address, false).map_err(|e| errors::listen(&e))?),
            None => {}
        }
        let fd = bound(address, true).map_err(|e| errors::listen(&e))?;
        super::options::apply(fd.as_fd(), address.is_ipv4(), &options.socket)?;
        socket::listen(fd.as_fd(), options.backlog).map_err(|e| errors::listen(&e))?;
        let address = socket::local_address(fd.as_fd()).map_err(|e| errors::other(&e))?;
        if self.reserve.is_none() {
            self.reserve = self.epoll.as_fd().try_clone_to_owned().ok();
        }
        let family = if address.is_ipv4() { Flags::V4 } else { Flags::empty() };
        let id = self.insert(fd, Flags::LISTENER | family)?;
        ports.entry(address).or_default().push(Listening { lane: self.lane, slot: id.slot });
        Ok(id)
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
            let e = match socket::accept(listener.fd()) {
                Ok((fd, peer)) => {
                    // What has arrived already is reported by the registration.
                    let id = self.insert(fd, Flags::STREAM | Flags::WRITABLE | family)?;
                    self.stats.accepted += 1;
                    return Ok(Some((id, peer)));
                }
                Err(e) => e,
            };
            match e.raw_os_error().unwrap_or(0) {
                errno::EAGAIN => {
                    listener.flags.clear(Flags::READABLE);
                    return Ok(None);
                }
                errno::EMFILE | errno::ENFILE if self.refuse_one(id) => {}
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

    /// Without descriptors a connection would wait in the queue until its peer loses patience. Rather it is taken by the
    /// descriptor held in reserve, and ended. `false` if that was of no use.
    fn refuse_one(&mut self, id: SocketId) -> bool {
        let Some(listener) = self.sockets.get(id) else { return false };
        if self.reserve.take().is_none() {
            return false;
        }
        let taken = match socket::accept(listener.fd()) {
            Ok((fd, _)) => {
                let _ = options::set_reset_on_close(fd.as_fd(), true);
                true
            }
            // Nothing waits any more: as good.
            Err(e) => e.raw_os_error() == Some(errno::EAGAIN),
        };
        self.stats.no_descriptor += u64::from(taken);
        self.reserve = self.epoll.as_fd().try_clone_to_owned().ok();
        taken
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
        Ok((info.unacked as usize, 0))
    }
}

/// A socket bound to an address, alone or with others of its kind.
fn bound(address: SocketAddr, shared: bool) -> io::Result<OwnedFd> {
    let fd = socket::tcp(address.is_ipv4())?;
    options::set(fd.as_fd(), Number::REUSE_ADDRESS, 1)?;
    if shared {
        options::set(fd.as_fd(), Number::REUSE_PORT, 1)?;
    }
    if address.is_ipv6() {
        let only = !address.ip().is_unspecified();
        options::set(fd.as_fd(), Number::V6_ONLY, i32::from(only))?;
    }
    socket::bind(fd.as_fd(), address)?;
    Ok(fd)
}
