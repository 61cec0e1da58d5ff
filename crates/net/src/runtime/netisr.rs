//! netisr: frames that arrived on the wrong worker, handed to the right one.
//!
//! There is one bounded ring for each pair of workers and direction. A full ring drops the newest frame, as FreeBSD's netisr does, and
//! counts it. Messages of a lane's move are never dropped: they wait, and everything behind them waits too, so that the order is kept. A
//! worker takes from each ring only what was there when it started, so that one busy worker cannot keep it from the other rings.

use std::collections::VecDeque;
use std::sync::Arc;

use flowlane_stack::Class;
use flowlane_sys::frame::Frame;
use flowlane_sys::ring::spsc::{Receiver, Sender};

use crate::lane::LaneSlot;
use crate::shared::Shared;
use crate::stats::NetisrStats;

/// What goes from one worker to another.
#[derive(Debug)]
pub(crate) enum Parcel {
    /// A frame for a lane of the receiver.
    Frame { lane: u32, class: Class, frame: Frame },
    /// A lane moves in. Frames for it follow in the same ring.
    Lane(Box<LaneSlot>),
    /// Nothing of a worker's is on its way any more.
    Marker(Marker),
}

/// A worker has sent its last frame for a lane by the old way: the next go to its new owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) lane: u32,
    /// Of the lane's moves, the one with this number.
    pub(crate) number: u32,
    /// Who has sent its last frame.
    pub(crate) from: u16,
    /// The new owner; whom the lane left passes it on.
    pub(crate) to: u16,
}

/// The rings hold four to a cache line.
const _: () = assert!(size_of::<Parcel>() == 16);

/// The rings of one worker.
#[derive(Debug)]
pub(crate) struct Netisr {
    senders: Vec<Option<Sender<Parcel>>>,
    receivers: Vec<Option<Receiver<Parcel>>>,
    /// What did not fit a ring and must not be lost, with what came after it.
    backlog: Vec<VecDeque<Parcel>>,
    /// Rings with something unpublished.
    unpublished: Vec<bool>,
    limit: usize,
    pub(crate) stats: NetisrStats,
    /// Parcels that found a ring full and waited.
    pub(crate) waited: u64,
    /// Where parcels are received into, between turns.
    list: Vec<Parcel>,
}

impl Netisr {
    /// The rings of `workers` workers, each holding at least `limit` frames.
    pub(crate) fn mesh(workers: usize, limit: usize) -> Vec<Self> {
        let mut all: Vec<Self> = (0..workers)
            .map(|_| Self {
                senders: (0..workers).map(|_| None).collect(),
                receivers: (0..workers).map(|_| None).collect(),
                backlog: (0..workers).map(|_| VecDeque::new()).collect(),
                unpublished: vec![false; workers],
                limit,
                stats: NetisrStats::default(),
                waited: 0,
                list: Vec::with_capacity(256),
            })
            .collect();
        for from in 0..workers {
            for to in (0..workers).filter(|to| *to != from) {
                let (sender, receiver) = flowlane_sys::ring::spsc::ring(limit);
                all[from].senders[to] = Some(sender);
                all[to].receivers[from] = Some(receiver);
            }
        }
        all
    }

    /// Sends a parcel to another worker. Frames may be dropped, and are counted.
    #[inline]
    pub(crate) fn send(&mut self, to: usize, parcel: Parcel) {
        let Some(sender) = self.senders.get_mut(to).and_then(Option::as_mut) else { return };
        self.stats.sent += u64::from(matches!(parcel, Parcel::Frame { .. }));
        // Guard: `self.backlog[to].is_empty()` as `true` fails runtime::netisr
        let parcel = if self.backlog[to].is_empty() {
            match sender.push(parcel) {
                Ok(()) => {
                    self.unpublished[to] = true;
                    return;
                }
                Err(parcel) => parcel,
            }
        } else {
            parcel
        };
        let frame = matches!(parcel, Parcel::Frame { .. });
        // A frame waits only behind what must not be lost, and then no more of them than a ring would hold.
        // Guard: `frame` as `true` fails runtime::netisr
        // Guard: `self.backlog[to].len() >= self.limit` as `false` fails runtime::netisr
        if frame && (self.backlog[to].is_empty() || self.backlog[to].len() >= self.limit) {
            self.stats.dropped += 1;
            return;
        }
        self.waited += 1;
        self.backlog[to].push_back(parcel);
    }

