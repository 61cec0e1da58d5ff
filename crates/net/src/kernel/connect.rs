//! Connections: opening, from a port of the lane's if the host is to, with data in the SYN if it is asked for (RFC 7413).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::task::{Poll, Waker};

use flowlane_rss::Protocol;
use flowlane_stack::Connect;
use flowlane_stack::tcp::{ConnectError, FastOpen, FirstData};
use flowlane_sys::kernel::epoll::Epoll;
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

use super::opening::Opening;
use super::slab::{Flags, SocketId};
use super::stream::waiting_error;
use super::{KernelLane, Ports, errors};
use crate::error::SocketError;
use crate::zone;

impl KernelLane {
    /// Begins a connection. With [`SocketOptions::fast_open`](flowlane_stack::tcp::SocketOptions::fast_open) data goes with the SYN if
    /// the kernel has the peer's cookie: how many bytes did. What follows as soon as the connection stands takes the handshake's last
    /// acknowledgement along.
    pub(crate) fn connect(
        &mut self,
        connect: &Connect,
        data: FirstData<'_>,
    ) -> Result<(SocketId, usize), SocketError> {
        self.stats.connecting += 1;
        let begun = self.begin(connect, data);
        match &begun {
            Ok((_, taken)) => {
                self.stats.fast_opened += u64::from(*taken > 0);
                self.stats.written_bytes += *taken as u64;
            }
            Err(_) => self.stats.connect_failed += 1,
        }
        begun
    }

    fn begin(&mut self, connect: &Connect, data: FirstData<'_>) -> Result<(SocketId, usize), SocketError> {
        let remote = SocketAddr::from(connect.remote);
        let v4 = remote.is_ipv4();
        if remote.port() == 0 || connect.local_ip.is_some_and(|ip| ip.is_ipv4() != v4) {
            return Err(ConnectError::BadAddress.into());
        }
        let fast = connect.options.fast_open != FastOpen::Off && !data.bytes.is_empty();
        let protocol = Protocol::TCP;
        let opening = Opening { protocol, remote, data: if fast { data.bytes } else { &[] } };
        let open = |lane: &Self| lane.ports.reserve.leaves(socket::tcp(v4)?, lane.epoll.as_fd());
        let fd = match open(self) {
            // Connections that were closed a moment ago still have theirs.
            Err(e) if e.raw_os_error() == Some(errno::EMFILE) && self.settle() => open(self),
            done => done,
        };
        let mut fd = fd.map_err(|e| errors::other(&e))?;
        let told = self.told(&connect.options);
        super::options::apply(fd.as_fd(), v4, &told)?;
        if data.rest_follows && !fast {
            // Without it there is a segment more, and nothing is wrong.
            let _ = options::set(fd.as_fd(), Number::QUICK_ACK, 0);
        }
        let chosen = connect.local_port != 0;
        let again = |ports: &Ports, epoll: &Epoll| {
            let fd = ports.reserve.leaves(socket::tcp(v4)?, epoll.as_fd())?;
            super::options::apply(fd.as_fd(), v4, &told).map_err(io::Error::from)?;
            Ok(fd)
        };
        let from_home = if chosen {
            None
        } else {
            self.begin_at_home(&mut fd, connect.local_ip, opening, again)
                .map_err(|e| errors::connect(&e, true))?
        };
        let opened = match from_home {
            Some(opened) => opened,
            None => {
                if chosen || connect.local_ip.is_some() {
                    let any = SocketAddr::new(if v4 { [0; 4].into() } else { [0u8; 16].into() }, 0);
                    let ip = connect.local_ip.unwrap_or(any.ip());
                    // A port of ours may serve many connections, each to another peer.
                    let option = if chosen { Number::REUSE_ADDRESS } else { Number::BIND_ADDRESS_NO_PORT };
                    options::set(fd.as_fd(), option, 1).map_err(|e| errors::other(&e))?;
                    socket::bind(fd.as_fd(), zone::ours(ip, connect.local_port, connect.remote.zone))
                        .map_err(|e| errors::source(&e))?;
                }
                opening.begin(&fd).map_err(|e| errors::connect(&e, chosen))?
            }
        };
        let family = if v4 { Flags::V4 } else { Flags::empty() };
        let state = if opened.connected { Flags::WRITABLE } else { Flags::CONNECTING };
        let id = self.insert(fd, Flags::STREAM | state | family)?;
        self.flow_begins(id, remote, true);
        Ok((id, opened.taken))
    }

    /// Connects to the Unix socket at a path: the connection stands, or the error says why not. There are no records of it as of a flow.
    pub(crate) fn connect_path(&mut self, path: &Path) -> Result<SocketId, SocketError> {
        let open = |lane: &Self| lane.ports.reserve.leaves(socket::unix()?, lane.epoll.as_fd());
        let fd = match open(self) {
            // Connections that were closed a moment ago still have theirs.
            Err(e) if e.raw_os_error() == Some(errno::EMFILE) && self.settle() => open(self),
            done => done,
        };
        let connected = fd.and_then(|fd| socket::connect_path(fd.as_fd(), path).map(|()| fd));
        // A full queue is no failure: the caller tries again.
        let full = |e: &io::Error| e.kind() == io::ErrorKind::WouldBlock;
        self.stats.connecting += u64::from(!connected.as_ref().is_err_and(full));
        let fd = connected.map_err(|e| {
            self.stats.connect_failed += u64::from(!full(&e));
            errors::path(&e)
        })?;
        self.stats.connected += 1;
        self.insert(fd, Flags::STREAM | Flags::WRITABLE)
    }

    /// Whether a connection stands.
    pub(crate) fn poll_connected(&mut self, id: SocketId, waker: &Waker) -> Poll<Result<(), SocketError>> {
        let Some(socket) = self.sockets.get_mut(id) else { return Poll::Ready(Err(SocketError::Closed)) };
        if socket.flags.has(Flags::CONNECTING) {
            socket.wait_to_write(waker);
            return Poll::Pending;
        }
        if socket.flags.has(Flags::FAILED | Flags::OVER)
            && let Err(e) = waiting_error(socket)
        {
            self.stats.connect_failed += 1;
            return Poll::Ready(Err(e));
        }
        self.stats.connected += 1;
        Poll::Ready(Ok(()))
    }
}
