//! Source ports of outgoing connections and of connected sockets of datagrams: such that the answers hash to the lane that has them.
//!
//! The card (or whatever steers) hashes what comes back. If the host's [`Rss`](crate::Rss) is the card's, its rule solved for the port
//! ([`HomePorts`]) gives the ports whose answers reach this lane's bucket. The kernel is asked for one of them after the other, by a
//! range of one port (`IP_LOCAL_PORT_RANGE`, Linux 6.3), which it takes if no connection to the same peer has it, or no socket of datagrams
//! at all; an older kernel is asked by `bind`. Lanes have different home ports, so they do not meet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_rss::{HomePorts, Protocol};
use flowlane_stack::address::Endpoint;
use flowlane_sys::kernel::epoll::Epoll;
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

use super::opening::{Opened, Opening};
use super::{KernelLane, Ports};
use crate::zone;

/// Ports that are tried for one flow. After that the kernel chooses.
const TRIES: usize = 64;
/// Steps of a [`Walk`] for that: not every one leads to a port.
const LOOKS: usize = 1024;

/// The home ports of a lane.
pub(super) struct Home {
    ports: HomePorts,
    /// What the kernel gives away (`net.ipv4.ip_local_port_range`).
    range: RangeInclusive<u16>,
    /// The place in turn.
    next: usize,
    /// The peer asked for last, and our address towards it.
    source: Option<(Endpoint, IpAddr)>,
    /// Whether the kernel knows ranges.
    by_range: bool,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("range", &self.range).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Home {
    pub(super) fn new(ports: HomePorts) -> Self {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let mut ends = text.split_whitespace().filter_map(|end| end.parse().ok());
        let range = ends.next().unwrap_or(32_768)..=ends.next().unwrap_or(60_999);
        Self { ports, range, next: 0, source: None, by_range: true }
    }

    /// Our address towards a peer.
    fn source(&mut self, remote: SocketAddr) -> io::Result<IpAddr> {
        let asked = Endpoint { port: 0, ..remote.into() };
        if let Some((peer, ours)) = self.source
            && peer == asked
        {
            return Ok(ours);
        }
        // Connecting a socket for datagrams sends nothing, and has the kernel look at its routes.
        let probe = socket::udp(remote.is_ipv4())?;
        socket::connect(probe.as_fd(), remote)?;
        let ours = socket::local_address(probe.as_fd())?.ip();
        self.source = Some((asked, ours));
        Ok(ours)
    }

    /// Begins at a home port; `None` if none was free or there are none. Then the socket is as it was. `again` makes
    /// another socket like `fd`.
    pub(super) fn begin(
        &mut self,
        fd: &mut OwnedFd,
        local: Option<IpAddr>,
        opening: Opening<'_>,
        again: impl Fn() -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Opened>> {
        let remote = opening.remote;
        let ours = match local.map_or_else(|| self.source(remote), Ok) {
            // The kernel would not even give the probe a port.
            Err(e) if e.raw_os_error() == Some(errno::EAGAIN) => return Ok(None),
            ours => ours?,
        };
        let mut next = self.next;
        let Ok(ports) = self.ports.to(ours, remote, opening.protocol) else { return Ok(None) };
        let walk = Walk::new(ports, self.range.clone());
        let candidates = (0..LOOKS.min(walk.len)).filter_map(|_| {
            next = (next + 1) % walk.len;
            walk.nth(next)
        });
        let mut found = None;
        for port in candidates.take(TRIES) {
            let tried = if self.by_range {
                by_range(fd, ours, port, opening)
            } else {
                by_bind(fd, ours, port, opening, &again)
            };
            match tried {
                // Guard: `is_taken(&e, opening.protocol)` as `false` fails kernel::home
                Err(e) if is_taken(&e, opening.protocol) => {}
                Err(e) if self.by_range && e.raw_os_error() == Some(errno::ENOPROTOOPT) => {
                    self.by_range = false;
                }
                done => {
                    found = Some(done?);
                    break;
                }
            }
        }
        self.next = next;
        if found.is_none() {
            // It may have been that the address is not ours any more.
            self.source = None;
            *fd = again()?;
        }
        Ok(found)
    }
}

/// A way through the home ports that the kernel gives away: through its range, if that is shorter, or through all home ports.
struct Walk<'a> {
    ports: flowlane_rss::Ports<'a>,
    range: RangeInclusive<u16>,
    through_range: bool,
    /// Steps, at least one.
    len: usize,
}

impl<'a> Walk<'a> {
    fn new(ports: flowlane_rss::Ports<'a>, range: RangeInclusive<u16>) -> Self {
        // Guard: `range.len() <= ports.len()` as `false` fails kernel::home::tests::a_walk
        let through_range = range.len() <= ports.len();
        let len = if through_range { range.len() } else { ports.len() }.max(1);
        Self { ports, range, through_range, len }
    }

