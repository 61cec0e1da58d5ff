//! Source ports of outgoing connections: such that the answers hash to the lane that connects.
//!
//! The card (or whatever steers) hashes what comes back. If the host's [`Rss`](crate::Rss) is the card's, its rule solved for the port
//! ([`HomePorts`]) gives the ports whose answers reach this lane's bucket. The kernel is asked for one of them after the other, by a
//! range of one port (`IP_LOCAL_PORT_RANGE`, Linux 6.3), which it takes if no connection to the same peer has it; an older kernel is asked
//! by `bind`. Lanes have different home ports, so they do not meet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};

use flowlane_rss::{HomePorts, Protocol};
use flowlane_sys::kernel::options::{self, Number};
use flowlane_sys::kernel::socket::{self, errno};

use super::opening::{Opened, Opening};

/// Ports that are tried for one connection. After that the kernel chooses.
const TRIES: usize = 64;
/// Home ports that are looked at for that: many may lie outside the range that the kernel gives away.
const LOOKS: usize = 1024;

/// The home ports of a lane.
pub(super) struct Home {
    ports: HomePorts,
    /// What the kernel gives away (`net.ipv4.ip_local_port_range`).
    range: RangeInclusive<u16>,
    /// The place in turn.
    next: usize,
    /// The peer asked for last, and our address towards it.
    source: Option<(IpAddr, IpAddr)>,
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
        if let Some((peer, ours)) = self.source
            && peer == remote.ip()
        {
            return Ok(ours);
        }
        // Connecting a socket for datagrams sends nothing, and has the kernel look at its routes.
        let probe = socket::udp(remote.is_ipv4())?;
        socket::connect(probe.as_fd(), remote)?;
        let ours = socket::local_address(probe.as_fd())?.ip();
        self.source = Some((remote.ip(), ours));
        Ok(ours)
    }

    /// Connects from a home port; `None` if none was free or there are none. Then the socket is as it was. `again` makes
    /// another socket like `fd`.
    pub(super) fn connect(
        &mut self,
        fd: &mut OwnedFd,
        local: Option<IpAddr>,
        opening: Opening<'_>,
        again: impl Fn() -> io::Result<OwnedFd>,
    ) -> io::Result<Option<Opened>> {
        let remote = opening.remote;
        let ours = match local {
            Some(local) => local,
            None => self.source(remote)?,
        };
        let mut next = self.next;
        let Ok(ports) = self.ports.to(ours, remote, Protocol::TCP) else { return Ok(None) };
        let all = ports.len().max(1);
        let range = self.range.clone();
        let candidates = (0..LOOKS.min(all)).filter_map(|_| {
            next = (next + 1) % all;
            ports.nth(next).filter(|port| range.contains(port))
        });
        let mut found = None;
        for port in candidates.take(TRIES) {
            let tried = if self.by_range {
                by_range(fd, ours, port, opening)
            } else {
                by_bind(fd, ours, port, opening, &again)
            };
            match tried {
                Err(e) if matches!(e.raw_os_error(), Some(errno::EADDRNOTAVAIL | errno::EADDRINUSE)) => {}
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

/// Connects from this port, if no connection to the same peer has it.
fn by_range(fd: &OwnedFd, ours: IpAddr, port: u16, opening: Opening<'_>) -> io::Result<Opened> {
    let range = u32::from(port) << 16 | u32::from(port);
    options::set(fd.as_fd(), Number::LOCAL_PORT_RANGE, range.cast_signed())?;
    options::set(fd.as_fd(), Number::BIND_ADDRESS_NO_PORT, 1)?;
    // Bound to the same address before, it says that it is.
    match socket::bind(fd.as_fd(), SocketAddr::new(ours, 0)) {
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
    options::set(fd.as_fd(), Number::REUSE_ADDRESS, 1)?;
    socket::bind(fd.as_fd(), SocketAddr::new(ours, port))?;
    let done = opening.begin(fd);
    if done.is_err() {
        *fd = again()?;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use flowlane_rss::{Bucket, Flow, Key, Rss};

    /// By either way every port is a home port, no two connections to one peer have the same, and those that are taken are passed over; when
    /// none is left it is said.
    #[test]
    fn ports_are_home_ports_and_differ() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let opening = Opening { remote, data: &[] };
        let rss = Rss::new(Key::MICROSOFT, 1);
        let bucket = Bucket(1);
        for by_range in [true, false] {
            let mut home = Home::new(HomePorts::new(&rss, &rss.slots_of_bucket(bucket)));
            home.by_range = by_range;
            let (mut sockets, mut ports) = (Vec::new(), std::collections::BTreeSet::new());
            let mut connect = |home: &mut Home| {
                let mut fd = socket::tcp(true).unwrap();
                let done = home.connect(&mut fd, None, opening, || socket::tcp(true)).unwrap()?;
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
}
