//! Records of the lane's UDP flows, for an exporter of flows (RFC 7011), beside those of TCP connections.
//!
//! Off unless somebody asks ([`Lane::watch_flows`](crate::Lane::watch_flows)). While it is on, each datagram that comes from a link, or goes to
//! one, is counted for its flow, both directions together, also if the stack drops it afterwards. All fragments between two addresses are one
//! flow without ports; what a tunnel carries is a flow beside that of its outer packets.
//!
//! **Ends.** UDP tells no end. A flow ends when it was silent for the idle timeout ([`FlowEnd::Idle`], RFC 7011 §5.1.1), with its lane, or when the
//! table is full and another comes: then the one that was silent for longest makes room ([`FlowEnd::NoRoom`]). With an active timeout it also has a
//! record each time this has passed, of what was counted since the one before.
//!
//! **Cost.** The table is bounded, grows with the flows that there are, and has a secret seed. Flows are in two lists: by the second of their last
//! packet, and by their last record. So what expires is at the front of a list, and each costs a step; a flow changes its place at most once a
//! second. At most 64 are looked at in a turn. A record that finds no room is made later and loses nothing, but for one that makes room while
//! there is none: it is counted as lost.

mod list;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;

use hashbrown::HashTable;

use self::list::{List, Place};
use crate::tcp::{FlowEnd, FlowRecord, FlowTotals};
use crate::time::Time;
use crate::top::key::{Key, Weight};
use crate::wire::IpProtocol;

/// Flows that a lane knows at most: about 700 KiB.
pub(crate) const MOST: usize = 4096;
/// Flows that are looked at in a turn, for others not to wait.
const AT_ONCE: usize = 64;
/// When it is tried again, if there is no room for records.
const AGAIN: Duration = Duration::from_millis(20);
/// A flow changes its place in the list of the silent at most so often: its end is noticed as much later.
const STEP: Duration = Duration::from_secs(1);

/// How records are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordOptions {
    /// Records that may wait.
    pub(crate) most: usize,
    /// The active timeout.
    pub(crate) active: Option<Duration>,
    /// The idle timeout.
    pub(crate) idle: Duration,
    pub(crate) seed: [u64; 2],
}

/// What became of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Of flows that ended.
    pub(crate) ended: u64,
    /// Of flows that go on.
    pub(crate) active: u64,
    /// Of those that ended, made room for others.
    pub(crate) no_room: u64,
    /// Found no room.
    pub(crate) lost: u64,
}

/// The UDP flows of a lane, if somebody asks for their records.
#[derive(Debug, Default)]
pub(crate) struct DatagramFlows {
    watch: Option<Box<Watch>>,
    counts: Counts,
}

#[derive(Debug)]
struct Watch {
    flows: Vec<Flow>,
    /// Places in `flows` that are free.
    free: Vec<u32>,
    table: HashTable<u32>,
    /// The one that has been silent for longest first.
    silent: List,
    /// The one whose record, or beginning, is longest ago first.
    standing: List,
    waiting: VecDeque<FlowRecord>,
    wish: RecordOptions,
    counts: Counts,
    /// There was no room for records: nothing is looked at before.
    not_before: Time,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    key: Key,
    /// What was sent and what was received since its last record.
    totals: [Weight; 2],
    /// Since when.
    began: Time,
    last: Time,
    /// When it was put at the end of the list of the silent.
    placed: Time,
    /// Its first packet was ours.
    active: bool,
    silent: Place,
    standing: Place,
}

impl DatagramFlows {
    /// Flows of no packet; `most` 0: none are kept.
    pub(crate) fn new(wish: RecordOptions) -> Self {
        if wish.most == 0 {
            return Self::default();
        }
        let watch = Watch {
            flows: Vec::new(),
            free: Vec::new(),
            table: HashTable::new(),
            silent: List::new(|flow| &mut flow.silent),
            standing: List::new(|flow| &mut flow.standing),
            waiting: VecDeque::with_capacity(wish.most),
            wish,
            counts: Counts::default(),
            not_before: Time::ZERO,
        };
        Self { watch: Some(Box::new(watch)), counts: Counts::default() }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.watch.is_some()
    }