    /// The port of a step, if it is one.
    fn nth(&self, step: usize) -> Option<u16> {
        if self.through_range {
            let port = self.range.start() + step as u16;
            self.ports.contains(port).then_some(port)
        } else {
            // Guard: `self.range.contains(port)` as `true` fails kernel::home
            self.ports.nth(step).filter(|port| self.range.contains(port))
        }
    }
}

impl KernelLane {
    /// Begins at a port whose answers come to this lane, if the host is to do so and one is free. `again` makes another socket like `fd`.
    pub(super) fn begin_at_home(
        &mut self,
        fd: &mut OwnedFd,
        local: Option<IpAddr>,
        opening: Opening<'_>,
        again: impl Fn(&Ports, &Epoll) -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Opened>> {
        if self.home.is_none() {
            let Some(ports) = self.ports.steering.home_ports(self.lane) else { return Ok(None) };
            self.home = Some(Box::new(Home::new(ports)));
        }
        let Some(home) = &mut self.home else { return Ok(None) };
        let opened = home.begin(fd, local, opening, || again(&self.ports, &self.epoll))?;
        let counter =
            if opened.is_some() { &mut self.stats.home_ports } else { &mut self.stats.ports_elsewhere };
        *counter += 1;
        Ok(opened)
    }
}

/// Whether the port is somebody else's. Of datagrams the kernel says of a range that it has none now.
fn is_taken(e: &io::Error, protocol: Protocol) -> bool {
    match e.raw_os_error() {
        Some(errno::EADDRNOTAVAIL | errno::EADDRINUSE) => true,
        // Guard: `protocol == Protocol::UDP` as `false` fails kernel::home::tests::datagrams
        Some(errno::EAGAIN) => protocol == Protocol::UDP,
        _ => false,
    }
}

/// Begins at this port, if no connection to the same peer has it, or no socket of datagrams.
fn by_range(fd: &OwnedFd, ours: IpAddr, port: u16, opening: Opening<'_>) -> io::Result<Opened> {
    let range = u32::from(port) << 16 | u32::from(port);
    options::set(fd.as_fd(), Number::LOCAL_PORT_RANGE, range.cast_signed())?;
    options::set(fd.as_fd(), Number::BIND_ADDRESS_NO_PORT, 1)?;
    // Bound to the same address before, it says that it is.
    match socket::bind(fd.as_fd(), zone::ours(ours, 0, zone::of(opening.remote))) {
        Err(e) if e.raw_os_error() == Some(errno::EINVAL) => {}
        done => done?,
    }
    opening.begin(fd)
}

/// The same for kernels before Linux 6.3. A socket that is bound stays so, and another takes its place.
fn by_bind(
    fd: &mut OwnedFd,
    ours: IpAddr,
    port: u16,
    opening: Opening<'_>,
    again: &impl Fn() -> io::Result<OwnedFd>,
) -> io::Result<Opened> {
    // Sockets of datagrams would share the port of one peer, and one of them get the other's answers.
    // Guard: `opening.protocol == Protocol::TCP` as `true` fails kernel::home::tests::datagrams
    if opening.protocol == Protocol::TCP {
        options::set(fd.as_fd(), Number::REUSE_ADDRESS, 1)?;
    }
    socket::bind(fd.as_fd(), zone::ours(ours, port, zone::of(opening.remote)))?;
    let done = opening.begin(fd);
    if done.is_err() {
        *fd = again()?;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::{Bucket, Flow, HashConfig, Key, Rss, UdpFields};

    /// By either way every port is a home port, no two connections to one peer have the same, and those that are taken are passed over; when
    /// none is left it is said.
    #[test]
    fn ports_are_home_ports_and_differ() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let opening = Opening { protocol: Protocol::TCP, remote, data: &[] };
        let rss = Rss::new(Key::MICROSOFT, 1);
        let bucket = Bucket(1);
        for by_range in [true, false] {
            let mut home = Home::new(HomePorts::new(&rss, &rss.slots_of_bucket(bucket)));
            home.by_range = by_range;
            let (mut sockets, mut ports) = (Vec::new(), std::collections::BTreeSet::new());
            let mut connect = |home: &mut Home| {
                let mut fd = socket::tcp(true).unwrap();
                let done = home.begin(&mut fd, None, opening, || socket::tcp(true)).unwrap()?;
                assert!(!done.connected, "it takes a moment");
                let local = socket::local_address(fd.as_fd()).unwrap();
                assert_eq!(rss.steer(&Flow::new(remote, local, Protocol::TCP)).bucket, bucket);
                assert!(ports.insert(local.port()), "{} twice", local.port());
                options::set_reset_on_close(fd.as_fd(), true).unwrap();
                sockets.push(fd);
                Some(local.port())
            };
            let first = connect(&mut home).unwrap();
            assert!(home.by_range == by_range || by_range, "no way back");
            for _ in 0..50 {
                assert!(connect(&mut home).is_some());
            }
            // Its turn again, and it is taken.
            home.next = 0;
            assert_ne!(connect(&mut home), Some(first));
            home.range = first..=first;
            assert_eq!(connect(&mut home), None);
        }
    }

    /// The same of datagrams, over both families. A port is passed over that another program has, to whatever address.
    #[test]
    fn datagrams_have_home_ports_of_their_own() {
        use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
        let mut rss = Rss::new(Key::MICROSOFT, 1);
        rss.config = HashConfig::with_udp(UdpFields::Four);
        let bucket = Bucket(1);
        let v4: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into()];
        let v6: [IpAddr; 2] = [Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()];
        for ([ip, any], by_range) in [(v4, true), (v4, false), (v6, true), (v6, false)] {
            let Ok(peer) = UdpSocket::bind((ip, 0)) else { continue };
            let remote = peer.local_addr().unwrap();
            let opening = Opening { protocol: Protocol::UDP, remote, data: &[] };
            let mut home = Home::new(HomePorts::new(&rss, &rss.slots_of_bucket(bucket)));
            home.by_range = by_range;
            let (mut sockets, mut ports) = (Vec::new(), std::collections::BTreeSet::new());
            let is_home = |port| {
                let flow = Flow::new(remote, SocketAddr::new(ip, port), Protocol::UDP);
                rss.steer(&flow).bucket == bucket
            };
            let mut begin = |home: &mut Home| {
                let again = || socket::udp(ip.is_ipv4());
                let mut fd = again().unwrap();
                let done = home.begin(&mut fd, None, opening, again).unwrap();
                // As it was, it takes any port.
                let begun = done.map_or_else(|| opening.begin(&fd), Ok).unwrap();
                assert!(begun.connected, "there is nothing to wait for");
                let port = socket::local_address(fd.as_fd()).unwrap().port();
                assert!(ports.insert(port), "{port} twice");
                assert!(done.is_none() || is_home(port), "{port}");
                sockets.push(fd);
                done.map(|_| port)
            };
            let first = begin(&mut home).unwrap();
            for _ in 0..50 {
                assert!(begin(&mut home).is_some());
            }
            home.next = 0;
            assert_ne!(begin(&mut home), Some(first));
            home.range = first..=first;
            assert_eq!(begin(&mut home), None);
            // Those that are in vain stay open, so that the kernel gives another next time.
            let others = std::iter::repeat_with(|| UdpSocket::bind((any, 0)).unwrap());
            let mut kept = Vec::new();
            for other in others.take(100) {
                let port = other.local_addr().unwrap().port();
                kept.push(other);
                if is_home(port) {
                    home.range = port..=port;
                    break;
                }
            }
            assert_ne!(home.range, first..=first, "no program has a home port");
            assert_eq!(begin(&mut home), None);
        }
    }