    /// Whether a frame for a worker would not be dropped now.
    pub(crate) fn takes(&mut self, to: usize) -> bool {
        let waiting = self.backlog.get(to).map_or(0, VecDeque::len);
        let Some(sender) = self.senders.get_mut(to).and_then(Option::as_mut) else { return true };
        if waiting > 0 { waiting < self.limit } else { sender.pending() < self.limit.next_power_of_two() }
    }

    /// How many frames surely find room, whichever worker they are for.
    pub(crate) fn room(&mut self) -> usize {
        let (limit, backlog) = (self.limit, &self.backlog);
        let senders = self.senders.iter_mut().zip(backlog);
        let room = senders.filter_map(|(sender, backlog)| {
            let waiting = sender.as_mut()?.pending();
            Some(if backlog.is_empty() { limit.saturating_sub(waiting) } else { 0 })
        });
        room.min().unwrap_or(usize::MAX)
    }

    /// Makes what was sent visible to its receivers and wakes those who sleep. `true` while something waits.
    pub(crate) fn flush(&mut self, shared: &Arc<Shared>) -> bool {
        let mut waiting = false;
        for to in 0..self.senders.len() {
            let Some(sender) = &mut self.senders[to] else { continue };
            while let Some(parcel) = self.backlog[to].pop_front() {
                if let Err(parcel) = sender.push(parcel) {
                    self.backlog[to].push_front(parcel);
                    waiting = true;
                    break;
                }
                self.unpublished[to] = true;
            }
            if std::mem::take(&mut self.unpublished[to]) {
                sender.publish();
                shared.posts[to].wake.ring();
            }
        }
        waiting
    }

    /// Whether anything waits in a ring to this worker or in a backlog from it.
    pub(crate) fn ready(&mut self) -> bool {
        self.receivers.iter_mut().flatten().any(|r| r.ready() > 0)
            || self.backlog.iter().any(|b| !b.is_empty())
    }

