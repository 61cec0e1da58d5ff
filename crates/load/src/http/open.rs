//! Opening a connection: client address and port, target, and TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use flowlane::{Bucket, Connect, ConnectError, Endpoint, FastOpen, SocketError, SocketOptions, TcpStream};
use flowlane_http::tls::{self, Alpn, ClientOptions, ClientTls, HandshakeError, ServerName, Trust};
use flowlane_rss::{Flow, Protocol};
use flowlane_stack::rng::Rng;

use super::choice::Weighted;
use super::clock;
use super::conn::Stream;
use super::plan::{AimLaw, BadPlan, HttpAim, Pool};
use crate::clients::ClientRange;
use crate::report::ErrorKind;

/// First port to try when connections must hit a bucket of the target.
const FIRST_PORT: u16 = 1024;
/// Pairs of address and port tried for a bucket of the target before it counts as out of reach.
const TRIALS: u32 = 20_000;

/// Hint in the message for a certificate that is not trusted.
const HINT: &str = "certificate not believed (-k believes any, --ca FILE those in it): ";

/// An established connection.
pub(super) struct Opened {
    pub(super) stream: Stream,
    /// When the TCP handshake and, with TLS, the TLS handshake were complete.
    pub(super) connected: u64,
    pub(super) secured: u64,
}

/// A failed connection attempt.
#[derive(Debug)]
pub(super) struct Unopened {
    pub(super) kind: ErrorKind,
    pub(super) why: String,
    /// Whether another of our addresses may work.
    pub(super) other_address: bool,
}

/// TLS to one target. Sessions are not resumed: every handshake costs as much as a new client's.
#[derive(Debug, Clone)]
pub(super) struct Secure {
    tls: ClientTls,
    name: ServerName<'static>,
}

impl Secure {
    pub(super) fn new(host: &str, trust: &Trust, http2: bool) -> Result<Self, BadPlan> {
        let alpn = if http2 { Alpn::Http2 } else { Alpn::Http1 };
        let options = ClientOptions { trust: trust.clone(), alpn, no_resumption: true };
        let tls = ClientTls::new(&options).map_err(|e| BadPlan(e.to_string()))?;
        let name = ClientTls::name(host).map_err(|e| BadPlan(e.to_string()))?;
        Ok(Self { tls, name })
    }
}

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

/// Opens a connection, with TLS if `secure` is given.
pub(super) async fn open(connect: Connect, secure: Option<Secure>) -> Result<Opened, Unopened> {
    let tcp = TcpStream::connect_with(connect, None).await.map_err(|e| unopened(e, &connect))?;
    let connected = clock();
    let Some(secure) = secure else {
        return Ok(Opened { stream: Stream::Plain(tcp), connected, secured: connected });
    };
    // The state of a TLS handshake has kilobytes: it is boxed so that connections without TLS stay small.
    match Box::pin(secure.tls.connect(tcp, secure.name)).await {
        Ok(tls::Stream::Plain(tcp)) => {
            Ok(Opened { stream: Stream::Plain(tcp), connected, secured: connected })
        }
        Ok(tls::Stream::Tls(tls)) => Ok(Opened { stream: Stream::Tls(tls), connected, secured: clock() }),
        Err(e) => {
            let kind = match &e {
                HandshakeError::Failed(e) => match ErrorKind::of_io(e) {
                    kind @ (ErrorKind::Reset | ErrorKind::Closed) => kind,
                    _ => ErrorKind::Tls,
                },
                _ => ErrorKind::Tls,
            };
            // The hint comes first, since reports cut messages at the end.
            let hint = if e.is_untrusted() { HINT } else { "" };
            let why = format!("{}: {hint}{e}", SocketAddr::from(connect.remote));
            Err(Unopened { kind, why, other_address: false })
        }
    }
}

fn unopened(e: SocketError, connect: &Connect) -> Unopened {
    let remote = SocketAddr::from(connect.remote);
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
    targets: Vec<Vec<SocketAddr>>,
    weights: Weighted,
    /// Whether all targets have the same weight and are used in turn.
    even: bool,
    turn: usize,
    ranges: Vec<ClientRange>,
    /// Index of the next client address over all ranges.
    client: u128,
    options: SocketOptions,
    aim: Option<Aimed>,
}

#[derive(Debug)]
struct Aimed {
    aim: HttpAim,
    zipf: Weighted,
    next: u64,
    began: u64,
}

impl Routes {
    /// The routes of lane `lane` of `lanes`; lanes begin with different addresses and targets.
    pub(super) fn new(pool: &Pool, lane: usize, lanes: usize) -> Self {
        let weights = Weighted::new(pool.targets.iter().map(|t| t.weight));
        let addresses: u128 = pool.clients.iter().map(ClientRange::count).fold(0, u128::saturating_add);
        let slow =
            pool.read_rate.map(|rate| u32::try_from(rate / 4).unwrap_or(u32::MAX).clamp(4096, 1 << 20));
        let aimed = |aim: &HttpAim| {
            let n = aim.rss.buckets.len();
            let power = if let AimLaw::Zipf(power) = aim.law { power } else { 0.0 };
            let zipf = Weighted::new((1..=n).map(|k| (k as f64).powf(-power)));
            Aimed { aim: aim.clone(), zipf, next: lane as u64, began: 0 }
        };
        let fast_open = if pool.fast_open { FastOpen::Cookie } else { FastOpen::Off };
        Self {
            even: weights.is_even(),
            weights,
            turn: lane,
            client: addresses / lanes as u128 * lane as u128,
            ranges: pool.clients.clone(),
            targets: pool.targets.iter().map(|t| t.addresses.clone()).collect(),
            options: SocketOptions {
                nodelay: true,
                recv_buffer: slow,
                fast_open,
                ..SocketOptions::default()
            },
            aim: pool.aim.as_ref().map(aimed),
        }
    }

    /// The next connection: index of the target, address and port. Fails if no client address and port reach a bucket of the target.
    pub(super) fn next(&mut self, now: u64, rng: &mut Rng) -> Result<(u16, Connect), Unopened> {
        let target = if self.even { self.turn % self.targets.len() } else { self.weights.pick(rng) };
        let addresses = &self.targets[target];
        let remote = addresses[self.turn / self.targets.len() % addresses.len()];
        self.turn = self.turn.wrapping_add(1);
        let local_ip = self.client_for(remote);
        let connect =
            Connect { local_ip, local_port: 0, remote: Endpoint::from(remote), options: self.options };
        let connect = match self.aim {
            Some(_) => self.aimed(connect, now, rng)?,
            None => connect,
        };
        Ok((target as u16, connect))
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

impl Aimed {
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
