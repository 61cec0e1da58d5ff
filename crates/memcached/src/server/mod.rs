//! The server: in each lane a store of its own, a listener, and connections; requests for another lane's keys go there and come back.
//!
//! ```no_run
//! use flowlane::TcpListener;
//! use flowlane_memcached::server::{Options, Server};
//!
//! let server = Server::new(Options::default(), 2).unwrap();
//! // The main of every lane, of which there are two:
//! let main = move || {
//!     let server = server.clone();
//!     async move {
//!         let lane = server.begin()?;
//!         let listener = TcpListener::bind(None, 11211, Server::listen_options())?;
//!         lane.serve(listener, |_| {}).await
//!     }
//! };
//! # let _ = main;
//! ```
//!
//! ```text
//!   accept ▸ connection ▸ talk ─ our key ──────▶ answer ▸ store
//!                           └─ another's key ▶ round ▸ parcel ▸ shard ═▶ the other lane's shard ▸ answer ▸ store ═▶ back
//! ```
//!
//! Which lane has a key is said by the key's hash, which is secret: nobody can fill one lane alone. A connection stays in the lane that accepted it, or
//! goes to the lane of its keys ([`Placement`]).

mod accept;
mod ahead;
mod connection;
mod datagrams;
mod majority;
mod options;
mod parcel;
mod round;
mod shard;
mod talk;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flowlane::own::Own;
use flowlane::service::{InLane, Service};
use flowlane::{ListenOptions, Mailboxes, SocketError, SocketOptions, Time};
use flowlane_sys::process;

use crate::answer::stats::About;
use crate::map::LaneMap;
use crate::store::{KeyHash, Limits, Store};
use shard::{Mail, Shard};

pub use accept::Session;
pub use options::{LEAST_MEMORY, Options, OptionsError, Placement};

/// The second of a store's clock at which a runtime's clock began: times before it are past.
const FIRST: u64 = 62;
/// How often expired items are looked for, and how many chunks are looked at then.
const SWEEP: (Duration, usize) = (Duration::from_millis(250), 8192);
/// The same where there are no items.
const NOTHING: Duration = Duration::from_secs(1);

/// One server with all its lanes. Clones are the same server.
#[derive(Debug, Clone)]
pub struct Server {
    inner: Arc<Inner>,
    service: Service,
}

#[derive(Debug)]
struct Inner {
    options: Options,
    lanes: usize,
    hash: KeyHash,
    mail: Mailboxes<Mail>,
    /// Connections that are open, of all lanes: looked at when one comes or goes.
    open: AtomicU64,
    /// By lane, what a connection needs that moves there.
    places: Vec<OnceLock<(Own<Shard>, InLane)>>,
}

/// The part of server and lane that a connection needs.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    server: Arc<Inner>,
    own: Own<Shard>,
    at: InLane,
}

impl Lane {
    /// Another lane of the server, if it has begun.
    fn beside(&self, lane: usize) -> Option<Self> {
        let (own, at) = self.server.places.get(lane)?.get()?.clone();
        Some(Self { server: self.server.clone(), own, at })
    }

    /// The second it is, on the store's clock.
    fn second(&self) -> u32 {
        second(flowlane::now().unwrap_or(Time::ZERO))
    }

    fn about(&self) -> About {
        let options = &self.server.options;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        About {
            pid: std::process::id(),
            uptime: u64::from(self.second()) - FIRST,
            time: unix as i64,
            usage: process::own_times(),
            max_connections: options.connections,
            threads: options.workers as u64,
            memory: options.memory as u64,
            item_max: options.item_max as u64,
            port: options.port,
            address: options.address.clone(),
            udp_port: options.udp_port,
            path: options.path.clone(),
            tls: options.tls,
            lanes: LaneMap {
                lanes: self.server.lanes,
                here: self.at.index(),
                hash: self.server.hash,
                steering: options.steering.as_deref().cloned(),
            },
            idle: options.idle.map_or(0, |idle| idle.as_secs()),
            placement: options.placement.name(),
        }
    }
}

