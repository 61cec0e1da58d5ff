//! Which addresses of a name a run uses.
//!
//! A name may have addresses that nobody listens on: `localhost` is 127.0.0.1 and ::1, and many a server has one of them. Clients try one
//! address after the other in the resolver's order and stay with what answers (RFC 6724, RFC 8305). A generator asks before the run, so
//! that no connection of the run fails for it: over kernel sockets, and only where there is a choice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use flowlane_load::http::Plan;

use crate::units;

/// Most addresses of one name that are tried; a run with more uses these.
const MOST: usize = 16;
/// How long an address may take to answer, and how much longer than the first (RFC 8305 §5).
const PATIENCE: Duration = Duration::from_secs(2);
const AFTER_THE_FIRST: Duration = Duration::from_millis(250);

/// Time between two questions to a target that is waited for.
const AGAIN: Duration = Duration::from_millis(50);

/// The option of waiting for a target.
#[derive(Debug, Args)]
pub(super) struct WaitOption {
    /// Wait until the target takes connections, at most so long, before the run begins: for a server that is being started. Kernel sockets
    /// only.
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    wait: Option<Duration>,
}

impl WaitOption {
    /// Refuses to wait for what only a run itself can ask.
    pub(super) fn check(&self, link: &dyn std::fmt::Display, is_kernel: bool) -> anyhow::Result<()> {
        ensure!(
            is_kernel || self.wait.is_none(),
            "--wait: the target is asked from kernel sockets, not over {link}: leave out --link"
        );
        Ok(())
    }

    /// Waits until `there` says so, or the time is up. Who is not there then fails the run as it would have without.
    pub(super) fn until(&self, mut there: impl FnMut() -> bool) {
        let end = Instant::now() + self.wait.unwrap_or_default();
        while Instant::now() < end && !there() {
            std::thread::sleep(AGAIN.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Waits for one of these addresses.
    pub(super) fn for_one(&self, addresses: &[SocketAddr], tcp: bool) {
        let asks = if tcp { connects } else { takes_datagrams };
        self.until(|| !answering(addresses, asks).is_empty());
    }

    /// Waits for every target of a plan.
    pub(super) fn for_all(&self, plan: &Plan) {
        for pool in plan.pools.iter().filter(|pool| pool.via.proxy.is_none()) {
            if let Some(path) = &pool.via.unix_socket {
                self.until(|| UnixStream::connect(path).is_ok());
                continue;
            }
            pool.targets.iter().for_each(|target| self.for_one(&target.addresses, true));
        }
    }
}

/// The addresses of a target, of which one is used.
#[derive(Debug, Clone)]
pub(super) struct Named(pub(super) Vec<SocketAddr>);

impl Named {
    /// The address for a run over kernel sockets: the first that answers.
    pub(super) fn choose(&self, tcp: bool) -> SocketAddr {
        let first = self.0.iter().find(|a| a.is_ipv4()).or(self.0.first()).copied().unwrap_or(NOWHERE);
        if self.0.len() < 2 {
            return first;
        }
        answering(&self.0, if tcp { connects } else { takes_datagrams }).first().copied().unwrap_or(first)
    }

    /// The address for a run over a link of ours, where nobody can ask before the run: the first that our addresses and routes lead to, IPv4
    /// before IPv6; the first of all if they lead to none.
    pub(super) fn choose_by(&self, leads_there: impl Fn(SocketAddr) -> bool) -> SocketAddr {
        let in_order =
            || self.0.iter().filter(|a| a.is_ipv4()).chain(self.0.iter().filter(|a| a.is_ipv6())).copied();
        in_order().find(|a| leads_there(*a)).or_else(|| in_order().next()).unwrap_or(NOWHERE)
    }
}

/// A place for an address that is not chosen yet.
pub(super) const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Leaves to each target of a plan the addresses that answer, if any does.
pub(super) fn keep_answering(plan: &mut Plan) {
    for target in plan.pools.iter_mut().flat_map(|pool| &mut pool.targets) {
        if target.addresses.len() > 1 {
            let found = answering(&target.addresses, connects);
            if !found.is_empty() {
                target.addresses = found;
            }
        }
    }
}

/// Those that answer, in their order.
fn answering(addresses: &[SocketAddr], asks: fn(SocketAddr) -> bool) -> Vec<SocketAddr> {
    let addresses = &addresses[..addresses.len().min(MOST)];
    let (to, answers) = channel();
    for (i, address) in addresses.iter().copied().enumerate() {
        let to = to.clone();
        let asking = move || {
            // Nobody waits for it any more.
            let _ = to.send((i, asks(address)));
        };
        if std::thread::Builder::new().spawn(asking).is_err() {
            return addresses.to_vec();
        }
    }
    drop(to);
    let (mut found, mut end) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        match answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok((i, true)) => {
                if found.is_empty() {
                    end = end.min(Instant::now() + AFTER_THE_FIRST);
                }
                found.push(i);
            }
            Ok((_, false)) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    found.sort_unstable();
    found.into_iter().map(|i| addresses[i]).collect()
}

fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PATIENCE).is_ok()
}

/// Whether a datagram is not refused. A service that only takes datagrams never answers, so silence is no refusal; an empty datagram is the
/// least that can be sent.
fn takes_datagrams(address: SocketAddr) -> bool {
    let ours: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let asked = || {
        let socket = UdpSocket::bind((ours, 0))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(AFTER_THE_FIRST / 2))?;
        socket.send(&[])?;
        socket.recv(&mut [0; 16]).map(drop)
    };
    match asked() {
        Ok(()) => true,
        Err(e) => matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn free() -> u16 {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn the_address_that_answers_is_used() {
        let listener = TcpListener::bind("127.0.0.3:0").unwrap();
        let here = listener.local_addr().unwrap();
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), here.port());
        let named = Named(vec![at("127.0.0.1"), here, at("::1")]);
        assert_eq!(named.choose(true), here);
        assert_eq!(answering(&named.0, connects), [here]);
        // Where nobody answers, the first.
        let nobody = Named(vec![at("127.0.0.1"), at("127.0.0.2")]);
        assert_eq!(nobody.choose(true), at("127.0.0.1"));
        assert!(answering(&nobody.0, connects).is_empty());
    }