    /// A frame of a flow, UDP or not, has come or goes out.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: Time, key: Key, weight: Weight, received: bool) {
        if let Some(watch) = &mut self.watch {
            watch.count(now, key, weight, received);
        }
    }

    /// When a timeout passes next.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.watch.as_ref()?.next_deadline()
    }

    /// Makes records of flows whose timeout has passed: of some, if many have.
    #[inline]
    pub(crate) fn on_timer(&mut self, now: Time) {
        if self.next_deadline().is_some_and(|at| at <= now) {
            if let Some(watch) = &mut self.watch {
                watch.look(now);
            }
        }
    }

    /// The next record.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<FlowRecord> {
        self.watch.as_mut()?.waiting.pop_front()
    }

    /// What waits, and a record of each flow. None is made after that.
    pub(crate) fn end_all(&mut self, now: Time, mut take: impl FnMut(FlowRecord)) {
        let Some(mut watch) = self.watch.take() else { return };
        self.counts = watch.counts;
        watch.waiting.iter().copied().for_each(&mut take);
        while let Some(at) = watch.standing.first() {
            watch.remove(at, now, FlowEnd::LaneEnded).into_iter().for_each(&mut take);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.watch.as_ref().map_or(self.counts, |watch| watch.counts)
    }
}

impl Watch {
    #[inline(always)]
    fn count(&mut self, now: Time, key: Key, weight: Weight, received: bool) {
        // Guard: `key.protocol() != IpProtocol::UDP` as `false` fails datagram_flows::tests::udp_only
        if key.protocol() != IpProtocol::UDP {
            return;
        }
        let at = self.find_or_begin(now, &key, received);
        let Some(flow) = self.flows.get_mut(at as usize) else { return };
        let totals = &mut flow.totals[usize::from(received)];
        *totals = *totals + weight;
        flow.last = now;
        // Guard: `now >= flow.placed + STEP` as `false` fails datagram_flows::tests::a_full_table_makes_room
        if now >= flow.placed + STEP {
            flow.placed = now;
            self.silent.remove(&mut self.flows, at);
            self.silent.push(&mut self.flows, at);
        }
    }

    #[inline]
    fn find_or_begin(&mut self, now: Time, key: &Key, received: bool) -> u32 {
        let hash = key.hash(self.wish.seed);
        let flows = &self.flows;
        let found = self.table.find(hash, |at| flows.get(*at as usize).is_some_and(|flow| flow.key.is(key)));
        match found {
            Some(at) => *at,
            None => self.begin(now, key, hash, received),
        }
    }