fn second(now: Time) -> u32 {
    u32::try_from(FIRST + now.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX)
}

/// A server in one lane.
#[derive(Debug)]
pub struct ServerLane {
    lane: Lane,
}

impl Server {
    /// A server with this many lanes: buckets of the host that it will run on.
    ///
    /// # Errors
    /// See [`OptionsError`].
    pub fn new(options: Options, lanes: usize) -> Result<Self, OptionsError> {
        options.check(lanes)?;
        let mail = Mailboxes::new(lanes, 2 * lanes);
        let places = std::iter::repeat_with(OnceLock::new).take(lanes).collect();
        let inner = Inner { options, lanes, hash: KeyHash::default(), mail, open: AtomicU64::new(0), places };
        Ok(Self { inner: Arc::new(inner), service: Service::new(lanes) })
    }

    /// Options for the server's listeners: without Nagle's algorithm, since answers are written whole.
    #[must_use]
    pub fn listen_options() -> ListenOptions {
        let socket = SocketOptions { nodelay: true, ..SocketOptions::default() };
        ListenOptions { socket, ..ListenOptions::default() }
    }

    /// Begins in the calling lane: its store is there, and answers other lanes. Call it once in every lane, also in one that has no listener.
    ///
    /// # Errors
    /// [`SocketError::WrongLane`] outside a lane.
    pub fn begin(&self) -> Result<ServerLane, SocketError> {
        let at = self.service.here()?;
        let inner = &self.inner;
        let now = flowlane::now().map_err(|_| SocketError::WrongLane)?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let limits = Limits { memory: inner.options.memory / inner.lanes, item: inner.options.item_max };
        let mut store = Store::new(limits, unix as i64 - i64::from(second(now)));
        store.tick(second(now));
        let share = inner.options.buffers / inner.lanes;
        let numbers = (at.index(), inner.lanes);
        let own = Own::new(Shard::new(store, inner.hash, numbers, share, inner.mail.clone()))?;
        // It begins once: the mailbox below is given out once.
        let _ = inner.places[at.index()].set((own.clone(), at.clone()));
        let lane = Lane { server: inner.clone(), own, at };
        let (mut mail, answering) = (inner.mail.here().map_err(|_| SocketError::WrongLane)?, lane.clone());
        let answer = async move {
            loop {
                let first = mail.recv().await;
                let second = answering.second();
                let done = answering.own.with(|shard| {
                    shard.store.tick(second);
                    shard.receive(first);
                    // No more than there can be: another lane may send again meanwhile.
                    for _ in 0..2 * shard.lanes() {
                        let Some(next) = mail.try_recv() else { break };
                        shard.receive(next);
                    }
                });
                if done.is_err() {
                    return;
                }
                flowlane::yield_now().await;
            }
        };
        let sweeping = lane.clone();
        let sweep = async move {
            let mut pause = SWEEP.0;
            loop {
                flowlane::sleep(pause).await;
                let second = sweeping.second();
                let swept = sweeping.own.with(|shard| {
                    shard.store.tick(second);
                    shard.store.sweep(SWEEP.1);
                    shard.store.counts().curr_items
                });
                match swept {
                    Ok(items) => pause = if items > 0 { SWEEP.0 } else { NOTHING },
                    Err(_) => return,
                }
            }
        };
        flowlane::spawn(answer).map_err(|_| SocketError::WrongLane)?;
        flowlane::spawn(sweep).map_err(|_| SocketError::WrongLane)?;
        Ok(ServerLane { lane })
    }

    /// Stops in order: listeners close, requests that have come are answered, and connections end when they are idle. Those that have not after
    /// `grace` are reset. Returns the number of those, listeners included.
    ///
    /// Call it from outside the lanes, which must keep running meanwhile.
    pub fn stop_within(&self, grace: Duration) -> usize {
        self.service.stop_within(grace)
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.inner.open.load(Relaxed)
    }
}
