//! Making, binding, connecting and closing sockets.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use flowlane_c::packetdrill::{Address, Answer, Errno, close_place, open_place};
use flowlane_stack::Connect;
use flowlane_stack::address::Endpoint;
use flowlane_stack::tcp::{
    ConnectError, Failure, FastOpen, FirstData, ListenError, ListenOptions, SocketOptions, State,
};
use flowlane_stack::udp::Bind;

use crate::descriptor::{Descriptor, Role, Socket, plain};
use crate::fast_open;
use crate::queue::Queue;
use crate::world::World;

/// Why a connection ended, as `errno`.
pub(crate) fn errno_of(failure: Failure) -> Errno {
    Errno(match failure {
        Failure::Reset => libc::ECONNRESET,
        Failure::Refused => libc::ECONNREFUSED,
        Failure::TimedOut => libc::ETIMEDOUT,
        _ => libc::EHOSTUNREACH,
    })
}

/// How a connection is begun.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) fast_open: FastOpen,
    /// For the SYN, if it may.
    pub(crate) bytes: &'a [u8],
    /// The caller waits until all of it is written.
    pub(crate) waits: bool,
}

const WILDCARD: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl World {
    /// Why the connection of a socket ended.
    pub(crate) fn errno_of(&mut self, fd: i32, failure: Failure) -> Errno {
        match failure {
            Failure::Reset if self.socket_mut(fd).is_ok_and(|socket| socket.half_closed) => {
                Errno(libc::EPIPE)
            }
            _ => errno_of(failure),
        }
    }

    /// The socket of a descriptor.
    pub(crate) fn socket_mut(&mut self, fd: i32) -> Answer<&mut Socket> {
        match self.descriptors.get_mut(&fd) {
            Some(Descriptor::Socket(socket)) => Ok(socket),
            Some(_) => Err(Errno(libc::ENOTSOCK)),
            None => Err(Errno(libc::EBADF)),
        }
    }

    pub(crate) fn add_socket(&mut self, socket: Socket) -> Answer<i32> {
        let fd = open_place()?;
        self.descriptors.insert(fd, Descriptor::Socket(Box::new(socket)));
        Ok(fd)
    }

    pub(crate) fn open_socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Answer<i32> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        let stream = match (kind & 0xf, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => true,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => false,
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(Errno(libc::EPROTONOSUPPORT)),
            _ => return Err(Errno(libc::ESOCKTNOSUPPORT)),
        };
        self.refresh();
        self.add_socket(Socket::new(v6, stream, kind & libc::SOCK_NONBLOCK != 0))
    }

    pub(crate) fn bind(&mut self, fd: i32, address: Address) -> Answer<()> {
        let Address::Inet(address) = address else { return Err(Errno(libc::EAFNOSUPPORT)) };
        let socket = self.socket_mut(fd)?;
        if address.is_ipv6() != socket.v6 {
            return Err(Errno(libc::EINVAL));
        }
        if socket.bound.is_some() || socket.role != Role::Idle {
            return Err(Errno(libc::EINVAL));
        }
        let (stream, shares) = (socket.stream, socket.options.reuses_address());
        if stream && self.descriptors.values().any(|other| in_the_way(other, address, shares)) {
            return Err(Errno(libc::EADDRINUSE));
        }
        self.socket_mut(fd)?.bound = Some(address);
        if let Some(ip) = plain(address.ip()) {
            self.claim(ip);
        }
        if !stream {
            let bind = Bind { local_ip: plain(address.ip()), local_port: address.port(), ..Bind::default() };
            let handle = self.lane().0.udp_bind(bind).map_err(|_| Errno(libc::EADDRINUSE))?;
            self.socket_mut(fd)?.role = Role::Datagrams(handle);
        }
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: i32) -> Answer<()> {
        self.refresh();
        let somaxconn = self.settings.somaxconn;
        let socket = self.socket_mut(fd)?;
        if !socket.stream {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        match socket.role {
            Role::Idle => {}
            Role::Listener(_) => return Ok(()),
            _ => return Err(Errno(libc::EINVAL)),
        }
        let local = socket.bound.unwrap_or(WILDCARD);
        // Linux lets one more wait than it was told.
        let backlog = (backlog as u32).min(somaxconn).saturating_add(1);
        let (socket, told) = (socket.options.tcp, socket.options.clone());
        let fast_open = fast_open::listening(&self.settings, &told, backlog);
        let options = ListenOptions { backlog, syn_backlog: backlog.max(128), socket, fast_open };
        let listener = self.lane().0.tcp_listen(plain(local.ip()), local.port(), options).map_err(|e| {
            Errno(match e {
                ListenError::NotOurAddress => libc::EADDRNOTAVAIL,
                ListenError::PortZero => libc::EINVAL,
                _ => libc::EADDRINUSE,
            })
        })?;
        self.socket_mut(fd)?.role = Role::Listener(listener);
        Ok(())
    }

    /// `None`: nobody waits to be accepted.
    pub(crate) fn accept(&mut self, fd: i32) -> Option<Answer<(i32, SocketAddr)>> {
        let role = match self.socket_mut(fd) {
            Ok(socket) => socket.role,
            Err(errno) => return Some(Err(errno)),
        };
        let Role::Listener(listener) = role else { return Some(Err(Errno(libc::EINVAL))) };
        let accepted = match self.lane().0.tcp_mut().accept(listener) {
            Ok(accepted) => accepted?,
            Err(_) => return Some(Err(Errno(libc::EINVAL))),
        };
        let parent = match self.socket_mut(fd) {
            Ok(socket) => socket,
            Err(errno) => return Some(Err(errno)),
        };
        let mut child = Socket::new(parent.v6, true, false);
        child.options = parent.options.clone();
        child.bound = Some(parent.shown(accepted.local));
        child.role = Role::Connection(accepted.id);
        let peer = parent.shown(accepted.remote);
        parent.consumed += 1;
        let told = child.options.tcp;
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        if lane.tcp().options(accepted.id).is_ok_and(|options| options != told) {
            // Set on the listener after it began to listen.
            let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.set_options(cx, accepted.id, &told));
        }
        Some(self.add_socket(child).map(|fd| (fd, peer)))
    }

    /// Begins a connection. `Ok`: it stands, or there is nothing to wait for; `EINPROGRESS`: it is under way.
    pub(crate) fn connect(&mut self, fd: i32, address: Address) -> Answer<()> {
        let socket = self.socket_mut(fd)?;
        let role = socket.role;
        let Address::Inet(remote) = address else { return self.disconnect(fd) };
        if remote.is_ipv6() && !socket.v6 {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let remote_ip = plain(remote.ip()).ok_or(Errno(libc::ECONNREFUSED))?;
        let remote = Endpoint::new(remote_ip, remote.port());
        if !socket.stream {
            return self.connect_datagrams(fd, remote);
        }
        match role {
            Role::Idle if socket.deferred.is_some() => return Err(Errno(libc::EISCONN)),
            Role::Idle => {}
            Role::Connection(_) => return self.connect_again(fd),
            _ => return Err(Errno(libc::EISCONN)),
        }
        let fast = socket.options.fast_connect;
        if fast && self.defers(fd, remote.into())? {
            return Ok(());
        }
        let fast_open = if fast { FastOpen::Cookie } else { FastOpen::Off };
        self.begin(fd, remote.into(), &Opening { fast_open, bytes: &[], waits: false })?;
        Err(Errno(libc::EINPROGRESS))
    }

    /// Sends the SYN; how many bytes went with it.
    pub(crate) fn begin(&mut self, fd: i32, remote: SocketAddr, opening: &Opening<'_>) -> Answer<usize> {
        self.refresh();
        let remote_ip = plain(remote.ip()).ok_or(Errno(libc::ECONNREFUSED))?;
        let socket = self.socket_mut(fd)?;
        let bound = socket.bound.unwrap_or(WILDCARD);
        let request = Connect {
            local_ip: plain(bound.ip()),
            local_port: bound.port(),
            remote: Endpoint::new(remote_ip, remote.port()),
            options: SocketOptions { fast_open: opening.fast_open, ..socket.options.tcp },
        };
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        let data = FirstData { bytes: opening.bytes, rest_follows: opening.waits };
        let (id, sent) = lane.tcp_connect_with(now, pool, request, data).map_err(|e| {
            Errno(match e {
                ConnectError::InUse => libc::EADDRINUSE,
                ConnectError::NoRoute => libc::ENETUNREACH,
                ConnectError::BadAddress => libc::EINVAL,
                ConnectError::TooMany => libc::ENOMEM,
                _ => libc::EADDRNOTAVAIL,
            })
        })?;
        let socket = self.socket_mut(fd)?;
        socket.role = Role::Connection(id);
        socket.connecting = true;
        Ok(sent)
    }

    /// `connect` on a socket that connects or is connected.
    fn connect_again(&mut self, fd: i32) -> Answer<()> {
        match self.handshake_over(fd) {
            None => Err(Errno(libc::EALREADY)),
            Some(Err(errno)) => {
                // Told: the socket is as it was before.
                self.disconnect(fd)?;
                Err(errno)
            }
            Some(Ok(())) => {
                let socket = self.socket_mut(fd)?;
                if std::mem::replace(&mut socket.connecting, false) {
                    Ok(())
                } else {
                    Err(Errno(libc::EISCONN))
                }
            }
        }
    }

    /// Whether a connection attempt has ended, and how.
    pub(crate) fn handshake_over(&mut self, fd: i32) -> Option<Answer<()>> {
        let id = match self.socket_mut(fd) {
            Ok(Socket { role: Role::Connection(id), .. }) => *id,
            Ok(_) => return Some(Err(Errno(libc::ENOTCONN))),
            Err(errno) => return Some(Err(errno)),
        };
        let (lane, ..) = self.lane();
        let state = lane.tcp().info(id).map(|info| info.state);
        match state {
            Ok(State::SynSent | State::SynReceived) => None,
            Ok(State::Closed) => {
                let failure = lane.tcp_mut().take_failure(id).ok().flatten();
                Some(match failure {
                    Some(failure) => Err(errno_of(failure)),
                    None => Err(Errno(libc::ECONNABORTED)),
                })
            }
            Ok(_) => Some(Ok(())),
            Err(_) => Some(Err(Errno(libc::ENOTCONN))),
        }
    }

    pub(crate) fn disconnect(&mut self, fd: i32) -> Answer<()> {
        let role = self.socket_mut(fd)?.role;
        self.give_up(role, true);
        let socket = self.socket_mut(fd)?;
        socket.role = Role::Idle;
        socket.deferred = None;
        socket.read_shut = false;
        socket.queue = Queue::default();
        socket.half_closed = false;
        Ok(())
    }

    fn connect_datagrams(&mut self, fd: i32, remote: Endpoint) -> Answer<()> {
        let socket = self.socket_mut(fd)?;
        let bound = socket.bound.unwrap_or(WILDCARD);
        if let Role::Datagrams(handle) = socket.role {
            self.lane().0.udp_close(handle);
        }
        let bind = Bind {
            local_ip: plain(bound.ip()),
            local_port: bound.port(),
            remote: Some(remote),
            ..Bind::default()
        };
        let handle = self.lane().0.udp_bind(bind).map_err(|_| Errno(libc::EADDRNOTAVAIL))?;
        self.socket_mut(fd)?.role = Role::Datagrams(handle);
        Ok(())
    }

    /// Ends what a socket has become.
    fn give_up(&mut self, role: Role, abort: bool) {
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        match role {
            Role::Idle => {}
            Role::Listener(id) => {
                let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.close_listener(cx, id));
            }
            Role::Connection(id) if abort => {
                let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.abort(cx, id));
            }
            Role::Connection(id) => {
                let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.close(cx, id));
            }
            Role::Datagrams(handle) => {
                lane.udp_close(handle);
            }
        }
    }

    /// How long `close` waits for what was written to arrive (`SO_LINGER`).
    pub(crate) fn linger_of(&mut self, fd: i32) -> Option<Duration> {
        let socket = self.socket_mut(fd).ok()?;
        let Role::Connection(id) = socket.role else { return None };
        let limit = socket.options.linger.filter(|limit| !limit.is_zero())?;
        let (lane, now, pool) = self.lane();
        let pool = &*pool;
        // Unread data is answered with a reset, which does not wait.
        let info = lane.tcp().info(id).ok().filter(|info| info.readable == 0)?;
        if matches!(info.state, State::Established | State::CloseWait) {
            let _ = lane.with_tcp(now, pool, |tcp, cx| tcp.shutdown(cx, id, std::net::Shutdown::Write));
        }
        Some(limit)
    }

    /// Whether everything that was written has arrived, our FIN included.
    pub(crate) fn has_arrived(&mut self, fd: i32) -> Option<()> {
        let Ok(Socket { role: Role::Connection(id), .. }) = self.socket_mut(fd) else { return Some(()) };
        let id = *id;
        let info = self.lane().0.tcp().info(id).ok();
        let waiting =
            info.is_some_and(|info| matches!(info.state, State::FinWait1 | State::Closing | State::LastAck));
        (!waiting).then_some(())
    }

    pub(crate) fn close(&mut self, fd: i32) -> Answer<()> {
        let descriptor = self.descriptors.remove(&fd).ok_or(Errno(libc::EBADF))?;
        if let Descriptor::Socket(socket) = descriptor
            && self.has_lane()
        {
            self.give_up(socket.role, false);
        }
        for other in self.descriptors.values_mut() {
            if let Descriptor::Epoll(epoll) = other {
                epoll.watched.remove(&fd);
            }
        }
        close_place(fd);
        Ok(())
    }

    pub(crate) fn shutdown(&mut self, fd: i32, how: i32) -> Answer<()> {
        let (read, write) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let socket = self.socket_mut(fd)?;
        match socket.role {
            Role::Listener(id) if read => {
                socket.role = Role::Idle;
                self.give_up(Role::Listener(id), false);
                Ok(())
            }
            Role::Connection(id) => {
                let (lane, now, pool) = self.lane();
                let pool = &*pool;
                let state = lane.tcp().info(id).map_err(|_| Errno(libc::ENOTCONN))?.state;
                if matches!(state, State::Closed | State::TimeWait) {
                    return Err(Errno(libc::ENOTCONN));
                }
                if write {
                    let _ =
                        lane.with_tcp(now, pool, |tcp, cx| tcp.shutdown(cx, id, std::net::Shutdown::Write));
                }
                let socket = self.socket_mut(fd)?;
                socket.read_shut |= read;
                let read_shut = socket.read_shut;
                let (lane, ..) = self.lane();
                let info = lane.tcp().info(id).map_err(|_| Errno(libc::ENOTCONN))?;
                let finished = matches!(info.state, State::FinWait1 | State::FinWait2);
                if read_shut && finished && info.readable == 0 {
                    // More data is refused; what is there can still be read, so it must not be given up.
                    let _ =
                        lane.with_tcp(now, pool, |tcp, cx| tcp.shutdown(cx, id, std::net::Shutdown::Read));
                }
                Ok(())
            }
            Role::Datagrams(_) => Ok(()),
            _ => Err(Errno(libc::ENOTCONN)),
        }
    }
}

/// Whether a socket keeps another from the address: the same port, and not both say `SO_REUSEADDR`, or it listens.
fn in_the_way(other: &Descriptor, address: SocketAddr, shares: bool) -> bool {
    let Descriptor::Socket(other) = other else { return false };
    let Some(bound) = other.bound.filter(|_| other.stream) else { return false };
    let (a, b) = (plain(bound.ip()), plain(address.ip()));
    let same = bound.port() == address.port() && (a.is_none() || b.is_none() || a == b);
    let shared = shares && other.options.reuses_address() && !matches!(other.role, Role::Listener(_));
    same && address.port() != 0 && !shared
}
