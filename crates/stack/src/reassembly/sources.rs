//! Sources of fragments: fair shares, and proven networks.
//!
//! Senders are counted by network, /24 or /64, since any sender can obtain several addresses of a smaller one. A network may use only its
//! share of the room; beyond that it evicts its own oldest datagram.
//!
//! A flood from invented addresses has a different network in each fragment, so shares alone do not stop it. But such a sender does not
//! complete datagrams. A network that has completed one lately is *proven*: its datagrams are separate from those of unproven networks,
//! which evict one another (see the parent module). A proof lasts for [`PROVEN`].
//!
//! A record exists while a network has datagrams pending, and afterwards while it is proven: then it is idle, and the
//! longest idle is forgotten when there are more than [`IDLE`].

use core::hash::{BuildHasher, Hasher};
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::list::{Link, List};
use crate::time::Time;

/// How long a finished datagram speaks for its network.
pub(super) const PROVEN: Duration = Duration::from_secs(300);
/// Proven networks remembered without datagrams pending.
pub(super) const IDLE: usize = 4096;

/// What one network has.
#[derive(Debug)]
pub(super) struct Source {
    prefix: u64,
    /// Its datagrams, oldest first.
    pub(super) datagrams: List,
    /// How many.
    pub(super) pending: u32,
    /// Fragments held.
    pub(super) fragments: u32,
    /// Bytes of buffers held.
    pub(super) bytes: usize,
    proven_until: Time,
    idle: Link,
}

/// The networks of a lane's pending datagrams.
#[derive(Debug)]
pub(super) struct Sources {
    slab: Vec<Source>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
    idle: List,
    idling: usize,
}

impl Sources {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            slab: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            idle: List::EMPTY,
            idling: 0,
        }
    }

    #[inline]
    pub(super) fn get(&mut self, at: u32) -> &mut Source {
        &mut self.slab[at as usize]
    }

    /// Whether the network finished a datagram lately.
    #[inline]
    pub(super) fn is_proven(&self, now: Time, prefix: u64) -> bool {
        let found = self.table.find(hash(&self.hasher, prefix), |&i| self.slab[i as usize].prefix == prefix);
        found.is_some_and(|&i| now < self.slab[i as usize].proven_until)
    }

    /// Counts a new datagram of the network and says where the record is, and whether it is proven.
    #[inline]
    pub(super) fn open(&mut self, now: Time, prefix: u64) -> (u32, bool) {
        let hash = hash(&self.hasher, prefix);
        let found = self.table.find(hash, |&i| self.slab[i as usize].prefix == prefix).copied();
        let at = found.unwrap_or_else(|| self.insert(hash, prefix));
        let source = &mut self.slab[at as usize];
        source.pending += 1;
        let proven = now < source.proven_until;
        if source.pending == 1 && found.is_some() {
            self.idle.remove(&mut self.slab, at, |s| &mut s.idle);
            self.idling -= 1;
        }
        (at, proven)
    }

    #[cold]
    fn insert(&mut self, hash_of_prefix: u64, prefix: u64) -> u32 {
        let source = Source {
            prefix,
            datagrams: List::EMPTY,
            pending: 0,
            fragments: 0,
            bytes: 0,
            proven_until: Time::ZERO,
            idle: Link::ALONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slab[at as usize] = source;
                at
            }
            None => {
                self.slab.push(source);
                self.slab.len() as u32 - 1
            }
        };
        let (slab, hasher) = (&self.slab, &self.hasher);
        self.table.insert_unique(hash_of_prefix, at, |&i| hash(hasher, slab[i as usize].prefix));
        at
    }

    /// Counts a datagram less; `finished` if it was delivered, now.
    #[inline]
    pub(super) fn close(&mut self, at: u32, finished: Option<Time>) {
        let source = &mut self.slab[at as usize];
        source.pending -= 1;
        if let Some(now) = finished {
            source.proven_until = now + PROVEN;
        }
        if source.pending > 0 {
            return;
        }
        if source.proven_until == Time::ZERO {
            self.forget(at);
            return;
        }
        self.idle.push(&mut self.slab, at, |s| &mut s.idle);
        self.idling += 1;
        if self.idling > IDLE {
            if let Some(oldest) = self.idle.first() {
                self.idle.remove(&mut self.slab, oldest, |s| &mut s.idle);
                self.idling -= 1;
                self.forget(oldest);
            }
        }
    }

    fn forget(&mut self, at: u32) {
        let hash = hash(&self.hasher, self.slab[at as usize].prefix);
        if let Ok(found) = self.table.find_entry(hash, |&i| i == at) {
            found.remove();
        }
        self.free.push(at);
    }

    /// Networks on record.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of the records.
    pub(super) fn footprint(&self) -> usize {
        self.slab.capacity() * size_of::<Source>() + self.free.capacity() * 4 + self.table.allocation_size()
    }
}

#[inline]
fn hash(hasher: &FixedState, prefix: u64) -> u64 {
    let mut h = hasher.build_hasher();
    h.write_u64(prefix);
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_earned_and_runs_out() {
        let mut s = Sources::new(1);
        let at = |secs| Time::from_secs(secs);
        let (a, proven) = s.open(at(1), 5);
        assert!(!proven);
        s.close(a, None);
        assert_eq!(s.len(), 0, "nobody remembers an unproven network");
        let (a, _) = s.open(at(1), 5);
        s.close(a, Some(at(2)));
        let (b, proven) = s.open(at(301), 5);
        assert!(proven && a == b);
        s.close(b, None);
        assert!(!s.open(at(302), 5).1);
    }

    #[test]
    fn records_are_bounded() {
        let mut s = Sources::new(1);
        for prefix in 0..3 * IDLE as u64 {
            let (a, _) = s.open(Time::from_secs(1), prefix);
            s.close(a, Some(Time::from_secs(1)));
            assert!(s.len() <= IDLE && s.idling == s.len());
        }
        assert!(s.slab.len() <= IDLE + 1);
        let last = 3 * IDLE as u64 - 1;
        assert!(s.open(Time::from_secs(2), last).1);
        assert!(!s.open(Time::from_secs(2), 0).1);
    }
}
