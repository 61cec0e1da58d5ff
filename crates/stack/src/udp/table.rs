//! Which socket takes a datagram.
//!
//! One hash table, keyed with the lane's secret seed, holds every socket under what it is bound to. A datagram is
//! looked up from the most to the least specific binding; bindings of a kind that nobody uses are not looked up.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::socket::Socket;
use crate::address::{Endpoint, number};

/// What a socket is bound to. Port 0 is "any port".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) local_ip: Option<IpAddr>,
    pub(super) local_port: u16,
    pub(super) remote: Option<Endpoint>,
}

/// Kinds of binding, most specific first.
#[derive(Clone, Copy)]
enum Kind {
    Connected,
    /// Connected without a local address of its own.
    ConnectedWildcard,
    Bound,
    Wildcard,
    AnyPort,
}

const KINDS: usize = 5;

impl Key {
    fn kind(&self) -> Kind {
        match (self.remote, self.local_ip, self.local_port) {
            (Some(_), Some(_), _) => Kind::Connected,
            (Some(_), None, _) => Kind::ConnectedWildcard,
            (None, _, 0) => Kind::AnyPort,
            (None, Some(_), _) => Kind::Bound,
            (None, None, _) => Kind::Wildcard,
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    slots: HashTable<u32>,
    hasher: FixedState,
    counts: [usize; KINDS],
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        Self { slots: HashTable::new(), hasher: FixedState::with_seed(seed), counts: [0; KINDS] }
    }

    #[inline]
    fn hash(hasher: &FixedState, key: &Key) -> u64 {
        let mut h = hasher.build_hasher();
        let mut ports = u64::from(key.local_port) << 16;
        if let Some(remote) = key.remote {
            ports |= u64::from(remote.port) | 1 << 32;
            write_address(&mut h, remote.ip);
        }
        if let Some(ip) = key.local_ip {
            write_address(&mut h, ip);
        }
        h.write_u64(ports);
        h.finish()
    }

    #[inline]
    fn find(&self, key: &Key, sockets: &[Socket]) -> Option<u32> {
        self.slots.find(Self::hash(&self.hasher, key), |&i| sockets[i as usize].key == *key).copied()
    }

    pub(super) fn contains(&self, key: &Key, sockets: &[Socket]) -> bool {
        self.find(key, sockets).is_some()
    }

    pub(super) fn insert(&mut self, slot: u32, sockets: &[Socket]) {
        let key = &sockets[slot as usize].key;
        self.counts[key.kind() as usize] += 1;
        let hasher = &self.hasher;
        self.slots
            .insert_unique(Self::hash(hasher, key), slot, |&i| Self::hash(hasher, &sockets[i as usize].key));
    }

    pub(super) fn remove(&mut self, slot: u32, sockets: &[Socket]) {
        let key = &sockets[slot as usize].key;
        if let Ok(entry) = self.slots.find_entry(Self::hash(&self.hasher, key), |&i| i == slot) {
            entry.remove();
            self.counts[key.kind() as usize] -= 1;
        }
    }

    /// The socket for a datagram from `remote` to `local`.
    #[inline]
    pub(super) fn lookup(&self, local: Endpoint, remote: Endpoint, sockets: &[Socket]) -> Option<u32> {
        let candidates = [
            (Kind::Connected, Some(local.ip), local.port, Some(remote)),
            (Kind::ConnectedWildcard, None, local.port, Some(remote)),
            (Kind::Bound, Some(local.ip), local.port, None),
            (Kind::Wildcard, None, local.port, None),
            (Kind::AnyPort, Some(local.ip), 0, None),
            (Kind::AnyPort, None, 0, None),
        ];
        candidates.into_iter().filter(|(kind, ..)| self.counts[*kind as usize] > 0).find_map(
            |(_, local_ip, local_port, remote)| self.find(&Key { local_ip, local_port, remote }, sockets),
        )
    }
}

#[inline]
fn write_address(h: &mut impl Hasher, ip: IpAddr) {
    let n = number(ip);
    h.write_u64(n as u64);
    if ip.is_ipv6() {
        h.write_u64((n >> 64) as u64);
    }
}