    #[test]
    fn a_target_is_waited_for() {
        let wait = WaitOption { wait: Some(Duration::from_secs(60)) };
        let mut asked = 0;
        wait.until(|| {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
        let here = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Nobody is there any more: the time passes, or nothing is asked.
        WaitOption { wait: Some(Duration::from_millis(1)) }.for_one(&[here], true);
        WaitOption { wait: None }.until(|| panic!("not asked"));
        assert!(wait.check(&"tap:x", false).is_err() && wait.check(&"kernel", true).is_ok());
    }

    #[test]
    fn where_nobody_can_ask_the_address_is_used_to_which_our_own_lead() {
        let all: Vec<SocketAddr> =
            ["[fd00::1]:7", "10.0.0.1:7", "10.0.1.1:7"].map(|a| a.parse().unwrap()).to_vec();
        let named = Named(all.clone());
        assert_eq!(named.choose_by(|_| true), all[1]);
        assert_eq!(named.choose_by(|a| a.is_ipv6()), all[0]);
        assert_eq!(named.choose_by(|a| a == all[2]), all[2]);
        assert_eq!(named.choose_by(|_| false), all[1]);
    }

    #[test]
    fn a_port_that_takes_datagrams_in_silence_is_used() {
        let socket = UdpSocket::bind("127.0.0.3:0").unwrap();
        let here = socket.local_addr().unwrap();
        let named = Named(vec![SocketAddr::new("127.0.0.1".parse().unwrap(), here.port()), here]);
        assert_eq!(named.choose(false), here);
        assert!(!takes_datagrams(SocketAddr::new("127.0.0.4".parse().unwrap(), free())));
    }
}
