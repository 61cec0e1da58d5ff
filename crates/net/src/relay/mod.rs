//! A relay: each connection that a client makes is joined to one of several targets, and each flow of UDP has a socket to one.
//!
//! ```text
//!   accept ─▶ PROXY header in? ─▶ choose a target ─▶ connect (another target, if that fails) ─▶ PROXY header out? ─▶ both directions
//! ```
//!
//! * `joined` is one connection with its target: ends, resets, idleness. `way` is one direction: pipes, copies, what it holds.
//! * `datagrams` is the relay of UDP.
//! * `target`: which target. `health`: which are up. `proxy`: who the client is.
//!
//! A lane relays the connections that it accepts, and shares nothing with other lanes but one word for each target, which says whether it
//! is up. Between kernel sockets bytes pass through pipes; where one of our own stack's connections is involved they are copied once,
//! and counted ([`TargetStats`]). The end is that of every service ([`service`](crate::service)).

mod datagrams;
mod health;
mod joined;
mod proxy;
mod target;
mod way;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flowlane_stack::Connect;
use flowlane_stack::tcp::{ConnectError, Failure, ListenOptions, SocketOptions};

use crate::error::SocketError;
use crate::service::Service;
use crate::stats::{RelayCounts, RelayStats, TargetStats};
use crate::task::{spawn, timeout};
use crate::tcp::{TcpListener, TcpStream};
use crate::{context, events};

use joined::{End, Joined};
use proxy::Ends;
pub use proxy::Proxy;
use target::Target;
pub use target::{Balance, MOST_TARGETS};
use way::Nagle;

/// Targets that are tried for one connection.
const TRIES: usize = 3;
/// Bytes of a client that are held until a target is reached.
const EARLY: usize = 2048;

/// Told that a target went down (`false`), or is up again.
pub type Tell = Arc<dyn Fn(SocketAddr, bool) + Send + Sync>;

/// What a relay does.
#[derive(Clone)]
pub struct RelayConfig {
    /// Where connections go, at least one and at most [`MOST_TARGETS`]; further ones are left out.
    pub targets: Vec<SocketAddr>,
    /// Targets are reached by sockets of the kernel, also in a host on links of ours ([`Host::beside_kernel`](crate::Host::beside_kernel)).
    pub by_kernel: bool,
    /// How one of them is chosen.
    pub balance: Balance,
    /// How long connecting to a target may take, and a client's PROXY header.
    pub connect_timeout: Duration,
    /// How long nothing may pass on a connection before it is reset; `None` for ever.
    pub idle: Option<Duration>,
    /// Time between two checks of each target; `None` for none.
    pub health: Option<Duration>,
    /// Clients send a PROXY header of either version, and those that do not are reset.
    pub proxy_in: bool,
    /// The header sent to targets.
    pub proxy_out: Option<Proxy>,
    /// Most open connections in each lane; further ones are reset.
    pub most: u64,
    /// Whom to tell of targets that go down or come up.
    pub tell: Option<Tell>,
}

impl RelayConfig {
    /// To one target, with the usual limits.
    #[must_use]
    pub fn to(target: SocketAddr) -> Self {
        Self {
            targets: vec![target],
            by_kernel: false,
            balance: Balance::default(),
            connect_timeout: Duration::from_secs(5),
            idle: Some(Duration::from_secs(600)),
            health: None,
            proxy_in: false,
            proxy_out: None,
            most: 1 << 20,
            tell: None,
        }
    }
}

impl fmt::Debug for RelayConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayConfig").field("targets", &self.targets).finish_non_exhaustive()
    }
}

/// A relay in all lanes of a host. Clones are the same relay.
#[derive(Debug, Clone)]
pub struct Relay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: RelayConfig,
    targets: Vec<Target>,
    service: Service,
}

impl Relay {
    /// A relay for a host with `lanes` lanes (the buckets of its steering).
    #[must_use]
    pub fn new(config: RelayConfig, lanes: usize) -> Self {
        let targets = config.targets.iter().take(MOST_TARGETS).map(|address| Target::new(*address)).collect();
        Self(Arc::new(Inner { config, targets, service: Service::new(lanes) }))
    }

