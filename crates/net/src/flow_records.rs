//! Records of ended flows, from all lanes of a host to an exporter.
//!
//! Each lane has a small ring of records. After a turn in which a lane did something, its worker moves its records to the queue that all
//! lanes share. While that is full they stay in the lane, and records that do not fit there either are lost and counted. The exporter
//! polls the queue; it is not woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use flowlane_stack::Lane;
use flowlane_stack::tcp::FlowRecord;
use flowlane_stack::time::Time;

/// Records that wait in a lane, of each protocol.
const RING: usize = 256;
/// The idle timeout by default.
const IDLE: Duration = Duration::from_secs(15);

/// A queue of [`FlowRecord`]s: one for each TCP connection and each UDP flow of a host that has ended ([`Host::flows`](crate::Host::flows)). Clones
/// share the queue.
#[derive(Debug, Clone)]
pub struct FlowRecords {
    queue: Arc<ArrayQueue<FlowRecord>>,
    lost: Arc<AtomicU64>,
    /// A copy of each record goes there.
    also: Option<Box<FlowRecords>>,
    /// The active timeout.
    every: Option<Duration>,
    /// The idle timeout of UDP.
    idle: Duration,
}

impl FlowRecords {
    /// A queue for `most` records (at least 1), each about 170 bytes, which are allocated now.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            queue: Arc::new(ArrayQueue::new(most.max(1))),
            lost: Arc::default(),
            also: None,
            every: None,
            idle: IDLE,
        }
    }

    /// The next record; `None` if there is none now. May be called on any thread. Records of one lane are in the order in which
    /// its flows ended.
    #[must_use]
    pub fn try_next(&self) -> Option<FlowRecord> {
        self.queue.pop()
    }

    /// The same queue; from hosts that are given this handle a copy of each record goes to `other`, too, for a second exporter. A queue that
    /// is full while the other has room loses records, and counts them.
    #[must_use]
    pub fn and(mut self, other: &FlowRecords) -> Self {
        self.also = Some(Box::new(other.clone()));
        self
    }

    /// The same queue; from hosts that are given this handle it also has a record of each flow that stands, each time this time has passed
    /// (RFC 7011 §5.1.1: active timeout), of what was counted since the flow's record before. Flows without a packet since then
    /// have none. So the sum of a flow's records is what passed.
    #[must_use]
    pub fn active_timeout(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// The same queue; UDP flows of hosts that are given this handle end when they were silent for so long (RFC 7011 §5.1.1: idle timeout), which
    /// is noticed up to a second later; 15 s by default.
    #[must_use]
    pub fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle = idle;
        self
    }

    /// Records that found no room in this queue: of flows on kernel sockets, and of those that ended with their lane. Others that found none
    /// in their lane's ring while it ran are counted by that (`flow_records_lost` of its TCP and UDP).
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The records of a new lane are for this queue.
    pub(crate) fn watch(&self, lane: &mut Lane) {
        lane.watch_flows(Time::ZERO, RING, self.every, self.idle);
    }

    /// Moves what has ended in a lane to this queue, as far as there is room.
    #[inline]
    pub(crate) fn take_from(&self, lane: &mut Lane) {
        while self.has_room() {
            let Some(record) = lane.poll_flow() else { return };
            self.push(record);
        }
    }

    /// The lane ends, and with it the flows that stand.
    pub(crate) fn take_last(&self, lane: &mut Lane, now: Time) {
        lane.end_flows(now, |record| self.push(record));
    }

    /// Whether anybody would take a record.
    pub(crate) fn has_room(&self) -> bool {
        !self.queue.is_full() || self.also.as_ref().is_some_and(|also| also.has_room())
    }

    /// Takes the record of a flow on kernel sockets. One that finds no room is counted as lost.
    pub(crate) fn put(&self, record: FlowRecord) {
        self.push(record);
    }

    /// The active timeout.
    #[inline]
    pub(crate) fn active(&self) -> Option<Duration> {
        self.every
    }

    fn push(&self, record: FlowRecord) {
        if let Some(also) = &self.also {
            also.push(record);
        }
        if self.queue.push(record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}
