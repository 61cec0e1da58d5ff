//! The flows of a lane with most packets and most bytes, in two tables of fixed size: heavy hitters.
//!
//! Off unless somebody asks ([`Lane::watch_top`](crate::Lane::watch_top)): then a frame costs a look at a pointer. While it is on, each frame
//! that comes from a link, or goes to one, is counted for its flow, both directions of UDP and TCP together; also what the stack drops
//! afterwards, since that is what one looks for in a flood. The module `table` says how, and what the bounds are; `key` what a flow is. Nothing is
//! allocated after the start, and a frame costs the same with ten flows and with ten million: hostile flows can make counts less exact,
//! within bounds that are reported, and nothing else.
//!
//! Packets of one flow that pass one after the other are added up, and counted in the tables at once when one of another flow comes, a second
//! begins, or somebody asks. The counts are those of packet by packet.
//!
//! What a tunnel carries is counted as a flow of its own beside the flow of the outer packets, each in its lane.

mod key;
mod table;
#[cfg(test)]
mod tests;

use core::time::Duration;

use flowlane_sys::frame::Frame;

use self::key::{Key, Weight, look_closely, plain};
use self::table::{Entry, Run, Table};
use crate::address::Endpoint;
use crate::time::Time;
use crate::wire::IpProtocol;

/// How flows are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopConfig {
    /// Flows in each of the two tables, at least; at most 2^20. About 104 bytes each.
    pub flows: usize,
    /// A flow without packets for longer is forgotten; whole seconds.
    pub idle: Duration,
    /// Seed of the hash: secret, and different for every lane.
    pub seed: [u64; 2],
}

impl TopConfig {
    /// Tables of 256 flows each, and a minute.
    #[must_use]
    pub fn new(seed: [u64; 2]) -> Self {
        Self { flows: 256, idle: Duration::from_secs(60), seed }
    }
}

/// Packets and bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopTotals {
    /// Packets on the wire.
    pub packets: u64,
    /// Bytes of these packets from the IP header on.
    pub octets: u64,
}

/// A count that may be too high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopCount {
    /// No less than there were.
    pub count: u64,
    /// Too high by at most so many.
    pub error: u64,
}

/// A flow with many packets or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopFlow {
    /// UDP or TCP; of a fragment over IPv6 the fragment header.
    pub protocol: IpProtocol,
    /// The flow of all fragments between two addresses: its ports are 0.
    pub fragments: bool,
    /// Our end, or the one to which the packets were sent.
    pub local: Endpoint,
    /// The peer's.
    pub remote: Endpoint,
    /// Packets, both directions.
    pub packets: TopCount,
    /// Bytes from the IP header on, both directions.
    pub octets: TopCount,
    /// What came since the flow is in a table: no more than there were.
    pub received: TopTotals,
    /// What went.
    pub sent: TopTotals,
    /// When it got into a table, to the second.
    pub since: Time,
    /// When its last packet passed, to the second.
    pub last: Time,
}

/// What a lane's tables have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopReport {
    /// The flows of both tables, each once, in no order.
    pub flows: Vec<TopFlow>,
    /// A flow that is not among them has had at most so many packets.
    pub packets_elsewhere: u64,
    /// And at most so many bytes.
    pub octets_elsewhere: u64,
    /// All that was counted.
    pub counted: TopTotals,
    /// Flows that each table holds at most.
    pub room: usize,
}

/// The flows of a lane, if somebody watches.
#[derive(Debug, Default)]
pub(crate) struct Top(Option<Box<Watch>>);

#[derive(Debug)]
struct Watch {
    packets: Table,
    octets: Table,
    seed: [u64; 2],
    counted: Weight,
    /// The last packets, all of one flow, which are counted when one of another comes.
    run: Run,
    /// Seconds on the lane's clock.
    second: u32,
    /// When the next one begins.
    next: Time,
}

impl Top {
    pub(crate) fn new(config: &TopConfig) -> Self {
        let idle = config.idle.as_secs().min(u64::from(u32::MAX)) as u32;
        Self(Some(Box::new(Watch {
            packets: Table::new(config.flows, idle),
            octets: Table::new(config.flows, idle),
            seed: config.seed,
            counted: Weight::NONE,
            run: Run::NONE,
            second: 0,
            next: Time::ZERO,
        })))
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A frame has come; `ethernet`: its data starts at the Ethernet header, else at the IP header.
    #[inline]
    pub(crate) fn received(&mut self, now: Time, frame: &Frame, ethernet: bool) {
        if let Some(watch) = &mut self.0 {
            watch.count(now, frame, ethernet, true);
        }
    }

    /// A frame goes out.
    #[inline]
    pub(crate) fn sent(&mut self, now: Time, frame: &Frame, ethernet: bool) {
        if let Some(watch) = &mut self.0 {
            watch.count(now, frame, ethernet, false);
        }
    }

    /// What the tables have; `None` if nobody watches.
    pub(crate) fn report(&mut self, now: Time) -> Option<TopReport> {
        Some(self.0.as_mut()?.report(now))
    }
}

impl Watch {
    #[inline(never)]
    fn count(&mut self, now: Time, frame: &Frame, ethernet: bool, received: bool) {
        if now >= self.next {
            self.turn_to(now);
        }
        if ethernet {
            if let Some((key, octets)) = plain(frame, received) {
                return self.note(&key, Weight { packets: 1, octets }, received);
            }
        }
        self.count_closely(frame, ethernet, received);
    }