    /// Options for its listeners: what comes in small pieces goes on in small pieces.
    #[must_use]
    pub fn listen_options() -> ListenOptions {
        ListenOptions { socket: options(), ..ListenOptions::default() }
    }

    /// Relays the connections of a listener until the service is stopped. Call it in every lane that listens, each with its own listener.
    ///
    /// # Errors
    /// The listener cannot accept, or the call is outside a lane.
    pub async fn serve(&self, listener: TcpListener) -> Result<(), SocketError> {
        self.serve_each(listener, |_| {}).await
    }

    /// As [`Relay::serve`]; `each` is shown every connection.
    ///
    /// # Errors
    /// As [`Relay::serve`].
    pub async fn serve_each(
        &self,
        listener: TcpListener,
        mut each: impl FnMut(&TcpStream) + Send,
    ) -> Result<(), SocketError> {
        let base = self.begin()?;
        let relay = self.clone();
        let service = self.0.service.clone();
        let served = service.serve(listener, move |client, _| {
            each(&client);
            relay.clone().one(client, base)
        });
        served.await
    }

    /// Checks the health of targets from the calling lane, if that is wanted. Call it in one lane of the host, beside [`Relay::serve`]
    /// or without.
    ///
    /// # Errors
    /// The call is outside a lane.
    pub fn check(&self) -> Result<(), SocketError> {
        let base = self.begin()?;
        for at in 0..self.0.targets.len() {
            self.count(base + at, |t| t.up = 1);
            if let Some(every) = self.0.config.health {
                spawn(health::check(self.clone(), at, base, every)).map_err(|_| SocketError::WrongLane)?;
            }
        }
        Ok(())
    }

    /// Stops in order, as [`Service::stop_within`]: what is open may end for so long, and is reset then.
    pub fn stop_within(&self, grace: Duration) -> usize {
        self.0.service.stop_within(grace)
    }

    /// Gives the lane its counters, after those of another relay there; the place of the first target's.
    fn begin(&self) -> Result<usize, SocketError> {
        let names = || self.0.targets.iter().map(|t| (t.address.to_string(), TargetStats::default()));
        Ok(context::with_current(|slot, _| {
            let counts = slot.relay.get_or_insert_default();
            let ours = |at: usize| {
                let here = counts.targets.get(at..at + self.0.targets.len());
                here.is_some_and(|here| {
                    here.iter().zip(&self.0.targets).all(|(c, t)| c.0 == t.address.to_string())
                })
            };
            if let Some(at) = (0..counts.targets.len()).find(|at| ours(*at)) {
                return at;
            }
            let base = counts.targets.len();
            counts.targets.extend(names());
            base
        })?)
    }

    /// Changes the counters of a target.
    fn count(&self, at: usize, change: impl FnOnce(&mut TargetStats)) {
        counts(|counts| {
            if let Some((_, stats)) = counts.targets.get_mut(at) {
                change(stats);
            }
        });
    }

    /// Relays one connection.
    async fn one(self, client: TcpStream, base: usize) {
        let client = Unserved(Some(client));
        if let Some(open) = Open::of_lane(self.0.config.most) {
            self.serve_one(client, base).await;
            open.ended();
        }
    }