    /// A walk comes to each home port of the range once, and soon to the first, be the range narrow or all ports home ports.
    #[test]
    fn a_walk_misses_no_port() {
        let (ours, remote) = ("10.0.0.2".parse().unwrap(), "10.0.0.1:7".parse().unwrap());
        for fields in [UdpFields::Two, UdpFields::Four] {
            let mut rss = Rss::new(Key::MICROSOFT, 1);
            rss.config = HashConfig::with_udp(fields);
            let bucket = rss.steer(&Flow::new(remote, SocketAddr::new(ours, 40_000), Protocol::UDP)).bucket;
            let home = HomePorts::new(&rss, &rss.slots_of_bucket(bucket));
            let ports = home.to(ours, remote, Protocol::UDP).unwrap();
            let wide = [32_768..=60_999, 33_000..=34_100, 20_000..=60_000];
            let narrow = (33_000..60_000).step_by(1_500).map(|first| first..=first + 9);
            for range in wide.into_iter().chain(narrow) {
                let walk = Walk::new(ports, range.clone());
                let mut found: Vec<u16> = (0..walk.len).filter_map(|step| walk.nth(step)).collect();
                found.sort_unstable();
                let all: Vec<u16> = range.clone().filter(|port| ports.contains(*port)).collect();
                assert_eq!(found, all, "{fields:?}, {range:?}");
                let soon = (0..LOOKS.min(walk.len)).any(|step| walk.nth(step).is_some());
                assert_eq!(soon, !all.is_empty(), "{fields:?}, {range:?}");
            }
        }
    }
}
