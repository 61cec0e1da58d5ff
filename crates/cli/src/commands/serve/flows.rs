//! `--flows`: datagrams and connections counted by flow hash, hash type and bucket.
//!
//! Each lane has its own table behind a lock, taken once for each batch and contended only while flows are listed. A table holds at
//! most [`LIMIT`] flows, so that invented addresses cannot fill the memory. Datagrams of further flows are counted in one number.

use flowlane::Datagram;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most flows in the table of one lane.
const LIMIT: usize = 65536;

/// Counts of all lanes.
#[derive(Debug, Clone)]
pub(super) struct Flows {
    lanes: Arc<[Mutex<Lane>]>,
}

#[derive(Debug, Default)]
struct Lane {
    counts: HashMap<(u32, u8), u64>,
    beyond: u64,
}

/// One flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) hash: u32,
    pub(super) hash_type: u8,
    pub(super) bucket: usize,
    pub(super) count: u64,
}

/// The counted flows of all lanes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    /// By bucket, then hash.
    pub(super) flows: Vec<Flow>,
    /// Datagrams and connections of flows that found the table full.
    pub(super) beyond: u64,
}

impl Flows {
    pub(super) fn new(lanes: usize) -> Self {
        Self { lanes: (0..lanes).map(|_| Mutex::default()).collect() }
    }

    /// Counts a batch of a lane.
    pub(super) fn count(&self, bucket: u16, batch: &[Datagram]) {
        self.add(bucket, batch.iter().map(|d| (d.flow_hash(), d.hash_type())));
    }

    /// Counts a connection of a lane.
    pub(super) fn connection(&self, bucket: u16, hash: u32, hash_type: u8) {
        self.add(bucket, std::iter::once((hash, hash_type)));
    }

    fn add(&self, bucket: u16, keys: impl Iterator<Item = (u32, u8)>) {
        let Some(lane) = self.lanes.get(usize::from(bucket)) else { return };
        let mut lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            if let Some(count) = lane.counts.get_mut(&key) {
                *count += 1;
            } else if lane.counts.len() < LIMIT {
                lane.counts.insert(key, 1);
            } else {
                lane.beyond += 1;
            }
        }
    }

    pub(super) fn list(&self) -> List {
        let mut list = List { flows: Vec::new(), beyond: 0 };
        for (bucket, lane) in self.lanes.iter().enumerate() {
            let lane = lane.lock().unwrap_or_else(PoisonError::into_inner);
            list.beyond += lane.beyond;
            let flow = |(&(hash, hash_type), &count)| Flow { hash, hash_type, bucket, count };
            list.flows.extend(lane.counts.iter().map(flow));
        }
        list.flows.sort_unstable_by_key(|f| (f.bucket, f.hash, f.hash_type));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_counted_up_to_a_limit() {
        let flows = Flows::new(2);
        flows.add(1, [(5, 0x81), (5, 0x81), (4, 0x81)].into_iter());
        flows.add(0, (0..LIMIT as u32 + 7).map(|hash| (hash, 0x87)));
        flows.add(0, [(0, 0x87)].into_iter());
        let list = flows.list();
        assert_eq!(list.beyond, 7);
        assert_eq!(list.flows.len(), LIMIT + 2);
        assert_eq!(list.flows[0], Flow { hash: 0, hash_type: 0x87, bucket: 0, count: 2 });
        assert_eq!(list.flows[LIMIT + 1], Flow { hash: 5, hash_type: 0x81, bucket: 1, count: 2 });
    }
}
