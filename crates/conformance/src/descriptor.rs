//! What a descriptor stands for.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flowlane_c::packetdrill::Interest;
use flowlane_stack::tcp::{ConnId, FastOpenKeys, Keepalive, ListenerId, SocketOptions, State};
use flowlane_stack::udp::UdpHandle;

use crate::errqueue::Stamp;
use crate::queue::Queue;

/// A descriptor.
#[derive(Debug)]
pub(crate) enum Descriptor {
    Socket(Box<Socket>),
    Epoll(Epoll),
    PipeRead(Pipe),
    PipeWrite(Pipe),
}

/// Bytes between two ends.
pub(crate) type Pipe = Arc<Mutex<VecDeque<u8>>>;

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    /// Of `AF_INET6`.
    pub(crate) v6: bool,
    pub(crate) stream: bool,
    pub(crate) nonblocking: bool,
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) role: Role,
    pub(crate) options: Options,
    /// `shutdown(SHUT_RD)`: as in Linux, what is there can still be read.
    pub(crate) read_shut: bool,
    /// The next `connect` tells that an earlier one succeeded (`false`) or failed.
    pub(crate) connecting: bool,
    /// Bytes read and connections accepted so far, and how often there was no room to write: what `EPOLLET` counts.
    pub(crate) consumed: u64,
    pub(crate) starved: u64,
    /// `connect` waits for the first write, which goes with the SYN (`TCP_FASTOPEN_CONNECT`).
    pub(crate) deferred: Option<SocketAddr>,
    /// What is written, once something is.
    pub(crate) queue: Queue,
    /// The peer had said that it would send no more, and we had not: a reset then is a broken pipe.
    pub(crate) half_closed: bool,
}

/// What the socket has become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Idle,
    Listener(ListenerId),
    Connection(ConnId),
    Datagrams(UdpHandle),
}

/// What `setsockopt` said, beyond what the lane is told.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) tcp: SocketOptions,
    pub(crate) keepalive_on: bool,
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) receive_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// `SO_LINGER`, if on.
    pub(crate) linger: Option<Duration>,
    pub(crate) notsent_lowat: Option<u32>,
    /// `TCP_INQ`: how much is left to read is told with every `recvmsg`.
    pub(crate) inq: bool,
    /// `SO_ZEROCOPY`.
    pub(crate) zerocopy: bool,
    /// `SO_TIMESTAMPING`.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) rcvbuf: Option<u32>,
    pub(crate) sndbuf: Option<u32>,
    pub(crate) congestion: Option<String>,
    /// `TCP_FASTOPEN_CONNECT`, `TCP_FASTOPEN_NO_COOKIE`.
    pub(crate) fast_connect: bool,
    pub(crate) fast_no_cookie: bool,
    /// `TCP_FASTOPEN` of a listener, and `TCP_FASTOPEN_KEY`.
    pub(crate) fast_pending: u32,
    pub(crate) fast_keys: Option<FastOpenKeys>,
    /// Options that are only remembered.
    pub(crate) others: BTreeMap<(i32, i32), Vec<u8>>,
}

impl Options {
    pub(crate) fn new() -> Self {
        Self {
            tcp: SocketOptions::default(),
            keepalive_on: false,
            keepalive: None,
            receive_timeout: None,
            send_timeout: None,
            linger: None,
            notsent_lowat: None,
            inq: false,
            zerocopy: false,
            stamp: None,
            rcvbuf: None,
            sndbuf: None,
            congestion: None,
            fast_connect: false,
            fast_no_cookie: false,
            fast_pending: 0,
            fast_keys: None,
            others: BTreeMap::new(),
        }
    }

    /// `SO_REUSEADDR` or `SO_REUSEPORT`.
    pub(crate) fn reuses_address(&self) -> bool {
        [libc::SO_REUSEADDR, libc::SO_REUSEPORT].iter().any(|name| {
            self.others.get(&(libc::SOL_SOCKET, *name)).is_some_and(|v| v.iter().any(|b| *b != 0))
        })
    }

    /// `SO_RCVLOWAT`: so much must be there before a socket is readable.
    pub(crate) fn receive_lowat(&self) -> u32 {
        let set = self.others.get(&(libc::SOL_SOCKET, libc::SO_RCVLOWAT)).and_then(|v| v.first_chunk::<4>());
        set.map_or(1, |v| i32::from_ne_bytes(*v).max(1) as u32)
    }
}

/// Descriptors watched together.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    pub(crate) watched: BTreeMap<i32, Watched>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) interest: Interest,
    /// What was reported last, for those that want to hear of changes only.
    pub(crate) reported: Option<(u32, u64, u64)>,
    /// `EPOLLONESHOT` has fired.
    pub(crate) spent: bool,
}

impl Socket {
    pub(crate) fn new(v6: bool, stream: bool, nonblocking: bool) -> Self {
        Self {
            v6,
            stream,
            nonblocking,
            bound: None,
            role: Role::Idle,
            options: Options::new(),
            read_shut: false,
            connecting: false,
            consumed: 0,
            starved: 0,
            deferred: None,
            queue: Queue::default(),
            half_closed: false,
        }
    }

    /// Whether a connection of this socket is in its handshake and cannot be used yet. One that was accepted can be.
    pub(crate) fn in_handshake(&self, state: State) -> bool {
        state == State::SynSent || state == State::SynReceived && self.connecting
    }

    /// An address as a socket of this family shows it.
    pub(crate) fn shown(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.v6 => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
            _ => address,
        }
    }
}

/// An address without the disguise of IPv4 in IPv6; `None` for "any".
pub(crate) fn plain(ip: IpAddr) -> Option<IpAddr> {
    let ip = match ip {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4),
        IpAddr::V4(_) => ip,
    };
    let any = ip.is_unspecified() || ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    (!any).then_some(ip)
}