    /// An empty list to [receive](Self::receive) into, to be [given back](Self::put_list).
    #[inline]
    pub(crate) fn take_list(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.list)
    }

    #[inline]
    pub(crate) fn put_list(&mut self, list: Vec<Parcel>) {
        self.list = list;
    }

    /// Takes what waits in the ring from worker `from` into `into`.
    pub(crate) fn receive(&mut self, from: usize, into: &mut Vec<Parcel>) {
        let Some(receiver) = self.receivers.get_mut(from).and_then(Option::as_mut) else { return };
        let n = receiver.ready();
        if n == 0 {
            return;
        }
        self.stats.watermark = self.stats.watermark.max(n as u64);
        for _ in 0..n {
            let Some(parcel) = receiver.pop() else { break };
            self.stats.queued += u64::from(matches!(parcel, Parcel::Frame { .. }));
            into.push(parcel);
        }
        receiver.release();
    }

    /// Number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.senders.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_records::FlowRecords;
    use crate::lane::{LaneId, LastReports, UnderWay};
    use flowlane_rss::{Bucket, Key, Rss};
    use flowlane_stack::address::{Endpoint, Prefix};
    use flowlane_stack::tcp::FlowEnd;
    use flowlane_stack::time::Time;
    use flowlane_stack::wire::MacAddr;
    use flowlane_stack::{Connect, InterfaceConfig, Lane, LaneConfig};
    use flowlane_sys::frame::{FrameMemory, MemoryConfig, Pool};

    const LIMIT: usize = 4;

    fn frame(pool: &Pool) -> Parcel {
        Parcel::Frame { lane: 0, class: Class::Ethernet, frame: pool.alloc().unwrap() }
    }

    fn marker(lane: u32) -> Parcel {
        Parcel::Marker(Marker { lane, number: 0, from: 0, to: 1 })
    }

    fn pool() -> Pool {
        let config =
            MemoryConfig { frames_per_home: 64, lock: false, huge_pages: false, ..MemoryConfig::default() };
        FrameMemory::new(&config).unwrap().attach(0).unwrap()
    }

    /// A full ring drops frames. What a move sends is never dropped; frames wait behind it, in order, and no more of them than a
    /// ring would hold.
    #[test]
    fn frames_are_dropped_and_what_must_not_be_lost_is_not() {
        let pool = pool();
        let mut all = Netisr::mesh(2, LIMIT);
        let (mut to, mut from) = (all.remove(1), all.remove(0));
        while from.stats.dropped == 0 {
            from.send(1, frame(&pool));
        }
        let fit = from.stats.sent - 1;
        assert!(fit >= LIMIT as u64);
        assert_eq!(64 - pool.free() as u64, fit, "a frame that is dropped goes home");
        from.send(1, marker(9));
        for _ in 0..3 * LIMIT {
            from.send(1, frame(&pool));
        }
        assert_eq!(from.backlog[1].len(), LIMIT, "with the marker");
        assert_eq!(from.waited, LIMIT as u64);
        assert_eq!((from.stats.dropped, from.room()), (1 + 2 * LIMIT as u64 + 1, 0));
        from.send(1, marker(10));
        publish(&mut from);
        let mut got = Vec::new();
        to.receive(0, &mut got);
        assert_eq!(got.len() as u64, fit);
        // There is room in the ring again, but what comes now would overtake what waits.
        from.send(1, marker(11));
        while let Some(parcel) = from.backlog[1].pop_front() {
            if let Err(parcel) = from.senders[1].as_mut().unwrap().push(parcel) {
                from.backlog[1].push_front(parcel);
                publish(&mut from);
                to.receive(0, &mut got);
            }
        }
        publish(&mut from);
        to.receive(0, &mut got);
        let lane = |parcel: &Parcel| match parcel {
            Parcel::Marker(marker) => Some(marker.lane),
            _ => None,
        };
        assert_eq!(got.iter().filter_map(lane).collect::<Vec<_>>(), [9, 10, 11]);
        assert_eq!(to.stats.queued, fit + LIMIT as u64 - 1);
    }

    /// A runtime that stops at once leaves lanes in the rings: their flows end like those of other lanes.
    #[test]
    fn a_lane_that_nobody_takes_gives_records_of_its_flows() {
        let pool = pool();
        let (now, left) = (Time::from_nanos(5), Time::from_nanos(9));
        let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
        let address = Prefix::new([10, 0, 0, 1].into(), 24).unwrap();
        let interface = InterfaceConfig {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: vec![address],
            claimed: Vec::new(),
            vlan: None,
            offload: Default::default(),
        };
        let (records, last) = (FlowRecords::new(10), LastReports::default());
        // In a ring that is read no more, and behind it.
        let mut all = Netisr::mesh(2, LIMIT);
        for index in 0..2 * LIMIT as u32 {
            let mut lane =
                Lane::new(&LaneConfig::new(Bucket(0), rss.clone(), vec![interface.clone()], [1; 4]));
            records.watch(&mut lane);
            let peer = Endpoint::new([10, 0, 0, 2].into(), 7);
            lane.tcp_connect(now, &pool, Connect::to(peer)).unwrap();
            let mut slot = LaneSlot::new(LaneId { runtime: 0, index }, 0, lane, Arc::new([]));
            slot.flows = Some(records.clone());
            slot.under_way = Some(UnderWay { since: left, to: 1, last: last.clone() });
            all[0].send(1, Parcel::Lane(Box::new(slot)));
        }
        publish(&mut all[0]);
        assert_eq!(records.try_next(), None);
        drop(all);
        let ended: Vec<_> =
            std::iter::from_fn(|| records.try_next()).map(|r| (r.end, r.began, r.ended)).collect();
        assert_eq!(ended, vec![(FlowEnd::LaneEnded, now, left); 2 * LIMIT]);
        // And reports of their own.
        assert_eq!(
            last.take().iter().map(|lane| (lane.worker, lane.counts.connections)).collect::<Vec<_>>(),
            [(1, 1); 2 * LIMIT]
        );
    }

    fn publish(netisr: &mut Netisr) {
        netisr.senders[1].as_mut().unwrap().publish();
    }
}