    /// As [`Watch::count`], of a frame of any kind.
    #[inline(never)]
    fn count_closely(&mut self, frame: &Frame, ethernet: bool, received: bool) {
        if let Some((key, weight)) = look_closely(frame, ethernet, received) {
            self.note(&key, weight, received);
        }
    }

    #[inline]
    fn note(&mut self, key: &Key, weight: Weight, received: bool) {
        if !self.run.key.is(key) {
            self.end_run();
            self.run = Run { key: *key, ..Run::NONE };
        }
        let totals = &mut self.run.totals[usize::from(received)];
        totals.packets += weight.packets;
        totals.octets += weight.octets;
    }

    /// Counts the packets of the run.
    #[inline]
    fn end_run(&mut self) {
        let [sent, received] = self.run.totals;
        let (packets, octets) = (sent.packets + received.packets, sent.octets + received.octets);
        if packets == 0 {
            return;
        }
        self.counted.packets += packets;
        self.counted.octets += octets;
        // Not the frame's own hash: its key is known, and of datagrams it may be that of the addresses only.
        let hash = self.run.key.hash(self.seed);
        self.packets.add(&self.run, hash, packets, self.second);
        self.octets.add(&self.run, hash, octets, self.second);
    }

    /// Another second.
    #[cold]
    fn turn_to(&mut self, now: Time) {
        self.end_run();
        self.run = Run::NONE;
        let second = now.as_nanos() / 1_000_000_000;
        self.second = second.min(u64::from(u32::MAX)) as u32;
        self.next = Time::from_secs(second + 1);
    }

    fn report(&mut self, now: Time) -> TopReport {
        self.turn_to(now);
        self.packets.turn_to(self.second);
        self.octets.turn_to(self.second);
        let seed = self.seed;
        let count = |table: &Table, entry: &Entry| match table.of(entry.key.hash(seed), &entry.key) {
            Ok((count, error)) => TopCount { count, error },
            // It is in the other table only, and knows what it has had since.
            Err(most) => TopCount { count: most, error: most },
        };
        let mut flows = Vec::with_capacity(self.packets.len() + self.octets.len());
        for (entry, packets, last) in self.packets.iter() {
            let packets = TopCount { count: packets, error: entry.error };
            flows.push(flow(entry, last, packets, count(&self.octets, entry)));
        }
        for (entry, octets, last) in self.octets.iter() {
            if self.packets.of(entry.key.hash(seed), &entry.key).is_err() {
                let octets = TopCount { count: octets, error: entry.error };
                flows.push(flow(entry, last, count(&self.packets, entry), octets));
            }
        }
        TopReport {
            flows,
            packets_elsewhere: self.packets.most_missing(),
            octets_elsewhere: self.octets.most_missing(),
            counted: self.counted.into(),
            room: self.packets.capacity(),
        }
    }
}

/// An entry as it is shown. What it has certainly had is no error.
fn flow(entry: &Entry, last: u32, packets: TopCount, octets: TopCount) -> TopFlow {
    let (local, remote) = entry.key.ends();
    let (received, sent) = (TopTotals::from(entry.received()), TopTotals::from(entry.sent()));
    let at_least = |count: TopCount, had: u64| {
        let count = TopCount { count: count.count.max(had), ..count };
        TopCount { error: count.error.min(count.count - had), ..count }
    };
    TopFlow {
        protocol: entry.key.protocol(),
        fragments: entry.key.is_fragment(),
        local,
        remote,
        packets: at_least(packets, received.packets + sent.packets),
        octets: at_least(octets, received.octets + sent.octets),
        received,
        sent,
        since: Time::from_secs(entry.began.into()),
        last: Time::from_secs(last.into()),
    }
}

impl From<Weight> for TopTotals {
    fn from(weight: Weight) -> Self {
        Self { packets: weight.packets, octets: weight.octets }
    }
}