    async fn serve_one(&self, client: Unserved, base: usize) {
        let (told, first) = match self.0.config.proxy_in {
            false => (None, early(client.stream())),
            true => match self.header(client.stream()).await {
                Some(read) => read,
                None => return,
            },
        };
        let writes = !first.is_empty() || self.0.config.proxy_out.is_some();
        let Some((at, target)) = self.reach(client.stream(), base, writes).await else { return };
        if let Some(version) = self.0.config.proxy_out {
            let here = || Ends { from: client.stream().peer_addr(), to: client.stream().local_addr() };
            let header = proxy::header(version, &told.unwrap_or_else(here));
            if target.write_all(&header).await.is_err() {
                self.count(base + at, |t| t.target_resets += 1);
                return;
            }
        }
        let open = Open::of_target(base + at);
        let Some(client) = client.take() else { return };
        let relay = self.clone();
        // The options of our own stack are there from the start.
        let nagle = match (target.is_of_kernel(), self.0.config.proxy_out) {
            (false, _) => Nagle::Off,
            (true, None) => Nagle::First,
            (true, Some(_)) => Nagle::Next,
        };
        let end = Joined::new(client, target, first, nagle)
            .relay(self.0.config.idle, move |up, down| {
                counts(|counts| counts.relay.no_pipe += up.no_pipe + down.no_pipe);
                relay.count(base + at, |t| {
                    t.to_target_bytes += up.bytes();
                    t.to_client_bytes += down.bytes();
                    t.spliced_bytes += up.spliced + down.spliced;
                    t.copied_bytes += up.copied + down.copied;
                });
            })
            .await;
        drop(open);
        self.count(base + at, |t| match end {
            End::InOrder => {}
            End::ClientReset => t.client_resets += 1,
            End::TargetReset => t.target_resets += 1,
            End::Lost => t.lost += 1,
            End::Idle => t.idle_ended += 1,
        });
    }

    /// A connection to a target, and which one it is; `None` if there is none to be had, which is counted.
    /// `writes`: something is written at once.
    async fn reach(&self, client: &TcpStream, base: usize, writes: bool) -> Option<(usize, TcpStream)> {
        let (targets, config) = (&self.0.targets, &self.0.config);
        let by_kernel =
            config.by_kernel || context::with_current(|slot, _| slot.own_kernel().is_some()).unwrap_or(true);
        let hash = match config.balance {
            Balance::Hash if targets.len() > 1 => client.flow().map_or(0, |(hash, ..)| hash),
            _ => 0,
        };
        let mut tried = 0;
        for _ in 0..TRIES {
            let Some(at) = self.next_target(base, hash, tried, 0) else { break };
            tried |= 1 << at;
            let mut connect = Connect::to(targets[at].address.into());
            if !by_kernel {
                connect.options = options();
            }
            let error = match self.connect(connect, writes, config.connect_timeout).await {
                Ok(target) => return Some((at, target)),
                Err(error) => error,
            };
            self.count(base + at, |t| match error {
                SocketError::Connection(Failure::Refused | Failure::Reset) => t.refused += 1,
                SocketError::Connection(Failure::TimedOut) => t.timed_out += 1,
                SocketError::Connection(Failure::Unreachable)
                | SocketError::Connect(ConnectError::NoRoute) => {
                    t.unreachable += 1;
                }
                SocketError::NoDescriptor => t.no_descriptor += 1,
                _ => t.connect_failed += 1,
            });
            if error == SocketError::NoDescriptor {
                // Another target needs one, too.
                break;
            }
        }
        count_none(tried);
        None
    }

    /// Connects to a target on the stack that is meant for it.
    async fn connect(
        &self,
        connect: Connect,
        writes: bool,
        limit: Duration,
    ) -> Result<TcpStream, SocketError> {
        TcpStream::connect_for_relay(connect, self.0.config.by_kernel, writes, limit).await
    }

    /// Reads a client's PROXY header: the ends it tells, and what came after it. `None`: there was none, which is counted.
    async fn header(&self, client: &TcpStream) -> Option<(Option<Ends>, Vec<u8>)> {
        let mut bytes = Vec::new();
        let read = timeout(self.0.config.connect_timeout, async {
            loop {
                match proxy::parse(&bytes) {
                    Ok(Some(header)) => return Ok(header),
                    Ok(None) => {}
                    Err(proxy::Malformed) => return Err(Bad::Malformed),
                }
                client.readable().await.map_err(|_| Bad::Cut)?;
                if !more(client, &mut bytes)? {
                    return Err(Bad::Cut);
                }
            }
        })
        .await;
        match read.unwrap_or(Err(Bad::TooLate)) {
            Ok(header) => Some((header.ends, bytes.split_off(header.len))),
            Err(bad) => {
                counts(|counts| match bad {
                    Bad::Malformed => counts.relay.proxy_malformed += 1,
                    Bad::TooLate => counts.relay.proxy_too_late += 1,
                    Bad::Cut => counts.relay.proxy_cut += 1,
                });
                None
            }
        }
    }
}

