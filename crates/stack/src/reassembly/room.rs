//! Room for fragments: admission, eviction and expiry.
//!
//! Every datagram is in a list by age and in a list of its source. Both are in order of arrival, so the oldest is always the first, for
//! eviction as for expiry.

use super::list::{Link, List};
use super::{Entry, Expired, Key, Pieces, Reassembly, State, family};
use crate::stats::{DropReason, LaneStats};
use crate::time::Time;

/// What one side, proven or not, holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) datagrams: usize,
    pub(super) fragments: usize,
    pub(super) bytes: usize,
}

/// Lists of ages: by family, since they wait differently long, and by trust.
pub(super) struct Age;

impl Age {
    pub(super) const COUNT: usize = 4;

    #[inline]
    fn of(v6: bool, proven: bool) -> usize {
        usize::from(proven) * 2 + usize::from(v6)
    }
}

fn age(entry: &mut Entry) -> &mut Link {
    &mut entry.age
}

fn of_source(entry: &mut Entry) -> &mut Link {
    &mut entry.of_source
}

impl Reassembly {
    /// Whether one datagram more would cost another.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        let [a, b] = &self.held;
        a.datagrams + b.datagrams >= self.config.datagrams
            || a.fragments + b.fragments >= self.config.fragments
    }

    /// Whether a new datagram is one stranger's too many.
    #[inline]
    pub(super) fn is_flood(&mut self, now: Time, key: Key) -> bool {
        !self.sources.is_proven(now, key.source()) && !self.budget.take(now)
    }

    /// Makes a datagram, at the cost of another when there are too many. `None` if fragments are refused.
    #[inline]
    pub(super) fn open(&mut self, now: Time, hash: u64, key: Key, stats: &mut LaneStats) -> Option<u32> {
        let (source, proven) = self.sources.open(now, key.source());
        if !self.make_way(source, proven, stats) {
            self.sources.close(source, None);
            return None;
        }
        self.opened += 1;
        let entry = Entry::new(now, self.opened, key, hash, (source, proven));
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let entries = &self.entries;
        self.table.insert_unique(hash, at, |&i| entries[i as usize].hash);
        self.ages[Age::of(key.is_v6(), proven)].push(&mut self.entries, at, age);
        self.sources.get(source).datagrams.push(&mut self.entries, at, of_source);
        self.held[usize::from(proven)].datagrams += 1;
        Some(at)
    }

    /// Room for one more datagram of `source`, which is counted there already.
    fn make_way(&mut self, source: u32, proven: bool, stats: &mut LaneStats) -> bool {
        let share = self.config.share(self.config.datagrams);
        while self.sources.get(source).pending as usize > share.max(1) {
            let Some(oldest) = self.sources.get(source).datagrams.first() else { break };
            self.evict(oldest, DropReason::FragmentSourceFull, stats);
        }
        while self.held[0].datagrams + self.held[1].datagrams >= self.config.datagrams {
            let Some(oldest) = self.victim(proven, self.config.datagrams, |h| h.datagrams) else {
                return false;
            };
            self.evict(oldest, DropReason::FragmentEvicted, stats);
        }
        true
    }

    /// Room for `bytes` more in one more fragment of datagram `at`. `false` if there is none, or if `at` was itself
    /// what had to go.
    #[inline]
    pub(super) fn make_room(&mut self, at: u32, bytes: usize, stats: &mut LaneStats) -> bool {
        let entry = &self.entries[at as usize];
        let (index, proven) = (entry.source, entry.proven);
        let (fragments, limit) = (self.config.share(self.config.fragments), self.config.bytes);
        let share = limit / 2;
        loop {
            let source = self.sources.get(index);
            let full = source.fragments as usize >= fragments || source.bytes + bytes > share.max(bytes);
            if !full {
                break;
            }
            let Some(oldest) = source.datagrams.first() else { return false };
            self.evict(oldest, DropReason::FragmentSourceFull, stats);
            if oldest == at {
                return false;
            }
        }
        loop {
            let victim = if self.fragments() >= self.config.fragments {
                self.victim(proven, self.config.fragments, |h| h.fragments)
            } else if self.bytes() + bytes > limit {
                self.victim(proven, limit, |h| h.bytes)
            } else {
                return true;
            };
            let Some(oldest) = victim else { return false };
            self.evict(oldest, DropReason::FragmentEvicted, stats);
            if oldest == at {
                return false;
            }
        }
    }

    /// The oldest datagram of the side that has more than half of `limit`; of the arriving one's side if neither has.
    fn victim(&self, proven: bool, limit: usize, amount: impl Fn(&Held) -> usize) -> Option<u32> {
        let side = match (amount(&self.held[0]) > limit / 2, amount(&self.held[1]) > limit / 2) {
            (true, _) => false,
            (_, true) => true,
            _ => proven,
        };
        self.oldest(side).or_else(|| self.oldest(!side))
    }

    fn oldest(&self, proven: bool) -> Option<u32> {
        let v4 = self.ages[Age::of(false, proven)].first();
        let v6 = self.ages[Age::of(true, proven)].first();
        match (v4, v6) {
            (Some(a), Some(b)) => {
                Some(if self.entries[a as usize].serial < self.entries[b as usize].serial { a } else { b })
            }
            (a, b) => a.or(b),
        }
    }

    /// Drops a datagram whose place is needed.
    fn evict(&mut self, at: u32, reason: DropReason, stats: &mut LaneStats) {
        let mut pieces = self.release(at);
        let v6 = self.entries[at as usize].key.is_v6();
        family(stats, v6).fragments_overflow += u64::from(pieces.count);
        for _ in 0..pieces.count {
            stats.drops.count(reason);
        }
        self.pieces.clear(&mut pieces);
        self.remove(at, None, None);
    }

    /// Takes the pieces of a datagram out of all accounts; the caller frees them.
    #[inline]
    pub(super) fn release(&mut self, at: u32) -> Pieces {
        let entry = &mut self.entries[at as usize];
        let pieces = std::mem::replace(&mut entry.pieces, Pieces::EMPTY);
        let bytes = std::mem::take(&mut entry.buffers) as usize;
        let source = self.sources.get(entry.source);
        source.fragments -= u32::from(pieces.count);
        source.bytes -= bytes;
        let held = &mut self.held[usize::from(entry.proven)];
        held.fragments -= usize::from(pieces.count);
        held.bytes -= bytes;
        pieces
    }

    /// Frees the slot of a datagram without pieces, which the table has at `place` if that is known; `finished` if it
    /// was delivered, now.
    #[inline]
    pub(super) fn remove(&mut self, at: u32, place: Option<usize>, finished: Option<Time>) {
        let entry = &mut self.entries[at as usize];
        entry.state = State::Free;
        let (key, source, proven) = (entry.key, entry.source, entry.proven);
        let found = match place {
            Some(place) => self.table.get_bucket_entry(place),
            None => self.table.find_entry(entry.hash, |&i| i == at),
        };
        if let Ok(found) = found {
            found.remove();
        }
        self.ages[Age::of(key.is_v6(), proven)].remove(&mut self.entries, at, age);
        let list: &mut List = &mut self.sources.get(source).datagrams;
        list.remove(&mut self.entries, at, of_source);
        self.sources.close(source, finished);
        self.held[usize::from(proven)].datagrams -= 1;
        self.free.push(at);
    }

    /// When [`Reassembly::expire`] has something to do.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.ages.iter().filter_map(List::first).map(|at| self.deadline(at)).min()
    }

    #[inline]
    fn deadline(&self, at: u32) -> Time {
        let entry = &self.entries[at as usize];
        entry.opened + if entry.key.is_v6() { self.config.timeout_v6 } else { self.config.timeout_v4 }
    }

    /// Drops an expired datagram, and returns what the ICMP error to the sender needs; `None` if nothing has expired. Discarded datagrams
    /// expire silently.
    pub fn expire(&mut self, now: Time, stats: &mut LaneStats) -> Option<Expired> {
        let due = self.ages.iter().filter_map(List::first).find(|&at| self.deadline(at) <= now)?;
        let mut pieces = self.release(due);
        let entry = &self.entries[due as usize];
        let (v6, header_len) = (entry.key.is_v6(), entry.header_len);
        family(stats, v6).fragments_timeout += u64::from(pieces.count);
        for _ in 0..pieces.count {
            stats.drops.count(DropReason::FragmentTimeout);
        }
        let first = self.pieces.clear(&mut pieces);
        self.remove(due, None, None);
        Some(Expired { first, header_len, v6 })
    }
}
