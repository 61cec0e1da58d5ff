//! Connected sockets in another lane than the one that receives their answers.
//!
//! The flow hash sends the answers of a peer to one lane, their *home*. A connected socket in another lane is registered there: the home
//! lane hands its datagrams, and the ICMP errors about them, over to the lane of the socket, as any packet for another lane.
//!
//! ```text
//!   lane 2: connect ─▶ claim ─▶ exchange of lane 0 ─▶ lane 0: looked at before the next datagram
//!   lane 0: datagram ▸ own connected socket? ▸ a socket elsewhere? ─▶ poll_redirect ─▶ lane 2: socket
//! ```
//!
//! The exchange of a lane has a lock, taken when a connected socket is created and closed, and once by the home lane after that; a
//! datagram costs the load of a version number that is written only then. So a socket is registered before its first datagram is sent.
//! Pending registrations are bounded, since a socket closed before the home lane has seen it is removed: at most [`SOCKETS`] sockets are
//! elsewhere for each home.
//!
//! No two sockets of a host have the same ends: connected sockets of the home lane are registered as well, by a hash of their ends.

use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane_rss::Bucket;
use foldhash::fast::FixedState;

use super::BindError;
use super::key::Key;
use crate::address::Endpoint;

/// Sockets elsewhere for each home.
pub(super) const SOCKETS: usize = 4096;

/// Exchange of the connected UDP sockets between the lanes of a host: one for each host, shared by its lanes.
#[derive(Debug)]
pub struct UdpElsewhere {
    exchanges: Box<[Arc<Exchange>]>,
    hasher: RandomState,
}

/// What one lane is told. In cache lines of its own: that lane looks at the version with each datagram.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Exchange {
    /// Changes told so far; 0 as long as the lane knows that no socket is elsewhere.
    version: AtomicU64,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// Sockets elsewhere, and in which lane.
    away: HashMap<Key, Bucket>,
    /// Connected sockets of the lane itself, as hashes.
    own: HashSet<u64>,
    /// What the lane has not taken in: where a socket is now, `None` if nowhere.
    changes: HashMap<Key, Option<Bucket>>,
    /// Of `away`, what the lane knows.
    known: HashSet<Key>,
}

impl UdpElsewhere {
    /// An exchange for a host with `lanes` lanes.
    #[must_use]
    pub fn new(lanes: usize) -> Arc<Self> {
        let exchanges = (0..lanes).map(|_| Arc::default()).collect();
        Arc::new(Self { exchanges, hasher: RandomState::new() })
    }

