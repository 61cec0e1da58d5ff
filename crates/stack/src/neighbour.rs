//! The neighbour table: Ethernet addresses of next hops, for both ARP and neighbour discovery.
//!
//! Each lane has its own table; a lane that learns an address sends it to the other lanes through its worker. An entry has the states of
//! RFC 4861 section 7.3.2, for IPv4 as well:
//!
//! ```text
//!   Incomplete ──answer──▶ Reachable ──30 s──▶ (stale) ──used──▶ Probe ──answer──▶ Reachable
//!       └── 3 tries ──▶ removed                                    └── 3 tries ──▶ removed
//! ```
//!
//! While an entry is probed its old address is used, so traffic continues. All waits are one second, so waiting entries are in one queue,
//! oldest first, and need no timers of their own.
//!
//! The table is bounded. A full table evicts the least recently used of a few entries chosen at random, so a host on the link can neither
//! grow it nor choose the entry to evict.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use flowlane_sys::frame::Frame;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::address::number;
use crate::rng::Rng;
use crate::stats::ArpStats;
use crate::time::Time;
use crate::wire::MacAddr;

/// Entries of a lane's table.
const CAPACITY: usize = 4096;
/// How long an answer is believed (RFC 4861 section 10, REACHABLE_TIME).
const REACHABLE: Duration = Duration::from_secs(30);
/// Between two requests (RETRANS_TIMER).
const RETRY: Duration = Duration::from_secs(1);
/// Requests before an entry is given up (MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT).
const TRIES: u8 = 3;
/// Packets that wait for one address.
const WAITING_EACH: usize = 256;
/// Packets that wait for any address.
const WAITING_ALL: usize = 1024;
/// Entries looked at when one must go.
const SAMPLE: u32 = 8;

/// What is known of a next hop.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Its address.
    Known(MacAddr),
    /// Its address as it was; ask it (by unicast) whether that still holds.
    Probe(MacAddr),
    /// Unknown: pass the packet to [`Neighbours::wait`], and send a request if `ask` is set.
    Unknown {
        /// Whether no request has been sent yet.
        ask: bool,
    },
}

/// A request to send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) interface: u8,
    pub(crate) address: IpAddr,
    /// Ask this Ethernet address; `None` for everybody.
    pub(crate) at: Option<MacAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The slot is free.
    Free,
    Incomplete,
    Reachable {
        until: Time,
    },
    Probe,
}

#[derive(Debug)]
struct Entry {
    interface: u8,
    address: IpAddr,
    mac: MacAddr,
    state: State,
    tries: u8,
    /// Distinguishes this use of the slot from earlier ones in the queue of waits.
    generation: u32,
    used: Time,
    waiting: Vec<Frame>,
}

/// The neighbours of one lane.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// At most [`CAPACITY`] slots; an entry keeps its slot for life.
    entries: Vec<Entry>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: FixedState,
    /// Entries that are asked for, in order of the time to ask again.
    asking: VecDeque<(Time, u32, u32)>,
    waiting: usize,
    generation: u32,
}

