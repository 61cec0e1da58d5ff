//! The flows of a lane with most packets and most bytes, in a table of fixed size: heavy hitters.
//!
//! Off unless somebody asks ([`Lane::watch_top`](crate::Lane::watch_top)): then a frame costs a look at a pointer. While it is on, each frame
//! that comes from a link, or goes to one, is counted for its flow, both directions of UDP and TCP together; also what the stack drops
//! afterwards, since that is what one looks for in a flood. The module `table` says how, and what the bounds are; `key` what a flow is. Nothing is
//! allocated after the start, and a frame costs the same with ten flows and with ten million: hostile flows can make counts less exact,
//! within bounds that are reported, and nothing else.
//!
//! What a tunnel carries is counted as a flow of its own beside the flow of the outer packets, each in its lane.

pub(crate) mod key;
mod table;
#[cfg(test)]
mod tests;

use core::time::Duration;

use self::key::{Key, Weight};
use self::table::{Entry, Table};
use crate::address::Endpoint;
use crate::time::Time;
use crate::wire::IpProtocol;

/// How flows are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopConfig {
    /// Flows with most packets, and as many with most bytes, for which there is room in any case; at most 2^20. About 200 bytes each.
    pub flows: usize,
    /// A flow without packets for longer is forgotten; whole seconds.
    pub idle: Duration,
    /// Seed of the hash: secret, and different for every lane.
    pub seed: [u64; 2],
}

impl TopConfig {
    /// 256 flows of each order, and a minute.
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
    /// What came since the flow is in the table: no more than there were.
    pub received: TopTotals,
    /// What went.
    pub sent: TopTotals,
    /// When it got into the table, to the second.
    pub since: Time,
    /// When its last packet passed, to the second.
    pub last: Time,
    /// Counted by a socket of the kernel, which tells no headers and no beginning: bytes are those of data, and `since` says nothing.
    pub by_kernel: bool,
}

impl TopFlow {
    /// A flow of a socket of the kernel, of which nothing is counted yet.
    #[must_use]
    pub fn by_kernel(protocol: IpProtocol, local: Endpoint, remote: Endpoint, now: Time) -> Self {
        Self {
            protocol,
            fragments: false,
            local,
            remote,
            packets: TopCount::default(),
            octets: TopCount::default(),
            received: TopTotals::default(),
            sent: TopTotals::default(),
            since: now,
            last: now,
            by_kernel: true,
        }
    }
}

/// What a lane's table has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TopReport {
    /// The flows in the table, in no order.
    pub flows: Vec<TopFlow>,
    /// A flow that is not among them has had at most so many packets.
    pub packets_elsewhere: u64,
    /// And at most so many bytes.
    pub octets_elsewhere: u64,
    /// All that was counted.
    pub counted: TopTotals,
    /// Flows with most packets, and as many with most bytes, for which there is room: the table holds twice as many.
    pub room: usize,
}

/// The flows of a lane, if somebody watches.
#[derive(Debug, Default)]
pub(crate) struct Top(Option<Box<Watch>>);

#[derive(Debug)]
struct Watch {
    table: Table,
    seed: [u64; 2],
    /// Seconds on the lane's clock.
    second: u32,
    /// When the next one begins.
    next: Time,
}

impl Top {
    pub(crate) fn new(config: &TopConfig) -> Self {
        let idle = config.idle.as_secs().min(u64::from(u32::MAX)) as u32;
        Self(Some(Box::new(Watch {
            table: Table::new(config.flows, idle),
            seed: config.seed,
            second: 0,
            next: Time::ZERO,
        })))
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A frame of a flow has come, or goes out.
    #[inline(always)]
    pub(crate) fn count(&mut self, now: Time, key: Key, weight: Weight, received: bool) {
        if let Some(watch) = &mut self.0 {
            watch.count(now, key, weight, received);
        }
    }

    /// What the table has; `None` if nobody watches.
    pub(crate) fn report(&mut self, now: Time) -> Option<TopReport> {
        Some(self.0.as_mut()?.report(now))
    }
}

impl Watch {
    #[inline(always)]
    fn count(&mut self, now: Time, key: Key, weight: Weight, received: bool) {
        if now >= self.next {
            self.turn_to(now);
        }
        // Not the frame's own hash: its key is known, and of datagrams it may be that of the addresses only.
        self.table.add(key, key.hash(self.seed), weight, received, self.second);
    }

    /// Another second.
    #[cold]
    fn turn_to(&mut self, now: Time) {
        let second = now.as_nanos() / 1_000_000_000;
        self.second = second.min(u64::from(u32::MAX)) as u32;
        self.next = Time::from_secs(second + 1);
    }

    fn report(&mut self, now: Time) -> TopReport {
        self.turn_to(now);
        self.table.turn_to(self.second);
        let mut flows = Vec::with_capacity(self.table.capacity());
        flows.extend(self.table.iter().map(flow));
        let elsewhere = self.table.most_missing();
        TopReport {
            flows,
            packets_elsewhere: elsewhere.packets,
            octets_elsewhere: elsewhere.octets,
            counted: self.table.counted().into(),
            room: self.table.room(),
        }
    }
}

/// An entry as it is shown.
fn flow(entry: &Entry) -> TopFlow {
    let (local, remote) = entry.key.ends();
    let (count, error) = (entry.count(), entry.error);
    TopFlow {
        protocol: entry.key.protocol(),
        fragments: entry.key.is_fragment(),
        local,
        remote,
        packets: TopCount { count: count.packets, error: error.packets },
        octets: TopCount { count: count.octets, error: error.octets },
        received: entry.received().into(),
        sent: entry.sent().into(),
        since: Time::from_secs(entry.began.into()),
        last: Time::from_secs(entry.last.into()),
        by_kernel: false,
    }
}

impl From<Weight> for TopTotals {
    fn from(weight: Weight) -> Self {
        Self { packets: weight.packets, octets: weight.octets }
    }
}
