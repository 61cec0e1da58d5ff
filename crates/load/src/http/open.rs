//! Opening a connection: client address and port, and target; [`super::way`] has what lies beyond TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::{
    Bucket, Connect, ConnectError, Endpoint, FastOpen, SocketError, SocketOptions, TcpStream, zone,
};
use flowlane_rss::{Flow, Protocol};
use flowlane_stack::rng::Rng;

use super::choice::Weighted;
use super::places::Place;
use super::plan::{AimLaw, HttpAim, Pool};
use super::stream::Unopened;
use crate::report::ErrorKind;
use crate::run::clients::ClientRange;

/// First port to try when connections must hit a bucket of the target.
const FIRST_PORT: u16 = 1024;
/// Pairs of address and port tried for a bucket of the target before it counts as out of reach.
const TRIALS: u32 = 20_000;

/// Starts a connection without TLS. It needs no future: a hundred thousand may be in progress. Returns how many bytes of `first` go with
/// the SYN; the caller sends the rest.
pub(super) fn begin(connect: &Connect, first: &[u8]) -> Result<(TcpStream, usize), Unopened> {
    TcpStream::begin_with_data(*connect, first).map_err(|e| unopened(e, connect))
}

/// Polls a connection started by [`begin`] for the end of its handshake.
pub(super) fn poll_plain(tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<Result<(), Unopened>> {
    tcp.poll_connected(cx).map_err(|e| {
        let local_ip = Some(tcp.local_addr().ip());
        unopened(e, &Connect { local_ip, ..Connect::to(tcp.peer_addr().into()) })
    })
}

/// Why a connection could not be opened, in words.
pub(super) fn unopened(e: SocketError, connect: &Connect) -> Unopened {
    let remote = zone::show(connect.remote.into());
    let other_address = matches!(
        e,
        SocketError::Connect(ConnectError::NoPort | ConnectError::OtherLane(_) | ConnectError::InUse)
    );
    let why = match (connect.local_ip, e) {
        (Some(ip), SocketError::Connect(ConnectError::NoPort)) => {
            format!("no port of {ip} is left for {remote}: give more client addresses")
        }
        _ => format!("{remote}: {e}"),
    };
    let kind = match ErrorKind::of_io(&io::Error::from(e)) {
        ErrorKind::Timeout => ErrorKind::ConnectTimeout,
        _ if other_address => ErrorKind::Local,
        _ if e == SocketError::NoDescriptor => ErrorKind::Local,
        kind => kind,
    };
    Unopened { kind, why, other_address }
}

/// Chooses target and client address of each connection of a pool in this lane.
#[derive(Debug)]
pub(super) struct Routes {
    targets: Vec<Place>,
    weights: Weighted,
    /// Whether all targets have the same weight and are used in turn.
    even: bool,
    turn: usize,
    ranges: Vec<ClientRange>,
    /// Index of the next client address over all ranges.
    client: u128,
    options: SocketOptions,
    aim: Option<Buckets>,
    /// In whose place no address stands: a Unix socket.
    place: Option<String>,
}

/// Where a connection goes: a target and which of its addresses, by their indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aimed {
    pub(super) target: u16,
    pub(super) address: u8,
}

#[derive(Debug)]
struct Buckets {
    aim: HttpAim,
    zipf: Weighted,
    next: u64,
    began: u64,
}

impl Routes {
    /// The routes of lane `lane` of the run, which is `nth` of the lanes `here`; lanes begin with different addresses and targets.
    pub(super) fn new(pool: &Pool, lane: usize, (nth, here): (usize, usize)) -> Self {
        let weights = Weighted::new(pool.targets.iter().map(|t| t.weight));
        let addresses: u128 = pool.clients.iter().map(ClientRange::count).fold(0, u128::saturating_add);
        let slow =
            pool.read_rate.map(|rate| u32::try_from(rate / 4).unwrap_or(u32::MAX).clamp(4096, 1 << 20));
        let aimed = |aim: &HttpAim| {
            let n = aim.rss.buckets.len();
            let power = if let AimLaw::Zipf(power) = aim.law { power } else { 0.0 };
            let zipf = Weighted::new((1..=n).map(|k| (k as f64).powf(-power)));
            Buckets { aim: aim.clone(), zipf, next: lane as u64, began: 0 }
        };
        let fast_open = if pool.fast_open { FastOpen::Cookie } else { FastOpen::Off };
        Self {
            even: weights.is_even(),
            weights,
            turn: lane,
            client: addresses / here.max(1) as u128 * nth as u128,
            ranges: pool.clients.clone(),
            targets: pool.targets.iter().map(|t| Place::new(&t.addresses)).collect(),
            options: SocketOptions {
                nodelay: true,
                recv_buffer: slow,
                fast_open,
                ..SocketOptions::default()
            },
            aim: pool.aim.as_ref().map(aimed),
            place: pool.via.place(),
        }
    }

    /// The next connection: the target and its address, by their indices, and where it goes; `again`: to this target. Fails if no client
    /// address and port reach a bucket of the target.
    pub(super) fn next(
        &mut self,
        again: Option<Aimed>,
        now: u64,
        rng: &mut Rng,
    ) -> Result<(Aimed, Connect), Unopened> {
        let target = match again {
            Some(at) => usize::from(at.target),
            None if self.even => self.turn % self.targets.len(),
            None => self.weights.pick(rng),
        };
        let (address, remote) = self.targets[target].next(self.turn / self.targets.len());
        self.turn = self.turn.wrapping_add(1);
        let local_ip = self.client_for(remote);
        let connect =
            Connect { local_ip, local_port: 0, remote: Endpoint::from(remote), options: self.options };
        let connect = match self.aim {
            Some(_) => self.aimed(connect, now, rng)?,
            None => connect,
        };
        Ok((Aimed { target: target as u16, address }, connect))
    }