    fn told(&self, home: Bucket) -> Option<(&Exchange, MutexGuard<'_, Told>)> {
        let exchange = self.exchanges.get(usize::from(home.0))?;
        Some((exchange, exchange.told.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether no socket has these ends, whose answers come to `home`.
    pub(super) fn is_free(&self, key: &Key, home: Bucket) -> bool {
        self.told(home).is_none_or(|(_, told)| !told.has(key, &self.hasher))
    }

    /// A socket in the lane of `here` has these ends from now on.
    pub(super) fn claim(&self, key: Key, home: Bucket, here: Bucket) -> Result<(), BindError> {
        let Some((exchange, mut told)) = self.told(home) else { return Ok(()) };
        // Guard: `told.has(&key, &self.hasher)` as `false` fails elsewhere::tests::no_two_sockets
        if told.has(&key, &self.hasher) {
            return Err(BindError::InUse);
        }
        if home == here {
            told.own.insert(self.hasher.hash_one(key));
            return Ok(());
        }
        // Guard: `told.away.len() >= SOCKETS` as `false` fails elsewhere::tests::what_is_told_is_bounded
        if told.away.len() >= SOCKETS {
            return Err(BindError::TooManyElsewhere(home));
        }
        told.away.insert(key, here);
        told.changes.insert(key, Some(here));
        exchange.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The socket is closed.
    pub(super) fn release(&self, key: Key, home: Bucket, here: Bucket) {
        let Some((exchange, mut told)) = self.told(home) else { return };
        if home == here {
            told.own.remove(&self.hasher.hash_one(key));
            return;
        }
        // Guard: `told.away.get(&key) != Some(&here)` as `false` fails elsewhere::tests::a_socket_elsewhere
        if told.away.get(&key) != Some(&here) {
            return;
        }
        told.away.remove(&key);
        // Guard: `told.known.contains(&key)` as `true` fails elsewhere::tests::what_is_told_is_bounded
        if told.known.contains(&key) {
            told.changes.insert(key, None);
        } else {
            told.changes.remove(&key);
        }
        exchange.version.fetch_add(1, Ordering::Release);
    }
}

impl Told {
    fn has(&self, key: &Key, hasher: &RandomState) -> bool {
        self.away.contains_key(key) || self.own.contains(&hasher.hash_one(key))
    }
}

/// What a lane knows of its siblings' sockets. The table is hashed with a secret seed.
#[derive(Debug)]
pub(super) struct Siblings {
    /// What this lane is told.
    mine: Arc<Exchange>,
    pub(super) elsewhere: Arc<UdpElsewhere>,
    pub(super) here: Bucket,
    /// Changes taken in.
    seen: u64,
    /// Whose answers come here, and in which lane they are.
    away: HashMap<Key, Bucket, FixedState>,
}

impl Siblings {
    pub(super) fn new(elsewhere: Arc<UdpElsewhere>, here: Bucket) -> Self {
        let away = HashMap::with_hasher(FixedState::with_seed(elsewhere.hasher.hash_one(here.0)));
        let mine = elsewhere.exchanges.get(usize::from(here.0)).cloned().unwrap_or_default();
        Self { mine, elsewhere, here, seen: 0, away }
    }

    /// Nothing was told since the last look.
    #[inline]
    fn is_current(&self) -> bool {
        self.mine.version.load(Ordering::Acquire) == self.seen
    }

    /// Certainly no datagram that comes in is for another lane's socket.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        // Guard: `self.mine.version.load(Ordering::Acquire) == 0` as `true` fails
        // elsewhere::tests::a_socket_elsewhere
        self.mine.version.load(Ordering::Acquire) == 0
    }

    /// A datagram of these ends may be for another lane's socket.
    pub(super) fn may_have(&self, local: Endpoint, remote: Endpoint) -> bool {
        !self.is_current() || self.away.contains_key(&ends(local.ip, local.port, remote))
    }

    /// The lane with the socket that has these ends, if that is another.
    pub(super) fn find(&mut self, local: Endpoint, remote: Endpoint) -> Option<Bucket> {
        if !self.is_current() {
            self.take_in();
        }
        self.away.get(&ends(local.ip, local.port, remote)).copied()
    }

    #[cold]
    fn take_in(&mut self) {
        let mut told = self.mine.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = &mut *told;
        for (key, at) in told.changes.drain() {
            match at {
                Some(bucket) => {
                    told.known.insert(key);
                    self.away.insert(key, bucket);
                }
                None => {
                    told.known.remove(&key);
                    self.away.remove(&key);
                }
            }
        }
        if told.away.is_empty() {
            self.mine.version.store(0, Ordering::Release);
        }
        self.seen = self.mine.version.load(Ordering::Acquire);
    }
}

/// The ends of a connected socket.
pub(super) fn ends(local: IpAddr, port: u16, remote: Endpoint) -> Key {
    Key { local_ip: Some(local), local_port: port, remote: Some(remote) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> Key {
        ends([10, 0, 0, 1].into(), port, Endpoint::new([10, 0, 0, 2].into(), 7))
    }

    fn find(lane: &mut Siblings, port: u16) -> Option<Bucket> {
        lane.find(Endpoint::new([10, 0, 0, 1].into(), port), Endpoint::new([10, 0, 0, 2].into(), 7))
    }

    #[test]
    fn a_socket_elsewhere_is_known_at_home_until_it_is_closed() {
        let host = UdpElsewhere::new(4);
        let mut home = Siblings::new(host.clone(), Bucket(1));
        let mut other = Siblings::new(host.clone(), Bucket(2));
        assert!(home.are_none());
        host.claim(key(5), Bucket(1), Bucket(3)).unwrap();
        assert!(!home.are_none() && other.are_none());
        assert_eq!(
            (find(&mut home, 5), find(&mut home, 6), find(&mut other, 5)),
            (Some(Bucket(3)), None, None)
        );
        // A lane that does not have it cannot give it back.
        host.release(key(5), Bucket(1), Bucket(2));
        assert_eq!(find(&mut home, 5), Some(Bucket(3)));
        host.release(key(5), Bucket(1), Bucket(3));
        // Another lane has the same ends now; home was told neither.
        host.claim(key(5), Bucket(1), Bucket(0)).unwrap();
        assert_eq!(find(&mut home, 5), Some(Bucket(0)));
        host.release(key(5), Bucket(1), Bucket(0));
        assert!(!home.are_none());
        assert_eq!(find(&mut home, 5), None);
        assert!(home.are_none(), "nothing is left of it");
    }

    #[test]
    fn no_two_sockets_have_the_same_ends() {
        let host = UdpElsewhere::new(2);
        let claim = |port, here| host.claim(key(port), Bucket(0), Bucket(here));
        claim(5, 0).unwrap();
        assert_eq!((claim(5, 1), claim(5, 0)), (Err(BindError::InUse), Err(BindError::InUse)));
        host.release(key(5), Bucket(0), Bucket(0));
        claim(5, 1).unwrap();
        assert_eq!(claim(5, 0), Err(BindError::InUse));
        assert!(!host.is_free(&key(5), Bucket(0)) && host.is_free(&key(6), Bucket(0)));
    }

    /// However many are made and closed while home is idle, and however many stand.
    #[test]
    fn what_is_told_is_bounded() {
        let host = UdpElsewhere::new(2);
        let mut home = Siblings::new(host.clone(), Bucket(0));
        for port in 0..SOCKETS as u16 {
            host.claim(key(port), Bucket(0), Bucket(1)).unwrap();
        }
        let more = host.claim(key(SOCKETS as u16), Bucket(0), Bucket(1));
        assert_eq!(more, Err(BindError::TooManyElsewhere(Bucket(0))));
        assert!(find(&mut home, 1).is_some());
        for round in 1..8 {
            for port in 0..SOCKETS as u16 {
                host.release(key(port + (round - 1) * 5000), Bucket(0), Bucket(1));
                host.claim(key(port + round * 5000), Bucket(0), Bucket(1)).unwrap();
            }
        }
        let changes = host.told(Bucket(0)).unwrap().1.changes.len();
        assert_eq!(changes, 2 * SOCKETS, "those that home knows, and those that stand");
        assert_eq!((find(&mut home, 1), find(&mut home, 35_000)), (None, Some(Bucket(1))));
        assert_eq!(home.away.len(), SOCKETS);
    }
}