/// What a client has sent by the time it is accepted, on kernel sockets: a few bytes, so that those who wait for a target hold little. Then
/// they go to the target with the handshake's last segment.
fn early(client: &TcpStream) -> Vec<u8> {
    if !client.is_of_kernel() {
        return Vec::new();
    }
    let mut room = [0; EARLY];
    match client.try_read_early(&mut room) {
        Ok(Some(n)) => room[..n].to_vec(),
        // What is wrong shows once the connection is relayed.
        _ => Vec::new(),
    }
}

/// Why there is no PROXY header.
enum Bad {
    Malformed,
    TooLate,
    Cut,
}

/// Reads more of a header; `false` at the end of the stream.
fn more(client: &TcpStream, bytes: &mut Vec<u8>) -> Result<bool, Bad> {
    // A header that needs more than this is refused before there is so much.
    let mut room = [0; proxy::LONGEST];
    let free = room.len().saturating_sub(bytes.len()).max(1);
    match client.try_read(&mut room[..free]) {
        Ok(Some(0)) | Err(_) => Ok(false),
        Ok(Some(n)) => {
            bytes.extend_from_slice(&room[..n]);
            Ok(true)
        }
        Ok(None) => Ok(true),
    }
}

fn options() -> SocketOptions {
    SocketOptions { nodelay: true, ..SocketOptions::default() }
}

/// Changes the counters of the lane that is here.
fn counts(change: impl FnOnce(&mut RelayCounts)) {
    let _ = context::with_current(|slot, _| {
        if let Some(counts) = &mut slot.relay {
            change(counts);
        }
    });
}

/// Counts that there was no target to be had, of those `tried`.
fn count_none(tried: u64) {
    counts(|counts| {
        *(if tried == 0 { &mut counts.relay.no_target } else { &mut counts.relay.unreached }) += 1;
    });
}

/// A client that is reset if nobody serves it.
struct Unserved(Option<TcpStream>);

impl Unserved {
    fn stream(&self) -> &TcpStream {
        let Some(stream) = &self.0 else { unreachable!("taken at the end only") };
        stream
    }

    fn take(mut self) -> Option<TcpStream> {
        self.0.take()
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        if let Some(stream) = &self.0 {
            let _ = stream.abort();
        }
    }
}

/// A connection that counts as open, of the lane or of one of its targets.
struct Open {
    target: Option<usize>,
    /// Of the lane: whether it ended of itself, and not with the service.
    ended: bool,
}

impl Open {
    /// One more in this lane; `None` if it has as many as it may.
    fn of_lane(most: u64) -> Option<Self> {
        let mut fits = false;
        counts(|counts| {
            let RelayStats { accepted, open, too_many, .. } = &mut counts.relay;
            *accepted += 1;
            // Guard: `*open < most` as `true` fails runtime/relay::streams::silence_and_numbers
            fits = *open < most;
            *(if fits { open } else { too_many }) += 1;
        });
        // One that does not fit must not be made: its end would count.
        fits.then(|| Self { target: None, ended: false })
    }

    fn of_target(at: usize) -> Self {
        counts(|counts| {
            if let Some((_, t)) = counts.targets.get_mut(at) {
                t.connections += 1;
                t.open += 1;
            }
        });
        Self { target: Some(at), ended: false }
    }

    fn ended(mut self) {
        self.ended = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        counts(|counts| match self.target {
            None => {
                counts.relay.open = counts.relay.open.saturating_sub(1);
                counts.relay.stopped += u64::from(!self.ended);
            }
            Some(at) => {
                if let Some((_, t)) = counts.targets.get_mut(at) {
                    t.open = t.open.saturating_sub(1);
                }
            }
        });
    }
}
