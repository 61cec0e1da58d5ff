//! Lookup of the socket of a datagram.
//!
//! One hash table, keyed with the lane's secret seed, has every socket by its binding. A datagram is looked up from the most to the least
//! specific binding; kinds of bindings that no socket has are skipped.

use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, Ipv4Addr};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::key::{KINDS, Key, Kind};
use super::socket::Socket;
use crate::address::{Endpoint, number};

#[derive(Debug)]
pub(super) struct Table {
    slots: HashTable<u32>,
    hasher: FixedState,
    counts: [usize; KINDS],
    quick: Quick,
}

/// Connected IPv4 sockets under numbers, and wildcard sockets by port: what the fast path looks up. Both also stand in
/// the table of all.
#[derive(Debug)]
struct Quick {
    connected: HashTable<(u64, u32, u32)>,
    /// Pages of 256 ports, each port's slot plus one.
    ports: [Option<Box<[u32; 256]>>; 256],
    seeds: [u64; 2],
}

impl Quick {
    #[inline]
    fn hash(seeds: [u64; 2], addresses: u64, ports: u32) -> u64 {
        // A folded multiplication with secret operands, as foldhash mixes.
        let product = u128::from(addresses ^ seeds[0]) * u128::from(u64::from(ports) ^ seeds[1]);
        (product as u64) ^ (product >> 64) as u64
    }

    /// A connected socket's key as numbers.
    fn connected_key(key: &Key) -> Option<(u64, u32)> {
        match (key.local_ip, key.remote) {
            (Some(IpAddr::V4(local)), Some(Endpoint { ip: IpAddr::V4(remote), port, .. })) => Some((
                u64::from(u32::from(local)) << 32 | u64::from(u32::from(remote)),
                u32::from(key.local_port) << 16 | u32::from(port),
            )),
            _ => None,
        }
    }

    fn find(&self, addresses: u64, ports: u32) -> Option<u32> {
        let hash = Self::hash(self.seeds, addresses, ports);
        self.connected.find(hash, |e| e.0 == addresses && e.1 == ports).map(|e| e.2)
    }

    fn insert(&mut self, key: &Key, slot: u32) {
        if let Some((addresses, ports)) = Self::connected_key(key) {
            let seeds = self.seeds;
            let hash = Self::hash(seeds, addresses, ports);
            let entry = (addresses, ports, slot);
            self.connected.insert_unique(hash, entry, |e| Self::hash(seeds, e.0, e.1));
        } else if matches!(key.kind(), Kind::Wildcard) {
            let page = &mut self.ports[usize::from(key.local_port >> 8)];
            page.get_or_insert_with(|| Box::new([0; 256]))[usize::from(key.local_port & 0xff)] = slot + 1;
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some((addresses, ports)) = Self::connected_key(key) {
            let hash = Self::hash(self.seeds, addresses, ports);
            if let Ok(found) = self.connected.find_entry(hash, |e| e.0 == addresses && e.1 == ports) {
                found.remove();
            }
        } else if matches!(key.kind(), Kind::Wildcard) {
            if let Some(page) = &mut self.ports[usize::from(key.local_port >> 8)] {
                page[usize::from(key.local_port & 0xff)] = 0;
            }
        }
    }
}

impl Table {
    pub(super) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let quick = Quick {
            connected: HashTable::new(),
            ports: [const { None }; 256],
            seeds: [hasher.hash_one(1u64), hasher.hash_one(2u64)],
        };
        Self { slots: HashTable::new(), hasher, counts: [0; KINDS], quick }
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
        self.quick.insert(key, slot);
        let hasher = &self.hasher;
        self.slots
            .insert_unique(Self::hash(hasher, key), slot, |&i| Self::hash(hasher, &sockets[i as usize].key));
    }

    pub(super) fn remove(&mut self, slot: u32, sockets: &[Socket]) {
        let key = &sockets[slot as usize].key;
        if let Ok(entry) = self.slots.find_entry(Self::hash(&self.hasher, key), |&i| i == slot) {
            entry.remove();
            self.counts[key.kind() as usize] -= 1;
            self.quick.remove(key);
        }
    }

    /// The socket for a datagram over IPv4: `None` also when only the table of all can tell.
    #[inline(always)]
    pub(super) fn lookup_v4(&self, local: Ipv4Addr, lport: u16, remote: Ipv4Addr, rport: u16) -> Option<u32> {
        if !self.quick.connected.is_empty() {
            let addresses = u64::from(u32::from(local)) << 32 | u64::from(u32::from(remote));
            let ports = u32::from(lport) << 16 | u32::from(rport);
            if let Some(found) = self.quick.find(addresses, ports) {
                return Some(found);
            }
        }
        if self.counts[Kind::ConnectedWildcard as usize] + self.counts[Kind::Bound as usize] > 0 {
            return None;
        }
        let page = self.quick.ports[usize::from(lport >> 8)].as_ref()?;
        page[usize::from(lport & 0xff)].checked_sub(1)
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