impl Neighbours {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            asking: VecDeque::new(),
            waiting: 0,
            generation: 0,
        }
    }

    #[inline]
    fn find(&self, interface: u8, address: IpAddr) -> Option<usize> {
        self.table
            .find(hash(&self.hasher, interface, address), |&i| {
                let e = &self.entries[i as usize];
                e.address == address && e.interface == interface
            })
            .map(|&i| i as usize)
    }

    /// Looks a next hop up for a packet that is to be sent now.
    #[inline]
    pub(crate) fn resolve(
        &mut self,
        now: Time,
        interface: u8,
        address: IpAddr,
        rng: &mut Rng,
        stats: &mut ArpStats,
    ) -> Resolution {
        let Some(i) = self.find(interface, address) else {
            self.insert(now, interface, address, MacAddr::ZERO, State::Incomplete, rng, stats);
            return Resolution::Unknown { ask: true };
        };
        let entry = &mut self.entries[i];
        entry.used = now;
        match entry.state {
            State::Reachable { until } if now < until => Resolution::Known(entry.mac),
            State::Reachable { .. } => {
                entry.state = State::Probe;
                entry.tries = 1;
                let (mac, generation) = (entry.mac, entry.generation);
                self.ask_again(now, i as u32, generation);
                Resolution::Probe(mac)
            }
            State::Probe => Resolution::Known(entry.mac),
            State::Incomplete | State::Free => Resolution::Unknown { ask: false },
        }
    }

    /// Keeps a packet until its next hop answers. Gives it back when too many wait.
    pub(crate) fn wait(&mut self, interface: u8, address: IpAddr, frame: Frame) -> Result<(), Frame> {
        let Some(i) = self.find(interface, address) else { return Err(frame) };
        let entry = &mut self.entries[i];
        // Guard: `entry.waiting.len() >= WAITING_EACH` as `false` fails neighbour lane/resolution
        // Guard: `self.waiting >= WAITING_ALL` as `false` fails neighbour::tests::packets_that_wait
        if entry.waiting.len() >= WAITING_EACH || self.waiting >= WAITING_ALL {
            return Err(frame);
        }
        self.waiting += 1;
        entry.waiting.push(frame);
        Ok(())
    }

    /// Takes in that `address` has `mac`. Makes an entry if `create`. Returns whether that is news, and the packets
    /// that waited for it.
    pub(crate) fn learn(
        &mut self,
        now: Time,
        at: (u8, IpAddr),
        mac: MacAddr,
        create: bool,
        rng: &mut Rng,
        stats: &mut ArpStats,
    ) -> (bool, Vec<Frame>) {
        let until = now + REACHABLE;
        let (interface, address) = at;
        let Some(i) = self.find(interface, address) else {
            if create {
                stats.learned += 1;
                self.insert(now, interface, address, mac, State::Reachable { until }, rng, stats);
            }
            return (create, Vec::new());
        };
        let entry = &mut self.entries[i];
        let news = match entry.state {
            State::Incomplete => {
                stats.learned += 1;
                true
            }
            State::Probe | State::Free => true,
            // Refreshing an entry is news to the others only when theirs is about to run out too.
            State::Reachable { until } => until.saturating_duration_since(now) < REACHABLE / 2,
        };
        let changed = entry.state != State::Incomplete && entry.mac != mac;
        stats.changed += u64::from(changed);
        entry.mac = mac;
        entry.state = State::Reachable { until };
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting -= waiting.len();
        (news || changed, waiting)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a new entry")]
    fn insert(
        &mut self,
        now: Time,
        interface: u8,
        address: IpAddr,
        mac: MacAddr,
        state: State,
        rng: &mut Rng,
        stats: &mut ArpStats,
    ) {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let slot = self.free_slot(rng, stats);
        let entry =
            Entry { interface, address, mac, state, tries: 1, generation, used: now, waiting: Vec::new() };
        if slot as usize == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[slot as usize] = entry;
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.table.insert_unique(hash(hasher, interface, address), slot, |&i| {
            let e = &entries[i as usize];
            hash(hasher, e.interface, e.address)
        });
        if state == State::Incomplete {
            self.ask_again(now, slot, generation);
        }
    }

    /// A slot for a new entry, at the cost of an old one when the table is full.
    fn free_slot(&mut self, rng: &mut Rng, stats: &mut ArpStats) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        // Guard: `self.entries.len() < CAPACITY` as `true` fails neighbour lane/resolution
        if self.entries.len() < CAPACITY {
            return self.entries.len() as u32;
        }
        let victim = (0..SAMPLE)
            .map(|_| rng.below(CAPACITY as u32))
            .min_by_key(|&i| self.entries[i as usize].used)
            .unwrap_or(0);
        stats.evicted += 1;
        self.remove(victim);
        self.free.pop().unwrap_or(victim)
    }

    /// Puts an entry at the end of the queue of waits.
    fn ask_again(&mut self, now: Time, slot: u32, generation: u32) {
        // Waits of entries that are gone stay in the queue until their second is over. Whoever makes entries faster
        // than that pays for clearing them out: constant time each, in the long run.
        if self.asking.len() >= 4 * CAPACITY {
            let entries = &self.entries;
            self.asking.retain(|w| {
                let e = &entries[w.1 as usize];
                e.generation == w.2 && matches!(e.state, State::Incomplete | State::Probe)
            });
        }
        self.asking.push_back((now + RETRY, slot, generation));
    }

    /// Frees a slot. Returns the packets that waited for its entry.
    fn remove(&mut self, slot: u32) -> Vec<Frame> {
        let entry = &mut self.entries[slot as usize];
        entry.state = State::Free;
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting -= waiting.len();
        let hash = hash(&self.hasher, entry.interface, entry.address);
        if let Ok(found) = self.table.find_entry(hash, |&n| n == slot) {
            found.remove();
        }
        self.free.push(slot);
        waiting
    }

    /// When [`Neighbours::due`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.asking.front().map(|w| w.0)
    }

    /// The next request that is due, or the packets of a neighbour given up; `None` when nothing is due.
    pub(crate) fn due(&mut self, now: Time, stats: &mut ArpStats) -> Option<Result<Ask, Vec<Frame>>> {
        loop {
            let &(at, i, generation) = self.asking.front()?;
            if at > now {
                return None;
            }
            self.asking.pop_front();
            let Some(entry) = self.entries.get_mut(i as usize) else { continue };
            if entry.generation != generation || !matches!(entry.state, State::Incomplete | State::Probe) {
                continue;
            }
            // Guard: `entry.tries >= TRIES` as `false` fails neighbour lane/resolution
            if entry.tries >= TRIES {
                stats.timed_out += 1;
                return Some(Err(self.remove(i)));
            }
            entry.tries += 1;
            let at = (entry.state == State::Probe).then_some(entry.mac);
            let ask = Ask { interface: entry.interface, address: entry.address, at };
            self.ask_again(now, i, generation);
            return Some(Ok(ask));
        }
    }

    /// Every entry that has an Ethernet address: interface, address, Ethernet address.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u8, IpAddr, MacAddr)> + '_ {
        self.entries
            .iter()
            .filter(|e| matches!(e.state, State::Reachable { .. } | State::Probe))
            .map(|e| (e.interface, e.address, e.mac))
    }
}