    #[cold]
    fn begin(&mut self, now: Time, key: &Key, hash: u64, received: bool) -> u32 {
        // Guard: `self.table.len() >= MOST` as `false` fails datagram_flows::tests::a_full_table_makes_room
        if self.table.len() >= MOST {
            if let Some(first) = self.silent.first() {
                self.put_out(first, now);
            }
        }
        let flow = Flow {
            key: *key,
            totals: [Weight::NONE; 2],
            began: now,
            last: now,
            placed: now,
            active: !received,
            silent: Place::NONE,
            standing: Place::NONE,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.flows[at as usize] = flow;
                at
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.silent.push(&mut self.flows, at);
        self.standing.push(&mut self.flows, at);
        let (flows, seed) = (&self.flows, self.wish.seed);
        let hash_of = |at: &u32| flows.get(*at as usize).map_or(0, |flow| flow.key.hash(seed));
        self.table.insert_unique(hash, at, hash_of);
        at
    }

    /// Another needs its place.
    fn put_out(&mut self, at: u32, now: Time) {
        self.counts.no_room += 1;
        if let Some(record) = self.remove(at, now, FlowEnd::NoRoom) {
            self.counts.ended += 1;
            // Guard: `self.has_room()` as `true` fails bounds/flows::records_that_nobody_takes
            if self.has_room() {
                self.waiting.push_back(record);
            } else {
                self.counts.lost += 1;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.waiting.len() < self.wish.most
    }

    fn next_deadline(&self) -> Option<Time> {
        let silent = self.flow(self.silent.first()).map(|flow| flow.placed + STEP + self.wish.idle);
        let standing = self.flow(self.standing.first()).zip(self.wish.active);
        let standing = standing.map(|(flow, every)| flow.began + every);
        let first = silent.into_iter().chain(standing).min()?;
        Some(first.max(self.not_before))
    }

    fn flow(&self, at: Option<u32>) -> Option<&Flow> {
        self.flows.get(at? as usize)
    }

    #[cold]
    fn look(&mut self, now: Time) {
        // Guard: `AT_ONCE` as `usize::MAX` fails datagram_flows::tests::many_ends_are_spread_over_turns
        for _ in 0..AT_ONCE {
            // Guard: `!self.has_room()` as `false` fails
            // datagram_flows::tests::the_sum_of_records_is_what_passed
            if !self.has_room() {
                self.not_before = now + AGAIN;
                return;
            }
            let idle = self.wish.idle;
            if let Some(at) = self.silent.first() {
                // No packet came later than a step after it was placed.
                // Guard: `self.flows[at as usize].placed + STEP + idle <= now` as `true` fails
                // datagram_flows::tests::silence_ends_a_flow
                if self.flows[at as usize].placed + STEP + idle <= now {
                    if let Some(record) = self.remove(at, now, FlowEnd::Idle) {
                        self.waiting.push_back(record);
                        self.counts.ended += 1;
                    }
                    continue;
                }
            }
            let Some((at, every)) = self.standing.first().zip(self.wish.active) else { return };
            if self.flows[at as usize].began + every > now {
                return;
            }
            self.standing.remove(&mut self.flows, at);
            self.standing.push(&mut self.flows, at);
            match self.flows[at as usize].record(now, FlowEnd::ActiveTimeout) {
                Some(record) => {
                    self.waiting.push_back(record);
                    self.counts.active += 1;
                }
                None => self.flows[at as usize].began = now,
            }
        }
    }

    /// Takes a flow out: its last record, unless nothing passed since the one before.
    fn remove(&mut self, at: u32, now: Time, end: FlowEnd) -> Option<FlowRecord> {
        self.silent.remove(&mut self.flows, at);
        self.standing.remove(&mut self.flows, at);
        let flow = self.flows.get_mut(at as usize)?;
        let hash = flow.key.hash(self.wish.seed);
        let record = flow.record(now, end);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
        record
    }
}

impl Flow {
    /// What was counted since the record before, if anything was. The next begins here.
    fn record(&mut self, now: Time, end: FlowEnd) -> Option<FlowRecord> {
        let [sent, received] = core::mem::take(&mut self.totals);
        if sent.packets + received.packets == 0 {
            return None;
        }
        let (local, remote) = self.key.ends();
        let ip = if local.ip.is_ipv4() { 20 } else { 40 };
        let headers = if self.key.is_fragment() { ip } else { ip + 8 };
        let totals = |weight: Weight| FlowTotals {
            bytes: weight.octets.saturating_sub(weight.packets * headers),
            segments: weight.packets,
            octets: weight.octets,
        };
        // It went on until now only if it goes on.
        let ended = if end == FlowEnd::ActiveTimeout { now } else { self.last };
        let (local, remote) =
            (SocketAddr::new(local.ip, local.port), SocketAddr::new(remote.ip, remote.port));
        let began = core::mem::replace(&mut self.began, now);
        Some(FlowRecord {
            active: self.active,
            end,
            sent: totals(sent),
            received: totals(received),
            ..FlowRecord::new(IpProtocol::UDP, local, remote, began, ended)
        })
    }
}