    /// The next connection to a place that is not known yet, of IPv4 and of IPv6: its peer is still to be said.
    pub(super) fn towards_anywhere(&mut self) -> [Connect; 2] {
        let nowhere: [SocketAddr; 2] = [(Ipv4Addr::UNSPECIFIED, 0).into(), (Ipv6Addr::UNSPECIFIED, 0).into()];
        nowhere.map(|remote| Connect {
            local_ip: self.client_for(remote),
            local_port: 0,
            remote: Endpoint::from(remote),
            options: self.options,
        })
    }

    /// A connection stands.
    pub(super) fn stands(&mut self, at: Aimed) {
        self.targets[usize::from(at.target)].stands(at.address);
    }

    /// A connection failed; whether another address of its target is to be tried in its place.
    pub(super) fn failed(&mut self, at: Aimed, kind: ErrorKind) -> bool {
        self.targets[usize::from(at.target)].failed(at.address, kind)
    }

    /// Whether an address that has not answered yet need not be waited for, since another one answers.
    pub(super) fn is_slower(&self, at: Aimed) -> bool {
        self.targets[usize::from(at.target)].is_slower(at.address)
    }

    /// Whether every address of every target is given up.
    pub(super) fn all_given_up(&self) -> bool {
        self.targets.iter().all(Place::is_given_up)
    }

    /// That nobody listens at any of them, in words.
    pub(super) fn nobody_listens(&self) -> String {
        if let Some(place) = &self.place {
            return format!("nothing listens at {place}: connection refused");
        }
        let mut all = self.targets.iter().flat_map(Place::addresses);
        let first = all.next().map_or_else(String::new, |address| format!(" at {address}"));
        let others = match all.count() {
            0 => String::new(),
            1 => ", nor at the other address".to_owned(),
            n => format!(", nor at the other {n} addresses"),
        };
        format!("nothing listens{first}{others}: connection refused")
    }

    /// The next client address of the target's family.
    fn client_for(&mut self, remote: SocketAddr) -> Option<IpAddr> {
        let of_family = |r: &&ClientRange| r.is_ipv4() == remote.is_ipv4();
        let all: u128 =
            self.ranges.iter().filter(of_family).map(ClientRange::count).fold(0, u128::saturating_add);
        let mut index = self.client.checked_rem(all)?;
        self.client = self.client.wrapping_add(1);
        for range in self.ranges.iter().filter(of_family) {
            if index < range.count() {
                return Some(range.nth(index));
            }
            index -= range.count();
        }
        None
    }

    /// Sets a port with which the connection hits the target's bucket, and with which answers arrive in this lane.
    fn aimed(&mut self, mut connect: Connect, now: u64, rng: &mut Rng) -> Result<Connect, Unopened> {
        let home = flowlane::current().map(|here| here.bucket).unwrap_or(Bucket(0));
        let Some(wanted) = self.aim.as_mut().map(|aimed| aimed.bucket(now, rng)) else { return Ok(connect) };
        let remote = SocketAddr::from(connect.remote);
        for _ in 0..TRIALS {
            let Some(ip) = connect.local_ip else { break };
            let port = FIRST_PORT + (rng.next_u32() % u32::from(u16::MAX - FIRST_PORT)) as u16;
            let local = SocketAddr::new(ip, port);
            let hits = self.aim.as_ref().is_some_and(|aimed| {
                aimed.aim.rss.steer(&Flow::new(local, remote, Protocol::TCP)).bucket == wanted
            });
            let comes_home = self.aim.as_ref().is_some_and(|aimed| {
                let Some(ours) = &aimed.aim.home else { return true };
                ours.steer(&Flow::new(remote, local, Protocol::TCP)).bucket == home
            });
            if hits && comes_home {
                connect.local_port = port;
                return Ok(connect);
            }
            connect.local_ip = self.client_for(remote).or(connect.local_ip);
        }
        Err(Unopened {
            kind: ErrorKind::Local,
            why: format!(
                "no client address and port reach bucket {} of the target: give --clients",
                wanted.0
            ),
            other_address: false,
        })
    }
}

impl Buckets {
    /// The target's bucket of the next connection.
    fn bucket(&mut self, now: u64, rng: &mut Rng) -> Bucket {
        let n = self.aim.rss.buckets.len() as u64;
        if self.began == 0 {
            self.began = now;
        }
        self.next += 1;
        Bucket(match &self.aim.law {
            AimLaw::Even => (self.next % n) as u16,
            AimLaw::Zipf(_) => self.zipf.pick(rng) as u16,
            AimLaw::One(bucket) => *bucket,
            AimLaw::Moving(period) => {
                let period = Duration::as_nanos(period).max(1) as u64;
                ((now - self.began) / period % n) as u16
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_has_no_more_of_is_local() {
        let to = Connect::to("10.0.0.1:80".parse::<SocketAddr>().unwrap().into());
        for (error, kind) in [
            (SocketError::NoDescriptor, ErrorKind::Local),
            (SocketError::Connect(ConnectError::NoPort), ErrorKind::Local),
            (SocketError::Kernel(12), ErrorKind::Local),
            (SocketError::Connection(flowlane::Failure::Refused), ErrorKind::Refused),
        ] {
            assert_eq!(unopened(error, &to).kind, kind, "{error:?}");
        }
    }
}