#[inline]
fn hash(hasher: &FixedState, interface: u8, address: IpAddr) -> u64 {
    let mut h = hasher.build_hasher();
    let n = number(address);
    h.write_u64(n as u64 ^ (u64::from(interface) << 56));
    if address.is_ipv6() {
        h.write_u64((n >> 64) as u64);
    }
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use flowlane_sys::frame::{FrameMemory, MemoryConfig};

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n))
    }

    struct Bench {
        n: Neighbours,
        rng: Rng,
        stats: ArpStats,
    }

    impl Bench {
        fn new() -> Self {
            Self { n: Neighbours::new(1), rng: Rng::new(1), stats: ArpStats::default() }
        }

        fn resolve(&mut self, ms: u64, n: u32) -> Resolution {
            self.n.resolve(at(ms), 0, ip(n), &mut self.rng, &mut self.stats)
        }

        fn learn(&mut self, ms: u64, n: u32, mac: MacAddr) -> (bool, Vec<Frame>) {
            self.n.learn(at(ms), (0, ip(n)), mac, true, &mut self.rng, &mut self.stats)
        }
    }

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn packets_wait_for_the_answer_and_leave_with_it() {
        let memory = FrameMemory::new(&MemoryConfig { frames_per_home: 512, ..Default::default() }).unwrap();
        let pool = memory.attach(0).unwrap();
        let mut b = Bench::new();
        assert_eq!(b.resolve(0, 1), Resolution::Unknown { ask: true });
        for i in 0..WAITING_EACH + 1 {
            let kept = b.n.wait(0, ip(1), pool.alloc().unwrap()).is_ok();
            assert_eq!(kept, i < WAITING_EACH);
        }
        assert_eq!(b.resolve(1, 1), Resolution::Unknown { ask: false });
        let (news, frames) = b.learn(2, 1, MAC);
        assert!(news);
        assert_eq!(frames.len(), WAITING_EACH);
        assert_eq!(b.resolve(3, 1), Resolution::Known(MAC));
        assert!(b.n.due(at(5_000), &mut b.stats).is_none(), "nobody asks for what is known");
    }

    /// Who asks for ever more addresses on the link gets no more frames for them than all may have.
    #[test]
    fn packets_that_wait_for_anybody_are_bounded() {
        let config = MemoryConfig { frames_per_home: 2048, lock: false, ..Default::default() };
        let pool = FrameMemory::new(&config).unwrap().attach(0).unwrap();
        let mut b = Bench::new();
        let mut kept = 0;
        for n in 0..8 {
            b.resolve(0, n);
            kept += (0..200).filter(|_| b.n.wait(0, ip(n), pool.alloc().unwrap()).is_ok()).count();
        }
        assert_eq!((kept, pool.free()), (WAITING_ALL, 2048 - WAITING_ALL));
        // What leaves, or is given up, makes room.
        assert_eq!(b.learn(1, 0, MAC).1.len(), 200);
        assert!(b.n.wait(0, ip(7), pool.alloc().unwrap()).is_ok());
        while let Some(due) = b.n.due(at(10_000), &mut b.stats) {
            drop(due);
        }
    }

    #[test]
    fn three_requests_a_second_apart_then_given_up() {
        let memory = FrameMemory::new(&MemoryConfig { frames_per_home: 8, ..Default::default() }).unwrap();
        let pool = memory.attach(0).unwrap();
        let mut b = Bench::new();
        b.resolve(0, 1);
        assert!(b.n.wait(0, ip(1), pool.alloc().unwrap()).is_ok());
        for second in 1..=2 {
            assert_eq!(b.n.next_deadline(), Some(at(second * 1000)));
            let ask = b.n.due(at(second * 1000), &mut b.stats).unwrap().unwrap();
            assert_eq!(ask, Ask { interface: 0, address: ip(1), at: None });
            assert!(b.n.due(at(second * 1000), &mut b.stats).is_none());
        }
        assert_eq!(b.n.due(at(3000), &mut b.stats).unwrap().unwrap_err().len(), 1);
        assert_eq!((b.stats.timed_out, b.n.next_deadline()), (1, None));
        assert_eq!(b.resolve(3001, 1), Resolution::Unknown { ask: true });
    }

    #[test]
    fn a_stale_entry_is_used_while_it_is_probed() {
        let mut b = Bench::new();
        b.learn(0, 1, MAC);
        assert_eq!(b.resolve(29_999, 1), Resolution::Known(MAC));
        assert_eq!(b.resolve(30_000, 1), Resolution::Probe(MAC));
        assert_eq!(b.resolve(30_001, 1), Resolution::Known(MAC));
        let ask = b.n.due(at(31_000), &mut b.stats).unwrap().unwrap();
        assert_eq!(ask.at, Some(MAC));
        let (news, _) = b.learn(31_001, 1, MAC);
        assert!(news, "the other lanes' entries are as old");
        assert!(b.n.due(at(32_000), &mut b.stats).is_none());
        assert_eq!(b.resolve(60_000, 1), Resolution::Known(MAC));
    }

    #[test]
    fn the_table_is_bounded_and_its_queue_of_waits_stays_right() {
        let mut b = Bench::new();
        for n in 0..3 * CAPACITY as u32 {
            if n % 2 == 0 {
                b.resolve(u64::from(n), n);
            } else {
                b.learn(u64::from(n), n, MAC);
            }
            if n % 7 == 0 {
                while b.n.due(at(u64::from(n)), &mut b.stats).is_some() {}
            }
        }
        assert!(b.n.entries.len() <= CAPACITY);
        assert_eq!(b.n.table.len() + b.n.free.len(), b.n.entries.len());
        assert!(b.stats.evicted > 0);
        for (i, e) in b.n.entries.iter().enumerate().filter(|(_, e)| e.state != State::Free) {
            assert_eq!(b.n.find(e.interface, e.address), Some(i));
            let waits = b.n.asking.iter().filter(|w| w.2 == e.generation);
            assert_eq!(waits.count() > 0, e.state == State::Incomplete);
        }
        for n in 0..5 * CAPACITY as u32 {
            b.resolve(100_000, 100_000 + n);
        }
        assert!(b.n.asking.len() <= 4 * CAPACITY, "asking for ever more addresses takes no more memory");
    }
}
